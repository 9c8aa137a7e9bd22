//! V4A patches: parses them, and computes in memory how they change the files that they name.
//!
//! ```text
//! patch text ── parse ──► Patch ── map_paths ──► Patch ── plan(before) ──► Plan
//!                         sections and hunks     canonical paths          net changes, warnings
//! ```
//!
//! [`parse()`] accepts what Codex accepts. [`plan()`] has the result of Codex, except where Codex loses data or
//! contradicts its own prompt; every such difference is a folder in `tests/patch_scenarios`. Nothing here knows where
//! files are or who may change them: the caller passes the bytes in and carries out the plan.

mod apply;
mod parse;
mod place;
mod plan;
mod seek;
mod text;

pub use parse::{ParseError, parse};
pub use plan::{Change, Counts, FilesBefore, Plan, PlanError, Warning, plan};

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

/// One place of a file and how it changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hunk {
    /// The texts of its `@@` lines, outermost first.
    pub hints: Vec<String>,
    pub lines: Vec<HunkLine>,
    /// Whether its lines must be the last of the file (`*** End of File`).
    pub end_of_file: bool,
    /// The line of the patch at which it starts, counted from 1.
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
    /// Every path that the patch names, Move targets included, in order.
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

    /// The same patch with every path mapped by `f`, in the order of [`Patch::targets`].
    ///
    /// For [`plan()`] two paths are the same file exactly if they are the same string, so the caller makes them
    /// canonical here.
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
    /// The line that the hunk expects in the file; `None` for a line that it inserts.
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
