//! Text for people: escaped control characters (I11) and unified diffs.

use similar::TextDiff;

use crate::limits::{DIFF_BYTES_MAX, DIFF_FILE_BYTES_MAX};

/// Whether a character could move the cursor, reorder text, or be there without being seen: control characters, bidi
/// controls, line separators, and what Unicode calls default ignorable (zero-width and tag characters, fillers). The
/// selectors of emoji and text presentation are left alone: they are in ordinary text.
fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0d}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Writes each hostile character, except those to keep, with `write`.
fn replace_hostile(text: &str, keep: &[char], mut write: impl FnMut(&mut String, char)) -> String {
    let is_kept = |c: char| !is_hostile(c) || keep.contains(&c);
    if text.chars().all(is_kept) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_kept(c) {
            out.push(c);
        } else {
            write(&mut out, c);
        }
    }
    out
}

fn write_escaped(out: &mut String, c: char) {
    match c {
        '\n' => out.push_str("\\n"),
        '\t' => out.push_str("\\t"),
        '\r' => out.push_str("\\r"),
        c => out.extend(c.escape_unicode()),
    }
}

/// Escapes what could control a terminal or deceive a reader, so that the text stays on one line and nothing in it is
/// invisible.
pub fn escape(text: &str) -> String {
    replace_hostile(text, &[], write_escaped)
}

/// Like [`escape`], but keeps line ends and tabs.
pub fn escape_lines(text: &str) -> String {
    replace_hostile(text, &['\n', '\t'], write_escaped)
}

/// JSON with the same characters written as `\\uNNNN`: the same value.
pub fn escape_json(json: &str) -> String {
    replace_hostile(json, &['\n'], |out, c| {
        let mut units = [0; 2];
        c.encode_utf16(&mut units).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
    })
}

/// Escapes text for a model, on one line. A character is written as its bytes, `\xNN`: in a path this names the same file
/// in a request (see [`crate::path::show`]).
pub fn escape_for_model(text: &str) -> String {
    replace_hostile(text, &[], write_bytes)
}

/// Like [`escape_for_model`], but keeps line ends and tabs.
pub fn escape_lines_for_model(text: &str) -> String {
    replace_hostile(text, &['\n', '\t'], write_bytes)
}

fn write_bytes(out: &mut String, c: char) {
    c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| out.push_str(&format!("\\x{byte:02x}")));
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
        assert_eq!(escape_lines("literal \\t and \\n"), "literal \\t and \\n");
        assert_eq!(escape_json("{\"a\":\"\u{202e}\u{9b}\"}"), r#"{"a":"\u202e\u009b"}"#);
    }

    #[test]
    fn what_cannot_be_seen_is_escaped() {
        assert_eq!(escape("a\u{200b}b\u{e0041}"), "a\\u{200b}b\\u{e0041}");
        assert_eq!(escape_for_model("a\u{200b}b\n"), "a\\xe2\\x80\\x8bb\\x0a");
        assert_eq!(escape_lines_for_model("a\u{202e}\n\tb"), "a\\xe2\\x80\\xae\n\tb");
        let tag = escape_json("\"\u{e0041}\"");
        assert!(tag.is_ascii() && serde_json::from_str::<String>(&tag).unwrap() == "\u{e0041}", "{tag}");
        for plain in ["é ü ß", "日本語", "❤\u{fe0f}", "العربية", "no\u{a0}break"] {
            assert_eq!(escape(plain), plain);
        }
    }

    #[test]
    fn a_diff_names_both_sides() {
        assert_eq!(diff("f", Some(b"a\n"), Some(b"b\n")), "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n");
        assert!(diff("f", None, Some(b"b\n")).starts_with("--- /dev/null\n+++ b/f\n"));
        assert_eq!(diff("f", Some(b"\xff"), None), "Binary files a/f and /dev/null differ\n");
        assert_eq!(diff("f", Some(b"a"), Some(b"a")), "");
    }
}
