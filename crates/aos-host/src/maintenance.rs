//! Operator requests that are not effects: adopting a blob, collecting garbage, cancelling a command. They go
//! through the spine like every request, so each is journaled.

use std::time::Duration;

use aos_model::entry::Fact;
use aos_model::receipt::Body;
use aos_model::refusal::{Code, Refusal, Status};
use aos_store::{Reader, own_rights};
use serde_json::json;

use crate::host::Host;
use crate::lifecycle::{self, find_session};
use crate::outcome::Done;

#[derive(Debug)]
pub(crate) enum OperatorRequest {
    /// Records a stored blob in the journal, so that sessions may use it.
    AdoptBlob { blob_ref: String },
    /// Removes unreferenced blobs.
    CollectGarbage,
    /// Ends the commands of one tool call; the session continues.
    Cancel { session_id: String, tool_call_id: String },
}

impl OperatorRequest {
    /// The kind of its journal entry.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            OperatorRequest::AdoptBlob { .. } => "blob.put",
            OperatorRequest::CollectGarbage => "store.gc",
            OperatorRequest::Cancel { .. } => "host.exec.cancel",
        }
    }

    /// The params of its journal entry.
    pub(crate) fn params(&self) -> String {
        match self {
            OperatorRequest::AdoptBlob { blob_ref } => json!({ "blob_ref": blob_ref }),
            OperatorRequest::CollectGarbage => json!({}),
            OperatorRequest::Cancel { session_id, tool_call_id } => {
                json!({ "session_id": session_id, "tool_call_id": tool_call_id })
            }
        }
        .to_string()
    }

    pub(crate) fn session_id(&self) -> Option<&str> {
        match self {
            OperatorRequest::Cancel { session_id, .. } => Some(session_id),
            OperatorRequest::AdoptBlob { .. } | OperatorRequest::CollectGarbage => None,
        }
    }
}

pub(crate) fn run(host: &Host, request: &OperatorRequest) -> Result<Done, Refusal> {
    let _own = own_rights();
    match request {
        OperatorRequest::AdoptBlob { blob_ref } => {
            if host.blobs.size_of(blob_ref)?.is_none() {
                let shown = aos_model::text::escape(blob_ref);
                return Err(Refusal::new(
                    Code::BlobNotFound,
                    format!("no blob {shown} is stored; store it with `aos blob put`"),
                ));
            }
            let mut done = Done::new(Status::Ok, Body::Signaled {}, Vec::new());
            done.facts.push(Fact::BlobPut { blob_ref: blob_ref.clone() });
            Ok(done)
        }
        OperatorRequest::CollectGarbage => {
            let reader = Reader::open(host.home.path())?;
            let swept = host.blobs.sweep(&reader, &host.manifests, (host.machine.now_ns)())?;
            let (kept, removed, removed_bytes) = (swept.kept, swept.removed, swept.removed_bytes);
            Ok(Done::new(Status::Ok, Body::Collected { kept, removed, removed_bytes }, Vec::new()))
        }
        OperatorRequest::Cancel { session_id, tool_call_id } => {
            let session = find_session(host, session_id)?;
            let grace = Duration::from_nanos(lifecycle::GRACE_NS_DEFAULT);
            let ended = session.exec_config.running.cancel(tool_call_id, grace);
            Ok(Done::new(Status::Ok, Body::Cancelled { ended }, Vec::new()))
        }
    }
}
