//! `AOS_HOME`: the folder of all state, and the lock that admits one daemon per home.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use aos_model::receipt::Durability;
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use crate::blobs::Blobs;
use crate::disk;
use crate::fault::Fault;
use crate::log_files::LogDir;
use crate::manifest::Manifests;
use crate::reserve::Space;
use crate::session_dirs::SessionDirs;

/// The folders of a home; those that are used often are open.
///
/// ```text
/// $AOS_HOME/            0700
///   state/journal.db    the journal and the state
///   state/intents       intents of changes under way (durability `process`)
///   state/blobs/ab/…    content by SHA-256
///   state/preimages/…   pre-images that are not blobs yet, one folder per session
///   state/reserve/…     disk space that is given up when the disk is full
///   state/snapshots/…   one manifest per snapshot
///   state/rooms/…       the private home and /tmp of commands, one folder per session
///   state/overlays/…    overlayfs upper folders of running commands, one per command
///   log/aosd.log        the log of the daemon, and its rotated files
///   run/                lock, socket
/// ```
#[derive(Debug)]
pub struct Home {
    path: PathBuf,
    dir: OwnedFd,
    state: OwnedFd,
    run: OwnedFd,
}

/// Held by the daemon for as long as it runs. Closing the descriptor releases the lock.
#[derive(Debug)]
pub struct StateLock {
    _file: OwnedFd,
}

/// How long to retry before the holder of the lock is taken for a running daemon.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(1);

impl Home {
    /// Opens the home and creates the folders that are missing.
    pub fn open(path: &Path) -> Result<Home, Fault> {
        let dir = disk::make_dirs(path)?;
        // A home that existed before, created by hand for example, may have a mode that lets others in (I11).
        rustix::fs::fchmod(&dir, disk::PRIVATE_DIR)
            .map_err(|why| Fault::io(format!("cannot make {} private", path.display()), why))?;
        let state = disk::make_dir(&dir, "state")?;
        let run = disk::make_dir(&dir, "run")?;
        for inner in [&state, &run] {
            make_private(inner)?;
        }
        Ok(Home { path: path.to_owned(), dir, state, run })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn journal_path(&self) -> PathBuf {
        journal_path(&self.path)
    }

    pub(crate) fn state_dir(&self) -> &OwnedFd {
        &self.state
    }

    /// The room on the disk of the state.
    pub fn space(&self) -> Result<Space, Fault> {
        Space::of(&self.state).map_err(|why| Fault::io("cannot look at the disk of AOS_HOME", why))
    }

    pub(crate) fn state(&self) -> BorrowedFd<'_> {
        self.state.as_fd()
    }

    pub fn run(&self) -> BorrowedFd<'_> {
        self.run.as_fd()
    }

    /// The folder of the daemon's log.
    pub fn logs(&self) -> Result<LogDir, Fault> {
        let dir = disk::make_dir(&self.dir, "log")?;
        make_private(&dir)?;
        Ok(LogDir::new(dir))
    }

    /// Where the daemon's log is, for people.
    pub fn log_path(&self) -> PathBuf {
        self.path.join("log/aosd.log")
    }

    pub fn blobs(&self, durability: Durability) -> Result<Blobs, Fault> {
        Ok(Blobs::new(disk::make_dir(&self.state, "blobs")?, durability == Durability::Power))
    }

    /// Fsyncs the folders above the journal. A new file is durable only after an fsync of the folder that names it.
    pub fn sync(&self) -> Result<(), Fault> {
        let parent = self.path.parent().unwrap_or(&self.path);
        for path in [parent, &self.path, &self.path.join("state")] {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(path, flags, rustix::fs::Mode::empty())
                .and_then(rustix::fs::fsync)
                .map_err(|why| Fault::io(format!("cannot sync {}", path.display()), why))?;
        }
        Ok(())
    }

    pub fn preimages(&self) -> Result<SessionDirs, Fault> {
        Ok(SessionDirs::new(disk::make_dir(&self.state, "preimages")?))
    }

    pub fn manifests(&self, durability: Durability) -> Result<Manifests, Fault> {
        Ok(Manifests::new(disk::make_dir(&self.state, "snapshots")?, durability == Durability::Power))
    }

    /// The folders with the private home and /tmp of commands.
    pub fn command_dirs(&self) -> Result<SessionDirs, Fault> {
        Ok(SessionDirs::new(disk::make_dir(&self.state, "rooms")?))
    }

    /// The folders with the uncommitted changes of running commands, one per command.
    pub fn overlays(&self) -> Result<SessionDirs, Fault> {
        Ok(SessionDirs::new(disk::make_dir(&self.state, "overlays")?))
    }

    /// Takes the daemon's lock, or reports that another daemon has it.
    ///
    /// `flock` belongs to the open file description, which a child shares until `execve` closes it (`O_CLOEXEC`). A
    /// daemon that was killed between `fork` and `execve` leaves the lock held for a moment, so this retries.
    pub fn lock(&self) -> Result<StateLock, Fault> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.run, "aosd.lock", flags, disk::PRIVATE_FILE)
            .map_err(|why| Fault::io("cannot open run/aosd.lock", why))?;
        let take = || rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        let mut taken = take();
        let deadline = Instant::now() + LOCK_WAIT_MAX;
        while taken == Err(Errno::WOULDBLOCK) && Instant::now() < deadline {
            std::thread::sleep(LOCK_WAIT_MAX / 100);
            taken = take();
        }
        match taken {
            Ok(()) => Ok(StateLock { _file: file }),
            Err(Errno::WOULDBLOCK) => Err(Fault::Refused(format!(
                "another daemon already serves {}; stop it with `aos daemon stop` or choose another AOS_HOME",
                self.path.display()
            ))),
            Err(why) => Err(Fault::io("cannot lock run/aosd.lock", why)),
        }
    }
}

fn make_private(dir: &OwnedFd) -> Result<(), Fault> {
    rustix::fs::fchmod(dir, disk::PRIVATE_DIR).map_err(|why| Fault::io("cannot make the home private", why))
}

pub(crate) fn journal_path(home: &Path) -> PathBuf {
    home.join("state/journal.db")
}
