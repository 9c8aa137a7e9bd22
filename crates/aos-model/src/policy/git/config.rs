//! Git configuration: a strict subset of its grammar, and the keys that cannot run code.
//!
//! The parser follows `config.c` of git and rejects whatever it need not understand: continuation lines, `[a.b]`
//! sections, a byte order mark. A file that it rejects is never judged to be harmless.

use std::collections::BTreeMap;

/// The largest configuration that is judged.
pub const CONFIG_BYTES_MAX: usize = 1 << 20;

/// A key: section, subsection (case-sensitive) and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    section: String,
    subsection: Option<Vec<u8>>,
    name: String,
}

impl Key {
    fn is(&self, section: &str, names: &[&str]) -> bool {
        self.section == section && names.contains(&self.name.as_str())
    }

    fn shown(&self) -> String {
        match &self.subsection {
            None => format!("{}.{}", self.section, self.name),
            Some(sub) => format!("{}.{}.{}", self.section, crate::path::show(sub), self.name),
        }
    }
}

/// The values of each key, in order. A key without `=` has no value, which means true.
pub(super) type Config = BTreeMap<Key, Vec<Option<Vec<u8>>>>;

/// Parses a configuration, or says why it is outside of the subset.
pub(super) fn parse(bytes: &[u8]) -> Result<Config, String> {
    if bytes.len() > CONFIG_BYTES_MAX {
        return Err(format!("it is larger than {CONFIG_BYTES_MAX} bytes"));
    }
    let mut config = Config::new();
    let mut section: Option<(String, Option<Vec<u8>>)> = None;
    for (number, line) in bytes.split(|b| *b == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let fail = |why: &str| Err(format!("line {}: {why}", number + 1));
        if line.iter().any(|b| matches!(b, b'\r' | 0)) {
            return fail("a control character");
        }
        match line.trim_ascii_start() {
            [] | [b'#' | b';', ..] => {}
            [b'[', rest @ ..] => match parse_section(rest) {
                Some((name, _)) if matches!(name.as_str(), "include" | "includeif") => {
                    return fail("it includes another file");
                }
                Some(found) => section = Some(found),
                None => return fail("a section header of an unusual form"),
            },
            rest => {
                let Some((section, subsection)) = section.clone() else {
                    return fail("a key outside of a section");
                };
                let Some((name, value)) = parse_assignment(rest) else {
                    return fail("a key or a value of an unusual form");
                };
                config.entry(Key { section, subsection, name }).or_default().push(value);
            }
        }
    }
    Ok(config)
}

/// `section]` or `section "subsection"]`, and nothing but space or a comment behind it.
fn parse_section(rest: &[u8]) -> Option<(String, Option<Vec<u8>>)> {
    let end = rest.iter().position(|b| !(b.is_ascii_alphanumeric() || *b == b'-'))?;
    let name = String::from_utf8_lossy(&rest[..end]).to_ascii_lowercase();
    if name.is_empty() {
        return None;
    }
    let (subsection, after) = match &rest[end..] {
        [b']', after @ ..] => (None, after),
        spaced => {
            let quoted = spaced.trim_ascii_start();
            if quoted.len() == spaced.len() {
                return None;
            }
            let mut subsection = Vec::new();
            let mut bytes = quoted.strip_prefix(b"\"")?.iter();
            loop {
                match bytes.next()? {
                    b'"' => break,
                    b'\\' => subsection.push(*bytes.next()?),
                    byte => subsection.push(*byte),
                }
            }
            (Some(subsection), bytes.as_slice().strip_prefix(b"]")?)
        }
    };
    matches!(after.trim_ascii_start(), [] | [b'#' | b';', ..]).then_some((name, subsection))
}

/// `name` or `name = value`.
fn parse_assignment(line: &[u8]) -> Option<(String, Option<Vec<u8>>)> {
    let end = line.iter().position(|b| !(b.is_ascii_alphanumeric() || *b == b'-')).unwrap_or(line.len());
    if !line.first()?.is_ascii_alphabetic() {
        return None;
    }
    let name = String::from_utf8_lossy(&line[..end]).to_ascii_lowercase();
    match line[end..].trim_ascii_start() {
        [] => Some((name, None)),
        [b'=', rest @ ..] => Some((name, Some(parse_value(rest)?))),
        _ => None,
    }
}

/// A value without its quotes, escapes, comment and surrounding space.
fn parse_value(rest: &[u8]) -> Option<Vec<u8>> {
    let (mut value, mut quoted, mut kept) = (Vec::new(), false, 0);
    let mut bytes = rest.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b' ' | b'\t' if !quoted => {
                if !value.is_empty() {
                    value.push(*byte);
                }
                continue;
            }
            b'#' | b';' if !quoted => break,
            b'"' => quoted = !quoted,
            b'\\' => value.push(match bytes.next()? {
                b't' => b'\t',
                b'b' => 8,
                b'n' => b'\n',
                escaped @ (b'\\' | b'"') => *escaped,
                _ => return None,
            }),
            byte => value.push(*byte),
        }
        kept = value.len();
    }
    value.truncate(kept);
    (!quoted).then_some(value)
}

/// What changes between two configurations: an error names the first key that is not inert. The value of a changed
/// `core.worktree` is returned, because it is inert only together with the folder that it names.
pub(super) fn changed_worktree(old: Option<&[u8]>, new: Option<&[u8]>) -> Result<Option<Vec<u8>>, String> {
    let new = new.map_or(Ok(Config::new()), parse)?;
    let old = old.map_or(Ok(Config::new()), parse).map_err(|why| format!("the present one has {why}"))?;
    let mut worktree = None;
    for key in old.keys().chain(new.keys()) {
        let values = new.get(key).map_or(&[] as &[_], Vec::as_slice);
        if old.get(key).map_or(&[] as &[_], Vec::as_slice) == values {
            continue;
        }
        if key.is("core", &["worktree"]) && key.subsection.is_none() {
            match values {
                [] => {}
                [Some(value)] => worktree = Some(value.clone()),
                _ => return Err("`core.worktree` has several values".into()),
            }
        } else if !values.iter().all(|value| is_inert(key, value.as_deref())) || !is_inert_name(key) {
            return Err(format!("its `{}` is not known to be harmless", key.shown()));
        }
    }
    Ok(worktree)
}

/// The last value of `core.hooksPath`. What the strict grammar rejects is passed over: the file is the user's, and a
/// folder too many is protected rather than one too few.
pub fn hooks_path(bytes: &[u8]) -> Option<Vec<u8>> {
    let is_it = |section: &str, subsection: Option<&[u8]>, key: &str| {
        section == "core" && subsection.is_none() && key == "hookspath"
    };
    values_of(bytes, is_it).pop()
}

/// The files that a configuration includes, under whatever condition.
pub fn included_paths(bytes: &[u8]) -> Vec<Vec<u8>> {
    values_of(bytes, |section, _, key| matches!(section, "include" | "includeif") && key == "path")
}

/// The values of the keys that `is_wanted` names by section, subsection and name.
fn values_of(bytes: &[u8], is_wanted: impl Fn(&str, Option<&[u8]>, &str) -> bool) -> Vec<Vec<u8>> {
    let (mut found, mut section) = (Vec::new(), None);
    for line in bytes.split(|b| *b == b'\n').map(<[u8]>::trim_ascii) {
        if let [b'[', rest @ ..] = line {
            section = parse_section(rest);
        } else if let (Some((name, subsection)), Some((key, Some(value)))) =
            (&section, parse_assignment(line))
            && is_wanted(name, subsection.as_deref(), &key)
        {
            found.push(value);
        }
    }
    found
}

/// The last value of a key without a subsection.
pub(super) fn last_value(config: &Config, section: &str, name: &str) -> Option<Vec<u8>> {
    let key = Key { section: section.into(), subsection: None, name: name.into() };
    config.get(&key)?.last()?.clone()
}

const CORE: &[&str] = &[
    "repositoryformatversion",
    "filemode",
    "bare",
    "logallrefupdates",
    "symlinks",
    "ignorecase",
    "precomposeunicode",
    "sparsecheckout",
    "sparsecheckoutcone",
    "autocrlf",
    "eol",
];
const REMOTE: &[&str] =
    &["url", "fetch", "pushurl", "tagopt", "prune", "mirror", "promisor", "partialclonefilter"];
const SUBMODULE: &[&str] = &["url", "active", "branch", "ignore", "shallow", "update"];
const EXTENSIONS: &[&str] =
    &["objectformat", "refstorage", "worktreeconfig", "partialclone", "relativeworktrees"];

/// Whether a key cannot run code, at least with some values.
fn is_inert_name(key: &Key) -> bool {
    // The name of a remote is an argument of `git fetch`, and its URL where it has no other.
    if key.subsection.as_deref().is_some_and(|name| !is_inert_url(name)) {
        return false;
    }
    if key.section == "branch" {
        return key.name != "mergeoptions";
    }
    if key.subsection.is_some() {
        return key.is("remote", REMOTE) || key.is("submodule", SUBMODULE);
    }
    key.is("core", CORE)
        || key.is("user", &["name", "email"])
        || key.is("extensions", EXTENSIONS)
        || key.is("init", &["defaultbranch"])
        || key.is("gc", &["auto"])
        || key.is("rerere", &["enabled"])
        || key.is("pull", &["rebase"])
        || key.is("push", &["default", "autosetupremote"])
        || key.is("commit", &["gpgsign"])
        // Written by `git clone --recurse-submodules` and `git sparse-checkout`.
        || key.is("submodule", &["active"])
        || key.is("index", &["sparse"])
        // Written by git-lfs when it first runs in a repository.
        || key.is("lfs", &["repositoryformatversion"])
}

fn is_inert(key: &Key, value: Option<&[u8]>) -> bool {
    let text = value.unwrap_or(b"true");
    match (key.section.as_str(), key.name.as_str()) {
        ("submodule", "update") => is_inert_update(text),
        ("commit", "gpgsign") => {
            [&b"false"[..], b"no", b"off", b"0"].contains(&text.to_ascii_lowercase().as_slice())
        }
        // A branch's remote can be a URL too.
        ("remote" | "branch" | "submodule", _) | ("extensions", "partialclone") => is_inert_url(text),
        _ => true,
    }
}

/// Whether fetching from a URL runs no program that the URL chooses: `ext::sh -c …`, or one that reads as an option.
pub(super) fn is_inert_url(url: &[u8]) -> bool {
    !url.starts_with(b"-") && !url.windows(2).any(|pair| pair == b"::")
}

fn is_inert_update(value: &[u8]) -> bool {
    [&b"checkout"[..], b"rebase", b"merge", b"none"].contains(&value)
}

/// Why a `.gitmodules` would run code at the next `git submodule update`. It is read leniently, because it may be half
/// merged: every place where git could read a `url` or an `update` counts.
pub fn gitmodules_problem(bytes: &[u8]) -> Option<&'static str> {
    let is_bad = |text: &[u8]| match parse_assignment(text.trim_ascii_start()) {
        Some((name, Some(value))) if name == "url" => !is_inert_url(&value),
        Some((name, Some(value))) if name == "update" => value.starts_with(b"!"),
        _ => false,
    };
    // A continuation line is one line; a key may follow its section's header.
    let joined = String::from_utf8_lossy(bytes).replace("\\\r\n", "").replace("\\\n", "");
    let bad = joined.lines().any(|line| {
        let behind_header = line.match_indices(']').map(|(at, _)| &line[at + 1..]);
        behind_header.chain([line]).any(|text| is_bad(text.as_bytes()))
    });
    bad.then_some("a submodule's `url` or `update` runs a program")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(old: &str, new: &str) -> Result<Option<Vec<u8>>, String> {
        changed_worktree(Some(old.as_bytes()), Some(new.as_bytes()))
    }

    #[test]
    fn what_git_itself_writes_is_inert() {
        let written = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n\
            [remote \"origin\"]\n\turl = https://example.org/a.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n\
            [branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n\
            [submodule \"a/b\"]\n\tactive = true\n\turl = ../b.git\n\tupdate = rebase\n\
            [user]\n\tname = \"A # B\" ; comment\n\temail=a@b\n[commit]\n\tgpgsign = false\n\
            [lfs]\n\trepositoryformatversion = 0\n";
        assert_eq!(changed_worktree(None, Some(written.as_bytes())), Ok(None));
        assert_eq!(changed_worktree(Some(written.as_bytes()), None), Ok(None));
        assert_eq!(
            judge("[core]\n\tworktree = ../x\n", "[core]\n\tworktree = ../y\n"),
            Ok(Some(b"../y".to_vec()))
        );
    }

    #[test]
    fn what_runs_code_is_named() {
        for new in [
            "[remote \"--upload-pack=touch x;\"]\n\turl = .\n",
            "[remote \"ext::sh -c x\"]\n\tpromisor = true\n",
            "[branch \"-x\"]\n\tmerge = refs/heads/x\n",
            "[submodule \"--x\"]\n\tactive = true\n",
            "[extensions]\n\tpartialClone = --upload-pack=x\n",
            "[core]\n\tfsmonitor = x\n",
            "[core]\n\thooksPath = x\n",
            "[CORE]\n\tSSHCommand = x\n",
            "[core \"x\"]\n\tbare = true\n",
            "[remote \"o\"]\n\turl = ext::sh -c x\n",
            "[remote \"o\"]\n\turl = \"ex\"t:\\\":\n[remote \"o\"]\n\turl = -x\n",
            "[remote \"o\"]\n\tvcs = x\n",
            "[remote \"o\"]\n\tuploadpack = x\n",
            "[remote]\n\turl = x\n",
            "[branch \"b\"]\n\tmergeoptions = -s x\n",
            "[branch \"b\"]\n\tremote = ext::x\n",
            "[submodule \"s\"]\n\tupdate = !x\n",
            "[submodule \"s\"]\n\tupdate\n",
            "[commit]\n\tgpgsign = true\n",
            "[commit]\n\tgpgsign\n",
            "[alias]\n\tst = !x\n",
            "[filter \"x\"]\n\tclean = x\n",
            "[lfs]\n\tstandalonetransferagent = x\n",
            "[lfs \"x\"]\n\trepositoryformatversion = 0\n",
            "[include]\n\tpath = x\n",
            "[includeIf \"gitdir:x\"]\n\tpath = x\n",
            "[user]\n\tname = a\\\n\tb\n",
            "[core]\n\tworktree = a\n\tworktree = b\n",
            "[core] bare = true\n",
            "[core.x]\n",
            "bare = true\n",
            "[core\n",
            "[core]\n\tbare true\n",
            "[core]\n\tbare = \"true\n",
            "[core]\n\tbare = \\x\n",
            "[core]\n\tbare = a\rb\n",
            "\u{feff}[core]\n",
        ] {
            assert!(judge("", new).is_err(), "{new}");
        }
        // Removing or changing a key counts like adding it, and an unreadable present one cannot be compared.
        assert!(judge("[core]\n\thooksPath = x\n", "").is_err());
        assert!(judge("[core]\n\thooksPath = x\n", "[core]\n\thooksPath = x\n\tbare = true\n").is_ok());
        assert!(judge("[include]\n\tpath = x\n", "").is_err());
    }

    #[test]
    fn submodules_that_run_code_are_seen() {
        assert_eq!(gitmodules_problem(b"[submodule \"a\"]\n\tpath = a\n\turl = ../a\n"), None);
        for bad in
            ["url = -u", "url = ext::x", "update = !sh", "url = \"-u\"", "URL = ext::x", "url = ext:\\\n:x"]
        {
            assert!(
                gitmodules_problem(format!("[submodule \"a\"]\n\t{bad}\n").as_bytes()).is_some(),
                "{bad}"
            );
        }
    }
}
