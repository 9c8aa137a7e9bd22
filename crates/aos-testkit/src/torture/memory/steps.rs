//! The steps: each gives the daemon one oversized input that could make its memory grow.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use serde_json::{Value, json};

use super::{Scale, Stage};
use crate::client::Client;
use crate::ways::{patch_of, text};

/// A step, by its name in the table.
pub(super) type Step = (&'static str, fn(&mut Stage<'_>) -> Outcome);

pub(super) type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

pub(super) const STEPS: &[Step] = &[
    ("a sparse file of 1 TiB", sparse_file),
    ("a line without end", one_line),
    ("floods of output", floods),
    ("a folder with very many entries", many_entries),
    ("the same folder removed and brought back", many_removed),
    ("a huge patch", huge_patch),
    ("huge lines on the socket", huge_lines),
    ("folders within folders", deep_folders),
    ("a command that makes very many files", many_made),
    ("many sessions", many_sessions),
    ("many connections", many_connections),
];

const TERA: u64 = 1 << 40;

fn sparse_file(stage: &mut Stage<'_>) -> Outcome {
    let file = std::fs::File::create(stage.root.join("sparse"))?;
    file.set_len(TERA)?;
    let update = patch_of("*** Update File: sparse\n@@\n-a\n+b\n");
    for (op, params, allowed) in [
        ("stat", json!({ "path": "sparse" }), "ok"),
        ("read_file", json!({ "path": "sparse" }), "ok"),
        ("read_file", json!({ "path": "sparse", "offset_bytes": TERA / 2, "max_bytes": 1 << 20 }), "ok"),
        ("read_file", json!({ "path": "sparse", "offset_bytes": TERA - 3, "encoding": "bytes" }), "ok"),
        ("edit_file", json!({ "path": "sparse", "old_string": "a", "new_string": "b" }), "error"),
        ("apply_patch", json!({ "patch": text(update) }), "error"),
        ("move", json!({ "from": "sparse", "to": "moved" }), "ok"),
        // The file is larger than a snapshot may be.
        ("remove", json!({ "path": "moved" }), "forbidden"),
    ] {
        stage.fs(op, params, allowed)?;
    }
    if stage.scale.is_patient {
        stage.fs("grep", json!({ "pattern": "needle" }), "ok")?;
    }
    stage.command(&["sh", "-c", "head -c 100000000 moved | wc -c"])?;
    Ok(std::fs::remove_file(stage.root.join("moved"))?)
}

fn one_line(stage: &mut Stage<'_>) -> Outcome {
    let mut file = std::fs::File::create(stage.root.join("line"))?;
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..stage.scale.line_bytes >> 20 {
        file.write_all(&piece)?;
    }
    file.write_all(b"needle\n")?;
    for (op, params, allowed) in [
        ("grep", json!({ "pattern": "needle" }), "ok"),
        ("grep", json!({ "pattern": "x+needle", "path": "line" }), "ok"),
        ("grep", json!({ "pattern": "x", "path": "line", "context_lines": 5 }), "ok"),
        ("read_file", json!({ "path": "line" }), "ok"),
        // The file may be too large to hash while a client waits.
        ("read_file", json!({ "path": "line", "with_hash": true, "max_bytes": 10 }), "ok error"),
        ("edit_file", json!({ "path": "line", "old_string": "needle", "new_string": "b" }), "error ok"),
    ] {
        stage.fs(op, params, allowed)?;
    }
    stage.command(&["cat", "line"])?;
    Ok(std::fs::remove_file(stage.root.join("line"))?)
}

/// Commands with endless output, and with one very long line.
fn floods(stage: &mut Stage<'_>) -> Outcome {
    let line = format!("head -c {} /dev/zero | tr '\\0' x", stage.scale.line_bytes);
    for (argv, written) in [
        (json!(["yes"]), None),
        (json!(["cat", "/dev/zero"]), None),
        (json!(["sh", "-c", "yes & yes >&2"]), None),
        (json!(["sh", "-c", line]), Some(stage.scale.line_bytes)),
    ] {
        let timeout = if written.is_some() { 120_000_000_000_u64 } else { stage.scale.flood_ns };
        let params = json!({ "session_id": stage.session, "argv": argv, "timeout_ns": timeout });
        let receipt = stage.effect("host.exec", &params, "ok timeout")?;
        if written.is_some_and(|written| receipt["stdout_bytes"] != written) {
            return Err(format!("{argv}: {receipt}").into());
        }
    }
    Ok(())
}

fn many_entries(stage: &mut Stage<'_>) -> Outcome {
    let folder = stage.root.join("many");
    std::fs::create_dir(&folder)?;
    for number in 0..stage.scale.entries {
        std::fs::File::create(folder.join(format!("entry-{number:07}")))?;
    }
    for (op, params, allowed) in [
        ("list_dir", json!({ "path": "many" }), "ok"),
        ("list_dir", json!({ "path": "many", "max_results": 1_000_000 }), "ok"),
        ("glob", json!({ "pattern": "**/*7" }), "ok"),
        ("glob", json!({ "pattern": "many/*", "max_results": 1_000_000 }), "ok"),
        ("grep", json!({ "pattern": "needle" }), "ok"),
        ("stat", json!({ "path": "many/entry-0000007" }), "ok"),
        ("write_file", json!({ "path": "many/one-more", "content": text("x") }), "ok"),
    ] {
        stage.fs(op, params, allowed)?;
    }
    stage.command(&["sh", "-c", "ls -f many | wc -l"])
}

fn many_removed(stage: &mut Stage<'_>) -> Outcome {
    let before = std::fs::read_dir(stage.root.join("many"))?.count();
    let receipt = stage.fs("remove", json!({ "path": "many", "recursive": true }), "ok forbidden")?;
    if receipt["status"] == "ok" {
        stage.fs("rollback", json!({}), "ok")?;
    }
    let now = std::fs::read_dir(stage.root.join("many"))?.count();
    if now != before {
        return Err(format!("{now} of {before} entries came back").into());
    }
    Ok(std::fs::remove_dir_all(stage.root.join("many"))?)
}

/// A patch as large as a line of the socket allows, and a patch of very many files.
fn huge_patch(stage: &mut Stage<'_>) -> Outcome {
    let line = "a line of some length that is added to a file\n";
    let large: String = (0..(14 << 20) / (line.len() + 4)).map(|_| format!("+{line}")).collect();
    let large = patch_of(&format!("*** Add File: large\n{large}"));
    stage.fs("apply_patch", json!({ "patch": text(large) }), "ok")?;
    let mut pieces = String::new();
    for number in 0..stage.scale.pieces {
        let _ = write!(pieces, "*** Add File: pieces/{number}\n+piece\n");
    }
    stage.fs("apply_patch", json!({ "patch": text(patch_of(&pieces)) }), "ok")?;
    stage.back_and_forth()?;
    stage.fs("rollback", json!({}), "ok")?;
    Ok(())
}

/// Lines that are too long for the socket, and shorter ones that are not requests, all sent at once.
fn huge_lines(stage: &mut Stage<'_>) -> Outcome {
    let home = &stage.setup.home;
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..8).map(|number| scope.spawn(move || send_a_line(home, number))).collect();
        senders.into_iter().try_for_each(|sender| sender.join().map_err(|_| "a sender panicked")?)
    })
}

fn send_a_line(home: &Path, number: usize) -> Outcome {
    let mut client = Client::connect(home)?;
    let length = if number.is_multiple_of(2) { 40 << 20 } else { 15 << 20 };
    // Deep nesting, a long string, and plain text: none of them is a request.
    let piece = ["[", "\"", "{\"a\":", "a"][number / 2 % 4];
    let answer = client.raw(&piece.repeat(length / piece.len()));
    match answer {
        Some(answer) if answer["error"]["code"].as_i64().is_some_and(|code| code < 0) => Ok(()),
        // The daemon may close the connection when a line is too long.
        None if number.is_multiple_of(2) => Ok(()),
        other => Err(format!("a line of {length} bytes was answered {other:?}").into()),
    }
}

fn deep_folders(stage: &mut Stage<'_>) -> Outcome {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |dir: &OwnedFd, name: &str| rustix::fs::openat(dir, name, flags, Mode::empty());
    let root = rustix::fs::openat(CWD, &stage.root, flags, Mode::empty())?;
    let dig = |dir: OwnedFd, _: usize| {
        let _ = rustix::fs::mkdirat(&dir, "deep", Mode::from_raw_mode(0o755));
        open(&dir, "deep").unwrap_or(dir)
    };
    (0..stage.scale.levels).fold(root, dig);
    for (op, params, allowed) in [
        ("list_dir", json!({ "path": "deep" }), "ok"),
        ("glob", json!({ "pattern": "**" }), "ok"),
        ("grep", json!({ "pattern": "needle" }), "ok"),
        ("remove", json!({ "path": "deep", "recursive": true }), "forbidden"),
        ("move", json!({ "from": "deep", "to": "moved-deep" }), "forbidden"),
        ("snapshot", json!({ "scope_id": "deep", "paths": ["deep"] }), "forbidden"),
    ] {
        stage.fs(op, params, allowed)?;
    }
    let removed = std::process::Command::new("rm").arg("-rf").arg(stage.root.join("deep")).status();
    if removed.is_ok_and(|status| status.success()) { Ok(()) } else { Err("rm failed".into()) }
}

fn many_made(stage: &mut Stage<'_>) -> Outcome {
    let script = "mkdir 'made'; for my $n (1..shift) { open(my $f, '>', \"made/file-$n\"); print $f $n }";
    for (count, allowed) in [(stage.scale.pieces, "ok"), (stage.scale.made, "ok forbidden")] {
        let argv = json!(["perl", "-e", script, count.to_string()]);
        let params = json!({ "session_id": stage.session, "argv": argv });
        if stage.effect("host.exec", &params, allowed)?["status"] == "ok" {
            stage.back_and_forth()?;
        }
    }
    if stage.root.join("made").exists() { Err("something landed and stayed".into()) } else { Ok(()) }
}

fn many_sessions(stage: &mut Stage<'_>) -> Outcome {
    let root = stage.root.clone();
    let sessions: Vec<String> =
        (0..stage.scale.sessions).map(|_| stage.client.open(&root)).collect::<Result<_, _>>()?;
    stage.effect("host.session.list", &json!({}), "ok")?;
    for session in sessions {
        let close = json!({ "session_id": session, "signal": "kill" });
        stage.effect("host.session.signal", &close, "signaled")?;
    }
    Ok(())
}

fn many_connections(stage: &mut Stage<'_>) -> Outcome {
    let params = json!({ "session_id": stage.session, "path": "." });
    let mut clients = Vec::new();
    for _ in 0..stage.scale.connections {
        let mut client = Client::connect(&stage.setup.home)?;
        client.try_effect("host.fs.stat", &params, "many").ok_or("the daemon hung up")?;
        clients.push(client);
    }
    let all = clients.iter_mut().map(|client| client.try_effect("host.fs.stat", &params, "again"));
    let answered =
        all.filter(|answer| answer.as_ref().is_some_and(|answer| answer["status"] == "ok")).count();
    if answered == stage.scale.connections {
        return Ok(());
    }
    Err(format!("{answered} of {} connections were answered", stage.scale.connections).into())
}

impl Scale {
    /// The sizes that the security promise names.
    pub const FULL: Scale = Scale {
        line_bytes: 1_000_000_000,
        entries: 1_000_000,
        pieces: 79_000,
        levels: 20_000,
        made: 1_000_000,
        sessions: 4_000,
        connections: 1_000,
        flood_ns: 5_000_000_000,
        is_patient: true,
    };
    /// Small sizes for a run of a few seconds.
    pub const SHORT: Scale = Scale {
        line_bytes: 48 << 20,
        entries: 3_000,
        pieces: 1_000,
        levels: 1_000,
        made: 1_000,
        sessions: 100,
        connections: 100,
        flood_ns: 300_000_000,
        is_patient: false,
    };
}

impl Stage<'_> {
    /// One effect that must end in one of the statuses in `allowed`.
    fn effect(&mut self, kind: &str, params: &Value, allowed: &str) -> Result<Value, String> {
        let receipt =
            self.client.try_effect(kind, params, "step").ok_or_else(|| format!("{kind}: no answer"))?;
        let status = receipt["status"].as_str().unwrap_or("none");
        if allowed.split(' ').any(|word| word == status) {
            return Ok(receipt);
        }
        let told: String = receipt.to_string().chars().take(500).collect();
        Err(format!("{kind}: expected {allowed}, got {told}"))
    }

    /// Undoes the last turn, redoes it, and undoes it again.
    fn back_and_forth(&mut self) -> Result<(), String> {
        ["rollback", "redo", "rollback"].into_iter().try_for_each(|op| self.fs(op, json!({}), "ok").map(drop))
    }

    fn fs(&mut self, op: &str, mut params: Value, allowed: &str) -> Result<Value, String> {
        params["session_id"] = json!(self.session);
        self.effect(&format!("host.fs.{op}"), &params, allowed)
    }

    fn command(&mut self, argv: &[&str]) -> Outcome {
        let params = json!({ "session_id": self.session, "argv": argv });
        self.effect("host.exec", &params, "ok")?;
        Ok(())
    }
}
