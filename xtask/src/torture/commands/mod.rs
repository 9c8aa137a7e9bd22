//! The suites as commands: the options, the run and the report of each.

pub(super) mod cases;
pub(super) mod corrupt;
pub(super) mod crowd;
pub(super) mod denied;
pub(super) mod exec;
pub(super) mod full;
pub(super) mod fuzz;
pub(super) mod kill;
pub(super) mod memory;
pub(super) mod path;
pub(super) mod policy;
pub(super) mod power;
pub(super) mod replay;
pub(super) mod undo;
