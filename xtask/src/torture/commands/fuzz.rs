//! `cargo xtask torture fuzz`: runs each parser in a separate process, so that an abort and a hang are detected as well
//! as a panic.

use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;

use crate::cargo;
use crate::torture::duration;
use aos_testkit::new_seed;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// patch, path, entry, manifest, rpc, edit, command, tool; omit them to run all
    targets: Vec<String>,
    /// Inputs for each
    #[arg(long, default_value_t = 1_000_000)]
    runs: u64,
    /// Repeat the run with this seed; omit it for a new seed
    #[arg(long)]
    seed: Option<u64>,
    /// Stop each after this time, even if runs are left: 90s, 15m, 2h
    #[arg(long = "for", value_name = "T", value_parser = duration)]
    time: Option<Duration>,
}

/// An input that takes longer has hung.
const HUNG: Duration = Duration::from_secs(60);

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let fuzzer = cargo::build(&["--quiet", "--package", "aos-fuzz"])?.join("aos-fuzz");
    let known = Command::new(&fuzzer).output().context("cannot run the fuzzer")?;
    let known = String::from_utf8(known.stdout)?;
    let seed = options.seed.unwrap_or_else(new_seed);
    let mut wrong = Vec::new();
    for name in known.lines().filter(|name| is_chosen(options, name)) {
        let note = tempfile::NamedTempFile::new()?;
        let mut command = Command::new(&fuzzer);
        command.args([name, "--seed", &seed.to_string(), "--runs", &options.runs.to_string()]);
        command.arg("--note").arg(note.path());
        if let Some(time) = options.time {
            command.args(["--seconds", &time.as_secs().to_string()]);
        }
        let ended = watch(command.spawn()?, note.path())?;
        if !ended.is_some_and(|status| status.success()) {
            let how = ended.map_or("it hung".to_owned(), |status| status.to_string());
            println!("{name}: seed {seed}: {how}, at the input {}", noted(note.path())?);
            wrong.push(name);
        }
    }
    let unknown: Vec<&String> =
        options.targets.iter().filter(|name| !known.lines().any(|known| known == *name)).collect();
    ensure!(
        unknown.is_empty(),
        "there are no such targets: {unknown:?}; there are {}",
        known.trim().replace('\n', ", ")
    );
    ensure!(wrong.is_empty(), "the parsers of {} did not hold", wrong.join(", "));
    Ok(())
}

fn is_chosen(options: &Options, name: &str) -> bool {
    options.targets.is_empty() || options.targets.iter().any(|chosen| chosen == name)
}

/// Waits for the fuzzer; `None` when one input took too long and the fuzzer was killed.
fn watch(mut child: Child, note: &Path) -> anyhow::Result<Option<ExitStatus>> {
    let (mut last, mut since) = (None, Instant::now());
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let now = number(&std::fs::read(note)?);
        if now != last {
            (last, since) = (now, Instant::now());
        } else if since.elapsed() > HUNG {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn number(note: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(note.get(..8)?.try_into().ok()?))
}

/// The last input, in hex.
fn noted(note: &Path) -> anyhow::Result<String> {
    let note = std::fs::read(note)?;
    let length = note.get(8..16).and_then(number).unwrap_or(0) as usize;
    let input = note.get(16..).unwrap_or_default();
    Ok(input.iter().take(length).map(|byte| format!("{byte:02x}")).collect())
}
