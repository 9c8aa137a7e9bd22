//! Explicit snapshots: copies the current content of paths to the pre-images.

use std::os::fd::AsFd;

use aos_model::limits::FOLDERS_DEEP_MAX;
use aos_model::receipt::Durability;
use aos_model::records::{Image, Kind, PathRecord};
use aos_model::refusal::{Code, Refusal};
use rustix::io::Errno;

use crate::disk::Meta;
use crate::disk::{copy, names_in, open_dir};
use crate::host::Host;
use crate::jail::Found;
use crate::session::OpenSession;
use crate::target::too_deep;

/// Copies the resolved paths, folders with everything below them. Returns the records and the number of paths.
pub(crate) fn capture(
    host: &Host,
    session: &OpenSession,
    snapshot_id: &str,
    found: &[Found],
) -> Result<(Vec<PathRecord>, u64), Refusal> {
    let mut capture = Capture { host, session, snapshot_id, records: Vec::new(), paths: 0, bytes: 0 };
    for found in found {
        match found {
            Found::Resolved(place) if place.is_root() => {
                let fail = |why| place.refusal("list", why);
                let dir = place.open_dir().map_err(fail)?;
                for name in names_in(&dir).map_err(fail)? {
                    let absolute = [place.absolute.as_slice(), b"/", &name].concat();
                    let is_own =
                        Meta::at(&dir, &name).map_err(fail)?.is_some_and(|meta| session.jail.own.is(&meta));
                    if !is_own && !session.jail.is_hidden(&absolute) {
                        capture.take(&dir, &name, &session.jail.display(&absolute))?;
                    }
                }
            }
            Found::Resolved(place) => {
                let dir = place.folder().map_err(|why| place.refusal("open the folder of", why))?;
                capture.take(dir, &place.name, &place.shown)?;
            }
            Found::ParentMissing { shown, .. } | Found::Unresolvable { shown, .. } => capture.absent(shown),
        }
    }
    Ok((capture.records, capture.paths))
}

struct Capture<'a> {
    host: &'a Host,
    session: &'a OpenSession,
    snapshot_id: &'a str,
    records: Vec<PathRecord>,
    paths: u64,
    bytes: u64,
}

impl Capture<'_> {
    fn absent(&mut self, shown: &str) {
        self.paths += 1;
        self.record(shown, None);
    }

    fn record(&mut self, shown: &str, before: Option<Image>) {
        self.records.push(PathRecord {
            path: shown.to_owned(),
            before,
            after: None,
            moved_to: None,
            mode_only: false,
        });
    }

    fn take(&mut self, dir: impl AsFd, name: &[u8], shown: &str) -> Result<(), Refusal> {
        let fail = |why| crate::fault::refusal(&format!("cannot keep {shown}"), why);
        let dir = dir.as_fd();
        let Some(meta) = Meta::at(dir, name).map_err(fail)? else {
            self.absent(shown);
            return Ok(());
        };
        let (paths, bytes) = measure(dir, name, &meta, FOLDERS_DEEP_MAX).map_err(|why| match why {
            Errno::NAMETOOLONG => too_deep(shown),
            why => fail(why),
        })?;
        self.paths += paths;
        self.bytes += bytes;
        if self.bytes > self.session.snapshot_bytes_max {
            return Err(Refusal::new(
                Code::LimitExceeded,
                format!(
                    "{shown}: with it the snapshot holds {} bytes, over the session's `snapshot_bytes_max` of {}; name fewer paths",
                    self.bytes, self.session.snapshot_bytes_max
                ),
            ));
        }
        let preimage_name = format!("{}.{}", self.snapshot_id, self.records.len());
        let sync = self.host.machine.durability == Durability::Power;
        let preimages = self.session.preimages.dir()?;
        copy(dir, name, &meta, preimages, preimage_name.as_bytes(), sync).map_err(fail)?;
        let image = Image { size_bytes: bytes, ..meta.image().with_preimage(preimage_name) };
        self.record(shown, Some(image));
        Ok(())
    }
}

/// The number of paths and bytes from here down. `levels`: how many levels it may still descend.
fn measure(dir: impl AsFd, name: &[u8], meta: &Meta, levels: usize) -> Result<(u64, u64), Errno> {
    let levels = levels.checked_sub(1).ok_or(Errno::NAMETOOLONG)?;
    if meta.kind != Kind::Dir {
        return Ok((1, meta.size));
    }
    let inner = open_dir(&dir, name)?;
    let (mut paths, mut bytes) = (1, 0);
    for name in names_in(&inner)? {
        let Some(meta) = Meta::at(&inner, &name)? else { continue };
        let (more, size) = measure(&inner, &name, &meta, levels)?;
        (paths, bytes) = (paths + more, bytes + size);
    }
    Ok((paths, bytes))
}
