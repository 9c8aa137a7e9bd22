//! The subcommands for models and agents: `tool`, `mcp`, `setup`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Tool {
    /// Print the JSON schemas of the tools in the provider's format
    List {
        /// Tool names and preferences for this provider
        #[arg(long, value_enum, default_value_t = ProfileName::Anthropic)]
        profile: ProfileName,
        /// Include the tools of staged sessions
        #[arg(long)]
        staged: bool,
    },
    /// Call a tool and print the text that a model would get
    Call(ToolCall),
    /// Print the instructions for a model that uses the tools
    Prompt {
        /// The session (default: the newest open one of the current folder)
        #[arg(short, long, value_name = "S")]
        session: Option<String>,
        /// Tool names and preferences for this provider
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
    /// The session (default: the newest open one of the current folder)
    #[arg(short, long, value_name = "S")]
    pub(crate) session: Option<String>,
    /// Tool names and preferences for this provider
    #[arg(long, value_enum, default_value_t = ProfileName::Anthropic)]
    pub(crate) profile: ProfileName,
    /// The agent's id for this tool call
    #[arg(long, value_name = "ID")]
    pub(crate) tool_call: Option<String>,
    /// Print the text and the receipt's fields as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Setup {
    /// The agent to configure
    #[arg(value_enum)]
    pub(crate) agent: Agent,
    /// Write the file, after showing the diff
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
    /// Work in this folder (default: the current one)
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// Keep files in a layer; with --root it starts as a copy of that folder
    #[arg(long, conflicts_with = "staged")]
    pub(crate) vfs: bool,
    /// Hold changes back until they are committed
    #[arg(long)]
    pub(crate) staged: bool,
    /// Serve this open session (can be repeated); calls select one with `session`
    #[arg(short, long, value_name = "S")]
    pub(crate) session: Vec<String>,
    /// Tool names and preferences for this provider
    #[arg(long, value_enum, default_value_t = ProfileName::Anthropic)]
    pub(crate) profile: ProfileName,
    /// Also return each result's fields as `structuredContent`; many clients then show the model only that
    #[arg(long)]
    pub(crate) structured: bool,
    /// A policy: default, strict, permissive, or a file in JSON
    #[arg(long, value_name = "FILE|PRESET")]
    pub(crate) policy: Option<String>,
    /// A capability file in JSON: the session's ceiling
    #[arg(long, value_name = "FILE")]
    pub(crate) capability: Option<PathBuf>,
    /// Serve HTTP on this address instead of the standard streams, such as 127.0.0.1:7000; port 0 picks a free port
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<std::net::SocketAddr>,
    /// Let --http listen on an address that other machines can reach
    #[arg(long, requires = "http")]
    pub(crate) allow_remote: bool,
}

/// The provider whose conventions the tools follow.
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
