//! The stages inside a session: each takes a value that only the stage before it can make.
//!
//! ```text
//! a request             InSession ──▶ Authorized ──▶ PolicyChecked ──▶ Planned ──▶ (change: Armed ──▶ Done)
//! a command's changes   ProposedChanges ──▶ Authorized ──▶ PolicyChecked ──▶ PlannedChanges ──▶ (the same)
//! ```
//!
//! The fields of a stage are private to this module, so no other module can construct one.

mod authorize;
mod check_policy;
mod in_session;
mod plan;

pub(crate) use authorize::{Authorized, authorize, authorize_changes};
pub(crate) use check_policy::{PolicyChecked, check_policy};
pub(crate) use in_session::{InSession, enter};
pub(crate) use plan::{
    CommandStart, DiskChange, LayerChange, LayerWork, Planned, PlannedChanges, plan, plan_changes,
};
