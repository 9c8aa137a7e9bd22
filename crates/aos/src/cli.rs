//! The command line of `aos`: subcommands and their arguments.

mod models;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::daemon;

pub(crate) use models::{Agent, Mcp, ProfileName, Setup, Tool, ToolCall};

#[derive(Debug, Parser)]
#[command(name = "aos", version, about = env!("CARGO_PKG_DESCRIPTION"), max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a one-minute tour on a sample repository, with its own daemon
    Demo,
    /// Send one effect and print its receipt as one line of JSON
    Call(Call),
    /// Open, list and close sessions
    #[command(subcommand)]
    Session(Session),
    /// Run a command inside a session: its output streams, its exit code is passed on, Ctrl-C interrupts it
    Exec(Exec),
    /// Undo the last turn or one tool call: lists the files first, then asks
    Undo(Undo),
    /// Reverse the last undo of a turn
    Redo(Redo),
    /// Show the turns of a session: calls, paths, lines, and whether each is done or undone
    History(History),
    /// Show what a tool call changed
    Diff(Diff),
    /// Show, commit or discard the changes of a staged session
    #[command(subcommand)]
    Stage(Stage),
    /// Tools for models: print schemas and instructions, or call a tool as a model would
    #[command(subcommand)]
    Tool(Tool),
    /// Serve the tools to an agent over the Model Context Protocol, on standard streams or HTTP
    Mcp(Mcp),
    /// Show, or write, the configuration that lets an agent use `aos mcp`
    Setup(Setup),
    /// Evaluate host access for a path or a command, or explain a journal entry
    #[command(subcommand)]
    Policy(Policy),
    /// Show the journal, one line per entry
    Log(Log),
    /// Show one entry of the journal in full
    Show {
        /// The entry's sequence number, from a receipt or `aos log`
        seq: u64,
    },
    /// Store and fetch content by its SHA-256
    #[command(subcommand)]
    Blob(Blob),
    /// Check that the journal and the blobs it names are intact
    Verify,
    /// Rebuild the state from the journal and compare it with the live state: MATCH or DIFF
    Replay(Replay),
    /// Remove stored content that is no longer referenced
    Gc,
    /// Show the state of the daemon and of AOS_HOME
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show which isolation this machine supports and what commands get
    Doctor {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Manage the daemon; other commands start it when needed
    #[command(subcommand)]
    Daemon(Daemon),
    /// Print a completion script for your shell
    Completions {
        /// The shell to complete for
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder
    Man {
        /// An existing folder
        dir: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Call {
    /// The effect, `host.fs.read_file` for example
    pub(crate) kind: String,
    /// Its params as a JSON object; `-` reads them from standard input
    #[arg(default_value = "{}")]
    pub(crate) params: String,
    /// The agent's id for this tool call
    #[arg(long, value_name = "ID")]
    pub(crate) tool_call: Option<String>,
    /// The turn that groups tool calls
    #[arg(long, value_name = "ID")]
    pub(crate) turn: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Session {
    /// Open a session on a folder and print its id
    Open(SessionOpen),
    /// List sessions
    List {
        /// Closed and expired ones too
        #[arg(long)]
        all: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Close a session
    Close {
        /// The session (default: the newest open one of the current folder)
        session: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Stage {
    /// Show what would change on the disk
    Diff(Staged),
    /// Write the changes to the disk, all or nothing
    Commit(Staged),
    /// Drop the changes
    Discard(Staged),
}

#[derive(Debug, Args)]
pub(crate) struct Staged {
    /// Only these paths and what is below them
    pub(crate) paths: Vec<String>,
    /// The session (default: the newest open one of the current folder)
    #[arg(short, long, value_name = "S")]
    pub(crate) session: Option<String>,
    /// Print the receipt as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SessionOpen {
    /// The folder to work in
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,
    /// Hold changes back until `aos stage commit`; commands do not run
    #[arg(long, conflicts_with = "vfs")]
    pub(crate) staged: bool,
    /// Keep files in a layer that is never written to the disk; DIR is not used
    #[arg(long)]
    pub(crate) vfs: bool,
    /// Copy a folder or file of the host into the layer (can be repeated)
    #[arg(long, value_name = "HOST_PATH[:MOUNT_PATH]", requires = "vfs")]
    pub(crate) mount: Vec<String>,
    /// A folder that mounts may come from (can be repeated); without one nothing can be mounted
    #[arg(long, value_name = "DIR", requires = "vfs")]
    pub(crate) allow_root: Vec<PathBuf>,
    /// A capability file in JSON: the session's ceiling
    #[arg(long, value_name = "FILE")]
    pub(crate) capability: Option<PathBuf>,
    /// A policy: default, strict, permissive, or a file in JSON
    #[arg(long, value_name = "FILE|PRESET")]
    pub(crate) policy: Option<String>,
    /// Allow commands without capture (`aos exec --no-capture`): what they change is not undoable
    #[arg(long)]
    pub(crate) uncaptured: bool,
    /// Run commands with Landlock and seccomp only where this machine has no namespaces
    #[arg(long)]
    pub(crate) allow_reduced: bool,
    /// Close the session after this many seconds
    #[arg(long, value_name = "SECONDS")]
    pub(crate) ttl: Option<u64>,
    /// A label (can be repeated)
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) label: Vec<String>,
    /// Print the receipt as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Exec {
    /// The session (default: the newest open one of the current folder)
    #[arg(short, long, value_name = "S")]
    pub(crate) session: Option<String>,
    /// The folder to run in, relative to the session's workdir
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// End the command after this many seconds
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<f64>,
    /// Set a variable (can be repeated); NAME alone unsets it
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// Standard input: a file, or `-` for this terminal's (default: empty)
    #[arg(long, value_name = "FILE")]
    pub(crate) stdin: Option<PathBuf>,
    /// Do not capture the command's changes; they cannot be undone
    #[arg(long)]
    pub(crate) no_capture: bool,
    /// The agent's id for this tool call
    #[arg(long, value_name = "ID")]
    pub(crate) tool_call: Option<String>,
    /// The turn that groups tool calls
    #[arg(long, value_name = "ID")]
    pub(crate) turn: Option<String>,
    /// Print the receipt as JSON instead of streaming
    #[arg(long)]
    pub(crate) json: bool,
    /// The program and its arguments, after `--`
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) argv: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Undo {
    /// The tool call to undo (default: the last turn)
    pub(crate) tool_call: Option<String>,
    /// Undo this many turns
    #[arg(long = "turn", value_name = "N", default_value_t = 1, num_args = 0..=1, default_missing_value = "1", conflicts_with = "tool_call")]
    pub(crate) turns: u64,
    #[command(flatten)]
    pub(crate) options: UndoOptions,
}

/// What `undo` and `redo` share.
#[derive(Debug, Args)]
pub(crate) struct UndoOptions {
    /// The session (default: the newest open one of the current folder)
    #[arg(short, long, value_name = "S")]
    pub(crate) session: Option<String>,
    /// Show what would happen and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Overwrite later changes
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Print the receipt as JSON; implies --yes
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Redo {
    /// Redo this many turns
    #[arg(long = "turn", value_name = "N", default_value_t = 1)]
    pub(crate) turns: u64,
    #[command(flatten)]
    pub(crate) options: UndoOptions,
}

#[derive(Debug, Args)]
pub(crate) struct History {
    /// The session (default: the newest open one of the current folder)
    #[arg(short, long, value_name = "S")]
    pub(crate) session: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// The tool call, from `aos history`
    pub(crate) tool_call: String,
    /// The session (default: the newest open one of the current folder)
    #[arg(short, long, value_name = "S")]
    pub(crate) session: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Policy {
    /// Evaluate a path
    Path {
        /// The path to evaluate
        path: String,
        #[command(flatten)]
        context: PolicyContext,
    },
    /// Evaluate a command
    Command {
        #[command(flatten)]
        context: PolicyContext,
        /// The folder that the command would run in (default: --cwd)
        #[arg(long, value_name = "DIR")]
        command_cwd: Option<String>,
        /// The program and its arguments, after `--`
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        argv: Vec<String>,
    },
    /// Show the host-access evaluation of a journal entry
    Explain {
        /// The entry's sequence number
        seq: u64,
    },
    /// Print the names that are protected, and those that are warned about
    Protected,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyContext {
    /// The session's working folder (default: the current one)
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// The workspace root; without it, the decision points of workspaces do not apply
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<String>,
    /// default, strict or permissive
    #[arg(long, value_name = "PRESET", conflicts_with = "policy")]
    pub(crate) preset: Option<String>,
    /// A policy file in JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Evaluate in a session instead, with its policy and roots
    #[arg(short, long, value_name = "S", conflicts_with_all = ["cwd", "workspace"])]
    pub(crate) session: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Log {
    /// Only this session's entries
    #[arg(short, long, value_name = "S")]
    pub(crate) session: Option<String>,
    /// Print whole entries, one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
    /// Continue as entries arrive
    #[arg(short, long)]
    pub(crate) follow: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Blob {
    /// Write a blob to standard output
    Get {
        /// Its reference, `sha256:…`
        blob_ref: String,
    },
    /// Store a file and print its reference; `-` is standard input
    Put {
        /// The file
        file: PathBuf,
        /// The most bytes to store
        #[arg(long, value_name = "N", default_value_t = crate::commands::blob::PUT_BYTES_DEFAULT)]
        max_bytes: u64,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// Only this session's part of the state
    #[arg(short, long, value_name = "S")]
    pub(crate) session: Option<String>,
    /// Compare with the live state
    #[arg(long)]
    pub(crate) verify: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Daemon {
    /// Start it in the background
    Start,
    /// Stop it; requests in progress are finished first
    Stop,
    /// Show whether it is running
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show its log, even when it is not running
    Logs(DaemonLogs),
    /// Run it in the foreground
    Run(daemon::Options),
}

#[derive(Debug, Args)]
pub(crate) struct DaemonLogs {
    /// Continue as lines are written
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only the last N lines
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) lines: Option<usize>,
}
