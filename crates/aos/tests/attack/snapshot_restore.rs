//! Undo: every tool call and every turn can be undone exactly, and no other process's work is lost by it.

mod bounds;
mod checked_undo;
mod damage;
mod kept;
mod killed;
mod listed;
pub mod metadata;
mod turns;

use std::path::PathBuf;

use aos_testkit::{Fixture, World, check, expect, tree};
use serde_json::{Value, json};

use crate::{Case, Need, Outcome, plain};

pub fn cases() -> Vec<Case> {
    vec![
        plain("SNAP-01", listed::an_edit),
        plain("SNAP-02", listed::a_new_file_and_its_folders),
        plain("SNAP-03", listed::a_deleted_file_whose_folder_went_too),
        plain("SNAP-07", listed::changed_by_another_process),
        plain("SNAP-08", listed::invalid_ids),
        plain("SNAP-10", damage::a_flipped_body),
        plain("SNAP-11", bounds::the_oldest_go),
        Case { id: "SNAP-13", needs: TRACED, run: killed::at_each_call },
        plain("SNAP-15", killed::random_walks),
        plain("SNAP-16", turns::a_write_ends_what_could_be_redone),
        plain("SNAP-17", turns::two_sessions),
        plain("SNAP-18", listed::twice_unknown_and_foreign),
        plain("SNAP-20", listed::two_calls_on_one_file),
        plain("SNAP-23", bounds::closed_sessions_leave_nothing),
        plain("SNAP-24", killed::after_restarts),
        plain("OWN-UNDO-LOST-BODY", killed::a_file_removed_from_a_removed_folder),
        plain("OWN-UNDO-METADATA", metadata::modes_attributes_and_owners),
        plain("OWN-UNDO-FOLDER", kept::a_removed_folder),
        plain("OWN-UNDO-LINKS", kept::links),
        plain("OWN-UNDO-MOVES", kept::moves),
        plain("OWN-UNDO-NAMES", kept::odd_names),
        plain("OWN-UNDO-HARD-LINK", kept::hard_links),
        Case { id: "OWN-UNDO-CLOSED-FILES", needs: &[Need::Root], run: metadata::closed_to_their_owner },
        Case { id: "OWN-UNDO-LISTED-TWICE", needs: &[Need::Root], run: kept::listed_twice },
        plain("OWN-UNDO-OTHERS", kept::nothing_else_is_touched),
        plain("OWN-UNDO-PATHS", kept::some_paths_only),
        plain("OWN-UNDO-DRY-RUN", kept::dry_runs),
        plain("OWN-UNDO-SPECIAL", kept::special_files),
        plain("OWN-UNDO-EXPLICIT", listed::explicit_snapshots),
        plain("OWN-UNDO-OPEN", listed::open_snapshots),
        plain("OWN-UNDO-ONE-CALL", listed::several_effects_of_one_call),
        plain("OWN-UNDO-MANIFEST", listed::manifests),
        plain("OWN-UNDO-CONFLICTS", listed::all_kinds_of_conflicts),
        plain("OWN-UNDO-FORCE", listed::force_buries_nothing_for_good),
        plain("OWN-UNDO-OFF", bounds::without_snapshots),
        plain("OWN-UNDO-CAP", bounds::the_cap),
        plain("OWN-UNDO-DROP", bounds::dropped),
        plain("OWN-UNDO-GC", bounds::shared_and_young_bodies),
        plain("OWN-UNDO-DAMAGE", damage::manifests_and_bodies),
        plain("OWN-UNDO-MANIFEST-EDITED", damage::well_formed_and_wrong),
        plain("OWN-UNDO-VERIFY", damage::verify_sees_it),
        plain("OWN-UNDO-POLICY", checked_undo::policy_and_capability),
        plain("OWN-UNDO-LINK-SWAP", checked_undo::links_in_the_way),
        plain("OWN-UNDO-TURNS", turns::several_calls_and_turns),
        plain("OWN-UNDO-NO-STEP", turns::what_is_no_step),
        plain("OWN-UNDO-ONE-ID", turns::one_call_id_in_two_turns),
        plain("OWN-UNDO-LOST-TURNS", turns::what_was_dropped_is_not_guessed),
        plain("OWN-UNDO-UNDO", turns::undo_of_undo),
        plain("OWN-UNDO-OTHER-FOLDER", turns::done_again_in_another_folder),
        plain("OWN-UNDO-TURNS-RESTART", turns::across_restarts),
    ]
}

/// The case traces the daemon or stops it with strace.
const TRACED: &[Need] = &[Need::Root, Need::Strace];

/// A world with one session, in which tool calls have ids.
struct Stage {
    fixture: Fixture,
}

impl Stage {
    fn new() -> Stage {
        Stage { fixture: Fixture::new() }
    }

    fn open(extra: Value) -> Stage {
        Stage { fixture: Fixture::open(extra) }
    }

    fn world(&self) -> &World {
        &self.fixture.world
    }

    /// `host.fs.<op>` as the tool call `call`.
    fn call(&mut self, call: &str, op: &str, params: Value) -> Value {
        self.in_turn(Some(call), None, op, params)
    }

    fn in_turn(&mut self, call: Option<&str>, turn: Option<&str>, op: &str, mut params: Value) -> Value {
        params["session_id"] = json!(self.fixture.session);
        let mut request = json!({ "kind": format!("host.fs.{op}"), "params": params });
        for (name, id) in [("tool_call_id", call), ("turn_id", turn)] {
            if let Some(id) = id {
                request[name] = json!(id);
            }
        }
        let answer = self.fixture.client.rpc("effect.call", request);
        answer.get("result").cloned().unwrap_or(answer)
    }

    /// A call that must be ok.
    fn ok(&mut self, call: &str, op: &str, params: Value) -> Result<Value, String> {
        let receipt = self.call(call, op, params.clone());
        expect(&format!("{call}: {op} {params}"), &receipt, &["ok"])?;
        Ok(receipt)
    }

    /// A mutation of a turn, under a tool call of its own.
    fn turn(&mut self, turn: &str, op: &str, params: Value) -> Result<Value, String> {
        let receipt = self.in_turn(None, Some(turn), op, params.clone());
        expect(&format!("{turn}: {op} {params}"), &receipt, &["ok"])?;
        Ok(receipt)
    }

    fn fs(&mut self, op: &str, params: Value) -> Value {
        self.fixture.fs(op, params)
    }

    fn must(&mut self, op: &str, params: Value, allowed: &str) -> Result<Value, String> {
        let receipt = self.fs(op, params.clone());
        expect(&format!("{op} {params}"), &receipt, &[allowed])?;
        Ok(receipt)
    }

    /// Restores the call and compares the tree with the one before it.
    fn taken_back(&mut self, call: &str, before: &Tree) -> Result<Value, String> {
        let receipt = self.must("restore", json!({ "scope_id": call }), "ok")?;
        self.is(before, &format!("after the restore of {call}"))?;
        Ok(receipt)
    }

    fn tree(&self) -> Tree {
        full_tree(self)
    }

    fn is(&self, expected: &Tree, when: &str) -> Outcome {
        same(expected, &self.tree(), when)
    }

    fn snapshots(&mut self) -> Result<Vec<Value>, String> {
        let receipt = self.must("list_snapshots", json!({}), "ok")?;
        receipt["snapshots"].as_array().cloned().ok_or_else(|| format!("no list: {receipt}"))
    }

    /// The folder of the session's snapshots.
    fn store(&self) -> PathBuf {
        self.world().home.join("state/snapshots").join(&self.fixture.session)
    }

    /// The manifest of a snapshot, once it is written: that happens in the background.
    fn manifest(&self, receipt: &Value) -> Result<Value, String> {
        let id = receipt["snapshot_id"].as_str().ok_or_else(|| format!("no snapshot: {receipt}"))?;
        manifest_at(&self.store().join(id))
    }

    fn finish(self) -> Outcome {
        let (code, out, err) = self.world().aos(&["replay", "--verify"]);
        check((code, out.trim()) == (0, "MATCH"), || format!("replay: {code}: {out}{err}"))?;
        self.fixture.finish()
    }
}

fn manifest_at(folder: &std::path::Path) -> Result<Value, String> {
    let path = folder.join("manifest.json");
    aos_testkit::wait_for(&format!("the manifest {}", path.display()), || path.exists())?;
    serde_json::from_slice(&std::fs::read(&path).map_err(|why| why.to_string())?)
        .map_err(|why| why.to_string())
}

/// Content, kind, mode, link target and attributes of every path, as text.
type Tree = std::collections::BTreeMap<PathBuf, String>;

fn full_tree(stage: &Stage) -> Tree {
    let mut all = tree(&stage.world().root);
    for (path, what) in &mut all {
        if what.starts_with("link") {
            continue;
        }
        use std::os::unix::fs::MetadataExt as _;
        if let Ok(meta) = path.symlink_metadata() {
            what.push_str(&format!(" {:o} {:?}", meta.mode() & 0o7777, metadata::attributes(path)));
        }
    }
    all
}

fn same(expected: &Tree, found: &Tree, when: &str) -> Outcome {
    let paths: std::collections::BTreeSet<&PathBuf> = expected.keys().chain(found.keys()).collect();
    let different = paths.into_iter().filter(|path| expected.get(*path) != found.get(*path));
    let lines: Vec<String> = different
        .map(|path| format!("{}: was {:?}, is {:?}", path.display(), expected.get(path), found.get(path)))
        .collect();
    check(lines.is_empty(), || format!("{when}: {}", lines.join("; ")))
}

/// The paths of a list in a receipt.
fn listed_paths<'v>(receipt: &'v Value, field: &str) -> Vec<&'v str> {
    receipt[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}
