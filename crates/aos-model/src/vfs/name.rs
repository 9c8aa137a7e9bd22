//! Paths and contents of a virtual tree: ASCII names, never `.` or `..`, and UTF-8 text of a bounded length.

use crate::limits::{VFS_CONTENT_CHARACTERS_MAX, VFS_SEGMENT_CHARACTERS_MAX, VFS_SEGMENTS_MAX};
use crate::path::RequestPath;
use crate::refusal::{Code, Refusal};

/// A path of a virtual tree: segments joined by single slashes, empty for the root. The refusal texts are fixed, because
/// existing users match on them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VfsPath(String);

impl VfsPath {
    pub fn parse(text: &str) -> Result<VfsPath, Refusal> {
        let invalid = |why: &str| Refusal::new(Code::InvalidPath, why);
        if text.is_empty() {
            return Err(invalid("path must not be empty."));
        }
        let spelled = RequestPath::parse(text).map_err(|fault| match fault {
            crate::path::PathError::NameTooLong => invalid("Path segments must be 80 characters or fewer."),
            other => invalid(&other.to_string()),
        })?;
        let mut path = String::new();
        let mut depth = 0;
        // Not `RequestPath::names`, which drops `.`: here `.` is an error.
        for name in spelled.as_bytes().split(|b| *b == b'/').filter(|name| !name.is_empty()) {
            if name == b"." || name == b".." {
                return Err(invalid("Path segments may not include '.' or '..'."));
            }
            if !name.is_ascii() {
                return Err(invalid("Path segment must be ASCII text."));
            }
            if name.len() > VFS_SEGMENT_CHARACTERS_MAX {
                return Err(invalid("Path segments must be 80 characters or fewer."));
            }
            depth += 1;
            if depth > VFS_SEGMENTS_MAX {
                return Err(invalid("Path depth exceeds the allowed limit (16 segments)."));
            }
            if depth > 1 {
                path.push('/');
            }
            path.push_str(std::str::from_utf8(name).expect("BUG: an ASCII name is not UTF-8"));
        }
        Ok(VfsPath(path))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Checks content for a virtual tree: UTF-8 text of a bounded length.
pub fn check_content(shown: &str, bytes: &[u8]) -> Result<(), Refusal> {
    let text = std::str::from_utf8(bytes).map_err(|_| {
        Refusal::new(
            Code::InvalidUtf8,
            format!("{shown}: a virtual tree holds UTF-8 text only; nothing was changed"),
        )
    })?;
    check_text_length(text, "Content exceeds maximum length of 48,000 characters.")
}

/// Refuses a text that is too long; `why` is the message.
pub fn check_text_length(text: &str, why: &str) -> Result<(), Refusal> {
    let is_short =
        text.len() <= VFS_CONTENT_CHARACTERS_MAX || text.chars().count() <= VFS_CONTENT_CHARACTERS_MAX;
    if is_short { Ok(()) } else { Err(Refusal::new(Code::ContentTooLong, why)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let refusal = VfsPath::parse(text).unwrap_err();
        assert_eq!(refusal.code, Code::InvalidPath);
        refusal.message
    }

    /// Seed 002, testing checklist, line 1: path normalization and validation.
    #[test]
    fn checklist_1_paths_are_normalised_and_validated() {
        let parse = |text: &str| VfsPath::parse(text).unwrap().0;
        assert_eq!(parse("a//b/"), "a/b");
        assert_eq!((parse("/"), parse("/a")), (String::new(), "a".to_owned()));
        assert_eq!(parse("a\\b"), "a\\b", "a backslash is not a separator");
        assert_eq!(parse(&["x"; 16].join("/")).len(), 31);
        assert_eq!(parse(&"x".repeat(80)).len(), 80);
        assert_eq!(refused(&["x"; 17].join("/")), "Path depth exceeds the allowed limit (16 segments).");
        for long in [81, 300] {
            assert_eq!(refused(&"x".repeat(long)), "Path segments must be 80 characters or fewer.");
        }
        for dotted in [".", "..", "a/../b", "/..", "a/."] {
            assert_eq!(refused(dotted), "Path segments may not include '.' or '..'.");
        }
        for foreign in ["caf\u{e9}", "a/\\xff"] {
            assert_eq!(refused(foreign), "Path segment must be ASCII text.");
        }
        assert_eq!(refused(""), "path must not be empty.");
        refused("a\0b");
    }

    #[test]
    fn content_is_text_of_a_bounded_length() {
        assert!(check_content("f", "\u{e9}".repeat(48_000).as_bytes()).is_ok(), "characters, not bytes");
        let long = check_content("f", "x".repeat(48_001).as_bytes()).unwrap_err();
        assert_eq!(
            (long.code, long.message.as_str()),
            (Code::ContentTooLong, "Content exceeds maximum length of 48,000 characters.")
        );
        assert_eq!(check_content("f", b"\xff").unwrap_err().code, Code::InvalidUtf8);
    }
}
