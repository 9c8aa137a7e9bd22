//! Section 2, the record: journaled reads a second, opening a long home, replaying it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aos_host::{Call, Host, Machine};
use aos_model::receipt::Durability;
use aos_store::Home;
use serde_json::{Value, json};

use super::Options;

const SESSIONS: usize = 10_000;
const CLIENTS: usize = 8;
const READ_FOR: Duration = Duration::from_secs(3);

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let dir = match &options.dir {
        Some(dir) => tempfile::tempdir_in(dir)?,
        None => tempfile::tempdir()?,
    };
    let (root, home) = (dir.path().join("root"), dir.path().join("home"));
    std::fs::create_dir(&root)?;
    std::fs::write(root.join("f"), "x".repeat(1024))?;
    let entries = options.entries;
    let built = Instant::now();
    build(&home, &root, entries)?;
    println!(
        "a home with {SESSIONS} sessions and {entries} entries, built in {:.1} s",
        built.elapsed().as_secs_f64()
    );
    let opened = Instant::now();
    let host = start(&home)?;
    println!("opening it: {:.0} ms (reach: 1000 ms)", opened.elapsed().as_secs_f64() * 1e3);
    println!(
        "journaled 1 KB reads over {CLIENTS} threads: {:.0} a second (reach: 20000)",
        reads(&host, &root)?
    );
    let replayed = Instant::now();
    let report = aos_store::replay(&home, None, &mut |_, _| {})?;
    anyhow::ensure!(report.findings.is_empty(), "the replay differs: {:?}", report.findings);
    let rate = report.entries as f64 / replayed.elapsed().as_secs_f64();
    println!("replay --verify: MATCH, {} entries, {rate:.0} a second (reach: 100000)", report.entries);
    Ok(())
}

fn start(home: &Path) -> anyhow::Result<Arc<Host>> {
    Ok(Host::start(Home::open(home)?, Machine::real(Durability::Process, 0o022))?.0)
}

fn open_session(host: &Host, root: &Path) -> anyhow::Result<String> {
    let receipt =
        call(host, "host.session.open", &json!({ "target": { "local": { "workdir": root } } }).to_string())?;
    let receipt: Value = serde_json::from_str(&receipt)?;
    Ok(receipt["session_id"].as_str().unwrap_or_default().to_owned())
}

fn call(host: &Host, kind: &str, params: &str) -> anyhow::Result<String> {
    let job =
        host.admit(Call { kind, params, tool_call_id: None, turn_id: None }).map_err(anyhow::Error::msg)?;
    Ok(host.answer(job).receipt)
}

/// Real effects through the real spine: sessions first, then cheap requests from a few threads.
fn build(home: &Path, root: &Path, entries: u64) -> anyhow::Result<()> {
    let host = start(home)?;
    let sessions: Vec<String> = (0..SESSIONS).map(|_| open_session(&host, root)).collect::<Result<_, _>>()?;
    // All but a few are closed again, as in a home that has been used for a year.
    for session in &sessions[..SESSIONS - 100] {
        call(&host, "host.session.signal", &json!({ "session_id": session, "signal": "term" }).to_string())?;
    }
    let session = sessions.last().cloned().unwrap_or_default();
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let exists = json!({ "session_id": session, "path": "f" }).to_string();
                while host.head() < entries {
                    let _ = call(&host, "host.fs.exists", &exists);
                }
            });
        }
    });
    Ok(())
}

fn reads(host: &Arc<Host>, root: &Path) -> anyhow::Result<f64> {
    let session = open_session(host, root)?;
    let read = json!({ "session_id": session, "path": "f" }).to_string();
    let begun = Instant::now();
    let count: usize = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    let mut count = 0;
                    while begun.elapsed() < READ_FOR {
                        let _ = call(host, "host.fs.read_file", &read);
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        readers.into_iter().map(|reader| reader.join().unwrap_or(0)).sum()
    });
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}
