//! `cargo xtask torture`: long runs of what the tests do shortly. Each prints its seed and its counts, and fails when
//! anything was lost.

pub(crate) mod exec;
#[allow(dead_code, reason = "the attack cases share it and use the rest")]
pub(crate) mod kill;
#[allow(dead_code, reason = "the attack cases share it and use the rest")]
pub(crate) mod load;
pub(crate) mod undo;

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};

use kill::{Bench, Plan, Programs};
use load::{Random, Tally, Taste};

#[derive(Debug, Subcommand)]
pub(crate) enum Torture {
    /// Kill the daemon under load, at random moments and system calls, and hold what is left against what was promised
    Kill(Kill),
    /// Run process trees that do not want to end, end them in all ways, and look for what is left of them
    Exec(Exec),
    /// Walk random histories of all file mutations with rollback, redo and restore, and hold the tree against copies
    Undo(Undo),
}

#[derive(Debug, Args)]
pub(crate) struct Undo {
    /// Makes a run again; left out: a new one each time
    #[arg(long)]
    seed: Option<u64>,
    #[arg(long, default_value_t = 1_000)]
    histories: u64,
    /// Steps of each: turns, rollbacks, redos, restores
    #[arg(long, default_value_t = 40)]
    steps: usize,
    /// One history alone, by the seed that a complaint names
    #[arg(long, value_name = "SEED")]
    only: Option<u64>,
    /// Stop after so long, however many are done: 90s, 15m, 2h
    #[arg(long = "for", value_name = "T", value_parser = duration)]
    time: Option<Duration>,
    /// The folder of `aosd` and `aos`; left out: they are built for release
    #[arg(long, value_name = "DIR")]
    binaries: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Kill {
    /// Makes a run again; left out: a new one each time
    #[arg(long)]
    seed: Option<u64>,
    #[arg(long, default_value_t = 500)]
    kills: u64,
    /// Stop after so long, however many kills are done: 90s, 15m, 2h
    #[arg(long = "for", value_name = "T", value_parser = duration)]
    time: Option<Duration>,
    /// Clients that work at the same time
    #[arg(long, default_value_t = 8)]
    writers: usize,
    /// The folder of `aosd` and `aos`; left out: they are built for release
    #[arg(long, value_name = "DIR")]
    binaries: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Exec {
    /// Makes a run again; left out: a new one each time
    #[arg(long)]
    seed: Option<u64>,
    /// How many process trees
    #[arg(long, default_value_t = 2_000)]
    runs: u64,
    /// Stop after so long, however many are done: 90s, 15m, 2h
    #[arg(long = "for", value_name = "T", value_parser = duration)]
    time: Option<Duration>,
    /// Commands that run at the same time
    #[arg(long, default_value_t = 4)]
    at_once: usize,
    /// Leave out the floods of output at the end
    #[arg(long)]
    no_floods: bool,
    /// The folder of `aosd` and `aos`; left out: they are built for release
    #[arg(long, value_name = "DIR")]
    binaries: Option<PathBuf>,
}

/// A home serves for so many kills, then a fresh one: reading a long journal after each would take all the time.
const KILLS_PER_HOME: u64 = 50;

pub(crate) fn run(torture: &Torture) -> anyhow::Result<()> {
    match torture {
        Torture::Kill(options) => kill(options),
        Torture::Exec(options) => exec(options),
        Torture::Undo(options) => undo(options),
    }
}

/// A home serves for so many histories: their sessions are closed, but its journal grows.
const HISTORIES_PER_HOME: u64 = 50;

fn undo(options: &Undo) -> anyhow::Result<()> {
    let programs = programs(options.binaries.as_deref())?;
    let seed = options.seed.unwrap_or_else(new_seed);
    let until = options.time.map(|time| Instant::now() + time);
    println!("torture undo: seed {seed}, {} histories of {} steps", options.histories, options.steps);
    let bar = progress(options.histories, "histories, this home: ");
    let mut random = Random::new(seed);
    let mut total = undo::Tally::default();
    let begun = Instant::now();
    while total.histories < options.histories
        && until.is_none_or(|until| Instant::now() < until)
        && total.is_clean()
    {
        let ground = Ground::new(&programs)?;
        let histories = HISTORIES_PER_HOME.min(options.histories - total.histories);
        let (seed, steps, only) = (random.number(), options.steps, options.only);
        let plan = undo::Plan { seed, histories, steps, only, until };
        let tally = undo::torture(&ground.bench, &plan, &mut |tally| {
            bar.set_position(total.histories + tally.histories);
            bar.set_message(tally.to_string());
        });
        if !tally.is_clean() {
            println!("kept for a look: {}", ground.keep().display());
        }
        total.add(tally);
    }
    bar.finish_and_clear();
    for complaint in &total.complaints {
        println!("{complaint}");
    }
    println!("torture undo: seed {seed}: {total} ({:.0} s)", begun.elapsed().as_secs_f64());
    ensure!(total.is_clean(), "undo was not exact");
    Ok(())
}

fn kill(options: &Kill) -> anyhow::Result<()> {
    let programs = programs(options.binaries.as_deref())?;
    let seed = options.seed.unwrap_or_else(new_seed);
    let until = options.time.map(|time| Instant::now() + time);
    let strace = Command::new("strace").arg("-V").output().is_ok();
    println!("torture kill: seed {seed}, {} kills{}", options.kills, if strace { "" } else { ", no strace" });
    let bar = progress(options.kills, "kills, this home: ");
    let mut random = Random::new(seed);
    let mut total = Tally::default();
    let begun = Instant::now();
    while total.kills < options.kills && until.is_none_or(|until| Instant::now() < until) && total.is_clean()
    {
        let ground = Ground::new(&programs)?;
        let kills = KILLS_PER_HOME.min(options.kills - total.kills);
        let (writers, verify_every) = (options.writers, 10);
        let seed = random.number();
        let plan = Plan { seed, kills, writers, taste: Taste::Mixed, strace, verify_every, until };
        let tally = kill::torture(&ground.bench, &plan, &mut |tally| {
            bar.set_position(total.kills + tally.kills);
            bar.set_message(tally.to_string());
        });
        if !tally.is_clean() {
            println!("kept for a look: {}", ground.keep().display());
        }
        total.add(tally);
    }
    bar.finish_and_clear();
    report(&total, seed, begun.elapsed())
}

fn exec(options: &Exec) -> anyhow::Result<()> {
    let programs = programs(options.binaries.as_deref())?;
    let seed = options.seed.unwrap_or_else(new_seed);
    let until = options.time.map(|time| Instant::now() + time);
    println!("torture exec: seed {seed}, {} process trees, {} at once", options.runs, options.at_once);
    let bar = progress(options.runs, "process trees");
    let (ground, begun) = (Ground::new(&programs)?, Instant::now());
    let plan = exec::Plan { seed, runs: options.runs, at_once: options.at_once, until };
    let tally = exec::torture(&ground.bench, &plan, &mut |done| bar.set_position(done));
    bar.finish_and_clear();
    for complaint in &tally.complaints {
        println!("{complaint}");
    }
    println!("torture exec: seed {seed}: {tally} ({:.0} s)", begun.elapsed().as_secs_f64());
    if !options.no_floods {
        let peak = exec::floods(&ground.bench).map_err(anyhow::Error::msg)?;
        println!("torture exec: floods of output: {} MB resident at most (reach: 200)", peak >> 20);
        ensure!(peak < exec::RESIDENT_BYTES_MAX, "the daemon held too much memory");
    }
    ensure!(tally.is_clean(), "what was promised was not kept");
    Ok(())
}

/// Where one home is tortured. The sessions' folders go with it, the one on another file system too.
struct Ground {
    bench: Bench,
    folders: Vec<tempfile::TempDir>,
}

impl Ground {
    /// A home and three roots beside it; a fourth lies elsewhere when it can, where pre-images are copied, not moved.
    fn new(programs: &Programs) -> anyhow::Result<Ground> {
        let here = tempfile::Builder::new().prefix("aos-torture-").tempdir()?;
        let mut roots: Vec<PathBuf> = (0..3).map(|n| here.path().join(format!("ws{n}"))).collect();
        let elsewhere = tempfile::Builder::new().prefix("aos-torture-").tempdir_in("/dev/shm").ok();
        let elsewhere = elsewhere.filter(|dir| device(dir.path()) != device(here.path()));
        roots.extend(elsewhere.as_ref().map(|dir| dir.path().join("ws3")));
        for root in &roots {
            std::fs::create_dir(root)?;
        }
        let bench = Bench { programs: programs.clone(), home: here.path().join("home"), roots };
        Ok(Ground { bench, folders: std::iter::once(here).chain(elsewhere).collect() })
    }

    /// Leaves everything where it is; the home says where.
    fn keep(self) -> PathBuf {
        self.folders.into_iter().for_each(|folder| drop(folder.keep()));
        self.bench.home
    }
}

fn device(path: &Path) -> Option<u64> {
    path.metadata().map(|meta| meta.dev()).ok()
}

fn report(total: &Tally, seed: u64, took: Duration) -> anyhow::Result<()> {
    for complaint in &total.complaints {
        println!("{complaint}");
    }
    println!("torture kill: seed {seed}: {total} ({:.0} s)", took.as_secs_f64());
    ensure!(total.is_clean(), "what was promised was not kept");
    Ok(())
}

/// Shown on a terminal only.
fn progress(count: u64, of: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(&format!("{{bar:30}} {{pos}}/{{len}} {of}{{wide_msg}}"))
        .expect("BUG: the template is fixed");
    ProgressBar::new(count).with_style(style)
}

/// The programs under test, built first unless they were given.
fn programs(given: Option<&Path>) -> anyhow::Result<Programs> {
    let folder = match given {
        Some(folder) => folder.to_owned(),
        None => build()?,
    };
    Ok(Programs { aosd: folder.join("aosd"), aos: folder.join("aos") })
}

/// Builds the product for release; the folder of its programs.
fn build() -> anyhow::Result<PathBuf> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let built = Command::new(&cargo).args(["build", "--release", "--package", "aos"]).status();
    ensure!(built.context("cannot run cargo")?.success(), "the build failed");
    let metadata = Command::new(&cargo).args(["metadata", "--format-version", "1", "--no-deps"]).output()?;
    let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout)?;
    let target = metadata["target_directory"].as_str().context("cargo does not say where it builds")?;
    Ok(Path::new(target).join("release"))
}

fn new_seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Random::new(now.as_nanos() as u64 ^ u64::from(std::process::id())).number()
}

/// `90s`, `15m`, `2h`; a bare number is seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) => (number, text.as_bytes()[text.len() - 1]),
        None => (text, b's'),
    };
    let number: u64 = number.parse().map_err(|_| format!("`{text}` is no time; write 90s, 15m or 2h"))?;
    let seconds = match unit {
        b'm' => 60,
        b'h' => 3600,
        _ => 1,
    };
    Ok(Duration::from_secs(number.saturating_mul(seconds)))
}
