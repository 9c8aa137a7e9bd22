//! The product as a contender: a daemon with a home of its own, and clients on its socket.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::cargo::build;
use aos_testkit::Programs;

/// A child process of the bench. It is ended on drop.
#[derive(Debug)]
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[derive(Debug)]
pub(crate) struct Daemon {
    socket: PathBuf,
    running: Running,
}

impl Daemon {
    /// `durability` is `process` or `power`.
    pub(crate) fn start(home: &Path, durability: &str) -> anyhow::Result<Daemon> {
        let mut command = Command::new(programs()?.aosd);
        command.args(["--durability", durability]).env("AOS_HOME", home).stdin(Stdio::null());
        let running = Running(command.spawn()?);
        Ok(Daemon { socket: home.join("run/aosd.sock"), running })
    }

    /// Resident memory, in MB.
    pub(crate) fn resident_mb(&self) -> anyhow::Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.running.0.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
    }

    /// A connection without a session.
    pub(crate) fn connect(&self) -> anyhow::Result<Client> {
        Ok(Client { line: connect(&self.socket)?, session: String::new(), next: 0 })
    }

    /// A connection with a new session.
    pub(crate) fn client(&self, workdir: &Path) -> anyhow::Result<Client> {
        let mut client = self.connect()?;
        client.open(&json!({ "local": { "workdir": workdir } }))?;
        Ok(client)
    }
}

/// The product's programs, built for release.
pub(crate) fn programs() -> anyhow::Result<Programs> {
    Ok(Programs::in_folder(&build(&["--quiet", "--package", "aos", "--bins"])?))
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) line: Line,
    pub(crate) session: String,
    next: u64,
}

impl Client {
    /// Opens the session for all later requests.
    pub(crate) fn open(&mut self, target: &Value) -> anyhow::Result<()> {
        self.session.clear();
        let receipt = self.ask("host.session.open", json!({ "target": target }))?;
        self.session = receipt["session_id"].as_str().unwrap_or_default().to_owned();
        Ok(())
    }

    /// The receipt of an effect. A status other than success is an error.
    pub(crate) fn ask(&mut self, kind: &str, params: Value) -> anyhow::Result<Value> {
        let request = self.request(kind, params);
        let mut answer: Value = serde_json::from_str(&self.line.exchange(&request)?)?;
        let receipt = answer["result"].take();
        let well = ["ok", "ready", "signaled"].iter().any(|status| receipt["status"] == *status);
        anyhow::ensure!(well, "{kind}: {receipt:.500}");
        Ok(receipt)
    }

    /// The request line for an effect in this client's session.
    pub(crate) fn request(&mut self, kind: &str, mut params: Value) -> String {
        self.next += 1;
        if !self.session.is_empty() {
            params["session_id"] = json!(self.session);
        }
        let call = json!({ "jsonrpc": "2.0", "id": self.next, "method": "effect.call", "params": { "kind": kind, "params": params } });
        format!("{call}\n")
    }
}

/// A child process that reads lines and answers with lines on its standard streams.
#[derive(Debug)]
pub(crate) struct Piped {
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    _running: Running,
}

impl Piped {
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<Piped> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let to = child.stdin.take().expect("BUG: piped above");
        let from = BufReader::with_capacity(64 << 10, child.stdout.take().expect("BUG: piped above"));
        Ok(Piped { to, from, _running: Running(child) })
    }

    pub(crate) fn send(&mut self, line: &str) -> anyhow::Result<()> {
        Ok(self.to.write_all(line.as_bytes())?)
    }

    pub(crate) fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        anyhow::ensure!(self.from.read_line(&mut line)? > 0, "it ended early");
        Ok(line)
    }
}

/// A socket on which each request and each answer is one line.
#[derive(Debug)]
pub(crate) struct Line {
    reader: BufReader<UnixStream>,
}

impl Line {
    pub(crate) fn exchange(&mut self, line: &str) -> anyhow::Result<String> {
        self.reader.get_ref().write_all(line.as_bytes())?;
        let mut answer = String::new();
        self.reader.read_line(&mut answer)?;
        Ok(answer)
    }
}

/// Fails unless the status is `ok`. The product and the mini host use the same form.
pub(crate) fn check_ok(answer: &str) -> anyhow::Result<()> {
    anyhow::ensure!(answer.contains("\"status\":\"ok\""), "not ok: {answer}");
    Ok(())
}

/// Connects, and retries until a process listens on the socket.
pub(crate) fn connect(socket: &Path) -> anyhow::Result<Line> {
    for _ in 0..2000 {
        if let Ok(stream) = UnixStream::connect(socket) {
            return Ok(Line { reader: BufReader::with_capacity(64 << 10, stream) });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    anyhow::bail!("nobody listens on {}", socket.display())
}
