//! The planted bugs, in the order of the promises that they break. A test fails when an edit no longer applies.

use super::{Edit, Mutant, Program, Test, attack};

/// Removes the flag, so that opening a file follows links.
const LINKS_FOLLOWED: Edit = Edit {
    file: "crates/aos-host/src/disk/open.rs",
    old: "    resolve |= ResolveFlags::NO_SYMLINKS;\n",
    new: "",
};

pub(super) const MUTANTS: &[Mutant] = &[
    // 1: nothing leaves the roots
    Mutant {
        name: "links-allowed",
        promise: 1,
        breaks: "NO_MAGICLINKS is dropped, and NO_SYMLINKS, which implies it: what was judged need not be what is opened",
        edits: &[
            Edit {
                file: "crates/aos-host/src/disk/open.rs",
                old: "ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS, cross_mounts)",
                new: "ResolveFlags::BENEATH, cross_mounts)",
            },
            LINKS_FOLLOWED,
        ],
        caught_by: &[attack("PATH-05")],
    },
    Mutant {
        name: "beneath-dropped",
        promise: 1,
        breaks: "the kernel is not asked to stay beneath the root, nor to refuse links: only the text is checked",
        edits: &[
            Edit {
                file: "crates/aos-host/src/disk/open.rs",
                old: "ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS, cross_mounts)",
                new: "ResolveFlags::empty(), cross_mounts)",
            },
            LINKS_FOLLOWED,
        ],
        caught_by: &[attack("PATH-05")],
    },
    Mutant {
        name: "prefix-without-slash",
        promise: 1,
        breaks: "`ws-evil` counts as inside of `ws`",
        edits: &[Edit {
            file: "crates/aos-model/src/path.rs",
            old: "path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')",
            new: "path.starts_with(folder)",
        }],
        caught_by: &[attack("PATH-03")],
    },
    Mutant {
        name: "special-files-opened",
        promise: 1,
        breaks: "a FIFO, a device or a socket is opened like a file",
        edits: &[Edit {
            file: "crates/aos-host/src/jail/place.rs",
            old: "            Kind::File => Ok(()),\n",
            new: "            Kind::File | Kind::Other => Ok(()),\n",
        }],
        caught_by: &[attack("SPEC-01")],
    },
    Mutant {
        name: "mcp-any-session",
        promise: 1,
        breaks: "an MCP client may name a session that the operator did not give it",
        edits: &[Edit {
            file: "crates/aos-wire/src/mcp/tool_set.rs",
            old: "Some(Value::String(named)) => self.sessions.contains(&named).then_some(named),",
            new: "Some(Value::String(named)) => Some(named),",
        }],
        caught_by: &[attack("OWN-MCP-WIDEN")],
    },
    Mutant {
        name: "http-without-token",
        promise: 1,
        breaks: "MCP over HTTP accepts requests without the token",
        edits: &[Edit {
            file: "crates/aos-wire/src/mcp/http.rs",
            old: "if !self.gate.access.has_token(&request) {",
            new: "if !self.gate.access.has_token(&request) && request.uri().path() != PATH {",
        }],
        caught_by: &[attack("OWN-MCP-HTTP")],
    },
    Mutant {
        name: "foreign-blob",
        promise: 1,
        breaks: "a session may read a blob that only another session's receipt named",
        edits: &[Edit {
            file: "crates/aos-host/src/payload.rs",
            old: "    for session in [None, Some(session.id.as_str())] {",
            new: "    if host.blobs.size_of(blob_ref)?.is_some() {\n        return Ok(true);\n    }\n    for session in [None, Some(session.id.as_str())] {",
        }],
        caught_by: &[attack("OWN-MCP-BLOB")],
    },
    // 2: policy said = policy done
    Mutant {
        name: "move-target-unjudged",
        promise: 2,
        breaks: "where a patch moves a file to is not judged as a change",
        edits: &[Edit {
            file: "crates/aos-host/src/operation/patch.rs",
            old: "targets.push(made(Target::new(to, Op::Patch, Last::Follow)));",
            new: "targets.push(made(Target::new(to, Op::Stat, Last::Follow)));",
        }],
        caught_by: &[attack("POL-05")],
    },
    Mutant {
        name: "deny-does-not-win",
        promise: 2,
        breaks: "of two spellings of a path the weaker verdict counts",
        edits: &[Edit {
            file: "crates/aos-model/src/policy/rules.rs",
            old: "other.decision > self.decision || self.rule.is_none()",
            new: "other.decision < self.decision",
        }],
        caught_by: &[attack("POL-05")],
    },
    Mutant {
        name: "links-unjudged",
        promise: 2,
        breaks: "only the path as written is judged, not where its links lead",
        edits: &[Edit {
            file: "crates/aos-model/src/policy/rules.rs",
            old: "if literal == resolved { verdict } else { verdict.and(Verdict::of(self.rule_for(op, resolved))) }",
            new: "if resolved.is_empty() { verdict.and(Verdict::of(None)) } else { verdict }",
        }],
        caught_by: &[attack("POL-05")],
    },
    Mutant {
        name: "protected-by-case",
        promise: 2,
        breaks: "`.GIT/hooks` is not taken for `.git/hooks`",
        edits: &[Edit {
            file: "crates/aos-model/src/policy/lexical.rs",
            old: "        _ => name.to_ascii_lowercase(),",
            new: "        _ => name.to_vec(),",
        }],
        caught_by: &[attack("PATH-25"), attack("S9")],
    },
    Mutant {
        name: "setuid-kept",
        promise: 2,
        breaks: "new content runs with the rights that the old content had",
        edits: &[Edit {
            file: "crates/aos-host/src/operation/write_file.rs",
            old: "|meta| meta.mode & 0o1777)",
            new: "|meta| meta.mode)",
        }],
        caught_by: &[attack("WRITE-02")],
    },
    Mutant {
        name: "environment-leaks",
        promise: 2,
        breaks: "a command gets the daemon's own environment",
        edits: &[Edit {
            file: "crates/aos-host/src/exec/environment.rs",
            old: "        all.into_iter().map(|(name, value)| format!(\"{name}={value}\")).collect()\n",
            new: "        let own = std::env::vars().map(|(name, value)| format!(\"{name}={value}\"));\n        own.chain(all.into_iter().map(|(name, value)| format!(\"{name}={value}\"))).collect()\n",
        }],
        caught_by: &[attack("EXEC-16")],
    },
    // 3: no acknowledged receipt is lost
    Mutant {
        name: "answer-before-commit",
        promise: 3,
        breaks: "an entry is answered before the transaction that holds it is committed",
        edits: &[
            Edit {
                file: "crates/aos-store/src/sqlite.rs",
                old: "let alone = self.abandoned.is_empty() && writes.len() == 1;",
                new: "let alone = !self.connection.is_autocommit();",
            },
            Edit {
                file: "crates/aos-store/src/sqlite.rs",
                old: "            if !alone {\n                self.connection.prepare_cached(\"COMMIT\")",
                new: "            if self.seq % 4 == 0 {\n                self.connection.prepare_cached(\"COMMIT\")",
            },
        ],
        caught_by: &[attack("JRNL-01")],
    },
    Mutant {
        name: "group-loses-one",
        promise: 3,
        breaks: "of many entries that share a commit the second is answered and not written",
        edits: &[Edit {
            file: "crates/aos-store/src/sqlite.rs",
            old: "                .map(|write| self.put(write, &mut fresh))",
            new: "                .enumerate()\n                .map(|(n, write)| match write {\n                    Write::Entry(_) if n == 1 => Ok(self.seq),\n                    write => self.put(write, &mut fresh),\n                })",
        }],
        caught_by: &[attack("JRNL-14")],
    },
    // 4: no half patch, no half restore
    Mutant {
        name: "intent-not-rolled-back",
        promise: 4,
        breaks: "a change that the daemon's death cut short stays half done",
        edits: &[Edit {
            file: "crates/aos-host/src/change/take_back.rs",
            old: "let undone = begun(&intent.steps).iter()",
            new: "let undone = begun(&[]).iter()",
        }],
        caught_by: &[attack("PATCH-08")],
    },
    Mutant {
        name: "intent-slots-not-read",
        promise: 4,
        breaks: "an intent that a killed daemon left in a slot is not found",
        edits: &[Edit {
            file: "crates/aos-store/src/sqlite.rs",
            old: "        slots.load(&closed_intents(&connection)?)?;\n",
            new: "        closed_intents(&connection)?;\n",
        }],
        caught_by: &[attack("PATCH-08")],
    },
    Mutant {
        name: "failed-step-stays",
        promise: 4,
        breaks: "when a step fails the steps before it are not taken back",
        edits: &[Edit {
            file: "crates/aos-host/src/change/apply.rs",
            old: "let count = index + usize::from(work.begun);",
            new: "let count = index * 0;",
        }],
        caught_by: &[attack("PATCH-07")],
    },
    // 5: power loss is survivable
    Mutant {
        name: "folder-not-synced",
        promise: 5,
        breaks: "the folders of changed files do not reach the disk before the receipt",
        edits: &[Edit {
            file: "crates/aos-host/src/change/apply.rs",
            old: "        for dir in self.touched.values() {\n            disk::sync(dir)?;\n        }\n",
            new: "",
        }],
        caught_by: &[attack("OWN-POWER-TWO-DISKS")],
    },
    Mutant {
        name: "receipt-not-synced",
        promise: 5,
        breaks: "the journal's commit does not reach the disk before the receipt",
        edits: &[Edit {
            file: "crates/aos-store/src/sqlite.rs",
            old: "Durability::Power => \"FULL\",",
            new: "Durability::Power => \"NORMAL\",",
        }],
        caught_by: &[attack("JRNL-07")],
    },
    // 6: undo is exact
    Mutant {
        name: "restore-unchecked",
        promise: 6,
        breaks: "a damaged pre-image is restored without a look at its hash",
        edits: &[Edit {
            file: "crates/aos-store/src/blobs.rs",
            old: "        let found = hash_name(&copy_hashing(&file, |_| Ok(()))?);\n",
            new: "        let found = blob_ref;\n",
        }],
        caught_by: &[attack("SNAP-10")],
    },
    Mutant {
        name: "conflict-overwritten",
        promise: 6,
        breaks: "undo overwrites what another process has written since",
        edits: &[Edit {
            file: "crates/aos-model/src/undo/plan.rs",
            old: "                _ => self.is_as_left(path, there.as_deref()),\n",
            new: "                _ => true,\n",
        }],
        caught_by: &[attack("SNAP-07"), attack("SNAP-17")],
    },
    Mutant {
        name: "redo-not-cleared",
        promise: 6,
        breaks: "what was rolled back can still be done again after a new change",
        edits: &[Edit {
            file: "crates/aos-model/src/state.rs",
            old: "let now = Turns { top: Some(step), undone: Vec::new() };",
            new: "let now = Turns { top: Some(step), undone: turns.undone.clone() };",
        }],
        caught_by: &[attack("SNAP-16")],
    },
    Mutant {
        name: "capture-fails-unseen",
        promise: 6,
        breaks: "a write continues although its pre-image could not be kept",
        edits: &[Edit {
            file: "crates/aos-host/src/change/apply.rs",
            old: "                self.keep(index, object, preimage_name).map_err(|why| not_kept(&put.at, why))?;",
            new: "                let _ = self.keep(index, object, preimage_name);",
        }],
        caught_by: &[attack("WRITE-09")],
    },
    // 7: replay is exact
    Mutant {
        name: "fold-differs",
        promise: 7,
        breaks: "the live state is folded from something else than the entry says",
        edits: &[Edit {
            file: "crates/aos-host/src/record.rs",
            old: "turn_id: ids.turn.clone(), blobs, facts };",
            new: "turn_id: None, blobs, facts };",
        }],
        caught_by: &[attack("OWN-REPLAY-LIVE")],
    },
    // 8: no hung command
    Mutant {
        name: "kill-the-group-only",
        promise: 8,
        breaks: "a process that left the command's group outlives it",
        edits: &[
            Edit {
                file: "crates/aos-sandbox/src/running.rs",
                old: "            Some(init) if self.has_pid_namespace => {\n                let _ = rustix::process::pidfd_send_signal(init, Signal::KILL);\n            }\n",
                new: "",
            },
            Edit {
                file: "crates/aos-sandbox/src/init.rs",
                old: "Some(InitRequest::Kill) | None if self.has_pid_namespace => return,",
                new: "Some(InitRequest::Kill) | None if self.has_pid_namespace => {\n                        let _ = rustix::process::kill_process_group(self.command, Signal::KILL);\n                    }",
            },
        ],
        caught_by: &[attack("EXEC-02")],
    },
    // 9: it always answers
    Mutant {
        name: "commands-hold-the-line",
        promise: 9,
        breaks: "whoever shares a connection with a command waits for its end",
        edits: &[Edit {
            file: "crates/aos-host/src/stage/in_session.rs",
            old: "(SessionRequest::Exec(_) | SessionRequest::Grep(_) | SessionRequest::Glob(_), _) => true,",
            new: "(SessionRequest::Grep(_) | SessionRequest::Glob(_), _) => true,",
        }],
        caught_by: &[attack("OWN-RPC-BESIDE")],
    },
    // 10: memory is bounded
    Mutant {
        name: "endless-line",
        promise: 10,
        breaks: "a line without an end is read for ever",
        edits: &[Edit {
            file: "crates/aos-wire/src/frame.rs",
            old: "if line.len() + taken > FRAME_BYTES_MAX {",
            new: "if false {",
        }],
        caught_by: &[attack("RPC-03")],
    },
    // 11: parsers do not crash
    Mutant {
        name: "cut-inside-a-character",
        promise: 11,
        breaks: "a long line of a patch is cut by bytes, which may be inside a character",
        edits: &[Edit {
            file: "crates/aos-model/src/patch/parse.rs",
            old: "Some((cut, _)) => format!(\"`{}…`\", &line[..cut]),",
            new: "Some(_) => format!(\"`{}…`\", &line[..CHARS_MAX]),",
        }],
        caught_by: &[Test { program: Program::Fuzz, name: "patch" }],
    },
    // 12: corruption is seen
    Mutant {
        name: "chain-unchecked",
        promise: 12,
        breaks: "an entry that was changed in the journal is taken for what was written",
        edits: &[Edit {
            file: "crates/aos-store/src/verify.rs",
            old: "if chain_value(&chain, row.seq, row.closes, &row.body) != found {",
            new: "if chain_value(&chain, row.seq, row.closes, &row.body).is_empty() {",
        }],
        caught_by: &[attack("JRNL-03")],
    },
    Mutant {
        name: "blob-unchecked",
        promise: 12,
        breaks: "a blob counts as whole when it is there",
        edits: &[Edit {
            file: "crates/aos-store/src/verify/blob_check.rs",
            old: "Ok(Some(found)) if found == blob_ref => return,",
            new: "Ok(Some(found)) if !found.is_empty() => return,",
        }],
        caught_by: &[attack("RPLY-05")],
    },
    Mutant {
        name: "manifest-unchecked",
        promise: 12,
        breaks: "a manifest is restored from without a look at its checksum",
        edits: &[Edit {
            file: "crates/aos-store/src/manifest.rs",
            old: "if manifest.checksum != manifest.sum() {",
            new: "if manifest.checksum.len() != manifest.sum().len() {",
        }],
        caught_by: &[attack("OWN-UNDO-MANIFEST-EDITED")],
    },
    Mutant {
        name: "terminal-unescaped",
        promise: 12,
        breaks: "the record shows control characters as they are, which can forge what a person sees",
        edits: &[Edit {
            file: "crates/aos-model/src/text.rs",
            old: "    c.is_control()\n        || matches!(c,",
            new: "    c == '\\0'\n        || matches!(c,",
        }],
        caught_by: &[attack("EXEC-29"), attack("RPC-18")],
    },
];
