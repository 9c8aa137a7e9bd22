//! `host.fs.stat` and `host.fs.exists`: metadata of a path. Links are followed as the capability allows.

use aos_model::policy::Op;
use aos_model::receipt::{Body, StatBody};
use aos_model::refusal::{Code, Detail, Refusal};
use aos_model::request::{Exists, Stat};

use super::{Operation, PlanInput, Proposal};
use crate::jail::Last;
use crate::target::Target;

impl Operation for Stat {
    fn targets(&self) -> Vec<Target> {
        let last = if self.no_follow == Some(true) { Last::Itself } else { Last::Follow };
        vec![Target::new(&self.path, Op::Stat, last)]
    }

    fn plan(&self, input: PlanInput<'_>) -> Result<Proposal, Refusal> {
        let missing = |refusal: Refusal| match refusal.code {
            Code::PathNotFound => refusal.with(Detail { exists: Some(false), ..Detail::default() }),
            _ => refusal,
        };
        let (_, meta) = input.found[0].existing().map_err(missing)?;
        let body = StatBody {
            exists: true,
            kind: meta.kind,
            size_bytes: meta.size,
            mtime_ns: meta.mtime_ns,
            mode: meta.mode,
        };
        input.answer(Body::Stat(body))
    }
}

impl Operation for Exists {
    fn targets(&self) -> Vec<Target> {
        vec![Target::new(&self.path, Op::Stat, Last::Follow)]
    }

    fn plan(&self, input: PlanInput<'_>) -> Result<Proposal, Refusal> {
        let exists = input.found[0].existing().is_ok();
        input.answer(Body::Exists { exists })
    }
}
