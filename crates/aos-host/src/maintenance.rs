//! What operators ask of a host beside effects: adopting blobs, collecting garbage, cancelling a command.

use aos_model::entry::{Draft, Fact};
use aos_model::receipt::{Body, Receipt};
use aos_model::refusal::{Refusal, Status};
use aos_model::state::Effects;
use aos_store::{Append, Fault, Reader, Swept};

use crate::host::Host;
use crate::lifecycle;

impl Host {
    /// Makes a blob that the operator stored known to the journal, so that sessions may use it.
    pub fn adopt_blob(&self, blob_ref: &str) -> Result<u64, Fault> {
        if self.blobs.size_of(blob_ref)?.is_none() {
            return Err(Fault::Refused(format!("no blob {} is stored", aos_model::text::escape(blob_ref))));
        }
        let receipt = Receipt::success(Status::Ok, Body::Signaled {}, Vec::new()).to_json();
        let facts = vec![Fact::BlobPut { blob_ref: blob_ref.to_owned() }];
        let draft = Draft {
            at_ns: (self.machine.now_ns)(),
            kind: "blob.put",
            session_id: None,
            tool_call_id: None,
            turn_id: None,
            params: &serde_json::json!({ "blob_ref": blob_ref }).to_string(),
            receipt: &receipt,
            blobs: &[],
            facts: &facts,
        };
        let body = draft.to_bytes();
        let effects = Effects { session_id: None, turn_id: None, blobs: Vec::new(), facts: facts.into() };
        self.journal.append(Append { body, effects, closes: None })
    }

    /// Removes the blobs that nothing names.
    pub fn sweep(&self) -> Result<Swept, Fault> {
        let reader = Reader::open(self.home.path())?;
        self.blobs.sweep(&reader, &self.manifests, (self.machine.now_ns)())
    }

    /// Ends what still runs, for a daemon that is about to end itself.
    pub fn retire(&self) {
        self.executor.retire();
    }

    /// Ends the commands of one tool call, and nothing else of its session. Says how many were running.
    pub fn cancel(&self, session_id: &str, tool_call_id: &str) -> Result<usize, Refusal> {
        let session = lifecycle::find_session(self, session_id)?;
        Ok(session
            .exec_config
            .running
            .cancel(tool_call_id, std::time::Duration::from_nanos(lifecycle::GRACE_NS_DEFAULT)))
    }
}
