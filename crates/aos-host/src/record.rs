//! Receipt and journal: the receipt that is returned is the one that was journaled (I2).

use std::sync::Arc;

use aos_model::entry::{EntryDraft, Fact};
use aos_model::receipt::{Receipt, with_seq};
use aos_model::refusal::{Code, Detail, Refusal, Status};
use aos_model::state::FoldInput;
use aos_store::Append;

use crate::admit::Job;
use crate::change::{self, Armed};
use crate::host::Host;
use crate::lane::Ticket;
use crate::ledger::EntryRef;
use crate::lifecycle;
use crate::outcome::{Done, Ids};
use crate::session::OpenSession;
use crate::snapshot;

/// The receipt, as the caller gets it.
#[derive(Debug)]
pub struct Answer {
    pub receipt: String,
    pub status: Status,
    /// The position of a mutation in its session's lane. Held until the answer is sent, so that answers keep the order.
    pub lane: Option<LaneGuard>,
}

/// Dropping it lets the next mutation of the session begin.
#[derive(Debug)]
pub struct LaneGuard {
    pub(crate) _ticket: Ticket,
}

/// The session an effect refers to, and the open one it runs in.
#[derive(Clone, Copy)]
pub(crate) struct EffectSession<'a> {
    pub(crate) session_id: Option<&'a str>,
    pub(crate) session: Option<&'a Arc<OpenSession>>,
}

impl Host {
    /// Journals the outcome and returns the receipt (I2).
    pub(crate) fn record(
        &self,
        job: &Job,
        ids: &Ids,
        about: EffectSession<'_>,
        ended: Result<Done, Refusal>,
        armed: Option<Armed<'_>>,
    ) -> Answer {
        let ended = match ended {
            Err(refusal) if refusal.code == Code::NoSpace && armed.is_none() && !self.reserve.has_spare() => {
                return self.unrecorded(refusal, None, None);
            }
            ended => ended,
        };
        let at_ns = ended.as_ref().ok().and_then(|done| done.at_ns);
        let at_ns = at_ns.unwrap_or_else(|| (self.machine.now_ns)());
        let (mut receipt, facts) = receipt_of(ended);
        receipt.tool_call_id = ids.tool_call.clone();
        receipt.turn_id = ids.turn.clone();
        let json = receipt.to_json();
        let kept = receipt.recorded();
        let blobs = receipt.blob_refs();
        let opened = session_opened(&facts);
        let session_id = about.session_id.or(opened.as_deref());
        let draft = EntryDraft {
            at_ns,
            kind: &job.kind,
            session_id,
            tool_call_id: ids.tool_call.as_deref(),
            turn_id: ids.turn.as_deref(),
            params: &job.params,
            receipt: kept.as_deref().unwrap_or(&json),
            blobs: &blobs,
            facts: &facts,
        };
        let body = draft.to_bytes();
        let blobs = blobs.into_iter().map(str::to_owned).collect();
        let facts = Arc::new(facts);
        let noted = facts.clone();
        let effects =
            FoldInput { session_id: session_id.map(str::to_owned), turn_id: ids.turn.clone(), blobs, facts };
        match self.journal.append(Append { body, effects, closes: armed.as_ref().map(|armed| armed.intent) })
        {
            Ok(seq) => {
                armed.as_ref().inspect(|armed| {
                    change::finish_aside(self, armed, true);
                    change::forget_displaced(armed);
                });
                if let Some(session) = about.session {
                    session.layer.iter().for_each(|layer| layer.publish(&noted));
                    let (tool_call, turn) = (ids.tool_call.as_deref(), ids.turn.as_deref());
                    snapshot::remember(self, session, &EntryRef { seq, at_ns, tool_call, turn }, &noted);
                }
                Answer { receipt: with_seq(seq, &json), status: receipt.status, lane: None }
            }
            Err(fault) => {
                tracing::error!(
                    kind = job.kind,
                    session_id,
                    tool_call_id = ids.tool_call,
                    error = %fault,
                    "cannot record a receipt; the request is rolled back"
                );
                self.unrecorded(fault.into(), opened.as_deref(), armed)
            }
        }
    }

    /// An effect that cannot be journaled is undone, and the receipt reports the failed append.
    fn unrecorded(&self, mut refusal: Refusal, opened: Option<&str>, armed: Option<Armed<'_>>) -> Answer {
        if let Some(session_id) = opened {
            lifecycle::forget(self, session_id);
        }
        // With the rights that it was done with. Without them the intent stays, and the next start takes it back.
        if let Some(armed) = armed
            && let Ok(_rights) = armed.session.act()
        {
            refusal.detail.not_rolled_back = change::take_back(self, &armed);
            change::finish_aside(self, &armed, false);
            self.journal.abandon(armed.intent);
        }
        let receipt = Receipt::refusal(refusal);
        Answer { receipt: receipt.to_json(), status: receipt.status, lane: None }
    }
}

fn receipt_of(ended: Result<Done, Refusal>) -> (Receipt, Vec<Fact>) {
    match ended {
        Ok(done) => {
            let mut receipt = Receipt::success(done.status, done.body, done.warnings);
            receipt.trace = done.trace;
            receipt.detail = done.detail.map_or_else(Detail::default, |detail| *detail);
            (receipt.error_code, receipt.error_message) = done.fault.unzip();
            (receipt, done.facts)
        }
        Err(refusal) => (Receipt::refusal(refusal), Vec::new()),
    }
}

fn session_opened(facts: &[Fact]) -> Option<String> {
    facts.iter().find_map(|fact| match fact {
        Fact::SessionOpened(record) => Some(record.session_id.clone()),
        Fact::SessionEnded { .. }
        | Fact::Captured(_)
        | Fact::SnapshotDropped { .. }
        | Fact::Rolled { .. }
        | Fact::Tree(_)
        | Fact::TreeKept(_)
        | Fact::BlobPut { .. } => None,
    })
}
