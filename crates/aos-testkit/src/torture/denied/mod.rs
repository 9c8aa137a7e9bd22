//! Attempts to read and to write what is denied, in every mode, by file effects and by commands.
//!
//! ```text
//! scene      a random tree, rules, protected names, git folders: what is denied in it
//! session    attempts on it, many in one command; controls on what is not denied
//! oracle     the tree after each receipt, and each answer: did something come through?
//! ```
//!
//! The oracle does not use the product's code: each file has a random content, and a second matcher says what is denied.

mod attempts;
mod effects;
mod names;
mod oracle;
mod rules;
mod scene;
mod session;
mod tally;
mod tree;

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use crate::needs::is_root;
use crate::programs::Programs;
use crate::random::Random;
use crate::time::is_over;
use crate::torture::pulse::{About, feel};
use crate::torture::{COMPLAINTS_MAX, Daemon, Setup, lock};
use crate::world::{Start, program_for};
use names::Protected;
use session::Session;
pub use tally::{Counts, Tally};

#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub tries: u64,
    /// Tries in one session.
    pub per_session: u64,
    /// Only this session of the plan, to repeat a failure.
    pub only: Option<u64>,
    /// Sessions at the same time.
    pub at_once: usize,
    pub until: Option<Instant>,
}

/// How a session's effects are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Effects,
    Overlay,
    Uncaptured,
    Excluded,
    Reduced,
    NoIsolation,
}

impl Mode {
    /// Whether one denied path refuses everything of an effect.
    fn is_checked_whole(self) -> bool {
        matches!(self, Mode::Effects | Mode::Overlay)
    }

    fn name(self) -> &'static str {
        match self {
            Mode::Effects => "file effects",
            Mode::Overlay => "overlay",
            Mode::Uncaptured => "uncaptured",
            Mode::Excluded => "excluded folders",
            Mode::Reduced => "reduced",
            Mode::NoIsolation => "no isolation",
        }
    }
}

/// A daemon, and whose it is.
#[derive(Debug)]
struct Who {
    name: &'static str,
    setup: Setup,
    /// The owner of the files, if not the caller.
    owner: Option<u32>,
    daemon: Daemon,
}

impl Who {
    fn label(&self, mode: Mode) -> String {
        format!("{}{}", mode.name(), self.name)
    }
}

/// An id that no user of a machine has. Not `nobody`: the kernel shows that one for every unmapped id.
const ORDINARY: u32 = 12345;

const BY_THE_CALLER: &[Mode] = &[
    Mode::Effects,
    Mode::Overlay,
    Mode::Uncaptured,
    Mode::Excluded,
    Mode::NoIsolation,
    Mode::Effects,
    Mode::Overlay,
    Mode::Effects,
];
const BY_ANOTHER: &[Mode] =
    &[Mode::Overlay, Mode::Uncaptured, Mode::Excluded, Mode::NoIsolation, Mode::Effects, Mode::Overlay];

/// Runs until the plan is done. `progress` gets the number of tries.
pub fn torture(setup: &Setup, plan: &Plan, progress: &mut (dyn FnMut(u64) + Send)) -> Tally {
    let mut tally = Tally::default();
    let everyone = match everyone(setup, &mut tally) {
        Ok(everyone) => everyone,
        Err(why) => return Tally::failed(why),
    };
    let protected = match Protected::printed(setup) {
        Ok(protected) => protected,
        Err(why) => return Tally::failed(why),
    };
    let slots = slots(&everyone);
    let (tally, next, stop) = (Mutex::new(tally), AtomicU64::new(0), AtomicBool::new(false));
    let progress = Mutex::new(progress);
    std::thread::scope(|scope| {
        let pulse = scope.spawn(|| feel(&setup.home, About::Status, &stop, &mut || ()));
        let workers: Vec<_> = (0..plan.at_once.max(1))
            .map(|number| {
                let root = setup.roots[0].join(format!("denied{number}"));
                let (slots, protected, next, tally, progress) =
                    (&slots, &protected, &next, &tally, &progress);
                scope.spawn(move || {
                    work(plan, slots, &root, protected, next, tally, &|done| lock(progress)(done))
                })
            })
            .collect();
        for worker in workers {
            let outcome = worker.join().unwrap_or_else(|_| Err("a worker panicked".into()));
            lock(&tally).complaints.extend(outcome.err());
        }
        stop.store(true, Ordering::Relaxed);
        lock(&tally).answered(&pulse.join().unwrap_or_default());
    });
    let mut tally = tally.into_inner().expect("no thread panics while it holds the lock");
    for who in &everyone {
        tally.complaints.extend(who.setup.verify().err());
    }
    everyone.into_iter().for_each(|who| who.daemon.kill());
    tally
}

/// Takes the next session until there are enough.
fn work(
    plan: &Plan,
    slots: &[(&Who, Mode)],
    root: &Path,
    protected: &Protected,
    next: &AtomicU64,
    tally: &Mutex<Tally>,
    progress: &dyn Fn(u64),
) -> Result<(), String> {
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let is_enough = lock(tally).complaints.len() > COMPLAINTS_MAX;
        if number * plan.per_session >= plan.tries || is_enough || is_over(plan.until) {
            return Ok(());
        }
        if plan.only.is_some_and(|only| only != number) {
            continue;
        }
        let (who, mode) = slots[number as usize % slots.len()];
        let random = Random::new(plan.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut session = Session::open(who, mode, root, protected, random)?;
        session.run(plan.per_session)?;
        let complaints =
            session.complaints.iter().map(|why| format!("seed {} session {number}: {why}", plan.seed));
        let mut tally = lock(tally);
        tally.complaints.extend(complaints);
        tally.sessions += 1;
        tally.count(&who.label(mode), &session.counts);
        progress(tally.tries());
    }
}

fn slots(everyone: &[Who]) -> Vec<(&Who, Mode)> {
    let modes = |who: &Who| match who.name {
        "" => BY_THE_CALLER,
        ORDINARY_USER => BY_ANOTHER,
        _ => &[Mode::Reduced, Mode::Reduced],
    };
    everyone.iter().flat_map(|who| modes(who).iter().map(move |mode| (who, *mode))).collect()
}

const ORDINARY_USER: &str = ", ordinary user";

/// The daemons: the caller's, an ordinary user's, and one without namespaces.
fn everyone(setup: &Setup, tally: &mut Tally) -> Result<Vec<Who>, String> {
    let above = setup.home.parent().ok_or("the home has no parent")?;
    let daemon = setup.start_daemon(&[])?;
    let mut everyone = vec![Who { name: "", setup: setup.clone(), owner: None, daemon }];
    let beside = |name: &str, programs: &Programs| Setup {
        programs: programs.clone(),
        home: above.join(name),
        roots: setup.roots.clone(),
    };
    let reduced = beside("home-reduced", &setup.programs);
    match reduced.start(&Start::without_namespaces().wrapper, &[]) {
        Ok(daemon) => everyone.push(Who { name: NO_NAMESPACES, setup: reduced, owner: None, daemon }),
        Err(why) => drop(tally.skipped.insert("reduced".into(), format!("{why:?}"))),
    }
    if !is_root() {
        tally.skipped.insert("ordinary user".into(), "the caller is one".into());
        return Ok(everyone);
    }
    let failed = |why: std::io::Error| format!("{}: {why}", above.display());
    // The other user must be able to enter it.
    std::fs::set_permissions(above, PermissionsExt::from_mode(0o755)).map_err(failed)?;
    let aosd = program_for(&setup.programs.aosd, Some(ORDINARY), above);
    let ordinary = beside("home-ordinary", &Programs { aosd, ..setup.programs.clone() });
    std::fs::create_dir_all(&ordinary.home).map_err(failed)?;
    chown(&ordinary.home, Some(ORDINARY), Some(ORDINARY)).map_err(failed)?;
    let id = ORDINARY.to_string();
    let wrapper = ["setpriv", "--reuid", &id, "--regid", &id, "--clear-groups"].map(str::to_owned);
    let daemon =
        ordinary.start(&wrapper, &[]).map_err(|why| format!("an ordinary user's daemon: {why:?}"))?;
    everyone.push(Who { name: ORDINARY_USER, setup: ordinary, owner: Some(ORDINARY), daemon });
    Ok(everyone)
}

const NO_NAMESPACES: &str = ", no namespaces";
