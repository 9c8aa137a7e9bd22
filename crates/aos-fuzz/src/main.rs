//! Runs one target in a separate process, so that the caller survives a crash.
#![allow(
    clippy::disallowed_methods,
    reason = "a test tool that writes each input to a file before it runs it"
)]

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use aos_fuzz::corpus::{self, hex, unhex};
use aos_fuzz::{Plan, find, run, targets};
use clap::Parser;

#[derive(Parser)]
#[command(name = "aos-fuzz", about = "Run a parser of aos over mutated inputs")]
struct Options {
    /// The target; omit it to list the targets
    target: Option<String>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long, default_value_t = 100_000)]
    runs: u64,
    /// Stop after this many seconds, even if runs are left
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// Write each input to this file before it runs: its number, its length, its bytes
    #[arg(long, value_name = "FILE")]
    note: Option<PathBuf>,
    /// Run this one input, in hex as a crash report prints it
    #[arg(long, value_name = "HEX")]
    input: Option<String>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let Some(name) = &options.target else {
        targets().iter().for_each(|target| println!("{}", target.name));
        return ExitCode::SUCCESS;
    };
    match fuzz(name, &options) {
        Ok(summary) => {
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            // stderr may be closed; the exit code reports the failure too.
            let _ = writeln!(std::io::stderr(), "{name}: {why}");
            ExitCode::FAILURE
        }
    }
}

fn fuzz(name: &str, options: &Options) -> Result<String, String> {
    let target = find(name).ok_or("unknown target; run without a name to list the targets")?;
    if let Some(input) = &options.input {
        let input = unhex(input).ok_or("the input is not hex")?;
        (target.run)(&input);
        return Ok(format!("{name}: no failure with {:?}", String::from_utf8_lossy(&input)));
    }
    let corpus = corpus::read(name).map_err(|why| format!("cannot read its corpus: {why}"))?;
    let until = options.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let plan = Plan { seed: options.seed, runs: options.runs, until };
    let note = options.note.as_ref().map(File::create).transpose().map_err(|why| why.to_string())?;
    let begun = Instant::now();
    let outcome = run(&target, &corpus, plan, &mut |number, input| {
        if let Some(file) = &note {
            let head = [number.to_le_bytes(), (input.len() as u64).to_le_bytes()].concat();
            file.write_all_at(&[&head, input].concat(), 0).expect("cannot write the note file");
        }
    });
    let report = outcome.map_err(|crash| {
        let (run, input) = (crash.run, hex(&crash.input));
        format!("seed {}, run {run}: {}\ninput in hex: {input}", options.seed, crash.message)
    })?;
    Ok(format!(
        "{name}: seed {}: {} runs, {} shapes, 0 panics; slowest input {:.1} ms ({} bytes); {:.0} s",
        options.seed,
        report.runs,
        report.shapes,
        report.slowest.as_secs_f64() * 1e3,
        report.slowest_input.len(),
        begun.elapsed().as_secs_f64(),
    ))
}
