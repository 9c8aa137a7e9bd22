//! What a door offers: which tools, in which sessions.

use serde_json::{Map, Value, json};

use crate::client::{Progress, new_tool_call_id};
use crate::tools::{self, Ask, Desk, Memory, Outcome, Profile, Tool};

#[derive(Debug, Clone)]
pub(crate) struct Offer {
    /// Not empty; the first is the one that calls mean when they name none.
    pub(crate) sessions: Vec<String>,
    pub(crate) profile: Profile,
    /// Whether one of them is staged.
    pub(crate) staged: bool,
}

/// A call that is about to be made.
pub(crate) struct Order {
    pub(crate) tool: Tool,
    pub(crate) session: String,
    pub(crate) tool_call: String,
    pub(crate) arguments: Map<String, Value>,
}

impl Offer {
    pub(crate) fn tools(&self) -> Vec<Tool> {
        tools::tools(self.profile, self.staged)
    }

    /// Takes the session handle out of a call. Only sessions that the operator gave this door can be named: a handle
    /// is no way to somebody else's.
    pub(crate) fn order(&self, tool: Tool, mut arguments: Map<String, Value>) -> Result<Order, Outcome> {
        let session = match arguments.remove("session") {
            None | Some(Value::Null) => self.sessions.first().cloned(),
            Some(Value::String(named)) => self.sessions.contains(&named).then_some(named),
            Some(_) => None,
        };
        match session {
            Some(session) => Ok(Order { tool, session, tool_call: new_tool_call_id(), arguments }),
            None => Err(tools::refused(
                "invalid_params",
                &format!(
                    "this server has no such session; leave `session` out, or name one of {}",
                    self.sessions.join(", ")
                ),
            )),
        }
    }
}

impl Order {
    /// The effect that policy may warn of.
    pub(crate) fn effect(&self) -> Option<(&'static str, Value)> {
        tools::effect_of(&self.tool, &self.session, &self.arguments)
    }

    /// Calls the tool, and waits for it.
    pub(crate) fn place(
        &self,
        daemon: &mut dyn Ask,
        memory: &Memory,
        watch: &mut dyn FnMut(Progress),
    ) -> Outcome {
        let mut desk = Desk { daemon, session: &self.session, tool_call: &self.tool_call, memory, watch };
        let mut outcome = tools::call(&mut desk, &self.tool, self.arguments.clone());
        outcome.fields.insert("session".into(), json!(self.session));
        outcome
    }
}
