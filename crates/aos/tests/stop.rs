//! Stopping the daemon under load: no client is left without an answer.
#![allow(clippy::disallowed_methods, reason = "tests start programs")]

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

const CLIENTS: usize = 4;
const CALLS_PER_CLIENT: usize = 30;
const STOPS_MAX: usize = 200;

fn aos(home: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_aos"))
        .args(arguments)
        .env("AOS_HOME", home)
        .output()
        .expect("aos can be started")
}

/// The failure of a call, if it failed.
fn failure(what: &str, output: &Output) -> Option<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let signal = output.status.signal();
    (!output.status.success()).then(|| format!("{what}: {:?} {signal:?} {out} {err}", output.status.code()))
}

/// Clients call without a pause while the daemon is stopped again and again. Each call must be answered: by the daemon
/// that stops, or by the next one.
#[test]
fn every_call_is_answered_while_the_daemon_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    let finished = AtomicBool::new(false);
    let client = || -> Vec<String> {
        let calls = (0..CALLS_PER_CLIENT).map(|_| aos(&home, &["call", "host.session.list", "{}"]));
        calls.filter_map(|output| failure("call", &output)).collect()
    };
    let (failures, stops) = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        // Keeps the processors busy, so that every race window stays open longer.
        let hogs: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    while !finished.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                })
            })
            .collect();
        let mut failures = Vec::new();
        let mut stops = 0;
        while stops < STOPS_MAX && !clients.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            failures.extend(failure("stop", &aos(&home, &["daemon", "stop"])));
            stops += 1;
        }
        failures.extend(clients.into_iter().flat_map(|client| client.join().expect("no panic")));
        finished.store(true, Ordering::Relaxed);
        hogs.into_iter().for_each(|hog| hog.join().expect("no panic"));
        (failures, stops)
    });
    let last = aos(&home, &["daemon", "stop"]);
    assert!(failures.is_empty(), "after {stops} stops:\n{}", failures.join("\n"));
    assert!(stops > 1, "the daemon was stopped {stops} times");
    assert!(last.status.success(), "{last:?}");
    assert!(!home.join("run/aosd.sock").exists(), "a stopped daemon leaves no socket");
}
