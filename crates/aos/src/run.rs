//! The program `aos`: parses the command line, runs the command, and maps its outcome to an exit code.

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use crate::cli::{Cli, Command, Daemon};
use crate::{Exit, commands, daemon, demo, detach, panics};

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
        Command::Undo(undo) => commands::history::undo(&undo),
        Command::Redo(redo) => commands::history::redo(&redo),
        Command::History(history) => commands::history::history(&history),
        Command::Diff(diff) => commands::history::diff(&diff),
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
            detach::close_inherited();
            panics::abort_on_panic();
            return daemon::run(&options).into();
        }
        Command::Daemon(daemon) => commands::daemon::run(&daemon),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "aos", &mut script);
            print!("{}", String::from_utf8_lossy(&script));
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

/// A reader that closes the pipe early, as in `aos log | head`, is not an error.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    // The daemon's socket can report a broken pipe too.
    let is_from_daemon = error.chain().any(<dyn std::error::Error>::is::<aos_wire::ClientError>);
    !is_from_daemon
        && error.chain().any(|cause| {
            cause
                .downcast_ref::<std::io::Error>()
                .is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
        })
}

fn exit_of(error: &anyhow::Error) -> Exit {
    error.downcast_ref::<commands::ExitWith>().map_or(Exit::Failure, |exit_with| exit_with.0)
}
