//! The tools `undo`, `redo`, `history`, `diff`, and those of staged sessions.

use serde_json::{Value, json};

use crate::context::{Receipt, ToolContext};
use crate::field::Arguments;
use crate::truncate::{self, BUDGET_BYTES};
use crate::{Failure, Outcome, ToolResult};
use aos_model::text::{count, escape_for_model};

pub(crate) fn undo(context: &mut ToolContext<'_>, arguments: &Arguments) -> ToolResult {
    let mut params = json!({ "session_id": context.session });
    let (kind, named) = match arguments.text("tool_call") {
        Some(tool_call) => {
            params["scope_id"] = json!(tool_call);
            ("host.fs.restore", format!("tool call {}", escape_for_model(tool_call)))
        }
        None => ("host.fs.rollback", "the last change".to_owned()),
    };
    let receipt = context.effect(kind, &params).map_err(name_conflicts)?;
    Ok(receipt.outcome(restored_text(&receipt, &format!("Undid {named}"))))
}

pub(crate) fn redo(context: &mut ToolContext<'_>) -> ToolResult {
    let params = json!({ "session_id": context.session });
    let receipt = context.effect("host.fs.redo", &params).map_err(name_conflicts)?;
    Ok(receipt.outcome(restored_text(&receipt, "Redid the last undo")))
}

fn restored_text(receipt: &Receipt, what: &str) -> String {
    let (restored, deleted) = (receipt.list("restored_paths"), receipt.list("deleted_paths"));
    if restored.is_empty() && deleted.is_empty() {
        return format!("{what}: the files are already in that state.");
    }
    let mut text = format!(
        "{what}: {} restored, {} deleted.",
        count(receipt.number("restored_paths_count"), "path"),
        receipt.number("deleted_paths_count")
    );
    for path in restored.iter().take(20) {
        text.push_str(&format!("\n  restored {path}"));
    }
    for path in deleted.iter().take(20) {
        text.push_str(&format!("\n  deleted {path}"));
    }
    text
}

/// Adds the receipt's conflicts to the message: which file was changed by which tool call.
fn name_conflicts(mut failure: Failure) -> Failure {
    let conflicts = failure.fields.get("conflicts").and_then(Value::as_array).cloned().unwrap_or_default();
    for conflict in conflicts.iter().take(20) {
        let text = |name: &str| escape_for_model(conflict[name].as_str().unwrap_or_default());
        let line = format!("\n  {} was changed by {}", text("path"), text("changed_by"));
        if !failure.message.contains(line.trim()) {
            failure.message.push_str(&line);
        }
    }
    failure
}

pub(crate) fn history(context: &mut ToolContext<'_>, arguments: &Arguments) -> ToolResult {
    let receipt = context.query("session.history", &json!({ "session_id": context.session }))?;
    let limit = arguments.count("limit").unwrap_or(20).unsigned_abs() as usize;
    let turns: Vec<&Value> = receipt.0["turns"].as_array().into_iter().flatten().collect();
    let lines: Vec<String> = turns.iter().take(limit).flat_map(|turn| turn_lines(turn)).collect();
    let mut text = match lines.is_empty() {
        true => "No tool call has changed files in this session.".to_owned(),
        false => truncate::fit(&lines.join("\n"), BUDGET_BYTES),
    };
    if turns.len() > limit {
        text.push_str(&format!("\n({} older; raise limit to see them)", turns.len() - limit));
    }
    let mut outcome = receipt.outcome(text);
    outcome.fields.insert("turns".into(), json!(turns.len()));
    Ok(outcome)
}

/// `tc_… done edit_file src/a.rs (changed +1 -1)`.
fn turn_lines(turn: &Value) -> Vec<String> {
    let state = turn["state"].as_str().unwrap_or_default();
    let calls = turn["calls"].as_array().into_iter().flatten();
    calls
        .map(|call| {
            let paths = call["paths"].as_array().into_iter().flatten().take(20).map(|path| {
                let lines = match (path["lines_added"].as_u64(), path["lines_removed"].as_u64()) {
                    (Some(added), Some(removed)) => format!(" +{added} -{removed}"),
                    _ => String::new(),
                };
                let text = |name: &str| escape_for_model(path[name].as_str().unwrap_or_default());
                format!("{} ({}{lines})", text("path"), text("change"))
            });
            let kind = call["kind"].as_str().unwrap_or_default();
            let kind = kind.trim_start_matches("host.").trim_start_matches("fs.");
            let id = escape_for_model(call["tool_call_id"].as_str().unwrap_or_default());
            format!("{id} {state} {kind} {}", paths.collect::<Vec<_>>().join(", "))
        })
        .collect()
}

pub(crate) fn diff(context: &mut ToolContext<'_>, arguments: &Arguments) -> ToolResult {
    let params = json!({ "session_id": context.session, "tool_call_id": arguments.text("tool_call") });
    let receipt = context.query("session.diff", &params)?;
    Ok(diff_outcome(&receipt))
}

fn diff_outcome(receipt: &Receipt) -> Outcome {
    let diff = receipt.text("diff").trim_end();
    let text = if diff.is_empty() { "No difference.".to_owned() } else { truncate::fit(diff, BUDGET_BYTES) };
    receipt.outcome(text)
}

pub(crate) fn stage_diff(context: &mut ToolContext<'_>, arguments: &Arguments) -> ToolResult {
    let receipt = context.effect("host.staged.diff", &arguments.params(context.session, &["paths"]))?;
    // A large diff is a blob.
    if receipt.0["diff"].is_object() {
        let shown = context.show_in_full_budget(&receipt.0["diff"])?;
        return Ok(Outcome { blobs: shown.blob.into_iter().collect(), ..receipt.outcome(shown.text) });
    }
    Ok(diff_outcome(&receipt))
}

pub(crate) fn stage_commit(context: &mut ToolContext<'_>, arguments: &Arguments) -> ToolResult {
    let receipt = context
        .effect("host.staged.commit", &arguments.params(context.session, &["paths"]))
        .map_err(name_conflicts)?;
    let paths = receipt.list("changed_paths");
    let names = if paths.is_empty() { String::new() } else { format!(": {}", paths.join(", ")) };
    Ok(receipt.outcome(format!("Wrote the staged changes{names}.")))
}
