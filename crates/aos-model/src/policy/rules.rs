//! Rules: they allow, warn about or deny an operation on a path. The first rule that matches decides.
//!
//! `globs` says what a glob matches.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use super::command::{CommandQuery, Reference};
use super::globs::{self, BuildError, Globs, Position, Unusable};
use super::host_access::{HostAccess, HostAccessSpec};
use super::lexical::{rule_path, simplify};
use super::{Decision, Op, Preset};

const RULES_MAX: usize = 1_000;
const GLOBS_PER_RULE_MAX: usize = 1_000;
const GLOBS_MAX: usize = 10_000;
const GLOB_BYTES_MAX: usize = 4_096;

/// One rule as requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub name: String,
    pub ops: Vec<Op>,
    pub paths: Vec<String>,
    pub decision: Decision,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputRule>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How content that a rule allows may be returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputRule {
    /// As a blob without a preview, never inline.
    BlobOnly,
}

/// A policy as requested. Compiling fills in the defaults.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicySpec {
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub host_access: Option<HostAccessSpec>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub rules: Option<Vec<Rule>>,
}

/// Why a policy is invalid. The message starts with the field.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PolicyError {
    #[error("{field}: must not be empty")]
    Empty { field: String },
    #[error("{field}: has {count} entries; at most {max} are allowed")]
    TooMany { field: String, count: usize, max: usize },
    #[error("{field}: is {bytes} bytes long; at most {max} are allowed")]
    TooLong { field: String, bytes: usize, max: usize },
    #[error("{field}: {glob:?} is not a glob: {reason}")]
    BadGlob { field: String, glob: String, reason: String },
    #[error("{field}: {glob:?} can match no path: {reason}")]
    MatchesNothing { field: String, glob: String, reason: String },
    #[error("rules: all globs together are too large: {reason}")]
    TooLarge { reason: String },
}

/// The compiled policy of a session. A clone shares the compiled rules.
#[derive(Debug, Clone)]
pub struct Policy {
    preset: Preset,
    host_access: HostAccess,
    rules: Arc<[Rule]>,
    globs: Arc<Globs>,
    /// The folder that paths are relative to, in each of its spellings.
    workdirs: Arc<[String]>,
}

/// The decision of the rules about one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict<'p> {
    pub decision: Decision,
    /// The rule that decided. `None`: no rule matched, so the operation is allowed.
    pub rule: Option<&'p Rule>,
    pub blob_only: bool,
}

impl Policy {
    /// Compiles the policy of a request. A glob that can match nothing is an error: a rule must not be void in silence.
    pub fn compile(spec: PolicySpec) -> Result<Policy, PolicyError> {
        let policy = Policy::compile_recorded(spec)?;
        for (at, glob) in all_globs(&policy.rules) {
            globs::check(glob).map_err(|why| glob_error(&policy.rules, at, why))?;
        }
        Ok(policy)
    }

    /// Compiles the policy of a recorded session, which an earlier version may have accepted with less care.
    pub fn compile_recorded(spec: PolicySpec) -> Result<Policy, PolicyError> {
        let preset = spec.preset.unwrap_or_default();
        let points = spec.host_access.unwrap_or_default();
        let rules = spec.rules.unwrap_or_default();
        check(&rules)?;
        let globs = Globs::build(all_globs(&rules)).map_err(|error| match error {
            BuildError::Glob(at, why) => glob_error(&rules, at, why),
            BuildError::TooLarge(reason) => PolicyError::TooLarge { reason },
        })?;
        Ok(Policy {
            preset,
            host_access: HostAccess::preset(preset).with_points(&points),
            rules: rules.into(),
            globs: Arc::new(globs),
            workdirs: Arc::default(),
        })
    }

    /// Makes absolute globs match what is below the workdir, whose paths are relative. A workdir that was opened through
    /// a link has two spellings.
    pub fn in_workdir(self, spellings: Vec<String>) -> Policy {
        Policy { workdirs: spellings.into(), ..self }
    }

    /// Refuses absolute globs that match nothing in `folders`, all that file effects can reach. Commands may name any
    /// path, so globs of `exec` are not checked.
    pub fn check_reach(&self, folders: &[&str]) -> Result<(), PolicyError> {
        for (at, glob) in all_globs(&self.rules) {
            if !self.rules[at.rule].ops.contains(&Op::Exec) && !globs::may_match_below(glob, folders) {
                let folders = folders.join(", ");
                let why =
                    format!("it is in none of the session's folders ({folders}), spelled without links");
                return Err(glob_error(&self.rules, at, Unusable::MatchesNothing(why)));
            }
        }
        Ok(())
    }

    pub fn preset(preset: Preset) -> Policy {
        Policy {
            preset,
            host_access: HostAccess::preset(preset),
            rules: Arc::default(),
            globs: Arc::default(),
            workdirs: Arc::default(),
        }
    }

    pub fn host_access(&self) -> &HostAccess {
        &self.host_access
    }

    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The complete spec, defaults included. It compiles to an equal policy.
    pub fn spec(&self) -> PolicySpec {
        PolicySpec {
            preset: Some(self.preset),
            host_access: Some(self.host_access.to_spec()),
            rules: Some(self.rules.to_vec()),
        }
    }

    /// The first rule for this operation on this path, which is spelled as [`rule_path`] returns it.
    pub fn rule_for(&self, op: Op, path: &str) -> Option<&Rule> {
        if self.rules.is_empty() {
            return None;
        }
        self.first_match(op, &simplify(path), &self.workdirs)
    }

    /// The globs of the rules that deny an operation. A rule before them may still allow it.
    pub fn denying_globs(&self, op: Op) -> impl Iterator<Item = &str> {
        let denying = move |rule: &&Rule| rule.decision == Decision::Deny && rule.ops.contains(&op);
        self.rules.iter().filter(denying).flat_map(|rule| rule.paths.iter().map(String::as_str))
    }

    /// Whether something below a folder may be allowed although the operation is denied on the folder itself.
    pub fn has_exceptions(&self, op: Op) -> bool {
        self.rules.iter().any(|rule| rule.decision != Decision::Deny && rule.ops.contains(&op))
    }

    pub fn denies(&self, op: Op, path: &str) -> bool {
        self.rule_for(op, path).is_some_and(|rule| rule.decision == Decision::Deny)
    }

    /// Checks both spellings of a path. The stricter decision wins, and either can require `blob_only`.
    pub fn check(&self, op: Op, literal: &str, resolved: &str) -> Verdict<'_> {
        let verdict = Verdict::of(self.rule_for(op, literal));
        if literal == resolved { verdict } else { verdict.and(Verdict::of(self.rule_for(op, resolved))) }
    }

    /// Checks a command: the program as written, and every path that it names.
    pub fn check_command(&self, query: &CommandQuery<'_>, references: &[Reference]) -> Verdict<'_> {
        if self.rules.is_empty() {
            return Verdict::of(None);
        }
        // As written, so that a rule for `make` does not match `./make`.
        let program = query.argv.first().and_then(|program| self.first_match(Op::Exec, program, &[]));
        references.iter().fold(Verdict::of(program), |verdict, reference| {
            let literal = rule_path(query.cwd, &reference.literal);
            let resolved = rule_path(query.cwd, &reference.resolved);
            verdict.and(self.check(Op::Exec, literal, resolved))
        })
    }

    fn first_match(&self, op: Op, path: &str, workdirs: &[String]) -> Option<&Rule> {
        let matching = self.globs.rules_matching(path, workdirs);
        matching.into_iter().map(|number| &self.rules[number]).find(|rule| rule.ops.contains(&op))
    }
}

impl PartialEq for Policy {
    fn eq(&self, other: &Policy) -> bool {
        // The globs are a function of the rules, and the workdir belongs to the session.
        (self.preset, &self.host_access, &self.rules) == (other.preset, &other.host_access, &other.rules)
    }
}

impl Eq for Policy {}

/// The effective policy, defaults included.
impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.spec().serialize(serializer)
    }
}

impl<'p> Verdict<'p> {
    fn of(rule: Option<&'p Rule>) -> Verdict<'p> {
        Verdict {
            decision: rule.map_or(Decision::Allow, |rule| rule.decision),
            rule,
            blob_only: rule.is_some_and(|rule| rule.output == Some(OutputRule::BlobOnly)),
        }
    }

    fn and(self, other: Verdict<'p>) -> Verdict<'p> {
        let blob_only = self.blob_only || other.blob_only;
        let stronger = if other.decision > self.decision || self.rule.is_none() { other } else { self };
        Verdict { blob_only, ..stronger }
    }
}

/// Every glob with its place, in the order of the rules.
fn all_globs(rules: &[Rule]) -> impl Iterator<Item = (Position, &str)> + Clone {
    rules.iter().enumerate().flat_map(|(rule, each)| {
        each.paths.iter().enumerate().map(move |(path, glob)| (Position { rule, path }, glob.as_str()))
    })
}

/// The error of one glob, which names its field.
fn glob_error(rules: &[Rule], at: Position, why: Unusable) -> PolicyError {
    let field = format!("rules[{}].paths[{}]", at.rule, at.path);
    let glob = rules[at.rule].paths[at.path].clone();
    match why {
        Unusable::Bad(reason) => PolicyError::BadGlob { field, glob, reason },
        Unusable::MatchesNothing(reason) => PolicyError::MatchesNothing { field, glob, reason },
    }
}

fn check(rules: &[Rule]) -> Result<(), PolicyError> {
    at_most(RULES_MAX, rules.len(), || "rules".to_owned())?;
    for (number, rule) in rules.iter().enumerate() {
        let field = |name: &str| format!("rules[{number}].{name}");
        not_empty(rule.name.trim().is_empty(), || field("name"))?;
        not_empty(rule.ops.is_empty(), || field("ops"))?;
        not_empty(rule.paths.is_empty(), || field("paths"))?;
        at_most(GLOBS_PER_RULE_MAX, rule.paths.len(), || field("paths"))?;
        for (position, glob) in rule.paths.iter().enumerate() {
            let field = || format!("rules[{number}].paths[{position}]");
            not_empty(glob.is_empty(), field)?;
            if glob.len() > GLOB_BYTES_MAX {
                return Err(PolicyError::TooLong { field: field(), bytes: glob.len(), max: GLOB_BYTES_MAX });
            }
        }
    }
    let globs = rules.iter().map(|rule| rule.paths.len()).sum();
    at_most(GLOBS_MAX, globs, || "rules[].paths".to_owned())
}

fn not_empty(empty: bool, field: impl Fn() -> String) -> Result<(), PolicyError> {
    if empty { Err(PolicyError::Empty { field: field() }) } else { Ok(()) }
}

fn at_most(max: usize, count: usize, field: impl Fn() -> String) -> Result<(), PolicyError> {
    if count > max { Err(PolicyError::TooMany { field: field(), count, max }) } else { Ok(()) }
}

/// An optional field that rejects `null`.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests;
