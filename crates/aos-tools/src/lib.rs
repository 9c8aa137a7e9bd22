//! The tools for models, the same for every front end: a call becomes effects, their receipts become text.
//!
//! Read `catalog` first: it is what a model sees. Nothing here touches files or decides what is allowed: every effect is
//! a request to the daemon, in the session that the front end chose.

mod catalog;
mod context;
mod daemon;
mod deepagents;
mod field;
mod files;
mod history;
mod pages;
mod prompt;
mod search;
mod shell;
mod truncate;

use aos_model::text::escape_lines_for_model;
use serde_json::{Map, Value};

pub use catalog::{Hints, Profile, Tool, tools};
pub use context::{LineOffsetCache, ToolContext};
pub use daemon::{CallError, DaemonApi, Progress, effect_call};
pub use prompt::{Mount, appendix, prompt};

use field::{ArgumentError, Arguments};

/// What a tool does. Tools of different profiles can have the same name and different kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolKind {
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
    DeepagentsRead,
    DeepagentsWrite,
    DeepagentsEdit,
    DeepagentsGlob,
    DeepagentsGrep,
    Rm,
}

/// The result of a tool call, for a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    pub text: String,
    pub failed: bool,
    /// The receipt's small fields, for programs.
    pub fields: Map<String, Value>,
    /// The blobs that hold truncated results in full.
    pub blobs: Vec<String>,
}

/// Why a tool call failed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Failure {
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) fields: Map<String, Value>,
    /// Output to show despite the failure, such as a command's.
    pub(crate) shown: String,
    /// The message is the whole text, without code and next step.
    pub(crate) verbatim: bool,
}

impl Failure {
    pub(crate) fn new(code: &str, message: impl Into<String>) -> Failure {
        Failure { code: code.to_owned(), message: message.into(), ..Failure::default() }
    }

    /// A literal text that existing users match on.
    pub(crate) fn verbatim(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), verbatim: true, ..Failure::default() }
    }
}

type ToolResult = Result<Outcome, Failure>;

/// The outcome of a call that a front end itself refuses, with the same text as any other failure.
pub fn refused(code: &str, message: &str) -> Outcome {
    failure_outcome(Failure::new(code, message))
}

/// The tool of this name, if the profile has it.
pub fn find(profile: Profile, staged: bool, name: &str) -> Option<Tool> {
    tools(profile, staged).into_iter().find(|tool| tool.name == name)
}

/// Calls a tool. A failure is an outcome too, with `failed` set and the next step in its text.
pub fn call(context: &mut ToolContext<'_>, tool: &Tool, arguments: Map<String, Value>) -> Outcome {
    let result = match Arguments::check(tool.fields, arguments) {
        Ok(arguments) => run(context, tool.kind, &arguments),
        Err(error) => Err(argument_failure(tool, &error)),
    };
    match result {
        Ok(outcome) if shows_content(tool.kind) => outcome,
        Ok(outcome) => Outcome { text: escape_lines_for_model(&outcome.text), ..outcome },
        Err(failure) => failure_outcome(failure),
    }
}

/// Whether the text is mostly content, which is shown unchanged because edits must match it. These tools escape what they
/// add to it.
fn shows_content(kind: ToolKind) -> bool {
    matches!(
        kind,
        ToolKind::Read
            | ToolKind::Grep
            | ToolKind::Shell
            | ToolKind::DeepagentsRead
            | ToolKind::DeepagentsGrep
    )
}

/// The effect of a call, without making the call; for a tool with several effects, the one that policy can deny. `None` for
/// calls that policy does not concern.
pub fn effect_of(
    tool: &Tool,
    session: &str,
    arguments: &Map<String, Value>,
) -> Option<(&'static str, Value)> {
    let arguments = Arguments::check(tool.fields, arguments.clone()).ok()?;
    match tool.kind {
        ToolKind::Read if pages::blob_named(arguments.text("path")?).is_some() => None,
        ToolKind::Read => Some(("host.fs.read_file", arguments.params(session, &["path"]))),
        ToolKind::Write => Some(files::write_effect(session, &arguments)),
        ToolKind::Edit => Some(files::edit_effect(session, &arguments)),
        ToolKind::Patch => Some(files::patch_effect(session, &arguments)),
        ToolKind::Remove => Some(files::remove_effect(session, &arguments)),
        ToolKind::List => Some(files::list_effect(session, &arguments)),
        ToolKind::Stat => Some(files::stat_effect(session, &arguments)),
        ToolKind::Grep => Some(search::grep_effect(session, &arguments)),
        ToolKind::Glob => Some(search::glob_effect(session, &arguments)),
        ToolKind::Shell => Some(shell::effect(session, &arguments)),
        ToolKind::Undo
        | ToolKind::Redo
        | ToolKind::History
        | ToolKind::Diff
        | ToolKind::StageDiff
        | ToolKind::StageCommit => None,
        // Their paths are relative to the session's root, even with a leading slash.
        ToolKind::Ls | ToolKind::DeepagentsRead | ToolKind::DeepagentsWrite | ToolKind::DeepagentsEdit => {
            None
        }
        ToolKind::DeepagentsGlob | ToolKind::DeepagentsGrep | ToolKind::Rm => None,
    }
}

fn run(context: &mut ToolContext<'_>, kind: ToolKind, arguments: &Arguments) -> ToolResult {
    match kind {
        ToolKind::Read => files::read(context, arguments),
        ToolKind::Write => files::write(context, arguments),
        ToolKind::Edit => files::edit(context, arguments),
        ToolKind::Patch => files::patch(context, arguments),
        ToolKind::List => files::list(context, arguments),
        ToolKind::Stat => files::stat(context, arguments),
        ToolKind::Remove => files::remove(context, arguments),
        ToolKind::Grep => search::grep(context, arguments),
        ToolKind::Glob => search::glob(context, arguments),
        ToolKind::Shell => shell::run(context, arguments),
        ToolKind::Undo => history::undo(context, arguments),
        ToolKind::Redo => history::redo(context),
        ToolKind::History => history::history(context, arguments),
        ToolKind::Diff => history::diff(context, arguments),
        ToolKind::StageDiff => history::stage_diff(context, arguments),
        ToolKind::StageCommit => history::stage_commit(context, arguments),
        ToolKind::Ls => deepagents::ls(context, arguments),
        ToolKind::DeepagentsRead => deepagents::read(context, arguments),
        ToolKind::DeepagentsWrite => deepagents::write(context, arguments),
        ToolKind::DeepagentsEdit => deepagents::edit(context, arguments),
        ToolKind::DeepagentsGlob => deepagents::glob(context, arguments),
        ToolKind::DeepagentsGrep => deepagents::grep(context, arguments),
        ToolKind::Rm => deepagents::rm(context, arguments),
    }
}

fn argument_failure(tool: &Tool, error: &ArgumentError) -> Failure {
    match error {
        ArgumentError::Missing(name) if DEEPAGENTS_KINDS.contains(&tool.kind) => {
            Failure::verbatim(format!("{name} is required."))
        }
        _ => Failure::new("invalid_params", format!("{}: {error}", tool.name)),
    }
}

const DEEPAGENTS_KINDS: [ToolKind; 7] = [
    ToolKind::Ls,
    ToolKind::DeepagentsRead,
    ToolKind::DeepagentsWrite,
    ToolKind::DeepagentsEdit,
    ToolKind::DeepagentsGlob,
    ToolKind::DeepagentsGrep,
    ToolKind::Rm,
];

/// A failure as text for a model.
fn failure_outcome(failure: Failure) -> Outcome {
    let Failure { code, message, mut fields, shown, verbatim } = failure;
    if !code.is_empty() {
        fields.insert("error_code".into(), code.clone().into());
    }
    if !fields.contains_key("status") {
        fields.insert("status".into(), "error".into());
    }
    let message = escape_lines_for_model(&message);
    let text = match verbatim {
        true => message,
        false => {
            let shown = if shown.is_empty() { shown } else { format!("{}\n", shown.trim_end()) };
            format!("{shown}Error: {message} [{code}]\nNext: {}", next_step(&code))
        }
    };
    Outcome { text, failed: true, fields, blobs: Vec::new() }
}

/// What a model should try next. The message has already said what was wrong.
fn next_step(code: &str) -> &'static str {
    match code {
        "path_not_found" | "parent_not_found" | "cwd_not_found" => {
            "find an existing path with list_dir or glob."
        }
        "is_directory" => "list it with list_dir, or name a file in it.",
        "not_directory" => "read it with read_file, or list the folder above it.",
        "edit_target_not_found" => {
            "read that part with read_file and copy old_string from it, without line numbers."
        }
        "ambiguous_matches" => "add lines around old_string until it is unique, or set replace_all.",
        "invalid_input_empty_old_string" => {
            "give the text to replace, or write the whole file with write_file."
        }
        "file_exists" => "change the file with edit_file, or write with mode overwrite.",
        "stale_base" | "changed_since" => {
            "read the file as it is now; do not overwrite later changes unless you were asked to."
        }
        "patch_parse_error" | "invalid_patch_empty" => "correct the patch's format; nothing was changed.",
        "patch_context_not_found" => {
            "read the file and write the patch again from its content; nothing was changed."
        }
        "directory_not_empty" => "set recursive to remove everything in it.",
        "invalid_regex" => "correct the pattern, or set fixed_strings.",
        "invalid_pattern" | "invalid_glob_filter" => {
            "correct the pattern: it must be relative, without `..`."
        }
        "invalid_utf8" | "not_regular_file" => "it is not text; inspect it with shell if you must.",
        "file_too_large" | "limit_exceeded" | "content_too_long" => "do it in smaller parts.",
        "op_not_allowed"
        | "policy_denied"
        | "path_outside_roots"
        | "symlink_not_allowed"
        | "protected_path"
        | "exec_not_allowed"
        | "program_not_allowed" => {
            "no argument changes this; work within the session's limits, or tell the user what you need and why."
        }
        "invalid_params" | "argv_empty" => "call it again with the arguments in its schema.",
        "snapshot_not_found" => "use an id that history lists.",
        "nothing_to_roll_back" | "nothing_to_redo" => "continue; there is nothing to undo or redo.",
        "timeout" => "run less at a time, or pass a larger timeout_ms.",
        "spawn_failed" => "check the program's name; a string runs with `sh -c`, an array runs directly.",
        "session_closed" | "session_expired" | "session_not_found" => {
            "the session has ended; tell the user that the tools must be restarted."
        }
        "unsupported_target" => "this session cannot run commands; use the file tools.",
        "daemon_gone" => "try once more; if it fails again, tell the user.",
        _ => "read the message, change the call, or tell the user.",
    }
}
