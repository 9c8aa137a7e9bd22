//! Host access: seven points that decide about paths and commands that reach outside the cwd or the workspace.
//!
//! Warnings, previews and refusals use one evaluation, so they cannot disagree. A point that is set to `allow` still
//! lists its risk.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use super::command::{self, CommandQuery, Reference};
use super::evaluation::{Evaluation, Risk, Target, shown};
use super::lexical::{is_within, lexical_join};
use super::point::Point;
use super::{Decision, Preset};

/// A decision for each of the seven points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostAccess {
    decisions: [Decision; 7],
}

/// Single points as requested. They override a preset.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostAccessSpec(pub BTreeMap<Point, Decision>);

/// A path and its context. `cwd`, `workspaces` and `resolved` are absolute and canonical.
#[derive(Debug, Clone, Copy)]
pub struct PathQuery<'a> {
    /// As the caller wrote it.
    pub input: &'a str,
    pub cwd: &'a str,
    /// A path inside any of them is inside. Without any, no path is outside.
    pub workspaces: &'a [&'a str],
    /// The same path with its links resolved by the host.
    pub resolved: &'a str,
}

impl HostAccess {
    pub fn preset(preset: Preset) -> HostAccess {
        HostAccess { decisions: Point::ALL.map(|point| point.decision_in(preset)) }
    }

    pub fn decision(&self, point: Point) -> Decision {
        self.decisions[point as usize]
    }

    #[must_use]
    pub fn with_points(mut self, points: &HostAccessSpec) -> HostAccess {
        for (&point, &decision) in &points.0 {
            self.decisions[point as usize] = decision;
        }
        self
    }

    pub fn to_spec(self) -> HostAccessSpec {
        HostAccessSpec(Point::ALL.map(|point| (point, self.decision(point))).into())
    }

    pub fn evaluate_path(&self, query: &PathQuery<'_>) -> Evaluation {
        let target = Target::Path { resolved_path: query.resolved.to_owned() };
        Evaluation::new(self.path_risks(query), target)
    }

    /// The risks of a path, in the order of the points. Allocates nothing if there are none.
    pub fn path_risks(&self, query: &PathQuery<'_>) -> Vec<Risk> {
        let mut risks = Vec::new();
        if query.input.starts_with('/') {
            risks.push(self.risk_at(Point::AbsolutePath, query.resolved));
        }
        if let Some(path) = query.outside(&[query.cwd]) {
            risks.push(self.risk_at(Point::PathOutsideCwd, &path));
        }
        if let Some(path) = query.outside(query.workspaces) {
            risks.push(self.risk_at(Point::PathOutsideWorkspace, &path));
        }
        risks
    }

    pub fn evaluate_command(&self, query: &CommandQuery<'_>) -> Evaluation {
        let references = command::references(query);
        let mut risks = Vec::new();
        if is_outside(query.command_cwd, &[query.cwd]) {
            risks.push(self.risk_at(Point::CommandCwdOutsideCwd, query.command_cwd));
        }
        if is_outside(query.command_cwd, query.workspaces) {
            risks.push(self.risk_at(Point::CommandCwdOutsideWorkspace, query.command_cwd));
        }
        if let Some(paths) = outside_of(&references, &[query.cwd]) {
            risks.push(self.risk(Point::CommandExternalPaths, &paths));
        }
        if let Some(paths) = outside_of(&references, query.workspaces) {
            risks.push(self.risk(Point::CommandPathsOutsideWorkspace, &paths));
        }
        let resolved_cwd = query.command_cwd.to_owned();
        Evaluation::new(risks, Target::Command { resolved_cwd, references })
    }

    fn risk(&self, point: Point, subject: &str) -> Risk {
        let message = format!("{}: {subject}", point.sentence());
        Risk { code: point.risk_code(), message, path: None, point, decision: self.decision(point) }
    }

    fn risk_at(&self, point: Point, path: &str) -> Risk {
        Risk { path: Some(path.to_owned()), ..self.risk(point, path) }
    }
}

impl PathQuery<'_> {
    /// The spelling of the path that is outside all roots: the resolved one, else the literal one.
    fn outside(&self, roots: &[&str]) -> Option<Cow<'_, str>> {
        if is_outside(self.resolved, roots) {
            return Some(Cow::Borrowed(self.resolved));
        }
        let literal_inside = roots.iter().any(|root| is_within(self.cwd, self.input, root));
        (!roots.is_empty() && !literal_inside).then(|| Cow::Owned(lexical_join(self.cwd, self.input)))
    }
}

/// Whether an absolute path is outside all roots. Without roots, no path is outside.
fn is_outside(absolute: &str, roots: &[&str]) -> bool {
    !roots.is_empty() && !roots.iter().any(|root| is_within("", absolute, root))
}

/// The references that are outside all roots in one of their spellings, as the list in the message.
fn outside_of(references: &[Reference], roots: &[&str]) -> Option<String> {
    let offending = references.iter().filter_map(|reference| {
        [&reference.resolved, &reference.literal].into_iter().find(|path| is_outside(path, roots))
    });
    let (mut paths, count) = shown(offending.map(String::as_str));
    if count > paths.len() {
        paths.push("…");
    }
    (count > 0).then(|| paths.join(", "))
}

impl Serialize for HostAccess {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Point::ALL.map(|point| (point, self.decision(point))))
    }
}

impl Serialize for HostAccessSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(&self.0)
    }
}

impl<'de> Deserialize<'de> for HostAccessSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<HostAccessSpec, D::Error> {
        deserializer.deserialize_map(PointsVisitor)
    }
}

/// Reads single points and, unlike a plain map, rejects a point that is given twice.
struct PointsVisitor;

impl<'de> Visitor<'de> for PointsVisitor {
    type Value = HostAccessSpec;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object of host-access points")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<HostAccessSpec, A::Error> {
        let mut points = BTreeMap::new();
        while let Some((point, decision)) = map.next_entry::<Point, Decision>()? {
            if points.insert(point, decision).is_some() {
                return Err(A::Error::custom(format_args!("duplicate field `{}`", point.as_str())));
            }
        }
        Ok(HostAccessSpec(points))
    }
}

#[cfg(test)]
mod tests;
