//! `host.fs.grep`: lines that match a pattern, in path order.

use aos_model::capability::smaller_limit;
use aos_model::limits::{GREP_RESULTS_DEFAULT, PATTERN_BYTES_MAX};
use aos_model::policy::{Decision, Op};
use aos_model::receipt::{Body, Payload, Warning};
use aos_model::records::Kind;
use aos_model::refusal::{Code, Refusal};
use aos_model::request::Grep;
use aos_model::text::count;

use super::{Operation, PlanInput, Proposal};
use crate::jail::Last;
use crate::output::Form;
use crate::policy::check_path;
use crate::search::{GrepQuery, Grepped, compile_filter, compile_regex};
use crate::target::Target;

/// A grep with a valid pattern and filter.
#[derive(Debug)]
pub(super) struct Compiled {
    request: Grep,
    query: GrepQuery,
}

pub(super) fn compile(request: Grep) -> Result<Compiled, Refusal> {
    let fixed = request.fixed_strings == Some(true);
    let regex = if request.pattern.len() > PATTERN_BYTES_MAX {
        Err(format!("it is longer than {PATTERN_BYTES_MAX} bytes"))
    } else {
        compile_regex(&request.pattern, fixed, request.case_insensitive == Some(true))
    };
    let matcher = regex.map_err(|why| {
        let remedy =
            if fixed { "" } else { "; correct it, or set `fixed_strings` to search for it as it is" };
        Refusal::new(Code::InvalidRegex, format!("the pattern cannot be used: {why}{remedy}"))
    })?;
    let filter = match request.glob_filter.as_deref().map(compile_filter).transpose() {
        Ok(filter) => filter.flatten(),
        Err(why) => {
            return Err(Refusal::new(
                Code::InvalidGlobFilter,
                format!("`glob_filter` is not a valid glob: {why}"),
            ));
        }
    };
    let query = GrepQuery {
        matcher,
        filter,
        context: request.context_lines.unwrap_or(0),
        files_only: request.files_only == Some(true),
        ignored_too: request.include_ignored == Some(true),
        matches_max: request.max_results.unwrap_or(GREP_RESULTS_DEFAULT),
    };
    Ok(Compiled { request, query })
}

impl Operation for Compiled {
    fn targets(&self) -> Vec<Target> {
        vec![Target::or_workdir(self.request.path.as_deref(), Op::Search, Last::Follow)]
    }

    fn plan(&self, mut input: PlanInput<'_>) -> Result<Proposal, Refusal> {
        let (place, meta) = input.found[0].existing()?;
        let (machine, session) = (&input.host.machine, input.session.as_ref());
        let matches_max = smaller_limit(Some(self.query.matches_max), session.capability.max_grep_results);
        let query = GrepQuery { matches_max: matches_max.unwrap_or(u64::MAX), ..self.query.clone() };
        let found = if meta.kind == Kind::Dir {
            query.below(machine, session, place)?
        } else {
            let absolute = &place.absolute;
            let spelled = self.request.path.as_deref().unwrap_or(".");
            input.blob_only |=
                check_path(session, Op::Read, spelled, absolute, absolute, &mut input.warnings)?;
            query.file(machine, session, place)?
        };
        let base = place.shown.clone();
        self.add_policy_warnings(&mut input, &found);
        let form = input.form(self.request.output_mode)?;
        let matches =
            payload(&input, &form, &found, self.query.context > 0 && !self.query.files_only, &base)?;
        let summary_text = self.summary(&found);
        input.warnings.extend(found.warnings);
        input.answer(Body::Grepped {
            matches,
            match_count: found.matches,
            truncated: found.more || found.line_cut,
            summary_text,
        })
    }
}

impl Compiled {
    /// Adds the rules' warnings about the files that are shown. Files that policy denies were not searched.
    fn add_policy_warnings(&self, input: &mut PlanInput<'_>, found: &Grepped) {
        let session = input.session;
        if session.policy.rules().is_empty() {
            return;
        }
        for (path, _) in &found.files {
            let shown = session.jail.display(path);
            for op in [Op::Search, Op::Read] {
                let verdict = session.policy.check(op, &shown, &shown);
                input.blob_only |= verdict.blob_only;
                if let Some(rule) = verdict.rule.filter(|_| verdict.decision == Decision::Warn) {
                    let message = format!(
                        "rule \"{}\" warns about the matches shown",
                        aos_model::text::escape(&rule.name)
                    );
                    let warning = Warning::new("policy_rule", message);
                    if !input.warnings.contains(&warning) {
                        input.warnings.push(warning);
                    }
                }
            }
        }
    }

    fn summary(&self, found: &Grepped) -> String {
        if found.matches == 0 {
            return "No matches found".to_owned();
        }
        let files = count(found.files.len() as u64, "file");
        let rest = match (found.more, found.line_cut) {
            (true, _) => "; there is more, narrow the search or raise `max_results`",
            (false, true) => "; a long line is cut",
            (false, false) => "",
        };
        if self.query.files_only {
            return format!("{files} with matches{rest}");
        }
        let plural = if found.matches == 1 { "match" } else { "matches" };
        format!("{} {plural} in {files}{rest}", found.matches)
    }
}

/// The rows without a final newline. With context, `--` separates files as it separates groups.
fn payload(
    input: &PlanInput<'_>,
    form: &Form,
    found: &Grepped,
    context: bool,
    shown: &str,
) -> Result<Payload, Refusal> {
    let mut pieces: Vec<&[u8]> = Vec::with_capacity(2 * found.files.len());
    for (_, text) in &found.files {
        if context && !pieces.is_empty() {
            pieces.push(b"--\n");
        }
        pieces.push(text);
    }
    if let Some(last) = pieces.last_mut() {
        *last = last.strip_suffix(b"\n").unwrap_or(last);
    }
    form.pieces(&input.host.blobs, &pieces, shown)
}
