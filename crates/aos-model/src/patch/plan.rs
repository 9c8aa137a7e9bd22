//! Works out what a patch as a whole makes of the files it names, before anything is written.
//!
//! Sections act on what the sections before them left. The plan holds the net effect only: how it was reached
//! does not matter to the one who carries it out.

use std::collections::BTreeMap;
use std::rc::Rc;

use thiserror::Error;

use super::apply::{Misfit, Room, apply};
use super::seek::Effort;
use super::{FileOp, Hunk, Patch};

/// How many diagnostics a failing patch gives, and how many ambiguous places a fitting one reports.
const REPORTS_MAX: usize = 20;

/// The files as they are on the target now.
pub trait Before {
    type Error;

    /// The bytes of a file, or `None` when nothing is there. Called at most once per path. For a path that
    /// the patch only deletes, any bytes will do: they only say that it is there.
    fn read(&mut self, path: &str) -> Result<Option<Vec<u8>>, Self::Error>;
}

/// What a patch does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The net effect, at most one change per path, sorted by the bytes of the path.
    pub changes: Vec<Change>,
    /// What the patch asked for, section by section. An Update that moves is counted as both.
    pub counts: Counts,
    pub warnings: Vec<Warning>,
    /// How many files are changed; a move is one.
    pub changed_files: usize,
    /// The paths of `changes`: both sides of a move.
    pub changed_paths: Vec<String>,
}

/// What becomes of one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub path: String,
    /// Whether a file was there.
    pub before: bool,
    /// The new bytes; `None` if the file is removed.
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

/// Something that worked but may not be what was meant.
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
    /// A file to update, move or delete is not there, or no longer after the sections above.
    #[error(
        "{path}: no such file to update, move or delete (a section above may have moved or deleted it). \
         Check the path, or use `*** Add File:` to create it."
    )]
    Missing { path: String },
    /// A name can be a file or a folder.
    #[error(
        "{path}: `{file}` would be a file and a folder at once. Choose another name, or take the file away first, in \
         a call of its own."
    )]
    BelowFile { path: String, file: String },
    #[error("{message}")]
    Context { path: String, message: String },
    /// The hunks of the patch took so long to search for that it was given up.
    #[error(
        "{path}: the patch takes too much searching. Quote its context exactly, or send it in smaller parts."
    )]
    Exhausted { path: String },
}

/// Works out the net effect of `patch` on the files that `before` shows, or up to twenty reasons why not.
///
/// Paths are the same file exactly when they are the same string: see [`Patch::map_paths`].
pub fn plan<B: Before>(patch: &Patch, before: &mut B) -> Result<Plan, Vec<PlanError<B::Error>>> {
    let mut planner = Planner {
        before,
        files: BTreeMap::new(),
        counts: Counts::default(),
        warnings: Vec::new(),
        ambiguous: 0,
        errors: Vec::new(),
        effort: Effort::default(),
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
    /// A section here failed, so later ones have nothing to stand on: they are passed over in silence.
    broken: bool,
}

impl File {
    const BROKEN: File = File { before: None, now: None, mode_from: None, broken: true };

    fn is_unchanged(&self, path: &str) -> bool {
        self.before == self.now && (self.now.is_none() || self.mode_from.as_deref() == Some(path))
    }
}

struct Planner<'p, 'b, B: Before> {
    before: &'b mut B,
    files: BTreeMap<&'p str, File>,
    counts: Counts,
    warnings: Vec<Warning>,
    /// How many of the warnings are about ambiguous places.
    ambiguous: usize,
    errors: Vec<PlanError<B::Error>>,
    effort: Effort,
}

impl<'p, B: Before> Planner<'p, '_, B> {
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

    /// The bytes that `hunks` make of the file; `None` if it failed, now or before.
    fn updated(&mut self, path: &'p str, hunks: &[Hunk]) -> Option<Bytes> {
        let Some(bytes) = self.open(path)?.now.clone() else {
            self.fail(path, PlanError::Missing { path: path.to_owned() });
            return None;
        };
        if hunks.is_empty() {
            return Some(bytes);
        }
        let room = Room { warnings: REPORTS_MAX - self.ambiguous, misfits: REPORTS_MAX - self.errors.len() };
        match apply(path, &bytes, hunks, room, &mut self.effort) {
            Ok(applied) => {
                self.ambiguous += applied.ambiguous.len();
                let warnings = applied.ambiguous.into_iter();
                self.warnings.extend(warnings.map(|message| Warning { code: "ambiguous_context", message }));
                Some(Rc::new(applied.bytes))
            }
            Err(misfits) => {
                let path = path.to_owned();
                self.errors.extend(misfits.into_iter().map(|misfit| match misfit {
                    Misfit::Context(message) => PlanError::Context { path: path.clone(), message },
                    Misfit::Exhausted => PlanError::Exhausted { path: path.clone() },
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

    /// The file as the sections so far left it; `None` if one of them failed on it or it cannot be read.
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

    /// Where the patch leaves a file below what it leaves a file, too.
    fn below_files(&self) -> Vec<PlanError<B::Error>> {
        let is_there = |path: &str| self.files.get(path).is_some_and(|file| file.now.is_some());
        let error = |path: &str| {
            let above = path.match_indices('/').map(|(at, _)| &path[..at]).find(|above| is_there(above))?;
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

/// How many of the changes are the other side of a move.
fn moves(changes: &[Change]) -> usize {
    let is_gone = |path: &str| {
        changes
            .binary_search_by(|change| change.path.as_str().cmp(path))
            .is_ok_and(|index| changes[index].after.is_none())
    };
    changes.iter().filter_map(|change| change.mode_from.as_deref()).filter(|from| is_gone(from)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patch::parse;

    /// Files in memory. A path that starts with `!` cannot be read; a second read of any path is a bug.
    struct Files(BTreeMap<&'static str, Option<&'static str>>);

    impl Before for Files {
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

    /// The plan in short: `path before after mode_from`, then how many files are changed.
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
    fn sections_are_counted_as_asked_for() {
        let body = "*** Add File: c\n*** Delete File: c\n*** Update File: a\n*** Move to: d\n\
                    *** Update File: d\n*** Move to: d\n";
        let plan = planned(body).expect("a plan");
        assert_eq!(plan.counts, Counts { add: 1, update: 2, delete: 1, r#move: 1 });
    }

    #[test]
    fn failures_come_in_order_and_do_not_cascade() {
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
    fn failures_and_warnings_stop_at_twenty() {
        let missing: String = (0..30).map(|index| format!("*** Delete File: {index}\n")).collect();
        assert_eq!(planned(&missing).expect_err("no plan").len(), 20);
        let misfits = format!("*** Update File: a\n{}", "@@\n-three\n".repeat(30));
        assert_eq!(planned(&misfits).expect_err("no plan").len(), 20);
        let lines: String = (0..30).map(|_| "+x\n").collect();
        let ambiguous = format!("*** Add File: c\n{lines}*** Update File: c\n{}", "@@\n-x\n+y\n".repeat(29));
        let plan = planned(&ambiguous).expect("a plan");
        assert_eq!((plan.warnings.len(), plan.warnings[0].code), (20, "ambiguous_context"));
    }
}
