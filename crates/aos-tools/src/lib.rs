//! The tools for models, the same for every front end: a call becomes effects, their receipts become text.
//!
//! Read `catalog` first: it is what a model reads. Nothing here touches files or decides what is allowed; it asks the
//! daemon, as any client does, inside the one session that the front end chose.

mod catalog;
mod context;
mod cut;
mod daemon;
mod deepagents;
mod field;
mod files;
mod pages;
mod prompt;
mod search;
mod shell;
mod undo;

use serde_json::{Map, Value};

pub use catalog::{Hints, Profile, Tool, tools};
pub use context::{Memory, ToolContext};
pub use daemon::{DaemonApi, Progress, Unanswered, effect_call};
pub use prompt::{Mount, appendix, prompt};

use field::{Arguments, Mistake};

/// What a tool does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Read,
    Write,
    Edit,
    Patch,
    Grep,
    Glob,
    List,
    Stat,
    Remove,
    Shell,
    Undo,
    Redo,
    History,
    Diff,
    StageDiff,
    StageCommit,
    Ls,
    PlainRead,
    PlainWrite,
    PlainEdit,
    PlainGlob,
    PlainGrep,
    Rm,
}

/// What a model gets.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    pub text: String,
    pub failed: bool,
    /// The same for programs: the receipt's small fields.
    pub fields: Map<String, Value>,
    /// Where the rest of a cut result is.
    pub blobs: Vec<String>,
}

/// A tool call that did not work, and why.
#[derive(Debug, Clone, Default)]
pub(crate) struct Failure {
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) fields: Map<String, Value>,
    /// What there is to show all the same: a command's output, say.
    pub(crate) shown: String,
    /// The message is the whole text, to the letter.
    pub(crate) verbatim: bool,
}

impl Failure {
    pub(crate) fn new(code: &str, message: impl Into<String>) -> Failure {
        Failure { code: code.to_owned(), message: message.into(), ..Failure::default() }
    }

    /// A text that existing users match on.
    pub(crate) fn verbatim(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), verbatim: true, ..Failure::default() }
    }
}

type Told = Result<Outcome, Failure>;

/// An outcome for what a door itself refuses, in the words of every other failure.
pub fn refused(code: &str, message: &str) -> Outcome {
    failed(Failure::new(code, message))
}

/// Whether there is such a tool.
pub fn find(profile: Profile, staged: bool, name: &str) -> Option<Tool> {
    tools(profile, staged).into_iter().find(|tool| tool.name == name)
}

/// Calls a tool. A failure is an outcome too: marked, and with the next step.
pub fn call(context: &mut ToolContext<'_>, tool: &Tool, arguments: Map<String, Value>) -> Outcome {
    let told = match Arguments::check(tool.fields, arguments) {
        Ok(arguments) => run(context, tool.act, &arguments),
        Err(mistake) => Err(misused(tool, &mistake)),
    };
    told.unwrap_or_else(failed)
}

/// The effect that a call amounts to, for asking what policy would say of it; tools of several effects give the one
/// that matters. `None` where nothing is at stake.
pub fn effect_of(
    tool: &Tool,
    session: &str,
    arguments: &Map<String, Value>,
) -> Option<(&'static str, Value)> {
    let arguments = Arguments::check(tool.fields, arguments.clone()).ok()?;
    match tool.act {
        Act::Read if pages::blob_named(arguments.text("path")?).is_some() => None,
        Act::Read => Some(("host.fs.read_file", arguments.params(session, &["path"]))),
        Act::Write => Some(files::write_effect(session, &arguments)),
        Act::Edit => Some(files::edit_effect(session, &arguments)),
        Act::Patch => Some(files::patch_effect(session, &arguments)),
        Act::Remove => Some(files::remove_effect(session, &arguments)),
        Act::List => Some(files::list_effect(session, &arguments)),
        Act::Stat => Some(files::stat_effect(session, &arguments)),
        Act::Grep => Some(search::grep_effect(session, &arguments)),
        Act::Glob => Some(search::glob_effect(session, &arguments)),
        Act::Shell => Some(shell::effect(session, &arguments)),
        Act::Undo | Act::Redo | Act::History | Act::Diff | Act::StageDiff | Act::StageCommit => None,
        // These take no path that policy could warn of: a leading slash is their root.
        Act::Ls | Act::PlainRead | Act::PlainWrite | Act::PlainEdit => None,
        Act::PlainGlob | Act::PlainGrep | Act::Rm => None,
    }
}

fn run(context: &mut ToolContext<'_>, act: Act, arguments: &Arguments) -> Told {
    match act {
        Act::Read => files::read(context, arguments),
        Act::Write => files::write(context, arguments),
        Act::Edit => files::edit(context, arguments),
        Act::Patch => files::patch(context, arguments),
        Act::List => files::list(context, arguments),
        Act::Stat => files::stat(context, arguments),
        Act::Remove => files::remove(context, arguments),
        Act::Grep => search::grep(context, arguments),
        Act::Glob => search::glob(context, arguments),
        Act::Shell => shell::run(context, arguments),
        Act::Undo => undo::undo(context, arguments),
        Act::Redo => undo::redo(context),
        Act::History => undo::history(context, arguments),
        Act::Diff => undo::diff(context, arguments),
        Act::StageDiff => undo::stage_diff(context, arguments),
        Act::StageCommit => undo::stage_commit(context, arguments),
        Act::Ls => deepagents::ls(context, arguments),
        Act::PlainRead => deepagents::read(context, arguments),
        Act::PlainWrite => deepagents::write(context, arguments),
        Act::PlainEdit => deepagents::edit(context, arguments),
        Act::PlainGlob => deepagents::glob(context, arguments),
        Act::PlainGrep => deepagents::grep(context, arguments),
        Act::Rm => deepagents::rm(context, arguments),
    }
}

fn misused(tool: &Tool, mistake: &Mistake) -> Failure {
    let is_plain = DEEPAGENTS_ACTS.contains(&tool.act);
    match mistake {
        Mistake::Missing(name) if is_plain => Failure::verbatim(format!("{name} is required.")),
        _ => Failure::new("invalid_params", format!("{}: {mistake}", tool.name)),
    }
}

const DEEPAGENTS_ACTS: [Act; 7] =
    [Act::Ls, Act::PlainRead, Act::PlainWrite, Act::PlainEdit, Act::PlainGlob, Act::PlainGrep, Act::Rm];

/// A failure as a model reads it.
fn failed(failure: Failure) -> Outcome {
    let Failure { code, message, mut fields, shown, verbatim } = failure;
    if !code.is_empty() {
        fields.insert("error_code".into(), code.clone().into());
    }
    if !fields.contains_key("status") {
        fields.insert("status".into(), "error".into());
    }
    let text = match verbatim {
        true => message,
        false => {
            let shown = if shown.is_empty() { shown } else { format!("{}\n", shown.trim_end()) };
            format!("{shown}Error: {message} [{code}]\nNext: {}", next_step(&code))
        }
    };
    Outcome { text, failed: true, fields, blobs: Vec::new() }
}

/// What a model should try now. The message has said what was wrong.
fn next_step(code: &str) -> &'static str {
    match code {
        "path_not_found" | "parent_not_found" | "cwd_not_found" => {
            "look with list_dir or glob, then use a path that is there."
        }
        "is_directory" => "list it with list_dir, or name a file in it.",
        "not_directory" => "read it with read_file, or list the folder above it.",
        "edit_target_not_found" => {
            "read the place with read_file and copy old_string from the file, without line numbers."
        }
        "ambiguous_matches" => "add lines around old_string until it is unique, or set replace_all.",
        "invalid_input_empty_old_string" => {
            "give the text to replace, or write the whole file with write_file."
        }
        "file_exists" => "change the file with edit_file, or write with mode overwrite.",
        "stale_base" | "changed_since" => {
            "look at the file as it is now; do not overwrite the work of others without being asked to."
        }
        "patch_parse_error" | "invalid_patch_empty" => "correct the patch's form; nothing was changed.",
        "patch_context_not_found" => {
            "read the file and make the patch again from what is there; nothing was changed."
        }
        "directory_not_empty" => "set recursive if everything in it shall go.",
        "invalid_regex" => "correct the pattern, or set fixed_strings.",
        "invalid_pattern" | "invalid_glob_filter" => "correct the pattern; it is relative and has no `..`.",
        "invalid_utf8" | "not_regular_file" => "it is no text; look at it with shell if you must.",
        "file_too_large" | "limit_exceeded" | "content_too_long" => "do it in smaller parts.",
        "op_not_allowed"
        | "policy_denied"
        | "path_outside_roots"
        | "symlink_not_allowed"
        | "protected_path"
        | "exec_not_allowed"
        | "program_not_allowed" => {
            "no argument changes this; work within the session, or tell the person what you need and why."
        }
        "declined" => "do not try it another way; ask the person what to do instead.",
        "invalid_params" | "argv_empty" => "call it again with the arguments that its schema names.",
        "snapshot_not_found" => "use an id that history lists.",
        "nothing_to_roll_back" | "nothing_to_redo" => "go on; there is nothing to do.",
        "timeout" => "run less at a time, or give a larger timeout_ms.",
        "spawn_failed" => "check the program's name; a string is run by sh, an array is run as it is.",
        "session_closed" | "session_expired" | "session_not_found" => {
            "the session is over; tell the person that the tools must be started again."
        }
        "unsupported_target" => "this session has no commands; use the file tools.",
        "daemon_gone" => "try once more; if it stays away, tell the person.",
        _ => "read the message, change the call, or tell the person.",
    }
}
