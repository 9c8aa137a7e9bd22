//! The results: printed as they arrive, kept for `--json`, and compared with their targets.

use std::process::Command;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// The times of one contender at one task.
#[derive(Debug, Default, Clone)]
pub(crate) struct Sample {
    times: Vec<Duration>,
}

impl Sample {
    pub(crate) fn time<T>(&mut self, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        let begun = Instant::now();
        let done = work()?;
        self.times.push(begun.elapsed());
        Ok(done)
    }

    /// Adds a time that was measured elsewhere.
    pub(crate) fn add(&mut self, time: Duration) {
        self.times.push(time);
    }

    /// In microseconds.
    pub(crate) fn quantile(&self, q: f64) -> f64 {
        let mut times = self.times.clone();
        times.sort_unstable();
        if times.is_empty() {
            return f64::NAN;
        }
        times[((times.len() - 1) as f64 * q) as usize].as_secs_f64() * 1e6
    }

    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }
}

/// The target of a figure.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reach {
    AtMost(f64),
    AtLeast(f64),
}

impl Reach {
    pub(crate) fn is_met(self, found: f64) -> bool {
        match self {
            Reach::AtMost(limit) => found <= limit,
            Reach::AtLeast(limit) => found >= limit,
        }
    }
}

impl std::fmt::Display for Reach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reach::AtMost(limit) => write!(f, "≤ {limit}"),
            Reach::AtLeast(limit) => write!(f, "≥ {limit}"),
        }
    }
}

/// The unit of figures that are compared between runs and machines.
pub(crate) const RATIO: &str = "×";

/// The results of one run.
#[derive(Debug)]
pub(crate) struct Report {
    rounds: usize,
    commit: String,
    date: String,
    sections: Vec<Section>,
}

/// The results of one section, with their time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) commit: String,
    pub(crate) date: String,
    pub(crate) rounds: usize,
    /// The load of the machine before and after: figures from a busy machine are less reliable.
    pub(crate) load: Vec<String>,
    pub(crate) races: Vec<Race>,
    pub(crate) figures: Vec<Figure>,
    pub(crate) left_out: Vec<String>,
}

/// One task, done by several contenders in turns. The first contender is ours.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Race {
    pub(crate) task: String,
    pub(crate) contenders: Vec<Standing>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Standing {
    pub(crate) name: String,
    pub(crate) calls: usize,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Ours divided by theirs.
    pub(crate) ratio: f64,
    pub(crate) reach: Option<Reach>,
    pub(crate) met: Option<bool>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Figure {
    pub(crate) what: String,
    pub(crate) found: f64,
    pub(crate) unit: String,
    pub(crate) reach: Option<Reach>,
    pub(crate) met: Option<bool>,
}

/// One figure divided by another, which is comparable between machines.
#[derive(Debug)]
pub(crate) struct Ratio {
    pub(crate) what: String,
    pub(crate) found: f64,
    pub(crate) reach: Option<Reach>,
}

impl Section {
    pub(crate) fn ratios(&self) -> Vec<Ratio> {
        let races = self.races.iter().flat_map(|race| {
            race.contenders.iter().skip(1).map(|standing| Ratio {
                what: format!("{}: {}, against {}", self.name, race.task, standing.name),
                found: standing.ratio,
                reach: standing.reach,
            })
        });
        let figures = self.figures.iter().filter(|figure| figure.unit == RATIO).map(|figure| Ratio {
            what: format!("{}: {}", self.name, figure.what),
            found: figure.found,
            reach: figure.reach,
        });
        races.chain(figures).collect()
    }

    /// The figures with a target, and whether they reached it.
    pub(crate) fn verdicts(&self) -> Vec<(String, bool)> {
        let standings = self.races.iter().flat_map(|race| {
            race.contenders.iter().map(|s| (format!("{}, against {}", race.task, s.name), s.met))
        });
        let figures = self.figures.iter().map(|figure| (figure.what.clone(), figure.met));
        standings.chain(figures).filter_map(|(what, met)| Some((what, met?))).collect()
    }
}

impl Report {
    pub(crate) fn new(rounds: usize) -> Report {
        let commit = said_by(Command::new("git").args(["rev-parse", "--short", "HEAD"]));
        let date = said_by(Command::new("date").args(["-u", "+%F"]));
        Report { rounds, commit, date, sections: Vec::new() }
    }

    pub(crate) fn begin(&mut self, name: &str, title: &str) {
        println!("\n── {title}");
        self.sections.push(Section {
            name: name.to_owned(),
            title: title.to_owned(),
            commit: self.commit.clone(),
            date: self.date.clone(),
            rounds: self.rounds,
            load: vec![load()],
            races: Vec::new(),
            figures: Vec::new(),
            left_out: Vec::new(),
        });
    }

    pub(crate) fn finish(&mut self) {
        self.section().load.push(load());
    }

    fn section(&mut self) -> &mut Section {
        self.sections.last_mut().expect("BUG: something is measured before a section began")
    }

    /// Adds one task of several contenders, ours first. `reach` is the target of our ratio to a contender.
    /// Returns our own median.
    pub(crate) fn race(
        &mut self,
        task: &str,
        contenders: &[(&str, &Sample)],
        reach: impl Fn(&str) -> Option<Reach>,
    ) -> f64 {
        let ours = contenders.first().map_or(f64::NAN, |(_, sample)| sample.median());
        println!("{task:<44} {:>11} {:>11} {:>8}", "p50 µs", "p99 µs", "aos / it");
        let mut race = Race { task: task.to_owned(), contenders: Vec::new() };
        for (name, sample) in contenders {
            let ratio = ours / sample.median();
            let reach = reach(name);
            let standing = Standing {
                name: (*name).to_owned(),
                calls: sample.times.len(),
                p50_us: sample.median(),
                p99_us: sample.quantile(0.99),
                ratio,
                reach,
                met: reach.map(|reach| reach.is_met(ratio)),
            };
            println!(
                "  {name:<42} {:>11.1} {:>11.1} {ratio:>8.2}{}",
                standing.p50_us,
                standing.p99_us,
                verdict(reach, ratio)
            );
            race.contenders.push(standing);
        }
        self.section().races.push(race);
        ours
    }

    /// Adds a single figure.
    pub(crate) fn figure(&mut self, what: &str, found: f64, unit: &str, reach: Option<Reach>) {
        let digits = if found.abs() < 100.0 { 2 } else { 0 };
        println!("{what:<58} {found:>11.digits$} {unit}{}", verdict(reach, found));
        let met = reach.map(|reach| reach.is_met(found));
        let (what, unit) = (what.to_owned(), unit.to_owned());
        self.section().figures.push(Figure { what, found, unit, reach, met });
    }

    /// Reports a contender that could not be installed or started.
    pub(crate) fn leave_out(&mut self, who: &str, why: &anyhow::Error) {
        println!("left out: {who} ({why:#})");
        self.section().left_out.push(format!("{who}: {why:#}"));
    }

    /// Prints the missed targets, and returns the results.
    pub(crate) fn end(self) -> Vec<Section> {
        let verdicts: Vec<(String, bool)> = self.sections.iter().flat_map(Section::verdicts).collect();
        let reached = verdicts.iter().filter(|(_, met)| *met).count();
        println!("\n{reached} of {} figures reached; load {}", verdicts.len(), load());
        for (what, _) in verdicts.iter().filter(|(_, met)| !met) {
            println!("  missed: {what}");
        }
        self.sections
    }
}

fn verdict(reach: Option<Reach>, found: f64) -> String {
    reach.map_or_else(String::new, |reach| {
        format!("   {reach} {}", if reach.is_met(found) { "reached" } else { "MISSED" })
    })
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// The one line that a program prints.
fn said_by(command: &mut Command) -> String {
    let output = command.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).trim().to_owned()
}
