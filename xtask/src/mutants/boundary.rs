//! Planted bugs in what commands can do in each isolation and capture mode.

use super::{Edit, Mutant, attack};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "exited-peer-served",
        promise: 1,
        breaks: "a peer that exited before it could be judged is served: a command that connects by a child is the operator",
        edits: &[Edit {
            file: "crates/aos-wire/src/peer.rs",
            old: "Origin::Exited => Err(PeerError::Exited { pid }),",
            new: "Origin::Exited => Ok(()),",
        }],
        caught_by: &[attack("S26")],
    },
    Mutant {
        name: "ancestors-not-walked",
        promise: 1,
        breaks: "only the parent of a peer is looked at, so that a grandchild of a command is the operator",
        edits: &[Edit {
            file: "crates/aos-sandbox/src/origin.rs",
            old: "ancestors.iter().skip(1).any(",
            new: "ancestors.iter().skip(1).take(1).any(",
        }],
        caught_by: &[attack("S26")],
    },
    Mutant {
        name: "uncaptured-by-argument",
        promise: 2,
        breaks: "any caller may run a command without capture, so that nothing that it changes is checked",
        edits: &[Edit {
            file: "crates/aos-host/src/operation/exec.rs",
            old: "if !request.is_ordered() && !session.capability.exec.uncaptured {",
            new: "if false {",
        }],
        caught_by: &[attack("S1")],
    },
    Mutant {
        name: "reduced-without-asking",
        promise: 1,
        breaks: "commands run without namespaces in a session that did not allow it",
        edits: &[Edit {
            file: "crates/aos-sandbox/src/abilities.rs",
            old: "(applied.is_reduced() && allow_reduced)",
            new: "applied.is_reduced()",
        }],
        caught_by: &[attack("S3")],
    },
    Mutant {
        name: "reduced-filter-not-used",
        promise: 1,
        breaks: "the reduced isolation has the filter of no isolation: sockets of the user and limits of the daemon are reached",
        edits: &[Edit {
            file: "crates/aos-sandbox/src/filter.rs",
            old: "None if sandbox.is_reduced() => &self.reduced,",
            new: "None if sandbox.is_reduced() => &self.shared_processes,",
        }],
        caught_by: &[attack("S3")],
    },
    Mutant {
        name: "abstract-sockets-not-scoped",
        promise: 1,
        breaks: "with the machine's network, commands connect to its abstract sockets",
        edits: &[Edit {
            file: "crates/aos-sandbox/src/confine.rs",
            old: "rules.scope(Scope::Signal)?.scope(Scope::AbstractUnixSocket)?;",
            new: "rules.scope(Scope::Signal)?;",
        }],
        caught_by: &[attack("S12")],
    },
    Mutant {
        name: "read-rules-not-for-commands",
        promise: 2,
        breaks: "what a rule forbids to read is not masked for commands",
        edits: &[Edit {
            file: "crates/aos-sandbox/src/view.rs",
            old: "Mask { fixed, ..Mask::denied(at) }",
            new: "Mask { fixed, ..Mask::denied(b\"/nowhere\".to_vec()) }",
        }],
        caught_by: &[attack("S14"), attack("OWN-TORTURE-DENIED")],
    },
    Mutant {
        name: "masks-kept-too-long",
        promise: 2,
        breaks: "a folder that was listed once is not listed again when it changes",
        edits: &[Edit {
            file: "crates/aos-host/src/exec/mask_cache.rs",
            old: "filter(|(kept, _)| *kept == version)",
            new: "filter(|(_, _)| version.ctime_ns != 0)",
        }],
        caught_by: &[attack("OWN-S14-LATER")],
    },
    Mutant {
        name: "folders-above-a-mask-renamed",
        promise: 2,
        breaks: "without an overlay, the folder of a masked file is renamed, and the rule no longer matches it",
        edits: &[Edit {
            file: "crates/aos-sandbox/src/view.rs",
            old: "let fixed = !is_in_overlay(&binds, &at);",
            new: "let fixed = false;",
        }],
        caught_by: &[attack("S14")],
    },
    Mutant {
        name: "nothing-put-back",
        promise: 2,
        breaks: "without an overlay, what a command changed in protected or denied paths is reported and stays",
        edits: &[Edit {
            file: "crates/aos-host/src/capture/guard.rs",
            old: "if let Err(error) = self.put_back(session, &verdict.path, &mut listed.opened) {",
            new: "if let Err(error) = Ok::<(), Errno>(()) {",
        }],
        caught_by: &[attack("S2"), attack("OWN-TORTURE-DENIED")],
    },
    Mutant {
        name: "attributes-without-write",
        promise: 22,
        breaks: "in the reduced isolation, a command changes modes in a session that may not write",
        edits: &[Edit {
            file: "crates/aos-host/src/command/mod.rs",
            old: "let keeps_attributes = !may_write(session);",
            new: "let keeps_attributes = false;",
        }],
        caught_by: &[attack("OWN-S3-READ-ONLY")],
    },
    Mutant {
        name: "writes-without-sandbox",
        promise: 22,
        breaks: "with `isolation: none`, a command writes in a session that may not write",
        edits: &[Edit {
            file: "crates/aos-host/src/command/mod.rs",
            old: "if !may_write && !applied.namespaces && !applied.landlock {",
            new: "if false {",
        }],
        caught_by: &[attack("OWN-S2-READ-ONLY")],
    },
    Mutant {
        name: "closed-folders-not-compared",
        promise: 22,
        breaks: "without an overlay, a command hides what it may not write in a folder that it closes to its owner",
        edits: &[Edit {
            file: "crates/aos-host/src/capture/paths.rs",
            old: "if meta.mode & LISTS != LISTS && self.purpose != Purpose::Scan {",
            new: "if false {",
        }],
        caught_by: &[attack("OWN-S2-CLOSED")],
    },
    Mutant {
        name: "guarded-folders-renamed",
        promise: 22,
        breaks: "without an overlay, the folder of a file that may be neither read nor written is renamed, and the mask with it",
        edits: &[Edit {
            file: "crates/aos-sandbox/src/mounts.rs",
            old: "is_below(path, &bind.at) && !is_guarded(bind)",
            new: "is_below(path, &bind.at) && (!is_guarded(bind) || true)",
        }],
        caught_by: &[attack("OWN-S14-BOTH")],
    },
    Mutant {
        name: "put-back-as-the-user",
        promise: 22,
        breaks: "a daemon of root cannot read its copies when it puts back what a command of another user changed",
        edits: &[Edit {
            file: "crates/aos-host/src/capture/guard.rs",
            old: "let _own = own_rights();",
            new: "let _own = || own_rights();",
        }],
        caught_by: &[attack("OWN-S2-ANOTHERS")],
    },
    Mutant {
        name: "shown-content-unjudged",
        promise: 22,
        breaks: "an edit or a diff shows content that a rule forbids to read",
        edits: &[Edit {
            file: "crates/aos-host/src/stage/check_policy.rs",
            old: "if target.shows {",
            new: "if false {",
        }],
        caught_by: &[attack("OWN-S14-SHOWN")],
    },
    Mutant {
        name: "hooks-path-of-the-command",
        promise: 2,
        breaks: "without an overlay, `core.hooksPath` is read after the command: a command that renames it writes hooks",
        edits: &[Edit {
            file: "crates/aos-host/src/capture/guard.rs",
            old: "HookFolders::in_tree(session, Copied { guard: self, disk: DiskTree(session) })",
            new: "HookFolders::new(session)",
        }],
        caught_by: &[attack("S2")],
    },
    Mutant {
        name: "excluded-folders-not-guarded",
        promise: 2,
        breaks: "commands change protected and denied paths in folders that are not captured",
        edits: &[Edit {
            file: "crates/aos-host/src/capture/mod.rs",
            old: "Guard::before(host, session, excluded.clone())?",
            new: "Guard::before(host, session, Vec::new())?",
        }],
        caught_by: &[attack("S27")],
    },
    Mutant {
        name: "forged-mtime-believed",
        promise: 2,
        breaks: "without an overlay, a command changes a protected file and sets its mtime back",
        edits: &[Edit {
            file: "crates/aos-host/src/capture/paths.rs",
            old: "was.same_version(now) && was.ctime_ns == now.ctime_ns",
            new: "was.same_version(now)",
        }],
        caught_by: &[attack("S2")],
    },
    Mutant {
        name: "set-ids-hidden-in-closed-folders",
        promise: 2,
        breaks: "a file with set-id bits stays in a folder that the command closed",
        edits: &[Edit {
            file: "crates/aos-host/src/capture/paths.rs",
            old: "if meta.mode & LISTS != LISTS && self.purpose != Purpose::Scan {",
            new: "if meta.mode & LISTS != LISTS && matches!(self.purpose, Purpose::Guard | Purpose::PutBack) {",
        }],
        caught_by: &[attack("OWN-S5-HIDDEN")],
    },
    Mutant {
        name: "set-ids-in-excluded-folders",
        promise: 2,
        breaks: "a file with set-id bits stays in a folder that is not captured",
        edits: &[Edit {
            file: "crates/aos-host/src/capture/mod.rs",
            old: "set_ids::drop_since(session, &excluded, ",
            new: "set_ids::drop_since(session, &[], ",
        }],
        caught_by: &[attack("OWN-S5-HIDDEN")],
    },
    Mutant {
        name: "root-keeps-its-rights",
        promise: 1,
        breaks: "in a workdir of root's own, file effects reach what the session's commands do not",
        edits: &[Edit {
            file: "crates/aos-host/src/exec/environment.rs",
            old: "user_for(&workdir.meta).map(",
            new: "user_for(&workdir.meta).filter(|user| user.uid != 0).map(",
        }],
        caught_by: &[attack("S16")],
    },
    Mutant {
        name: "closed-folder-left-open",
        promise: 6,
        breaks: "a folder that undo opened to work in it keeps the permissions that it got for that",
        edits: &[Edit {
            file: "crates/aos-host/src/change/hold_open.rs",
            old: "    held.close_below(b\"\");\n    held.actions\n",
            new: "    held.actions\n",
        }],
        caught_by: &[attack("OWN-S16-CLOSED")],
    },
    Mutant {
        name: "too-much-denied-opens",
        promise: 2,
        breaks: "a session opens with rules that its commands without an overlay cannot be held to",
        edits: &[Edit {
            file: "crates/aos-host/src/lifecycle/open.rs",
            old: "    can_enforce(&session)?;\n",
            new: "",
        }],
        caught_by: &[attack("OWN-S2-BOUNDS")],
    },
];
