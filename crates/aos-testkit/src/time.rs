//! Times of a case: figures, hang bounds, and waiting for an event.
//!
//! In `cargo xtask test` a time only detects a hang: on a machine that runs other work too, any figure can be missed.
//! `cargo xtask torture` asserts the figures themselves, `cargo xtask torture cases` those of the attack cases.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::check::{Outcome, check};

/// The environment variable with which a test program asserts figures.
pub const ASSERT_FIGURES: &str = "AOS_ASSERT_FIGURES";

/// The shortest hang bound.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How long a case waits for an event that must come and has no figure.
const EVENT_MAX: Duration = Duration::from_secs(60);

static FIGURES: AtomicBool = AtomicBool::new(false);

/// From now on [`bound`] is the figure itself.
pub fn assert_figures() {
    FIGURES.store(true, Ordering::Relaxed);
}

/// Whether figures are asserted in this run.
pub fn asserts_figures() -> bool {
    FIGURES.load(Ordering::Relaxed) || std::env::var_os(ASSERT_FIGURES).is_some_and(|value| value == "1")
}

/// The time limit for a figure: the figure itself where figures are asserted, else the hang bound.
pub fn bound(figure: Duration) -> Duration {
    if asserts_figures() { figure } else { (figure * 10).max(PATIENCE) }
}

/// Whether the time of a run is over.
pub fn is_over(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}

/// Runs something and fails when it took longer than [`bound`] of its figure.
pub fn timed<T>(figure: Duration, what: &str, run: impl FnOnce() -> T) -> Result<T, String> {
    let begun = Instant::now();
    let outcome = run();
    in_time(begun, figure, what)?;
    Ok(outcome)
}

/// Fails when more time than [`bound`] of the figure has passed since `begun`.
pub fn in_time(begun: Instant, figure: Duration, what: &str) -> Outcome {
    let (took, limit) = (begun.elapsed(), bound(figure));
    check(took <= limit, || format!("{what}: took {took:?}, more than {limit:?}"))
}

/// Waits for an event that must come.
pub fn wait_for(what: &str, happened: impl FnMut() -> bool) -> Outcome {
    wait_until(Instant::now() + EVENT_MAX, what, happened)
}

/// Waits for an event whose figure is `figure`, at most for [`bound`] of it.
pub fn wait_at_most(figure: Duration, what: &str, happened: impl FnMut() -> bool) -> Outcome {
    wait_until(Instant::now() + bound(figure), what, happened)
}

fn wait_until(deadline: Instant, what: &str, mut happened: impl FnMut() -> bool) -> Outcome {
    while !happened() {
        check(Instant::now() < deadline, || format!("it did not happen in time: {what}"))?;
        std::thread::sleep(Duration::from_micros(100));
    }
    Ok(())
}

/// How a program with a time limit ended.
#[derive(Debug)]
pub struct Ran {
    /// `None` when a signal ended it, ours included.
    pub code: Option<i32>,
    /// Standard output and standard error.
    pub said: String,
}

/// Runs a program on a home, and kills it when it takes longer than [`bound`] of its figure.
pub fn run_bounded(home: &Path, program: &Path, words: &[&str], figure: Duration) -> Ran {
    let said = tempfile::NamedTempFile::new().unwrap();
    let mut child = Command::new(program)
        .args(words)
        .env("AOS_HOME", home)
        .stdin(Stdio::null())
        .stdout(said.reopen().unwrap())
        .stderr(said.reopen().unwrap())
        .spawn()
        .expect("the program starts");
    let deadline = Instant::now() + bound(figure);
    while child.try_wait().unwrap().is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
    let _ = child.kill();
    let code = child.wait().unwrap().code();
    Ran { code, said: String::from_utf8_lossy(&std::fs::read(said.path()).unwrap()).into_owned() }
}
