//! The walk: many hands take folders and files from one stack whose top is the earliest path not yet begun.
//!
//! Each folder is opened from its parent's handle with links and other mounts forbidden (I3). The order of work is
//! near path order, never relied upon: who visits gives every finding its path and sorts. With one hand it is exact.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use aos_model::limits::{PATH_BYTES_MAX, SCAN_THREADS_MAX};
use aos_model::receipt::Kind;
use aos_model::refusal::Refusal;
use ignore::overrides::Override;
use rustix::io::Errno;

use super::Deadline;
use super::listing::{Folder, Item, Listing, Scratch};
use super::merged::MergedDir;
use super::rules::Rules;
use super::trouble::Troubles;
use crate::jail::Place;
use crate::session::OpenSession;
use aos_model::path::is_below;

/// Who is shown the files of a walk.
pub(super) trait Visitor: Sync {
    /// What one hand keeps between files.
    type Hand;

    fn hand(&self) -> Self::Hand;

    /// Takes what a hand has kept when it is done.
    fn done(&self, hand: Self::Hand);

    /// Whether a folder can hold anything of interest.
    fn enters(&self, path: &[u8]) -> bool;

    /// Whether a file's path is of interest.
    fn wants(&self, path: &[u8]) -> bool;

    fn visit(&self, hand: &mut Self::Hand, item: Item<'_>) -> Go;

    /// Whether all that is at or below a path comes after what can still be returned.
    fn is_past(&self, item: &Item<'_>) -> bool;
}

/// Whether the walk goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Go {
    On,
    /// A limit of the scan is reached, and there was more.
    Cut,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Options<'a> {
    pub(super) hidden_too: bool,
    pub(super) ignored_too: bool,
    pub(super) links: bool,
    pub(super) never_git: bool,
    pub(super) overrides: Option<&'a Override>,
}

/// What a walk goes by.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    pub(super) session: &'a OpenSession,
    pub(super) options: Options<'a>,
    /// Files that may be looked at, in path order.
    pub(super) files_max: Option<u64>,
    /// Visits must come one by one in path order.
    pub(super) in_order: bool,
    /// Our own state, or our own entries of /proc, may lie below the base.
    pub(super) may_meet_hidden: bool,
    pub(super) deadline: &'a Deadline,
    pub(super) troubles: &'a Troubles,
    cores: usize,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        session: &'a OpenSession,
        place: &Place,
        options: Options<'a>,
        deadline: &'a Deadline,
        troubles: &'a Troubles,
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
            troubles,
            cores: cores.clamp(1, SCAN_THREADS_MAX),
        }
    }

    /// Shows the visitor what is below a folder. True when a limit cut the walk short.
    pub(super) fn run<V: Visitor>(&self, visitor: &V, place: &Place) -> Result<bool, Refusal> {
        let merged = MergedDir::of(place).map_err(|why| place.refusal("search", why))?;
        let path = [&place.absolute, b"/".as_slice()].concat();
        let rules = if self.options.ignored_too { None } else { Rules::above(&self.session.jail, place) };
        let base = Folder { merged, path, rules };
        let mut scratch = Scratch::new();
        let listing =
            Listing::read(self, visitor, base, &mut scratch).map_err(|why| place.refusal("search", why))?;
        let mut tasks = Vec::new();
        push_tasks(&Arc::new(listing), &mut tasks);
        let crew = Crew {
            walk: self,
            visitor,
            queue: Mutex::new(Queue { tasks, busy: 0, visited: 0 }),
            changed: Condvar::new(),
            stopped: AtomicBool::new(false),
            cut: AtomicBool::new(false),
        };
        crew.work_together(scratch);
        Ok(crew.cut.into_inner())
    }

    fn enter(&self, item: Item<'_>) -> Result<Folder, Errno> {
        let (parent, path) = (item.folder(), item.path());
        if path.len() > PATH_BYTES_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let merged = parent.merged.enter(&self.session.jail, item.name(), item.own().is_some(), &path)?;
        Ok(Folder { merged, path, rules: parent.rules.clone() })
    }
}

/// Something to do: a folder to list, or files of a listing to visit.
#[derive(Debug)]
enum Task {
    Enter(Arc<Listing>, usize),
    Visit(Arc<Listing>, Range<usize>),
}

/// Files that one hand takes at a time.
const BATCH: usize = 32;

#[derive(Debug)]
struct Queue {
    /// The last is the earliest in path order.
    tasks: Vec<Task>,
    /// Hands at work, who may bring more tasks.
    busy: usize,
    /// Files shown, where they are counted.
    visited: u64,
}

/// Puts a folder's contents on the stack, the first on top.
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

/// All hands of one walk.
struct Crew<'a, V> {
    walk: &'a Walk<'a>,
    visitor: &'a V,
    queue: Mutex<Queue>,
    changed: Condvar,
    stopped: AtomicBool,
    cut: AtomicBool,
}

impl<V: Visitor> Crew<'_, V> {
    fn work_together(&self, scratch: Scratch) {
        let mut hand = (self.visitor.hand(), scratch);
        // Alone while there is only one thing to do: small trees are not worth a thread.
        while self.lock().tasks.len() == 1 {
            self.work_once(&mut hand);
        }
        let helpers = if self.walk.in_order { 0 } else { self.walk.cores.min(self.lock().tasks.len()) };
        std::thread::scope(|scope| {
            for _ in 1..helpers {
                let help = || self.work((self.visitor.hand(), Scratch::new()));
                // Where no thread is to be had, fewer hands do the same work.
                let _ = std::thread::Builder::new().name("search".into()).spawn_scoped(scope, help);
            }
            self.work(hand);
        });
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("BUG: nobody panics holding the queue")
    }

    fn work(&self, mut hand: (V::Hand, Scratch)) {
        while self.work_once(&mut hand) {}
        self.visitor.done(hand.0);
    }

    /// One task. False when there is nothing left and nobody who could bring more.
    fn work_once(&self, hand: &mut (V::Hand, Scratch)) -> bool {
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
                None => queue = self.changed.wait(queue).expect("BUG: nobody panics holding the queue"),
            }
        };
        queue.busy += 1;
        drop(queue);
        let mut busy = Busy { crew: self, brought: Vec::new() };
        match task {
            Task::Enter(listing, index) => {
                let item = Item { listing: &listing, entry: listing.entries[index] };
                self.enter(item, &mut hand.1, &mut busy.brought);
            }
            Task::Visit(listing, range) => self.visit(&listing, range, &mut hand.0),
        }
        true
    }

    fn enter(&self, item: Item<'_>, scratch: &mut Scratch, tasks: &mut Vec<Task>) {
        if self.is_over() || self.visitor.is_past(&item) {
            return;
        }
        let read = |folder| Listing::read(self.walk, self.visitor, folder, scratch);
        match self.walk.enter(item).and_then(read) {
            Ok(listing) => push_tasks(&Arc::new(listing), tasks),
            Err(why) => self.walk.troubles.skipped(&item.path(), why),
        }
    }

    fn visit(&self, listing: &Listing, range: Range<usize>, hand: &mut V::Hand) {
        for entry in &listing.entries[range] {
            let item = Item { listing, entry: *entry };
            if self.is_over() || self.visitor.is_past(&item) {
                return;
            }
            if !self.counts(&item) {
                continue;
            }
            if self.visitor.visit(hand, item) == Go::Cut {
                return self.stop(true);
            }
        }
    }

    /// Counts a file where files are counted. False when it is not to be shown.
    fn counts(&self, item: &Item<'_>) -> bool {
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

/// A hand at work. Ending it, also by a panic, hands over what it brought and lets the others go on.
struct Busy<'a, 'b, V: Visitor> {
    crew: &'a Crew<'b, V>,
    brought: Vec<Task>,
}

impl<V: Visitor> Drop for Busy<'_, '_, V> {
    fn drop(&mut self) {
        let Ok(mut queue) = self.crew.queue.lock() else { return };
        queue.busy -= 1;
        let brought = self.brought.len();
        queue.tasks.append(&mut self.brought);
        let finished = queue.tasks.is_empty() && queue.busy == 0;
        drop(queue);
        if finished || brought > 1 {
            self.crew.changed.notify_all();
        }
    }
}
