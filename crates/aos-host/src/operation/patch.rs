//! `host.fs.apply_patch`: changes several files by one V4A patch, all or none.

use std::collections::{HashMap, HashSet};

use aos_model::capability::check_limit;
use aos_model::limits::{
    CHANGED_PATHS_MAX, DIFF_BYTES_MAX, EDIT_FILE_BYTES_MAX, PATCH_ERRORS_MAX, RECEIPT_PATHS_MAX,
    VFS_CONTENT_CHARACTERS_MAX,
};
use aos_model::patch::{self, FileOp, HunkLine, ParseError, Patch, PlanError, Role};
use aos_model::policy::Op;
use aos_model::receipt::{Body, PatchOps, Patched, Warning};
use aos_model::records::Kind;
use aos_model::refusal::{Code, Detail, Refusal};
use aos_model::request::ApplyPatch;
use aos_model::text;

use super::write_file::new_mode;
use super::{Operation, PlanInput, Proposal};
use crate::disk::Meta;
use crate::host::Host;
use crate::jail::{Found, Last};
use crate::payload::content;
use crate::session::OpenSession;
use crate::steps::{Completion, Content, Parents, Plan, Put, Step, StepTarget, too_many_paths};
use crate::target::Target;

/// A parsed patch. The jail and the policy check the same paths that are applied.
#[derive(Debug)]
pub(super) struct Parsed {
    request: ApplyPatch,
    patch: Patch,
}

pub(super) fn parse(host: &Host, session: &OpenSession, request: ApplyPatch) -> Result<Parsed, Refusal> {
    check_format(session, request.patch_format.as_deref().unwrap_or("v4a"))?;
    let limit = session.capability.max_patch_bytes;
    let bytes = content(host, session, &request.patch, limit.unwrap_or(EDIT_FILE_BYTES_MAX))?;
    check_limit(limit, "max_patch_bytes", bytes.len() as u64, "patch")?;
    let text = String::from_utf8(bytes)
        .map_err(|_| Refusal::new(Code::PatchParseError, "the patch is not UTF-8 text"))?;
    let patch = patch::parse(&text).map_err(|error| match error {
        ParseError::Empty => Refusal::new(
            Code::InvalidPatchEmpty,
            "the patch is empty; it starts with `*** Begin Patch` and names at least one file",
        ),
        ParseError::Malformed { .. } => {
            let errors = vec![error.to_string()];
            Refusal::new(Code::PatchParseError, format!("the patch cannot be read: {error}"))
                .with(Detail { errors, ..Detail::default() })
        }
    })?;
    if patch.files.len() > CHANGED_PATHS_MAX {
        return Err(too_many_paths());
    }
    Ok(Parsed { request, patch })
}

fn check_format(session: &OpenSession, format: &str) -> Result<(), Refusal> {
    let allowed = session
        .capability
        .allowed_patch_formats
        .as_ref()
        .is_none_or(|formats| formats.iter().any(|f| f == format));
    if format == "v4a" && allowed {
        return Ok(());
    }
    Err(Refusal::new(
        Code::UnsupportedPatchFormat,
        format!("patches in `{}` are not supported here; send `v4a`", aos_model::text::escape(format)),
    ))
}

impl Operation for Parsed {
    /// The targets in the order of the patch. A moved file is named twice: its content may be read through a link, but
    /// the name that is removed is the link itself.
    fn targets(&self) -> Vec<Target> {
        let (mut targets, mut gone) = (Vec::new(), HashSet::new());
        let with_diff = self.request.with_diff == Some(true);
        let made = |target: Target| target.showing(with_diff).making_parents(true);
        for file in &self.patch.files {
            match file {
                // The patch deleted the link itself before; a new file of that name does not follow it.
                FileOp::Add { path, .. } if gone.contains(path) => {
                    targets.push(made(Target::new(path, Op::Patch, Last::Itself)));
                }
                FileOp::Add { path, .. } => {
                    targets.push(made(Target::new(path, Op::Patch, Last::Follow)));
                }
                FileOp::Delete { path } => {
                    targets.push(Target::new(path, Op::Patch, Last::Itself).showing(with_diff));
                    gone.insert(path);
                }
                FileOp::Update { path, move_to, .. } => {
                    let shows = with_diff || move_to.is_some();
                    targets.push(Target::new(path, Op::Patch, Last::Follow).showing(shows).revealing());
                    if let Some(to) = move_to {
                        targets.push(made(Target::new(to, Op::Patch, Last::Follow)));
                        targets.push(Target::new(path, Op::Patch, Last::Itself));
                    }
                }
            }
        }
        targets
    }

    fn plan(&self, mut input: PlanInput<'_>) -> Result<Proposal, Refusal> {
        if input.session.is_virtual() {
            self.patch.files.iter().try_for_each(check_length)?;
        }
        let mut tree = Tree::default();
        let patch = tree.name_places(self.patch.clone(), std::mem::take(&mut input.found));
        let plan = patch::plan(&patch, &mut tree).map_err(refuse)?;
        let capability = &input.session.capability;
        check_limit(capability.max_changed_files, "max_changed_files", plan.changed_files as u64, "patch")?;
        for change in &plan.changes {
            let size = change.after.as_ref().map_or(0, |bytes| bytes.len() as u64);
            check_limit(capability.max_write_bytes, "max_write_bytes", size, &change.path)?;
        }
        let diff = (self.request.with_diff == Some(true)).then(|| tree.diff(&plan.changes));
        let counts = plan.counts;
        let body = Body::Patched(Box::new(Patched {
            files_changed: plan.changed_files as u64,
            changed_paths_count: plan.changed_paths.len() as u64,
            changed_paths: tree.named(plan.changed_paths),
            ops: PatchOps {
                add: counts.add,
                update: counts.update,
                delete: counts.delete,
                r#move: counts.r#move,
            },
            summary_text: summary(&counts, plan.changed_files as u64, self.request.dry_run == Some(true)),
            diff,
        }));
        input.warnings.extend(plan.warnings.into_iter().map(|w| Warning::new(w.code, w.message)));
        let steps = tree.steps(plan.changes, &input)?;
        if steps.is_empty() || self.request.dry_run == Some(true) {
            return input.answer(body);
        }
        Ok(Proposal::Change(Plan {
            steps,
            completion: Completion {
                warnings: input.warnings,
                finish: Box::new(|_| body),
                raced: Code::PatchContextNotFound,
                facts: Vec::new(),
                own_snapshot: false,
            },
        }))
    }
}

/// Checks the length of the text that a patch adds to one file of a virtual tree.
fn check_length(file: &FileOp) -> Result<(), Refusal> {
    let inserted = |line: &HunkLine| match line {
        HunkLine::Insert(text) => text.chars().count() + 1,
        HunkLine::Keep(_) | HunkLine::Remove(_) => 0,
    };
    let characters = match file {
        FileOp::Add { content, .. } => content.chars().count(),
        FileOp::Delete { .. } => 0,
        FileOp::Update { hunks, .. } => hunks.iter().flat_map(|hunk| &hunk.lines).map(inserted).sum(),
    };
    if characters <= VFS_CONTENT_CHARACTERS_MAX {
        return Ok(());
    }
    Err(Refusal::new(Code::ContentTooLong, "Content exceeds maximum length of 48,000 characters."))
}

/// The files that a patch names, by canonical name.
#[derive(Debug, Default)]
struct Tree {
    places: HashMap<String, Found>,
    /// Names that are links: removing such a file removes the link, not its target.
    links: HashMap<String, Found>,
    /// Names that the patch deletes: there the link itself is meant. Anywhere else links were followed, so a link found
    /// there now appeared meanwhile.
    deleted: HashSet<String>,
    old: HashMap<String, Vec<u8>>,
}

impl Tree {
    /// Rewrites the patch to canonical names and stores the place of each.
    fn name_places(&mut self, patch: Patch, found: Vec<Found>) -> Patch {
        let mut found = found.into_iter();
        let mut source = String::new();
        let mut next = || found.next().expect("BUG: a place for each target, in order");
        let renamed: Result<Patch, std::convert::Infallible> = patch.map_paths(|_, role| {
            let place = next();
            let name = place.display().to_owned();
            self.places.entry(name.clone()).or_insert(place);
            match role {
                Role::Update => source.clone_from(&name),
                Role::MoveTo => {
                    let itself = next();
                    if itself.display() != source {
                        self.links.insert(source.clone(), itself);
                    }
                }
                Role::Delete => {
                    self.deleted.insert(name.clone());
                }
                Role::Add => {}
            }
            Ok(name)
        });
        let Ok(patch) = renamed;
        patch
    }

    /// The paths that change. For a moved link this is the link.
    fn named(&self, paths: Vec<String>) -> Vec<String> {
        let name = |path: String| self.links.get(&path).map_or(path, |link| link.display().to_owned());
        let mut named: Vec<String> = paths.into_iter().map(name).collect();
        named.sort();
        named.truncate(RECEIPT_PATHS_MAX);
        named
    }

    fn meta(&self, path: &str) -> Option<Meta> {
        match self.places.get(path) {
            Some(Found::Resolved(place)) => place.meta,
            Some(Found::ParentMissing { .. } | Found::Unresolvable { .. }) | None => None,
        }
    }

    /// Removals come first, because a later step may need the name.
    fn steps(&self, changes: Vec<patch::Change>, input: &PlanInput<'_>) -> Result<Vec<Step>, Refusal> {
        let (puts, removals): (Vec<_>, Vec<_>) =
            changes.into_iter().partition(|change| change.after.is_some());
        let mut steps = Vec::new();
        for change in removals {
            let found = self.links.get(&change.path).unwrap_or(&self.places[&change.path]);
            let (place, before) = found.existing()?;
            steps.push(Step::Remove { at: StepTarget::of(place), before, bytes: before.size });
        }
        let umask = input.host.machine.umask;
        let mut parents = Parents::default();
        for change in puts {
            self.places[&change.path].makeable()?;
            let at =
                parents.target(&self.places[&change.path], &mut steps, 0o777 & !umask, &input.session.jail);
            // A link that the patch deleted first is replaced by a removal and a new file.
            let before = self.meta(&change.path).filter(|meta| meta.kind != Kind::Symlink);
            if let Found::Resolved(place) = &self.places[&change.path]
                && let Some(link) = place.meta.filter(|meta| meta.kind == Kind::Symlink)
            {
                steps.push(Step::Remove { at: StepTarget::of(place), before: link, bytes: link.size });
            }
            let mode_from = change.mode_from.as_deref().and_then(|path| self.meta(path)).or(before);
            let bytes = change.after.expect("BUG: puts have content");
            steps.push(Step::Put(Put {
                at,
                content: Content::Bytes(bytes.into()),
                mode: new_mode(mode_from, None, umask),
                before,
                attrs: None,
                built_on_before: true,
            }));
        }
        Ok(steps)
    }

    fn diff(&self, changes: &[patch::Change]) -> String {
        let mut shown = String::new();
        for change in changes {
            let before = self.old.get(&change.path).filter(|_| change.before);
            shown.push_str(&text::diff(&change.path, before.map(Vec::as_slice), change.after.as_deref()));
            if shown.len() > DIFF_BYTES_MAX {
                shown.push_str("… (more files changed; diff cut)\n");
                break;
            }
        }
        shown
    }
}

impl patch::FilesBefore for Tree {
    type Error = Refusal;

    fn read(&mut self, path: &str) -> Result<Option<Vec<u8>>, Refusal> {
        let Some(Found::Resolved(place)) = self.places.get(path) else { return Ok(None) };
        let Some(meta) = place.meta else { return Ok(None) };
        if place.is_root() {
            return Err(Refusal::new(
                Code::IsDirectory,
                format!("{} is the session's root folder; name a file in it", place.shown),
            ));
        }
        // Only a deletion reads a link itself, and its content is not used.
        if meta.kind == Kind::Symlink && self.deleted.contains(path) {
            return Ok(Some(Vec::new()));
        }
        let (file, meta) = place.open_file()?;
        let bytes = crate::payload::whole(place, &file, meta.size, EDIT_FILE_BYTES_MAX)?;
        self.old.insert(path.to_owned(), bytes.clone());
        Ok(Some(bytes))
    }
}

/// The first error sets the code; the others are listed in the detail.
fn refuse(errors: Vec<PlanError<Refusal>>) -> Refusal {
    let listed: Vec<String> = errors.iter().take(PATCH_ERRORS_MAX).map(ToString::to_string).collect();
    let first = errors.into_iter().next().expect("BUG: a patch fails for a reason");
    let message = format!("nothing was changed: {first}");
    let code = match first {
        PlanError::Read { source, .. } => source.code,
        PlanError::Missing { .. } => Code::PathNotFound,
        PlanError::BelowFile { .. } => Code::ParentNotFound,
        PlanError::Context { .. } | PlanError::Exhausted { .. } => Code::PatchContextNotFound,
    };
    Refusal::new(code, message).with(Detail { errors: listed, ..Detail::default() })
}

fn summary(counts: &patch::Counts, files: u64, dry_run: bool) -> String {
    let parts = [
        (counts.add, "added"),
        (counts.update, "updated"),
        (counts.delete, "deleted"),
        (counts.r#move, "moved"),
    ];
    let parts: Vec<String> =
        parts.iter().filter(|(n, _)| *n > 0).map(|(n, verb)| format!("{n} {verb}")).collect();
    let verb = if dry_run { "Patch would apply" } else { "Applied patch" };
    format!("{verb}: {} ({})", text::count(files, "file"), parts.join(", "))
}
