//! The suites as commands: what each takes, what it runs, what it says at the end.

pub(super) mod exec;
pub(super) mod fuzz;
pub(super) mod kill;
pub(super) mod undo;
