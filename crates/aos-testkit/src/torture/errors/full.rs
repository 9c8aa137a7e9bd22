//! A small file system in memory that can be filled up.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags};

const PAGE_BYTES: u64 = 4096;

/// Unmounted on drop.
#[derive(Debug)]
pub struct SmallDisk {
    at: tempfile::TempDir,
}

impl SmallDisk {
    pub fn mount(kilobytes: usize) -> Result<SmallDisk, String> {
        let at = tempfile::Builder::new().prefix("aos-small-").tempdir().map_err(|why| why.to_string())?;
        let options = std::ffi::CString::new(format!("size={kilobytes}k,mode=0755")).unwrap_or_default();
        let mounted =
            rustix::mount::mount("tmpfs", at.path(), "tmpfs", MountFlags::empty(), options.as_c_str());
        mounted.map_err(|why| format!("cannot mount a tmpfs: {why}"))?;
        Ok(SmallDisk { at })
    }

    pub fn at(&self) -> &Path {
        self.at.path()
    }

    /// Fills the disk except for `pages` pages.
    pub fn fill(&self, pages: usize) -> Result<(), String> {
        let mut filler = std::fs::File::create(self.filler()).map_err(|why| why.to_string())?;
        let page = [b'x'; PAGE_BYTES as usize];
        while filler.write_all(&page).is_ok() {}
        let length = filler.metadata().map_err(|why| why.to_string())?.len() / PAGE_BYTES * PAGE_BYTES;
        let left = length.saturating_sub(pages as u64 * PAGE_BYTES);
        filler.set_len(left).map_err(|why| why.to_string())
    }

    pub fn free(&self) -> Result<(), String> {
        std::fs::remove_file(self.filler()).map_err(|why| why.to_string())
    }

    fn filler(&self) -> PathBuf {
        self.at.path().join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmount = |flags| rustix::mount::unmount(self.at.path(), flags);
        let _ = unmount(UnmountFlags::empty()).or_else(|_| unmount(UnmountFlags::DETACH));
    }
}
