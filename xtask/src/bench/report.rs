//! What was found: printed as it comes, kept for `--json`, and compared with what is to be reached.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

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

    /// A time that somebody else took.
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

/// What a figure is to be.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reach {
    AtMost(f64),
    AtLeast(f64),
}

impl Reach {
    fn is_met(self, found: f64) -> bool {
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

/// All that one run found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    rounds: usize,
    /// Of the machine, before and after: figures of a busy one are worth less.
    load: Vec<String>,
    races: Vec<Race>,
    figures: Vec<Figure>,
    left_out: Vec<String>,
    #[serde(skip)]
    section: &'static str,
}

/// One task, done by several in turns. The first contender is ours.
#[derive(Debug, Serialize)]
struct Race {
    section: &'static str,
    task: String,
    contenders: Vec<Standing>,
}

#[derive(Debug, Serialize)]
struct Standing {
    name: String,
    calls: usize,
    p50_us: f64,
    p99_us: f64,
    /// Ours divided by theirs.
    ratio: f64,
    reach: Option<Reach>,
    met: Option<bool>,
}

#[derive(Debug, Serialize)]
struct Figure {
    section: &'static str,
    what: String,
    found: f64,
    unit: &'static str,
    reach: Option<Reach>,
    met: Option<bool>,
}

impl Report {
    pub(crate) fn new(rounds: usize) -> Report {
        Report {
            rounds,
            load: vec![load()],
            races: Vec::new(),
            figures: Vec::new(),
            left_out: Vec::new(),
            section: "",
        }
    }

    pub(crate) fn begin(&mut self, section: &'static str, title: &str) {
        self.section = section;
        println!("\n── {title}");
    }

    /// One task of several contenders, ours first; `reach` names what our ratio to a contender is to be.
    /// Returns our own median.
    pub(crate) fn race(
        &mut self,
        task: &str,
        contenders: &[(&str, &Sample)],
        reach: impl Fn(&str) -> Option<Reach>,
    ) -> f64 {
        let ours = contenders.first().map_or(f64::NAN, |(_, sample)| sample.median());
        println!("{task:<44} {:>11} {:>11} {:>8}", "p50 µs", "p99 µs", "aos / it");
        let mut race = Race { section: self.section, task: task.to_owned(), contenders: Vec::new() };
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
        self.races.push(race);
        ours
    }

    /// A figure that stands by itself.
    pub(crate) fn figure(&mut self, what: &str, found: f64, unit: &'static str, reach: Option<Reach>) {
        let digits = if found.abs() < 100.0 { 2 } else { 0 };
        println!("{what:<58} {found:>11.digits$} {unit}{}", verdict(reach, found));
        let met = reach.map(|reach| reach.is_met(found));
        self.figures.push(Figure { section: self.section, what: what.to_owned(), found, unit, reach, met });
    }

    /// A contender that could not be had.
    pub(crate) fn leave_out(&mut self, who: &str, why: &anyhow::Error) {
        println!("left out: {who} ({why:#})");
        self.left_out.push(format!("{who}: {why:#}"));
    }

    pub(crate) fn end(mut self, file: Option<&Path>) -> anyhow::Result<()> {
        self.load.push(load());
        let verdicts = || {
            let standings = self.races.iter().flat_map(|race| {
                race.contenders.iter().map(|s| (format!("{}, against {}", race.task, s.name), s.met))
            });
            standings.chain(self.figures.iter().map(|figure| (figure.what.clone(), figure.met)))
        };
        let missed: Vec<String> =
            verdicts().filter(|(_, met)| *met == Some(false)).map(|(what, _)| what).collect();
        let judged = verdicts().filter(|(_, met)| met.is_some()).count();
        println!(
            "\n{} of {judged} figures reached; load {}",
            judged - missed.len(),
            self.load.join(", then ")
        );
        for what in missed {
            println!("  missed: {what}");
        }
        if let Some(file) = file {
            std::fs::write(file, serde_json::to_string_pretty(&self)? + "\n")?;
        }
        Ok(())
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
