//! The tools with their names, descriptions and arguments. A profile chooses tools, their order and their texts.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::ToolKind;
use crate::field::Kind::{Choice, Command, Count, Edits, Flag, Paths, Text};
use crate::field::{Field, optional, required, schema};

/// The provider whose conventions the tools follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    Openai,
    Anthropic,
    Gemini,
    Deepagents,
}

impl Profile {
    pub const ALL: [Profile; 4] = [Profile::Openai, Profile::Anthropic, Profile::Gemini, Profile::Deepagents];

    pub fn name(self) -> &'static str {
        match self {
            Profile::Openai => "openai",
            Profile::Anthropic => "anthropic",
            Profile::Gemini => "gemini",
            Profile::Deepagents => "deepagents",
        }
    }
}

/// The tool annotations of MCP, which clients use to ask before a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hints {
    pub read_only: bool,
    pub destructive: bool,
    pub idempotent: bool,
    pub open_world: bool,
}

const READS: Hints = Hints { read_only: true, destructive: false, idempotent: true, open_world: false };
/// May replace or remove existing content; that it can be undone does not make it less destructive.
const CHANGES: Hints = Hints { read_only: false, destructive: true, idempotent: false, open_world: false };
const SETS: Hints = Hints { idempotent: true, ..CHANGES };
const RUNS: Hints = Hints { open_world: true, ..CHANGES };
const ADDS: Hints = Hints { destructive: false, ..CHANGES };

/// A tool as a model sees it.
#[derive(Debug, Clone, Copy)]
pub struct Tool {
    pub name: &'static str,
    pub title: &'static str,
    pub description: &'static str,
    pub hints: Hints,
    pub(crate) fields: &'static [Field],
    pub(crate) kind: ToolKind,
}

impl Tool {
    pub fn schema(&self) -> Value {
        schema(self.fields)
    }

    /// Whether it starts programs: such a call can take long and can be cancelled.
    pub fn runs_commands(&self) -> bool {
        self.kind == ToolKind::Shell
    }

    /// Whether it is usually answered at once: it only reads a file or folder, or changes something with one effect.
    pub fn is_quick(&self) -> bool {
        use ToolKind::{
            DeepagentsEdit, DeepagentsRead, DeepagentsWrite, Edit, List, Ls, Patch, Read, Remove, Rm, Stat,
            Write,
        };
        let reads = matches!(self.kind, Read | List | Stat | DeepagentsRead | Ls);
        reads || matches!(self.kind, Write | Edit | Patch | Remove | DeepagentsWrite | DeepagentsEdit | Rm)
    }

    /// The tool in the provider's own format.
    pub fn for_provider(&self, profile: Profile) -> Value {
        let (name, description, mut schema) = (self.name, self.description, self.schema());
        match profile {
            Profile::Openai => json!({
                "type": "function", "name": name, "description": description, "parameters": schema, "strict": false,
            }),
            Profile::Gemini => {
                // Gemini's schema subset does not have this keyword. Undocumented arguments are rejected anyway.
                remove_key(&mut schema, "additionalProperties");
                json!({ "name": name, "description": description, "parameters": schema })
            }
            Profile::Anthropic | Profile::Deepagents => {
                json!({ "name": name, "description": description, "input_schema": schema })
            }
        }
    }
}

fn remove_key(value: &mut Value, key: &str) {
    match value {
        Value::Object(map) => {
            map.remove(key);
            map.values_mut().for_each(|inner| remove_key(inner, key));
        }
        Value::Array(list) => list.iter_mut().for_each(|inner| remove_key(inner, key)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The tools of a profile, the preferred ones first.
pub fn tools(profile: Profile, staged: bool) -> Vec<Tool> {
    let writers = match profile {
        Profile::Deepagents => return DEEPAGENTS.to_vec(),
        Profile::Openai => [APPLY_PATCH_PREFERRED, EDIT_FILE, WRITE_FILE],
        Profile::Anthropic | Profile::Gemini => [EDIT_FILE_PREFERRED, WRITE_FILE, APPLY_PATCH],
    };
    let mut tools = vec![READ_FILE];
    tools.extend(writers);
    tools.extend([GREP, GLOB, LIST_DIR, STAT, REMOVE, SHELL, UNDO, REDO, HISTORY, DIFF]);
    if staged {
        tools.extend([STAGE_DIFF, STAGE_COMMIT]);
    }
    tools
}

const PATH: &str = "Path of the file, relative to the workspace.";

const READ_FILE: Tool = Tool {
    name: "read_file",
    title: "Read a file",
    description: "Reads a text file. Lines are returned as `   1 | text`; the numbers are not part of the file. A long \
                  file is returned in pages: the end of a page gives the `offset` of the next. A path \
                  `blob:sha256:…`, given by a truncated result, reads that result in full.",
    hints: READS,
    fields: &[
        required("path", Text, PATH).alias("file_path"),
        optional("offset", Count(0), "Lines to skip. Default 0: start at line 1."),
        optional("limit", Count(1), "Lines to return, at most 2000 (the default)."),
    ],
    kind: ToolKind::Read,
};

const WRITE_FILE: Tool = Tool {
    name: "write_file",
    title: "Write a file",
    description: "Writes a whole file, new or existing. To change a part of a file use the editing tools instead. \
                  Missing folders are created. `undo` reverts it.",
    hints: SETS,
    fields: &[
        required("path", Text, PATH).alias("file_path"),
        required("content", Text, "The whole new content."),
        optional(
            "mode",
            Choice(&["overwrite", "create_new", "append"]),
            "`overwrite` (default), `create_new` to fail if the file exists, or `append`.",
        ),
        optional("create_parents", Flag, "Create missing folders. Default true."),
        optional("executable", Flag, "Make the file executable."),
    ],
    kind: ToolKind::Write,
};

const EDIT_FIELDS: &[Field] = &[
    required("path", Text, PATH).alias("file_path"),
    optional(
        "old_string",
        Text,
        "The text to replace, copied from the file without line numbers, long enough to occur once.",
    ),
    optional("new_string", Text, "The replacement. Empty removes the text."),
    optional("replace_all", Flag, "Replace every occurrence. Default false: several are an error."),
    optional(
        "edits",
        Edits,
        "Several replacements at once, instead of old_string and new_string; all or none.",
    ),
];

const EDIT_FILE_PREFERRED: Tool = Tool {
    name: "edit_file",
    title: "Edit a file",
    description: "Replaces text in a file; the preferred way to change one. `old_string` must occur exactly once \
                  (differences in white space are tolerated, nothing else). A failure shows the closest match. \
                  `undo` reverts it.",
    hints: CHANGES,
    fields: EDIT_FIELDS,
    kind: ToolKind::Edit,
};

const EDIT_FILE: Tool = Tool {
    description: "Replaces text in one file, for a small change; prefer apply_patch for anything larger. `old_string` \
                  must occur exactly once (differences in white space are tolerated, nothing else). `undo` reverts \
                  it.",
    ..EDIT_FILE_PREFERRED
};

const APPLY_PATCH_PREFERRED: Tool = Tool {
    name: "apply_patch",
    title: "Apply a patch",
    description: "Changes files with a patch, all or nothing; the preferred way to edit. Format: \
                  `*** Begin Patch`, then for each file `*** Add File: P` (every line with `+`), `*** Delete File: P` \
                  or `*** Update File: P` (optionally `*** Move to: Q`, then hunks: `@@` with an optional line to \
                  find, three lines of context with a leading space, `-` for removed and `+` for added lines), then \
                  `*** End Patch`. Paths are relative. `undo` reverts it.",
    hints: CHANGES,
    fields: &[
        required("patch", Text, "The patch, from `*** Begin Patch` to `*** End Patch`.").alias("input"),
        optional("dry_run", Flag, "Only check whether it would apply."),
    ],
    kind: ToolKind::Patch,
};

const APPLY_PATCH: Tool = Tool {
    description: "Changes several files with one patch, all or nothing; prefer edit_file for one place in one \
                  file. Format: `*** Begin Patch`, then for each file `*** Add File: P` (every line with `+`), `*** \
                  Delete File: P` or `*** Update File: P` (optionally `*** Move to: Q`, then hunks: `@@`, context \
                  lines with a leading space, `-` and `+` lines), then `*** End Patch`. Paths are relative. `undo` \
                  reverts it.",
    ..APPLY_PATCH_PREFERRED
};

const GREP: Tool = Tool {
    name: "grep",
    title: "Search in files",
    description: "Searches files with a regular expression (ripgrep syntax). Matches are `path:line:text` in path order. \
                  Hidden and ignored files are skipped.",
    hints: READS,
    fields: &[
        required("pattern", Text, "The regular expression."),
        optional("path", Text, "File or folder to search. Default: the whole workspace."),
        optional("glob_filter", Text, "Only matching files, such as `*.rs`; `!*.md` excludes.").alias("glob"),
        optional("case_insensitive", Flag, "Ignore case."),
        optional("fixed_strings", Flag, "The pattern is plain text."),
        optional("context_lines", Count(0), "Lines to show around each match."),
        optional("files_only", Flag, "Only the names of matching files."),
        optional("include_ignored", Flag, "Also search hidden and ignored files."),
        optional("max_results", Count(1), "Default 100."),
    ],
    kind: ToolKind::Grep,
};

const GLOB: Tool = Tool {
    name: "glob",
    title: "Find files by name",
    description: "Finds files by a glob pattern, newest first. `*.rs` matches in one folder, `**/*.rs` at any depth.",
    hints: READS,
    fields: &[
        required("pattern", Text, "The pattern, relative to `path`."),
        optional("path", Text, "Folder to start in. Default: the workspace."),
        optional("include_ignored", Flag, "Also hidden and ignored files."),
        optional("max_results", Count(1), "Default 1000."),
    ],
    kind: ToolKind::Glob,
};

const LIST_DIR: Tool = Tool {
    name: "list_dir",
    title: "List a folder",
    description: "Lists one folder, sorted by name. Folders end in `/`, links in `@`.",
    hints: READS,
    fields: &[
        optional("path", Text, "The folder. Default: the workspace."),
        optional("max_results", Count(1), "Default 1000."),
    ],
    kind: ToolKind::List,
};

const STAT: Tool = Tool {
    name: "stat",
    title: "Look at a path",
    description: "Shows whether a path exists, and its kind, size and mode.",
    hints: READS,
    fields: &[
        required("path", Text, "The path, relative to the workspace.").alias("file_path"),
        optional("no_follow", Flag, "Do not follow a link."),
    ],
    kind: ToolKind::Stat,
};

const REMOVE: Tool = Tool {
    name: "remove",
    title: "Remove a file or folder",
    description: "Removes a file, or a folder with `recursive`. `undo` reverts it.",
    hints: CHANGES,
    fields: &[
        required("path", Text, "The path, relative to the workspace.").alias("file_path"),
        optional("recursive", Flag, "Remove a folder with everything in it."),
    ],
    kind: ToolKind::Remove,
};

const SHELL: Tool = Tool {
    name: "shell",
    title: "Run a command",
    description: "Runs a command in the workspace, in a sandbox: it sees the workspace and the system's programs, and \
                  usually no network. Standard input is empty. Pass a string to run it with `sh -c`, or an array of \
                  program and arguments. Returns the output and the exit code. To read, search and edit files prefer \
                  the other tools. Do not start servers: all processes end with the command.",
    hints: RUNS,
    fields: &[
        required("command", Command, "A command line, or program and arguments.").alias("argv"),
        optional("cwd", Text, "Folder to run in. Default: the workspace."),
        optional("timeout_ms", Count(1), "End it after this many milliseconds. Default 600000."),
    ],
    kind: ToolKind::Shell,
};

const UNDO: Tool = Tool {
    name: "undo",
    title: "Undo a tool call",
    description: "Reverts the file changes of the last tool call that made any, or of the given one. Refuses if one of \
                  the files has changed since. `redo` reverts the undo.",
    hints: CHANGES,
    fields: &[optional(
        "tool_call",
        Text,
        "The id of a tool call, from `history`. Default: the last that changed files.",
    )],
    kind: ToolKind::Undo,
};

const REDO: Tool = Tool {
    name: "redo",
    title: "Redo what was undone",
    description: "Reverts the last `undo` that had no `tool_call`.",
    hints: CHANGES,
    fields: &[],
    kind: ToolKind::Redo,
};

const HISTORY: Tool = Tool {
    name: "history",
    title: "Show what was changed",
    description: "Lists the tool calls of this session that changed files, newest first, with their ids for \
                  `undo` and `diff`.",
    hints: READS,
    fields: &[optional("limit", Count(1), "How many. Default 20.")],
    kind: ToolKind::History,
};

const DIFF: Tool = Tool {
    name: "diff",
    title: "Show what a tool call changed",
    description: "Shows what a tool call changed, as a unified diff.",
    hints: READS,
    fields: &[required("tool_call", Text, "The id, from `history`.")],
    kind: ToolKind::Diff,
};

const STAGE_DIFF: Tool = Tool {
    name: "stage_diff",
    title: "Show the staged changes",
    description: "Shows the changes of this staged session that are not written to the real folder yet, as a unified diff.",
    hints: READS,
    fields: &[optional("paths", Paths, "Only these paths.")],
    kind: ToolKind::StageDiff,
};

const STAGE_COMMIT: Tool = Tool {
    name: "stage_commit",
    title: "Write the staged changes",
    description: "Writes the staged changes to the real folder, all or none. Refuses if one of the files has changed \
                  there.",
    hints: CHANGES,
    fields: &[optional("paths", Paths, "Only these paths.")],
    kind: ToolKind::StageCommit,
};

const DEEPAGENTS: &[Tool] = &[
    Tool {
        name: "ls",
        title: "List a directory",
        description: "List directory entries under a relative path. `/` is the root.",
        hints: READS,
        fields: &[optional("path", Text, "Directory to list. Default: the root.")],
        kind: ToolKind::Ls,
    },
    Tool {
        name: "read_file",
        title: "Read a file",
        description: "Read a file's content with numbered lines and line-based pagination.",
        hints: READS,
        fields: &[
            required("file_path", Text, "Path of the file.").alias("path"),
            optional("offset", Count(i64::MIN), "Lines to skip. Default 0."),
            optional("limit", Count(i64::MIN), "Lines to return, at most 2000 (the default)."),
        ],
        kind: ToolKind::DeepagentsRead,
    },
    Tool {
        name: "write_file",
        title: "Create a file",
        description: "Create a new text file. Fails when the file exists: use edit_file then.",
        hints: ADDS,
        fields: &[
            required("file_path", Text, "Path of the new file.").alias("path"),
            required("content", Text, "UTF-8 text, at most 48,000 characters."),
        ],
        kind: ToolKind::DeepagentsWrite,
    },
    Tool {
        name: "edit_file",
        title: "Edit a file",
        description: "Replace exact text in an existing file.",
        hints: CHANGES,
        fields: &[
            required("file_path", Text, "Path of the file.").alias("path"),
            required("old_string", Text, "Exact text to replace."),
            required("new_string", Text, "What to put in its place."),
            optional(
                "replace_all",
                Flag,
                "Replace every occurrence. Default false: the text must occur once.",
            ),
        ],
        kind: ToolKind::DeepagentsEdit,
    },
    Tool {
        name: "glob",
        title: "Find files",
        description: "Match files by a shell pattern relative to a directory, sorted by path. `**/` matches any depth.",
        hints: READS,
        fields: &[
            required("pattern", Text, "The pattern."),
            optional("path", Text, "Directory to start in. Default: the root."),
        ],
        kind: ToolKind::DeepagentsGlob,
    },
    Tool {
        name: "grep",
        title: "Search files",
        description: "Search files with a regular expression. Binary files are skipped.",
        hints: READS,
        fields: &[
            required("pattern", Text, "The regular expression."),
            optional("path", Text, "File or directory to search."),
            optional("glob", Text, "Only files that match.").alias("glob_filter"),
        ],
        kind: ToolKind::DeepagentsGrep,
    },
    Tool {
        name: "rm",
        title: "Remove",
        description: "Remove a file, or a directory with everything in it.",
        hints: CHANGES,
        fields: &[required("path", Text, "What to remove.").alias("file_path")],
        kind: ToolKind::Rm,
    },
];
