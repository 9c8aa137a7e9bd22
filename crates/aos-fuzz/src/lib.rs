//! Properties of the parsers of `aos` for any input bytes, and a mutator that searches for inputs that violate them.
//!
//! Each target is a function of bytes that panics when a property is violated. `fuzz/` passes the same functions to
//! cargo-fuzz. Here they run on any toolchain: a short run in the tests, a long one by `cargo xtask torture fuzz`.

pub mod corpus;
mod mutator;
mod run;
mod shape;
mod targets;

pub use run::{Crash, Plan, Report, run};
pub use shape::Shape;
pub use targets::{Target, find, targets};
