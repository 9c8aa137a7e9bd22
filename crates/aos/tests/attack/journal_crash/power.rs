//! JRNL-07, JRNL-08: the power goes, on an ext4 of our own over a loop device.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{bench, clean, figure};
use crate::Outcome;
use crate::kill::{self, Bench, Daemon};
use crate::load::{Random, Tally, Taste, Writer};
use crate::world::{Start, World, check, expect, rand};

/// An ext4 on a loop device whose power can be cut. Unmounted and detached again whatever happens.
struct Disk {
    dir: tempfile::TempDir,
    device: String,
}

fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output().map_err(|why| format!("{program}: {why}"))?;
    check(output.status.success(), || {
        format!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr))
    })?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Disk {
    /// The image lies in memory: what reached the device is what counts, not how long a real one takes.
    fn new() -> Result<Disk, String> {
        let builder = || tempfile::Builder::new().prefix("aos-attack-").to_owned();
        let dir = builder()
            .tempdir_in("/dev/shm")
            .or_else(|_| builder().tempdir())
            .map_err(|why| why.to_string())?;
        let image = dir.path().join("image");
        let file = std::fs::File::create(&image).map_err(|why| why.to_string())?;
        file.set_len(256 << 20).map_err(|why| why.to_string())?;
        run("mkfs.ext4", &["-q", "-F", &image.display().to_string()])?;
        std::fs::create_dir(dir.path().join("mnt")).map_err(|why| why.to_string())?;
        let device = run("losetup", &["-f", "--show", &image.display().to_string()])?;
        let disk = Disk { dir, device };
        disk.mount()?;
        Ok(disk)
    }

    fn at(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    fn mount(&self) -> Outcome {
        run("mount", &[&self.device, &self.at().display().to_string()]).map(drop)
    }

    /// What is not on the device by now never gets there.
    #[expect(unsafe_code, reason = "rustix has no FS_IOC_SHUTDOWN; the call takes a descriptor and a flag")]
    fn cut_power(&self) -> Outcome {
        use std::os::fd::AsRawFd as _;
        const FS_IOC_SHUTDOWN: libc::c_ulong = 0x8004_587d;
        const WITHOUT_FLUSHING_THE_LOG: u32 = 2;
        let root = std::fs::File::open(self.at()).map_err(|why| why.to_string())?;
        // SAFETY: the descriptor is open and the flag outlives the call.
        let done = unsafe { libc::ioctl(root.as_raw_fd(), FS_IOC_SHUTDOWN, &WITHOUT_FLUSHING_THE_LOG) };
        check(done == 0, || format!("cannot cut the power: {}", std::io::Error::last_os_error()))
    }

    /// The power comes back. Nobody may hold a file of the old mount any more; a command that is just being started
    /// somewhere on the machine may hold a copy of the mount itself for a moment, and then the dead one comes back.
    fn restore_power(&self) -> Outcome {
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

    fn unmount(&self) -> Outcome {
        let at = self.at().display().to_string();
        run("umount", &[&at]).or_else(|_| run("umount", &["-l", &at])).map(drop)
    }

    fn sync(&self) -> Outcome {
        let root = std::fs::File::open(self.at()).map_err(|why| why.to_string())?;
        rustix::fs::syncfs(root).map_err(|why| why.to_string())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.unmount();
        let _ = run("losetup", &["-d", &self.device]);
    }
}

/// A world whose home is on one disk and whose root is on one, the same or another.
fn world_on(home: &Disk, root: &Disk) -> Result<World, String> {
    let mut world = World::asleep(Start { power: true, ..Start::default() });
    world.home = home.at().join("home");
    world.root = root.at().join("ws");
    std::fs::create_dir(&world.root).map_err(|why| why.to_string())?;
    Ok(world)
}

fn start(bench: &Bench) -> Result<Daemon, String> {
    bench.start(&[], &["--durability", "power"]).map_err(|why| format!("the daemon does not start: {why:?}"))
}

/// JRNL-07.
pub fn cut_under_load() -> Outcome {
    cuts("JRNL-07", &[Disk::new()?], figure(6, 200), Taste::Mixed)
}

/// JRNL-08.
pub fn cut_in_patches() -> Outcome {
    cuts("JRNL-08", &[Disk::new()?], figure(6, 200), Taste::Patches)
}

/// The same with the root on another disk than the home: pre-images are then copied from one to the other, and each
/// disk keeps what it was told to keep, in no common order.
pub fn cut_two_disks() -> Outcome {
    cuts("OWN-POWER-TWO-DISKS", &[Disk::new()?, Disk::new()?], figure(20, 200), Taste::Patches)
}

/// The home is on the first disk, the root on the last.
fn cuts(id: &str, disks: &[Disk], rounds: usize, taste: Taste) -> Outcome {
    let seed = rand();
    let mut random = Random::new(seed);
    let world = world_on(&disks[0], &disks[disks.len() - 1])?;
    let bench = bench(&world);
    let mut daemon = start(&bench)?;
    let mut writers = bench.writers(4, taste, &mut random)?;
    // What the writers prepared behind the daemon's back is not its to keep.
    disks.iter().try_for_each(Disk::sync)?;
    let mut tally = Tally::default();
    for _ in 0..rounds {
        cut_once(disks, &bench, daemon, &mut writers, &mut random)?;
        tally.kills += 1;
        daemon = start(&bench)?;
        kill::judge(&bench, &mut writers, &mut tally)?;
        bench.prove(false, &mut tally);
        clean_so_far(seed, &tally)?;
    }
    bench.prove(true, &mut tally);
    daemon.kill();
    clean(id, seed, &tally)?;
    world.finish()
}

fn clean_so_far(seed: u64, tally: &Tally) -> Outcome {
    check(tally.is_clean(), || format!("seed {seed}: {tally}\n{}", tally.complaints.join("\n")))
}

/// Once the power is gone any answer is in order: whoever would read it has no power either.
fn cut_once(
    disks: &[Disk],
    bench: &Bench,
    daemon: Daemon,
    writers: &mut [Writer],
    random: &mut Random,
) -> Outcome {
    let moment = Duration::from_micros(random.below(150_000) as u64);
    let (mut cut, mut at) = (Ok(()), Instant::now());
    kill::under_load(&bench.home, writers, || {
        std::thread::sleep(moment);
        at = Instant::now();
        if disks.len() > 1 {
            // Two disks cannot be cut in one moment; nothing new begins between the two cuts.
            daemon.hold_still();
        }
        cut = disks.iter().try_for_each(Disk::cut_power);
        daemon.kill();
    });
    cut?;
    // A sync that was under way when the shutdown came may return without an error, and without having synced.
    writers.iter_mut().for_each(|writer| writer.doubt_since(at));
    disks.iter().try_for_each(Disk::restore_power)
}

/// Every blob that an answered receipt names is whole after a cut: read files, listings, and what the operator put.
pub fn cut_after_blobs() -> Outcome {
    let ways: [(&str, Make); 3] =
        [("read_file", read_large), ("list_dir", list_large), ("aos blob put", put_large)];
    let wrong: Vec<String> = ways
        .into_iter()
        .filter_map(|(what, make)| cut_after(make).err().map(|why| format!("{what}: {why}")))
        .collect();
    check(wrong.is_empty(), || wrong.join("\n"))
}

/// Makes a blob that the daemon acknowledges.
type Make = fn(&World) -> Outcome;

fn cut_after(make: Make) -> Outcome {
    let disk = Disk::new()?;
    let mut world = world_on(&disk, &disk)?;
    for n in 0..900 {
        world.write(&format!("a-name-that-makes-the-listing-large-{n:04}"), "");
    }
    world.write("large", "a line of a large file\n".repeat(4_000));
    disk.sync()?;
    world.start_daemon();
    make(&world)?;
    disk.cut_power()?;
    world.kill9();
    disk.restore_power()?;
    world.start_daemon();
    use_again(&world)?;
    world.finish()
}

fn effect_with_blob(world: &World, kind: &str, path: &str) -> Outcome {
    let session = world.open(json!({}));
    let receipt = world.client().effect(kind, json!({ "session_id": session, "path": path }));
    expect(kind, &receipt, &["ok"])?;
    check(receipt.to_string().contains("sha256:"), || format!("{kind} gave no blob: {receipt}"))
}

fn read_large(world: &World) -> Outcome {
    effect_with_blob(world, "host.fs.read_file", "large")
}

fn list_large(world: &World) -> Outcome {
    effect_with_blob(world, "host.fs.list_dir", ".")
}

fn put_large(world: &World) -> Outcome {
    // A file of the operator's, away from the disk that loses its power.
    let path = world.parent.join("put");
    std::fs::write(&path, operators_text()).map_err(|why| why.to_string())?;
    let (code, _, err) = world.aos(&["blob", "put", &path.display().to_string()]);
    check(code == 0, || format!("aos blob put: {err}"))
}

fn operators_text() -> String {
    "what the operator put\n".repeat(3_000)
}

/// What the operator put, if he did, is written by a session: its very bytes.
fn use_again(world: &World) -> Outcome {
    if !world.parent.join("put").exists() {
        return Ok(());
    }
    let blob_ref = aos_model::request::content_hash(operators_text().as_bytes());
    let session = world.open(json!({}));
    let content = json!({ "blob_ref": { "blob_ref": blob_ref } });
    let params = json!({ "session_id": session, "path": "from-blob", "content": content });
    expect("a write from the blob", &world.client().effect("host.fs.write_file", params), &["ok"])?;
    check(world.read("from-blob") == operators_text().into_bytes(), || "other bytes than were put".into())
}
