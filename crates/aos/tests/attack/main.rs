//! The attack cases, by id: each is a test of its own name, and what cannot run here says why and is counted.
//!
//! `cargo test -p aos --test attack` runs all; `cargo test -p aos --test attack -- PATH-0` those whose id matches.
#![allow(
    clippy::disallowed_methods,
    reason = "a test prepares and inspects the disk behind the product's back"
)]
#![allow(
    dead_code,
    unreachable_pub,
    missing_debug_implementations,
    clippy::needless_pass_by_value,
    reason = "a test program is nobody's interface, and not every area uses all of the world"
)]

#[path = "../../../../xtask/src/torture/corrupt/mod.rs"]
mod corrupt_torture;
#[path = "../../../../xtask/src/torture/crowd/mod.rs"]
mod crowd;
mod deep;
#[path = "../../../../xtask/src/torture/errors/mod.rs"]
mod errors;
mod exec;
// The zoo is the torturer's too.
#[path = "../../../../xtask/src/torture/exec/mod.rs"]
mod exec_torture;
mod grep_glob;
mod journal_crash;
// The load and the killing are the torturer's: a case is a short run of the same.
#[path = "../../../../xtask/src/torture/kill.rs"]
mod kill;
#[path = "../../../../xtask/src/torture/load/mod.rs"]
mod load;
#[path = "../../../../xtask/src/torture/memory/mod.rs"]
mod memory_torture;
mod patch;
mod path;
#[path = "../../../../xtask/src/torture/path/mod.rs"]
mod path_torture;
mod policy_capability;
#[path = "../../../../xtask/src/torture/policy/mod.rs"]
mod policy_torture;
#[path = "../../../../xtask/src/torture/power/mod.rs"]
mod power;
#[path = "../../../../xtask/src/torture/pulse.rs"]
mod pulse;
mod replay;
#[path = "../../../../xtask/src/torture/replay/mod.rs"]
mod replay_torture;
mod rpc_surface;
mod shell_undo;
mod snapshot_restore;
mod special_files;
mod torture;
#[path = "../../../../xtask/src/torture/undo/mod.rs"]
mod undo;
mod vfs;
mod world;
mod write_edit;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use world::tracer;

use world::ways;

pub use world::{Need, Outcome};

/// One case: its id in `attack_cases.json`, what it needs, and what is done.
pub struct Case {
    pub id: &'static str,
    pub needs: &'static [Need],
    pub run: fn() -> Outcome,
}

fn main() -> ExitCode {
    // Some cases need a second process, of another uid or inside a command; this program is its own.
    if let Some(code) = rpc_surface::other_uid().or_else(exec::probe::main) {
        return code;
    }
    let mut arguments = Arguments::from_args();
    // Two cores, and many cases measure how fast the daemon answers: a few at a time.
    arguments.test_threads.get_or_insert(2);
    let mut trials: Vec<Trial> = areas().into_iter().map(trial).collect();
    trials.push(all_ids());
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
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The areas whose cases stand here. The others come with the parts of the product that they attack.
const AREAS: &[&str] = &[
    "path",
    "special_files",
    "write_edit",
    "patch",
    "grep_glob",
    "policy_capability",
    "journal_crash",
    "replay",
    "rpc_surface",
    "exec",
    "snapshot_restore",
    "vfs",
];

/// Where the open cases lie beside the repository, each of these areas' ids is one of ours.
fn all_ids() -> Trial {
    let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/cases/attack_cases.json");
    let lacking = !std::path::Path::new(cases).exists();
    if lacking {
        println!("skipped EVERY-ID: the list of cases is not beside the repository");
    }
    let check = move || {
        let text = std::fs::read_to_string(cases).map_err(|why| why.to_string())?;
        let listed: Vec<serde_json::Value> = serde_json::from_str(&text).map_err(|why| why.to_string())?;
        let ours: Vec<&str> = areas().iter().map(|case| case.id).collect();
        let word = |case: &serde_json::Value, name: &str| case[name].as_str().unwrap_or_default().to_owned();
        let here = listed.iter().filter(|case| AREAS.contains(&word(case, "area").as_str()));
        let missing: Vec<String> =
            here.map(|case| word(case, "id")).filter(|id| !ours.contains(&id.as_str())).collect();
        if missing.is_empty() { Ok(()) } else { Err(Failed::from(format!("no case for {missing:?}"))) }
    };
    Trial::test("EVERY-ID", check).with_ignored_flag(lacking)
}

fn trial(case: Case) -> Trial {
    let lacking = case.needs.iter().find_map(|need| world::lacking(*need));
    if let Some(why) = &lacking {
        println!("skipped {}: {why}", case.id);
    }
    let run = case.run;
    Trial::test(case.id, move || run().map_err(Failed::from)).with_ignored_flag(lacking.is_some())
}
