//! The names that run code or steer agents: those that are denied by default, and those that are warned about.
//!
//! A pattern matches at any depth and folds case, because a case-insensitive file system opens the same file under
//! another spelling. `**` matches everything below a folder, and the folder itself: replacing it replaces its content.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde::Serialize;

use super::git::protected_git_name;
use super::lexical::fold_case;

/// Denied by default. The rules for git folders are in [`super::git`].
const PROTECTED: &[&str] = &[
    ".aos/**",
    ".mcp.json",
    ".claude/settings*.json",
    ".claude/hooks/**",
    ".claude/commands/**",
    ".claude/agents/**",
    ".claude/skills/**",
    ".claude/plugins/**",
    ".codex/**",
    ".gemini/**",
    ".qwen/**",
    ".crush*/**",
    ".goose/**",
    ".amp/**",
    ".kiro/**",
    ".windsurf/**",
    ".continue/**",
    ".cursor/mcp.json",
    ".cursor/hooks.json",
    ".vscode/mcp.json",
    ".vscode/tasks.json",
    ".zed/settings.json",
    ".zed/tasks.json",
    ".opencode/**",
    "opencode.json*",
    ".husky/**",
    ".lfsconfig",
    ".idea/runConfigurations/**",
    ".hg/hgrc",
    ".jj/repo/config.toml",
];

/// Denied too where a root is, or holds, a home folder.
const PROTECTED_IN_HOME: &[&str] = &[
    ".ssh/**",
    ".gnupg/**",
    ".aws/**",
    ".netrc",
    ".gitconfig",
    ".config/git/**",
    ".profile",
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".kshrc",
    ".cshrc",
    ".tcshrc",
    ".login",
    ".xprofile",
    ".xinitrc",
    ".xsession*",
    ".pam_environment",
    ".config/fish/**",
    ".config/environment.d/**",
    ".config/systemd/**",
    ".config/autostart/**",
];

/// Warned about by default.
const SENSITIVE: &[&str] = &[
    "AGENTS.md",
    "CLAUDE.md",
    "GEMINI.md",
    ".cursorrules",
    ".cursor/rules/**",
    ".github/workflows/**",
    ".gitlab-ci.yml",
    ".vscode/settings.json",
    ".npmrc",
    ".yarnrc*",
    ".cargo/config.toml",
    "mise.toml",
    ".tool-versions",
    ".gitattributes",
    ".gitmodules",
    ".envrc",
    ".pre-commit-config.yaml",
    "lefthook.y*ml",
    ".devcontainer/**",
];

/// The git names that are listed among the protected ones.
const GIT: &[&str] = &[".git", ".git/config", ".git/hooks/**"];

/// The protected name that `path` (relative, `/`-separated) matches.
pub fn protected_name(path: &[u8], in_home: bool) -> Option<&'static str> {
    protected_git_name(path).or_else(|| listed_name(path, in_home))
}

/// The same without the names in git folders, which are judged by content when a command changes them.
pub fn listed_name(path: &[u8], in_home: bool) -> Option<&'static str> {
    static ALL: LazyLock<Vec<Pattern>> = LazyLock::new(|| compile(PROTECTED));
    static HOME: LazyLock<Vec<Pattern>> = LazyLock::new(|| compile(PROTECTED_IN_HOME));
    find(&ALL, path).or_else(|| if in_home { find(&HOME, path) } else { None })
}

/// A protected name that is below `path` where that is a folder: a link in its place decides what is read there.
pub fn protected_below(path: &[u8], in_home: bool) -> Option<&'static str> {
    static ALL: LazyLock<Vec<Pattern>> = LazyLock::new(|| compile(PROTECTED));
    static HOME: LazyLock<Vec<Pattern>> = LazyLock::new(|| compile(PROTECTED_IN_HOME));
    let find = |patterns| find_by(patterns, path, leads_to);
    find(&ALL).or_else(|| if in_home { find(&HOME) } else { None })
}

/// The protected names and the folders above them, as they are usually spelled: where links are looked for.
pub fn protected_places(in_home: bool) -> BTreeSet<String> {
    let home = if in_home { PROTECTED_IN_HOME } else { &[] };
    let mut places = BTreeSet::new();
    for pattern in PROTECTED.iter().chain(home) {
        let names = pattern.strip_suffix("/**").unwrap_or(pattern);
        let ends = names.match_indices('/').map(|(end, _)| end).chain([names.len()]);
        for place in ends.map(|end| &names[..end]) {
            places.extend(["", ".local", "c"].map(|rest| place.replacen('*', rest, 1)));
        }
    }
    places
}

/// The name that `path` matches among those that are warned about.
pub fn sensitive_name(path: &[u8]) -> Option<&'static str> {
    static ALL: LazyLock<Vec<Pattern>> = LazyLock::new(|| compile(SENSITIVE));
    find(&ALL, path)
}

/// Whether a path's last name is `.gitmodules`, whose content is judged.
pub fn is_gitmodules(path: &[u8]) -> bool {
    path.rsplit(|b| *b == b'/').next().is_some_and(|name| fold_case(name) == b".gitmodules")
}

/// Every pattern, for people.
#[derive(Debug, Serialize)]
pub struct ProtectedPatterns {
    pub protected_paths: Vec<&'static str>,
    pub protected_paths_in_home: &'static [&'static str],
    pub sensitive_paths: &'static [&'static str],
}

pub fn protected_patterns() -> ProtectedPatterns {
    ProtectedPatterns {
        protected_paths: GIT.iter().chain(PROTECTED).copied().collect(),
        protected_paths_in_home: PROTECTED_IN_HOME,
        sensitive_paths: SENSITIVE,
    }
}

struct Pattern {
    text: &'static str,
    /// Its names, case folded.
    names: Vec<String>,
}

fn compile(patterns: &[&'static str]) -> Vec<Pattern> {
    let compiled =
        |text: &&'static str| Pattern { text, names: text.split('/').map(str::to_ascii_lowercase).collect() };
    patterns.iter().map(compiled).collect()
}

/// Whether a path is worth a closer look: one command may change many thousands. Each pattern has a name that begins with
/// a dot, or consists of the last name.
fn may_match(path: &[u8]) -> bool {
    let mut names = path.split(|b| *b == b'/');
    names.clone().any(|name| name.first() == Some(&b'.'))
        || names
            .next_back()
            .and_then(<[u8]>::first)
            .is_some_and(|first| !first.is_ascii() || b"oacgml".contains(&first.to_ascii_lowercase()))
}

fn find(patterns: &[Pattern], path: &[u8]) -> Option<&'static str> {
    find_by(patterns, path, matches_here)
}

fn find_by(
    patterns: &[Pattern],
    path: &[u8],
    matches_here: fn(&[Vec<u8>], &[String]) -> bool,
) -> Option<&'static str> {
    if !may_match(path) {
        return None;
    }
    let names: Vec<Vec<u8>> = path.split(|b| *b == b'/').filter(|n| !n.is_empty()).map(fold_case).collect();
    let matches =
        |pattern: &&Pattern| (0..names.len()).any(|start| matches_here(&names[start..], &pattern.names));
    patterns.iter().find(matches).map(|pattern| pattern.text)
}

/// Whether `names` match `wanted`. `folder/**` also matches the folder itself.
fn matches_here(names: &[Vec<u8>], wanted: &[String]) -> bool {
    if let [head @ .., last] = wanted
        && last == "**"
    {
        return names.len() >= head.len() && head.iter().zip(names).all(|(w, n)| name_matches(n, w));
    }
    names.len() == wanted.len() && wanted.iter().zip(names).all(|(w, n)| name_matches(n, w))
}

/// Whether `names` are the first ones of `wanted`, and not all.
fn leads_to(names: &[Vec<u8>], wanted: &[String]) -> bool {
    names.len() < wanted.len() && wanted.iter().zip(names).all(|(w, n)| name_matches(n, w))
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
            "a/.Husky/pre-commit",
            ".crush.json",
            ".crush/x",
            "OpenCode.jsonc",
            ".idea/runconfigurations/x.xml",
            ".claude/HOOKS/x",
        ] {
            assert!(protected_name(path.as_bytes(), false).is_some(), "{path}");
        }
        for path in [
            "src/git/config",
            ".git/HEAD",
            ".git/refs/heads/config",
            ".git/info/exclude",
            "mcp.json",
            "config",
        ] {
            assert!(protected_name(path.as_bytes(), false).is_none(), "{path}");
        }
    }
    #[test]
    fn the_tiers_differ() {
        for path in [".ssh/config", "x/.bashrc", ".config/systemd/user/x.service"] {
            assert!(protected_name(path.as_bytes(), false).is_none(), "{path}");
            assert!(protected_name(path.as_bytes(), true).is_some(), "{path}");
        }
        for path in [
            "agents.MD",
            "sub/CLAUDE.md",
            ".github/workflows/x.yml",
            "lefthook.yaml",
            "lefthook.yml",
            ".GitModules",
        ] {
            assert!(sensitive_name(path.as_bytes()).is_some(), "{path}");
            assert!(protected_name(path.as_bytes(), true).is_none(), "{path}");
        }
        assert!(sensitive_name(b"AGENTS.md.bak").is_none());
        assert!(is_gitmodules(b"/r/sub/.GITMODULES") && !is_gitmodules(b".gitmodules/x"));
    }
    #[test]
    fn no_pattern_is_passed_over() {
        for pattern in PROTECTED.iter().chain(PROTECTED_IN_HOME).chain(SENSITIVE) {
            let path = format!("a/b/{}", pattern.replace("**", "x").replace('*', ""));
            assert!(may_match(path.as_bytes()), "{path}");
        }
        assert!(!may_match(b"node_modules/x/index.js"));
    }
}
