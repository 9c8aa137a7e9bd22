//! A second, simple implementation of policy rules for plain paths.

use serde_json::Value;

/// The decision of the first rule for `op` with a glob that matches the path; `allow` if no rule matches.
pub(super) fn decision<'p>(policy: &'p Value, op: &str, path: &str) -> &'p str {
    let rules = policy["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names = |rule: &Value| rule["ops"].as_array().is_some_and(|ops| ops.iter().any(|one| one == op));
    let takes = |rule: &Value| {
        let globs = rule["paths"].as_array().map(Vec::as_slice).unwrap_or_default();
        globs.iter().filter_map(Value::as_str).any(|glob| matches(glob, path))
    };
    let first = rules.iter().find(|rule| names(rule) && takes(rule));
    first.and_then(|rule| rule["decision"].as_str()).unwrap_or("allow")
}

/// Whether a glob matches a path: `*`, `?` and `[ab]` within a name, `**` across names, `{a,b}` either. A glob that
/// ends with a slash matches the folder and everything below it.
pub(in crate::torture) fn matches(glob: &str, path: &str) -> bool {
    if let Some((before, rest)) = glob.split_once('{')
        && let Some((choices, after)) = rest.split_once('}')
    {
        return choices.split(',').any(|choice| matches(&format!("{before}{choice}{after}"), path));
    }
    let names: Vec<&str> = path.split('/').collect();
    match glob.strip_suffix('/') {
        Some(folder) => {
            let folder: Vec<&str> = folder.split('/').collect();
            (1..=names.len()).any(|length| names_match(&folder, &names[..length]))
        }
        None => names_match(&glob.split('/').collect::<Vec<_>>(), &names),
    }
}

fn names_match(globs: &[&str], names: &[&str]) -> bool {
    match globs {
        [] => names.is_empty(),
        // At the end `**` matches one name or more, elsewhere also none.
        ["**"] => !names.is_empty(),
        ["**", rest @ ..] => (0..=names.len()).any(|skipped| names_match(rest, &names[skipped..])),
        [glob, rest @ ..] => names.first().is_some_and(|name| {
            name_matches(glob.as_bytes(), name.as_bytes()) && names_match(rest, &names[1..])
        }),
    }
}

fn name_matches(glob: &[u8], name: &[u8]) -> bool {
    match (glob, name) {
        ([], _) => name.is_empty(),
        ([b'*', rest @ ..], _) => (0..=name.len()).any(|taken| name_matches(rest, &name[taken..])),
        ([b'[', rest @ ..], [byte, name @ ..]) => {
            let Some(end) = rest.iter().position(|b| *b == b']') else { return false };
            rest[..end].contains(byte) && name_matches(&rest[end + 1..], name)
        }
        ([b'?', rest @ ..], [_, name @ ..]) => name_matches(rest, name),
        ([one, rest @ ..], [other, name @ ..]) => one == other && name_matches(rest, name),
        (_, []) => false,
    }
}
