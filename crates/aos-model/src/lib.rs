//! The judgements of `aos`: what a request means, what a session may do, what an edit or a patch makes of a
//! text, and what the journal adds up to.
//!
//! Nothing here looks at a disk, a clock or a process: what the outside world has to say comes in as an argument.

pub mod acl;
pub mod capability;
pub mod edit;
pub mod entry;
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
