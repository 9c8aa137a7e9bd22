//! The primitives on files and folders, all by descriptor. Beside `jail`, the only room of this crate that may call
//! `rustix::fs`. Knows neither sessions nor policy.

mod attrs;
mod copy;
mod hash;
mod lease;
mod meta;
mod open;
mod rename;

use std::os::fd::OwnedFd;

use rustix::io::Errno;

pub(crate) use attrs::{
    AttrsFrom, FileAttrs, apply_attrs, apply_metadata, read_xattrs, remove_overlay_xattrs,
};
pub(crate) use copy::{copy, copy_content, remove, remove_any, times_of};
pub(crate) use hash::{hash_of, hash_open};
pub(crate) use lease::has_no_writer;
pub(crate) use meta::Meta;
pub(crate) use open::{RACE_TRIES, open_beneath, open_dir, open_listed};
pub(crate) use rename::{OWNER_WRITES, rename, set_mode};

/// How the names begin under which something is written before it gets its own.
pub(crate) const TEMPORARY_PREFIX: &[u8] = b".aos-tmp-";

/// The names in an open folder, as bytes, in no order.
pub(crate) fn names_in(dir: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

pub(crate) fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::INTR) => {}
            Err(why) => return Err(why),
        }
    }
    Ok(())
}
