//! One folder with a person and the session of an agent, and what undo does there.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use aos_testkit::copy::{Tree, copy_of, differing, equal, explain, lists_are_the_difference, touched_at_all};
use aos_testkit::{Client, Findings, Start, World, check, expect, patch_params, text, verdict};
use serde_json::{Value, json};

use crate::Outcome;

/// A history with a name.
pub(super) type Variant = (&'static str, fn(&mut Scene<'_>) -> Outcome);

/// Runs each history in a folder and a session of its own; one failure does not hide the next.
pub(super) fn each(variants: &[Variant]) -> Outcome {
    each_with(Start::default(), variants)
}

pub(super) fn each_with(start: Start, variants: &[Variant]) -> Outcome {
    let world = World::with(start);
    let mut findings = Findings::default();
    for (number, (name, run)) in variants.iter().enumerate() {
        let mut scene = Scene::new(&world, &format!("v{number}"));
        findings.add(run(&mut scene).map_err(|why| format!("{name}: {why}")));
    }
    let (code, out, err) = world.aos(&["replay", "--verify"]);
    findings.add(check((code, out.trim()) == (0, "MATCH"), || format!("replay: {code}: {out}{err}")));
    findings.add(world.finish());
    findings.outcome()
}

pub(super) struct Scene<'w> {
    world: &'w World,
    pub(super) root: PathBuf,
    client: Client,
    pub(super) session: String,
    /// The ids of the next calls; without them each call and each turn gets a new one.
    pub(super) call: Option<&'static str>,
    pub(super) turn: Option<&'static str>,
}

/// An undo: its receipt, the receipt of the dry run before it, and the trees before and after it.
pub(super) struct Undone {
    pub(super) receipt: Value,
    dry: Value,
    pub(super) before: Tree,
    pub(super) after: Tree,
}

impl Scene<'_> {
    pub(super) fn new<'w>(world: &'w World, folder: &str) -> Scene<'w> {
        let root = world.root.join(folder);
        std::fs::create_dir(&root).unwrap();
        own(&world.root, &root);
        Scene::on(world, &json!({ "target": { "local": { "workdir": &root } } }), root)
    }

    /// A session with these params on a folder.
    pub(super) fn on<'w>(world: &'w World, params: &Value, root: PathBuf) -> Scene<'w> {
        let session = world.client().open_with(params).unwrap();
        Scene::in_session(world, session, root)
    }

    pub(super) fn in_session(world: &World, session: String, root: PathBuf) -> Scene<'_> {
        Scene { world, root, client: world.client(), session, call: None, turn: None }
    }

    /// Another session on the same folder.
    pub(super) fn another(&self) -> Self {
        self.with_target(&json!({ "local": { "workdir": &self.root } }))
    }

    /// A session that stages its changes of the same folder.
    pub(super) fn staged(&self) -> Self {
        self.with_target(&json!({ "staged": { "workdir": &self.root } }))
    }

    fn with_target(&self, target: &Value) -> Self {
        let session = self.world.client().open_with(&json!({ "target": target })).unwrap();
        let (world, root) = (self.world, self.root.clone());
        Scene { world, root, client: world.client(), session, call: None, turn: None }
    }

    /// The client program: what it printed.
    pub(super) fn aos(&self, words: &[&str]) -> Result<String, String> {
        let (code, out, err) = self.world.aos(&[words, &["-s", &self.session]].concat());
        check(code == 0, || format!("aos {words:?}: {code}: {out}{err}"))?;
        Ok(out)
    }

    pub(super) fn tree(&self) -> Tree {
        copy_of(&self.root)
    }

    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
}

/// Gives a new path to the owner of the root: the daemon may run as another user.
fn own(root: &Path, path: &Path) {
    use std::os::unix::fs::MetadataExt as _;
    let owner = root.metadata().unwrap();
    std::os::unix::fs::lchown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
}

/// What the person does.
impl Scene<'_> {
    /// Writes a file as an editor does, with the folders above it.
    pub(super) fn p(&self, path: &str, content: &str) {
        let (path, aside) = (self.at(path), self.root.with_extension("aside"));
        let mut new = path.parent().unwrap();
        let mut made = Vec::new();
        while !new.exists() {
            made.push(new.to_owned());
            new = new.parent().unwrap();
        }
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&aside, content).unwrap();
        std::fs::rename(&aside, &path).unwrap();
        made.iter().chain([&path]).for_each(|path| own(&self.root, path));
    }

    pub(super) fn p_appends(&self, path: &str, more: &str) {
        let content = std::fs::read_to_string(self.at(path)).unwrap() + more;
        std::fs::write(self.at(path), content).unwrap();
    }

    /// Removes a file, a link or a whole folder.
    pub(super) fn p_removes(&self, path: &str) {
        let path = self.at(path);
        if path.symlink_metadata().unwrap().is_dir() {
            std::fs::remove_dir_all(path).unwrap();
        } else {
            std::fs::remove_file(path).unwrap();
        }
    }

    pub(super) fn p_renames(&self, from: &str, to: &str) {
        std::fs::rename(self.at(from), self.at(to)).unwrap();
    }

    pub(super) fn p_chmods(&self, path: &str, mode: u32) {
        std::fs::set_permissions(self.at(path), PermissionsExt::from_mode(mode)).unwrap();
    }

    pub(super) fn p_links(&self, target: &str, path: &str) {
        std::os::unix::fs::symlink(target, self.at(path)).unwrap();
        own(&self.root, &self.at(path));
    }

    pub(super) fn p_sets(&self, path: &str, name: &str, value: &[u8]) -> Outcome {
        check(aos_testkit::copy::set_xattr(&self.at(path), name, value), || {
            format!("{name} cannot be set on {path}")
        })
    }

    /// The content of a file; empty if there is none.
    pub(super) fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.at(path)).unwrap_or_default()
    }

    pub(super) fn has(&self, path: &str, content: &str) -> Outcome {
        let found = self.read(path);
        check(found == content, || format!("{path} is {found:?}, not {content:?}"))
    }

    pub(super) fn lacks(&self, path: &str) -> Outcome {
        check(self.at(path).symlink_metadata().is_err(), || format!("{path} is there"))
    }
}

/// What the agent does.
impl Scene<'_> {
    /// An effect of any kind, `host.` left out.
    pub(super) fn effect(&mut self, kind: &str, mut params: Value) -> Value {
        params["session_id"] = json!(self.session);
        let mut call = json!({ "kind": format!("host.{kind}"), "params": params });
        for (name, id) in [("tool_call_id", self.call), ("turn_id", self.turn)] {
            if let Some(id) = id {
                call[name] = json!(id);
            }
        }
        let answer = self.client.rpc("effect.call", call);
        answer.get("result").cloned().unwrap_or(answer)
    }

    pub(super) fn ok(&mut self, kind: &str, params: Value) -> Result<Value, String> {
        let receipt = self.effect(kind, params.clone());
        expect(&format!("{kind} {params}"), &receipt, &["ok"])?;
        Ok(receipt)
    }

    /// A call with this id.
    pub(super) fn as_call(&mut self, id: &'static str, kind: &str, params: Value) -> Result<Value, String> {
        let before = self.call.replace(id);
        let receipt = self.ok(kind, params);
        self.call = before;
        receipt
    }

    pub(super) fn w(&mut self, path: &str, content: &str) -> Result<Value, String> {
        self.ok("fs.write_file", write(path, content))
    }

    pub(super) fn remove(&mut self, path: &str) -> Result<Value, String> {
        self.ok("fs.remove", json!({ "path": path, "recursive": true }))
    }

    pub(super) fn moves(&mut self, from: &str, to: &str) -> Result<Value, String> {
        self.ok("fs.move", moving(from, to))
    }

    pub(super) fn patch(&mut self, sections: &str) -> Result<Value, String> {
        self.ok("fs.apply_patch", patch_params(sections))
    }

    pub(super) fn sh(&mut self, script: &str) -> Result<Value, String> {
        let receipt = self.ok("exec", json!({ "argv": ["sh", "-c", script] }))?;
        check(receipt["exit_code"] == 0, || format!("{script}: {receipt}"))?;
        Ok(receipt)
    }
}

pub(super) fn write(path: &str, content: &str) -> Value {
    json!({ "path": path, "content": text(content), "create_parents": true })
}

pub(super) fn moving(from: &str, to: &str) -> Value {
    json!({ "from": from, "to": to, "overwrite": true })
}

/// What undo does.
impl Scene<'_> {
    /// An undo after its dry run. The dry run changes nothing, and neither does a refusal.
    pub(super) fn undo(&mut self, op: &str, params: &Value) -> Result<Undone, String> {
        let before = self.tree();
        let mut dry_run = params.clone();
        dry_run["dry_run"] = json!(true);
        let dry = self.effect(&format!("fs.{op}"), dry_run);
        unchanged(&before, &self.tree(), &dry)?;
        let receipt = self.effect(&format!("fs.{op}"), params.clone());
        let after = self.tree();
        if receipt["status"] != "ok" {
            unchanged(&before, &after, &receipt)?;
        }
        Ok(Undone { receipt, dry, before, after })
    }

    /// An undo that must be done.
    pub(super) fn undone(&mut self, op: &str, params: &Value) -> Result<Undone, String> {
        let undone = self.undo(op, params)?;
        expect(&format!("{op} {params}"), &undone.receipt, &["ok"])?;
        Ok(undone)
    }

    pub(super) fn rollback(&mut self, turns: usize) -> Result<Undone, String> {
        self.undone("rollback", &json!({ "turns": turns }))
    }

    pub(super) fn force(&mut self, turns: usize) -> Result<Undone, String> {
        self.undone("rollback", &json!({ "turns": turns, "force": true }))
    }

    pub(super) fn redo(&mut self, turns: usize) -> Result<Undone, String> {
        self.undone("redo", &json!({ "turns": turns }))
    }

    /// An undo that must be a conflict at this path, in the dry run and in the run.
    pub(super) fn conflicts_at(&mut self, path: &str, op: &str, params: &Value) -> Outcome {
        let Undone { receipt, dry, .. } = self.undo(op, params)?;
        for receipt in [dry, receipt] {
            expect(&format!("{op} {params}"), &receipt, &["conflict / changed_since"])?;
            check(conflicts(&receipt).contains(&path), || format!("no conflict at {path}: {receipt}"))?;
        }
        Ok(())
    }

    pub(super) fn rollback_conflicts(&mut self, turns: usize, path: &str) -> Outcome {
        self.conflicts_at(path, "rollback", &json!({ "turns": turns }))
    }

    /// Forces a rollback and redoes it: that brings back exactly what was displaced. Returns the forced rollback.
    pub(super) fn forced_and_redone(&mut self, turns: usize) -> Result<Undone, String> {
        let forced = self.force(turns)?;
        let redone = self.redo(turns)?;
        equal(&forced.before, &redone.after, "after the redo of a forced rollback")?;
        Ok(forced)
    }

    /// As [`Scene::forced_and_redone`], then forces it once more. After another change, which ends what can be redone,
    /// the snapshot brings back what was displaced.
    pub(super) fn forced_and_back(&mut self, turns: usize) -> Result<Undone, String> {
        let first = self.forced_and_redone(turns)?;
        let second = self.force(turns)?;
        equal(&first.after, &second.after, "forced a second time")?;
        self.back_by_snapshot(&second)?;
        Ok(first)
    }

    /// After another change the snapshot of an undo brings back what the undo displaced.
    pub(super) fn back_by_snapshot(&mut self, undone: &Undone) -> Outcome {
        self.w("another", "another\n")?;
        let snapshot = undone.receipt["redo_snapshot_id"].clone();
        self.is_listed(&undone.receipt)?;
        let mut back = self.undone("restore", &json!({ "snapshot_id": snapshot }))?.after;
        back.remove("another");
        equal(&undone.before, &back, "after the restore of the snapshot of an undo")
    }

    /// The history lists an undo with its snapshot. For people it shows the call, which `aos undo CALL` takes.
    fn is_listed(&mut self, receipt: &Value) -> Outcome {
        let text = |field: &str| receipt[field].as_str().map_or(format!("no {field}"), str::to_owned);
        let (snapshot, call) = (text("redo_snapshot_id"), text("tool_call_id"));
        let history = self.client.rpc("session.history", json!({ "session_id": self.session }));
        check(history.to_string().contains(&snapshot), || {
            format!("session.history does not list {snapshot}, which holds what was displaced: {history}")
        })?;
        let history = self.aos(&["history"])?;
        check(history.contains(&snapshot) || history.contains(&call), || {
            format!("`aos history` lists neither {snapshot} nor {call}:\n{history}")
        })
    }

    /// The same restore again: it is done, and changes nothing at all.
    pub(super) fn again(&mut self, params: &Value) -> Outcome {
        let turns = self.turns();
        let second = self.undone("restore", params)?;
        let Undone { receipt, before, after, .. } = &second;
        check(touched_at_all(before, after).is_empty(), || {
            format!("the second time: {}: {receipt}", explain(before, after))
        })?;
        second.lists_fit()?;
        check(self.turns() == turns, || "the second time it is a turn".into())
    }

    /// The turns in the history.
    pub(super) fn turns(&mut self) -> usize {
        let history = self.client.rpc("session.history", json!({ "session_id": self.session }));
        history["result"]["turns"].as_array().map_or(0, Vec::len)
    }
}

impl Undone {
    /// The lists of the run and of the dry run are exactly the difference of the trees.
    pub(super) fn lists_fit(&self) -> Outcome {
        for (what, receipt) in [("the run", &self.receipt), ("the dry run", &self.dry)] {
            lists_are_the_difference(receipt, &self.before, &self.after)
                .map_err(|why| format!("{what}: {why}: {receipt}"))?;
        }
        Ok(())
    }

    pub(super) fn lists(&self, restored: &[&str], deleted: &[&str]) -> Outcome {
        self.lists_fit()?;
        let receipt = &self.receipt;
        let fits = receipt["restored_paths"] == json!(restored) && receipt["deleted_paths"] == json!(deleted);
        check(fits, || format!("not {restored:?} and {deleted:?}: {receipt}"))
    }

    /// Which paths it changed.
    pub(super) fn changes(&self, paths: &[&str]) -> Outcome {
        let differing = differing(&self.before, &self.after);
        check(differing == paths, || format!("it changed {differing:?}, not {paths:?}: {}", self.receipt))
    }
}

pub(super) fn conflicts(receipt: &Value) -> Vec<&str> {
    let all = receipt["conflicts"].as_array().into_iter().flatten();
    all.filter_map(|one| one["path"].as_str()).collect()
}

fn unchanged(before: &Tree, after: &Tree, receipt: &Value) -> Outcome {
    let touched = touched_at_all(before, after);
    check(touched.is_empty(), || {
        format!("{} changed {touched:?}: {}: {receipt}", verdict(receipt), explain(before, after))
    })
}
