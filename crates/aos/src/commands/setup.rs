//! `aos setup`: the line that an agent's configuration needs, shown, or written after showing what changes.

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

/// Where a client keeps its servers, and in which words.
struct Recipe {
    file: PathBuf,
    form: Form,
    /// What the client's own command for it would be.
    by_hand: Option<String>,
}

enum Form {
    /// An entry `aos` in the object of this name.
    Json(&'static str, Value),
    /// A table `aos` in the table of this name.
    Toml { list: &'static str, program: String, arguments: &'static [&'static str] },
}

pub(crate) fn run(setup: &Setup) -> anyhow::Result<Exit> {
    let recipe = recipe(setup.agent, &program()?)?;
    let before = read(&recipe.file)?;
    let after = match recipe.form.merged(before.as_deref().unwrap_or_default()) {
        Ok(after) => after,
        Err(why) if setup.write => {
            bail!(
                "{}: {why}; nothing was written. Add this by hand:\n{}",
                recipe.file.display(),
                recipe.form.alone()
            )
        }
        Err(_) => String::new(),
    };
    if !setup.write {
        println!("# {}", recipe.file.display());
        print!("{}", recipe.form.alone());
        if let Some(command) = &recipe.by_hand {
            println!("# or: {command}");
        }
        eprintln!("aos: `aos setup {} --write` puts it there", setup.agent.name());
        return Ok(Exit::Success);
    }
    if before.as_deref() == Some(after.as_str()) {
        println!("{} is set up already", recipe.file.display());
        return Ok(Exit::Success);
    }
    show_difference(&recipe.file, before.as_deref(), &after);
    replace(&recipe.file, &after)?;
    println!("wrote {}", recipe.file.display());
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

fn recipe(agent: Agent, program: &str) -> anyhow::Result<Recipe> {
    let home = PathBuf::from(std::env::var_os("HOME").context("HOME is not set; say whose configuration")?);
    let config = std::env::var_os("XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), PathBuf::from);
    let server = |profile: &str| json!({ "command": program, "args": ["mcp", "--profile", profile] });
    let typed = |profile: &str| {
        let mut server = server(profile);
        server["type"] = json!("stdio");
        server
    };
    let (file, form, by_hand) = match agent {
        Agent::ClaudeCode => (
            home.join(".claude.json"),
            Form::Json("mcpServers", typed("anthropic")),
            Some(format!("claude mcp add --scope user aos -- {program} mcp")),
        ),
        Agent::Codex => {
            let form = Form::Toml {
                list: "mcp_servers",
                program: program.to_owned(),
                arguments: &["mcp", "--profile", "openai"],
            };
            let by_hand = format!("codex mcp add aos -- {program} mcp --profile openai");
            (home.join(".codex/config.toml"), form, Some(by_hand))
        }
        Agent::Gemini => {
            (home.join(".gemini/settings.json"), Form::Json("mcpServers", server("gemini")), None)
        }
        Agent::Cursor => (home.join(".cursor/mcp.json"), Form::Json("mcpServers", server("anthropic")), None),
        Agent::Vscode => {
            let mut server = typed("openai");
            server["args"] = json!(["mcp", "--profile", "openai", "--root", "${workspaceFolder}"]);
            (config.join("Code/User/mcp.json"), Form::Json("servers", server), None)
        }
        Agent::Zed => {
            (config.join("zed/settings.json"), Form::Json("context_servers", server("anthropic")), None)
        }
        Agent::Opencode => {
            let server = json!({
                "type": "local", "command": [program, "mcp", "--profile", "anthropic"], "enabled": true,
            });
            (config.join("opencode/opencode.json"), Form::Json("mcp", server), None)
        }
    };
    Ok(Recipe { file, form, by_hand })
}

/// The name alone where PATH finds this very program by it, else where it lies.
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
    own.into_os_string().into_string().ok().context("the path of the aos program is no UTF-8")
}

impl Form {
    /// What a file that holds nothing else would hold.
    fn alone(&self) -> String {
        self.merged("").unwrap_or_default()
    }

    /// The file with our entry in it, all else as it was.
    fn merged(&self, before: &str) -> Result<String, String> {
        match self {
            Form::Json(list, server) => {
                let mut file = ordered::Object::parse(before)?;
                let mut servers = ordered::Object::parse(file.get(list).unwrap_or_default())?;
                servers.set("aos", &ordered::pretty(server, 2));
                file.set(list, &servers.text(1));
                Ok(file.text(0) + "\n")
            }
            Form::Toml { list, program, arguments } => {
                toml::with_server(before, list, "aos", program, arguments)
            }
        }
    }
}

fn show_difference(file: &Path, before: Option<&str>, after: &str) {
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

#[expect(clippy::disallowed_methods, reason = "the operator's own configuration, at the operator's word")]
fn read(file: &Path) -> anyhow::Result<Option<String>> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(why).with_context(|| format!("cannot read {}", file.display())),
    }
}

/// Whole or not at all; a link is followed, since people keep such files elsewhere.
#[expect(clippy::disallowed_methods, reason = "the operator's own configuration, at the operator's word")]
fn replace(file: &Path, content: &str) -> anyhow::Result<()> {
    let target = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let folder = target.parent().context("a configuration lies in a folder")?;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
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
    fn other_entries_keep_their_place_and_their_words() {
        let form = Form::Json("mcpServers", json!({ "command": "aos" }));
        let before = "{\n  \"zebra\": 1.50,\n  \"mcpServers\": {\n    \"other\": {\"command\":\"x\"}\n  },\n  \"apple\": [1,2]\n}\n";
        let after = form.merged(before).unwrap();
        assert_eq!(
            after,
            "{\n  \"zebra\": 1.50,\n  \"mcpServers\": {\n    \"other\": {\"command\":\"x\"},\n    \"aos\": {\n      \"command\": \"aos\"\n    }\n  },\n  \"apple\": [1,2]\n}\n"
        );
        assert_eq!(form.merged(&after).unwrap(), after);
        assert!(form.merged("{ // a comment\n}").is_err());
        assert!(form.merged("[]").is_err());
    }
}
