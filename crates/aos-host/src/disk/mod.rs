//! The primitives on files and folders, all by descriptor. Beside `jail`, the only module of this crate that calls
//! functions of `rustix::fs` (checked by the tidy test). It knows neither sessions nor policy.

mod attrs;
mod copy;
mod entry;
mod hash;
mod lease;
mod meta;
mod open;
mod rename;

use std::os::fd::OwnedFd;

use aos_model::records::Kind;
use rustix::io::Errno;

pub(crate) use aos_store::names_in;
pub(crate) use attrs::{
    AttrsFrom, FileAttrs, SET_ID_BITS, apply_attrs_to_closed, apply_metadata, copy_acl,
    has_file_capabilities, is_opaque, read_xattrs, remove_file_capabilities, remove_overlay_xattrs,
};
pub(crate) use copy::{allocated_bytes, copy, copy_content, empty, remove, remove_any, remove_leftover};
pub(crate) use entry::{
    make_dir, make_link, path_of, read_link, remove_dir, set_mode, set_mode_at, set_mode_of_held, set_mtime,
    set_mtime_at, set_nonblocking, set_owner_at, sync,
};
pub(crate) use hash::{hash_of, hash_open};
pub(crate) use lease::has_no_writer;
pub(crate) use meta::{
    DirVersion, Meta, exists, file_size, id_of, is_executable, is_unlinked, is_whiteout, kind_and_mtime,
    leads_somewhere, version_of_dir,
};
pub(crate) use open::{
    RACE_TRIES, create_new, create_new_readable, hold_any, hold_dir, hold_dir_at_path, hold_dir_beneath,
    hold_path, open_beneath, open_dir, open_dir_at_path, open_file, open_listed, open_null, open_to_append,
    read_dir, read_dir_raw,
};
pub(crate) use rename::{OWNER_WRITES, exchange, move_exchange, move_noreplace, rename_noreplace};

/// How the names begin under which something is written before it gets its own.
pub(crate) const TEMPORARY_PREFIX: &[u8] = b".aos-tmp-";

/// The user by whose rights this thread acts; none for root, who may do everything.
pub(crate) fn limited_to_uid() -> Option<u32> {
    let own = rustix::process::geteuid();
    let own = (!own.is_root()).then_some(own.as_raw());
    aos_store::acting_for().map(|user| user.uid).or(own)
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

/// The content of a regular file, at most so many bytes. `None` if there is none, or it cannot be read.
pub(crate) fn read_file(dir: &OwnedFd, name: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    if Meta::at(dir, name).ok()??.kind != Kind::File {
        return None;
    }
    read_at_most(&open_file(dir, name).ok()?, bytes_max).ok()
}

/// The first bytes of a file.
pub(crate) fn read_at_most(file: &OwnedFd, bytes_max: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    let mut buffer = [0_u8; 8_192];
    loop {
        let wanted = buffer.len().min(bytes_max - bytes.len());
        match rustix::io::read(file, &mut buffer[..wanted]) {
            Ok(0) => return Ok(bytes),
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(Errno::INTR) => {}
            Err(why) => return Err(why),
        }
    }
}
