//! The only crate of `aos` that acts on the machine.
//!
//! Read [`spine`] first: it is the way of every request, one line a stage. The rooms behind the stages:
//! [`session`] (who is there), `jail` (where a path leads), `rule` (what policy says), `operation` (one file a tool),
//! `change` (intent, steps, undo, recovery), `search` (walk, grep, glob), `exec` (commands behind sandbox), `output` (the
//! form of what is returned).

mod admit;
mod capture;
mod change;
mod command;
mod content;
mod disk;
mod evaluate;
mod exec;
mod fault;
mod finalizer;
mod history;
mod host;
mod jail;
mod lane;
mod layer;
mod ledger;
mod lifecycle;
mod lock;
mod machine;
mod maintenance;
mod memory;
mod operation;
mod operator;
mod outcome;
mod output;
mod overlay;
mod payload;
mod policy;
mod proposed;
mod readback;
mod record;
mod restore;
mod search;
mod session;
mod snapshot;
mod spine;
mod stage;
mod start;
mod steps;
mod subtree;
mod target;
#[cfg(feature = "testing")]
pub mod testing;
mod view;

pub use admit::{Call, Job};
pub use aos_sandbox::{Abilities, abilities, serve_as_spawner_if_asked};
pub use command::{Piece, Watcher};
pub use history::{Change, Touched, Turn as TurnShown};
pub use host::Host;
pub use machine::Machine;
pub use policy::{Evaluate, evaluate, evaluate_recorded};
pub use readback::{BlobRange, ReadBlob};
pub use record::{Answer, LaneGuard};
pub use start::StartReport;
