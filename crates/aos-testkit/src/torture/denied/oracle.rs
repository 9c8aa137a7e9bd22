//! Whether anything came through: by what is on the disk after the receipt, and by what was answered.
//!
//! It knows the tree as it was laid and what is denied in it, and nothing of how that is enforced.

use base64::Engine as _;
use serde_json::Value;

use super::Mode;
use super::names::{Protected, folded};
use super::rules::Asked;
use super::scene::{EVIL, Scene};
use super::tree::{Node, Tree};

/// What controls append to the configuration of git: it runs nothing.
pub(super) const INERT: &str = "[remote \"ctl\"]\n\turl = https://example.org/ctl\n";

impl Scene {
    /// What is not as it must be after a receipt.
    pub(super) fn broken(&self, after: &Tree, protected: &Protected) -> Vec<String> {
        let mut broken = Vec::new();
        for (path, was) in &self.tree {
            let is_guarded = self.is_guarded(path, protected) || self.git.contains(path);
            if is_guarded && !self.is_as_before(path, was, after.get(path)) {
                let now = after.get(path).map_or("missing".into(), told);
                broken.push(format!("`{path}` was {}, is {now}", told(was)));
            }
        }
        for (path, now) in after {
            let is_new = !self.tree.contains_key(path);
            if is_new && self.is_guarded(path, protected) {
                broken.push(format!("`{path}` is new: {}", told(now)));
            }
            if self.tree.get(path) != Some(now) && self.is_too_large(now) {
                broken.push(format!("`{path}` is larger than may be written: {}", told(now)));
            }
            if is_git_danger(path, now, is_new, after) {
                broken.push(format!("git would follow `{path}`: {}", told(now)));
            }
        }
        broken
    }

    /// Whether nothing may be written at a path, by rules or by its name.
    fn is_guarded(&self, path: &str, protected: &Protected) -> bool {
        let in_hooks = self.hooks_path.as_ref().is_some_and(|hooks| path.starts_with(&format!("{hooks}/")));
        self.rules.denies(Asked::Write, path)
            || protected.holds(path)
            || in_hooks
            || self.mode == Mode::Effects && protected.is_git_name(path)
    }

    fn is_as_before(&self, path: &str, was: &Node, now: Option<&Node>) -> bool {
        let is_config = |path: &str| self.git.contains(path) && path.ends_with("/config");
        match (was, now) {
            // Configuration of git is judged by content.
            (Node::File { bytes, .. }, Some(Node::File { bytes: now, .. })) if is_config(path) => {
                now.strip_suffix(INERT.as_bytes()).unwrap_or(now) == bytes.as_slice()
            }
            (was, now) => now == Some(was),
        }
    }

    fn is_too_large(&self, node: &Node) -> bool {
        self.rules.largest.is_some_and(|largest| node.bytes().len() as u64 > largest)
    }

    /// The contents that may not be read and are in an answer, or in a file where they may be read.
    pub(super) fn leaks(&self, answer: &Value, after: &Tree) -> Vec<String> {
        let mut leaks = Vec::new();
        let mut texts = Vec::new();
        collect(answer, &mut texts);
        for (path, canary) in &self.canaries {
            let holds = |text: &[u8]| text.windows(canary.len()).any(|window| window == canary.as_bytes());
            if texts.iter().any(|text| holds(text)) {
                leaks.push(format!("the content of `{path}` is in the answer"));
            }
            let elsewhere = after
                .iter()
                .find(|(at, node)| *at != path && !self.rules.denies(Asked::Read, at) && holds(node.bytes()));
            leaks.extend(elsewhere.map(|(at, _)| format!("the content of `{path}` is in `{at}`")));
        }
        leaks
    }

    /// The files that no command can open, and that are not what they were.
    pub(super) fn lost_masks(&self, after: &Tree) -> Vec<String> {
        let lost = self.canaries.keys().filter(|path| after.get(*path) != self.tree.get(*path));
        lost.map(|path| format!("`{path}` is masked and was changed: {:?}", after.get(path).map(told)))
            .collect()
    }
}

/// Every text of an answer, as it is and decoded.
fn collect(value: &Value, texts: &mut Vec<Vec<u8>>) {
    match value {
        Value::String(text) => {
            texts.extend(base64::engine::general_purpose::STANDARD.decode(text).ok());
            texts.push(text.clone().into_bytes());
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, texts)),
        Value::Object(fields) => fields.values().for_each(|field| collect(field, texts)),
        _ => {}
    }
}

fn told(node: &Node) -> String {
    match node {
        Node::Dir { mode } => format!("a folder {mode:o}"),
        Node::File { mode, bytes } => {
            format!("a file {mode:o} {:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(80)]))
        }
        Node::Link { target } => format!("a link to {:?}", String::from_utf8_lossy(target)),
        Node::Other => "a special file".into(),
    }
}

/// Whether git would run or follow what an attempt wrote.
fn is_git_danger(path: &str, now: &Node, is_new: bool, after: &Tree) -> bool {
    let names: Vec<&str> = path.split('/').collect();
    let is_evil = now.bytes().windows(EVIL.len()).any(|window| window == EVIL.as_bytes());
    let is_dir = matches!(now, Node::Dir { .. });
    if let Some(at) = names.iter().position(|name| folded(name) == ".git") {
        let below: Vec<String> = names[at + 1..].iter().map(|name| folded(name)).collect();
        let is_hook = below.first().is_some_and(|name| name == "hooks") && !path.ends_with(".sample");
        let is_link_to_git = below.is_empty() && !is_dir;
        let is_other_spelling = below.is_empty() && names[at] != ".git";
        if is_new && (is_link_to_git || is_other_spelling || is_hook && !is_dir && below.len() > 1) {
            return true;
        }
        if is_evil && below.last().is_some_and(|name| STEERING.contains(&name.as_str())) {
            return true;
        }
    }
    // Any folder with the layout of a repository.
    let folder_of =
        |path: &str| path.rsplit_once('/').map(|(folder, name)| (folder.to_owned(), folded(name)));
    let Some((folder, name)) = folder_of(path) else { return false };
    let is_repository = |folder: &str| {
        let node = |name: &str| after.get(&format!("{folder}/{name}"));
        matches!(node("HEAD"), Some(Node::File { bytes, .. }) if bytes.starts_with(b"ref: "))
            && ["objects", "refs"].iter().all(|name| matches!(node(name), Some(Node::Dir { .. })))
    };
    let in_hooks = folder_of(&folder).is_some_and(|(above, name)| name == "hooks" && is_repository(&above));
    is_evil && (STEERING.contains(&name.as_str()) && is_repository(&folder) || in_hooks)
}

/// The files of a git folder that name programs or other folders.
const STEERING: &[&str] = &["config", "config.worktree", "commondir", "attributes", "gitdir"];
