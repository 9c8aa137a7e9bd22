//! Git folders and protected names: what would run code later does not land.

use crate::Case;

pub(super) fn cases() -> Vec<Case> {
    Vec::new()
}
