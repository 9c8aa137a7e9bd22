//! What the journal remembers of a change, for undo and for people.

use aos_model::records::{Attributes, Image, PathRecord};

use super::arm::{Armed, preimage_name};
use super::hold_open::Action;
use crate::disk::Meta;
use crate::steps::Step;

/// What the record of a step has beside the metadata.
#[derive(Debug, Default)]
pub(super) struct Made {
    pub(super) attrs: Option<Attributes>,
    /// The content of a link or a small file that was moved: by its inode alone, a copy that undo made of it later
    /// would not be recognised.
    pub(super) hash: Option<String>,
}

/// A record for each path that the steps touched, in their order. A move is two: where it went, then where it was.
/// `left` is what each step left.
pub(super) fn record(armed: &Armed<'_>, left: impl Iterator<Item = (Option<Meta>, Made)>) -> Vec<PathRecord> {
    let mut paths = Vec::with_capacity(armed.actions.len());
    let steps = armed.actions.iter().enumerate().filter_map(|(index, action)| match action {
        Action::Step { step, .. } => Some((index, step)),
        Action::HoldOpen(_) | Action::Close(_) => None,
    });
    for ((index, step), (after, Made { attrs, hash })) in steps.zip(left) {
        let with_preimage = |meta: &Meta| meta.image().with_preimage(preimage_name(&armed.change_id, index));
        let after =
            after.as_ref().map(|meta| Image { xattrs: attrs.clone(), hash: hash.clone(), ..meta.image() });
        match step {
            Step::Put(put) => {
                let before = put.before.as_ref().map(with_preimage);
                let after = after.map(|image| Image { hash: Some(put.content.hash()), ..image });
                paths.push(of(&put.at.shown, before, after));
            }
            Step::Remove { at, before, bytes } => {
                let before = Image { size_bytes: *bytes, ..with_preimage(before) };
                paths.push(of(&at.shown, Some(before), None));
            }
            Step::MakeDir { at, .. } => paths.push(of(&at.shown, None, after)),
            Step::SetMode { at, before, xattrs, .. } => {
                let was = xattrs.as_ref().map(|(was, _)| was.clone()).or(attrs);
                let before = Image { xattrs: was, ..before.image() };
                paths.push(PathRecord { mode_only: true, ..of(&at.shown, Some(before), after) });
            }
            Step::Rename { from, before, to, replaced } => {
                paths.push(of(&to.shown, replaced.as_ref().map(with_preimage), after));
                let moved_to = Some(to.shown.clone());
                paths.push(PathRecord {
                    moved_to,
                    ..of(&from.shown, Some(Image { xattrs: attrs, hash, ..before.image() }), None)
                });
            }
        }
    }
    paths
}

fn of(path: &str, before: Option<Image>, after: Option<Image>) -> PathRecord {
    PathRecord { path: path.to_owned(), before, after, moved_to: None, mode_only: false }
}
