//! The journal through crashes: kills, truncation, bit flips, full disks, and homes that others prepared.

mod damage;
mod home;
mod kills;
mod logged;
mod many;
mod moments;
mod power;
mod space;

use crate::{Case, Need, plain};

pub fn cases() -> Vec<Case> {
    vec![
        plain("JRNL-01", kills::under_load),
        Case { id: "OWN-KILL", needs: &[Need::Strace], run: kills::at_chosen_calls },
        Case { id: "OWN-TORTURE-ERRORS", needs: TRACED, run: kills::errors_at_steps },
        Case { id: "OWN-TORTURE-FULL", needs: &[Need::Root], run: kills::full_disks },
        Case { id: "OWN-KILL-UNREADABLE", needs: TRACED, run: moments::over_an_unreadable_file },
        Case { id: "OWN-HALF-REMOVED", needs: TRACED, run: moments::half_removed },
        Case { id: "OWN-KILLED-RECOVERY", needs: TRACED, run: moments::killed_recovery },
        Case { id: "OWN-OPEN-MOVE", needs: TRACED, run: moments::written_below_an_open_move },
        Case { id: "OWN-OPEN-INTENTS", needs: TRACED, run: moments::two_open_intents },
        Case { id: "OWN-LOG-RECOVERY", needs: TRACED, run: logged::recovery },
        Case { id: "OWN-LOG-NOT-RECORDED", needs: TRACED, run: logged::not_recorded },
        plain("JRNL-02", damage::cut_off),
        plain("OWN-EMPTY-JOURNAL", damage::emptied),
        plain("OWN-WAL-BEGUN", damage::begun_log),
        plain("JRNL-03", damage::flipped),
        plain("OWN-WAL-FLIP", damage::flipped_log),
        Case { id: "JRNL-05", needs: &[Need::Root], run: space::full_disk },
        Case { id: "OWN-STALE-INTENT", needs: &[Need::Root], run: space::rolled_back_twice },
        Case { id: "JRNL-07", needs: &[Need::Root, Need::Loop], run: power::cut_under_load },
        Case { id: "JRNL-08", needs: &[Need::Root, Need::Loop], run: power::cut_in_patches },
        Case { id: "OWN-POWER-TWO-DISKS", needs: &[Need::Root, Need::Loop], run: power::cut_two_disks },
        Case { id: "OWN-POWER-ONE-KEEPS", needs: &[Need::Root, Need::Loop], run: power::cut_one_of_two },
        Case {
            id: "OWN-POWER-TAKEN-BACK",
            needs: &[Need::Root, Need::Loop, Need::Strace],
            run: power::rollback_survives_power_loss,
        },
        Case { id: "OWN-POWER-BLOB", needs: &[Need::Root, Need::Loop], run: power::cut_after_blobs },
        plain("JRNL-09", home::second_daemon),
        plain("OWN-LOCK-LET-GO", home::lock_let_go_late),
        plain("JRNL-11", home::prepared_journal),
        plain("JRNL-13", many::a_million_records),
        plain("JRNL-14", many::sixty_four_clients),
        plain("OWN-TORTURE-CROWD", many::a_crowd),
        plain("OWN-ANSWER-ORDER", many::answers_in_order),
        plain("OWN-WAL-SIZE", many::log_stays_small),
        plain("JRNL-15", home::private),
        plain("JRNL-16", kills::asked_to_stop),
    ]
}

/// The case stops the daemon with strace.
const TRACED: &[Need] = &[Need::Root, Need::Strace];
