//! Planted bugs in what a command sees of the machine, and what it may fill.

use super::{Edit, Mutant, attack};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "home-by-text",
        promise: 1,
        breaks: "a home on PATH is recognised by its path only, not by device and inode",
        edits: &[Edit {
            file: "crates/aos-sandbox/src/identity.rs",
            old: "        !self.around.contains(&own) && !is_closed(&own) && !chain.any(|id| is_closed(&id))\n",
            new: "        own.1 > 0 || chain.any(|id| is_closed(&id))\n",
        }],
        caught_by: &[attack("S6")],
    },
    Mutant {
        name: "shown-with-our-rights",
        promise: 1,
        breaks: "a root daemon shows a command's user what it could not reach by itself",
        edits: &[Edit {
            file: "crates/aos-sandbox/src/mounts.rs",
            old: "with_rights_of(user, || open(false))?",
            new: "with_rights_of(user.filter(|_| false), || open(false))?",
        }],
        caught_by: &[attack("OWN-S10-UID")],
    },
    Mutant {
        name: "system-unmasked-for-root",
        promise: 1,
        breaks: "a command with uid 0 reads what only root may read in /etc",
        edits: &[Edit {
            file: "crates/aos-sandbox/src/mounts.rs",
            old: "view.disowned && bind.is_of_system()",
            new: "view.disowned && bind.required",
        }],
        caught_by: &[attack("S11")],
    },
    Mutant {
        name: "system-unmasked-without-mapped-ids",
        promise: 1,
        breaks: "where ids cannot be mapped, a command with uid 0 reads what only root may read in /etc",
        edits: &[Edit {
            file: "crates/aos-sandbox/src/view.rs",
            old: "if disowned { closed_folders() } else { closed_paths() }",
            new: "if true || disowned { closed_folders() } else { closed_paths() }",
        }],
        caught_by: &[attack("OWN-S11-WALK")],
    },
    Mutant {
        name: "state-known-by-path",
        promise: 1,
        breaks: "our state is recognised by its path at the start only, not by device and inode",
        edits: &[Edit {
            file: "crates/aos-host/src/jail/resolve.rs",
            old: "    if meta.is_some_and(|meta| jail.own.is(meta))",
            new: "    if meta.is_some_and(|meta| meta.ino == 0)",
        }],
        caught_by: &[attack("OWN-S7-MOVED")],
    },
    Mutant {
        name: "state-can-be-moved",
        promise: 1,
        breaks: "a command renames a folder above our state",
        edits: &[Edit {
            file: "crates/aos-sandbox/src/mounts.rs",
            old: "        if mask.fixed {\n",
            new: "        if mask.fixed && view.binds.is_empty() {\n",
        }],
        caught_by: &[attack("S7")],
    },
    Mutant {
        name: "scratch-unbounded",
        promise: 9,
        breaks: "a command fills its private folders without end",
        edits: &[Edit {
            file: "crates/aos-host/src/command/room.rs",
            old: "find(|bound| bound.used > bound.limit)?",
            new: "find(|bound| bound.used == u64::MAX)?",
        }],
        caught_by: &[attack("S8")],
    },
    Mutant {
        name: "disk-filled",
        promise: 9,
        breaks: "a command fills the disk of the state, and what it changed may land",
        edits: &[Edit {
            file: "crates/aos-host/src/command/room.rs",
            old: "        if let Some(why) = now.too_little(&most) {\n",
            new: "        if let Some(why) = most.too_little(&most) {\n",
        }],
        caught_by: &[attack("OWN-S8-DISK")],
    },
    Mutant {
        name: "reserve-kept",
        promise: 9,
        breaks: "a full disk keeps its reserve: reads are refused and a daemon does not start",
        edits: &[Edit {
            file: "crates/aos-store/src/reserve.rs",
            old: "        *given_up = true;\n",
            new: "        *given_up = true;\n        return true;\n",
        }],
        caught_by: &[attack("OWN-S8-FULL")],
    },
    Mutant {
        name: "reserve-for-changes",
        promise: 23,
        breaks: "changes continue on a full disk, take the reserve, and `status` says nothing",
        edits: &[Edit {
            file: "crates/aos-store/src/reserve.rs",
            old: "        *given_up = true;\n",
            new: "",
        }],
        caught_by: &[attack("OWN-TORTURE-SPACE")],
    },
    Mutant {
        name: "no-room-no-overlay",
        promise: 23,
        breaks: "a command whose overlay finds no room runs without one, and what it changed stays",
        edits: &[Edit {
            file: "crates/aos-host/src/overlay/mod.rs",
            old: "NotRun::Refused(fault::refusal(subject, why)),",
            new: "NotRun::NoOverlay(fault::refusal(subject, why).message),",
        }],
        caught_by: &[attack("OWN-S8-OVERLAY")],
    },
    Mutant {
        name: "reserve-not-taken-back",
        promise: 23,
        breaks: "with room again, changes are accepted without a reserve, and the next full disk stops everything",
        edits: &[Edit {
            file: "crates/aos-store/src/reserve.rs",
            old: "            && self.take(space)\n",
            new: "",
        }],
        caught_by: &[attack("OWN-TORTURE-SPACE")],
    },
    Mutant {
        name: "old-file-dropped-early",
        promise: 23,
        breaks: "what a step displaced on another disk is removed before the next step: on a full disk it cannot come back",
        edits: &[Edit {
            file: "crates/aos-host/src/change/aside.rs",
            old: "            self.aside.push(index);\n",
            new: "            self.aside.push(index);\n            let _ = self.drop_aside();\n",
        }],
        caught_by: &[attack("OWN-S8-ROOT")],
    },
    Mutant {
        name: "memory-limit-unsaid",
        promise: 10,
        breaks: "the receipt does not say that nothing enforces the memory limit",
        edits: &[Edit {
            file: "crates/aos-host/src/command/mod.rs",
            old: "order.limits.memory_bytes.map(memory_not_enforced)",
            new: "order.limits.memory_bytes.filter(|_| false).map(memory_not_enforced)",
        }],
        caught_by: &[attack("S17")],
    },
    Mutant {
        name: "effects-with-our-rights",
        promise: 1,
        breaks: "a daemon of root acts with its own rights on the files of a session",
        edits: &[Edit {
            file: "crates/aos-host/src/session.rs",
            old: "        let Some(user) = self.acts_for else { return Ok(None) };\n",
            new: "        let Some(user) = self.acts_for.filter(|_| false) else { return Ok(None) };\n",
        }],
        caught_by: &[attack("S16")],
    },
    Mutant {
        name: "forged-opaque",
        promise: 1,
        breaks: "an attribute that a command can set counts as overlayfs's own",
        edits: &[Edit {
            file: "crates/aos-host/src/disk/attrs.rs",
            old: "let name = if in_user_namespace {",
            new: "let name = if in_user_namespace || rustix::process::geteuid().is_root() {",
        }],
        caught_by: &[attack("OWN-S16-OPAQUE")],
    },
];
