//! What is denied stays denied in every isolation and capture mode.

use crate::Case;

pub(super) fn cases() -> Vec<Case> {
    Vec::new()
}
