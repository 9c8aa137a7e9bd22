//! Walks through developer tools: ordinary work in a session is not refused, lands and can be undone.

mod compiled;
mod git;
mod node;
mod python;

use std::path::Path;

use aos_testkit::{Outcome, Walk, check, expect, warning_codes};
use serde_json::Value;

use super::Check;
use super::place::Place;

/// All of them.
pub(super) const CHECKS: &[&[Check]] = &[git::CHECKS, compiled::CHECKS, node::CHECKS, python::CHECKS];

/// The work with one tool: what the user has, and the commands of the session.
struct Tour {
    /// The session reaches the network, because a package client fetches from its registry.
    with_network: bool,
    /// The capability of that name.
    protected_paths: &'static str,
    /// The warnings that belong to this work.
    warnings: &'static [&'static str],
    files: &'static [(&'static str, &'static str)],
    /// What the user does before there is a session.
    before: &'static [&'static str],
    /// What each script of the session begins with.
    first: &'static str,
    steps: &'static [Step],
}

const TOUR: Tour = Tour {
    with_network: false,
    protected_paths: "deny",
    warnings: &[],
    files: &[],
    before: &[],
    first: ":",
    steps: &[],
};

/// Advice about the words of a command, such as `$HOME/node`: all that the preset `permissive` has to say.
const ADVICE: &[&str] = &["command_references_external_paths", "command_references_outside_workspace"];

const NEW_REPOSITORY: &str =
    "git init -q -b main .; git config user.name U; git config user.email u@example.org";

/// One command, and what must come of it.
struct Step {
    script: &'static str,
    /// What both streams together contain.
    says: &'static str,
    /// Paths that the user finds afterwards. If there are none, the command may change nothing.
    lands: &'static [&'static str],
    outcome: Expected,
}

/// What happens to what a command changes.
enum Expected {
    /// All of it lands.
    Whole,
    /// All of it lands, except for these paths and what is below them.
    Without(&'static [&'static str]),
    /// Nothing of it lands, on purpose.
    Denied,
}

const fn runs(script: &'static str, says: &'static str) -> Step {
    Step { script, says, lands: &[], outcome: Expected::Whole }
}

const fn lands(script: &'static str, lands: &'static [&'static str]) -> Step {
    Step { script, says: "", lands, outcome: Expected::Whole }
}

const fn lands_without(
    script: &'static str,
    stays_out: &'static [&'static str],
    lands: &'static [&'static str],
) -> Step {
    Step { script, says: "", lands, outcome: Expected::Without(stays_out) }
}

const fn denied(script: &'static str) -> Step {
    Step { script, says: "", lands: &[], outcome: Expected::Denied }
}

impl Tour {
    /// Runs the commands, then undoes them all.
    fn take(&self, place: &mut Place) -> Result<String, String> {
        for (path, content) in self.files {
            place.write(path, content)?;
        }
        for script in self.before {
            place.outside(script)?;
        }
        let session = place.session(self.with_network, self.protected_paths);
        let mut walk = Walk::begin(&place.world, session, &[self.warnings, ADVICE].concat())?;
        for step in self.steps {
            let receipt = walk.run(&["sh", "-ec", &format!("{}\n{}", self.first, step.script)]);
            step.check(place, &walk, &receipt).map_err(|why| format!("`{}`: {why}", step.script))?;
        }
        let done = format!("{} commands changed {} paths; undone", walk.steps, walk.changed);
        walk.undo()?;
        Ok(done)
    }
}

impl Step {
    fn check(&self, place: &Place, walk: &Walk<'_>, receipt: &Value) -> Outcome {
        match self.outcome {
            Expected::Whole => walk.is_unhindered(receipt)?,
            Expected::Without(paths) => {
                walk.is_well(receipt)?;
                is_withheld(receipt, paths)?;
            }
            Expected::Denied => return expect("on purpose", receipt, &["forbidden / protected_path"]),
        }
        check(walk.output(receipt).contains(self.says), || {
            format!("it does not say {:?}: {}", self.says, walk.output(receipt))
        })?;
        let has_changes = receipt["changed_paths"].as_array().is_some_and(|paths| !paths.is_empty());
        check(has_changes || self.lands.is_empty(), || format!("nothing landed: {receipt}"))?;
        for path in self.lands {
            let is_there = place.world.root.join(path).symlink_metadata().is_ok();
            check(is_there, || format!("{path} did not land"))?;
        }
        Ok(())
    }
}

/// Whether only `paths` and what is below them stayed out, and the receipt says so.
fn is_withheld(receipt: &Value, paths: &[&str]) -> Outcome {
    let withheld = receipt["withheld_paths"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_wanted = |path: &Value| {
        let path = Path::new(path.as_str().unwrap_or_default());
        paths.iter().any(|wanted| path.starts_with(wanted))
    };
    let is_right = !withheld.is_empty() && withheld.iter().all(is_wanted);
    let is_told = warning_codes(receipt).iter().any(|code| code.ends_with("_withheld"));
    check(is_right && is_told, || format!("not exactly {paths:?} stayed out: {receipt}"))
}
