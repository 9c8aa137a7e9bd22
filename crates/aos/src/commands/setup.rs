//! `aos setup`: prints the configuration by which an agent uses `aos mcp`, or writes it after showing the diff.

mod ordered;
mod toml;

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::Exit;
use crate::cli::{Agent, Setup};
use crate::render::{BAD, DIM, GOOD};

/// The configuration file of an agent, and our entry in it.
struct AgentConfig {
    file: PathBuf,
    entry: Entry,
    /// The agent's own command that adds the entry.
    own_command: Option<String>,
}

enum Entry {
    /// An entry `aos` in the object of this name.
    Json(&'static str, Value),
    /// A table `aos` in the table of this name.
    Toml { list: &'static str, program: String, arguments: &'static [&'static str] },
}

pub(crate) fn run(setup: &Setup) -> anyhow::Result<Exit> {
    let config = config_of(setup.agent, &program()?)?;
    let before = read(&config.file)?;
    let after = match config.entry.merged_into(before.as_deref().unwrap_or_default()) {
        Ok(after) => after,
        Err(why) if setup.write => {
            bail!(
                "{}: {why}; nothing was written. Add this by hand:\n{}",
                config.file.display(),
                config.entry.snippet()
            )
        }
        Err(_) => String::new(),
    };
    if !setup.write {
        println!("# {}", config.file.display());
        print!("{}", config.entry.snippet());
        if let Some(command) = &config.own_command {
            println!("# or: {command}");
        }
        eprintln!("aos: `aos setup {} --write` writes it", setup.agent.name());
        return Ok(Exit::Success);
    }
    if before.as_deref() == Some(after.as_str()) {
        println!("{} is already set up", config.file.display());
        return Ok(Exit::Success);
    }
    show_diff(&config.file, before.as_deref(), &after);
    replace(&config.file, &after)?;
    println!("wrote {}", config.file.display());
    Ok(Exit::Success)
}

impl Agent {
    fn name(self) -> &'static str {
        match self {
            Agent::ClaudeCode => "claude-code",
            Agent::Codex => "codex",
            Agent::Gemini => "gemini",
            Agent::Cursor => "cursor",
            Agent::Vscode => "vscode",
            Agent::Zed => "zed",
            Agent::Opencode => "opencode",
        }
    }
}

fn config_of(agent: Agent, program: &str) -> anyhow::Result<AgentConfig> {
    let home = PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?);
    let config_home = std::env::var_os("XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), PathBuf::from);
    let server = |profile: &str| json!({ "command": program, "args": ["mcp", "--profile", profile] });
    let typed = |profile: &str| {
        let mut server = server(profile);
        server["type"] = json!("stdio");
        server
    };
    let (file, entry, own_command) = match agent {
        Agent::ClaudeCode => (
            home.join(".claude.json"),
            Entry::Json("mcpServers", typed("anthropic")),
            Some(format!("claude mcp add --scope user aos -- {program} mcp")),
        ),
        Agent::Codex => {
            let entry = Entry::Toml {
                list: "mcp_servers",
                program: program.to_owned(),
                arguments: &["mcp", "--profile", "openai"],
            };
            let own_command = format!("codex mcp add aos -- {program} mcp --profile openai");
            (home.join(".codex/config.toml"), entry, Some(own_command))
        }
        Agent::Gemini => {
            (home.join(".gemini/settings.json"), Entry::Json("mcpServers", server("gemini")), None)
        }
        Agent::Cursor => {
            (home.join(".cursor/mcp.json"), Entry::Json("mcpServers", server("anthropic")), None)
        }
        Agent::Vscode => {
            let mut server = typed("openai");
            server["args"] = json!(["mcp", "--profile", "openai", "--root", "${workspaceFolder}"]);
            (config_home.join("Code/User/mcp.json"), Entry::Json("servers", server), None)
        }
        Agent::Zed => {
            (config_home.join("zed/settings.json"), Entry::Json("context_servers", server("anthropic")), None)
        }
        Agent::Opencode => {
            let server = json!({
                "type": "local", "command": [program, "mcp", "--profile", "anthropic"], "enabled": true,
            });
            (config_home.join("opencode/opencode.json"), Entry::Json("mcp", server), None)
        }
    };
    Ok(AgentConfig { file, entry, own_command })
}

/// `aos` if PATH leads to this program, otherwise its path.
fn program() -> anyhow::Result<String> {
    let own = std::env::current_exe().context("cannot find the aos program itself")?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|dir| dir.join("aos"))
        .find(|file| rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok());
    let same = |a: &Path, b: &Path| match (rustix::fs::stat(a), rustix::fs::stat(b)) {
        (Ok(a), Ok(b)) => (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
        _ => false,
    };
    if found.is_some_and(|found| same(&found, &own)) {
        return Ok("aos".to_owned());
    }
    own.into_os_string().into_string().ok().context("the path of the aos program is not UTF-8")
}

impl Entry {
    /// The content of a file with this entry alone.
    fn snippet(&self) -> String {
        self.merged_into("").unwrap_or_default()
    }

    /// The file with this entry; everything else is unchanged.
    fn merged_into(&self, before: &str) -> Result<String, String> {
        match self {
            Entry::Json(list, server) => {
                let mut file = ordered::Object::parse(before)?;
                let mut servers = ordered::Object::parse(file.get(list).unwrap_or_default())?;
                servers.set("aos", &ordered::pretty(server, 2));
                file.set(list, &servers.text(1));
                Ok(file.text(0) + "\n")
            }
            Entry::Toml { list, program, arguments } => {
                toml::with_server(before, list, "aos", program, arguments)
            }
        }
    }
}

fn show_diff(file: &Path, before: Option<&str>, after: &str) {
    let name = file.display().to_string();
    let diff = aos_model::text::diff(
        name.trim_start_matches('/'),
        before.map(str::as_bytes),
        Some(after.as_bytes()),
    );
    for line in diff.lines() {
        let style = match line.as_bytes().first() {
            Some(b'+') => GOOD,
            Some(b'-') => BAD,
            _ => DIM,
        };
        anstream::println!("{style}{}{style:#}", aos_model::text::escape(line));
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the operator's own configuration, written at the operator's request"
)]
fn read(file: &Path) -> anyhow::Result<Option<String>> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(why).with_context(|| format!("cannot read {}", file.display())),
    }
}

/// Replaces the file atomically. A symbolic link is followed: such files are often links into a repository.
#[expect(
    clippy::disallowed_methods,
    reason = "the operator's own configuration, written at the operator's request"
)]
fn replace(file: &Path, content: &str) -> anyhow::Result<()> {
    let target = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let folder = target.parent().context("the configuration file has no folder")?;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mode = std::fs::metadata(&target).map_or(0o600, |meta| meta.permissions().mode());
    let temporary = folder.join(format!(".aos-setup-{}", std::process::id()));
    let written = std::fs::File::create(&temporary).and_then(|mut out| {
        out.set_permissions(std::fs::Permissions::from_mode(mode))?;
        out.write_all(content.as_bytes())?;
        out.sync_all()
    });
    let moved = written.and_then(|()| std::fs::rename(&temporary, &target));
    if moved.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    moved.with_context(|| format!("cannot write {}", target.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_entries_keep_their_order_and_spelling() {
        let entry = Entry::Json("mcpServers", json!({ "command": "aos" }));
        let before = "{\n  \"zebra\": 1.50,\n  \"mcpServers\": {\n    \"other\": {\"command\":\"x\"}\n  },\n  \"apple\": [1,2]\n}\n";
        let after = entry.merged_into(before).unwrap();
        assert_eq!(
            after,
            "{\n  \"zebra\": 1.50,\n  \"mcpServers\": {\n    \"other\": {\"command\":\"x\"},\n    \"aos\": {\n      \"command\": \"aos\"\n    }\n  },\n  \"apple\": [1,2]\n}\n"
        );
        assert_eq!(entry.merged_into(&after).unwrap(), after);
        assert!(entry.merged_into("{ // a comment\n}").is_err());
        assert!(entry.merged_into("[]").is_err());
    }
}
