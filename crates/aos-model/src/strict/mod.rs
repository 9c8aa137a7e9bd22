//! Strict JSON: unknown fields, duplicate keys, nulls and wrong types are errors that name the field.

mod shape;

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use shape::Strict;

/// What was wrong with a JSON value, with the field's path where one is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// Not JSON at all (a lone surrogate, say): the door answers this, no receipt does.
    #[error("not valid JSON: {0}")]
    Syntax(String),
    #[error("{0}")]
    Shape(String),
}

/// Parses `json` as `T`. The fast way first; only a failure is parsed again to find out where it was.
pub fn parse<'de, T: Deserialize<'de>>(json: &'de str) -> Result<T, Invalid> {
    let mut source = serde_json::Deserializer::from_str(json);
    let error = match T::deserialize(Strict(&mut source)).and_then(|value| source.end().map(|()| value)) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    // The error's own class does not tell: a number where a word belongs counts as syntax there.
    if let Err(broken) = serde_json::from_str::<serde_json::Value>(json)
        // A number that no machine can hold is still well-formed.
        && !broken.to_string().starts_with("number out of range")
    {
        return Err(Invalid::Syntax(broken.to_string()));
    }
    let located: Result<T, _> =
        serde_path_to_error::deserialize(Strict(&mut serde_json::Deserializer::from_str(json)));
    Err(Invalid::Shape(match located {
        Err(located) if located.path().iter().next().is_some() => {
            format!("field `{}`: {}", located.path(), without_position(located.inner()))
        }
        _ => without_position(&error),
    }))
}

/// JSON that is kept as it came, as long as whoever reads it later can follow its depth.
pub fn shallow<'de, D: Deserializer<'de>>(d: D) -> Result<Box<RawValue>, D::Error> {
    let raw = Box::<RawValue>::deserialize(d)?;
    match serde_json::from_str::<serde_json::Value>(raw.get()) {
        Ok(_) => Ok(raw),
        Err(why) => Err(serde::de::Error::custom(without_position(&why))),
    }
}

/// As [`shallow`], for a field that may be left out.
pub fn present_shallow<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Box<RawValue>>, D::Error> {
    shallow(d).map(Some)
}

/// serde_json ends its messages with a position, which means nothing in a request of one line.
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

/// An optional field that is left out or has a value, but is never `null`. Use with `#[serde(default)]`.
pub fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(d: D) -> Result<Option<T>, D::Error> {
    T::deserialize(d).map(Some)
}

/// A map whose keys may stand only once.
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

    fn complaint(json: &str) -> String {
        parse::<Sample>(json).unwrap_err().to_string()
    }

    #[test]
    fn a_complaint_names_the_field() {
        assert_eq!(
            complaint(r#"{"max_bytes":"10"}"#),
            r#"field `max_bytes`: invalid type: string "10", expected u64"#
        );
        assert_eq!(complaint(r#"{"max_bytes":null}"#), "field `max_bytes`: invalid type: null, expected u64");
        assert!(complaint(r#"{"inner":{"max_bytes":-1}}"#).starts_with("field `inner.max_bytes`: "));
        assert!(complaint(r#"{"sesion_id":"x"}"#).contains("unknown field `sesion_id`"));
        assert!(complaint(r#"{"max_bytes":1,"max_bytes":2}"#).contains("duplicate field `max_bytes`"));
        assert!(complaint(r#"{"labels":{"a":"1","a":"2"}}"#).contains("duplicate key `a`"));
        for number in ["18446744073709551616", "1e308", "1.5", "-1"] {
            assert!(complaint(&format!(r#"{{"max_bytes":{number}}}"#)).contains("max_bytes"));
        }
    }

    #[test]
    fn nothing_is_taken_for_what_it_is_not() {
        #[derive(Debug, Deserialize)]
        #[serde(rename_all = "snake_case", deny_unknown_fields)]
        #[expect(dead_code, reason = "only what is refused matters here")]
        enum Choice {
            Word,
            Boxed(Box<Sample>),
            Fields { max_bytes: u64 },
        }
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "only what is refused matters here")]
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
            let complaint = parse::<Outer>(&format!(r#"{{"choice":{bad}}}"#)).unwrap_err().to_string();
            assert!(complaint.contains("choice"), "{bad}: {complaint}");
        }
        assert!(matches!(parse::<Outer>(r#"[{"choice":"word"}]"#), Err(Invalid::Shape(_))));
        assert!(matches!(parse::<Sample>("{} {}"), Err(Invalid::Syntax(_))));
    }

    #[test]
    fn what_is_no_json_is_told_apart() {
        assert!(matches!(parse::<Sample>(r#"{"labels":{"a":"\ud800"}}"#), Err(Invalid::Syntax(_))));
        assert!(matches!(parse::<Sample>("[]"), Err(Invalid::Shape(_))));
    }
}
