//! `aos policy path|command|explain`: prints the host-access evaluation as JSON. `aos policy protected` prints the
//! protected names.

use anyhow::{Context as _, bail};
use aos_host::Evaluate;
use serde_json::{Value, json};

use super::{daemon, daemon_error, read_text};
use crate::Exit;
use crate::cli::{Policy, PolicyContext};

pub(crate) fn run(command: Policy) -> anyhow::Result<Exit> {
    let evaluation = match command {
        Policy::Path { path, context } => evaluate(&context, json!({ "path": path }))?,
        Policy::Command { context, command_cwd, argv } => {
            let mut request = json!({ "argv": argv });
            if let Some(dir) = command_cwd {
                request["command_cwd"] = json!(dir);
            }
            evaluate(&context, request)?
        }
        Policy::Explain { seq } => explain(seq)?,
        Policy::Protected => {
            println!("{}", serde_json::to_string_pretty(&aos_model::policy::protected_patterns())?);
            return Ok(Exit::Success);
        }
    };
    println!("{}", aos_model::text::escape_json(&evaluation.to_string()));
    Ok(Exit::Success)
}

/// In a session the daemon evaluates with its policy and roots; without one, only the arguments matter.
fn evaluate(context: &PolicyContext, mut request: Value) -> anyhow::Result<Value> {
    match (&context.preset, &context.policy) {
        (Some(preset), _) => request["policy"] = json!({ "preset": preset }),
        (None, Some(file)) => {
            request["policy"] = serde_json::from_str(&read_text(file)?)
                .with_context(|| format!("{} is not JSON", file.display()))?;
        }
        (None, None) => {}
    }
    if let Some(session) = &context.session {
        request["session_id"] = json!(session);
        let answer = daemon()?.call("policy.evaluate", &request.to_string()).map_err(daemon_error)?;
        return checked(serde_json::from_str(&answer)?);
    }
    request["cwd"] = json!(absolute(context.cwd.as_deref().unwrap_or("."))?);
    if let Some(workspace) = &context.workspace {
        request["workspace"] = json!(absolute(workspace)?);
    }
    let request: Evaluate = aos_model::strict::parse(&request.to_string()).context("cannot evaluate")?;
    let evaluation = aos_host::evaluate(&request).map_err(anyhow::Error::new)?;
    Ok(serde_json::to_value(evaluation)?)
}

fn checked(answer: Value) -> anyhow::Result<Value> {
    match answer.get("error_message").and_then(Value::as_str) {
        Some(message) => bail!("{message}"),
        None => Ok(answer),
    }
}

fn absolute(dir: &str) -> anyhow::Result<String> {
    let path = std::path::absolute(dir).with_context(|| format!("cannot make {dir} absolute"))?;
    Ok(path.to_str().context("the folder's name is not UTF-8")?.to_owned())
}

/// The evaluations of an entry: its command, or each of its paths.
fn requests_of(params: &Value) -> Vec<Evaluate> {
    let text = |name: &str| params.get(name).and_then(Value::as_str).map(str::to_owned);
    if let Some(argv) = params.get("argv").and_then(Value::as_array) {
        let argv = argv.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        return vec![Evaluate { argv: Some(argv), command_cwd: text("cwd"), ..Evaluate::default() }];
    }
    let given: Vec<String> = ["path", "from", "to"].into_iter().filter_map(text).collect();
    let paths = if given.is_empty() { vec![".".to_owned()] } else { given };
    paths.into_iter().map(|path| Evaluate { path: Some(path), ..Evaluate::default() }).collect()
}

/// Evaluates an entry again, with the recorded policy of its session.
fn explain(seq: u64) -> anyhow::Result<Value> {
    let home = crate::home::path()?;
    let reader = aos_store::Reader::open(&home)?;
    let row = reader.entry(seq)?.with_context(|| format!("there is no entry {seq}; `aos log` shows them"))?;
    let entry = row.entry()?;
    let params: Value = serde_json::from_str(entry.params.get())?;
    let session = entry
        .session_id
        .as_deref()
        .with_context(|| format!("entry {seq} does not belong to a session, so it has no policy"))?;
    let record = reader
        .state(&aos_model::state::session_key(session))?
        .and_then(|bytes| aos_model::state::decode_session(&bytes));
    let record = record.with_context(|| format!("the session of entry {seq} is not known"))?;
    let evaluations =
        requests_of(&params).into_iter().map(|request| aos_host::evaluate_recorded(&record, &request));
    let evaluations = evaluations.collect::<Result<Vec<_>, _>>().map_err(anyhow::Error::new)?;
    // Of two paths the more severe evaluation; of equals the first.
    let worst = evaluations.into_iter().rev().max_by_key(|evaluation| evaluation.disposition);
    let mut shown = serde_json::to_value(worst.context("BUG: an entry has at least one evaluation")?)?;
    let receipt: Value = serde_json::from_str(entry.receipt.get())?;
    shown["seq"] = json!(seq);
    for field in ["status", "error_code", "error_message"] {
        if let Some(value) = receipt.get(field) {
            shown[field] = value.clone();
        }
    }
    Ok(shown)
}
