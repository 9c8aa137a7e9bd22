//! Protected names: made from the patterns that `aos policy protected` prints, and recognised by a second, simple matcher.

use serde_json::Value;

use crate::random::Random;
use crate::torture::Setup;

/// The printed patterns. Those of git folders are apart: what commands do there is judged by content.
#[derive(Debug, Clone)]
pub(super) struct Protected {
    listed: Vec<String>,
    git: Vec<String>,
}

impl Protected {
    pub(super) fn printed(setup: &Setup) -> Result<Protected, String> {
        let (code, out, err) = setup.aos(&["policy", "protected"]);
        let printed: Value = serde_json::from_str(&out)
            .map_err(|why| format!("aos policy protected: {code}: {why}: {out}{err}"))?;
        let patterns = printed["protected_paths"].as_array().map(Vec::as_slice).unwrap_or_default();
        let patterns = patterns.iter().filter_map(Value::as_str).map(str::to_owned);
        let (git, listed): (Vec<String>, Vec<String>) =
            patterns.partition(|pattern| pattern.starts_with(".git"));
        if listed.len() < 20 || git.is_empty() {
            return Err(format!("aos policy protected prints too few names: {out}"));
        }
        Ok(Protected { listed, git })
    }

    /// A name that one of the patterns matches, below `above`, in one of three in another case.
    pub(super) fn name(&self, above: &str, random: &mut Random) -> String {
        let pattern = random.pick(&self.listed);
        let below = *random.pick(&["x.json", "deep/y", "run.sh", "a b"]);
        let any = *random.pick(&["", "c", ".local", "x"]);
        let name = match pattern.strip_suffix("/**") {
            // The folder's own name counts too.
            Some(folder) if random.one_in(6) => folder.to_owned(),
            Some(folder) => format!("{folder}/{below}"),
            None => pattern.clone(),
        };
        let name = name.replace('*', any);
        let name = if random.one_in(3) { other_case(&name, random) } else { name };
        format!("{above}{name}")
    }

    /// Whether a path has a protected name that is not one of git's.
    pub(super) fn holds(&self, path: &str) -> bool {
        self.listed.iter().any(|pattern| matches_anywhere(pattern, path))
    }

    /// Whether a path has a name that file effects may not write in a git folder.
    pub(super) fn is_git_name(&self, path: &str) -> bool {
        self.git.iter().any(|pattern| matches_anywhere(pattern, path))
    }
}

/// Some letters in the other case; `s` and `k` also as letters that fold to them.
pub(super) fn other_case(name: &str, random: &mut Random) -> String {
    name.chars()
        .map(|c| match (c, random.below(12)) {
            ('s', 0) => 'ſ',
            ('k', 0) => 'K',
            (c, 0..6) if c.is_ascii_lowercase() => c.to_ascii_uppercase(),
            (c, 0..6) => c.to_ascii_lowercase(),
            (c, _) => c,
        })
        .collect()
}

/// A name without regard to case.
pub(super) fn folded(name: &str) -> String {
    name.to_uppercase().to_lowercase()
}

fn matches_anywhere(pattern: &str, path: &str) -> bool {
    let wanted: Vec<String> = pattern.split('/').map(folded).collect();
    let names: Vec<String> = path.split('/').map(folded).collect();
    (0..names.len()).any(|start| matches_here(&wanted, &names[start..]))
}

fn matches_here(wanted: &[String], names: &[String]) -> bool {
    match (wanted, names) {
        // The folder itself counts: replacing it replaces its content.
        ([last], _) if last == "**" => true,
        ([], names) => names.is_empty(),
        ([first, wanted @ ..], [name, names @ ..]) => one_matches(first, name) && matches_here(wanted, names),
        (_, []) => false,
    }
}

fn one_matches(wanted: &str, name: &str) -> bool {
    match wanted.split_once('*') {
        None => wanted == name,
        Some((head, tail)) => {
            name.len() >= head.len() + tail.len() && name.starts_with(head) && name.ends_with(tail)
        }
    }
}
