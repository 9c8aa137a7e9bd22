//! Planted bugs of undo beside people: each loses what somebody else wrote, or reports what did not happen.

use super::{Edit, Mutant, attack};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "gap-ignored",
        promise: 24,
        breaks: "undo goes back over what somebody else wrote between two calls",
        edits: &[Edit {
            file: "crates/aos-model/src/undo/plan.rs",
            old: "    conflicts.extend(merge.net.gaps.iter().map(between));\n",
            new: "    let _ = merge.net.gaps.iter().map(between);\n",
        }],
        caught_by: &[attack("C26")],
    },
    Mutant {
        name: "attributes-not-compared",
        promise: 24,
        breaks: "an extended attribute or an ACL that somebody set since is lost without a conflict",
        edits: &[Edit {
            file: "crates/aos-model/src/undo/tree.rs",
            old: "    image.mode == wanted.mode && same_xattrs\n",
            new: "    image.mode == wanted.mode && (same_xattrs || true)\n",
        }],
        caught_by: &[attack("C29")],
    },
    Mutant {
        name: "rolls-not-redone",
        promise: 24,
        breaks: "redo restores the state after the turn instead of what the undo displaced",
        edits: &[Edit {
            file: "crates/aos-model/src/undo/turns.rs",
            old: "            group.extend(self.rolls.iter().filter(|seq| (*by..until).contains(seq)));\n",
            new: "            group.extend(self.rolls.iter().filter(|seq| (*by..=*by).contains(seq)));\n",
        }],
        caught_by: &[attack("C13")],
    },
    Mutant {
        name: "folders-not-listed",
        promise: 24,
        breaks: "the lists of a receipt leave out the folders that come and go",
        edits: &[Edit {
            file: "crates/aos-model/src/undo/plan.rs",
            old: "        self.list(|one| one.goal.is_none(), |(from, _)| (from, from))\n",
            new: "        let is_file = |one: &Difference| one.now.as_ref().is_none_or(|now| now.kind != Kind::Dir);\n        self.list(|one| one.goal.is_none() && is_file(one), |(from, _)| (from, from))\n",
        }],
        caught_by: &[attack("C28")],
    },
    Mutant {
        name: "removed-folder-made-again",
        promise: 24,
        breaks: "a command that removes a folder and makes it again has changed all of it",
        edits: &[Edit {
            file: "crates/aos-host/src/capture/upper.rs",
            old: "    match open_dir(dir, entry.name).and_then(|folder| names_in(&folder)) {\n",
            new: "    match open_dir(dir, entry.name).and_then(|_| Err::<Vec<Vec<u8>>, _>(Errno::ACCESS)) {\n",
        }],
        caught_by: &[attack("C30")],
    },
    Mutant {
        name: "link-displaced",
        promise: 24,
        breaks: "a forced undo removes a link that somebody put in place of a folder",
        edits: &[Edit {
            file: "crates/aos-host/src/restore/mod.rs",
            old: "                return Err(Refusal::new(Code::SymlinkNotAllowed, why));\n",
            new: "                drop(why);\n",
        }],
        caught_by: &[attack("OWN-UNDO-LINK-SWAP")],
    },
];
