//! A client's own pipe in the daemon's hands: plain calls are answered without a second process on their way.
//!
//! `aos mcp` lends it while the protocol has nothing under way. The first line that is no plain call, would have to
//! wait for others or needs a person's word ends that; what was read and is not answered lies in the pipe's tray,
//! whatever becomes of us.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::client::{ClientError, Progress};
use crate::mcp::{Offer, Order, Pipe, Plain};
use crate::questions;
use crate::rpc::{ErrorCode, Wrong};
use crate::server::Server;
use crate::tools::{Ask, Memory};

/// Serves the pipe until its owner goes away or is needed.
pub(crate) fn serve(
    server: &Arc<Server>,
    offer: &Offer,
    pipe: &Pipe,
    memory: &Memory,
    owner: BorrowedFd<'_>,
) -> io::Result<()> {
    let (mut unanswered, _) = pipe.unanswered()?;
    loop {
        while let Some(end) = unanswered.iter().position(|byte| *byte == b'\n') {
            let Some(_entered) = server.enter() else { return Ok(()) };
            let Some(answer) = answer(server, offer, memory, &unanswered[..end]) else { return Ok(()) };
            let said = pipe.write(&answer, Some(owner));
            // What was done is not asked again, even if nobody hears of it.
            unanswered.drain(..=end);
            pipe.set_unanswered(&unanswered)?;
            said?;
        }
        if Pipe::is_full(&unanswered) || !pipe.read_more(&mut unanswered, Some(owner))? {
            return Ok(());
        }
    }
}

/// `None`: the line is for the owner.
fn answer(server: &Arc<Server>, offer: &Offer, memory: &Memory, line: &[u8]) -> Option<Vec<u8>> {
    let Plain { id, order } = Plain::parse(offer, line)?;
    let order = match order {
        Ok(order) => order,
        Err(refused) => return Some(Plain::answer(id, refused)),
    };
    if offer.asks && has_warnings(server, &order) {
        return None;
    }
    let mut inside = Inside { server, has_asked: false, would_wait: false };
    let outcome = order.place(&mut inside, memory, &mut |_| {});
    (!inside.would_wait).then(|| Plain::answer(id, outcome))
}

/// Whether a person should be asked first. What would be refused is not worth a question.
fn has_warnings(server: &Arc<Server>, order: &Order) -> bool {
    let foreseen = order.effect().map(|(kind, params)| server.host.foresee(kind, &params.to_string()));
    foreseen.is_some_and(|foreseen| foreseen.is_ok_and(|warnings| !warnings.is_empty()))
}

/// The daemon itself, as a tool asks it.
struct Inside<'a> {
    server: &'a Arc<Server>,
    has_asked: bool,
    would_wait: bool,
}

impl Ask for Inside<'_> {
    fn ask(
        &mut self,
        method: &str,
        params: &str,
        _watch: &mut dyn FnMut(Progress),
    ) -> Result<String, ClientError> {
        let host = &self.server.host;
        let outcome = match method {
            "effect.call" => self.server.admit(params).map(|job| {
                // What has begun is finished here; what has not is asked again, by who can wait.
                self.would_wait |= job.must_wait() && !self.has_asked;
                (!self.would_wait).then(|| host.answer(job, None).receipt)
            }),
            "blob.read" => questions::read_blob(host, params).map(Some),
            other => Err(Wrong::new(ErrorCode::MethodNotFound, format!("no method `{other}` in a pipe"))),
        };
        self.has_asked = true;
        match outcome {
            Ok(answer) => answer.ok_or(ClientError::Late),
            Err(wrong) => {
                Err(ClientError::Refused { code: wrong.code.number().into(), message: wrong.message })
            }
        }
    }
}
