//! The world of a case: a root `$R`, a sibling `$O` with a secret, a home `$D` and a daemon of its own.

#[path = "../../../../xtask/src/torture/ways.rs"]
pub mod ways;

// The torturer's too.
#[path = "../../../../xtask/src/torture/tracer.rs"]
pub(crate) mod tracer;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

#[allow(unused_imports, reason = "not every test program traces")]
pub(crate) use tracer::Tracer;

pub const AOS: &str = env!("CARGO_BIN_EXE_aos");
pub const AOSD: &str = env!("CARGO_BIN_EXE_aosd");

/// What a case comes to: nothing, or what went wrong.
pub type Outcome = Result<(), String>;

/// What a machine may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    Root,
    Strace,
    Loop,
    /// A door or a tool that a later part of the product brings; the text says which.
    Later(&'static str),
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn has(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    path.split(':').any(|dir| Path::new(dir).join(program).exists())
}

/// Why a need cannot be met here, if it cannot.
pub fn lacking(need: Need) -> Option<String> {
    match need {
        Need::Root => (!is_root()).then(|| "needs root".into()),
        Need::Strace => (!has("strace")).then(|| "needs strace".into()),
        Need::Loop => (!is_root() || !has("mkfs.ext4") || !Path::new("/dev/loop-control").exists())
            .then(|| "needs root, mkfs.ext4 and loop devices".into()),
        Need::Later(what) => Some(format!("comes with {what}")),
    }
}

/// How a daemon is started.
#[derive(Debug, Clone, Default)]
pub struct Start {
    pub power: bool,
    /// Words before `aosd`, for example `strace -f -e inject=…`.
    pub wrapper: Vec<String>,
    /// Run as this uid and gid (only root can ask for it).
    pub uid: Option<u32>,
    pub env: Vec<(String, String)>,
}

pub struct World {
    _dir: tempfile::TempDir,
    /// `$P`: the parent of root and outside.
    pub parent: PathBuf,
    /// `$R`, whose name is `ws`.
    pub root: PathBuf,
    /// `$O`, with the canary in `secret`.
    pub outside: PathBuf,
    /// `$D`.
    pub home: PathBuf,
    pub canary: String,
    outside_before: BTreeMap<PathBuf, String>,
    daemon: Option<Child>,
    start: Start,
    answers: Arc<Mutex<Vec<String>>>,
    /// Receipts that are not of the contract's shape, whatever their case expected.
    malformed: Arc<Mutex<Vec<String>>>,
    aosd: PathBuf,
    mounted: Vec<PathBuf>,
}

impl World {
    /// A world whose daemon runs.
    pub fn new() -> World {
        World::with(Start::default())
    }

    pub fn with(start: Start) -> World {
        let mut world = World::asleep(start);
        world.start_daemon();
        world
    }

    /// A world whose daemon is not started yet.
    pub fn asleep(start: Start) -> World {
        let dir = tempfile::Builder::new().prefix("aos-attack-").tempdir().expect("a temporary folder");
        // What the daemon of another uid must reach may not be closed to it.
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let parent = dir.path().canonicalize().unwrap();
        let (root, outside, home) = (parent.join("ws"), parent.join("outside"), parent.join("home"));
        for folder in [&root, &outside, &home] {
            std::fs::create_dir(folder).unwrap();
        }
        let canary = format!("CANARY-{:016x}", rand());
        std::fs::write(outside.join("secret"), format!("{canary}\n")).unwrap();
        if let Some(uid) = start.uid {
            for folder in [&root, &home] {
                std::os::unix::fs::chown(folder, Some(uid), Some(uid)).unwrap();
            }
        }
        let outside_before = tree(&outside);
        let aosd = daemon_for(start.uid, &parent);
        World {
            _dir: dir,
            parent,
            root,
            outside,
            home,
            canary,
            outside_before,
            daemon: None,
            start,
            answers: Arc::default(),
            malformed: Arc::default(),
            aosd,
            mounted: Vec::new(),
        }
    }

    pub fn start_daemon(&mut self) {
        self.try_start_daemon().expect("the daemon starts");
    }

    /// Starts the daemon and waits until it answers or ends. The error is what it said.
    pub fn try_start_daemon(&mut self) -> Result<(), String> {
        use std::os::unix::process::CommandExt as _;
        let mut words = self.start.wrapper.clone();
        words.push(self.aosd.to_str().expect("the path of aosd is text").into());
        if self.start.power {
            words.extend(["--durability".into(), "power".into()]);
        }
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .env_clear()
            .env("AOS_HOME", &self.home)
            .env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command
            .envs(self.start.env.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if let Some(uid) = self.start.uid {
            command.uid(uid).gid(uid);
        }
        let mut child = command.spawn().map_err(|why| why.to_string())?;
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if connect(&self.home).is_ok() {
                self.daemon = Some(child);
                return Ok(());
            }
            if child.try_wait().unwrap().is_some() || Instant::now() > deadline {
                let _ = child.kill();
                let output = child.wait_with_output().map_err(|why| why.to_string())?;
                return Err(String::from_utf8_lossy(&output.stderr).into_owned());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The pid of `aosd` itself, also under a wrapper.
    pub fn daemon_pid(&self) -> i32 {
        let status: Value =
            serde_json::from_str(&self.client().rpc("daemon.status", json!({})).to_string()).unwrap();
        status["result"]["pid"].as_i64().expect("the daemon tells its pid") as i32
    }

    pub fn kill9(&mut self) {
        if let Some(mut child) = self.daemon.take() {
            if !self.start.wrapper.is_empty() {
                let pid = self.daemon_pid();
                signal(pid, rustix::process::Signal::KILL);
            } else {
                let _ = child.kill();
            }
            let _ = child.wait();
        }
    }

    /// SIGTERM; returns how long the stop took.
    pub fn terminate(&mut self) -> Duration {
        let pid = self.daemon_pid();
        let begun = Instant::now();
        signal(pid, rustix::process::Signal::TERM);
        if let Some(mut child) = self.daemon.take() {
            let _ = child.wait();
        }
        begun.elapsed()
    }

    /// Waits for a daemon that ends by itself (or was killed from inside) and forgets it.
    pub fn reap(&mut self) {
        if let Some(mut child) = self.daemon.take() {
            let _ = child.wait();
        }
    }

    pub fn restart(&mut self, start: Start) {
        self.kill9();
        self.start = start;
        self.start_daemon();
    }

    /// As `restart`, for a daemon that may not start.
    pub fn try_restart(&mut self, start: Start) -> Result<(), String> {
        self.kill9();
        self.start = start;
        self.try_start_daemon()
    }

    /// A connection whose answers are searched for the canary at the end.
    pub fn client(&self) -> Client {
        Client {
            reader: BufReader::new(connect(&self.home).expect("the daemon accepts")),
            next: 1,
            answers: self.answers.clone(),
            malformed: self.malformed.clone(),
            quiet: None,
        }
    }

    /// Opens a session on `$R`; `extra` is merged into the params (`capability`, `policy`, …).
    pub fn open(&self, extra: Value) -> String {
        let receipt = self.open_receipt(extra);
        receipt["session_id"].as_str().unwrap_or_else(|| panic!("no session: {receipt}")).to_owned()
    }

    pub fn open_receipt(&self, extra: Value) -> Value {
        let mut params = json!({ "target": { "local": { "workdir": self.root } } });
        for (key, value) in extra.as_object().cloned().unwrap_or_default() {
            params[key] = value;
        }
        self.client().effect("host.session.open", params)
    }

    /// Something that came out of another door, to be searched for the canary too.
    pub fn heard(&self, answer: String) {
        self.answers.lock().unwrap().push(answer);
    }

    /// The client program on this home, with its exit code and output.
    pub fn aos(&self, arguments: &[&str]) -> (i32, String, String) {
        let output = Command::new(AOS)
            .args(arguments)
            .env("AOS_HOME", &self.home)
            .current_dir(&self.parent)
            .stdin(Stdio::null())
            .output()
            .expect("aos runs");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let (out, err) = (text(output.stdout), text(output.stderr));
        self.answers.lock().unwrap().extend([out.clone(), err.clone()]);
        (output.status.code().unwrap_or(-1), out, err)
    }

    /// Resident memory of the daemon in bytes.
    pub fn rss(&self) -> u64 {
        self.memory("VmRSS")
    }

    /// The most memory that the daemon ever held, in bytes.
    pub fn rss_peak(&self) -> u64 {
        self.memory("VmHWM")
    }

    fn memory(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.daemon_pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    pub fn open_descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.daemon_pid())).unwrap().count()
    }

    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        if let Some(uid) = self.start.uid {
            std::os::unix::fs::chown(&path, Some(uid), Some(uid)).unwrap();
        }
        path
    }

    pub fn read(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.root.join(path)).unwrap_or_default()
    }

    pub fn link(&self, target: impl AsRef<Path>, path: &str) {
        std::os::unix::fs::symlink(target, self.root.join(path)).unwrap();
    }

    /// What must hold after every case. Starts the daemon again when the case left none.
    pub fn finish(mut self) -> Outcome {
        if self.daemon.is_none() {
            self.start = Start { uid: self.start.uid, ..Start::default() };
            self.try_start_daemon().map_err(|why| format!("the daemon does not start again: {why}"))?;
        }
        let asked = Instant::now();
        let receipt = self.client().effect("host.session.list", json!({}));
        check(receipt["status"] == "ok", || format!("the daemon answers {receipt}"))?;
        check(asked.elapsed() < Duration::from_secs(1), || {
            "the daemon did not answer within a second".into()
        })?;
        check(tree(&self.outside) == self.outside_before, || "$O was changed".into())?;
        let answers = std::mem::take(&mut *self.answers.lock().unwrap());
        check(!answers.iter().any(|answer| answer.contains(&self.canary)), || {
            "the canary stands in an answer".into()
        })?;
        let malformed = std::mem::take(&mut *self.malformed.lock().unwrap());
        check(malformed.is_empty(), || malformed.join("\n"))?;
        for (path, _) in tree(&self.root) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            check(!name.starts_with(".aos-tmp-"), || {
                format!("a temporary file was left: {}", path.display())
            })?;
        }
        let (code, out, err) = self.aos(&["verify"]);
        check(code == 0, || format!("aos verify: {code}\n{out}{err}"))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(mut child) = self.daemon.take() {
            // A wrapper that is killed lets go of the daemon: that one goes first.
            for pid in started_by(child.id()) {
                signal(pid, rustix::process::Signal::KILL);
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        for path in &self.mounted {
            let _ = Command::new("umount").arg("--lazy").arg(path).status();
        }
    }
}

/// The processes that `pid` and its children started and that still run.
fn started_by(pid: u32) -> Vec<i32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = list.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok());
    children.flat_map(|child| [vec![child as i32], started_by(child)].concat()).collect()
}

/// The daemon's program, copied to where `uid` can reach it when a build folder is closed to others.
fn daemon_for(uid: Option<u32>, parent: &Path) -> PathBuf {
    let open = |path: &Path| path.metadata().is_ok_and(|meta| meta.mode() & 0o001 != 0);
    let built = PathBuf::from(AOSD);
    if uid.is_none() || built.ancestors().all(open) {
        return built;
    }
    let copy = parent.join("aosd");
    std::fs::copy(&built, &copy).unwrap();
    std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).unwrap();
    copy
}

pub fn signal(pid: i32, signal: rustix::process::Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

fn connect(home: &Path) -> std::io::Result<UnixStream> {
    UnixStream::connect(home.join("run/aosd.sock"))
}

/// Fails a case with a sentence.
pub fn check(holds: bool, why: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(why()) }
}

/// `status` or `status / error_code` of a receipt.
pub fn verdict(receipt: &Value) -> String {
    let text = |name: &str| receipt[name].as_str().unwrap_or_default();
    if receipt["error_code"].is_null() {
        text("status").into()
    } else {
        format!("{} / {}", text("status"), text("error_code"))
    }
}

/// Expects one of `allowed`, each written as `forbidden / path_outside_roots`, `ok`, or a status alone for any code.
pub fn expect(what: &str, receipt: &Value, allowed: &[&str]) -> Outcome {
    let found = verdict(receipt);
    let fits = |want: &&str| found == **want || (!want.contains(" / ") && receipt["status"] == **want);
    check(allowed.iter().any(fits), || format!("{what}: expected {allowed:?}, got {found}: {receipt}"))
}

pub fn rand() -> u64 {
    let mut bytes = [0; 8];
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u64::from_ne_bytes(bytes)
}

/// Every path below `dir` with its kind, mode and content, for comparing before and after.
pub fn tree(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let Ok(entries) = std::fs::read_dir(dir) else { return found };
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(meta) = path.symlink_metadata() else { continue };
        let kind = meta.file_type();
        let content = if kind.is_symlink() {
            format!("link {:?}", std::fs::read_link(&path).ok())
        } else if kind.is_dir() {
            found.extend(tree(&path));
            "dir".into()
        } else if kind.is_file() {
            format!(
                "file {:o} {}",
                meta.mode() & 0o7777,
                aos_model::request::content_hash(&std::fs::read(&path).unwrap_or_default())
            )
        } else {
            "other".into()
        };
        found.insert(path, content);
    }
    found
}

/// One connection to the daemon.
pub struct Client {
    reader: BufReader<UnixStream>,
    next: u64,
    answers: Arc<Mutex<Vec<String>>>,
    malformed: Arc<Mutex<Vec<String>>>,
    /// The canary, when answers are searched at once and not kept.
    quiet: Option<String>,
}

impl Client {
    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.reader.get_ref().write_all(bytes)
    }

    /// The next line, or `None` when the daemon closed the connection.
    pub fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(n) if n > 0 => {
                match &self.quiet {
                    Some(canary) => assert!(!line.contains(canary), "the canary stands in an answer"),
                    None => self.answers.lock().unwrap().push(line.clone()),
                }
                Some(line)
            }
            _ => None,
        }
    }

    /// A whole answer envelope; `Value::Null` when the connection ended.
    pub fn rpc(&mut self, method: &str, params: Value) -> Value {
        let id = self.next;
        self.next += 1;
        let line =
            json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string() + "\n";
        if self.send(line.as_bytes()).is_err() {
            return Value::Null;
        }
        loop {
            let Some(line) = self.line() else { return Value::Null };
            let answer: Value = serde_json::from_str(&line).expect("an answer is JSON");
            // A notification tells of a command that still runs; the answer has an id.
            if answer.get("id").is_some() {
                return answer;
            }
        }
    }

    /// One effect; its receipt, or `Value::Null` when the daemon died.
    pub fn effect(&mut self, kind: &str, params: Value) -> Value {
        self.effect_of(kind, params, None)
    }

    pub fn effect_of(&mut self, kind: &str, params: Value, tool_call: Option<&str>) -> Value {
        let mut call = json!({ "kind": kind, "params": params });
        if let Some(id) = tool_call {
            call["tool_call_id"] = json!(id);
        }
        let answer = self.rpc("effect.call", call);
        answer.get("result").cloned().unwrap_or(answer)
    }

    pub fn stream(&self) -> &UnixStream {
        self.reader.get_ref()
    }
}

/// What later parts of the product bring. Each is turned on with its part; nothing else has to change.
pub const LATER_SEARCH: bool = true; // part B: host.fs.grep and host.fs.glob
pub const LATER_EXEC: bool = true; // part B: host.exec
pub const LATER_UNDO: bool = true; // part C: host.fs.snapshot, host.fs.restore, manifests

/// Runs what the product can do already.
pub fn later(part: bool, run: impl FnOnce() -> Outcome) -> Outcome {
    if part { run() } else { Ok(()) }
}

/// The whole figure of a case that has a short form.
pub fn full_figure(full: usize, short: usize) -> usize {
    if std::env::var_os("AOS_ATTACK_FULL").is_some() { full } else { short }
}

/// Every way to name a path, as `Agent::way` takes them.
pub(crate) use ways::{WAYS, patch_of, request, text};

/// Those of them that look at the last name itself where it is a link.
pub const WAYS_TO_A_LINK: &[&str] =
    &["patch_delete", "no_follow", "remove", "move_from", "move_to", "make_dir"];

/// All ways that the product has by now.
pub fn ways() -> Vec<&'static str> {
    let search: &[&str] = if LATER_SEARCH { &["grep", "glob"] } else { &[] };
    [WAYS, search].concat()
}

/// The ways that follow a link in the last name.
pub fn following_ways() -> Vec<&'static str> {
    ways().into_iter().filter(|way| !WAYS_TO_A_LINK.contains(way)).collect()
}

/// The statuses that the contract gives to each file effect.
fn statuses(op: &str) -> &'static [&'static str] {
    match op {
        "read_file" => &["ok", "not_found", "is_directory", "forbidden", "error"],
        "write_file" | "make_dir" => &["ok", "conflict", "forbidden", "error"],
        "edit_file" => &["ok", "not_found", "ambiguous", "conflict", "forbidden", "error"],
        "apply_patch" => &["ok", "parse_error", "reject", "not_found", "forbidden", "error"],
        "grep" => &["ok", "invalid_regex", "not_found", "forbidden", "error"],
        "glob" => &["ok", "invalid_pattern", "not_found", "forbidden", "error"],
        "stat" | "list_dir" | "remove" => &["ok", "not_found", "forbidden", "error"],
        "exists" => &["ok", "forbidden", "error"],
        "move" | "restore" => &["ok", "not_found", "conflict", "forbidden", "error"],
        "snapshot" => &["ok", "forbidden", "error"],
        "list_snapshots" => &["ok", "error"],
        "drop_snapshot" => &["ok", "not_found", "error"],
        // The contract names no `forbidden` for these two, but they are policed like any other mutation.
        "rollback" => &["ok", "nothing_to_roll_back", "conflict", "forbidden", "error"],
        "redo" => &["ok", "nothing_to_redo", "conflict", "forbidden", "error"],
        _ => &[],
    }
}

/// What holds for every receipt of a file effect, whatever was asked.
fn well_formed(op: &str, receipt: &Value) -> Outcome {
    // A daemon that died answers nothing; the case says whether it may.
    if receipt.is_null() {
        return Ok(());
    }
    let status = receipt["status"].as_str().unwrap_or_default();
    check(statuses(op).is_empty() || statuses(op).contains(&status), || {
        format!("the contract has no status `{status}` here")
    })?;
    let told = |name: &str| receipt[name].as_str().is_some_and(|text| !text.is_empty());
    check(told("error_code") == (status != "ok") && told("error_message") == (status != "ok"), || {
        "a refusal says code and sentence, a success neither".into()
    })
}

/// A connection that speaks for one session.
pub struct Agent {
    pub client: Client,
    pub session: String,
}

impl Agent {
    /// `host.fs.<op>`; the session is filled in.
    pub fn fs(&mut self, op: &str, mut params: Value) -> Value {
        params["session_id"] = json!(self.session);
        let receipt = self.client.effect(&format!("host.fs.{op}"), params);
        if let Err(why) = well_formed(op, &receipt) {
            self.client.malformed.lock().unwrap().push(format!("host.fs.{op}: {why}: {receipt}"));
        }
        receipt
    }

    pub fn way(&mut self, way: &str, path: &str) -> Value {
        let (op, params) = request(way, path);
        self.fs(op, params)
    }

    pub fn write(&mut self, path: &str, content: &str) -> Value {
        self.fs("write_file", json!({ "path": path, "content": text(content) }))
    }

    pub fn edit(&mut self, path: &str, old: &str, new: &str) -> Value {
        self.fs("edit_file", json!({ "path": path, "old_string": old, "new_string": new }))
    }

    pub fn patch(&mut self, sections: &str) -> Value {
        self.fs("apply_patch", json!({ "patch": text(patch_of(sections)) }))
    }
}

/// What a later part of the product brings. Each of these is switched on here and nowhere else.
pub const LATER_RESTORE: bool = true; // part C: host.fs.restore, host.fs.snapshot
pub const LATER_TOOL: bool = true; // part E: aos tool call

/// Descriptors that may come on top by and by: SQLite opens its files once more when it first checkpoints, and a
/// session its folder of pre-images when it first changes something.
pub const DESCRIPTORS_SLACK: usize = 5;

/// `AOS_ATTACK_FULL=1` asks for the long form of the cases that have one.
pub fn is_full() -> bool {
    std::env::var_os("AOS_ATTACK_FULL").is_some_and(|value| value == "1")
}

/// Gathers what is wrong, so that one failure does not hide the next.
#[derive(Default)]
pub struct Findings(Vec<String>);

impl Findings {
    pub fn add(&mut self, outcome: Outcome) {
        self.0.extend(outcome.err());
    }

    pub fn outcome(self) -> Outcome {
        check(self.0.is_empty(), || self.0.join("\n"))
    }
}

/// A small generator of its own, so that a printed seed brings the same run again.
pub struct Dice {
    pub seed: u64,
    state: u64,
}

impl Dice {
    /// `AOS_ATTACK_SEED` repeats a run.
    pub fn new() -> Dice {
        let given = std::env::var("AOS_ATTACK_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(rand);
        Dice { seed, state: seed | 1 }
    }

    /// From 0 to below `sides`.
    pub fn roll(&mut self, sides: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % sides
    }

    pub fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.roll(from.len())]
    }
}

/// Waits for something that is about to happen.
pub fn wait_for(what: &str, mut happened: impl FnMut() -> bool) -> Outcome {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !happened() {
        check(Instant::now() < deadline, || format!("waited in vain for {what}"))?;
        std::thread::yield_now();
    }
    Ok(())
}

/// The params of `host.fs.apply_patch` for these sections.
pub fn patch_params(sections: &str) -> Value {
    json!({ "patch": text(format!("*** Begin Patch\n{sections}*** End Patch\n")) })
}

/// The codes of a receipt's warnings.
pub fn warning_codes(receipt: &Value) -> Vec<&str> {
    let warnings = receipt["warnings"].as_array().map(Vec::as_slice).unwrap_or_default();
    warnings.iter().filter_map(|warning| warning["code"].as_str()).collect()
}

/// A world with one session and one connection to it: all that most cases need.
pub struct Bench {
    pub client: Client,
    pub session: String,
    pub world: World,
}

impl Bench {
    pub fn new() -> Bench {
        Bench::open(json!({}))
    }

    /// With what is given when the session is opened (`capability`, `policy`, …).
    pub fn open(extra: Value) -> Bench {
        Bench::of(World::new(), extra)
    }

    pub fn of(world: World, extra: Value) -> Bench {
        Bench { client: world.client(), session: world.open(extra), world }
    }

    /// `host.fs.<op>` in the session.
    pub fn fs(&mut self, op: &str, params: Value) -> Value {
        self.client.fs(&self.session, op, params)
    }

    /// `host.fs.<op>` that must end in one of `allowed`.
    pub fn must(&mut self, op: &str, params: Value, allowed: &[&str]) -> Outcome {
        self.client.must(&self.session, op, params, allowed)
    }

    pub fn patch(&mut self, sections: &str) -> Value {
        self.fs("apply_patch", patch_params(sections))
    }

    pub fn finish(self) -> Outcome {
        self.world.finish()
    }
}

impl Client {
    /// One effect whose params are spelled by hand, for what no JSON library would write.
    pub fn raw_effect(&mut self, kind: &str, params: &str) -> Value {
        let call = format!("{{\"kind\":\"{kind}\",\"params\":{params}}}");
        let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"effect.call\",\"params\":{call}}}\n");
        self.send(line.as_bytes()).expect("the daemon reads");
        let answer: Value = self.line().map_or(Value::Null, |line| serde_json::from_str(&line).unwrap());
        answer.get("result").cloned().unwrap_or(answer)
    }

    /// `host.fs.<op>` in a session.
    pub fn fs(&mut self, session: &str, op: &str, mut params: Value) -> Value {
        params["session_id"] = json!(session);
        self.effect(&format!("host.fs.{op}"), params)
    }
}

impl Client {
    /// `host.fs.<op>` that must end in one of `allowed`.
    pub fn must(&mut self, session: &str, op: &str, params: Value, allowed: &[&str]) -> Outcome {
        let what = format!("{op} {params}");
        expect(&what, &self.fs(session, op, params), allowed)
    }
}

impl World {
    /// Opens a session and a connection for it.
    pub fn agent(&self, extra: Value) -> Agent {
        Agent { session: self.open(extra), client: self.client() }
    }

    /// Another connection to a session. Its answers are searched for the canary at once and not kept, for many.
    pub fn quiet_agent(&self, session: &str) -> Agent {
        let client = Client { quiet: Some(self.canary.clone()), ..self.client() };
        Agent { session: session.to_owned(), client }
    }

    /// Puts something more into `$O` before the case begins.
    pub fn put_outside(&mut self, name: &str, content: &str) -> PathBuf {
        let path = self.outside.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        self.outside_before = tree(&self.outside);
        path
    }

    /// Mounts a small file system on a folder of this world until its end.
    pub fn mount_tmpfs(&mut self, on: &Path, options: &str) -> Outcome {
        let mut mount = Command::new("mount");
        let output = mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(on).output();
        let output = output.map_err(|why| format!("mount: {why}"))?;
        check(output.status.success(), || String::from_utf8_lossy(&output.stderr).into_owned())?;
        self.mounted.push(on.to_owned());
        Ok(())
    }

    /// Waits until the daemon holds no more descriptors than it did.
    pub fn expect_descriptors(&self, before: usize) -> Outcome {
        // The journal and the bank open a few for good when they are first needed.
        let before = before + 4;
        let deadline = Instant::now() + Duration::from_secs(2);
        loop {
            let now = self.open_descriptors();
            if now <= before {
                return Ok(());
            }
            // Threads of connections that just ended close theirs in their own time.
            check(Instant::now() < deadline, || format!("{now} descriptors are open, {before} were"))?;
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Runs something that must answer in time. The limits are those of a machine that is ours alone: on one that others
/// use too, everybody gets a share.
pub fn timed<T>(limit: Duration, what: &str, run: impl FnOnce() -> T) -> Result<T, String> {
    let begun = Instant::now();
    let outcome = run();
    let took = begun.elapsed();
    let limit = limit.mul_f64(crowding());
    check(took < limit, || format!("{what}: took {took:?}, more than {limit:?}"))?;
    Ok(outcome)
}

/// How many want each core; 1 when there is room for all.
fn crowding() -> f64 {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = load.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(1.0);
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    (load / cores).clamp(1.0, 20.0)
}

/// Strace on a running daemon, which lets go of it at the end.
pub struct Injection(Child);

impl Injection {
    pub fn attach(pid: i32, inject: &str) -> Result<Injection, String> {
        let mut strace = Command::new("strace")
            .args(["-f", "-o", "/dev/null", "-e", inject, "-p", &pid.to_string()])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|why| format!("strace: {why}"))?;
        let mut said = String::new();
        let mut lines = BufReader::new(strace.stderr.take().expect("it was piped"));
        while !said.contains("attached") {
            let heard = lines.read_line(&mut said).map_err(|why| why.to_string())?;
            check(heard > 0, || format!("strace does not attach: {said}"))?;
        }
        // It goes on talking; somebody has to listen.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Ok(Injection(strace))
    }
}

impl Drop for Injection {
    fn drop(&mut self) {
        // Asked kindly, strace waits for a daemon that is just ending; the kernel lets go of it either way.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl World {
    /// The entries of the journal, as `aos log --json` gives them.
    pub fn journal(&self) -> Vec<Value> {
        let (_, out, _) = self.aos(&["log", "--json"]);
        out.lines().map(|line| serde_json::from_str(line).expect("an entry is JSON")).collect()
    }

    /// The entries of one tool call in a session.
    pub fn entries_of(&self, session: &str, tool_call: &str) -> Vec<Value> {
        let (_, out, _) = self.aos(&["log", "--json", "--session", session]);
        let entries = out.lines().map(|line| serde_json::from_str(line).expect("an entry is JSON"));
        entries.filter(|entry: &Value| entry["tool_call_id"] == tool_call).collect()
    }

    /// Stores a blob as the operator would; its reference.
    pub fn blob(&self, bytes: &[u8]) -> String {
        let file = self.parent.join("blob");
        std::fs::write(&file, bytes).unwrap();
        let (code, out, err) = self.aos(&["blob", "put", file.to_str().unwrap()]);
        assert_eq!(code, 0, "aos blob put: {err}");
        out.trim().to_owned()
    }

    /// How the next daemon is started.
    pub fn set_start(&mut self, start: Start) {
        self.start = start;
    }

    /// A connection that does not wait for ever: an answer that never comes is a failure, not a hang.
    pub fn patient_client(&self) -> Client {
        let client = self.client();
        client.stream().set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        client
    }
}

/// How a program that was given a time ended.
pub struct Ran {
    /// `None` when a signal ended it, ours included.
    pub code: Option<i32>,
    /// Standard output and standard error.
    pub said: String,
}

/// Runs a program on a home, and kills it when it takes too long.
pub fn run_bounded(home: &Path, words: &[&str], limit: Duration) -> Ran {
    let said = tempfile::NamedTempFile::new().unwrap();
    let mut child = Command::new(words[0])
        .args(&words[1..])
        .env("AOS_HOME", home)
        .stdin(Stdio::null())
        .stdout(said.reopen().unwrap())
        .stderr(said.reopen().unwrap())
        .spawn()
        .expect("the program starts");
    let deadline = Instant::now() + limit;
    while child.try_wait().unwrap().is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
    let _ = child.kill();
    let code = child.wait().unwrap().code();
    Ran { code, said: String::from_utf8_lossy(&std::fs::read(said.path()).unwrap()).into_owned() }
}
