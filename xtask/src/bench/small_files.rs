//! Section 1: one small file over the daemon's socket, beside the mini host and the peers.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use super::daemon::{Client, Daemon, Line, Running, check_ok, connect};
use super::one_core::OneCore;
use super::peers::{self, Peer};
use super::task::{Kind, TASKS, Task, content, mark};
use super::{Options, Reach, Report, Sample};
use crate::cargo::target_dir;

/// A program that can do the tasks, in its own folder.
pub(crate) trait Contender {
    fn name(&self) -> &str;

    fn root(&self) -> &Path;

    /// Whether it supports this kind of task.
    fn takes(&self, _kind: Kind) -> bool {
        true
    }

    /// Does the calls numbered `calls` of a task and times each. An answer other than success is an error.
    fn turn(&mut self, task: &Task, calls: Range<usize>, sample: &mut Sample) -> anyhow::Result<()>;
}

pub(crate) const WITH_DUTIES: &str = "mini host with duties";

/// Beside the mini hosts: what the duties cost.
pub(crate) fn run(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let _one_core = OneCore::bind()?;
    let dir = options.workplace()?;
    let mut contenders: Vec<Box<dyn Contender>> = vec![
        Box::new(Product::start(dir.path(), "process")?),
        Box::new(Mini::start(dir.path(), "mini host", &[])?),
        Box::new(Mini::start(dir.path(), WITH_DUTIES, &["--duties"])?),
    ];
    let last = race_all(&mut contenders, options, report)?;
    let what = "the first 4 KB of 64 MB cost, against those of 4 KB";
    report.figure(what, last[1] / last[0], "×", Some(Reach::AtMost(1.1)));
    Ok(())
}

/// Beside other servers, which start threads: on all cores.
pub(crate) fn run_beside_peers(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    if options.no_peers {
        return Ok(());
    }
    let dir = options.workplace()?;
    let mut contenders: Vec<Box<dyn Contender>> = vec![Box::new(Product::start(dir.path(), "process")?)];
    contenders.extend(peers::start(dir.path(), report)?);
    race_all(&mut contenders, options, report).map(drop)
}

/// All tasks. Returns our own medians of the last ones.
fn race_all(
    contenders: &mut [Box<dyn Contender>],
    options: &Options,
    report: &mut Report,
) -> anyhow::Result<Vec<f64>> {
    let mut last = Vec::new();
    for tasks in TASKS {
        last = race(tasks, contenders, options.rounds, report, &reach)?;
    }
    Ok(last)
}

/// How many files are made and deleted before the tasks of [`run_on_ordinary_disk`].
const DELETED_BEFORE: usize = 20_000;

/// The tasks that write, on the disk of the target folder. After many deletions ext4 searches recently deleted inodes,
/// which makes creating a file slow; a disk in use is like that.
pub(crate) fn run_on_ordinary_disk(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let _one_core = OneCore::bind()?;
    let dir = tempfile::tempdir_in(target_dir()?)?;
    let mut contenders: Vec<Box<dyn Contender>> = vec![
        Box::new(Product::start(dir.path(), "process")?),
        Box::new(Mini::start(dir.path(), WITH_DUTIES, &["--duties"])?),
    ];
    for tasks in TASKS {
        let is_small_change = |task: &Task| task.size <= 1 << 10 && task.kind != Kind::Read;
        if tasks.iter().all(is_small_change) {
            make_and_delete(dir.path())?;
            let reach = |_, name: &str| (name == WITH_DUTIES).then_some(Reach::AtMost(1.2));
            race(tasks, &mut contenders, options.rounds, report, &reach)?;
        }
    }
    Ok(())
}

fn make_and_delete(dir: &Path) -> anyhow::Result<()> {
    let folder = tempfile::tempdir_in(dir)?;
    for number in 0..DELETED_BEFORE {
        std::fs::write(folder.path().join(number.to_string()), b"x")?;
    }
    Ok(folder.close()?)
}

/// The target of our ratio to a contender, from `bench.md`.
fn reach(kind: Kind, name: &str) -> Option<Reach> {
    if name == WITH_DUTIES {
        Some(Reach::AtMost(if matches!(kind, Kind::Write | Kind::Edit) { 1.4 } else { 1.5 }))
    } else if name.starts_with(Peer::NODE) {
        Some(Reach::AtMost(if kind == Kind::Read { 0.15 } else { 0.35 }))
    } else if name.starts_with(Peer::RUST) {
        Some(Reach::AtMost(1.0))
    } else {
        None
    }
}

/// All contenders do all tasks in turns. The first round is a warm-up. Returns our own medians.
pub(crate) fn race(
    tasks: &[Task],
    contenders: &mut [Box<dyn Contender>],
    rounds: usize,
    report: &mut Report,
    reach: &dyn Fn(Kind, &str) -> Option<Reach>,
) -> anyhow::Result<Vec<f64>> {
    for task in tasks {
        for contender in contenders.iter().filter(|contender| contender.takes(task.kind)) {
            task.prepare(contender.root())?;
        }
    }
    let mut samples = vec![vec![Sample::default(); contenders.len()]; tasks.len()];
    for round in 0..=rounds {
        for (task, samples) in tasks.iter().zip(&mut samples) {
            for (contender, sample) in contenders.iter_mut().zip(samples) {
                if round == 1 {
                    *sample = Sample::default();
                }
                if contender.takes(task.kind) {
                    contender
                        .turn(task, round * task.calls..(round + 1) * task.calls, sample)
                        .map_err(|why| why.context(format!("{}, {}", contender.name(), task.name)))?;
                }
            }
        }
    }
    let mut ours = Vec::new();
    for (task, samples) in tasks.iter().zip(&samples) {
        let mut standings = Vec::new();
        for (contender, sample) in contenders.iter().zip(samples).filter(|(c, _)| c.takes(task.kind)) {
            task.check(contender.root(), (rounds + 1) * task.calls)
                .map_err(|why| why.context(contender.name().to_owned()))?;
            standings.push((contender.name(), sample));
        }
        ours.push(report.race(task.name, &standings, |name| reach(task.kind, name)));
    }
    Ok(ours)
}

/// The daemon with one client.
pub(crate) struct Product {
    root: PathBuf,
    client: Client,
    _daemon: Daemon,
}

impl Product {
    pub(crate) fn start(dir: &Path, durability: &str) -> anyhow::Result<Product> {
        let root = dir.join("product");
        std::fs::create_dir(&root)?;
        let daemon = Daemon::start(&dir.join("home"), durability)?;
        Ok(Product { client: daemon.client(&root)?, root, _daemon: daemon })
    }
}

impl Contender for Product {
    fn name(&self) -> &'static str {
        "aos"
    }

    fn root(&self) -> &Path {
        &self.root
    }

    fn turn(&mut self, task: &Task, calls: Range<usize>, sample: &mut Sample) -> anyhow::Result<()> {
        let path = task.file();
        for call in calls {
            let request = match task.kind {
                Kind::Read => self.client.request("host.fs.read_file", json!({ "path": path })),
                Kind::Head => {
                    self.client.request("host.fs.read_file", json!({ "path": path, "max_bytes": 4096 }))
                }
                Kind::Write => {
                    let text = content(task.size, call + 1);
                    let params = json!({ "path": path, "content": { "inline_text": { "text": text } } });
                    self.client.request("host.fs.write_file", params)
                }
                Kind::Edit => {
                    let params =
                        json!({ "path": path, "old_string": mark(call), "new_string": mark(call + 1) });
                    self.client.request("host.fs.edit_file", params)
                }
            };
            check_ok(&sample.time(|| self.client.line.exchange(&request))?)?;
        }
        Ok(())
    }
}

/// The mini host with one set of options.
pub(crate) struct Mini {
    name: &'static str,
    root: PathBuf,
    pub(crate) line: Line,
    _running: Running,
}

impl Mini {
    pub(crate) fn start(dir: &Path, name: &'static str, manner: &[&str]) -> anyhow::Result<Mini> {
        let place = dir.join(name);
        let (root, bank, socket) = (place.join("root"), place.join("bank"), place.join("socket"));
        std::fs::create_dir_all(&root)?;
        std::fs::create_dir_all(&bank)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("mini-host").arg(&socket).arg(&root).arg(&bank).args(manner);
        let running = Running(command.stdin(Stdio::null()).spawn()?);
        Ok(Mini { name, root, line: connect(&socket)?, _running: running })
    }
}

impl Contender for Mini {
    fn name(&self) -> &str {
        self.name
    }

    fn root(&self) -> &Path {
        &self.root
    }

    fn turn(&mut self, task: &Task, calls: Range<usize>, sample: &mut Sample) -> anyhow::Result<()> {
        let path = task.file();
        for call in calls {
            let request = match task.kind {
                Kind::Read => json!({ "id": call, "op": "read", "path": path }),
                Kind::Head => json!({ "id": call, "op": "read", "path": path, "max": 4096 }),
                Kind::Write => {
                    json!({ "id": call, "op": "write", "path": path, "text": content(task.size, call + 1) })
                }
                Kind::Edit => {
                    json!({ "id": call, "op": "edit", "path": path, "old": mark(call), "text": mark(call + 1) })
                }
            };
            let request = format!("{request}\n");
            check_ok(&sample.time(|| self.line.exchange(&request))?)?;
        }
        Ok(())
    }
}
