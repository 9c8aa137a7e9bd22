//! The product as a contender: a daemon with a home of its own, and clients on its socket.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

/// A process of the bench's own, ended with it.
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
        let mut command = Command::new(build()?.join("aosd"));
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

    /// A connection with a session of its own.
    pub(crate) fn client(&self, workdir: &Path) -> anyhow::Result<Client> {
        let mut client = Client { line: connect(&self.socket)?, session: String::new(), next: 0 };
        let open =
            client.request("host.session.open", json!({ "target": { "local": { "workdir": workdir } } }));
        let answer: Value = serde_json::from_str(&client.line.exchange(&open)?)?;
        let session = answer["result"]["session_id"].as_str();
        client.session = session.ok_or_else(|| anyhow::anyhow!("no session: {answer}"))?.to_owned();
        Ok(client)
    }
}

impl Daemon {
    /// A connection without a session.
    pub(crate) fn line(&self) -> anyhow::Result<Line> {
        connect(&self.socket)
    }
}

/// Builds the product in release and says where the programs are.
pub(crate) fn build() -> anyhow::Result<PathBuf> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let status =
        Command::new(cargo).args(["build", "--quiet", "--release", "--package", "aos", "--bins"]).status()?;
    anyhow::ensure!(status.success(), "the product does not build");
    Ok(target_dir()?.join("release"))
}

pub(crate) fn target_dir() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let target = own.parent().and_then(Path::parent).expect("BUG: xtask lies in target/<profile>");
    Ok(target.to_owned())
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) line: Line,
    session: String,
    next: u64,
}

impl Client {
    /// One line that asks for an effect in this client's session.
    pub(crate) fn request(&mut self, kind: &str, mut params: Value) -> String {
        self.next += 1;
        if !self.session.is_empty() {
            params["session_id"] = json!(self.session);
        }
        let call = json!({ "jsonrpc": "2.0", "id": self.next, "method": "effect.call", "params": { "kind": kind, "params": params } });
        format!("{call}\n")
    }
}

/// A socket on which one line asks and one answers.
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

/// The product and the mini host answer alike.
pub(crate) fn check_ok(answer: &str) -> anyhow::Result<()> {
    anyhow::ensure!(answer.contains("\"status\":\"ok\""), "not ok: {answer}");
    Ok(())
}

/// Waits until somebody listens.
pub(crate) fn connect(socket: &Path) -> anyhow::Result<Line> {
    for _ in 0..2000 {
        if let Ok(stream) = UnixStream::connect(socket) {
            return Ok(Line { reader: BufReader::with_capacity(64 << 10, stream) });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    anyhow::bail!("nobody listens on {}", socket.display())
}
