//! A short run of the torture test's set of command kinds.

use aos_testkit::torture::exec::{Plan, torture};
use aos_testkit::{Start, World, full_figure, new_seed};

use crate::Outcome;
use crate::torture::clean;

pub fn short() -> Outcome {
    let world = World::asleep(Start::default());
    let plan = Plan { seed: new_seed(), runs: full_figure(400, 40) as u64, at_once: 4, until: None };
    let tally = torture(&world.setup(), &plan, &mut |_| ());
    clean("OWN-EXEC-ZOO", plan.seed, &tally, &tally.complaints)?;
    world.finish()
}
