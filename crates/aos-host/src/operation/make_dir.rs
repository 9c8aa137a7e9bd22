//! `host.fs.make_dir`: a folder, with its parents when asked for.

use aos_model::policy::Op;
use aos_model::receipt::{Body, Kind};
use aos_model::refusal::{Code, Refusal};
use aos_model::request::MakeDir;

use super::write_file::exists;
use super::{Operation, Proposal, Scene};
use crate::jail::{Found, Last};
use crate::steps::{Ending, Parents, Plan, Step};
use crate::target::Target;

impl Operation for MakeDir {
    fn targets(&self) -> Vec<Target> {
        vec![Target::new(&self.path, Op::Write, Last::Itself)]
    }

    fn plan(&self, scene: Scene<'_>) -> Result<Proposal, Refusal> {
        let found = &scene.found[0];
        let parents = self.parents == Some(true);
        if let Found::Resolved(place) = found
            && let Some(meta) = place.meta
        {
            // As `mkdir -p`: a folder that is there already is what was wanted.
            return if parents && meta.kind == Kind::Dir {
                scene.answer(Body::Made {})
            } else {
                Err(exists(place))
            };
        }
        if parents {
            found.makeable()?;
        } else {
            found.with_parent()?;
        }
        let mode = 0o777 & !scene.host.machine.umask;
        let mut steps = Vec::new();
        let at = Parents::default().target(found, &mut steps, mode, &scene.session.jail);
        steps.push(Step::MakeDir { at, mode, attrs: None });
        Ok(Proposal::Change(Plan {
            steps,
            ending: Ending {
                warnings: scene.warnings,
                finish: Box::new(|_| Body::Made {}),
                raced: Code::FileExists,
                facts: Vec::new(),
                own_snapshot: false,
            },
        }))
    }
}
