//! Planted bugs in what a command sees of the machine, and what it may fill.

use super::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[];
