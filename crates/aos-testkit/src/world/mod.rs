//! The world of a case: a root `$R`, a sibling `$O` with a secret, a home `$D` and a daemon of its own.

mod agent;
mod daemon;
mod inspect;
mod reach;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

pub use agent::{Agent, Fixture};
pub use daemon::Start;
pub(crate) use daemon::program_for;
pub use inspect::DESCRIPTORS_SLACK;
pub use reach::{reaches, rust_toolchain};

use crate::check::{Outcome, check};
use crate::client::{Client, Record};
use crate::programs::Programs;
use crate::random::new_seed;
use crate::time::{PATIENCE, timed};
use crate::tree::tree;

/// Temporary folders and the daemon that serves them; [`World::finish`] checks what must hold after every case.
pub struct World {
    _dir: tempfile::TempDir,
    pub programs: Programs,
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
    record: Arc<Record>,
    /// `aosd`, or a copy of it that another uid may run.
    aosd: PathBuf,
    mounted: Vec<PathBuf>,
}

/// Params for opening a session whose commands may run without capture.
pub fn uncaptured(mut extra: Value) -> Value {
    extra["capability"]["exec"]["uncaptured"] = json!(true);
    extra
}

impl World {
    /// A world whose daemon runs.
    #[allow(clippy::new_without_default, reason = "it starts a process, which no default should")]
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
        // A daemon of another uid must be able to enter it.
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let parent = dir.path().canonicalize().unwrap();
        let (root, outside, home) = (parent.join("ws"), parent.join("outside"), parent.join("home"));
        for folder in [&root, &outside, &home] {
            std::fs::create_dir(folder).unwrap();
        }
        let canary = format!("CANARY-{:016x}", new_seed());
        std::fs::write(outside.join("secret"), format!("{canary}\n")).unwrap();
        if let Some(uid) = start.uid {
            for folder in [&root, &home] {
                std::os::unix::fs::chown(folder, Some(uid), Some(uid)).unwrap();
            }
        }
        let programs = Programs::built().clone();
        World {
            _dir: dir,
            outside_before: tree(&outside),
            aosd: daemon::program_for(&programs.aosd, start.uid, &parent),
            programs,
            parent,
            root,
            outside,
            home,
            canary,
            daemon: None,
            start,
            record: Arc::default(),
            mounted: Vec::new(),
        }
    }

    /// A connection whose answers are searched for the canary at the end.
    pub fn client(&self) -> Client {
        Client::connect(&self.home).expect("the daemon accepts").recorded(self.record.clone())
    }

    /// A connection with a read timeout: a missing answer is a failure, not a hang.
    pub fn patient_client(&self) -> Client {
        let client = self.client();
        client.give_up_after(PATIENCE).unwrap();
        client
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

    /// Opens a session and a connection for it.
    pub fn agent(&self, extra: Value) -> Agent {
        Agent { session: self.open(extra), client: self.client() }
    }

    /// Another connection to a session, for very many answers. Each is searched for the canary at once and not stored.
    pub fn quiet_agent(&self, session: &str) -> Agent {
        Agent { session: session.to_owned(), client: self.client().searched_for(&self.canary) }
    }

    /// Adds an answer of another front end to those that are searched for the canary.
    pub fn heard(&self, answer: String) {
        self.record.answers.lock().unwrap().push(answer);
    }

    /// The client program on this home: its exit code, standard output and standard error.
    pub fn aos(&self, arguments: &[&str]) -> (i32, String, String) {
        let output = Command::new(&self.programs.aos)
            .args(arguments)
            .env("AOS_HOME", &self.home)
            .current_dir(&self.parent)
            .stdin(Stdio::null())
            .output()
            .expect("aos runs");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let (out, err) = (text(output.stdout), text(output.stderr));
        self.record.answers.lock().unwrap().extend([out.clone(), err.clone()]);
        (output.status.code().unwrap_or(-1), out, err)
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

    /// Adds a file to `$O` before the case begins.
    pub fn put_outside(&mut self, name: &str, content: &str) -> PathBuf {
        let path = self.outside.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        self.outside_before = tree(&self.outside);
        path
    }

    /// Mounts a small file system on a folder of this world until its end.
    pub fn mount_tmpfs(&mut self, on: &Path, options: &str) -> Outcome {
        self.mount(&["-t", "tmpfs", "-o", options, "tmpfs"], on)
    }

    /// Shows a folder at another path until the end of this world.
    pub fn mount_bind(&mut self, folder: &Path, on: &Path) -> Outcome {
        self.mount(&["--bind", folder.to_str().expect("the paths of tests are text")], on)
    }

    fn mount(&mut self, arguments: &[&str], on: &Path) -> Outcome {
        let output = Command::new("mount").args(arguments).arg(on).output();
        let output = output.map_err(|why| format!("mount: {why}"))?;
        check(output.status.success(), || String::from_utf8_lossy(&output.stderr).into_owned())?;
        self.mounted.push(on.to_owned());
        Ok(())
    }

    /// Checks what must hold after every case. Starts the daemon again if the case left it stopped.
    pub fn finish(mut self) -> Outcome {
        if self.daemon.is_none() {
            self.start = Start { uid: self.start.uid, ..Start::default() };
            self.try_start_daemon().map_err(|why| format!("the daemon does not start again: {why}"))?;
        }
        let listed = timed(Duration::from_secs(1), "the daemon's last answer", || {
            self.client().effect("host.session.list", json!({}))
        })?;
        check(listed["status"] == "ok", || format!("the daemon answers {listed}"))?;
        check(tree(&self.outside) == self.outside_before, || "$O was changed".into())?;
        let answers = std::mem::take(&mut *self.record.answers.lock().unwrap());
        check(!answers.iter().any(|answer| answer.contains(&self.canary)), || {
            "an answer contains the canary".into()
        })?;
        let malformed = std::mem::take(&mut *self.record.malformed.lock().unwrap());
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
        self.end_daemon();
        for path in &self.mounted {
            let _ = Command::new("umount").arg("--lazy").arg(path).status();
        }
    }
}
