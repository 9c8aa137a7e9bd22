//! Commands: which paths their words name, found as advice; the kernel is the boundary.

use std::fmt;

/// A command and what surrounds it. `cwd`, `workspaces` and `command_cwd` are absolute and canonical.
#[derive(Clone, Copy)]
pub struct CommandQuery<'a> {
    pub argv: &'a [String],
    pub cwd: &'a str,
    /// Inside any of them is inside; none given means that there is no workspace to leave.
    pub workspaces: &'a [&'a str],
    /// Where the command runs, its links resolved by the host.
    pub command_cwd: &'a str,
    pub home: Option<&'a str>,
    /// The host's link-resolved form of an absolute path. The path may hold `.` and `..`, so that the host resolves
    /// them as the system does: behind a link `..` is not what the text says.
    pub resolve: &'a dyn Fn(&str) -> String,
}

/// A path that a command names, in both spellings.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reference {
    /// Absolute, `.` and `..` resolved as text.
    pub literal: String,
    /// Absolute, links resolved by the host.
    pub resolved: String,
}

impl fmt::Debug for CommandQuery<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("CommandQuery")
            .field("argv", &self.argv)
            .field("cwd", &self.cwd)
            .field("workspaces", &self.workspaces)
            .field("command_cwd", &self.command_cwd)
            .field("home", &self.home)
            .finish_non_exhaustive()
    }
}

/// The paths that a command names, each once, in the order of its words.
pub(super) fn references(_query: &CommandQuery<'_>) -> Vec<Reference> {
    Vec::new()
}
