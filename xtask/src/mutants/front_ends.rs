//! Planted bugs in the front ends: MCP, HTTP, set-up and printed text.

use super::{Edit, Mutant, attack};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "warnings-not-shown",
        promise: 2,
        breaks: "the text of a tool's result leaves out what policy warns of",
        edits: &[Edit {
            file: "crates/aos-tools/src/context.rs",
            old: "else { text + &warnings };",
            new: "else { text };",
        }],
        caught_by: &[attack("S22"), attack("OWN-S22-STATELESS")],
    },
    Mutant {
        name: "http-strangers-stay",
        promise: 9,
        breaks: "a connection that never sends the token stays open as long as it likes",
        edits: &[Edit {
            file: "crates/aos-wire/src/mcp/http.rs",
            old: "const STRANGER_TIMEOUT: Duration = Duration::from_secs(10);",
            new: "const STRANGER_TIMEOUT: Duration = Duration::from_secs(10_000);",
        }],
        caught_by: &[attack("OWN-S19-END")],
    },
    Mutant {
        name: "http-sessions-unbounded",
        promise: 10,
        breaks: "any number of MCP sessions is opened",
        edits: &[Edit {
            file: "crates/aos-wire/src/mcp/http.rs",
            old: "const SESSIONS_MAX: usize = 64;",
            new: "const SESSIONS_MAX: usize = 64_000;",
        }],
        caught_by: &[attack("OWN-S19-SESSIONS")],
    },
    Mutant {
        name: "setup-follows-links",
        promise: 1,
        breaks: "settings and manual pages are written where a planted link leads",
        edits: &[
            Edit {
                file: "crates/aos/src/own_file.rs",
                old: "OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC",
                new: "OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC",
            },
            Edit {
                file: "crates/aos/src/own_file.rs",
                old: "ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS",
                new: "ResolveFlags::NO_MAGICLINKS",
            },
        ],
        caught_by: &[attack("S32"), attack("OWN-S32-MAN")],
    },
    Mutant {
        name: "setup-in-homes-of-others",
        promise: 1,
        breaks: "root writes settings into the home of another user",
        edits: &[Edit {
            file: "crates/aos/src/own_file.rs",
            old: "        if owner != own {\n",
            new: "        if owner != own && own != 0 {\n",
        }],
        caught_by: &[attack("OWN-S32-UID")],
    },
    Mutant {
        name: "unfinished-blobs-stay",
        promise: 10,
        breaks: "a start keeps the temporary files of blobs that were not finished",
        edits: &[Edit {
            file: "crates/aos-store/src/gc.rs",
            old: "if name.starts_with(b\"tmp-\") {",
            new: "if name.starts_with(b\"tmp-none\") {",
        }],
        caught_by: &[attack("OWN-S35-KILLED")],
    },
    Mutant {
        name: "put-takes-devices",
        promise: 10,
        breaks: "`aos blob put` reads devices",
        edits: &[Edit {
            file: "crates/aos/src/commands/blob.rs",
            old: "FileType::RegularFile | FileType::Fifo) {",
            new: "FileType::RegularFile | FileType::Fifo | FileType::CharacterDevice) {",
        }],
        caught_by: &[attack("S35")],
    },
    Mutant {
        name: "unseen-characters-shown",
        promise: 9,
        breaks: "zero-width characters pass through log, diff and the texts of tools",
        edits: &[Edit {
            file: "crates/aos-model/src/text.rs",
            old: "'\\u{200b}'..='\\u{200f}'",
            new: "'\\u{200e}'..='\\u{200f}'",
        }],
        caught_by: &[attack("S21"), attack("OWN-S21-TOOLS")],
    },
    Mutant {
        name: "tool-texts-raw",
        promise: 9,
        breaks: "the texts of tools show names as they are",
        edits: &[Edit {
            file: "crates/aos-tools/src/lib.rs",
            old: "text: escape_lines_for_model(&outcome.text), ..outcome",
            new: "..outcome",
        }],
        caught_by: &[attack("OWN-S21-TOOLS")],
    },
    Mutant {
        name: "programs-preload",
        promise: 2,
        breaks: "a command sets LD_PRELOAD for a program that the capability allows",
        edits: &[Edit { file: "crates/aos-model/src/environment.rs", old: "    \"LD_\",\n", new: "" }],
        caught_by: &[attack("S13"), attack("OWN-S13-PRELOAD")],
    },
    Mutant {
        name: "programs-in-the-workspace",
        promise: 2,
        breaks: "a capability may name programs that the session can write",
        edits: &[Edit {
            file: "crates/aos-host/src/lifecycle/open.rs",
            old: "    programs::check_places(&session, &host.executor.surroundings.path)?;\n",
            new: "",
        }],
        caught_by: &[attack("OWN-S13-PLACES")],
    },
    Mutant {
        name: "batch-unbounded",
        promise: 10,
        breaks: "a batch of more than 100 requests is cut and answered instead of refused",
        edits: &[Edit {
            file: "crates/aos-wire/src/rpc.rs",
            old: "batch.is_cut = true;",
            new: "batch.is_cut = false;",
        }],
        caught_by: &[attack("S29")],
    },
    Mutant {
        name: "unfinished-lines-stay",
        promise: 9,
        breaks: "no unfinished line makes room for a line of another connection",
        edits: &[Edit {
            file: "crates/aos-wire/src/frame.rs",
            old: "                state.evict(self.id, if waited < PATIENCE { IDLE_AFTER } else { Duration::ZERO });\n",
            new: "",
        }],
        caught_by: &[attack("OWN-S29-IDLE")],
    },
];
