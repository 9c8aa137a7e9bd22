//! `host.fs.move`: renames a path atomically.

use aos_model::limits::MOVED_PATHS_MAX;
use aos_model::policy::Op;
use aos_model::receipt::Body;
use aos_model::records::Kind;
use aos_model::refusal::{Code, Refusal};
use aos_model::request::Move;

use super::remove::root_refused;
use super::write_file::exists;
use super::{Operation, PlanInput, Proposal};
use crate::disk::Meta;
use crate::jail::{Last, Place};
use crate::policy::check_moved;
use crate::protection::protect_together;
use crate::steps::{Completion, Plan, Step, StepTarget};
use crate::subtree::{Below, Subtree, check_name};
use crate::target::Target;
use aos_model::path::is_below;

impl Operation for Move {
    fn targets(&self) -> Vec<Target> {
        vec![Target::new(&self.from, Op::Write, Last::Itself), Target::new(&self.to, Op::Write, Last::Itself)]
    }

    fn plan(&self, mut input: PlanInput<'_>) -> Result<Proposal, Refusal> {
        let mut warnings = std::mem::take(&mut input.warnings);
        let (from, before) = input.found[0].existing()?;
        let to = input.found[1].with_parent()?;
        for place in [from, to] {
            if place.is_root() {
                return Err(root_refused(place));
            }
        }
        if from.absolute == to.absolute {
            return Ok(Proposal::Answer(crate::outcome::Done::new(
                aos_model::refusal::Status::Ok,
                Body::Moved {},
                warnings,
            )));
        }
        if is_below(&to.absolute, &from.absolute) {
            return Err(Refusal::new(
                Code::InvalidPath,
                format!("cannot move {} to {}: the target is inside it", from.shown, to.shown),
            ));
        }
        check_moved(input.session, &from.absolute, &to.absolute)?;
        let replaced = replaced(self, to, &before)?;
        if before.kind == Kind::Dir {
            // The new names of everything below are checked too.
            let mut check = |below: Below<'_>| {
                check_name(input.session, Op::Write, below.absolute, &mut warnings)?;
                let moved = [to.absolute.as_slice(), &below.absolute[from.absolute.len()..]].concat();
                check_moved(input.session, below.absolute, &moved)?;
                check_name(input.session, Op::Write, &moved, &mut warnings)
            };
            let mut walk = Subtree::new(input.session, before.mount, MOVED_PATHS_MAX, &mut check);
            walk.below(from)?;
            let paths = walk.paths;
            protect_together(input.session, paths.iter().map(Vec::as_slice), &mut warnings)?;
        }
        let steps =
            vec![Step::Rename { from: StepTarget::of(from), before, to: StepTarget::of(to), replaced }];
        Ok(Proposal::Change(Plan {
            steps,
            completion: Completion {
                warnings,
                finish: Box::new(|_| Body::Moved {}),
                raced: Code::StaleBase,
                facts: Vec::new(),
                own_snapshot: false,
            },
        }))
    }
}

/// The file that the move replaces, if the request allows it. A move never replaces folders or links.
fn replaced(request: &Move, to: &Place, before: &Meta) -> Result<Option<Meta>, Refusal> {
    let Some(there) = to.meta else { return Ok(None) };
    // Two hard links of one file: rename(2) would do nothing and report success.
    let same = (there.dev, there.ino) == (before.dev, before.ino);
    if request.overwrite != Some(true) || there.kind == Kind::Symlink || same {
        return Err(exists(to));
    }
    if there.kind == Kind::Dir || before.kind == Kind::Dir {
        let why =
            format!("cannot replace {}: only files replace files; name the path inside the folder", to.shown);
        return Err(Refusal::new(Code::IsDirectory, why));
    }
    Ok(Some(there))
}
