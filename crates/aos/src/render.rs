//! Formats output for people: styles, times and one-line summaries, escaped for terminals.

use anstyle::{AnsiColor, Style};
use aos_model::text::escape;
use serde_json::Value;

pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const STRONG: Style = Style::new().bold();

/// RFC 3339 with milliseconds.
pub(crate) fn time(at_ns: u64) -> String {
    match jiff::Timestamp::from_nanosecond(i128::from(at_ns)) {
        Ok(time) => format!("{time:.3}"),
        Err(_) => at_ns.to_string(),
    }
}

pub(crate) fn status_style(status: &str) -> Style {
    match status {
        "ok" | "ready" | "signaled" | "already_exited" => GOOD,
        _ => BAD,
    }
}

/// A one-line summary of a request: its path, pattern, command or files.
pub(crate) fn subject(params: &Value) -> String {
    let text = |name: &str| params.get(name).and_then(Value::as_str);
    if let Some(workdir) = params.pointer("/target/local/workdir").and_then(Value::as_str) {
        return escape(workdir);
    }
    if let Some(patch) = params.pointer("/patch/inline_text/text").and_then(Value::as_str) {
        return patched_files(patch);
    }
    if let Some(argv) = params.get("argv").and_then(Value::as_array) {
        let argv: Vec<&str> = argv.iter().filter_map(Value::as_str).collect();
        return escape(&argv.join(" ").chars().take(200).collect::<String>());
    }
    if let Some(pattern) = text("pattern") {
        let short: String = escape(pattern).chars().take(100).collect();
        return text("path").map_or(format!("`{short}`"), |path| format!("`{short}` in {}", escape(path)));
    }
    match (text("path"), text("from"), text("to")) {
        (Some(path), ..) => escape(path),
        (_, Some(from), Some(to)) => format!("{} → {}", escape(from), escape(to)),
        _ => text("signal").or(text("blob_ref")).or(text("reason")).map(escape).unwrap_or_default(),
    }
}

/// The files in a patch, the first three by name.
fn patched_files(patch: &str) -> String {
    let name =
        |line: &str| line.strip_prefix("*** ")?.split_once(" File: ").map(|(_, path)| escape(path.trim()));
    let names: Vec<String> = patch.lines().filter_map(name).collect();
    match names.len() {
        0..=3 => names.join(", "),
        n => format!("{}, … ({n} files)", names[..3].join(", ")),
    }
}
