//! The suites as commands: what each takes, what it runs, what it says at the end.

pub(super) mod cases;
pub(super) mod corrupt;
pub(super) mod crowd;
pub(super) mod exec;
pub(super) mod fuzz;
pub(super) mod kill;
pub(super) mod memory;
pub(super) mod path;
pub(super) mod policy;
pub(super) mod power;
pub(super) mod replay;
pub(super) mod undo;
