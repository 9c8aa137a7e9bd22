//! The globs of rules, in every spelling in which a path can be requested, so that no `deny` is void in silence.
//!
//! Globs are case-sensitive and match paths relative to the workdir, or the absolute path outside of it; one that begins
//! with `/` matches the absolute path in the workdir too. `*` matches within one segment, `**` across segments, and both
//! match hidden names. `src/**` is everything below `src` but not `src` itself; `src/` is `src` and everything below it;
//! `**` is everything. `\xNN` is a byte, as in paths; any other character after a backslash is itself.

use globset::{Candidate, Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use regex_automata::meta::Regex;
use regex_automata::util::syntax;
use regex_automata::{Input, MatchKind, PatternSet};

use super::lexical::lexical_join;
use crate::limits::NAME_BYTES_MAX;
use crate::path::{decode, escaped, is_below, show};

/// What one compiled matcher may take, as in `globset`.
const COMPILED_BYTES_MAX: usize = 10 << 20;

/// A character of several bytes, as a regular expression of bytes.
const WIDE: &str = r"[\xC2-\xDF][\x80-\xBF]|[\xE0-\xEF][\x80-\xBF]{2}|[\xF0-\xF4][\x80-\xBF]{3}";

/// All globs of all rules in one matcher, so that the cost of a path hardly grows with the number of rules.
#[derive(Debug, Default)]
pub(super) struct Globs {
    by_byte: GlobSet,
    origins: Vec<Origin>,
    /// The globs with `?` or `[!…]` once more. `GlobSet` lets these match one byte; here they match one character.
    by_character: Option<Regex>,
    wide_origins: Vec<Origin>,
}

/// Where a compiled glob comes from.
#[derive(Debug, Clone, Copy)]
struct Origin {
    rule: usize,
    is_absolute: bool,
}

impl Globs {
    /// Compiles the globs of all rules, in the order of the rules.
    pub(super) fn build<'r>(
        all: impl Iterator<Item = (Position, &'r str)> + Clone,
    ) -> Result<Globs, BuildError> {
        let (mut set, mut wide) = (GlobSetBuilder::new(), Vec::new());
        let mut globs = Globs::default();
        for (at, glob) in all.clone() {
            let rule = at.rule;
            let origin = Origin { rule, is_absolute: is_absolute(glob) == Some(true) };
            for spelling in spellings(glob) {
                let parsed = parse(&spelling).map_err(|error| BuildError::Glob(at, bad(&error)))?;
                if let Some(regex) = by_character(parsed.regex()) {
                    wide.push(regex);
                    globs.wide_origins.push(origin);
                }
                set.add(parsed);
                globs.origins.push(origin);
            }
        }
        globs.by_byte = set.build().map_err(|error| find_bad(all, &error))?;
        if !wide.is_empty() {
            globs.by_character = Some(compile(&wide)?);
        }
        Ok(globs)
    }

    /// The numbers of the rules with a glob that matches this path, ascending. The path is spelled as receipts show it,
    /// relative to the workdir where it is below it.
    pub(super) fn rules_matching(&self, path: &str, workdirs: &[String]) -> Vec<usize> {
        let mut rules = Vec::new();
        self.add_matching(path, |_| true, &mut rules);
        if !path.starts_with('/') && self.origins.iter().any(|origin| origin.is_absolute) {
            for workdir in workdirs {
                self.add_matching(&lexical_join(workdir, path), |origin| origin.is_absolute, &mut rules);
            }
        }
        rules.sort_unstable();
        rules.dedup();
        rules
    }

    /// Adds the rules that match a path as it is shown or by its bytes.
    fn add_matching(&self, shown: &str, counts: impl Fn(&Origin) -> bool, rules: &mut Vec<usize>) {
        let bytes = if shown.contains('\\') { decode(shown).ok() } else { None };
        for spelling in [Some(shown.as_bytes()), bytes.as_deref()].into_iter().flatten() {
            let matching = self.by_byte.matches_candidate(&Candidate::from_bytes(spelling));
            let origins = matching.into_iter().map(|glob| &self.origins[glob]);
            rules.extend(origins.filter(|origin| counts(origin)).map(|origin| origin.rule));
            let Some(regex) = &self.by_character else { continue };
            let mut matching = PatternSet::new(regex.pattern_len());
            regex.which_overlapping_matches(&Input::new(spelling), &mut matching);
            let origins = matching.iter().map(|glob| &self.wide_origins[glob.as_usize()]);
            rules.extend(origins.filter(|origin| counts(origin)).map(|origin| origin.rule));
        }
    }
}

fn parse(glob: &str) -> Result<Glob, globset::Error> {
    GlobBuilder::new(glob).literal_separator(true).backslash_escape(true).build()
}

fn compile(regexes: &[String]) -> Result<Regex, BuildError> {
    let config = Regex::config()
        .match_kind(MatchKind::All)
        .utf8_empty(false)
        .nfa_size_limit(Some(COMPILED_BYTES_MAX))
        .hybrid_cache_capacity(COMPILED_BYTES_MAX);
    let syntax = syntax::Config::new().utf8(false).dot_matches_new_line(true);
    Regex::builder()
        .syntax(syntax)
        .configure(config)
        .build_many(regexes)
        .map_err(|error| BuildError::TooLarge(error.to_string()))
}

/// The regular expression of a glob with each `[^…]` that stands for one byte made to match a whole character too.
/// `None`: it has no such part.
fn by_character(regex: &str) -> Option<String> {
    let mut out = String::with_capacity(regex.len());
    let mut rest = regex;
    while let Some(start) = rest.find("[^") {
        // Everything special inside of brackets is escaped there.
        let inner = &rest.as_bytes()[start..];
        let end = start + (2..inner.len()).find(|at| inner[*at] == b']' && inner[at - 1] != b'\\')? + 1;
        let class = &rest[start..end];
        out.push_str(&rest[..start]);
        if rest[end..].starts_with('*') {
            out.push_str(class);
        } else {
            out.push_str(&format!("(?:{class}|{WIDE})"));
        }
        rest = &rest[end..];
    }
    out.push_str(rest);
    (out != regex).then_some(out)
}

/// A glob as given, and the forms that a simplified path can match: bytes spelled as paths show them, without `.` and
/// double slashes, and for a trailing `/` the folder and everything below it.
fn spellings(glob: &str) -> Vec<String> {
    let mut spellings = vec![glob.to_owned()];
    let decoded = with_bytes_shown(glob);
    let tokens = tokens(&decoded);
    let names = segments(&tokens).into_iter().map(text).filter(|name| !matches!(name.as_str(), "" | "."));
    let plain = names.collect::<Vec<_>>().join("/");
    let plain = if decoded.starts_with('/') { format!("/{plain}") } else { plain };
    if decoded.ends_with('/') && !plain.is_empty() {
        spellings.push(format!("{}/**", plain.trim_end_matches('/')));
    }
    spellings.push(if plain.is_empty() { ".".to_owned() } else { plain });
    spellings.dedup();
    spellings
}

/// `\xNN` in a glob as paths show that byte, so that both spellings of a rule match.
fn with_bytes_shown(glob: &str) -> String {
    let (mut out, mut bytes) = (String::with_capacity(glob.len()), Vec::new());
    let flush = |bytes: &mut Vec<u8>, out: &mut String| {
        for c in show(&std::mem::take(bytes)).chars() {
            if c.is_ascii_punctuation() {
                out.push('\\');
            }
            out.push(c);
        }
    };
    for token in tokens(glob) {
        if let Kind::Byte(byte) = token.kind {
            bytes.push(byte);
        } else {
            flush(&mut bytes, &mut out);
            out.push_str(token.text);
        }
    }
    flush(&mut bytes, &mut out);
    out
}

/// Finds the glob that does not compile alone.
fn find_bad<'r>(all: impl Iterator<Item = (Position, &'r str)>, together: &globset::Error) -> BuildError {
    for (at, glob) in all {
        let alone = parse(glob).and_then(|parsed| GlobSetBuilder::new().add(parsed).build());
        if let Err(error) = alone {
            return BuildError::Glob(at, bad(&error));
        }
    }
    BuildError::TooLarge(together.kind().to_string())
}

fn bad(error: &globset::Error) -> Unusable {
    Unusable::Bad(error.kind().to_string())
}

/// The place of a glob in a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) rule: usize,
    pub(super) path: usize,
}

/// Why the globs of a policy do not compile.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BuildError {
    Glob(Position, Unusable),
    TooLarge(String),
}

/// Why a glob is of no use in a rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    Bad(String),
    MatchesNothing(String),
}

/// Refuses a glob that can match no path, or not what it seems to.
pub(super) fn check(glob: &str) -> Result<(), Unusable> {
    let nothing = |why: &str| Err(Unusable::MatchesNothing(why.to_owned()));
    let bad = |why: &str| Err(Unusable::Bad(why.to_owned()));
    let tokens = tokens(glob);
    for token in &tokens {
        match token.kind {
            Kind::Byte(0) => return nothing("no name contains a NUL byte"),
            Kind::Byte(b'/') => return nothing("`\\x2f` is a slash inside a name; write `/`"),
            Kind::Class if !token.text.is_ascii() || token.text.contains("\\x") => {
                return bad("brackets take single ASCII characters; write alternatives as `{a,b}`");
            }
            Kind::Plain if token.text == "\0" => return nothing("no name contains a NUL byte"),
            _ => {}
        }
    }
    for segment in segments(&tokens) {
        let is_literal = segment.iter().all(|token| token.kind == Kind::Plain && !"*?".contains(token.text));
        let name = text(segment);
        if name == ".." {
            return nothing(
                "paths are matched without `..`; spell it from the workdir, or as an absolute path",
            );
        }
        if is_literal && name.len() > NAME_BYTES_MAX {
            return nothing("a name is longer than the system allows");
        }
    }
    match is_absolute(glob) {
        Some(_) => Ok(()),
        None => bad("some of its alternatives are absolute and some are not; write them as separate globs"),
    }
}

/// Whether an absolute glob could match a path in one of these folders. Other globs can.
pub(super) fn may_match_below(glob: &str, folders: &[&str]) -> bool {
    if !glob.starts_with('/') {
        return true;
    }
    let shown = with_bytes_shown(glob);
    let tokens = tokens(&shown);
    let is_literal = |name: &&[Token<'_>]| {
        name.iter().all(|token| token.kind == Kind::Plain && !"*?".contains(token.text))
    };
    let segments = segments(&tokens);
    let literal: Vec<String> =
        segments.iter().copied().take_while(is_literal).map(text).filter(|name| !name.is_empty()).collect();
    let prefix: String = literal.iter().map(|name| format!("/{name}")).collect();
    let goes_on = glob.ends_with('/') || !segments.iter().all(is_literal);
    folders
        .iter()
        .map(|folder| folder.trim_end_matches('/').as_bytes())
        .any(|folder| is_below(prefix.as_bytes(), folder) || (goes_on && is_below(folder, prefix.as_bytes())))
}

/// Whether a glob matches absolute paths. `None`: some of its leading alternatives do and some do not.
fn is_absolute(glob: &str) -> Option<bool> {
    let tokens = tokens(glob);
    if !tokens.first().is_some_and(|first| first.kind == Kind::Open) {
        return Some(glob.starts_with('/'));
    }
    let group = tokens.iter().take_while(|token| token.kind != Kind::Close || token.depth > 1);
    let begins = |token: &Token<'_>| token.depth == 1 && matches!(token.kind, Kind::Open | Kind::Comma);
    let starts = group.zip(&tokens[1..]).filter(|(before, _)| begins(before));
    let absolute: Vec<bool> = starts.map(|(_, token)| token.kind == Kind::Slash).collect();
    let first = absolute.first().copied().unwrap_or(false);
    absolute.iter().all(|each| *each == first).then_some(first)
}

/// A part of a glob.
#[derive(Debug, Clone, Copy)]
struct Token<'g> {
    text: &'g str,
    kind: Kind,
    /// How many braces it is inside of; a brace is inside of its own.
    depth: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `\xNN`.
    Byte(u8),
    /// Any other character after a backslash.
    Escaped,
    /// `[…]`.
    Class,
    Open,
    Comma,
    Close,
    Slash,
    Plain,
}

fn tokens(glob: &str) -> Vec<Token<'_>> {
    let (mut tokens, mut depth, mut rest) = (Vec::new(), 0, glob);
    while let Some(first) = rest.chars().next() {
        let (kind, length) = match first {
            '\\' => match escaped(rest.as_bytes()) {
                Some(byte) => (Kind::Byte(byte), 4),
                None => (Kind::Escaped, 1 + rest[1..].chars().next().map_or(0, char::len_utf8)),
            },
            '[' => (Kind::Class, class_length(rest)),
            '{' => (Kind::Open, 1),
            ',' if depth > 0 => (Kind::Comma, 1),
            '}' => (Kind::Close, 1),
            '/' => (Kind::Slash, 1),
            plain => (Kind::Plain, plain.len_utf8()),
        };
        depth += usize::from(kind == Kind::Open);
        tokens.push(Token { text: &rest[..length], kind, depth });
        depth = depth.saturating_sub(usize::from(kind == Kind::Close));
        rest = &rest[length..];
    }
    tokens
}

/// The length of a leading `[…]`; a `]` in its first place is one of its members.
fn class_length(text: &str) -> usize {
    let negated = usize::from(text[1..].starts_with(['!', '^']));
    let first = text[1 + negated..].chars().next().map_or(0, char::len_utf8);
    let members = 1 + negated + first;
    text[members..].find(']').map_or(text.len(), |end| members + end + 1)
}

/// The parts between the slashes that are outside of braces.
fn segments<'t, 'g>(tokens: &'t [Token<'g>]) -> Vec<&'t [Token<'g>]> {
    tokens.split(|token| token.kind == Kind::Slash && token.depth == 0).collect()
}

fn text(tokens: &[Token<'_>]) -> String {
    tokens.iter().map(|token| token.text).collect()
}
