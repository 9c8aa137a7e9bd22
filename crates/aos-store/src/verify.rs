//! Proving the record whole: the chain of entries, the state they fold to, and the blobs they name.

use std::collections::HashSet;
use std::path::Path;

use aos_model::request::hash_name;
use aos_model::state::{Effects, State};

use crate::blobs::{Blobs, copy_hashing};
use crate::file::check_schema;
use crate::sqlite::{GENESIS, link};
use crate::{Fault, Reader, disk};

/// One thing that is wrong, in a sentence that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    Journal(String),
    /// A blob that an entry names is missing or not what its name says: replay stops here.
    Blob(String),
    /// The live state is not what the journal folds to.
    State(String),
    /// A manifest, or a body that it names, is not as it was written: what it keeps cannot be restored.
    Snapshot(String),
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Finding::Journal(text) | Finding::Blob(text) | Finding::State(text) | Finding::Snapshot(text)) =
            self;
        f.write_str(text)
    }
}

#[derive(Debug, Default)]
pub struct Report {
    pub entries: u64,
    pub blobs: u64,
    pub state_keys: u64,
    pub findings: Vec<Finding>,
    pub findings_count: u64,
}

/// More findings than this say nothing new.
const FINDINGS_MAX: usize = 100;

impl Report {
    pub(crate) fn add(&mut self, finding: Finding) {
        self.findings_count += 1;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}

/// Everything `replay` checks, and the database itself.
pub fn verify(home: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Report, Fault> {
    let reader = Reader::open(home)?;
    reader.hold()?;
    let mut report = Report::default();
    if let Err(fault) = check_schema(&reader.connection) {
        report.add(Finding::Journal(fault.to_string()));
        return Ok(report);
    }
    if let Err(fault) = crate::wal::check(&crate::home::journal_path(home)) {
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
    crate::verify_snapshots::check(home, &mut report)?;
    Ok(report)
}

/// Folds the journal from genesis and compares with the live state, byte for byte. Opens nothing but the home.
/// With `session`, only that session's part of the state is compared.
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
                "entry {expected_seq} is missing: the journal goes on with {}",
                row.seq
            )));
        }
        let found: [u8; 32] = row.chain.as_slice().try_into().unwrap_or_default();
        if link(&chain, row.seq, row.closes, &row.body) != found {
            report.add(Finding::Journal(format!(
                "entry {} is damaged: it does not match its chain value",
                row.seq
            )));
        }
        match row.entry() {
            Ok(entry) => {
                let wanted = session.is_none() || entry.session_id.as_deref() == session;
                let effects = Effects::from(entry);
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

/// The live table against the folded map, both in key order.
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
                differences.push(format!("`{key}` in the live state is not what the journal folds to"));
            }
            None => differences.push(format!("the live state holds `{key}`, which no entry made")),
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

/// Each blob is read once, however many entries name it.
pub(crate) struct BlobCheck {
    blobs: Option<Blobs>,
    seen: HashSet<String>,
}

impl BlobCheck {
    pub(crate) fn new(home: &Path) -> BlobCheck {
        let state = rustix::fs::open(
            home.join("state"),
            rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY,
            rustix::fs::Mode::empty(),
        );
        let blobs = state
            .ok()
            .and_then(|state| disk::open_dir(&state, "blobs").ok())
            .and_then(|dir| Blobs::open(dir, false).ok());
        BlobCheck { blobs, seen: HashSet::new() }
    }

    fn check(&mut self, blob_ref: &str, seq: u64, report: &mut Report) {
        if !self.seen.insert(blob_ref.to_owned()) {
            return;
        }
        report.blobs += 1;
        let named = format!("blob {}, which entry {seq} names,", aos_model::text::escape(blob_ref));
        let complaint = match self.hash(blob_ref) {
            Ok(Some(found)) if found == blob_ref => return,
            Ok(Some(found)) => format!("{named} is damaged: hash mismatch, its content is {found}"),
            Ok(None) => format!("{named} is missing"),
            Err(fault) => format!("{named} cannot be read: {fault}"),
        };
        report.add(Finding::Blob(complaint));
    }

    pub(crate) fn hash(&self, blob_ref: &str) -> Result<Option<String>, Fault> {
        let Some(blobs) = &self.blobs else { return Ok(None) };
        match blobs.open_blob(blob_ref)? {
            Some(file) => Ok(Some(hash_name(&copy_hashing(&file, |_| Ok(()))?))),
            None => Ok(None),
        }
    }
}
