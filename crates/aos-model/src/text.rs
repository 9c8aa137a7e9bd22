//! Text for people: escaped control characters (I11) and unified diffs.

use similar::TextDiff;

use crate::limits::{DIFF_BYTES_MAX, DIFF_FILE_BYTES_MAX};

/// Whether a character could move the cursor, hide text or reorder it on a terminal.
fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
}

/// Escapes C0, C1 and bidi controls, so that the text stays on one line and cannot control a terminal.
pub fn escape(text: &str) -> String {
    if !text.chars().any(is_hostile) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if is_hostile(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// JSON with its C1 and bidi controls written as `\\uNNNN`: the same value, safe on a terminal.
pub fn escape_json(json: &str) -> String {
    let is_plain = |c: char| !is_hostile(c) || c == '\n';
    if json.chars().all(is_plain) {
        return json.to_owned();
    }
    let escaped = |c: char| if is_plain(c) { c.to_string() } else { format!("\\u{:04x}", c as u32) };
    json.chars().map(escaped).collect()
}

/// Like [`escape`], but keeps line ends and tabs.
pub fn escape_lines(text: &str) -> String {
    text.split('\n').map(|line| escape(line).replace("\\t", "\t")).collect::<Vec<_>>().join("\n")
}

/// A unified diff of one file; `None` is an absent file.
pub fn diff(path: &str, before: Option<&[u8]>, after: Option<&[u8]>) -> String {
    if before == after {
        return String::new();
    }
    let (old_name, new_name) = (
        before.map_or("/dev/null".to_owned(), |_| format!("a/{path}")),
        after.map_or("/dev/null".to_owned(), |_| format!("b/{path}")),
    );
    let (old, new) = (before.unwrap_or_default(), after.unwrap_or_default());
    let (Ok(old_text), Ok(new_text)) = (std::str::from_utf8(old), std::str::from_utf8(new)) else {
        return format!("Binary files {old_name} and {new_name} differ\n");
    };
    if old.len() + new.len() > DIFF_FILE_BYTES_MAX {
        return format!(
            "Files {old_name} and {new_name} differ ({} and {} bytes, too large to show)\n",
            old.len(),
            new.len()
        );
    }
    let lines = TextDiff::from_lines(old_text, new_text);
    let mut shown = lines.unified_diff().context_radius(3).header(&old_name, &new_name).to_string();
    if shown.len() > DIFF_BYTES_MAX {
        let mut end = DIFF_BYTES_MAX;
        while !shown.is_char_boundary(end) {
            end -= 1;
        }
        shown.truncate(end);
        shown.push_str("\n… (diff cut)\n");
    }
    shown
}

/// `1 file`, `2 files`.
pub fn count(n: u64, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escape("a\nb\x1b[2J\u{202e}"), "a\\nb\\u{1b}[2J\\u{202e}");
        assert_eq!(escape("plain é"), "plain é");
        assert_eq!(escape_lines("a\tb\nc\x07"), "a\tb\nc\\u{7}");
        assert_eq!(escape_json("{\"a\":\"\u{202e}\u{9b}\"}"), r#"{"a":"\u202e\u009b"}"#);
    }

    #[test]
    fn a_diff_names_both_sides() {
        assert_eq!(diff("f", Some(b"a\n"), Some(b"b\n")), "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n");
        assert!(diff("f", None, Some(b"b\n")).starts_with("--- /dev/null\n+++ b/f\n"));
        assert_eq!(diff("f", Some(b"\xff"), None), "Binary files a/f and /dev/null differ\n");
        assert_eq!(diff("f", Some(b"a"), Some(b"a")), "");
    }
}
