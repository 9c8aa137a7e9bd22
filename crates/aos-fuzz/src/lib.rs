//! What must hold for whatever bytes the parsers of `aos` are given, and a mutator that looks for bytes for which it
//! does not.
//!
//! Each target is a function of bytes that panics when a law is broken. `fuzz/` hands the same functions to cargo-fuzz;
//! here they run on any toolchain: shortly in the tests, long by `cargo xtask torture fuzz`.

pub mod corpus;
mod mutator;
mod run;
mod shape;
mod targets;

pub use run::{Crash, Plan, Report, run};
pub use shape::Shape;
pub use targets::{Target, find, targets};
