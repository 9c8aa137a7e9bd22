//! Paths as requests spell them and as receipts show them. Containment is not checked here: that takes a descriptor
//! (I3).

use crate::limits::{NAME_BYTES_MAX, PATH_BYTES_MAX};

/// Why a text is not a valid path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("the path is empty; use `.` for the workdir")]
    Empty,
    #[error("the path contains a NUL byte")]
    Nul,
    #[error("`\\x2f` is an escaped slash inside a name; write `/`")]
    EscapedSlash,
    #[error("a name in the path is longer than {NAME_BYTES_MAX} bytes")]
    NameTooLong,
    #[error("the path is longer than {PATH_BYTES_MAX} bytes")]
    TooLong,
}

/// A path as a request spelled it, decoded to bytes and within the limits of the system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestPath {
    bytes: Vec<u8>,
}

impl RequestPath {
    pub fn parse(text: &str) -> Result<RequestPath, PathError> {
        let bytes = decode(text)?;
        if bytes.is_empty() {
            return Err(PathError::Empty);
        }
        if bytes.contains(&0) {
            return Err(PathError::Nul);
        }
        if bytes.len() > PATH_BYTES_MAX {
            return Err(PathError::TooLong);
        }
        if bytes.split(|b| *b == b'/').any(|name| name.len() > NAME_BYTES_MAX) {
            return Err(PathError::NameTooLong);
        }
        Ok(RequestPath { bytes })
    }

    pub fn is_absolute(&self) -> bool {
        self.bytes[0] == b'/'
    }

    /// The names between slashes, without empty ones and `.`; `..` is kept.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.split(|b| *b == b'/').filter(|name| !name.is_empty() && *name != b".")
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The inverse of [`show`]: `\xNN` is that byte, any other backslash is itself.
pub(crate) fn decode(text: &str) -> Result<Vec<u8>, PathError> {
    if !text.contains('\\') {
        return Ok(text.as_bytes().to_vec());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        match escaped(rest) {
            Some(0) => return Err(PathError::Nul),
            Some(b'/') => return Err(PathError::EscapedSlash),
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[4..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    Ok(bytes)
}

/// The byte that a leading `\xNN` stands for.
pub(crate) fn escaped(bytes: &[u8]) -> Option<u8> {
    let [b'\\', b'x', high, low, ..] = bytes else { return None };
    let digit = |b: u8| (b as char).to_digit(16);
    Some((digit(*high)? * 16 + digit(*low)?) as u8)
}

/// A path as receipts show it (I11). Bytes that are not UTF-8 and control characters become `\xNN`, and so does a
/// backslash that would otherwise look like such an escape.
pub fn show(bytes: &[u8]) -> String {
    if bytes.iter().all(|b| (0x20..0x7f).contains(b) && *b != b'\\') {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    let mut out = String::with_capacity(bytes.len() + 8);
    let mut seen = 0;
    for chunk in bytes.utf8_chunks() {
        for (at, c) in chunk.valid().char_indices() {
            let looks_like_escape = c == '\\' && escaped(&bytes[seen + at..]).is_some();
            if c.is_control() || looks_like_escape {
                push_hex(&mut out, c.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                out.push(c);
            }
        }
        push_hex(&mut out, chunk.invalid());
        seen += chunk.valid().len() + chunk.invalid().len();
    }
    out
}

fn push_hex(out: &mut String, bytes: &[u8]) {
    use std::fmt::Write;
    for byte in bytes {
        write!(out, "\\x{byte:02x}").expect("BUG: a write to a String failed");
    }
}

/// Whether `path` is `folder` or is below it: by component, so that `ws-evil` is not below `ws`.
pub fn is_below(path: &[u8], folder: &[u8]) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_invalid_path_is_refused_with_its_reason() {
        assert_eq!(RequestPath::parse(""), Err(PathError::Empty));
        assert_eq!(RequestPath::parse("a\0b"), Err(PathError::Nul));
        assert_eq!(RequestPath::parse("a\\x00b"), Err(PathError::Nul));
        assert_eq!(RequestPath::parse("a\\x2fb"), Err(PathError::EscapedSlash));
        assert_eq!(RequestPath::parse(&"x".repeat(256)), Err(PathError::NameTooLong));
        assert_eq!(RequestPath::parse(&"x/".repeat(2500)), Err(PathError::TooLong));
    }

    #[test]
    fn odd_names_are_shown_on_one_line_and_can_be_parsed_again() {
        assert_eq!(show(b"a\nb.rs:1:fake"), "a\\x0ab.rs:1:fake");
        assert_eq!(show(b"x\xff"), "x\\xff");
        assert_eq!(show("caf\u{e9}".as_bytes()), "caf\u{e9}");
        assert_eq!(show(b"back\\slash"), "back\\slash");
        assert_eq!(show(b"lit\\x41"), "lit\\x5cx41");
        assert_eq!(RequestPath::parse("lit\\x5cx41").unwrap().as_bytes(), b"lit\\x41");
    }

    proptest! {
        #[test]
        fn show_and_parse_are_inverse(name in proptest::collection::vec(any::<u8>().prop_filter("no NUL or slash", |b| *b != 0 && *b != b'/'), 1..40)) {
            let shown = show(&name);
            prop_assert!(!shown.chars().any(char::is_control));
            let spelled = RequestPath::parse(&shown).unwrap();
            prop_assert_eq!(spelled.as_bytes(), name.as_slice());
        }
    }
}
