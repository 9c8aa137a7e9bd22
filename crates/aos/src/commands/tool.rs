//! `aos tool list|call|prompt`: the tools for models on the command line.

use std::io::{IsTerminal as _, Read as _, Write as _};

use anyhow::{Context as _, bail};
use aos_model::strict::{self, UniqueMap};
use aos_tools::{LineOffsetCache, Mount, Profile, ToolContext};
use serde_json::{Map, Value, json};

use super::daemon;
use super::session::{newest_in_cwd, sessions};
use crate::Exit;
use crate::cli::{ProfileName, Tool, ToolCall};

pub(crate) fn run(command: &Tool) -> anyhow::Result<Exit> {
    match command {
        Tool::List { profile, staged } => list((*profile).into(), *staged),
        Tool::Call(call) => self::call(call),
        Tool::Prompt { session, profile } => prompt(session.as_deref(), (*profile).into()),
    }
}

impl From<ProfileName> for Profile {
    fn from(name: ProfileName) -> Profile {
        match name {
            ProfileName::Openai => Profile::Openai,
            ProfileName::Anthropic => Profile::Anthropic,
            ProfileName::Gemini => Profile::Gemini,
            ProfileName::Deepagents => Profile::Deepagents,
        }
    }
}

fn list(profile: Profile, staged: bool) -> anyhow::Result<Exit> {
    let tools: Vec<Value> =
        aos_tools::tools(profile, staged).iter().map(|tool| tool.for_provider(profile)).collect();
    println!("{}", serde_json::to_string_pretty(&tools)?);
    Ok(Exit::Success)
}

fn call(call: &ToolCall) -> anyhow::Result<Exit> {
    let arguments = match arguments(&call.arguments) {
        Ok(arguments) => arguments,
        Err(why) => {
            eprintln!("aos: the arguments must be a JSON object: {why:#}");
            return Ok(Exit::Usage);
        }
    };
    let session = match &call.session {
        Some(session) => session.clone(),
        None => newest_in_cwd()?,
    };
    let profile = call.profile.into();
    let Some(tool) = aos_tools::find(profile, true, &call.name) else {
        let known: Vec<&str> = aos_tools::tools(profile, true).iter().map(|tool| tool.name).collect();
        let why = format!(
            "the profile {} has no tool `{}`; it has {}",
            profile.name(),
            call.name,
            known.join(", ")
        );
        print_text(&aos_tools::refused("invalid_params", &why).text)?;
        return Ok(Exit::Failure);
    };
    let tool_call = call.tool_call.clone().unwrap_or_else(aos_wire::new_tool_call_id);
    let mut client = daemon()?;
    let line_offsets = LineOffsetCache::default();
    let mut context = ToolContext {
        daemon: &mut client,
        session: &session,
        tool_call: &tool_call,
        line_offsets: &line_offsets,
        on_progress: &mut |_| {},
    };
    let outcome = aos_tools::call(&mut context, &tool, arguments);
    if call.json {
        let whole = json!({
            "text": outcome.text, "failed": outcome.failed, "tool_call_id": tool_call, "receipt": outcome.fields,
        });
        println!("{}", aos_model::text::escape_json(&whole.to_string()));
    } else {
        print_text(&outcome.text)?;
    }
    Ok(if outcome.failed { Exit::Failure } else { Exit::Success })
}

/// Prints exactly what a model gets, but escapes it for a terminal.
fn print_text(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if out.is_terminal() {
        writeln!(out, "{}", aos_model::text::escape_lines(text))?;
    } else {
        writeln!(out, "{text}")?;
    }
    Ok(())
}

fn arguments(text: &str) -> anyhow::Result<Map<String, Value>> {
    let mut piped = String::new();
    let text = match text {
        "-" => {
            std::io::stdin().read_to_string(&mut piped).context("cannot read standard input")?;
            piped.as_str()
        }
        text => text,
    };
    let UniqueMap(map) = strict::parse::<UniqueMap<Value>>(text)?;
    Ok(map.into_iter().collect())
}

fn prompt(session: Option<&str>, profile: Profile) -> anyhow::Result<Exit> {
    let session = match session {
        Some(session) => session.to_owned(),
        None => newest_in_cwd()?,
    };
    let all = sessions()?;
    let Some(record) = all.iter().find(|record| record["session_id"] == session.as_str()) else {
        bail!("there is no session `{session}`; `aos session list` shows them");
    };
    let mounts: Vec<Mount> = match record.get("mounts") {
        Some(mounts) => {
            serde_json::from_value(mounts.clone()).context("the daemon's list of mounts is invalid")?
        }
        None => Vec::new(),
    };
    print_text(aos_tools::prompt(profile, record["target"].get("vfs").is_some(), &mounts).trim_end())?;
    Ok(Exit::Success)
}
