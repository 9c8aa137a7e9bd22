//! V4A patches: reading them, and working out in memory what they make of the files they name.
//!
//! ```text
//! patch text ── parse ──► Patch ── map_paths ──► Patch ── plan(before) ──► Plan
//!                         sections and hunks     canonical paths          net changes, warnings
//! ```
//!
//! [`parse()`] reads what Codex reads. [`plan()`] gives what Codex gives, except where Codex loses data or
//! contradicts its own prompt; every such difference is a folder in `tests/patch_scenarios`. Nothing here
//! knows where files live or who may touch them: the caller hands in the bytes and carries out the plan.

mod apply;
mod parse;
mod place;
mod plan;
mod seek;
mod text;

pub use parse::{ParseError, parse};
pub use plan::{Before, Change, Counts, Plan, PlanError, Warning, plan};

/// A patch as written: its sections, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    pub files: Vec<FileOp>,
}

/// One section of a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileOp {
    Add { path: String, content: String },
    Delete { path: String },
    Update { path: String, move_to: Option<String>, hunks: Vec<Hunk> },
}

/// One place of a file and what becomes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hunk {
    /// The texts of its `@@` lines, outermost first.
    pub hints: Vec<String>,
    pub lines: Vec<HunkLine>,
    /// Whether its lines are the last of the file.
    pub end_of_file: bool,
    /// Where it starts in the patch, counted from 1.
    pub line_number: usize,
}

/// A line of a hunk, without its marker and without a line end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HunkLine {
    Keep(String),
    Remove(String),
    Insert(String),
}

/// A path that a patch names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target<'a> {
    pub path: &'a str,
    pub role: Role,
}

/// What a patch does at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Add,
    Delete,
    Update,
    MoveTo,
}

impl Patch {
    /// Every path the patch names, Move targets too, in order.
    pub fn targets(&self) -> impl Iterator<Item = Target<'_>> {
        self.files.iter().flat_map(|file| {
            let (path, role, move_to) = match file {
                FileOp::Add { path, .. } => (path, Role::Add, None),
                FileOp::Delete { path } => (path, Role::Delete, None),
                FileOp::Update { path, move_to, .. } => (path, Role::Update, move_to.as_ref()),
            };
            let moved = move_to.map(|path| Target { path, role: Role::MoveTo });
            std::iter::once(Target { path, role }).chain(moved)
        })
    }

    /// The same patch with every path replaced by what `f` makes of it, in the order of [`Patch::targets`].
    ///
    /// [`plan()`] takes two paths for the same file exactly when they are the same string, so this is where
    /// the caller makes them canonical.
    pub fn map_paths<E>(mut self, mut f: impl FnMut(&str, Role) -> Result<String, E>) -> Result<Patch, E> {
        for file in &mut self.files {
            match file {
                FileOp::Add { path, .. } => *path = f(path, Role::Add)?,
                FileOp::Delete { path } => *path = f(path, Role::Delete)?,
                FileOp::Update { path, move_to, .. } => {
                    *path = f(path, Role::Update)?;
                    if let Some(target) = move_to {
                        *target = f(target, Role::MoveTo)?;
                    }
                }
            }
        }
        Ok(self)
    }
}

impl HunkLine {
    /// The line as the hunk expects to find it in the file; `None` for a line it brings.
    fn old(&self) -> Option<&str> {
        match self {
            HunkLine::Keep(text) | HunkLine::Remove(text) => Some(text),
            HunkLine::Insert(_) => None,
        }
    }

    fn text(&self) -> &str {
        match self {
            HunkLine::Keep(text) | HunkLine::Remove(text) | HunkLine::Insert(text) => text,
        }
    }
}
