//! Runs a target over many inputs: first the corpus, then mutated inputs. Inputs with new shapes are mutated further.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::mutator::Mutator;
use crate::targets::Target;
use aos_testkit::Random;

/// Inputs that are kept for further mutation. At the limit a new one replaces an old one.
const KEPT_MAX: usize = 4_096;

#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub seed: u64,
    pub runs: u64,
    /// Stop at this time, even if runs are left.
    pub until: Option<Instant>,
}

/// The result of a run without a crash.
#[derive(Debug, Default)]
pub struct Report {
    pub runs: u64,
    /// The number of different shapes.
    pub shapes: usize,
    /// In CPU time.
    pub slowest: Duration,
    pub slowest_input: Vec<u8>,
}

/// An input that violated a property.
#[derive(Debug)]
pub struct Crash {
    pub run: u64,
    pub input: Vec<u8>,
    pub message: String,
}

/// Runs a target. `note` gets the number and the bytes of each input before it runs, so that a caller in another
/// process knows which input crashed this one.
pub fn run(
    target: &Target,
    corpus: &[Vec<u8>],
    plan: Plan,
    note: &mut dyn FnMut(u64, &[u8]),
) -> Result<Report, Crash> {
    let mut kept: Vec<Vec<u8>> = corpus.to_vec();
    if kept.is_empty() {
        kept.push(Vec::new());
    }
    let mut mutator = Mutator { random: Random::new(plan.seed), dictionary: target.dictionary };
    let (mut seen, mut report) = (HashSet::new(), Report::default());
    while report.runs < plan.runs {
        // Reading the clock each time would cost more than many inputs.
        if report.runs.is_multiple_of(1_024) && plan.until.is_some_and(|until| Instant::now() >= until) {
            break;
        }
        let input = match corpus.get(report.runs as usize) {
            Some(input) => input.clone(),
            None => mutator.mutate(&kept),
        };
        note(report.runs, &input);
        let begun = cpu_time();
        let shape = catch_unwind(AssertUnwindSafe(|| (target.run)(&input).number()))
            .map_err(|panic| Crash { run: report.runs, input: input.clone(), message: message(&*panic) })?;
        let took = cpu_time().saturating_sub(begun);
        report.runs += 1;
        if took > report.slowest {
            (report.slowest, report.slowest_input) = (took, input.clone());
        }
        if seen.insert(shape) {
            if kept.len() < KEPT_MAX {
                kept.push(input);
            } else {
                let place = corpus.len() + mutator.random.below(KEPT_MAX - corpus.len());
                kept[place] = input;
            }
        }
    }
    report.shapes = seen.len();
    Ok(report)
}

/// The CPU time of this thread. Unlike wall time it does not depend on other load.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message").to_owned()
}
