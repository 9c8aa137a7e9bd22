//! Exit codes: 0 success, 1–63 user or input errors, 64–95 resource limits, 96–125 failures of the system.

use std::process::ExitCode;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Success,
    /// The receipt is not a success, or the input is invalid.
    Failure,
    Usage,
    /// The daemon cannot be reached or ended before it answered.
    Upstream,
    /// The journal or a blob is damaged.
    Contaminated,
    /// A replay found missing or damaged content.
    ReplayFault,
    /// A bug: the program panicked.
    Internal,
    /// A command exceeded its timeout.
    Timeout,
    /// A command's own exit code.
    Program(u8),
}

impl Exit {
    pub fn number(self) -> u8 {
        match self {
            Exit::Success => 0,
            Exit::Failure => 1,
            Exit::Usage => 2,
            Exit::Upstream => 98,
            Exit::Contaminated => 99,
            Exit::ReplayFault => 103,
            Exit::Internal => 104,
            Exit::Timeout => 66,
            Exit::Program(code) => code,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.number())
    }
}
