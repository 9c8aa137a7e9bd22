//! The params of `host.exec`.

use std::collections::BTreeMap;

use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize, Serializer};

use super::{Capture, OutputMode, content_hash};
use crate::limits::RECORDED_CONTENT_BYTES_MAX;
use crate::refusal::{Code, Refusal};
use crate::strict::{UniqueMap, present};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exec {
    pub session_id: String,
    #[serde(serialize_with = "record_argv")]
    pub argv: Vec<String>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub timeout_ns: Option<u64>,
    /// Changes to the environment; `null` unsets a name.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none",
        serialize_with = "record_patch"
    )]
    pub env_patch: Option<UniqueMap<Option<String>>>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub stdin_ref: Option<String>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub output_mode: Option<OutputMode>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub capture: Option<Capture>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub background: Option<bool>,
}

impl Exec {
    /// Whether the command is ordered with the mutations of its session (I9). One without capture is not.
    pub fn is_ordered(&self) -> bool {
        self.capture != Some(Capture::None)
    }

    /// Refuses what no system can run, and what is not implemented.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.background == Some(true) {
            return Err(Refusal::new(
                Code::Unsupported,
                "`background` is reserved; run the command in the foreground, with a `timeout_ns`",
            ));
        }
        if self.dry_run == Some(true) && self.capture == Some(Capture::None) {
            return Err(Refusal::new(
                Code::Unsupported,
                "`dry_run` needs `capture` `auto`: what is not captured cannot be discarded; nothing was run",
            ));
        }
        if self.argv.is_empty() {
            return Err(Refusal::new(Code::ArgvEmpty, "`argv` is empty; give the program and its arguments"));
        }
        if let Some(at) = self.argv.iter().position(|word| word.contains('\0')) {
            return Err(Refusal::new(
                Code::InvalidParams,
                format!("field `argv[{at}]`: it contains a NUL byte"),
            ));
        }
        check_environment("env_patch", self.env_patch.iter().flat_map(|patch| &patch.0).map(as_pair))
    }
}

fn as_pair<'a>((name, value): (&'a String, &'a Option<String>)) -> (&'a str, &'a str) {
    (name, value.as_deref().unwrap_or_default())
}

/// Checks that names and values can be environment variables.
pub fn check_environment<'a>(
    field: &str,
    pairs: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<(), Refusal> {
    for (name, value) in pairs {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(Refusal::new(
                Code::InvalidParams,
                format!(
                    "field `{field}`: `{}` cannot be an environment variable: a name must not be empty or contain `=`, and neither name nor value may contain a NUL byte",
                    crate::text::escape(name)
                ),
            ));
        }
    }
    Ok(())
}

/// The form in the journal: a usual command line as it is, a very long one as its program, hash and size.
fn record_argv<S: Serializer>(words: &[String], s: S) -> Result<S::Ok, S::Error> {
    let bytes: usize = words.iter().map(|word| word.len() + 1).sum();
    if bytes <= RECORDED_CONTENT_BYTES_MAX {
        return s.collect_seq(words);
    }
    let program: String = words.first().map(|word| word.chars().take(1_000).collect()).unwrap_or_default();
    let mut map = s.serialize_map(Some(4))?;
    map.serialize_entry("program", &program)?;
    map.serialize_entry("words", &words.len())?;
    map.serialize_entry("digest", &content_hash(words.join("\0").as_bytes()))?;
    map.serialize_entry("size_bytes", &bytes)?;
    map.end()
}

fn record_patch<S: Serializer>(patch: &Option<UniqueMap<Option<String>>>, s: S) -> Result<S::Ok, S::Error> {
    let patch = patch.as_ref().map(|patch| &patch.0);
    let size = |(name, value): (&String, &Option<String>)| name.len() + value.as_ref().map_or(0, String::len);
    if patch.is_some_and(|patch| patch.iter().map(size).sum::<usize>() > RECORDED_CONTENT_BYTES_MAX) {
        let json = serde_json::to_vec(&patch).map_err(serde::ser::Error::custom)?;
        return BTreeMap::from([("digest", content_hash(&json))]).serialize(s);
    }
    patch.serialize(s)
}

#[cfg(test)]
mod tests {
    use super::super::Request;
    use super::*;

    fn exec(params: &str) -> Exec {
        match Request::parse("host.exec", params) {
            Ok(Request::Session(crate::request::SessionRequest::Exec(exec))) => exec,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_reason_not_to_run_has_its_code() {
        let code = |params: &str| exec(params).check().map_err(|refusal| refusal.code);
        assert_eq!(code(r#"{"session_id":"s","argv":["true"]}"#), Ok(()));
        assert_eq!(code(r#"{"session_id":"s","argv":[]}"#), Err(Code::ArgvEmpty));
        assert_eq!(code(r#"{"session_id":"s","argv":["a\u0000b"]}"#), Err(Code::InvalidParams));
        assert_eq!(
            code(r#"{"session_id":"s","argv":["a"],"env_patch":{"A=B":"x"}}"#),
            Err(Code::InvalidParams)
        );
        assert_eq!(code(r#"{"session_id":"s","argv":["a"],"env_patch":{"A":null}}"#), Ok(()));
        assert_eq!(code(r#"{"session_id":"s","argv":["a"],"background":true}"#), Err(Code::Unsupported));
    }

    #[test]
    fn a_very_long_command_line_is_recorded_by_hash() {
        let long = exec(&format!(r#"{{"session_id":"s","argv":["sh","-c","{}"]}}"#, "x".repeat(20_000)));
        let recorded = serde_json::to_string(&long).unwrap();
        assert!(recorded.contains("sha256:") && recorded.len() < 300, "{recorded}");
        let usual = exec(r#"{"session_id":"s","argv":["ls","-l"],"env_patch":{"A":null}}"#);
        assert_eq!(
            serde_json::to_string(&usual).unwrap(),
            r#"{"session_id":"s","argv":["ls","-l"],"env_patch":{"A":null}}"#
        );
    }
}
