//! Histories of agents and a person in one folder. Undo must not lose what the person did.
//!
//! The person acts between the calls, never during one, so each call has a known tree before it. Each step has random
//! numbers of its own: the moment of a kill changes what is done, but not what the later steps try to do.

mod book;
mod checks;
mod come_back;
mod person;
mod undo;

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};

use super::calls::{Answer, Calls, Effect, some_moment};
use super::plant::plant;
use super::{Tally, Wrong, acts, ensure};
use crate::copy::{Tree, copy_of, differing, explain, touched_at_all};
use crate::random::Random;
use crate::torture::{Daemon, Setup};
use book::{Ask, Call, Selection, Session, What, touched_by};
use checks::Written;

/// The folder of one history, with everybody who works in it.
struct Outside<'a> {
    calls: Calls<'a>,
    root: PathBuf,
    tally: &'a mut Tally,
    now: Rc<Tree>,
    sessions: Vec<Session>,
    written: Written,
    /// Who changed the folder, in order: a session, or the person.
    changes: Vec<Option<String>>,
    /// What was changed last. Everybody prefers these paths, so that changes meet.
    recent: Vec<String>,
}

/// How many paths are preferred.
const RECENT_MAX: usize = 5;

/// Runs the chosen steps of a history.
pub(super) fn history(
    setup: &Setup,
    root: &Path,
    seed: u64,
    steps: &[usize],
    daemon: &mut Option<Daemon>,
    tally: &mut Tally,
) -> Result<(), Wrong> {
    let mut random = Random::new(seed);
    std::fs::create_dir_all(root)
        .and_then(|()| plant(root, &mut random))
        .map_err(|why| format!("cannot plant {}: {why}", root.display()))?;
    let mut outside = Outside {
        calls: Calls::new(setup, daemon)?,
        root: root.to_owned(),
        tally,
        now: Rc::new(copy_of(root)),
        sessions: Vec::new(),
        written: Written::default(),
        changes: Vec::new(),
        recent: Vec::new(),
    };
    let outcome = outside.all(seed, steps, &mut random);
    outside.tally.kills += outside.calls.kills;
    outcome.map_err(|wrong| outside.calls.tell(wrong))
}

impl Outside<'_> {
    fn all(&mut self, seed: u64, steps: &[usize], random: &mut Random) -> Result<(), Wrong> {
        for _ in 0..=random.below(2) {
            let session = self.open(random)?;
            self.sessions.push(session);
        }
        for step in steps {
            let number = (*step as u64 + 1).wrapping_mul(0x2545_f491_4f6c_dd1d);
            self.calls.told.push(format!("STEP {step}"));
            self.step(&mut Random::new(seed ^ number))?;
        }
        let ids: Vec<String> = self.sessions.iter().map(|session| session.id.clone()).collect();
        ids.iter().try_for_each(|id| self.calls.close(id))
    }

    /// A third of the sessions keep only a few pre-images.
    fn open(&mut self, random: &mut Random) -> Result<Session, Wrong> {
        let is_small = random.one_in(3);
        let mut params = json!({ "target": { "local": { "workdir": self.root } } });
        if is_small {
            params["snapshot_bytes_max"] = json!([1_000, 4_000, 100_000][random.below(3)]);
        }
        Ok(Session::new(self.calls.open(&params)?, is_small))
    }

    fn step(&mut self, random: &mut Random) -> Result<(), Wrong> {
        let at = random.below(self.sessions.len());
        let is_killed = random.one_in(12);
        match random.below(100) {
            0..33 => self.person(random),
            33..65 => self.turn(at, random, is_killed),
            65..94 => self.undo_step(at, random, is_killed),
            94..98 => self.snapshot(at, random),
            _ => self.close(at, random),
        }
    }

    fn person(&mut self, random: &mut Random) -> Result<(), Wrong> {
        // The number makes contents unique.
        self.calls.number += 1;
        let chance = acts::Chance::new(random, &self.now, self.calls.number).preferring(&self.recent);
        let what = person::act(chance, &self.now, &self.root);
        self.calls.told.push(what);
        self.tally.by_person += 1;
        let found = Rc::new(copy_of(&self.root));
        // A new time counts: the content of a file that was only moved is not recorded, so it may have changed.
        if !touched_at_all(&self.now, &found).is_empty() {
            self.changes.push(None);
        }
        self.prefer(&touched_by(&self.now, &found));
        self.written.by_person(&self.now, &found);
        self.now = found;
        Ok(())
    }

    fn prefer(&mut self, paths: &[String]) {
        self.recent.splice(0..0, paths.iter().take(RECENT_MAX - 1).cloned());
        self.recent.truncate(RECENT_MAX);
    }

    fn send(
        &mut self,
        session: usize,
        kind: &str,
        params: Value,
        ids: (Option<&str>, Option<&str>),
        kill: Option<Duration>,
    ) -> Result<Answer, Wrong> {
        let session = &self.sessions[session].id;
        self.calls.send(Effect { session, kind, params, call: ids.0, turn: ids.1 }, kill)
    }

    /// One to three calls in one turn, sometimes all with one id, and sometimes with the person between them.
    fn turn(&mut self, at: usize, random: &mut Random, is_killed: bool) -> Result<(), Wrong> {
        if random.one_in(12) {
            return self.swap(at, random);
        }
        let number = self.calls.number;
        let turn = (!random.one_in(4)).then(|| format!("turn{number}"));
        let shared = random.one_in(5).then(|| format!("shared{number}"));
        let count = if turn.is_some() { 1 + random.below(3) } else { 1 };
        for number in 0..count {
            if number > 0 && random.one_in(3) {
                self.person(random)?;
            }
            // The journal tells the calls of a killed daemon apart by their ids.
            let is_killed = is_killed && number + 1 == count && shared.is_none();
            self.mutation(at, random, (shared.as_deref(), turn.as_deref()), is_killed)?;
        }
        Ok(())
    }

    /// Two files or folders change places, in one call.
    fn swap(&mut self, at: usize, random: &mut Random) -> Result<(), Wrong> {
        let id = format!("swap{}", self.calls.number);
        let mut chance = acts::Chance::new(random, &self.now, 0).preferring(&self.recent);
        let (one, other) = if chance.random.one_in(4) {
            (chance.folder(), chance.folder())
        } else {
            (chance.file(), chance.file())
        };
        for (from, to) in [(one.as_str(), "swap"), (&other, &one), ("swap", &other)] {
            let params = json!({ "from": from, "to": to });
            self.change(at, ("host.fs.move", params), (Some(&id), Some(&id)), None)?;
        }
        Ok(())
    }

    fn mutation(
        &mut self,
        at: usize,
        random: &mut Random,
        ids: (Option<&str>, Option<&str>),
        is_killed: bool,
    ) -> Result<(), Wrong> {
        let chance = acts::Chance::new(random, &self.now, self.calls.number).preferring(&self.recent);
        let (kind, params) = acts::one(chance);
        let kill = is_killed.then(|| some_moment(random, kind));
        self.change(at, (kind, params), ids, kill)
    }

    fn change(
        &mut self,
        at: usize,
        (kind, params): (&str, Value),
        ids: (Option<&str>, Option<&str>),
        kill: Option<Duration>,
    ) -> Result<(), Wrong> {
        let answer = self.send(at, kind, params, ids, kill)?;
        self.tally.mutations += 1;
        self.tally.commands += u64::from(kind == acts::COMMAND);
        let found = Rc::new(copy_of(&self.root));
        let is_same = differing(&self.now, &found).is_empty();
        if !answer.is("ok") {
            self.tally.refused += 1;
            ensure(is_same, || {
                format!("{kind} was refused and changed something: {}", explain(&self.now, &found))
            })?;
        } else if answer.text("snapshot_id").is_empty() {
            ensure(is_same, || format!("{kind} made no undo step: {}", explain(&self.now, &found)))?;
        } else {
            let moves = ["host.fs.move", "host.fs.apply_patch"].contains(&kind);
            let what = if moves { What::Moves } else { What::Ordinary };
            let call = self.call(at, &answer, what, &found);
            self.prefer(&call.touched);
            self.sessions[at].changed(call, &answer.text("turn_id"));
        }
        self.arrive(found);
        Ok(())
    }

    /// A call that changed the folder.
    fn call(&mut self, at: usize, answer: &Answer, what: What, found: &Rc<Tree>) -> Call {
        let call = Call {
            id: answer.text("tool_call_id"),
            snapshot: answer.text("snapshot_id"),
            what,
            before: self.now.clone(),
            after: found.clone(),
            touched: touched_by(&self.now, found),
            at: self.changes.len(),
        };
        self.changes.push(Some(self.sessions[at].id.clone()));
        call
    }

    /// The tree after an effect.
    fn arrive(&mut self, found: Rc<Tree>) {
        self.written.keep(&found);
        self.now = found;
    }

    /// Captures one or two paths at once.
    fn snapshot(&mut self, at: usize, random: &mut Random) -> Result<(), Wrong> {
        let paths: Vec<String> =
            (0..=random.below(2)).map(|_| acts::Chance::new(random, &self.now, 0).path()).collect();
        let scope = format!("by-hand{}", self.calls.number);
        let params = json!({ "scope_id": scope, "paths": paths });
        let answer = self.send(at, "host.fs.snapshot", params, (None, None), None)?;
        let found = Rc::new(copy_of(&self.root));
        ensure(touched_by(&self.now, &found).is_empty(), || {
            format!("a snapshot changed something: {}", explain(&self.now, &found))
        })?;
        if answer.is("ok") {
            let mut call = self.call(at, &answer, What::Explicit, &found);
            (call.id, call.touched) = (scope, paths);
            self.sessions[at].calls.push(call);
        }
        Ok(())
    }

    /// Closes a session and opens another one.
    fn close(&mut self, at: usize, random: &mut Random) -> Result<(), Wrong> {
        let id = self.sessions[at].id.clone();
        self.calls.close(&id)?;
        self.tally.closed += 1;
        self.sessions[at] = self.open(random)?;
        Ok(())
    }

    fn undo_step(&mut self, at: usize, random: &mut Random, is_killed: bool) -> Result<(), Wrong> {
        let ask = self.some_undo(at, random);
        let kill = is_killed.then(|| some_moment(random, ask.kind()));
        let Some(done) = self.undo(&ask, kill)? else { return Ok(()) };
        if is_killed {
            return Ok(());
        }
        if ask.is_restore() && random.one_in(2) {
            self.again(&ask, &done)?;
        }
        if ask.force || random.one_in(4) {
            self.come_back(&ask, &done, random)?;
        }
        Ok(())
    }

    fn some_undo(&self, session: usize, random: &mut Random) -> Ask {
        let own = &self.sessions[session].calls;
        let scopes: Vec<&Call> = own.iter().filter(|call| call.what != What::Rolls).collect();
        // Mostly a recent one, which no later change blocks.
        let some = |random: &mut Random, of: usize| {
            if random.one_in(2) { of - 1 - random.below(of.min(3)) } else { random.below(of) }
        };
        let selection = match random.below(10) {
            0..=3 => Selection::Rollback(1 + random.below(3)),
            4..=6 => Selection::Redo(1 + random.below(3)),
            7 | 8 if !scopes.is_empty() => Selection::Scope(scopes[some(random, scopes.len())].id.clone()),
            9 if !own.is_empty() => Selection::Snapshot(own[some(random, own.len())].snapshot.clone()),
            _ => Selection::Rollback(1),
        };
        let is_restore = matches!(selection, Selection::Scope(_) | Selection::Snapshot(_));
        let paths = (is_restore && random.one_in(3)).then(|| {
            let mut chance = acts::Chance::new(random, &self.now, 0).preferring(&self.recent);
            let path = if chance.random.one_in(2) { chance.path() } else { chance.file() };
            vec![path]
        });
        Ask { session, selection, paths, force: random.one_in(3) }
    }
}
