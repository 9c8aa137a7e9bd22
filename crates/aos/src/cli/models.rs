//! What can be typed about the tools for models and the agents that use them.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Tool {
    /// Print the JSON schemas of the tools, as the provider wants them
    List {
        #[arg(long, value_enum, default_value_t = ProfileName::Anthropic)]
        profile: ProfileName,
        /// Also those of staged sessions
        #[arg(long)]
        staged: bool,
    },
    /// Call a tool and print exactly the text that a model would get
    Call(ToolCall),
    /// Print the markdown that teaches a model the tools of a session
    Prompt {
        /// The session; left out: the newest open one whose workdir contains the current folder
        #[arg(short, long, value_name = "S")]
        session: Option<String>,
        #[arg(long, value_enum, default_value_t = ProfileName::Anthropic)]
        profile: ProfileName,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ToolCall {
    /// The tool, `read_file` for example
    pub(crate) name: String,
    /// Its arguments as a JSON object; `-` reads them from standard input
    #[arg(default_value = "{}")]
    pub(crate) arguments: String,
    /// The session; left out: the newest open one whose workdir contains the current folder
    #[arg(short, long, value_name = "S")]
    pub(crate) session: Option<String>,
    /// Whose habits the tools follow
    #[arg(long, value_enum, default_value_t = ProfileName::Anthropic)]
    pub(crate) profile: ProfileName,
    /// The agent's id for this tool use
    #[arg(long, value_name = "ID")]
    pub(crate) tool_call: Option<String>,
    /// Print the text with the receipt's fields, as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Setup {
    /// Whose configuration
    #[arg(value_enum)]
    pub(crate) agent: Agent,
    /// Write it, after showing the difference
    #[arg(long)]
    pub(crate) write: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Agent {
    ClaudeCode,
    Codex,
    Gemini,
    Cursor,
    Vscode,
    Zed,
    Opencode,
}

#[derive(Debug, Args)]
pub(crate) struct Mcp {
    /// The folder to work in; left out: the current one
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// Work in a tree apart from the machine; with --root it starts as a copy of that folder
    #[arg(long, conflicts_with = "staged")]
    pub(crate) vfs: bool,
    /// Keep every change back until it is committed
    #[arg(long)]
    pub(crate) staged: bool,
    /// Serve this open session, may be given more than once; calls name theirs with `session`
    #[arg(short, long, value_name = "S")]
    pub(crate) session: Vec<String>,
    /// Whose habits the tools follow
    #[arg(long, value_enum, default_value_t = ProfileName::Anthropic)]
    pub(crate) profile: ProfileName,
    /// A policy: default, strict, permissive, or a file in JSON
    #[arg(long, value_name = "FILE|PRESET")]
    pub(crate) policy: Option<String>,
    /// The hard ceiling: a file with a capability in JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) capability: Option<PathBuf>,
    /// Listen here instead of the standard streams, 127.0.0.1:7000 for example; port 0 takes a free one
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<std::net::SocketAddr>,
}

/// Whose habits the tools follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ProfileName {
    /// apply_patch preferred
    Openai,
    /// edit_file preferred
    Anthropic,
    /// edit_file preferred
    Gemini,
    /// ls, read_file, write_file, edit_file, glob, grep, rm of a virtual tree
    Deepagents,
}
