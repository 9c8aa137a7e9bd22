//! aos
fn main() {}
