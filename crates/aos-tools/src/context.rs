//! The context of a tool call: a connection to the daemon, a session and a tool call id.

use std::collections::HashMap;
use std::sync::Mutex;

use aos_model::request::Base64;
use aos_model::text::escape_lines_for_model;
use serde_json::{Map, Value, json};

use crate::daemon::{CallError, DaemonApi, Progress, effect_call};
use crate::truncate::{self, BUDGET_BYTES};
use crate::{Failure, Outcome};

/// What one tool call needs.
pub struct ToolContext<'a> {
    pub daemon: &'a mut dyn DaemonApi,
    pub session: &'a str,
    /// The id under which the changes of this call are captured and can be undone.
    pub tool_call: &'a str,
    pub line_offsets: &'a LineOffsetCache,
    /// Gets a command's output while it runs.
    pub on_progress: &'a mut dyn FnMut(Progress),
}

impl std::fmt::Debug for ToolContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolContext")
            .field("session", &self.session)
            .field("tool_call", &self.tool_call)
            .finish()
    }
}

/// Byte offsets of lines in large files. A front end keeps it between calls, so that the next page of a file is found
/// without reading it from the start.
#[derive(Debug, Default)]
pub struct LineOffsetCache {
    files: Mutex<HashMap<String, LineOffsets>>,
}

/// Known line starts in one version of a file.
#[derive(Debug, Clone, Default)]
pub(crate) struct LineOffsets {
    /// Size and modification time.
    pub(crate) version: (u64, i64),
    /// (lines before it, bytes before it).
    pub(crate) lines: Vec<(u64, u64)>,
}

const FILES_MAX: usize = 64;
const OFFSETS_PER_FILE_MAX: usize = 256;

impl LineOffsetCache {
    /// The last known line start at or before `line`.
    pub(crate) fn before(&self, key: &str, line: u64) -> Option<((u64, i64), (u64, u64))> {
        let files = self.files.lock().expect("BUG: lock poisoned");
        let offsets = files.get(key)?;
        let found = offsets.lines.iter().filter(|start| start.0 <= line).max_by_key(|start| start.0)?;
        Some((offsets.version, *found))
    }

    pub(crate) fn insert(&self, key: String, version: (u64, i64), start: (u64, u64)) {
        let mut files = self.files.lock().expect("BUG: lock poisoned");
        if files.len() >= FILES_MAX && !files.contains_key(&key) {
            files.clear();
        }
        let offsets = files.entry(key).or_default();
        if offsets.version != version || offsets.lines.len() >= OFFSETS_PER_FILE_MAX {
            *offsets = LineOffsets { version, lines: Vec::new() };
        }
        if !offsets.lines.contains(&start) {
            offsets.lines.push(start);
        }
    }
}

/// A result from the daemon.
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
            // A patch has one error per place; the message has the first.
            if !message.contains(detail) {
                message.push_str(&format!("\n  {detail}"));
            }
        }
        Failure { code: code.to_owned(), message, fields: self.fields(), ..Failure::default() }
    }

    /// Warnings of policy, as lines for the model.
    pub(crate) fn warnings(&self) -> String {
        let warnings = self.0["warnings"].as_array().into_iter().flatten();
        let lines = warnings.filter_map(|warning| warning["message"].as_str());
        lines.map(|line| format!("\nWarning: {}", escape_lines_for_model(line))).collect()
    }

    pub(crate) fn outcome(&self, text: impl Into<String>) -> Outcome {
        let text = text.into();
        let warnings = self.warnings();
        let text = if text.is_empty() { warnings.trim_start().to_owned() } else { text + &warnings };
        Outcome { text, failed: false, fields: self.fields(), blobs: Vec::new() }
    }
}

/// A payload of a receipt as text for the model.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    pub(crate) text: String,
    /// The blob with the whole payload, if the text was truncated.
    pub(crate) blob: Option<String>,
}

impl ToolContext<'_> {
    /// Calls an effect; every status but `ok` is a failure.
    pub(crate) fn effect(&mut self, kind: &str, params: &Value) -> Result<Receipt, Failure> {
        let receipt = self.effect_any_status(kind, params)?;
        match receipt.text("status") {
            "ok" => Ok(receipt),
            _ => Err(receipt.failure()),
        }
    }

    /// Calls an effect and returns its receipt, whatever its status.
    pub(crate) fn effect_any_status(&mut self, kind: &str, params: &Value) -> Result<Receipt, Failure> {
        let call = effect_call(kind, &params.to_string(), Some(self.tool_call), None);
        self.request("effect.call", &call)
    }

    /// Calls a method that is not an effect.
    pub(crate) fn query(&mut self, method: &str, params: &Value) -> Result<Receipt, Failure> {
        let receipt = self.request(method, &params.to_string())?;
        match receipt.text("status") {
            "ok" => Ok(receipt),
            _ => Err(receipt.failure()),
        }
    }

    fn request(&mut self, method: &str, params: &str) -> Result<Receipt, Failure> {
        let answer = self.daemon.call(method, params, self.on_progress).map_err(|why| match why {
            CallError::NoAnswer(why) => Failure::new("daemon_gone", why),
            CallError::TooLong(why) => Failure::new("limit_exceeded", why),
        })?;
        serde_json::from_str(&answer).map(Receipt).map_err(|why| Failure::new("daemon_gone", why.to_string()))
    }

    /// Text, bytes or a blob, truncated to the budget: head, tail and the name of the blob.
    pub(crate) fn show(&mut self, payload: &Value, budget: usize) -> Result<Shown, Failure> {
        if let Some(text) = payload.pointer("/inline_text/text").and_then(Value::as_str) {
            return Ok(Shown { text: truncate::fit(text, budget), blob: None });
        }
        if let Some(bytes) = payload.pointer("/inline_bytes/bytes") {
            let bytes: Base64 = serde_json::from_value(bytes.clone()).unwrap_or(Base64(Vec::new()));
            return Ok(Shown { text: truncate::fit(&String::from_utf8_lossy(&bytes.0), budget), blob: None });
        }
        let Some(blob) = payload.pointer("/blob/blob_ref").and_then(Value::as_str) else {
            return Ok(Shown::default());
        };
        let size = payload.pointer("/blob/size_bytes").and_then(Value::as_u64).unwrap_or(0);
        if payload.pointer("/blob/preview_bytes").is_none() {
            let text = format!("({size} bytes, not shown by policy; blob {blob})");
            return Ok(Shown { text, blob: None });
        }
        if size <= budget as u64 {
            return Ok(Shown { text: self.blob_range(blob, 0, size)?, blob: None });
        }
        let (head, tail) = truncate::head_and_tail_bytes(budget);
        let head = self.blob_range(blob, 0, head as u64)?;
        let tail = self.blob_range(blob, size - tail as u64, tail as u64)?;
        Ok(Shown { text: truncate::join(&head, &tail, size, Some(blob)), blob: Some(blob.to_owned()) })
    }

    /// A range of a blob as text.
    fn blob_range(&mut self, blob: &str, offset: u64, bytes: u64) -> Result<String, Failure> {
        let (mut at, end, mut text) = (offset, offset + bytes, String::new());
        while at < end {
            let params = json!({
                "session_id": self.session, "blob_ref": blob, "offset_bytes": at, "max_bytes": end - at,
            });
            let range = self.query("blob.read", &params)?;
            text.push_str(&plain_text(&range.0["content"]));
            match range.0["next_offset_bytes"].as_u64() {
                Some(next) if next > at => at = next,
                _ => break,
            }
        }
        Ok(text)
    }

    /// The payload with the whole budget of a result.
    pub(crate) fn show_in_full_budget(&mut self, payload: &Value) -> Result<Shown, Failure> {
        self.show(payload, BUDGET_BYTES)
    }
}

/// An inline payload as text; invalid UTF-8 is replaced.
pub(crate) fn plain_text(payload: &Value) -> String {
    if let Some(text) = payload.pointer("/inline_text/text").and_then(Value::as_str) {
        return text.to_owned();
    }
    let bytes = payload.pointer("/inline_bytes/bytes").cloned().unwrap_or_default();
    let bytes = serde_json::from_value::<Base64>(bytes).map(|bytes| bytes.0).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
