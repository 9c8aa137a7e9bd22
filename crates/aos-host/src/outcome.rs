//! The outcome of an effect before it becomes a receipt, and the ids it is recorded under.

use aos_model::entry::Fact;
use aos_model::id::{self, Token};
use aos_model::receipt::{Body, MutationFields, Warning};
use aos_model::refusal::{Code, Detail, Refusal, Status};

#[derive(Debug, Clone, Default)]
pub(crate) struct Ids {
    pub(crate) tool_call: Option<String>,
    pub(crate) turn: Option<String>,
}

/// The outcome of an effect.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) status: Status,
    pub(crate) body: Body,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) facts: Vec<Fact>,
    pub(crate) trace: Option<MutationFields>,
    /// The error of an effect that ran but did not succeed, such as a command that was killed.
    pub(crate) fault: Option<(Code, String)>,
    /// More fields of the receipt for that error.
    pub(crate) detail: Option<Box<Detail>>,
    /// The time of the receipt, where the facts contain it too.
    pub(crate) at_ns: Option<u64>,
}

impl Done {
    pub(crate) fn new(status: Status, body: Body, warnings: Vec<Warning>) -> Done {
        Done {
            status,
            body,
            warnings,
            facts: Vec::new(),
            trace: None,
            fault: None,
            detail: None,
            at_ns: None,
        }
    }
}

impl Ids {
    /// Validates the ids that the caller gave.
    pub(crate) fn parse(tool_call_id: Option<&str>, turn_id: Option<&str>) -> Result<Ids, Refusal> {
        let check = |name: &str, id: Option<&str>| match id.map(Token::parse) {
            None => Ok(None),
            Some(Ok(token)) => Ok(Some(token.as_str().to_owned())),
            Some(Err(why)) => Err(Refusal::new(Code::InvalidParams, format!("field `{name}`: {why}"))),
        };
        Ok(Ids { tool_call: check("tool_call_id", tool_call_id)?, turn: check("turn_id", turn_id)? })
    }

    /// A mutation without ids gets a tool call id and a turn id of its own.
    pub(crate) fn complete(&mut self, now_ns: u64, random: u64) {
        self.tool_call.get_or_insert_with(|| id::make(id::TOOL_CALL, now_ns, random));
        self.turn.get_or_insert_with(|| id::make(id::TURN, now_ns, random));
    }
}
