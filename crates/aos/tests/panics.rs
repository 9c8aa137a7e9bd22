//! Panics, requested with `AOS_TEST_PANIC`: run with `cargo test -p aos --features testing --test panics`.
#![allow(clippy::disallowed_methods, reason = "tests look at files and start programs")]

mod own_home;

use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Stdio};

use aos_testkit::wait_for;
use own_home::OwnHome;
use serde_json::{Value, json};

/// A daemon in the foreground, so that the test sees its end.
fn daemon(home: &OwnHome, panic_at: &str) -> Child {
    let daemon = home
        .command(env!("CARGO_BIN_EXE_aosd"), &[("AOS_TEST_PANIC", panic_at)])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("the daemon to answer", || home.aos(&["daemon", "status"]).code == Some(0)).unwrap();
    daemon
}

#[test]
fn a_panic_is_logged_and_the_next_daemon_recovers() {
    let home = OwnHome::new();
    let workdir = home.workdir();
    let mut daemon = daemon(&home, "host.fs.write_file");
    let opened = home.aos(&["session", "open", workdir.to_str().unwrap()]);
    let session = opened.out.trim();
    let write = |path: &str| {
        let content = json!({ "inline_text": { "text": "new" } });
        let params = json!({ "session_id": session, "path": path, "content": content });
        home.aos(&["call", "host.fs.write_file", &params.to_string()])
    };

    let lost = write("f");
    assert_eq!(lost.code, Some(98), "{lost:?}");
    assert_eq!(daemon.wait().unwrap().signal(), Some(6), "it aborts");
    let mut complaint = String::new();
    daemon.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
    assert!(complaint.starts_with("aosd: panicked at "), "{complaint}");
    assert_eq!(std::fs::read_to_string(workdir.join("f")).unwrap(), "new", "it was done and not recorded");
    let log = home.log();
    for piece in
        ["ERROR", "panicked: AOS_TEST_PANIC names host.fs.write_file", "thread=\"", "place=\"", "maybe_panic"]
    {
        assert!(log.contains(piece), "`{piece}` is not in {log}");
    }

    // The next command starts another daemon, without the variable.
    let written = write("g");
    assert_eq!(written.code, Some(0), "{written:?}");
    assert!(!workdir.join("f").exists(), "it was taken back");
    assert_eq!(std::fs::read_to_string(workdir.join("g")).unwrap(), "new");
    assert!(home.log().contains("rolled_back=1"), "{}", home.log());
    let verified = home.aos(&["verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    let entries: Vec<Value> = home
        .aos(&["log", "--json"])
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|entry: &Value| entry["kind"] == "host.fs.write_file")
        .collect();
    assert_eq!(entries[0]["receipt"]["error_code"], "interrupted_rolled_back", "{entries:?}");
    assert_eq!(entries[1]["receipt"]["status"], "ok", "{entries:?}");
}

#[test]
fn a_panic_of_the_client_has_an_exit_code_of_its_own() {
    let home = OwnHome::new();
    let ended = home.aos_with(&[("AOS_TEST_PANIC", "aos")], &["log"]);
    assert_eq!(ended.code, Some(104), "{ended:?}");
    assert!(ended.err.starts_with("aos: internal error at "), "{ended:?}");
    assert_eq!(ended.err.lines().count(), 1, "{ended:?}");
}
