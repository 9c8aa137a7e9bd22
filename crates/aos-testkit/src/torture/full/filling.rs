//! What fills a disk: a process outside of aos, or a command of a session.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;

use crate::random::Random;

/// What is filled, by whom and how far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Filling {
    /// The disk of the home, to the last byte.
    Home,
    /// The disk of the home but some pages.
    HomeNearly,
    /// The inodes of the disk of the home.
    HomeInodes,
    /// The disk of the home, and what the daemon gives up for itself as well.
    HomeAndReserve,
    /// The disk of the roots, where it is another one.
    Roots,
    RootsInodes,
    /// A command fills its `/tmp`, its home, or an open file without a name.
    CommandTmp,
    CommandHome,
    CommandUnnamed,
    /// A command fills its overlay: it writes to the root.
    CommandOverlay,
    /// A command makes files until there are no more inodes, in its `/tmp` or in the root.
    CommandInodes,
    CommandOverlayInodes,
    /// A command takes a part of what is left in its `/tmp`.
    CommandNearly,
}

/// In the order of the rounds: a short run has the first ones.
const ALL: [Filling; 13] = [
    Filling::Home,
    Filling::CommandTmp,
    Filling::Roots,
    Filling::HomeInodes,
    Filling::CommandOverlay,
    Filling::HomeNearly,
    Filling::CommandInodes,
    Filling::HomeAndReserve,
    Filling::CommandUnnamed,
    Filling::RootsInodes,
    Filling::CommandOverlayInodes,
    Filling::CommandHome,
    Filling::CommandNearly,
];

impl std::fmt::Display for Filling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Filling::Home => "home",
            Filling::HomeNearly => "home nearly",
            Filling::HomeInodes => "home's inodes",
            Filling::HomeAndReserve => "home and reserve",
            Filling::Roots => "roots",
            Filling::RootsInodes => "roots' inodes",
            Filling::CommandTmp => "a command's /tmp",
            Filling::CommandHome => "a command's home",
            Filling::CommandUnnamed => "a file without a name",
            Filling::CommandOverlay => "an overlay",
            Filling::CommandInodes => "inodes by a command",
            Filling::CommandOverlayInodes => "inodes in an overlay",
            Filling::CommandNearly => "a part by a command",
        })
    }
}

impl Filling {
    /// What is filled in a round. Where the roots are on the disk of the home, that is what is filled.
    pub(super) fn of_round(number: u64, has_other_disk: bool) -> Filling {
        match ALL[(number % ALL.len() as u64) as usize] {
            Filling::Roots if !has_other_disk => Filling::Home,
            Filling::RootsInodes if !has_other_disk => Filling::HomeInodes,
            filling => filling,
        }
    }

    /// Whether nothing is left on the disk of the home, so that the daemon must know and say it.
    pub(super) fn is_home_full(self) -> bool {
        matches!(self, Filling::Home | Filling::HomeInodes | Filling::HomeAndReserve)
    }

    /// The script of the command that fills, in a folder of a root.
    pub(super) fn script(self, random: &mut Random) -> Option<String> {
        let fill = match self {
            Filling::CommandTmp => fill_file("/tmp/f"),
            Filling::CommandHome => fill_file("~/f"),
            Filling::CommandUnnamed => format!("exec 3> /tmp/f; rm /tmp/f; {}", fill_file("/proc/self/fd/3")),
            Filling::CommandOverlay => fill_file("filling/big"),
            Filling::CommandInodes => make_files("/tmp"),
            Filling::CommandOverlayInodes => make_files("filling"),
            Filling::CommandNearly => format!("head -c {} /dev/zero > /tmp/f", random.below(80 << 20)),
            _ => return None,
        };
        Some(format!("mkdir filling; echo x > filling/landed; {fill}; rm -r filling"))
    }
}

/// What a command says that found the disk full, so that it took next to nothing: it is not ended for that.
pub(super) const TOOK_LITTLE: &str = "took little";

/// Fills the disk with a file, and waits to be ended.
fn fill_file(path: &str) -> String {
    let few = 2 << 20;
    format!("cat /dev/zero > {path}; {}", wait_to_be_ended(&format!("$(stat -Lc %s {path}) -lt {few}")))
}

/// The same with inodes.
fn make_files(folder: &str) -> String {
    let wait = wait_to_be_ended("$i -lt 300");
    format!("i=0; while true > {folder}/f$i; do i=$((i+1)); done; {wait}")
}

fn wait_to_be_ended(unless: &str) -> String {
    format!("if [ {unless} ]; then echo {TOOK_LITTLE}; else sleep 100; fi")
}

/// The size of the reserve of a home, as `aos_store::reserve` computes it.
fn reserve_bytes(disk: &Path) -> u64 {
    let total = rustix::fs::statvfs(disk).map_or(0, |stat| stat.f_blocks * stat.f_frsize);
    (total / 100 * 5).min(32 << 20)
}

/// Whether a home holds its reserve, all of it.
pub(super) fn holds_reserve(home: &Path) -> bool {
    let space = home.join("state/reserve/space").metadata();
    space.is_ok_and(|space| space.len() >= reserve_bytes(home))
}

/// A process outside of aos that fills a disk.
#[derive(Debug)]
pub(super) struct Filler {
    pub(super) disk: PathBuf,
    pub(super) home: PathBuf,
}

/// More files than any of the small disks has inodes.
const FILES_MAX: usize = 20_000;
/// As many as the reserve holds, and some.
const FILES_GIVEN_BACK: usize = 24;
const PAGE_BYTES: u64 = 4096;

impl Filler {
    /// Fills as `filling` says. It does not take what the daemon gave up meanwhile for itself.
    pub(super) fn fill(&self, filling: Filling, random: &mut Random) -> Result<(), String> {
        let left = if filling == Filling::HomeNearly { random.below(120) as u64 * PAGE_BYTES } else { 0 };
        let filled = match filling {
            Filling::HomeInodes | Filling::RootsInodes => self.fill_inodes(),
            _ => self.fill_bytes(left, filling != Filling::HomeAndReserve),
        };
        filled.map_err(|why| format!("cannot fill {}: {why}", self.disk.display()))
    }

    fn fill_bytes(&self, left: u64, spares_reserve: bool) -> std::io::Result<()> {
        let file = File::options().create(true).append(true).open(self.file())?;
        let (mut length, mut size) = (file.metadata()?.len(), 64 << 20);
        while size >= PAGE_BYTES {
            match rustix::fs::fallocate(&file, FallocateFlags::empty(), length, size) {
                Ok(()) => length += size,
                Err(_) => size /= 2,
            }
        }
        let is_given_up = spares_reserve && !holds_reserve(&self.home);
        let left = left + if is_given_up { reserve_bytes(&self.disk) } else { 0 };
        file.set_len(length.saturating_sub(left))
    }

    fn fill_inodes(&self) -> std::io::Result<()> {
        std::fs::create_dir_all(self.folder())?;
        let name = |number: usize| self.folder().join(number.to_string());
        let made = (0..FILES_MAX).take_while(|number| File::create(name(*number)).is_ok()).count();
        if !holds_reserve(&self.home) {
            let given_back = made.saturating_sub(FILES_GIVEN_BACK)..made;
            given_back.into_iter().try_for_each(|number| std::fs::remove_file(name(number)))?;
        }
        Ok(())
    }

    pub(super) fn free(&self) {
        let _ = std::fs::remove_file(self.file());
        let _ = std::fs::remove_dir_all(self.folder());
    }

    fn file(&self) -> PathBuf {
        self.disk.join("filler")
    }

    fn folder(&self) -> PathBuf {
        self.disk.join("fillers")
    }
}
