//! Planted bugs in the front ends: MCP, HTTP, set-up and printed text.

use super::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[];
