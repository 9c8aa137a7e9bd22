//! `cargo xtask torture`: long runs of what the tests do shortly. Each prints its seed and its counts.

pub(crate) mod kill;
pub(crate) mod load;
