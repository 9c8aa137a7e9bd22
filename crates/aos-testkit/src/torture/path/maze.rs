//! The maze inside the root: files, folders and links that neighbour threads swap continuously.
//!
//! A neighbour opens folders name by name without following links, so it never leaves the root itself. Any change
//! outside comes from the daemon.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags, RenameFlags};

use crate::random::Random;

/// Few names, so that clients and neighbours collide on them. None of them exists in `/` of a machine.
pub(super) const NAMES: &[&str] =
    &["d", "e", "sub", "f", "g", "out", "outf", "up", "abs", "in", "loop", "donor", "moved"];

/// A random link target: outside in all spellings, inside, missing, or a loop.
fn target(root: &Path, beyond: &Path, random: &mut Random) -> PathBuf {
    let inside = |name: &str| root.join(name);
    match random.below(16) {
        0 => beyond.to_owned(),
        1 => beyond.join("secret"),
        2 => beyond.join("new"),
        3 => "../beyond".into(),
        4 => "../../beyond".into(),
        5 => "../beyond/secret".into(),
        6 => "sub/../../beyond".into(),
        7 => "..".into(),
        8 => "../..".into(),
        9 => ".".into(),
        10 => inside(NAMES[random.below(NAMES.len())]),
        11 => inside("d/../../beyond"),
        12 => Path::new("/proc/self/root").join(beyond.strip_prefix("/").unwrap_or(beyond)),
        13 => Path::new(NAMES[random.below(NAMES.len())]).join("sub"),
        14 => "loop".into(),
        _ => NAMES[random.below(NAMES.len())].into(),
    }
}

/// A thread that creates and swaps files, folders and links.
#[derive(Debug)]
pub(super) struct Neighbour {
    root: OwnedFd,
    /// Where files, links and folders are created before one rename moves them into the root.
    stage: PathBuf,
    root_path: PathBuf,
    beyond: PathBuf,
    random: Random,
    pub swaps: u64,
}

const SWAPS_TO_A_CLEARING: u64 = 50;

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Neighbour {
    pub(super) fn new(root: &Path, beyond: &Path, stage: PathBuf, seed: u64) -> std::io::Result<Neighbour> {
        std::fs::create_dir_all(&stage)?;
        let fd = rustix::fs::open(root, FOLDER, Mode::empty())?;
        let (root_path, beyond) = (root.to_owned(), beyond.to_owned());
        Ok(Neighbour { root: fd, stage, root_path, beyond, random: Random::new(seed), swaps: 0 })
    }

    /// Creates something at every name, before the run begins.
    pub(super) fn furnish(&mut self) {
        for name in NAMES {
            self.plant(None, name);
        }
    }

    pub(super) fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let (one, other) = (self.folder(), self.folder());
            if self.random.one_in(16) {
                let name = self.name();
                self.plant(one.as_ref(), name);
                self.keep_a_donor();
            }
            if self.swaps.is_multiple_of(SWAPS_TO_A_CLEARING) {
                self.clear();
            }
            let (from, to) = (self.name(), self.name());
            let (one, other) = (one.as_ref().unwrap_or(&self.root), other.as_ref().unwrap_or(&self.root));
            let exchanged = rustix::fs::renameat_with(one, from, other, to, RenameFlags::EXCHANGE).is_ok();
            // If one of them is missing, the exchange fails and the other is moved.
            if exchanged || rustix::fs::renameat_with(one, from, other, to, RenameFlags::NOREPLACE).is_ok() {
                self.swaps += 1;
            }
        }
    }

    /// Removes one name at the top: swaps move folders into folders, and the maze would grow ever deeper.
    fn clear(&mut self) {
        let name = self.name();
        let top = self.root_path.join(name);
        let _ = std::fs::remove_file(&top).or_else(|_| std::fs::remove_dir_all(&top));
        self.swaps += 1;
    }

    fn name(&mut self) -> &'static str {
        NAMES[self.random.below(NAMES.len())]
    }

    /// A folder of the maze up to three names deep, opened without following links; `None` is the root.
    fn folder(&mut self) -> Option<OwnedFd> {
        let mut found: Option<OwnedFd> = None;
        for _ in 0..self.random.below(4) {
            let name = self.name();
            match rustix::fs::openat(found.as_ref().unwrap_or(&self.root), name, FOLDER, Mode::empty()) {
                Ok(folder) => found = Some(folder),
                Err(_) => return found,
            }
        }
        found
    }

    /// Creates a file, a link or a folder with both, and moves it to a free name.
    fn plant(&mut self, folder: Option<&OwnedFd>, name: &str) {
        let made = self.stage.join(name);
        let is_made = match self.random.below(5) {
            0 => std::fs::write(&made, "OLD\nINSIDE\n"),
            1 | 2 => self.link(&made),
            _ => self.grow(&made),
        };
        if is_made.is_ok() {
            let folder = folder.unwrap_or(&self.root);
            let _ = rustix::fs::renameat_with(rustix::fs::CWD, &made, folder, name, RenameFlags::NOREPLACE);
        }
        let _ = std::fs::remove_file(&made).or_else(|_| std::fs::remove_dir_all(&made));
    }

    /// Creates `donor` in the root again if swaps have moved it: moves and patches need it there.
    fn keep_a_donor(&mut self) {
        let made = self.stage.join("donor");
        if std::fs::write(&made, "OLD\nINSIDE\n").is_ok() {
            let _ = rustix::fs::renameat_with(
                rustix::fs::CWD,
                &made,
                &self.root,
                "donor",
                RenameFlags::NOREPLACE,
            );
        }
    }

    fn link(&mut self, at: &Path) -> std::io::Result<()> {
        std::os::unix::fs::symlink(target(&self.root_path, &self.beyond, &mut self.random), at)
    }

    fn grow(&mut self, at: &Path) -> std::io::Result<()> {
        for folder in ["sub", "d"] {
            std::fs::create_dir_all(at.join(folder))?;
            std::fs::write(at.join(folder).join("f"), "OLD\nINSIDE\n")?;
            self.link(&at.join(folder).join("out"))?;
        }
        std::fs::write(at.join("g"), "OLD\nINSIDE\n")?;
        self.link(&at.join("out"))?;
        self.link(&at.join("outf"))
    }
}
