//! Glob: the paths below a folder that match a pattern, newest first.

use std::cmp::Reverse;
use std::sync::Mutex;

use aos_model::limits::PATTERN_BYTES_MAX;
use aos_model::receipt::Warning;
use aos_model::refusal::Refusal;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::Deadline;
use super::listing::ListedEntry;
use super::skipped::SkippedPaths;
use super::walk::{Options, Visitor, Walk, WalkControl};
use crate::jail::Place;
use crate::machine::Machine;
use crate::session::OpenSession;

/// A compiled pattern, for whole paths and for the folders above them.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// Matches the path relative to the base.
    whole: GlobSet,
    /// Matches the file name only, for patterns that accept any folder.
    name: Option<GlobSet>,
    /// Match the folder names at each depth, as far as the pattern determines them.
    folders: Vec<GlobSet>,
    /// Deeper folders are always entered: the pattern has a `**`, or a structure that is not analyzed here.
    any_depth: bool,
    hidden_too: bool,
}

fn compile(glob: &str) -> Result<GlobSet, String> {
    let glob = GlobBuilder::new(glob)
        .literal_separator(true)
        .backslash_escape(true)
        .build()
        .map_err(|why| reason(&why))?;
    GlobSetBuilder::new().add(glob).build().map_err(|why| reason(&why))
}

fn reason(why: &globset::Error) -> String {
    let short: String = why.kind().to_string().chars().take(300).collect();
    aos_model::text::escape(&short)
}

impl Pattern {
    /// The error is a sentence.
    pub(crate) fn parse(text: &str) -> Result<Pattern, String> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err(format!("it is longer than {PATTERN_BYTES_MAX} bytes"));
        }
        if text.starts_with('/') {
            return Err("it is anchored at the base; set another base with `path`".to_owned());
        }
        let segments = simplify(text);
        if segments.is_empty() {
            return Err("it is empty; `**` matches every file".to_owned());
        }
        if segments.contains(&"..") {
            return Err("a `..` leads out of the base; set another base with `path`".to_owned());
        }
        let whole = compile(&segments.join("/"))?;
        // A slash inside braces or a class cannot be split into segments.
        let plain = segments.iter().all(|segment| compile(segment).is_ok());
        let before: Vec<&str> =
            segments.iter().copied().take_while(|segment| plain && !segment.contains("**")).collect();
        let all_plain = plain && before.len() == segments.len();
        let depth = if all_plain { before.len() - 1 } else { before.len() };
        let folders = before[..depth].iter().map(|segment| compile(segment)).collect::<Result<_, _>>()?;
        let name = match segments.as_slice() {
            ["**", name] if plain && !name.contains("**") => Some(compile(name)?),
            _ => None,
        };
        let hidden_too = names_hidden(text);
        Ok(Pattern { whole, name, folders, any_depth: !all_plain, hidden_too })
    }

    fn matches(&self, below: &[u8]) -> bool {
        match &self.name {
            Some(name) => name.is_match(as_path(file_name(below))),
            None => self.whole.is_match(as_path(below)),
        }
    }

    /// Whether anything below a folder can match; the path is relative to the base.
    fn enters(&self, below: &[u8]) -> bool {
        let depth = below.iter().filter(|b| **b == b'/').count();
        match self.folders.get(depth) {
            Some(folder) => folder.is_match(as_path(file_name(below))),
            None => self.any_depth,
        }
    }
}

fn as_path(bytes: &[u8]) -> &std::path::Path {
    use std::os::unix::ffi::OsStrExt as _;
    std::path::Path::new(std::ffi::OsStr::from_bytes(bytes))
}

fn file_name(path: &[u8]) -> &[u8] {
    &path[path.iter().rposition(|b| *b == b'/').map_or(0, |slash| slash + 1)..]
}

/// The segments between slashes, without redundant ones: empty ones, `.`, and `**` after `**`.
fn simplify(text: &str) -> Vec<&str> {
    let mut segments: Vec<&str> = Vec::new();
    for segment in text.split('/') {
        let repeats = segment == "**" && segments.last() == Some(&"**");
        if !segment.is_empty() && segment != "." && !repeats {
            segments.push(segment);
        }
    }
    if text.ends_with('/') && !segments.is_empty() {
        // A trailing slash means a folder, and folders are not listed: the empty name matches nothing.
        segments.push("");
    }
    segments
}

/// Whether a segment, or an alternative that can begin one, starts with a dot.
fn names_hidden(text: &str) -> bool {
    let begins = |at: usize| at == 0 || matches!(text.as_bytes()[at - 1], b'/' | b'{' | b',');
    let mut dots = text.bytes().enumerate().filter(|(_, b)| *b == b'.').map(|(at, _)| at);
    dots.any(|at| {
        let rest = text[at..].split('/').next().unwrap_or_default();
        let escaped = at > 0 && text.as_bytes()[at - 1] == b'\\' && begins(at - 1);
        (begins(at) || escaped) && rest != "." && rest != ".."
    })
}

/// The parameters of a glob.
#[derive(Debug)]
pub(crate) struct GlobQuery<'a> {
    pub(crate) pattern: &'a Pattern,
    pub(crate) ignored_too: bool,
    pub(crate) paths_max: usize,
}

/// The result of a glob.
#[derive(Debug)]
pub(crate) struct Globbed {
    /// Absolute, newest first.
    pub(crate) paths: Vec<Vec<u8>>,
    pub(crate) truncated: bool,
    pub(crate) warnings: Vec<Warning>,
}

impl GlobQuery<'_> {
    pub(crate) fn below(
        &self,
        machine: &Machine,
        session: &OpenSession,
        place: &Place,
    ) -> Result<Globbed, Refusal> {
        let (deadline, skipped) = (Deadline::new(machine), SkippedPaths::default());
        let options = Options {
            hidden_too: self.pattern.hidden_too,
            ignored_too: self.ignored_too,
            links: true,
            never_git: true,
            overrides: None,
        };
        let walk = Walk::new(session, place, options, &deadline, &skipped, machine.cores);
        let glob =
            Glob { query: self, base: place.absolute.len() + 1, found: Mutex::default(), skipped: &skipped };
        let cut = walk.run(&glob, place)?;
        let mut found = glob.found.into_inner().expect("BUG: lock poisoned");
        let more = found.len() > self.paths_max;
        // Each thread works nearly in path order; the stable sort is fast on such runs.
        found.sort();
        found.truncate(self.paths_max);
        let mut warnings = skipped.warnings(&session.jail, None);
        warnings.extend(deadline.warning());
        Ok(Globbed {
            paths: found.into_iter().map(|(_, path)| path).collect(),
            truncated: more || cut || deadline.has_passed(),
            warnings,
        })
    }
}

/// Sorts newest first, then by path.
type Dated = (Reverse<i64>, Vec<u8>);

struct Glob<'a> {
    query: &'a GlobQuery<'a>,
    /// The offset in an absolute path of the part below the base.
    base: usize,
    found: Mutex<Vec<Dated>>,
    skipped: &'a SkippedPaths,
}

impl Visitor for Glob<'_> {
    /// The newest paths that one thread found.
    type Worker = Vec<Dated>;

    fn new_worker(&self) -> Vec<Dated> {
        Vec::new()
    }

    fn finish_worker(&self, mut best: Vec<Dated>) {
        self.found.lock().expect("BUG: lock poisoned").append(&mut best);
    }

    fn enters(&self, path: &[u8]) -> bool {
        self.query.pattern.enters(&path[self.base..])
    }

    fn wants(&self, path: &[u8]) -> bool {
        self.query.pattern.matches(&path[self.base..])
    }

    fn visit(&self, best: &mut Vec<Dated>, item: ListedEntry<'_>) -> WalkControl {
        match item.folder().merged.mtime_ns(item.name(), item.entry.kind, item.own()) {
            Ok(Some(mtime_ns)) => {
                best.push((Reverse(mtime_ns), item.path()));
                // One more than requested shows that there are more.
                let wanted = self.query.paths_max + 1;
                if best.len() >= 2 * wanted {
                    best.select_nth_unstable(wanted - 1);
                    best.truncate(wanted);
                }
            }
            Ok(None) => {}
            Err(why) => self.skipped.add(&item.path(), why),
        }
        WalkControl::Continue
    }

    fn is_past(&self, _: &ListedEntry<'_>) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_patterns_are_explained() {
        for text in ["", "[", "[!", "\\", "{a", "}", "../**", "**/../../*", "a/..", "/etc/*", ".", "./"] {
            assert!(Pattern::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_pattern_is_anchored_at_the_base() {
        let matches = |pattern: &str, path: &str| Pattern::parse(pattern).unwrap().matches(path.as_bytes());
        for (pattern, path) in [
            ("*.rs", "a.rs"),
            ("**/*.rs", "a.rs"),
            ("**/*.rs", "a/b/c.rs"),
            ("./src//**/*.rs", "src/a.rs"),
            ("**/**/**/x", "x"),
            ("{a/b,c}/d", "a/b/d"),
            ("a[/]b", "a[/]b"),
            ("**", "deep/er"),
            ("src/**", "src/x/y"),
            ("a\\*b", "a*b"),
            ("-e", "-e"),
        ] {
            assert!(matches(pattern, path) || pattern == "a[/]b", "{pattern} and {path}");
        }
        for (pattern, path) in [
            ("*.rs", "src/a.rs"),
            ("src/*.rs", "src/x/a.rs"),
            ("src", "src/a"),
            ("src/", "src"),
            ("**/src/", "src"),
            ("*.RS", "a.rs"),
        ] {
            assert!(!matches(pattern, path), "{pattern} and {path}");
        }
    }

    #[test]
    fn folders_without_possible_matches_are_not_entered() {
        let enters = |pattern: &str, path: &str| Pattern::parse(pattern).unwrap().enters(path.as_bytes());
        assert!(enters("src/*/x.rs", "src") && enters("src/*/x.rs", "src/any"));
        assert!(!enters("src/*/x.rs", "doc") && !enters("src/*/x.rs", "src/any/more"));
        assert!(!enters("*.rs", "src"));
        assert!(enters("src/**/x", "src/a/b/c") && !enters("src/**/x", "doc"));
        assert!(enters("{a/b,c}/d", "a") && enters("{a/b,c}/d", "a/b"));
    }

    #[test]
    fn a_dot_at_the_start_of_a_segment_asks_for_hidden_names() {
        for pattern in [".env", "**/.github/**", "{.a,b}", "\\.env", "a/.b"] {
            assert!(names_hidden(pattern), "{pattern}");
        }
        for pattern in ["*.rs", "./src/*", "a.b/c.d", "src/./x"] {
            assert!(!names_hidden(pattern), "{pattern}");
        }
    }
}
