//! The targets, one file each. The first line of a file states its property.

mod command;
mod edit;
mod entry;
mod manifest;
mod patch;
mod path;
mod rpc;
mod tool;

use crate::Shape;

/// A parser with its properties and a dictionary of its language.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    /// Panics when a property is violated.
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

/// The line between the parts of an input that has several.
const SEPARATOR: &str = "\n%%\n";

/// The parts of an input; missing ones are empty.
fn parts<const N: usize>(text: &str) -> [&str; N] {
    let mut parts = text.splitn(N, SEPARATOR);
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}
