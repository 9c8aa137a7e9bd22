//! Cuts the power under load repeatedly, and compares the journal and the disk with what durability `power` promises.
//!
//! The home, the roots or both are on disks whose power is cut. Other folders keep everything that was written, like a
//! disk that happens to write everything just in time.

mod disk;

use std::time::{Duration, Instant};

use crate::torture::kill::{Load, Plan};
use crate::torture::load::Tally;
use crate::torture::{Daemon, Setup};
pub use disk::Disk;
pub(super) use disk::run;

/// The disks whose power is cut.
#[derive(Debug)]
pub struct Cut<'a> {
    pub disks: Vec<&'a Disk>,
    /// Everything is on the one disk that is cut. Several disks cannot be cut at the same moment, so the daemon is
    /// stopped first and starts no new call between the cuts.
    pub one_disk: bool,
}

/// The longest life of a daemon, in microseconds.
const LIFE_US: usize = 100_000;

/// Tortures one home until the cuts are done; `tally.kills` counts them. `progress` gets the tally after each.
pub fn torture(setup: &Setup, cut: &Cut<'_>, plan: &Plan, progress: &mut dyn FnMut(&Tally)) -> Tally {
    let end = |load: &mut Load<'_>, daemon: Daemon| {
        if load.tally.kills == 0 {
            // The writers prepare their files without the daemon, so the daemon does not make them durable.
            cut.disks.iter().try_for_each(|disk| disk.sync())?;
        }
        cut.end(load, daemon)?;
        load.tally.kills += 1;
        Ok(())
    };
    Load::new(setup, plan, &["--durability", "power"]).torture(end, progress)
}

impl Cut<'_> {
    /// One daemon life and its end. After the cut any answer is accepted: a real client would have no power either.
    fn end(&self, load: &mut Load<'_>, daemon: Daemon) -> Result<(), String> {
        let moment = Duration::from_micros(load.random.below(LIFE_US) as u64);
        let (mut done, mut at) = (Ok(()), Instant::now());
        let mut heard = load.until(|| {
            std::thread::sleep(moment);
            at = Instant::now();
            if !self.one_disk {
                daemon.hold_still();
            }
            done = self.disks.iter().try_for_each(|disk| disk.cut_power());
            daemon.kill();
        });
        done?;
        heard.unexpected.retain(|(when, _)| *when < at);
        heard.pulse.refused = 0;
        heard.tell(&mut load.tally);
        // A sync during the shutdown may return without an error and without having synced.
        load.writers.iter_mut().for_each(|writer| writer.doubt_since(at));
        self.disks.iter().try_for_each(|disk| disk.restore_power())
    }
}
