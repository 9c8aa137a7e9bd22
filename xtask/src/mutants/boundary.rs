//! Planted bugs in what commands can do in each isolation and capture mode.

use super::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[];
