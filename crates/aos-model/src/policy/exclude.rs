//! Which folders a session may leave out of capture: none in which something is protected.

use globset::GlobBuilder;

use super::protected::protected_patterns;

/// Why a glob of `capture_exclude` is refused. Its last name is the folder that is left out.
pub fn exclude_problem(glob: &str) -> Option<String> {
    let folder = glob.strip_suffix("/**").unwrap_or(glob).trim_end_matches('/');
    let names: Vec<&str> = folder.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
    let Some(last) = names.last() else {
        return Some("it leaves out the root itself".to_owned());
    };
    if names.contains(&"..") {
        return Some("`..` is not allowed in it".to_owned());
    }
    let is_plain = |name: &&&str| !name.contains(['*', '?', '[', '{', '\\']);
    let plain = names.iter().filter(is_plain).copied();
    for protected in protected_names() {
        if plain.clone().chain([*last]).any(|name| may_match(name, &protected)) {
            return Some(format!("it can match `{protected}`, which is protected"));
        }
    }
    None
}

/// The names of folders that are protected or hold something that is.
fn protected_names() -> Vec<String> {
    let patterns = protected_patterns();
    let all = patterns.protected_paths.iter().chain(patterns.protected_paths_in_home);
    let first = |pattern: &&str| pattern.split('/').next().unwrap_or_default().replace('*', "");
    let mut names: Vec<String> = all.map(first).filter(|name| !name.is_empty()).collect();
    names.dedup();
    names
}

/// Whether a name of a glob matches, in any letter case. One that is not a glob matches nothing.
fn may_match(name: &str, protected: &str) -> bool {
    let glob = GlobBuilder::new(name).case_insensitive(true).literal_separator(true).build();
    glob.is_ok_and(|glob| glob.compile_matcher().is_match(protected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_glob_reaches_what_is_protected() {
        for glob in [
            "",
            ".",
            "./",
            "/",
            "**",
            "*",
            "**/*",
            ".*",
            ".g*",
            ".git",
            ".GIT/",
            ".git/hooks",
            "sub/.git",
            "**/.git/**",
            "build/../.git",
            "..",
            ".[a-h]it",
            ".{git,x}",
            ".claude",
            "*/.claude/hooks",
            ".codex/**",
            "?git",
        ] {
            assert!(exclude_problem(glob).is_some(), "{glob}");
        }
        for glob in [
            "target",
            "target/",
            "**/node_modules/**",
            "packages/*/dist",
            ".venv",
            "build-*",
            ".cache/*-tmp",
            "/abs/x",
        ] {
            assert_eq!(exclude_problem(glob), None, "{glob}");
        }
    }
}
