//! A short, deterministic run of each target. `cargo xtask torture fuzz` runs longer.

use aos_fuzz::corpus::{self, hex};
use aos_fuzz::{Plan, find, run, targets};

/// Limited by count, not by time, so that every machine runs the same inputs.
const RUNS: u64 = 3_000;
const SEED: u64 = 1;

fn short(name: &str) {
    let target = find(name).expect("no such target");
    let corpus = corpus::read(name).expect("no corpus for the target");
    assert!(!corpus.is_empty(), "{name} has no corpus");
    let plan = Plan { seed: SEED, runs: RUNS, until: None };
    match run(&target, &corpus, plan, &mut |_, _| {}) {
        Ok(report) => assert!(report.shapes > 10, "{name} finds too few shapes: {report:?}"),
        Err(crash) => panic!(
            "{name}: seed {SEED}, run {}: {}\ninput in hex: {}\n{}",
            crash.run,
            crash.message,
            hex(&crash.input),
            String::from_utf8_lossy(&crash.input)
        ),
    }
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(#[test] fn $name() { short(stringify!($name)); })*

        #[test]
        fn every_target_is_run_and_listed_for_cargo_fuzz() {
            let names: Vec<&str> = targets().iter().map(|target| target.name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
            let manifest = include_str!("../../../fuzz/Cargo.toml");
            for name in names {
                assert!(manifest.contains(&format!("fuzz_targets/{name}.rs")), "fuzz/Cargo.toml lacks {name}");
            }
        }
    };
}

targets! { patch path entry manifest rpc edit command tool }
