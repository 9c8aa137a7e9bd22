//! Connects to the daemon, and starts it if it is not running.

use std::io::{self, BufRead as _, BufReader};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use aos_store::Home;
use aos_wire::Client;

use crate::daemon::READY;
use crate::home;

/// How long a client waits for a daemon that another client starts, or for one that stops.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The daemon that is running, or `None`.
pub(crate) fn running(home: &Home) -> Option<Client> {
    aos_wire::connect(home.run()).ok().map(Client::new)
}

/// The daemon that is running, or a new one. If it stops later, the next request starts another.
pub(crate) fn client() -> anyhow::Result<Client> {
    let home = Home::open(&home::path()?)?;
    let stream = connect_or_start(&home)?;
    let reconnect = move || connect_or_start(&home).map_err(|error| io::Error::other(format!("{error:#}")));
    Ok(Client::new(stream).with_reconnect(reconnect))
}

fn connect_or_start(home: &Home) -> anyhow::Result<UnixStream> {
    match aos_wire::connect(home.run()) {
        Ok(stream) => Ok(stream),
        Err(_) => start_stream(home),
    }
}

/// Starts a daemon and connects to it.
pub(crate) fn start(home: &Home) -> anyhow::Result<Client> {
    start_stream(home).map(Client::new)
}

/// Starts a daemon, or uses the one that another client starts at the same time. Prints a line if it was ours.
fn start_stream(home: &Home) -> anyhow::Result<UnixStream> {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        let error = match launch(home)? {
            Launched::Ready => {
                eprintln!("aos: started aosd for {}", home.path().display());
                None
            }
            Launched::Failed(text) => Some(text),
        };
        if let Ok(stream) = aos_wire::connect(home.run()) {
            return Ok(stream);
        }
        // Another daemon holds the lock: it is starting or stopping.
        let may_retry = error.as_deref().is_none_or(|text| text.contains("another daemon already serves"));
        match error {
            Some(text) if !may_retry => bail!("{}", text.trim()),
            Some(text) if Instant::now() > deadline => bail!("no daemon answers: {}", text.trim()),
            _ if Instant::now() > deadline => bail!("the daemon was started but does not answer"),
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

enum Launched {
    Ready,
    Failed(String),
}

#[expect(clippy::disallowed_methods, reason = "the one process that the client starts: its daemon")]
fn launch(home: &Home) -> anyhow::Result<Launched> {
    let own = std::env::current_exe().context("cannot find the aos program itself")?;
    let sibling = own.with_file_name("aosd");
    // If only `aos` is installed, it acts as the daemon.
    let mut command = if is_program(&sibling) { Command::new(sibling) } else { Command::new(own) };
    if !command.get_program().to_string_lossy().ends_with("aosd") {
        command.args(["daemon", "run"]).arg0("aosd");
    }
    // Until it is ready we read its standard error too: its log may not be open yet.
    let (output, input) = std::io::pipe().context("cannot create a pipe")?;
    command
        .arg("--detach")
        .env("AOS_HOME", home.path())
        .stdin(Stdio::null())
        .stdout(input.try_clone().context("cannot create a pipe")?)
        .stderr(input);
    let mut child = command.spawn().context("cannot start aosd")?;
    // It holds our copies of the pipe's write end; until they are closed the pipe has no end of file.
    drop(command);
    let mut error = String::new();
    for line in BufReader::new(output).lines() {
        let line = line?;
        if line == READY {
            return Ok(Launched::Ready);
        }
        error.push_str(&line);
        error.push('\n');
    }
    let _ = child.wait();
    Ok(Launched::Failed(error))
}

fn is_program(path: &std::path::Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}
