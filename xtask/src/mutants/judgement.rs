//! Planted bugs in the policy of words and rules, ignore files, and the store.

use super::{Edit, Mutant, attack};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "rules-see-shown-names-only",
        promise: 2,
        breaks: "`?` in a rule does not match a byte that is not UTF-8",
        edits: &[Edit {
            file: "crates/aos-model/src/policy/globs.rs",
            old: "if shown.contains('\\\\') { decode(shown).ok() }",
            new: "if shown.is_empty() { decode(shown).ok() }",
        }],
        caught_by: &[attack("S34")],
    },
    Mutant {
        name: "absolute-rules-forget-the-link",
        promise: 2,
        breaks: "an absolute glob is not compared with the workdir as it was requested",
        edits: &[Edit {
            file: "crates/aos-host/src/lifecycle/open.rs",
            old: "[Some(record.workdir.path.clone()), alias].into_iter()",
            new: "[Some(record.workdir.path.clone()), alias.filter(String::is_empty)].into_iter()",
        }],
        caught_by: &[attack("S34"), attack("OWN-S34-RESTART")],
    },
    Mutant {
        name: "void-rules-accepted",
        promise: 2,
        breaks: "a session opens with a rule about a path that it can never reach",
        edits: &[Edit {
            file: "crates/aos-host/src/lifecycle/open.rs",
            old: "    policy.check_reach(&folders).map_err(invalid)\n",
            new: "    policy.check_reach(&folders).map_err(invalid).or(Ok(()))\n",
        }],
        caught_by: &[attack("OWN-S34-VOID")],
    },
    Mutant {
        name: "missing-name-hides-a-link",
        promise: 2,
        breaks: "a word with `..` after a missing name is judged as text only",
        edits: &[Edit {
            file: "crates/aos-host/src/policy.rs",
            old: "resolve: &|path| link_free_past_missing(path),",
            new: "resolve: &|path| link_free(path),",
        }],
        caught_by: &[attack("S25")],
    },
    Mutant {
        name: "clusters-not-read",
        promise: 2,
        breaks: "the absolute value of a cluster of options is not seen",
        edits: &[Edit {
            file: "crates/aos-model/src/policy/words.rs",
            old: "        absolute_cluster_value(word, program),\n",
            new: "        absolute_cluster_value(word, program).filter(|_| false),\n",
        }],
        caught_by: &[attack("OWN-S25-OPTIONS")],
    },
    Mutant {
        name: "exclusion-by-name-only",
        promise: 1,
        breaks: "a link inside a mount brings in a file that the mount excludes",
        edits: &[Edit {
            file: "crates/aos-host/src/layer/mount/walk.rs",
            old: "        matches(relative) || own.map_or_else(|| ends(&at.below).any(matches), matches)\n",
            new: "        matches(relative) || own.is_some_and(|_| false)\n",
        }],
        caught_by: &[attack("S33")],
    },
    Mutant {
        name: "reserved-names-land",
        promise: 4,
        breaks: "a command leaves a file under the name of an unfinished write",
        edits: &[Edit {
            file: "crates/aos-host/src/capture/upper.rs",
            old: "            if name.starts_with(TEMPORARY_PREFIX) {\n",
            new: "            if name == TEMPORARY_PREFIX {\n",
        }],
        caught_by: &[attack("OWN-S20-COMMAND")],
    },
    Mutant {
        name: "reserved-names-through-links",
        promise: 4,
        breaks: "a link leads to the name of an unfinished write",
        edits: &[Edit {
            file: "crates/aos-host/src/target.rs",
            old: "let names = [&resolved.literal, resolved.found.absolute()];",
            new: "let names = [&resolved.literal, resolved.literal.as_slice()];",
        }],
        caught_by: &[attack("S20")],
    },
    Mutant {
        name: "inline-without-ceiling",
        promise: 10,
        breaks: "a capability raises inline content without limit",
        edits: &[Edit {
            file: "crates/aos-model/src/capability.rs",
            old: ".unwrap_or(INLINE_BYTES_DEFAULT).min(INLINE_BYTES_MAX)",
            new: ".unwrap_or(INLINE_BYTES_DEFAULT).min(INLINE_BYTES_MAX << 10)",
        }],
        caught_by: &[attack("S18")],
    },
];
