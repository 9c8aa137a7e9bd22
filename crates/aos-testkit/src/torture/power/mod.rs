//! Cutting the power under load, again and again, and holding what is left against what was promised at `power`.
//!
//! The home, the roots or both lie on disks whose power is cut; what lies elsewhere keeps all that was written to it, as
//! a disk would that happened to write everything just in time.

mod disk;

use std::time::{Duration, Instant};

use crate::torture::kill::{Load, Plan};
use crate::torture::load::Tally;
use crate::torture::{Daemon, Setup};
pub use disk::Disk;

/// What is cut.
#[derive(Debug)]
pub struct Cut<'a> {
    pub disks: Vec<&'a Disk>,
    /// Everything lies on the one disk that is cut. Otherwise disks cannot be cut in one moment, and the daemon is held
    /// still first so that nothing new begins between.
    pub one_disk: bool,
}

/// A life takes at most so long, in microseconds.
const LIFE_US: usize = 100_000;

/// Tortures one home until the cuts are done; `tally.kills` counts them. `progress` sees the tally after each.
pub fn torture(setup: &Setup, cut: &Cut<'_>, plan: &Plan, progress: &mut dyn FnMut(&Tally)) -> Tally {
    let end = |load: &mut Load<'_>, daemon: Daemon| {
        if load.tally.kills == 0 {
            // What the writers prepared behind the daemon's back is not its to keep.
            cut.disks.iter().try_for_each(|disk| disk.sync())?;
        }
        cut.end(load, daemon)?;
        load.tally.kills += 1;
        Ok(())
    };
    Load::new(setup, plan, &["--durability", "power"]).torture(end, progress)
}

impl Cut<'_> {
    /// One life and its end. Once the power is gone any answer is in order: whoever would read it has no power either.
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
        // A sync that was under way when the shutdown came may return without an error, and without having synced.
        load.writers.iter_mut().for_each(|writer| writer.doubt_since(at));
        self.disks.iter().try_for_each(|disk| disk.restore_power())
    }
}
