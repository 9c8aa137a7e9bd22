//! One session of the torture: attempts and controls on its tree, and what became of each.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use super::attempts::{self, word};
use super::effects;
use super::names::Protected;
use super::oracle::INERT;
use super::scene::{Scene, Victim};
use super::tally::Counts;
use super::tree::{self, Tree};
use super::{Mode, Who};
use crate::check::verdict;
use crate::client::Client;
use crate::needs::is_root;
use crate::random::Random;

/// Attempts in one command, where one that is denied does not hide the others.
const AT_ONCE_MAX: usize = 6;

pub(super) struct Session<'a> {
    pub who: &'a Who,
    pub root: &'a Path,
    /// The owner of the files, if not the caller. A daemon of root also works in the folders of others.
    owner: Option<u32>,
    pub protected: &'a Protected,
    pub scene: Scene,
    pub client: Client,
    pub id: String,
    pub random: Random,
    pub counts: Counts,
    pub complaints: Vec<String>,
    names: u64,
}

impl<'a> Session<'a> {
    /// Lays a random tree and opens a session on it.
    pub(super) fn open(
        who: &'a Who,
        mode: Mode,
        root: &'a Path,
        protected: &'a Protected,
        mut random: Random,
    ) -> Result<Session<'a>, String> {
        let scene = Scene::new(mode, protected, &mut random);
        std::fs::create_dir_all(root).map_err(|why| why.to_string())?;
        let is_anothers = is_root() && who.owner.is_none() && mode != Mode::Reduced && random.one_in(3);
        let owner = if is_anothers { Some(super::ORDINARY) } else { who.owner };
        lay(root, &scene.tree, owner)?;
        let mut client = who.setup.client()?;
        let params = scene.open_params(root, &mut random);
        let id = client.open_with(&params).map_err(|why| format!("{why}: {params}"))?;
        let (counts, complaints, names) = (Counts::default(), Vec::new(), 0);
        Ok(Session { who, root, owner, protected, scene, client, id, random, counts, complaints, names })
    }

    /// Makes attempts and controls until there were `tries`.
    pub(super) fn run(&mut self, tries: u64) -> Result<(), String> {
        while self.counts.tries < tries && self.complaints.is_empty() {
            let is_control = self.random.one_in(5) && !self.scene.controls.is_empty();
            match (self.scene.mode, is_control) {
                (Mode::Effects, true) => self.control_effect()?,
                (Mode::Effects, false) => self.attempt_effect()?,
                (_, true) if !self.scene.runs_nothing() => self.control_command()?,
                _ => self.attempt_command()?,
            }
        }
        let close = json!({ "session_id": self.id, "signal": "kill" });
        self.client.try_effect("host.session.signal", &close, "close").map(drop).ok_or_else(hung_up)
    }

    /// A name that is new, and that no rule denies.
    fn scratch(&mut self) -> String {
        self.names += 1;
        format!("zz{}", self.names)
    }

    fn victim(&mut self) -> (Victim, bool) {
        let victim = self.random.pick(&self.scene.victims).clone();
        let reads = victim.reads && (!victim.writes || self.random.one_in(2));
        (victim, reads)
    }

    fn attempt_effect(&mut self) -> Result<(), String> {
        let ((victim, reads), scratch) = (self.victim(), self.scratch());
        let calls = match (reads, self.scene.rules.largest) {
            (false, Some(largest)) if self.random.one_in(3) => {
                let content = crate::ways::text("x".repeat(largest as usize + 1));
                vec![("write_file", json!({ "path": scratch, "content": content }))]
            }
            (true, _) => effects::reading(&self.scene, &victim, self.root, &scratch, &mut self.random),
            (false, _) => effects::writing(&self.scene, &victim, self.root, &scratch, &mut self.random),
        };
        let what = format!("{} `{}`: {calls:?}", if reads { "read" } else { "write" }, victim.path);
        let mut receipts = Vec::new();
        for (op, params) in calls {
            receipts.push(self.call(&format!("host.fs.{op}"), params)?);
        }
        let is_refused = receipts.iter().any(|receipt| receipt["status"] == "forbidden");
        let receipts = Value::Array(receipts);
        self.counts.tries += 1;
        let is_through = self.judge(&receipts, &what)?;
        self.counts.through += u64::from(is_through);
        self.counts.refused += u64::from(is_refused && !is_through);
        self.counts.no_effect += u64::from(!is_refused && !is_through);
        Ok(())
    }

    fn control_effect(&mut self) -> Result<(), String> {
        let (path, scratch) = (self.random.pick(&self.scene.controls).clone(), self.scratch());
        let (op, params) = effects::control(&self.scene, &path, &scratch, &mut self.random);
        let what = format!("control: {op} {params}");
        let receipt = self.call(&format!("host.fs.{op}"), params)?;
        if receipt["status"] == "ok" {
            self.counts.controls += 1;
        } else {
            self.complain(&format!("{what}: {}", brief(&receipt)));
        }
        self.judge(&receipt, &what).map(drop)
    }

    /// Several attempts in one command, or one alone where its denial discards all that the command changed.
    fn attempt_command(&mut self) -> Result<(), String> {
        let (mut lines, mut tried): (Vec<String>, Vec<(Victim, bool)>) = (Vec::new(), Vec::new());
        let mut folders = BTreeSet::new();
        for _ in 0..AT_ONCE_MAX {
            let (victim, reads) = self.victim();
            let is_alone = self.scene.mode.is_checked_whole()
                && !reads
                && !(self.scene.withholds && victim.is_protected);
            let folder = victim.path.split('/').next().unwrap_or_default().to_owned();
            // One that moves the folder of another would take its effect away.
            if is_alone && !lines.is_empty() || !reads && !folders.insert(folder) {
                continue;
            }
            let scratch = self.scratch();
            lines.push(match (reads, self.scene.rules.largest) {
                (false, Some(_)) if is_alone && self.random.one_in(3) => {
                    attempts::large(&scratch, &mut self.random)
                }
                _ => attempts::line(&victim, reads, &scratch, &mut self.random),
            });
            tried.push((victim, reads));
            if is_alone {
                break;
            }
        }
        let receipt = self.shell(&lines, "")?;
        self.counts.tries += tried.len() as u64;
        if verdict(&receipt) == "error / isolation_unavailable" {
            self.counts.not_run += tried.len() as u64;
            if !self.scene.runs_nothing() {
                self.complain(&format!("{lines:?} should run: {}", brief(&receipt)));
            }
        } else if self.scene.runs_nothing() {
            self.complain(&format!("{lines:?} ran although reading cannot be denied: {}", brief(&receipt)));
        }
        let is_through = self.judge(&receipt, &format!("{lines:?}"))?;
        self.count(&receipt, &tried, is_through);
        Ok(())
    }

    fn count(&mut self, receipt: &Value, tried: &[(Victim, bool)], is_through: bool) {
        if verdict(receipt) == "error / isolation_unavailable" {
            return;
        }
        let lists = ["denied_paths", "withheld_paths"]
            .map(|name| receipt[name].as_array().cloned().unwrap_or_default());
        let listed: Vec<&str> = lists.iter().flatten().filter_map(Value::as_str).collect();
        for (victim, reads) in tried {
            let is_listed = listed.iter().any(|path| {
                victim.path == *path
                    || victim.path.starts_with(&format!("{path}/"))
                    || path.starts_with(&format!("{}/", victim.path))
            });
            let count = match () {
                () if is_through => &mut self.counts.through,
                () if *reads => &mut self.counts.masked,
                () if is_listed => &mut self.counts.put_back,
                () if receipt["status"] == "forbidden" && self.scene.mode.is_checked_whole() => {
                    &mut self.counts.refused
                }
                () => &mut self.counts.no_effect,
            };
            *count += 1;
        }
    }

    /// A command on paths that are not denied: it must succeed, and what it changed must stay.
    fn control_command(&mut self) -> Result<(), String> {
        let (mut lines, mut expected) = (Vec::new(), Vec::<(String, Option<Vec<u8>>)>::new());
        let mut controls = self.scene.controls.clone();
        for _ in 0..1 + self.random.below(AT_ONCE_MAX) {
            if controls.is_empty() {
                break;
            }
            let path = controls.swap_remove(self.random.below(controls.len()));
            let (scratch, was) = (self.scratch(), self.scene.tree[&path].bytes().to_vec());
            let (it, kept) = (word(&path), Some(was));
            if self.scene.rules.no_writes {
                lines.push(format!("cat ./{it}"));
                continue;
            }
            let (line, at, content) = match self.random.below(6) {
                0 => (format!("cat ./{it} > {scratch}"), scratch, kept),
                1 => (format!("printf fine > {it}"), path, Some(b"fine".to_vec())),
                2 => (format!("rm ./{it}"), path, None),
                3 => (format!("mv ./{it} {scratch}"), scratch, kept),
                4 => (format!("mkdir {scratch}; cp ./{it} {scratch}/in"), format!("{scratch}/in"), kept),
                _ => (format!("cp -p ./{it} {scratch}; chmod 600 {scratch}"), scratch, kept),
            };
            lines.push(line);
            expected.push((at, content));
        }
        self.add_git_control(&mut lines, &mut expected);
        let receipt = self.shell(&lines, "set -e; ")?;
        let after = self.read()?;
        let bytes = |path: &String| after.get(path).map(|node| node.bytes().to_vec());
        let wrong = expected.iter().filter(|(path, content)| bytes(path) != *content);
        let wrong: Vec<&String> = wrong.map(|(path, _)| path).collect();
        if receipt["status"] == "ok" && receipt["exit_code"] == 0 && wrong.is_empty() {
            self.counts.controls += lines.len() as u64;
        } else {
            self.complain(&format!("control: {lines:?}: wrong: {wrong:?}: {}", brief(&receipt)));
        }
        self.judge(&receipt, &format!("control: {lines:?}")).map(drop)
    }

    /// A change of git's configuration that runs nothing. Where it is mounted read-only, no change is possible.
    fn add_git_control(&mut self, lines: &mut Vec<String>, expected: &mut Vec<(String, Option<Vec<u8>>)>) {
        let may_change = matches!(self.scene.mode, Mode::Overlay | Mode::Reduced | Mode::NoIsolation);
        let is_free = |path: &&String| {
            path.ends_with("/config")
                && !self.scene.rules.denies(super::rules::Asked::Write, path)
                && !self.scene.canaries.contains_key(*path)
        };
        let Some(config) = self.scene.git.iter().find(is_free).filter(|_| may_change) else { return };
        lines.push(format!(
            "printf '{}' >> {}",
            INERT.replace('\n', "\\n").replace('\t', "\\t"),
            word(config)
        ));
        let was = self.scene.tree[config].bytes();
        expected.push((config.clone(), Some([was, INERT.as_bytes()].concat())));
    }

    fn shell(&mut self, lines: &[String], before: &str) -> Result<Value, String> {
        let script: String = lines.iter().map(|line| format!("{before}( {line} ) 2>&1\n")).collect();
        let capture = if self.scene.mode == Mode::Uncaptured { "none" } else { "auto" };
        let minute = 60_000_000_000_u64;
        let params = json!({ "argv": ["sh", "-c", script], "capture": capture, "timeout_ns": minute });
        self.call("host.exec", params)
    }

    fn call(&mut self, kind: &str, mut params: Value) -> Result<Value, String> {
        params["session_id"] = json!(self.id);
        // Without a result it is an error of the envelope, which no attempt may cause.
        let answer = self.client.rpc("effect.call", json!({ "kind": kind, "params": params }));
        match answer.get("result") {
            Some(receipt) => Ok(receipt.clone()),
            None if answer.is_null() => Err(hung_up()),
            None => Err(format!("{kind} {params}: {answer}")),
        }
    }

    fn read(&self) -> Result<Tree, String> {
        tree::read(self.root).map_err(|why| format!("{}: {why}", self.root.display()))
    }

    /// Compares the tree and the answer with what is denied, and lays the tree again. Returns whether something came
    /// through.
    fn judge(&mut self, receipt: &Value, what: &str) -> Result<bool, String> {
        let after = self.read()?;
        let mut found = self.scene.broken(&after, self.protected);
        found.extend(self.scene.leaks(receipt, &after));
        if self.scene.mode != Mode::Effects {
            found.extend(self.scene.lost_masks(&after));
        }
        if !found.is_empty() {
            self.complain(&format!("THROUGH: {what}: {}: {}", found.join("; "), brief(receipt)));
        }
        if after != self.scene.tree || is_closed(self.root) {
            lay(self.root, &self.scene.tree, self.owner)?;
        }
        Ok(!found.is_empty())
    }

    fn complain(&mut self, why: &str) {
        self.complaints.push(format!("{}: {why}", self.who.label(self.scene.mode)));
    }
}

/// Makes the root contain exactly a tree.
fn lay(root: &Path, tree: &Tree, owner: Option<u32>) -> Result<(), String> {
    let failed = |why: std::io::Error| format!("{}: {why}", root.display());
    tree::clear(root).map_err(failed)?;
    tree::write(root, tree, owner).map_err(failed)?;
    tree::open_root(root, owner).map_err(failed)
}

fn is_closed(root: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    root.metadata().map_or(true, |meta| meta.permissions().mode() & 0o777 != 0o755)
}

fn hung_up() -> String {
    "the daemon hung up".into()
}

/// A receipt, cut where it is long.
fn brief(receipt: &Value) -> String {
    let text = receipt.to_string();
    text.chars().take(1_500).collect()
}
