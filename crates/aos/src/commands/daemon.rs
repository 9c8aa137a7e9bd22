//! `aos daemon start|stop|status|logs` and `aos status`.

use std::time::{Duration, Instant};

use anyhow::bail;
use aos_store::Home;
use serde_json::Value;

use super::{daemon_logs, ended};
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
        Daemon::Run(_) => unreachable!("BUG: main runs it without a client"),
    }
}

/// Asks it to stop and waits until it has let go of the home.
fn stop(home: &Home) -> anyhow::Result<Exit> {
    let Some(mut client) = connect::running(home) else {
        eprintln!("aos: no daemon serves {}", home.path().display());
        return Ok(Exit::Success);
    };
    client.call("daemon.stop", "{}").map_err(ended)?;
    let deadline = Instant::now() + Duration::from_secs(10);
    while home.lock().is_err() {
        if Instant::now() > deadline {
            bail!("the daemon did not stop within 10 s; see `aos daemon logs`");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(Exit::Success)
}

/// Exit 0 when one runs, 1 when none does. Asking starts none.
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
    let answer = client.call("daemon.status", "{}").map_err(ended)?;
    if as_json {
        println!("{answer}");
        return Ok(Exit::Success);
    }
    let answer: Value = serde_json::from_str(&answer)?;
    let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
    println!("aosd {} (pid {}) serves {}", text("version"), answer["pid"], text("home"));
    println!(
        "durability {}, {} sessions open, {} entries in the journal",
        text("durability"),
        answer["sessions_open"],
        answer["seq"]
    );
    println!("its log is {}", aos_model::text::escape(&home.log_path().display().to_string()));
    Ok(Exit::Success)
}
