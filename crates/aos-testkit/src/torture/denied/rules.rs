//! Random rules, with a second and simple reading of what each glob matches.

use std::path::Path;

use serde_json::{Value, json};

use super::Mode;
use crate::random::Random;
use crate::torture::policy::reference;

/// What a rule denies or allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Read,
    Write,
    Both,
}

/// One rule with one glob.
#[derive(Debug)]
pub(super) struct Rule {
    pub asked: Asked,
    pub is_deny: bool,
    matches: Matches,
    /// The glob, relative to the workdir.
    glob: String,
    is_absolute: bool,
}

/// What the glob means.
#[derive(Debug)]
enum Matches {
    Path(String),
    /// Wildcards, for names without any.
    Glob(String),
}

#[derive(Debug, Default)]
pub(super) struct Rules {
    pub rules: Vec<Rule>,
    /// The capability allows no writing at all.
    pub no_writes: bool,
    /// The size of the largest file that the capability lets be written.
    pub largest: Option<u64>,
}

impl Rules {
    /// Whether reading or writing is denied on a path. The first rule that matches decides.
    pub(super) fn denies(&self, asked: Asked, path: &str) -> bool {
        let is_about = |rule: &&Rule| rule.asked == asked || rule.asked == Asked::Both;
        let mut rules = self.rules.iter().filter(is_about);
        asked == Asked::Write && self.no_writes
            || rules.find(|rule| rule.matches(path)).is_some_and(|rule| rule.is_deny)
    }
}

impl Rule {
    fn matches(&self, path: &str) -> bool {
        match &self.matches {
            Matches::Path(exact) => exact == path,
            Matches::Glob(glob) => reference::matches(glob, path),
        }
    }

    /// The rule as a policy has it.
    pub(super) fn value(&self, root: &Path, mode: Mode, random: &mut Random) -> Value {
        let mut ops = match self.asked {
            Asked::Read => vec!["read"],
            Asked::Write => vec!["write", "remove"],
            Asked::Both => vec!["read", "write", "remove"],
        };
        // Commands only write and remove. An exception is for every operation that the rule after it may deny.
        if self.asked != Asked::Read && (!self.is_deny || mode == Mode::Effects || random.one_in(2)) {
            ops.extend(["edit", "patch"]);
        }
        if self.asked != Asked::Write && (!self.is_deny || random.one_in(3)) {
            ops.push("search");
        }
        let glob =
            if self.is_absolute { format!("{}/{}", root.display(), self.glob) } else { self.glob.clone() };
        let decision = if self.is_deny { "deny" } else { "allow" };
        json!({ "name": format!("{decision} {}", self.glob), "ops": ops, "paths": [glob], "decision": decision })
    }
}

/// A rule that denies a path in one of many spellings, and for a whole folder sometimes an exception before it.
pub(super) fn chosen_rule(
    asked: Asked,
    folder: &str,
    path: &str,
    number: usize,
    random: &mut Random,
) -> Vec<Rule> {
    let name = &path[folder.len()..];
    let is_plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "./ _-".contains(c));
    let exact = |glob: String| (glob, Matches::Path(path.to_owned()));
    let same = |glob: String| (glob.clone(), Matches::Glob(glob));
    let forms = if is_plain(path) { 10 } else { 3 };
    let (glob, matches) = match random.below(forms) {
        0 => exact(literal(path)),
        1 => exact(format!("./{}", literal(path))),
        2 => exact(in_bytes(path, random)),
        3 => same(format!("**/{name}")),
        4 | 5 if !folder.is_empty() => same(folder.to_owned()),
        4 => same(format!("{{{name},other}}")),
        6 if !folder.is_empty() => same(format!("{folder}*")),
        7 if !folder.is_empty() => same(format!("{folder}**")),
        8 => same(format!("{folder}?{}", &name[1..])),
        _ => match name.rsplit_once('.') {
            Some((_, kind)) if !kind.is_empty() => same(format!("**/*.{kind}")),
            _ => exact(literal(path)),
        },
    };
    let (is_absolute, is_deny) = (random.one_in(4), true);
    let is_whole_folder =
        matches!(&matches, Matches::Glob(glob) if !folder.is_empty() && glob.starts_with(folder));
    let deny = Rule { asked, is_deny, matches, glob, is_absolute };
    let mut rules = Vec::new();
    if is_whole_folder && random.one_in(3) {
        let glob = format!("{folder}open{number}.md");
        let matches = Matches::Path(glob.clone());
        rules.push(Rule {
            asked,
            is_deny: false,
            matches,
            glob: literal(&glob),
            is_absolute: random.one_in(3),
        });
    }
    rules.push(deny);
    rules
}

/// A path as a glob that matches only it. `\xNN` is a byte in both.
fn literal(path: &str) -> String {
    path.chars().flat_map(|c| "[]*".contains(c).then_some('\\').into_iter().chain([c])).collect()
}

/// The same with one character spelled as its bytes.
fn in_bytes(path: &str, random: &mut Random) -> String {
    let letters: Vec<usize> =
        path.char_indices().filter(|(_, c)| c.is_alphabetic()).map(|(at, _)| at).collect();
    let safe = letters.iter().filter(|at| !path[..**at].contains('\\') && !path[**at..].contains('\\'));
    let safe: Vec<usize> = safe.copied().collect();
    let Some(at) = (!safe.is_empty()).then(|| *random.pick(&safe)) else { return literal(path) };
    let c = path[at..].chars().next().unwrap_or_default();
    let mut buffer = [0; 4];
    let bytes: String = c.encode_utf8(&mut buffer).bytes().map(|byte| format!("\\x{byte:02x}")).collect();
    format!("{}{bytes}{}", literal(&path[..at]), literal(&path[at + c.len_utf8()..]))
}
