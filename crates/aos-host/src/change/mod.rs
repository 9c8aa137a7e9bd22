//! Making changes: an intent in the journal first, then the steps; taken back whole when a step fails.
//!
//! ```text
//! plan ──arm──▶ intent in the journal ──apply──▶ steps ──▶ receipt closes the intent
//!                                         └─ a step fails, or the daemon dies: every step is taken back
//! ```
//!
//! What a step displaces waits under a temporary name beside its path, then moves to the session's pre-images (I5). So
//! at each moment the old object is at its path, under the temporary name, or among the pre-images, and the step
//! intents say where to look.

mod apply;
mod arm;
mod aside;
mod displaced;
mod give_back;
mod held;
mod hold_open;
mod in_layer;
mod preimage;
mod record;
mod recover;
mod step_intent;
mod take;
mod take_back;

pub(crate) use apply::apply;
pub(crate) use arm::{Armed, announce_command, arm, arm_command_changes, forget_displaced};
pub(crate) use displaced::finish_aside;
pub(crate) use in_layer::apply_in_layer;
pub(crate) use recover::recover;
pub(crate) use take_back::take_back;
