//! `aos undo`, `aos redo`, `aos history`, `aos diff`: show, undo and redo the changes of a session.

use std::io::{IsTerminal as _, Write as _};

use anyhow::bail;
use aos_model::text::{count, escape, escape_lines};
use serde_json::{Value, json};

use super::session::newest_in_cwd;
use super::{daemon, daemon_error, effect, refusal_text};
use crate::Exit;
use crate::cli::{Diff, History, Redo, Undo, UndoOptions};
use crate::render::{BAD, DIM, GOOD, STRONG, time};

fn session(given: Option<&String>) -> anyhow::Result<String> {
    given.map_or_else(newest_in_cwd, |session| Ok(session.clone()))
}

pub(crate) fn undo(undo: &Undo) -> anyhow::Result<Exit> {
    let session = session(undo.options.session.as_ref())?;
    let mut params = json!({ "session_id": session, "force": undo.options.force });
    let kind = match &undo.tool_call {
        Some(tool_call) => {
            params["scope_id"] = json!(tool_call);
            "host.fs.restore"
        }
        None => {
            params["turns"] = json!(undo.turns);
            "host.fs.rollback"
        }
    };
    preview_and_apply(kind, params, &undo.options)
}

pub(crate) fn redo(redo: &Redo) -> anyhow::Result<Exit> {
    let session = session(redo.options.session.as_ref())?;
    let params = json!({ "session_id": session, "turns": redo.turns, "force": redo.options.force });
    preview_and_apply("host.fs.redo", params, &redo.options)
}

/// Shows what would happen, asks for confirmation, and does it.
fn preview_and_apply(kind: &str, mut params: Value, options: &UndoOptions) -> anyhow::Result<Exit> {
    let mut client = daemon()?;
    params["dry_run"] = json!(true);
    let preview = effect(&mut client, kind, &params)?;
    if preview["status"] != "ok" {
        return refused(&preview, options.json);
    }
    if !options.json {
        show(&preview);
    }
    let has_conflicts = preview["conflicts"].as_array().is_some_and(|conflicts| !conflicts.is_empty());
    let forced = params["force"] == true;
    if options.dry_run {
        if options.json {
            println!("{}", aos_model::text::escape_json(&preview.to_string()));
        }
        return Ok(Exit::Success);
    }
    if has_conflicts && !forced && !options.json {
        bail!(
            "these files have changed since; nothing was changed. Revert the later changes first, or use --force"
        );
    }
    let is_zero = |name: &str| preview[name].as_u64() == Some(0);
    if is_zero("restored_paths_count") && is_zero("deleted_paths_count") && !options.json {
        println!("nothing to change: the files are already in that state");
        return Ok(Exit::Success);
    }
    if !options.yes && !options.json && !confirmed()? {
        println!("nothing was changed");
        return Ok(Exit::Failure);
    }
    params["dry_run"] = json!(false);
    let done = effect(&mut client, kind, &params)?;
    if done["status"] != "ok" {
        return refused(&done, options.json);
    }
    if options.json {
        println!("{}", aos_model::text::escape_json(&done.to_string()));
    } else {
        let number = |name: &str| done[name].as_u64().unwrap_or(0);
        println!(
            "{} restored, {} deleted{}",
            count(number("restored_paths_count"), "path"),
            number("deleted_paths_count"),
            match kind {
                "host.fs.rollback" => "; `aos redo` reverses this",
                _ => "; `aos undo` reverses this",
            }
        );
    }
    Ok(Exit::Success)
}

pub(crate) fn refused(receipt: &Value, as_json: bool) -> anyhow::Result<Exit> {
    if as_json {
        println!("{}", aos_model::text::escape_json(&receipt.to_string()));
        return Ok(Exit::Failure);
    }
    bail!("{}", refusal_text(receipt))
}

fn show(preview: &Value) {
    let list = |name: &str| preview[name].as_array().cloned().unwrap_or_default();
    for turn in list("rolled_back_turns").iter().chain(&list("redone_turns")) {
        anstream::println!("{DIM}turn {}{DIM:#}", escape(turn.as_str().unwrap_or_default()));
    }
    for path in list("restored_paths") {
        anstream::println!("  {GOOD}restore{GOOD:#}  {}", escape(path.as_str().unwrap_or_default()));
    }
    for path in list("deleted_paths") {
        anstream::println!("  {BAD}delete{BAD:#}   {}", escape(path.as_str().unwrap_or_default()));
    }
    for conflict in list("conflicts") {
        let text = |name: &str| escape(conflict[name].as_str().unwrap_or_default());
        anstream::println!("  {BAD}changed since{BAD:#}  {} by {}", text("path"), text("changed_by"));
    }
}

fn confirmed() -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("standard input is not a terminal; use --yes to proceed without confirmation");
    }
    print!("Proceed? [y/N] ");
    std::io::stdout().flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

pub(crate) fn history(history: &History) -> anyhow::Result<Exit> {
    let session = session(history.session.as_ref())?;
    let params = json!({ "session_id": session }).to_string();
    let answer: Value =
        serde_json::from_str(&daemon()?.call("session.history", &params).map_err(daemon_error)?)?;
    let Some(turns) = answer["turns"].as_array() else { return refused(&answer, history.json) };
    if history.json {
        println!("{}", aos_model::text::escape_json(&answer["turns"].to_string()));
        return Ok(Exit::Success);
    }
    if turns.is_empty() {
        eprintln!("aos: session {} has changed nothing yet", escape(&session));
    }
    for turn in turns {
        let state = turn["state"].as_str().unwrap_or_default();
        let style = if state == "done" { GOOD } else { BAD };
        anstream::println!(
            "{STRONG}{}{STRONG:#}  {style}{state}{style:#}",
            escape(turn["turn_id"].as_str().unwrap_or_default())
        );
        for call in turn["calls"].as_array().into_iter().flatten() {
            show_call(call);
        }
    }
    Ok(Exit::Success)
}

fn show_call(call: &Value) {
    let text = |name: &str| escape(call[name].as_str().unwrap_or_default());
    anstream::println!(
        "  {:>6}  {DIM}{}{DIM:#}  {:<12} {}  {DIM}{}{DIM:#}",
        call["seq"],
        time(call["at_ns"].as_u64().unwrap_or(0)),
        text("kind").trim_start_matches("host.").trim_start_matches("fs."),
        text("tool_call_id"),
        text("snapshot_id"),
    );
    for path in call["paths"].as_array().into_iter().flatten() {
        let lines = match (path["lines_added"].as_u64(), path["lines_removed"].as_u64()) {
            (Some(added), Some(removed)) => {
                format!("  {GOOD}+{added}{GOOD:#} {BAD}-{removed}{BAD:#}")
            }
            _ => String::new(),
        };
        let text = |name: &str| escape(path[name].as_str().unwrap_or_default());
        anstream::println!("            {:<8} {}{lines}", text("change"), text("path"));
    }
}

pub(crate) fn diff(diff: &Diff) -> anyhow::Result<Exit> {
    let session = session(diff.session.as_ref())?;
    let params = json!({ "session_id": session, "tool_call_id": diff.tool_call }).to_string();
    let answer: Value =
        serde_json::from_str(&daemon()?.call("session.diff", &params).map_err(daemon_error)?)?;
    let Some(text) = answer["diff"].as_str() else { return refused(&answer, diff.json) };
    if diff.json {
        println!("{}", aos_model::text::escape_json(&answer.to_string()));
        return Ok(Exit::Success);
    }
    print_diff(text);
    Ok(Exit::Success)
}

pub(crate) fn print_diff(text: &str) {
    for line in text.lines() {
        let style = match line.as_bytes().first() {
            _ if line.starts_with("+++") || line.starts_with("---") => STRONG,
            Some(b'+') => GOOD,
            Some(b'-') => BAD,
            Some(b'@') => DIM,
            _ => anstyle::Style::new(),
        };
        anstream::println!("{style}{}{style:#}", escape_lines(line));
    }
}
