//! Reads a view: resolves paths in it and lists its folders.

mod entries;
mod resolve;

pub(crate) use resolve::{resolve, root_node};
