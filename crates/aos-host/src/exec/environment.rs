//! The environment of commands: the few variables that they inherit, the user that they run as, and where programs are
//! found.

use std::collections::BTreeMap;
use std::sync::Mutex;

use aos_sandbox::{PATH_DEFAULT, User};
use aos_store::ActsFor;

use crate::disk::is_executable;

/// The few variables that commands inherit, read once.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    pub(crate) path: String,
    /// Absolute; the folder need not exist.
    pub(crate) home: String,
    lang: String,
    term: String,
}

impl Surroundings {
    pub(crate) fn of_this_process() -> Surroundings {
        let given = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let own = account(rustix::process::geteuid().as_raw());
        let home = given("HOME").or(own.map(|account| account.home)).filter(|home| home.starts_with('/'));
        Surroundings {
            path: given("PATH").unwrap_or_else(|| PATH_DEFAULT.to_owned()),
            home: home.map_or_else(|| "/home".to_owned(), |home| clean(&home)),
            lang: given("LANG").unwrap_or_else(|| "C.UTF-8".to_owned()),
            term: given("TERM").unwrap_or_else(|| "dumb".to_owned()),
        }
    }

    /// The complete environment: what is inherited, what the session names, what the request changes.
    pub(crate) fn environment<'a>(
        &self,
        home: &str,
        user: &str,
        session: impl Iterator<Item = (&'a String, &'a String)>,
        patch: impl Iterator<Item = (&'a String, &'a Option<String>)>,
    ) -> Vec<String> {
        let inherited = [
            ("PATH", self.path.as_str()),
            ("HOME", home),
            ("LANG", &self.lang),
            ("TERM", &self.term),
            ("USER", user),
        ];
        let mut all: BTreeMap<&str, &str> = inherited.into_iter().collect();
        all.extend(session.map(|(name, value)| (name.as_str(), value.as_str())));
        for (name, value) in patch {
            match value {
                Some(value) => all.insert(name, value),
                None => all.remove(name.as_str()),
            };
        }
        all.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
    }
}

/// Without a slash at the end, and without empty names between.
fn clean(path: &str) -> String {
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
    if names.is_empty() { "/home".to_owned() } else { format!("/{}", names.join("/")) }
}

/// A user as the machine knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) gid: u32,
    pub(crate) home: String,
}

/// Looks a user up with the C library, which asks every source that nsswitch.conf names (LDAP and systemd too, not only
/// /etc/passwd). That may load modules and wait for a server, so only the daemon calls this, never a process between fork
/// and exec, and each user is asked for once.
pub(crate) fn account(uid: u32) -> Option<Account> {
    static KNOWN: Mutex<BTreeMap<u32, Account>> = Mutex::new(BTreeMap::new());
    if let Some(account) = KNOWN.lock().expect("BUG: lock poisoned").get(&uid) {
        return Some(account.clone());
    }
    // A user who is not found may be added later, so only found ones are kept.
    let user = nix::unistd::User::from_uid(uid.into())
        .inspect_err(|error| tracing::warn!(uid, %error, "cannot look up a user; it counts as unknown"))
        .ok()
        .flatten()?;
    let home = user.dir.to_string_lossy().into_owned();
    let account = Account { name: user.name, gid: user.gid.as_raw(), home };
    KNOWN.lock().expect("BUG: lock poisoned").insert(uid, account.clone());
    Some(account)
}

/// The user that commands run as: the daemon's own, or, for root, the owner of the workdir.
pub(crate) fn user_for(workdir: &crate::disk::Meta) -> Option<User> {
    let owner = || User { uid: workdir.uid, gid: account(workdir.uid).map_or(workdir.gid, |own| own.gid) };
    rustix::process::geteuid().is_root().then(owner)
}

/// Whose rights the effects of a session have: those of its commands.
pub(crate) fn acts_for(workdir: &crate::jail::Root) -> Option<ActsFor> {
    user_for(&workdir.meta).map(|User { uid, gid }| ActsFor { uid, gid })
}

/// The path of a program: links on the way to its folder are followed, the last name is kept.
pub(crate) fn locate(program: &str, path: &str, cwd: &[u8]) -> Option<Vec<u8>> {
    let absolute = |folder: &[u8], name: &str| -> Vec<u8> {
        let folder = if folder.starts_with(b"/") { folder.to_vec() } else { [cwd, b"/", folder].concat() };
        [folder.as_slice(), b"/", name.as_bytes()].concat()
    };
    if program.contains('/') {
        let whole = absolute(b"", program);
        let whole = if program.starts_with('/') { program.as_bytes().to_vec() } else { whole };
        return is_executable(&whole).then(|| with_real_folder(&whole)).flatten();
    }
    let found = path
        .split(':')
        .map(|folder| absolute(if folder.is_empty() { b"." } else { folder.as_bytes() }, program))
        .find(|path| is_executable(path))?;
    with_real_folder(&found)
}

/// The path of a program with all links followed.
pub(crate) fn resolved(program: &[u8]) -> Option<Vec<u8>> {
    crate::jail::follow_text(program)
}

fn with_real_folder(path: &[u8]) -> Option<Vec<u8>> {
    let slash = path.iter().rposition(|b| *b == b'/')?;
    let folder = crate::jail::follow_text(&path[..=slash])?;
    Some([folder.as_slice(), &path[slash..]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_starts_clean_and_null_unsets() {
        let here = Surroundings {
            path: "/bin".into(),
            home: "/home/x".into(),
            lang: "C.UTF-8".into(),
            term: "dumb".into(),
        };
        let session =
            BTreeMap::from([("A".to_owned(), "1".to_owned()), ("LANG".to_owned(), "de".to_owned())]);
        let patch = BTreeMap::from([("A".to_owned(), None), ("B".to_owned(), Some("2".to_owned()))]);
        let all = here.environment("/h", "u", session.iter(), patch.iter());
        assert_eq!(all, ["B=2", "HOME=/h", "LANG=de", "PATH=/bin", "TERM=dumb", "USER=u"]);
    }

    #[test]
    fn a_user_is_found_by_number() {
        let root = account(0).unwrap();
        assert_eq!((root.name.as_str(), root.gid, root.home.starts_with('/')), ("root", 0, true));
        assert_eq!(account(0), Some(root), "the second answer is the first one");
        assert_eq!(account(u32::MAX - 7), None);
    }

    #[test]
    fn a_program_is_found_as_a_shell_finds_it() {
        let sh = locate("sh", "/nowhere:/usr/bin:/bin", b"/").unwrap();
        assert!(sh.ends_with(b"/sh"));
        assert_eq!(locate("sh", "/nowhere", b"/"), None);
        assert_eq!(locate("./sh", "", b"/usr/bin"), locate("/usr/bin/sh", "", b"/"));
    }
}
