//! Consent: where policy warns and the client supports elicitation, the user is asked before the effect.

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

/// The outcome of asking.
pub(super) enum Consent {
    /// The user agreed, there is no warning, or the client cannot ask: then the result shows the warning.
    Given,
    Refused(Outcome),
    /// The client must ask and call again; the stateless protocol works this way.
    InputRequired(InputRequiredResult),
}

const INPUT_NAME: &str = "consent";
/// How long the user may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);

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
        let warnings = self.preview_warnings(call);
        let key = format!("{}\n{}", call.session, warnings.codes);
        if warnings.text.is_empty() || self.is_accepted(&key) {
            return Consent::Given;
        }
        let question = ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: format!("{}: policy warns: {}. Proceed?", call.tool.title, warnings.text),
            requested_schema: schema(),
        };
        let answer = if is_stateless(context) {
            match answers.and_then(|answers| answers.get(INPUT_NAME)) {
                Some(answer) => serde_json::from_value::<ElicitResult>(answer.clone()).ok(),
                None => {
                    let request = InputRequest::Elicitation(ElicitRequest::new(question));
                    let requests = [(INPUT_NAME.to_owned(), request)].into();
                    return Consent::InputRequired(InputRequiredResult::from_input_requests(requests));
                }
            }
        } else {
            tokio::select! {
                answer = context.peer.create_elicitation_with_timeout(question, Some(ANSWER_TIMEOUT)) => answer.ok(),
                () = context.ct.cancelled() => None,
            }
        };
        match answer {
            Some(answer) if answer.action == ElicitationAction::Accept => {
                if answer.content.is_some_and(|content| content["remember"] == true) {
                    self.shared.accepted.lock().expect("BUG: lock poisoned").insert(key);
                }
                Consent::Given
            }
            _ => Consent::Refused(aos_tools::refused(
                "declined",
                &format!("the user did not agree, so nothing was done ({})", warnings.text),
            )),
        }
    }

    fn is_accepted(&self, key: &str) -> bool {
        self.shared.accepted.lock().expect("BUG: lock poisoned").contains(key)
    }

    /// The warnings that this call would have; none if it would be refused.
    fn preview_warnings(&self, call: &ToolCall) -> Warnings {
        let Some((kind, params)) = call.effect() else { return Warnings::default() };
        let preview = json!({ "kind": kind, "params": params });
        let answer = self.query("effect.foresee", &preview).unwrap_or_default();
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
    let elicitation = context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
    // An empty capability means forms.
    elicitation.is_some_and(|elicitation| elicitation.form.is_some() || elicitation.url.is_none())
}

fn is_stateless(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
}

fn schema() -> ElicitationSchema {
    let remember: Value = json!({
        "type": "object",
        "properties": { "remember": {
            "type": "boolean", "title": "Do not ask again",
            "description": "Do not ask again for the same warnings in this session", "default": false,
        } },
    });
    serde_json::from_value(remember).expect("BUG: a schema of one flag")
}
