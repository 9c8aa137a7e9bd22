//! The committed inputs that a run starts from, and hex text for single inputs.
#![allow(clippy::disallowed_methods, reason = "a test tool that reads the corpus of its repository")]

use std::path::{Path, PathBuf};

/// The inputs of a target, in the order of their file names.
pub fn read(target: &str) -> std::io::Result<Vec<Vec<u8>>> {
    let folder = folder().join(target);
    let listed = std::fs::read_dir(&folder)?.collect::<Result<Vec<_>, _>>()?;
    let mut files: Vec<PathBuf> = listed.into_iter().map(|entry| entry.path()).collect();
    files.sort();
    files.iter().map(std::fs::read).collect()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The inverse of [`hex`].
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.trim().chars().map(|c| c.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect())
}
