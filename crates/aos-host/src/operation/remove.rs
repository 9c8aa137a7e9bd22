//! `host.fs.remove`: removes a file, a link or a folder in one step.

use aos_model::limits::CHANGED_PATHS_MAX;
use aos_model::policy::Op;
use aos_model::receipt::Body;
use aos_model::records::Kind;
use aos_model::refusal::{Code, Refusal};
use aos_model::request::Remove;

use super::{Operation, PlanInput, Proposal};
use crate::jail::{Last, Place};
use crate::protection::protect_together;
use crate::steps::{Completion, Plan, Step, StepTarget};
use crate::subtree::{Below, Subtree, check_name};
use crate::target::Target;

impl Operation for Remove {
    fn targets(&self) -> Vec<Target> {
        vec![Target::new(&self.path, Op::Remove, Last::Itself)]
    }

    fn plan(&self, mut input: PlanInput<'_>) -> Result<Proposal, Refusal> {
        let mut warnings = std::mem::take(&mut input.warnings);
        let (place, meta) = input.found[0].existing()?;
        if place.is_root() {
            return Err(root_refused(place));
        }
        let (mut removed, mut bytes) = (u64::from(meta.kind != Kind::Dir), meta.size);
        if meta.kind == Kind::Dir {
            let mut check =
                |below: Below<'_>| check_name(input.session, Op::Remove, below.absolute, &mut warnings);
            let mut walk = Subtree::new(input.session, meta.mount, CHANGED_PATHS_MAX, &mut check);
            walk.below(place)?;
            (removed, bytes) = (walk.files, walk.bytes);
            let (entries, paths) = (walk.entries, walk.paths);
            protect_together(input.session, paths.iter().map(Vec::as_slice), &mut warnings)?;
            if entries > 0 && self.recursive != Some(true) {
                return Err(Refusal::new(
                    Code::DirectoryNotEmpty,
                    format!("{} is not empty; set `recursive` to remove all below it", place.shown),
                ));
            }
        }
        let steps = vec![Step::Remove { at: StepTarget::of(place), before: meta, bytes }];
        Ok(Proposal::Change(Plan {
            steps,
            completion: Completion {
                warnings,
                finish: Box::new(move |_| Body::Removed { removed }),
                raced: Code::IoError,
                facts: Vec::new(),
                own_snapshot: false,
            },
        }))
    }
}

pub(super) fn root_refused(place: &Place) -> Refusal {
    Refusal::new(
        Code::PathOutsideRoots,
        format!(
            "{} is a root of the session and cannot be moved or removed; name a path inside it",
            place.shown
        ),
    )
}
