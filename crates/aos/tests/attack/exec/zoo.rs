//! A short walk through the torturer's zoo.

use crate::Outcome;
use crate::exec_torture::{Plan, torture};
use crate::journal_crash::bench;
use crate::world::{Start, World, check, full_figure, rand};

pub fn short() -> Outcome {
    let world = World::asleep(Start::default());
    let plan = Plan { seed: rand(), runs: full_figure(400, 40) as u64, at_once: 4, until: None };
    let tally = torture(&bench(&world), &plan, &mut |_| ());
    println!("OWN-EXEC-ZOO: seed {}: {tally}", plan.seed);
    check(tally.is_clean(), || format!("seed {}: {tally}\n{}", plan.seed, tally.complaints.join("\n")))?;
    world.finish()
}
