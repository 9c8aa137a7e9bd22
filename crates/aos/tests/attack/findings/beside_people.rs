//! Undo beside a person who changes the same files: what is somebody else's is never lost, and no list says otherwise.
//!
//! In the comments P is a person who changes the disk and W an agent's call; each call is a turn of its own.

mod attributes;
mod folders;
mod gaps;
mod lists;
mod no_step;
mod paths;
mod redo;
mod scene;
mod twice;

use crate::{Case, plain};

pub(super) fn cases() -> Vec<Case> {
    vec![
        plain("C13", redo::redo_brings_back_what_was_displaced),
        plain("C24", folders::a_folder_that_went_between_two_calls),
        plain("C25", paths::only_the_paths_of_the_turns),
        plain("C26", gaps::somebody_wrote_between_two_calls),
        plain("C27", twice::what_is_restored_stays),
        plain("C28", lists::the_lists_are_the_difference),
        plain("C29", attributes::attributes_count_like_content),
        plain("C30", no_step::what_cancels_out_is_no_step),
    ]
}
