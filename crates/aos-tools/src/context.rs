//! The context of a tool call: one session behind one connection, under one tool call id.

use std::collections::HashMap;
use std::sync::Mutex;

use aos_model::request::Base64;
use serde_json::{Map, Value, json};

use crate::cut::{self, BUDGET_BYTES};
use crate::daemon::{DaemonApi, Progress, effect_call};
use crate::{Failure, Outcome};

/// What one call of a tool works with.
pub struct ToolContext<'a> {
    pub daemon: &'a mut dyn DaemonApi,
    pub session: &'a str,
    /// The id under which everything that this call does is captured and can be undone.
    pub tool_call: &'a str,
    pub memory: &'a Memory,
    /// Gets what a command writes while it runs.
    pub watch: &'a mut dyn FnMut(Progress),
}

impl std::fmt::Debug for ToolContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolContext")
            .field("session", &self.session)
            .field("tool_call", &self.tool_call)
            .finish()
    }
}

/// What a door that lives longer than one call remembers: where in large files certain lines begin.
#[derive(Debug, Default)]
pub struct Memory {
    marks: Mutex<HashMap<String, Marks>>,
}

/// Known beginnings of lines, as long as the file is the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Marks {
    pub(crate) version: (u64, i64),
    /// (lines before it, bytes before it).
    pub(crate) lines: Vec<(u64, u64)>,
}

const FILES_REMEMBERED: usize = 64;
const MARKS_OF_A_FILE: usize = 256;

impl Memory {
    /// The last known beginning of a line that is not behind `line`.
    pub(crate) fn before(&self, key: &str, line: u64) -> Option<((u64, i64), (u64, u64))> {
        let marks = self.marks.lock().expect("BUG: nobody panics remembering");
        let marks = marks.get(key)?;
        let mark = marks.lines.iter().filter(|mark| mark.0 <= line).max_by_key(|mark| mark.0)?;
        Some((marks.version, *mark))
    }

    pub(crate) fn remember(&self, key: String, version: (u64, i64), mark: (u64, u64)) {
        let mut all = self.marks.lock().expect("BUG: nobody panics remembering");
        if all.len() >= FILES_REMEMBERED && !all.contains_key(&key) {
            all.clear();
        }
        let marks = all.entry(key).or_default();
        if marks.version != version || marks.lines.len() >= MARKS_OF_A_FILE {
            *marks = Marks { version, lines: Vec::new() };
        }
        if !marks.lines.contains(&mark) {
            marks.lines.push(mark);
        }
    }
}

/// An answer of the daemon's.
#[derive(Debug, Clone)]
pub(crate) struct Receipt(pub(crate) Value);

impl Receipt {
    pub(crate) fn text(&self, name: &str) -> &str {
        self.0[name].as_str().unwrap_or_default()
    }

    pub(crate) fn number(&self, name: &str) -> u64 {
        self.0[name].as_u64().unwrap_or(0)
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.0[name].as_bool().unwrap_or(false)
    }

    pub(crate) fn list(&self, name: &str) -> Vec<&str> {
        self.0[name].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// The fields that are small enough for a program to read beside the text.
    pub(crate) fn fields(&self) -> Map<String, Value> {
        const BULKY: [&str; 9] =
            ["content", "matches", "paths", "entries", "stdout", "stderr", "diff", "error_message", "turns"];
        let Value::Object(all) = &self.0 else { return Map::new() };
        all.iter()
            .filter(|(name, value)| {
                !BULKY.contains(&name.as_str()) && value.as_array().is_none_or(|list| list.len() <= 50)
            })
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }

    pub(crate) fn failure(&self) -> Failure {
        let code = match self.text("error_code") {
            "" => self.text("status"),
            code => code,
        };
        let mut message = self.text("error_message").to_owned();
        for detail in self.list("errors") {
            // A patch names each place; the message has the first.
            if !message.contains(detail) {
                message.push_str(&format!("\n  {detail}"));
            }
        }
        Failure { code: code.to_owned(), message, fields: self.fields(), ..Failure::default() }
    }

    /// Warnings of policy, for the model to see.
    pub(crate) fn warnings(&self) -> String {
        let warnings = self.0["warnings"].as_array().into_iter().flatten();
        let lines = warnings.filter_map(|warning| warning["message"].as_str());
        lines.map(|line| format!("\nWarning: {line}")).collect()
    }

    pub(crate) fn outcome(&self, text: impl Into<String>) -> Outcome {
        let text = text.into();
        let warnings = self.warnings();
        let text = if text.is_empty() { warnings.trim_start().to_owned() } else { text + &warnings };
        Outcome { text, failed: false, fields: self.fields(), blobs: Vec::new() }
    }
}

/// A payload of a receipt as it is shown.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    pub(crate) text: String,
    /// Where the whole of it is, when it was cut.
    pub(crate) blob: Option<String>,
}

impl ToolContext<'_> {
    /// One effect; only success is a receipt.
    pub(crate) fn effect(&mut self, kind: &str, params: &Value) -> Result<Receipt, Failure> {
        let receipt = self.answer(kind, params)?;
        match receipt.text("status") {
            "ok" => Ok(receipt),
            _ => Err(receipt.failure()),
        }
    }

    /// One effect, whatever came of it.
    pub(crate) fn answer(&mut self, kind: &str, params: &Value) -> Result<Receipt, Failure> {
        let call = effect_call(kind, &params.to_string(), Some(self.tool_call), None);
        self.ask("effect.call", &call)
    }

    /// A question that is no effect.
    pub(crate) fn question(&mut self, method: &str, params: &Value) -> Result<Receipt, Failure> {
        let receipt = self.ask(method, &params.to_string())?;
        match receipt.text("status") {
            "ok" => Ok(receipt),
            _ => Err(receipt.failure()),
        }
    }

    fn ask(&mut self, method: &str, params: &str) -> Result<Receipt, Failure> {
        let gone = |why: String| Failure::new("daemon_gone", why);
        let answer = self.daemon.call(method, params, self.watch).map_err(|why| gone(why.to_string()))?;
        serde_json::from_str(&answer).map(Receipt).map_err(|why| gone(why.to_string()))
    }

    /// Text, bytes or a blob, cut to the budget: its head, its tail and the name of the whole.
    pub(crate) fn show(&mut self, payload: &Value, budget: usize) -> Result<Shown, Failure> {
        if let Some(text) = payload.pointer("/inline_text/text").and_then(Value::as_str) {
            return Ok(Shown { text: cut::fit(text, budget), blob: None });
        }
        if let Some(bytes) = payload.pointer("/inline_bytes/bytes") {
            let bytes: Base64 = serde_json::from_value(bytes.clone()).unwrap_or(Base64(Vec::new()));
            return Ok(Shown { text: cut::fit(&String::from_utf8_lossy(&bytes.0), budget), blob: None });
        }
        let Some(blob) = payload.pointer("/blob/blob_ref").and_then(Value::as_str) else {
            return Ok(Shown::default());
        };
        let size = payload.pointer("/blob/size_bytes").and_then(Value::as_u64).unwrap_or(0);
        if payload.pointer("/blob/preview_bytes").is_none() {
            let text = format!("({size} bytes that policy gives only by name: {blob})");
            return Ok(Shown { text, blob: None });
        }
        if size <= budget as u64 {
            return Ok(Shown { text: self.blob_range(blob, 0, size)?, blob: None });
        }
        let (head, tail) = cut::shares(budget);
        let head = self.blob_range(blob, 0, head as u64)?;
        let tail = self.blob_range(blob, size - tail as u64, tail as u64)?;
        Ok(Shown { text: cut::join(&head, &tail, size, Some(blob)), blob: Some(blob.to_owned()) })
    }

    /// A range of a blob as text.
    fn blob_range(&mut self, blob: &str, offset: u64, bytes: u64) -> Result<String, Failure> {
        let (mut at, end, mut text) = (offset, offset + bytes, String::new());
        while at < end {
            let params = json!({
                "session_id": self.session, "blob_ref": blob, "offset_bytes": at, "max_bytes": end - at,
            });
            let range = self.question("blob.read", &params)?;
            text.push_str(&plain_text(&range.0["content"]));
            match range.0["next_offset_bytes"].as_u64() {
                Some(next) if next > at => at = next,
                _ => break,
            }
        }
        Ok(text)
    }

    /// The whole of a payload that is to be shown with everything else.
    pub(crate) fn show_whole(&mut self, payload: &Value) -> Result<Shown, Failure> {
        self.show(payload, BUDGET_BYTES)
    }
}

/// An inline payload as text, whatever it holds.
pub(crate) fn plain_text(payload: &Value) -> String {
    if let Some(text) = payload.pointer("/inline_text/text").and_then(Value::as_str) {
        return text.to_owned();
    }
    let bytes = payload.pointer("/inline_bytes/bytes").cloned().unwrap_or_default();
    let bytes = serde_json::from_value::<Base64>(bytes).map(|bytes| bytes.0).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
