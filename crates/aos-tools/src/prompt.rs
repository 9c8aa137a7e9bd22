//! The instructions for a model that uses the tools: nine points, and the mounts of the session.

use serde::Deserialize;

use crate::catalog::Profile;

/// A host folder that the operator mounted in the session's tree, as shown to the model.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Mount {
    pub mount_path: String,
    /// What the operator allows to show of its host path.
    pub shown: String,
    /// The top level, folders with a `/`.
    #[serde(default)]
    pub entries: Vec<String>,
    /// The number of entries that are not listed.
    #[serde(default)]
    pub more: u64,
}

/// The most listed entries of one mount.
const ENTRIES_MAX: usize = 20;

/// The texts that differ between a real folder and a virtual tree.
struct TargetTexts {
    start: &'static str,
    copies: &'static str,
}

/// The instructions for a session, in Markdown. `virtual_tree`: its files are not on the host's disk.
pub fn prompt(profile: Profile, virtual_tree: bool, mounts: &[Mount]) -> String {
    let names = ToolNames::of(profile);
    let target = match virtual_tree {
        true => TargetTexts {
            start: "The virtual filesystem starts empty, aside from any host mounts that the operator configured",
            copies: "Host mounts should stay focused",
        },
        false => TargetTexts {
            start: "You work in a folder of the host, the workspace; paths are relative to it",
            copies: "Keep copies focused",
        },
    };
    let ToolNames { list, write, edit, remove } = names;
    let points = [
        format!("{}. Create files with `{write}` and update them with `{edit}`.", target.start),
        "Read the appendix \"Configured host mounts\" first: it lists the mounted folders and their top level."
            .to_owned(),
        "Host mounts are configured before the session starts; you cannot import further host folders.".to_owned(),
        format!("Explore with `{list}` and `glob` before you read or write; keep listings targeted."),
        "Read with `read_file`; for large files use `offset` and `limit`, which count lines, instead of reading all."
            .to_owned(),
        format!(
            "Create files with `{write}` and modify them with `{edit}`, UTF-8 only; prefer one whole file to many \
             appends, unless you stream a log."
        ),
        format!("Remove stale files with `{remove}`; folders are removed with everything in them, so check the path twice."),
        "Find symbols with `grep` when the project grows; binary files are skipped.".to_owned(),
        format!("Do not copy large repositories or binary files. {}; the size limits still apply.", target.copies),
    ];
    let mut page = String::from("## File tools\n\n");
    for (number, point) in (1..).zip(points) {
        page.push_str(&format!("{number}. {point}\n"));
    }
    if profile != Profile::Deepagents {
        page.push_str(
            "\nEvery change is recorded. `undo` reverts the last one, `history` lists them, `diff` shows one. If the session \
             does not allow something, no argument does: tell the user instead of looking for a workaround.\n",
        );
    }
    page.push('\n');
    page.push_str(&appendix(mounts));
    page
}

/// The names of the tools in a profile.
struct ToolNames {
    list: &'static str,
    write: &'static str,
    edit: &'static str,
    remove: &'static str,
}

impl ToolNames {
    fn of(profile: Profile) -> ToolNames {
        let names = |list, edit, remove| ToolNames { list, write: "write_file", edit, remove };
        match profile {
            Profile::Deepagents => names("ls", "edit_file", "rm"),
            Profile::Openai => names("list_dir", "apply_patch", "remove"),
            Profile::Anthropic | Profile::Gemini => names("list_dir", "edit_file", "remove"),
        }
    }
}

/// The appendix: each mount and its top level.
pub fn appendix(mounts: &[Mount]) -> String {
    let mut text = String::from("Configured host mounts:\n");
    if mounts.is_empty() {
        text.push_str("- none\n");
    }
    for mount in mounts {
        let path = if mount.mount_path.is_empty() { "/" } else { mount.mount_path.as_str() };
        let shown: Vec<String> =
            mount.entries.iter().take(ENTRIES_MAX).map(|entry| format!("`{entry}`")).collect();
        let more = mount.more + mount.entries.len().saturating_sub(ENTRIES_MAX) as u64;
        let contents = match (shown.is_empty(), more) {
            (true, 0) => "<empty>".to_owned(),
            (_, 0) => shown.join(" "),
            _ => format!("{} … (+{more} more)", shown.join(" ")),
        };
        text.push_str(&format!("- Host `{}` mounted at `{path}`.\n  Contents: {contents}\n", mount.shown));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(entries: &[&str], more: u64) -> Mount {
        Mount {
            mount_path: "docs".into(),
            shown: "docs".into(),
            entries: entries.iter().map(|entry| (*entry).to_owned()).collect(),
            more,
        }
    }

    #[test]
    fn the_appendix_names_each_mount_and_its_top_level() {
        assert_eq!(
            appendix(&[mount(&["a/", "b.md"], 0), mount(&[], 0), mount(&["x"], 7)]),
            "Configured host mounts:\n\
             - Host `docs` mounted at `docs`.\n  Contents: `a/` `b.md`\n\
             - Host `docs` mounted at `docs`.\n  Contents: <empty>\n\
             - Host `docs` mounted at `docs`.\n  Contents: `x` … (+7 more)\n"
        );
        let many: Vec<String> = (0..25).map(|n| format!("f{n}")).collect();
        let shown = appendix(&[Mount { entries: many, ..mount(&[], 0) }]);
        assert!(shown.contains("`f19` … (+5 more)") && !shown.contains("f20"), "{shown}");
    }

    #[test]
    fn each_profile_is_taught_nine_points_with_its_own_names() {
        for profile in Profile::ALL {
            let page = prompt(profile, true, &[]);
            for number in 1..=9 {
                assert!(page.contains(&format!("\n{number}. ")), "{page}");
            }
            let known: Vec<&str> = super::super::tools(profile, false).iter().map(|tool| tool.name).collect();
            let named = page.split('`').skip(1).step_by(2);
            for name in named.filter(|name| !["offset", "limit"].contains(name)) {
                assert!(known.contains(&name), "{}: no tool `{name}`", profile.name());
            }
        }
    }
}
