//! Panic hooks: the daemon logs a panic and aborts, the client reports it and exits with 104.
//!
//! A panic would otherwise end one thread and leave its locks poisoned and its intent open. An aborted daemon is in the same
//! state as a killed one, and the next start recovers from that.

use std::backtrace::Backtrace;
use std::io::Write as _;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, Ordering};

use aos_model::text::escape;

use crate::Exit;

/// For the daemon: logs the panic with its location, thread and backtrace, then aborts.
pub(crate) fn abort_on_panic() {
    static IS_FIRST: AtomicBool = AtomicBool::new(true);
    std::panic::set_hook(Box::new(|info| {
        if !IS_FIRST.swap(false, Ordering::Relaxed) {
            // Another thread is logging its panic and aborts the process.
            loop {
                std::thread::park();
            }
        }
        let thread = std::thread::current();
        let (thread, place, message) = (thread.name().unwrap_or("unnamed"), place(info), message(info));
        tracing::error!(thread, place, "panicked: {message}");
        // Standard error is /dev/null in a detached daemon, and still the caller's while it starts.
        let _ = writeln!(std::io::stderr(), "aosd: panicked at {place}: {}", escape(message));
        for frame in Backtrace::force_capture().to_string().lines() {
            tracing::error!("{frame}");
        }
        std::process::abort();
    }));
}

/// For the client: reports the panic in one line and exits with 104. Rust's default, 101, has another meaning in the
/// contract.
pub(crate) fn exit_on_panic() {
    std::panic::set_hook(Box::new(|info| {
        if let Some(why) = message(info).strip_prefix("failed printing to stdout: ") {
            exit_without_stdout(why);
        }
        let (place, message) = (place(info), escape(message(info)));
        let _ = writeln!(
            std::io::stderr(),
            "aos: internal error at {place}: {message}; this is a bug in aos, please report it"
        );
        std::process::exit(Exit::Internal.number().into());
    }));
}

/// `println!` panics when it cannot write. A closed pipe, as in `aos show 1 | head`, is not an error.
fn exit_without_stdout(why: &str) -> ! {
    let exit = if why.contains("Broken pipe") {
        Exit::Success
    } else {
        let _ = writeln!(std::io::stderr(), "aos: cannot write to standard output: {}", escape(why));
        Exit::Failure
    };
    std::process::exit(exit.number().into())
}

fn place(info: &PanicHookInfo<'_>) -> String {
    info.location().map_or_else(|| "an unknown location".to_owned(), ToString::to_string)
}

fn message<'a>(info: &'a PanicHookInfo<'_>) -> &'a str {
    info.payload_as_str().unwrap_or("a panic without a message")
}
