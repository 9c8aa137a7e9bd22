//! Planted bugs in the rules for git folders and protected names.

use super::{Edit, Mutant, attack};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "git-config-by-name",
        promise: 2,
        breaks: "a git configuration may say anything, as long as it is a file",
        edits: &[Edit {
            file: "crates/aos-model/src/policy/git/mod.rs",
            old: "            Err(why) => Some(why),\n            Ok(None) => None,\n",
            new: "            Err(_) | Ok(None) => None,\n",
        }],
        caught_by: &[attack("S4"), attack("OWN-S4-COMPLETED")],
    },
    Mutant {
        name: "git-layout-ignored",
        promise: 2,
        breaks: "only a folder named `.git` is a git folder",
        edits: &[Edit {
            file: "crates/aos-model/src/policy/git/mod.rs",
            old: "is_named || has_layout(tree, folder)",
            new: "is_named",
        }],
        caught_by: &[attack("S4"), attack("OWN-S4-COMPLETED")],
    },
    Mutant {
        name: "git-pairs-unchecked",
        promise: 2,
        breaks: "a `.git` file may lead anywhere",
        edits: &[Edit {
            file: "crates/aos-model/src/policy/git/mod.rs",
            old: "Some(Kind::File) if self.git_file_is_paired(root, absolute) => {}",
            new: "Some(Kind::File) if self.git_file_is_paired(root, absolute) || !absolute.is_empty() => {}",
        }],
        caught_by: &[attack("S4")],
    },
    Mutant {
        name: "url-as-option",
        promise: 2,
        breaks: "a URL that reads as an option of a program counts as harmless",
        edits: &[Edit {
            file: "crates/aos-model/src/policy/git/config.rs",
            old: "!url.starts_with(b\"-\") && !url.windows(2)",
            new: "!url.windows(2)",
        }],
        caught_by: &[attack("S4"), attack("OWN-S9-MODULES")],
    },
    Mutant {
        name: "withheld-removals-land",
        promise: 2,
        breaks: "a folder is removed with the protected path in it",
        edits: &[Edit {
            file: "crates/aos-host/src/proposed/mod.rs",
            old: "Step::Remove { at, .. } if holds_one(&at.absolute) => Some(at.absolute.clone()),",
            new: "Step::Remove { at, .. } if holds_one(&at.absolute) => None,",
        }],
        caught_by: &[attack("OWN-S9-WITHHOLD")],
    },
    Mutant {
        name: "identity-unquoted",
        promise: 2,
        breaks: "a name in the caller's identity can add configuration to the private home",
        edits: &[Edit {
            file: "crates/aos-model/src/request/session.rs",
            old: "value.len() <= GitIdentity::VALUE_BYTES_MAX && !value.chars().any(char::is_control)",
            new: "value.len() <= GitIdentity::VALUE_BYTES_MAX",
        }],
        caught_by: &[attack("OWN-M5-VALUES")],
    },
    Mutant {
        name: "worktree-leads-anywhere",
        promise: 1,
        breaks: "a `.git` file opens a git folder that does not name the root",
        edits: &[Edit {
            file: "crates/aos-host/src/lifecycle/worktree.rs",
            old: "if !is_back || below.contains(&b'/') {",
            new: "if !is_back && below.contains(&b'/') {",
        }],
        caught_by: &[attack("OWN-M19-BACK")],
    },
    Mutant {
        name: "git-links-on-overlays",
        promise: 8,
        breaks: "git makes hard links whose inode numbers overlayfs cannot keep, and a local clone ends",
        edits: &[Edit {
            file: "crates/aos-sandbox/src/links.rs",
            old: "name.trim_end() == \"git\"",
            new: "name.is_empty()",
        }],
        caught_by: &[attack("M20"), attack("OWN-S4-ORDINARY")],
    },
];
