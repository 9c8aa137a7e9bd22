//! `host.fs.remove`: a file, a link or a folder, gone as one.

use std::os::fd::AsFd;

use aos_model::limits::{CHANGED_PATHS_MAX, MOVED_PATHS_MAX};
use aos_model::policy::Op;
use aos_model::receipt::{Body, Kind, Warning};
use aos_model::refusal::{Code, Refusal};
use aos_model::request::Remove;

use super::{Operation, Planned, Scene, Target, check_depth, protect};
use crate::change::{Ending, Plan, Step, StepTarget, names_in, open_dir};
use crate::jail::{Last, Meta, Place};
use crate::rule::judge_path;
use crate::session::OpenSession;

impl Operation for Remove {
    fn targets(&self) -> Vec<Target> {
        vec![Target::new(&self.path, Op::Remove, Last::Itself)]
    }

    fn plan(&self, mut scene: Scene<'_>) -> Result<Planned, Refusal> {
        let mut warnings = std::mem::take(&mut scene.warnings);
        let (place, meta) = scene.found[0].existing()?;
        if place.is_root() {
            return Err(root_stays(place));
        }
        let (mut removed, mut bytes) = (u64::from(meta.kind != Kind::Dir), meta.size);
        if meta.kind == Kind::Dir {
            let mut walk = Walk {
                session: scene.session,
                op: Op::Remove,
                onto: None,
                entries: 0,
                files: 0,
                bytes: 0,
                mount: meta.mount,
                warnings: &mut warnings,
                paths: None,
            };
            walk.below(place)?;
            (removed, bytes) = (walk.files, walk.bytes);
            if walk.entries > 0 && self.recursive != Some(true) {
                return Err(Refusal::new(
                    Code::DirectoryNotEmpty,
                    format!("{} is not empty; set `recursive` to remove all below it", place.shown),
                ));
            }
        }
        let steps = vec![Step::Remove { at: StepTarget::of(place), before: meta, bytes }];
        Ok(Planned::Change(Plan {
            steps,
            ending: Ending {
                warnings,
                finish: Box::new(move |_| Body::Removed { removed }),
                raced: Code::IoError,
                facts: Vec::new(),
                own_snapshot: false,
            },
        }))
    }
}

pub(super) fn root_stays(place: &Place) -> Refusal {
    Refusal::new(
        Code::PathOutsideRoots,
        format!("{} is a root of the session and stays where it is; name something inside it", place.shown),
    )
}

/// Everything below a folder, judged before the folder goes: what policy, protection or a mount forbids for one path
/// it forbids for the whole.
pub(crate) struct Walk<'a> {
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

impl Walk<'_> {
    /// Everything below a place, on the disk or in the session's tree.
    pub(crate) fn below(&mut self, place: &Place) -> Result<(), Refusal> {
        let Some(leaf) = &place.leaf else {
            return self.folder(place.dir.as_fd(), &place.name, &place.absolute);
        };
        leaf.view.each_below(place, &mut |below, meta| {
            self.judge(&below.absolute, &meta)?;
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
            self.judge(&below, &meta)?;
            self.count(&meta, &shown)?;
            if meta.kind == Kind::Dir {
                self.folder(&dir, &name, &below)?;
            }
        }
        Ok(())
    }

    fn judge(&mut self, path: &[u8], meta: &Meta) -> Result<(), Refusal> {
        let shown = self.session.jail.shown(path);
        if self.session.jail.is_hidden(path) || meta.mount != self.mount {
            return Err(Refusal::new(
                Code::PathOutsideRoots,
                format!("{shown} below it is outside the roots; nothing was changed"),
            ));
        }
        self.judge_name(path, &shown)?;
        if let Some(paths) = &mut self.paths {
            paths.push(shown);
        }
        if let Some((from, to)) = &self.onto {
            let moved = [to.as_slice(), &path[from.len()..]].concat();
            self.judge_name(&moved, &self.session.jail.shown(&moved))?;
        }
        Ok(())
    }

    fn judge_name(&mut self, path: &[u8], shown: &str) -> Result<(), Refusal> {
        protect(self.session, path, self.warnings)?;
        judge_path(self.session, self.op, shown, path, path, self.warnings)?;
        Ok(())
    }
}
