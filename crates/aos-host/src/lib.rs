//! The only crate of `aos` that acts on the machine.
//!
//! Read [`spine`] first: it is the way of every request, one line a stage. The rooms behind the stages:
//! [`session`] (who is there), `jail` (where a path leads), `rule` (what policy says), `operation` (one file a tool),
//! `change` (intent, steps, undo, recovery), `search` (walk, grep, glob), `exec` (commands behind walls), `output` (the
//! form of what is returned).

mod capture;
mod change;
mod evaluate;
mod exec;
mod fault;
mod history;
mod host;
mod jail;
mod lane;
mod machine;
mod memory;
mod operation;
mod output;
mod readback;
mod rule;
mod search;
mod session;
mod snapshot;
mod spine;
#[cfg(feature = "testing")]
pub mod testing;
mod tree;

pub use evaluate::{Evaluate, evaluate, evaluate_recorded};
pub use exec::{Abilities, Piece, Watcher, abilities, serve_as_spawner_if_asked};
pub use history::{Change, Touched, Turn as TurnShown};
pub use host::{Host, StartReport};
pub use machine::Machine;
pub use readback::{BlobRange, ReadBlob};
pub use spine::{Answer, Call, Job, Turn};
