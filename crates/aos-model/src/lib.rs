//! The pure part of `aos`: it parses requests, decides what a session may do, computes edits and patches in memory,
//! and folds the journal into the state.
//!
//! Nothing here performs I/O, reads a clock or starts a process. What is needed from outside comes in as an argument.

pub mod acl;
pub mod capability;
pub mod edit;
pub mod entry;
pub mod environment;
pub mod id;
pub mod limits;
pub mod patch;
pub mod path;
pub mod policy;
pub mod receipt;
pub mod records;
pub mod refusal;
pub mod request;
pub mod state;
pub mod strict;
pub mod text;
pub mod undo;
pub mod vfs;
