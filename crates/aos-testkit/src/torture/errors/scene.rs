//! A patch of five files, applied and undone in turns. After each answer the disk must hold one of the two whole trees.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Tally;
use crate::client::Client;
use crate::time::bound;
use crate::torture::load::{Tree, differences, on_disk};
use crate::torture::{Daemon, Setup};

/// The longest time that a patch may take, even on a loaded machine.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// Lines per file, enough for several pages on the disk.
const LINES: usize = 300;

pub(super) struct Scene<'a> {
    setup: &'a Setup,
    pub(super) daemon: Option<Daemon>,
    power: bool,
    session: String,
    root: PathBuf,
    before: Tree,
    after: Tree,
    /// Which of the two trees is on the disk.
    patched: bool,
    /// The last call that changed the tree, which a restore undoes.
    last_patch: String,
    made: u64,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Done,
    Refused,
    /// The daemon closed the connection. After a restart the journal shows whether the attempt was done.
    Ended,
}

fn body(name: &str) -> String {
    format!("{name} one\n") + &format!("a line of {name} that takes some room\n").repeat(LINES)
}

/// Updates two files, deletes one, moves and updates one, and adds one in a new folder. The added file is large,
/// because the files that the patch displaces may free space on a full disk first.
fn patch() -> String {
    let added = body("new").repeat(8).lines().map(|line| format!("+{line}\n")).collect::<String>();
    format!(
        "*** Begin Patch\n*** Update File: a\n@@\n-a one\n+a two\n*** Update File: d/b\n@@\n-d/b one\n+d/b two\n\
         *** Delete File: d/c\n*** Update File: e\n*** Move to: f/e\n@@\n-e one\n+e two\n\
         *** Add File: g/h/new\n{added}*** End Patch\n"
    )
}

impl<'a> Scene<'a> {
    /// A session in the setup's first root. With `linked`, files have a second hard link outside, so that their
    /// pre-images are copied.
    pub(super) fn new(setup: &'a Setup, power: bool, linked: bool) -> Result<Scene<'a>, String> {
        let root = setup.roots[0].clone();
        let prepare = || -> std::io::Result<()> {
            std::fs::create_dir_all(root.join("d"))?;
            for name in ["a", "d/b", "d/c", "e"] {
                std::fs::write(root.join(name), body(name))?;
                if linked {
                    let second = root.with_extension(name.replace('/', "-"));
                    std::fs::hard_link(root.join(name), second)?;
                }
            }
            Ok(())
        };
        prepare().map_err(|why| format!("cannot prepare {}: {why}", root.display()))?;
        let (before, session) = (on_disk(&root), String::new());
        let (after, last_patch) = (Tree::new(), String::new());
        let mut scene = Scene {
            setup,
            daemon: None,
            power,
            session,
            root,
            before,
            after,
            patched: false,
            last_patch,
            made: 0,
        };
        scene.start()?;
        let mut client = scene.client()?;
        scene.session = client.open(&scene.root)?;
        scene.learn(&mut client)?;
        Ok(scene)
    }

    /// Applies the patch once without errors, checks the names, and stores the tree for later comparisons.
    fn learn(&mut self, client: &mut Client) -> Result<(), String> {
        let (kind, params) = self.request();
        let receipt = client.try_effect(kind, &params, "first").unwrap_or_default();
        self.after = on_disk(&self.root);
        let names: Vec<&str> = self.after.keys().map(String::as_str).collect();
        if receipt["status"] != "ok" || names != ["a", "d", "d/b", "f", "f/e", "g", "g/h", "g/h/new"] {
            return Err(format!("the patch without any error: {receipt}, and there is {names:?}"));
        }
        (self.patched, self.last_patch) = (true, "first".to_owned());
        match self.attempt(client, &mut Tally::default())? {
            End::Done => Ok(()),
            other => Err(format!("the restore without any error: {other:?}")),
        }
    }

    pub(super) fn client(&self) -> Result<Client, String> {
        let client = self.setup.client()?;
        client.give_up_after(bound(ANSWER_MAX)).map_err(|why| why.to_string())?;
        Ok(client)
    }

    pub(super) fn pid(&self) -> i32 {
        self.daemon.as_ref().map_or(0, Daemon::pid)
    }

    pub(super) fn start(&mut self) -> Result<(), String> {
        let words: &[&str] = if self.power { &["--durability", "power"] } else { &[] };
        self.daemon = Some(self.setup.start_daemon(words)?);
        Ok(())
    }

    /// Kills the daemon and starts it again. No acknowledged change may be undone, and no refused change may appear.
    pub(super) fn restart(&mut self, tally: &mut Tally) -> Result<(), String> {
        drop(self.daemon.take());
        self.start()?;
        self.compare("after a restart", tally);
        Ok(())
    }

    fn request(&self) -> (&'static str, Value) {
        let (kind, mut params) = if self.patched {
            ("host.fs.restore", json!({ "scope_id": self.last_patch }))
        } else {
            ("host.fs.apply_patch", json!({ "patch": { "inline_text": { "text": patch() } } }))
        };
        params["session_id"] = json!(self.session);
        (kind, params)
    }

    /// Applies the patch, or undoes it when it is applied.
    pub(super) fn attempt(&mut self, client: &mut Client, tally: &mut Tally) -> Result<End, String> {
        self.made += 1;
        let call = format!("call{}", self.made);
        let (kind, params) = self.request();
        let asked = Instant::now();
        let receipt = client.try_effect(kind, &params, &call);
        if asked.elapsed() >= bound(ANSWER_MAX) {
            tally.fault(format!("{kind} is not answered within {ANSWER_MAX:?}"));
        }
        let end = match &receipt {
            Some(receipt) if receipt["status"] == "ok" => End::Done,
            Some(receipt) => {
                let code = receipt["error_code"].as_str().unwrap_or_default();
                // A pre-image that cannot be read counts as damaged.
                let expected = ["io_error", "no_space", "preimage_damaged"].contains(&code);
                if receipt["status"] != "error" || !expected {
                    tally.fault(format!("unexpected: {kind}: {receipt}"));
                }
                End::Refused
            }
            None => End::Ended,
        };
        let done = match end {
            End::Ended => self.told_by_the_journal(&call, tally)?,
            End::Done | End::Refused => end == End::Done,
        };
        if done {
            self.patched = !self.patched;
            self.last_patch = call;
        }
        let said = receipt.map_or_else(|| "no answer".to_owned(), |receipt| receipt.to_string());
        self.compare(&format!("{kind}: {said}"), tally);
        Ok(end)
    }

    fn told_by_the_journal(&mut self, call: &str, tally: &mut Tally) -> Result<bool, String> {
        drop(self.daemon.take());
        self.start()?;
        let verdicts = self.setup.journal()?.verdicts(call);
        if verdicts.len() > 1 {
            tally.fault(format!("doubled: {call} is recorded as {verdicts:?}"));
        }
        Ok(verdicts.first().is_some_and(|verdict| verdict == "ok"))
    }

    fn compare(&mut self, what: &str, tally: &mut Tally) {
        let expected = if self.patched { &self.after } else { &self.before };
        let found = on_disk(&self.root);
        if found != *expected {
            tally.mixed += 1;
            tally.complaints.push(format!("mixed: {what}: {}", differences(expected, &found)));
        }
    }
}
