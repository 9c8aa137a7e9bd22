//! `cargo xtask bench`: product and peers interleaved in one run; only ratios are compared.

mod apply_patch;
mod commands;
mod committed;
pub(crate) mod daemon;
mod in_process;
mod mcp;
pub(crate) mod mini_host;
mod one_core;
mod peers;
mod plot;
mod power;
mod record;
mod report;
mod search;
mod small_files;
mod table;
mod task;
mod undo;
mod vfs;

use std::path::PathBuf;

use clap::Args;

use crate::cargo::{cargo, target_dir};
use report::{Reach, Report, Sample};

/// The sections of the bench, in the order in which they run: what to type, its title, and the work.
const SECTIONS: &[(&str, &str, Run)] = &[
    ("in_process", "1. One small file, without the socket", in_process::run),
    ("files", "1. One small file over the socket", small_files::run),
    ("peers", "1. One small file, beside other servers", small_files::run_beside_peers),
    ("ordinary", "1. Small changes on an ordinary disk", small_files::run_on_ordinary_disk),
    ("power", "1. Changes that survive a power cut", power::run),
    ("record", "2. The record", record::run),
    ("search", "3. Search", search::run),
    ("commands", "4. Commands", commands::run),
    ("undo", "5. Undo", undo::run),
    ("vfs", "6. Virtual trees", vfs::run),
    ("mcp", "7. MCP", mcp::run),
    ("patch", "8. apply_patch", apply_patch::run),
];

type Run = fn(&Options, &mut Report) -> anyhow::Result<()>;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The sections to run; omit them to run all
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(SECTIONS.iter().map(|section| section.0)))]
    sections: Vec<String>,
    /// The number of entries in the long home of `record`
    #[arg(long, default_value_t = 1_000_000)]
    entries: u64,
    /// Rounds in which all contenders take turns
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Work in this folder instead of the temporary folder; best on a journaled file system
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Leave out the peers that are installed with npm, pip and cargo
    #[arg(long)]
    no_peers: bool,
    /// Also write the figures into this file
    #[arg(long)]
    json: Option<PathBuf>,
    /// Record the figures: `bench/figures.json`, the plots beside it, the table of bench/README.md
    #[arg(long)]
    record: bool,
    /// Fail when a ratio is worse than the recorded one by more than this factor
    #[arg(long, value_name = "FACTOR", num_args = 0..=1, default_missing_value = "1.5")]
    gate: Option<f64>,
}

impl Options {
    /// A folder for one section. It is removed on drop.
    fn workplace(&self) -> anyhow::Result<tempfile::TempDir> {
        Ok(match &self.dir {
            Some(dir) => tempfile::tempdir_in(dir)?,
            None => tempfile::tempdir()?,
        })
    }

    /// The folder of the trees that are searched.
    fn corpora(&self) -> anyhow::Result<PathBuf> {
        let dir = self.dir.clone().map_or_else(target_dir, Ok)?;
        Ok(dir.join("corpora"))
    }
}

/// Measures in a release build only, because some contenders run inside this program.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if cfg!(debug_assertions) {
        let own: Vec<String> = std::env::args().skip(1).collect();
        let build = ["run", "--quiet", "--release", "--package", "xtask", "--features", "long", "--"];
        let status = cargo().args(build).args(own).status()?;
        anyhow::ensure!(status.success(), "the bench did not end well");
        return Ok(());
    }
    let mut report = Report::new(options.rounds);
    for (name, title, run) in SECTIONS {
        if options.sections.is_empty() || options.sections.iter().any(|wanted| wanted == name) {
            report.begin(name, title);
            run(options, &mut report)?;
            report.finish();
        }
    }
    let found = report.end();
    if let Some(file) = &options.json {
        std::fs::write(file, serde_json::to_string_pretty(&found)? + "\n")?;
    }
    let kept = committed::load()?;
    let worse = committed::compare(&kept, &found, options.gate.unwrap_or(committed::SLACK));
    if options.record {
        committed::record(kept, found)?;
    }
    anyhow::ensure!(options.gate.is_none() || worse == 0, "{worse} ratios are worse than the kept ones");
    Ok(())
}
