//! Garbage collection: removes the blobs that no entry and no snapshot names and that are older than a day.

use std::collections::HashSet;
use std::os::fd::OwnedFd;

use aos_model::state::FoldInput;
use rustix::fs::AtFlags;

use crate::blobs::{Blobs, hex_digits};
use crate::disk;
use crate::fault::Fault;
use crate::manifest::Manifests;
use crate::reader::Reader;
use crate::session_dirs::names_in_store;

/// What one garbage collection kept and removed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct GcReport {
    pub kept: u64,
    pub removed: u64,
    pub removed_bytes: u64,
}

/// Younger files are kept: a blob is stored before the entry that names it.
const KEEP_NS: u64 = 24 * 3600 * 1_000_000_000;

impl Blobs {
    /// Removes the temporary files of blobs that killed processes did not finish, and returns their number. No other daemon
    /// runs, and a client writes to files without a name.
    pub fn remove_unfinished(&self) -> Result<usize, Fault> {
        let mut removed = 0;
        for name in names_in_store(self.dir())? {
            if name.starts_with(b"tmp-") {
                rustix::fs::unlinkat(self.dir(), name.as_slice(), AtFlags::empty())
                    .map_err(|why| Fault::io("cannot remove an unfinished blob", why))?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    pub fn sweep(&self, reader: &Reader, manifests: &Manifests, now_ns: u64) -> Result<GcReport, Fault> {
        self.with_exclusive(|| {
            let mut named = named_blobs(reader)?;
            let mut damaged = None;
            manifests.each(|manifest| match manifest {
                Ok(manifest) => named.extend(manifest.bodies().map(str::to_owned)),
                Err(fault) => damaged = Some(fault),
            })?;
            // The blobs that a damaged manifest names are unknown, so nothing is removed.
            if let Some(fault) = damaged {
                return Err(fault);
            }
            let mut swept = GcReport::default();
            for folder in names_in_store(self.dir())? {
                let Ok(folder) = String::from_utf8(folder) else { continue };
                if is_blob_folder(&folder) {
                    let dir = disk::open_dir(self.dir(), &folder)?;
                    sweep_folder(&dir, &folder, &named, now_ns, &mut swept)?;
                } else if folder.starts_with("tmp-") {
                    // The temporary file of a blob that a killed daemon did not finish.
                    sweep_file(self.dir(), &folder, now_ns, &mut swept)?;
                }
            }
            let GcReport { kept, removed, removed_bytes } = swept;
            tracing::info!(kept, removed, removed_bytes, "swept the blobs");
            Ok(swept)
        })
    }
}

fn is_blob_folder(name: &str) -> bool {
    name.len() == 2 && name.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn named_blobs(reader: &Reader) -> Result<HashSet<String>, Fault> {
    let mut named = HashSet::new();
    reader.entries(0, |row| {
        let effects = FoldInput::from(row.entry()?);
        named.extend(effects.blob_refs().map(str::to_owned));
        Ok(true)
    })?;
    Ok(named)
}

fn sweep_folder(
    dir: &OwnedFd,
    folder: &str,
    named: &HashSet<String>,
    now_ns: u64,
    swept: &mut GcReport,
) -> Result<(), Fault> {
    for name in names_in_store(dir)? {
        let Ok(name) = String::from_utf8(name) else { continue };
        let blob_ref = format!("sha256:{folder}{name}");
        if named.contains(&blob_ref) {
            swept.kept += 1;
        } else if hex_digits(&blob_ref).is_some() {
            sweep_file(dir, &name, now_ns, swept)?;
        }
    }
    Ok(())
}

fn sweep_file(dir: &OwnedFd, name: &str, now_ns: u64, swept: &mut GcReport) -> Result<(), Fault> {
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|why| Fault::io(format!("cannot stat {name}"), why))?;
    let changed_ns =
        (stat.st_mtime as u64).saturating_mul(1_000_000_000).saturating_add(stat.st_mtime_nsec as u64);
    if now_ns.saturating_sub(changed_ns) < KEEP_NS {
        swept.kept += 1;
        return Ok(());
    }
    rustix::fs::unlinkat(dir, name, AtFlags::empty())
        .map_err(|why| Fault::io(format!("cannot remove {name}"), why))?;
    swept.removed += 1;
    swept.removed_bytes += stat.st_size as u64;
    Ok(())
}
