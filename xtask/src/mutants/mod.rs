//! `cargo xtask mutants`: plants known bugs, one at a time, and checks that the tests named for each fail.
//!
//! Tests that pass with a planted bug do not check for it. The bugs are in `list` and, for what an outside
//! review found, in `boundary`, `front_ends`, `git`, `judgement` and `view`; `scratch` is the copy of the repository in
//! which they are planted.

mod boundary;
mod front_ends;
mod git;
mod judgement;
mod list;
mod scratch;
mod undo;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use anyhow::{bail, ensure};
use clap::Args;

use scratch::{Scratch, Seen};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The planted bugs to try; omit them to try all
    names: Vec<String>,
    /// List the planted bugs and plant nothing
    #[arg(long)]
    list: bool,
}

/// A case of the attack suite.
const fn attack(name: &'static str) -> Test {
    Test { program: Program::Attack, name }
}

/// All planted bugs.
fn mutants() -> impl Iterator<Item = &'static Mutant> {
    [
        list::MUTANTS,
        boundary::MUTANTS,
        front_ends::MUTANTS,
        git::MUTANTS,
        judgement::MUTANTS,
        undo::MUTANTS,
        view::MUTANTS,
    ]
    .into_iter()
    .flatten()
}

/// One planted bug.
#[derive(Debug)]
struct Mutant {
    name: &'static str,
    /// Which promise of the security rules it breaks, and how.
    promise: u8,
    breaks: &'static str,
    edits: &'static [Edit],
    /// Each of these must fail.
    caught_by: &'static [Test],
}

/// A text that occurs in a file exactly once, and what replaces it.
#[derive(Debug)]
struct Edit {
    file: &'static str,
    old: &'static str,
    new: &'static str,
}

/// One test, by its full name.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Test {
    program: Program,
    name: &'static str,
}

/// The test programs that must catch the bugs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Program {
    /// Drives the product from outside. It is built once, without any bug: only the product has one.
    Attack,
    /// Contains the parsers, so it is built with the bug.
    Fuzz,
}

/// The result of a planted bug.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Caught,
    NotCaught(String),
    /// The text to replace does not occur exactly once.
    DoesNotApply(String),
    /// Its tests prove nothing here.
    Inconclusive(String),
    DoesNotBuild,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let mut chosen = choose(&options.names)?;
    if options.list {
        chosen.iter().for_each(|mutant| println!("{mutant}"));
        return Ok(());
    }
    // Consecutive bugs in the same file rebuild the same crates.
    chosen.sort_by_key(|mutant| mutant.edits[0].file);
    let scratch = Scratch::prepare()?;
    let begun = Instant::now();
    let blunt = without_any(&scratch, &chosen)?;
    let mut caught = 0;
    for mutant in &chosen {
        let begun = Instant::now();
        let verdict = match mutant.caught_by.iter().find_map(|test| blunt.get(test)) {
            Some(why) => Verdict::Inconclusive(why.clone()),
            None => plant(&scratch, mutant)?,
        };
        println!("{:>12}  {mutant} ({:.0} s)", verdict.told(), begun.elapsed().as_secs_f64());
        match verdict {
            Verdict::Caught => caught += 1,
            Verdict::NotCaught(why) | Verdict::DoesNotApply(why) | Verdict::Inconclusive(why) => {
                println!("              {why}");
            }
            Verdict::DoesNotBuild => {}
        }
    }
    let (all, seconds) = (chosen.len(), begun.elapsed().as_secs_f64());
    println!("mutants: {caught} of {all} planted bugs caught at {} ({seconds:.0} s)", scratch.commit);
    ensure!(caught == all, "a planted bug was not caught: the tests have a hole there");
    Ok(())
}

fn choose(names: &[String]) -> anyhow::Result<Vec<&'static Mutant>> {
    if let Some(unknown) = names.iter().find(|name| !mutants().any(|mutant| mutant.name == **name)) {
        bail!("there is no planted bug `{unknown}`; `cargo xtask mutants --list` names them");
    }
    let is_chosen = |mutant: &&Mutant| names.is_empty() || names.iter().any(|name| name == mutant.name);
    Ok(mutants().filter(is_chosen).collect())
}

/// Runs the tests without any bug. Returns those that fail or do not run, and why: they prove nothing.
fn without_any(
    scratch: &Scratch,
    chosen: &[&'static Mutant],
) -> anyhow::Result<BTreeMap<&'static Test, String>> {
    let tests: BTreeSet<&Test> = chosen.iter().flat_map(|mutant| mutant.caught_by).collect();
    let mut blunt = BTreeMap::new();
    for test in &tests {
        let why = match scratch.run(test)? {
            Seen::Green => continue,
            Seen::Red => format!("{} is red without any planted bug", test.name),
            Seen::NotRun => {
                format!("{} was not run: there is none of that name, or it is skipped here", test.name)
            }
            Seen::NotBuilt => bail!("the tests do not build without any planted bug"),
        };
        blunt.insert(*test, why);
    }
    println!("without any planted bug: {} of {} tests green", tests.len() - blunt.len(), tests.len());
    Ok(blunt)
}

fn plant(scratch: &Scratch, mutant: &Mutant) -> anyhow::Result<Verdict> {
    let _planted = match scratch.plant(mutant.edits)? {
        Ok(planted) => planted,
        Err(why) => return Ok(Verdict::DoesNotApply(why)),
    };
    for test in mutant.caught_by {
        match scratch.run(test)? {
            Seen::Red => {}
            Seen::Green | Seen::NotRun => {
                return Ok(Verdict::NotCaught(format!("{} stayed green", test.name)));
            }
            Seen::NotBuilt => return Ok(Verdict::DoesNotBuild),
        }
    }
    Ok(Verdict::Caught)
}

impl Verdict {
    fn told(&self) -> &'static str {
        match self {
            Verdict::Caught => "caught",
            Verdict::NotCaught(_) => "NOT CAUGHT",
            Verdict::DoesNotApply(_) => "DOES NOT FIT",
            Verdict::Inconclusive(_) => "NO TEETH",
            Verdict::DoesNotBuild => "NOT BUILT",
        }
    }
}

impl std::fmt::Display for Mutant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tests: Vec<&str> = self.caught_by.iter().map(|test| test.name).collect();
        write!(f, "{} (promise {}): {}; {}", self.name, self.promise, self.breaks, tests.join(", "))
    }
}

impl Edit {
    /// The file's text with the bug in it, or why it cannot be planted.
    fn apply(&self, text: &str) -> Result<String, String> {
        match text.matches(self.old).count() {
            1 => Ok(text.replacen(self.old, self.new, 1)),
            found => Err(format!("{}: the text to replace occurs {found} times:\n{}", self.file, self.old)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    fn repository() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    #[test]
    fn every_planted_bug_still_applies() {
        for mutant in mutants() {
            for edit in mutant.edits {
                let text = std::fs::read_to_string(repository().join(edit.file))
                    .unwrap_or_else(|why| panic!("{}: {}: {why}", mutant.name, edit.file));
                let planted = edit.apply(&text).unwrap_or_else(|why| panic!("{}: {why}", mutant.name));
                assert_ne!(planted, text, "{} changes nothing", mutant.name);
            }
        }
    }

    #[test]
    fn every_promise_has_a_planted_bug_and_every_bug_a_test() {
        let names: BTreeSet<&str> = mutants().map(|mutant| mutant.name).collect();
        assert_eq!(names.len(), mutants().count(), "two planted bugs of one name");
        assert!(mutants().all(|mutant| !mutant.edits.is_empty() && !mutant.caught_by.is_empty()));
        let broken: BTreeSet<u8> = mutants().map(|mutant| mutant.promise).collect();
        assert!((1..=12).chain([23, 24]).all(|promise| broken.contains(&promise)), "{broken:?}");
    }
}
