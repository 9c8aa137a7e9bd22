//! `cargo xtask test`: everything that must pass, the quickest checks first.
//!
//! It prints each step before it starts, test results as they arrive, what failed once more, and the sum in the last line.

use std::io::{BufRead as _, BufReader};
use std::process::{ExitCode, Stdio};

use anyhow::Context as _;
use clap::Args;

use crate::cargo::cargo;
use crate::setup;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Install nothing; tests whose programs are missing are counted as skipped
    #[arg(long)]
    no_setup: bool,
}

/// One step: its name, the arguments of cargo, and whether its tests are counted.
struct Step {
    name: &'static str,
    arguments: &'static [&'static str],
    runs_tests: bool,
}

const STEPS: [Step; 5] = [
    Step { name: "formatting", arguments: &["fmt", "--all", "--check"], runs_tests: false },
    Step {
        name: "lints",
        arguments: &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--features",
            "xtask/long",
            "--",
            "-D",
            "warnings",
        ],
        runs_tests: false,
    },
    // Before the build, which replaces these programs with those without the feature. For the whole workspace, so that
    // the dependencies are built once, with the features that the build also uses.
    Step {
        name: "panics",
        arguments: &["test", "--workspace", "--features", "aos/testing,xtask/long", "--test", "panics"],
        runs_tests: true,
    },
    Step {
        name: "build",
        arguments: &["build", "--workspace", "--all-targets", "--features", "xtask/long"],
        runs_tests: false,
    },
    Step {
        name: "tests",
        arguments: &["test", "--workspace", "--no-fail-fast", "--features", "xtask/long"],
        runs_tests: true,
    },
];

/// The results of all test programs.
#[derive(Debug, Default)]
struct Sum {
    passed: u64,
    failed: u64,
    skipped: u64,
    /// What test programs printed of their failures. Repeated at the end, where it is found in a long log.
    failures: Vec<String>,
    /// Whether the lines that follow tell of failures.
    in_failures: bool,
}

/// A failed test may print a whole tree; the log has all of it further up.
const FAILURE_LINES_MAX: usize = 300;

impl std::fmt::Display for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    announce(0, "set-up", "look for what the tests need, install what is missing");
    let missing = setup::prepare(options.no_setup);
    let sum = check_and_test()?;
    if !missing.is_empty() {
        println!("Not installed, so some tests were skipped: {}", missing.join(", "));
    }
    for line in &sum.failures {
        println!("{line}");
    }
    println!("{sum}");
    Ok(if sum.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn announce(number: usize, name: &str, what: &str) {
    println!("[{}/{}] {name}: {what}", number + 1, STEPS.len() + 1);
}

/// A failed check counts as one failure, and later steps do not run.
fn check_and_test() -> anyhow::Result<Sum> {
    let mut sum = Sum::default();
    for (number, Step { name, arguments, runs_tests }) in STEPS.iter().enumerate() {
        announce(number + 1, name, &shown(arguments));
        if *runs_tests {
            test(arguments, &mut sum)?;
            continue;
        }
        let status =
            cargo().args(*arguments).status().with_context(|| format!("cannot run cargo for {name}"))?;
        if !status.success() {
            println!("{name} failed; `{}` shows why", shown(arguments));
            sum.failed += 1;
            return Ok(sum);
        }
    }
    Ok(sum)
}

fn test(arguments: &[&str], sum: &mut Sum) -> anyhow::Result<()> {
    let mut child =
        cargo().args(arguments).stdout(Stdio::piped()).spawn().context("cannot run cargo for the tests")?;
    let output = BufReader::new(child.stdout.take().context("BUG: the output is piped")?);
    let failed_before = sum.failed;
    for line in output.split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        println!("{line}");
        sum.add(&line);
    }
    // A test program that crashes, or does not compile, prints no result.
    if !child.wait()?.success() && sum.failed == failed_before {
        sum.failed += 1;
    }
    Ok(())
}

impl Sum {
    /// Adds the last line of a test program, `test result: ok. 3 passed; 0 failed; 1 ignored; …`, and the failures
    /// that it printed before.
    fn add(&mut self, line: &str) {
        self.in_failures = (self.in_failures || line == "failures:") && !line.starts_with("test result: ");
        if self.in_failures && self.failures.len() < FAILURE_LINES_MAX {
            self.failures.push(line.to_owned());
        }
        let Some(result) = line.strip_prefix("test result: ") else { return };
        let count = |word: &str| {
            let parts = result.split(['.', ';']).map(str::trim);
            parts.filter_map(|part| part.strip_suffix(word)?.trim().parse::<u64>().ok()).sum::<u64>()
        };
        self.passed += count("passed");
        self.failed += count("failed");
        self.skipped += count("ignored");
    }
}

fn shown(arguments: &[&str]) -> String {
    format!("cargo {}", arguments.join(" "))
}

#[cfg(test)]
mod tests {
    use super::Sum;

    #[test]
    fn the_sum_is_over_all_test_programs() {
        let mut sum = Sum::default();
        for line in [
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "test b ... FAILED",
            "failures:",
            "---- b ----",
            "it is wrong",
            "test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.5s",
        ] {
            sum.add(line);
        }
        assert_eq!(sum.to_string(), "13 passed, 2 failed, 1 skipped");
        assert_eq!(sum.failures, ["failures:", "---- b ----", "it is wrong"]);
    }
}
