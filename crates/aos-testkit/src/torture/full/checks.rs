//! What must hold while a disk is full, and what when there is room again.

use std::path::Path;

use serde_json::json;

use super::filling::{Filling, holds_reserve};
use super::round::{Filled, Scene};
use crate::check::{check, expect};
use crate::time::wait_for;
use crate::torture::load::Node;

/// As many changes as find out that a disk is full: the journal may have some room in its files.
const CHANGES_MAX: usize = 500;
const CHANGES_PER_FILL: usize = 50;
const FULL: &str = "error / no_space";

impl Scene {
    /// While the disk is full: reads, closing a session and `gc` work, and the daemon says what is the matter.
    pub(super) fn check_full(&mut self, filled: &Filled) -> Result<(), String> {
        self.judge()?;
        let mut client = self.client()?;
        // What the daemon holds back for these may have been taken as well.
        let is_taken = filled.filling == Filling::HomeAndReserve;
        let allowed = |wanted| if is_taken { vec![wanted, FULL] } else { vec![wanted] };
        if filled.filling.is_home_full() {
            self.says_that_it_is_full(filled)?;
        }
        for agent in &mut self.agents {
            let files = agent.writer.tree.iter().filter_map(|(path, node)| match node {
                Node::File(text) => Some((path.clone(), text.clone())),
                Node::Folder => None,
            });
            let files: Vec<_> = files.filter(|(_, text)| text.len() < 10_000).collect();
            if agent.has_session() && !files.is_empty() {
                let (path, text) = &files[self.random.below(files.len())];
                let params = json!({ "path": format!("{}/{path}", agent.name()) });
                let receipt = client.fs(&agent.writer.session, "read_file", params);
                expect("a read while it is full", &receipt, &allowed("ok"))?;
                let read = &receipt["content"]["inline_text"]["text"];
                check(receipt["status"] != "ok" || read == text.as_str(), || {
                    format!("{path}: expected {text:?}, got {receipt}")
                })?;
            }
            // A change is done, or it is refused and leaves nothing: the next comparison of the disk tells.
            check(agent.step(&mut client)?, || "the daemon hung up on a change while it is full".into())?;
        }
        if let Some(agent) = self.agents.iter_mut().find(|agent| agent.has_session()) {
            agent.writer.scarce.allowed = is_taken;
            check(agent.close(&mut client)?, || "the daemon hung up on closing a session".into())?;
            agent.writer.scarce.allowed = true;
        }
        let gc = client.rpc("store.gc", json!({}));
        expect("gc while it is full", &gc["result"], &allowed("ok"))?;
        self.judge()
    }

    /// After some changes the daemon has noticed; then `status` and `doctor` say it.
    fn says_that_it_is_full(&mut self, filled: &Filled) -> Result<(), String> {
        let mut client = self.client()?;
        let agent = &mut self.agents[0];
        let refused = agent.writer.scarce.refused;
        for change in 0..CHANGES_MAX {
            if agent.writer.scarce.refused > refused {
                break;
            }
            // The daemon removes what commands and a daemon before it left, and there is room again for a while.
            if change % CHANGES_PER_FILL == 0 {
                filled.filler.fill(filled.filling, &mut self.random)?;
            }
            check(agent.step(&mut client)?, || "the daemon hung up on a change while it is full".into())?;
        }
        check(agent.writer.scarce.refused > refused, || "no change was refused on a full disk".into())?;
        for word in ["status", "doctor"] {
            let (code, said, why) = self.setup.aos(&[word]);
            check(code == 0 && said.contains("is full"), || {
                format!("aos {word} does not say that the disk is full: {code} {said}{why}")
            })?;
        }
        Ok(())
    }

    /// With room again: changes work, the reserve is back, nothing is lost and nothing is left.
    pub(super) fn check_free(&mut self) -> Result<(), String> {
        let mut client = self.client()?;
        for agent in &mut self.agents {
            let mut outcome = Ok(());
            wait_for("changes to be accepted again", || {
                let refused = agent.writer.scarce.refused + agent.writer.scarce.ended;
                outcome = agent.step(&mut client).and_then(|alive| check(alive, || "it hung up".into()));
                let is_refused = agent.writer.scarce.refused + agent.writer.scarce.ended > refused;
                outcome.is_err() || (agent.has_session() && !is_refused)
            })?;
            outcome?;
        }
        let mut status = || client.call("daemon.status", &json!({})).unwrap_or_default();
        wait_for("the reserve to be back", || {
            status()["disk_full"] == false && holds_reserve(&self.setup.home)
        })?;
        self.allow_lack_of_space(false);
        for agent in &mut self.agents {
            for _ in 0..4 {
                check(agent.step(&mut client)?, || "the daemon hung up".into())?;
            }
        }
        let overlays = self.setup.home.join("state/overlays");
        wait_for("overlays to be removed", || is_empty(&overlays))?;
        self.judge()?;
        for root in &self.setup.roots {
            let left =
                names(root).into_iter().find(|name| name.starts_with(".aos-tmp-") || name == "filling");
            check(left.is_none(), || format!("left in {}: {left:?}", root.display()))?;
        }
        let unfinished = names(&self.setup.home.join("state/blobs"));
        let unfinished: Vec<&String> = unfinished.iter().filter(|name| name.starts_with("tmp-")).collect();
        check(unfinished.is_empty(), || format!("unfinished blobs: {unfinished:?}"))?;
        self.setup.verify()?;
        self.setup.replay()
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn is_empty(overlays: &Path) -> bool {
    names(overlays).iter().all(|session| names(&overlays.join(session)).is_empty())
}
