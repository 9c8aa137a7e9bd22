//! The caller's git identity, for the private home of a session's commands.

use std::path::Path;
use std::process::{Command, Stdio};

use aos_model::request::GitIdentity;
use serde_json::{Value, json};

/// Adds name, email and default branch from the caller's global git configuration to a target on the disk.
///
/// Git is asked in the session's folder, because an `includeIf` may depend on it. Configuration of the folder itself is
/// not read.
pub(crate) fn add_to(target: &mut Value) {
    let Some(local) = target.get_mut("local") else { return };
    let Some(root) = local["workdir"].as_str() else { return };
    let identity = read(Path::new(root)).unwrap_or_default();
    if identity != GitIdentity::default() {
        local["git_identity"] = json!(identity);
    }
}

/// `None` where there is no git or it has nothing to say: commands can still set an identity themselves.
#[expect(clippy::disallowed_methods, reason = "git itself resolves the caller's includes")]
fn read(root: &Path) -> Option<GitIdentity> {
    let keys = r"^(user\.name|user\.email|init\.defaultbranch)$";
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["config", "--global", "--includes", "--null", "--get-regexp", keys])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    Some(parse(&String::from_utf8(output.stdout).ok()?))
}

/// `KEY NEWLINE VALUE NUL`, again and again; the last value of a key counts.
fn parse(output: &str) -> GitIdentity {
    let mut identity = GitIdentity::default();
    for (key, value) in output.split_terminator('\0').filter_map(|pair| pair.split_once('\n')) {
        let field = match key {
            "user.name" => &mut identity.name,
            "user.email" => &mut identity.email,
            "init.defaultbranch" => &mut identity.default_branch,
            _ => continue,
        };
        *field = GitIdentity::takes(value).then(|| value.to_owned());
    }
    identity
}
