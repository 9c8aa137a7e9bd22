//! Which tools there are, and the words by which models learn them. A profile is a choice of tools, order and words.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Act;
use crate::field::Kind::{Choice, Command, Count, Edits, Flag, Paths, Text};
use crate::field::{Field, may, need, schema};

/// Whose habits the tools follow.
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

/// What a client may tell a person about a tool before it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hints {
    pub read_only: bool,
    pub destructive: bool,
    pub idempotent: bool,
    pub open_world: bool,
}

const READS: Hints = Hints { read_only: true, destructive: false, idempotent: true, open_world: false };
/// It may replace or remove what is there. That it can be undone is no reason to hide it.
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
    pub(crate) act: Act,
}

impl Tool {
    pub fn schema(&self) -> Value {
        schema(self.fields)
    }

    /// Whether it starts programs: such a call takes long and can be cancelled.
    pub fn runs_commands(&self) -> bool {
        self.act == Act::Shell
    }

    /// Whether it is usually answered at once, and whether it may be asked again when it was not: what only reads, or
    /// changes with one effect.
    pub fn is_quick(&self) -> bool {
        use Act::{Edit, List, Ls, Patch, PlainEdit, PlainRead, PlainWrite, Read, Remove, Rm, Stat, Write};
        let reads = matches!(self.act, Read | List | Stat | PlainRead | Ls);
        reads || matches!(self.act, Write | Edit | Patch | Remove | PlainWrite | PlainEdit | Rm)
    }

    /// As the provider's own interface wants it.
    pub fn for_provider(&self, profile: Profile) -> Value {
        let (name, description, mut schema) = (self.name, self.description, self.schema());
        match profile {
            Profile::Openai => json!({
                "type": "function", "name": name, "description": description, "parameters": schema, "strict": false,
            }),
            Profile::Gemini => {
                // Its schemas are a subset that does not know this word, nor needs it: what is unknown is refused.
                without(&mut schema, "additionalProperties");
                json!({ "name": name, "description": description, "parameters": schema })
            }
            Profile::Anthropic | Profile::Deepagents => {
                json!({ "name": name, "description": description, "input_schema": schema })
            }
        }
    }
}

fn without(value: &mut Value, key: &str) {
    match value {
        Value::Object(map) => {
            map.remove(key);
            map.values_mut().for_each(|inner| without(inner, key));
        }
        Value::Array(list) => list.iter_mut().for_each(|inner| without(inner, key)),
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
    description: "Reads a text file. Each line comes as `   1 | text`; the numbers are not part of the file. A long \
                  file comes in pages: pass the `offset` that the end of the page names to read on. A path \
                  `blob:sha256:…`, as a cut result names it, reads the rest of that result.",
    hints: READS,
    fields: &[
        need("path", Text, PATH).alias("file_path"),
        may("offset", Count(0), "Lines to skip from the start. 0, the default, begins at line 1."),
        may("limit", Count(1), "Lines to return, at most 2000 (the default)."),
    ],
    act: Act::Read,
};

const WRITE_FILE: Tool = Tool {
    name: "write_file",
    title: "Write a file",
    description: "Writes a whole file: new, or in place of what is there. To change a part of a file use the editing \
                  tools instead. Folders that are missing are made. Can be taken back with `undo`.",
    hints: SETS,
    fields: &[
        need("path", Text, PATH).alias("file_path"),
        need("content", Text, "The whole new content."),
        may(
            "mode",
            Choice(&["overwrite", "create_new", "append"]),
            "`overwrite` (default), `create_new` to fail where a file is, or `append`.",
        ),
        may("create_parents", Flag, "Make missing folders. Default true."),
        may("executable", Flag, "Make the file executable."),
    ],
    act: Act::Write,
};

const EDIT_FIELDS: &[Field] = &[
    need("path", Text, PATH).alias("file_path"),
    may(
        "old_string",
        Text,
        "The text to replace, copied from the file without the line numbers, and long enough to stand there once.",
    ),
    may("new_string", Text, "What to put in its place. Empty removes it."),
    may("replace_all", Flag, "Replace every place. Default false: several places are an error."),
    may(
        "edits",
        Edits,
        "Several replacements in the file at once, instead of old_string and new_string; all or none is made.",
    ),
];

const EDIT_FILE_PREFERRED: Tool = Tool {
    name: "edit_file",
    title: "Edit a file",
    description: "Replaces text in a file; the preferred way to change one. `old_string` must stand there exactly \
                  once (differences in white space are tolerated, nothing is guessed). A failure shows the closest \
                  place. Can be taken back with `undo`.",
    hints: CHANGES,
    fields: EDIT_FIELDS,
    act: Act::Edit,
};

const EDIT_FILE: Tool = Tool {
    description: "Replaces text in one file, for a small change; prefer apply_patch for anything larger. `old_string` \
                  must stand there exactly once (differences in white space are tolerated, nothing is guessed). Can \
                  be taken back with `undo`.",
    ..EDIT_FILE_PREFERRED
};

const APPLY_PATCH_PREFERRED: Tool = Tool {
    name: "apply_patch",
    title: "Apply a patch",
    description: "Changes files by a patch; the preferred way to edit. All of it lands or nothing does. Format: \
                  `*** Begin Patch`, then for each file `*** Add File: P` (every line with `+`), `*** Delete File: P` \
                  or `*** Update File: P` (optionally `*** Move to: Q`, then hunks: `@@` with an optional line to \
                  find, three lines of context with a leading space, `-` for removed and `+` for added lines), then \
                  `*** End Patch`. Paths are relative. Can be taken back with `undo`.",
    hints: CHANGES,
    fields: &[
        need("patch", Text, "The patch, from `*** Begin Patch` to `*** End Patch`.").alias("input"),
        may("dry_run", Flag, "Only check whether it would apply."),
    ],
    act: Act::Patch,
};

const APPLY_PATCH: Tool = Tool {
    description: "Changes several files by one patch, whole or not at all; prefer edit_file for one place in one \
                  file. Format: `*** Begin Patch`, then for each file `*** Add File: P` (every line with `+`), `*** \
                  Delete File: P` or `*** Update File: P` (optionally `*** Move to: Q`, then hunks: `@@`, context \
                  lines with a leading space, `-` and `+` lines), then `*** End Patch`. Paths are relative. Can be \
                  taken back with `undo`.",
    ..APPLY_PATCH_PREFERRED
};

const GREP: Tool = Tool {
    name: "grep",
    title: "Search in files",
    description: "Searches files with a regular expression (ripgrep's). Lines come as `path:line:text` in path order. \
                  Hidden and ignored files are skipped.",
    hints: READS,
    fields: &[
        need("pattern", Text, "The regular expression."),
        may("path", Text, "File or folder to search. Default: the whole workspace."),
        may("glob_filter", Text, "Only files that match, `*.rs` for example; `!*.md` leaves out.")
            .alias("glob"),
        may("case_insensitive", Flag, "Ignore case."),
        may("fixed_strings", Flag, "Take the pattern as plain text."),
        may("context_lines", Count(0), "Lines to show around each match."),
        may("files_only", Flag, "Only the names of files that match."),
        may("include_ignored", Flag, "Also search hidden and ignored files."),
        may("max_results", Count(1), "Default 100."),
    ],
    act: Act::Grep,
};

const GLOB: Tool = Tool {
    name: "glob",
    title: "Find files by name",
    description: "Finds files by a pattern, the newest first. `*.rs` is one folder, `**/*.rs` any depth.",
    hints: READS,
    fields: &[
        need("pattern", Text, "The pattern, relative to `path`."),
        may("path", Text, "Folder to start in. Default: the workspace."),
        may("include_ignored", Flag, "Also hidden and ignored files."),
        may("max_results", Count(1), "Default 1000."),
    ],
    act: Act::Glob,
};

const LIST_DIR: Tool = Tool {
    name: "list_dir",
    title: "List a folder",
    description: "Lists one folder by name. Folders end in `/`, links in `@`.",
    hints: READS,
    fields: &[
        may("path", Text, "The folder. Default: the workspace."),
        may("max_results", Count(1), "Default 1000."),
    ],
    act: Act::List,
};

const STAT: Tool = Tool {
    name: "stat",
    title: "Look at a path",
    description: "Tells whether a path exists and its kind, size and mode.",
    hints: READS,
    fields: &[
        need("path", Text, "The path, relative to the workspace.").alias("file_path"),
        may("no_follow", Flag, "Look at a link itself."),
    ],
    act: Act::Stat,
};

const REMOVE: Tool = Tool {
    name: "remove",
    title: "Remove a file or folder",
    description: "Removes a file, or a folder with `recursive`. Can be taken back with `undo`.",
    hints: CHANGES,
    fields: &[
        need("path", Text, "The path, relative to the workspace.").alias("file_path"),
        may("recursive", Flag, "Remove a folder with all that is in it."),
    ],
    act: Act::Remove,
};

const SHELL: Tool = Tool {
    name: "shell",
    title: "Run a command",
    description: "Runs a command in the workspace, behind walls: it sees the workspace and the system's programs, and \
                  usually no network. It reads nothing from standard input. Give a string to run it with `sh -c`, or \
                  an array of the program and its arguments. Answers with the output and the exit code. For reading, \
                  searching and editing files prefer the tools made for it. Do not start servers: everything that \
                  was started ends with the command.",
    hints: RUNS,
    fields: &[
        need("command", Command, "The command line, or program and arguments.").alias("argv"),
        may("cwd", Text, "Folder to run in. Default: the workspace."),
        may("timeout_ms", Count(1), "End it after so many milliseconds. Default 600000."),
    ],
    act: Act::Shell,
};

const UNDO: Tool = Tool {
    name: "undo",
    title: "Undo a tool call",
    description: "Takes back what the last changing tool call did to files, or the one named. Refuses when a file was \
                  changed since by somebody else. Can itself be taken back with `redo`.",
    hints: CHANGES,
    fields: &[may(
        "tool_call",
        Text,
        "The id of a tool call, from `history`. Default: the last one that changed something.",
    )],
    act: Act::Undo,
};

const REDO: Tool = Tool {
    name: "redo",
    title: "Redo what was undone",
    description: "Does again what `undo` without a tool call took back last.",
    hints: CHANGES,
    fields: &[],
    act: Act::Redo,
};

const HISTORY: Tool = Tool {
    name: "history",
    title: "Show what was changed",
    description: "Lists the tool calls of this session that changed files, the newest first, with their ids for \
                  `undo` and `diff`.",
    hints: READS,
    fields: &[may("limit", Count(1), "How many. Default 20.")],
    act: Act::History,
};

const DIFF: Tool = Tool {
    name: "diff",
    title: "Show what a tool call changed",
    description: "Shows what a tool call changed, as a unified diff.",
    hints: READS,
    fields: &[need("tool_call", Text, "The id, from `history`.")],
    act: Act::Diff,
};

const STAGE_DIFF: Tool = Tool {
    name: "stage_diff",
    title: "Show the staged changes",
    description: "Shows all changes of this staged session, which are not in the real folder yet, as a unified diff.",
    hints: READS,
    fields: &[may("paths", Paths, "Only these paths.")],
    act: Act::StageDiff,
};

const STAGE_COMMIT: Tool = Tool {
    name: "stage_commit",
    title: "Write the staged changes",
    description: "Writes the staged changes into the real folder, all or none. Refuses when a file was changed \
                  underneath.",
    hints: CHANGES,
    fields: &[may("paths", Paths, "Only these paths.")],
    act: Act::StageCommit,
};

const DEEPAGENTS: &[Tool] = &[
    Tool {
        name: "ls",
        title: "List a directory",
        description: "List directory entries under a relative path. `/` is the root.",
        hints: READS,
        fields: &[may("path", Text, "Directory to list. Default: the root.")],
        act: Act::Ls,
    },
    Tool {
        name: "read_file",
        title: "Read a file",
        description: "Read a file's content with numbered lines and line-based pagination.",
        hints: READS,
        fields: &[
            need("file_path", Text, "Path of the file.").alias("path"),
            may("offset", Count(i64::MIN), "Lines to skip. Default 0."),
            may("limit", Count(i64::MIN), "Lines to return, at most 2000 (the default)."),
        ],
        act: Act::PlainRead,
    },
    Tool {
        name: "write_file",
        title: "Create a file",
        description: "Create a new text file. Fails when the file exists: use edit_file then.",
        hints: ADDS,
        fields: &[
            need("file_path", Text, "Path of the new file.").alias("path"),
            need("content", Text, "UTF-8 text, at most 48,000 characters."),
        ],
        act: Act::PlainWrite,
    },
    Tool {
        name: "edit_file",
        title: "Edit a file",
        description: "Replace exact text in an existing file.",
        hints: CHANGES,
        fields: &[
            need("file_path", Text, "Path of the file.").alias("path"),
            need("old_string", Text, "Exact text to replace."),
            need("new_string", Text, "What to put in its place."),
            may("replace_all", Flag, "Replace every occurrence. Default false: the text must occur once."),
        ],
        act: Act::PlainEdit,
    },
    Tool {
        name: "glob",
        title: "Find files",
        description: "Match files by a shell pattern relative to a directory, sorted by path. `**/` matches any depth.",
        hints: READS,
        fields: &[
            need("pattern", Text, "The pattern."),
            may("path", Text, "Directory to start in. Default: the root."),
        ],
        act: Act::PlainGlob,
    },
    Tool {
        name: "grep",
        title: "Search files",
        description: "Search files with a regular expression. Binary files are skipped.",
        hints: READS,
        fields: &[
            need("pattern", Text, "The regular expression."),
            may("path", Text, "File or directory to search."),
            may("glob", Text, "Only files that match.").alias("glob_filter"),
        ],
        act: Act::PlainGrep,
    },
    Tool {
        name: "rm",
        title: "Remove",
        description: "Remove a file, or a directory with everything in it.",
        hints: CHANGES,
        fields: &[need("path", Text, "What to remove.").alias("file_path")],
        act: Act::Rm,
    },
];
