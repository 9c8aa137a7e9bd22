//! `aos policy path|command|explain`: the evaluation, as JSON.

use anyhow::{Context as _, bail};
use aos_host::Evaluate;
use serde_json::{Value, json};

use super::{daemon, ended, read_text};
use crate::Exit;
use crate::cli::{Policy, PolicyGround};

pub(crate) fn run(command: Policy) -> anyhow::Result<Exit> {
    let evaluation = match command {
        Policy::Path { path, ground } => evaluate(&ground, json!({ "path": path }))?,
        Policy::Command { ground, command_cwd, argv } => {
            let mut question = json!({ "argv": argv });
            if let Some(dir) = command_cwd {
                question["command_cwd"] = json!(dir);
            }
            evaluate(&ground, question)?
        }
        Policy::Explain { seq } => explain(seq)?,
    };
    println!("{}", aos_model::text::escape_json(&evaluation.to_string()));
    Ok(Exit::Success)
}

/// Inside a session the daemon knows its policy and roots; without one, nothing but the arguments matters.
fn evaluate(ground: &PolicyGround, mut question: Value) -> anyhow::Result<Value> {
    match (&ground.preset, &ground.policy) {
        (Some(preset), _) => question["policy"] = json!({ "preset": preset }),
        (None, Some(file)) => {
            question["policy"] = serde_json::from_str(&read_text(file)?)
                .with_context(|| format!("{} is no JSON", file.display()))?;
        }
        (None, None) => {}
    }
    if let Some(session) = &ground.session {
        question["session_id"] = json!(session);
        let answer = daemon()?.call("policy.evaluate", &question.to_string()).map_err(ended)?;
        return checked(serde_json::from_str(&answer)?);
    }
    question["cwd"] = json!(absolute(ground.cwd.as_deref().unwrap_or("."))?);
    if let Some(workspace) = &ground.workspace {
        question["workspace"] = json!(absolute(workspace)?);
    }
    let asked: Evaluate = aos_model::strict::parse(&question.to_string()).context("cannot evaluate")?;
    let evaluation = aos_host::evaluate(&asked).map_err(anyhow::Error::new)?;
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
    Ok(path.to_str().context("the folder's name is no UTF-8")?.to_owned())
}

/// What an entry asked for: a command by its words, else each path that it names.
fn questions(params: &Value) -> Vec<Evaluate> {
    let text = |name: &str| params.get(name).and_then(Value::as_str).map(str::to_owned);
    if let Some(argv) = params.get("argv").and_then(Value::as_array) {
        let argv = argv.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        return vec![Evaluate { argv: Some(argv), command_cwd: text("cwd"), ..Evaluate::default() }];
    }
    let named: Vec<String> = ["path", "from", "to"].into_iter().filter_map(text).collect();
    let paths = if named.is_empty() { vec![".".to_owned()] } else { named };
    paths.into_iter().map(|path| Evaluate { path: Some(path), ..Evaluate::default() }).collect()
}

/// Evaluates again what an entry asked for, with the policy that its session has.
fn explain(seq: u64) -> anyhow::Result<Value> {
    let home = crate::home::path()?;
    let reader = aos_store::Reader::open(&home)?;
    let row = reader.entry(seq)?.with_context(|| format!("there is no entry {seq}; `aos log` shows them"))?;
    let entry = row.entry()?;
    let params: Value = serde_json::from_str(entry.params.get())?;
    let session = entry
        .session_id
        .as_deref()
        .with_context(|| format!("entry {seq} belongs to no session, so no policy judged it"))?;
    let record = reader
        .state(&aos_model::state::session_key(session))?
        .and_then(|bytes| aos_model::state::decode_session(&bytes));
    let record = record.with_context(|| format!("the session of entry {seq} is not known"))?;
    let evaluations =
        questions(&params).into_iter().map(|asked| aos_host::evaluate_recorded(&record, &asked));
    let evaluations = evaluations.collect::<Result<Vec<_>, _>>().map_err(anyhow::Error::new)?;
    // Of two paths the one that weighs more; of equals the first.
    let weighed = evaluations.into_iter().rev().max_by_key(|evaluation| evaluation.disposition);
    let mut shown = serde_json::to_value(weighed.context("BUG: there is always a question")?)?;
    let receipt: Value = serde_json::from_str(entry.receipt.get())?;
    shown["seq"] = json!(seq);
    for field in ["status", "error_code", "error_message"] {
        if let Some(value) = receipt.get(field) {
            shown[field] = value.clone();
        }
    }
    Ok(shown)
}
