//! What can be typed, and where it goes.

mod models;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, Parser, Subcommand};

use crate::{Exit, commands, daemon, demo, panics};

pub(crate) use models::{Agent, Mcp, ProfileName, Setup, Tool, ToolCall};

/// The layer between AI agents and your machine: sessions with hard limits, file tools inside them, one policy that is
/// shown and enforced, and a journal from which everything is explained and replayed.
#[derive(Debug, Parser)]
#[command(name = "aos", version, about, max_term_width = 110)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// See the product work: a minute's tour on a sample repository, in a home of its own
    Demo,
    /// Send one effect and print its receipt as one line of JSON
    Call(Call),
    /// Open, list and close sessions
    #[command(subcommand)]
    Session(Session),
    /// Run a command inside a session: its output streams, its exit code is passed on, Ctrl-C interrupts it
    Exec(Exec),
    /// Take back the last turn, or one tool call: shows the files first, then asks
    Undo(Undo),
    /// Do again what was taken back last
    Redo(Redo),
    /// Show the turns of a session: their calls, paths, lines, and whether they stand
    History(History),
    /// Show what a tool call changed
    Diff(Diff),
    /// Show, commit or discard what waits in a staged session
    #[command(subcommand)]
    Stage(Stage),
    /// The tools for models: their schemas, one call as a model would get it, the page that teaches them
    #[command(subcommand)]
    Tool(Tool),
    /// Serve the tools to an agent over the Model Context Protocol, on standard streams or HTTP
    Mcp(Mcp),
    /// Show, or write, the configuration that lets an agent use `aos mcp`
    Setup(Setup),
    /// Ask what policy says about a path or a command, or why an entry was answered as it was
    #[command(subcommand)]
    Policy(Policy),
    /// Show the journal, one line an entry
    Log(Log),
    /// Show one entry of the journal in full
    Show {
        /// The entry's sequence number, as receipts and `aos log` give it
        seq: u64,
    },
    /// Store and fetch content by its SHA-256
    #[command(subcommand)]
    Blob(Blob),
    /// Check that the journal and all blobs it names are whole
    Verify,
    /// Fold the journal from its beginning and compare with the live state: MATCH or DIFF
    Replay(Replay),
    /// Remove stored content that nothing names any more
    Gc,
    /// How the daemon and its home are
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// What this machine can do to keep commands apart, and what they therefore get
    Doctor {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Manage the daemon by hand; other commands start it by themselves
    #[command(subcommand)]
    Daemon(Daemon),
    /// Print a completion script for your shell
    Completions { shell: clap_complete::Shell },
    /// Write the manual pages into a folder
    Man { dir: PathBuf },
}

#[derive(Debug, Args)]
pub(crate) struct Call {
    /// The effect, `host.fs.read_file` for example
    pub(crate) kind: String,
    /// Its params as a JSON object; `-` reads them from standard input
    #[arg(default_value = "{}")]
    pub(crate) params: String,
    /// The agent's id for this tool use
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
    /// Close a session; left out: the newest open one whose workdir contains the current folder
    Close { session: Option<String> },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Stage {
    /// Show what would change on the disk
    Diff(Staged),
    /// Let it reach the disk: all of it or nothing
    Commit(Staged),
    /// Forget it
    Discard(Staged),
}

#[derive(Debug, Args)]
pub(crate) struct Staged {
    /// Only these paths and what is below them
    pub(crate) paths: Vec<String>,
    /// The session; left out: the newest open one whose workdir contains the current folder
    #[arg(short, long, value_name = "S")]
    pub(crate) session: Option<String>,
    /// Print the receipt as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SessionOpen {
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,
    /// Changes wait until they are committed with `aos stage commit`; commands do not run
    #[arg(long, conflicts_with = "vfs")]
    pub(crate) staged: bool,
    /// A tree in memory that never touches the disk; DIR is not used
    #[arg(long)]
    pub(crate) vfs: bool,
    /// Copy a folder or a file of the host into the tree, may be given more than once
    #[arg(long, value_name = "HOST_PATH[:MOUNT_PATH]", requires = "vfs")]
    pub(crate) mount: Vec<String>,
    /// Where mounts may come from, may be given more than once; without it nothing can be mounted
    #[arg(long, value_name = "DIR", requires = "vfs")]
    pub(crate) allow_root: Vec<PathBuf>,
    /// The hard ceiling: a file with a capability in JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) capability: Option<PathBuf>,
    /// A policy: default, strict, permissive, or a file in JSON
    #[arg(long, value_name = "FILE|PRESET")]
    pub(crate) policy: Option<String>,
    /// Close by itself after so many seconds
    #[arg(long, value_name = "SECONDS")]
    pub(crate) ttl: Option<u64>,
    /// A label, may be given more than once
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) label: Vec<String>,
    /// Print the receipt as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Exec {
    /// The session; left out: the newest open one whose workdir contains the current folder
    #[arg(short, long, value_name = "S")]
    pub(crate) session: Option<String>,
    /// Where to run it, relative to the session's workdir
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// End it after so many seconds
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<f64>,
    /// Set a variable, may be given more than once; NAME alone takes it away
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// What it reads: a file, or `-` for standard input; left out, it reads nothing
    #[arg(long, value_name = "FILE")]
    pub(crate) stdin: Option<PathBuf>,
    /// Run beside the session's changes, without capturing its own
    #[arg(long)]
    pub(crate) no_capture: bool,
    /// The agent's id for this tool use
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
    /// The tool call to take back; left out: the last turn
    pub(crate) tool_call: Option<String>,
    /// Whole turns, so many of them; 1 when nothing else is said
    #[arg(long = "turn", value_name = "N", default_value_t = 1, num_args = 0..=1, default_missing_value = "1", conflicts_with = "tool_call")]
    pub(crate) turns: u64,
    /// The session; left out: the newest open one whose workdir contains the current folder
    #[arg(short, long, value_name = "S")]
    pub(crate) session: Option<String>,
    /// Only show what would happen
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Overwrite what was changed since
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Print the receipt as JSON; does not ask
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Redo {
    /// So many turns
    #[arg(long = "turn", value_name = "N", default_value_t = 1)]
    pub(crate) turns: u64,
    /// The session; left out: the newest open one whose workdir contains the current folder
    #[arg(short, long, value_name = "S")]
    pub(crate) session: Option<String>,
    /// Only show what would happen
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Overwrite what was changed since
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Print the receipt as JSON; does not ask
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct History {
    /// The session; left out: the newest open one whose workdir contains the current folder
    #[arg(short, long, value_name = "S")]
    pub(crate) session: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// The tool call, as `aos history` names it
    pub(crate) tool_call: String,
    /// The session; left out: the newest open one whose workdir contains the current folder
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
        path: String,
        #[command(flatten)]
        ground: PolicyGround,
    },
    /// Evaluate a command
    Command {
        #[command(flatten)]
        ground: PolicyGround,
        /// Where the command would run; left out: --cwd
        #[arg(long, value_name = "DIR")]
        command_cwd: Option<String>,
        /// The program and its arguments, after `--`
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        argv: Vec<String>,
    },
    /// Show the evaluation that an entry of the journal was judged by
    Explain { seq: u64 },
}

#[derive(Debug, Args)]
pub(crate) struct PolicyGround {
    /// The session's working folder; left out: the current one
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// The workspace root; left out, its decision points never fire
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<String>,
    /// default, strict or permissive
    #[arg(long, value_name = "PRESET", conflicts_with = "policy")]
    pub(crate) preset: Option<String>,
    /// A policy file in JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Evaluate inside a session instead, with its policy and roots
    #[arg(short, long, value_name = "S", conflicts_with_all = ["cwd", "workspace"])]
    pub(crate) session: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Log {
    /// Only this session's entries
    #[arg(short, long, value_name = "S")]
    pub(crate) session: Option<String>,
    /// Print whole entries, one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// Go on as entries arrive
    #[arg(short, long)]
    pub(crate) follow: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Blob {
    /// Write a blob to standard output
    Get { blob_ref: String },
    /// Store a file and print its reference; `-` is standard input
    Put { file: PathBuf },
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
    /// Stop it; what is under way is finished first
    Stop,
    /// Whether it runs
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show its log, also when it does not run
    Logs(DaemonLogs),
    /// Run it in the foreground
    Run(daemon::Options),
}

#[derive(Debug, Args)]
pub(crate) struct DaemonLogs {
    /// Go on as lines are written
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only the last N lines
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) lines: Option<usize>,
}

pub fn main() -> ExitCode {
    if let Some(code) = aos_host::serve_as_spawner_if_asked() {
        return code;
    }
    panics::exit_on_panic();
    #[cfg(feature = "testing")]
    aos_host::testing::maybe_panic("aos");
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Demo => demo::run(),
        Command::Call(call) => commands::call::run(&call),
        Command::Session(session) => commands::session::run(session),
        Command::Exec(exec) => commands::exec::run(&exec),
        Command::Undo(undo) => commands::undo::undo(&undo),
        Command::Redo(redo) => commands::undo::redo(&redo),
        Command::History(history) => commands::undo::history(&history),
        Command::Diff(diff) => commands::undo::diff(&diff),
        Command::Stage(stage) => commands::stage::run(&stage),
        Command::Tool(tool) => commands::tool::run(&tool),
        Command::Mcp(mcp) => commands::mcp::run(&mcp),
        Command::Setup(setup) => commands::setup::run(&setup),
        Command::Policy(policy) => commands::policy::run(policy),
        Command::Log(log) => commands::log::run(&log),
        Command::Show { seq } => commands::log::show(seq),
        Command::Blob(blob) => commands::blob::run(blob),
        Command::Verify => commands::record::verify(),
        Command::Replay(replay) => commands::record::replay(&replay),
        Command::Gc => commands::record::gc(),
        Command::Status { json } => commands::daemon::status(json),
        Command::Doctor { json } => commands::doctor::run(json),
        Command::Daemon(Daemon::Run(options)) => {
            crate::detach::close_inherited();
            panics::abort_on_panic();
            return daemon::run(&options).into();
        }
        Command::Daemon(daemon) => commands::daemon::run(&daemon),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "aos", &mut std::io::stdout());
            Ok(Exit::Success)
        }
        Command::Man { dir } => commands::man::run(&dir, Cli::command()),
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) if is_broken_pipe(&error) => Exit::Success.into(),
        Err(error) => {
            eprintln!("aos: {}", aos_model::text::escape_lines(&format!("{error:#}")));
            exit_of(&error).into()
        }
    }
}

/// `aos log | head` is no failure.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    // A daemon that hangs up breaks a pipe too.
    let is_daemons = error.chain().any(<dyn std::error::Error>::is::<aos_wire::ClientError>);
    !is_daemons
        && error.chain().any(|cause| {
            cause
                .downcast_ref::<std::io::Error>()
                .is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
        })
}

fn exit_of(error: &anyhow::Error) -> Exit {
    error.downcast_ref::<commands::Ending>().map_or(Exit::Failure, |ending| ending.0)
}
