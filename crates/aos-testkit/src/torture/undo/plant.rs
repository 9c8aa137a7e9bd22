//! The tree that a history begins with.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::copy::{set_acl, set_xattr};
use crate::random::Random;

/// Creates the tree before the history begins: files of many modes, attributes, links, names with odd bytes, a file
/// with two hard links, and a folder that no request touches.
pub(super) fn plant(root: &Path, random: &mut Random) -> std::io::Result<()> {
    let folders = ["a", "a/b", "a/b/c", "d", "d/e", "keep", "keep/deep"];
    for folder in folders {
        std::fs::create_dir_all(root.join(folder))?;
    }
    let files =
        ["f", "g", "a/f", "a/g", "a/b/f", "a/b/c/f", "d/f", "d/e/f", "d/e/g", "keep/x", "keep/deep/y"];
    for (number, file) in files.iter().enumerate() {
        let path = root.join(file);
        std::fs::write(&path, format!("planted {number} {:x}\nsecond line\n", random.number()))?;
        let modes = [0o644, 0o600, 0o755, 0o444, 0o640, 0o711];
        std::fs::set_permissions(&path, PermissionsExt::from_mode(modes[random.below(modes.len())]))?;
    }
    let odd = root.join(OsStr::from_bytes(b"odd\xff\n"));
    std::fs::create_dir(&odd)?;
    std::fs::write(odd.join(OsStr::from_bytes(b"\xfe name")), "odd\nsecond line\n")?;
    std::fs::hard_link(root.join("g"), root.join("keep/other-name-of-g"))?;
    for (target, link) in
        [("f", "l"), ("../a/f", "d/l"), ("nowhere", "a/dangling"), ("a", "to-folder"), ("x", "keep/l")]
    {
        std::os::unix::fs::symlink(target, root.join(link))?;
    }
    for path in ["f", "a/f", "a/b/c/f", "d", "d/e"] {
        set_xattr(&root.join(path), "user.color", &random.number().to_le_bytes());
    }
    for path in ["a/g", "d/e/f", "a/b/c"] {
        set_acl(&root.join(path), "system.posix_acl_access");
    }
    for (folder, mode) in [("a/b", 0o750), ("d", 0o700), ("d/e", 0o1777)] {
        std::fs::set_permissions(root.join(folder), PermissionsExt::from_mode(mode))?;
    }
    Ok(())
}
