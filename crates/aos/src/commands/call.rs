//! `aos call`: calls one effect and prints its receipt on one line.

use std::io::Read as _;

use anyhow::Context as _;
use serde_json::Value;

use super::{daemon, daemon_error, is_success};
use crate::Exit;
use crate::cli::Call;

pub(crate) fn run(call: &Call) -> anyhow::Result<Exit> {
    let params = match call.params.as_str() {
        "-" => {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .context("cannot read the params from standard input")?;
            if text.trim().is_empty() { "{}".to_owned() } else { text }
        }
        text => text.to_owned(),
    };
    if !params.trim_start().starts_with('{')
        || serde_json::from_str::<serde::de::IgnoredAny>(&params).is_err()
    {
        eprintln!(
            "aos: the params must be a JSON object, not: {}",
            aos_model::text::escape(&params.chars().take(80).collect::<String>())
        );
        return Ok(Exit::Usage);
    }
    let receipt = daemon()?
        .effect(&call.kind, &params, call.tool_call.as_deref(), call.turn.as_deref())
        .map_err(daemon_error)?;
    println!("{}", aos_model::text::escape_json(&receipt));
    let parsed: Value = serde_json::from_str(&receipt)?;
    let status = parsed.get("status").and_then(Value::as_str).unwrap_or_default();
    Ok(if is_success(&call.kind, status) { Exit::Success } else { Exit::Failure })
}
