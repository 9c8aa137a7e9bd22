//! Tool calls of models: whatever the arguments are, the effect is in the session that the front end chose (I19), and
//! its params are valid JSON.

use aos_model::request::{Request, RequestError};
use aos_tools::{Profile, effect_of, find};
use serde_json::{Map, Value};

use super::{Target, parts};
use crate::Shape;

pub(super) const TARGET: Target = Target {
    name: "tool",
    run,
    dictionary: &[
        "read_file\n%%\n{\"path\":\"f\"}",
        "write_file",
        "edit_file",
        "apply_patch",
        "grep",
        "glob",
        "list_dir",
        "stat",
        "remove",
        "shell",
        "\n%%\n",
        "\"path\":",
        "\"file_path\":\"f\"",
        "\"content\":\"x\"",
        "\"command\":[\"a\"]",
        "\"command\":\"a\"",
        "\"timeout_ms\":1",
        "\"offset\":1,",
        "\"limit\":1,",
        "\"session_id\":\"hs_2\"",
        "\"session\":\"hs_2\"",
        "\"capability\":{}",
        "\"policy\":\"permissive\"",
        "\"capture\":\"none\"",
        "null",
        "true",
        ",",
    ],
};

const SESSION: &str = "hs_1";

/// The parts: the name of the tool, and its arguments.
fn run(data: &[u8]) -> Shape {
    let text = String::from_utf8_lossy(data);
    let [name, arguments] = parts(&text);
    let arguments: Map<String, Value> = match serde_json::from_str(arguments) {
        Ok(arguments) => arguments,
        Err(why) => return Shape::default().with(why.classify() as u8),
    };
    let profiles = [Profile::Openai, Profile::Anthropic, Profile::Gemini, Profile::Deepagents];
    profiles.into_iter().enumerate().fold(
        Shape::default().about(arguments.len()),
        |shape, (index, profile)| {
            let Some(tool) = find(profile, true, name.trim()) else { return shape };
            let Some((kind, params)) = effect_of(&tool, SESSION, &arguments) else {
                return shape.with(index);
            };
            assert_eq!(params["session_id"], SESSION, "an argument named another session");
            shape.with((index, kind)).with(parse_effect(kind, &params))
        },
    )
}

/// The error code with which the daemon refuses the params, or empty.
fn parse_effect(kind: &str, params: &Value) -> String {
    match Request::parse(kind, &params.to_string()) {
        Ok(request) => {
            assert_eq!(request.session_id(), Some(SESSION));
            String::new()
        }
        Err(RequestError::Refused(refusal)) => refusal.code.as_str().to_owned(),
        Err(RequestError::Syntax(why)) => panic!("a tool made invalid JSON: {why}: {params}"),
    }
}
