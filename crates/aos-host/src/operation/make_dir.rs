//! `host.fs.make_dir`: creates a folder, on request with its parents.

use aos_model::policy::Op;
use aos_model::receipt::Body;
use aos_model::records::Kind;
use aos_model::refusal::{Code, Refusal};
use aos_model::request::MakeDir;

use super::write_file::exists;
use super::{Operation, PlanInput, Proposal};
use crate::jail::{Found, Last};
use crate::steps::{Completion, Parents, Plan, Step};
use crate::target::Target;

impl Operation for MakeDir {
    fn targets(&self) -> Vec<Target> {
        vec![Target::new(&self.path, Op::Write, Last::Itself).making_parents(self.parents == Some(true))]
    }

    fn plan(&self, input: PlanInput<'_>) -> Result<Proposal, Refusal> {
        let found = &input.found[0];
        let parents = self.parents == Some(true);
        if let Found::Resolved(place) = found
            && let Some(meta) = place.meta
        {
            // As with `mkdir -p`, an existing folder is not an error.
            return if parents && meta.kind == Kind::Dir {
                input.answer(Body::Made {})
            } else {
                Err(exists(place))
            };
        }
        if parents {
            found.makeable()?;
        } else {
            found.with_parent()?;
        }
        let mode = 0o777 & !input.host.machine.umask;
        let mut steps = Vec::new();
        let at = Parents::default().target(found, &mut steps, mode, &input.session.jail);
        steps.push(Step::MakeDir { at, mode, attrs: None });
        Ok(Proposal::Change(Plan {
            steps,
            completion: Completion {
                warnings: input.warnings,
                finish: Box::new(|_| Body::Made {}),
                raced: Code::FileExists,
                facts: Vec::new(),
                own_snapshot: false,
            },
        }))
    }
}
