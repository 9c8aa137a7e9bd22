//! A snapshot of a folder, for comparing before and after.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Every path below `dir` with its kind, mode and content.
pub fn tree(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let Ok(entries) = std::fs::read_dir(dir) else { return found };
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(meta) = path.symlink_metadata() else { continue };
        let kind = meta.file_type();
        let content = if kind.is_symlink() {
            format!("link {:?}", std::fs::read_link(&path).ok())
        } else if kind.is_dir() {
            found.extend(tree(&path));
            "dir".into()
        } else if kind.is_file() {
            format!(
                "file {:o} {}",
                meta.mode() & 0o7777,
                aos_model::request::content_hash(&std::fs::read(&path).unwrap_or_default())
            )
        } else {
            "other".into()
        };
        found.insert(path, content);
    }
    found
}
