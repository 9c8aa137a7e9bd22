//! Intents in slots of one file: one write instead of a commit, where an intent need not survive a power cut.
//!
//! At durability `process` the intent only has to outlive the daemon, and a page that was written does. An intent that
//! does not fit, and every intent at `power`, is a row of the journal instead.
//!
//! A slot that does not match its digest holds no intent: the daemon died while it wrote the slot, before it changed
//! anything. A receipt closes an intent by its id, so a closed one may stay in its slot until the slot is used again.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard};

use rustix::fs::OFlags;
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::disk;
use crate::fault::{Fault, LOCK_POISONED};
use crate::home::Home;
use crate::journal::OpenIntent;

pub(crate) const FILE: &str = "intents";
/// Enough for the intent of a small edit, which holds the request.
const SLOT_BYTES: usize = 16 << 10;
/// As many changes are under way at once as there are sessions that change something, which are few.
const SLOTS: usize = 64;
/// Digest, id, length of the body.
const HEADER_BYTES: usize = 32 + 8 + 8;

#[derive(Debug)]
pub(crate) struct IntentSlots {
    file: OwnedFd,
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    open: HashMap<u64, usize>,
    /// Slots that may be written. The last is used next: it is the one most likely cached.
    free: Vec<usize>,
    /// Free slots that still hold an intent that was closed.
    stale: HashSet<usize>,
}

impl Slots {
    fn take_free(&mut self) -> Option<usize> {
        let slot = self.free.pop()?;
        self.stale.remove(&slot);
        Some(slot)
    }
}

impl IntentSlots {
    pub(crate) fn open(home: &Home) -> Result<IntentSlots, Fault> {
        disk::check_private(home.state(), FILE)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(home.state(), FILE, flags, disk::PRIVATE_FILE).map_err(failed)?;
        let free = (0..SLOTS).rev().collect();
        Ok(IntentSlots { file, slots: Mutex::new(Slots { free, ..Slots::default() }) })
    }

    /// Reads the intents that a daemon before this one left open: all but those whose ids are `closed`.
    pub(crate) fn load(&self, closed: &HashSet<u64>) -> Result<(), Fault> {
        let mut slots = self.lock();
        for slot in 0..SLOTS {
            let Some(intent) = self.read(slot)? else { continue };
            if closed.contains(&intent.id) {
                slots.stale.insert(slot);
            } else {
                slots.free.retain(|free| *free != slot);
                slots.open.insert(intent.id, slot);
            }
        }
        Ok(())
    }

    pub(crate) fn open_intents(&self) -> Result<Vec<OpenIntent>, Fault> {
        let slots = self.lock();
        let read = slots.open.values().map(|slot| self.read(*slot));
        Ok(read.collect::<Result<Vec<_>, Fault>>()?.into_iter().flatten().collect())
    }

    /// Writes an intent. False if it does not fit, all slots are in use, or the disk is full.
    pub(crate) fn put(&self, id: u64, body: &[u8]) -> bool {
        if body.len() > SLOT_BYTES - HEADER_BYTES {
            return false;
        }
        let Some(slot) = self.lock().take_free() else { return false };
        let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
        bytes.extend_from_slice(&digest(id, body));
        bytes.extend_from_slice(&id.to_le_bytes());
        bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
        bytes.extend_from_slice(body);
        let written = rustix::io::pwrite(&self.file, &bytes, offset(slot));
        let fits = written == Ok(bytes.len());
        let mut slots = self.lock();
        if fits {
            slots.open.insert(id, slot);
        } else {
            // The slot may still hold the closed intent that it held before.
            slots.stale.insert(slot);
            slots.free.push(slot);
        }
        fits
    }

    pub(crate) fn contains(&self, id: u64) -> bool {
        self.lock().open.contains_key(&id)
    }

    /// The newest id; 0 without one.
    pub(crate) fn last_id(&self) -> u64 {
        self.lock().open.keys().copied().max().unwrap_or(0)
    }

    /// The receipt of this intent is committed. False if the intent is not in a slot.
    pub(crate) fn close(&self, id: u64) -> bool {
        let mut slots = self.lock();
        let Some(slot) = slots.open.remove(&id) else { return false };
        slots.stale.insert(slot);
        slots.free.push(slot);
        true
    }

    /// Removes an intent that no receipt closes. False if it is not in a slot.
    pub(crate) fn remove(&self, id: u64) -> Result<bool, Fault> {
        let mut slots = self.lock();
        let Some(slot) = slots.open.get(&id).copied() else { return Ok(false) };
        self.erase(slot)?;
        slots.open.remove(&id);
        slots.free.push(slot);
        Ok(true)
    }

    /// Erases the intents that were closed. Afterwards it no longer matters which receipts closed them.
    pub(crate) fn erase_closed(&self) -> Result<(), Fault> {
        let mut slots = self.lock();
        for slot in &slots.stale {
            self.erase(*slot)?;
        }
        slots.stale.clear();
        Ok(())
    }

    fn erase(&self, slot: usize) -> Result<(), Fault> {
        rustix::io::pwrite(&self.file, &[0; HEADER_BYTES], offset(slot)).map(drop).map_err(failed)
    }

    fn read(&self, slot: usize) -> Result<Option<OpenIntent>, Fault> {
        let mut bytes = vec![0; SLOT_BYTES];
        let mut filled = 0;
        while filled < SLOT_BYTES {
            match rustix::io::pread(&self.file, &mut bytes[filled..], offset(slot) + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(Errno::INTR) => {}
                Err(why) => return Err(failed(why)),
            }
        }
        let (header, rest) = bytes[..filled].split_at_checked(HEADER_BYTES).unwrap_or_default();
        let Some((sum, numbers)) = header.split_first_chunk::<32>() else { return Ok(None) };
        let number = |at: usize| numbers[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let (id, length) = (number(0), number(8));
        let body = usize::try_from(length).ok().and_then(|length| rest.get(..length));
        Ok(body.filter(|body| digest(id, body) == *sum).map(|body| OpenIntent { id, body: body.to_vec() }))
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().expect(LOCK_POISONED)
    }
}

fn offset(slot: usize) -> u64 {
    (slot * SLOT_BYTES) as u64
}

fn digest(id: u64, body: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(id.to_le_bytes()).chain_update(body).finalize().into()
}

fn failed(why: Errno) -> Fault {
    Fault::io("cannot use the file of intents", why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_intent_is_erased_after_its_slot_could_not_be_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(dir.path()).unwrap();
        let mut slots = IntentSlots::open(&home).unwrap();
        assert!(slots.put(1, b"closed") && slots.close(1));
        let read_only = rustix::fs::openat(home.state(), FILE, OFlags::RDONLY, disk::PRIVATE_FILE).unwrap();
        let writable = std::mem::replace(&mut slots.file, read_only);
        assert!(!slots.put(2, b"not written"));
        slots.file = writable;
        slots.erase_closed().unwrap();
        let next = IntentSlots::open(&home).unwrap();
        next.load(&HashSet::new()).unwrap();
        assert!(next.open_intents().unwrap().is_empty(), "its receipt is not looked at after the erasure");
    }
}
