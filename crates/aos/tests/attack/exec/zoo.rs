//! A short walk through the torturer's zoo.

use aos_testkit::torture::exec::{Plan, torture};
use aos_testkit::{Start, World, check, full_figure, new_seed};

use crate::Outcome;

pub fn short() -> Outcome {
    let world = World::asleep(Start::default());
    let plan = Plan { seed: new_seed(), runs: full_figure(400, 40) as u64, at_once: 4, until: None };
    let tally = torture(&world.setup(), &plan, &mut |_| ());
    println!("OWN-EXEC-ZOO: seed {}: {tally}", plan.seed);
    check(tally.is_clean(), || format!("seed {}: {tally}\n{}", plan.seed, tally.complaints.join("\n")))?;
    world.finish()
}
