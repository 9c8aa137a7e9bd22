//! Cgroups, where the daemon may create them: limits for a command and all of its descendants together.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

/// Which limits cgroups can enforce on this machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Available {
    pub processes: bool,
    pub memory: bool,
}

/// A controller: its name, and the file of its limit in cgroup v1 and v2.
struct Controller {
    name: &'static str,
    limit_files: [&'static str; 2],
}

const PIDS: Controller = Controller { name: "pids", limit_files: ["pids.max", "pids.max"] };
const MEMORY: Controller =
    Controller { name: "memory", limit_files: ["memory.limit_in_bytes", "memory.max"] };

/// The cgroups of one command, one per controller. Dropping them removes them, once their last process has exited.
#[derive(Debug, Default)]
pub struct Cgroups {
    groups: Vec<Cgroup>,
}

#[derive(Debug)]
struct Cgroup {
    parent: OwnedFd,
    name: String,
    /// `cgroup.procs`.
    procs: OwnedFd,
    controller: &'static str,
}

/// Tries each controller with a cgroup that is removed again.
pub(crate) fn available() -> Available {
    let can = |controller: &Controller, limit: u64| {
        remove_stale(controller);
        create(controller, "probe", limit).is_ok_and(|made| {
            drop(Cgroups { groups: vec![made] });
            true
        })
    };
    Available { processes: can(&PIDS, 1_000), memory: can(&MEMORY, 1 << 30) }
}

impl Cgroups {
    /// Creates cgroups for the limits that are set. A limit without a cgroup is left to rlimits and namespaces.
    pub fn create(random: u64, processes: Option<u64>, memory_bytes: Option<u64>) -> Cgroups {
        let name = format!("{random:016x}");
        let mut groups = Vec::new();
        // Init counts too.
        groups.extend(processes.and_then(|limit| self::create(&PIDS, &name, limit.saturating_add(1)).ok()));
        groups.extend(memory_bytes.and_then(|limit| self::create(&MEMORY, &name, limit).ok()));
        Cgroups { groups }
    }

    /// Whether a cgroup of this controller enforces its limit.
    pub fn has_controller(&self, controller: &str) -> bool {
        self.groups.iter().any(|group| group.controller == controller)
    }

    /// The `cgroup.procs` files, by which a process joins.
    pub fn procs(&self) -> impl Iterator<Item = &OwnedFd> {
        self.groups.iter().map(|group| &group.procs)
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        for group in &self.groups {
            if let Err(error) = remove(group) {
                tracing::debug!(cgroup = group.name, %error, "cannot remove a cgroup; the next start tries again");
            }
        }
    }
}

/// A process that was just reaped may still be counted for a moment: then the kernel answers EBUSY.
fn remove(group: &Cgroup) -> Result<(), Errno> {
    for _ in 0..50 {
        match rustix::fs::unlinkat(&group.parent, group.name.as_str(), AtFlags::REMOVEDIR) {
            Err(Errno::BUSY) => std::thread::sleep(std::time::Duration::from_millis(1)),
            outcome => return outcome,
        }
    }
    Err(Errno::BUSY)
}

/// In the second hierarchy a cgroup with processes, such as ours, passes no controller on; one above it may, where it
/// is delegated to this user, as systemd does.
const LEVELS_ABOVE: usize = 4;

fn create(controller: &Controller, name: &str, limit: u64) -> Result<Cgroup, Errno> {
    let (mut parent, is_v2) = own_group(controller.name).ok_or(Errno::NOENT)?;
    for _ in 0..if is_v2 { LEVELS_ABOVE } else { 0 } {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let above = rustix::fs::openat(&parent, "..", flags, Mode::empty());
        match create_in(parent, is_v2, controller, name, limit) {
            Ok(made) => return Ok(made),
            Err(_) => parent = above?,
        }
    }
    create_in(parent, is_v2, controller, name, limit)
}

fn create_in(
    parent: OwnedFd,
    is_v2: bool,
    controller: &Controller,
    name: &str,
    limit: u64,
) -> Result<Cgroup, Errno> {
    let name = format!("{PREFIX}{name}-{}", rustix::process::getpid().as_raw_nonzero());
    rustix::fs::mkdirat(&parent, name.as_str(), Mode::from_raw_mode(0o755))?;
    let remove = |why| {
        let _ = rustix::fs::unlinkat(&parent, name.as_str(), AtFlags::REMOVEDIR);
        why
    };
    let open = |file: &str| {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::openat(&parent, format!("{name}/{file}"), flags, Mode::empty())
    };
    let limited = open(controller.limit_files[usize::from(is_v2)])
        .and_then(|file| rustix::io::write(file, limit.to_string().as_bytes()))
        .and_then(|_| open("cgroup.procs"));
    let procs = limited.map_err(remove)?;
    Ok(Cgroup { parent, name, procs, controller: controller.name })
}

const PREFIX: &str = "aos-";

/// Whether a process runs in a command's cgroup; `None` if that cannot be read. The daemon may itself run in one.
pub(crate) fn is_of_command(pid: i32) -> Option<bool> {
    // A kernel without cgroups has no such file.
    let Some(own) = crate::read_proc_file("/proc/self/cgroup") else { return Some(false) };
    let its = crate::read_proc_file(&format!("/proc/{pid}/cgroup"))?;
    Some(is_below_own(&own, &its))
}

fn is_below_own(own: &str, its: &str) -> bool {
    let ours = |line: &str| line.split('/').filter(|name| name.starts_with(PREFIX)).count();
    own.lines().zip(its.lines()).any(|(own, its)| ours(its) > ours(own))
}

/// Removes cgroups of daemons that were killed. One whose creator still runs is kept, even when it is empty.
fn remove_stale(controller: &Controller) {
    let Some((parent, _)) = own_group(controller.name) else { return };
    let Ok(listing) = rustix::fs::Dir::read_from(&parent) else { return };
    for entry in listing.flatten() {
        let Ok(name) = entry.file_name().to_str() else { continue };
        let creator = name.strip_prefix(PREFIX).and_then(|rest| rest.rsplit('-').next()?.parse::<u32>().ok());
        if creator.is_some_and(|pid| rustix::fs::stat(format!("/proc/{pid}")).is_err()) {
            let _ = rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR);
        }
    }
}

/// The folder of this process's own cgroup, and whether it is in the v2 hierarchy.
fn own_group(controller: &str) -> Option<(OwnedFd, bool)> {
    let membership = crate::read_proc_file("/proc/self/cgroup")?;
    let path_of = |wanted: &dyn Fn(&str) -> bool| {
        membership.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            wanted(controllers).then(|| path.to_owned())
        })
    };
    let v1 = path_of(&|controllers| controllers.split(',').any(|one| one == controller));
    let mounts = crate::read_proc_file("/proc/self/mountinfo")?;
    let (kind, path) = match v1 {
        Some(path) => ("cgroup", path),
        None => ("cgroup2", path_of(&str::is_empty)?),
    };
    let mount = mounts.lines().find_map(|line| {
        let (place, file_system) = line.split_once(" - ")?;
        let mut values = file_system.split(' ');
        let matches = values.next() == Some(kind)
            && (kind == "cgroup2"
                || values.nth(1).is_some_and(|options| options.split(',').any(|o| o == controller)));
        let mut fields = place.split(' ');
        let (inner, point) = (fields.nth(3)?, fields.next()?);
        (matches && inner == "/").then(|| point.to_owned())
    })?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(format!("{mount}{path}"), flags, Mode::empty()).ok()?;
    Some((folder, kind == "cgroup2"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_in_a_cgroup_below_the_daemons_belongs_to_a_command() {
        let command = "0::/user.slice/aos-0123456789abcdef-77\n";
        assert!(is_below_own("0::/user.slice\n", command));
        assert!(!is_below_own("0::/user.slice\n", "0::/user.slice/app.scope\n"));
        assert!(!is_below_own(command, command), "a daemon in a command of another daemon has clients there");
        assert!(is_below_own("2:pids:/a\n0::/\n", "2:pids:/a/aos-0-1\n0::/\n"));
    }
}
