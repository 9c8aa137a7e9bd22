//! A JSON object whose other entries keep their order and spelling when one entry is set.

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

#[derive(Debug, Default)]
pub(super) struct Object(Vec<(String, String)>);

impl Object {
    /// An empty text is an empty object.
    pub(super) fn parse(text: &str) -> Result<Object, String> {
        if text.trim().is_empty() {
            return Ok(Object::default());
        }
        serde_json::from_str(text).map_err(|why| format!("it is not a plain JSON object ({why})"))
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn set(&mut self, name: &str, value: &str) {
        match self.0.iter_mut().find(|(key, _)| key == name) {
            Some((_, old)) => value.clone_into(old),
            None => self.0.push((name.to_owned(), value.to_owned())),
        }
    }

    /// As text, indented for `depth` enclosing objects.
    pub(super) fn text(&self, depth: usize) -> String {
        if self.0.is_empty() {
            return "{}".to_owned();
        }
        let indent = "  ".repeat(depth + 1);
        let entries: Vec<String> = self
            .0
            .iter()
            .map(|(key, value)| format!("{indent}{}: {value}", Value::from(key.as_str())))
            .collect();
        format!("{{\n{}\n{}}}", entries.join(",\n"), "  ".repeat(depth))
    }
}

/// A value over several lines, indented for `depth` enclosing objects.
pub(super) fn pretty(value: &Value, depth: usize) -> String {
    let text = serde_json::to_string_pretty(value).expect("BUG: a value is JSON");
    text.replace('\n', &format!("\n{}", "  ".repeat(depth)))
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Object, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Object;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut entries = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    entries.push((key, value.get().to_owned()));
                }
                Ok(Object(entries))
            }
        }
        d.deserialize_map(Entries)
    }
}
