//! The daemon's log: what it holds, who may read it, and `aos daemon logs`.
#![allow(clippy::disallowed_methods, reason = "tests look at files and start programs")]

mod own_home;

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use aos_testkit::wait_for;
use own_home::OwnHome;
use serde_json::json;

fn start_and_stop(home: &OwnHome, variables: &[(&str, &str)]) {
    let started = home.aos_with(variables, &["daemon", "start"]);
    assert_eq!(started.code, Some(0), "{started:?}");
    let stopped = home.aos(&["daemon", "stop"]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
}

#[test]
fn the_log_is_private_and_holds_start_and_stop() {
    let home = OwnHome::new();
    start_and_stop(&home, &[]);
    let mode = |name: &str| std::fs::metadata(home.path().join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("log"), mode("log/aosd.log")), (0o700, 0o600));
    let log = home.log();
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.len(), 2, "{log}");
    let shown_home = format!("home={}", home.path().display());
    for piece in ["INFO", "aosd serves", "version=", &shown_home, "durability=Process", "rolled_back=0"] {
        assert!(lines[0].contains(piece), "`{piece}` is not in {log}");
    }
    assert!(lines[1].contains("aosd stops reason=\"asked by a client\""), "{log}");
    assert!(!home.path().join("run/aosd.log").exists());
}

#[test]
fn the_log_is_shown_without_a_daemon() {
    let home = OwnHome::new();
    let none = home.aos(&["daemon", "logs"]);
    assert_eq!(none.code, Some(1), "{none:?}");
    assert!(none.err.contains("there is no log at"), "{none:?}");
    start_and_stop(&home, &[]);
    assert_eq!(home.aos(&["daemon", "logs"]).out, home.log());
    let last = home.aos(&["daemon", "logs", "-n", "1"]).out;
    assert_eq!(Some(last.trim_end()), home.log().lines().last());
}

#[test]
fn aos_log_chooses_the_level() {
    let home = OwnHome::new();
    start_and_stop(&home, &[("AOS_LOG", "warn")]);
    assert_eq!(home.log(), "");
    start_and_stop(&home, &[("AOS_LOG", "warn,aos::daemon=info")]);
    assert_eq!(home.log().lines().count(), 2);
}

#[test]
fn a_daemon_that_cannot_start_reports_why_to_its_caller() {
    let home = OwnHome::new();
    let wrong = home.aos_with(&[("AOS_LOG", "loud")], &["daemon", "start"]);
    assert!(wrong.code != Some(0) && wrong.err.contains("`loud` is not a level"), "{wrong:?}");
    let victim = home.workdir().join("victim");
    std::fs::create_dir_all(home.path().join("log")).unwrap();
    std::os::unix::fs::symlink(&victim, home.path().join("log/aosd.log")).unwrap();
    let linked = home.aos(&["daemon", "start"]);
    assert!(linked.code != Some(0) && linked.err.contains("not a regular file"), "{linked:?}");
    assert!(!victim.exists());
}

#[test]
fn lines_are_json_where_that_is_asked_for() {
    let home = OwnHome::new();
    start_and_stop(&home, &[("AOS_LOG_FORMAT", "json")]);
    let events: Vec<serde_json::Value> =
        home.log().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events[0]["message"], "aosd serves");
    assert_eq!(events[0]["home"], home.path().display().to_string());
    assert_eq!(events[1]["reason"], "asked by a client");
}

/// The folder of a session's manifests cannot be made, because a file is in its place.
#[test]
fn a_snapshot_that_cannot_be_finalized_is_logged_once() {
    let home = OwnHome::new();
    let workdir = home.workdir();
    std::fs::write(workdir.join("f"), "old").unwrap();
    let opened = home.aos(&["session", "open", workdir.to_str().unwrap()]);
    let session = opened.out.trim();
    std::fs::write(home.path().join("state/snapshots").join(session), "").unwrap();
    let mut warnings = Vec::new();
    for count in 1..=3 {
        let content = json!({ "inline_text": { "text": "new" } });
        let params = json!({ "session_id": session, "path": "f", "content": content });
        let written = home.aos(&["call", "host.fs.write_file", &params.to_string()]);
        assert_eq!(written.code, Some(0), "{written:?}");
        // Each change has a snapshot of its own, and all of them are tried again after it.
        warnings = warnings_of(&home, count);
    }
    assert_eq!(warnings.len(), 3, "{warnings:#?}");
    let source = "WARN aos_host::snapshot::finalize: cannot finalize snapshots";
    let fields = format!("{source} session_id=\"{session}\" snapshots=1 snapshot_id=");
    assert!(warnings.iter().all(|line| line.contains(&fields) && line.contains(" error=")), "{warnings:#?}");
}

/// The warnings in the log, once there are at least `count`.
fn warnings_of(home: &OwnHome, count: usize) -> Vec<String> {
    let warnings = || -> Vec<String> {
        home.log().lines().filter(|line| line.contains(" WARN ")).map(str::to_owned).collect()
    };
    wait_for("the warnings", || warnings().len() >= count).unwrap();
    warnings()
}

#[test]
fn following_shows_new_lines_and_ends_with_its_reader() {
    let home = OwnHome::new();
    let mut follow = home
        .command(env!("CARGO_BIN_EXE_aos"), &[])
        .args(["daemon", "logs", "--follow"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    start_and_stop(&home, &[]);
    assert!(lines.next().unwrap().unwrap().contains("aosd serves"));
    assert!(lines.next().unwrap().unwrap().contains("aosd stops"));
    drop(lines);
    // It ends although nothing more is written.
    let ended = wait_for("the end of `follow`", || follow.try_wait().unwrap().is_some());
    let _ = follow.kill();
    ended.unwrap();
    assert_eq!(follow.wait().unwrap().code(), Some(0));
}
