//! The hash chain of the entries, and the check of its end when a journal is opened.

use rusqlite::{Connection, OptionalExtension};
use sha2::{Digest, Sha256};

use crate::fault::Fault;

/// The chain value before the first entry.
pub(crate) const GENESIS: [u8; 32] = [0; 32];

/// How many entries are checked when a journal is opened. `aos verify` checks all.
const CHECKED_ENTRIES: i64 = 10_000;

/// The chain value of an entry: it covers the entry, its number, the intent it closes and all entries before it.
pub(crate) fn chain_value(previous: &[u8; 32], seq: u64, closes: Option<u64>, body: &[u8]) -> [u8; 32] {
    let hash = Sha256::new().chain_update(previous).chain_update(seq.to_le_bytes());
    hash.chain_update(closes.unwrap_or(0).to_le_bytes()).chain_update(body).finalize().into()
}

/// Checks the last entries, and that the checkpoint of the state is not ahead of them. Returns the number and the chain
/// value of the last one. A daemon must not add to a record that somebody changed.
pub(crate) fn check_end(connection: &Connection) -> Result<(u64, [u8; 32]), Fault> {
    let last: i64 = connection.query_row("SELECT coalesce(max(seq), 0) FROM entry", [], |row| row.get(0))?;
    let folded: Option<i64> =
        connection.query_row("SELECT seq FROM folded", [], |row| row.get(0)).optional()?;
    if let Some(folded) = folded.filter(|folded| *folded > last) {
        return Err(damaged(&format!("its state includes entry {folded}, but its last entry is {last}")));
    }
    let start = (last - CHECKED_ENTRIES).max(0);
    let (mut seq, mut chain) = (start, GENESIS);
    if start > 0 {
        let before = connection
            .query_row("SELECT chain FROM entry WHERE seq = ?", [start], |row| row.get(0))
            .optional();
        chain = before.ok().flatten().ok_or_else(|| damaged(&format!("entry {start} is missing")))?;
    }
    let mut select =
        connection.prepare("SELECT seq, closes, body, chain FROM entry WHERE seq > ? ORDER BY seq")?;
    let mut rows = select.query([start])?;
    while let Some(row) = rows.next()? {
        seq += 1;
        let found: i64 = row.get(0)?;
        if found != seq {
            return Err(damaged(&format!("entry {seq} is missing, entry {found} follows")));
        }
        let (Ok(closes), Ok(body), Ok(stored)) =
            (row.get::<_, Option<i64>>(1), row.get_ref(2)?.as_blob(), row.get_ref(3)?.as_blob())
        else {
            return Err(damaged(&format!("entry {seq} has values of the wrong type")));
        };
        let value = chain_value(&chain, seq as u64, closes.map(|id| id as u64), body);
        if stored != value {
            return Err(damaged(&format!("entry {seq} does not match its chain value")));
        }
        chain = value;
    }
    Ok((seq as u64, chain))
}

fn damaged(what: &str) -> Fault {
    Fault::Refused(format!(
        "the journal is damaged: {what}; `aos verify` lists all damage. Restore it from a copy, or choose another AOS_HOME"
    ))
}
