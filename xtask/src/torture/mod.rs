//! `cargo xtask torture`: long versions of short tests. Each run prints its seed and its counts, and fails when a
//! promise was broken.
//!
//! A suite's adversary is a module of `aos_testkit::torture`, which the attack cases use too. Its options and its
//! report are below `commands`.

mod commands;

use std::fmt::Display;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};

use crate::cargo;
use aos_testkit::time::is_over;
use aos_testkit::torture::Setup;
use aos_testkit::{Programs, new_seed};

#[derive(Debug, Subcommand)]
pub(crate) enum Torture {
    /// Kill the daemon under load, at random moments and system calls, and check what was promised
    Kill(commands::kill::Options),
    /// Run process trees that resist ending, end them in all ways, and look for processes that are left
    Exec(commands::exec::Options),
    /// Run random histories of all file mutations with rollback, redo and restore, and compare the tree with copies
    Undo(commands::undo::Options),
    /// Cut the power of a disk under load, and check what was promised at `--durability power`
    Power(commands::power::Options),
    /// Fill the disks of the home and of the roots under load, kill the daemon there, and check what was promised
    Full(commands::full::Options),
    /// Record random histories of all requests and replay each three times in different environments, under strace
    Replay(commands::replay::Options),
    /// Let many sessions with many clients work at once, and check that all make progress
    Crowd(commands::crowd::Options),
    /// Request fuzzed paths in every way while other processes swap links, folders and files; look for leaks
    Path(commands::path::Options),
    /// Flip each byte of a small home, and cut, swap and double its pages: each damage is detected or harmless
    Corrupt(commands::corrupt::Options),
    /// Give the daemon oversized inputs, and check its memory
    Memory(commands::memory::Options),
    /// Compare what policy reports for random operations with what happens, by every front end
    Policy(commands::policy::Options),
    /// Attempt to read and write what is denied, in every mode, and look for what came through
    Denied(commands::denied::Options),
    /// Run each parser over mutated inputs, and check what must hold for its output
    Fuzz(commands::fuzz::Options),
    /// Run the attack cases one at a time and assert the time that each may take
    Cases(commands::cases::Options),
}

pub(crate) fn run(torture: &Torture) -> anyhow::Result<()> {
    // The tests only detect hangs; these runs assert the figures.
    aos_testkit::time::assert_figures();
    match torture {
        Torture::Kill(options) => commands::kill::run(options),
        Torture::Exec(options) => commands::exec::run(options),
        Torture::Undo(options) => commands::undo::run(options),
        Torture::Power(options) => commands::power::run(options),
        Torture::Full(options) => commands::full::run(options),
        Torture::Replay(options) => commands::replay::run(options),
        Torture::Crowd(options) => commands::crowd::run(options),
        Torture::Path(options) => commands::path::run(options),
        Torture::Corrupt(options) => commands::corrupt::run(options),
        Torture::Memory(options) => commands::memory::run(options),
        Torture::Policy(options) => commands::policy::run(options),
        Torture::Denied(options) => commands::denied::run(options),
        Torture::Fuzz(options) => commands::fuzz::run(options),
        Torture::Cases(options) => commands::cases::run(options),
    }
}

/// The options of every suite.
#[derive(Debug, Args)]
struct Common {
    /// Repeat the run with this seed; omit it for a new seed
    #[arg(long)]
    seed: Option<u64>,
    /// Stop after this time, even if the run is not done: 90s, 15m, 2h
    #[arg(long = "for", value_name = "T", value_parser = duration)]
    time: Option<Duration>,
    /// The folder of `aosd` and `aos`; omit it to build them for release
    #[arg(long, value_name = "DIR")]
    binaries: Option<PathBuf>,
}

impl Common {
    fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(new_seed)
    }

    /// Builds the programs if needed. The time of the run starts afterwards.
    fn begin(&self, suite: &'static str) -> anyhow::Result<Run> {
        let programs = match &self.binaries {
            Some(folder) => Programs::in_folder(folder),
            None => Programs::in_folder(&cargo::build(&["--package", "aos"])?),
        };
        let begun = Instant::now();
        Ok(Run { suite, seed: self.seed(), programs, begun, until: self.time.map(|time| begun + time) })
    }
}

/// One run of a suite.
struct Run {
    suite: &'static str,
    seed: u64,
    programs: Programs,
    begun: Instant,
    until: Option<Instant>,
}

impl Run {
    fn is_over(&self) -> bool {
        is_over(self.until)
    }

    /// Prints the complaints, then the counts, in the same form for all suites. Fails unless the run was clean.
    fn report(&self, counts: &dyn Display, complaints: &[String], is_clean: bool) -> anyhow::Result<()> {
        for complaint in complaints {
            println!("{complaint}");
        }
        let (suite, seed, seconds) = (self.suite, self.seed, self.begun.elapsed().as_secs_f64());
        println!("torture {suite}: seed {seed}: {counts} ({seconds:.0} s)");
        ensure!(is_clean, "what was promised was not kept");
        Ok(())
    }
}

/// A temporary home and roots. Dropping it removes them all, also the root on another file system.
struct TempSetup {
    setup: Setup,
    folders: Vec<tempfile::TempDir>,
}

impl TempSetup {
    /// A home and three roots beside it. If possible a fourth root is on another file system, where pre-images are
    /// copied, not moved.
    fn new(programs: &Programs) -> anyhow::Result<TempSetup> {
        let here = tempfile::Builder::new().prefix("aos-torture-").tempdir()?;
        let mut roots: Vec<PathBuf> = (0..3).map(|n| here.path().join(format!("ws{n}"))).collect();
        let elsewhere = tempfile::Builder::new().prefix("aos-torture-").tempdir_in("/dev/shm").ok();
        let elsewhere = elsewhere.filter(|dir| device(dir.path()) != device(here.path()));
        roots.extend(elsewhere.as_ref().map(|dir| dir.path().join("ws3")));
        for root in &roots {
            std::fs::create_dir(root)?;
        }
        let setup = Setup { programs: programs.clone(), home: here.path().join("home"), roots };
        Ok(TempSetup { setup, folders: std::iter::once(here).chain(elsewhere).collect() })
    }

    /// Keeps the folders unless the run was clean, and prints where they are.
    fn keep_unless(self, is_clean: bool) {
        if !is_clean {
            self.folders.into_iter().for_each(|folder| drop(folder.keep()));
            println!("kept for a look: {}", self.setup.home.display());
        }
    }
}

fn device(path: &Path) -> Option<u64> {
    path.metadata().map(|meta| meta.dev()).ok()
}

/// A progress bar on a terminal, otherwise one line per minute.
fn progress(count: u64, of: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(&format!("{{bar:30}} {{pos}}/{{len}} {of}{{wide_msg}}"))
        .expect("BUG: the template is fixed");
    let bar = ProgressBar::new(count).with_style(style);
    if bar.is_hidden() {
        let (bar, of) = (bar.clone(), of.to_owned());
        std::thread::spawn(move || print_progress(&bar, &of));
    }
    bar
}

/// Updates the progress and the counts so far.
fn show(bar: &ProgressBar, done: u64, counts: &dyn Display) {
    bar.set_position(done);
    bar.set_message(counts.to_string());
}

/// Prints the progress every minute: the bar is drawn only on a terminal, and a log file needs progress lines.
fn print_progress(bar: &ProgressBar, of: &str) {
    const EVERY: Duration = Duration::from_secs(60);
    loop {
        std::thread::sleep(EVERY);
        if bar.is_finished() {
            return;
        }
        eprintln!("{}/{} {of}{}", bar.position(), bar.length().unwrap_or_default(), bar.message());
    }
}

/// `90s`, `15m`, `2h`; a bare number is seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) => (number, text.as_bytes()[text.len() - 1]),
        None => (text, b's'),
    };
    let number: u64 = number.parse().map_err(|_| format!("`{text}` is not a time; write 90s, 15m or 2h"))?;
    let seconds = match unit {
        b'm' => 60,
        b'h' => 3600,
        _ => 1,
    };
    Ok(Duration::from_secs(number.saturating_mul(seconds)))
}
