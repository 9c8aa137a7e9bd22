//! The tools that look back and take back, and those of staged sessions.

use serde_json::{Value, json};

use crate::context::{Receipt, ToolContext};
use crate::cut::{self, BUDGET_BYTES};
use crate::field::Arguments;
use crate::{Failure, Outcome, Told};
use aos_model::text::count;

pub(crate) fn undo(context: &mut ToolContext<'_>, arguments: &Arguments) -> Told {
    let mut params = json!({ "session_id": context.session });
    let (kind, named) = match arguments.text("tool_call") {
        Some(tool_call) => {
            params["scope_id"] = json!(tool_call);
            ("host.fs.restore", format!("tool call {tool_call}"))
        }
        None => ("host.fs.rollback", "the last change".to_owned()),
    };
    let receipt = context.effect(kind, &params).map_err(name_conflicts)?;
    Ok(receipt.outcome(told(&receipt, &format!("Took back {named}"))))
}

pub(crate) fn redo(context: &mut ToolContext<'_>) -> Told {
    let params = json!({ "session_id": context.session });
    let receipt = context.effect("host.fs.redo", &params).map_err(name_conflicts)?;
    Ok(receipt.outcome(told(&receipt, "Did it again")))
}

fn told(receipt: &Receipt, what: &str) -> String {
    let (restored, deleted) = (receipt.list("restored_paths"), receipt.list("deleted_paths"));
    if restored.is_empty() && deleted.is_empty() {
        return format!("{what}: everything is as it was already.");
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

/// Who changed what meanwhile stands in the receipt beside the sentence.
fn name_conflicts(mut failure: Failure) -> Failure {
    let conflicts = failure.fields.get("conflicts").and_then(Value::as_array).cloned().unwrap_or_default();
    for conflict in conflicts.iter().take(20) {
        let text = |name: &str| conflict[name].as_str().unwrap_or_default();
        let line = format!("\n  {} was changed by {}", text("path"), text("changed_by"));
        if !failure.message.contains(line.trim()) {
            failure.message.push_str(&line);
        }
    }
    failure
}

pub(crate) fn history(context: &mut ToolContext<'_>, arguments: &Arguments) -> Told {
    let receipt = context.question("session.history", &json!({ "session_id": context.session }))?;
    let limit = arguments.count("limit").unwrap_or(20).unsigned_abs() as usize;
    let turns: Vec<&Value> = receipt.0["turns"].as_array().into_iter().flatten().collect();
    let lines: Vec<String> = turns.iter().take(limit).flat_map(|turn| turn_lines(turn)).collect();
    let mut text = match lines.is_empty() {
        true => "Nothing was changed in this session.".to_owned(),
        false => cut::fit(&lines.join("\n"), BUDGET_BYTES),
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
                let text = |name: &str| path[name].as_str().unwrap_or_default();
                format!("{} ({}{lines})", text("path"), text("change"))
            });
            let kind = call["kind"].as_str().unwrap_or_default();
            let kind = kind.trim_start_matches("host.").trim_start_matches("fs.");
            let id = call["tool_call_id"].as_str().unwrap_or_default();
            format!("{id} {state} {kind} {}", paths.collect::<Vec<_>>().join(", "))
        })
        .collect()
}

pub(crate) fn diff(context: &mut ToolContext<'_>, arguments: &Arguments) -> Told {
    let params = json!({ "session_id": context.session, "tool_call_id": arguments.text("tool_call") });
    let receipt = context.question("session.diff", &params)?;
    Ok(shown_diff(&receipt))
}

fn shown_diff(receipt: &Receipt) -> Outcome {
    let diff = receipt.text("diff").trim_end();
    let text = if diff.is_empty() { "No difference.".to_owned() } else { cut::fit(diff, BUDGET_BYTES) };
    receipt.outcome(text)
}

pub(crate) fn stage_diff(context: &mut ToolContext<'_>, arguments: &Arguments) -> Told {
    let receipt = context.effect("host.staged.diff", &arguments.params(context.session, &["paths"]))?;
    // A large one may come by name.
    if receipt.0["diff"].is_object() {
        let shown = context.show_whole(&receipt.0["diff"])?;
        return Ok(Outcome { blobs: shown.blob.into_iter().collect(), ..receipt.outcome(shown.text) });
    }
    Ok(shown_diff(&receipt))
}

pub(crate) fn stage_commit(context: &mut ToolContext<'_>, arguments: &Arguments) -> Told {
    let receipt = context
        .effect("host.staged.commit", &arguments.params(context.session, &["paths"]))
        .map_err(name_conflicts)?;
    let paths = receipt.list("changed_paths");
    let names = if paths.is_empty() { String::new() } else { format!(": {}", paths.join(", ")) };
    Ok(receipt.outcome(format!("Wrote the staged changes{names}.")))
}
