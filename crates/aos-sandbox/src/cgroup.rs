//! Control groups, where the daemon may make them: limits for a command and all that it starts, together.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

/// Which limits can be kept by groups here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Available {
    pub processes: bool,
    pub memory: bool,
}

/// A controller: its name, and the files of its limit in the old and the new hierarchy.
struct Controller {
    name: &'static str,
    limit_files: [&'static str; 2],
}

const PIDS: Controller = Controller { name: "pids", limit_files: ["pids.max", "pids.max"] };
const MEMORY: Controller =
    Controller { name: "memory", limit_files: ["memory.limit_in_bytes", "memory.max"] };

/// Groups of one command. Dropping them takes them away, once their last process is gone.
#[derive(Debug, Default)]
pub struct Groups {
    made: Vec<Made>,
}

#[derive(Debug)]
struct Made {
    parent: OwnedFd,
    name: String,
    /// `cgroup.procs`.
    procs: OwnedFd,
    pub controller: &'static str,
}

/// Tries each controller with a group that is taken away again.
pub(crate) fn available() -> Available {
    let can = |controller: &Controller, limit: u64| {
        sweep(controller);
        make(controller, "probe", limit).is_ok_and(|made| {
            drop(Groups { made: vec![made] });
            true
        })
    };
    Available { processes: can(&PIDS, 1_000), memory: can(&MEMORY, 1 << 30) }
}

impl Groups {
    /// Groups for the limits that are set. What cannot be had is left to others.
    pub fn make(random: u64, processes: Option<u64>, memory_bytes: Option<u64>) -> Groups {
        let name = format!("{random:016x}");
        let mut made = Vec::new();
        // Init is one of them.
        made.extend(processes.and_then(|limit| self::make(&PIDS, &name, limit.saturating_add(1)).ok()));
        made.extend(memory_bytes.and_then(|limit| self::make(&MEMORY, &name, limit).ok()));
        Groups { made }
    }

    pub fn keeps(&self, controller: &str) -> bool {
        self.made.iter().any(|made| made.controller == controller)
    }

    pub fn procs(&self) -> impl Iterator<Item = &OwnedFd> {
        self.made.iter().map(|made| &made.procs)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for made in &self.made {
            // A process that was just reaped may still be counted for a moment.
            for _ in 0..50 {
                match rustix::fs::unlinkat(&made.parent, made.name.as_str(), AtFlags::REMOVEDIR) {
                    Err(Errno::BUSY) => std::thread::sleep(std::time::Duration::from_millis(1)),
                    _ => break,
                }
            }
        }
    }
}

fn make(controller: &Controller, name: &str, limit: u64) -> Result<Made, Errno> {
    let (parent, is_new) = own_group(controller.name).ok_or(Errno::NOENT)?;
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
    let limited = open(controller.limit_files[usize::from(is_new)])
        .and_then(|file| rustix::io::write(file, limit.to_string().as_bytes()))
        .and_then(|_| open("cgroup.procs"));
    let procs = limited.map_err(remove)?;
    Ok(Made { parent, name, procs, controller: controller.name })
}

const PREFIX: &str = "aos-";

/// Takes away what daemons left that were killed. A group whose maker lives is left alone, even when it is empty.
fn sweep(controller: &Controller) {
    let Some((parent, _)) = own_group(controller.name) else { return };
    let Ok(listing) = rustix::fs::Dir::read_from(&parent) else { return };
    for entry in listing.flatten() {
        let Ok(name) = entry.file_name().to_str() else { continue };
        let maker = name.strip_prefix(PREFIX).and_then(|rest| rest.rsplit('-').next()?.parse::<u32>().ok());
        if maker.is_some_and(|pid| rustix::fs::stat(format!("/proc/{pid}")).is_err()) {
            let _ = rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR);
        }
    }
}

/// The folder of the group that this process is in, and whether it is of the new, single hierarchy.
fn own_group(controller: &str) -> Option<(OwnedFd, bool)> {
    let membership = crate::read_small("/proc/self/cgroup")?;
    let path_of = |wanted: &dyn Fn(&str) -> bool| {
        membership.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            wanted(controllers).then(|| path.to_owned())
        })
    };
    let old = path_of(&|controllers| controllers.split(',').any(|one| one == controller));
    let mounts = crate::read_small("/proc/self/mountinfo")?;
    let (kind, path) = match old {
        Some(path) => ("cgroup", path),
        None => ("cgroup2", path_of(&str::is_empty)?),
    };
    let mount = mounts.lines().find_map(|line| {
        let (place, file_system) = line.split_once(" - ")?;
        let mut words = file_system.split(' ');
        let is_it = words.next() == Some(kind)
            && (kind == "cgroup2"
                || words.nth(1).is_some_and(|options| options.split(',').any(|o| o == controller)));
        let mut fields = place.split(' ');
        let (inner, point) = (fields.nth(3)?, fields.next()?);
        (is_it && inner == "/").then(|| point.to_owned())
    })?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(format!("{mount}{path}"), flags, Mode::empty()).ok()?;
    Some((folder, kind == "cgroup2"))
}
