//! The targets: one file each, the law first.

mod command;
mod edit;
mod entry;
mod manifest;
mod patch;
mod path;
mod rpc;
mod tool;

use crate::Shape;

/// A parser, what must hold of it, and the words of its language.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    /// Panics when a law is broken.
    pub run: fn(&[u8]) -> Shape,
    pub dictionary: &'static [&'static str],
}

pub fn targets() -> [Target; 8] {
    [
        patch::TARGET,
        path::TARGET,
        entry::TARGET,
        manifest::TARGET,
        rpc::TARGET,
        edit::TARGET,
        command::TARGET,
        tool::TARGET,
    ]
}

pub fn find(name: &str) -> Option<Target> {
    targets().into_iter().find(|target| target.name == name)
}

/// Stands alone on a line between the parts of an input that has several.
const BETWEEN: &str = "\n%%\n";

/// The parts of an input; those that are missing are empty.
fn parts<const N: usize>(text: &str) -> [&str; N] {
    let mut parts = text.splitn(N, BETWEEN);
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}
