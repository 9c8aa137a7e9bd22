//! Paths as text: joining, normalising and containment by component, without reading a disk.

use std::borrow::Cow;

/// The absolute form of `path` relative to `cwd`, with `.`, `..` and double slashes resolved as text.
pub fn lexical_join(cwd: &str, path: &str) -> String {
    let base = if path.starts_with('/') { "" } else { cwd };
    let mut joined = String::with_capacity(base.len() + path.len() + 2);
    for component in components(base).chain(components(path)) {
        match component {
            ".." => joined.truncate(joined.rfind('/').unwrap_or(0)),
            name => {
                joined.push('/');
                joined.push_str(name);
            }
        }
    }
    if joined.is_empty() {
        joined.push('/');
    }
    joined
}

/// The spelling that rules match: relative to the workdir when the path is under it (`.` for the workdir itself),
/// else the absolute path. Both arguments are absolute and canonical.
pub fn rule_path<'a>(workdir: &str, absolute: &'a str) -> &'a str {
    match absolute.strip_prefix(workdir.trim_end_matches('/')) {
        Some("" | "/") => ".",
        Some(rest) => rest.strip_prefix('/').unwrap_or(absolute),
        None => absolute,
    }
}

/// Folds one name. A name that is not UTF-8 must not keep the others from being folded.
pub(super) fn fold_case(name: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(name) {
        // Upper case first: only there do `ſ` (long s) and `K` (Kelvin) become the same as `s` and `k`.
        Ok(text) if !text.is_ascii() => text.to_uppercase().to_lowercase().into_bytes(),
        _ => name.to_ascii_lowercase(),
    }
}

/// Whether `path`, relative to `base` and normalised as text, is `root` or below it.
///
/// Compares whole components (`/src-evil` is not in `/src`). Allocates nothing, because every read calls this.
pub(super) fn is_within(base: &str, path: &str, root: &str) -> bool {
    let base = if path.starts_with('/') { "" } else { base };
    if base.is_empty() && !path.starts_with('/') {
        return false;
    }
    let root = root.trim_end_matches('/');
    if is_obviously_within(base, path, root) {
        return true;
    }
    let mut walk = Walk { root, matched_bytes: 0, depth_beside: 0 };
    for component in components(base).chain(components(path)) {
        match component {
            ".." => walk.leave(),
            name => walk.enter(name),
        }
    }
    walk.matched_bytes == walk.root.len()
}

/// The fast path for the common case: the text starts with the root and no `..` follows.
fn is_obviously_within(base: &str, path: &str, root: &str) -> bool {
    let start = if base.is_empty() { path } else { base };
    let Some(below) = start.strip_prefix(root) else { return false };
    let has_dots = |text: &str| text.as_bytes().windows(2).any(|pair| pair == b"..");
    (below.is_empty() || below.starts_with('/')) && !has_dots(below) && (base.is_empty() || !has_dots(path))
}

/// A walk from `/` that keeps only how far it agrees with `root`.
struct Walk<'r> {
    root: &'r str,
    /// The length of the leading part of `root` that the walk is in.
    matched_bytes: usize,
    /// How many components the walk is away from that part.
    depth_beside: usize,
}

impl Walk<'_> {
    fn enter(&mut self, name: &str) {
        if self.depth_beside == 0 && self.next_of_root() == Some(name) {
            self.matched_bytes += 1 + name.len();
        } else {
            self.depth_beside += 1;
        }
    }

    fn leave(&mut self) {
        if self.depth_beside > 0 {
            self.depth_beside -= 1;
        } else {
            self.matched_bytes = self.root[..self.matched_bytes].rfind('/').unwrap_or(0);
        }
    }

    fn next_of_root(&self) -> Option<&str> {
        self.root[self.matched_bytes..].strip_prefix('/')?.split('/').next()
    }
}

/// A path as rules compare it: without `.`, empty components, and every `..` that follows a name.
pub(super) fn simplify(path: &str) -> Cow<'_, str> {
    let plain = |component: &str| !matches!(component, "" | "." | "..");
    if path.strip_prefix('/').unwrap_or(path).split('/').all(plain) {
        return Cow::Borrowed(path);
    }
    if path.starts_with('/') {
        return Cow::Owned(lexical_join("/", path));
    }
    let mut kept: Vec<&str> = Vec::new();
    for component in components(path) {
        if component == ".." && kept.last().is_some_and(|last| *last != "..") {
            kept.pop();
        } else {
            kept.push(component);
        }
    }
    if kept.is_empty() { Cow::Borrowed(".") } else { Cow::Owned(kept.join("/")) }
}

fn components(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|component| !matches!(*component, "" | "."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined_as_text() {
        for (cwd, path, joined) in [
            ("/w", "a", "/w/a"),
            ("/w", "./a//b/", "/w/a/b"),
            ("/w", "a/../b", "/w/b"),
            ("/w", "../../../x", "/x"),
            ("/w", "/etc/./passwd", "/etc/passwd"),
            ("/w", "..", "/"),
            ("/w", "", "/w"),
            ("/", "a", "/a"),
            ("/w", "ä/../ö", "/w/ö"),
        ] {
            assert_eq!(lexical_join(cwd, path), joined, "{cwd} + {path}");
        }
    }

    #[test]
    fn containment_is_by_component() {
        for (base, path, root, inside) in [
            ("/w", "a", "/w", true),
            ("/w", ".", "/w", true),
            ("/w", "a/../b", "/w", true),
            ("/w", "../w/a", "/w", true),
            ("/w", "../w-evil/a", "/w", false),
            ("/w/src", "../src-evil", "/w/src", false),
            ("/w", "..", "/w", false),
            ("/w", "/w", "/w", true),
            ("/w", "/w/", "/w", true),
            ("/w", "/", "/w", false),
            ("/w", "/wa", "/w", false),
            ("/w", "/x/y", "/", true),
            ("/a/b/c", "../../b/c/d", "/a/b/c", true),
            ("/a/b/c", "../../x/../b/c", "/a/b/c", true),
            ("/a/b", "../../../../a/b", "/a/b", true),
            ("", "relative", "/", false),
        ] {
            assert_eq!(is_within(base, path, root), inside, "{path} from {base} in {root}");
        }
    }

    #[test]
    fn rules_match_paths_relative_to_the_workdir() {
        for (workdir, absolute, seen) in [
            ("/w", "/w/src/a", "src/a"),
            ("/w", "/w", "."),
            ("/w", "/w/", "."),
            ("/w", "/w-evil/a", "/w-evil/a"),
            ("/w", "/other/a", "/other/a"),
            ("/", "/etc/x", "etc/x"),
            ("/", "/", "."),
        ] {
            assert_eq!(rule_path(workdir, absolute), seen, "{absolute} in {workdir}");
        }
    }

    #[test]
    fn only_paths_that_need_it_are_simplified() {
        for (path, simple) in [
            ("src/a", "src/a"),
            ("src/../x", "x"),
            ("./src/a", "src/a"),
            ("src//a/", "src/a"),
            ("../x", "../x"),
            ("a/../../x", "../x"),
            ("", "."),
            ("a/..", "."),
            ("/a/../b", "/b"),
        ] {
            assert_eq!(simplify(path), simple, "{path}");
        }
        assert!(matches!(simplify("src/.hidden/...a"), Cow::Borrowed(_)));
    }
}
