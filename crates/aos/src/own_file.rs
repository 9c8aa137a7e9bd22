//! Writes files of the operator: settings of agents, manual pages.
//!
//! Others may be able to write where these files are, and the operator may be root. So a folder is opened once, links
//! forbidden; a file is written under a random name that did not exist and renamed to its own; and only regular files are
//! read or replaced.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, bail};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

/// A longer file is not one that people write.
const BYTES_MAX: usize = 64 << 20;

/// An open folder.
pub(crate) struct Folder {
    dir: OwnedFd,
    path: PathBuf,
}

/// A file as it was read.
pub(crate) struct Existing {
    pub(crate) text: String,
    stat: Stat,
}

impl Folder {
    /// A folder below `home`, which must belong to the caller; `None` if it does not exist and is not to be created. `home`
    /// itself may be reached through links: on some systems /home is one.
    pub(crate) fn below_home(home: &Path, below: &Path, create: bool) -> anyhow::Result<Option<Folder>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let cannot_open = || format!("cannot open {}", home.display());
        let dir = match rustix::fs::open(home, flags, Mode::empty()) {
            Err(Errno::NOENT) if !create => return Ok(None),
            outcome => outcome.with_context(cannot_open)?,
        };
        let (owner, own) = (rustix::fs::fstat(&dir)?.st_uid, rustix::process::geteuid().as_raw());
        if owner != own {
            bail!("{} belongs to uid {owner}, and this is uid {own}; run it as that user", home.display());
        }
        let mut folder = Folder { dir, path: home.to_owned() };
        for part in below.components() {
            let Component::Normal(name) = part else { bail!("{} is not a plain path", below.display()) };
            let path = folder.path.join(name);
            if create {
                match rustix::fs::mkdirat(&folder.dir, name, Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(why) => return Err(why).with_context(|| format!("cannot create {}", path.display())),
                }
            }
            let dir = match open_folder(&folder.dir, Path::new(name)) {
                Err(Errno::NOENT) if !create => return Ok(None),
                outcome => outcome.with_context(|| cannot_open_folder(&path))?,
            };
            folder = Folder { dir, path };
        }
        Ok(Some(folder))
    }

    /// An existing folder of the caller or of root.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Folder> {
        let dir = open_folder(rustix::fs::CWD, path).with_context(|| cannot_open_folder(path))?;
        let (owner, own) = (rustix::fs::fstat(&dir)?.st_uid, rustix::process::geteuid().as_raw());
        if owner != own && owner != 0 {
            bail!("{} belongs to uid {owner}, and this is uid {own}; run it as that user", path.display());
        }
        Ok(Folder { dir, path: path.to_owned() })
    }

    /// Reads a file; `None` if there is none.
    pub(crate) fn read(&self, name: &str) -> anyhow::Result<Option<Existing>> {
        let path = self.path.join(name);
        // Nothing that is not a regular file is opened for reading: a FIFO would wait, a device could act.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let stat = match rustix::fs::openat(&self.dir, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            outcome => {
                rustix::fs::fstat(outcome.with_context(|| format!("cannot open {}", path.display()))?)?
            }
        };
        check_regular(&stat, &path)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.dir, name, flags, Mode::empty())
            .with_context(|| format!("cannot read {}", path.display()))?;
        let stat = rustix::fs::fstat(&file)?;
        check_regular(&stat, &path)?;
        let mut bytes = Vec::new();
        let mut chunk = vec![0; 64 << 10];
        loop {
            match rustix::io::read(&file, chunk.as_mut_slice()) {
                Ok(0) => break,
                Ok(read) => bytes.extend_from_slice(&chunk[..read]),
                Err(Errno::INTR) => {}
                Err(why) => return Err(why).with_context(|| format!("cannot read {}", path.display())),
            }
            if bytes.len() > BYTES_MAX {
                bail!("{} has more than {BYTES_MAX} bytes", path.display());
            }
        }
        let text =
            String::from_utf8(bytes).ok().with_context(|| format!("{} is not UTF-8", path.display()))?;
        Ok(Some(Existing { text, stat }))
    }

    /// Writes a file in the place of the one that was read, with its owner and mode; a new one gets `mode` without the bits of
    /// the umask.
    pub(crate) fn replace(
        &self,
        name: &str,
        before: Option<&Existing>,
        content: &[u8],
        mode: u32,
    ) -> anyhow::Result<()> {
        let cannot_write = || format!("cannot write {}", self.path.join(name).display());
        let temporary = format!(".aos-{:016x}", random()?);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.dir, &temporary, flags, Mode::from_raw_mode(mode))
            .with_context(cannot_write)?;
        let written = write_as(&file, before.map(|before| &before.stat), content)
            .and_then(|()| rustix::fs::renameat(&self.dir, &temporary, &self.dir, name));
        if let Err(why) = written {
            let _ = rustix::fs::unlinkat(&self.dir, &temporary, AtFlags::empty());
            return Err(why).with_context(cannot_write);
        }
        // Not every file system can sync a folder; the file itself is complete.
        let _ = rustix::fs::fsync(&self.dir);
        Ok(())
    }
}

fn open_folder(dir: impl std::os::fd::AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(dir, path, flags, Mode::empty(), resolve)
}

fn cannot_open_folder(path: &Path) -> String {
    format!("cannot open the folder {} (it must be one, and no symbolic link may lead to it)", path.display())
}

fn check_regular(stat: &Stat, path: &Path) -> anyhow::Result<()> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Symlink => bail!("{} is a symbolic link, and those are not followed", path.display()),
        _ => bail!("{} is not a regular file", path.display()),
    }
}

/// Writes and syncs a file, with the owner and mode of the one that it replaces.
fn write_as(file: &OwnedFd, before: Option<&Stat>, content: &[u8]) -> Result<(), Errno> {
    let mut rest = content;
    while !rest.is_empty() {
        match rustix::io::write(file, rest) {
            Ok(written) => rest = &rest[written..],
            Err(Errno::INTR) => {}
            Err(why) => return Err(why),
        }
    }
    if let Some(before) = before {
        let own = rustix::fs::fstat(file)?;
        if (own.st_uid, own.st_gid) != (before.st_uid, before.st_gid) {
            let (uid, gid) =
                (rustix::fs::Uid::from_raw(before.st_uid), rustix::fs::Gid::from_raw(before.st_gid));
            rustix::fs::fchown(file.as_fd(), Some(uid), Some(gid))?;
        }
        // After the owner: changing that drops bits of the mode.
        rustix::fs::fchmod(file, Mode::from_raw_mode(before.st_mode & 0o7777))?;
    }
    rustix::fs::fsync(file)
}

fn random() -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .context("cannot get random bytes")?;
    Ok(u64::from_ne_bytes(bytes))
}
