//! The evaluation of a path or a command: fields for clients, and fixed texts for people.

use std::collections::HashSet;

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::Decision;
use super::command::Reference;
use super::point::Point;

/// How many paths a list shows. Paths that are not shown are checked too.
const PATHS_SHOWN_MAX: usize = 1_000;

/// One reason why a target needs review.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Risk {
    pub code: &'static str,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip)]
    pub point: Point,
    /// The decision of the policy at this point.
    #[serde(skip)]
    pub decision: Decision,
}

/// The result of checking a path or a command, for a warning, a preview or a refusal.
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

impl Evaluation {
    pub(super) fn new(risks: Vec<Risk>, target: Target) -> Evaluation {
        let disposition = risks.iter().map(|risk| risk.decision).max().unwrap_or(Decision::Allow);
        Evaluation { disposition, risks, target }
    }

    /// The paths that a command names; empty for a path.
    pub fn references(&self) -> &[Reference] {
        match &self.target {
            Target::Path { .. } => &[],
            Target::Command { references, .. } => references,
        }
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
                let (paths, count) = shown(references.iter().map(|reference| reference.resolved.as_str()));
                map.serialize_entry("referenced_paths", &paths)?;
                if count > paths.len() {
                    map.serialize_entry("referenced_paths_count", &count)?;
                }
            }
        }
        map.end()
    }
}

/// The distinct paths in their order, cut to the length of a list, and their full number.
pub(super) fn shown<'a>(paths: impl Iterator<Item = &'a str>) -> (Vec<&'a str>, usize) {
    let mut seen = HashSet::new();
    let mut distinct: Vec<&str> = paths.filter(|path| seen.insert(*path)).collect();
    let count = distinct.len();
    distinct.truncate(PATHS_SHOWN_MAX);
    (distinct, count)
}
