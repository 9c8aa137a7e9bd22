//! `aos log` and `aos show`: read the journal; no daemon is needed.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use aos_model::text::{escape, escape_json};
use aos_store::{Reader, Row};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::Exit;
use crate::cli::Log;
use crate::home;
use crate::render::{BAD, DIM, status_style, subject, time};

/// How often `--follow` looks for new entries.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) fn run(log: &Log) -> anyhow::Result<Exit> {
    let home = home::path()?;
    let reader = Reader::open(&home)?;
    let mut out = std::io::BufWriter::new(anstream::stdout());
    let mut last = 0;
    loop {
        let mut failed = None;
        reader.entries(last, |row| {
            last = row.seq;
            failed = line(&mut out, row, log).err();
            Ok(failed.is_none())
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        out.flush()?;
        if !log.follow {
            return Ok(Exit::Success);
        }
        std::thread::sleep(FOLLOW_INTERVAL);
    }
}

/// The newest entries of one session, as text without colours.
pub(crate) fn of_session(session: &str) -> anyhow::Result<String> {
    const ENTRIES_MAX: usize = 200;
    let log = Log { session: Some(session.to_owned()), json: false, follow: false };
    let mut lines = std::collections::VecDeque::new();
    let mut failed = None;
    Reader::open(&home::path()?)?.entries(0, |row| {
        let mut shown = anstream::StripStream::new(Vec::new());
        failed = line(&mut shown, row, &log).err();
        // Entries of other sessions print nothing.
        lines.extend(Some(shown.into_inner()).filter(|line| !line.is_empty()));
        if lines.len() > ENTRIES_MAX {
            lines.pop_front();
        }
        Ok(failed.is_none())
    })?;
    match failed {
        Some(error) => Err(error),
        None => Ok(lines.iter().map(|line| String::from_utf8_lossy(line)).collect()),
    }
}

fn line(out: &mut impl std::io::Write, row: &Row, log: &Log) -> anyhow::Result<()> {
    let entry = row.entry()?;
    if log.session.is_some() && log.session.as_deref() != entry.session_id.as_deref() {
        return Ok(());
    }
    if log.json {
        return Ok(writeln!(out, "{}", escape_json(&entry_json(row)?))?);
    }
    // Params that are nested too deeply for `Value` are shown without a summary.
    let params: Value = serde_json::from_str(entry.params.get()).unwrap_or_default();
    let receipt: Value = serde_json::from_str(entry.receipt.get()).unwrap_or_default();
    let status = receipt["status"].as_str().unwrap_or("?");
    let style = status_style(status);
    let code = receipt["error_code"]
        .as_str()
        .map(|code| format!(" {BAD}{}{BAD:#}", escape(code)))
        .unwrap_or_default();
    let kind = entry.kind.trim_start_matches("host.");
    writeln!(
        out,
        "{:>6}  {DIM}{}{DIM:#}  {}  {:<16} {style}{}{style:#}{code}  {}",
        row.seq,
        time(entry.at_ns),
        entry.session_id.as_deref().map_or("-".to_owned(), short),
        escape(kind),
        escape(status),
        subject(&params)
    )?;
    Ok(())
}

/// The end of an id, which is random; its start is the time.
fn short(id: &str) -> String {
    let tail: String = id.chars().rev().take(8).collect::<Vec<_>>().into_iter().rev().collect();
    format!("…{}", escape(&tail))
}

/// The entry as JSON, unchanged but for its sequence number.
fn entry_json(row: &Row) -> anyhow::Result<String> {
    let body: &RawValue = serde_json::from_slice(&row.body)?;
    Ok(format!("{{\"seq\":{},{}", row.seq, &body.get()[1..]))
}

pub(crate) fn show(seq: u64) -> anyhow::Result<Exit> {
    let home = home::path()?;
    let row = Reader::open(&home)?
        .entry(seq)?
        .with_context(|| format!("there is no entry {seq}; `aos log` shows them"))?;
    let json = entry_json(&row)?;
    let shown = serde_json::from_str::<Value>(&json)
        .and_then(|value| serde_json::to_string_pretty(&value))
        .unwrap_or(json);
    println!("{}", escape_json(&shown));
    Ok(Exit::Success)
}
