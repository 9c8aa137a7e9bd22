//! `host.fs.list_dir`: the names in a folder, sorted by bytes; folders end in `/`, links in `@`.

use aos_model::limits::{LIST_ENTRIES_MAX, LIST_RESULTS_DEFAULT};
use aos_model::path::show;
use aos_model::policy::Op;
use aos_model::receipt::Body;
use aos_model::records::Kind;
use aos_model::refusal::{Code, Refusal};
use aos_model::request::ListDir;
use rustix::fs::FileType;
use rustix::io::Errno;

use super::{Operation, PlanInput, Proposal};
use crate::disk::Meta;
use crate::disk::TEMPORARY_PREFIX;
use crate::jail::{Last, Place};
use crate::target::Target;

impl Operation for ListDir {
    fn targets(&self) -> Vec<Target> {
        vec![Target::or_workdir(self.path.as_deref(), Op::List, Last::Follow)]
    }

    fn plan(&self, input: PlanInput<'_>) -> Result<Proposal, Refusal> {
        let (place, meta) = input.found[0].existing()?;
        if meta.kind != Kind::Dir {
            return Err(Refusal::new(
                Code::NotDirectory,
                format!("{} is not a folder; use read_file or stat", place.shown),
            ));
        }
        let form = input.form(self.output_mode)?;
        let (mut names, cut) = list(&input, place).map_err(|why| place.refusal("list", why))?;
        names.sort_unstable();
        let wanted = self.max_results.unwrap_or(LIST_RESULTS_DEFAULT);
        let truncated = cut || names.len() as u64 > wanted;
        names.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
        let count = names.len() as u64;
        let lines: Vec<String> =
            names.iter().map(|(name, suffix)| format!("{}{suffix}", show(name))).collect();
        let entries = form.text(&input.host.blobs, lines.join("\n"), &place.shown)?;
        input.answer(Body::Entries { entries, count, truncated })
    }
}

type Names = Vec<(Vec<u8>, &'static str)>;

/// The names, and whether there were too many. Our own temporary names and state are not listed.
fn list(input: &PlanInput<'_>, place: &Place) -> Result<(Names, bool), Errno> {
    if let Some(leaf) = &place.leaf {
        let suffix = |meta: Meta| match meta.kind {
            Kind::Dir => "/",
            Kind::Symlink => "@",
            Kind::File | Kind::Other => "",
        };
        let inside = leaf.view.inside(place)?;
        let mut names: Names =
            inside.into_iter().filter_map(|place| Some((place.name, suffix(place.meta?)))).collect();
        let cut = names.len() > LIST_ENTRIES_MAX;
        names.truncate(LIST_ENTRIES_MAX);
        return Ok((names, cut));
    }
    let dir = place.open_dir()?;
    let mut names = Names::new();
    for entry in crate::disk::read_dir(&dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        let absolute = [place.absolute.as_slice(), b"/", name].concat();
        if name == b"."
            || name == b".."
            || name.starts_with(TEMPORARY_PREFIX)
            || input.session.jail.is_hidden(&absolute)
            || (input.session.jail.own.may_be(entry.ino())
                && Meta::at(&dir, name)?.is_some_and(|meta| input.session.jail.own.is(&meta)))
        {
            continue;
        }
        if names.len() >= LIST_ENTRIES_MAX {
            return Ok((names, true));
        }
        let suffix = match entry.file_type() {
            FileType::Directory => "/",
            FileType::Symlink => "@",
            FileType::Unknown => match Meta::at(&dir, name)?.map(|meta| meta.kind) {
                Some(Kind::Dir) => "/",
                Some(Kind::Symlink) => "@",
                _ => "",
            },
            _ => "",
        };
        names.push((name.to_vec(), suffix));
    }
    Ok((names, false))
}
