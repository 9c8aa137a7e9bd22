//! The front ends beside the socket: the command line (one process per call) and MCP (one process per session).

use std::process::Command;

use serde_json::{Value, json};

use crate::mcp::McpClient;
use crate::torture::Setup;

/// `aos call`: the receipt that it prints.
pub(super) fn call(setup: &Setup, kind: &str, params: &Value) -> Result<Value, String> {
    let (code, out, err) = setup.aos(&["call", kind, &params.to_string()]);
    let receipt: Value =
        serde_json::from_str(&out).map_err(|why| format!("aos call: {code}: {why}: {out}{err}"))?;
    let expected = i32::from(receipt["status"] != "ok");
    if code != expected {
        return Err(format!("aos call ends with {code}, its receipt is {receipt}"));
    }
    Ok(receipt)
}

/// `aos policy path` in a session.
pub(super) fn policy_path(setup: &Setup, session: &str, path: &str) -> Result<Value, String> {
    printed(setup, &["policy", "path", "--session", session, "--", path])
}

/// `aos policy explain`.
pub(super) fn explain(setup: &Setup, seq: u64) -> Result<Value, String> {
    printed(setup, &["policy", "explain", &seq.to_string()])
}

fn printed(setup: &Setup, words: &[&str]) -> Result<Value, String> {
    let (code, out, err) = setup.aos(words);
    if code != 0 {
        return Ok(json!({ "refused": err }));
    }
    serde_json::from_str(&out).map_err(|why| format!("aos {words:?}: {why}: {out}"))
}

/// `aos mcp` for one session. Its answers are not kept: a run has very many of them.
#[derive(Debug)]
pub(super) struct Mcp(McpClient);

impl Mcp {
    pub(super) fn open(setup: &Setup, session: &str) -> Result<Mcp, String> {
        let mut command = Command::new(&setup.programs.aos);
        command
            .args(["mcp", "--session", session, "--profile", "openai", "--structured"])
            .env("AOS_HOME", &setup.home);
        let mut client = McpClient::spawn(command)?;
        client.initialize(json!({}))?;
        Ok(Mcp(client))
    }

    /// The result of a tool.
    pub(super) fn tool(&mut self, name: &str, arguments: &Value) -> Result<Value, String> {
        let params = json!({ "name": name, "arguments": arguments });
        let mut answer = self.0.try_request("tools/call", &params)?;
        self.0.lines.clear();
        match answer["error"].take() {
            Value::Null => Ok(answer["result"].take()),
            error => Err(format!("{name} {arguments}: {error}")),
        }
    }
}
