//! The paths of a request.

use std::sync::Arc;

use aos_model::limits::FOLDERS_DEEP_MAX;
use aos_model::policy::Op;
use aos_model::refusal::{Code, Refusal};

use crate::disk::TEMPORARY_PREFIX;
use crate::jail::{Found, Jail, Last, ResolvedPath, resolve};
use crate::session::OpenSession;
use crate::view;

/// One path of a request.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// As the request spelled it; `None` means the workdir.
    text: Option<String>,
    pub(crate) op: Op,
    pub(crate) last: Last,
    /// Whether protected names (those that run code or configure agents) are checked for this path.
    pub(crate) protected: bool,
    /// Resolved on the disk even if the session has a layer.
    on_disk: bool,
    /// The answer shows what is there, whatever the operation is called.
    pub(crate) shows: bool,
    /// A refusal may show what is there.
    pub(crate) reveals: bool,
    /// Missing folders above it are made.
    pub(crate) makes_parents: bool,
}

impl Target {
    pub(crate) fn new(text: &str, op: Op, last: Last) -> Target {
        let (text, protected, on_disk) = (Some(text.to_owned()), true, false);
        let (shows, reveals, makes_parents) = (false, false, false);
        Target { text, op, last, protected, on_disk, shows, reveals, makes_parents }
    }

    /// A path that defaults to the workdir.
    pub(crate) fn or_workdir(text: Option<&str>, op: Op, last: Last) -> Target {
        Target { text: text.map(str::to_owned), ..Target::new(".", op, last) }
    }

    pub(crate) fn on_disk(self) -> Target {
        Target { on_disk: true, ..self }
    }

    /// A path whose content a refusal may show: the place that an edit came closest to.
    pub(crate) fn revealing(self) -> Target {
        Target { reveals: true, ..self }
    }

    /// A path whose content the answer shows, or brings under another name.
    pub(crate) fn showing(self, shows: bool) -> Target {
        Target { shows, ..self }
    }

    pub(crate) fn making_parents(self, makes_parents: bool) -> Target {
        Target { makes_parents, ..self }
    }

    /// The folders above it that are made with it.
    pub(crate) fn made_folders(&self, found: &Found) -> Vec<Vec<u8>> {
        if self.makes_parents { found.missing_folders() } else { Vec::new() }
    }

    pub(crate) fn text(&self) -> &str {
        self.text.as_deref().unwrap_or(".")
    }

    pub(crate) fn resolve(&self, session: &Arc<OpenSession>) -> Result<ResolvedPath, Refusal> {
        let resolved = match session.view().filter(|_| !self.on_disk) {
            Some(view) => view::resolve(&view, self.text.as_deref(), self.last),
            None => resolve(&session.jail, self.text(), self.last),
        }?;
        let names = [&resolved.literal, resolved.found.absolute()];
        // What earlier versions made can still be taken back.
        if self.protected && names.iter().any(|path| is_reserved(below_roots(&session.jail, path))) {
            return Err(Refusal::new(
                Code::InvalidPath,
                format!(
                    "{}: names that begin with `.aos-tmp-` are reserved for unfinished writes; use another name",
                    resolved.found.display()
                ),
            ));
        }
        Ok(resolved)
    }

    /// A path that the session itself created: protected names are not checked.
    pub(crate) fn unprotected(self) -> Target {
        Target { protected: false, ..self }
    }

    pub(crate) fn changes(&self) -> bool {
        match self.op {
            Op::Write | Op::Edit | Op::Patch | Op::Remove => true,
            Op::Read | Op::Search | Op::List | Op::Stat | Op::Exec => false,
        }
    }
}

/// Whether a path has a name that only unfinished writes have.
fn is_reserved(path: &[u8]) -> bool {
    path.split(|b| *b == b'/').any(|name| name.starts_with(TEMPORARY_PREFIX))
}

/// Limits the depth of trees that are processed as a whole. A caller can create a tree whose walk would exhaust stack
/// or time.
pub(crate) fn check_depth(session: &OpenSession, absolute: &[u8]) -> Result<(), Refusal> {
    if is_too_deep(absolute) { Err(too_deep(&session.jail.display(absolute))) } else { Ok(()) }
}

pub(crate) fn too_deep(shown: &str) -> Refusal {
    let begins = shown.chars().take(100).collect::<String>();
    Refusal::new(
        Code::LimitExceeded,
        format!("{begins}: more than {FOLDERS_DEEP_MAX} folders deep; process the deepest folders first"),
    )
}

pub(crate) fn is_too_deep(path: &[u8]) -> bool {
    path.iter().filter(|b| **b == b'/').count() > FOLDERS_DEEP_MAX
}

/// The part of a path that the session can choose. The operator chose the part above the roots.
pub(crate) fn below_roots<'a>(jail: &Jail, absolute: &'a [u8]) -> &'a [u8] {
    let inside = jail.roots.iter().filter(|root| aos_model::path::is_below(absolute, &root.path));
    // A root inside `.git` is protected like the whole repository, so the last name of the root counts too.
    let cut = inside.map(|root| root.path.len()).min().unwrap_or(0);
    let start = absolute[..cut].iter().rposition(|b| *b == b'/').map_or(0, |slash| slash);
    &absolute[start..]
}
