//! Cutting the power under load, again and again, and holding what is left against what was promised at `power`.
//!
//! The home, the roots or both lie on disks whose power is cut; what lies elsewhere keeps all that was written to it, as
//! a disk would that happened to write everything just in time.

mod disk;

use std::time::{Duration, Instant};

use crate::random::Random;
use crate::torture::kill::{self};
use crate::torture::load::{Tally, Taste, Writer};
use crate::torture::{Daemon, Setup};
pub use disk::Disk;

/// How a home is tortured.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub cuts: u64,
    pub writers: usize,
    pub taste: Taste,
    /// Everything lies on the one disk that is cut. Otherwise disks cannot be cut in one moment, and the daemon is held
    /// still first so that nothing new begins between.
    pub one_disk: bool,
    /// `aos verify` after every so many cuts.
    pub verify_every: u64,
    pub until: Option<Instant>,
}

/// A life takes at most so long, in microseconds.
const LIFE_US: usize = 100_000;

/// Tortures one home until the cuts are done; `tally.kills` counts them. `progress` sees the tally after each.
pub fn torture(setup: &Setup, disks: &[&Disk], plan: &Plan, progress: &mut dyn FnMut(&Tally)) -> Tally {
    let mut tally = Tally::default();
    if let Err(why) = lives(setup, disks, plan, progress, &mut tally) {
        tally.fault(why);
    }
    tally
}

fn lives(
    setup: &Setup,
    disks: &[&Disk],
    plan: &Plan,
    progress: &mut dyn FnMut(&Tally),
    tally: &mut Tally,
) -> Result<(), String> {
    let mut random = Random::new(plan.seed);
    let mut daemon = up(setup)?;
    let mut writers = setup.writers(plan.writers, plan.taste, &mut random)?;
    // What the writers prepared behind the daemon's back is not its to keep.
    disks.iter().try_for_each(|disk| disk.sync())?;
    while tally.kills < plan.cuts && plan.until.is_none_or(|until| Instant::now() < until) {
        cut(setup, disks, plan, daemon, &mut writers, &mut random, tally)?;
        tally.kills += 1;
        daemon = up(setup)?;
        kill::judge(setup, &mut writers, tally)?;
        if tally.kills.is_multiple_of(plan.verify_every) {
            setup.prove(false, tally);
        }
        progress(tally);
        if tally.complaints.len() > 20 {
            return Err("too much is wrong already; stopping here".into());
        }
    }
    setup.prove(true, tally);
    daemon.kill();
    Ok(())
}

fn up(setup: &Setup) -> Result<Daemon, String> {
    setup.start(&[], &["--durability", "power"]).map_err(|why| format!("the daemon does not start: {why:?}"))
}

/// One life and its end. Once the power is gone any answer is in order: whoever would read it has no power either.
fn cut(
    setup: &Setup,
    disks: &[&Disk],
    plan: &Plan,
    daemon: Daemon,
    writers: &mut [Writer],
    random: &mut Random,
    tally: &mut Tally,
) -> Result<(), String> {
    let moment = Duration::from_micros(random.below(LIFE_US) as u64);
    let (mut done, mut at) = (Ok(()), Instant::now());
    let mut heard = kill::under_load(&setup.home, writers, || {
        std::thread::sleep(moment);
        at = Instant::now();
        if !plan.one_disk {
            daemon.hold_still();
        }
        done = disks.iter().try_for_each(|disk| disk.cut_power());
        daemon.kill();
    });
    done?;
    heard.unexpected.retain(|(when, _)| *when < at);
    heard.pulse.refused = 0;
    heard.tell(tally);
    // A sync that was under way when the shutdown came may return without an error, and without having synced.
    writers.iter_mut().for_each(|writer| writer.doubt_since(at));
    disks.iter().try_for_each(|disk| disk.restore_power())
}
