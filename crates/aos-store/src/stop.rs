//! Stopping the daemon when it can no longer promise that what it acknowledges is in the journal.

use crate::fault::Fault;

/// Aborts after a failed fsync. Linux may mark the dirty pages clean after the error, so a second fsync can succeed
/// without the data on disk, and no later receipt could be trusted.
pub(crate) fn abort_if_fsync_failed(fault: &Fault) {
    use rusqlite::ffi::{SQLITE_IOERR_DIR_FSYNC, SQLITE_IOERR_FSYNC};
    if let Fault::Journal(error) = fault
        && let Some(inner) = error.sqlite_error()
        && matches!(inner.extended_code, SQLITE_IOERR_FSYNC | SQLITE_IOERR_DIR_FSYNC)
    {
        stop(&format!(
            "the journal could not be synced ({fault}); stopping, because receipts that are acknowledged now could be lost"
        ));
    }
}

/// Stops before anything is acknowledged that is not in the journal. What is unfinished is rolled back when a daemon
/// starts on a journal that is whole.
pub(crate) fn stop_if_changed(outcome: Result<(), String>) {
    if let Err(what) = outcome {
        stop(&format!(
            "the journal was changed underneath: {what}; stopping, because receipts that are acknowledged now could be lost. Run `aos verify`"
        ));
    }
}

fn stop(why: &str) -> ! {
    tracing::error!("{why}");
    eprintln!("aosd: {why}");
    std::process::abort();
}
