//! Reading a view: finding paths in it and listing its folders.

mod entries;
mod resolve;

pub(crate) use resolve::{resolve, root_node};
