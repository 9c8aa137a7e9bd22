//! The content of files: on the disk, or in memory as part of a blob.

mod cache;
mod source;

pub(crate) use cache::Contents;
pub(crate) use source::{CachedBytes, Source};
