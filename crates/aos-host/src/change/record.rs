//! What the journal remembers of a change, for undo and for people.

use aos_model::records::{Image, PathRecord};

use super::arm::{Armed, preimage_name};
use super::hold_open::Action;
use crate::disk::Meta;
use crate::steps::Step;

/// A record for each path that the steps touched, in their order. A move is two: where it went, then where it was.
pub(super) fn record(armed: &Armed<'_>, after: &[Option<Meta>]) -> Vec<PathRecord> {
    let mut paths = Vec::with_capacity(after.len());
    let steps = armed.actions.iter().enumerate().filter_map(|(index, action)| match action {
        Action::Step { step, .. } => Some((index, step)),
        Action::HoldOpen(_) | Action::Close(_) => None,
    });
    for ((index, step), after) in steps.zip(after) {
        let with_preimage = |meta: &Meta| meta.image().with_preimage(preimage_name(&armed.change_id, index));
        match step {
            Step::Put(put) => paths.push(PathRecord {
                path: put.at.shown.clone(),
                before: put.before.as_ref().map(with_preimage),
                after: after.as_ref().map(|meta| Image { hash: Some(put.content.hash()), ..meta.image() }),
                moved_to: None,
                mode_only: false,
            }),
            Step::Remove { at, before, bytes } => paths.push(PathRecord {
                path: at.shown.clone(),
                before: Some(Image { size_bytes: *bytes, ..with_preimage(before) }),
                after: None,
                moved_to: None,
                mode_only: false,
            }),
            Step::MakeDir { at, .. } => paths.push(PathRecord {
                path: at.shown.clone(),
                before: None,
                after: after.as_ref().map(Meta::image),
                moved_to: None,
                mode_only: false,
            }),
            Step::SetMode { at, before, xattrs, .. } => paths.push(PathRecord {
                path: at.shown.clone(),
                before: Some(Image {
                    xattrs: xattrs.as_ref().map(|(before, _)| before.clone()),
                    ..before.image()
                }),
                after: after.as_ref().map(|meta| Image {
                    xattrs: xattrs.as_ref().map(|(_, after)| after.clone()),
                    ..meta.image()
                }),
                moved_to: None,
                mode_only: true,
            }),
            Step::Rename { from, before, to, replaced } => {
                paths.push(PathRecord {
                    path: to.shown.clone(),
                    before: replaced.as_ref().map(with_preimage),
                    after: after.as_ref().map(Meta::image),
                    moved_to: None,
                    mode_only: false,
                });
                paths.push(PathRecord {
                    path: from.shown.clone(),
                    before: Some(before.image()),
                    after: None,
                    moved_to: Some(to.shown.clone()),
                    mode_only: false,
                });
            }
        }
    }
    paths
}
