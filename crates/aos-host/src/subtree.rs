//! Everything below a folder that is to be removed or moved: visited path by path before the folder is touched.

use std::os::fd::AsFd;

use aos_model::policy::Op;
use aos_model::receipt::Warning;
use aos_model::records::Kind;
use aos_model::refusal::{Code, Refusal};

use crate::disk::{Meta, names_in, open_dir};
use crate::jail::Place;
use crate::policy::check_path;
use crate::protection::protect;
use crate::session::OpenSession;
use crate::target::check_depth;

/// Visits everything below a folder, up to a limit. One path outside of the roots refuses the whole.
pub(crate) struct Subtree<'a> {
    session: &'a OpenSession,
    mount: u64,
    entries_max: usize,
    each: &'a mut dyn FnMut(Below<'_>) -> Result<(), Refusal>,
    pub(crate) entries: usize,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// Every path that was visited, to be judged together: what makes a folder one of git's is in several of them.
    pub(crate) paths: Vec<Vec<u8>>,
}

/// One path below the folder.
pub(crate) struct Below<'a> {
    pub(crate) absolute: &'a [u8],
    pub(crate) shown: &'a str,
}

impl<'a> Subtree<'a> {
    pub(crate) fn new(
        session: &'a OpenSession,
        mount: u64,
        entries_max: usize,
        each: &'a mut dyn FnMut(Below<'_>) -> Result<(), Refusal>,
    ) -> Subtree<'a> {
        Subtree { session, mount, entries_max, each, entries: 0, files: 0, bytes: 0, paths: Vec::new() }
    }

    /// Everything below a place, on the disk or in the session's layer.
    pub(crate) fn below(&mut self, place: &Place) -> Result<(), Refusal> {
        let Some(leaf) = &place.leaf else {
            let dir = place.folder().map_err(|why| place.refusal("open the folder of", why))?;
            return self.folder(dir, &place.name, &place.absolute);
        };
        leaf.view.each_below(place, &mut |below, meta| self.visit(&below.absolute, &meta, &place.shown))
    }

    pub(crate) fn folder(&mut self, parent: impl AsFd, name: &[u8], absolute: &[u8]) -> Result<(), Refusal> {
        let shown = self.session.jail.display(absolute);
        let fail = |why| crate::fault::refusal(&format!("cannot look into {shown}"), why);
        let dir = open_dir(parent, name).map_err(fail)?;
        let mut names = names_in(&dir).map_err(fail)?;
        // Sorted, so that the same path is named at each try when one is refused.
        names.sort_unstable();
        for name in names {
            let Some(meta) = Meta::at(&dir, &name).map_err(fail)? else { continue };
            let below = [absolute, b"/", &name].concat();
            check_depth(self.session, &below)?;
            self.visit(&below, &meta, &shown)?;
            if meta.kind == Kind::Dir {
                self.folder(&dir, &name, &below)?;
            }
        }
        Ok(())
    }

    fn visit(&mut self, absolute: &[u8], meta: &Meta, folder: &str) -> Result<(), Refusal> {
        let shown = self.session.jail.display(absolute);
        if self.session.jail.hides(absolute, meta) || meta.mount != self.mount {
            return Err(Refusal::new(
                Code::PathOutsideRoots,
                format!("{shown} below it is outside the roots; nothing was changed"),
            ));
        }
        (self.each)(Below { absolute, shown: &shown })?;
        self.paths.push(absolute.to_vec());
        self.entries += 1;
        if self.entries > self.entries_max {
            return Err(Refusal::new(
                Code::LimitExceeded,
                format!(
                    "{folder} holds more than {} paths; nothing was changed. Name its parts one by one",
                    self.entries_max
                ),
            ));
        }
        if meta.kind != Kind::Dir {
            self.files += 1;
            self.bytes += meta.size;
        }
        Ok(())
    }
}

/// Checks one name of a subtree: protected names, then policy.
pub(crate) fn check_name(
    session: &OpenSession,
    op: Op,
    absolute: &[u8],
    warnings: &mut Vec<Warning>,
) -> Result<(), Refusal> {
    protect(session, absolute, warnings)?;
    let shown = session.jail.display(absolute);
    check_path(session, op, &shown, absolute, absolute, warnings).map(drop)
}
