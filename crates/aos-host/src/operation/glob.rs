//! `host.fs.glob`: files and links whose path matches a pattern, newest first.

use aos_model::capability::smaller_limit;
use aos_model::limits::{GLOB_RESULTS_DEFAULT, GLOB_RESULTS_MAX, SEARCH_OUTPUT_BYTES_MAX};
use aos_model::policy::Op;
use aos_model::receipt::Body;
use aos_model::records::Kind;
use aos_model::refusal::{Code, Refusal};
use aos_model::request::Glob;
use aos_model::text::count;

use super::{Operation, PlanInput, Proposal};
use crate::jail::Last;
use crate::search::{GlobQuery, Pattern};
use crate::target::Target;

/// A glob with a valid pattern.
#[derive(Debug)]
pub(super) struct Compiled {
    request: Glob,
    pattern: Pattern,
}

pub(super) fn compile(request: Glob) -> Result<Compiled, Refusal> {
    let pattern = Pattern::parse(&request.pattern)
        .map_err(|why| Refusal::new(Code::InvalidPattern, format!("the pattern cannot be used: {why}")))?;
    Ok(Compiled { request, pattern })
}

impl Operation for Compiled {
    fn targets(&self) -> Vec<Target> {
        vec![Target::or_workdir(self.request.path.as_deref(), Op::Search, Last::Follow)]
    }

    fn plan(&self, mut input: PlanInput<'_>) -> Result<Proposal, Refusal> {
        let (place, meta) = input.found[0].existing()?;
        if meta.kind != Kind::Dir {
            return Err(Refusal::new(
                Code::NotDirectory,
                format!("{} is not a folder; a glob starts at a folder", place.shown),
            ));
        }
        let session = input.session.as_ref();
        let wanted = self.request.max_results.unwrap_or(GLOB_RESULTS_DEFAULT).min(GLOB_RESULTS_MAX);
        let paths_max = smaller_limit(Some(wanted), session.capability.max_glob_results).unwrap_or(wanted);
        let query = GlobQuery {
            pattern: &self.pattern,
            ignored_too: self.request.include_ignored == Some(true),
            paths_max: paths_max as usize,
        };
        let found = query.below(&input.host.machine, session, place)?;
        let form = input.form(self.request.output_mode)?;
        let (mut text, mut shown, mut truncated) = (String::new(), 0, found.truncated);
        for path in &found.paths {
            let line = session.jail.display(path);
            if text.len() + line.len() >= SEARCH_OUTPUT_BYTES_MAX {
                truncated = true;
                break;
            }
            if shown > 0 {
                text.push('\n');
            }
            text.push_str(&line);
            shown += 1;
        }
        let paths = form.text(&input.host.blobs, text, &place.shown)?;
        let more = if truncated { "; there are more, narrow the pattern or raise `max_results`" } else { "" };
        let summary_text =
            if shown == 0 { "No files matched".to_owned() } else { count(shown, "path") + more };
        input.warnings.extend(found.warnings);
        input.answer(Body::Globbed { paths, count: shown, truncated, summary_text })
    }
}
