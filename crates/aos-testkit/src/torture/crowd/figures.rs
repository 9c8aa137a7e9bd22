//! The figures of a crowd: response times, and the growth of samples over time.

use std::collections::BTreeMap;
use std::time::Duration;

/// How long each kind of request took, in microseconds.
#[derive(Debug, Default, Clone)]
pub struct Times(BTreeMap<&'static str, Vec<u32>>);

impl Times {
    pub(super) fn add(&mut self, kind: &'static str, took: Duration) {
        self.0.entry(kind).or_default().push(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
    }

    pub(super) fn merge(&mut self, other: Times) {
        for (kind, times) in other.0 {
            self.0.entry(kind).or_default().extend(times);
        }
    }

    pub(super) fn leave_out(&mut self, kind: &str) {
        self.0.remove(kind);
    }

    pub fn count(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// The median and the 99th percentile of all kinds together.
    pub(super) fn middle_and_tail(&self) -> (Duration, Duration) {
        let mut all: Vec<u32> = self.0.values().flatten().copied().collect();
        all.sort_unstable();
        (percentile(&all, 50), percentile(&all, 99))
    }

    /// One line per kind: the count, the median, the 99th percentile, the slowest.
    pub fn lines(&mut self) -> Vec<String> {
        let line = |(kind, times): (&&'static str, &mut Vec<u32>)| {
            times.sort_unstable();
            let ms = |percent| percentile(times, percent).as_secs_f64() * 1_000.0;
            let (middle, tail, worst) = (ms(50), ms(99), ms(100));
            format!("{kind:22} {:9} p50 {middle:8.2} ms  p99 {tail:8.2} ms  max {worst:8.2} ms", times.len())
        };
        self.0.iter_mut().map(line).collect()
    }
}

fn percentile(sorted: &[u32], percent: usize) -> Duration {
    let last = sorted.len().saturating_sub(1);
    let at = (sorted.len() * percent / 100).min(last);
    Duration::from_micros(sorted.get(at).copied().unwrap_or(0).into())
}

/// Samples of a value, each with its time in seconds.
#[derive(Debug, Default, Clone)]
pub struct Samples(Vec<(f64, f64)>);

impl Samples {
    pub(super) fn add(&mut self, at: Duration, value: u64) {
        self.0.push((at.as_secs_f64(), value as f64));
    }

    pub fn last(&self) -> f64 {
        self.0.last().map_or(0.0, |(_, value)| *value)
    }

    /// The growth per minute, by least squares over the samples after the first third.
    pub fn slope_per_minute(&self) -> f64 {
        let warm = &self.0[self.0.len() / 3..];
        let count = warm.len() as f64;
        let sum = |of: fn(&(f64, f64)) -> f64| warm.iter().map(of).sum::<f64>();
        let (x, y) = (sum(|(x, _)| *x), sum(|(_, y)| *y));
        let (xx, xy) = (sum(|(x, _)| x * x), sum(|(x, y)| x * y));
        let spread = count * xx - x * x;
        if spread.abs() < f64::EPSILON { 0.0 } else { (count * xy - x * y) / spread * 60.0 }
    }
}
