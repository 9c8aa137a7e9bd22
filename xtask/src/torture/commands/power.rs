//! `cargo xtask torture power`.

use std::path::Path;

use anyhow::ensure;
use clap::Args;

use crate::torture::{Common, progress, show};
use aos_testkit::Programs;
use aos_testkit::Random;
use aos_testkit::torture::Setup;
use aos_testkit::torture::kill::Plan;
use aos_testkit::torture::load::{Tally, Workload};
use aos_testkit::torture::power::{self, Cut, Disk};

#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    #[arg(long, default_value_t = 2_000)]
    cuts: u64,
    /// Clients that work at the same time
    #[arg(long, default_value_t = 4)]
    writers: usize,
}

/// Cuts per home. A new home on the same disk follows, because reading a long journal after each cut would take most of
/// the time.
const CUTS_PER_HOME: u64 = 25;

/// Where the home and the roots are, and which disks are cut.
#[derive(Debug, Clone, Copy)]
enum Layout {
    OneDisk,
    TwoDisks,
    /// Only the home is on a disk that is cut; the roots keep everything that was written.
    HomeAlone,
    /// Only the roots are on a disk that is cut.
    RootsAlone,
}

const LAYOUTS: [Layout; 4] = [Layout::OneDisk, Layout::TwoDisks, Layout::HomeAlone, Layout::RootsAlone];

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "a disk of our own needs root");
    let run = options.common.begin("power")?;
    let (seed, until) = (run.seed, run.until);
    println!("torture power: seed {seed}, {} cuts, {} writers", options.cuts, options.writers);
    let bar = progress(options.cuts, "cuts, this home: ");
    let disk = || Disk::new().map_err(anyhow::Error::msg);
    let disks = [disk()?, disk()?];
    let kept = tempfile::Builder::new().prefix("aos-power-kept-").tempdir_in("/dev/shm")?;
    let (mut random, mut total, mut homes) = (Random::new(seed), Tally::default(), 0);
    while total.kills < options.cuts && !run.is_over() && total.is_clean() {
        let layout = LAYOUTS[homes % LAYOUTS.len()];
        let workload =
            if (homes / LAYOUTS.len()).is_multiple_of(2) { Workload::Mixed } else { Workload::Patches };
        homes += 1;
        let plan = Plan {
            seed: random.number(),
            kills: CUTS_PER_HOME.min(options.cuts - total.kills),
            writers: options.writers,
            workload,
            verify_every: 5,
            until,
        };
        let (setup, cut) = lay_out(layout, &disks, kept.path(), &run.programs)?;
        let tally = power::torture(&setup, &cut, &plan, &mut |tally| {
            show(&bar, total.kills + tally.kills, tally);
        });
        if !tally.is_clean() {
            println!("{layout:?}, {workload:?}, seed of this home {}", plan.seed);
            look(&setup);
        }
        total.add(tally);
    }
    bar.finish_and_clear();
    // The tally counts cuts as kills.
    let counts = total.to_string().replacen("kills", "cuts", 1);
    run.report(&counts, &total.complaints, total.is_clean() && total.pulse.is_well())
}

/// A new home, two new roots, and the disks that are cut.
fn lay_out<'a>(
    layout: Layout,
    disks: &'a [Disk; 2],
    kept: &Path,
    programs: &Programs,
) -> anyhow::Result<(Setup, Cut<'a>)> {
    let [first, second] = disks;
    let (home, roots, disks) = match layout {
        Layout::OneDisk => (first.at(), first.at(), vec![first]),
        Layout::TwoDisks => (first.at(), second.at(), vec![first, second]),
        Layout::HomeAlone => (first.at(), kept.to_owned(), vec![first]),
        Layout::RootsAlone => (kept.to_owned(), second.at(), vec![second]),
    };
    for folder in [&home, &roots] {
        empty(folder)?;
    }
    let roots = ["ws0", "ws1"].map(|name| roots.join(name)).to_vec();
    roots.iter().try_for_each(std::fs::create_dir)?;
    let cut = Cut { disks, one_disk: matches!(layout, Layout::OneDisk) };
    Ok((Setup { programs: programs.clone(), home: home.join("home"), roots }, cut))
}

fn empty(folder: &Path) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { std::fs::remove_dir_all(path)? } else { std::fs::remove_file(path)? }
    }
    Ok(())
}

/// Copies the home and the roots to a folder that is kept, because the disks are removed at the end of the run.
fn look(setup: &Setup) {
    let Ok(dir) = tempfile::Builder::new().prefix("aos-power-look-").tempdir() else { return };
    let dir = dir.keep();
    let from = [&setup.home].into_iter().chain(&setup.roots);
    let _ = std::process::Command::new("cp").arg("-a").args(from).arg(&dir).status();
    println!("kept for a look: {}", dir.display());
}
