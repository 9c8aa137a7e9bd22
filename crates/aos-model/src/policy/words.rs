//! Words: which of them name a path, and which part of the word is the path.

use std::borrow::Cow;

/// A path that a word may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate<'w> {
    /// Relative, absolute, or starting with `~`, `$HOME` or `$PWD`.
    pub(super) path: Cow<'w, str>,
    /// Probably not what the word means: reported only if it is outside.
    pub(super) unlikely: bool,
}

/// How a word or a part of one is read.
enum Reading<'w> {
    Path(Cow<'w, str>),
    Url,
    Other,
}

/// Every path that a word may name. A word that looks like a path is always one of them. `program` is the name of the
/// program that the word is an argument of, where it is known.
pub(super) fn candidates<'w>(word: &'w str, program: Option<&str>) -> Vec<Candidate<'w>> {
    let mut found = Vec::new();
    if let Reading::Url = read(word) {
        return found;
    }
    let mut has_better_reading = false;
    let parts = [
        redirection_target(word),
        option_value(word),
        option_cluster_value(word),
        absolute_cluster_value(word, program),
        value(word),
    ];
    for part in [Some(word)].into_iter().chain(parts).flatten() {
        match read(part) {
            Reading::Path(path) if path != word => found.push(Candidate { path, unlikely: false }),
            Reading::Url => {}
            Reading::Path(_) | Reading::Other => continue,
        }
        has_better_reading = true;
    }
    if is_path_like(word) {
        found.push(Candidate { path: Cow::Borrowed(word), unlikely: has_better_reading });
    }
    found.extend(listed_paths(word).map(|path| Candidate { path: Cow::Borrowed(path), unlikely: true }));
    found
}

fn read(text: &str) -> Reading<'_> {
    let text = text.strip_prefix('@').unwrap_or(text);
    if let Some(path) = file_url_path(text) {
        return Reading::Path(path);
    }
    if is_url(text) {
        return Reading::Url;
    }
    if is_path_like(text) { Reading::Path(Cow::Borrowed(text)) } else { Reading::Other }
}

fn is_path_like(text: &str) -> bool {
    if text.starts_with('-') {
        return false;
    }
    matches!(text, "." | "..")
        || text.contains(['/', '\\'])
        || text.starts_with('~')
        || split_variable(text).is_some()
}

/// Splits `$HOME/x` and `${PWD}/x` into the name of the variable and the rest. Other variables are unknown.
pub(super) fn split_variable(text: &str) -> Option<(&str, &str)> {
    let name = text.strip_prefix('$')?;
    let (name, rest) = match name.strip_prefix('{') {
        // `${HOME:-x}` is `$HOME` if that is set.
        Some(braced) => {
            let (inside, rest) = braced.split_once('}')?;
            (inside.split(|c: char| !is_name(c)).next()?, rest)
        }
        None => name.split_at(name.find(|c| !is_name(c)).unwrap_or(name.len())),
    };
    matches!(name, "HOME" | "PWD").then_some((name, rest))
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// `2>/tmp/x`, `>>x`, `<x`, `&>x` as one word.
fn redirection_target(word: &str) -> Option<&str> {
    let operator = word.trim_start_matches(|c: char| c.is_ascii_digit());
    let operator = operator.strip_prefix('&').unwrap_or(operator);
    operator.starts_with(['<', '>']).then(|| operator.trim_start_matches(['<', '>', '&', '|']))
}

/// The part after the first `=` of `--flag=value` and `key=value`. If the key has a slash, the whole word is a path.
fn value(word: &str) -> Option<&str> {
    let (key, value) = word.split_once('=')?;
    (key.starts_with("--") || !key.contains('/')).then_some(value)
}

/// The value of `-I/usr/include` and `-o../x`: what follows one letter.
fn option_value(word: &str) -> Option<&str> {
    let option = word.strip_prefix('-').filter(|option| !option.starts_with('-'))?;
    let value = option.strip_prefix(|c: char| c.is_alphabetic()).unwrap_or(option);
    if value.split('/').next().is_some_and(|head| head.contains('=')) {
        return None; // `-Dname=value`
    }
    // In `cut -d/`, `awk -F/` and `sort -t/` the slash is a delimiter.
    let is_delimiter = value == "/" && option.starts_with(['d', 'F', 't']);
    let is_number = option.starts_with(|c: char| c.is_ascii_digit());
    (!is_delimiter && !is_number).then_some(value)
}

/// The value of `-xvf../x`: after several letters, only text that can only be a path.
fn option_cluster_value(word: &str) -> Option<&str> {
    let cluster = word.strip_prefix('-').filter(|option| !option.starts_with('-'))?;
    let value = cluster.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
    (cluster.len() - value.len() > 1
        && (value == ".." || value.starts_with(['~', '$', '@']) || value.starts_with("../")))
    .then_some(value)
}

/// Options of compilers and linkers that have one dash and take a folder or a file.
const LONG_OPTIONS: [&str; 10] = [
    "idirafter",
    "imacros",
    "include",
    "iprefix",
    "iquote",
    "isysroot",
    "isystem",
    "iwithprefix",
    "iwithprefixbefore",
    "rpath",
];

/// Programs whose options are often written as one cluster with a value, and the letters of those with a value.
const CLUSTERS: [(&str, &str); 12] = [
    ("tar", "bfCFgHIKLNTVX"),
    ("gtar", "bfCFgHIKLNTVX"),
    ("bsdtar", "bfCHITWX"),
    ("curl", "AbcCdDeEFhHKmoPQrtTuUwxXyYz"),
    ("wget", "aABDeiIlOoPQRtTUwX"),
    ("rg", "ABCdeEfgjmMrtT"),
    ("grep", "ABCdDefm"),
    ("sort", "kSotT"),
    ("make", "CfIoW"),
    ("unzip", "dIOPx"),
    ("patch", "BdDFgiorVYz"),
    ("ssh", "BbcDEeFIiJLlmOopQRSWw"),
];

/// The top of most machines. `-xf/etc/a` names `/etc/a`, but `-gsrc/x` hardly `/x`.
const TOP_FOLDERS: [&str; 22] = [
    "bin", "boot", "data", "dev", "etc", "home", "lib", "lib64", "media", "mnt", "nix", "opt", "private",
    "proc", "root", "run", "sbin", "srv", "sys", "tmp", "usr", "var",
];

/// The absolute value of `-xf/etc/a` and `-isystem/usr/include`: what follows several letters. Where the program does not
/// say which letters take a value, only a path that begins with a folder that most machines have counts: a relative
/// value of one letter (`-gsrc/x`, `-Lbuild/out`) looks the same.
fn absolute_cluster_value<'w>(word: &'w str, program: Option<&str>) -> Option<&'w str> {
    let cluster = word.strip_prefix('-').filter(|option| !option.starts_with('-'))?;
    let (letters, value) = cluster.split_at(cluster.find('/')?);
    if letters.len() < 2 || !letters.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return None;
    }
    if LONG_OPTIONS.contains(&letters) {
        return Some(value);
    }
    let known = CLUSTERS.iter().find(|(name, _)| Some(*name) == program);
    if let Some(with_value) = known.and_then(|(_, values)| letters.find(|c| values.contains(c))) {
        return (with_value + 1 == letters.len()).then_some(value);
    }
    // Folders of headers and libraries have such names too.
    let is_relative_value = letters.starts_with(['I', 'L', 'D']);
    let top = value[1..].split('/').next().unwrap_or_default();
    (!is_relative_value && TOP_FOLDERS.contains(&top)).then_some(value)
}

/// Paths inside a list: `type=bind,src=/etc`, `{/etc/passwd,x}`, `${x:-cat /etc/passwd}`. Only absolute paths and paths
/// that begin with `..`, because text with a comma or a brace is rarely a list of paths.
fn listed_paths(word: &str) -> impl Iterator<Item = &str> {
    let pieces = word.split(['=', ',', '{']).skip(1).flat_map(|piece| {
        let piece = piece.split('}').next().unwrap_or(piece);
        let default = piece.split_once(":-").map(|(_, default)| default);
        let plain = default.is_none().then_some(piece);
        plain.into_iter().chain(default.into_iter().flat_map(str::split_whitespace))
    });
    let paths = pieces.map(|piece| piece.strip_prefix('@').unwrap_or(piece));
    paths.filter(|piece| piece.starts_with(['/', '~']) || *piece == ".." || piece.starts_with("../"))
}

/// Whether a text is a URL. One with a `..` counts as a path: it could leave a folder named `x:`.
fn is_url(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else { return false };
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
        && !rest.split('/').any(|component| component == "..")
}

/// The path of `file:///etc/x`, `file://localhost/etc/x`, `file:/etc/x` and `file:../x`.
fn file_url_path(text: &str) -> Option<Cow<'_, str>> {
    let scheme = text.get(..5).filter(|scheme| scheme.eq_ignore_ascii_case("file:"))?;
    let rest = &text[scheme.len()..];
    let path = match rest.strip_prefix("//") {
        Some(authority) => &authority[authority.find('/')?..],
        None => rest,
    };
    let path = percent_decoded(path);
    is_path_like(&path).then_some(path)
}

fn percent_decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = text.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match code.filter(|_| bytes[at] == b'%') {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    Cow::Owned(String::from_utf8_lossy(&decoded).into_owned())
}
