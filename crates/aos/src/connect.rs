//! Reaching the daemon, starting it when none answers.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use aos_store::Home;
use aos_wire::Client;

use crate::daemon::READY;
use crate::home;

/// How long a client waits for a daemon that somebody else is starting.
const PATIENCE: Duration = Duration::from_secs(30);

/// A daemon that is there already, or `None`.
pub(crate) fn running(home: &Home) -> Option<Client> {
    aos_wire::connect(home.run()).ok().map(Client::new)
}

/// A daemon in any case: the one that is there, or a new one.
pub(crate) fn client() -> anyhow::Result<Client> {
    let home = Home::open(&home::path()?)?;
    if let Some(client) = running(&home) {
        return Ok(client);
    }
    start(&home)
}

/// Starts a daemon, or joins the one that won the race. Says on stderr when it was us.
pub(crate) fn start(home: &Home) -> anyhow::Result<Client> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let complaint = match launch(home)? {
            Launched::Ready => {
                eprintln!("aos: started aosd for {}", home.path().display());
                None
            }
            Launched::Failed(text) => Some(text),
        };
        if let Some(client) = running(home) {
            return Ok(client);
        }
        let lost_the_race =
            complaint.as_deref().is_none_or(|text| text.contains("another daemon already serves"));
        match complaint {
            Some(text) if !lost_the_race => bail!("{}", text.trim()),
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
    // Where only `aos` was built or installed, it is its own daemon.
    let mut command = if is_program(&sibling) { Command::new(sibling) } else { Command::new(own) };
    if !command.get_program().to_string_lossy().ends_with("aosd") {
        command.args(["daemon", "run"]).arg0("aosd");
    }
    // Until it is ready its standard error is ours too: its log may not be open yet.
    let (output, input) = std::io::pipe().context("cannot make a pipe")?;
    command
        .arg("--detach")
        .env("AOS_HOME", home.path())
        .stdin(Stdio::null())
        .stdout(input.try_clone().context("cannot make a pipe")?)
        .stderr(input);
    let mut child = command.spawn().context("cannot start aosd")?;
    // It holds our ends of the pipe, without which the pipe never ends.
    drop(command);
    let mut complaint = String::new();
    for line in BufReader::new(output).lines() {
        let line = line?;
        if line == READY {
            return Ok(Launched::Ready);
        }
        complaint.push_str(&line);
        complaint.push('\n');
    }
    let _ = child.wait();
    Ok(Launched::Failed(complaint))
}

fn is_program(path: &std::path::Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}
