//! Checks the record: the hash chain of the entries, the state that they fold to, the blobs and the snapshots.
//!
//! Everything here reads. It opens nothing outside the home and writes nothing (I8).

mod blob_check;
mod report;
mod snapshots;

use std::path::Path;

use aos_model::state::{FoldInput, State};
use blob_check::BlobCheck;
pub use report::{Finding, Report};

use crate::chain::{GENESIS, chain_value};
use crate::fault::Fault;
use crate::file::check_schema;
use crate::reader::Reader;
use crate::{home, wal};

/// Checks everything that [`replay`] checks, and also the database file, the WAL, the intents and the snapshots.
pub fn verify(home: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Report, Fault> {
    let reader = Reader::open(home)?;
    reader.hold()?;
    let mut report = Report::default();
    if let Err(fault) = check_schema(&reader.connection) {
        report.add(Finding::Journal(fault.to_string()));
        return Ok(report);
    }
    if let Err(fault) = wal::check(&home::journal_path(home)) {
        report.add(Finding::Journal(fault.to_string()));
    }
    let mut select = reader.connection.prepare("PRAGMA integrity_check")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let line: String = row.get(0)?;
        if line != "ok" {
            report.add(Finding::Journal(format!("the database is damaged: {line}")));
        }
    }
    check_intents(&reader, &mut report)?;
    fold_all(&reader, home, None, &mut report, progress)?;
    snapshots::check(home, &mut report)?;
    Ok(report)
}

/// Folds the journal from its first entry and compares the result with the live state, byte for byte (I7). With
/// `session`, only the state of that session is compared.
pub fn replay(
    home: &Path,
    session: Option<&str>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report, Fault> {
    let reader = Reader::open(home)?;
    reader.hold()?;
    check_schema(&reader.connection)?;
    let mut report = Report::default();
    fold_all(&reader, home, session, &mut report, progress)?;
    Ok(report)
}

fn check_intents(reader: &Reader, report: &mut Report) -> Result<(), Fault> {
    use sha2::Digest as _;
    let mut select = reader.connection.prepare("SELECT id, body, digest FROM intent")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let (id, body, digest): (i64, Vec<u8>, Vec<u8>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        if sha2::Sha256::digest(&body).as_slice() != digest {
            report.add(Finding::Journal(format!("intent {id} does not match its digest")));
        }
    }
    Ok(())
}

fn fold_all(
    reader: &Reader,
    home: &Path,
    session: Option<&str>,
    report: &mut Report,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), Fault> {
    let total = reader.head()?;
    let mut blobs = BlobCheck::new(home);
    let mut state = State::default();
    let (mut chain, mut expected_seq) = (GENESIS, 1);
    reader.entries(0, |row| {
        if row.seq != expected_seq {
            report.add(Finding::Journal(format!(
                "entry {expected_seq} is missing: the journal continues with {}",
                row.seq
            )));
        }
        let found: [u8; 32] = row.chain.as_slice().try_into().unwrap_or_default();
        if chain_value(&chain, row.seq, row.closes, &row.body) != found {
            report.add(Finding::Journal(format!(
                "entry {} is damaged: it does not match its chain value",
                row.seq
            )));
        }
        match row.entry() {
            Ok(entry) => {
                let wanted = session.is_none() || entry.session_id.as_deref() == session;
                let effects = FoldInput::from(entry);
                for blob_ref in effects.blob_refs().filter(|_| wanted) {
                    blobs.check(blob_ref, row.seq, report);
                }
                state.apply(row.seq, &effects);
            }
            Err(fault) => report.add(Finding::Journal(fault.to_string())),
        }
        (chain, expected_seq) = (found, row.seq + 1);
        report.entries += 1;
        if report.entries.is_multiple_of(1024) {
            progress(report.entries, total);
        }
        Ok(true)
    })?;
    compare(reader, &state, session, report)
}

/// Compares the live state with the folded map in one pass: both are in key order.
fn compare(reader: &Reader, folded: &State, session: Option<&str>, report: &mut Report) -> Result<(), Fault> {
    let concerns = |key: &str| session.is_none_or(|id| key.split('/').nth(1) == Some(id));
    let mut folded = folded.iter().filter(|(key, _)| concerns(key)).peekable();
    let mut differences = Vec::new();
    let mut keys = 0;
    reader.state_below("", &mut |key, value| {
        if !concerns(key) {
            return;
        }
        keys += 1;
        while let Some((missing, _)) = folded.next_if(|(folded_key, _)| *folded_key < key) {
            differences.push(format!("the live state lacks `{missing}`, which the journal folds to"));
        }
        match folded.next_if(|(folded_key, _)| *folded_key == key) {
            Some((_, expected)) if expected == value => {}
            Some(_) => {
                differences.push(format!("`{key}` in the live state differs from what the journal folds to"));
            }
            None => differences.push(format!("the live state has `{key}`, which no entry created")),
        }
    })?;
    differences.extend(
        folded.map(|(missing, _)| format!("the live state lacks `{missing}`, which the journal folds to")),
    );
    report.state_keys = keys;
    for difference in differences {
        report.add(Finding::State(difference));
    }
    Ok(())
}
