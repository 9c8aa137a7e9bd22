//! An ext4 file system on a loop device whose power can be cut.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::ioctl::{Setter, ioctl};
use rustix::mount::{MountFlags, UnmountFlags};

/// Unmounted and detached on drop.
#[derive(Debug)]
pub struct Disk {
    dir: tempfile::TempDir,
    device: String,
}

/// Room for a home that survives many cuts. The image is sparse.
const IMAGE_BYTES: u64 = 256 << 20;

/// Runs a program. Returns what it printed, or why it failed.
pub(in crate::torture) fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output().map_err(|why| format!("{program}: {why}"))?;
    if !output.status.success() {
        return Err(format!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Disk {
    /// The image is in memory: the test depends on what reached the device, not on the speed of a real one.
    pub fn new() -> Result<Disk, String> {
        let builder = || tempfile::Builder::new().prefix("aos-power-").to_owned();
        let dir = builder().tempdir_in("/dev/shm").or_else(|_| builder().tempdir());
        let dir = dir.map_err(|why| why.to_string())?;
        let image = dir.path().join("image");
        let sized = File::create(&image).and_then(|file| file.set_len(IMAGE_BYTES));
        sized.and_then(|()| std::fs::create_dir(dir.path().join("mnt"))).map_err(|why| why.to_string())?;
        run("mkfs.ext4", &["-q", "-F", &image.display().to_string()])?;
        let device = run("losetup", &["-f", "--show", &image.display().to_string()])?;
        let disk = Disk { dir, device };
        disk.mount()?;
        Ok(disk)
    }

    pub fn at(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    fn mount(&self) -> Result<(), String> {
        let mounted =
            rustix::mount::mount(self.device.as_str(), self.at(), "ext4", MountFlags::empty(), None);
        mounted.map_err(|why| format!("cannot mount {}: {why}", self.device))
    }

    fn unmount(&self) -> Result<(), String> {
        let unmount = |flags| rustix::mount::unmount(self.at(), flags);
        let unmounted = unmount(UnmountFlags::empty()).or_else(|_| unmount(UnmountFlags::DETACH));
        unmounted.map_err(|why| format!("cannot unmount {}: {why}", self.device))
    }

    /// Shuts the file system down. Data that has not reached the device is lost.
    #[expect(unsafe_code, reason = "rustix has no FS_IOC_SHUTDOWN; the call takes a descriptor and a flag")]
    pub fn cut_power(&self) -> Result<(), String> {
        const FS_IOC_SHUTDOWN: rustix::ioctl::Opcode = 0x8004_587d;
        const WITHOUT_FLUSHING_THE_LOG: u32 = 2;
        let root = File::open(self.at()).map_err(|why| why.to_string())?;
        // SAFETY: the call reads one 32-bit number, which outlives it.
        let cut = unsafe { ioctl(&root, Setter::<FS_IOC_SHUTDOWN, u32>::new(WITHOUT_FLUSHING_THE_LOG)) };
        cut.map_err(|why| format!("cannot cut the power: {why}"))
    }

    /// Mounts the file system again. No process may hold a file of the old mount. A command that starts anywhere on the
    /// machine may hold a copy of the mount for a moment; the new mount is then the shut-down one, so this tries again.
    pub fn restore_power(&self) -> Result<(), String> {
        for _ in 0..100 {
            self.unmount()?;
            self.mount()?;
            let probe = self.at().join(".probe");
            if std::fs::write(&probe, "").and_then(|()| std::fs::remove_file(&probe)).is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err("the power does not come back: the old mount is still in use".to_owned())
    }

    pub fn sync(&self) -> Result<(), String> {
        let root = File::open(self.at()).map_err(|why| why.to_string())?;
        rustix::fs::syncfs(root).map_err(|why| why.to_string())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.unmount();
        let _ = run("losetup", &["-d", &self.device]);
    }
}
