//! Folders that their owner may not write, held open while a change works in them.
//!
//! A command may close a folder after it worked in it (`chmod 500`). Landing and undo work there too, with no more rights
//! than the command had. Each such folder is opened by a step before the others and closed by a step after them. Steps are
//! taken back in reverse order, so that a folder is open whenever something in it is taken back, also after a crash.

use std::collections::BTreeMap;

use aos_model::path::is_below;

use crate::disk::{Meta, limited_to_uid};
use crate::jail::Jail;
use crate::steps::{DirAt, Step, StepTarget};

/// The permissions that the owner of a folder needs to work in it.
pub(super) const OPEN_TO_OWNER: u32 = 0o700;

/// What an armed change does, in order: the steps of the plan, and what keeps their folders open.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all are steps")]
pub(super) enum Action {
    Step {
        step: Step,
        /// The folder whose mode the step sets is open to its owner before and afterwards.
        is_held: bool,
    },
    HoldOpen(HeldDir),
    Close(HeldDir),
}

/// A folder with a mode that does not allow its owner to work in it.
#[derive(Debug, Clone)]
pub(super) struct HeldDir {
    pub(super) absolute: Vec<u8>,
    pub(super) shown: String,
    /// Its mode when it is closed.
    pub(super) mode: u32,
    pub(super) id: HeldId,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum HeldId {
    /// Device and inode.
    Known(u64, u64),
    /// Made by the action of this index.
    MadeBy(usize),
}

impl HeldDir {
    pub(super) fn mode_while_open(&self) -> u32 {
        self.mode | OPEN_TO_OWNER
    }
}

/// The actions that carry out `steps`. With `opens_folders`, folders that are closed now are opened for them.
pub(super) fn actions(jail: &Jail, steps: Vec<Step>, opens_folders: bool) -> Vec<Action> {
    let closed = if opens_folders { closed_folders(jail, &steps) } else { BTreeMap::new() };
    with_held(steps, closed)
}

/// The folders that steps work in and that their owner may not write now, by path.
fn closed_folders(jail: &Jail, steps: &[Step]) -> BTreeMap<Vec<u8>, HeldDir> {
    let Some(uid) = limited_to_uid() else { return BTreeMap::new() };
    let mut seen: BTreeMap<Vec<u8>, Option<HeldDir>> = BTreeMap::new();
    let mut renames: Vec<(&[u8], &[u8])> = Vec::new();
    for step in steps {
        for target in step.targets().filter(|target| !matches!(target.dir, DirAt::Made(_))) {
            let path = path_before(target.parent_absolute(), &renames);
            seen.entry(path).or_insert_with_key(|path| {
                let meta = jail.open_folder(path).and_then(Meta::of).ok()?;
                (meta.uid == uid && is_closed(meta.mode)).then(|| HeldDir {
                    absolute: path.clone(),
                    shown: jail.display(path),
                    mode: meta.mode,
                    id: HeldId::Known(meta.dev, meta.ino),
                })
            });
        }
        if let Step::Rename { from, to, .. } = step {
            renames.push((&from.absolute, &to.absolute));
        }
    }
    seen.into_iter().filter_map(|(path, held)| Some((path, held?))).collect()
}

/// Where a path was before these renames.
fn path_before(path: &[u8], renames: &[(&[u8], &[u8])]) -> Vec<u8> {
    renames.iter().rev().fold(path.to_vec(), |path, (from, to)| moved(&path, to, from).unwrap_or(path))
}

/// A path at or below `from`, after that was renamed.
fn moved(path: &[u8], from: &[u8], to: &[u8]) -> Option<Vec<u8>> {
    is_below(path, from).then(|| [to, &path[from.len()..]].concat())
}

fn is_closed(mode: u32) -> bool {
    mode & OPEN_TO_OWNER != OPEN_TO_OWNER
}

/// `closed` are opened first, parents before their content. Folders that a step makes or sets to a closed mode stay open
/// until the end.
fn with_held(steps: Vec<Step>, closed: BTreeMap<Vec<u8>, HeldDir>) -> Vec<Action> {
    let mut held = Held { actions: Vec::with_capacity(steps.len()), open: BTreeMap::new() };
    closed.into_values().for_each(|folder| held.open(folder));
    let mut index = Vec::with_capacity(steps.len());
    for mut step in steps {
        let is_held = held.before(&step);
        index.push(held.actions.len());
        for target in step.targets_mut() {
            if let DirAt::Made(made) = &mut target.dir {
                *made = index[*made];
            }
        }
        held.after(&step);
        held.actions.push(Action::Step { step, is_held });
    }
    held.close_below(b"");
    held.actions
}

struct Held {
    actions: Vec<Action>,
    /// The folders that are open and have to be closed, by where they are after the steps so far.
    open: BTreeMap<Vec<u8>, HeldDir>,
}

impl Held {
    fn open(&mut self, folder: HeldDir) {
        self.actions.push(Action::HoldOpen(folder.clone()));
        self.open.insert(folder.absolute.clone(), folder);
    }

    /// Prepares for a step. A folder that is going to leave its path is closed: it is kept with its mode. Returns whether
    /// the step sets the mode of a folder that is held open.
    fn before(&mut self, step: &Step) -> bool {
        match step {
            Step::Remove { at, .. } => self.close_below(&at.absolute),
            Step::Rename { to, replaced: Some(_), .. } => self.close_below(&to.absolute),
            Step::SetMode { at, before, mode, .. } => {
                if is_closed(before.mode) && !self.open.contains_key(&at.absolute) {
                    self.open(HeldDir::of(at, before));
                }
                return is_closed(before.mode) || is_closed(*mode);
            }
            Step::Put(_) | Step::MakeDir { .. } | Step::Rename { replaced: None, .. } => {}
        }
        false
    }

    /// Notes what a step, the next action, leaves open.
    fn after(&mut self, step: &Step) {
        match step {
            Step::MakeDir { at, mode, .. } if is_closed(*mode) => {
                let made = HeldDir {
                    absolute: at.absolute.clone(),
                    shown: at.shown.clone(),
                    mode: *mode,
                    id: HeldId::MadeBy(self.actions.len()),
                };
                self.open.insert(at.absolute.clone(), made);
            }
            Step::SetMode { at, before, mode, .. } => {
                self.open.remove(&at.absolute);
                if is_closed(*mode) {
                    let folder = HeldDir { mode: *mode, ..HeldDir::of(at, before) };
                    self.open.insert(at.absolute.clone(), folder);
                }
            }
            Step::Rename { from, to, .. } => {
                let renamed =
                    |(path, folder): (Vec<u8>, HeldDir)| match moved(&path, &from.absolute, &to.absolute) {
                        Some(path) => (path.clone(), HeldDir { absolute: path, ..folder }),
                        None => (path, folder),
                    };
                self.open = std::mem::take(&mut self.open).into_iter().map(renamed).collect();
            }
            Step::Put(_) | Step::Remove { .. } | Step::MakeDir { .. } => {}
        }
    }

    /// Closes what is open at a path and below it, the deepest first.
    fn close_below(&mut self, path: &[u8]) {
        let open = std::mem::take(&mut self.open);
        let (closing, staying): (BTreeMap<_, _>, BTreeMap<_, _>) =
            open.into_iter().partition(|(open, _)| is_below(open, path));
        self.open = staying;
        self.actions.extend(closing.into_values().rev().map(Action::Close));
    }
}

impl HeldDir {
    /// The folder that a step sets the mode of.
    fn of(at: &StepTarget, before: &Meta) -> HeldDir {
        HeldDir {
            absolute: at.absolute.clone(),
            shown: at.shown.clone(),
            mode: before.mode,
            id: HeldId::Known(before.dev, before.ino),
        }
    }
}

#[cfg(test)]
mod tests {
    use aos_model::records::Kind;

    use super::*;
    use crate::jail::Dir;

    fn target(path: &str) -> StepTarget {
        let nowhere = crate::disk::open_null().unwrap();
        StepTarget {
            dir: DirAt::Pinned(Dir::Opened(std::sync::Arc::new(nowhere))),
            name: path.rsplit('/').next().unwrap().into(),
            absolute: path.into(),
            shown: path.into(),
        }
    }

    fn meta(mode: u32) -> Meta {
        Meta { mode, kind: Kind::Dir, ..Meta::of(crate::disk::open_null().unwrap()).unwrap() }
    }

    fn set_mode(path: &str, before: u32, mode: u32) -> Step {
        Step::SetMode { at: target(path), before: meta(before), mode, xattrs: None }
    }

    fn remove(path: &str) -> Step {
        Step::Remove { at: target(path), before: meta(0o755), bytes: 0 }
    }

    fn closed(paths: &[&str]) -> BTreeMap<Vec<u8>, HeldDir> {
        let held = |path: &&str| (path.as_bytes().to_vec(), HeldDir::of(&target(path), &meta(0o500)));
        paths.iter().map(held).collect()
    }

    /// One word per action: what it does, and where.
    fn shown(actions: &[Action]) -> Vec<String> {
        let shown = |action: &Action| match action {
            Action::HoldOpen(folder) => format!("open {}", folder.shown_path()),
            Action::Close(folder) => format!("close {} {:o}", folder.shown_path(), folder.mode),
            Action::Step { step: Step::Remove { at, .. }, .. } => format!("remove {}", at.shown),
            Action::Step { step: Step::SetMode { at, mode, .. }, is_held } => {
                format!("mode {} {mode:o}{}", at.shown, if *is_held { " held" } else { "" })
            }
            Action::Step { step: Step::MakeDir { at, .. }, .. } => format!("make {}", at.shown),
            Action::Step { step: Step::Rename { to, .. }, .. } => format!("rename to {}", to.shown),
            Action::Step { step: Step::Put(put), .. } => format!("put {}", put.at.shown),
        };
        actions.iter().map(shown).collect()
    }

    impl HeldDir {
        fn shown_path(&self) -> String {
            String::from_utf8(self.absolute.clone()).unwrap()
        }
    }

    #[test]
    fn a_closed_folder_is_open_from_the_first_step_to_the_last() {
        let actions = with_held(vec![remove("/r/d/e/f"), remove("/r/d/g")], closed(&["/r/d", "/r/d/e"]));
        let expected = [
            "open /r/d",
            "open /r/d/e",
            "remove /r/d/e/f",
            "remove /r/d/g",
            "close /r/d/e 500",
            "close /r/d 500",
        ];
        assert_eq!(shown(&actions), expected);
    }

    #[test]
    fn a_folder_that_is_removed_is_closed_before() {
        let actions = with_held(vec![remove("/r/d/f"), remove("/r/d")], closed(&["/r/d"]));
        assert_eq!(shown(&actions), ["open /r/d", "remove /r/d/f", "close /r/d 500", "remove /r/d"]);
    }

    #[test]
    fn a_mode_that_a_step_sets_counts_at_the_end() {
        let steps = vec![set_mode("/r/d", 0o500, 0o755), remove("/r/d/f"), set_mode("/r/e", 0o755, 0o500)];
        let expected =
            ["open /r/d", "mode /r/d 755 held", "remove /r/d/f", "mode /r/e 500 held", "close /r/e 500"];
        assert_eq!(shown(&with_held(steps, closed(&["/r/d"]))), expected);
        let ordinary = with_held(vec![set_mode("/r/d", 0o755, 0o700)], BTreeMap::new());
        assert_eq!(shown(&ordinary), ["mode /r/d 700"]);
    }

    #[test]
    fn a_folder_that_moves_is_closed_where_it_is_then() {
        let rename =
            Step::Rename { from: target("/r/d"), before: meta(0o500), to: target("/r/x"), replaced: None };
        let actions = with_held(vec![remove("/r/d/e/f"), rename], closed(&["/r/d/e"]));
        assert_eq!(shown(&actions), ["open /r/d/e", "remove /r/d/e/f", "rename to /r/x", "close /r/x/e 500"]);
        let renames: [(&[u8], &[u8]); 2] = [(b"/r/d", b"/r/x"), (b"/r/x", b"/r/y")];
        assert_eq!(path_before(b"/r/y/e", &renames), b"/r/d/e");
    }

    #[test]
    fn the_folders_that_steps_make_keep_their_numbers() {
        let make = |path: &str, mode| Step::MakeDir { at: target(path), mode, attrs: None };
        let mut inner = make("/r/n/m", 0o500);
        for at in inner.targets_mut() {
            at.dir = DirAt::Made(1);
        }
        let actions = with_held(vec![remove("/r/d/f"), make("/r/n", 0o755), inner], closed(&["/r/d"]));
        let Action::Step { step: Step::MakeDir { at, .. }, .. } = &actions[3] else { panic!("{actions:?}") };
        assert!(matches!(at.dir, DirAt::Made(2)));
        let Action::Close(HeldDir { id: HeldId::MadeBy(3), mode: 0o500, .. }) = &actions[4] else {
            panic!("{actions:?}")
        };
    }
}
