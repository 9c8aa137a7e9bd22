//! Section 1 at `power`: the cost of syncing for one client, and the gain of group commit for many.

use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use serde_json::json;

use super::daemon::{Daemon, Line, check_ok};
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

/// One client and many clients, in turns; each has its own session and folder. For comparison, as many mini hosts that
/// keep no record and only sync the file and its folder: this is what the disk allows that many writers.
fn crowd(dir: &Path, rounds: usize, report: &mut Report) -> anyhow::Result<()> {
    std::fs::create_dir(dir)?;
    let daemon = Daemon::start(&dir.join("home"), "power")?;
    let mut clients = clients(&daemon, dir)?;
    let mut ours: Vec<Writer<'_>> = clients.iter_mut().map(|(line, request)| (line, &**request)).collect();
    let mut hosts = (0..CLIENTS)
        .map(|number| Mini::start(&dir.join(number.to_string()), "bare", &["--power"]))
        .collect::<anyhow::Result<Vec<Mini>>>()?;
    let request = json!({ "id": 1, "op": "write", "path": "f", "text": content(1 << 10, 0) });
    let request = format!("{request}\n");
    let mut bare: Vec<Writer<'_>> = hosts.iter_mut().map(|mini| (&mut mini.line, &*request)).collect();
    let mut rates = [const { Vec::new() }; 4];
    for _ in 0..rounds {
        rates[0].push(rate(&mut ours[..1])?);
        rates[1].push(rate(&mut ours)?);
        rates[2].push(rate(&mut bare[..1])?);
        rates[3].push(rate(&mut bare)?);
    }
    let [alone, together, bare_alone, bare_together] = rates.map(median);
    report.figure("1 KB writes at `power`, one client", alone, "a second", None);
    report.figure(&format!("1 KB writes at `power`, {CLIENTS} clients"), together, "a second", None);
    let what = format!("group commit: {CLIENTS} clients against one");
    report.figure(&what, together / alone, "×", Some(Reach::AtLeast(10.0)));
    report.figure("the file's own syncs alone, one writer", bare_alone, "a second", None);
    report.figure(&format!("the same, {CLIENTS} writers"), bare_together, "a second", None);
    report.figure("so many writers against one", bare_together / bare_alone, "×", None);
    Ok(())
}

/// A connection, and the request that is repeated on it.
type Writer<'a> = (&'a mut Line, &'a str);

fn clients(daemon: &Daemon, dir: &Path) -> anyhow::Result<Vec<(Line, String)>> {
    let params = json!({ "path": "f", "content": { "inline_text": { "text": content(1 << 10, 0) } } });
    let client = |number: usize| {
        let root = dir.join(format!("root-{number}"));
        std::fs::create_dir(&root)?;
        let mut client = daemon.client(&root)?;
        let request = client.request("host.fs.write_file", params.clone());
        Ok((client.line, request))
    };
    (0..CLIENTS).map(client).collect()
}

/// The writes per second of all writers together, from the moment when all are ready.
fn rate(writers: &mut [Writer<'_>]) -> anyhow::Result<f64> {
    let ready = Barrier::new(writers.len());
    std::thread::scope(|scope| {
        let writers: Vec<_> = writers
            .iter_mut()
            .map(|(line, request)| {
                let ready = &ready;
                scope.spawn(move || {
                    ready.wait();
                    let (begun, mut count) = (Instant::now(), 0);
                    while begun.elapsed() < WRITE_FOR {
                        check_ok(&line.exchange(request)?)?;
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
