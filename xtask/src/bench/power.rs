//! Section 1 at `power`: what syncing costs one client, and what group commit gives many.

use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use serde_json::json;

use super::daemon::{Client, Daemon, check_ok};
use super::small_files::{Contender, Mini, Product, race};
use super::task::{Kind, Task, content};
use super::{Options, Reach, Report};

const CLIENTS: usize = 64;
const WRITE_FOR: Duration = Duration::from_millis(700);
const SYNCED: Task = Task { name: "write 1 KB at `power`", size: 1 << 10, kind: Kind::Write, calls: 60 };

pub(crate) fn run(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let dir = options.workplace()?;
    let bare = "SQLite FULL + the file's own syncs, bare";
    let mut contenders: Vec<Box<dyn Contender>> = vec![
        Box::new(Product::start(dir.path(), "power")?),
        Box::new(Mini::start(dir.path(), bare, &["--duties", "--power"])?),
    ];
    race(&[SYNCED], &mut contenders, options.rounds, report, &|_, name| {
        (name == bare).then_some(Reach::AtMost(1.3))
    })?;
    drop(contenders);
    crowd(&dir.path().join("crowd"), options.rounds, report)
}

/// One client and many, in turns; each has a session and a folder of its own.
fn crowd(dir: &Path, rounds: usize, report: &mut Report) -> anyhow::Result<()> {
    std::fs::create_dir(dir)?;
    let daemon = Daemon::start(&dir.join("home"), "power")?;
    let mut clients = (0..CLIENTS)
        .map(|number| {
            let root = dir.join(format!("root-{number}"));
            std::fs::create_dir(&root)?;
            daemon.client(&root)
        })
        .collect::<anyhow::Result<Vec<Client>>>()?;
    let (mut alone, mut together) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        alone.push(rate(&mut clients[..1])?);
        together.push(rate(&mut clients)?);
    }
    let (alone, together) = (median(alone), median(together));
    report.figure("1 KB writes at `power`, one client", alone, "a second", None);
    report.figure(&format!("1 KB writes at `power`, {CLIENTS} clients"), together, "a second", None);
    let what = format!("group commit: {CLIENTS} clients against one");
    report.figure(&what, together / alone, "times", Some(Reach::AtLeast(10.0)));
    Ok(())
}

/// Writes a second of all clients together, from the moment in which all are ready.
fn rate(clients: &mut [Client]) -> anyhow::Result<f64> {
    let ready = Barrier::new(clients.len());
    std::thread::scope(|scope| {
        let writers: Vec<_> = clients
            .iter_mut()
            .map(|client| {
                let params =
                    json!({ "path": "f", "content": { "inline_text": { "text": content(1 << 10, 0) } } });
                let request = client.request("host.fs.write_file", params);
                let ready = &ready;
                scope.spawn(move || {
                    ready.wait();
                    let (begun, mut count) = (Instant::now(), 0);
                    while begun.elapsed() < WRITE_FOR {
                        check_ok(&client.line.exchange(&request)?)?;
                        count += 1;
                    }
                    anyhow::Ok(f64::from(count) / begun.elapsed().as_secs_f64())
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().expect("BUG: a writer does not panic")).sum()
    })
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_unstable_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or(f64::NAN)
}
