//! A short run of each target, the same each time. `cargo xtask torture fuzz` goes on where these stop.

use aos_fuzz::corpus::{self, hex};
use aos_fuzz::{Plan, find, run, targets};

/// By count, not by time: what is found here is found on every machine.
const RUNS: u64 = 3_000;
const SEED: u64 = 1;

fn short(name: &str) {
    let target = find(name).expect("a target of this name");
    let corpus = corpus::read(name).expect("a corpus of this name");
    assert!(!corpus.is_empty(), "{name} has no corpus");
    let plan = Plan { seed: SEED, runs: RUNS, until: None };
    match run(&target, &corpus, plan, &mut |_, _| {}) {
        Ok(report) => assert!(report.shapes > 10, "{name} does not get anywhere: {report:?}"),
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
        fn every_target_is_run_and_has_its_place_for_cargo_fuzz() {
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
