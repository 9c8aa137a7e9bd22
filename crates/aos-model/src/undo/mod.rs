//! Undo beside people: what a rollback, a redo or a restore makes of the tree, and what it must not overwrite.
//!
//! [`plan`] is a pure function. [`Turns`] says which changes a rollback or a redo takes back, [`steps`] in which order
//! the wanted tree is reached.

mod net;
mod plan;
mod steps;
mod tree;
mod turns;

pub use net::Group;
pub use plan::{ChangedBy, Conflict, Plan, Undo, plan};
pub use steps::{Step, steps};
pub use tree::{Difference, Node, Preimage, Source, StoredRef, Tree, World, folder};
pub use turns::{TurnStep, Turns};
