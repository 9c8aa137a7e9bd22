//! Asking the person: where policy warns and the client can ask, the answer comes before the effect.

use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{
    ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, InputRequest,
    InputRequiredResult, InputResponses, ProtocolVersion,
};
use rmcp::service::RequestContext;
use serde_json::{Value, json};

use super::server::McpServer;
use super::tool_set::ToolCall;
use aos_tools::Outcome;

/// What came of asking.
pub(super) enum Consent {
    /// Nothing to ask, nobody to ask, or a yes. Without anybody to ask, the warning goes into the result.
    Given,
    Refused(Outcome),
    /// The client asks and calls again, as stateless clients do.
    Asked(InputRequiredResult),
}

const QUESTION: &str = "consent";
/// How long a person may think.
const PATIENCE: Duration = Duration::from_secs(600);

impl McpServer {
    pub(super) async fn consent(
        &self,
        call: &ToolCall,
        answers: Option<&InputResponses>,
        context: &RequestContext<RoleServer>,
    ) -> Consent {
        if !can_ask(context) {
            return Consent::Given;
        }
        let warnings = self.foreseen(call);
        let kept = format!("{}\n{}", call.session, warnings.codes);
        if warnings.text.is_empty() || self.accepted(&kept) {
            return Consent::Given;
        }
        let question = ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: format!("{} wants to go on although policy warns: {}", call.tool.title, warnings.text),
            requested_schema: schema(),
        };
        let answer = if is_stateless(context) {
            match answers.and_then(|answers| answers.get(QUESTION)) {
                Some(answer) => serde_json::from_value::<ElicitResult>(answer.clone()).ok(),
                None => {
                    let request = InputRequest::Elicitation(ElicitRequest::new(question));
                    let requests = [(QUESTION.to_owned(), request)].into();
                    return Consent::Asked(InputRequiredResult::from_input_requests(requests));
                }
            }
        } else {
            tokio::select! {
                answer = context.peer.create_elicitation_with_timeout(question, Some(PATIENCE)) => answer.ok(),
                () = context.ct.cancelled() => None,
            }
        };
        match answer {
            Some(answer) if answer.action == ElicitationAction::Accept => {
                if answer.content.is_some_and(|content| content["remember"] == true) {
                    self.shared.accepted.lock().expect("BUG: nobody panics here").insert(kept);
                }
                Consent::Given
            }
            _ => Consent::Refused(aos_tools::refused(
                "declined",
                &format!("the person did not agree to this, so nothing was done ({})", warnings.text),
            )),
        }
    }

    fn accepted(&self, kept: &str) -> bool {
        self.shared.accepted.lock().expect("BUG: nobody panics here").contains(kept)
    }

    /// The warnings that this call would carry. What would be refused is not worth a question.
    fn foreseen(&self, call: &ToolCall) -> Warnings {
        let Some((kind, params)) = call.effect() else { return Warnings::default() };
        let asked = json!({ "kind": kind, "params": params });
        let answer = self.question("effect.foresee", &asked).unwrap_or_default();
        let list = |name: &str| -> Vec<&str> {
            let all = answer["warnings"].as_array().into_iter().flatten();
            all.filter_map(|warning| warning[name].as_str()).collect()
        };
        let (mut codes, messages) = (list("code"), list("message"));
        codes.sort_unstable();
        codes.dedup();
        Warnings { codes: codes.join(" "), text: messages.join("; ") }
    }
}

#[derive(Default)]
struct Warnings {
    codes: String,
    text: String,
}

fn can_ask(context: &RequestContext<RoleServer>) -> bool {
    let asks = context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
    // One that names no form at all means the plain one.
    asks.is_some_and(|asks| asks.form.is_some() || asks.url.is_none())
}

fn is_stateless(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

fn schema() -> ElicitationSchema {
    let remember: Value = json!({
        "type": "object",
        "properties": { "remember": {
            "type": "boolean", "title": "Do not ask again",
            "description": "Go on without asking where policy warns of the same", "default": false,
        } },
    });
    serde_json::from_value(remember).expect("BUG: a schema of one flag")
}
