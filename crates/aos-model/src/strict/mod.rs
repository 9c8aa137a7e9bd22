//! Strict JSON: unknown fields, duplicate keys, nulls and wrong types are errors that name the field.
//!
//! JSON numbers are read into the integer type of the field: a fraction, an exponent, a negative number or one beyond
//! 64 bits is an error, never a rounded value.

mod shape;

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use shape::Strict;

/// Why a JSON value was rejected, with the path of the field where it is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Not JSON at all (a lone surrogate, for example). The front end answers this as a JSON-RPC error, without a
    /// receipt.
    #[error("not valid JSON: {0}")]
    Syntax(String),
    #[error("{0}")]
    Shape(String),
}

/// Parses `json` as `T`. Only after a failure it is parsed again, to find the field.
pub fn parse<'de, T: Deserialize<'de>>(json: &'de str) -> Result<T, JsonError> {
    let mut source = serde_json::Deserializer::from_str(json);
    let error = match T::deserialize(Strict(&mut source)).and_then(|value| source.end().map(|()| value)) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    // serde_json's error category is not enough: it reports a number in place of an enum as a syntax error.
    if let Err(broken) = serde_json::from_str::<serde_json::Value>(json)
        // `1e999` is well-formed JSON; only its value does not fit.
        && !broken.to_string().starts_with("number out of range")
    {
        return Err(JsonError::Syntax(broken.to_string()));
    }
    let located: Result<T, _> =
        serde_path_to_error::deserialize(Strict(&mut serde_json::Deserializer::from_str(json)));
    Err(JsonError::Shape(match located {
        Err(located) if located.path().iter().next().is_some() => {
            format!("field `{}`: {}", located.path(), without_position(located.inner()))
        }
        _ => without_position(&error),
    }))
}

/// JSON that is kept as raw text, if it is not nested deeper than serde_json reads (128 levels).
pub fn shallow<'de, D: Deserializer<'de>>(d: D) -> Result<Box<RawValue>, D::Error> {
    let raw = Box::<RawValue>::deserialize(d)?;
    match serde_json::from_str::<serde_json::Value>(raw.get()) {
        Ok(_) => Ok(raw),
        Err(why) => Err(serde::de::Error::custom(without_position(&why))),
    }
}

/// Like [`shallow`], for an optional field.
pub fn present_shallow<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Box<RawValue>>, D::Error> {
    shallow(d).map(Some)
}

/// serde_json ends its messages with a line and column, which do not help in a request of one line.
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

/// An optional field that is absent or has a value, but is never `null`. Use with `#[serde(default)]`.
pub fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(d: D) -> Result<Option<T>, D::Error> {
    T::deserialize(d).map(Some)
}

/// A map that rejects duplicate keys. serde would keep the last value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UniqueMap<V>(pub BTreeMap<String, V>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for UniqueMap<V> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Keys<V>(std::marker::PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Keys<V> {
            type Value = UniqueMap<V>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<UniqueMap<V>, A::Error> {
                let mut map = BTreeMap::new();
                while let Some((key, value)) = access.next_entry::<String, V>()? {
                    if map.contains_key(&key) {
                        return Err(serde::de::Error::custom(format!(
                            "duplicate key `{}`",
                            crate::text::escape(&key)
                        )));
                    }
                    map.insert(key, value);
                }
                Ok(UniqueMap(map))
            }
        }
        d.deserialize_map(Keys(std::marker::PhantomData))
    }
}

impl<V: serde::Serialize> serde::Serialize for UniqueMap<V> {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        #[serde(default, deserialize_with = "present")]
        max_bytes: Option<u64>,
        #[serde(default)]
        inner: Option<Box<Sample>>,
        #[serde(default)]
        labels: UniqueMap<String>,
    }

    fn error(json: &str) -> String {
        parse::<Sample>(json).unwrap_err().to_string()
    }

    #[test]
    fn an_error_names_the_field() {
        assert_eq!(
            error(r#"{"max_bytes":"10"}"#),
            r#"field `max_bytes`: invalid type: string "10", expected u64"#
        );
        assert_eq!(error(r#"{"max_bytes":null}"#), "field `max_bytes`: invalid type: null, expected u64");
        assert!(error(r#"{"inner":{"max_bytes":-1}}"#).starts_with("field `inner.max_bytes`: "));
        assert!(error(r#"{"sesion_id":"x"}"#).contains("unknown field `sesion_id`"));
        assert!(error(r#"{"max_bytes":1,"max_bytes":2}"#).contains("duplicate field `max_bytes`"));
        assert!(error(r#"{"labels":{"a":"1","a":"2"}}"#).contains("duplicate key `a`"));
        for number in ["18446744073709551616", "1e308", "1.5", "-1"] {
            assert!(error(&format!(r#"{{"max_bytes":{number}}}"#)).contains("max_bytes"));
        }
    }

    #[test]
    fn values_of_another_shape_are_rejected() {
        #[derive(Debug, Deserialize)]
        #[serde(rename_all = "snake_case", deny_unknown_fields)]
        #[expect(dead_code, reason = "only whether parsing fails matters here")]
        enum Choice {
            Word,
            Boxed(Box<Sample>),
            Fields { max_bytes: u64 },
        }
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "only whether parsing fails matters here")]
        struct Outer {
            choice: Choice,
        }
        for good in [r#""word""#, r#"{"boxed":{"max_bytes":1}}"#, r#"{"fields":{"max_bytes":1}}"#] {
            parse::<Outer>(&format!(r#"{{"choice":{good}}}"#)).unwrap();
        }
        for bad in [
            r#"{"word":null}"#,
            r#"{"word":{}}"#,
            r#"{"boxed":[1]}"#,
            r#"{"fields":[1]}"#,
            r#"{"boxed":{},"word":null}"#,
            "{}",
            "[]",
            "null",
            "1",
            r#""fields""#,
            r#""nope""#,
        ] {
            let message = parse::<Outer>(&format!(r#"{{"choice":{bad}}}"#)).unwrap_err().to_string();
            assert!(message.contains("choice"), "{bad}: {message}");
        }
        assert!(matches!(parse::<Outer>(r#"[{"choice":"word"}]"#), Err(JsonError::Shape(_))));
        assert!(matches!(parse::<Sample>("{} {}"), Err(JsonError::Syntax(_))));
    }

    #[test]
    fn invalid_json_is_distinguished_from_a_wrong_shape() {
        assert!(matches!(parse::<Sample>(r#"{"labels":{"a":"\ud800"}}"#), Err(JsonError::Syntax(_))));
        assert!(matches!(parse::<Sample>("[]"), Err(JsonError::Shape(_))));
    }
}
