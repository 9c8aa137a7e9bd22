//! Recovery: intents that no receipt closed are taken back, and closed with a receipt that says so.

use aos_model::capability::FollowSymlinks;
use aos_model::entry::EntryDraft;
use aos_model::receipt::Receipt;
use aos_model::refusal::{Code, Detail, Refusal};
use aos_model::state::{FoldInput, decode_session, session_key};
use aos_store::{ActsFor, Append, Fault, OpenIntent, act_for};

use super::displaced::ASIDE;
use super::step_intent::{At, Intent};
use super::take_back::{drop_left_aside, take_back_intents};
use crate::exec::acts_for;
use crate::host::Host;
use crate::jail::Root;
use aos_model::path::is_below;
use rustix::io::Errno;

/// Returns how many were rolled back. Runs before the first request, so nothing else moves.
pub(crate) fn recover(host: &Host) -> Result<usize, Fault> {
    let open = host.journal.open_intents()?;
    let open = open.into_iter().map(|open| Ok((open.id, read(host, &open)?)));
    let open = open.collect::<Result<Vec<(u64, Intent)>, Fault>>()?;
    let (aside, changes): (Vec<_>, Vec<_>) = open.into_iter().partition(|(_, intent)| intent.kind == ASIDE);
    // The newest first: it may have worked in a folder that an older one had moved or made.
    for (id, intent) in changes.iter().rev() {
        roll_back(host, *id, intent)?;
    }
    // Last: what a change that was not recorded had left aside is back in its place by now.
    for (id, intent) in &aside {
        let _rights = act_for(rights_of(host, intent)?).map_err(no_rights)?;
        match drop_left_aside(intent) {
            Ok(()) => host.journal.abandon(*id),
            Err(error) => tracing::warn!(intent = id, %error, "cannot remove what a change displaced"),
        }
    }
    if !changes.is_empty() {
        tracing::info!(changes = changes.len(), "finished recovery");
    }
    Ok(changes.len())
}

fn no_rights(why: Errno) -> Fault {
    Fault::io("cannot act for the session's user", why)
}

fn read(host: &Host, open: &OpenIntent) -> Result<Intent, Fault> {
    let intent: Intent = serde_json::from_slice(&open.body).map_err(|why| {
        Fault::Refused(format!("the journal is damaged: intent {} cannot be read: {why}", open.id))
    })?;
    check(host, &intent)
        .map_err(|why| Fault::Refused(format!("the journal is damaged: intent {}: {why}", open.id)))?;
    Ok(intent)
}

fn roll_back(host: &Host, id: u64, intent: &Intent) -> Result<(), Fault> {
    let preimages = host.preimages.session(&intent.session_id)?;
    let sync = host.machine.durability == aos_model::receipt::Durability::Power;
    let stayed = {
        let _rights = act_for(rights_of(host, intent)?).map_err(no_rights)?;
        take_back_intents(intent, &preimages, sync)
    };
    // There is nothing to take back of a command that ran without an overlay.
    let without_overlay = intent.change_id.is_empty();
    log_rollback(id, intent, without_overlay, stayed.len());
    let message = if without_overlay {
        "the daemon ended while the command ran; all its processes were ended with it, what it had done by then stays done, but for what it may not change".to_owned()
    } else if stayed.is_empty() {
        "the daemon ended before this was finished; everything it had begun was taken back. Repeat it if it is still wanted".to_owned()
    } else {
        "the daemon ended before this was finished; what had not been changed by others since was taken back, the rest is listed".to_owned()
    };
    let code = if without_overlay { Code::Interrupted } else { Code::InterruptedRolledBack };
    let is_whole = stayed.is_empty();
    let detail = Detail { not_rolled_back: stayed, ..Detail::default() };
    let mut receipt = Receipt::refusal(Refusal::new(code, message).with(detail));
    receipt.tool_call_id = Some(intent.tool_call_id.clone());
    receipt.turn_id = Some(intent.turn_id.clone());
    let draft = EntryDraft {
        at_ns: (host.machine.now_ns)(),
        kind: &intent.kind,
        session_id: Some(&intent.session_id),
        tool_call_id: Some(&intent.tool_call_id),
        turn_id: Some(&intent.turn_id),
        params: &intent.params,
        receipt: &receipt.to_json(),
        blobs: &[],
        facts: &[],
    };
    let body = draft.to_bytes();
    match host.journal.append(Append { body, effects: FoldInput::default(), closes: Some(id) }) {
        // The disk is full, the reserve included. Nothing of the change is left, so a daemon starts without the entry.
        Err(fault) if fault.is_full() && is_whole => {
            tracing::warn!(intent = id, "cannot record that a change was rolled back: {fault}");
            host.journal.abandon(id);
            Ok(())
        }
        appended => appended.map(drop),
    }
}

/// Whose rights the change had. A workdir that is gone has no owner to act for, and nothing to take back in.
fn rights_of(host: &Host, intent: &Intent) -> Result<Option<ActsFor>, Fault> {
    let record = host.journal.state(&session_key(&intent.session_id))?;
    let record = record.and_then(|bytes| decode_session(&bytes));
    let workdir = record.and_then(|record| Root::pin_again(&record.workdir).ok());
    Ok(workdir.and_then(|workdir| acts_for(&workdir)))
}

fn log_rollback(number: u64, intent: &Intent, without_overlay: bool, not_rolled_back: usize) {
    let Intent { kind, session_id, tool_call_id, steps, .. } = intent;
    let steps = steps.len();
    if without_overlay {
        tracing::warn!(
            intent = number,
            kind,
            session_id,
            tool_call_id,
            "a command without an overlay was interrupted; what it changed stays"
        );
    } else {
        tracing::info!(
            intent = number,
            kind,
            session_id,
            tool_call_id,
            steps,
            not_rolled_back,
            "rolled back an unfinished change"
        );
    }
}

/// An intent is only followed where this daemon could have written it: a home may come from anywhere.
fn check(host: &Host, intent: &Intent) -> Result<(), String> {
    let record = host.journal.state(&session_key(&intent.session_id)).map_err(|fault| fault.to_string())?;
    let record = record.and_then(|bytes| decode_session(&bytes)).ok_or("no such session")?;
    let anywhere = record.capability.follow_symlinks == FollowSymlinks::Allow;
    let inside = |at: &At| {
        anywhere
            || record
                .roots
                .iter()
                .any(|root| root.path == "/" || is_below(at.dir.as_bytes(), root.path.as_bytes()))
    };
    for step in &intent.steps {
        if let Some(at) = step.places().find(|at| !inside(at) || at.dir.split('/').any(|name| name == "..")) {
            return Err(format!("{} is outside of the session's roots", aos_model::text::escape(&at.dir)));
        }
        if !step.names_are_ours(&intent.change_id) {
            return Err("it names temporary files that are not ours".to_owned());
        }
    }
    Ok(())
}
