//! Gives the daemon one oversized input after the other: its memory stays bounded, and it answers meanwhile.

mod steps;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::Client;
use crate::time::is_over;
use crate::torture::Setup;
use crate::torture::pulse::{About, beside};
use steps::{Outcome, STEPS};

/// The most memory that a daemon may ever hold.
const RESIDENT_BYTES_MAX: u64 = 200 << 20;

/// The sizes of the inputs.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    line_bytes: u64,
    entries: usize,
    /// Files of one patch, and of a command: just below the limit.
    pieces: usize,
    levels: usize,
    /// Files that one command creates, far above the limit.
    made: usize,
    sessions: usize,
    connections: usize,
    flood_ns: u64,
    /// Run searches to their deadline.
    is_patient: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct Plan<'a> {
    pub scale: Scale,
    /// Only the steps whose name contains this.
    pub only: &'a str,
    pub until: Option<Instant>,
}

/// What a step works with.
#[derive(Debug)]
pub struct Stage<'a> {
    setup: &'a Setup,
    root: PathBuf,
    client: Client,
    session: String,
    scale: Scale,
}

/// The result of one step.
#[derive(Debug)]
struct Row {
    name: &'static str,
    took: Duration,
    peak_bytes: u64,
    slowest_ping: Duration,
}

#[derive(Debug, Default)]
pub struct Tally {
    rows: Vec<Row>,
    pub complaints: Vec<String>,
}

impl Tally {
    pub fn is_clean(&self) -> bool {
        self.complaints.is_empty()
    }

    fn fault(&mut self, step: &str, why: &str) {
        self.complaints.push(format!("{step}: {why}"));
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for row in &self.rows {
            writeln!(
                to,
                "\n  {:42} {:6.1} s {:5} MB resident, slowest answer {:4} ms",
                row.name,
                row.took.as_secs_f64(),
                row.peak_bytes >> 20,
                row.slowest_ping.as_millis()
            )?;
        }
        let peak = self.rows.iter().map(|row| row.peak_bytes).max().unwrap_or(0);
        let slowest = self.rows.iter().map(|row| row.slowest_ping).max().unwrap_or_default();
        write!(
            to,
            "{} steps: {} MB resident at most, slowest answer {} ms",
            self.rows.len(),
            peak >> 20,
            slowest.as_millis()
        )
    }
}

/// Runs all steps. Each has a new daemon on the same home, so that the memory of one step does not hide that of the
/// next.
pub fn torture(setup: &Setup, plan: &Plan<'_>, progress: &mut dyn FnMut(&str)) -> Tally {
    let mut tally = Tally::default();
    for (name, step) in STEPS.iter().filter(|(name, _)| name.contains(plan.only)) {
        if is_over(plan.until) {
            tally.fault(name, "not done, the time was over");
            continue;
        }
        progress(name);
        match one_step(setup, plan.scale, name, *step, &mut tally) {
            Ok(row) if row.peak_bytes >= RESIDENT_BYTES_MAX => {
                tally.fault(name, &format!("{} MB resident", row.peak_bytes >> 20));
                tally.rows.push(row);
            }
            Ok(row) => tally.rows.push(row),
            Err(why) => tally.fault(name, &why),
        }
    }
    tally.complaints.extend(setup.verify().err());
    tally
}

fn one_step(
    setup: &Setup,
    scale: Scale,
    name: &'static str,
    step: fn(&mut Stage<'_>) -> Outcome,
    tally: &mut Tally,
) -> Result<Row, String> {
    let daemon = setup.start_daemon(&[])?;
    let mut client = setup.client()?;
    let root = setup.roots[0].clone();
    let session = open(&mut client, &root)?;
    let mut stage = Stage { setup, root, client, session, scale };
    let begun = Instant::now();
    let (outcome, pulse) = beside(&setup.home, About::Root(&setup.roots[0]), || step(&mut stage));
    let (took, peak_bytes) = (begun.elapsed(), daemon.memory_bytes("VmHWM:"));
    if let Err(why) = outcome {
        tally.fault(name, &why.to_string());
    }
    pulse.complaint().iter().for_each(|why| tally.fault(name, why));
    let close = json!({ "session_id": stage.session, "signal": "kill" });
    let _ = stage.client.try_effect("host.session.signal", &close, "end");
    daemon.kill();
    Ok(Row { name, took, peak_bytes, slowest_ping: pulse.slowest })
}

fn open(client: &mut Client, root: &std::path::Path) -> Result<String, String> {
    let params = json!({
        "target": { "local": { "workdir": root } },
        "policy": { "preset": "permissive" },
        "capability": { "exec": { "max_output_bytes": 16 << 20 } },
    });
    client.open_with(&params)
}

pub const FULL: Scale = Scale::FULL;
pub const SHORT: Scale = Scale::SHORT;
