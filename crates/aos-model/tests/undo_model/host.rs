//! The reference host: sessions with turns, a journal, pre-images, and undo through the planner.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use aos_model::records::{Identity, Image, Kind, PathRecord, RecordedChange};
use aos_model::undo::{self, Conflict, Group, Step, StoredRef, Turns, Undo, World};

use super::world::{Files, Obj, below, decode, is_dir, is_or_below, names_in, parent, remove, rename};

/// An entry of the journal, with what the oracle and the tests need to know about it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) change: RecordedChange,
    pub(crate) session: usize,
    pub(crate) call: String,
    /// A rollback or a redo of turns.
    pub(crate) rolls: bool,
    pub(crate) tree_before: Files,
    pub(crate) tree_after: Files,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Host {
    pub(crate) files: Files,
    /// Pre-images by snapshot and name; paths are suffixes.
    store: BTreeMap<(String, String), Rc<Files>>,
    pub(crate) journal: Vec<Rc<Entry>>,
    pub(crate) sessions: Vec<Turns>,
    /// By session: the content of an inode at a time.
    hashes: Vec<BTreeMap<(u64, i64), u64>>,
    pub(crate) dropped: BTreeSet<String>,
    clock: u64,
    pub(crate) person_acted: bool,
}

struct View<'h> {
    host: &'h Host,
    session: usize,
}

impl View<'_> {
    fn files_of(&self, object: &StoredRef) -> Option<&Rc<Files>> {
        let preimage = &object.preimage;
        self.host.store.get(&(preimage.snapshot_id.clone(), preimage.name.clone()))
    }
}

impl World for View<'_> {
    fn on_disk(&self, path: &str) -> Option<Image> {
        self.host.files.get(path).map(|obj| obj.image(false))
    }

    fn names_on_disk(&self, path: &str) -> Vec<String> {
        names_in(&self.host.files, path)
    }

    fn below_on_disk(&self, path: &str) -> Option<Vec<String>> {
        Some(below(&self.host.files, path).into_iter().map(|one| one[path.len()..].to_owned()).collect())
    }

    fn hash_on_disk(&self, path: &str) -> Option<String> {
        self.host.files.get(path).map(|obj| obj.hash.to_string())
    }

    fn stored(&self, object: &StoredRef) -> Option<Image> {
        self.files_of(object)?.get(&object.suffix).map(|obj| obj.image(true))
    }

    fn names_stored(&self, object: &StoredRef) -> Vec<String> {
        self.files_of(object).map(|files| names_in(files, &object.suffix)).unwrap_or_default()
    }

    fn known_hash(&self, identity: &Identity) -> Option<String> {
        let known = self.host.hashes[self.session].get(&(identity.ino, identity.mtime_ns));
        known.map(u64::to_string)
    }

    fn copied_hash(&self, _: i64, _: u64) -> Option<String> {
        None
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Ok {
        restored: Vec<String>,
        deleted: Vec<String>,
        snapshot: String,
    },
    Conflict(Vec<Conflict>),
    /// Nothing to do, or evicted.
    Nothing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Selection {
    Rollback(usize),
    Redo(usize),
    Scope(String),
    Snapshot(String),
}

#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) session: usize,
    pub(crate) selection: Selection,
    pub(crate) paths: Option<Vec<String>>,
    pub(crate) force: bool,
    pub(crate) turn: String,
}

impl Ask {
    pub(crate) fn is_restore(&self) -> bool {
        matches!(self.selection, Selection::Scope(_) | Selection::Snapshot(_))
    }
}

impl Host {
    pub(crate) fn new(sessions: usize) -> Host {
        let hashes = vec![BTreeMap::new(); sessions];
        Host { sessions: vec![Turns::default(); sessions], hashes, ..Host::default() }
    }

    pub(crate) fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    pub(crate) fn next_snapshot(&self) -> String {
        format!("snap_{}", self.journal.len())
    }

    pub(crate) fn change(&mut self, session: usize) -> Change<'_> {
        let (name, was) = (self.next_snapshot(), self.files.clone());
        Change { host: self, session, name, records: Vec::new(), was }
    }

    fn learn(&mut self, session: usize, obj: &Obj) {
        let identity = obj.identity();
        self.hashes[session].insert((identity.ino, identity.mtime_ns), obj.hash);
    }

    /// Copies a path with all below it to the pre-images.
    fn keep(&mut self, session: usize, snapshot: &str, name: String, path: &str) -> Option<Image> {
        let image = self.files.get(path)?.image(false);
        let mut stored = Files::new();
        for one in below(&self.files, path).into_iter().chain([path.to_owned()]) {
            let obj = self.files[&one].clone();
            self.learn(session, &obj);
            stored.insert(one[path.len()..].to_owned(), obj);
        }
        self.store.insert((snapshot.to_owned(), name.clone()), Rc::new(stored));
        Some(image.with_preimage(name))
    }

    pub(crate) fn snapshot(&mut self, session: usize, scope: &str, paths: &[String]) {
        let snapshot = self.next_snapshot();
        let keep = |(number, path): (usize, &String)| PathRecord {
            path: path.clone(),
            before: self.keep(session, &snapshot, number.to_string(), path),
            after: None,
            moved_to: None,
            mode_only: false,
        };
        let paths = paths.iter().enumerate().map(keep).collect();
        let files = self.files.clone();
        self.append(session, scope, true, false, paths, files);
    }

    fn append(
        &mut self,
        session: usize,
        call: &str,
        explicit: bool,
        rolls: bool,
        paths: Vec<PathRecord>,
        tree_before: Files,
    ) -> u64 {
        let seq = self.journal.len() as u64;
        let snapshot_id = self.next_snapshot();
        let change = RecordedChange { seq, turn_id: None, snapshot_id, explicit, in_tree: false, paths };
        let tree_after = self.files.clone();
        let entry = Entry { change, session, call: call.to_owned(), rolls, tree_before, tree_after };
        self.journal.push(Rc::new(entry));
        seq
    }

    pub(crate) fn evict(&mut self, snapshot: &str) {
        self.dropped.insert(snapshot.to_owned());
        self.store.retain(|(of, _), _| of != snapshot);
    }

    pub(crate) fn entry(&self, seq: u64) -> &Entry {
        &self.journal[usize::try_from(seq).expect("small")]
    }

    /// The groups of a selection, oldest first; `None` if there is nothing or something is evicted.
    pub(crate) fn groups(&self, session: usize, selection: &Selection) -> Option<Vec<Vec<u64>>> {
        let turns = &self.sessions[session];
        let all = |is_it: &dyn Fn(&Entry) -> bool| {
            let own = self.journal.iter().filter(|one| one.session == session && is_it(one));
            own.map(|one| vec![one.change.seq]).collect::<Vec<_>>()
        };
        let is_dropped = |entry: &Entry| self.dropped.contains(&entry.change.snapshot_id);
        let groups = match selection {
            Selection::Rollback(count) => turns.to_roll_back(*count)?,
            Selection::Redo(count) => turns.to_redo(*count)?,
            Selection::Scope(scope) => all(&|one| !one.rolls && one.call == *scope && !is_dropped(one)),
            Selection::Snapshot(id) => all(&|one| one.change.snapshot_id == *id),
        };
        let lost = groups.iter().flatten().any(|seq| is_dropped(self.entry(*seq)));
        (!groups.is_empty() && !lost).then_some(groups)
    }

    pub(crate) fn undo(&mut self, ask: &Ask, dry_run: bool) -> Answer {
        let Some(seqs) = self.groups(ask.session, &ask.selection) else { return Answer::Nothing };
        let groups: Vec<Group<'_>> =
            seqs.iter().map(|group| group.iter().map(|seq| &self.entry(*seq).change).collect()).collect();
        let later: Vec<&RecordedChange> = self.journal.iter().map(|entry| &entry.change).collect();
        let undo = Undo { groups: &groups, paths: ask.paths.as_deref(), force: ask.force, later: &later };
        let view = View { host: self, session: ask.session };
        let plan = undo::plan(&view, &undo);
        if !plan.conflicts.is_empty() && !ask.force {
            return Answer::Conflict(plan.conflicts);
        }
        let (restored, deleted) = (plan.restored(), plan.deleted());
        let steps = undo::steps(&plan.goal, &|_, number| format!("/.aside-{number}"));
        let answer = Answer::Ok { restored, deleted, snapshot: self.next_snapshot() };
        if !dry_run {
            self.apply(ask, steps);
        }
        answer
    }

    fn apply(&mut self, ask: &Ask, steps: Vec<Step>) {
        let call = format!("undo_{}", self.journal.len());
        let mut change = self.change(ask.session);
        steps.into_iter().for_each(|step| change.step(step));
        let rolls = !ask.is_restore();
        let seq = change.finish(&call, rolls, (!rolls).then_some(&ask.turn));
        match &ask.selection {
            Selection::Rollback(count) => {
                self.sessions[ask.session].rolled_back(seq.expect("recorded"), *count);
            }
            Selection::Redo(count) => self.sessions[ask.session].redone(seq.expect("recorded"), *count),
            Selection::Scope(_) | Selection::Snapshot(_) => {}
        }
    }
}

pub(crate) fn remove_step(path: &str) -> Step {
    Step::Remove { path: path.to_owned(), object: path.to_owned() }
}

pub(crate) fn rename_step(from: &str, to: &str) -> Step {
    Step::Rename { from: from.to_owned(), to: to.to_owned(), object: from.to_owned() }
}

/// A change under way: applies steps to the files and records them.
pub(crate) struct Change<'h> {
    host: &'h mut Host,
    session: usize,
    name: String,
    records: Vec<PathRecord>,
    was: Files,
}

impl Change<'_> {
    pub(crate) fn files(&self) -> &Files {
        &self.host.files
    }

    fn keep(&mut self, path: &str) -> Option<Image> {
        self.host.keep(self.session, &self.name, self.records.len().to_string(), path)
    }

    fn image(&self, path: &str) -> Option<Image> {
        self.host.files.get(path).map(|obj| obj.image(false))
    }

    fn record(&mut self, path: &str, before: Option<Image>, after: Option<Image>) -> &mut PathRecord {
        let record = PathRecord { path: path.to_owned(), before, after, moved_to: None, mode_only: false };
        self.records.push(record);
        self.records.last_mut().expect("pushed")
    }

    fn make(&mut self, path: &str, image: Image) {
        assert!(is_dir(&self.host.files, parent(path)), "BUG: {path} has no folder");
        let hash = image.hash.as_deref().map_or(0, |hash| hash.parse().expect("a number"));
        let stamp = self.host.tick();
        let obj = Obj { mode: image.mode, xattrs: decode(image.xattrs), ..Obj::new(image.kind, hash, stamp) };
        self.host.learn(self.session, &obj);
        self.host.files.insert(path.to_owned(), obj);
    }

    pub(crate) fn put(&mut self, path: &str, image: Image) {
        assert!(!is_dir(&self.host.files, path), "BUG: {path} is a folder");
        let before = self.keep(path);
        self.make(path, image);
        let after = self.host.files.get(path).map(|obj| obj.image(true));
        self.record(path, before, after);
    }

    pub(crate) fn step(&mut self, step: Step) {
        match step {
            Step::Remove { path, .. } => {
                let before = self.keep(&path);
                assert!(before.is_some(), "BUG: {path} is not there");
                remove(&mut self.host.files, &path);
                self.record(&path, before, None);
            }
            Step::Rename { from, to, .. } => {
                let (replaced, before) = (self.keep(&to), self.image(&from));
                assert!(before.is_some() && is_dir(self.files(), parent(&to)), "BUG: move {from} to {to}");
                assert!(!is_dir(self.files(), &to), "BUG: {to} is a folder");
                remove(&mut self.host.files, &to);
                rename(&mut self.host.files, &from, &to);
                let after = self.image(&to);
                self.record(&to, replaced, after);
                self.record(&from, before, None).moved_to = Some(to);
            }
            Step::MakeDir { path, image } => {
                assert!(!self.host.files.contains_key(&path), "BUG: {path} is there");
                self.make(&path, image);
                let after = self.image(&path);
                self.record(&path, None, after);
            }
            Step::Put { path, image, content, .. } => {
                let stored = self.host.store
                    [&(content.preimage.snapshot_id.clone(), content.preimage.name.clone())]
                    .clone();
                assert_eq!(
                    image.hash,
                    stored[&content.suffix].image(true).hash,
                    "BUG: the content of {path}"
                );
                self.put(&path, image);
            }
            Step::SetAttrs { path, image, .. } => {
                let before = self.image(&path);
                let obj = self.host.files.get_mut(&path).expect("BUG: attributes of nothing");
                assert_eq!(obj.kind, image.kind, "BUG: attributes of another kind");
                (obj.mode, obj.xattrs, obj.by_person) = (image.mode, decode(image.xattrs), false);
                let after = self.image(&path);
                self.record(&path, before, after).mode_only = true;
            }
        }
    }

    /// Records the change. One without a difference makes no step (C30).
    pub(crate) fn finish(self, call: &str, rolls: bool, turn: Option<&String>) -> Option<u64> {
        let Change { host, session, records, was, .. } = self;
        if !rolls && records.is_empty() {
            return None;
        }
        let seq = host.append(session, call, false, rolls, records, was);
        if let Some(turn) = turn {
            host.sessions[session].changed(seq, turn);
        }
        Some(seq)
    }

    /// What a command's overlay is applied with: from one tree to another, without moves.
    pub(crate) fn become_tree(&mut self, new: &Files) {
        let old = self.files().clone();
        let goes = |path: &str| {
            let kind = |files: &Files| files.get(path).map(|obj| obj.kind == Kind::Dir);
            old.contains_key(path) && kind(&old) != kind(new)
        };
        for path in old.keys().filter(|path| goes(path)) {
            let is_below = old.keys().any(|above| above != path && is_or_below(path, above) && goes(above));
            if !is_below {
                self.step(remove_step(path));
            }
        }
        for (path, obj) in new {
            let (was, image) = (old.get(path), obj.image(true));
            match was {
                Some(was) if was.key() == obj.key() => {}
                Some(was) if was.kind == Kind::Dir && obj.kind == Kind::Dir => {
                    self.step(Step::SetAttrs { path: path.clone(), object: path.clone(), image });
                }
                _ if obj.kind == Kind::Dir => self.step(Step::MakeDir { path: path.clone(), image }),
                _ => self.put(path, image),
            }
        }
    }
}
