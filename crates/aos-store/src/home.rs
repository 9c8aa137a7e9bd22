//! `AOS_HOME`: where everything lives, and the lock that makes one daemon its master.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use aos_model::receipt::Durability;
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use crate::disk;
use crate::{Bank, Blobs, Fault, LogDir, Manifests};

/// The folders of a home, by handle where they are used often.
///
/// ```text
/// $AOS_HOME/            0700
///   state/journal.db    the journal and the state
///   state/blobs/ab/…    content by SHA-256
///   state/preimages/…   the bank: pre-images on their way, a folder a session
///   state/snapshots/…   what each snapshot holds, a manifest each
///   state/rooms/…       the private home and /tmp of commands, a folder a session
///   state/overlays/…    what running commands have changed so far, a folder a command
///   log/aosd.log        the daemon's log, and its rotated files
///   run/                lock, socket
/// ```
#[derive(Debug)]
pub struct Home {
    path: PathBuf,
    dir: OwnedFd,
    state: OwnedFd,
    run: OwnedFd,
}

/// Held for life by the daemon of a home.
#[derive(Debug)]
pub struct StateLock {
    _file: OwnedFd,
}

/// How long a lock is asked for before its holder counts as a daemon.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

impl Home {
    /// Opens the home, making what is missing.
    pub fn open(path: &Path) -> Result<Home, Fault> {
        let dir = disk::make_dirs(path)?;
        // A home that stood before (made by hand, say) is closed to others here and now.
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
        Blobs::open(disk::make_dir(&self.state, "blobs")?, durability == Durability::Power)
    }

    /// Makes the folders themselves last: what is written in them would be lost with them.
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

    pub fn bank(&self) -> Result<Bank, Fault> {
        Ok(Bank::new(disk::make_dir(&self.state, "preimages")?))
    }

    pub fn manifests(&self, durability: Durability) -> Result<Manifests, Fault> {
        Ok(Manifests::new(disk::make_dir(&self.state, "snapshots")?, durability == Durability::Power))
    }

    /// The folders in which commands have their private home and /tmp.
    pub fn rooms(&self) -> Result<Bank, Fault> {
        Ok(Bank::new(disk::make_dir(&self.state, "rooms")?))
    }

    /// The folders in which commands leave what they changed until it is committed, one each.
    pub fn overlays(&self) -> Result<Bank, Fault> {
        Ok(Bank::new(disk::make_dir(&self.state, "overlays")?))
    }

    /// Takes the daemon's lock, or says that another daemon has it. One that was killed just when it started a process
    /// leaves the lock to that process until it has become another program: a moment later nobody has it.
    pub fn lock(&self) -> Result<StateLock, Fault> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.run, "aosd.lock", flags, disk::PRIVATE_FILE)
            .map_err(|why| Fault::io("cannot open run/aosd.lock", why))?;
        let take = || rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        let mut taken = take();
        let patience = Instant::now() + LOCK_PATIENCE;
        while taken == Err(Errno::WOULDBLOCK) && Instant::now() < patience {
            std::thread::sleep(LOCK_PATIENCE / 100);
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
