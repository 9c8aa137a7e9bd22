//! `aos stage diff|commit|discard`: shows, writes or drops the changes of a staged session.

use aos_model::text::{count, escape};
use serde_json::{Value, json};

use super::history::{print_diff, refused};
use super::session::newest_in_cwd;
use super::{daemon, effect};
use crate::Exit;
use crate::cli::{Stage, Staged};
use crate::render::{BAD, GOOD};

pub(crate) fn run(stage: &Stage) -> anyhow::Result<Exit> {
    let (kind, staged) = match stage {
        Stage::Diff(staged) => ("host.staged.diff", staged),
        Stage::Commit(staged) => ("host.staged.commit", staged),
        Stage::Discard(staged) => ("host.staged.discard", staged),
    };
    let receipt = call(kind, staged)?;
    if receipt["status"] != "ok" {
        if !staged.json {
            show_conflicts(&receipt);
        }
        return refused(&receipt, staged.json);
    }
    if staged.json {
        println!("{}", aos_model::text::escape_json(&receipt.to_string()));
        return Ok(Exit::Success);
    }
    let number = |name: &str| receipt[name].as_u64().unwrap_or(0);
    match stage {
        Stage::Diff(_) if number("files_count") == 0 => println!("nothing is staged"),
        Stage::Diff(_) => print_diff(receipt["diff"].as_str().unwrap_or_default()),
        Stage::Commit(_) => {
            list(&receipt["committed_paths"]);
            println!(
                "{} committed; `aos undo` reverses this",
                count(number("committed_paths_count"), "path")
            );
        }
        Stage::Discard(_) => {
            list(&receipt["discarded_paths"]);
            println!(
                "{} discarded; `aos undo` stages it again",
                count(number("discarded_paths_count"), "path")
            );
        }
    }
    Ok(Exit::Success)
}

fn call(kind: &str, staged: &Staged) -> anyhow::Result<Value> {
    let session = staged.session.clone().map_or_else(newest_in_cwd, Ok)?;
    let mut params = json!({ "session_id": session });
    if !staged.paths.is_empty() {
        params["paths"] = json!(staged.paths);
    }
    effect(&mut daemon()?, kind, &params)
}

fn list(paths: &Value) {
    for path in paths.as_array().into_iter().flatten().filter_map(Value::as_str) {
        anstream::println!("  {GOOD}{}{GOOD:#}", escape(path));
    }
}

fn show_conflicts(receipt: &Value) {
    for conflict in receipt["conflicts"].as_array().into_iter().flatten() {
        let path = escape(conflict["path"].as_str().unwrap_or_default());
        anstream::eprintln!("  {BAD}changed on the disk{BAD:#}  {path}");
    }
}
