//! What commands attempt: one line of shell per way to read or to write a path.
//!
//! `{v}` is the path, `{d}` its folder, `{n}` its name, `{t}` the folder above it in the root, `{r}` the rest below that,
//! `{s}` a new name that is not denied, `{u}` the path in another case.

use super::names::other_case;
use super::scene::Victim;
use super::tree::bytes_of;
use crate::random::Random;

/// Ways to read a file, or to bring its content to where it can be read.
const READS: &[&str] = &[
    "cat {v}",
    "cat < {v}",
    "cat \"$PWD\"/{v}",
    "cat ./{d}//{n}",
    "cat {d}/./{n} {d}/../{d}/{n}",
    "cat /proc/self/cwd/{v}",
    "cat /proc/self/root/\"$PWD\"/{v}",
    "cd {d} && cat ./{n}",
    "cd {t} && cat {r} && cd .. && cat {v}",
    "cp {v} {s}; cat {s}",
    "cp -r {d} {s}; cat {s}/{n}",
    "cp -al {t} {s}; cat {s}/{r}",
    "ln {v} {s}; cat {s}",
    "ln -s \"$PWD\"/{v} {s}; cat {s}",
    "ln -s \"$PWD\"/{d} {s}; cat {s}/{n}",
    "mv {v} {s}; cat {s}",
    "mv {d} {s}; cat {s}/{n}",
    "mv {t} {s}; cat {s}/{r}",
    "mkdir {s}; mv {d} {s}/in; cat {s}/in/{n}",
    "mkdir {s}; mv {v} {s}/in; cat {s}/in",
    "chmod 644 {v}; cat {v}",
    "chmod -R 777 {t}; cat {v}",
    "rm -f {v}; cat {v}",
    "rm -rf {d}; cat {v}",
    "truncate -s +1 {v}; cat {v}",
    "tar cf - ./{v} | tr -d '\\0'",
    "tar cf {s} {t}; tr -d '\\0' < {s}",
    "grep -r . {t}",
    "grep -h . ./{v}",
    "find . -type f -exec cat {} +",
    "exec 9< {v}; cat <&9",
    "dd if={v} 2>/dev/null",
    "sed -n p ./{v}",
    "awk 1 ./{v}",
    ". ./{v}",
    "while read -r l; do echo \"$l\"; done < {v}",
    "diff ./{v} /dev/null",
    "sort ./{v}",
    "od -An -c ./{v} | tr -d ' \\n'",
    "base64 ./{v} | base64 -d",
    "install -m 644 ./{v} {s}; cat {s}",
    "git diff --no-index /dev/null ./{v}",
    "git hash-object ./{v}; git init -q {s}; cp ./{v} {s}/f; git -C {s} add f; git -C {s} show :f",
    "perl -e 'open(F, \"<\", $ARGV[0]); print <F>' {v}",
    "perl -e 'rename($ARGV[0], $ARGV[1]); open(F, \"<\", $ARGV[1]); print <F>' {v} {s}",
    "perl -e 'link($ARGV[0], $ARGV[1]); open(F, \"+<\", $ARGV[1]); print <F>' {v} {s}",
    "(sleep 0.02; cat {v}) & wait",
    "setsid sh -c 'cat \"$1\" > \"$2\"' sh {v} {s} < /dev/null > /dev/null 2>&1 & sleep 0.02",
    "unshare -Urm sh -c 'umount \"$1\"; umount -l \"$2\"; cat \"$1\"' sh {v} {d}",
];

/// The same in Python, which starts slowly.
const SLOW_READS: &[&str] = &[
    "/usr/bin/python3 -c 'import os,sys; f=os.open(sys.argv[1], os.O_PATH); print(open(f\"/proc/self/fd/{f}\").read())' {v}",
    "/usr/bin/python3 -c 'import mmap,sys; f=open(sys.argv[1]); print(mmap.mmap(f.fileno(), 0, prot=1)[:])' {v}",
    "/usr/bin/python3 -c 'import os,sys; d=os.open(\".\", 0); os.chdir(\"/\"); print(open(os.open(sys.argv[1], 0, dir_fd=d)).read())' {v}",
];

/// Ways to change what exists.
const CHANGES: &[&str] = &[
    "echo PWN >> {v}",
    "rm -f {v}",
    "rm -rf {d}",
    "rm -rf {t}",
    "find {t} -delete",
    "mv {v} {s}",
    "mv {d} {s}",
    "mv {t} {s}",
    "mv {t} {s}; mkdir -p {d}; echo PWN > {v}",
    "mv {t} {s}; cp -r {s} {t}; echo PWN >> {v}",
    "mv {d} {s}; ln -s \"$PWD\"/{s} {d}; echo PWN > {v}",
    "rm -f {v}; ln -s donor {v}",
    "rm -f {v}; mkdir {v}; echo PWN > {v}/in",
    "rm -f {v}; mkfifo {v}",
    "rm -rf {d}; ln -s open {d}",
    "rm -rf {d}; echo PWN > {d}",
    "ln {v} {s}; echo PWN > {s}",
    "ln -s {v} {s}; echo PWN > {s}",
    "ln -s \"$PWD\"/{d} {s}; echo PWN > {s}/{n}",
    "truncate -s 0 {v}",
    "truncate -s 3 {v}",
    "chmod 777 {v}",
    "chmod 000 {v}",
    "chmod 000 {d}; rm -f {v}",
    "sed -i s/./PWN/ ./{v}",
    "exec 9<> {v}; echo PWN >&9",
    "cp -a {t} {s}; rm -rf {t}; mv {s} {t}; echo PWN > {v}",
    "cp -a {v} {s}; rm {v}; echo PWN >> {s}; mv {s} {v}",
    "perl -e 'open(F, \"+<\", $ARGV[0]); print F \"PWN\"' {v}",
    "perl -e 'rename($ARGV[0], $ARGV[1])' {v} {s}",
    "perl -e 'open(F, \">>\", $ARGV[0]); unlink($ARGV[0]); print F \"PWN\"; link(\"/proc/self/fd/\" . fileno(F), $ARGV[0])' {v}",
    "git rm -rqf --cached ./{v}; git clean -fdxq {d}; git checkout -f",
    "unshare -Urm sh -c 'umount \"$1\"; mount -o remount,rw \"$1\"; echo PWN > \"$1\"' sh {v}",
];

/// Ways to write a path, whether it exists or not.
const WRITES: &[&str] = &[
    "mkdir -p ./{d}; echo PWN > {v}",
    "mkdir -p ./{d}; : > {v}; printf PWN | tee -a ./{v}",
    "mkdir -p ./{d}; echo PWN > {s}; mv -f {s} ./{v}",
    "mkdir -p ./{d}; echo PWN > {s}; cp {s} ./{v}",
    "mkdir -p ./{d}; echo PWN > {s}; ln -f {s} ./{v}",
    "mkdir -p ./{d}; echo PWN > {s}; ln -sf \"$PWD\"/{s} ./{v}",
    "mkdir -p ./{d}; echo PWN > {s}; install -m 755 {s} ./{v}",
    "mkdir -p ./{d}; printf PWN | dd of={v} 2>/dev/null",
    "mkdir -p ./{d}; cd {d} && echo PWN > {n}",
    "mkdir -p {s}/{d}; echo PWN > {s}/{v}; cp -r {s}/. .",
    "mkdir -p {s}/{d}; echo PWN > {s}/{v}; tar cf - -C {s} . | tar xf -",
    "mkdir -p {s}/{d}; echo PWN > {s}/{v}; rm -rf {t}; mv {s}/{t} {t}",
    "mkdir -p {s}/{d}; echo PWN > {s}/{v}; mv {s}/{t} {s}x; ln -s {s}x {t}; echo PWN > {v}",
    "mkdir -p {s}/{d}; echo PWN > {s}/{v}; cp -al {s}/. .; echo PWN > {s}/{v}",
    "mkdir -p ./{d}; echo PWN > {v}; chmod 000 ./{d}",
    "mkdir -p ./{d}; echo PWN > {v}; chmod 000 {t}",
    "mkdir -p ./{d}; echo PWN > {v}; chmod 555 ./{d}",
    "mkdir -p ./{d}; echo PWN > {v}; chmod 400 ./{d}",
    "mkdir -p ./{d}; echo PWN > {v}; chmod 400 {v}",
    "mkdir -p ./{d}; echo PWN > {v}; mkdir -p {s}$(printf '/a%.0s' $(seq 520))",
    "mkdir -p {s}/{v}; echo PWN > {s}/{v}/in; chmod 311 {s}/{d}; mv {s}/{t} .",
    "mkdir -p ./{d}; echo PWN > {v}; n=$(printf %0200d 1); for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24; do mkdir $n; cd ./$n; done",
    "mkdir -p ./{d}; echo PWN > {u}",
    "mkdir -p ./{d}; echo PWN > {u}; mv {u} {v}",
    "mkdir -p {u}; echo PWN > {u}/in",
    "mkdir -p {v}; echo PWN > {v}/in",
    "mkdir -p ./{d}; (sleep 0.02; echo PWN > {v}) & wait",
    "mkdir -p ./{d}; setsid sh -c 'while :; do echo PWN > \"$1\"; done' sh {v} < /dev/null > /dev/null 2>&1 & sleep 0.02",
    "mkdir -p ./{d}; setsid sh -c 'sleep 0.03; echo PWN > \"$1\"' sh {v} < /dev/null > /dev/null 2>&1 &",
    "mkdir -p ./{d}; perl -e 'open(F, \">\", $ARGV[0]); print F \"PWN\"' {v}",
    "mkdir -p ./{d}; echo PWN > {s}; perl -e 'rename($ARGV[0], $ARGV[1])' {s} {v}",
    "mkdir -p ./{d}; perl -e 'symlink(\"donor\", $ARGV[0])' {v}",
    "mkdir -p ./{d}; mkfifo {v}",
    "mkdir -p {s}; cd {s}; mkdir -p ../{d}; echo PWN > ../{v}",
    "git init -q ./{d}; git -C ./{d} config core.fsmonitor ./PWN; git -C ./{d} config alias.x '!PWN'",
    "git init -q --bare {s}; git -C {s} config core.fsmonitor ./PWN; mkdir -p ./{d}; mv {s} ./{v}",
    "git clone -q --template={s} . {s}x; mkdir -p {s}x/.git/hooks ./{d}; echo PWN > {s}x/.git/hooks/pre-commit; mv {s}x ./{v}",
    "mkdir -p ./{d}; printf '[core]\\n\\tfsmonitor = ./PWN\\n' > {v}",
    "mkdir -p ./{d}; printf '[include]\\n\\tpath = PWN\\n' >> {v}",
    "mkdir -p ./{d}; printf 'ref: refs/heads/PWN\\n' > {v}",
    "mkdir -p ./{d}; printf 'gitdir: /PWN\\n' > {v}",
];

/// A file that is larger than the capability allows.
const LARGE: &[&str] = &[
    "head -c 5000 /dev/zero | tr '\\0' x > {s}",
    "head -c 3000 /dev/zero > {s}; cat {s} {s} > {s}x",
    "truncate -s 4001 {s}",
    "head -c 9000 /dev/zero > {s}; mv {s} open/c0.txt",
];

/// A line of shell that attempts to read or to write a victim.
pub(super) fn line(victim: &Victim, reads: bool, scratch: &str, random: &mut Random) -> String {
    let has_folder = victim.path.contains('/');
    let table = match (reads, victim.exists) {
        (true, _) if random.one_in(25) => SLOW_READS,
        (true, _) => READS,
        (false, true) if random.one_in(2) => CHANGES,
        (false, _) => WRITES,
    };
    loop {
        let line = *random.pick(table);
        let without = line.replace("mkdir -p ./{d};", "").replace("mkdir -p {s}/{d};", "");
        if has_folder || !(without.contains("{d}") || without.contains("{t}")) {
            return filled(line, &victim.path, scratch, random);
        }
    }
}

/// A line that writes more than the capability allows.
pub(super) fn large(scratch: &str, random: &mut Random) -> String {
    random.pick(LARGE).replace("{s}", scratch)
}

fn filled(line: &str, path: &str, scratch: &str, random: &mut Random) -> String {
    let (folder, name) = path.rsplit_once('/').unwrap_or((".", path));
    let (top, rest) = path.split_once('/').unwrap_or((path, ""));
    let other = match path.rsplit_once('/') {
        Some((folder, name)) => format!("{folder}/{}", other_case(name, random)),
        None => other_case(path, random),
    };
    // A name that begins with a dash is an option to most programs.
    let path = if path.starts_with('-') { format!("./{path}") } else { path.to_owned() };
    line.replace("{v}", &word(&path))
        .replace("{d}", &word(folder))
        .replace("{n}", &word(name))
        .replace("{t}", &word(top))
        .replace("{r}", &word(rest))
        .replace("{u}", &word(&other))
        .replace("{s}", scratch)
}

/// A path as one word of the shell. `{d}/{n}` is one word too.
pub(super) fn word(path: &str) -> String {
    let bytes = bytes_of(path);
    let is_plain = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ' || *byte >= 0x80;
    if std::str::from_utf8(&bytes).is_ok() && bytes.iter().all(is_plain) && !path.contains('\'') {
        return format!("'{path}'");
    }
    let octal: String = bytes.iter().map(|byte| format!("\\{byte:03o}")).collect();
    format!("\"$(printf '{octal}')\"")
}
