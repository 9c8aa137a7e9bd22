//! The tool `shell`: runs a command and returns its output and exit code.

use aos_model::text::escape_for_model;
use serde_json::{Value, json};

use crate::context::{Receipt, ToolContext};
use crate::field::Arguments;
use crate::truncate::BUDGET_BYTES;
use crate::{Failure, ToolResult};

/// The timeout of a command when the model sets none.
const TIMEOUT_MS_DEFAULT: i64 = 600_000;

pub(crate) fn effect(session: &str, arguments: &Arguments) -> (&'static str, Value) {
    let mut params = arguments.params(session, &["cwd"]);
    params["argv"] = match arguments.get("command") {
        Some(Value::String(line)) => json!(["sh", "-c", line]),
        Some(argv) => argv.clone(),
        None => json!([]),
    };
    let timeout_ms = arguments.count("timeout_ms").unwrap_or(TIMEOUT_MS_DEFAULT).unsigned_abs();
    params["timeout_ns"] = json!(timeout_ms.saturating_mul(1_000_000));
    ("host.exec", params)
}

pub(crate) fn run(context: &mut ToolContext<'_>, arguments: &Arguments) -> ToolResult {
    let (kind, params) = effect(context.session, arguments);
    let receipt = context.effect_any_status(kind, &params)?;
    let stdout = context.show(&receipt.0["stdout"], BUDGET_BYTES / 4 * 3)?;
    let stderr = context.show(&receipt.0["stderr"], BUDGET_BYTES / 4)?;
    let mut shown = stdout.text.trim_end().to_owned();
    if !stderr.text.trim().is_empty() {
        shown.push_str(&format!("{}[stderr]\n{}", separator(&shown), stderr.text.trim_end()));
    }
    if receipt.text("status") != "ok" {
        let failure = receipt.failure();
        let code = if receipt.text("status") == "timeout" { "timeout".to_owned() } else { failure.code };
        let message = match (receipt.text("status"), failure.message.is_empty()) {
            ("timeout", true) => "the command exceeded its timeout and was ended".to_owned(),
            ("signaled", true) => format!("the command was ended by {}", receipt.text("signal")),
            _ => failure.message,
        };
        return Err(Failure { code, message, shown, ..failure });
    }
    shown.push_str(&format!("{}{}", separator(&shown), exit_summary(&receipt)));
    let mut outcome = receipt.outcome(shown);
    outcome.blobs.extend(stdout.blob.into_iter().chain(stderr.blob));
    Ok(outcome)
}

fn separator(text: &str) -> &'static str {
    if text.is_empty() { "" } else { "\n" }
}

/// The exit code, the changed paths, and whether they can be undone.
fn exit_summary(receipt: &Receipt) -> String {
    let code = receipt.0["exit_code"].as_i64().unwrap_or(0);
    let mut parts = vec![format!("exit code {code}")];
    let changed = receipt.list("changed_paths");
    if !changed.is_empty() {
        let total = receipt.0["changed_paths_count"].as_u64().unwrap_or(changed.len() as u64);
        let names = changed.iter().take(10).map(|path| escape_for_model(path)).collect::<Vec<_>>().join(", ");
        let more = if total > 10 { format!(" and {} more", total - 10) } else { String::new() };
        parts.push(format!("changed {names}{more}"));
    }
    match receipt.text("coverage") {
        "overlay" | "exact" if !changed.is_empty() => parts.push("`undo` reverts it".to_owned()),
        "scan" if !changed.is_empty() => parts.push("`undo` removes only new files".to_owned()),
        "none" => parts.push("file changes cannot be undone".to_owned()),
        _ => {}
    }
    format!("[{}]", parts.join("; "))
}
