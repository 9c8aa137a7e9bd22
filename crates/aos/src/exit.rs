//! Exit codes: 0 success, 1–63 the user's or the input's error, 64–95 a resource limit, 96–125 something broke.

use std::process::ExitCode;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Success,
    /// The receipt says no, or the input was wrong.
    Failure,
    Usage,
    /// The daemon cannot be reached or went away.
    Upstream,
    /// The record is damaged.
    Contaminated,
    /// A replay stopped at something that is missing or damaged.
    ReplayFault,
    /// A bug: the program panicked.
    Internal,
    /// A command ran out of time.
    Timeout,
    /// A command's own code.
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
