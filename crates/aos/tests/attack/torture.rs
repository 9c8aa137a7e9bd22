//! Short runs of the torture suites that no other area runs.

use aos_testkit::torture::{corrupt, denied, full, memory, path, undo};
use aos_testkit::{Programs, Random, Start, World, check, full_figure, is_full, missing, new_seed};

use crate::{Case, Need, Outcome, plain};

pub fn cases() -> Vec<Case> {
    vec![
        plain("OWN-TORTURE-PATH", paths),
        plain("OWN-TORTURE-DENIED", what_is_denied),
        plain("OWN-TORTURE-CORRUPT", corruption),
        plain("OWN-TORTURE-MEMORY", memory),
        plain("OWN-TORTURE-UNDO-OUTSIDE", undo_beside_a_person),
        Case { id: "OWN-TORTURE-SPACE", needs: &[Need::Root], run: full_disks },
    ]
}

/// Fails with the seed and all complaints unless every promise held.
pub fn clean(id: &str, seed: u64, tally: &dyn std::fmt::Display, complaints: &[String]) -> Outcome {
    println!("{id}: seed {seed}: {tally}");
    check(complaints.is_empty(), || format!("seed {seed}: {tally}\n{}", complaints.join("\n")))
}

fn paths() -> Outcome {
    let world = World::asleep(Start::default());
    let plan = path::Plan {
        seed: new_seed(),
        resolutions: full_figure(1_000_000, 5_000) as u64,
        writes: full_figure(100_000, 500) as u64,
        clients: 4,
        neighbours: 2,
        until: None,
    };
    let tally = path::torture(&world.setup(), &plan, &mut |_| ());
    clean("OWN-TORTURE-PATH", plan.seed, &tally, &tally.complaints)?;
    world.finish()
}

fn what_is_denied() -> Outcome {
    let world = World::asleep(Start::default());
    let plan = denied::Plan {
        seed: Random::for_case().seed,
        tries: full_figure(100_000, 256) as u64,
        per_session: full_figure(48, 16) as u64,
        only: None,
        at_once: 2,
        until: None,
    };
    let tally = denied::torture(&world.setup(), &plan, &mut |_| ());
    clean("OWN-TORTURE-DENIED", plan.seed, &tally, &tally.complaints)?;
    world.finish()
}

fn corruption() -> Outcome {
    let world = World::asleep(Start::default());
    let plan = corrupt::Plan {
        seed: new_seed(),
        every: full_figure(1, 1_500),
        patterns: full_figure(3, 1),
        starts: full_figure(1_000, 5),
        workers: 2,
        until: None,
    };
    let tally = corrupt::torture(&world.setup(), &plan, &mut |_, _| ());
    clean("OWN-TORTURE-CORRUPT", plan.seed, &tally, &tally.complaints)?;
    world.finish()
}

fn memory() -> Outcome {
    let world = World::asleep(Start::default());
    let scale = if is_full() { memory::FULL } else { memory::SHORT };
    let plan = memory::Plan { scale, only: "", until: None };
    let tally = memory::torture(&world.setup(), &plan, &mut |_| ());
    clean("OWN-TORTURE-MEMORY", 0, &tally, &tally.complaints)?;
    world.finish()
}

/// Forced and unforced undos in a folder that a person changes too, with kills and evictions.
fn undo_beside_a_person() -> Outcome {
    let world = World::asleep(Start::default());
    let mut setup = world.setup();
    // There pre-images are copied, not moved.
    let other = tempfile::Builder::new().prefix("aos-attack-").tempdir_in("/dev/shm").ok();
    setup.roots.extend(other.as_ref().map(|other| other.path().to_owned()));
    let plan = undo::Plan {
        seed: Random::for_case().seed,
        histories: full_figure(1_000, 8) as u64,
        steps: full_figure(60, 30),
        only: None,
        outside: true,
        shrink: false,
        until: None,
    };
    let tally = undo::torture(&setup, &plan, &mut |_| ());
    clean("OWN-TORTURE-UNDO-OUTSIDE", plan.seed, &tally, &tally.complaints)?;
    world.finish()
}

/// Disks of home and roots that are filled under load.
fn full_disks() -> Outcome {
    let plan = full::Plan {
        seed: Random::for_case().seed,
        rounds: full_figure(1_000, 5) as u64,
        at_once: 2,
        ext4: missing(Need::Loop).is_none(),
        keep: false,
        until: None,
    };
    let tally = full::torture(Programs::built(), &plan, &|_| ());
    clean("OWN-TORTURE-SPACE", plan.seed, &tally, tally.complaints())?;
    check(tally.is_clean() && tally.refused > 0, || format!("seed {}: {tally}", plan.seed))
}
