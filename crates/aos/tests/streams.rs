//! Streams that end early or never end a line: `aos … | head`, and a client that sends an endless line.
#![allow(clippy::disallowed_methods, reason = "tests start programs and read files")]

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

fn aos(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_aos"));
    command.args(arguments).env("AOS_HOME", home);
    command
}

struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Home {
        Home(tempfile::tempdir().unwrap())
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = aos(self.0.path(), &["daemon", "stop"]).output();
    }
}

#[test]
fn a_reader_that_closes_the_pipe_early_is_not_an_error() {
    let home = Home::new();
    // The receipt of an entry that is larger than a pipe's buffer.
    let many: Vec<String> = (0..20_000).map(|n| format!("\"label{n}\":\"x\"")).collect();
    let params = format!("{{\"no_such_field\":{{{}}}}}", many.join(","));
    let mut call = aos(home.0.path(), &["call", "host.session.open", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    call.stdin.take().unwrap().write_all(params.as_bytes()).unwrap();
    call.wait().unwrap();
    let mut show =
        aos(home.0.path(), &["show", "1"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 16];
    show.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = show.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), error.as_ref()), (Some(0), ""));
}

#[test]
fn completions_may_be_cut_off_too() {
    let home = Home::new();
    let mut completions = aos(home.0.path(), &["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(completions.stdout.take());
    let output = completions.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), error.as_ref()), (Some(0), ""));
}

#[test]
fn output_that_cannot_be_written_is_reported() {
    let home = Home::new();
    let folder = tempfile::tempdir().unwrap();
    let opened = aos(home.0.path(), &["session", "open", folder.path().to_str().unwrap()]).output().unwrap();
    let session = String::from_utf8(opened.stdout).unwrap();
    let session = session.trim();
    let exec = ["exec", "-s", session, "--", "echo", "hi"];
    let calls: [&[&str]; 5] =
        [&["session", "list"], &["status"], &["completions", "bash"], &["tool", "list"], &exec];
    for arguments in calls {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = aos(home.0.path(), arguments).stdout(full).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(error.contains("cannot write") && error.contains("No space left"), "{arguments:?}: {error}");
    }
}

#[test]
fn a_line_that_is_too_long_is_answered_and_logged() {
    let home = Home::new();
    assert!(aos(home.0.path(), &["daemon", "start"]).output().unwrap().status.success());
    let mut client = std::os::unix::net::UnixStream::connect(home.0.path().join("run/aosd.sock")).unwrap();
    let chunk = vec![b'x'; 1 << 20];
    // Until the daemon closes the connection.
    while client.write_all(&chunk).is_ok() {}
    let mut answer = String::new();
    let _ = client.read_to_string(&mut answer);
    assert!(answer.contains("-32600"), "{answer}");
    let log = std::fs::read_to_string(home.0.path().join("log/aosd.log")).unwrap();
    assert!(log.contains("WARN") && log.contains("a line is too long"), "{log}");
    assert!(!log.contains("xxxx"), "the log has no content of requests");
}
