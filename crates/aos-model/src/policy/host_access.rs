//! Host access: seven points that say what reaching beyond the cwd or the workspace leads to.
//!
//! One evaluation serves the warning, the preview and the refusal, so they cannot disagree. A point set to `allow`
//! still lists its risk: what was let through stays visible.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::command::{self, CommandQuery, Reference};
use super::lexical::{is_within, lexical_join};
use super::{Decision, Preset};

/// How many paths a list of an evaluation shows; every path is judged.
const PATHS_SHOWN_MAX: usize = 1_000;

/// A host-access decision point, in the order in which risks are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Point {
    AbsolutePath,
    PathOutsideCwd,
    PathOutsideWorkspace,
    CommandCwdOutsideCwd,
    CommandCwdOutsideWorkspace,
    CommandExternalPaths,
    CommandPathsOutsideWorkspace,
}

/// What is fixed about a point: its names, its sentence, and its decision in the default, strict and permissive preset.
struct Row {
    name: &'static str,
    risk_code: &'static str,
    sentence: &'static str,
    decisions: [Decision; 3],
}

const TABLE: [Row; 7] = {
    use Decision::{Allow, Deny, Warn};
    [
        Row {
            name: "absolute_path",
            risk_code: "absolute_path",
            sentence: "Path is absolute",
            decisions: [Warn, Warn, Warn],
        },
        Row {
            name: "path_outside_cwd",
            risk_code: "outside_cwd",
            sentence: "Path is outside the active session cwd",
            decisions: [Warn, Deny, Allow],
        },
        Row {
            name: "path_outside_workspace",
            risk_code: "outside_workspace",
            sentence: "Path escapes the workspace root",
            decisions: [Deny, Deny, Warn],
        },
        Row {
            name: "command_cwd_outside_cwd",
            risk_code: "command_cwd_outside_cwd",
            sentence: "Command cwd is outside the active session cwd",
            decisions: [Warn, Deny, Allow],
        },
        Row {
            name: "command_cwd_outside_workspace",
            risk_code: "command_cwd_outside_workspace",
            sentence: "Command cwd escapes the workspace root",
            decisions: [Deny, Deny, Warn],
        },
        Row {
            name: "command_external_paths",
            risk_code: "command_references_external_paths",
            sentence: "Command references paths outside the active session cwd",
            decisions: [Warn, Deny, Warn],
        },
        Row {
            name: "command_paths_outside_workspace",
            risk_code: "command_references_outside_workspace",
            sentence: "Command references paths outside the workspace root",
            decisions: [Deny, Deny, Warn],
        },
    ]
};

impl Point {
    pub const ALL: [Point; 7] = [
        Point::AbsolutePath,
        Point::PathOutsideCwd,
        Point::PathOutsideWorkspace,
        Point::CommandCwdOutsideCwd,
        Point::CommandCwdOutsideWorkspace,
        Point::CommandExternalPaths,
        Point::CommandPathsOutsideWorkspace,
    ];

    pub fn as_str(self) -> &'static str {
        self.row().name
    }

    pub fn risk_code(self) -> &'static str {
        self.row().risk_code
    }

    fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }
}

/// A decision for each of the seven points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostAccess {
    decisions: [Decision; 7],
}

/// Single points as they were given, to be laid over a preset.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostAccessSpec(pub BTreeMap<Point, Decision>);

/// A path and what surrounds it. `cwd`, `workspaces` and `resolved` are absolute and canonical.
#[derive(Debug, Clone, Copy)]
pub struct PathQuery<'a> {
    /// As the caller wrote it.
    pub input: &'a str,
    pub cwd: &'a str,
    /// Inside any of them is inside; none given means that there is no workspace to leave.
    pub workspaces: &'a [&'a str],
    /// The same path with its links resolved by the host.
    pub resolved: &'a str,
}

/// One reason why a target deserves a look.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Risk {
    pub code: &'static str,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip)]
    pub point: Point,
    /// What the policy says at this point.
    #[serde(skip)]
    pub decision: Decision,
}

/// What the policy thinks of a path or a command, ready for a warning, a preview or a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluation {
    pub disposition: Decision,
    /// In the order of the points.
    pub risks: Vec<Risk>,
    pub target: Target,
}

/// What was evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Path { resolved_path: String },
    Command { resolved_cwd: String, references: Vec<Reference> },
}

impl HostAccess {
    pub fn preset(preset: Preset) -> HostAccess {
        HostAccess { decisions: Point::ALL.map(|point| point.row().decisions[preset as usize]) }
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

    /// The risks of a path, in the order of the points; builds nothing when there is none.
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
        let message = format!("{}: {subject}", point.row().sentence);
        Risk { code: point.risk_code(), message, path: None, point, decision: self.decision(point) }
    }

    fn risk_at(&self, point: Point, path: &str) -> Risk {
        Risk { path: Some(path.to_owned()), ..self.risk(point, path) }
    }
}

impl PathQuery<'_> {
    /// The spelling of the path that lies outside all roots, if one does: the resolved one before the literal.
    fn outside(&self, roots: &[&str]) -> Option<Cow<'_, str>> {
        if is_outside(self.resolved, roots) {
            return Some(Cow::Borrowed(self.resolved));
        }
        let literal_inside = roots.iter().any(|root| is_within(self.cwd, self.input, root));
        (!roots.is_empty() && !literal_inside).then(|| Cow::Owned(lexical_join(self.cwd, self.input)))
    }
}

/// Whether an absolute path lies outside all roots; nothing lies outside no roots.
fn is_outside(absolute: &str, roots: &[&str]) -> bool {
    !roots.is_empty() && !roots.iter().any(|root| is_within("", absolute, root))
}

/// The references that lie outside all roots in one spelling or the other, as the list of the message.
fn outside_of(references: &[Reference], roots: &[&str]) -> Option<String> {
    let offending = references.iter().filter_map(|reference| {
        [&reference.resolved, &reference.literal].into_iter().find(|path| is_outside(path, roots))
    });
    let mut paths: Vec<&str> = distinct(offending.map(String::as_str));
    if paths.is_empty() {
        return None;
    }
    if paths.len() > PATHS_SHOWN_MAX {
        paths.truncate(PATHS_SHOWN_MAX);
        paths.push("…");
    }
    Some(paths.join(", "))
}

fn distinct<'a>(paths: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = HashSet::new();
    paths.filter(|path| seen.insert(*path)).collect()
}

impl Evaluation {
    fn new(risks: Vec<Risk>, target: Target) -> Evaluation {
        let disposition = risks.iter().map(|risk| risk.decision).max().unwrap_or(Decision::Allow);
        Evaluation { disposition, risks, target }
    }

    pub fn headline(&self) -> &'static str {
        match self.disposition {
            Decision::Allow => "Host access allowed",
            Decision::Warn => "Host access requires review",
            Decision::Deny => "Host access denied",
        }
    }

    pub fn message(&self) -> String {
        if self.risks.is_empty() {
            return "Host access allowed.".to_owned();
        }
        let messages: Vec<&str> = self.risks.iter().map(|risk| risk.message.as_str()).collect();
        messages.join("; ")
    }

    pub fn recommendation(&self) -> &'static str {
        match self.disposition {
            Decision::Allow => "Safe to continue.",
            Decision::Warn => "Review the target carefully before continuing.",
            Decision::Deny => "Do not continue unless you intentionally relax the policy.",
        }
    }

    pub fn risk_codes(&self) -> Vec<&'static str> {
        self.risks.iter().map(|risk| risk.code).collect()
    }

    pub fn primary_risk(&self) -> Option<&Risk> {
        self.risks.first()
    }

    pub fn has_risks(&self) -> bool {
        !self.risks.is_empty()
    }

    pub fn should_warn(&self) -> bool {
        self.disposition == Decision::Warn
    }

    pub fn should_deny(&self) -> bool {
        self.disposition == Decision::Deny
    }

    pub fn summary_lines(&self) -> [String; 3] {
        [self.headline().to_owned(), self.message(), self.recommendation().to_owned()]
    }
}

impl Serialize for Evaluation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("disposition", &self.disposition)?;
        map.serialize_entry("headline", self.headline())?;
        map.serialize_entry("message", &self.message())?;
        map.serialize_entry("recommendation", self.recommendation())?;
        map.serialize_entry("risks", &self.risks)?;
        map.serialize_entry("risk_codes", &self.risk_codes())?;
        if let Some(risk) = self.primary_risk() {
            map.serialize_entry("primary_risk", risk)?;
        }
        map.serialize_entry("has_risks", &self.has_risks())?;
        map.serialize_entry("should_warn", &self.should_warn())?;
        map.serialize_entry("should_deny", &self.should_deny())?;
        map.serialize_entry("summary_lines", &self.summary_lines())?;
        match &self.target {
            Target::Path { resolved_path } => map.serialize_entry("resolved_path", resolved_path)?,
            Target::Command { resolved_cwd, references } => {
                map.serialize_entry("resolved_cwd", resolved_cwd)?;
                let mut paths = distinct(references.iter().map(|reference| reference.resolved.as_str()));
                if paths.len() > PATHS_SHOWN_MAX {
                    map.serialize_entry("referenced_paths_count", &paths.len())?;
                    paths.truncate(PATHS_SHOWN_MAX);
                }
                map.serialize_entry("referenced_paths", &paths)?;
            }
        }
        map.end()
    }
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

/// Reads single points and, unlike a plain map, refuses one that is given twice.
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
mod tests {
    use serde_json::json;

    use super::*;

    fn query<'a>(input: &'a str, resolved: &'a str, workspaces: &'a [&'a str]) -> PathQuery<'a> {
        PathQuery { input, cwd: "/ws/app", workspaces, resolved }
    }

    #[test]
    fn the_table_is_the_contract() {
        let rows = "
            absolute_path | absolute_path | warn | warn | warn
            path_outside_cwd | outside_cwd | warn | deny | allow
            path_outside_workspace | outside_workspace | deny | deny | warn
            command_cwd_outside_cwd | command_cwd_outside_cwd | warn | deny | allow
            command_cwd_outside_workspace | command_cwd_outside_workspace | deny | deny | warn
            command_external_paths | command_references_external_paths | warn | deny | warn
            command_paths_outside_workspace | command_references_outside_workspace | deny | deny | warn";
        let presets = [Preset::Default, Preset::Strict, Preset::Permissive].map(HostAccess::preset);
        let rows: Vec<&str> = rows.trim().lines().collect();
        assert_eq!(rows.len(), Point::ALL.len());
        for (point, row) in Point::ALL.into_iter().zip(rows) {
            let decisions = presets.map(|preset| preset.decision(point).as_str()).join(" | ");
            assert_eq!(row.trim(), format!("{} | {} | {decisions}", point.as_str(), point.risk_code()));
            assert_eq!(serde_json::to_value(point).unwrap(), point.as_str());
        }
    }

    #[test]
    fn paths_by_both_spellings() {
        let app: &[&str] = &["/ws/app"];
        let none: &[&str] = &[];
        for (input, resolved, workspaces, codes) in [
            ("src/a", "/ws/app/src/a", app, ""),
            (".", "/ws/app", app, ""),
            ("src/../a", "/ws/app/a", app, ""),
            ("..notes", "/ws/app/..notes", app, ""),
            ("../notes.txt", "/ws/notes.txt", app, "outside_cwd outside_workspace"),
            ("../app-evil/x", "/ws/app-evil/x", app, "outside_cwd outside_workspace"),
            ("/ws/app/a", "/ws/app/a", app, "absolute_path"),
            ("/etc/passwd", "/etc/passwd", app, "absolute_path outside_cwd outside_workspace"),
            ("/etc/passwd", "/etc/passwd", none, "absolute_path outside_cwd"),
            ("link", "/etc/passwd", app, "outside_cwd outside_workspace"),
            ("../link", "/ws/app/a", app, "outside_cwd outside_workspace"),
            ("../second/x", "/ws/second/x", &["/ws/app", "/ws/second"], "outside_cwd"),
            ("../second/x", "/ws/third/x", &["/ws/app", "/ws/second"], "outside_cwd outside_workspace"),
            ("../x", "/ws/x", &["/ws"], "outside_cwd"),
            ("~/x", "/ws/app/~/x", app, ""),
            ("a\\..\\..\\x", "/ws/app/a\\..\\..\\x", app, ""),
        ] {
            let evaluation =
                HostAccess::preset(Preset::Default).evaluate_path(&query(input, resolved, workspaces));
            assert_eq!(evaluation.risk_codes().join(" "), codes, "{input} -> {resolved}");
        }
    }

    #[test]
    fn the_texts_of_a_denied_path() {
        let access = HostAccess::preset(Preset::Strict);
        let evaluation = access.evaluate_path(&query("/etc/./hosts", "/etc/hosts", &["/ws/app"]));
        let absolute =
            json!({"code": "absolute_path", "message": "Path is absolute: /etc/hosts", "path": "/etc/hosts"});
        let message = "Path is absolute: /etc/hosts; Path is outside the active session cwd: /etc/hosts; \
                       Path escapes the workspace root: /etc/hosts";
        assert_eq!(
            serde_json::to_value(&evaluation).unwrap(),
            json!({
                "disposition": "deny",
                "headline": "Host access denied",
                "message": message,
                "recommendation": "Do not continue unless you intentionally relax the policy.",
                "risks": [
                    absolute,
                    {"code": "outside_cwd", "message": "Path is outside the active session cwd: /etc/hosts", "path": "/etc/hosts"},
                    {"code": "outside_workspace", "message": "Path escapes the workspace root: /etc/hosts", "path": "/etc/hosts"},
                ],
                "risk_codes": ["absolute_path", "outside_cwd", "outside_workspace"],
                "primary_risk": absolute,
                "has_risks": true,
                "should_warn": false,
                "should_deny": true,
                "summary_lines": [
                    "Host access denied",
                    message,
                    "Do not continue unless you intentionally relax the policy.",
                ],
                "resolved_path": "/etc/hosts",
            })
        );
    }

    #[test]
    fn the_texts_of_an_allowed_and_of_a_warned_path() {
        let access = HostAccess::preset(Preset::Default);
        assert_eq!(
            serde_json::to_value(access.evaluate_path(&query("a", "/ws/app/a", &["/ws/app"]))).unwrap(),
            json!({
                "disposition": "allow",
                "headline": "Host access allowed",
                "message": "Host access allowed.",
                "recommendation": "Safe to continue.",
                "risks": [],
                "risk_codes": [],
                "has_risks": false,
                "should_warn": false,
                "should_deny": false,
                "summary_lines": ["Host access allowed", "Host access allowed.", "Safe to continue."],
                "resolved_path": "/ws/app/a",
            })
        );
        let warned = access.evaluate_path(&query("../x", "/ws/x", &[]));
        assert_eq!(
            warned.summary_lines(),
            [
                "Host access requires review",
                "Path is outside the active session cwd: /ws/x",
                "Review the target carefully before continuing.",
            ]
        );
        assert!(warned.should_warn() && !warned.should_deny());
    }

    #[test]
    fn a_point_set_to_allow_still_lists_its_risk() {
        let access = HostAccess::preset(Preset::Permissive);
        let evaluation = access.evaluate_path(&query("../x", "/ws/x", &[]));
        assert_eq!(evaluation.disposition, Decision::Allow);
        assert_eq!(evaluation.risk_codes(), ["outside_cwd"]);
        assert_eq!(evaluation.risks[0].decision, Decision::Allow);
        assert_eq!(evaluation.headline(), "Host access allowed");
        assert_eq!(evaluation.message(), "Path is outside the active session cwd: /ws/x");
    }

    #[test]
    fn a_literal_that_leaves_is_the_path_shown() {
        let access = HostAccess::preset(Preset::Default);
        let evaluation = access.evaluate_path(&query("../link/a", "/ws/app/a", &["/ws/app"]));
        assert_eq!(evaluation.risks[0].path.as_deref(), Some("/ws/link/a"));
    }

    #[test]
    fn no_risk_builds_nothing() {
        let risks = HostAccess::preset(Preset::Strict).path_risks(&query(
            "src/../lib/./a",
            "/ws/app/lib/a",
            &["/ws/app"],
        ));
        assert_eq!(risks.capacity(), 0);
    }
}
