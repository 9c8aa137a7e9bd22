//! The attack cases, by id: each is a test under its own id; a case that cannot run here says why and is counted.
//!
//! `cargo test -p aos --test attack` runs all; `cargo test -p aos --test attack -- PATH-0` those whose id matches.
#![allow(
    clippy::disallowed_methods,
    reason = "a test prepares and inspects the disk behind the product's back"
)]
#![allow(
    unreachable_pub,
    missing_debug_implementations,
    clippy::needless_pass_by_value,
    reason = "a test program has no users, and a `json!` value is passed as it is"
)]

mod deep;
mod exec;
mod findings;
mod grep_glob;
mod journal_crash;
mod listed;
mod patch;
mod path;
mod policy_capability;
mod replay;
mod rpc_surface;
mod shell_undo;
mod snapshot_restore;
mod special_files;
mod torture;
mod vfs;
mod write_edit;

use std::process::ExitCode;

pub use aos_testkit::{Need, Outcome};
use libtest_mimic::{Arguments, Trial};

/// One case: its id in `attack_cases.json`, its needs, and its function.
pub struct Case {
    pub id: &'static str,
    pub needs: &'static [Need],
    pub run: fn() -> Outcome,
}

/// A case that needs nothing of the machine.
pub fn plain(id: &'static str, run: fn() -> Outcome) -> Case {
    Case { id, needs: &[], run }
}

fn main() -> ExitCode {
    // Some cases need a second process, with another uid or inside a command: this program runs itself.
    if let Some(code) = rpc_surface::other_uid().or_else(exec::probe::main) {
        return code;
    }
    let mut arguments = Arguments::from_args();
    // A case runs several processes already: a daemon, its commands, its clients.
    arguments.test_threads.get_or_insert(2);
    let mut trials: Vec<Trial> = areas().into_iter().map(|case| case.trial(&arguments)).collect();
    trials.extend(listed::trials(&arguments));
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn areas() -> Vec<Case> {
    [
        path::cases(),
        special_files::cases(),
        write_edit::cases(),
        patch::cases(),
        grep_glob::cases(),
        policy_capability::cases(),
        rpc_surface::cases(),
        journal_crash::cases(),
        replay::cases(),
        exec::cases(),
        snapshot_restore::cases(),
        shell_undo::cases(),
        vfs::cases(),
        torture::cases(),
        deep::cases(),
        findings::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

impl Case {
    fn trial(&self, arguments: &Arguments) -> Trial {
        let missing = self.needs.iter().find_map(|need| aos_testkit::missing(*need));
        aos_testkit::needs::trial(arguments, self.id, missing, self.run)
    }
}
