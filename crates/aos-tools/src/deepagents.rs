//! The `deepagents` profile: tools on a virtual tree, with the literal texts that existing users match on.

use aos_model::text::escape_for_model;
use serde_json::{Value, json};

use crate::context::{Receipt, ToolContext};
use crate::field::Arguments;
use crate::pages::{self, PAGE_LINES_MAX, PageRequest};
use crate::{Failure, ToolResult};

const SEGMENTS_MAX: usize = 16;
const SEGMENT_CHARS_MAX: usize = 80;
const CONTENT_CHARS_MAX: usize = 48_000;
/// Bounds the memory of a page, whose limit is in lines.
const PAGE_BYTES_MAX: usize = 4 << 20;

/// Matches and paths of one call. The original tools have no limit.
const RESULTS_MAX: u64 = 10_000;

const MISSING: &str = "File does not exist in the virtual filesystem.";

/// A path of the tree, without a leading slash; the root is empty.
fn normalize(raw: Option<&str>, field: &str, accept_root: bool) -> Result<String, Failure> {
    let text = raw.unwrap_or_default().trim();
    if text.is_empty() && !accept_root {
        return Err(Failure::verbatim(format!("{field} must not be empty.")));
    }
    let segments: Vec<&str> = text.split('/').map(str::trim).filter(|segment| !segment.is_empty()).collect();
    for segment in &segments {
        let error = match *segment {
            "." | ".." => "Path segments may not include '.' or '..'.",
            segment if !segment.is_ascii() => "Path segment must be ASCII text.",
            segment if segment.len() > SEGMENT_CHARS_MAX => "Path segments must be 80 characters or fewer.",
            _ => continue,
        };
        return Err(Failure::verbatim(error));
    }
    if segments.len() > SEGMENTS_MAX {
        return Err(Failure::verbatim("Path depth exceeds the allowed limit (16 segments)."));
    }
    if segments.is_empty() && !accept_root {
        return Err(Failure::verbatim(format!("{field} must reference a file or directory.")));
    }
    Ok(segments.join("/"))
}

/// A path as shown in texts: the root is `/`.
fn display_path(path: &str) -> String {
    if path.is_empty() { "/".to_owned() } else { escape_for_model(path) }
}

/// The params of an effect on a folder; for the root, `path` is left out.
fn folder_params(context: &ToolContext<'_>, path: &str) -> Value {
    let mut params = json!({ "session_id": context.session });
    if !path.is_empty() {
        params["path"] = json!(path);
    }
    params
}

/// Replaces the message of a failure whose code has a text of this profile.
fn with_profile_text(failure: Failure, texts: &[(&str, &str)]) -> Failure {
    match texts.iter().find(|(code, _)| *code == failure.code) {
        Some((_, text)) => Failure { fields: failure.fields, ..Failure::verbatim(*text) },
        None => failure,
    }
}

/// `1 match`, `2 matches`.
fn plural(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

fn lines_of(context: &mut ToolContext<'_>, receipt: &Receipt, name: &str) -> Result<Vec<String>, Failure> {
    let shown = context.show(&receipt.0[name], PAGE_BYTES_MAX)?;
    Ok(shown.text.lines().map(str::to_owned).collect())
}

fn with_lines(message: String, lines: &[String]) -> String {
    if lines.is_empty() { message } else { format!("{message}\n{}", lines.join("\n")) }
}

pub(crate) fn ls(context: &mut ToolContext<'_>, arguments: &Arguments) -> ToolResult {
    let path = normalize(arguments.text("path"), "path", true)?;
    let params = folder_params(context, &path);
    let texts =
        [("path_not_found", MISSING), ("not_directory", "Cannot list a file path; provide a directory.")];
    let receipt =
        context.effect("host.fs.list_dir", &params).map_err(|failure| with_profile_text(failure, &texts))?;
    let entries = lines_of(context, &receipt, "entries")?;
    let folders = entries.iter().filter(|entry| entry.ends_with('/')).count();
    let message = format!(
        "Listed directory {} ({}, {}).",
        display_path(&path),
        plural(folders, "subdir", "subdirs"),
        plural(entries.len() - folders, "file", "files")
    );
    Ok(receipt.outcome(with_lines(message, &entries)))
}

pub(crate) fn read(context: &mut ToolContext<'_>, arguments: &Arguments) -> ToolResult {
    let path = normalize(arguments.text("file_path"), "file_path", false)?;
    let (offset, limit) =
        (arguments.count("offset").unwrap_or(0), arguments.count("limit").unwrap_or(PAGE_LINES_MAX as i64));
    if offset < 0 {
        return Err(Failure::verbatim("offset must be non-negative."));
    }
    if limit <= 0 {
        return Err(Failure::verbatim("limit must be a positive integer."));
    }
    let request = PageRequest {
        offset: offset.unsigned_abs(),
        limit: limit.unsigned_abs().min(PAGE_LINES_MAX),
        budget_bytes: PAGE_BYTES_MAX,
    };
    let texts = [("path_not_found", MISSING), ("is_directory", MISSING)];
    let page = pages::read(context, &path, request).map_err(|failure| with_profile_text(failure, &texts))?;
    let message = match page.lines {
        0 => format!("Read file {} (no lines returned).", display_path(&path)),
        _ => format!("Read file {} (lines {}-{}).", display_path(&path), page.start + 1, page.end()),
    };
    let text = format!("{message}\n{}", page.numbered);
    Ok(page.outcome(text.trim_end_matches('\n').to_owned()))
}

pub(crate) fn write(context: &mut ToolContext<'_>, arguments: &Arguments) -> ToolResult {
    let path = normalize(arguments.text("file_path"), "file_path", false)?;
    let content = arguments.text("content").unwrap_or_default();
    if content.chars().count() > CONTENT_CHARS_MAX {
        return Err(Failure::verbatim("Content exceeds maximum length of 48,000 characters."));
    }
    let params = json!({
        "session_id": context.session, "path": path, "mode": "create_new", "create_parents": true,
        "content": { "inline_text": { "text": content } },
    });
    let texts = [("file_exists", "File already exists; use edit_file to modify existing content.")];
    let receipt = context
        .effect("host.fs.write_file", &params)
        .map_err(|failure| with_profile_text(failure, &texts))?;
    Ok(receipt.outcome(format!("Created {} ({} bytes).", display_path(&path), content.len())))
}

/// Replaces exact matches only; the effect itself tolerates differences in white space.
pub(crate) fn edit(context: &mut ToolContext<'_>, arguments: &Arguments) -> ToolResult {
    let path = normalize(arguments.text("file_path"), "file_path", false)?;
    let (old, new) =
        (arguments.text("old_string").unwrap_or_default(), arguments.text("new_string").unwrap_or_default());
    if old.is_empty() {
        return Err(Failure::verbatim("old_string must not be empty."));
    }
    if [old, new].iter().any(|text| text.chars().count() > CONTENT_CHARS_MAX) {
        return Err(Failure::verbatim("Replacement strings must be 48,000 characters or fewer."));
    }
    let texts = [("path_not_found", MISSING), ("is_directory", MISSING)];
    let text = pages::read_all(context, &path, aos_model::limits::EDIT_FILE_BYTES_MAX)
        .map_err(|failure| with_profile_text(failure, &texts))?;
    match text.matches(old).count() {
        0 => return Err(Failure::verbatim("old_string not found in the target file.")),
        1 => {}
        _ if arguments.flag("replace_all") => {}
        _ => {
            let why = "old_string must match exactly once unless replace_all is true.";
            return Err(Failure::verbatim(why));
        }
    }
    let params = json!({
        "session_id": context.session, "path": path, "old_string": old, "new_string": new,
        "replace_all": arguments.flag("replace_all"),
        "expected_hash": aos_model::request::content_hash(text.as_bytes()),
    });
    let receipt =
        context.effect("host.fs.edit_file", &params).map_err(|failure| with_profile_text(failure, &texts))?;
    let replaced = plural(receipt.number("replacements") as usize, "occurrence", "occurrences");
    Ok(receipt.outcome(format!("Replaced {replaced} in {}.", display_path(&path))))
}

pub(crate) fn glob(context: &mut ToolContext<'_>, arguments: &Arguments) -> ToolResult {
    let base = normalize(arguments.text("path"), "path", true)?;
    let pattern = arguments.text("pattern").unwrap_or_default().trim();
    if pattern.is_empty() {
        return Err(Failure::verbatim("Pattern must not be empty."));
    }
    let mut params = folder_params(context, &base);
    params["pattern"] = json!(pattern);
    params["max_results"] = json!(RESULTS_MAX);
    let texts = [("path_not_found", MISSING)];
    let receipt =
        context.effect("host.fs.glob", &params).map_err(|failure| with_profile_text(failure, &texts))?;
    let mut paths = lines_of(context, &receipt, "paths")?;
    paths.sort_unstable();
    let found = plural(paths.len(), "match", "matches");
    let message =
        format!("Found {found} under {} for pattern '{}'.", display_path(&base), escape_for_model(pattern));
    Ok(receipt.outcome(with_lines(message, &paths)))
}

pub(crate) fn grep(context: &mut ToolContext<'_>, arguments: &Arguments) -> ToolResult {
    let base = normalize(arguments.text("path"), "path", true)?;
    let pattern = arguments.text("pattern").unwrap_or_default();
    if pattern.is_empty() {
        return Err(Failure::verbatim("Pattern must not be empty."));
    }
    let mut params = folder_params(context, &base);
    params["pattern"] = json!(pattern);
    params["max_results"] = json!(RESULTS_MAX);
    if let Some(filter) = arguments.text("glob") {
        params["glob_filter"] = json!(filter);
    }
    let texts = [("path_not_found", MISSING)];
    let receipt = context.effect("host.fs.grep", &params).map_err(|failure| match failure.code.as_str() {
        "invalid_regex" => Failure::verbatim(format!("Invalid regular expression: {}", failure.message)),
        _ => with_profile_text(failure, &texts),
    })?;
    let matches = lines_of(context, &receipt, "matches")?;
    let found = plural(matches.len(), "match", "matches");
    Ok(receipt
        .outcome(with_lines(format!("Found {found} for pattern '{}'.", escape_for_model(pattern)), &matches)))
}

pub(crate) fn rm(context: &mut ToolContext<'_>, arguments: &Arguments) -> ToolResult {
    let path = normalize(arguments.text("path"), "path", false)?;
    let params = json!({ "session_id": context.session, "path": path, "recursive": true });
    let texts = [("path_not_found", "No files matched the provided path.")];
    let receipt =
        context.effect("host.fs.remove", &params).map_err(|failure| with_profile_text(failure, &texts))?;
    let removed = plural(receipt.number("removed") as usize, "entry", "entries");
    Ok(receipt.outcome(format!("Deleted {removed} under {}.", display_path(&path))))
}
