//! The operator methods of the socket that are not effects.

use aos_model::receipt::{Body, Receipt};
use aos_model::refusal::Status;

use crate::host::Host;
use crate::lifecycle::find_session;
use crate::maintenance::OperatorRequest;

impl Host {
    /// `blob.adopt`: the receipt.
    pub fn adopt_blob(&self, blob_ref: &str) -> String {
        self.answer_operator(OperatorRequest::AdoptBlob { blob_ref: blob_ref.to_owned() })
    }

    /// `store.gc`: the receipt.
    pub fn collect_garbage(&self) -> String {
        self.answer_operator(OperatorRequest::CollectGarbage)
    }

    /// `exec.cancel`: the receipt. Without a running command nothing is journaled: clients poll this while the command
    /// that they cancel waits to start.
    pub fn cancel(&self, session_id: &str, tool_call_id: &str) -> String {
        match find_session(self, session_id) {
            Ok(session) if !session.exec_config.running.has(tool_call_id) => {
                Receipt::success(Status::Ok, Body::Cancelled { ended: 0 }, Vec::new()).to_json()
            }
            Err(refusal) => Receipt::refusal(refusal).to_json(),
            Ok(_) => {
                let (session_id, tool_call_id) = (session_id.to_owned(), tool_call_id.to_owned());
                self.answer_operator(OperatorRequest::Cancel { session_id, tool_call_id })
            }
        }
    }
}
