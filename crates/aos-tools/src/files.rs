//! The tools on files and folders: read, write, edit, patch, list, stat, remove.

use serde_json::{Value, json};

use crate::ToolResult;
use crate::context::ToolContext;
use crate::field::Arguments;
use crate::pages::{self, PAGE_LINES_MAX, PageRequest};
use crate::truncate::BUDGET_BYTES;
use aos_model::text::{count, escape_for_model};

pub(crate) fn read(context: &mut ToolContext<'_>, arguments: &Arguments) -> ToolResult {
    let path = path_of(arguments);
    let request = PageRequest {
        offset: arguments.count("offset").unwrap_or(0).unsigned_abs(),
        limit: arguments.count("limit").map_or(PAGE_LINES_MAX, i64::unsigned_abs).min(PAGE_LINES_MAX),
        budget_bytes: BUDGET_BYTES,
    };
    let mut page = pages::read(context, path, request)?;
    let mut text = std::mem::take(&mut page.numbered);
    if page.lines == 0 {
        text = match page.start {
            0 => "(the file is empty)".to_owned(),
            lines => format!("(no lines there: the file has {})", count(lines, "line")),
        };
    } else if page.more {
        text.push_str(&format!(
            "(lines {}-{} shown, the file has more; continue with offset={})",
            page.start + 1,
            page.end(),
            page.end()
        ));
    }
    text.truncate(text.trim_end_matches('\n').len());
    let mut outcome = page.outcome(text);
    outcome.fields.insert("first_line".into(), json!(page.start + 1));
    outcome.fields.insert("lines".into(), json!(page.lines));
    outcome.fields.insert("truncated".into(), json!(page.more));
    outcome.fields.remove("next_offset_bytes");
    Ok(outcome)
}

fn path_of(arguments: &Arguments) -> &str {
    arguments.text("path").unwrap_or(".")
}

/// The path as receipts spell it.
fn shown_path(arguments: &Arguments) -> String {
    escape_for_model(path_of(arguments))
}

pub(crate) fn write_effect(session: &str, arguments: &Arguments) -> (&'static str, Value) {
    let mut params = arguments.params(session, &["path", "mode", "executable"]);
    params["content"] = json!({ "inline_text": { "text": arguments.text("content") } });
    params["create_parents"] = arguments.get("create_parents").cloned().unwrap_or(json!(true));
    ("host.fs.write_file", params)
}

pub(crate) fn write(context: &mut ToolContext<'_>, arguments: &Arguments) -> ToolResult {
    let (kind, params) = write_effect(context.session, arguments);
    let receipt = context.effect(kind, &params)?;
    let verb = match (receipt.flag("created"), arguments.text("mode")) {
        (true, _) => "Created",
        (false, Some("append")) => "Appended to",
        (false, _) => "Wrote",
    };
    let bytes = count(receipt.number("written_bytes"), "byte");
    Ok(receipt.outcome(format!("{verb} {} ({bytes}).", shown_path(arguments))))
}

pub(crate) fn edit_effect(session: &str, arguments: &Arguments) -> (&'static str, Value) {
    let names = ["path", "old_string", "new_string", "replace_all", "edits"];
    ("host.fs.edit_file", arguments.params(session, &names))
}

pub(crate) fn edit(context: &mut ToolContext<'_>, arguments: &Arguments) -> ToolResult {
    let (kind, mut params) = edit_effect(context.session, arguments);
    params["with_diff"] = json!(true);
    let receipt = context.effect(kind, &params)?;
    let (summary, diff) = (receipt.text("summary_text"), receipt.text("diff"));
    Ok(receipt.outcome(with_diff(summary, diff)))
}

/// The summary, and the diff if it is short.
fn with_diff(summary: &str, diff: &str) -> String {
    const DIFF_BYTES_SHOWN: usize = 4_000;
    let hunks = diff.find("@@").map(|start| diff[start..].trim_end());
    match hunks {
        Some(hunks) if hunks.len() <= DIFF_BYTES_SHOWN => format!("{summary}\n{hunks}"),
        _ => summary.to_owned(),
    }
}

pub(crate) fn patch_effect(session: &str, arguments: &Arguments) -> (&'static str, Value) {
    let mut params = arguments.params(session, &["dry_run"]);
    params["patch"] = json!({ "inline_text": { "text": arguments.text("patch") } });
    ("host.fs.apply_patch", params)
}

pub(crate) fn patch(context: &mut ToolContext<'_>, arguments: &Arguments) -> ToolResult {
    let (kind, params) = patch_effect(context.session, arguments);
    let receipt = context.effect(kind, &params)?;
    let mut text = receipt.text("summary_text").to_owned();
    let changed = receipt.list("changed_paths");
    if !changed.iter().all(|path| text.contains(path)) {
        text.push_str(&format!("\n{}", changed.join("\n")));
    }
    Ok(receipt.outcome(text))
}

pub(crate) fn list_effect(session: &str, arguments: &Arguments) -> (&'static str, Value) {
    ("host.fs.list_dir", arguments.params_below(session, &["path", "max_results"]))
}

pub(crate) fn list(context: &mut ToolContext<'_>, arguments: &Arguments) -> ToolResult {
    let (kind, params) = list_effect(context.session, arguments);
    let receipt = context.effect(kind, &params)?;
    let shown = context.show_in_full_budget(&receipt.0["entries"])?;
    let mut text = shown.text.trim_end().to_owned();
    if text.is_empty() {
        text = "(the folder is empty)".to_owned();
    } else if receipt.flag("truncated") {
        text.push_str(&format!(
            "\n(truncated after {} entries; list a subfolder, or use glob)",
            receipt.number("count")
        ));
    }
    let mut outcome = receipt.outcome(text);
    outcome.blobs.extend(shown.blob);
    Ok(outcome)
}

pub(crate) fn stat_effect(session: &str, arguments: &Arguments) -> (&'static str, Value) {
    ("host.fs.stat", arguments.params(session, &["path", "no_follow"]))
}

pub(crate) fn stat(context: &mut ToolContext<'_>, arguments: &Arguments) -> ToolResult {
    let (kind, params) = stat_effect(context.session, arguments);
    let receipt = context.effect(kind, &params)?;
    let kind = match receipt.text("kind") {
        "dir" => "folder",
        "symlink" => "link",
        "other" => "special file",
        kind => kind,
    };
    let (size, mode) = (count(receipt.number("size_bytes"), "byte"), receipt.number("mode"));
    Ok(receipt.outcome(format!("{}: {kind}, {size}, mode {mode:o}", shown_path(arguments))))
}

pub(crate) fn remove_effect(session: &str, arguments: &Arguments) -> (&'static str, Value) {
    ("host.fs.remove", arguments.params(session, &["path", "recursive"]))
}

pub(crate) fn remove(context: &mut ToolContext<'_>, arguments: &Arguments) -> ToolResult {
    let (kind, params) = remove_effect(context.session, arguments);
    let receipt = context.effect(kind, &params)?;
    let files = count(receipt.number("removed"), "file");
    Ok(receipt.outcome(format!("Removed {} ({files}).", shown_path(arguments))))
}
