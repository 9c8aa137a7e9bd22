//! Checks whether damage to a home is detected, or leaves everything readable unchanged.

use std::collections::BTreeMap;
use std::path::Path;

use aos_model::receipt::Durability;
use aos_store::{Fault, Home, Reader};

/// Everything that the product reads from a home, by its place. An item that it refuses to read is an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reading {
    entries: Vec<Vec<u8>>,
    state: BTreeMap<String, Vec<u8>>,
    manifests: BTreeMap<String, Result<String, ()>>,
    blobs: BTreeMap<String, Result<(), ()>>,
}

impl Reading {
    /// Reads with the functions that the commands and the daemon use.
    pub(super) fn of(home: &Path, blob_refs: &[String]) -> Result<Reading, Fault> {
        let reader = Reader::open(home)?;
        let mut entries = Vec::new();
        reader.entries(0, |row| {
            entries.push([row.seq.to_be_bytes().as_slice(), &row.body].concat());
            Ok(true)
        })?;
        let mut state = BTreeMap::new();
        reader.state_below("", &mut |key, value| drop(state.insert(key.to_owned(), value.to_vec())))?;
        let opened = Home::open(home)?;
        let (kept, stored) = (opened.manifests(Durability::Process)?, opened.blobs(Durability::Process)?);
        let mut manifests = BTreeMap::new();
        for session in kept.sessions()? {
            for snapshot in kept.snapshots(&session)? {
                let manifest = kept.read(&session, &snapshot);
                let told = manifest.map(|manifest| format!("{manifest:?}")).map_err(drop);
                manifests.insert(format!("{session}/{snapshot}"), told);
            }
        }
        // `open_checked` compares the content with the hash in its name.
        let whole = |name: &String| match stored.open_checked(name) {
            Ok(Some(_)) => Ok(()),
            Ok(None) | Err(_) => Err(()),
        };
        let blobs = blob_refs.iter().map(|name| (name.clone(), whole(name))).collect();
        Ok(Reading { entries, state, manifests, blobs })
    }

    /// Whether an item is refused that `whole` could read.
    fn refuses(&self, whole: &Reading) -> bool {
        let manifest = |(name, told): (&String, &Result<String, ()>)| {
            told.is_ok() && self.manifests.get(name).is_none_or(Result::is_err)
        };
        let blob = |(name, told): (&String, &Result<(), ()>)| {
            told.is_ok() && self.blobs.get(name).is_none_or(Result::is_err)
        };
        whole.manifests.iter().any(manifest) || whole.blobs.iter().any(blob)
    }

    /// Whether the entries are a proper prefix of those of `whole`.
    fn is_cut_short(&self, whole: &Reading) -> bool {
        self.entries.len() < whole.entries.len() && whole.entries.starts_with(&self.entries)
    }
}

/// The effect of one damage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// `aos verify` detects it.
    Seen,
    /// Reading the damaged item fails with this message.
    SeenWhenRead(String),
    /// Everything reads as before.
    Harmless,
    /// The write-ahead log ends earlier. It cannot be distinguished from a log that was never longer.
    CutShort,
    Wrong(String),
}

/// Runs the function behind `aos verify` on a home, then compares what can be read with `whole`. `may_be_short`: the
/// damage may shorten the write-ahead log.
pub(super) fn judge(home: &Path, whole: &Reading, may_be_short: bool) -> Verdict {
    let looked = std::panic::catch_unwind(|| look(home, whole, may_be_short));
    looked.unwrap_or_else(|_| Verdict::Wrong("a panic".into()))
}

fn look(home: &Path, whole: &Reading, may_be_short: bool) -> Verdict {
    match aos_store::verify(home, &mut |_, _| ()) {
        Err(_) => return Verdict::Seen,
        Ok(report) if report.findings_count > 0 => return Verdict::Seen,
        Ok(_) => {}
    }
    let names: Vec<String> = whole.blobs.keys().cloned().collect();
    match Reading::of(home, &names) {
        // Verify detects nothing here, so the readers must.
        Err(why) => Verdict::SeenWhenRead(why.to_string()),
        Ok(read) if read == *whole => Verdict::Harmless,
        Ok(read) if read.refuses(whole) && read.entries == whole.entries => {
            Verdict::SeenWhenRead("a manifest or a blob is refused".into())
        }
        Ok(read) if may_be_short && read.is_cut_short(whole) => Verdict::CutShort,
        Ok(read) => Verdict::Wrong(format!(
            "verify says that it is whole, and yet {} of {} entries are read, the state is {}, the manifests are {}",
            read.entries.len(),
            whole.entries.len(),
            if read.state == whole.state { "the same" } else { "another" },
            if read.manifests == whole.manifests { "the same" } else { "others" },
        )),
    }
}
