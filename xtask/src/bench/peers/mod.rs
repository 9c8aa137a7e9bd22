//! The peers of section 1: other file servers, set up by the bench itself in a folder of its own.

mod deepagents;
pub(crate) mod mcp;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

use super::daemon::target_dir;
use super::report::Report;
use super::small_files::Contender;
use mcp::{Dialect, Server};

/// What the peers are called; their versions stand behind.
pub(crate) struct Peer;

impl Peer {
    pub(crate) const NODE: &str = "server-filesystem (Node)";
    pub(crate) const RUST: &str = "rust-mcp-filesystem";
    pub(crate) const PYTHON: &str = "deepagents (in process)";
}

/// All peers that can be had; the others are named in the report.
pub(crate) fn start(dir: &Path, report: &mut Report) -> anyhow::Result<Vec<Box<dyn Contender>>> {
    let cache = target_dir()?.join("bench-peers");
    std::fs::create_dir_all(&cache)?;
    let starts: [(&str, Start); 3] = [(Peer::NODE, node), (Peer::RUST, rust), (Peer::PYTHON, python)];
    let mut peers = Vec::new();
    for (name, start) in starts {
        let root = dir.join(name);
        std::fs::create_dir(&root)?;
        match start(&cache, &root) {
            Ok(peer) => {
                println!("beside: {}", peer.name());
                peers.push(peer);
            }
            Err(why) => report.leave_out(name, &why),
        }
    }
    Ok(peers)
}

/// The peers that speak MCP; those that cannot be had are named in the report.
pub(crate) fn start_mcp(dir: &Path, report: &mut Report) -> anyhow::Result<Vec<Server>> {
    let cache = target_dir()?.join("bench-peers");
    std::fs::create_dir_all(&cache)?;
    let mut peers = Vec::new();
    for (name, start) in [(Peer::NODE, node_server as StartMcp), (Peer::RUST, rust_server)] {
        let root = dir.join(name);
        std::fs::create_dir(&root)?;
        match start(&cache, &root) {
            Ok(peer) => peers.push(peer),
            Err(why) => report.leave_out(name, &why),
        }
    }
    Ok(peers)
}

type StartMcp = fn(&Path, &Path) -> anyhow::Result<Server>;
type Start = fn(&Path, &Path) -> anyhow::Result<Box<dyn Contender>>;

fn node(cache: &Path, root: &Path) -> anyhow::Result<Box<dyn Contender>> {
    Ok(Box::new(node_server(cache, root)?))
}

fn node_server(cache: &Path, root: &Path) -> anyhow::Result<Server> {
    let folder = cache.join("node");
    let program = folder.join("node_modules/.bin/mcp-server-filesystem");
    if !program.exists() {
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(&folder);
        set_up(npm.arg("@modelcontextprotocol/server-filesystem"))?;
    }
    // What it calls itself in its greeting is not the version that npm brought.
    let package = folder.join("node_modules/@modelcontextprotocol/server-filesystem/package.json");
    let package: serde_json::Value = serde_json::from_slice(&std::fs::read(package)?)?;
    let name = format!("{} {}", Peer::NODE, package["version"].as_str().unwrap_or_default());
    Server::start(name, Dialect::Filesystem, Command::new(program), root)
}

fn rust(cache: &Path, root: &Path) -> anyhow::Result<Box<dyn Contender>> {
    Ok(Box::new(rust_server(cache, root)?))
}

fn rust_server(cache: &Path, root: &Path) -> anyhow::Result<Server> {
    let folder = cache.join("rust");
    let program = folder.join("bin/rust-mcp-filesystem");
    if !program.exists() {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        let mut install = Command::new(cargo);
        // Outside our own build folder, and not with our workspace's settings.
        install.args(["install", "--root"]).arg(&folder).arg("rust-mcp-filesystem");
        set_up(install.env_remove("CARGO_TARGET_DIR").current_dir(cache))?;
    }
    let version = Command::new(&program).arg("--version").output()?.stdout;
    let name = String::from_utf8_lossy(&version).trim().to_owned();
    let mut command = Command::new(program);
    command.arg("--allow-write");
    Server::start(name, Dialect::Filesystem, command, root)
}

fn python(cache: &Path, root: &Path) -> anyhow::Result<Box<dyn Contender>> {
    let folder = cache.join("python");
    let program = folder.join("bin/python");
    let ready = |program: &Path| {
        let import = Command::new(program).args(["-c", "import deepagents.backends"]).output();
        import.is_ok_and(|output| output.status.success())
    };
    if !ready(&program) {
        set_up(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        set_up(Command::new(&program).args(["-m", "pip", "install", "--quiet", "deepagents"]))?;
    }
    Ok(Box::new(deepagents::Backend::start(&program, root)?))
}

/// codex's own `apply_patch`: its name with the version, and the program.
pub(crate) fn codex() -> anyhow::Result<(String, PathBuf)> {
    let folder = target_dir()?.join("bench-peers/codex");
    let program = folder.join("apply_patch");
    if !program.exists() {
        std::fs::create_dir_all(&folder)?;
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(&folder);
        set_up(npm.arg("@openai/codex"))?;
        let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
        let vendor = folder.join("node_modules/@openai");
        let packages = std::fs::read_dir(&vendor)?.filter_map(|entry| Some(entry.ok()?.path()));
        let binary = packages
            .map(|package| package.join("vendor").join(&target).join("bin/codex"))
            .find(|binary| binary.exists())
            .context("npm brought no program for this machine")?;
        std::os::unix::fs::symlink(binary, &program)?;
    }
    let package = folder.join("node_modules/@openai/codex/package.json");
    let package: serde_json::Value = serde_json::from_slice(&std::fs::read(package)?)?;
    Ok((format!("codex {}", package["version"].as_str().unwrap_or_default()), program))
}

/// Runs an installer; what it prints is shown only when it fails.
pub(crate) fn set_up(command: &mut Command) -> anyhow::Result<()> {
    println!("setting up: {command:?}");
    let shown = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run `{shown}`; install it to measure this peer"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let reason = said.lines().find(|line| line.to_lowercase().contains("error"));
    anyhow::ensure!(output.status.success(), "`{shown}` failed: {}", reason.unwrap_or("no reason given"));
    Ok(())
}
