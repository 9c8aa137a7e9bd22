//! Requests fuzzed paths in every way while neighbour threads swap links, folders and files: nothing outside the root
//! may be leaked or changed.

mod ask;
mod beyond;
mod maze;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::Client;
use crate::random::Random;
use crate::time::is_over;
use crate::torture::pulse::{About, Pulse, feel};
use crate::torture::{COMPLAINTS_MAX, Setup, lock};
use ask::Ask;
use beyond::Beyond;
use maze::Neighbour;

#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    /// The number of paths that must reach the resolver, and how many of them in requests that write.
    pub resolutions: u64,
    pub writes: u64,
    pub clients: usize,
    pub neighbours: usize,
    pub until: Option<Instant>,
}

/// What was counted.
#[derive(Debug, Default)]
pub struct Tally {
    pub resolutions: u64,
    pub writes: u64,
    /// Writes that succeeded, inside the root.
    landed: u64,
    /// Paths that were refused by their text alone. They do not count as resolutions.
    by_text: u64,
    /// Requests with an invalid path or patch. They do not count as resolutions either.
    unparsed: u64,
    refused: u64,
    missing: u64,
    commands: u64,
    swaps: u64,
    escapes: u64,
    pulse: Pulse,
    pub complaints: Vec<String>,
}

impl Tally {
    pub fn failed(why: String) -> Tally {
        Tally { complaints: vec![why], ..Tally::default() }
    }

    pub fn is_clean(&self) -> bool {
        self.complaints.is_empty()
    }

    pub fn add(&mut self, mut other: Tally) {
        self.resolutions += other.resolutions;
        self.writes += other.writes;
        self.landed += other.landed;
        self.by_text += other.by_text;
        self.unparsed += other.unparsed;
        self.refused += other.refused;
        self.missing += other.missing;
        self.commands += other.commands;
        self.swaps += other.swaps;
        self.escapes += other.escapes;
        self.pulse.add(&other.pulse);
        self.complaints.append(&mut other.complaints);
        self.complaints.extend(other.pulse.complaint());
    }

    /// Counts one answer. Only a request that reached the disk counts as a resolution.
    fn answered(&mut self, ask: &Ask, receipt: &Value) {
        let word = |name: &str| receipt[name].as_str().unwrap_or_default();
        match (word("status"), word("error_code")) {
            ("", _) => self.complaints.push(format!("no receipt: {} {}", ask.kind, ask.params)),
            (_, "invalid_params" | "invalid_path" | "patch_parse_error") => return self.unparsed += 1,
            (_, "path_outside_roots") => return self.by_text += 1,
            ("forbidden", _) => self.refused += 1,
            ("not_found", _) => self.missing += 1,
            ("ok", _) if ask.writes => self.landed += 1,
            _ => {}
        }
        self.resolutions += 1;
        self.writes += u64::from(ask.writes);
        self.commands += u64::from(ask.kind == "host.exec");
    }

    fn escaped(&mut self, what: String) {
        self.escapes += 1;
        self.complaints.push(what);
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            to,
            "{} resolutions ({} refused, {} found nothing), {} of them writes ({} landed) and {} commands; {} swaps; {} \
             escapes; not counted: {} refused by their text, {} no path; {}",
            self.resolutions,
            self.refused,
            self.missing,
            self.writes,
            self.landed,
            self.commands,
            self.swaps,
            self.escapes,
            self.by_text,
            self.unparsed,
            self.pulse
        )
    }
}

/// Requests in flight on each connection.
const BATCH: usize = 16;
/// The interval between two checks of the folder outside.
const LOOK: Duration = Duration::from_millis(500);

/// Runs one home until the plan is done. `progress` gets the number of resolutions.
pub fn torture(setup: &Setup, plan: &Plan, progress: &mut (dyn FnMut(u64) + Send)) -> Tally {
    run(setup, plan, progress).unwrap_or_else(Tally::failed)
}

fn run(setup: &Setup, plan: &Plan, progress: &mut (dyn FnMut(u64) + Send)) -> Result<Tally, String> {
    let mut random = Random::new(plan.seed);
    let (root, told) = (&setup.roots[0], |why: std::io::Error| why.to_string());
    let beyond = Beyond::new(root.with_file_name("beyond"), random.number()).map_err(told)?;
    let mut neighbours: Vec<Neighbour> = (0..plan.neighbours)
        .map(|number| {
            let stage = root.with_file_name(format!("stage{number}"));
            Neighbour::new(root, &beyond.folder, stage, random.number()).map_err(told)
        })
        .collect::<Result<_, _>>()?;
    neighbours.iter_mut().for_each(Neighbour::furnish);
    let daemon = setup.start_daemon(&[])?;
    let beside = names_in(root.parent().unwrap_or(root));
    let attack = Attack { setup, plan, beyond, tally: Mutex::default(), stop: AtomicBool::new(false) };
    let mut tally = attack.run(&mut neighbours, &mut random, progress);
    let now = names_in(root.parent().unwrap_or(root));
    if now != beside {
        tally.escaped(format!("beside the root there is {now:?}, there was {beside:?}"));
    }
    tally.complaints.extend(setup.verify().err());
    daemon.kill();
    Ok(tally)
}

struct Attack<'a> {
    setup: &'a Setup,
    plan: &'a Plan,
    beyond: Beyond,
    tally: Mutex<Tally>,
    stop: AtomicBool,
}

impl Attack<'_> {
    fn run(
        self,
        neighbours: &mut [Neighbour],
        random: &mut Random,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Tally {
        let seeds: Vec<u64> = (0..self.plan.clients).map(|_| random.number()).collect();
        let pulse = std::thread::scope(|scope| {
            for neighbour in &mut *neighbours {
                scope.spawn(|| neighbour.run(&self.stop));
            }
            let pulse = scope.spawn(|| self.watch(progress));
            let clients: Vec<_> = seeds.iter().map(|seed| scope.spawn(|| self.client(*seed))).collect();
            for client in clients {
                let outcome = client.join().unwrap_or_else(|_| Err("a client panicked".into()));
                self.tally().complaints.extend(outcome.err());
            }
            self.stop.store(true, Ordering::Relaxed);
            pulse.join().unwrap_or_default()
        });
        self.look();
        let swaps = neighbours.iter().map(|neighbour| neighbour.swaps).sum();
        let mut tally = self.tally.into_inner().expect("no thread panics while it holds the lock");
        tally.add(Tally { pulse, swaps, ..Tally::default() });
        tally
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        lock(&self.tally)
    }

    /// Sends requests in its own session until all clients together have enough resolutions.
    fn client(&self, seed: u64) -> Result<(), String> {
        let (mut random, root) = (Random::new(seed), self.setup.roots[0].as_path());
        let mut client = self.setup.client()?;
        let follow = if random.one_in(4) { "deny" } else { "within_root_only" };
        let session = open(&mut client, root, follow)?;
        loop {
            let asks: Vec<Ask> = (0..BATCH).map(|_| Ask::new(&session, root, &mut random)).collect();
            let calls: Vec<Value> =
                asks.iter().map(|ask| json!({ "kind": ask.kind, "params": ask.params })).collect();
            let answers = client.batch("effect.call", &calls).ok_or("the daemon hung up")?;
            let mut tally = self.tally();
            for (ask, (line, receipt)) in asks.iter().zip(answers) {
                tally.answered(ask, &receipt);
                if self.beyond.is_told(&line, &ask.path, &receipt) {
                    tally.escaped(format!("leaked: {} {}: {line}", ask.kind, ask.params));
                }
            }
            let enough = tally.resolutions >= self.plan.resolutions && tally.writes >= self.plan.writes;
            let is_late = is_over(self.plan.until);
            if enough || is_late || tally.complaints.len() > COMPLAINTS_MAX {
                return Ok(());
            }
        }
    }

    fn watch(&self, progress: &mut (dyn FnMut(u64) + Send)) -> Pulse {
        let mut looked = Instant::now();
        feel(&self.setup.home, About::Root(&self.setup.roots[0]), &self.stop, &mut || {
            progress(self.tally().resolutions);
            if looked.elapsed() > LOOK {
                self.look();
                looked = Instant::now();
            }
        })
    }

    fn look(&self) {
        let changes = self.beyond.changes();
        if !changes.is_empty() {
            self.tally().escaped(format!("outside was changed: {changes:?}"));
        }
    }
}

fn open(client: &mut Client, root: &Path, follow: &str) -> Result<String, String> {
    let params = json!({
        "target": { "local": { "workdir": root } },
        // This suite does not test the policy of commands.
        "policy": { "preset": "permissive" },
        "capability": { "follow_symlinks": follow, "exec": { "uncaptured": true } },
        // Pre-images of a hundred thousand writes would only fill the disk.
        "snapshot_bytes_max": 1 << 20,
    });
    client.open_with(&params)
}

fn names_in(folder: &Path) -> BTreeMap<std::ffi::OsString, bool> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| (entry.file_name(), entry.path().is_dir())).collect()
}
