//! `aos verify`, `aos replay` and `aos gc`: check the journal, replay it, and remove unreferenced blobs.

use std::time::Duration;

use anyhow::{Context as _, bail};
use aos_store::{Finding, Report};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use super::{ExitWith, daemon, daemon_error, refusal_text};
use crate::Exit;
use crate::cli::Replay;
use crate::home;
use crate::render::{BAD, GOOD};

/// A progress bar; indicatif draws it only on a terminal.
fn progress(what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} entries")
        .expect("BUG: the template is fixed");
    let bar = ProgressBar::no_length().with_style(style).with_message(what);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

pub(crate) fn verify() -> anyhow::Result<Exit> {
    let bar = progress("verifying");
    let report = aos_store::verify(&home::path()?, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let report = report.context(ExitWith(Exit::Contaminated))?;
    for finding in &report.findings {
        anstream::println!("{BAD}damaged{BAD:#}: {}", aos_model::text::escape(&finding.to_string()));
    }
    if report.findings_count > 0 {
        eprintln!(
            "aos: {} in {} entries and {} blobs",
            aos_model::text::count(report.findings_count, "problem"),
            report.entries,
            report.blobs
        );
        return Ok(Exit::Contaminated);
    }
    anstream::println!(
        "{GOOD}intact{GOOD:#}: {} entries, {} blobs, {} keys of state",
        report.entries,
        report.blobs,
        report.state_keys
    );
    Ok(Exit::Success)
}

pub(crate) fn replay(replay: &Replay) -> anyhow::Result<Exit> {
    let bar = progress("replaying");
    let report = aos_store::replay(&home::path()?, replay.session.as_deref(), &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let report = report.context(ExitWith(Exit::ReplayFault))?;
    print_report(&report, replay.verify)
}

fn print_report(report: &Report, compare: bool) -> anyhow::Result<Exit> {
    let mut exit = Exit::Success;
    for finding in &report.findings {
        match finding {
            Finding::Blob(_) => exit = Exit::ReplayFault,
            Finding::Journal(_) | Finding::State(_) | Finding::Snapshot(_) if exit == Exit::Success => {
                exit = Exit::Failure;
            }
            Finding::Journal(_) | Finding::State(_) | Finding::Snapshot(_) => {}
        }
        eprintln!("aos: {}", aos_model::text::escape(&finding.to_string()));
    }
    if compare {
        println!("{}", if exit == Exit::Success { "MATCH" } else { "DIFF" });
    } else {
        println!("folded {} entries into {} keys of state", report.entries, report.state_keys);
    }
    Ok(exit)
}

pub(crate) fn gc() -> anyhow::Result<Exit> {
    let answer: Value = serde_json::from_str(&daemon()?.call("store.gc", "{}").map_err(daemon_error)?)?;
    if answer["status"] != "ok" {
        bail!("{}", refusal_text(&answer));
    }
    println!(
        "removed {} blobs ({} bytes), kept {}",
        answer["removed"], answer["removed_bytes"], answer["kept"]
    );
    Ok(Exit::Success)
}
