//! Folders of programs that the user of a command reaches, also where the one they are installed in is closed to others.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::World;

/// Whether that uid can reach and read a file or folder; `None` is the caller itself.
pub fn reaches(path: &Path, uid: Option<u32>) -> bool {
    let is_open = |path: &Path| path.metadata().is_ok_and(|meta| meta.mode() & 0o005 == 0o005);
    let Ok(real) = path.canonicalize() else { return false };
    uid.is_none() || [path, &real].iter().all(|path| path.ancestors().all(is_open))
}

/// The folder of the Rust toolchain in use. Its programs work at any other path too, unlike rustup's.
pub fn rust_toolchain() -> Option<PathBuf> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let folder = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    folder.join("bin/cargo").exists().then_some(folder)
}

impl World {
    /// A path at which `uid` reaches `folder`: its own, or a bind mount in this world, which only root can make.
    pub fn reachable(&mut self, folder: &Path, uid: Option<u32>) -> Result<PathBuf, String> {
        if reaches(folder, uid) {
            return Ok(folder.to_owned());
        }
        let shown = self.parent.join(format!("shown-{}", self.mounted.len()));
        std::fs::create_dir(&shown).map_err(|why| format!("{}: {why}", shown.display()))?;
        self.mount_bind(folder, &shown)?;
        Ok(shown)
    }
}
