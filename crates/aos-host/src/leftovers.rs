//! Logs what could not be removed. It uses space until the next start removes it.

use aos_store::Fault;

pub(crate) fn log_leftover(what: &str, id: &str, removed: Result<(), Fault>) {
    if let Err(error) = removed {
        tracing::warn!(what, id, %error, "cannot remove leftovers; the next start tries again");
    }
}
