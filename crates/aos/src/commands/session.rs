//! `aos session open|list|close`.

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::{daemon, effect, is_success, policy_argument, read_text, refusal_text};
use crate::Exit;
use crate::cli::{Session, SessionOpen};
use crate::render::{DIM, STRONG, time};

pub(crate) fn run(command: Session) -> anyhow::Result<Exit> {
    match command {
        Session::Open(open) => self::open(&open),
        Session::List { all, json } => list(all, json),
        Session::Close { session } => close(session),
    }
}

fn open(open: &SessionOpen) -> anyhow::Result<Exit> {
    let mut params = json!({ "target": target(open)? });
    if let Some(file) = &open.capability {
        params["capability"] = serde_json::from_str(&read_text(file)?)
            .with_context(|| format!("{} is not JSON", file.display()))?;
    }
    if open.uncaptured {
        params["capability"]["exec"]["uncaptured"] = json!(true);
    }
    if open.allow_reduced {
        params["allow_reduced"] = json!(true);
    }
    if let Some(policy) = &open.policy {
        params["policy"] = policy_argument(policy)?;
    }
    if let Some(seconds) = open.ttl {
        params["session_ttl_ns"] = json!(seconds.saturating_mul(1_000_000_000));
    }
    for label in &open.label {
        let (key, value) =
            label.split_once('=').with_context(|| format!("--label {label}: write KEY=VALUE"))?;
        params["labels"][key] = json!(value);
    }
    crate::git_identity::add_to(&mut params["target"]);
    let receipt = effect(&mut daemon()?, "host.session.open", &params)?;
    if open.json {
        println!("{}", aos_model::text::escape_json(&receipt.to_string()));
    } else if let Some(id) = receipt.get("session_id").and_then(Value::as_str) {
        println!("{id}");
    }
    finish("host.session.open", &receipt)
}

fn target(open: &SessionOpen) -> anyhow::Result<Value> {
    if !open.vfs {
        let kind = if open.staged { "staged" } else { "local" };
        return Ok(json!({ kind: { "workdir": absolute(&open.dir)? } }));
    }
    let mut target = json!({});
    for root in &open.allow_root {
        let roots = target["allowed_roots"].as_array().cloned().unwrap_or_default();
        target["allowed_roots"] = roots.into_iter().chain([json!(absolute(root)?)]).collect();
    }
    let mounts = open.mount.iter().map(|mount| match mount.rsplit_once(':') {
        Some((host, path)) => json!({ "host_path": host, "mount_path": path }),
        None => json!({ "host_path": mount }),
    });
    if !open.mount.is_empty() {
        target["mounts"] = mounts.collect();
    }
    Ok(json!({ "vfs": target }))
}

fn absolute(dir: &std::path::Path) -> anyhow::Result<String> {
    let dir = std::path::absolute(dir).context("cannot make the folder absolute")?;
    let text = dir.to_str().context("the folder's name is not UTF-8; use `aos call` with `\\xNN`")?;
    Ok(text.to_owned())
}

/// The host folder of a session.
fn workdir(session: &Value) -> Option<&str> {
    let of = |pointer| session.pointer(pointer).and_then(Value::as_str);
    of("/target/local/workdir").or_else(|| of("/target/staged/workdir"))
}

/// A refusal is printed to standard error and sets the exit code.
fn finish(kind: &str, receipt: &Value) -> anyhow::Result<Exit> {
    let status = receipt.get("status").and_then(Value::as_str).unwrap_or_default();
    if is_success(kind, status) {
        return Ok(Exit::Success);
    }
    bail!("{}", refusal_text(receipt))
}

pub(crate) fn sessions() -> anyhow::Result<Vec<Value>> {
    let receipt = effect(&mut daemon()?, "host.session.list", &json!({}))?;
    match receipt.get("sessions").and_then(Value::as_array) {
        Some(sessions) => Ok(sessions.clone()),
        None => bail!("{}", refusal_text(&receipt)),
    }
}

fn list(all: bool, as_json: bool) -> anyhow::Result<Exit> {
    let shown = sessions()?.into_iter().filter(|session| all || session["state"] == "open");
    for session in shown {
        if as_json {
            println!("{}", aos_model::text::escape_json(&session.to_string()));
            continue;
        }
        let text = |name: &str| session[name].as_str().unwrap_or_default().to_owned();
        let workdir = match workdir(&session) {
            Some(workdir) if session.pointer("/target/staged").is_some() => format!("{workdir} (staged)"),
            Some(workdir) => workdir.to_owned(),
            None => "(virtual)".to_owned(),
        };
        let labels = session["labels"].as_object().map(|labels| {
            let pairs = labels.iter().map(|(key, value)| {
                format!(
                    "{}={}",
                    aos_model::text::escape(key),
                    aos_model::text::escape(value.as_str().unwrap_or_default())
                )
            });
            pairs.collect::<Vec<_>>().join(" ")
        });
        anstream::println!(
            "{STRONG}{}{STRONG:#}  {:7}  {DIM}{}{DIM:#}  {}  {}",
            text("session_id"),
            text("state"),
            time(session["started_at_ns"].as_u64().unwrap_or(0)),
            aos_model::text::escape(&workdir),
            labels.unwrap_or_default()
        );
    }
    Ok(Exit::Success)
}

fn close(session: Option<String>) -> anyhow::Result<Exit> {
    let session = match session {
        Some(session) => session,
        None => newest_in_cwd()?,
    };
    let receipt =
        effect(&mut daemon()?, "host.session.signal", &json!({ "session_id": session, "signal": "term" }))?;
    if receipt["status"] == "already_exited" {
        eprintln!("aos: {session} was already closed");
        return Ok(Exit::Success);
    }
    finish("host.session.signal", &receipt)
}

/// The newest open session whose workdir contains the current folder.
pub(crate) fn newest_in_cwd() -> anyhow::Result<String> {
    let here = rustix::process::getcwd(Vec::new()).context("cannot get the current folder")?;
    let here = std::path::PathBuf::from(here.to_string_lossy().into_owned());
    let contains = |session: &&Value| {
        session["state"] == "open" && workdir(session).is_some_and(|workdir| here.starts_with(workdir))
    };
    let sessions = sessions()?;
    let newest = sessions.iter().filter(contains).max_by_key(|session| session["started_at_ns"].as_u64());
    match newest.and_then(|session| session["session_id"].as_str()) {
        Some(id) => Ok(id.to_owned()),
        None => bail!("no open session for {}; open one with `aos session open`", here.display()),
    }
}
