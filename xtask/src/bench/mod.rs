//! `cargo xtask bench`: product and peers interleaved in one run; only ratios are compared.

mod in_process;
pub(crate) mod mini_host;
mod record;
mod search;
mod small_files;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Which section: 1 (small files), 2 (the record), 3 (search); left out: all
    section: Option<u8>,
    /// How many entries the long home of section 2 has
    #[arg(long, default_value_t = 1_000_000)]
    entries: u64,
    /// Rounds in which all contenders take turns
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Work here instead of in the temporary folder
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// Measures in a release build only: the contenders are this program itself.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if cfg!(debug_assertions) {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        let own: Vec<String> = std::env::args().skip(1).collect();
        let build = ["run", "--quiet", "--release", "--package", "xtask", "--"];
        let status = std::process::Command::new(cargo).args(build).args(own).status()?;
        anyhow::ensure!(status.success(), "the bench did not end well");
        return Ok(());
    }
    let wanted = |section: u8| options.section.is_none_or(|only| only == section);
    if wanted(1) {
        println!("── 1. One small file");
        in_process::run(options)?;
        small_files::run(options)?;
    }
    if wanted(2) {
        println!("── 2. The record");
        record::run(options)?;
    }
    if wanted(3) {
        println!("── 3. Search");
        search::run(options)?;
    }
    Ok(())
}

/// The times of one contender at one task.
#[derive(Debug, Default, Clone)]
pub(crate) struct Sample {
    times: Vec<Duration>,
}

impl Sample {
    pub(crate) fn time(&mut self, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let begun = Instant::now();
        work()?;
        self.times.push(begun.elapsed());
        Ok(())
    }

    /// In microseconds.
    pub(crate) fn quantile(&self, q: f64) -> f64 {
        let mut times = self.times.clone();
        times.sort_unstable();
        if times.is_empty() {
            return f64::NAN;
        }
        times[((times.len() - 1) as f64 * q) as usize].as_secs_f64() * 1e6
    }

    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }
}
