//! What a rule forbids to read is masked for commands too.

use crate::Case;

pub(super) fn cases() -> Vec<Case> {
    Vec::new()
}
