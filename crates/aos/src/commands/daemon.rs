//! `aos daemon start|stop|status|logs` and `aos status`.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::bail;
use aos_store::Home;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags};
use serde_json::Value;

use super::{daemon_error, daemon_logs};
use crate::cli::Daemon;
use crate::{Exit, connect, home};

pub(crate) fn run(command: &Daemon) -> anyhow::Result<Exit> {
    let home = Home::open(&home::path()?)?;
    match command {
        Daemon::Start => {
            if connect::running(&home).is_none() {
                connect::start(&home)?;
            }
            Ok(Exit::Success)
        }
        Daemon::Stop => stop(&home),
        Daemon::Status { json } => status(*json),
        Daemon::Logs(options) => daemon_logs::run(&home, options),
        Daemon::Run(_) => unreachable!("BUG: `main` runs it before"),
    }
}

/// Stops it and waits until it has exited.
fn stop(home: &Home) -> anyhow::Result<Exit> {
    let Some(mut client) = connect::running(home) else {
        eprintln!("aos: no daemon serves {}", home.path().display());
        return Ok(Exit::Success);
    };
    let status: Value = serde_json::from_str(&client.call("daemon.status", "{}").map_err(daemon_error)?)?;
    let process = pidfd_of(&status);
    client.call("daemon.stop", "{}").map_err(daemon_error)?;
    let stopped = match process {
        Some(process) => has_exited_within(&process, STOP_TIMEOUT),
        None => is_unlocked_within(home, STOP_TIMEOUT),
    };
    if !stopped {
        bail!("the daemon did not stop within {} s; see `aos daemon logs`", STOP_TIMEOUT.as_secs());
    }
    Ok(Exit::Success)
}

const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// `None` if the daemon's pid is not visible here. It cannot be reused while the daemon answers.
fn pidfd_of(status: &Value) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(status["pid"].as_i64()?).ok()?)?;
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Waits for the process, not for the lock: another client may start the next daemon, which takes the lock at once.
fn has_exited_within(process: &OwnedFd, timeout: Duration) -> bool {
    let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
    matches!(poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&timeout)), Ok(1))
}

fn is_unlocked_within(home: &Home, timeout: Duration) -> bool {
    let deadline = Instant::now() + timeout;
    while home.lock().is_err() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// What `status` and `doctor` say when the reserve was given up.
pub(crate) const DISK_FULL: &str = "the disk of AOS_HOME is full: changes and commands are refused (`no_space`); remove files, close sessions or run `aos gc`";

/// Exits with 0 if a daemon is running, 1 if not. It does not start one.
pub(crate) fn status(as_json: bool) -> anyhow::Result<Exit> {
    let home = Home::open(&home::path()?)?;
    let Some(mut client) = connect::running(&home) else {
        if as_json {
            println!(
                "{}",
                serde_json::json!({ "status": "stopped", "home": home.path().display().to_string() })
            );
        } else {
            println!("no daemon serves {}", home.path().display());
        }
        return Ok(Exit::Failure);
    };
    let answer = client.call("daemon.status", "{}").map_err(daemon_error)?;
    if as_json {
        println!("{answer}");
        return Ok(Exit::Success);
    }
    let answer: Value = serde_json::from_str(&answer)?;
    let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
    let number = |name: &str| answer[name].as_u64().unwrap_or(0);
    println!("aosd {} (pid {}) serves {}", text("version"), answer["pid"], text("home"));
    println!(
        "durability {}, {} open, {} entries in the journal",
        text("durability"),
        aos_model::text::count(number("sessions_open"), "session"),
        number("seq")
    );
    if answer["disk_full"] == true {
        println!("{DISK_FULL}");
    }
    println!("log: {}", aos_model::text::escape(&home.log_path().display().to_string()));
    Ok(Exit::Success)
}
