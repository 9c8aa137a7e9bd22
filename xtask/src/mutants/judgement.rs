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
    Mutant {
        name: "ignore-rules-unbounded",
        promise: 10,
        breaks: "the rules of a hostile ignore file are all compiled",
        edits: &[Edit {
            file: "crates/aos-host/src/search/rules.rs",
            old: "        if self.patterns == 0 || cost > self.compiled_bytes {\n",
            new: "        if self.patterns == 0 {\n",
        }],
        caught_by: &[attack("S28")],
    },
    Mutant {
        name: "ignore-rules-cut-in-silence",
        promise: 10,
        breaks: "a search does not say that it skipped rules of an ignore file",
        edits: &[Edit {
            file: "crates/aos-host/src/search/rules.rs",
            old: "            if !is_whole {\n",
            new: "            if !is_whole && rules.is_empty() {\n",
        }],
        caught_by: &[attack("OWN-S28-LIMIT")],
    },
    Mutant {
        name: "foreign-commits-unnoticed",
        promise: 12,
        breaks: "an entry that another program removes or inserts is not noticed",
        edits: &[Edit {
            file: "crates/aos-store/src/sqlite.rs",
            old: "if after != version.wrapping_add(1) {",
            new: "if after < version {",
        }],
        caught_by: &[attack("S30")],
    },
    Mutant {
        name: "unlinked-journal-unnoticed",
        promise: 3,
        breaks: "receipts are acknowledged that are in a file without a name",
        edits: &[Edit {
            file: "crates/aos-store/src/own_files.rs",
            old: "        if (now.dev, now.ino) != (self.dev, self.ino) {\n",
            new: "        if now.dev != self.dev {\n",
        }],
        caught_by: &[attack("S30")],
    },
    Mutant {
        name: "broken-chain-at-start",
        promise: 12,
        breaks: "a daemon starts on a journal whose entries were changed",
        edits: &[Edit {
            file: "crates/aos-store/src/chain.rs",
            old: "        if stored != value {\n",
            new: "        if stored.len() != value.len() {\n",
        }],
        caught_by: &[attack("OWN-S30-START")],
    },
    Mutant {
        name: "preimage-taken-as-found",
        promise: 6,
        breaks: "a pre-image that was changed before it was finalized is restored",
        edits: &[Edit {
            file: "crates/aos-host/src/snapshot/finalize.rs",
            old: "    found.size == before.size_bytes && has_its_time\n",
            new: "    found.size == before.size_bytes || has_its_time\n",
        }],
        caught_by: &[attack("S31")],
    },
    Mutant {
        name: "preimage-of-another-kind",
        promise: 1,
        breaks: "a link in the place of a pre-image is restored as a link",
        edits: &[Edit {
            file: "crates/aos-host/src/snapshot/finalize.rs",
            old: "    if found.kind != before.kind {\n        return false;\n    }\n    if found.kind == Kind::Dir {",
            new: "    if found.kind != before.kind || found.kind == Kind::Dir {",
        }],
        caught_by: &[attack("S31")],
    },
    Mutant {
        name: "closed-mode-not-noted",
        promise: 6,
        breaks: "a daemon that dies while it reads a closed pre-image leaves it open",
        edits: &[Edit {
            file: "crates/aos-host/src/snapshot/open_preimage.rs",
            old: "            modes.note(suffix, mode)?;\n",
            new: "",
        }],
        caught_by: &[attack("OWN-C12-MODES")],
    },
    Mutant {
        name: "folders-of-a-command-held",
        promise: 9,
        breaks: "a command that works in many folders takes all descriptors of the daemon",
        edits: &[Edit {
            file: "crates/aos-host/src/capture/upper.rs",
            old: "                let at = DirAt::Known(KnownDir::new(entry.site.root, &opened, false));\n                Some((lower, was, Lower::There(Dir::Opened(Arc::new(below)), at), hidden))\n",
            new: "                let (_, below) = (opened, Dir::Opened(Arc::new(below)));\n                Some((lower, was, Lower::There(below.clone(), DirAt::Pinned(below)), hidden))\n",
        }],
        caught_by: &[attack("C12")],
    },
    Mutant {
        name: "folders-of-an-undo-held",
        promise: 9,
        breaks: "an undo in many folders takes all descriptors of the daemon",
        edits: &[Edit {
            file: "crates/aos-host/src/jail/place.rs",
            old: "root.filter(|_| self.opened.len() >= FOLDERS_HELD_MAX)",
            new: "root.filter(|_| self.opened.len() >= FOLDERS_HELD_MAX << 20)",
        }],
        caught_by: &[attack("C12")],
    },
    Mutant {
        name: "written-file-landed-itself",
        promise: 3,
        breaks: "a process that still has a command's file open writes to it after the receipt",
        edits: &[Edit {
            file: "crates/aos-host/src/change/take.rs",
            old: "    let renamed = if disk::has_no_writer(&from) {\n",
            new: "    let renamed = if disk::has_no_writer(&from) || put.mode != 0 {\n",
        }],
        caught_by: &[attack("S15")],
    },
    Mutant {
        name: "set-id-bits-land",
        promise: 1,
        breaks: "a command leaves a set-user-id file in the root",
        edits: &[Edit {
            file: "crates/aos-host/src/capture/upper.rs",
            old: "        Meta { mode: upper.mode & !SET_ID_BITS, ..upper }\n",
            new: "        upper\n",
        }],
        caught_by: &[attack("S5")],
    },
    Mutant {
        name: "set-id-bits-stay-without-overlay",
        promise: 1,
        breaks: "an uncaptured command leaves a set-user-id file in the root",
        edits: &[Edit {
            file: "crates/aos-host/src/capture/mod.rs",
            old: "set_ids::drop_since(session, &folders, ran.executed.started_at_ns)",
            new: "set_ids::drop_since(session, &[], ran.executed.started_at_ns)",
        }],
        caught_by: &[attack("S5")],
    },
];
