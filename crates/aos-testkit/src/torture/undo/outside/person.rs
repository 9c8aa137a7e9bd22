//! What a person does to the folder, without the daemon.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::copy::{Kind, Tree, on_disk, remove_xattr, set_acl, set_xattr};
use crate::torture::undo::acts::Chance;

/// Does one thing, and says what. It may fail, for example where a file is in the way: then nothing happens.
pub(super) fn act(mut chance: Chance<'_>, tree: &Tree, root: &Path) -> String {
    let (file, folder) = (chance.file(), chance.folder());
    let any = if chance.random.one_in(3) { folder.clone() } else { file.clone() };
    let (path, text) = (chance.path(), format!("person {}", chance.text()));
    let number = chance.random.number();
    let choice = chance.random.below(22);
    let at = |path: &str| on_disk(root, path);
    let (what, done) = match choice {
        0 | 1 => (format!("appends to {file}"), append(&at(&file), &text)),
        2 | 3 => (format!("overwrites {file}"), std::fs::write(at(&file), &text)),
        4 | 5 => (format!("replaces {file}"), replace(root, &at(&file), &text)),
        6 | 7 => (format!("writes {path}"), write_new(&at(&path), &text)),
        8 => (format!("deletes {file}"), std::fs::remove_file(at(&file))),
        9 => (format!("deletes the folder {folder}"), remove(&at(&folder))),
        10 => (format!("renames {any} to {path}"), std::fs::rename(at(&any), at(&path))),
        11 | 12 => change_mode(tree, &any, &at(&any), number),
        13 | 14 => (format!("sets or removes an attribute of {any}"), attribute(&at(&any), number)),
        15 => {
            let target = if number.is_multiple_of(3) { path.clone() } else { format!("person-{number:x}") };
            let link = || std::os::unix::fs::symlink(&target, at(&any));
            (format!("replaces {any} by a link to {target}"), remove(&at(&any)).and_then(|()| link()))
        }
        16 => {
            let inside = at(&format!("{any}/in"));
            let made = remove(&at(&any)).and_then(|()| write_new(&inside, &text));
            (format!("replaces {any} by a folder"), made)
        }
        17 => (format!("makes a hard link {path} to {file}"), std::fs::hard_link(at(&file), at(&path))),
        18..=20 => (format!("touches {file}"), touch(&at(&file), number)),
        _ => (format!("copies {file} to {path}"), std::fs::copy(at(&file), at(&path)).map(drop)),
    };
    format!("PERSON {what}: {:?}", done.map_err(|why| why.to_string()))
}

fn append(path: &Path, text: &str) -> std::io::Result<()> {
    std::fs::File::options().append(true).open(path)?.write_all(text.as_bytes())
}

/// As an editor does: a new file, renamed over the old one.
fn replace(root: &Path, path: &Path, text: &str) -> std::io::Result<()> {
    let aside = root.with_extension("person");
    std::fs::write(&aside, text)?;
    std::fs::rename(&aside, path).inspect_err(|_| drop(std::fs::remove_file(&aside)))
}

fn write_new(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, text)
}

fn remove(path: &Path) -> std::io::Result<()> {
    match path.symlink_metadata()?.is_dir() {
        true => std::fs::remove_dir_all(path),
        false => std::fs::remove_file(path),
    }
}

fn change_mode(tree: &Tree, name: &str, path: &Path, number: u64) -> (String, std::io::Result<()>) {
    // A link has no mode, and its target may be elsewhere.
    let Some(thing) = tree.get(name).filter(|thing| !thing.is_link()) else {
        return (format!("looks at {name}"), Ok(()));
    };
    let modes = if thing.kind == Kind::Folder { [0o700, 0o755, 0o1777] } else { [0o600, 0o755, 0o444] };
    let mode = modes[(number % 3) as usize];
    (
        format!("gives {name} the mode {mode:o}"),
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)),
    )
}

fn attribute(path: &Path, number: u64) -> std::io::Result<()> {
    let done = match number % 8 {
        0 => remove_xattr(path, "user.color"),
        1 => set_acl(path, "system.posix_acl_access"),
        _ => set_xattr(path, "user.person", &number.to_le_bytes()),
    };
    if done { Ok(()) } else { Err(std::io::Error::other("no such attribute")) }
}

/// Two times only, so that different files have the same.
fn touch(path: &Path, number: u64) -> std::io::Result<()> {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000 + number % 2);
    std::fs::File::options().append(true).open(path)?.set_modified(time)
}
