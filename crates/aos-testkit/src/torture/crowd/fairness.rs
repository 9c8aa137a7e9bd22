//! Measures a quiet session alone and beside a noisy session that sends as many requests as it can, in turns.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::figures::Times;
use super::worker::Worker;
use crate::client::Client;
use crate::torture::Setup;

/// The response times of the quiet session.
#[derive(Debug, Default, Clone)]
pub struct Fairness {
    pub alone: Times,
    pub beside: Times,
    /// Requests that the noisy session completed meanwhile.
    pub noise: u64,
}

/// The pause between two requests of the quiet session.
const PAUSE: Duration = Duration::from_millis(4);
const ROUNDS: u32 = 5;
/// The number of files that the noisy session searches.
const CORPUS_FILES: usize = 1_500;

impl std::fmt::Display for Fairness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ((middle, tail), (noisy_middle, noisy_tail)) =
            (self.alone.middle_and_tail(), self.beside.middle_and_tail());
        let ratio = |noisy: Duration, quiet: Duration| noisy.as_secs_f64() / quiet.as_secs_f64().max(1e-6);
        write!(
            f,
            "a quiet session alone p50 {middle:.2?} p99 {tail:.2?}, beside a noisy one ({} requests) p50 {noisy_middle:.2?} \
             p99 {noisy_tail:.2?}: {:.1} and {:.1} times",
            self.noise,
            ratio(noisy_middle, middle),
            ratio(noisy_tail, tail),
        )
    }
}

/// Measures both in turns, so that other load on the machine affects both.
pub(super) fn measure(setup: &Setup, time: Duration, seed: u64) -> Result<Fairness, String> {
    let mut client = setup.client()?;
    let root = setup.roots[0].join("quiet");
    std::fs::create_dir_all(&root).map_err(|why| why.to_string())?;
    let session = client.open(&root)?;
    let mut quiet = Worker::new(&session, &root, "q".into(), seed)?;
    let noisy = Noisy::new(setup, &mut client)?;
    let mut found = Fairness::default();
    let turn = time / (2 * ROUNDS);
    for _ in 0..ROUNDS {
        found.alone.merge(work_quietly(&mut quiet, &mut client, turn)?);
        let stop = AtomicBool::new(false);
        let (times, noise) = std::thread::scope(|scope| {
            let threads: Vec<_> =
                noisy.requests.iter().map(|r| scope.spawn(|| noisy.flood(r, &stop))).collect();
            let times = work_quietly(&mut quiet, &mut client, turn);
            stop.store(true, Ordering::Relaxed);
            let noise: Result<Vec<u64>, String> =
                threads.into_iter().map(|thread| thread.join().unwrap_or(Err("a panic".into()))).collect();
            (times, noise)
        });
        found.beside.merge(times?);
        found.noise += noise?.iter().sum::<u64>();
    }
    quiet.judge()?;
    Ok(found)
}

/// Sends requests with pauses. Commands are left out: they take longer than all other requests, and are few.
fn work_quietly(quiet: &mut Worker, client: &mut Client, time: Duration) -> Result<Times, String> {
    let until = Instant::now() + time;
    while Instant::now() < until {
        quiet.step(client)?;
        std::thread::sleep(PAUSE);
    }
    let mut times = std::mem::take(&mut quiet.times);
    times.leave_out("host.exec");
    Ok(times)
}

/// One session, and the requests that its clients repeat.
struct Noisy<'a> {
    setup: &'a Setup,
    session: String,
    requests: Vec<(&'static str, Value)>,
}

impl Noisy<'_> {
    fn new<'a>(setup: &'a Setup, client: &mut Client) -> Result<Noisy<'a>, String> {
        let root = setup.roots[0].join("noisy");
        corpus(&root).map_err(|why| format!("{}: {why}", root.display()))?;
        let session = client.open(&root)?;
        let grep = |pattern: &str| ("host.fs.grep", json!({ "pattern": pattern }));
        let large = json!({ "inline_text": { "text": "ten megabytes of text\n".repeat(460_000) } });
        let write = |path: &str| ("host.fs.write_file", json!({ "path": path, "content": large }));
        let patch: String = (0..50).map(|n| format!("*** Add File: p/{n}\n+one line\n")).collect();
        let patch = format!("*** Begin Patch\n{patch}*** End Patch\n");
        let patch = ("host.fs.apply_patch", json!({ "patch": { "inline_text": { "text": patch } } }));
        let command = |script: &str| ("host.exec", json!({ "argv": ["sh", "-c", script] }));
        let requests = vec![
            grep("stands n[o]where"),
            grep("l.ne .* text"),
            write("large"),
            patch,
            command("seq 100000 | sort -r | md5sum > sorted"),
            command("cat t/* | wc -c"),
        ];
        Ok(Noisy { setup, session, requests })
    }

    fn flood(&self, (kind, params): &(&'static str, Value), stop: &AtomicBool) -> Result<u64, String> {
        let mut client = self.setup.client()?;
        let mut params = params.clone();
        params["session_id"] = json!(self.session);
        let mut done = 0;
        while !stop.load(Ordering::Relaxed) {
            let receipt =
                client.try_effect(kind, &params, &format!("noise{done}")).ok_or("the daemon hung up")?;
            if receipt["status"] != "ok" {
                return Err(format!("{kind}: {receipt}"));
            }
            done += 1;
        }
        Ok(done)
    }
}

fn corpus(root: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(root.join("t"))?;
    let text = "a line of some text that is searched\n".repeat(200);
    (0..CORPUS_FILES).try_for_each(|n| std::fs::write(root.join(format!("t/{n}")), &text))
}
