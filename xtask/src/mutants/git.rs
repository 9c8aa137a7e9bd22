//! Planted bugs in the rules for git folders and protected names.

use super::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[];
