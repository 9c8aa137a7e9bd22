//! The peers of section 1: other file servers, which the bench installs in a separate folder.

mod deepagents;
pub(crate) mod mcp;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

use super::report::Report;
use super::small_files::Contender;
use crate::cargo::{cargo, target_dir};
use deepagents::Backend;
use mcp::{Dialect, Server};

/// The names of the peers. Their versions are appended.
pub(crate) struct Peer;

impl Peer {
    pub(crate) const NODE: &str = "server-filesystem (Node)";
    pub(crate) const RUST: &str = "rust-mcp-filesystem";
    pub(crate) const PYTHON: &str = "deepagents (in process)";
}

/// Starts all peers that can be installed; the report names the others.
pub(crate) fn start(dir: &Path, report: &mut Report) -> anyhow::Result<Vec<Box<dyn Contender>>> {
    let mut peers = boxed(start_mcp(dir, report)?);
    peers.extend(boxed(start_each(&[(Peer::PYTHON, python)], dir, report)?));
    for peer in &peers {
        println!("beside: {}", peer.name());
    }
    Ok(peers)
}

/// Starts the peers that speak MCP; the report names those that cannot be installed.
pub(crate) fn start_mcp(dir: &Path, report: &mut Report) -> anyhow::Result<Vec<Server>> {
    start_each(&[(Peer::NODE, node), (Peer::RUST, rust)], dir, report)
}

/// Sets a peer up in the first folder and starts it in the second.
type Start<T> = fn(&Path, &Path) -> anyhow::Result<T>;

fn start_each<T>(starts: &[(&str, Start<T>)], dir: &Path, report: &mut Report) -> anyhow::Result<Vec<T>> {
    let cache = target_dir()?.join("bench-peers");
    std::fs::create_dir_all(&cache)?;
    let mut peers = Vec::new();
    for (name, start) in starts {
        let root = dir.join(name);
        std::fs::create_dir(&root)?;
        match start(&cache, &root) {
            Ok(peer) => peers.push(peer),
            Err(why) => report.leave_out(name, &why),
        }
    }
    Ok(peers)
}

pub(crate) fn boxed<T: Contender + 'static>(contenders: Vec<T>) -> Vec<Box<dyn Contender>> {
    contenders.into_iter().map(|contender| Box::new(contender) as Box<dyn Contender>).collect()
}

fn node(cache: &Path, root: &Path) -> anyhow::Result<Server> {
    let folder = cache.join("node");
    let program = folder.join("node_modules/.bin/mcp-server-filesystem");
    if !program.exists() {
        npm_install(&folder, "@modelcontextprotocol/server-filesystem")?;
    }
    // The version in its `initialize` answer is not the version that npm installed.
    let name = format!("{} {}", Peer::NODE, npm_version(&folder, "@modelcontextprotocol/server-filesystem")?);
    Server::start(name, Dialect::Filesystem, Command::new(program), root)
}

fn rust(cache: &Path, root: &Path) -> anyhow::Result<Server> {
    let folder = cache.join("rust");
    let program = folder.join("bin/rust-mcp-filesystem");
    if !program.exists() {
        let mut install = cargo();
        // Build outside our build folder and without our workspace's settings.
        install.args(["install", "--root"]).arg(&folder).arg("rust-mcp-filesystem");
        set_up(install.env_remove("CARGO_TARGET_DIR").current_dir(cache))?;
    }
    let version = Command::new(&program).arg("--version").output()?.stdout;
    let name = String::from_utf8_lossy(&version).trim().to_owned();
    let mut command = Command::new(program);
    command.arg("--allow-write");
    Server::start(name, Dialect::Filesystem, command, root)
}

fn python(cache: &Path, root: &Path) -> anyhow::Result<Backend> {
    let program = python_with("deepagents", "deepagents.backends", "python3", &cache.join("python"))?;
    Backend::start(&program, root)
}

/// codex's own `apply_patch`: its name with the version, and the program.
pub(crate) fn codex() -> anyhow::Result<(String, PathBuf)> {
    let folder = target_dir()?.join("bench-peers/codex");
    let program = folder.join("apply_patch");
    if !program.exists() {
        std::fs::create_dir_all(&folder)?;
        npm_install(&folder, "@openai/codex")?;
        let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
        let vendor = folder.join("node_modules/@openai");
        let packages = std::fs::read_dir(&vendor)?.filter_map(|entry| Some(entry.ok()?.path()));
        let binary = packages
            .map(|package| package.join("vendor").join(&target).join("bin/codex"))
            .find(|binary| binary.exists())
            .context("npm brought no program for this machine")?;
        std::os::unix::fs::symlink(binary, &program)?;
    }
    Ok((format!("codex {}", npm_version(&folder, "@openai/codex")?), program))
}

fn npm_install(folder: &Path, package: &str) -> anyhow::Result<()> {
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(folder);
    set_up(npm.arg(package))
}

fn npm_version(folder: &Path, package: &str) -> anyhow::Result<String> {
    let about = std::fs::read(folder.join("node_modules").join(package).join("package.json"))?;
    let about: serde_json::Value = serde_json::from_slice(&about)?;
    Ok(about["version"].as_str().unwrap_or_default().to_owned())
}

/// The Python of a virtual environment in `folder` where `package` is installed and `module` can be imported.
pub(crate) fn python_with(package: &str, module: &str, base: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    let program = folder.join("bin/python");
    let import = Command::new(&program).args(["-c", &format!("import {module}")]).output();
    if !import.is_ok_and(|output| output.status.success()) {
        set_up(Command::new(base).args(["-m", "venv"]).arg(folder))?;
        set_up(Command::new(&program).args(["-m", "pip", "install", "--quiet", package]))?;
    }
    Ok(program)
}

/// Runs an installer. Its output is shown only when it fails.
fn set_up(command: &mut Command) -> anyhow::Result<()> {
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
