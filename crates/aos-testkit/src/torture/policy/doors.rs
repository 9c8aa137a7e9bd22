//! The doors beside the socket: the command line, a process a call, and MCP, a process a session.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

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

/// `aos mcp` on pipes, for one session.
#[derive(Debug)]
pub(super) struct Mcp {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    next: u64,
}

impl Mcp {
    pub(super) fn open(setup: &Setup, session: &str) -> Result<Mcp, String> {
        let mut command = Command::new(&setup.programs.aos);
        command.args(["mcp", "--session", session, "--profile", "openai"]).env("AOS_HOME", &setup.home);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|why| why.to_string())?;
        let (to, from) = (child.stdin.take().ok_or("no pipe")?, child.stdout.take().ok_or("no pipe")?);
        let mut mcp = Mcp { child, to, from: BufReader::new(from), next: 0 };
        let hello = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": "torture", "version": "1" },
        });
        mcp.request("initialize", &hello)?;
        mcp.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        Ok(mcp)
    }

    /// The result of a tool.
    pub(super) fn tool(&mut self, name: &str, arguments: &Value) -> Result<Value, String> {
        self.request("tools/call", &json!({ "name": name, "arguments": arguments }))
    }

    fn send(&mut self, message: &Value) -> Result<(), String> {
        self.to.write_all(format!("{message}\n").as_bytes()).map_err(|why| why.to_string())
    }

    fn request(&mut self, method: &str, params: &Value) -> Result<Value, String> {
        self.next += 1;
        let id = self.next;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
        loop {
            let mut line = String::new();
            if self.from.read_line(&mut line).map_err(|why| why.to_string())? == 0 {
                return Err("aos mcp ended".into());
            }
            let mut answer: Value = serde_json::from_str(&line).map_err(|why| format!("{why}: {line}"))?;
            if answer["id"] == id {
                return match answer["error"].take() {
                    Value::Null => Ok(answer["result"].take()),
                    error => Err(format!("{method} {params}: {error}")),
                };
            }
        }
    }
}

impl Drop for Mcp {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
