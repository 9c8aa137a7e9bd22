//! `host.fs.edit_file`: replaces text that the edit ladder finds, all edits or none.

use aos_model::capability::{Capability, check_limit};
use aos_model::edit::{self, Edit, EditError};
use aos_model::limits::EDIT_FILE_BYTES_MAX;
use aos_model::policy::Op;
use aos_model::receipt::{Body, Edited};
use aos_model::refusal::{Code, Detail, Refusal};
use aos_model::request::{EditFile, EditItem, content_hash};
use aos_model::text;
use aos_model::vfs;

use super::write_file::new_mode;
use super::{Operation, PlanInput, Proposal};
use crate::jail::Last;
use crate::steps::{Completion, Content, Plan, Put, Step, StepTarget};
use crate::target::Target;

/// An edit with checked arguments.
#[derive(Debug)]
pub(super) struct Checked {
    request: EditFile,
    edits: Vec<EditItem>,
}

/// Either one `old_string` and `new_string`, or a list of them.
pub(super) fn check(mut request: EditFile) -> Result<Checked, Refusal> {
    let invalid = |why: &str| Refusal::new(Code::InvalidParams, why);
    let edits = match (request.edits.take(), request.old_string.take(), request.new_string.take()) {
        (Some(edits), None, None) if request.replace_all.is_none() && !edits.is_empty() => edits,
        (Some(edits), None, None) if edits.is_empty() => {
            return Err(invalid("field `edits`: the list is empty"));
        }
        (Some(_), ..) => {
            return Err(invalid(
                "field `edits`: give either `edits` or `old_string`, `new_string` and `replace_all`, not both",
            ));
        }
        (None, Some(old_string), Some(new_string)) => {
            vec![EditItem { old_string, new_string, replace_all: request.replace_all }]
        }
        (None, None, _) => return Err(invalid("missing field `old_string`")),
        (None, Some(_), None) => return Err(invalid("missing field `new_string`")),
    };
    if edits.iter().any(|edit| edit.old_string.is_empty()) {
        return Err(Refusal::new(
            Code::InvalidInputEmptyOldString,
            "`old_string` is empty; give the text to replace, or use write_file to make a file",
        ));
    }
    Ok(Checked { request, edits })
}

impl Operation for Checked {
    fn targets(&self) -> Vec<Target> {
        vec![
            Target::new(&self.request.path, Op::Edit, Last::Follow)
                .showing(self.request.with_diff == Some(true))
                .revealing(),
        ]
    }

    fn plan(&self, input: PlanInput<'_>) -> Result<Proposal, Refusal> {
        let (place, _) = input.found[0].existing()?;
        if input.session.is_virtual() {
            for edit in &self.edits {
                for text in [&edit.old_string, &edit.new_string] {
                    vfs::check_text_length(text, "Replacement strings must be 48,000 characters or fewer.")?;
                }
            }
        }
        let (file, meta) = place.open_file()?;
        let old = crate::payload::whole(place, &file, meta.size, EDIT_FILE_BYTES_MAX)?;
        if let Some(expected) = &self.request.expected_hash
            && *expected != content_hash(&old)
        {
            return Err(Refusal::new(
                Code::StaleBase,
                format!(
                    "{}: its content does not match `expected_hash`; nothing was changed. Read it again and retry",
                    place.shown
                ),
            ));
        }
        let old_text = std::str::from_utf8(&old).map_err(|_| {
            Refusal::new(
                Code::InvalidUtf8,
                format!("{} is not UTF-8 text; edit_file edits text only", place.shown),
            )
        })?;
        let edits: Vec<Edit<'_>> = self.edits.iter().map(item).collect();
        let edited = edit::edit(old_text, &edits).map_err(|error| refuse(&place.shown, &error))?;
        check_limits(&input.session.capability, &edited, &place.shown)?;
        let changed = edited.text != old_text;
        let diff = (self.request.with_diff == Some(true))
            .then(|| text::diff(&place.shown, Some(&old), Some(edited.text.as_bytes())));
        let body = Body::Edited(Edited {
            replacements: edited.replacements,
            applied: changed,
            match_kind: edited.kind.as_str(),
            summary_text: format!(
                "Updated {} ({})",
                place.shown,
                text::count(edited.replacements, "replacement")
            ),
            diff,
        });
        if !changed {
            return input.answer(body);
        }
        let put = Put {
            at: StepTarget::of(place),
            content: Content::Bytes(edited.text.into_bytes().into()),
            mode: new_mode(Some(meta), None, input.host.machine.umask),
            before: Some(meta),
            attrs: None,
            built_on_before: true,
        };
        Ok(Proposal::Change(Plan {
            steps: vec![Step::Put(put)],
            completion: Completion {
                warnings: input.warnings,
                finish: Box::new(|_| body),
                raced: Code::StaleBase,
                facts: Vec::new(),
                own_snapshot: false,
            },
        }))
    }
}

fn item(item: &EditItem) -> Edit<'_> {
    Edit { old: &item.old_string, new: &item.new_string, replace_all: item.replace_all.unwrap_or(false) }
}

fn check_limits(capability: &Capability, edited: &edit::Edited, shown: &str) -> Result<(), Refusal> {
    let replacements_max = capability.max_edit_replacements;
    check_limit(replacements_max, "max_edit_replacements", edited.replacements, shown)?;
    check_limit(capability.max_write_bytes, "max_write_bytes", edited.text.len() as u64, shown)
}

fn refuse(shown: &str, error: &EditError) -> Refusal {
    let message = format!("{shown}: {error}");
    let not_applied = Detail { applied: Some(false), ..Detail::default() };
    match error {
        EditError::EmptyOld { .. } => Refusal::new(Code::InvalidInputEmptyOldString, message),
        EditError::TooLarge { .. } => Refusal::new(Code::FileTooLarge, message).with(not_applied),
        EditError::Ambiguous { .. } => Refusal::new(Code::AmbiguousMatches, message).with(not_applied),
        EditError::NotFound { already_applied, .. } => {
            let detail = Detail { already_applied: already_applied.then_some(true), ..not_applied };
            Refusal::new(Code::EditTargetNotFound, message).with(detail)
        }
    }
}
