//! Virtual and staged trees: the listed cases, one set of effects for all three targets, and what is theirs alone.

mod checklist;
mod conformance;
mod listed;
mod mounts;
mod staged;
mod survive;

use aos_testkit::{Client, World, expect};
use serde_json::{Value, json};

use crate::{Case, Need, Outcome};

pub fn cases() -> Vec<Case> {
    let case = |id, run| Case { id, needs: &[], run };
    vec![
        case("VFS-02", listed::depth_and_length as fn() -> Outcome),
        case("VFS-03", listed::names_that_are_none),
        case("VFS-04", listed::a_prefix_is_a_folder),
        case("VFS-05", mounts::links),
        case("VFS-06", mounts::the_budget),
        case("VFS-07", mounts::special_files),
        Case { id: "VFS-08", needs: &[Need::Root, Need::Strace], run: listed::the_source_is_never_written },
        case("VFS-09", listed::versions_and_times),
        case("VFS-11", listed::a_thousand_versions),
        case("OWN-VFS-CONFORMANCE", conformance::the_same_receipts),
        case("OWN-VFS-LIMITS", conformance::the_same_limits_and_rules),
        case("OWN-VFS-RANDOM", conformance::random_histories),
        case("OWN-VFS-NO-EXEC", listed::no_commands),
        case("OWN-VFS-TEXT", listed::text_of_a_bounded_length),
        case("OWN-VFS-FILE-OR-FOLDER", listed::never_both),
        case("OWN-VFS-ROOTS", listed::roots_of_a_virtual_tree),
        case("OWN-VFS-MOVE-UNDO", listed::a_move_that_was_built_on),
        case("OWN-VFS-EVALUATE", listed::said_and_done),
        case("OWN-VFS-FOREIGN", listed::a_tree_is_its_sessions_own),
        case("OWN-VFS-MOUNT-SHOWN", mounts::what_is_shown),
        case("OWN-VFS-MOUNT-LINKS", mounts::links_inside),
        case("OWN-VFS-MOUNT-BAD", mounts::what_cannot_be_mounted),
        case("OWN-VFS-MOUNT-HOME", mounts::our_own_state),
        case("OWN-CHECKLIST-1-PATHS", checklist::line_1_paths),
        case("OWN-CHECKLIST-2-WRITES", checklist::line_2_writes_versions_times),
        case("OWN-CHECKLIST-3-MOUNTS", checklist::line_3_mounts),
        case("OWN-CHECKLIST-4-REMOVAL", checklist::line_4_removal),
        case("OWN-CHECKLIST-6-END-TO-END", checklist::line_6_end_to_end),
        case("OWN-STAGED-DISK-UNTOUCHED", staged::the_disk_is_untouched),
        case("OWN-STAGED-COMMIT", staged::a_commit_lands_as_one),
        case("OWN-STAGED-CONFLICT", staged::changed_underneath),
        case("OWN-STAGED-BY-PATH", staged::by_path),
        case("OWN-STAGED-DISCARD", staged::discarded),
        case("OWN-STAGED-UNDO", staged::a_commit_is_undone),
        Case { id: "OWN-STAGED-KILLED", needs: &[Need::Root, Need::Strace], run: staged::killed_in_a_commit },
        case("OWN-STAGED-KINDS", staged::files_folders_and_links),
        case("OWN-STAGED-POLICY", staged::policy_at_commit),
        case("OWN-STAGED-LINKS", staged::links_to_outside),
        case("OWN-STAGED-CLI", staged::from_the_command_line),
        case("OWN-VFS-RESTART", survive::restarts_and_kills),
        case("OWN-VFS-REPLAY", survive::replay_and_closing),
        case("OWN-VFS-UNRECORDED", survive::what_was_not_recorded_did_not_happen),
    ]
}

/// A session on a tree, in which calls have names.
struct Tree {
    client: Client,
    session: String,
}

impl Tree {
    fn open(world: &World, target: Value, extra: Value) -> Tree {
        let mut params = extra;
        params["target"] = target;
        Tree { session: world.open(params), client: world.client() }
    }

    fn vfs(world: &World) -> Tree {
        Tree::open(world, json!({ "vfs": {} }), json!({}))
    }

    fn staged(world: &World) -> Tree {
        Tree::open(world, json!({ "staged": { "workdir": world.root } }), json!({}))
    }

    fn effect(&mut self, kind: &str, mut params: Value) -> Value {
        params["session_id"] = json!(self.session);
        self.client.effect(kind, params)
    }

    fn call(&mut self, call: &str, op: &str, mut params: Value) -> Value {
        params["session_id"] = json!(self.session);
        let kind = if op.contains('.') { op.to_owned() } else { format!("host.fs.{op}") };
        self.client.effect_of(&kind, params, Some(call))
    }

    fn fs(&mut self, op: &str, params: Value) -> Value {
        self.effect(&format!("host.fs.{op}"), params)
    }

    /// An effect that must be ok.
    fn ok(&mut self, op: &str, params: Value) -> Result<Value, String> {
        let kind = if op.contains('.') { op.to_owned() } else { format!("host.fs.{op}") };
        let receipt = self.effect(&kind, params.clone());
        expect(&format!("{op} {params}"), &receipt, &["ok"])?;
        Ok(receipt)
    }

    fn write(&mut self, path: &str, content: &str) -> Result<Value, String> {
        let content = json!({ "inline_text": { "text": content } });
        self.ok("write_file", json!({ "path": path, "content": content, "create_parents": true }))
    }

    fn read(&mut self, path: &str) -> Value {
        self.fs("read_file", json!({ "path": path }))["content"]["inline_text"]["text"].clone()
    }

    fn files(&mut self, version: Option<u64>) -> Result<Vec<Value>, String> {
        let mut params = json!({});
        if let Some(version) = version {
            params["tree_version"] = json!(version);
        }
        let receipt = self.ok("host.vfs.latest", params)?;
        Ok(receipt["files"].as_array().cloned().unwrap_or_default())
    }

    fn names(&mut self) -> Result<Vec<String>, String> {
        let files = self.files(None)?;
        Ok(files.iter().map(|file| file["path"].as_str().unwrap_or_default().to_owned()).collect())
    }
}
