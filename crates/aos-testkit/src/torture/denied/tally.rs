//! What a run of attempts counted, by mode.

use std::collections::BTreeMap;

use crate::torture::pulse::Pulse;

/// The counts of one mode. Each try is in exactly one of the counts after `tries`, except controls.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    pub tries: u64,
    /// Answered as forbidden, with nothing changed.
    pub refused: u64,
    /// Changed by a command, and as before after its receipt.
    pub put_back: u64,
    /// Reads by a command that found no content.
    pub masked: u64,
    /// Nothing to refuse: the system stopped it, or it changed nothing.
    pub no_effect: u64,
    /// Not run, because the session cannot enforce its rules.
    pub not_run: u64,
    pub through: u64,
    /// Operations on paths that are not denied, which succeeded.
    pub controls: u64,
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.tries += other.tries;
        self.refused += other.refused;
        self.put_back += other.put_back;
        self.masked += other.masked;
        self.no_effect += other.no_effect;
        self.not_run += other.not_run;
        self.through += other.through;
        self.controls += other.controls;
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Counts { tries, refused, put_back, masked, no_effect, not_run, through, controls } = self;
        write!(
            to,
            "{tries} tries: {refused} refused, {put_back} put back, {masked} masked, {no_effect} without effect, \
             {not_run} not run, {through} through; {controls} controls done"
        )
    }
}

#[derive(Debug, Default)]
pub struct Tally {
    pub modes: BTreeMap<String, Counts>,
    pub sessions: u64,
    /// Modes that this machine cannot run, and why.
    pub skipped: BTreeMap<String, String>,
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

    pub fn tries(&self) -> u64 {
        self.modes.values().map(|counts| counts.tries).sum()
    }

    pub(super) fn count(&mut self, mode: &str, counts: &Counts) {
        self.modes.entry(mode.to_owned()).or_default().add(counts);
    }

    pub(super) fn answered(&mut self, pulse: &Pulse) {
        self.complaints.extend(pulse.complaint());
        self.pulse.add(pulse);
    }

    pub fn add(&mut self, other: Tally) {
        for (mode, counts) in &other.modes {
            self.count(mode, counts);
        }
        self.sessions += other.sessions;
        self.skipped.extend(other.skipped);
        self.pulse.add(&other.pulse);
        self.complaints.extend(other.complaints);
    }

    /// The modes in which an outcome never came, although there were enough tries for it: there the run proves nothing.
    pub fn blunt(&self) -> Vec<String> {
        let is_blunt = |counts: &Counts| {
            let stopped = counts.refused + counts.put_back + counts.masked;
            counts.tries > 50 && (stopped == 0 || counts.controls == 0)
        };
        let modes = self.modes.iter().filter(|(_, counts)| is_blunt(counts));
        modes
            .map(|(mode, counts)| format!("{mode}: nothing was refused, or no control done: {counts}"))
            .collect()
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut total = Counts::default();
        self.modes.values().for_each(|counts| total.add(counts));
        write!(to, "{total} in {} sessions; {}", self.sessions, self.pulse)?;
        for (mode, counts) in &self.modes {
            write!(to, "\n  {mode}: {counts}")?;
        }
        for (mode, why) in &self.skipped {
            write!(to, "\n  {mode}: skipped: {why}")?;
        }
        Ok(())
    }
}
