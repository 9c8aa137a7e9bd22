//! The arguments of a tool: one table, from which both the JSON schema and the check are derived.

use serde_json::{Map, Value, json};

/// The type of an argument.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Text,
    /// An integer, with its minimum.
    Count(i64),
    Flag,
    Choice(&'static [&'static str]),
    /// A command line for the shell, or program and arguments.
    Command,
    Paths,
    Edits,
}

/// One argument.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    /// The name that other products use; accepted, but not in the schema.
    alias: Option<&'static str>,
    kind: Kind,
    required: bool,
    description: &'static str,
}

pub(crate) const fn required(name: &'static str, kind: Kind, description: &'static str) -> Field {
    Field { name, alias: None, kind, required: true, description }
}

pub(crate) const fn optional(name: &'static str, kind: Kind, description: &'static str) -> Field {
    Field { name, alias: None, kind, required: false, description }
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
            Kind::Choice(values) => json!({ "type": "string", "enum": values }),
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
        schema["description"] = json!(self.description);
        schema
    }

    /// What the value must be, if it is something else.
    fn mismatch(&self, value: &Value) -> Option<String> {
        let is_texts = |value: &Value| value.as_array().is_some_and(|all| all.iter().all(Value::is_string));
        let (fits, expected) = match self.kind {
            Kind::Text => (value.is_string(), "a string".to_owned()),
            Kind::Count(min) => (
                value.as_i64().is_some_and(|number| number >= min),
                format!("a whole number of {min} or more"),
            ),
            Kind::Flag => (value.is_boolean(), "true or false".to_owned()),
            Kind::Choice(values) => (
                value.as_str().is_some_and(|text| values.contains(&text)),
                format!("one of {}", values.join(", ")),
            ),
            Kind::Command => {
                (value.is_string() || is_texts(value), "a string, or an array of strings".to_owned())
            }
            Kind::Paths => (is_texts(value), "an array of strings".to_owned()),
            // The effect checks each edit.
            Kind::Edits => {
                (value.is_array(), "an array of {old_string, new_string, replace_all?}".to_owned())
            }
        };
        (!fits).then_some(expected)
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

/// Why arguments were rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ArgumentError {
    Missing(&'static str),
    WrongType { name: &'static str, expected: String },
    Unknown { name: String, known: String },
    Duplicate(&'static str),
}

impl std::fmt::Display for ArgumentError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ArgumentError::Missing(name) => write!(f, "the argument `{name}` is missing"),
            ArgumentError::WrongType { name, expected } => {
                write!(f, "the argument `{name}` must be {expected}")
            }
            ArgumentError::Unknown { name, known } => write!(
                f,
                "there is no argument `{}`; this tool takes {known}",
                aos_model::text::escape(&name.chars().take(60).collect::<String>())
            ),
            ArgumentError::Duplicate(name) => {
                write!(f, "the argument `{name}` is given twice, under two names")
            }
        }
    }
}

/// Arguments that passed the check, under their documented names.
#[derive(Debug, Default)]
pub(crate) struct Arguments(Map<String, Value>);

impl Arguments {
    /// Checks arguments. Undocumented ones are rejected, so that a model cannot set what the schema does not offer.
    pub(crate) fn check(fields: &[Field], given: Map<String, Value>) -> Result<Arguments, ArgumentError> {
        let mut accepted = Map::new();
        for (name, value) in given {
            let named = |field: &&Field| field.name == name || field.alias == Some(name.as_str());
            let Some(field) = fields.iter().find(named) else {
                let known: Vec<&str> = fields.iter().map(|field| field.name).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err(ArgumentError::Unknown { name, known });
            };
            // Some models send null for an omitted argument.
            if value.is_null() && !field.required {
                continue;
            }
            if let Some(expected) = field.mismatch(&value) {
                return Err(ArgumentError::WrongType { name: field.name, expected });
            }
            if accepted.insert(field.name.to_owned(), value).is_some() {
                return Err(ArgumentError::Duplicate(field.name));
            }
        }
        match fields.iter().find(|field| field.required && !accepted.contains_key(field.name)) {
            Some(field) => Err(ArgumentError::Missing(field.name)),
            None => Ok(Arguments(accepted)),
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

    /// The params of an effect in a session: these arguments, unchanged.
    pub(crate) fn params(&self, session: &str, names: &[&str]) -> Value {
        let mut params = json!({ "session_id": session });
        for name in names {
            if let Some(value) = self.get(name) {
                params[*name] = value.clone();
            }
        }
        params
    }

    /// The same for an effect on a folder. A path `.` is left out: it is the default, and a virtual tree does not have
    /// it.
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
        required("path", Kind::Text, "a path").alias("file_path"),
        optional("limit", Kind::Count(1), "a number"),
        optional("mode", Kind::Choice(&["a", "b"]), "a choice"),
    ];

    fn check(given: Value) -> Result<Arguments, String> {
        let Value::Object(given) = given else { panic!("an object") };
        Arguments::check(FIELDS, given).map_err(|error| error.to_string())
    }

    #[test]
    fn only_documented_arguments_are_accepted() {
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
    fn the_schema_agrees_with_the_check() {
        let schema = schema(FIELDS);
        assert_eq!(schema["required"], json!(["path"]));
        assert_eq!(schema["additionalProperties"], json!(false));
        assert_eq!(schema["properties"]["limit"]["minimum"], json!(1));
        assert!(schema["properties"].get("file_path").is_none());
    }
}
