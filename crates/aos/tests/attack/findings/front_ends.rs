//! Hostile clients of the front ends, and hostile files in their way.

use crate::Case;

pub(super) fn cases() -> Vec<Case> {
    Vec::new()
}
