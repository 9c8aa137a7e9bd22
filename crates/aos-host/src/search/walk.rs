//! The walk: several threads take folders and files from one stack, whose top is the earliest path.
//!
//! Each folder is opened from its parent's descriptor with links and other mounts forbidden (I3). The order of visits is
//! near path order but not guaranteed: visitors sort by path. With one thread it is exact.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use aos_model::limits::{PATH_BYTES_MAX, SCAN_THREADS_MAX};
use aos_model::policy::{Decision, Op};
use aos_model::records::Kind;
use aos_model::refusal::Refusal;
use ignore::Match;
use ignore::overrides::Override;
use rustix::io::Errno;

use super::Deadline;
use super::listing::{Folder, ListedEntry, Listing, Scratch};
use super::merged::MergedDir;
use super::rules::Rules;
use super::skipped::SkippedPaths;
use crate::jail::Place;
use crate::session::OpenSession;
use aos_model::path::is_below;
use aos_store::{act_for, acting_for};

/// Receives the files of a walk.
pub(super) trait Visitor: Sync {
    /// The state of one thread.
    type Worker;

    fn new_worker(&self) -> Self::Worker;

    /// Takes the state of a thread that has finished.
    fn finish_worker(&self, worker: Self::Worker);

    /// Whether a folder can contain matches.
    fn enters(&self, path: &[u8]) -> bool;

    /// Whether a file's path can match.
    fn wants(&self, path: &[u8]) -> bool;

    fn visit(&self, worker: &mut Self::Worker, item: ListedEntry<'_>) -> WalkControl;

    /// Whether everything at or below a path comes after what can still be returned.
    fn is_past(&self, item: &ListedEntry<'_>) -> bool;
}

/// Whether the walk continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WalkControl {
    Continue,
    /// A limit of the scan was reached before the end.
    LimitReached,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Options<'a> {
    pub(super) hidden_too: bool,
    pub(super) ignored_too: bool,
    pub(super) links: bool,
    pub(super) never_git: bool,
    pub(super) overrides: Option<&'a Override>,
}

/// The parameters of a walk.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    pub(super) session: &'a OpenSession,
    pub(super) options: Options<'a>,
    /// The maximum number of files, in path order.
    pub(super) files_max: Option<u64>,
    /// Whether files must be visited one by one in path order.
    pub(super) in_order: bool,
    /// Whether our own state or /proc entries can be below the base.
    pub(super) may_meet_hidden: bool,
    pub(super) deadline: &'a Deadline,
    pub(super) skipped: &'a SkippedPaths,
    cores: usize,
}

impl<'a> Walk<'a> {
    fn list<V: Visitor>(&self, visitor: &V, folder: Folder, scratch: &mut Scratch) -> Result<Listing, Errno> {
        let options = (self.options.links, self.options.ignored_too);
        Listing::read(folder, options, self.skipped, scratch, |folder, kind, name, path| {
            Filter { walk: self, visitor, folder }.keeps(kind, name, path)
        })
    }

    pub(super) fn new(
        session: &'a OpenSession,
        place: &Place,
        options: Options<'a>,
        deadline: &'a Deadline,
        skipped: &'a SkippedPaths,
        cores: usize,
    ) -> Walk<'a> {
        let base = &place.absolute;
        let may_meet = |hidden: &Vec<u8>| is_below(hidden, base);
        Walk {
            session,
            options,
            files_max: session.capability.max_scan_files,
            in_order: session.capability.max_scan_files.is_some(),
            may_meet_hidden: session.jail.hidden.iter().any(may_meet) || base.starts_with(b"/proc"),
            deadline,
            skipped,
            cores: cores.clamp(1, SCAN_THREADS_MAX),
        }
    }

    /// Visits everything below a folder. Returns true when a limit ended the walk early.
    pub(super) fn run<V: Visitor>(&self, visitor: &V, place: &Place) -> Result<bool, Refusal> {
        let merged = MergedDir::of(place).map_err(|why| place.refusal("search", why))?;
        let path = [&place.absolute, b"/".as_slice()].concat();
        let rules = if self.options.ignored_too {
            None
        } else {
            Rules::above(&self.session.jail, place, self.skipped)
        };
        let base = Folder { merged, path, rules };
        let mut scratch = Scratch::new();
        let listing = self.list(visitor, base, &mut scratch).map_err(|why| place.refusal("search", why))?;
        let mut tasks = Vec::new();
        push_tasks(&Arc::new(listing), &mut tasks);
        let pool = WorkerPool {
            walk: self,
            visitor,
            queue: Mutex::new(Queue { tasks, busy: 0, visited: 0 }),
            changed: Condvar::new(),
            stopped: AtomicBool::new(false),
            cut: AtomicBool::new(false),
        };
        pool.run(scratch);
        Ok(pool.cut.into_inner())
    }

    fn enter(&self, item: ListedEntry<'_>) -> Result<Folder, Errno> {
        let (parent, path) = (item.folder(), item.path());
        if path.len() > PATH_BYTES_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let merged = parent.merged.enter(&self.session.jail, item.name(), item.own().is_some(), &path)?;
        Ok(Folder { merged, path, rules: parent.rules.clone() })
    }
}

/// A unit of work: a folder to list, or files of a listing to visit.
#[derive(Debug)]
enum Task {
    Enter(Arc<Listing>, usize),
    Visit(Arc<Listing>, Range<usize>),
}

/// The number of files that one thread takes at a time.
const BATCH: usize = 32;

#[derive(Debug)]
struct Queue {
    /// A stack: the last is the earliest in path order.
    tasks: Vec<Task>,
    /// The number of threads at work, which may add tasks.
    busy: usize,
    /// The number of visited files, if there is a limit.
    visited: u64,
}

/// Pushes the entries of a folder, the first on top.
fn push_tasks(listing: &Arc<Listing>, tasks: &mut Vec<Task>) {
    let entries = &listing.entries;
    let mut end = entries.len();
    while end > 0 {
        if entries[end - 1].kind == Kind::Dir {
            end -= 1;
            tasks.push(Task::Enter(listing.clone(), end));
            continue;
        }
        let run = entries[..end].iter().rev().take(BATCH).take_while(|entry| entry.kind != Kind::Dir).count();
        tasks.push(Task::Visit(listing.clone(), end - run..end));
        end -= run;
    }
}

/// The threads of one walk.
struct WorkerPool<'a, V> {
    walk: &'a Walk<'a>,
    visitor: &'a V,
    queue: Mutex<Queue>,
    changed: Condvar,
    stopped: AtomicBool,
    cut: AtomicBool,
}

impl<V: Visitor> WorkerPool<'_, V> {
    fn run(&self, scratch: Scratch) {
        let mut worker = (self.visitor.new_worker(), scratch);
        // One thread while there is only one task: small trees do not repay the start of a thread.
        while self.lock().tasks.len() == 1 {
            self.run_one_task(&mut worker);
        }
        let helpers = if self.walk.in_order { 0 } else { self.walk.cores.min(self.lock().tasks.len()) };
        let acting_for = acting_for();
        std::thread::scope(|scope| {
            for _ in 1..helpers {
                let help = || {
                    let Ok(_rights) = act_for(acting_for) else { return };
                    self.work((self.visitor.new_worker(), Scratch::new()));
                };
                // If a thread cannot be started, the others do the work.
                if let Err(error) =
                    std::thread::Builder::new().name("search".into()).spawn_scoped(scope, help)
                {
                    tracing::debug!(%error, "cannot start a search thread");
                }
            }
            self.work(worker);
        });
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("BUG: lock poisoned")
    }

    fn work(&self, mut worker: (V::Worker, Scratch)) {
        while self.run_one_task(&mut worker) {}
        self.visitor.finish_worker(worker.0);
    }

    /// Runs one task. Returns false when none is left and no thread can add more.
    fn run_one_task(&self, worker: &mut (V::Worker, Scratch)) -> bool {
        let mut queue = self.lock();
        let task = loop {
            if self.stopped.load(Ordering::Relaxed) {
                queue.tasks.clear();
            }
            match queue.tasks.pop() {
                Some(task) => break task,
                None if queue.busy == 0 => {
                    self.changed.notify_all();
                    return false;
                }
                None => queue = self.changed.wait(queue).expect("BUG: lock poisoned"),
            }
        };
        queue.busy += 1;
        drop(queue);
        let mut busy = Busy { pool: self, added: Vec::new() };
        match task {
            Task::Enter(listing, index) => {
                let item = ListedEntry { listing: &listing, entry: listing.entries[index] };
                self.enter(item, &mut worker.1, &mut busy.added);
            }
            Task::Visit(listing, range) => self.visit(&listing, range, &mut worker.0),
        }
        true
    }

    fn enter(&self, item: ListedEntry<'_>, scratch: &mut Scratch, tasks: &mut Vec<Task>) {
        if self.is_over() || self.visitor.is_past(&item) {
            return;
        }
        let read = |folder| self.walk.list(self.visitor, folder, scratch);
        match self.walk.enter(item).and_then(read) {
            Ok(listing) => push_tasks(&Arc::new(listing), tasks),
            Err(why) => self.walk.skipped.add(&item.path(), why),
        }
    }

    fn visit(&self, listing: &Listing, range: Range<usize>, worker: &mut V::Worker) {
        for entry in &listing.entries[range] {
            let item = ListedEntry { listing, entry: *entry };
            if self.is_over() || self.visitor.is_past(&item) {
                return;
            }
            if !self.counts(&item) {
                continue;
            }
            if self.visitor.visit(worker, item) == WalkControl::LimitReached {
                return self.stop(true);
            }
        }
    }

    /// Counts a file against the limit. Returns false if it is not visited.
    fn counts(&self, item: &ListedEntry<'_>) -> bool {
        let Some(max) = self.walk.files_max else { return true };
        let mut queue = self.lock();
        if queue.visited >= max {
            drop(queue);
            self.stop(true);
            return false;
        }
        queue.visited += 1;
        self.visitor.wants(&item.path())
    }

    fn is_over(&self) -> bool {
        if self.stopped.load(Ordering::Relaxed) {
            return true;
        }
        if self.walk.deadline.is_over() {
            self.stop(false);
        }
        self.stopped.load(Ordering::Relaxed)
    }

    fn stop(&self, cut: bool) {
        self.cut.fetch_or(cut, Ordering::Relaxed);
        self.stopped.store(true, Ordering::Relaxed);
    }
}

/// A thread at work. Dropping it, also by a panic, adds the new tasks and wakes the other threads.
struct Busy<'a, 'b, V: Visitor> {
    pool: &'a WorkerPool<'b, V>,
    added: Vec<Task>,
}

impl<V: Visitor> Drop for Busy<'_, '_, V> {
    fn drop(&mut self) {
        let Ok(mut queue) = self.pool.queue.lock() else { return };
        queue.busy -= 1;
        let added = self.added.len();
        queue.tasks.append(&mut self.added);
        let finished = queue.tasks.is_empty() && queue.busy == 0;
        drop(queue);
        if finished || added > 1 {
            self.pool.changed.notify_all();
        }
    }
}

/// Which entries of a folder the walk looks at.
struct Filter<'a, V> {
    walk: &'a Walk<'a>,
    visitor: &'a V,
    folder: &'a Folder,
}

impl<V: Visitor> Filter<'_, V> {
    /// `path` holds the folder's path and is restored to it.
    fn keeps(&self, kind: Kind, name: &[u8], path: &mut Vec<u8>) -> bool {
        let options = &self.walk.options;
        let is_dir = kind == Kind::Dir;
        let hidden = name[0] == b'.' && !options.hidden_too;
        if is_dir && options.never_git && name == b".git" {
            return false;
        }
        if hidden && options.overrides.is_none() && self.folder.rules.is_none() {
            return false;
        }
        path.truncate(self.folder.path.len());
        path.extend_from_slice(name);
        // The cheapest check first: most entries do not match.
        self.is_wanted(path, is_dir) && self.passes(path, is_dir, hidden) && self.is_allowed(path, is_dir)
    }

    fn is_wanted(&self, path: &[u8], is_dir: bool) -> bool {
        if is_dir {
            self.visitor.enters(path)
        } else {
            self.walk.files_max.is_some() || self.visitor.wants(path)
        }
    }

    /// The rules in ripgrep's order: overrides, then ignore files, then hidden names.
    fn passes(&self, path: &[u8], is_dir: bool, hidden: bool) -> bool {
        if let Some(overrides) = self.walk.options.overrides {
            let spelled = Path::new(OsStr::from_bytes(self.walk.session.jail.relative(path)));
            match overrides.matched(spelled, is_dir) {
                Match::Whitelist(_) => return true,
                Match::Ignore(_) => return false,
                Match::None => {}
            }
        }
        match self.folder.rules.as_ref().map_or(Match::None, |rules| rules.matched(path, is_dir)) {
            Match::Whitelist(()) => true,
            Match::Ignore(()) => false,
            Match::None => !hidden,
        }
    }

    /// Whether policy allows reading and searching the file, and it is not our own state.
    fn is_allowed(&self, path: &[u8], is_dir: bool) -> bool {
        if self.walk.may_meet_hidden && self.walk.session.jail.is_hidden(path) {
            return false;
        }
        let policy = &self.walk.session.policy;
        if is_dir || policy.rules().is_empty() {
            return true;
        }
        let shown = self.walk.session.jail.display(path);
        [Op::Search, Op::Read].iter().all(|op| policy.check(*op, &shown, &shown).decision != Decision::Deny)
    }
}
