//! `aos setup`: prints the configuration by which an agent uses `aos mcp`, or writes it after showing the diff.

mod ordered;
mod toml;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::Exit;
use crate::cli::{Agent, Setup};
use crate::own_file::Folder;
use crate::render::{BAD, DIM, GOOD};

/// The configuration file of an agent, and our entry in it.
struct AgentConfig {
    /// The home of the operator, or their folder for settings.
    home: PathBuf,
    /// The folder below it, and the file.
    folder: PathBuf,
    name: &'static str,
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
    let file = config.file();
    if !setup.write {
        println!("# {}", file.display());
        print!("{}", config.entry.snippet());
        if let Some(command) = &config.own_command {
            println!("# or: {command}");
        }
        eprintln!("aos: `aos setup {} --write` writes it", setup.agent.name());
        return Ok(Exit::Success);
    }
    match config.write() {
        Ok(true) => println!("wrote {}", file.display()),
        Ok(false) => println!("{} is already set up", file.display()),
        Err(why) => bail!(
            "{why:#}; nothing was written. Add this to {} by hand:\n{}",
            file.display(),
            config.entry.snippet()
        ),
    }
    Ok(Exit::Success)
}

impl AgentConfig {
    fn file(&self) -> PathBuf {
        self.home.join(&self.folder).join(self.name)
    }

    /// Adds the entry after showing the diff. False if the file has it already.
    fn write(&self) -> anyhow::Result<bool> {
        let (file, folder) = (self.file(), self.folder.as_path());
        let existing = Folder::below_home(&self.home, folder, false)?;
        let before = existing.map(|folder| folder.read(self.name)).transpose()?.flatten();
        let text = before.as_ref().map(|before| before.text.as_str());
        let after = self.entry.merged_into(text.unwrap_or_default());
        let after = after.map_err(|why| anyhow::anyhow!("{}: {why}", file.display()))?;
        if text == Some(after.as_str()) {
            return Ok(false);
        }
        show_diff(&file, text, &after);
        let folder = Folder::below_home(&self.home, folder, true)?.context("BUG: the folder was made")?;
        folder.replace(self.name, before.as_ref(), after.as_bytes(), 0o600)?;
        Ok(true)
    }
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
    let xdg_home = std::env::var_os("XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), PathBuf::from);
    // What is below the home is reached from there, without links.
    let settings = |below: &str| match xdg_home.strip_prefix(&home) {
        Ok(folder) => (home.clone(), folder.join(below)),
        Err(_) => (xdg_home.clone(), PathBuf::from(below)),
    };
    let at_home = |below: &str| (home.clone(), PathBuf::from(below));
    let server = |profile: &str| json!({ "command": program, "args": ["mcp", "--profile", profile] });
    let typed = |profile: &str| {
        let mut server = server(profile);
        server["type"] = json!("stdio");
        server
    };
    let ((home, folder), name, entry, own_command) = match agent {
        Agent::ClaudeCode => (
            at_home(""),
            ".claude.json",
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
            (at_home(".codex"), "config.toml", entry, Some(own_command))
        }
        Agent::Gemini => {
            (at_home(".gemini"), "settings.json", Entry::Json("mcpServers", server("gemini")), None)
        }
        Agent::Cursor => {
            (at_home(".cursor"), "mcp.json", Entry::Json("mcpServers", server("anthropic")), None)
        }
        Agent::Vscode => {
            let mut server = typed("openai");
            server["args"] = json!(["mcp", "--profile", "openai", "--root", "${workspaceFolder}"]);
            (settings("Code/User"), "mcp.json", Entry::Json("servers", server), None)
        }
        Agent::Zed => {
            (settings("zed"), "settings.json", Entry::Json("context_servers", server("anthropic")), None)
        }
        Agent::Opencode => {
            let server = json!({
                "type": "local", "command": [program, "mcp", "--profile", "anthropic"], "enabled": true,
            });
            (settings("opencode"), "opencode.json", Entry::Json("mcp", server), None)
        }
    };
    Ok(AgentConfig { home, folder, name, entry, own_command })
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
