//! One history: turns, rollbacks, redos and restores in a random order, with the tree compared after each.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::calls::{Answer, Calls, Effect, some_moment};
use super::compare::{replaced, touched};
use super::plant::plant;
use super::{Tally, Wrong, acts, ensure};
use crate::copy::{Kind, Thing, Tree, copy_of, differing, explain, on_disk, same};
use crate::random::Random;
use crate::torture::{Daemon, Setup};

pub(super) fn history(
    setup: &Setup,
    root: &Path,
    seed: u64,
    steps: usize,
    daemon: &mut Option<Daemon>,
    tally: &mut Tally,
) -> Result<(), Wrong> {
    let mut random = Random::new(seed);
    std::fs::create_dir_all(root)
        .and_then(|()| plant(root, &mut random))
        .map_err(|why| format!("cannot plant {}: {why}", root.display()))?;
    let mut calls = Calls::new(setup, daemon)?;
    let session = calls.open(&json!({ "target": { "local": { "workdir": root } } }))?;
    let mut walk = Walk {
        calls,
        session,
        root: root.to_owned(),
        random,
        tally,
        now: copy_of(root),
        done: Vec::new(),
        undone: Vec::new(),
        past: Vec::new(),
    };
    let outcome = walk.all(steps);
    walk.tally.kills += walk.calls.kills;
    outcome.map_err(|wrong| walk.calls.tell(wrong))
}

/// A turn that changed something.
#[derive(Debug, Clone)]
struct Turn {
    id: String,
    before: Tree,
    after: Tree,
    calls: Vec<Call>,
}

#[derive(Debug, Clone)]
struct Call {
    id: String,
    before: Tree,
    after: Tree,
    /// The length of `Walk::past` when it was made.
    made_at: usize,
}

struct Walk<'a> {
    calls: Calls<'a>,
    session: String,
    root: PathBuf,
    random: Random,
    tally: &'a mut Tally,
    now: Tree,
    done: Vec<Turn>,
    undone: Vec<Turn>,
    /// The tree after each step so far.
    past: Vec<Tree>,
}

impl Walk<'_> {
    fn all(&mut self, steps: usize) -> Result<(), Wrong> {
        for step in 1..=steps {
            self.step(step % 10 == 0)?;
            self.past.push(self.now.clone());
        }
        self.close()
    }

    fn step(&mut self, kill: bool) -> Result<(), Wrong> {
        match self.random.below(10) {
            0 | 1 => self.rollback(kill),
            2 if !self.undone.is_empty() => self.redo(kill),
            3 if !self.undone.is_empty() => self.redo(kill),
            3 | 4 => self.restore(kill),
            5 if self.random.one_in(2) => self.meddled(),
            _ => self.turn(kill),
        }
    }

    fn ask(&mut self, kind: &str, params: Value, turn: Option<&str>, kill: bool) -> Result<Answer, Wrong> {
        let moment = kill.then(|| some_moment(&mut self.random, kind));
        self.calls.send(Effect { session: &self.session, kind, params, call: None, turn }, moment)
    }

    /// One to three mutations in one turn.
    fn turn(&mut self, kill: bool) -> Result<(), Wrong> {
        let given = (!self.random.one_in(4)).then(|| format!("turn{}", self.calls.number));
        let count = if given.is_some() { 1 + self.random.below(3) } else { 1 };
        let mut turn =
            Turn { id: String::new(), before: self.now.clone(), after: Tree::new(), calls: Vec::new() };
        for number in 0..count {
            let (kind, params) = acts::next(&mut self.random, &self.now, self.calls.number);
            let answer = self.ask(kind, params, given.as_deref(), kill && number + 1 == count)?;
            self.tally.mutations += 1;
            self.tally.commands += u64::from(kind == acts::COMMAND);
            let found = copy_of(&self.root);
            if !answer.is("ok") {
                self.tally.refused += 1;
                ensure(differing(&self.now, &found).is_empty(), || {
                    format!("{kind} was refused and changed something: {}", explain(&self.now, &found))
                })?;
                continue;
            }
            self.left_alone(&found)?;
            let before = std::mem::replace(&mut self.now, found);
            // A move of a path onto itself succeeds and changes nothing.
            if answer.receipt["snapshot_id"].is_string() {
                turn.id = answer.receipt["turn_id"].as_str().unwrap_or_default().to_owned();
                let id = answer.receipt["tool_call_id"].as_str().unwrap_or_default().to_owned();
                turn.calls.push(Call { id, before, after: self.now.clone(), made_at: self.past.len() });
            }
        }
        self.push(turn);
        Ok(())
    }

    /// Adds a turn that changed something. It clears the turns that could be redone.
    fn push(&mut self, mut turn: Turn) {
        if !turn.calls.is_empty() {
            turn.after = self.now.clone();
            self.done.push(turn);
            self.undone.clear();
        }
    }

    /// Checks that files with unchanged content were not written.
    fn left_alone(&self, found: &Tree) -> Result<(), Wrong> {
        let touched = touched(&self.now, found);
        ensure(touched.is_empty(), || format!("the same as before, but written again: {touched:?}"))
    }

    fn rollback(&mut self, kill: bool) -> Result<(), Wrong> {
        let count = 1 + self.random.below(3);
        let answer = self.ask("host.fs.rollback", json!({ "turns": count }), None, kill)?;
        self.tally.rollbacks += 1;
        if self.done.is_empty() {
            return self.nothing(&answer, "nothing_to_roll_back");
        }
        let taken = self.done.split_off(self.done.len().saturating_sub(count));
        let ids: Vec<&str> = taken.iter().rev().map(|turn| turn.id.as_str()).collect();
        let happened = self.arrived(&answer, &taken[0].before, "rolled_back_turns", &ids)?;
        if happened {
            self.undone.extend(taken.into_iter().rev());
        } else {
            self.done.extend(taken);
        }
        Ok(())
    }

    fn redo(&mut self, kill: bool) -> Result<(), Wrong> {
        let count = 1 + self.random.below(3);
        let answer = self.ask("host.fs.redo", json!({ "turns": count }), None, kill)?;
        self.tally.redos += 1;
        if self.undone.is_empty() {
            return self.nothing(&answer, "nothing_to_redo");
        }
        let mut again = self.undone.split_off(self.undone.len().saturating_sub(count));
        again.reverse();
        let ids: Vec<&str> = again.iter().map(|turn| turn.id.as_str()).collect();
        let after = again.last().map(|turn| turn.after.clone()).unwrap_or_default();
        let happened = self.arrived(&answer, &after, "redone_turns", &ids)?;
        if happened {
            self.done.extend(again);
        } else {
            self.undone.extend(again.into_iter().rev());
        }
        Ok(())
    }

    fn nothing(&mut self, answer: &Answer, status: &str) -> Result<(), Wrong> {
        let found = copy_of(&self.root);
        let fits = answer.is(status) || (answer.killed && answer.receipt.is_null());
        ensure(fits, || format!("expected {status}, got {}", answer.receipt))?;
        ensure(differing(&self.now, &found).is_empty() && touched(&self.now, &found).is_empty(), || {
            format!("there was nothing to do, and yet: {}", explain(&self.now, &found))
        })
    }

    /// Checks that a rollback or redo restored exactly `target`. False when a kill prevented it.
    fn arrived(&mut self, answer: &Answer, target: &Tree, field: &str, ids: &[&str]) -> Result<bool, Wrong> {
        let found = copy_of(&self.root);
        if answer.killed && !answer.is("ok") {
            ensure(differing(&self.now, &found).is_empty(), || {
                format!("it was cut short and left something: {}", explain(&self.now, &found))
            })?;
            return Ok(false);
        }
        ensure(answer.is("ok"), || format!("it was refused: {}", answer.receipt))?;
        ensure(differing(target, &found).is_empty(), || explain(target, &found))?;
        ensure(answer.receipt[field] == json!(ids), || {
            format!("{field} are not {ids:?}: {}", answer.receipt)
        })?;
        self.left_alone(&found)?;
        self.times_are_new(answer, &found)?;
        self.now = found;
        Ok(true)
    }

    /// Checks that a file with content that was nowhere in the tree just before has a new modification time.
    fn times_are_new(&self, answer: &Answer, found: &Tree) -> Result<(), Wrong> {
        const CLOCK_TICK_NS: i64 = 20_000_000;
        for (path, thing) in found {
            let is_new = matches!(thing.kind, Kind::File { .. })
                && !self.now.values().any(|known| known.kind == thing.kind);
            let old = is_new && thing.mtime_ns < answer.begun_ns - CLOCK_TICK_NS;
            ensure(!old, || format!("{path} was restored, but its time is not now"))?;
        }
        Ok(())
    }

    /// Undoes one call, also when other calls followed it.
    fn restore(&mut self, kill: bool) -> Result<(), Wrong> {
        let Some(last) = self.done.len().checked_sub(1) else { return self.turn(kill) };
        // Mostly a recent call, which no later change blocks.
        let turn = if self.random.one_in(2) { last } else { self.random.below(last + 1) };
        let calls = &self.done[turn].calls;
        let call = calls
            [if self.random.one_in(2) { calls.len() - 1 } else { self.random.below(calls.len()) }]
        .clone();
        let params = json!({ "scope_id": call.id });
        let answer = self.ask("host.fs.restore", params, None, kill)?;
        self.tally.restores += 1;
        let found = copy_of(&self.root);
        let mut paths = differing(&call.before, &call.after);
        paths.extend(replaced(&call.before, &call.after));
        // The daemon recognizes a moved file by its identity. A file that was changed and restored since is a new file.
        let since = self.past[call.made_at..].iter().chain([&self.now]);
        let as_left = |tree: &Tree| paths.iter().all(|path| same(tree.get(path), call.after.get(path)));
        let is_free = |path: &String| {
            let mut above = path.match_indices('/').filter_map(|(slash, _)| self.now.get(&path[..slash]));
            above.all(Thing::is_folder)
        };
        // A folder that replaced something else can only be removed if it contains only what the call put into it.
        let is_filled = |path: &String| {
            let was_else = call.before.get(path).is_some_and(|thing| !thing.is_folder());
            let below = format!("{path}/");
            let mut inside = self.now.range(below.clone()..).take_while(|(path, _)| path.starts_with(&below));
            was_else && inside.any(|(path, _)| !call.after.contains_key(path))
        };
        let undisturbed =
            since.into_iter().all(as_left) && paths.iter().all(is_free) && !paths.iter().any(is_filled);
        if !answer.is("ok") {
            self.tally.conflicts += u64::from(answer.is("conflict"));
            let allowed = answer.killed || (answer.is("conflict") && !undisturbed);
            ensure(allowed, || format!("{} could be taken back, but: {}", call.id, answer.receipt))?;
            return ensure(
                differing(&self.now, &found).is_empty() && touched(&self.now, &found).is_empty(),
                || format!("it was not taken back, and yet: {}", explain(&self.now, &found)),
            );
        }
        self.taken_back(&call, &paths, &found, undisturbed)?;
        self.left_alone(&found)?;
        self.times_are_new(&answer, &found)?;
        let before = std::mem::replace(&mut self.now, found);
        if !differing(&before, &self.now).is_empty() {
            let id = answer.receipt["tool_call_id"].as_str().unwrap_or_default().to_owned();
            let turn_id = answer.receipt["turn_id"].as_str().unwrap_or_default().to_owned();
            let calls =
                vec![Call { id, before: before.clone(), after: self.now.clone(), made_at: self.past.len() }];
            self.push(Turn { id: turn_id, before, after: Tree::new(), calls });
        }
        Ok(())
    }

    /// Checks that what the call changed is as before the call, and that everything else is unchanged, except what
    /// moved with a folder.
    fn taken_back(
        &self,
        call: &Call,
        paths: &[String],
        found: &Tree,
        undisturbed: bool,
    ) -> Result<(), Wrong> {
        for path in paths.iter().filter(|_| undisturbed) {
            let stays = !call.before.contains_key(path)
                && found.get(path).is_some_and(Thing::is_folder)
                && found
                    .range(format!("{path}/")..)
                    .next()
                    .is_some_and(|(p, _)| p.starts_with(&format!("{path}/")));
            ensure(stays || same(found.get(path), call.before.get(path)), || {
                let only = |tree: &Tree| {
                    tree.get_key_value(path).map(|(p, t)| (p.clone(), t.clone())).into_iter().collect()
                };
                format!("{} was not taken back: {}", call.id, explain(&only(&call.before), &only(found)))
            })?;
        }
        let is_below =
            |path: &str, root: &str| path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'));
        // A missing parent folder is created again.
        let made =
            |path: &str| !self.now.contains_key(path) && paths.iter().any(|below| is_below(below, path));
        let concerned =
            |path: &str| made(path) || paths.iter().any(|root| path == root || is_below(path, root));
        for path in differing(&self.now, found) {
            ensure(concerned(&path), || format!("{} never touched {path}, which changed", call.id))?;
        }
        Ok(())
    }

    /// Changes a file of the last turn without the daemon: a rollback is then a conflict and changes nothing.
    fn meddled(&mut self) -> Result<(), Wrong> {
        let Some(turn) = self.done.last() else { return self.turn(false) };
        // Only files that the turn wrote. A file that only moved with a folder moves back with it, even after a change.
        let is_new = |path: &String| match self.now.get(path).map(|thing| &thing.kind) {
            Some(kind @ Kind::File { .. }) => !turn.before.values().any(|known| known.kind == *kind),
            _ => false,
        };
        let files: Vec<String> = differing(&turn.before, &turn.after).into_iter().filter(is_new).collect();
        let Some(path) = files.first() else { return self.turn(false) };
        let on_disk = on_disk(&self.root, path);
        let content = std::fs::read(&on_disk).map_err(|why| why.to_string())?;
        let changed_at = std::fs::metadata(&on_disk).and_then(|meta| meta.modified());
        let changed_at = changed_at.map_err(|why| why.to_string())?;
        let outside = [content.as_slice(), b"somebody else's line\n"].concat();
        if std::fs::write(&on_disk, outside).is_err() {
            // The mode of the file forbids writing even to its owner.
            return self.turn(false);
        }
        let before = copy_of(&self.root);
        let answer = self.ask("host.fs.rollback", json!({}), None, false)?;
        self.tally.conflicts += 1;
        let found = copy_of(&self.root);
        ensure(answer.is("conflict"), || format!("{path} was changed outside, and yet: {}", answer.receipt))?;
        ensure(differing(&before, &found).is_empty() && touched(&before, &found).is_empty(), || {
            format!("a conflict, and yet: {}", explain(&before, &found))
        })?;
        // Restore the content and the time: the daemon recognizes a file that only moved by its time.
        let put_back = || {
            std::fs::write(&on_disk, content)?;
            std::fs::File::options().append(true).open(&on_disk)?.set_modified(changed_at)
        };
        put_back().map_err(|why| why.to_string())?;
        self.now = copy_of(&self.root);
        Ok(())
    }

    /// Undoes all turns, redoes all turns, and closes the session.
    fn close(&mut self) -> Result<(), Wrong> {
        if !self.done.is_empty() {
            let taken = std::mem::take(&mut self.done);
            let answer = self.ask("host.fs.rollback", json!({ "turns": taken.len() }), None, false)?;
            let ids: Vec<&str> = taken.iter().rev().map(|turn| turn.id.as_str()).collect();
            self.arrived(&answer, &taken[0].before, "rolled_back_turns", &ids)?;
            let answer = self.ask("host.fs.redo", json!({ "turns": taken.len() }), None, false)?;
            let ids: Vec<&str> = taken.iter().map(|turn| turn.id.as_str()).collect();
            let after = &taken[taken.len() - 1].after;
            self.arrived(&answer, after, "redone_turns", &ids)?;
        }
        self.calls.close(&self.session)
    }
}
