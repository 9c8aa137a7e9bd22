//! Section 2, the record: journaled reads per second, opening a long home, replaying it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aos_host::Host;
use serde_json::json;

use super::in_process::{call, open_session, start};
use super::{Options, Reach, Report};

const SESSIONS: usize = 10_000;
const CLIENTS: usize = 8;
const READ_FOR: Duration = Duration::from_secs(3);

pub(crate) fn run(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let dir = options.workplace()?;
    let (root, home) = (dir.path().join("root"), dir.path().join("home"));
    std::fs::create_dir(&root)?;
    std::fs::write(root.join("f"), "x".repeat(1024))?;
    let entries = options.entries;
    build(&home, &root, entries)?;
    let opened = Instant::now();
    let host = start(&home)?;
    let took = opened.elapsed().as_secs_f64() * 1e3;
    let what = format!("opening a home with {SESSIONS} sessions and {entries} entries");
    report.figure(&what, took, "ms", Some(Reach::AtMost(1000.0)));
    let rate = reads(&host, &root)?;
    let what = format!("journaled 1 KB reads over {CLIENTS} threads, in process");
    report.figure(&what, rate, "a second", Some(Reach::AtLeast(20_000.0)));
    let replayed = Instant::now();
    let replay = aos_store::replay(&home, None, &mut |_, _| {})?;
    anyhow::ensure!(replay.findings.is_empty(), "the replay differs: {:?}", replay.findings);
    let rate = replay.entries as f64 / replayed.elapsed().as_secs_f64();
    let what = format!("replay --verify of {} entries", replay.entries);
    report.figure(&what, rate, "a second", Some(Reach::AtLeast(100_000.0)));
    Ok(())
}

/// Builds a home with real effects through the spine: sessions first, then cheap requests from a few threads.
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
