//! Computes the net effect of a whole patch on the files that it names, before anything is written.
//!
//! Each section applies to the result of the sections before it. The plan has only the final result of each path.

use std::collections::BTreeMap;
use std::rc::Rc;

use thiserror::Error;

use super::apply::{HunkError, ReportLimits, apply};
use super::seek::SearchCost;
use super::{FileOp, Hunk, Patch};

/// How many errors a failing patch reports, and how many ambiguous places a successful one.
const REPORTS_MAX: usize = 20;

/// The files before the patch.
pub trait FilesBefore {
    type Error;

    /// The bytes of a file, or `None` if it does not exist. Called at most once per path. For a path that the patch only
    /// deletes, any bytes will do: they only show that it exists.
    fn read(&mut self, path: &str) -> Result<Option<Vec<u8>>, Self::Error>;
}

/// The net effect of a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The net effect, at most one change per path, sorted by the bytes of the path.
    pub changes: Vec<Change>,
    /// The sections of the patch by kind. An Update that moves counts as both.
    pub counts: Counts,
    pub warnings: Vec<Warning>,
    /// How many files are changed; a move is one.
    pub changed_files: usize,
    /// The paths of `changes`, with both sides of a move.
    pub changed_paths: Vec<String>,
}

/// The change of one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub path: String,
    /// Whether the file existed.
    pub before: bool,
    /// The new content; `None` if the file is removed.
    pub after: Option<Vec<u8>>,
    /// The path whose mode the file takes: its own, or the one it was moved from. `None` for a new file.
    pub mode_from: Option<String>,
}

/// How many sections of each kind a patch has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub add: u64,
    pub update: u64,
    pub delete: u64,
    pub r#move: u64,
}

/// A successful operation that may not be what was meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// `ambiguous_context` or `replaced_existing`.
    pub code: &'static str,
    pub message: String,
}

/// Why a patch cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlanError<E> {
    #[error("{path}: cannot be read: {source}")]
    Read { path: String, source: E },
    /// A file to update, move or delete does not exist, or not any more after the sections above.
    #[error(
        "{path}: no such file to update, move or delete (a section above may have moved or deleted it). \
         Check the path, or use `*** Add File:` to create it."
    )]
    Missing { path: String },
    /// A path would be both a file and a folder.
    #[error(
        "{path}: `{file}` would be a file and a folder at once. Choose another name, or remove the file first in a \
         separate call."
    )]
    BelowFile { path: String, file: String },
    #[error("{message}")]
    Context { path: String, message: String },
    /// The search cost of the patch is over its limit.
    #[error(
        "{path}: the context of the patch takes too long to find. Copy the context exactly, or send the patch in smaller parts."
    )]
    Exhausted { path: String },
}

/// Computes the net effect of `patch` on the files of `before`, or returns up to twenty errors.
///
/// Two paths are the same file exactly if they are the same string: see [`Patch::map_paths`].
pub fn plan<B: FilesBefore>(patch: &Patch, before: &mut B) -> Result<Plan, Vec<PlanError<B::Error>>> {
    let mut planner = Planner {
        before,
        files: BTreeMap::new(),
        counts: Counts::default(),
        warnings: Vec::new(),
        ambiguous: 0,
        errors: Vec::new(),
        cost: SearchCost::default(),
    };
    for file in &patch.files {
        match file {
            FileOp::Add { path, content } => planner.add(path, content),
            FileOp::Delete { path } => planner.delete(path),
            FileOp::Update { path, move_to, hunks } => planner.update(path, move_to.as_deref(), hunks),
        }
        if planner.errors.len() >= REPORTS_MAX {
            break;
        }
    }
    planner.finish()
}

type Bytes = Rc<Vec<u8>>;

/// One path, before the patch and after the sections so far.
struct File {
    before: Option<Bytes>,
    now: Option<Bytes>,
    mode_from: Option<String>,
    /// A section failed on this path. Later sections on it are skipped without further errors.
    broken: bool,
}

impl File {
    const BROKEN: File = File { before: None, now: None, mode_from: None, broken: true };

    fn is_unchanged(&self, path: &str) -> bool {
        self.before == self.now && (self.now.is_none() || self.mode_from.as_deref() == Some(path))
    }
}

struct Planner<'p, 'b, B: FilesBefore> {
    before: &'b mut B,
    files: BTreeMap<&'p str, File>,
    counts: Counts,
    warnings: Vec<Warning>,
    /// How many warnings are about ambiguous places.
    ambiguous: usize,
    errors: Vec<PlanError<B::Error>>,
    cost: SearchCost,
}

impl<'p, B: FilesBefore> Planner<'p, '_, B> {
    fn add(&mut self, path: &'p str, content: &str) {
        self.counts.add += 1;
        let Some(file) = self.open(path) else { return };
        let replaced = file.now.replace(Rc::new(content.as_bytes().to_vec())).is_some();
        if replaced {
            self.warn_replaced(format!("{path}: Add File replaced the file that was there."));
        }
    }

    fn delete(&mut self, path: &'p str) {
        self.counts.delete += 1;
        let Some(file) = self.open(path) else { return };
        file.mode_from = None;
        if file.now.take().is_none() {
            self.fail(path, PlanError::Missing { path: path.to_owned() });
        }
    }

    fn update(&mut self, path: &'p str, move_to: Option<&'p str>, hunks: &[Hunk]) {
        let target = move_to.filter(|target| *target != path);
        self.counts.update += 1;
        self.counts.r#move += u64::from(target.is_some());
        let updated = self.updated(path, hunks);
        let done = match (updated, target) {
            (Some(bytes), None) => self.open(path).map(|file| file.now = Some(bytes)),
            (Some(bytes), Some(target)) => self.move_file(path, target, bytes),
            (None, _) => None,
        };
        if done.is_none() {
            for path in std::iter::once(path).chain(target) {
                self.files.entry(path).or_insert(File::BROKEN).broken = true;
            }
        }
    }

    /// The content of the file after `hunks`; `None` if this or an earlier section failed on it.
    fn updated(&mut self, path: &'p str, hunks: &[Hunk]) -> Option<Bytes> {
        let Some(bytes) = self.open(path)?.now.clone() else {
            self.fail(path, PlanError::Missing { path: path.to_owned() });
            return None;
        };
        if hunks.is_empty() {
            return Some(bytes);
        }
        let limits =
            ReportLimits { warnings: REPORTS_MAX - self.ambiguous, errors: REPORTS_MAX - self.errors.len() };
        match apply(path, &bytes, hunks, limits, &mut self.cost) {
            Ok(applied) => {
                self.ambiguous += applied.ambiguous.len();
                let warnings = applied.ambiguous.into_iter();
                self.warnings.extend(warnings.map(|message| Warning { code: "ambiguous_context", message }));
                Some(Rc::new(applied.bytes))
            }
            Err(errors) => {
                let path = path.to_owned();
                self.errors.extend(errors.into_iter().map(|error| match error {
                    HunkError::Context(message) => PlanError::Context { path: path.clone(), message },
                    HunkError::Exhausted => PlanError::Exhausted { path: path.clone() },
                }));
                None
            }
        }
    }

    fn move_file(&mut self, path: &'p str, target: &'p str, bytes: Bytes) -> Option<()> {
        self.open(target)?;
        let source = self.open(path)?;
        source.now = None;
        let mode_from = source.mode_from.take();
        let file = self.open(target)?;
        file.mode_from = mode_from;
        if file.now.replace(bytes).is_some() {
            self.warn_replaced(format!("{target}: the move of {path} replaced the file that was there."));
        }
        Some(())
    }

    /// The file after the sections so far; `None` if one of them failed on it or it cannot be read.
    fn open(&mut self, path: &'p str) -> Option<&mut File> {
        if !self.files.contains_key(path) {
            let file = match self.before.read(path) {
                Ok(bytes) => {
                    let bytes = bytes.map(Rc::new);
                    let mode_from = bytes.is_some().then(|| path.to_owned());
                    File { before: bytes.clone(), now: bytes, mode_from, broken: false }
                }
                Err(source) => {
                    self.errors.push(PlanError::Read { path: path.to_owned(), source });
                    File::BROKEN
                }
            };
            self.files.insert(path, file);
        }
        self.files.get_mut(path).filter(|file| !file.broken)
    }

    fn fail(&mut self, path: &'p str, error: PlanError<B::Error>) {
        self.errors.push(error);
        self.files.entry(path).or_insert(File::BROKEN).broken = true;
    }

    fn warn_replaced(&mut self, message: String) {
        self.warnings.push(Warning { code: "replaced_existing", message });
    }

    /// Errors for each file of the result whose path has another file of the result as a parent.
    fn below_files(&self) -> Vec<PlanError<B::Error>> {
        let is_file = |path: &str| self.files.get(path).is_some_and(|file| file.now.is_some());
        let error = |path: &str| {
            let above = path.match_indices('/').map(|(at, _)| &path[..at]).find(|above| is_file(above))?;
            Some(PlanError::BelowFile { path: path.to_owned(), file: above.to_owned() })
        };
        let there = self.files.iter().filter(|(_, file)| file.now.is_some());
        there.filter_map(|(path, _)| error(path)).take(REPORTS_MAX).collect()
    }

    fn finish(mut self) -> Result<Plan, Vec<PlanError<B::Error>>> {
        if self.errors.is_empty() {
            self.errors = self.below_files();
        }
        if !self.errors.is_empty() {
            return Err(self.errors);
        }
        let changes: Vec<Change> = self
            .files
            .into_iter()
            .filter(|(path, file)| !file.is_unchanged(path))
            .map(|(path, file)| Change {
                path: path.to_owned(),
                before: file.before.is_some(),
                after: file.now.map(Rc::unwrap_or_clone),
                mode_from: file.mode_from,
            })
            .collect();
        Ok(Plan {
            changed_files: changes.len() - moves(&changes),
            changed_paths: changes.iter().map(|change| change.path.clone()).collect(),
            changes,
            counts: self.counts,
            warnings: self.warnings,
        })
    }
}

/// How many changes are the removed side of a move.
fn moves(changes: &[Change]) -> usize {
    let is_removed = |path: &str| {
        changes
            .binary_search_by(|change| change.path.as_str().cmp(path))
            .is_ok_and(|index| changes[index].after.is_none())
    };
    changes.iter().filter_map(|change| change.mode_from.as_deref()).filter(|from| is_removed(from)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patch::parse;

    /// Files in memory. A path that starts with `!` cannot be read; a second read of any path is a bug.
    struct Files(BTreeMap<&'static str, Option<&'static str>>);

    impl FilesBefore for Files {
        type Error = String;

        fn read(&mut self, path: &str) -> Result<Option<Vec<u8>>, String> {
            if path.starts_with('!') {
                return Err("denied".into());
            }
            let Some(content) = self.0.get_mut(path) else { return Ok(None) };
            Ok(Some(content.take().expect("BUG: read twice").into()))
        }
    }

    fn planned(body: &str) -> Result<Plan, Vec<PlanError<String>>> {
        let patch = parse(&format!("*** Begin Patch\n{body}*** End Patch\n")).expect("a patch");
        plan(&patch, &mut Files(BTreeMap::from([("a", Some("one\ntwo\n")), ("b", Some("bee\n"))])))
    }

    /// The plan in short: `path before after mode_from` for each change, then the number of changed files.
    fn shown(plan: &Plan) -> String {
        let paths: Vec<_> = plan.changes.iter().map(|change| change.path.clone()).collect();
        assert_eq!(paths, plan.changed_paths);
        let change = |change: &Change| {
            let after = change.after.as_ref().map(|bytes| String::from_utf8_lossy(bytes).replace('\n', "/"));
            let was = if change.before { "was" } else { "new" };
            let mode = change.mode_from.as_deref().unwrap_or("-");
            format!("{} {was} {} {mode}; ", change.path, after.as_deref().unwrap_or("gone"))
        };
        plan.changes.iter().map(change).collect::<String>() + &plan.changed_files.to_string()
    }

    #[test]
    fn sections_compose() {
        let update = "*** Update File: a\n@@\n-one\n+1\n";
        let to_c = "*** Update File: a\n*** Move to: c\n";
        for (body, net) in [
            (update.into(), "a was 1/two/ a; 1"),
            (format!("{update}*** Update File: a\n@@\n-1\n+one\n"), "0"),
            ("*** Update File: a\n@@\n one\n".into(), "0"),
            ("*** Add File: c\n+sea\n".into(), "c new sea/ -; 1"),
            ("*** Add File: c\n+sea\n*** Delete File: c\n".into(), "0"),
            ("*** Add File: b\n+sea\n*** Delete File: b\n".into(), "b was gone -; 1"),
            ("*** Add File: b\n+sea\n".into(), "b was sea/ b; 1"),
            ("*** Add File: b\n+bee\n".into(), "0"),
            ("*** Delete File: b\n*** Add File: b\n+bee\n".into(), "b was bee/ -; 1"),
            (to_c.into(), "a was gone -; c new one/two/ a; 1"),
            (format!("{to_c}*** Update File: c\n*** Move to: a\n"), "0"),
            (format!("{to_c}*** Update File: c\n*** Move to: d\n"), "a was gone -; d new one/two/ a; 1"),
            (format!("{to_c}*** Add File: a\n+x\n"), "a was x/ -; c new one/two/ a; 2"),
            (format!("{to_c}*** Delete File: c\n"), "a was gone -; 1"),
            ("*** Update File: a\n*** Move to: b\n".into(), "a was gone -; b was one/two/ a; 1"),
            ("*** Update File: a\n*** Move to: a\n".into(), "0"),
            (
                format!("*** Delete File: b\n{update}*** Add File: B\n"),
                "B new  -; a was 1/two/ a; b was gone -; 3",
            ),
        ] {
            assert_eq!(shown(&planned(&body).expect("a plan")), net, "{body}");
        }
    }

    #[test]
    fn sections_are_counted_as_written() {
        let body = "*** Add File: c\n*** Delete File: c\n*** Update File: a\n*** Move to: d\n\
                    *** Update File: d\n*** Move to: d\n";
        let plan = planned(body).expect("a plan");
        assert_eq!(plan.counts, Counts { add: 1, update: 2, delete: 1, r#move: 1 });
    }

    #[test]
    fn errors_come_in_order_and_do_not_cascade() {
        let body = "*** Delete File: !x\n*** Update File: !x\n*** Move to: c\n*** Delete File: c\n\
                    *** Delete File: d\n*** Delete File: d\n*** Update File: a\n\
                    *** Move to: !y\n*** Delete File: a\n";
        let errors = planned(body).expect_err("no plan");
        let shown: Vec<_> =
            errors.iter().map(|error| error.to_string().chars().take(24).collect::<String>()).collect();
        assert_eq!(
            shown,
            ["!x: cannot be read: denie", "d: no such file to updat", "!y: cannot be read: denie"]
                .map(|text| &text[..24])
        );
    }

    #[test]
    fn errors_and_warnings_stop_at_twenty() {
        let missing: String = (0..30).map(|index| format!("*** Delete File: {index}\n")).collect();
        assert_eq!(planned(&missing).expect_err("no plan").len(), 20);
        let failing = format!("*** Update File: a\n{}", "@@\n-three\n".repeat(30));
        assert_eq!(planned(&failing).expect_err("no plan").len(), 20);
        let lines: String = (0..30).map(|_| "+x\n").collect();
        let ambiguous = format!("*** Add File: c\n{lines}*** Update File: c\n{}", "@@\n-x\n+y\n".repeat(29));
        let plan = planned(&ambiguous).expect("a plan");
        assert_eq!((plan.warnings.len(), plan.warnings[0].code), (20, "ambiguous_context"));
    }
}
