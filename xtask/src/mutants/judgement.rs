//! Planted bugs in the policy of words and rules, ignore files, and the store.

use super::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[];
