//! Who changes the disk at random: a person, and the calls of agents.

use aos_model::records::{Image, Kind};
use aos_model::undo::{Step, folder};

use super::host::{Change, remove_step, rename_step};
use super::random::{POOL, Rng, Run};
use super::world::{Files, Obj, ancestors, can_rename, encode, is_dir, parent, remove, rename};

impl Run {
    pub(crate) fn person(&mut self, rng: &mut Rng) {
        self.host.person_acted = true;
        let path = self.path(rng);
        let stamp = self.host.tick();
        let hash = self.content(rng);
        let action = rng.below(if self.setup.classic { 9 } else { 12 });
        let was = self.host.files.get(&path).cloned();
        let Some(what) = self.person_acts(rng, action, &path, hash, stamp) else { return };
        // The same again is not a change.
        if let (Some(obj), Some(was)) = (self.host.files.get_mut(&path), was)
            && obj.key() == was.key()
        {
            obj.by_person = was.by_person;
        }
        self.log.push(format!("P {what} {path} ({hash})"));
    }

    fn person_acts(
        &mut self,
        rng: &mut Rng,
        action: usize,
        path: &str,
        hash: u64,
        stamp: u64,
    ) -> Option<String> {
        let has_folder = is_dir(&self.host.files, parent(path));
        match (action, self.host.files.get(path).cloned()) {
            (0 | 1 | 6 | 7, there) if has_folder => {
                let is_folder = there.is_some_and(|obj| obj.kind == Kind::Dir);
                (action > 1 || !is_folder).then(|| self.person_puts(rng, action, path, hash, stamp))
            }
            (_, Some(obj)) => self.person_changes(rng, action, path, obj, hash, stamp),
            _ => None,
        }
    }

    /// Something new at a path.
    fn person_puts(&mut self, rng: &mut Rng, action: usize, path: &str, hash: u64, stamp: u64) -> String {
        let fresh = |kind| Obj::new(kind, hash, stamp).by_person();
        let (kind, what) = match action {
            6 => (Kind::Symlink, "puts a link at"),
            7 => (Kind::Dir, "puts a folder at"),
            _ => (Kind::File, "replaces"),
        };
        remove(&mut self.host.files, path);
        self.host.files.insert(path.to_owned(), fresh(kind));
        if kind == Kind::Dir && rng.chance(60) {
            let file = Obj { ino: self.host.tick(), ..fresh(Kind::File) };
            self.host.files.insert(format!("{path}/a"), file);
        }
        what.to_owned()
    }

    fn person_changes(
        &mut self,
        rng: &mut Rng,
        action: usize,
        path: &str,
        mut obj: Obj,
        hash: u64,
        stamp: u64,
    ) -> Option<String> {
        let files = &mut self.host.files;
        let is_file = obj.kind == Kind::File;
        match action {
            2 => {
                remove(files, path);
                return Some("removes".into());
            }
            3 => {
                let to = *rng.pick(POOL);
                let can = can_rename(files, path, to) && !is_dir(files, to);
                return can.then(|| {
                    rename(files, path, to);
                    files.get_mut(to).expect("moved").by_person = true;
                    format!("renames to {to}")
                });
            }
            4 => obj.mode ^= 0o20,
            5 if obj.kind != Kind::Symlink => obj.xattrs.extend([("user.x".into(), hash)]),
            8 if is_file => obj.mtime = stamp,
            9 | 10 if is_file => (obj.hash, obj.mtime) = (hash, stamp),
            11 if is_file => {
                let to = *rng.pick(POOL);
                let can = is_dir(files, parent(to)) && !files.contains_key(to);
                return can.then(|| {
                    files.insert(to.to_owned(), obj.by_person());
                    format!("hard links to {to}")
                });
            }
            _ => return None,
        }
        obj.by_person = true;
        files.insert(path.to_owned(), obj);
        let what = ["chmods", "sets an attribute of", "", "", "touches"].get(action - 4);
        Some((*what.unwrap_or(&"edits in place")).to_owned())
    }

    pub(crate) fn agent(&mut self, rng: &mut Rng) {
        let session = rng.below(self.setup.sessions);
        if rng.chance(60) {
            self.turn[session] += 1;
        }
        if !rng.chance(15) {
            self.call += 1;
        }
        let (turn, call) = (format!("t{}", self.turn[session]), format!("call_{}_{session}", self.call));
        let (path, other) = (self.path(rng), self.path(rng));
        let hash = self.content(rng);
        let kind = rng.below(10);
        let count = 1 + rng.below(4);
        let mut sub = |_| (rng.below(9), self.path(rng), self.path(rng), self.content(rng));
        let subs: Vec<_> = (0..count).map(&mut sub).collect();
        let what = if kind > 7 { format!("{subs:?}") } else { String::new() };
        self.log.push(format!("S{session} {turn} {call} kind {kind} {path} {other} {hash} {what}"));
        let mut change = self.host.change(session);
        match kind {
            0..=3 => put(&mut change, &path, hash),
            4 if change.files().contains_key(&path) => change.step(remove_step(&path)),
            4 => {}
            5 | 6 => {
                if can_rename(change.files(), &path, &other) && !is_dir(change.files(), &other) {
                    change.step(rename_step(&path, &other));
                }
            }
            7 => make_dirs(&mut change, &path),
            _ => {
                let mut new = change.files().clone();
                for (kind, path, other, hash) in &subs {
                    command(&mut new, *kind, path, other, *hash);
                }
                change.become_tree(&new);
            }
        }
        change.finish(&call, false, Some(&turn));
    }
}

/// Makes a folder with the missing ones above, unless something else is in the way.
fn make_dirs(change: &mut Change<'_>, path: &str) {
    let all: Vec<&str> = ancestors(path).chain([path]).filter(|path| !path.is_empty()).collect();
    if all.iter().any(|one| change.files().contains_key(*one) && !is_dir(change.files(), one)) {
        return;
    }
    for path in all {
        if !change.files().contains_key(path) {
            change.step(Step::MakeDir { path: path.to_owned(), image: folder() });
        }
    }
}

fn put(change: &mut Change<'_>, path: &str, hash: u64) {
    make_dirs(change, parent(path));
    let there = change.files().get(path).cloned();
    if !is_dir(change.files(), parent(path)) || there.as_ref().is_some_and(|obj| obj.kind != Kind::File) {
        return;
    }
    change.put(path, file(hash, there.as_ref()));
}

/// A file with the mode and the attributes of the one that it replaces.
pub(crate) fn file(hash: u64, replaced: Option<&Obj>) -> Image {
    let image = Image { kind: Kind::File, mode: 0o644, hash: Some(hash.to_string()), ..folder() };
    match replaced {
        Some(obj) => Image { mode: obj.mode, xattrs: Some(encode(&obj.xattrs)), ..image },
        None => image,
    }
}

/// One thing that a command does in its overlay.
fn command(files: &mut Files, kind: usize, path: &str, other: &str, hash: u64) {
    let has_folder = is_dir(files, parent(path));
    let fresh = |kind| Obj::new(kind, hash, 0);
    match kind {
        0 | 1 if has_folder && !is_dir(files, path) => drop(files.insert(path.to_owned(), fresh(Kind::File))),
        2 => drop(remove(files, path)),
        3 if has_folder => {
            remove(files, path);
            files.insert(path.to_owned(), fresh(Kind::Dir));
            files.insert(format!("{path}/a"), fresh(Kind::File));
        }
        4 if has_folder => {
            remove(files, path);
            files.insert(path.to_owned(), fresh(Kind::Symlink));
        }
        5 => files.get_mut(path).into_iter().for_each(|obj| obj.mode ^= 0o111),
        6 => {
            let obj = files.get_mut(path).filter(|obj| obj.kind != Kind::Symlink);
            obj.into_iter().for_each(|obj| obj.xattrs.extend([("user.y".into(), hash)]));
        }
        7 | 8 if can_rename(files, path, other) => {
            remove(files, other);
            rename(files, path, other);
        }
        _ => {}
    }
}
