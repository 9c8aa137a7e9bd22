//! A load: writers that change a tree through the daemon, and derive the expected tree from its answers alone.
//!
//! Each writer owns a folder below its session's root, so its expectation is exact. One request may be in flight when
//! the daemon dies. The journal says whether that request was done, and the disk must agree with the journal.
//!
//! It does not know how the daemon is started or killed. `kill` does, and so do the attack cases, which share this
//! file.

mod acts;
mod commands;
mod record;
mod scarce;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::Value;

pub use record::{Journal, Tally};
pub use scarce::Scarce;

use crate::check::verdict;
use crate::client::Client;
use crate::random::Random;

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    Folder,
    File(String),
}

/// A folder's content by the path below it.
pub type Tree = BTreeMap<String, Node>;

/// Everything below `folder` on the disk. It includes the daemon's temporary names, which no tree expects.
pub fn on_disk(folder: &Path) -> Tree {
    let mut tree = Tree::new();
    collect(folder, "", &mut tree);
    tree
}

fn collect(folder: &Path, below: &str, tree: &mut Tree) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = format!("{below}{}", entry.file_name().to_string_lossy());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&entry.path(), &format!("{path}/"), tree);
            tree.insert(path, Node::Folder);
        } else {
            let bytes = std::fs::read(entry.path()).unwrap_or_else(|why| format!("<{why}>").into_bytes());
            tree.insert(path, Node::File(String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
}

/// The first paths that differ, as text.
pub fn differences(expected: &Tree, found: &Tree) -> String {
    let show = |node: Option<&Node>| match node {
        None => "nothing".to_owned(),
        Some(Node::Folder) => "a folder".to_owned(),
        Some(Node::File(text)) => {
            format!("{} bytes `{}`", text.len(), text.lines().next().unwrap_or_default())
        }
    };
    let paths: std::collections::BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
    let differing = paths.into_iter().filter(|path| expected.get(*path) != found.get(*path));
    let lines = differing.take(8).map(|path| {
        format!("{path}: expected {}, found {}", show(expected.get(path)), show(found.get(path)))
    });
    lines.collect::<Vec<_>>().join("; ")
}

/// What a load is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Everything that changes files, some restores, some reads and some refusals.
    Mixed,
    /// Five-file patches and their restores only, as soon as there are five files.
    Patches,
    /// As [`Workload::Mixed`], and shell commands.
    Commands,
}

/// One request, its expected answer, and the expected content of the writer's folder afterwards.
#[derive(Debug, Clone)]
pub struct Act {
    kind: &'static str,
    params: Value,
    expected: &'static str,
    after: Tree,
}

/// A receipt that a writer has seen.
#[derive(Debug)]
pub struct Acked {
    at: Instant,
    seq: u64,
    tool_call: String,
    status: String,
    /// The act and the tree before it, while the act is recent enough to be revoked by [`Writer::doubt_since`].
    recent: Option<(Act, Tree)>,
}

/// The kind of a shell command.
const COMMAND: &str = "host.exec";

/// Why a writer stopped.
#[derive(Debug)]
pub enum Stopped {
    /// It was asked to stop, or the daemon ended.
    Done,
    /// The answer did not match the writer's model of the tree.
    Unexpected { at: Instant, why: String },
}

/// One client with its own folder.
#[derive(Debug)]
pub struct Writer {
    name: String,
    pub session: String,
    folder: PathBuf,
    workload: Workload,
    random: Random,
    made: u64,
    pub tree: Tree,
    pub acked: Vec<Acked>,
    /// Requests whose outcome only the journal knows: one without an answer, and those whose answers were revoked.
    under_way: Vec<(String, Act)>,
    /// The last mutation and the tree before it, while nothing changed since: it can be undone.
    last: Option<(String, Tree)>,
    /// What it accepts where a disk may be full.
    pub scarce: Scarce,
}

/// How many acknowledgements can be revoked later.
const RECENT: usize = 8;

impl Writer {
    /// A writer named `name`. Creates its folder below `root` with some files.
    pub fn new(
        name: &str,
        root: &Path,
        session: &str,
        workload: Workload,
        seed: u64,
    ) -> std::io::Result<Writer> {
        let folder = root.join(name);
        let mut writer = Writer {
            name: name.to_owned(),
            session: session.to_owned(),
            folder: folder.clone(),
            workload,
            random: Random::new(seed),
            made: 0,
            tree: Tree::new(),
            acked: Vec::new(),
            under_way: Vec::new(),
            last: None,
            scarce: Scarce::default(),
        };
        for place in ["a", "b", "sub/c", "sub/d", "sub/deep/e", "sub/deep/f", "g"] {
            let path = folder.join(place);
            std::fs::create_dir_all(path.parent().unwrap_or(&folder))?;
            std::fs::write(&path, writer.text())?;
        }
        // A second hard link outside the root makes the daemon copy a pre-image instead of moving it.
        std::fs::hard_link(folder.join("g"), root.with_extension(format!("{name}-g")))?;
        writer.tree = on_disk(&folder);
        Ok(writer)
    }

    /// Works until `stop` is set or the daemon ends.
    pub fn run(&mut self, home: &Path, stop: &AtomicBool) -> Stopped {
        let Ok(mut client) = Client::connect(home) else { return Stopped::Done };
        while !stop.load(Ordering::Relaxed) {
            match self.step(&mut client) {
                Ok(true) => {}
                Ok(false) => return Stopped::Done,
                Err(why) => return Stopped::Unexpected { at: Instant::now(), why },
            }
        }
        Stopped::Done
    }

    /// One request and its answer. False when the daemon died before it answered; [`Writer::judge`] then decides about
    /// the request.
    pub fn step(&mut self, client: &mut Client) -> Result<bool, String> {
        let act = self.next();
        self.made += 1;
        let tool_call = format!("{}-{}", self.name, self.made);
        self.under_way.push((tool_call.clone(), act.clone()));
        let Some(receipt) = client.try_effect(act.kind, &act.params, &tool_call) else { return Ok(false) };
        let verdict = verdict(&receipt);
        if self.scarce.accepts(act.kind, &verdict) {
            self.under_way.pop();
            self.lacked_space(tool_call, &receipt);
            return Ok(true);
        }
        if verdict != act.expected {
            return Err(format!("{} {}: expected {}, got {receipt}", act.kind, act.params, act.expected));
        }
        let seq = receipt["seq"].as_u64().ok_or_else(|| format!("a receipt without seq: {receipt}"))?;
        let status = receipt["status"].as_str().unwrap_or_default().to_owned();
        if act.is_partly_done(receipt["exit_code"].as_i64()) {
            self.under_way.pop();
            self.acked.push(Acked { at: Instant::now(), seq, tool_call, status, recent: None });
            return self.done_in_part(&act).map(|()| true);
        }
        let before = std::mem::replace(&mut self.tree, act.after.clone());
        if status == "ok" && receipt["snapshot_id"].is_string() {
            self.last = Some((tool_call.clone(), before.clone()));
        }
        let recent = Some((act, before));
        self.acked.push(Acked { at: Instant::now(), seq, tool_call, status, recent });
        if let Some(older) = self.acked.len().checked_sub(RECENT + 1) {
            self.acked[older].recent = None;
        }
        self.under_way.pop();
        Ok(true)
    }

    /// Revokes answers that arrived at or after `moment`, when the power was cut: a real client would have lost its
    /// power too, and would not have received them.
    pub fn doubt_since(&mut self, moment: Instant) {
        let mut doubted = Vec::new();
        while self.acked.last().is_some_and(|acked| acked.at >= moment && acked.recent.is_some()) {
            let Some(Acked { tool_call, recent: Some((act, before)), .. }) = self.acked.pop() else { break };
            self.tree = before;
            doubted.push((tool_call, act));
        }
        doubted.reverse();
        doubted.append(&mut self.under_way);
        self.under_way = doubted;
    }

    /// After a restart: compares the acknowledged receipts with the journal, and the expected tree with the disk.
    pub fn judge(&mut self, journal: &Journal, tally: &mut Tally) {
        for acked in &self.acked {
            journal.must_hold(acked, tally);
        }
        self.judge_refused(journal, tally);
        let before = self.tree.clone();
        self.last = None;
        let mut patched = None;
        for (tool_call, act) in std::mem::take(&mut self.under_way) {
            let several = ["host.fs.apply_patch", "host.fs.restore", COMMAND].contains(&act.kind);
            patched = several.then(|| act.after.clone());
            self.resolve(&tool_call, act, journal, tally);
        }
        let found = on_disk(&self.folder);
        if found == self.tree {
            return;
        }
        let what = differences(&self.tree, &found);
        let half_patch = patched.is_some_and(|after| found != before && found != after);
        let (count, word) =
            if half_patch { (&mut tally.mixed, "mixed") } else { (&mut tally.lost, "lost on disk") };
        *count += 1;
        tally.complaints.push(format!("{word}: {}: {what}", self.name));
        // Report the difference once: from here on the disk is the expected tree.
        self.tree = found;
    }

    /// Determines from the journal whether a request without an answer was done.
    fn resolve(&mut self, tool_call: &str, act: Act, journal: &Journal, tally: &mut Tally) {
        match journal.of(tool_call).as_slice() {
            [] => {}
            [line] if line.rolled_back() => {
                tally.rolled_back += 1;
                if !line.receipt.not_rolled_back.is_empty() {
                    tally.mixed += 1;
                    let left = &line.receipt.not_rolled_back;
                    tally.complaints.push(format!("mixed: {tool_call} was left in {left:?}"));
                }
            }
            [line] => {
                tally.unanswered += 1;
                // A refusal changes nothing; `after` is then the tree before the request.
                if line.receipt.verdict() != act.expected {
                    return;
                }
                if act.is_partly_done(line.receipt.exit_code) {
                    self.done_in_part(&act).unwrap_or_else(|why| tally.fault(why));
                } else {
                    self.tree = act.after;
                }
            }
            several => {
                tally.doubled += 1;
                tally
                    .complaints
                    .push(format!("doubled: {tool_call} is in the journal {} times", several.len()));
            }
        }
    }
}
