//! `shell`: a command, its output and how it ended.

use serde_json::{Value, json};

use crate::context::{Receipt, ToolContext};
use crate::cut::BUDGET_BYTES;
use crate::field::Arguments;
use crate::{Failure, Told};

/// A command that a model gave no time ends after this long.
const TIMEOUT_MS_DEFAULT: i64 = 600_000;

pub(crate) fn effect(session: &str, arguments: &Arguments) -> (&'static str, Value) {
    let mut params = arguments.params(session, &["cwd"]);
    params["argv"] = match arguments.get("command") {
        Some(Value::String(line)) => json!(["sh", "-c", line]),
        Some(words) => words.clone(),
        None => json!([]),
    };
    let timeout_ms = arguments.count("timeout_ms").unwrap_or(TIMEOUT_MS_DEFAULT).unsigned_abs();
    params["timeout_ns"] = json!(timeout_ms.saturating_mul(1_000_000));
    ("host.exec", params)
}

pub(crate) fn run(context: &mut ToolContext<'_>, arguments: &Arguments) -> Told {
    let (kind, params) = effect(context.session, arguments);
    let receipt = context.answer(kind, &params)?;
    let stdout = context.show(&receipt.0["stdout"], BUDGET_BYTES / 4 * 3)?;
    let stderr = context.show(&receipt.0["stderr"], BUDGET_BYTES / 4)?;
    let mut shown = stdout.text.trim_end().to_owned();
    if !stderr.text.trim().is_empty() {
        shown.push_str(&format!("{}[stderr]\n{}", between(&shown), stderr.text.trim_end()));
    }
    if receipt.text("status") != "ok" {
        let failure = receipt.failure();
        let code = if receipt.text("status") == "timeout" { "timeout".to_owned() } else { failure.code };
        let message = match (receipt.text("status"), failure.message.is_empty()) {
            ("timeout", true) => "the command ran out of time and was ended".to_owned(),
            ("signaled", true) => format!("the command was ended by {}", receipt.text("signal")),
            _ => failure.message,
        };
        return Err(Failure { code, message, shown, ..failure });
    }
    shown.push_str(&format!("{}{}", between(&shown), ending(&receipt)));
    let mut outcome = receipt.outcome(shown);
    outcome.blobs.extend(stdout.blob.into_iter().chain(stderr.blob));
    Ok(outcome)
}

fn between(text: &str) -> &'static str {
    if text.is_empty() { "" } else { "\n" }
}

/// How it ended, what it changed, and whether that can be undone.
fn ending(receipt: &Receipt) -> String {
    let code = receipt.0["exit_code"].as_i64().unwrap_or(0);
    let mut parts = vec![format!("exit code {code}")];
    let changed = receipt.list("changed_paths");
    if !changed.is_empty() {
        let total = receipt.0["changed_paths_count"].as_u64().unwrap_or(changed.len() as u64);
        let names = changed.iter().take(10).copied().collect::<Vec<_>>().join(", ");
        let more = if total > 10 { format!(" and {} more", total - 10) } else { String::new() };
        parts.push(format!("changed {names}{more}"));
    }
    match receipt.text("coverage") {
        "overlay" | "exact" if !changed.is_empty() => parts.push("`undo` takes it back".to_owned()),
        "scan" if !changed.is_empty() => parts.push("`undo` takes back only new files".to_owned()),
        "none" => parts.push("file changes cannot be undone".to_owned()),
        _ => {}
    }
    format!("[{}]", parts.join("; "))
}
