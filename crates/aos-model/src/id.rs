//! Ids of sessions, snapshots, tool calls and turns. Ids that are made here sort by time.

use serde::{Deserialize, Deserializer, Serialize};

/// Makes `prefix` + 16 hex digits of time + 16 random hex digits: it sorts by time and has 64 random bits.
pub fn make(prefix: &str, at_ns: u64, random: u64) -> String {
    format!("{prefix}{at_ns:016x}{random:016x}")
}

pub const SESSION: &str = "hs_";
pub const SNAPSHOT: &str = "snap_";
pub const TOOL_CALL: &str = "tc_";
pub const TURN: &str = "turn_";

/// An id chosen by a caller: `[A-Za-z0-9_][A-Za-z0-9._:-]{0,127}`. It is safe as a file name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Token(String);

impl Token {
    pub fn parse(text: &str) -> Result<Token, String> {
        let rest = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-');
        let bytes = text.as_bytes();
        let starts_well = bytes.first().is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
        if starts_well && bytes.len() <= 128 && bytes.iter().all(|b| rest(*b)) {
            return Ok(Token(text.to_owned()));
        }
        Err("an id must start with a letter, a digit or `_` and have at most 128 characters, only letters, digits, `.`, `_`, `:` and `-`"
            .to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Token, D::Error> {
        let text = String::deserialize(d)?;
        Token::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_ids_sort_by_time_and_are_tokens() {
        let early = make(SESSION, 5, u64::MAX);
        let late = make(SESSION, 6, 0);
        assert!(early < late);
        assert!(Token::parse(&early).is_ok());
        assert_eq!(early.len(), 3 + 32);
    }

    #[test]
    fn a_callers_id_is_a_plain_token() {
        for good in ["a", "_", "0", "tc_42", "a.b:c-d", &"x".repeat(128)] {
            assert!(Token::parse(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "-a", "a/b", "../x", "a b", "a\n", "a\0", "é", &"x".repeat(129)] {
            assert!(Token::parse(bad).is_err(), "{bad:?}");
        }
    }
}
