//! The tools of an MCP server and its sessions.

use serde_json::{Map, Value, json};

use crate::client::new_tool_call_id;
use aos_tools::{DaemonApi, LineOffsetCache, Outcome, Profile, Progress, Tool, ToolContext};

#[derive(Debug, Clone)]
pub(crate) struct ToolSet {
    /// Not empty; the first is the default.
    pub(crate) sessions: Vec<String>,
    pub(crate) profile: Profile,
    /// Whether one of them is staged.
    pub(crate) staged: bool,
    /// Whether results have `structuredContent`. Many clients show the model that instead of the text.
    pub(crate) structured: bool,
}

/// A tool call with its session and id.
pub(crate) struct ToolCall {
    pub(crate) tool: Tool,
    pub(crate) session: String,
    /// The effects of the call are recorded under this id.
    pub(crate) id: String,
    pub(crate) arguments: Map<String, Value>,
}

impl ToolSet {
    pub(crate) fn tools(&self) -> Vec<Tool> {
        aos_tools::tools(self.profile, self.staged)
    }

    /// Removes the session handle from the arguments. Only sessions that the operator gave this server are accepted.
    pub(crate) fn call(&self, tool: Tool, mut arguments: Map<String, Value>) -> Result<ToolCall, Outcome> {
        let session = match arguments.remove("session") {
            None | Some(Value::Null) => self.sessions.first().cloned(),
            Some(Value::String(named)) => self.sessions.contains(&named).then_some(named),
            Some(_) => None,
        };
        match session {
            Some(session) => Ok(ToolCall { tool, session, id: new_tool_call_id(), arguments }),
            None => Err(aos_tools::refused(
                "invalid_params",
                &format!(
                    "this server has no such session; leave `session` out, or name one of {}",
                    self.sessions.join(", ")
                ),
            )),
        }
    }
}

impl ToolCall {
    /// Calls the tool and waits for its outcome.
    pub(crate) fn run(
        &self,
        daemon: &mut dyn DaemonApi,
        line_offsets: &LineOffsetCache,
        on_progress: &mut dyn FnMut(Progress),
    ) -> Outcome {
        let mut context =
            ToolContext { daemon, session: &self.session, tool_call: &self.id, line_offsets, on_progress };
        let mut outcome = aos_tools::call(&mut context, &self.tool, self.arguments.clone());
        outcome.fields.insert("session".into(), json!(self.session));
        outcome
    }
}
