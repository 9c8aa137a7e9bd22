//! Virtual and staged trees: the listed cases, one set of effects for all three targets, and what only they have.

mod checklist;
mod conformance;
mod listed;
mod mounts;
mod staged;
mod survive;

use aos_testkit::{Client, World, expect};
use serde_json::{Value, json};

use crate::{Case, Need, plain};

pub fn cases() -> Vec<Case> {
    vec![
        plain("VFS-02", listed::depth_and_length),
        plain("VFS-03", listed::invalid_names),
        plain("VFS-04", listed::a_prefix_is_a_folder),
        plain("VFS-05", mounts::links),
        plain("VFS-06", mounts::the_budget),
        plain("VFS-07", mounts::special_files),
        Case { id: "VFS-08", needs: &[Need::Root, Need::Strace], run: listed::the_source_is_never_written },
        plain("VFS-09", listed::versions_and_times),
        plain("VFS-11", listed::a_thousand_versions),
        plain("OWN-VFS-CONFORMANCE", conformance::the_same_receipts),
        plain("OWN-VFS-LIMITS", conformance::the_same_limits_and_rules),
        plain("OWN-VFS-RANDOM", conformance::random_histories),
        plain("OWN-VFS-NO-EXEC", listed::no_commands),
        plain("OWN-VFS-TEXT", listed::text_of_a_bounded_length),
        plain("OWN-VFS-FILE-OR-FOLDER", listed::never_both),
        plain("OWN-VFS-ROOTS", listed::roots_of_a_virtual_tree),
        plain("OWN-VFS-MOVE-UNDO", listed::a_move_that_was_built_on),
        plain("OWN-VFS-EVALUATE", listed::said_and_done),
        plain("OWN-VFS-FOREIGN", listed::a_tree_is_its_sessions_own),
        plain("OWN-VFS-MOUNT-SHOWN", mounts::what_is_shown),
        plain("OWN-VFS-MOUNT-LINKS", mounts::links_inside),
        plain("OWN-VFS-MOUNT-BAD", mounts::what_cannot_be_mounted),
        plain("OWN-VFS-MOUNT-HOME", mounts::our_own_state),
        plain("OWN-CHECKLIST-1-PATHS", checklist::line_1_paths),
        plain("OWN-CHECKLIST-2-WRITES", checklist::line_2_writes_versions_times),
        plain("OWN-CHECKLIST-3-MOUNTS", checklist::line_3_mounts),
        plain("OWN-CHECKLIST-4-REMOVAL", checklist::line_4_removal),
        plain("OWN-CHECKLIST-6-END-TO-END", checklist::line_6_end_to_end),
        plain("OWN-STAGED-DISK-UNTOUCHED", staged::the_disk_is_untouched),
        plain("OWN-STAGED-COMMIT", staged::a_commit_lands_as_one),
        plain("OWN-STAGED-CONFLICT", staged::changed_underneath),
        plain("OWN-STAGED-BY-PATH", staged::by_path),
        plain("OWN-STAGED-DISCARD", staged::discarded),
        plain("OWN-STAGED-UNDO", staged::a_commit_is_undone),
        Case { id: "OWN-STAGED-KILLED", needs: &[Need::Root, Need::Strace], run: staged::killed_in_a_commit },
        plain("OWN-STAGED-KINDS", staged::files_folders_and_links),
        plain("OWN-STAGED-POLICY", staged::policy_at_commit),
        plain("OWN-STAGED-LINKS", staged::links_to_outside),
        plain("OWN-STAGED-CLI", staged::from_the_command_line),
        plain("OWN-VFS-RESTART", survive::restarts_and_kills),
        plain("OWN-VFS-REPLAY", survive::replay_and_closing),
        plain("OWN-VFS-UNRECORDED", survive::what_was_not_recorded_did_not_happen),
    ]
}

/// A session on a tree, in which tool calls have ids.
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
