//! The stages of a request inside a session: each takes what only the stage before it can make.
//!
//! `InSession → Authorized → PolicyChecked → Planned`. A change is then armed and applied by `change`.

mod authorize;
mod check_policy;
mod in_session;
mod plan;

pub(crate) use authorize::{Authorized, authorize};
pub(crate) use check_policy::{PolicyChecked, check_policy};
pub(crate) use in_session::{InSession, enter};
pub(crate) use plan::{CommandStart, DiskChange, LayerChange, LayerWork, Planned, plan};
