//! Applying the steps of an armed plan, in order; a step that fails takes all before it back.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use aos_model::entry::Fact;
use aos_model::limits::MOVED_HASHED_BYTES_MAX;
use aos_model::receipt::{Durability, MutationFields, Warning};
use aos_model::records::{Attributes, Coverage, Kind, SnapshotRecord};
use aos_model::refusal::{Code, Refusal, Status};
use rustix::io::Errno;

use super::arm::Armed;
use super::displaced::finish_aside;
use super::give_back;
use super::hold_open::{Action, OPEN_TO_OWNER};
use super::preimage::Object;
use super::record::{Made, record};
use super::step_intent::{Seen, StepIntent};
use super::take::take;
use super::take_back::take_back_first;
use crate::disk::{self, AttrsFrom, FileAttrs, Meta, apply_metadata, read_xattrs, write_all};
use crate::fault;
use crate::host::Host;
use crate::jail::DirFd;
use crate::outcome::Done;
use crate::steps::{Content, Outcome, Put, Step, StepTarget};

/// How many folders are held open to be synced at the end.
const TOUCHED_HELD_MAX: usize = 64;

/// Carries out the plan. On failure the tree is as it was, or the refusal lists what could not be put back.
pub(crate) fn apply(host: &Host, armed: &Armed<'_>) -> Result<Done, Refusal> {
    let completion =
        armed.completion.lock().expect("BUG: lock poisoned").take().expect("BUG: a plan is applied once");
    let mut work = Work {
        armed,
        preimages: armed.session.preimages.dir()?,
        sync: host.machine.durability == Durability::Power,
        begun: false,
        aside: Vec::new(),
        touched: BTreeMap::new(),
        warnings: completion.warnings,
        after: Vec::with_capacity(armed.actions.len()),
        made: Vec::with_capacity(armed.actions.len()),
        making: Made::default(),
    };
    for (index, action) in armed.actions.iter().enumerate() {
        work.begun = false;
        if let Err(mut refusal) = work.act(index, action) {
            if matches!(refusal.code, Code::StaleBase | Code::FileExists) {
                refusal.code = completion.raced;
            }
            // A step that did not touch anything has nothing to take back: what is there is not ours.
            let count = index + usize::from(work.begun);
            refusal.detail.not_rolled_back = take_back_first(host, armed, count);
            return Err(refusal);
        }
    }
    let fail = |why| fault::refusal("cannot sync the changed folders", why);
    if let Err(mut refusal) = work.leave_aside(host).and_then(|()| work.sync_folders().map_err(fail)) {
        refusal.detail.not_rolled_back = take_back_first(host, armed, armed.actions.len());
        finish_aside(host, armed, false);
        return Err(refusal);
    }
    let outcome =
        Outcome { after: &work.after, snapshot_id: armed.snapshot_id.as_deref().unwrap_or_default() };
    let mut done = Done::new(Status::Ok, (completion.finish)(&outcome), work.warnings);
    done.facts = completion.facts;
    if let Some(snapshot_id) = &armed.snapshot_id {
        let paths = record(armed, work.after.iter().copied().zip(work.made));
        done.facts.push(Fact::Captured(Box::new(SnapshotRecord {
            snapshot_id: snapshot_id.clone(),
            scope_id: None,
            explicit: false,
            own: armed.own_snapshot,
            in_tree: false,
            coverage: Coverage::Exact,
            paths,
        })));
    }
    done.trace =
        Some(MutationFields { snapshot_id: armed.snapshot_id.clone(), durability: host.machine.durability });
    Ok(done)
}

pub(super) struct Work<'a> {
    pub(super) armed: &'a Armed<'a>,
    pub(super) preimages: &'a OwnedFd,
    pub(super) sync: bool,
    /// Whether the step under way has touched the disk.
    pub(super) begun: bool,
    /// The steps whose displaced object is still under its temporary name, because its pre-image is a copy. It stays there
    /// while another step may fail: taking a step back must not need space on a disk that may be full.
    pub(super) aside: Vec<usize>,
    /// Folders to sync at `power`, each once, by what they are.
    touched: BTreeMap<(u64, u64), OwnedFd>,
    warnings: Vec<Warning>,
    after: Vec<Option<Meta>>,
    /// What else is known of what each step left.
    made: Vec<Made>,
    /// Of the step under way.
    making: Made,
}

impl<'a> Work<'a> {
    pub(super) fn dir(&self, target: &'a StepTarget) -> Result<DirFd<'a>, Refusal> {
        match self.armed.dir(target) {
            Ok(dir) => Ok(dir.expect("BUG: folders are made before their content")),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE | Errno::XDEV) => {
                Err(changed_meanwhile(target, "its folder was replaced"))
            }
            Err(why) => Err(fault::refusal(&format!("cannot open the folder of {}", target.shown), why)),
        }
    }

    fn act(&mut self, index: usize, action: &'a Action) -> Result<(), Refusal> {
        match action {
            Action::Step { step, is_held } => self.step(index, step, *is_held),
            Action::HoldOpen(held) => self.hold_open(held),
            Action::Close(held) => {
                // Nothing can be removed from the folder afterwards.
                self.drop_aside()?;
                self.close(held)
            }
        }
    }

    fn step(&mut self, index: usize, step: &'a Step, is_held: bool) -> Result<(), Refusal> {
        if step.takes_folder() {
            self.drop_aside_in(step)?;
        }
        let after = match (step, &self.armed.step_intent(index)) {
            (Step::Put(put), StepIntent::Put { temporary, preimage, .. }) => {
                Some(self.put(index, put, temporary.as_bytes(), preimage)?)
            }
            (Step::Remove { at, before, .. }, StepIntent::Remove { temporary, preimage, .. }) => {
                self.remove(index, at, before, temporary.as_bytes(), preimage)?;
                None
            }
            (Step::MakeDir { at, mode, attrs }, StepIntent::MakeDir { .. }) => {
                Some(self.make_dir(index, at, *mode, attrs.as_ref())?)
            }
            (Step::SetMode { at, before, mode, xattrs }, StepIntent::SetMode { .. }) => {
                let xattrs = xattrs.as_ref().map(|(_, after)| after);
                Some(self.set_mode(at, before, *mode, xattrs, is_held)?)
            }
            (Step::Rename { from, before, to, replaced }, StepIntent::Rename { temporary, preimage, .. }) => {
                let moved = self.rename(from, before, to, *replaced)?;
                if replaced.is_some() {
                    self.keep_replaced(index, from, to, temporary.as_bytes(), preimage)?;
                }
                Some(moved)
            }
            _ => unreachable!("BUG: intents are made from the steps, in order"),
        };
        self.after.push(after);
        self.made.push(std::mem::take(&mut self.making));
        Ok(())
    }

    fn put(
        &mut self,
        index: usize,
        put: &'a Put,
        temporary: &[u8],
        preimage_name: &str,
    ) -> Result<Meta, Refusal> {
        let fail = |why| match why {
            Errno::NOENT => Refusal::new(
                Code::ParentNotFound,
                format!("cannot write {}: its folder takes no files", put.at.shown),
            ),
            why => fault::refusal(&format!("cannot write {}", put.at.shown), why),
        };
        let is_file = put.before.is_some_and(|before| before.kind == Kind::File);
        let dir = self.dir(&put.at)?;
        let dir = dir.as_fd();
        let old = if is_file { open_old(dir, &put.at)? } else { None };
        let (file, meta, kept) = self.make(put, dir, temporary, old.as_ref()).map_err(fail)?;
        self.making.attrs = file.as_ref().and_then(|file| read_xattrs(file).ok());
        match put.before {
            None => {
                disk::rename_noreplace(dir, temporary, dir, &put.at.name)
                    .map_err(|why| appeared(put, why))?;
            }
            Some(before) => {
                let displaced = self.exchange(put, dir, &before, temporary, (file.as_ref(), &meta))?;
                let object = Object { dir, name: temporary, meta: displaced, open: old };
                self.keep(index, object, preimage_name).map_err(|why| not_kept(&put.at, why))?;
            }
        }
        self.touch(&put.at)?;
        self.warnings.extend(kept);
        if put.before.is_some_and(|before| before.kind == Kind::File && before.nlink > 1) {
            let message = format!("{} had another name, which keeps the old content", put.at.shown);
            self.warnings.push(Warning::new("hard_link_broken", message));
        }
        Ok(meta)
    }

    /// The new file or link under its temporary name, complete.
    fn make(
        &mut self,
        put: &'a Put,
        dir: BorrowedFd<'_>,
        temporary: &[u8],
        old: Option<&OwnedFd>,
    ) -> Result<(Option<OwnedFd>, Meta, Option<Warning>), Errno> {
        if let Content::Link(target) = &put.content {
            disk::make_link(target, dir, temporary)?;
            self.begun = true;
            if let Some(FileAttrs { owner: Some((uid, gid)), .. }) = put.attrs {
                // Who owns a link hardly matters, and only root can give it away.
                let _ = disk::set_owner_at(dir, temporary, uid, gid);
            }
            let meta = Meta::at(dir, temporary)?.ok_or(Errno::NOENT)?;
            return Ok((None, meta, None));
        }
        if let Content::Moved(moved) = &put.content {
            let (file, meta, lost) = take(moved, put, dir, temporary, &mut self.begun)?;
            if self.sync {
                disk::sync(&file)?;
            }
            return Ok((Some(file), meta, lost));
        }
        let file = disk::create_new(dir, temporary)?;
        self.begun = true;
        match &put.content {
            Content::Bytes(fresh) => write_all(&file, &fresh.bytes)?,
            Content::Blob(blob) => disk::copy_content(&blob.open()?, &file)?,
            Content::Link(_) | Content::Moved(_) => unreachable!("BUG: made above"),
        }
        let worn = match (&put.attrs, &put.before) {
            (Some(kept), _) => AttrsFrom::Given(kept),
            (None, Some(before)) => AttrsFrom::Replaced { before, old },
            (None, None) => AttrsFrom::New,
        };
        let (meta, kept) = apply_metadata(&file, &put.at.shown, put.mode, worn)?;
        if self.sync {
            disk::sync(&file)?;
        }
        Ok((Some(file), meta, kept))
    }

    /// Swaps the new file in. What came out must be what was there when the plan was made.
    fn exchange(
        &self,
        put: &'a Put,
        dir: BorrowedFd<'_>,
        before: &Meta,
        temporary: &[u8],
        new: (Option<&OwnedFd>, &Meta),
    ) -> Result<Meta, Refusal> {
        let name = put.at.name.as_slice();
        disk::exchange(dir, temporary, dir, name).map_err(|why| match why {
            Errno::NOENT => changed_meanwhile(&put.at, "it was removed"),
            why => fault::refusal(&format!("cannot replace {}", put.at.shown), why),
        })?;
        let displaced = Meta::at(dir, temporary);
        // What was taken out of a folder before changed the folder, too.
        let is_same = |now: &Meta| match before.kind {
            Kind::Dir => Seen::from(*before).is(now),
            _ => now.same_version(before),
        };
        let as_planned = |now: &Meta| now.kind == before.kind && (is_same(now) || !put.built_on_before);
        if let Ok(Some(displaced)) = displaced
            && as_planned(&displaced)
        {
            return Ok(displaced);
        }
        let roots = &self.armed.session.jail.roots;
        give_back::take_out(roots, (dir, name), temporary, new).map_err(|why| {
            tracing::error!(
                session_id = self.armed.session.id,
                tool_call_id = self.armed.ids.tool_call,
                path = put.at.shown,
                error = %why,
                "cannot exchange a file back; another process's file may stay displaced"
            );
            Refusal::new(Code::IoError, format!("cannot put {} back: {why}", put.at.shown))
        })?;
        Err(match displaced {
            Ok(_) => changed_meanwhile(&put.at, "another process wrote it"),
            Err(why) => fault::refusal(&format!("cannot look at the old {}", put.at.shown), why),
        })
    }

    fn remove(
        &mut self,
        index: usize,
        at: &'a StepTarget,
        before: &Meta,
        temporary: &[u8],
        preimage_name: &str,
    ) -> Result<(), Refusal> {
        let dir = self.dir(at)?;
        let dir = dir.as_fd();
        disk::rename_noreplace(dir, &at.name, dir, temporary)
            .map_err(|why| fault::refusal(&format!("cannot remove {}", at.shown), why))?;
        self.begun = true;
        let displaced = Meta::at(dir, temporary)
            .map_err(|why| fault::refusal(&format!("cannot look at {}", at.shown), why))?;
        let Some(meta) = displaced.filter(|now| Seen::from(*before).is(now)) else {
            give_back::rename(dir, temporary, &at.name, self.preimages, preimage_name, self.sync)
                .map_err(|why| fault::refusal(&format!("cannot put {} back", at.shown), why))?;
            self.begun = false;
            return Err(changed_meanwhile(at, "it was replaced"));
        };
        let object = Object { dir, name: temporary, meta, open: None };
        self.keep(index, object, preimage_name).map_err(|why| not_kept(at, why))?;
        self.touch(at)
    }

    fn make_dir(
        &mut self,
        index: usize,
        at: &'a StepTarget,
        mode: u32,
        worn: Option<&FileAttrs>,
    ) -> Result<Meta, Refusal> {
        let fail = |why| fault::refusal(&format!("cannot make the folder {}", at.shown), why);
        let dir = self.dir(at)?;
        match disk::make_dir(&dir, &at.name) {
            Ok(()) => {}
            Err(Errno::EXIST) => {
                return Err(Refusal::new(
                    Code::FileExists,
                    format!("{}: something appeared there meanwhile", at.shown),
                ));
            }
            Err(why) => return Err(fail(why)),
        }
        self.begun = true;
        let made = disk::open_dir(dir, &at.name).map_err(fail)?;
        self.armed.remember_made(index, &at.absolute, &made).map_err(fail)?;
        // The daemon's own umask is strict; the folder gets what the user's would have given.
        let worn = worn.map_or(AttrsFrom::New, AttrsFrom::Given);
        let (meta, kept) = apply_metadata(&made, &at.shown, mode | OPEN_TO_OWNER, worn).map_err(fail)?;
        self.making.attrs = read_xattrs(&made).ok();
        self.warnings.extend(kept);
        self.touch(at)?;
        // The final mode, not the one it has while it is being filled.
        Ok(Meta { mode: meta.mode & (mode | !OPEN_TO_OWNER), ..meta })
    }

    fn set_mode(
        &mut self,
        at: &'a StepTarget,
        before: &Meta,
        mode: u32,
        xattrs: Option<&Attributes>,
        is_held: bool,
    ) -> Result<Meta, Refusal> {
        let held = if is_held { OPEN_TO_OWNER } else { 0 };
        let fail = |why| fault::refusal(&format!("cannot set the mode of {}", at.shown), why);
        let dir = disk::open_dir(self.dir(at)?, &at.name).map_err(fail)?;
        let now = Meta::of(&dir).map_err(fail)?;
        if !Seen::from(*before).is(&now) || now.mode != before.mode | held {
            return Err(changed_meanwhile(at, "it was replaced"));
        }
        self.begun = true;
        let set = |xattrs| disk::apply_attrs_to_closed(&dir, now.mode, xattrs);
        xattrs.map_or(Ok(()), set).map_err(fail)?;
        disk::set_mode(&dir, mode | held).map_err(fail)?;
        self.making.attrs = read_xattrs(&dir).ok();
        self.touch(at)?;
        // The final mode, not the one that it has while it is held open.
        Meta::of(&dir).map(|meta| Meta { mode: meta.mode & (mode | !held), ..meta }).map_err(fail)
    }

    fn rename(
        &mut self,
        from: &'a StepTarget,
        before: &Meta,
        to: &'a StepTarget,
        replaced: Option<Meta>,
    ) -> Result<Meta, Refusal> {
        let fail = |why| match why {
            Errno::XDEV => Refusal::new(
                Code::IoError,
                format!(
                    "cannot move {} to {}: they are on different file systems; copy and remove instead",
                    from.shown, to.shown
                ),
            ),
            Errno::INVAL => Refusal::new(
                Code::InvalidPath,
                format!("cannot move {} to {}: that is inside it", from.shown, to.shown),
            ),
            why => fault::refusal(&format!("cannot move {} to {}", from.shown, to.shown), why),
        };
        let (dir, to_dir) = (self.dir(from)?, self.dir(to)?);
        let (dir, to_dir) = (dir.as_fd(), to_dir.as_fd());
        let renamed = match replaced {
            Some(_) => disk::move_exchange(dir, &from.name, to_dir, &to.name),
            None => disk::move_noreplace(dir, &from.name, to_dir, &to.name),
        };
        renamed.map_err(|why| match why {
            Errno::EXIST => {
                Refusal::new(Code::FileExists, format!("{}: something appeared there meanwhile", to.shown))
            }
            why => fail(why),
        })?;
        self.begun = true;
        let moved = Meta::at(to_dir, &to.name).map_err(fail)?;
        let Some(moved) = moved.filter(|moved| Seen::from(*before).is(moved)) else {
            // What was moved is another process's: it goes back.
            let returned = match replaced {
                Some(_) => disk::move_exchange(to_dir, &to.name, dir, &from.name),
                None => disk::move_noreplace(to_dir, &to.name, dir, &from.name),
            };
            self.begun = returned.is_err();
            return Err(changed_meanwhile(from, "it was replaced"));
        };
        let is_small = moved.kind == Kind::File && moved.size <= MOVED_HASHED_BYTES_MAX;
        if moved.kind == Kind::Symlink || is_small {
            self.making.hash = disk::hash_of(to_dir, &to.name, moved.kind).ok();
        }
        self.making.attrs = attrs_at(to_dir, &to.name, moved.kind);
        self.touch(from)?;
        self.touch(to)?;
        Ok(moved)
    }

    pub(super) fn touch(&mut self, at: &'a StepTarget) -> Result<(), Refusal> {
        if self.sync {
            let fail = |why| fault::refusal(&format!("cannot open the folder of {}", at.shown), why);
            let dir = self.dir(at)?;
            if self.touched.len() >= TOUCHED_HELD_MAX {
                // Synced earlier than needed; one that is touched again is synced again.
                std::mem::take(&mut self.touched).values().try_for_each(disk::sync).map_err(fail)?;
            }
            if let Entry::Vacant(unknown) = self.touched.entry(disk::id_of(&dir).map_err(fail)?) {
                unknown.insert(disk::open_dir(dir, b".").map_err(fail)?);
            }
        }
        Ok(())
    }

    fn sync_folders(&self) -> Result<(), Errno> {
        if !self.sync {
            return Ok(());
        }
        for dir in self.touched.values() {
            disk::sync(dir)?;
        }
        disk::sync(self.preimages)
    }
}

/// The attributes of what is at a name, if they can be read.
fn attrs_at(dir: BorrowedFd<'_>, name: &[u8], kind: Kind) -> Option<Attributes> {
    let opened = match kind {
        Kind::File => disk::open_file(dir, name),
        Kind::Dir => disk::open_dir(dir, name),
        Kind::Symlink | Kind::Other => return None,
    };
    read_xattrs(&opened.ok()?).ok()
}

/// The file to be replaced, opened to copy its attributes. `None` inside when it cannot be read.
fn open_old(dir: BorrowedFd<'_>, at: &StepTarget) -> Result<Option<OwnedFd>, Refusal> {
    match disk::open_file(dir, &at.name) {
        Ok(file) => Ok(Some(file)),
        Err(Errno::ACCESS | Errno::PERM) => Ok(None),
        Err(why @ (Errno::NOENT | Errno::LOOP | Errno::NXIO)) => Err(changed_meanwhile(at, &why.to_string())),
        Err(why) => Err(fault::refusal(&format!("cannot open {}", at.shown), why)),
    }
}

fn appeared(put: &Put, why: Errno) -> Refusal {
    match why {
        Errno::EXIST => Refusal::new(
            Code::FileExists,
            format!("{}: something appeared there meanwhile; read it first", put.at.shown),
        ),
        why => fault::refusal(&format!("cannot write {}", put.at.shown), why),
    }
}

fn changed_meanwhile(at: &StepTarget, how: &str) -> Refusal {
    Refusal::new(
        Code::StaleBase,
        format!(
            "{} changed while it was worked on ({how}); nothing was changed. Read it again and repeat",
            at.shown
        ),
    )
}

pub(super) fn not_kept(at: &StepTarget, why: Errno) -> Refusal {
    fault::refusal(&format!("cannot keep the pre-image of {}", at.shown), why)
}
