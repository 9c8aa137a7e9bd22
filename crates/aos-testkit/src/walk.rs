//! Ordinary work in one session: each command must run unhindered and land whole, and all of it can be undone.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::check::{Outcome, check, expect, verdict, warning_codes};
use crate::tree::tree;
use crate::world::{Agent, World};

/// A command that takes longer hangs.
const STEP_MAX_NS: u64 = 600_000_000_000;

/// A session in which commands run one after the other, and the tree as it was before the first.
pub struct Walk<'w> {
    world: &'w World,
    agent: Agent,
    /// The warnings that are part of this work, such as `sensitive_path`.
    expected_warnings: Vec<&'static str>,
    before: BTreeMap<PathBuf, String>,
    /// How many commands ran, and how many paths they changed.
    pub steps: u64,
    pub changed: u64,
}

impl<'w> Walk<'w> {
    /// `session` is merged into the params of `host.session.open`.
    pub fn begin(
        world: &'w World,
        session: Value,
        expected_warnings: &[&'static str],
    ) -> Result<Walk<'w>, String> {
        let receipt = world.open_receipt(session);
        let session = receipt["session_id"].as_str().ok_or_else(|| format!("no session: {receipt}"))?;
        let agent = Agent { session: session.to_owned(), client: world.client() };
        let expected_warnings = expected_warnings.to_vec();
        Ok(Walk { world, agent, expected_warnings, before: tree(&world.root), steps: 0, changed: 0 })
    }

    /// Runs a command and returns its receipt, whatever it is.
    pub fn run(&mut self, argv: &[&str]) -> Value {
        let params = json!({ "session_id": self.agent.session, "argv": argv, "timeout_ns": STEP_MAX_NS });
        let receipt = self.agent.client.effect("host.exec", params);
        self.steps += 1;
        self.changed += changed(&receipt);
        receipt
    }

    /// Runs a command that must end with 0 and land whole.
    pub fn step(&mut self, argv: &[&str]) -> Result<Value, String> {
        let receipt = self.run(argv);
        self.is_unhindered(&receipt).map_err(|why| format!("{argv:?}: {why}"))?;
        Ok(receipt)
    }

    /// Whether a command ended with 0, all that it changed landed, and nothing unexpected was warned about.
    pub fn is_unhindered(&self, receipt: &Value) -> Outcome {
        self.is_well(receipt)?;
        check(receipt.get("withheld_paths").is_none(), || format!("withheld: {}", self.told(receipt)))
    }

    /// The same for a command whose protected changes may stay out.
    pub fn is_well(&self, receipt: &Value) -> Outcome {
        let is_ok = verdict(receipt) == "ok" && receipt["exit_code"] == 0;
        check(is_ok && receipt.get("denied_paths").is_none(), || {
            format!("{}: {}", verdict(receipt), self.told(receipt))
        })?;
        let codes = warning_codes(receipt);
        let unexpected: Vec<_> = codes.iter().filter(|code| !self.expected_warnings.contains(code)).collect();
        check(unexpected.is_empty(), || format!("warnings {unexpected:?}: {}", self.told(receipt)))?;
        let changes_nothing = changed(receipt) == 0;
        check(receipt["coverage"] == "overlay" || changes_nothing, || {
            format!("not all of it can be undone: {receipt}")
        })
    }

    /// Both streams of a command.
    pub fn output(&self, receipt: &Value) -> String {
        ["stdout", "stderr"].map(|name| self.stream(&receipt[name])).concat()
    }

    /// One stream of a command.
    pub fn stream(&self, value: &Value) -> String {
        if let Some(blob) = value["blob"]["blob_ref"].as_str() {
            return self.world.aos(&["blob", "get", blob]).1;
        }
        value["inline_text"]["text"].as_str().unwrap_or_default().to_owned()
    }

    /// What a command printed, and its receipt without the long list of what it changed.
    fn told(&self, receipt: &Value) -> String {
        let mut shown = receipt.clone();
        for name in ["changed_paths", "stdout", "stderr"] {
            shown[name].take();
        }
        format!("{}\n{shown}", self.output(receipt))
    }

    /// Takes back all commands, the newest first; then the tree must be as it was before the first.
    pub fn undo(mut self) -> Outcome {
        loop {
            let receipt = self.agent.fs("rollback", json!({}));
            if receipt["status"] == "nothing_to_roll_back" {
                break;
            }
            expect("rollback", &receipt, &["ok"])?;
        }
        let after = tree(&self.world.root);
        let paths = self.before.keys().chain(after.keys());
        let differs: Vec<_> =
            paths.filter(|path| self.before.get(*path) != after.get(*path)).take(5).collect();
        check(differs.is_empty(), || format!("not as before after undo: {differs:?}"))
    }
}

/// How many paths a command changed.
fn changed(receipt: &Value) -> u64 {
    let listed = receipt["changed_paths"].as_array().map_or(0, Vec::len) as u64;
    receipt["changed_paths_count"].as_u64().unwrap_or(listed)
}
