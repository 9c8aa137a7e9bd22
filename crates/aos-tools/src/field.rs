//! The arguments of a tool: one table says what a model may give, and both the schema and the check are made of it.

use serde_json::{Map, Value, json};

/// What a value must be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Text,
    /// A whole number, not below this one.
    Count(i64),
    Flag,
    Choice(&'static [&'static str]),
    /// A line for the shell, or the words of a command.
    Command,
    Paths,
    Edits,
}

/// One argument.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    /// What other products call it; taken, but not taught.
    alias: Option<&'static str>,
    kind: Kind,
    required: bool,
    about: &'static str,
}

pub(crate) const fn need(name: &'static str, kind: Kind, about: &'static str) -> Field {
    Field { name, alias: None, kind, required: true, about }
}

pub(crate) const fn may(name: &'static str, kind: Kind, about: &'static str) -> Field {
    Field { name, alias: None, kind, required: false, about }
}

impl Field {
    pub(crate) const fn alias(mut self, alias: &'static str) -> Field {
        self.alias = Some(alias);
        self
    }

    fn schema(&self) -> Value {
        let mut schema = match self.kind {
            Kind::Text => json!({ "type": "string" }),
            Kind::Count(min) => json!({ "type": "integer", "minimum": min }),
            Kind::Flag => json!({ "type": "boolean" }),
            Kind::Choice(words) => json!({ "type": "string", "enum": words }),
            Kind::Command => {
                json!({ "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }] })
            }
            Kind::Paths => json!({ "type": "array", "items": { "type": "string" } }),
            Kind::Edits => json!({ "type": "array", "items": {
                "type": "object",
                "properties": {
                    "old_string": { "type": "string" },
                    "new_string": { "type": "string" },
                    "replace_all": { "type": "boolean" },
                },
                "required": ["old_string", "new_string"],
                "additionalProperties": false,
            } }),
        };
        schema["description"] = json!(self.about);
        schema
    }

    /// What the value should have been, if it is something else.
    fn mismatch(&self, value: &Value) -> Option<String> {
        let is_texts = |value: &Value| value.as_array().is_some_and(|all| all.iter().all(Value::is_string));
        let (fits, wanted) = match self.kind {
            Kind::Text => (value.is_string(), "a string".to_owned()),
            Kind::Count(min) => (
                value.as_i64().is_some_and(|number| number >= min),
                format!("a whole number of {min} or more"),
            ),
            Kind::Flag => (value.is_boolean(), "true or false".to_owned()),
            Kind::Choice(words) => (
                value.as_str().is_some_and(|word| words.contains(&word)),
                format!("one of {}", words.join(", ")),
            ),
            Kind::Command => {
                (value.is_string() || is_texts(value), "a string, or an array of strings".to_owned())
            }
            Kind::Paths => (is_texts(value), "an array of strings".to_owned()),
            // The effect looks into each of them.
            Kind::Edits => {
                (value.is_array(), "an array of {old_string, new_string, replace_all?}".to_owned())
            }
        };
        (!fits).then_some(wanted)
    }
}

/// The JSON schema of an object with these fields and no others.
pub(crate) fn schema(fields: &[Field]) -> Value {
    let properties: Map<String, Value> =
        fields.iter().map(|field| (field.name.to_owned(), field.schema())).collect();
    let required: Vec<&str> = fields.iter().filter(|field| field.required).map(|field| field.name).collect();
    let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// Why arguments were not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mistake {
    Missing(&'static str),
    Wrong { name: &'static str, wanted: String },
    Unknown { name: String, known: String },
    Twice(&'static str),
}

impl std::fmt::Display for Mistake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Mistake::Missing(name) => write!(f, "the argument `{name}` is missing"),
            Mistake::Wrong { name, wanted } => write!(f, "the argument `{name}` must be {wanted}"),
            Mistake::Unknown { name, known } => write!(
                f,
                "there is no argument `{}`; this tool takes {known}",
                aos_model::text::escape(&name.chars().take(60).collect::<String>())
            ),
            Mistake::Twice(name) => write!(f, "the argument `{name}` is given twice, under two names"),
        }
    }
}

/// Arguments that fit their table.
#[derive(Debug, Default)]
pub(crate) struct Arguments(Map<String, Value>);

impl Arguments {
    /// Takes what fits. Nothing that the table does not name passes: a model cannot say more than it was taught.
    pub(crate) fn check(fields: &[Field], given: Map<String, Value>) -> Result<Arguments, Mistake> {
        let mut taken = Map::new();
        for (name, value) in given {
            let named = |field: &&Field| field.name == name || field.alias == Some(name.as_str());
            let Some(field) = fields.iter().find(named) else {
                let known: Vec<&str> = fields.iter().map(|field| field.name).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err(Mistake::Unknown { name, known });
            };
            // Some models spell out what they leave out.
            if value.is_null() && !field.required {
                continue;
            }
            if let Some(wanted) = field.mismatch(&value) {
                return Err(Mistake::Wrong { name: field.name, wanted });
            }
            if taken.insert(field.name.to_owned(), value).is_some() {
                return Err(Mistake::Twice(field.name));
            }
        }
        match fields.iter().find(|field| field.required && !taken.contains_key(field.name)) {
            Some(field) => Err(Mistake::Missing(field.name)),
            None => Ok(Arguments(taken)),
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Value::as_str)
    }

    pub(crate) fn count(&self, name: &str) -> Option<i64> {
        self.get(name).and_then(Value::as_i64)
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    /// The params of an effect in a session: these arguments under their own names.
    pub(crate) fn params(&self, session: &str, names: &[&str]) -> Value {
        let mut params = json!({ "session_id": session });
        for name in names {
            if let Some(value) = self.get(name) {
                params[*name] = value.clone();
            }
        }
        params
    }

    /// The same for an effect that works below a folder. `.` is left out: it is what is meant anyway, and a virtual tree
    /// has no such name.
    pub(crate) fn params_below(&self, session: &str, names: &[&str]) -> Value {
        let mut params = self.params(session, names);
        if params["path"] == "." {
            params.as_object_mut().expect("BUG: made as an object").remove("path");
        }
        params
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: &[Field] = &[
        need("path", Kind::Text, "a path").alias("file_path"),
        may("limit", Kind::Count(1), "a number"),
        may("mode", Kind::Choice(&["a", "b"]), "a choice"),
    ];

    fn check(given: Value) -> Result<Arguments, String> {
        let Value::Object(given) = given else { panic!("an object") };
        Arguments::check(FIELDS, given).map_err(|mistake| mistake.to_string())
    }

    #[test]
    fn only_what_the_table_names_is_taken() {
        assert_eq!(check(json!({ "file_path": "f", "limit": null })).unwrap().text("path"), Some("f"));
        for (given, complaint) in [
            (json!({}), "the argument `path` is missing"),
            (json!({ "path": null }), "the argument `path` must be a string"),
            (json!({ "path": "f", "file_path": "g" }), "the argument `path` is given twice, under two names"),
            (json!({ "path": "f", "limit": 0 }), "the argument `limit` must be a whole number of 1 or more"),
            (
                json!({ "path": "f", "limit": "3" }),
                "the argument `limit` must be a whole number of 1 or more",
            ),
            (json!({ "path": "f", "mode": "c" }), "the argument `mode` must be one of a, b"),
            (
                json!({ "path": "f", "policy": "permissive" }),
                "there is no argument `policy`; this tool takes path, limit, mode",
            ),
        ] {
            assert_eq!(check(given).unwrap_err(), complaint);
        }
    }

    #[test]
    fn a_schema_says_the_same() {
        let schema = schema(FIELDS);
        assert_eq!(schema["required"], json!(["path"]));
        assert_eq!(schema["additionalProperties"], json!(false));
        assert_eq!(schema["properties"]["limit"]["minimum"], json!(1));
        assert!(schema["properties"].get("file_path").is_none());
    }
}
