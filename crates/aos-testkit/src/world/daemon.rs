//! Starting, killing and restarting the daemon of a world.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use super::World;
use crate::client::Client;
use crate::signal;

/// The longest time that a daemon may take to start.
const START_MAX: Duration = Duration::from_secs(60);

/// How a daemon is started.
#[derive(Debug, Clone, Default)]
pub struct Start {
    pub power: bool,
    /// Words before `aosd`, for example `strace -f -e inject=…`.
    pub wrapper: Vec<String>,
    /// Run as this uid and gid, which only root can do.
    pub uid: Option<u32>,
    pub env: Vec<(String, String)>,
}

impl Start {
    /// As in a container: without namespaces for users, and without privileges.
    pub fn without_namespaces() -> Start {
        let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --inh-caps=-all --ambient-caps=-all \"$@\"";
        let wrapper = [
            "unshare",
            "--user",
            "--map-user=1000",
            "--map-group=1000",
            "--keep-caps",
            "sh",
            "-c",
            script,
            "sh",
        ];
        Start { wrapper: wrapper.map(str::to_owned).to_vec(), ..Start::default() }
    }
}

impl World {
    pub fn start_daemon(&mut self) {
        self.try_start_daemon().expect("the daemon starts");
    }

    /// Starts the daemon and waits until it answers or ends. The error is what it printed.
    ///
    /// That it accepts is not enough: after a kill, a helper process that was just being started holds the old listener
    /// until its `execve`, and connections to that are reset.
    pub fn try_start_daemon(&mut self) -> Result<(), String> {
        let mut child = self.daemon_command().spawn().map_err(|why| why.to_string())?;
        let deadline = Instant::now() + START_MAX;
        loop {
            if Client::connect(&self.home)
                .is_ok_and(|mut client| !client.rpc("daemon.status", json!({})).is_null())
            {
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

    fn daemon_command(&self) -> Command {
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
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .envs(self.start.env.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if let Some(uid) = self.start.uid {
            command.uid(uid).gid(uid);
        }
        command
    }

    /// How the next daemon is started.
    pub fn set_start(&mut self, start: Start) {
        self.start = start;
    }

    /// The pid of `aosd` itself, also under a wrapper.
    pub fn daemon_pid(&self) -> i32 {
        let status = self.client().rpc("daemon.status", json!({}));
        status["result"]["pid"].as_i64().expect("the daemon reports its pid") as i32
    }

    pub fn kill9(&mut self) {
        if let Some(mut child) = self.daemon.take() {
            if !self.start.wrapper.is_empty() {
                signal(self.daemon_pid(), Signal::KILL);
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
        signal(pid, Signal::TERM);
        self.reap();
        begun.elapsed()
    }

    /// Waits for a daemon that ends by itself or was killed by the case.
    pub fn reap(&mut self) {
        if let Some(mut child) = self.daemon.take() {
            let _ = child.wait();
        }
    }

    pub fn restart(&mut self, start: Start) {
        self.try_restart(start).expect("the daemon starts");
    }

    /// As `restart`, for a daemon that may not start.
    pub fn try_restart(&mut self, start: Start) -> Result<(), String> {
        self.kill9();
        self.start = start;
        self.try_start_daemon()
    }

    pub(super) fn end_daemon(&mut self) {
        if let Some(mut child) = self.daemon.take() {
            // A killed wrapper detaches from the daemon and leaves it running, so the daemon is killed first.
            for pid in started_by(child.id()) {
                signal(pid, Signal::KILL);
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The running processes that `pid` and its children started.
fn started_by(pid: u32) -> Vec<i32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = list.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok());
    children.flat_map(|child| [vec![child as i32], started_by(child)].concat()).collect()
}

/// The daemon's program; a copy that `uid` can run when the build folder is closed to others.
pub(crate) fn program_for(built: &Path, uid: Option<u32>, parent: &Path) -> PathBuf {
    let open = |path: &Path| path.metadata().is_ok_and(|meta| meta.mode() & 0o001 != 0);
    if uid.is_none() || built.ancestors().all(open) {
        return built.to_owned();
    }
    let copy = parent.join("aosd");
    std::fs::copy(built, &copy).unwrap();
    std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).unwrap();
    copy
}
