//! What a command sees: the roots, the system to read, its own folders, and nothing of the daemon's.

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use aos_testkit::{Findings, Start, World, check, expect, is_root, tree, wait_for};
use serde_json::json;

use super::room::{Room, SECOND, ns};
use crate::Outcome;

fn permissive() -> serde_json::Value {
    json!({ "policy": { "preset": "permissive" } })
}

pub fn a_clean_environment() -> Outcome {
    let secrets =
        ["AWS_SECRET_ACCESS_KEY", "ANTHROPIC_API_KEY", "MY_TOKEN", "SSH_AUTH_SOCK", "LD_LIBRARY_PATH"];
    let env = secrets.iter().map(|name| ((*name).to_owned(), "/leaked".to_owned())).collect();
    let room = Room::unmarked(World::with(Start { env, ..Start::default() }), json!({}));
    let receipt = room.run(&["env", "-0"]);
    expect("env", &receipt, &["ok"])?;
    let out = room.stdout(&receipt);
    let names: BTreeSet<&str> =
        out.split('\0').filter_map(|line| line.split('=').next()).filter(|n| !n.is_empty()).collect();
    let known = BTreeSet::from(["PATH", "HOME", "LANG", "TERM", "USER"]);
    check(names.is_subset(&known), || format!("it sees {names:?}"))?;
    check(names.contains("PATH") && names.contains("HOME"), || format!("it lacks PATH or HOME: {names:?}"))?;
    check(!out.contains("leaked") && !out.contains("AOS_HOME"), || out.clone())?;
    // Not through a parent's environment either.
    let session = room.world.open(permissive());
    let script = "cat /proc/*/environ /proc/1/environ 2>/dev/null | tr '\\0' '\\n' | grep -c leaked";
    let receipt = room.exec_in(&session, json!({ "argv": ["sh", "-c", script] }));
    check(room.stdout(&receipt).trim() == "0", || format!("found in a parent: {receipt}"))?;
    room.finish()
}

pub fn our_own_state() -> Outcome {
    let room = Room::permissive();
    let home = room.world.home.display().to_string();
    let socket = room.world.home.join("run/aosd.sock");
    let identity =
        |path: &std::path::Path| path.metadata().map(|meta| (meta.dev(), meta.ino(), meta.mode())).ok();
    let (socket_before, journal_before) =
        (identity(&socket), identity(&room.world.home.join("state/journal.db")));
    for first in ["", "mkdir -p $D/state/snapshots $D/run;"] {
        for target in ["state/journal.db", "state/snapshots/x", "run/aosd.sock", "state/blobs/x", "new"] {
            for deed in ["echo x > $D/", "rm -rf $D/", "ln -sf /etc/passwd $D/", "cp /etc/passwd $D/"] {
                let script = format!("D={home}; {first} {deed}{target}");
                expect(&script, &room.sh(&script), &["ok", "forbidden"])?;
            }
        }
    }
    let receipt =
        room.sh(&format!("cat {home}/state/journal.db | head -c 16; ls -A {home} {home}/state {home}/run"));
    check(!room.stdout(&receipt).contains("SQLite"), || "it reads the journal".into())?;
    check(identity(&socket) == socket_before, || "the socket was changed".into())?;
    check(identity(&room.world.home.join("state/journal.db")) == journal_before, || {
        "the journal was".into()
    })?;
    check(
        !room.world.home.join("new").exists() && !room.world.home.join("state/snapshots/x").exists(),
        || "it wrote into our home".into(),
    )?;
    room.finish()
}

pub fn the_secret_outside() -> Outcome {
    let strict = Room::open(json!({ "policy": { "preset": "permissive" }, "isolation": "strict" }));
    let outside = strict.world.outside.display().to_string();
    let mut findings = Findings::default();
    for script in [
        format!("cat {outside}/secret"),
        format!("echo x > {outside}/new"),
        format!("ln -s {outside}/secret out; cat out"),
        format!("ln -s {outside} folder; cat folder/secret"),
        format!("ln {outside}/secret hard; cat hard"),
        "cat ../outside/secret".into(),
        format!("cd {outside} && cat secret"),
        format!("cat /proc/1/root{outside}/secret"),
        format!("cat /proc/1/cwd/{outside}/secret"),
        format!("for p in /proc/[0-9]*; do cat $p/root{outside}/secret && exit 0; done; exit 1"),
        format!("mv {outside}/secret stolen; cat stolen"),
        "find / -name secret -path '*outside*' 2>/dev/null | grep . && find / -name secret -exec cat {} +"
            .into(),
    ] {
        let receipt = strict.sh(&script);
        findings.add(expect(&script, &receipt, &["ok"]));
        findings.add(check(receipt["exit_code"] != 0, || format!("{script}: {receipt}")));
    }
    let receipt = strict.world.client().fs(&strict.session, "read_file", json!({ "path": "out" }));
    findings.add(expect("the link it left", &receipt, &["forbidden / symlink_not_allowed"]));
    // Refused before it starts, under the default preset.
    let session = strict.another(json!({ "isolation": "strict" }));
    let begun = strict.world.root.join("begun");
    for argv in [
        json!(["cat", format!("{outside}/secret")]),
        json!(["sh", "-c", format!("touch begun; echo x > {outside}/new")]),
        json!(["sh", "-c", format!("touch begun; ln -s {outside}/secret l2")]),
    ] {
        let receipt = strict.exec_in(&session, json!({ "argv": argv }));
        findings.add(expect(&argv.to_string(), &receipt, &["forbidden / policy_denied"]));
        findings.add(check(!begun.exists(), || format!("{argv}: it ran")));
    }
    findings.add(strict.finish());
    findings.outcome()
}

pub fn its_own_defaults() -> Outcome {
    let wrapper =
        ["sh", "-c", "umask 077; ulimit -n 1048576 || ulimit -n $(ulimit -Hn); exec nice -n 5 \"$@\"", "sh"]
            .map(str::to_owned)
            .to_vec();
    let wrapper = if is_root() { wrapper } else { Vec::new() };
    let room = Room::of(World::with(Start { wrapper, ..Start::default() }), json!({}));
    let said = room.says("umask; ulimit -Sn; ulimit -Hn; ulimit -c; nice")?;
    let said: Vec<&str> = said.lines().collect();
    // `nice` is inherited on purpose or reset; neither gives a command a higher priority than its daemon.
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let hard = hard.min(65_536).to_string();
    check(said[..4] == ["0022", "1024", &hard, "0"], || format!("umask, files, cores: {said:?}"))?;
    check(["0", "5"].contains(&said[4]), || format!("nice: {said:?}"))?;
    room.finish()
}

/// A command inherits nothing that a fresh process would not have.
pub fn process_state() -> Outcome {
    // The daemon itself is started with signals blocked and ignored, as a badly written supervisor would.
    let wrapper = "import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGUSR1})
for name in ('SIGHUP', 'SIGPIPE', 'SIGUSR2', 'SIGTSTP'): signal.signal(getattr(signal, name), signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])";
    let wrapper = ["/usr/bin/env", "python3", "-c", wrapper].map(str::to_owned).to_vec();
    let start = Start { wrapper, ..Start::default() };
    let room = Room::of(World::with(start), permissive());
    let receipt = room.run(&["cat", "/proc/self/status"]);
    let status = room.stdout(&receipt);
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(&format!("{name}:")));
        line.and_then(|line| line.split_once('\t'))
            .map_or(String::new(), |(_, value)| value.trim().to_owned())
    };
    let none = "0000000000000000";
    // Signals 32 and 33 belong to the C library, which does not let a program change them.
    let ignored = u64::from_str_radix(&field("SigIgn"), 16).map_or(u64::MAX, |set| set & !(3 << 31));
    let mut findings = Findings::default();
    for (name, value) in [
        ("SigBlk", none),
        ("CapInh", none),
        ("CapPrm", none),
        ("CapEff", none),
        ("CapAmb", none),
        ("NoNewPrivs", "1"),
        ("Seccomp", "2"),
        ("TracerPid", "0"),
    ] {
        let found = field(name);
        findings.add(check(found == value, || format!("{name} is {found}, not {value}")));
    }
    findings.add(check(ignored == 0, || format!("SigIgn is {ignored:x}")));
    let groups = field("Groups");
    let own = field("Gid").split_whitespace().next().unwrap_or_default().to_owned();
    findings.add(check(groups.is_empty() || groups == own, || format!("groups {groups}")));
    // Signals and time limits still end a command.
    let receipt = room.sh("kill -HUP $$; sleep 3");
    findings.add(check(receipt["signal"] == "SIGHUP", || format!("HUP is ignored: {receipt}")));
    let receipt = room.exec(json!({ "argv": ["sh", "-c", "sleep 100"], "timeout_ns": ns(SECOND / 2) }));
    findings.add(expect("a timeout", &receipt, &["timeout"]));
    findings.add(room.nothing_runs());
    findings.add(room.world_finish());
    findings.outcome()
}

pub fn no_descriptors() -> Outcome {
    // The daemon has descriptors of its own that could leak: files, folders, sockets, several sessions.
    let mut room = Room::permissive();
    let _others: Vec<String> = (0..5).map(|_| room.another(json!({}))).collect();
    let _connections: Vec<_> = (0..5).map(|_| room.world.client()).collect();
    room.settle();
    let out = room.says("exec ls /proc/self/fd")?;
    // `ls` opens the folder itself.
    check(out == "0\n1\n2\n3", || format!("open in the command: {out}"))?;
    room.plant_probe();
    let open = room.probe("descriptors")?;
    check(
        open.iter().all(|line| {
            ["0 /dev/null", "1 pipe", "2 pipe"].iter().any(|known| line.starts_with(known))
                || line.contains("/proc/")
        }),
        || format!("open in the command: {open:?}"),
    )?;
    room.finish()
}

pub fn devices() -> Outcome {
    let room = Room::permissive();
    let found = room.says("ls -1 /dev")?;
    let known = "core fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero console";
    let known: BTreeSet<&str> = known.split(' ').collect();
    let odd: Vec<&str> = found.lines().filter(|name| !known.contains(name)).collect();
    check(odd.is_empty(), || format!("/dev holds {odd:?}"))?;
    for need in ["null", "zero", "full", "random", "urandom", "tty", "shm", "pts"] {
        check(found.lines().any(|name| name == need), || format!("/dev lacks {need}"))?;
    }
    let script =
        "find / -xdev -type b 2>/dev/null; find /dev -type b; find /dev -type c ! -path '/dev/pts/*' | sort";
    let found = room.sh(script);
    let out = room.stdout(&found);
    let plain = [
        "/dev/full",
        "/dev/null",
        "/dev/ptmx",
        "/dev/random",
        "/dev/tty",
        "/dev/urandom",
        "/dev/zero",
        "/dev/console",
    ];
    check(out.lines().all(|line| plain.contains(&line)), || format!("devices: {out}"))?;
    for works in [
        "echo x > /dev/null",
        "[ $(head -c 4 /dev/zero | wc -c) = 4 ]",
        "[ $(head -c 4 /dev/urandom | wc -c) = 4 ]",
        "! echo x > /dev/full",
        "echo shared > /dev/shm/f && [ $(cat /dev/shm/f) = shared ]",
        "echo x > /dev/stdout",
        "echo x | cat /dev/stdin",
        "echo x > /dev/fd/1",
        "[ -c /dev/ptmx ] && [ -d /dev/pts ]",
    ] {
        let receipt = room.sh(works);
        check(receipt["exit_code"] == 0, || format!("{works}: {receipt}"))?;
    }
    check(!std::path::Path::new("/dev/shm/f").exists(), || "/dev/shm is the machine's".into())?;
    let receipt = room.run(&[
        "python3",
        "-c",
        "import pty, os; m, s = pty.openpty(); print(os.ttyname(s), os.isatty(s))",
    ]);
    check(room.stdout(&receipt).contains("True"), || format!("no pseudo terminal: {receipt}"))?;
    room.finish()
}

pub fn a_private_tmp() -> Outcome {
    let room = Room::permissive();
    let marker = format!("aos-tmp-{}", room.mark);
    let theirs = std::path::Path::new("/tmp").join(format!("{marker}-host"));
    std::fs::write(&theirs, "host").map_err(|why| why.to_string())?;
    let receipt = room.sh(&format!(
        "cat {}; echo x > /tmp/{marker} && cat /tmp/{marker} && ls -A /tmp /var/tmp",
        theirs.display()
    ));
    let (there, said) = (std::path::Path::new("/tmp").join(&marker).exists(), room.stdout(&receipt));
    let _ = std::fs::remove_file(&theirs);
    check(said.starts_with("x\n"), || format!("/tmp cannot be written: {receipt}"))?;
    check(!there && !said.contains("host"), || format!("/tmp is the machine's: {said}"))?;
    let other = room.another(permissive());
    let receipt = room.exec_in(&other, json!({ "argv": ["ls", "-A", "/tmp"] }));
    check(!room.stdout(&receipt).contains(&marker), || format!("another session's /tmp: {receipt}"))?;
    let mode = room.says("stat -c %a /tmp")?;
    check(mode == "1777", || format!("/tmp has mode {mode}"))?;
    // A flood into it does not take memory or disk forever: it is freed with the command or the session.
    room.finish()
}

pub fn a_private_home() -> Outcome {
    let room = Room::permissive();
    let secret = format!("home-{}", room.mark);
    expect("HOME", &room.sh(&format!("cd && echo {secret} > kept && mkdir -p .cache/x")), &["ok"])?;
    let kept = room.says("cat ~/kept; [ -d ~/.cache/x ]; [ -w \"$HOME\" ]")?;
    check(kept == secret, || format!("HOME forgot: {kept}"))?;
    let other = room.another(permissive());
    let receipt = room.exec_in(&other, json!({ "argv": ["sh", "-c", "cat ~/kept"] }));
    check(receipt["exit_code"] != 0, || format!("another session's HOME: {receipt}"))?;
    check(!room.world.root.join("kept").exists(), || "HOME is the root".into())?;
    let keeps = |world: &World| {
        let files = tree(&world.home).into_keys();
        files.filter(|path| path.file_name().is_some_and(|name| name == "kept")).count()
    };
    check(keeps(&room.world) == 1, || format!("{} files hold it", keeps(&room.world)))?;
    expect("close", &room.signal(&room.session, "term"), &["signaled"])?;
    wait_for("the session's home to go", || keeps(&room.world) == 0)?;
    room.finish()
}

/// A user's real home: the toolchain on PATH is readable, keys and tokens are not.
pub fn the_users_home() -> Outcome {
    let mut world = World::asleep(Start::default());
    let user = world.parent.join("user");
    let canary = world.canary.clone();
    for (name, content, mode) in [
        (".cargo/bin/tool", "#!/bin/sh\necho tool; cat \"$(dirname \"$0\")/../registry/index\"\n", 0o755),
        (".cargo/registry/index", "index\n", 0o644),
        (".cargo/credentials.toml", &canary, 0o600),
        (".cargo/credentials", &canary, 0o600),
        (".ssh/id_ed25519", &canary, 0o600),
        (".netrc", &canary, 0o600),
        (".config/gh/hosts.yml", &canary, 0o600),
        (".aws/credentials", &canary, 0o600),
        (".bash_history", &canary, 0o600),
    ] {
        let path = user.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let path = format!("{}/.cargo/bin:/usr/bin:/bin", user.display());
    let env = vec![("HOME".to_owned(), user.display().to_string()), ("PATH".to_owned(), path)];
    world.set_start(Start { env, ..Start::default() });
    world.start_daemon();
    let room = Room::of(world, permissive());
    let mut findings = Findings::default();
    let tool = room.run(&["tool"]);
    findings.add(check(room.stdout(&tool) == "tool\nindex\n", || format!("the toolchain: {tool}")));
    // An empty file in place of a secret is as good as no file.
    let found = room.sh(&format!("cd {0} && find . -type f -size +0", user.display()));
    let out = room.stdout(&found);
    for hidden in ["credentials", ".ssh", ".netrc", ".config", ".aws", ".bash_history"] {
        findings.add(check(!out.contains(hidden), || format!("{hidden} is there: {out}")));
    }
    let read = room.sh(&format!("cd {0} && cat $(find . -type f)", user.display()));
    findings.add(expect("all that is there", &read, &["ok"]));
    let write = room.sh(&format!("echo evil > {}/.cargo/bin/tool", user.display()));
    findings.add(check(write["exit_code"] != 0, || "the toolchain can be written".into()));
    let script = std::fs::read_to_string(user.join(".cargo/bin/tool")).unwrap_or_default();
    findings.add(check(script.contains("echo tool"), || "the toolchain was written".into()));
    findings.add(room.finish());
    findings.outcome()
}

/// The other two kinds of HOME: the user's own, to read or to write.
pub fn the_users_own_home() -> Outcome {
    let mut world = World::asleep(Start::default());
    let user = world.parent.join("user");
    std::fs::create_dir(&user).unwrap();
    std::fs::write(user.join("mine"), "mine\n").unwrap();
    let env = vec![("HOME".to_owned(), user.display().to_string())];
    world.set_start(Start { env, ..Start::default() });
    world.start_daemon();
    let room = Room::of(world, permissive());
    let open =
        |home: &str| room.another(json!({ "local": { "home": home }, "policy": { "preset": "permissive" } }));
    for (home, writable) in [("read_only", false), ("host", true)] {
        let session = open(home);
        let run = |script: &str| room.exec_in(&session, json!({ "argv": ["sh", "-c", script] }));
        let receipt = run("echo $HOME; cat ~/mine");
        check(room.stdout(&receipt) == format!("{}\nmine\n", user.display()), || {
            format!("{home}: {receipt}")
        })?;
        let receipt = run(&format!("echo x > ~/{home}"));
        check((receipt["exit_code"] == 0) == writable, || format!("{home}: {receipt}"))?;
        check(user.join(home).exists() == writable, || format!("{home}: not as said"))?;
    }
    let receipt = room.sh("cat ~/mine; echo x > ~/private");
    check(!room.stdout(&receipt).contains("mine") && !user.join("private").exists(), || {
        format!("{receipt}")
    })?;
    room.finish()
}

/// The root holds our own home: a command does not see it.
pub fn our_home_below_the_root() -> Outcome {
    let world = World::new();
    let session_root = world.parent.clone();
    let mut room = Room::of(
        world,
        json!({ "local": { "workdir": session_root }, "policy": { "preset": "permissive" } }),
    );
    let script = "ls -A home home/state; cat home/state/journal.db | head -c 16; echo x > home/state/journal.db; echo x > home/new; rm -rf home/state; mv home home2; true";
    let receipt = room.sh(script);
    expect("home", &receipt, &["ok", "forbidden"])?;
    let out = room.stdout(&receipt);
    check(!out.contains("journal") && !out.contains("SQLite"), || format!("it sees our home: {out}"))?;
    for gone in ["home/new", "home2"] {
        check(!room.world.parent.join(gone).exists(), || format!("{gone} landed"))?;
    }
    check(room.world.home.join("state/journal.db").exists(), || "the journal is gone".into())?;
    room.settle();
    // `$O` is inside this root, so reading it is not a leak; nothing was read.
    room.finish()
}

pub fn other_processes() -> Outcome {
    let room = Room::permissive();
    let daemon = room.world.daemon_pid();
    let receipt = room.sh("for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done; true");
    let out = room.stdout(&receipt);
    check(!out.contains("--test") && !out.contains("attack-"), || format!("it sees the test: {out}"))?;
    check(out.lines().filter(|line| !line.trim().is_empty()).count() < 10, || format!("so many: {out}"))?;
    for script in [
        format!("[ -e /proc/{daemon}/exe ] && tr '\\0' ' ' < /proc/{daemon}/cmdline | grep aosd"),
        format!("kill -0 {daemon} && grep -q aosd /proc/{daemon}/comm"),
        "kill -9 1; kill -TERM 1; cat /proc/1/environ | grep -z AOS_HOME".into(),
        "head -c 1 /proc/1/mem".into(),
        "cat /proc/1/fd/*".into(),
        "readlink /proc/1/fd/3".into(),
        "head -c 1 /proc/kcore".into(),
        "timeout 1 head -c 1 /proc/kmsg".into(),
        // Root without a capability may still write these, unless they are read-only or absent.
        "exec 3> /proc/sysrq-trigger".into(),
        "f=/proc/sys/kernel/core_pattern; old=$(cat $f) && echo \"$old\" > $f".into(),
        "f=/proc/sys/kernel/sysrq; old=$(cat $f) && echo \"$old\" > $f".into(),
        "f=/proc/sys/vm/overcommit_memory; old=$(cat $f) && echo \"$old\" > $f".into(),
        "f=/proc/irq/default_smp_affinity; old=$(cat $f) && echo \"$old\" > $f".into(),
        "echo -1000 > /proc/self/oom_score_adj".into(),
    ] {
        let receipt = room.exec(json!({ "argv": ["sh", "-c", script], "timeout_ns": ns(5 * SECOND) }));
        check(receipt["exit_code"] != 0, || format!("{script}: {receipt}"))?;
    }
    check(room.says("echo $$")?.parse::<u32>().is_ok_and(|pid| pid < 100), || "no pid namespace".into())?;
    room.finish()
}

pub fn the_system_is_read_only() -> Outcome {
    let room = Room::permissive();
    let name = format!("aos-attack-{}", room.mark);
    for folder in
        ["/usr", "/usr/bin", "/bin", "/sbin", "/lib", "/etc", "/opt", "/etc/cron.d", "/usr/local/bin"]
    {
        let receipt = room.sh(&format!("echo x > {folder}/{name}"));
        check(receipt["exit_code"] != 0, || format!("{folder} can be written: {receipt}"))?;
        check(!std::path::Path::new(folder).join(&name).exists(), || format!("{folder} was written"))?;
    }
    // None of these would change anything if it were allowed.
    for script in [
        ": >> /etc/passwd",
        "chmod $(stat -c %a /etc/passwd) /etc/passwd",
        "touch /usr/bin/env",
        &format!("ln /usr/bin/env /usr/bin/{name}"),
        "ls -A /root | grep -v -e '^.cargo$' -e '^.rustup$' -e '^.pyenv$' -e '^.local$' -e '^.nvm$' -e '^go$'",
    ] {
        let receipt = room.sh(script);
        check(receipt["exit_code"] != 0, || format!("{script}: {receipt}"))?;
    }
    for folder in
        ["/run", "/var/run", "/boot", "/mnt", "/media", "/srv", "/var/lib", "/var/log", "/sys/fs/cgroup"]
    {
        let found = room.says(&format!("ls -A {folder} 2> /dev/null || true"))?;
        check(found.is_empty(), || format!("{folder} holds {found}"))?;
    }
    // What is visible can be used.
    for script in ["cat /etc/passwd", "ls /usr/bin/env /etc /opt", "/bin/sh -c true", "ls -d /lib /sbin"] {
        check(room.sh(script)["exit_code"] == 0, || script.to_owned())?;
    }
    // Not even the folders that all users of the machine may write.
    let receipt = room.sh(&format!("echo x > /{name}; echo x > /var/tmp/{name}; echo x > /dev/{name}; true"));
    for place in ["/", "/var/tmp", "/dev"] {
        check(!std::path::Path::new(place).join(&name).exists(), || format!("{place}: {receipt}"))?;
    }
    room.finish()
}

pub fn modes_of_new_files() -> Outcome {
    let room = Room::new();
    expect("made", &room.sh("echo x > f; mkdir d; echo '#!/bin/sh' > s; chmod 755 s; ln -s f l"), &["ok"])?;
    let owner = room.world.root.metadata().unwrap();
    for (name, mode) in [("f", 0o644), ("d", 0o755), ("s", 0o755)] {
        let meta = room.world.root.join(name).symlink_metadata().map_err(|why| format!("{name}: {why}"))?;
        check(meta.mode() & 0o7777 == mode, || format!("{name} has mode {:o}", meta.mode() & 0o7777))?;
        check((meta.uid(), meta.gid()) == (owner.uid(), owner.gid()), || {
            format!("{name} is of {}", meta.uid())
        })?;
    }
    room.finish()
}

/// A daemon that runs as root runs a command as the owner of the folder.
pub fn the_owner_of_the_folder() -> Outcome {
    let world = World::new();
    std::os::unix::fs::chown(&world.root, Some(12_345), Some(23_456)).unwrap();
    let room = Room::of(world, permissive());
    let said = room.says("id -u; id -g; id -G; touch mine; stat -c %u:%g mine; [ -w ~ ] && echo home; [ -w /tmp ] && echo tmp; [ -w . ] && echo here")?;
    check(said == "12345\n23456\n23456\n12345:23456\nhome\ntmp\nhere", || format!("it runs as {said}"))?;
    let meta = room.world.root.join("mine").metadata().map_err(|why| why.to_string())?;
    check((meta.uid(), meta.gid()) == (12_345, 23_456), || format!("made as {}", meta.uid()))?;
    // Root's own files stay root's own.
    room.world.write("private", "root's own\n");
    std::fs::set_permissions(room.world.root.join("private"), std::fs::Permissions::from_mode(0o600))
        .unwrap();
    for script in
        ["cat private", "cat /etc/shadow", "chown 0 mine", "chmod u+s mine && [ -u mine ] && chown 0:0 mine"]
    {
        check(room.sh(script)["exit_code"] != 0, || format!("{script} worked"))?;
    }
    room.finish()
}
