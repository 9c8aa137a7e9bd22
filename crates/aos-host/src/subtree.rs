//! Everything below a folder that is to go or to move, checked path by path before the folder is.

use std::os::fd::AsFd;

use aos_model::limits::{CHANGED_PATHS_MAX, MOVED_PATHS_MAX};
use aos_model::policy::Op;
use aos_model::receipt::{Kind, Warning};
use aos_model::refusal::{Code, Refusal};

use crate::disk::{Meta, names_in, open_dir};
use crate::jail::Place;
use crate::policy::check_path;
use crate::session::OpenSession;
use crate::target::{check_depth, protect};

/// Everything below a folder, judged before the folder goes: what policy, protection or a mount forbids for one path
/// it forbids for the whole.
pub(crate) struct Subtree<'a> {
    pub(crate) session: &'a OpenSession,
    pub(crate) op: Op,
    /// Where the folder is about to be moved: the new names are judged too.
    pub(crate) onto: Option<(Vec<u8>, Vec<u8>)>,
    pub(crate) entries: usize,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) mount: u64,
    pub(crate) warnings: &'a mut Vec<Warning>,
    /// Who wants to know what lies there.
    pub(crate) paths: Option<&'a mut Vec<String>>,
}

impl Subtree<'_> {
    /// Everything below a place, on the disk or in the session's tree.
    pub(crate) fn below(&mut self, place: &Place) -> Result<(), Refusal> {
        let Some(leaf) = &place.leaf else {
            return self.folder(place.dir.as_fd(), &place.name, &place.absolute);
        };
        leaf.view.each_below(place, &mut |below, meta| {
            self.check(&below.absolute, &meta)?;
            self.count(&meta, &place.shown)
        })
    }

    fn count(&mut self, meta: &Meta, shown: &str) -> Result<(), Refusal> {
        self.entries += 1;
        let (most, what) =
            if self.onto.is_some() { (MOVED_PATHS_MAX, "move") } else { (CHANGED_PATHS_MAX, "remove") };
        if self.entries > most {
            return Err(Refusal::new(
                Code::LimitExceeded,
                format!(
                    "{shown} holds more than {most} paths; nothing was changed. Please {what} its parts one by one"
                ),
            ));
        }
        if meta.kind != Kind::Dir {
            self.files += 1;
            self.bytes += meta.size;
        }
        Ok(())
    }

    pub(crate) fn folder(&mut self, parent: impl AsFd, name: &[u8], absolute: &[u8]) -> Result<(), Refusal> {
        let shown = self.session.jail.shown(absolute);
        let fail = |why| crate::fault::refusal(&format!("cannot look into {shown}"), why);
        let dir = open_dir(parent, name).map_err(fail)?;
        let mut names = names_in(&dir).map_err(fail)?;
        // The first in order is the one to be named, if one is refused.
        names.sort_unstable();
        for name in names {
            let Some(meta) = Meta::at(&dir, &name).map_err(fail)? else { continue };
            let below = [absolute, b"/", &name].concat();
            check_depth(self.session, &below)?;
            self.check(&below, &meta)?;
            self.count(&meta, &shown)?;
            if meta.kind == Kind::Dir {
                self.folder(&dir, &name, &below)?;
            }
        }
        Ok(())
    }

    fn check(&mut self, path: &[u8], meta: &Meta) -> Result<(), Refusal> {
        let shown = self.session.jail.shown(path);
        if self.session.jail.is_hidden(path) || meta.mount != self.mount {
            return Err(Refusal::new(
                Code::PathOutsideRoots,
                format!("{shown} below it is outside the roots; nothing was changed"),
            ));
        }
        self.check_name(path, &shown)?;
        if let Some(paths) = &mut self.paths {
            paths.push(shown);
        }
        if let Some((from, to)) = &self.onto {
            let moved = [to.as_slice(), &path[from.len()..]].concat();
            self.check_name(&moved, &self.session.jail.shown(&moved))?;
        }
        Ok(())
    }

    fn check_name(&mut self, path: &[u8], shown: &str) -> Result<(), Refusal> {
        protect(self.session, path, self.warnings)?;
        check_path(self.session, self.op, shown, path, path, self.warnings)?;
        Ok(())
    }
}
