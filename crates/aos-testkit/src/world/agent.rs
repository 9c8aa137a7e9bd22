//! A connection with its session, alone or together with a world.

use serde_json::{Value, json};

use super::World;
use crate::check::{Outcome, well_formed};
use crate::client::Client;
use crate::ways::{patch_params, request, text};

/// A connection that acts in one session.
pub struct Agent {
    pub client: Client,
    pub session: String,
}

impl Agent {
    /// `host.fs.<op>`; the session is filled in.
    pub fn fs(&mut self, op: &str, params: Value) -> Value {
        let receipt = self.client.fs(&self.session, op, params);
        if let Err(why) = well_formed(op, &receipt) {
            self.client.report_malformed(format!("host.fs.{op}: {why}: {receipt}"));
        }
        receipt
    }

    pub fn way(&mut self, way: &str, path: &str) -> Value {
        let (op, params) = request(way, path);
        self.fs(op, params)
    }

    pub fn write(&mut self, path: &str, content: &str) -> Value {
        self.fs("write_file", json!({ "path": path, "content": text(content) }))
    }

    pub fn edit(&mut self, path: &str, old: &str, new: &str) -> Value {
        self.fs("edit_file", json!({ "path": path, "old_string": old, "new_string": new }))
    }

    pub fn patch(&mut self, sections: &str) -> Value {
        self.fs("apply_patch", patch_params(sections))
    }
}

/// A world with one session and one connection to it: all that most cases need.
pub struct Fixture {
    pub client: Client,
    pub session: String,
    pub world: World,
}

impl Fixture {
    #[allow(clippy::new_without_default, reason = "it starts a process, which no default should")]
    pub fn new() -> Fixture {
        Fixture::open(json!({}))
    }

    /// `extra` is merged into the params of `host.session.open` (`capability`, `policy`, …).
    pub fn open(extra: Value) -> Fixture {
        Fixture::of(World::new(), extra)
    }

    pub fn of(world: World, extra: Value) -> Fixture {
        Fixture { client: world.client(), session: world.open(extra), world }
    }

    /// `host.fs.<op>` in the session.
    pub fn fs(&mut self, op: &str, params: Value) -> Value {
        self.client.fs(&self.session, op, params)
    }

    /// `host.fs.<op>` that must end in one of `allowed`.
    pub fn must(&mut self, op: &str, params: Value, allowed: &[&str]) -> Outcome {
        self.client.must(&self.session, op, params, allowed)
    }

    pub fn patch(&mut self, sections: &str) -> Value {
        self.fs("apply_patch", patch_params(sections))
    }

    pub fn finish(self) -> Outcome {
        self.world.finish()
    }
}
