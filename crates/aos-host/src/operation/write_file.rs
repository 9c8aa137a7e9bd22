//! `host.fs.write_file`: writes a whole file atomically.

use aos_model::capability::check_limit;
use aos_model::limits::READ_BYTES_MAX;
use aos_model::policy::Op;
use aos_model::receipt::{Body, Written};
use aos_model::refusal::{Code, Refusal};
use aos_model::request::{WriteFile, WriteMode, content_hash};
use aos_model::vfs;

use super::{Operation, PlanInput, Proposal};
use crate::disk::Meta;
use crate::jail::{Found, Last, Place};
use crate::payload::content;
use crate::steps::{Completion, Content, Outcome, Parents, Plan, Put, Step};
use crate::target::Target;

impl Operation for WriteFile {
    fn targets(&self) -> Vec<Target> {
        let target = Target::new(&self.path, Op::Write, Last::Follow)
            .showing(self.with_diff == Some(true))
            .making_parents(self.create_parents == Some(true));
        let mut targets = vec![target];
        // `create_new` must not create a file through an existing link, dangling or not.
        if self.mode == Some(WriteMode::CreateNew) {
            targets.push(Target::new(&self.path, Op::Write, Last::Itself));
        }
        targets
    }

    fn plan(&self, input: PlanInput<'_>) -> Result<Proposal, Refusal> {
        let limit = input.session.capability.max_write_bytes;
        let mut bytes = content(input.host, input.session, &self.content, limit.unwrap_or(READ_BYTES_MAX))?;
        let written_bytes = bytes.len() as u64;
        let found = &input.found[0];
        check_limit(limit, "max_write_bytes", written_bytes, found.display())?;
        if input.session.is_virtual() {
            vfs::check_content(found.display(), &bytes)?;
        }
        if let Some(Found::Resolved(itself)) = input.found.get(1)
            && itself.meta.is_some()
            && !itself.is_root()
        {
            return Err(exists(itself));
        }
        let old = old_file(self, found)?;
        if self.mode == Some(WriteMode::Append)
            && let Some((_, Some(old))) = &old
        {
            bytes = [old.as_slice(), &bytes].concat();
            check_limit(limit, "max_write_bytes", bytes.len() as u64, found.display())?;
        }
        let diff = (self.with_diff == Some(true)).then(|| {
            aos_model::text::diff(
                found.display(),
                old.as_ref().and_then(|(_, old)| old.as_deref()),
                Some(&bytes),
            )
        });
        let mut steps = Vec::new();
        // A virtual tree creates parent folders with the file.
        if self.create_parents == Some(true) || input.session.is_virtual() {
            found.makeable()?;
        } else {
            found.with_parent()?;
        }
        let umask = input.host.machine.umask;
        let at = Parents::default().target(found, &mut steps, 0o777 & !umask, &input.session.jail);
        let before = old.as_ref().map(|(meta, _)| *meta);
        let built_on_before = reads_old(self);
        steps.push(Step::Put(Put {
            at,
            content: Content::Bytes(bytes.into()),
            mode: new_mode(before, self.executable, umask),
            before,
            attrs: None,
            built_on_before,
        }));
        let created = before.is_none();
        let finish = move |outcome: &Outcome<'_>| {
            let new_mtime_ns = outcome.after.last().copied().flatten().map_or(0, |meta| meta.mtime_ns);
            Body::Written(Written { written_bytes, created, new_mtime_ns, diff })
        };
        Ok(Proposal::Change(Plan {
            steps,
            completion: Completion {
                warnings: input.warnings,
                finish: Box::new(finish),
                raced: Code::StaleBase,
                facts: Vec::new(),
                own_snapshot: false,
            },
        }))
    }
}

/// The file that is replaced, and its bytes if they are needed.
type OldFile = (Meta, Option<Vec<u8>>);

/// Whether the outcome depends on the old content.
fn reads_old(request: &WriteFile) -> bool {
    request.mode == Some(WriteMode::Append)
        || request.expected_hash.is_some()
        || request.with_diff == Some(true)
}

/// The current file. Its content is read only if it is needed.
fn old_file(request: &WriteFile, found: &Found) -> Result<Option<OldFile>, Refusal> {
    let stale = |what: &str| {
        Refusal::new(
            Code::StaleBase,
            format!("{}: {what}; nothing was changed. Read it again and retry", found.display()),
        )
    };
    let Found::Resolved(place) = found else {
        return if request.expected_hash.is_some() { Err(stale("it does not exist")) } else { Ok(None) };
    };
    let Some(meta) = place.meta else {
        return if request.expected_hash.is_some() { Err(stale("it does not exist")) } else { Ok(None) };
    };
    if place.is_root() {
        return Err(Refusal::new(
            Code::IsDirectory,
            format!("{} is the session's root folder; name a file in it", place.shown),
        ));
    }
    if request.mode == Some(WriteMode::CreateNew) {
        return Err(exists(place));
    }
    place.must_be_file(&meta)?;
    if !reads_old(request) {
        return Ok(Some((meta, None)));
    }
    let (file, meta) = place.open_file().map_err(|refusal| match refusal.code {
        Code::PathNotFound => stale("it was removed in this moment"),
        _ => refusal,
    })?;
    let old = crate::payload::whole(place, &file, meta.size, READ_BYTES_MAX)?;
    if let Some(expected) = &request.expected_hash
        && *expected != content_hash(&old)
    {
        return Err(stale("its content does not match `expected_hash`"));
    }
    Ok(Some((meta, Some(old))))
}

pub(super) fn exists(place: &Place) -> Refusal {
    Refusal::new(
        Code::FileExists,
        format!(
            "{} exists already; nothing was changed. Choose another name, or overwrite it on purpose",
            place.shown
        ),
    )
}

/// The mode of the new file: the old mode without setuid and setgid, or 0666 without the umask.
pub(super) fn new_mode(before: Option<Meta>, executable: Option<bool>, umask: u32) -> u32 {
    let mode = before.map_or(0o666 & !umask, |meta| meta.mode & 0o1777);
    match executable {
        None => mode,
        // Everyone with read permission gets execute permission.
        Some(true) => mode | (mode & 0o444) >> 2,
        Some(false) => mode & !0o111,
    }
}
