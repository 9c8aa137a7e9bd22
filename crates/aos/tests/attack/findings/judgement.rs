//! The policy of words and rules, ignore files, and a journal that is changed underneath.

mod names;
mod rules;
mod words;

use crate::{Case, plain};

pub(super) fn cases() -> Vec<Case> {
    vec![
        plain("S34", rules::every_spelling_is_denied),
        plain("OWN-S34-VOID", rules::void_globs_are_refused),
        plain("OWN-S34-RESTART", rules::rules_survive_a_restart),
        plain("S25", words::links_after_a_missing_name),
        plain("OWN-S25-OPTIONS", words::options_with_attached_values),
        plain("S33", names::excluded_through_a_link),
        plain("S20", names::reserved_in_every_effect),
        plain("OWN-S20-COMMAND", names::reserved_names_of_a_command),
        plain("S18", names::inline_ceiling),
    ]
}
