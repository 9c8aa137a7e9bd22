//! A home made by an attacker: every program that reads it ends in time and touches nothing outside it.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use aos_store::{Append, Journal as _};
use aos_testkit::{Findings, Programs, World, check, new_seed, run_bounded, signal, text, tree, wait_for};
use serde_json::{Value, json};

use super::shown;
use super::stranger::Stranger;
use crate::Outcome;

/// A home made by an attacker, a folder that it targets, and a folder that its sessions may name.
struct Evil {
    home: PathBuf,
    victim: PathBuf,
    root: PathBuf,
    before: (BTreeMap<PathBuf, String>, BTreeMap<PathBuf, String>),
}

/// A program that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

impl Evil {
    fn new(world: &World, name: &str) -> Evil {
        let dir = world.parent.join(name);
        let (home, victim, root) = (dir.join("home"), dir.join("victim"), dir.join("root"));
        for folder in [&victim, &root] {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(folder.join("keep"), "kept\n").unwrap();
            // Named like a blob and old enough to be collected as garbage.
            std::fs::write(folder.join("0".repeat(62)), "old\n").unwrap();
            let old = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
            std::fs::File::open(folder.join("0".repeat(62))).unwrap().set_modified(old).unwrap();
        }
        std::fs::create_dir(&home).unwrap();
        std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o700)).unwrap();
        let before = (tree(&victim), tree(&root));
        Evil { home, victim, root, before }
    }

    /// The relative path from `state/…` in the home to the victim.
    fn to_victim(&self, depth: usize) -> String {
        format!("{}victim", "../".repeat(depth + 2))
    }

    fn journal(&self) -> aos_store::SqliteJournal {
        let home = aos_store::Home::open(&self.home).expect("a home");
        let journal = aos_store::SqliteJournal::open(&home, aos_model::receipt::Durability::Process);
        // The daemon creates these under its own umask; the test's umask is wider.
        for name in ["journal.db", "journal.db-wal", "journal.db-shm"] {
            let private = std::fs::Permissions::from_mode(0o600);
            let _ = std::fs::set_permissions(self.home.join("state").join(name), private);
        }
        journal.expect("a journal")
    }

    /// Entries with a valid hash chain: an attacker who can write the home can compute it too.
    fn append(&self, entries: &[Value]) {
        let journal = self.journal();
        for entry in entries {
            let body = entry.to_string().into_bytes();
            let effects =
                serde_json::from_slice::<aos_model::entry::Entry<'_>>(&body).expect("an entry").into();
            journal.append(Append { body, effects, closes: None }).expect("the journal takes it");
        }
    }

    fn intend(&self, intents: &[Value]) {
        let journal = self.journal();
        for intent in intents {
            journal.begin_intent(intent.to_string().into_bytes()).expect("the journal takes it");
        }
    }

    /// Runs everything that reads such a home, and checks the time and the victim.
    fn survives(&self, what: &str) -> Outcome {
        let mut findings = Findings::default();
        for words in [
            &["verify"][..],
            &["replay", "--verify"],
            &["log"],
            &["log", "--json"],
            &["show", "1"],
            &["policy", "explain", "1"],
        ] {
            findings.add(self.bounded(what, words));
        }
        findings.add(self.serves(what));
        findings
            .add(check(tree(&self.victim) == self.before.0, || format!("{what}: the victim was changed")));
        findings.add(check(tree(&self.root) == self.before.1, || format!("{what}: the root was changed")));
        findings.outcome()
    }

    /// The program ends in time, by itself, and without a panic.
    fn bounded(&self, what: &str, words: &[&str]) -> Outcome {
        let ran = run_bounded(&self.home, &Programs::built().aos, words, PATIENCE);
        check(ran.code.is_some() && ran.code != Some(101) && !ran.said.contains("panicked"), || {
            format!("{what}: {:?}: {:?} {:.400}", words, ran.code, ran.said)
        })
    }

    /// A daemon on this home refuses to start with a message, or serves; then gc and the end of every session.
    fn serves(&self, what: &str) -> Outcome {
        let said = self.home.with_extension("said");
        let child = Command::new(&Programs::built().aosd)
            .env("AOS_HOME", &self.home)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&said).unwrap())
            .spawn()
            .unwrap();
        let mut daemon = Stranger { child };
        let socket = self.home.join("run/aosd.sock");
        let _ = wait_for("the daemon", || UnixStream::connect(&socket).is_ok() || daemon.ended().is_some());
        let mut findings = Findings::default();
        if daemon.ended().is_none() {
            for words in [&["gc"][..], &["session", "list", "--all"], &["status"]] {
                findings.add(self.bounded(what, words));
            }
            findings.add(self.ends_sessions(what));
            signal(daemon.child.id() as i32, rustix::process::Signal::TERM);
            let _ = wait_for("the daemon to stop", || daemon.ended().is_some());
        }
        let text = std::fs::read_to_string(&said).unwrap_or_default();
        let code = daemon.ended();
        findings.add(check(
            code.is_some_and(|code| code != 101 && code >= 0) && !text.contains("panicked"),
            || format!("{what}: aosd: exit {code:?}: {text:.400}"),
        ));
        findings.outcome()
    }

    fn ends_sessions(&self, what: &str) -> Outcome {
        let ran = run_bounded(&self.home, &Programs::built().aos, &["call", "host.session.list"], PATIENCE);
        let receipt: Value =
            serde_json::from_str(ran.said.lines().last().unwrap_or_default()).unwrap_or_default();
        let mut findings = Findings::default();
        for session in
            receipt["sessions"].as_array().into_iter().flatten().filter(|one| one["state"] == "open")
        {
            let id = session["session_id"].as_str().unwrap_or_default();
            for (kind, params) in [
                (
                    "host.fs.write_file",
                    json!({ "session_id": id, "path": "keep", "content": text("kept\n") }),
                ),
                ("host.fs.restore", json!({ "session_id": id, "scope_id": "tc_x" })),
                ("host.session.signal", json!({ "session_id": id, "signal": "term" })),
            ] {
                findings.add(self.bounded(what, &["call", kind, &params.to_string()]));
            }
        }
        findings.outcome()
    }

    fn entry(kind: &str, more: Value) -> Value {
        let mut entry = json!({ "at_ns": 1, "kind": kind, "params": {}, "receipt": { "status": "ok" } });
        entry.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        entry
    }

    /// An open session that the attacker invented, on the folder `root`.
    fn session(&self, id: &str, root: &Path) -> Value {
        let meta = root.metadata().unwrap();
        let pinned = json!({ "path": root, "dev": meta.dev(), "ino": meta.ino() });
        json!({ "session_opened": {
            "session_id": id, "state": "open", "started_at_ns": 1, "target": { "local": { "workdir": root } },
            "workdir": pinned, "roots": [pinned], "capability": { "fs_roots": [root] }, "policy": {},
            "isolation": "auto", "auto_snapshot": true, "snapshot_bytes_max": 1, "on_failure": "keep",
        }})
    }

    /// An intent that was never closed, with one mark.
    fn intent(session: &str, mark: Value) -> Value {
        json!({
            "at_ns": 1, "kind": "host.fs.write_file", "session_id": session, "tool_call_id": "tc_x",
            "turn_id": "turn_x", "snapshot_id": "snap_x", "params": {}, "marks": [mark],
        })
    }
}

const GOOD_ID: &str = "hs_00000000000000010000000000000001";

pub(super) fn a_hostile_home() -> Outcome {
    let world = World::new();
    let mut findings = Findings::default();
    for (name, craft) in HOSTILE_HOMES {
        let evil = Evil::new(&world, name);
        craft(&evil);
        findings.add(evil.survives(name));
    }
    findings.add(world.finish());
    findings.outcome()
}

type Craft = fn(&Evil);

const HOSTILE_HOMES: &[(&str, Craft)] = &[
    ("blob names", blob_names),
    ("session names", session_names),
    ("snapshot names", snapshot_names),
    ("an intent of nobody", intent_of_nobody),
    ("an intent outside its roots", intent_outside_its_roots),
    ("an intent with a path for a temporary name", intent_with_a_path),
    ("an intent with a path for the name of a pre-image", intent_with_a_preimage_path),
    ("an intent of a hostile session", intent_of_a_hostile_session),
    ("an intent that is no intent", invalid_intent),
    ("links for folders", links_for_folders),
    ("links for files", links_for_files),
    ("a blob that is a FIFO", blob_that_is_a_fifo),
    ("a blob that is a folder", blob_that_is_a_folder),
    ("links in a circle", links_in_a_circle),
    ("a huge journal", huge_journal),
    ("no journal at all", no_journal),
    ("a huge log", huge_log),
    ("deep and long entries", deep_and_long_entries),
];

fn blob_names(evil: &Evil) {
    let names = [
        format!("sha256:{}/keep", evil.to_victim(2)),
        "sha256:../../../../victim/keep".into(),
        format!("sha256:{}", "0".repeat(64)),
        format!("sha256:{}", "A".repeat(64)),
        format!("sha256:00/{}", "0".repeat(61)),
        "sha256:".into(),
        shown(&evil.victim.join("keep")),
        format!("sha256:{}", "0".repeat(1 << 20)),
    ];
    let facts: Vec<Value> = names.iter().map(|name| json!({ "blob_put": { "blob_ref": name } })).collect();
    evil.append(&[Evil::entry("host.fs.read_file", json!({ "blobs": names, "facts": facts }))]);
}

fn session_names(evil: &Evil) {
    let names = [
        evil.to_victim(1),
        shown(&evil.victim),
        "..".into(),
        ".".into(),
        "a/b".into(),
        String::new(),
        "x\ny".into(),
    ];
    let entries: Vec<Value> = names
        .iter()
        .map(|name| {
            Evil::entry(
                "host.session.open",
                json!({ "session_id": name, "facts": [evil.session(name, &evil.root)] }),
            )
        })
        .collect();
    evil.append(&entries);
}

fn snapshot_names(evil: &Evil) {
    let hostile = evil.to_victim(2);
    let image = json!({ "kind": "file", "mode": 420, "size_bytes": 5, "bank": format!("{hostile}/keep") });
    let paths = json!([
        { "path": "keep", "before": image },
        { "path": format!("{}/keep", evil.to_victim(0)), "before": image },
        { "path": shown(&evil.victim.join("keep")), "before": image, "moved_to": "keep" },
    ]);
    let captured = json!({ "captured": {
        "snapshot_id": hostile, "paths": paths,
    }});
    let facts = json!([evil.session(GOOD_ID, &evil.root), captured]);
    evil.append(&[Evil::entry("host.session.open", json!({ "session_id": GOOD_ID, "facts": facts }))]);
}

/// Claims that the victim's file is one that the daemon had just put there, to be removed by the rollback.
fn put_at(dir: &Path, name: &str, temporary: &str, preimage: &str) -> Value {
    let hash = aos_model::request::content_hash(b"kept\n");
    json!({
        "do": "put", "at": { "dir": dir, "name": name, "shown": name }, "temporary": temporary, "bank": preimage,
        "before": null, "after": { "hash": hash, "size": 5, "mode": 420 },
    })
}

fn intent_of_nobody(evil: &Evil) {
    evil.intend(&[Evil::intent(GOOD_ID, put_at(&evil.victim, "keep", ".aos-tmp-x-0", "snap_x.0"))]);
}

fn with_session(evil: &Evil, mark: Value) {
    let facts = json!([evil.session(GOOD_ID, &evil.root)]);
    evil.append(&[Evil::entry("host.session.open", json!({ "session_id": GOOD_ID, "facts": facts }))]);
    evil.intend(&[Evil::intent(GOOD_ID, mark)]);
}

fn intent_outside_its_roots(evil: &Evil) {
    with_session(evil, put_at(&evil.victim, "keep", ".aos-tmp-x-0", "snap_x.0"));
}

fn intent_with_a_path(evil: &Evil) {
    with_session(evil, put_at(&evil.root, "never", "../victim/keep", "snap_x.0"));
}

fn intent_with_a_preimage_path(evil: &Evil) {
    let seen = json!({ "kind": "file", "mode": 420, "dev": 1, "ino": 1, "size": 5, "mtime_ns": 0 });
    with_session(
        evil,
        json!({
            "do": "remove", "at": { "dir": evil.root, "name": "gone", "shown": "gone" }, "temporary": ".aos-tmp-x-0",
            "bank": format!("{}/keep", evil.to_victim(2)), "before": seen,
        }),
    );
}

fn intent_of_a_hostile_session(evil: &Evil) {
    evil.intend(&[Evil::intent(&evil.to_victim(1), put_at(&evil.root, "never", ".aos-tmp-x-0", "snap_x.0"))]);
}

fn invalid_intent(evil: &Evil) {
    evil.journal().begin_intent(b"{\"marks\":".repeat(1_000)).unwrap();
}

fn links_for_folders(evil: &Evil) {
    drop(evil.journal());
    let state = evil.home.join("state");
    for name in ["blobs", "preimages", "snapshots"] {
        let _ = std::fs::remove_dir_all(state.join(name));
    }
    std::fs::create_dir(state.join("blobs")).unwrap();
    std::fs::create_dir(state.join("preimages")).unwrap();
    for name in ["blobs/00", "blobs/ab", "preimages/hs_1", "preimages/victim", "snapshots"] {
        std::os::unix::fs::symlink(&evil.victim, state.join(name)).unwrap();
    }
}

fn links_for_files(evil: &Evil) {
    std::fs::create_dir_all(evil.home.join("run")).unwrap();
    std::fs::create_dir_all(evil.home.join("state")).unwrap();
    std::fs::create_dir_all(evil.home.join("log")).unwrap();
    for name in [
        "log/aosd.log",
        "log/aosd.log.1",
        "run/aosd.lock",
        "run/aosd.sock",
        "state/journal.db",
        "state/journal.db-wal",
    ] {
        std::os::unix::fs::symlink(evil.victim.join("keep"), evil.home.join(name)).unwrap();
    }
}

/// Where a blob of this name would be stored.
fn blob_place(evil: &Evil) -> (String, PathBuf) {
    let name = aos_model::request::content_hash(b"anything");
    let digits = name.strip_prefix("sha256:").unwrap();
    let place = evil.home.join("state/blobs").join(&digits[..2]).join(&digits[2..]);
    evil.append(&[Evil::entry("host.fs.read_file", json!({ "blobs": [name] }))]);
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    (name, place)
}

fn blob_that_is_a_fifo(evil: &Evil) {
    let (_, place) = blob_place(evil);
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &place, rustix::fs::FileType::Fifo, mode, 0).unwrap();
}

fn blob_that_is_a_folder(evil: &Evil) {
    let (_, place) = blob_place(evil);
    std::fs::create_dir(&place).unwrap();
    std::fs::write(place.join("inner"), "x").unwrap();
}

fn links_in_a_circle(evil: &Evil) {
    let (_, place) = blob_place(evil);
    std::os::unix::fs::symlink(&place, &place).unwrap();
    std::os::unix::fs::symlink(".", evil.home.join("state/blobs/cd")).unwrap();
    std::os::unix::fs::symlink("..", evil.home.join("state/blobs/ef")).unwrap();
}

fn huge_journal(evil: &Evil) {
    drop(evil.journal());
    for name in ["state/journal.db", "state/journal.db-wal"] {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(evil.home.join(name)).unwrap();
        file.set_permissions(std::fs::Permissions::from_mode(0o600)).unwrap();
        file.set_len(1 << 40).unwrap();
    }
}

fn no_journal(evil: &Evil) {
    std::fs::create_dir_all(evil.home.join("state")).unwrap();
    let path = evil.home.join("state/journal.db");
    std::fs::write(&path, format!("SQLite format 3\0{}", new_seed()).repeat(4096)).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(64 << 10).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

fn huge_log(evil: &Evil) {
    drop(evil.journal());
    std::fs::create_dir_all(evil.home.join("log")).unwrap();
    std::fs::File::create(evil.home.join("log/aosd.log")).unwrap().set_len(1 << 40).unwrap();
}

fn deep_and_long_entries(evil: &Evil) {
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    let journal = evil.journal();
    for params in [deep.clone(), format!("{{\"path\":{deep}}}"), format!("\"{}\"", "x".repeat(32 << 20))] {
        for (kind, at_ns) in [("host.fs.stat", "18446744073709551615"), (&*"k".repeat(1 << 20), "0")] {
            let body = format!(
                "{{\"at_ns\":{at_ns},\"kind\":\"{kind}\",\"session_id\":\"{GOOD_ID}\",\"params\":{params},\"receipt\":{{\"status\":\"ok\",\"x\":{params}}}}}"
            );
            journal
                .append(Append { body: body.into_bytes(), effects: Default::default(), closes: None })
                .unwrap();
        }
    }
}
