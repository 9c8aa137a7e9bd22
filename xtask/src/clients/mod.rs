//! `cargo xtask clients`: programs that people use work with the product as they do without it.
//!
//! A check is a row of a table: what it needs is printed and installed beside the build, then it runs with a real
//! daemon as each user. Nothing is written into the repository.

mod need;
mod place;
mod walks;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::ensure;
use clap::Args;

use crate::cargo::cargo;
use need::Need;
use place::{Place, User, users};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The checks to run; omit them to run all
    names: Vec<String>,
    /// List the checks and run nothing
    #[arg(long)]
    list: bool,
}

/// One check.
struct Check {
    name: &'static str,
    about: &'static str,
    needs: &'static [Need],
    /// Returns what was done, in a few words.
    run: fn(&mut Place) -> Result<String, String>,
}

/// How a check ended.
enum Ending {
    Passed(String),
    Failed(String),
    Skipped(String),
}

fn checks() -> impl Iterator<Item = &'static Check> {
    walks::CHECKS.iter().copied().flatten()
}

pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    for name in &options.names {
        ensure!(checks().any(|check| check.name == name), "no check is called `{name}`; --list names them");
    }
    let chosen = || {
        checks()
            .filter(|check| options.names.is_empty() || options.names.iter().any(|name| name == check.name))
    };
    if options.list {
        chosen().for_each(|check| println!("{:<12} {}", check.name, check.about));
        return Ok(ExitCode::SUCCESS);
    }
    // A world starts the programs beside this one.
    ensure!(cargo().args(["build", "--package", "aos"]).status()?.success(), "the build failed");
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for check in chosen() {
        for user in users() {
            let begun = Instant::now();
            let ending = ending(check, user);
            let count = match &ending {
                Ending::Passed(_) => &mut passed,
                Ending::Failed(_) => &mut failed,
                Ending::Skipped(_) => &mut skipped,
            };
            *count += 1;
            let (word, why) = match ending {
                Ending::Passed(what) => ("ok", what),
                Ending::Failed(why) => ("failed", why),
                Ending::Skipped(why) => ("skipped", why),
            };
            let seconds = begun.elapsed().as_secs_f64();
            println!("{:<12} {:<16} {word:<7} {seconds:>5.1} s  {why}", check.name, user.name);
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn ending(check: &Check, user: User) -> Ending {
    let mut place = Place::new(user);
    for need in check.needs {
        if let Err(why) = need.meet(&mut place) {
            return Ending::Skipped(why);
        }
    }
    let outcome = (check.run)(&mut place).and_then(|what| place.finish().map(|()| what));
    outcome.map_or_else(Ending::Failed, Ending::Passed)
}
