//! One connection to the daemon: the JSON-RPC client of all tests.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::check::{Outcome, expect};

/// One JSON-RPC request as a line, its newline included.
pub fn request_line(id: impl Into<Value>, method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id.into(), "method": method, "params": params }).to_string() + "\n"
}

/// One `effect.call` as a line, its newline included. `call` is `{ kind, params, … }`.
pub fn effect_line(id: impl Into<Value>, call: &Value) -> String {
    request_line(id, "effect.call", call)
}

/// One JSON-RPC notification as a line, its newline included.
pub fn notification_line(method: &str, params: Option<&Value>) -> String {
    let mut message = json!({ "jsonrpc": "2.0", "method": method });
    if let Some(params) = params {
        message["params"] = params.clone();
    }
    message.to_string() + "\n"
}

/// What a world learns from the answers of its connections.
#[derive(Debug, Default)]
pub struct Record {
    /// All answers, searched for the canary at the end.
    pub answers: Mutex<Vec<String>>,
    /// Receipts that break the contract's shape, whatever their case expected.
    pub malformed: Mutex<Vec<String>>,
}

/// One connection to the daemon of a home.
#[derive(Debug)]
pub struct Client {
    reader: BufReader<UnixStream>,
    next: u64,
    record: Option<Arc<Record>>,
    /// Each answer is searched for this text immediately and not stored, for cases with very many answers.
    canary: Option<String>,
}

impl Client {
    pub fn connect(home: &Path) -> std::io::Result<Client> {
        let stream = UnixStream::connect(home.join("run/aosd.sock"))?;
        Ok(Client { reader: BufReader::new(stream), next: 1, record: None, canary: None })
    }

    /// Keeps every answer in `record`.
    pub fn recorded(mut self, record: Arc<Record>) -> Client {
        self.record = Some(record);
        self
    }

    /// Panics as soon as an answer contains `canary`. Answers are not stored.
    pub fn searched_for(mut self, canary: &str) -> Client {
        self.canary = Some(canary.to_owned());
        self
    }

    pub fn stream(&self) -> &UnixStream {
        self.reader.get_ref()
    }

    /// Sets the read timeout. An answer that does not arrive in time counts as missing.
    pub fn give_up_after(&self, patience: Duration) -> std::io::Result<()> {
        self.stream().set_read_timeout(Some(patience))
    }

    /// Sends raw bytes.
    pub fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.reader.get_ref().write_all(bytes)
    }

    /// The next line with its newline; `None` when the daemon closed the connection or sent only a part of it.
    pub fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        self.reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        if let Some(canary) = &self.canary {
            assert!(!line.contains(canary), "an answer contains the canary");
        } else if let Some(record) = &self.record {
            record.answers.lock().unwrap().push(line.clone());
        }
        Some(line)
    }

    /// The next answer; notifications of running commands are skipped.
    pub fn answer(&mut self) -> Option<Value> {
        loop {
            let line = self.line()?;
            // The daemon may die while it writes.
            let answer: Value = serde_json::from_str(line.strip_suffix('\n')?).expect("an answer is JSON");
            if answer.get("id").is_some() {
                return Some(answer);
            }
        }
    }

    /// The whole answer of a method; `Value::Null` when the connection ended.
    pub fn rpc(&mut self, method: &str, params: Value) -> Value {
        self.envelope(method, &params).unwrap_or_default()
    }

    /// The result of a method; `None` when the daemon ended before it answered.
    pub fn call(&mut self, method: &str, params: &Value) -> Option<Value> {
        self.envelope(method, params).map(|mut answer| answer["result"].take())
    }

    fn envelope(&mut self, method: &str, params: &Value) -> Option<Value> {
        let line = request_line(self.next, method, params);
        self.next += 1;
        self.send(line.as_bytes()).ok()?;
        self.answer()
    }

    /// Sends a line unchanged. Returns the whole answer, or `None` when there is no answer.
    pub fn raw(&mut self, line: &str) -> Option<Value> {
        // The daemon may stop reading before the end; its answer says why.
        let _ = self.send(line.as_bytes());
        let _ = self.send(b"\n");
        serde_json::from_str(&self.line()?).ok()
    }

    /// Sends several requests before it reads the first answer. Returns each answer as received and its result, in the
    /// order of the requests.
    pub fn batch(&mut self, method: &str, all_params: &[Value]) -> Option<Vec<(String, Value)>> {
        let lines: String =
            all_params.iter().enumerate().map(|(id, params)| request_line(id, method, params)).collect();
        self.send(lines.as_bytes()).ok()?;
        let mut answers = vec![(String::new(), Value::Null); all_params.len()];
        let mut missing = all_params.len();
        while missing > 0 {
            let line = self.line()?;
            let mut answer: Value = serde_json::from_str(line.strip_suffix('\n')?).ok()?;
            if let Some(id) = answer["id"].as_u64() {
                answers[id as usize] = (line, answer["result"].take());
                missing -= 1;
            }
        }
        Some(answers)
    }
}

/// Effects.
impl Client {
    /// One effect; its receipt, an error envelope, or `Value::Null` when the daemon died.
    pub fn effect(&mut self, kind: &str, params: Value) -> Value {
        self.effect_of(kind, params, None)
    }

    /// As [`Client::effect`], with a `tool_call_id`.
    pub fn effect_of(&mut self, kind: &str, params: Value, tool_call: Option<&str>) -> Value {
        let mut call = json!({ "kind": kind, "params": params });
        if let Some(id) = tool_call {
            call["tool_call_id"] = json!(id);
        }
        let answer = self.rpc("effect.call", call);
        answer.get("result").cloned().unwrap_or(answer)
    }

    /// One effect; its receipt, or `None` when the daemon died.
    pub fn try_effect(&mut self, kind: &str, params: &Value, tool_call: &str) -> Option<Value> {
        self.call("effect.call", &json!({ "kind": kind, "params": params, "tool_call_id": tool_call }))
    }

    /// Sends an effect and does not wait for its answer. `call` is `{ kind, params, … }`.
    pub fn send_effect(&mut self, id: impl Into<Value>, call: &Value) -> Outcome {
        self.send(effect_line(id, call).as_bytes()).map_err(|why| why.to_string())
    }

    /// One effect whose params are raw text, for JSON that no library would write.
    pub fn raw_effect(&mut self, kind: &str, params: &str) -> Value {
        let call = format!("{{\"kind\":\"{kind}\",\"params\":{params}}}");
        let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"effect.call\",\"params\":{call}}}\n");
        self.send(line.as_bytes()).expect("the daemon reads");
        let answer: Value = self.line().map_or(Value::Null, |line| serde_json::from_str(&line).unwrap());
        answer.get("result").cloned().unwrap_or(answer)
    }

    /// Opens a session on `root`.
    pub fn open(&mut self, root: &Path) -> Result<String, String> {
        self.open_with(&json!({ "target": { "local": { "workdir": root } } }))
    }

    pub fn open_with(&mut self, params: &Value) -> Result<String, String> {
        let receipt = self.try_effect("host.session.open", params, "open").unwrap_or_default();
        let id = receipt["session_id"].as_str().ok_or_else(|| format!("no session: {receipt}"))?;
        Ok(id.to_owned())
    }

    /// `host.fs.<op>` in a session.
    pub fn fs(&mut self, session: &str, op: &str, mut params: Value) -> Value {
        params["session_id"] = json!(session);
        self.effect(&format!("host.fs.{op}"), params)
    }

    /// `host.fs.<op>` that must end in one of `allowed`.
    pub fn must(&mut self, session: &str, op: &str, params: Value, allowed: &[&str]) -> Outcome {
        let what = format!("{op} {params}");
        expect(&what, &self.fs(session, op, params), allowed)
    }

    /// Records a receipt that breaks the contract's shape; the world reports it at the end of the case.
    pub(crate) fn report_malformed(&self, complaint: String) {
        if let Some(record) = &self.record {
            record.malformed.lock().unwrap().push(complaint);
        }
    }
}
