//! Short runs of the torturer's suites, where no case of another area is one already.

use crate::journal_crash::bench;
use crate::world::{Start, World, check, full_figure, rand};
use crate::{Case, Outcome, path_torture};

pub fn cases() -> Vec<Case> {
    let case = |id, run| Case { id, needs: &[], run };
    vec![case("OWN-TORTURE-PATH", paths as fn() -> Outcome)]
}

/// Fails with the seed and all complaints unless everything that was promised held.
fn clean(id: &str, seed: u64, tally: &dyn std::fmt::Display, complaints: &[String]) -> Outcome {
    println!("{id}: seed {seed}: {tally}");
    check(complaints.is_empty(), || format!("seed {seed}: {tally}\n{}", complaints.join("\n")))
}

fn paths() -> Outcome {
    let world = World::asleep(Start::default());
    let plan = path_torture::Plan {
        seed: rand(),
        resolutions: full_figure(1_000_000, 5_000) as u64,
        writes: full_figure(100_000, 500) as u64,
        clients: 4,
        neighbours: 2,
        until: None,
    };
    let tally = path_torture::torture(&bench(&world), &plan, &mut |_| ());
    clean("OWN-TORTURE-PATH", plan.seed, &tally, &tally.complaints)?;
    world.finish()
}
