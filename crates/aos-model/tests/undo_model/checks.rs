//! The invariants that are checked after every undo of a random history.

use std::collections::BTreeSet;

use aos_model::records::Kind;

use super::host::{Answer, Ask, Host, Selection};
use super::oracle;
use super::random::{Check, Rng, Run};
use super::world::{Files, Obj, is_or_below, key_at, keys, print};

impl Run {
    pub(crate) fn undo(&mut self, ask: &Ask, rng: &mut Rng) -> Check {
        let before = self.host.clone();
        let dry = self.host.undo(ask, true);
        if self.host.files != before.files {
            return Err("a dry run changed the tree".into());
        }
        let answer = self.host.undo(ask, false);
        let Ask { session, selection, paths, force, .. } = ask;
        let asked = format!("S{session} {selection:?} paths {paths:?} force {force}");
        self.log.push(format!("{asked} -> {answer:?}\n      {}", print(&self.host.files)));
        if dry != answer {
            return Err(format!("the dry run said {dry:?}"));
        }
        match &answer {
            Answer::Nothing => {
                self.counts.nothing += 1;
                Ok(())
            }
            Answer::Conflict(_) => {
                self.counts.conflicts += 1;
                if self.host.files != before.files || self.host.journal.len() != before.journal.len() {
                    return Err("a conflict changed something".into());
                }
                self.after_conflict(&before, ask)
            }
            Answer::Ok { restored, deleted, snapshot } => {
                self.counts.undone += 1;
                check_lists(&before.files, &self.host.files, restored, deleted)?;
                self.after_undo(&before, ask, snapshot, rng)
            }
        }
    }

    fn groups(host: &Host, ask: &Ask) -> Vec<Vec<u64>> {
        host.groups(ask.session, &ask.selection).expect("answered")
    }

    /// Whether nothing but the session changed anything.
    fn is_alone(&self, host: &Host) -> bool {
        !host.person_acted && self.setup.sessions == 1
    }

    fn after_conflict(&mut self, before: &Host, ask: &Ask) -> Check {
        // A restore of a scope can meet later calls of its own session.
        if self.is_alone(before) && !ask.is_restore() {
            return Err("a false conflict: only this session changed anything".into());
        }
        if oracle::take_back(before, &Self::groups(before, ask)).conflicts.is_empty() {
            self.counts.cautious += 1;
        }
        // With force it works, and everything comes back.
        let mut forced = Run::new(before.clone(), self.setup, 8000);
        let ask = Ask { force: true, ..ask.clone() };
        match forced.host.undo(&ask, false) {
            Answer::Ok { restored, deleted, snapshot } => {
                check_lists(&before.files, &forced.host.files, &restored, &deleted)?;
                forced.after_undo(before, &ask, &snapshot, &mut Rng::new(1))
            }
            other => Err(format!("forced it answers {other:?}")),
        }
    }

    fn after_undo(&mut self, before: &Host, ask: &Ask, snapshot: &str, rng: &mut Rng) -> Check {
        let groups = Self::groups(before, ask);
        let is_explicit = groups.iter().flatten().any(|seq| before.entry(*seq).change.explicit);
        self.counts.forced += u64::from(ask.force);
        if !ask.force && !is_explicit {
            let as_left = |path: &str, obj: &Obj| {
                let mut left = groups.iter().flatten().map(|seq| &before.entry(*seq).tree_after);
                left.any(|left| key_at(left, path) == Some(obj.key()))
            };
            if let Some(path) = oracle::lost(&before.files, &self.host.files, as_left) {
                return Err(format!("{path}, which a person wrote, is lost"));
            }
            // Over what others wrote inside a group of a redo, a path has no chain that the oracle could follow.
            let is_whole = groups.iter().all(|group| oracle::foreign_between(before, group).is_empty());
            if ask.paths.is_none() && is_whole {
                self.compare_with_oracle(before, &groups)?;
            }
        }
        self.comes_back(before, ask)?;
        self.comes_back_by_snapshot(before, ask, snapshot, rng)?;
        self.twice(ask)?;
        self.one_by_one(before, ask)
    }

    fn compare_with_oracle(&mut self, before: &Host, groups: &[Vec<u64>]) -> Check {
        let wanted = oracle::take_back(before, groups);
        // A folder takes along what others wrote below it; the oracle leaves that where it is.
        let moved = oracle::moved_folders(before, groups);
        let travels = |path: &&String| moved.iter().any(|folder| is_or_below(path, folder));
        // So a folder above may stay, untouched, where the oracle removes it.
        let stays = |path: &&String| {
            moved.iter().any(|folder| is_or_below(folder, path))
                && key_at(&before.files, path) == key_at(&self.host.files, path)
        };
        if let Some(path) = wanted.conflicts.iter().find(|path| !travels(path) && !stays(path)) {
            return Err(format!("{path} was changed by others, says the oracle, without a conflict"));
        }
        if !oracle::foreign(before, groups).iter().any(|path| travels(&path)) {
            self.counts.exact += 1;
            if keys(&wanted.files) != keys(&self.host.files) {
                return Err(format!("the oracle has {}", print(&wanted.files)));
            }
        }
        Ok(())
    }

    /// What was displaced comes back: by redo, or by undoing the restore.
    fn comes_back(&self, before: &Host, ask: &Ask) -> Check {
        let mut host = self.host.clone();
        let is_recorded = host.journal.len() > before.journal.len();
        let selection = match ask.selection {
            Selection::Rollback(count) => Selection::Redo(count),
            Selection::Redo(count) => Selection::Rollback(count),
            Selection::Scope(_) | Selection::Snapshot(_) => Selection::Rollback(1),
        };
        // A rollback after a redo goes over what `force` went over before.
        let is_redo = matches!(ask.selection, Selection::Redo(_));
        let is_evicted = is_redo && host.groups(ask.session, &selection).is_none();
        if is_evicted || ask.is_restore() && !is_recorded {
            return Ok(());
        }
        let force = is_redo && !self.is_alone(before);
        let back = Ask { session: ask.session, selection, paths: None, force, turn: "back".into() };
        let answer = host.undo(&back, false);
        let Answer::Ok { .. } = answer else { return Err(format!("back: {answer:?}")) };
        if !force && keys(&host.files) != keys(&before.files) {
            return Err(format!("back it is {}\n   it was {}", print(&host.files), print(&before.files)));
        }
        Ok(())
    }

    /// After another change, what was displaced is in the snapshot of the undo.
    fn comes_back_by_snapshot(&self, before: &Host, ask: &Ask, snapshot: &str, rng: &mut Rng) -> Check {
        if self.host.journal.len() == before.journal.len() {
            return Ok(());
        }
        let mut run = Run::new(self.host.clone(), self.setup, 9000);
        run.agent(rng);
        if self.setup.person && rng.chance(50) {
            run.person(rng);
        }
        let selection = Selection::Snapshot(snapshot.into());
        let later = Ask { selection, paths: None, force: true, turn: "later".into(), ..ask.clone() };
        let answer = run.host.undo(&later, false);
        let Answer::Ok { .. } = answer else { return Err(format!("{snapshot} is not restored: {answer:?}")) };
        let kept = oracle::states(&self.host.files);
        // Of folders only the attributes could be displaced.
        let displaced =
            before.files.iter().filter(|(_, obj)| obj.kind != Kind::Dir && !kept.contains_key(&obj.key()));
        for (path, obj) in displaced {
            if key_at(&run.host.files, path) != Some(obj.key()) {
                let now = print(&run.host.files);
                return Err(format!("{path} does not come back by {snapshot}\n   {:?}\n   {now}", run.log));
            }
        }
        Ok(())
    }

    /// Restoring what is restored changes nothing.
    fn twice(&self, ask: &Ask) -> Check {
        if !ask.is_restore() {
            return Ok(());
        }
        let mut host = self.host.clone();
        let seqs = Self::groups(&host, ask).concat();
        let records = || seqs.iter().flat_map(|seq| &host.entry(*seq).change.paths);
        let is_folder = |path: &str| {
            let mut stored = records().filter(|one| one.path == *path && one.moved_to.is_none());
            stored.any(|one| one.before.as_ref().is_some_and(|image| image.kind == Kind::Dir))
        };
        // Of two equal files or folders that change places, a copy cannot be distinguished from the other.
        let mut moves = records().filter_map(|one| one.moved_to.as_ref());
        // Over a gap, the folder that goes back first may bring an object back to where the changes left it.
        let is_foreign = !oracle::foreign_between(&host, &seqs).is_empty();
        if ask.force && moves.any(|to| !self.setup.unique || is_folder(to) || is_foreign) {
            return Ok(());
        }
        match host.undo(ask, false) {
            Answer::Ok { restored, deleted, .. } if restored.is_empty() && deleted.is_empty() => {}
            other => return Err(format!("the second time: {other:?}")),
        }
        if host.files != self.host.files || host.journal.len() != self.host.journal.len() {
            return Err("the second time changed something".into());
        }
        Ok(())
    }

    /// Several turns are the same as one after the other.
    fn one_by_one(&self, before: &Host, ask: &Ask) -> Check {
        let (count, one) = match ask.selection {
            Selection::Rollback(count) => (count, Selection::Rollback(1)),
            Selection::Redo(count) => (count, Selection::Redo(1)),
            Selection::Scope(_) | Selection::Snapshot(_) => return Ok(()),
        };
        // With force each one displaces what others wrote at its own paths.
        if ask.force && !self.is_alone(before) {
            return Ok(());
        }
        // A folder that moves on the way takes along what others wrote below it, and needs its old name.
        let groups = Self::groups(before, ask);
        let moved = oracle::moved_folders(before, &groups);
        let travels = |path: &String| moved.iter().any(|folder| is_or_below(path, folder));
        if oracle::foreign(before, &groups).iter().any(travels) {
            return Ok(());
        }
        let is_redo = one == Selection::Redo(1);
        let mut host = before.clone();
        for number in 0..count {
            let ask = Ask { selection: one.clone(), ..ask.clone() };
            match host.undo(&ask, false) {
                Answer::Ok { .. } => {}
                // Where others acted, a conflict on the way may be reported: a touch or a copy suffices.
                Answer::Conflict(_) if is_redo || !self.is_alone(before) => return Ok(()),
                // A part needs the snapshots of the steps that stay undone.
                Answer::Nothing if is_redo && !host.dropped.is_empty() => return Ok(()),
                other => return Err(format!("one by one, number {number}: {other:?}")),
            }
        }
        // What the turns together leave alone stays as others left it; one by one it is set on the way.
        let skipped = oracle::unconcerned(before, &groups);
        let is_near = |path: &str| skipped.iter().any(|one| is_or_below(path, one) || is_or_below(one, path));
        // Folders that others removed are made again on the way.
        let is_made_again = |path: &str, obj: &Obj| {
            obj.kind == Kind::Dir && !self.is_alone(before) && !self.host.files.contains_key(path)
        };
        let relevant = |files: &Files| {
            let files = files.iter().filter(|(path, obj)| !is_near(path) && !is_made_again(path, obj));
            files.map(|(path, obj)| (path.clone(), obj.key())).collect::<Vec<_>>()
        };
        if relevant(&host.files) != relevant(&self.host.files) {
            return Err(format!("one by one it is {}", print(&host.files)));
        }
        Ok(())
    }
}

fn check_lists(before: &Files, after: &Files, restored: &[String], deleted: &[String]) -> Check {
    let paths: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differs = paths.into_iter().filter(|path| key_at(before, path) != key_at(after, path));
    let (is, gone): (Vec<&String>, Vec<&String>) = differs.partition(|path| after.contains_key(*path));
    if !restored.iter().eq(is.iter().copied()) || !deleted.iter().eq(gone.iter().copied()) {
        return Err(format!("lists {restored:?} {deleted:?}; the trees differ by {is:?} {gone:?}"));
    }
    Ok(())
}
