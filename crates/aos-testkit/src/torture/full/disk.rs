//! Small file systems in a mount namespace of the thread that makes them: they end with it, whatever happens.

use std::path::PathBuf;

use rustix::mount::{MountPropagationFlags, UnmountFlags};

use crate::random::Random;
use crate::torture::power::run;

/// Gives this thread, and all that it starts, mounts of its own.
#[expect(
    unsafe_code,
    reason = "unshare is unsafe for what threads share; a mount namespace takes no descriptor away"
)]
pub(super) fn own_mounts() -> Result<(), String> {
    // SAFETY: only the mounts, the root and the working folder of this thread are unshared. Nothing else relies on them.
    let unshared = unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) };
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    let separated = unshared.and_then(|()| rustix::mount::mount_change("/", private));
    separated.map_err(|why| format!("cannot create a mount namespace: {why}"))
}

/// Unmounted on drop.
#[derive(Debug)]
pub(super) struct SmallDisk {
    dir: tempfile::TempDir,
    pub(super) is_ext4: bool,
}

impl SmallDisk {
    /// Room for a home, its reserve and some rounds, and inodes that can be used up quickly.
    pub(super) fn mount(is_ext4: bool, random: &mut Random) -> Result<SmallDisk, String> {
        let (megabytes, inodes) = (32 + random.below(48), 1_500 + random.below(3_000));
        let builder = || tempfile::Builder::new().prefix("aos-full-").to_owned();
        // The image of an ext4 is in memory, so that no run depends on the speed of a real disk.
        let dir = builder().tempdir_in("/dev/shm").or_else(|_| builder().tempdir());
        let disk = SmallDisk { dir: dir.map_err(|why| why.to_string())?, is_ext4 };
        std::fs::create_dir(disk.at()).map_err(|why| why.to_string())?;
        let at = disk.at().display().to_string();
        if !is_ext4 {
            let options = format!("size={megabytes}m,nr_inodes={inodes},mode=0755");
            run("mount", &["-t", "tmpfs", "-o", &options, "tmpfs", &at])?;
            return Ok(disk);
        }
        let image = disk.dir.path().join("image").display().to_string();
        let sized = std::fs::File::create(&image).and_then(|file| file.set_len((megabytes as u64) << 20));
        sized.map_err(|why| why.to_string())?;
        // Blocks that only root may use: a daemon of root can write where it sees no free space.
        let for_root = if random.one_in(2) { "0" } else { "5" };
        // Small disks get blocks of 1 KiB, where SQLite's shared memory dies of a full disk (SIGBUS): it allocates one byte
        // of each 4 KiB, and writes the rest through a mapping.
        let blocks = ["-b", "4096"];
        run(
            "mkfs.ext4",
            &[&["-q", "-F", "-N", &inodes.to_string(), "-m", for_root], &blocks[..], &[&image]].concat(),
        )?;
        // The loop device is released with the mount.
        run("mount", &["-t", "ext4", "-o", "loop", &image, &at])?;
        Ok(disk)
    }

    pub(super) fn at(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// The share of the bytes and of the inodes that is free, in percent; the smaller one.
    pub(super) fn free_percent(&self) -> u64 {
        let Ok(stat) = rustix::fs::statvfs(self.at()) else { return 0 };
        let share = |free: u64, all: u64| (free * 100).checked_div(all).unwrap_or(100);
        share(stat.f_bavail, stat.f_blocks).min(share(stat.f_favail, stat.f_files))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmount = |flags| rustix::mount::unmount(self.at(), flags);
        let _ = unmount(UnmountFlags::empty()).or_else(|_| unmount(UnmountFlags::DETACH));
    }
}
