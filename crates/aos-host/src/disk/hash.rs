//! Hashing what is on the disk.

use std::os::fd::{AsFd, OwnedFd};

use aos_model::records::Kind;
use aos_model::request::{content_hash, hash_name};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::{open_file, read_link};

/// The hash of a file's bytes, or of a link's target.
pub(crate) fn hash_of(dir: impl AsFd, name: &[u8], kind: Kind) -> Result<String, Errno> {
    if kind == Kind::Symlink {
        return Ok(content_hash(&read_link(dir, name)?));
    }
    hash_open(&open_file(dir, name)?)
}

/// The hash of an open file's bytes, from its current offset.
pub(crate) fn hash_open(file: &OwnedFd) -> Result<String, Errno> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        match rustix::io::read(file, buffer.as_mut_slice()) {
            Ok(0) => return Ok(hash_name(&hash.finalize().into())),
            Ok(n) => hash.update(&buffer[..n]),
            Err(Errno::INTR) => {}
            Err(why) => return Err(why),
        }
    }
}
