//! Undo beside people against a reference world: the findings as named histories, and random histories.
//!
//! `AOS_UNDO_HISTORIES`, `AOS_UNDO_SEED` (the first seed) and `AOS_UNDO_STEPS` make the random test longer. With
//! `AOS_UNDO_CLASSIC` the histories are those of the first prototype, whose seeds are in the notes of part H2.

mod actors;
mod checks;
mod findings;
mod host;
mod oracle;
mod random;
mod world;
