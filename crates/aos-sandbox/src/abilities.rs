//! Which isolation this machine supports. It is measured: a probe launches a real sandbox without a command.

use std::os::fd::AsFd as _;
use std::path::Path;

use aos_model::receipt::Warning;
use aos_model::refusal::{Code, Refusal};
use aos_model::request::{Isolation, NetworkMode};
use serde::Serialize;

use crate::confine::{LANDLOCK_SCOPES, LANDLOCK_VERSION_MIN};
use crate::protocol::{ExitReport, LaunchEvent, LaunchFds, receive_event, socket_pair};
use crate::spawner::Spawner;
use crate::spec::{LaunchError, LaunchSpec, Limits, Namespaces, PinnedPath, Sandbox};
use crate::view::{ViewSpec, build_view};
use crate::{cgroup, confine};

/// The isolation that this machine supports. `aos doctor` shows it, and opening a session depends on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Abilities {
    /// Root runs commands as the owner of the workdir; others run them as themselves.
    pub root: bool,
    /// New mount, pid, ipc and uts namespaces for each command.
    pub namespaces: bool,
    /// They need a new user namespace too: for every user but root.
    pub user_namespace: bool,
    /// A new, empty network namespace for each command.
    pub network_namespace: bool,
    /// Why there are no namespaces, or no network namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<String>,
    /// Ids can be mapped in mounts of the system's folders.
    #[serde(skip)]
    pub disowns: bool,
    /// The Landlock ABI version; 0 for none.
    pub landlock: u32,
    pub seccomp: bool,
    /// The kernel has overlayfs.
    pub overlay: bool,
    /// What limits the number of processes of a command: `cgroup`, `pid_namespace`, `rlimit` or `none`.
    pub process_limit: &'static str,
    /// What limits its memory: `cgroup` (all processes together) or `rlimit` (each process).
    pub memory_limit: &'static str,
    /// What `isolation: auto` means here.
    pub isolation: String,
}

/// The isolation that the commands of a session get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    pub namespaces: bool,
    pub user_namespace: bool,
    pub own_network: bool,
    pub landlock: bool,
    pub seccomp: bool,
}

impl Applied {
    /// Landlock and seccomp without namespaces: the command shares the machine's processes and network.
    pub fn is_reduced(&self) -> bool {
        self.landlock && !self.namespaces
    }

    /// The text in receipts, such as `namespaces+landlock+seccomp`.
    pub fn receipt_text(&self) -> String {
        if self.is_reduced() {
            return "reduced".to_owned();
        }
        let parts = [(self.namespaces, "namespaces"), (self.landlock, "landlock"), (self.seccomp, "seccomp")];
        let names: Vec<&str> = parts.into_iter().filter(|(is, _)| *is).map(|(_, name)| name).collect();
        // seccomp alone isolates nothing.
        if self.namespaces { names.join("+") } else { "none".to_owned() }
    }
}

/// Probes the machine with a spawner of its own, for `aos doctor`.
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
    let disowns = root && launch_probe(spawner, (false, true), seccomp, true).is_ok();
    let mut found = disowns.then_some((false, true));
    for (user, network) in tries.iter().copied().filter(|_| !disowns) {
        match launch_probe(spawner, (user, network), seccomp, false) {
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
    let cgroups = cgroup::available();
    let mut abilities = Abilities {
        root,
        namespaces: found.is_some(),
        user_namespace,
        network_namespace,
        obstacle,
        disowns,
        landlock,
        seccomp,
        overlay: has_overlay(),
        process_limit: match (cgroups.processes, found) {
            (true, _) => "cgroup",
            (false, Some((true, _))) => "rlimit",
            (false, Some((false, _))) => "pid_namespace",
            (false, None) if root => "none",
            (false, None) => "rlimit",
        },
        memory_limit: if cgroups.memory { "cgroup" } else { "rlimit" },
        isolation: String::new(),
    };
    abilities.isolation = abilities.full(true).receipt_text();
    abilities
}

impl Abilities {
    fn full(&self, own_network: bool) -> Applied {
        // Without a pid namespace only Landlock's scopes keep signals inside, and only seccomp refuses host sockets.
        let needed = if self.namespaces { LANDLOCK_VERSION_MIN } else { LANDLOCK_SCOPES };
        Applied {
            namespaces: self.namespaces,
            user_namespace: self.user_namespace,
            own_network: own_network && self.network_namespace,
            landlock: self.landlock >= needed && (self.namespaces || self.seccomp),
            seccomp: self.seccomp,
        }
    }

    /// Whether commands run at all: `auto` means namespaces, or the reduced isolation if the session allows that.
    pub fn check_runnable(
        &self,
        isolation: Isolation,
        applied: &Applied,
        allow_reduced: bool,
    ) -> Result<(), Refusal> {
        if isolation == Isolation::None || applied.namespaces || (applied.is_reduced() && allow_reduced) {
            return Ok(());
        }
        let why = self.obstacle.as_deref().unwrap_or("this machine does not allow it");
        let otherwise = if applied.is_reduced() {
            "; or open the session with `allow_reduced` (`aos session open --allow-reduced`) for Landlock and seccomp only"
        } else {
            ""
        };
        Err(Refusal::new(
            Code::IsolationUnavailable,
            format!(
                "commands need namespaces, and there are none: {why}; nothing was run. {}{otherwise}",
                remedy()
            ),
        ))
    }

    /// The isolation for a session, or a refusal if it explicitly asks for more than the machine supports.
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
                    "{what} is not available on this machine: {why}. `aos doctor` shows what is; or leave the setting out"
                ),
            )
        };
        let full = self.full(network != Some(NetworkMode::Full));
        let has_scopes = self.landlock >= LANDLOCK_SCOPES;
        let applied = match isolation {
            Isolation::Auto => full,
            Isolation::Strict if !full.namespaces || !full.seccomp => {
                return Err(unavailable("strict isolation"));
            }
            Isolation::Strict if !has_scopes && network == Some(NetworkMode::Full) => {
                return Err(Refusal::new(
                    Code::IsolationUnavailable,
                    "strict isolation with network `full` needs Landlock version 6 (Linux 6.12): without it the machine's abstract sockets are reachable. Leave one of the two out",
                ));
            }
            Isolation::Strict => full,
            Isolation::None => Applied {
                namespaces: false,
                user_namespace: false,
                own_network: false,
                landlock: false,
                ..full
            },
        };
        match network {
            Some(NetworkMode::Full) if has_scopes => Ok((applied, None)),
            Some(NetworkMode::Full) => Ok((
                applied,
                Some(Warning::new(
                    "host_sockets_reachable",
                    "commands of this session reach the machine's abstract sockets: Landlock version 6 (Linux 6.12) would close them",
                )),
            )),
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

/// What permits namespaces on this machine, by the name of the setting that forbids them.
fn remedy() -> &'static str {
    let setting = |name: &str| crate::read_proc_file(&format!("/proc/sys/{name}"));
    let is = |name: &str, value: &str| setting(name).is_some_and(|text| text.trim() == value);
    if is("user/max_user_namespaces", "0") {
        "Permit them with `sysctl user.max_user_namespaces=15000`"
    } else if is("kernel/unprivileged_userns_clone", "0") {
        "Permit them with `sysctl kernel.unprivileged_userns_clone=1`"
    } else if is("kernel/apparmor_restrict_unprivileged_userns", "1") {
        "Permit them with an AppArmor profile for aosd that contains `userns,`, or with `sysctl kernel.apparmor_restrict_unprivileged_userns=0`"
    } else {
        "In a container, permit user namespaces in its seccomp profile; `aos doctor` shows what is missing"
    }
}

fn has_overlay() -> bool {
    crate::read_proc_file("/proc/filesystems")
        .is_some_and(|list| list.lines().any(|line| line.ends_with("\toverlay")))
}

/// Sets up a sandbox without a command, to see whether it works.
fn launch_probe(
    spawner: &Spawner,
    (user, network): (bool, bool),
    seccomp: bool,
    disowned: bool,
) -> Result<(), String> {
    let fail = |why: rustix::io::Errno| format!("the spawner cannot be reached: {why}");
    let null =
        rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC, 0.into())
            .map_err(fail)?;
    let (ours, theirs) = socket_pair().map_err(fail)?;
    let view = build_view(ViewSpec::system_only(disowned));
    let landlock = confine::has_landlock().then(|| view.landlock_paths());
    let root_dir = rustix::fs::stat("/").map_err(fail)?;
    let spec = LaunchSpec {
        argv: Vec::new(),
        env: Vec::new(),
        program: None,
        cwd: PinnedPath { path: b"/".to_vec(), dev: root_dir.st_dev, ino: 0 },
        user: None,
        sandbox: Sandbox {
            namespaces: Some(Namespaces { user, network, view }),
            landlock,
            seccomp,
            keeps_attributes: false,
        },
        limits: Limits::default(),
    };
    let (control, null) = (theirs.as_fd(), null.as_fd());
    let fds = LaunchFds { control, stdin: null, stdout: null, stderr: null, cgroups: Vec::new() };
    spawner.launch(&spec, &fds).map_err(fail)?;
    drop(theirs);
    loop {
        match receive_event(&ours) {
            Some(LaunchEvent::Exited(ExitReport { status: 0, .. })) => return Ok(()),
            Some(LaunchEvent::Failed(LaunchError { subject, errno, .. })) => {
                let why = rustix::io::Errno::from_raw_os_error(errno);
                return Err(format!("{}: {why}", subject.trim_end()));
            }
            Some(LaunchEvent::Exited(_) | LaunchEvent::Closed) => {
                return Err("a probe ended without a report".to_owned());
            }
            Some(LaunchEvent::InitStarted(_)) | None => {}
        }
    }
}
