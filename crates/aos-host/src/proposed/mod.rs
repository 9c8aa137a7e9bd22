//! What a command changed, as a proposal: read from its overlay, not checked yet, and nothing has moved.

mod show;

use std::collections::BTreeSet;
use std::sync::Arc;

use aos_model::path::is_below;
use aos_model::policy::Op;
use aos_model::policy::git::GitVerdict;
use aos_model::receipt::{Body, Executed, Warning};
use aos_model::refusal::Code;

use crate::lock::Locked;
use crate::overlay::Overlay;
use crate::session::OpenSession;
use crate::steps::{Completion, DirAt, Outcome, Plan, Step, StepTarget};

#[derive(Debug)]
pub(crate) struct ProposedChanges<'a> {
    pub(crate) session: Arc<OpenSession>,
    /// Every path that changes, with everything below a folder that is removed.
    pub(crate) paths: Vec<ProposedPath>,
    pub(crate) steps: Vec<Step>,
    /// How many files change.
    pub(crate) files: u64,
    /// Files of which only the modification time differs.
    pub(crate) touched: Vec<Touched>,
    /// Warnings from reading the overlay.
    pub(crate) notes: Vec<Warning>,
    /// Warnings from running the command.
    pub(crate) warnings: Vec<Warning>,
    pub(crate) executed: Executed,
    pub(crate) dry_run: bool,
    /// The changed roots, held from before the overlay was read.
    pub(crate) locks: Locked<'a>,
    /// The steps move files out of it; its folders are removed with it.
    pub(crate) overlay: Overlay,
}

#[derive(Debug)]
pub(crate) struct ProposedPath {
    pub(crate) op: Op,
    pub(crate) absolute: Vec<u8>,
    /// As receipts show it.
    pub(crate) shown: String,
    /// The bytes that are written there.
    pub(crate) bytes: u64,
    /// What the rules for git folders say about it.
    pub(crate) git: GitVerdict,
    /// Whether the receipt lists it. A file of which only the time differs is checked and not listed.
    pub(crate) is_listed: bool,
}

/// A file that gets another modification time.
#[derive(Debug)]
pub(crate) struct Touched {
    pub(crate) at: StepTarget,
    pub(crate) mtime_ns: i64,
}

impl Touched {
    /// `make` depends on it. It is not recorded and not undone: a file that is restored gets a new time anyway.
    pub(crate) fn set(&self) {
        if let Ok(Some(dir)) = self.at.folder() {
            let _ = crate::disk::set_mtime_at(dir, &self.at.name, self.mtime_ns);
        }
    }
}

/// What is to be done about proposed changes that passed every check.
#[derive(Debug)]
pub(crate) enum ProposedPlan<'a> {
    /// Nothing is applied: it was a dry run, or only times differ.
    Nothing(Body, Vec<Warning>),
    Change(Plan, Locked<'a>),
}

impl<'a> ProposedChanges<'a> {
    /// Takes paths and everything below them out of the changes. A folder whose removal or replacement would take one
    /// of them with it stays as it is. Returns how they are shown.
    pub(crate) fn withhold(&mut self, paths: &BTreeSet<Vec<u8>>) -> Vec<String> {
        if paths.is_empty() {
            return Vec::new();
        }
        let holds_one =
            |folder: &[u8]| paths.range(folder.to_vec()..).next().is_some_and(|path| is_below(path, folder));
        let removed = self.steps.iter().filter_map(|step| match step {
            Step::Remove { at, .. } if holds_one(&at.absolute) => Some(at.absolute.clone()),
            _ => None,
        });
        let withheld: BTreeSet<Vec<u8>> = removed.chain(paths.iter().cloned()).collect();
        let is_withheld = |absolute: &[u8]| {
            let ends = (0..absolute.len()).filter(|at| absolute[*at] == b'/').chain([absolute.len()]);
            ends.into_iter().any(|end| withheld.contains(&absolute[..end]))
        };
        let mut index = Vec::new();
        let mut kept = 0;
        let steps = std::mem::take(&mut self.steps);
        for mut step in steps {
            index.push(kept);
            if is_withheld(&step.at().absolute) {
                self.files -= u64::from(matches!(step, Step::Put(_))).min(self.files);
                continue;
            }
            if let DirAt::Made(made) = &mut step.at_mut().dir {
                *made = index[*made];
            }
            kept += 1;
            self.steps.push(step);
        }
        let mut shown: Vec<String> = Vec::new();
        self.paths.retain(|path| {
            let stays = !is_withheld(&path.absolute);
            if !stays {
                shown.push(path.shown.clone());
            }
            stays
        });
        shown.sort_unstable();
        shown.dedup();
        shown
    }

    pub(crate) fn into_plan(self, warnings: Vec<Warning>) -> ProposedPlan<'a> {
        let mut executed = self.executed;
        let listed = self.paths.into_iter().filter(|path| path.is_listed);
        executed.list_changed(listed.map(|path| path.shown).collect());
        if self.dry_run {
            executed.diff = Some(show::diff(&self.steps));
            return ProposedPlan::Nothing(Body::Executed(Box::new(executed)), warnings);
        }
        let (touched, overlay) = (self.touched, self.overlay);
        if self.steps.is_empty() {
            touched.iter().for_each(Touched::set);
            return ProposedPlan::Nothing(Body::Executed(Box::new(executed)), warnings);
        }
        let finish = Box::new(move |_: &Outcome<'_>| {
            touched.iter().for_each(Touched::set);
            drop(overlay);
            Body::Executed(Box::new(executed))
        });
        let completion =
            Completion { warnings, finish, raced: Code::IoError, facts: Vec::new(), own_snapshot: false };
        ProposedPlan::Change(Plan { steps: self.steps, completion }, self.locks)
    }
}
