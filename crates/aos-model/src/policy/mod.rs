//! The policy: what a session may do within its capability. It consists of rules over paths and of seven host-access
//! points.
//!
//! `rules` checks an operation on a path. `host_access` checks where a path or a command reaches. `command` finds the
//! paths that a command names: `words` finds paths in words, `tools` separates scripts from files, `shell` reads
//! `sh -c`. Enforcement, warnings and previews call the same functions. Nothing here reads a disk: the host passes in
//! both spellings of a path, as written and with its links resolved.

mod command;
mod evaluation;
mod exclude;
pub mod git;
mod globs;
mod host_access;
mod lexical;
mod point;
mod protected;
mod rules;
mod shell;
mod tools;
mod words;

#[cfg(test)]
mod properties;

use serde::{Deserialize, Serialize};

pub use command::{CommandQuery, Reference};
pub use evaluation::{Evaluation, Risk, Target};
pub use exclude::exclude_problem;
pub use host_access::{HostAccess, HostAccessSpec, PathQuery};
pub use lexical::{lexical_join, rule_path};
pub use point::Point;
pub use protected::{
    ProtectedPatterns, is_gitmodules, listed_name, protected_below, protected_name, protected_patterns,
    protected_places, sensitive_name,
};
pub use rules::{OutputRule, Policy, PolicyError, PolicySpec, Rule, Verdict};

/// The decision of the policy. The stricter one is the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    Allow,
    Warn,
    Deny,
}

impl Decision {
    pub fn as_str(self) -> &'static str {
        match self {
            Decision::Allow => "allow",
            Decision::Warn => "warn",
            Decision::Deny => "deny",
        }
    }
}

/// A named starting point for the seven host-access points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    #[default]
    Default,
    Strict,
    Permissive,
}

/// An operation as rules name it. `move` and `make_dir` count as `Write`, on each path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    Read,
    Write,
    Edit,
    Patch,
    Search,
    List,
    Stat,
    Remove,
    Exec,
}

impl Op {
    pub fn as_str(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Edit => "edit",
            Op::Patch => "patch",
            Op::Search => "search",
            Op::List => "list",
            Op::Stat => "stat",
            Op::Remove => "remove",
            Op::Exec => "exec",
        }
    }
}
