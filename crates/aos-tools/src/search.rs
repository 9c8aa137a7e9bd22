//! The tools `grep` and `glob`.

use aos_model::text::escape_lines_for_model;
use serde_json::Value;

use crate::ToolResult;
use crate::context::ToolContext;
use crate::field::Arguments;

pub(crate) fn grep_effect(session: &str, arguments: &Arguments) -> (&'static str, Value) {
    const NAMES: [&str; 9] = [
        "pattern",
        "path",
        "glob_filter",
        "case_insensitive",
        "fixed_strings",
        "context_lines",
        "files_only",
        "include_ignored",
        "max_results",
    ];
    ("host.fs.grep", arguments.params_below(session, &NAMES))
}

pub(crate) fn grep(context: &mut ToolContext<'_>, arguments: &Arguments) -> ToolResult {
    let (kind, params) = grep_effect(context.session, arguments);
    search(context, kind, &params, "matches")
}

pub(crate) fn glob_effect(session: &str, arguments: &Arguments) -> (&'static str, Value) {
    ("host.fs.glob", arguments.params_below(session, &["pattern", "path", "include_ignored", "max_results"]))
}

pub(crate) fn glob(context: &mut ToolContext<'_>, arguments: &Arguments) -> ToolResult {
    let (kind, params) = glob_effect(context.session, arguments);
    search(context, kind, &params, "paths")
}

fn search(context: &mut ToolContext<'_>, kind: &str, params: &Value, list: &str) -> ToolResult {
    let receipt = context.effect(kind, params)?;
    let shown = context.show_in_full_budget(&receipt.0[list])?;
    let mut text = shown.text.trim_end_matches('\n').to_owned();
    let summary = escape_lines_for_model(receipt.text("summary_text"));
    if text.is_empty() {
        text = summary;
    } else if receipt.flag("truncated") {
        text.push_str(&format!("\n({summary}; there are more: narrow the search, or raise max_results)"));
    }
    let mut outcome = receipt.outcome(text);
    outcome.blobs.extend(shown.blob);
    Ok(outcome)
}
