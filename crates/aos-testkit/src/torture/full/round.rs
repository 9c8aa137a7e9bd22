//! One home on small disks, and its rounds: load, filling, kill, start, checks.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::agent::{Agent, Stopped, session_params};
use super::disk::SmallDisk;
use super::filling::{Filler, Filling, TOOK_LITTLE};
use super::{Plan, Tally};
use crate::check::verdict;
use crate::client::Client;
use crate::programs::Programs;
use crate::random::Random;
use crate::time::PATIENCE;
use crate::torture::kill::kill_in_recovery;
use crate::torture::load::Workload;
use crate::torture::pulse::{self, About};
use crate::torture::{Daemon, Setup};

#[derive(Debug)]
pub(super) struct Scene {
    pub(super) setup: Setup,
    pub(super) agents: Vec<Agent>,
    pub(super) random: Random,
    pub(super) tally: Tally,
    /// Before the disks: it ends first.
    daemon: Option<Daemon>,
    home_disk: SmallDisk,
    roots_disk: Option<SmallDisk>,
}

/// When the daemon is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Lives,
    /// This long after the load began.
    UnderLoad(Duration),
    /// When the load has ended.
    Afterwards,
}

/// What was filled in a round.
#[derive(Debug)]
pub(super) struct Filled {
    pub(super) filling: Filling,
    pub(super) filler: Filler,
    /// The session of the command that filled.
    session: Option<String>,
}

/// The least that must be free for another round, in percent.
const FREE_PERCENT_MIN: u64 = 55;

impl Scene {
    pub(super) fn new(programs: &Programs, plan: &Plan, seed: u64) -> Result<Scene, String> {
        let mut random = Random::new(seed);
        let mut ext4 = || plan.ext4 && random.one_in(3);
        let (home_ext4, roots_ext4) = (ext4(), ext4());
        let home_disk = SmallDisk::mount(home_ext4, &mut random)?;
        let other = random.one_in(2).then(|| SmallDisk::mount(roots_ext4, &mut random));
        let roots_disk = other.transpose()?;
        let roots_at = roots_disk.as_ref().unwrap_or(&home_disk).at();
        let roots: Vec<PathBuf> = ["ws0", "ws1"].map(|name| roots_at.join(name)).to_vec();
        roots.iter().try_for_each(std::fs::create_dir).map_err(|why| why.to_string())?;
        let setup = Setup { programs: programs.clone(), home: home_disk.at().join("home"), roots };
        let workloads = [Workload::Mixed, Workload::Patches, Workload::Commands];
        let agents = workloads.iter().enumerate().map(|(number, workload)| {
            Agent::new(number, &setup.roots[number % 2], *workload, random.number())
        });
        let agents = agents.collect::<Result<Vec<_>, _>>()?;
        let tally = Tally::default();
        let mut scene = Scene { setup, agents, random, tally, daemon: None, home_disk, roots_disk };
        scene.daemon = Some(scene.setup.start_daemon(&[])?);
        Ok(scene)
    }

    /// Continues until the rounds are done, something is wrong, or too little space is left for another round. `first` is
    /// the number of the first round in the whole run.
    pub(super) fn torture(&mut self, first: u64, rounds: u64) {
        while self.tally.rounds < rounds && self.tally.is_clean() {
            let has_room = self.disks().all(|disk| disk.free_percent() >= FREE_PERCENT_MIN);
            if self.tally.rounds > 0 && !has_room {
                return;
            }
            let number = first + self.tally.rounds;
            let filling = Filling::of_round(number, self.roots_disk.is_some());
            let fate = match number % 3 {
                0 => Fate::Afterwards,
                1 => Fate::UnderLoad(Duration::from_micros(self.random.below(500_000) as u64)),
                _ => Fate::Lives,
            };
            self.tally.rounds += 1;
            *self.tally.fillings.entry(filling).or_default() += 1;
            let told = self.tally.load.complaints.len();
            self.round(filling, fate).unwrap_or_else(|why| self.tally.load.fault(why));
            let ext4: Vec<bool> = self.disks().map(|disk| disk.is_ext4).collect();
            for complaint in &mut self.tally.load.complaints[told..] {
                *complaint = format!("round {number}, {filling}, {fate:?}, ext4 {ext4:?}: {complaint}");
            }
        }
    }

    fn disks(&self) -> impl Iterator<Item = &SmallDisk> {
        [Some(&self.home_disk), self.roots_disk.as_ref()].into_iter().flatten()
    }

    fn round(&mut self, filling: Filling, fate: Fate) -> Result<(), String> {
        self.allow_lack_of_space(true);
        let filled = self.prepare(filling)?;
        let receipt = self.under_load(&filled, fate)?;
        self.judge_filler(&filled, receipt.as_ref())?;
        if fate != Fate::Lives {
            self.restart()?;
        }
        self.check_full(&filled)?;
        filled.filler.free();
        // A daemon may also die while it takes its reserve back.
        if self.random.one_in(4) {
            self.restart()?;
        }
        if let Some(session) = &filled.session {
            self.close(session)?;
        }
        self.check_free()
    }

    pub(super) fn allow_lack_of_space(&mut self, allowed: bool) {
        self.agents.iter_mut().for_each(|agent| agent.writer.scarce.allowed = allowed);
    }

    pub(super) fn client(&self) -> Result<Client, String> {
        let client = self.setup.client()?;
        client.give_up_after(PATIENCE).map_err(|why| why.to_string())?;
        Ok(client)
    }

    fn prepare(&mut self, filling: Filling) -> Result<Filled, String> {
        let is_roots = matches!(filling, Filling::Roots | Filling::RootsInodes);
        let disk = self.roots_disk.as_ref().filter(|_| is_roots).unwrap_or(&self.home_disk);
        let filler = Filler { disk: disk.at(), home: self.setup.home.clone() };
        let is_command = filling.script(&mut self.random.clone()).is_some();
        let open = || self.client()?.open_with(&session_params(&self.setup.roots[0]));
        let session = is_command.then(open).transpose()?;
        Ok(Filled { filling, filler, session })
    }

    /// The agents work, the disk is filled meanwhile, and the daemon is killed if that is its fate. Returns the receipt of
    /// the command that filled the disk.
    fn under_load(&mut self, filled: &Filled, fate: Fate) -> Result<Option<Value>, String> {
        let Scene { setup, agents, daemon, tally, random, .. } = self;
        let (before, after) = (pause(random), pause(random));
        let script = filled.filling.script(random);
        let (mut filler_random, home) = (Random::new(random.number()), &setup.home);
        let (stop, is_filled) = (AtomicBool::new(false), AtomicBool::new(false));
        let fill = || {
            std::thread::sleep(before);
            let receipt = match (&script, &filled.session) {
                (Some(script), Some(session)) => Ok(command(home, session, script)),
                _ => filled.filler.fill(filled.filling, &mut filler_random).map(|()| None),
            };
            is_filled.store(true, Ordering::Relaxed);
            receipt
        };
        let begun = Instant::now();
        let ((stopped, receipt), pulse) = pulse::beside(home, About::Status, || {
            std::thread::scope(|scope| {
                let filling = scope.spawn(fill);
                let working: Vec<_> =
                    agents.iter_mut().map(|agent| scope.spawn(|| agent.run(home, &stop))).collect();
                if let Fate::UnderLoad(moment) = fate {
                    std::thread::sleep(moment.saturating_sub(begun.elapsed()));
                    *daemon = None;
                }
                while !is_filled.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                std::thread::sleep(after);
                stop.store(true, Ordering::Relaxed);
                let stopped: Vec<_> = working.into_iter().map(ScopedJoinHandle::join).collect();
                (stopped, filling.join())
            })
        });
        tally.load.pulse.add(&pulse);
        for stopped in stopped {
            match stopped {
                Ok(Stopped::Asked) => {}
                Ok(Stopped::HungUp) if daemon.is_none() => {}
                Ok(Stopped::HungUp) => tally.load.fault("the daemon did not answer".into()),
                Ok(Stopped::Unexpected(why)) => tally.load.fault(why),
                Err(_) => tally.load.fault("an agent panicked".into()),
            }
        }
        receipt.map_err(|_| "the filler panicked".to_owned())?
    }

    /// A command that fills a disk is ended, and nothing of it lands.
    fn judge_filler(&mut self, filled: &Filled, receipt: Option<&Value>) -> Result<(), String> {
        let Some(receipt) = receipt else {
            let is_dead = filled.session.is_none() || self.daemon.is_none();
            return if is_dead { Ok(()) } else { Err("the command that fills was not answered".into()) };
        };
        let verdict = verdict(receipt);
        match verdict.as_str() {
            "forbidden / limit_exceeded" => self.tally.ended += 1,
            "error / no_space" => self.tally.refused += 1,
            "ok" if filled.filling == Filling::CommandNearly || took_little(receipt) => {}
            // Others made room before it was noticed that there was none.
            "timeout" if self.home_disk.free_percent() > 5 => {}
            _ => return Err(format!("the command that fills: {receipt}")),
        }
        Ok(())
    }

    /// Kills the daemon if it still runs, and starts it while the disk is full; sometimes it is killed there too.
    fn restart(&mut self) -> Result<(), String> {
        self.daemon = None;
        self.tally.load.kills += 1;
        self.agents.iter_mut().for_each(Agent::was_killed);
        while self.random.one_in(4) {
            kill_in_recovery(&self.setup, &mut self.random, false);
            self.tally.load.kills += 1;
        }
        self.tally.starts += 1;
        match self.setup.start_daemon(&[]) {
            Ok(daemon) => self.daemon = Some(daemon),
            Err(why) => {
                self.tally.failed_starts += 1;
                return Err(format!("failed start: {why}"));
            }
        }
        Ok(())
    }

    /// Closes the session of the command that filled the disk, which gives back its private folders.
    fn close(&mut self, session: &str) -> Result<(), String> {
        let params = json!({ "session_id": session, "signal": "term" });
        let receipt = self.client()?.effect("host.session.signal", params);
        if verdict(&receipt) == "signaled" { Ok(()) } else { Err(format!("close: {receipt}")) }
    }

    /// Compares what was acknowledged with the journal and the disk.
    pub(super) fn judge(&mut self) -> Result<(), String> {
        let journal = self.setup.journal()?;
        for agent in &mut self.agents {
            agent.writer.judge(&journal, &mut self.tally.load);
        }
        Ok(())
    }

    fn count(&mut self) {
        let writers = || self.agents.iter().map(|agent| &agent.writer);
        self.tally.load.acked = writers().map(|writer| writer.acked.len() as u64).sum();
        for agent in &mut self.agents {
            let scarce = &mut agent.writer.scarce;
            self.tally.refused += std::mem::take(&mut scarce.refused);
            self.tally.ended += std::mem::take(&mut scarce.ended);
        }
    }

    /// What was counted. With `keep`, a home with a fault is copied to a folder that is kept.
    pub(super) fn end(mut self, keep: bool) -> Tally {
        self.daemon = None;
        self.count();
        let dir = tempfile::Builder::new().prefix("aos-full-look-").tempdir();
        if let Ok(dir) = dir
            && keep
            && !self.tally.is_clean()
        {
            let dir = dir.keep();
            let from = [&self.setup.home].into_iter().chain(&self.setup.roots);
            let _ = std::process::Command::new("cp")
                .args(["-a", "--sparse=always"])
                .args(from)
                .arg(&dir)
                .status();
            self.tally.load.complaints.push(format!("kept for a look: {}", dir.display()));
        }
        std::mem::take(&mut self.tally)
    }
}

fn took_little(receipt: &Value) -> bool {
    receipt["stdout"]["inline_text"]["text"].as_str().is_some_and(|said| said.contains(TOOK_LITTLE))
}

fn pause(random: &mut Random) -> Duration {
    Duration::from_micros(random.below(150_000) as u64)
}

/// Runs a command. Without a receipt the daemon ended first.
fn command(home: &std::path::Path, session: &str, script: &str) -> Option<Value> {
    let mut client = Client::connect(home).ok()?;
    client.give_up_after(2 * PATIENCE).ok()?;
    let params =
        json!({ "session_id": session, "argv": ["sh", "-c", script], "timeout_ns": 40_000_000_000_u64 });
    client.try_effect("host.exec", &params, "filler")
}
