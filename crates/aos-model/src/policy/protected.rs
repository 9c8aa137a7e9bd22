//! The names that run code or steer agents: those that are denied by default, and those that are warned about.
//!
//! A pattern matches at any depth and folds case, because a case-insensitive file system opens the same file under
//! another spelling. `**` matches everything below a folder, and the folder itself: replacing it replaces its content.

use super::git::protected_git_name;
use super::lexical::fold_case;

/// Denied by default. The rules for git folders are in [`super::git`].
const PROTECTED: &[&str] = &[
    ".aos/**",
    ".mcp.json",
    ".claude/settings*.json",
    ".codex/**",
    ".gemini/**",
    ".cursor/mcp.json",
    ".hg/hgrc",
    ".jj/repo/config.toml",
];

/// The git names that are listed among the protected ones.
const GIT: &[&str] = &[".git", ".git/config", ".git/hooks/**"];

/// The protected name that `path` (relative, `/`-separated) matches.
pub fn protected_name(path: &[u8]) -> Option<&'static str> {
    protected_git_name(path).or_else(|| listed_name(path))
}

/// The same without the names in git folders, which are judged by content when a command changes them.
pub fn listed_name(path: &[u8]) -> Option<&'static str> {
    find(PROTECTED, path)
}

/// The patterns, for people.
pub fn protected_patterns() -> impl Iterator<Item = &'static str> {
    GIT.iter().chain(PROTECTED).copied()
}

fn find(patterns: &[&'static str], path: &[u8]) -> Option<&'static str> {
    let names: Vec<Vec<u8>> = path.split(|b| *b == b'/').filter(|n| !n.is_empty()).map(fold_case).collect();
    patterns.iter().copied().find(|pattern| {
        let wanted: Vec<&str> = pattern.split('/').collect();
        (0..names.len()).any(|start| matches_here(&names[start..], &wanted))
    })
}

/// Whether `names` match `wanted`. `folder/**` also matches the folder itself.
fn matches_here(names: &[Vec<u8>], wanted: &[&str]) -> bool {
    if let [head @ .., "**"] = wanted {
        return names.len() >= head.len() && head.iter().zip(names).all(|(w, n)| name_matches(n, w));
    }
    names.len() == wanted.len() && wanted.iter().zip(names).all(|(w, n)| name_matches(n, w))
}

fn name_matches(name: &[u8], wanted: &str) -> bool {
    match wanted.split_once('*') {
        None => name == wanted.as_bytes(),
        Some((head, tail)) => {
            name.len() >= head.len() + tail.len()
                && name.starts_with(head.as_bytes())
                && name.ends_with(tail.as_bytes())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protected_names_are_compared_case_folded_at_any_depth() {
        for path in [
            ".git/hooks/pre-commit",
            ".GIT/hooks/pre-commit",
            ".Git/config",
            ".git/CONFIG",
            ".git/commondir",
            ".git/config.worktree",
            ".git/modules/a/config",
            ".git/worktrees/a/gitdir",
            ".git/info/attributes",
            "sub/.git",
            ".AOS/policy.yaml",
            "sub/.git/config",
            ".mcp.json",
            "a/b/.MCP.json",
            ".claude/settings.json",
            ".claude/settings.local.json",
            ".codex/x/y",
            ".gemini/a",
            ".cursor/mcp.json",
            ".git/hooks",
            ".aos",
            ".hg/hgrc",
            ".jj/repo/config.toml",
        ] {
            assert!(protected_name(path.as_bytes()).is_some(), "{path}");
        }
        for path in [
            "src/git/config",
            ".git/HEAD",
            ".git/refs/heads/config",
            ".git/info/exclude",
            "mcp.json",
            "config",
        ] {
            assert!(protected_name(path.as_bytes()).is_none(), "{path}");
        }
    }
}
