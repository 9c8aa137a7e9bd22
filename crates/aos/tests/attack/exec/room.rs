//! A world with a session whose commands carry a mark, so that every process that they leave behind is found.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use aos_testkit::time::{bound, wait_at_most};
use aos_testkit::{Client, Start, World, check, new_seed, uncaptured, wait_for};
use base64::Engine as _;
use serde_json::{Value, json};

use crate::Outcome;

pub const SECOND: Duration = Duration::from_secs(1);
/// The time that a command may take on top of its limit until it must have ended.
pub const GRACE: Duration = Duration::from_secs(2);

/// No command of a case runs longer than this.
const COMMAND_MAX: Duration = Duration::from_secs(300);

pub fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("the times of tests are short")
}

/// The variable that marks a command and all its descendants.
const MARK: &str = "AOS_ATTACK_MARK";

pub struct Room {
    pub world: World,
    pub session: String,
    pub mark: String,
    /// The sessions that a case opened beside its first.
    others: Mutex<Vec<String>>,
    descriptors: usize,
    threads: usize,
    /// The processes that the daemon keeps running for itself after its first command.
    own: Vec<i32>,
}

impl Room {
    pub fn new() -> Room {
        Room::open(json!({}))
    }

    /// The policy refuses nothing: only the kernel stops a command.
    pub fn permissive() -> Room {
        Room::open(json!({ "policy": { "preset": "permissive" } }))
    }

    /// With extra params for opening the session; `local` is merged into the target.
    pub fn open(extra: Value) -> Room {
        Room::of(World::new(), extra)
    }

    pub fn of(world: World, extra: Value) -> Room {
        let mark = format!("{:016x}", new_seed());
        let session = world.open(with_target(&world, extra, &[(MARK, &mark)]));
        Room::with(world, session, mark)
    }

    /// A session without the mark: its environment is exactly the one that the product makes.
    pub fn unmarked(world: World, extra: Value) -> Room {
        let session = world.open(with_target(&world, extra, &[]));
        Room::with(world, session, "unmarked".to_owned() + &new_seed().to_string())
    }

    fn with(world: World, session: String, mark: String) -> Room {
        let mut room = Room {
            world,
            session,
            mark,
            others: Mutex::default(),
            descriptors: 0,
            threads: 0,
            own: Vec::new(),
        };
        // What the daemon creates once, for its first command, is not counted against a case.
        let _ = room.run(&["true"]);
        room.settle();
        room
    }

    /// Takes the current descriptors, threads and processes of the daemon as the baseline.
    pub fn settle(&mut self) {
        let pid = self.world.daemon_pid();
        self.own = descendants(pid).into_iter().filter(|pid| !is_marked(*pid, &self.mark)).collect();
        self.descriptors = self.world.open_descriptors();
        self.threads = threads(pid);
    }

    /// Another marked session beside the first.
    pub fn another(&self, extra: Value) -> String {
        let session = self.world.open(with_target(&self.world, extra, &[(MARK, &self.mark)]));
        self.others.lock().unwrap().push(session.clone());
        session
    }

    pub fn exec(&self, params: Value) -> Value {
        self.exec_in(&self.session, params)
    }

    pub fn exec_in(&self, session: &str, params: Value) -> Value {
        finished(self.world.client(), session, params)
    }

    pub fn run(&self, argv: &[&str]) -> Value {
        self.exec(json!({ "argv": argv }))
    }

    pub fn sh(&self, script: &str) -> Value {
        self.run(&["sh", "-c", script])
    }

    /// What `sh -c SCRIPT` printed; it must have succeeded.
    pub fn says(&self, script: &str) -> Result<String, String> {
        let receipt = self.sh(script);
        check(receipt["exit_code"] == 0, || format!("{script}: {receipt}"))?;
        Ok(self.stdout(&receipt).trim_end().to_owned())
    }

    /// Starts a command and lets it run; joining returns the receipt.
    pub fn start(&self, params: Value) -> JoinHandle<Value> {
        self.start_in(&self.session, params)
    }

    pub fn start_in(&self, session: &str, params: Value) -> JoinHandle<Value> {
        let (client, session) = (self.world.client(), session.to_owned());
        std::thread::spawn(move || finished(client, &session, params))
    }

    /// Starts a command and waits until it has written the file `ready` in `$R`.
    pub fn start_ready(&self, session: &str, script: &str) -> Result<JoinHandle<Value>, String> {
        let ready = self.world.root.join("ready");
        let _ = std::fs::remove_file(&ready);
        let command = self.start_in(
            session,
            json!({ "argv": ["sh", "-c", script], "capture": "none", "timeout_ns": ns(60 * SECOND) }),
        );
        wait_for(script, || ready.exists() || command.is_finished())?;
        if !ready.exists() {
            return Err(format!("{script}: never ready: {:?}", command.join()));
        }
        Ok(command)
    }

    pub fn signal(&self, session: &str, signal: impl Into<Value>) -> Value {
        let params = json!({ "session_id": session, "signal": signal.into() });
        self.world.client().effect("host.session.signal", params)
    }

    /// A whole stream, in whatever form the receipt gives it.
    pub fn bytes(&self, stream: &Value) -> Vec<u8> {
        if let Some(text) = stream["inline_text"]["text"].as_str() {
            return text.as_bytes().to_vec();
        }
        if let Some(bytes) = stream["inline_bytes"]["bytes"].as_str() {
            return base64::engine::general_purpose::STANDARD.decode(bytes).expect("bytes are base64");
        }
        let Some(blob) = stream["blob"]["blob_ref"].as_str() else { return Vec::new() };
        let output = std::process::Command::new(&self.world.programs.aos)
            .args(["blob", "get", blob])
            .env("AOS_HOME", &self.world.home)
            .output()
            .expect("aos runs");
        output.stdout
    }

    pub fn stdout(&self, receipt: &Value) -> String {
        String::from_utf8_lossy(&self.bytes(&receipt["stdout"])).into_owned()
    }

    pub fn stderr(&self, receipt: &Value) -> String {
        String::from_utf8_lossy(&self.bytes(&receipt["stderr"])).into_owned()
    }

    /// Copies this program into `$R` as `probe`, to be run with [`Room::probe`].
    pub fn plant_probe(&self) {
        let probe = self.world.root.join("probe");
        std::fs::copy(std::env::current_exe().expect("this program has a path"), &probe).unwrap();
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(&probe, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Asks one of [`super::probe`]'s questions inside the sandbox; returns its lines.
    pub fn probe(&self, question: &str) -> Result<Vec<String>, String> {
        let receipt =
            self.exec(json!({ "argv": ["./probe"], "env_patch": { super::probe::QUESTION: question } }));
        check(receipt["exit_code"] == 0, || format!("probe {question}: {receipt}"))?;
        Ok(self.stdout(&receipt).lines().map(str::to_owned).collect())
    }

    /// The processes that carry the mark, in their environment or among their arguments.
    pub fn survivors(&self) -> Vec<String> {
        marked(&self.mark)
    }

    /// Waits until nothing that was started is left, not even a zombie.
    pub fn nothing_runs(&self) -> Outcome {
        nothing_runs(self.world.daemon_pid(), &self.mark, &self.own)
    }

    /// The daemon's descriptors and threads return to the baseline within some seconds.
    pub fn back_to_baseline(&self) -> Outcome {
        // An open session holds descriptors of its root and of its pre-images.
        for session in self.others.lock().unwrap().drain(..) {
            self.signal(&session, "kill");
        }
        self.world.expect_descriptors(self.descriptors)?;
        let pid = self.world.daemon_pid();
        // The connection that asks is served by a thread of its own.
        let most = self.threads + 2;
        wait_at_most(5 * SECOND, &format!("at most {most} threads run"), || threads(pid) <= most)
    }

    /// Checks the general promises, and those on commands: no process, no descriptor and no mount is left.
    pub fn finish(self) -> Outcome {
        self.nothing_runs()?;
        self.back_to_baseline()?;
        self.world_finish()
    }

    /// For a case that restarted its daemon: the earlier baseline no longer applies.
    pub fn world_finish(self) -> Outcome {
        no_mounts_below(&self.world.parent)?;
        let (code, out, err) = self.world.aos(&["replay", "--verify"]);
        check(code == 0 && out.trim() == "MATCH", || format!("aos replay --verify: {code}\n{out}{err}"))?;
        self.world.finish()
    }
}

/// The params of `host.session.open` with variables for all commands.
fn with_target(world: &World, mut extra: Value, variables: &[(&str, &str)]) -> Value {
    let mut local = json!({ "workdir": world.root });
    if !variables.is_empty() {
        local["env"] = variables.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    }
    let own = extra.as_object_mut().and_then(|extra| extra.remove("local")).unwrap_or_default();
    for (key, value) in own.as_object().cloned().unwrap_or_default() {
        local[key] = value;
    }
    extra["target"] = json!({ "local": local });
    uncaptured(extra)
}

/// Runs one command to its end. A receipt that violates the contract fails at once.
fn finished(mut client: Client, session: &str, mut params: Value) -> Value {
    params["session_id"] = json!(session);
    // A command that never returns is a failure, not a hang.
    client.give_up_after(COMMAND_MAX).expect("a socket takes a timeout");
    let receipt = client.effect("host.exec", params.clone());
    if let Err(why) = well_formed(&receipt) {
        let mut shown = params.to_string();
        shown.truncate(shown.floor_char_boundary(500));
        panic!("host.exec {shown}: {why}: {receipt}");
    }
    receipt
}

/// What holds for the receipt of any command.
pub fn well_formed(receipt: &Value) -> Outcome {
    // A daemon that died does not answer; the case decides whether that is allowed.
    let Some(fields) = receipt.as_object() else { return check(receipt.is_null(), || "no object".into()) };
    let status = receipt["status"].as_str().unwrap_or_default();
    check(["ok", "timeout", "signaled", "forbidden", "error"].contains(&status), || {
        format!("the contract has no status `{status}` here")
    })?;
    check(fields.values().all(|value| !value.is_null()), || "a field is null".into())?;
    let told = |name: &str| receipt[name].as_str().is_some_and(|text| !text.is_empty());
    check(told("error_code") == (status != "ok") && told("error_message") == (status != "ok"), || {
        "anything but a success says code and sentence, a success neither".into()
    })?;
    check(!(fields.contains_key("exit_code") && fields.contains_key("signal")), || {
        "it exited and was killed at once".into()
    })?;
    if status == "ok" {
        check(receipt["exit_code"].is_i64(), || "it ended well and has no exit code".into())?;
    }
    if status == "signaled" {
        check(receipt["signal"].as_str().is_some_and(|name| name.starts_with("SIG")), || "no signal".into())?;
    }
    if ["ok", "timeout", "signaled"].contains(&status) {
        for name in ["stdout", "stderr", "isolation_applied", "coverage"] {
            check(fields.contains_key(name), || format!("it ran and has no `{name}`"))?;
        }
        for name in ["stdout_bytes", "stderr_bytes", "started_at_ns", "ended_at_ns"] {
            check(receipt[name].is_u64(), || format!("it ran and has no `{name}`"))?;
        }
        check(receipt["started_at_ns"].as_u64() <= receipt["ended_at_ns"].as_u64(), || {
            "it ended before it began".into()
        })?;
    }
    check(receipt["seq"].is_u64(), || "no seq".into())
}

/// The pids of all processes with this mark.
pub fn marked(mark: &str) -> Vec<String> {
    let pids = pids().into_iter().filter(|pid| is_marked(*pid, mark));
    pids.map(|pid| format!("{pid} {}", words(pid))).collect()
}

fn is_marked(pid: i32, mark: &str) -> bool {
    let file = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let holds = |bytes: &[u8]| bytes.windows(mark.len()).any(|window| window == mark.as_bytes());
    pid != std::process::id() as i32 && (holds(&file("environ")) || holds(&file("cmdline")))
}

fn words(pid: i32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ").chars().take(120).collect()
}

fn pids() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// State and parent of a process.
fn stat(pid: i32) -> Option<(char, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit(')').next()?.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// All processes below `pid`, zombies too.
pub fn descendants(pid: i32) -> Vec<i32> {
    let parents: Vec<(i32, i32)> = pids().into_iter().filter_map(|pid| Some((pid, stat(pid)?.1))).collect();
    let (mut found, mut next) = (Vec::new(), vec![pid]);
    while let Some(parent) = next.pop() {
        let children = parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid);
        next.extend(children.clone());
        found.extend(children);
    }
    found
}

fn threads(pid: i32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// An argument of the processes that the daemon starts for itself.
const OWN_WORD: &str = "--serve-as-spawner";

/// Waits until no marked process and no descendant of the daemon is left except its `own`.
pub fn nothing_runs(daemon: i32, mark: &str, own: &[i32]) -> Outcome {
    let deadline = Instant::now() + bound(GRACE);
    loop {
        let (marked, below) = (marked(mark), descendants(daemon));
        // The spawner that the daemon keeps ready may have been replaced since, and there may be one more than before.
        let (kept, foreign): (Vec<i32>, Vec<i32>) =
            below.iter().partition(|pid| words(**pid).contains(OWN_WORD));
        if marked.is_empty() && foreign.is_empty() && kept.len() <= own.len() + 1 {
            return Ok(());
        }
        check(Instant::now() < deadline, || {
            let below: Vec<String> =
                below.iter().map(|pid| format!("{pid} {:?} {}", stat(*pid), words(*pid))).collect();
            format!("left running: {marked:?}; below the daemon: {below:?}")
        })?;
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The mounts of a command are not visible in our mount namespace.
fn no_mounts_below(folder: &Path) -> Outcome {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    let left: Vec<PathBuf> = points.filter(|point| point.starts_with(folder)).collect();
    check(left.is_empty(), || format!("mounts were left: {left:?}"))
}

/// A command must return within `limit`.
pub fn in_time<T>(what: &str, limit: Duration, run: impl FnOnce() -> T) -> Result<T, String> {
    aos_testkit::timed(limit, what, run)
}

/// The daemon of an ordinary user where this test runs as root, else of the same user. Not `nobody`: the kernel shows
/// that id for every unmapped id, so a mistake in the mapping would not be noticed.
pub fn ordinary() -> Start {
    Start { uid: aos_testkit::is_root().then_some(12345), ..Start::default() }
}
