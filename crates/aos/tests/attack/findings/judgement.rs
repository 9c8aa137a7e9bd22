//! The policy of words and rules, ignore files, and a journal that is changed underneath.

mod descriptors;
mod ignore_files;
mod names;
mod preimages;
mod privileges;
mod rules;
mod underneath;
mod words;

use crate::{Case, Need, plain};

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
        plain("S28", ignore_files::hostile_ignore_files),
        plain("OWN-S28-LIMIT", ignore_files::rules_up_to_the_limit),
        plain("OWN-S28-ORDER", ignore_files::no_order_of_threads),
        plain("S30", underneath::noticed_before_acknowledging),
        plain("OWN-S30-START", underneath::checked_at_start),
        plain("OWN-S30-LOCK", underneath::a_foreign_lock),
        plain("OWN-S30-READERS", underneath::readers_are_no_change),
        Case { id: "S31", needs: &[Need::Root], run: preimages::changed_before_it_is_finalized },
        Case { id: "OWN-S31-COPIES", needs: &[Need::Root], run: preimages::copies_are_good },
        Case { id: "S15", needs: &[Need::Root], run: privileges::a_file_that_is_still_written },
        Case { id: "S5", needs: &[Need::Root], run: privileges::set_id_bits_are_dropped },
        Case { id: "OWN-S5-HIDDEN", needs: &[Need::Root], run: privileges::hidden_set_id_bits_are_dropped },
        Case { id: "OWN-S5-CAPABILITIES", needs: &[Need::Root], run: privileges::capabilities_are_dropped },
        plain("C12", descriptors::more_folders_than_descriptors),
        Case {
            id: "OWN-C12-MODES",
            needs: &[Need::Root, Need::Strace],
            run: preimages::closed_modes_through_a_kill,
        },
    ]
}
