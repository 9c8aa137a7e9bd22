//! What this machine can do for commands, found by doing it: a probe is a real launch behind real sandbox.

use std::os::fd::AsFd as _;
use std::path::Path;

use aos_model::receipt::Warning;
use aos_model::refusal::{Code, Refusal};
use aos_model::request::{Isolation, NetworkMode};
use serde::Serialize;

use crate::order::{
    Ended, Handed, Limits, Namespaces, Order, Pinned, Sandbox, Trouble, Word, hear, socket_pair,
};
use crate::spawner::Spawner;
use crate::view::{self, Wanted};
use crate::{cgroup, confine};

/// What was found. `aos doctor` shows it; sessions are opened by it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Abilities {
    /// Root runs commands as the owner of the workdir; others run them as themselves.
    pub root: bool,
    /// Own mounts, processes, ipc and host name for each command.
    pub namespaces: bool,
    /// They need an own user namespace too: for everyone but root.
    pub user_namespace: bool,
    /// An own, empty network for each command.
    pub network_namespace: bool,
    /// Why there are no namespaces, or no network one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<String>,
    /// The version of Landlock; 0 for none.
    pub landlock: u32,
    pub seccomp: bool,
    /// The kernel knows overlay file systems.
    pub overlay: bool,
    /// Who counts the processes of a command: `cgroup`, `pid_namespace`, `rlimit` or `none`.
    pub process_limit: &'static str,
    /// Who counts its memory: `cgroup` (together) or `rlimit` (each process).
    pub memory_limit: &'static str,
    /// What `isolation: auto` comes to.
    pub isolation: String,
}

/// The sandbox that a session's commands get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    pub namespaces: bool,
    pub user_namespace: bool,
    pub own_network: bool,
    pub landlock: bool,
    pub seccomp: bool,
}

impl Applied {
    /// As receipts say it.
    pub fn word(&self) -> String {
        let parts = [(self.namespaces, "namespaces"), (self.landlock, "landlock"), (self.seccomp, "seccomp")];
        let words: Vec<&str> = parts.into_iter().filter(|(is, _)| *is).map(|(_, word)| word).collect();
        // A filter of system calls alone keeps nothing apart.
        if self.namespaces || self.landlock { words.join("+") } else { "none".to_owned() }
    }
}

/// What a machine is asked for, as `aos doctor` does it: with a spawner of its own.
pub fn abilities(spawner: &Path) -> Abilities {
    probe(&Spawner::new(spawner))
}

pub fn probe(spawner: &Spawner) -> Abilities {
    let root = rustix::process::geteuid().is_root();
    let tries: &[(bool, bool)] = if root {
        &[(false, true), (false, false), (true, true), (true, false)]
    } else {
        &[(true, true), (true, false)]
    };
    let landlock = confine::landlock_version();
    let seccomp = confine::has_seccomp();
    let mut obstacle = None;
    let mut found = None;
    for (user, network) in tries.iter().copied() {
        match launch(spawner, user, network, seccomp) {
            Ok(()) => {
                found = Some((user, network));
                break;
            }
            Err(why) => {
                obstacle.get_or_insert(why);
            }
        }
    }
    let (user_namespace, network_namespace) = found.unwrap_or_default();
    let groups = cgroup::available();
    let mut abilities = Abilities {
        root,
        namespaces: found.is_some(),
        user_namespace,
        network_namespace,
        obstacle,
        landlock,
        seccomp,
        overlay: has_overlay(),
        process_limit: match (groups.processes, found) {
            (true, _) => "cgroup",
            (false, Some((true, _))) => "rlimit",
            (false, Some((false, _))) => "pid_namespace",
            (false, None) if root => "none",
            (false, None) => "rlimit",
        },
        memory_limit: if groups.memory { "cgroup" } else { "rlimit" },
        isolation: String::new(),
    };
    abilities.isolation = abilities.full(true).word();
    abilities
}

impl Abilities {
    fn full(&self, own_network: bool) -> Applied {
        Applied {
            namespaces: self.namespaces,
            user_namespace: self.user_namespace,
            own_network: own_network && self.network_namespace,
            landlock: self.landlock >= confine::LANDLOCK_VERSION_MIN,
            seccomp: self.seccomp,
        }
    }

    /// The sandbox for a session, or that what it asks for by name cannot be had.
    pub fn apply(
        &self,
        isolation: Isolation,
        network: Option<NetworkMode>,
    ) -> Result<(Applied, Option<Warning>), Refusal> {
        let unavailable = |what: &str| {
            let why = self.obstacle.as_deref().unwrap_or("this machine does not allow it");
            Refusal::new(
                Code::IsolationUnavailable,
                format!(
                    "{what} cannot be had here: {why}. `aos doctor` shows what can; or do not ask for it by name"
                ),
            )
        };
        let full = self.full(network != Some(NetworkMode::Full));
        let applied = match isolation {
            Isolation::Auto => full,
            Isolation::Strict if full.namespaces && full.seccomp => full,
            Isolation::Strict => return Err(unavailable("strict isolation")),
            Isolation::None => Applied {
                namespaces: false,
                user_namespace: false,
                own_network: false,
                landlock: false,
                ..full
            },
        };
        match network {
            Some(NetworkMode::Full) => Ok((applied, None)),
            _ if applied.own_network => Ok((applied, None)),
            Some(NetworkMode::None) if isolation == Isolation::None => Err(Refusal::new(
                Code::IsolationUnavailable,
                "`network_mode` `none` needs isolation; leave `isolation` out, or set the network to `full`",
            )),
            Some(NetworkMode::None) => Err(unavailable("`network_mode` `none`")),
            None if isolation == Isolation::Strict => Err(unavailable("strict isolation of the network")),
            None => Ok((
                applied,
                Some(Warning::new(
                    "network_not_isolated",
                    "commands of this session share the machine's network; `aos doctor` says why",
                )),
            )),
        }
    }
}

fn has_overlay() -> bool {
    crate::read_small("/proc/filesystems")
        .is_some_and(|list| list.lines().any(|line| line.ends_with("\toverlay")))
}

/// Launches nothing behind sandbox, to see them stand.
fn launch(spawner: &Spawner, user: bool, network: bool, seccomp: bool) -> Result<(), String> {
    let fail = |why: rustix::io::Errno| format!("the spawner cannot be reached: {why}");
    let null =
        rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC, 0.into())
            .map_err(fail)?;
    let (ours, theirs) = socket_pair().map_err(fail)?;
    let view = view::view(Wanted::machine_alone());
    let landlock = confine::has_landlock().then(|| view.landlock_paths());
    let slash = rustix::fs::stat("/").map_err(fail)?;
    let order = Order {
        argv: Vec::new(),
        env: Vec::new(),
        program: None,
        cwd: Pinned { path: b"/".to_vec(), dev: slash.st_dev, ino: 0 },
        user: None,
        sandbox: Sandbox { namespaces: Some(Namespaces { user, network, view }), landlock, seccomp },
        limits: Limits::default(),
    };
    let (line, null) = (theirs.as_fd(), null.as_fd());
    let handed = Handed { line, stdin: null, stdout: null, stderr: null, cgroups: Vec::new() };
    spawner.launch(&order, &handed).map_err(fail)?;
    drop(theirs);
    loop {
        match hear(&ours) {
            Some(Word::Ended(Ended { status: 0, .. })) => return Ok(()),
            Some(Word::Failed(Trouble { subject, errno, .. })) => {
                let why = rustix::io::Errno::from_raw_os_error(errno);
                return Err(format!("{}: {why}", subject.trim_end()));
            }
            Some(Word::Ended(_) | Word::Closed) => return Err("a probe died without a word".to_owned()),
            Some(Word::Alive(_)) | None => {}
        }
    }
}
