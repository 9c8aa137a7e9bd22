//! One session: a random tree with rules, protected names and git folders, and what may not be done with each path.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};

use super::Mode;
use super::names::{Protected, other_case};
use super::rules::{Asked, Rule, Rules, chosen_rule};
use super::tree::{Node, Tree, put};
use crate::random::Random;

/// What attempts write. Nothing else in a tree contains it, except a configuration that no git folder uses yet.
pub(super) const EVIL: &str = "PWN";

/// A path that an attempt is made on.
#[derive(Debug, Clone)]
pub(super) struct Victim {
    pub path: String,
    pub reads: bool,
    pub writes: bool,
    /// Only its name protects it, so that `withhold` applies.
    pub is_protected: bool,
    pub exists: bool,
}

#[derive(Debug)]
pub(super) struct Scene {
    pub mode: Mode,
    pub tree: Tree,
    pub rules: Rules,
    pub withholds: bool,
    /// Each file content that a rule forbids to read, by its path.
    pub canaries: BTreeMap<String, String>,
    /// Configuration and hooks of the git folders.
    pub git: BTreeSet<String>,
    pub hooks_path: Option<String>,
    pub victims: Vec<Victim>,
    /// Files that may be read and changed.
    pub controls: Vec<String>,
    /// Links in the tree, each with what it leads to.
    pub links: Vec<(String, String)>,
}

const FOLDERS: &[&str] = &["", "vault/", "keys/deep/", "sub dir/", "a/b/c/", "Über/"];
const NAMES: &[&str] = &[
    ".env",
    "secret.txt",
    "id.pem",
    "k\\xffy",
    "tab\\x09s",
    "naïve.key",
    "data",
    "Read Me",
    "a[1].txt",
    "-n",
    "*",
];
const ABOVE_PROTECTED: &[&str] = &["", "", "sub/", "a/b/", "vault/", "open/"];

impl Scene {
    pub(super) fn new(mode: Mode, protected: &Protected, random: &mut Random) -> Scene {
        let mut scene = Scene {
            mode,
            tree: Tree::new(),
            rules: Rules::default(),
            withholds: mode != Mode::Effects && random.one_in(4),
            canaries: BTreeMap::new(),
            git: BTreeSet::new(),
            hooks_path: None,
            victims: Vec::new(),
            controls: Vec::new(),
            links: Vec::new(),
        };
        let mut wanted = scene.lay_rules(random);
        wanted.extend(scene.lay_protected(protected, random));
        wanted.extend(scene.lay_git(random));
        for number in 0..4 {
            scene.lay(&format!("open/c{number}.txt"), random);
            scene.lay(&format!("{}near{number}", scene.above()), random);
        }
        put(&mut scene.tree, "donor", Node::file("OLD\n"));
        scene.rules.no_writes = random.one_in(12);
        scene.rules.largest = (mode.is_checked_whole() && random.one_in(6)).then_some(4_000);
        scene.find_victims(wanted, protected);
        scene.lay_links(random);
        scene
    }

    /// The folder that most paths are in: the one without capture, where that is tested.
    fn above(&self) -> &'static str {
        if self.mode == Mode::Excluded { "build/" } else { "" }
    }

    fn place(&self, random: &mut Random) -> &'static str {
        if random.one_in(5) { "" } else { self.above() }
    }

    /// Adds a file with content of its own.
    fn lay(&mut self, path: &str, random: &mut Random) {
        let canary = format!("{:016x}{:016x}", random.number(), random.number());
        let mode = *random.pick(&[0o644, 0o644, 0o600, 0o755]);
        if self.is_free(path) {
            put(&mut self.tree, path, Node::File { mode, bytes: format!("OLD\n{canary}\n").into() });
        }
    }

    /// Whether nothing is at a path, and no file above it.
    fn is_free(&self, path: &str) -> bool {
        let above = path.match_indices('/').filter_map(|(at, _)| self.tree.get(&path[..at]));
        !self.tree.contains_key(path) && above.clone().all(|node| matches!(node, Node::Dir { .. }))
    }

    /// Files that rules deny, their neighbours, and names that do not exist yet.
    fn lay_rules(&mut self, random: &mut Random) -> Vec<String> {
        // Where nothing can be masked, a rule that denies reading lets no command run.
        let may_mask = !matches!(self.mode, Mode::Reduced | Mode::NoIsolation) || random.one_in(8);
        let mut wanted = Vec::new();
        for number in 0..2 + random.below(4) {
            let folder = format!("{}{}", self.place(random), random.pick(FOLDERS));
            let path = format!("{folder}{}", random.pick(NAMES));
            self.lay(&path, random);
            for neighbour in [format!("{folder}near{number}.md"), format!("{folder}open{number}.md")] {
                self.lay(&neighbour, random);
            }
            if random.one_in(2) {
                self.lay(&format!("{folder}below{number}/inner.txt"), random);
            }
            let asked = match random.below(if may_mask { 4 } else { 2 }) {
                0 | 1 => Asked::Write,
                2 => Asked::Read,
                _ => Asked::Both,
            };
            self.rules.rules.extend(chosen_rule(asked, &folder, &path, number, random));
            wanted.extend([path, format!("{folder}new{number}"), format!("{folder}fresh{number}/new")]);
        }
        wanted
    }

    fn lay_protected(&mut self, protected: &Protected, random: &mut Random) -> Vec<String> {
        let mut wanted = Vec::new();
        for _ in 0..5 + random.below(6) {
            let above = format!("{}{}", self.place(random), random.pick(ABOVE_PROTECTED));
            let path = protected.name(&above, random);
            if random.one_in(2) {
                self.lay(&path, random);
            }
            wanted.push(path);
        }
        // Names that our own temporary files have are left out of walks; what is below them is not.
        wanted.push(format!("{}.aos-tmp-zz/.mcp.json", self.above()));
        wanted
    }

    fn lay_git(&mut self, random: &mut Random) -> Vec<String> {
        let above = format!("{}{}", self.place(random), random.pick(&["", "sub/", "a/b/"]));
        let git = format!("{above}.git");
        self.hooks_path = random.one_in(2).then(|| format!("{above}hooked"));
        let hooks_path = if self.hooks_path.is_some() { "\thooksPath = hooked\n" } else { "" };
        self.lay_git_folder(&git, hooks_path, random);
        if random.one_in(2) {
            self.lay_git_folder(&format!("{git}/modules/m"), "", random);
        }
        let store = format!("{above}store");
        if random.one_in(2) {
            self.lay_git_folder(&store, "", random);
        }
        // One name is missing for it to be a git folder, whose configuration runs a program.
        let almost = format!("{above}almost");
        let config = format!("[core]\n\tbare = true\n\tfsmonitor = ./{EVIL}\n");
        put(&mut self.tree, &format!("{almost}/config"), Node::file(config));
        for folder in ["objects", "refs"] {
            put(&mut self.tree, &format!("{almost}/{folder}"), Node::Dir { mode: 0o755 });
        }
        let mut wanted: Vec<String> = self.git.iter().cloned().collect();
        for name in ["hooks/post-checkout", "commondir", "config.worktree", "info/attributes"] {
            wanted.push(format!("{git}/{name}"));
        }
        wanted.extend([format!("{store}/hooks/new"), format!("{above}open/.git"), format!("{almost}/HEAD")]);
        wanted.push(format!("{above}open/{}/hooks/post-checkout", other_case(".git", random)));
        if let Some(hooked) = self.hooks_path.clone() {
            self.lay(&format!("{hooked}/pre-push"), random);
            wanted.extend([format!("{hooked}/pre-push"), format!("{hooked}/new")]);
        }
        wanted
    }

    fn lay_git_folder(&mut self, git: &str, more: &str, random: &mut Random) {
        if !self.is_free(git) {
            return;
        }
        // A key that runs a program, so that removing it is not inert.
        let config = format!("[core]\n\tbare = false\n{more}\tpager = less-{:016x}\n", random.number());
        put(&mut self.tree, &format!("{git}/HEAD"), Node::file("ref: refs/heads/main\n"));
        put(&mut self.tree, &format!("{git}/config"), Node::file(config));
        for folder in ["objects", "refs/heads", "info"] {
            put(&mut self.tree, &format!("{git}/{folder}"), Node::Dir { mode: 0o755 });
        }
        let hook = format!("#!/bin/sh\nexit 0 # {:016x}\n", random.number()).into_bytes();
        let hook = Node::File { mode: 0o755, bytes: hook };
        put(&mut self.tree, &format!("{git}/hooks/pre-commit"), hook);
        self.git.extend([format!("{git}/config"), format!("{git}/hooks/pre-commit")]);
    }

    /// Sorts the paths into what is denied, and what is not and serves as a control.
    fn find_victims(&mut self, wanted: Vec<String>, protected: &Protected) {
        let files: Vec<String> = self
            .tree
            .iter()
            .filter(|(_, node)| !node.bytes().is_empty())
            .map(|(path, _)| path.clone())
            .collect();
        let all: BTreeSet<String> = wanted.into_iter().chain(files.iter().cloned()).collect();
        for path in all {
            let exists = self.tree.contains_key(&path);
            let by_name = protected.holds(&path) || self.is_of_git(&path);
            let writes = self.rules.denies(Asked::Write, &path) || by_name;
            let reads = exists && self.rules.denies(Asked::Read, &path);
            if reads && let Some(Node::File { bytes, .. }) = self.tree.get(&path) {
                let text = String::from_utf8_lossy(bytes);
                let canary = text.lines().find(|line| is_unique(line));
                self.canaries.extend(canary.map(|canary| (path.clone(), canary.to_owned())));
            }
            if reads || writes {
                let is_protected = by_name && !self.rules.denies(Asked::Write, &path);
                self.victims.push(Victim { path, reads, writes, is_protected, exists });
            }
        }
        let is_control = |path: &&String| {
            let above = path.match_indices('/').map(|(at, _)| &path[..at]).chain([path.as_str()]);
            let denied = |path: &str| {
                let writes = !self.rules.no_writes && self.rules.denies(Asked::Write, path);
                writes || self.rules.denies(Asked::Read, path) || protected.holds(path)
            };
            path.contains("open") && !path.contains(".git") && !above.clone().any(denied)
        };
        self.controls = files.iter().filter(is_control).cloned().collect();
    }

    fn is_of_git(&self, path: &str) -> bool {
        let in_hooks = self.hooks_path.as_ref().is_some_and(|hooks| path.starts_with(&format!("{hooks}/")));
        in_hooks
            || self.git.contains(path)
            || path.to_lowercase().contains(".git")
            || path.ends_with("almost/HEAD")
    }

    /// Links to victims and to their folders.
    fn lay_links(&mut self, random: &mut Random) {
        for number in 0..3 {
            let victim = random.pick(&self.victims).path.clone();
            let folder = victim.rfind('/').map_or("", |at| &victim[..at]);
            let to_folder = !folder.is_empty() && random.one_in(2);
            let target = if to_folder { folder.to_owned() } else { victim };
            let (path, node) =
                (format!("to_{number}"), Node::Link { target: super::tree::bytes_of(&target) });
            put(&mut self.tree, &path, node);
            self.links.push((path, target));
        }
    }

    /// The params of `host.session.open`.
    pub(super) fn open_params(&self, root: &Path, random: &mut Random) -> Value {
        let mut capability = json!({ "max_inline_bytes": 16 << 20, "exec": { "uncaptured": true } });
        if self.withholds {
            capability["protected_paths"] = json!("withhold");
        }
        if self.rules.no_writes {
            capability["allowed_fs_ops"] = json!(["read", "search", "list", "stat"]);
        }
        if let Some(largest) = self.rules.largest {
            capability["max_write_bytes"] = json!(largest);
        }
        let rules: Vec<Value> =
            self.rules.rules.iter().map(|rule| rule.value(root, self.mode, random)).collect();
        let mut params = json!({
            "target": { "local": { "workdir": root } },
            "policy": { "preset": "permissive", "rules": rules },
            "capability": capability,
        });
        match self.mode {
            Mode::Excluded => params["capture_exclude"] = json!(["build"]),
            Mode::Reduced => params["allow_reduced"] = json!(true),
            Mode::NoIsolation => params["isolation"] = json!("none"),
            Mode::Effects | Mode::Overlay | Mode::Uncaptured => {}
        }
        params
    }

    /// Whether no command may run: a rule denies reading and nothing can be masked, or nothing keeps it from writing.
    pub(super) fn runs_nothing(&self) -> bool {
        let denies_reading = |rule: &Rule| rule.is_deny && rule.asked != Asked::Write;
        let cannot_mask = matches!(self.mode, Mode::Reduced | Mode::NoIsolation);
        self.mode == Mode::NoIsolation && self.rules.no_writes
            || cannot_mask && self.rules.rules.iter().any(denies_reading)
    }
}

/// Whether no other file has this line: it has a random number.
fn is_unique(line: &str) -> bool {
    line.split(|c: char| !c.is_ascii_hexdigit()).any(|word| word.len() >= 16)
}
