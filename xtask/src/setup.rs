//! The programs that the tests need: each is printed, and installed if it is missing.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::cargo::{cargo, target_dir};

/// A program, and the Debian package that contains it.
struct Need {
    program: &'static str,
    package: &'static str,
    what_for: &'static str,
}

const NEEDS: &[Need] = &[
    Need { program: "cc", package: "gcc", what_for: "the bundled SQLite" },
    Need { program: "strace", package: "strace", what_for: "failing and killing at chosen system calls" },
    Need { program: "mkfs.ext4", package: "e2fsprogs", what_for: "power cuts on a file system of our own" },
    Need { program: "setfattr", package: "attr", what_for: "extended attributes" },
    Need { program: "setfacl", package: "acl", what_for: "access control lists" },
    Need { program: "bwrap", package: "bubblewrap", what_for: "comparison in the bench" },
    Need { program: "chattr", package: "e2fsprogs", what_for: "immutable files" },
];

fn is_there(program: &str) -> bool {
    let dirs = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    dirs.split(':').any(|dir| std::path::Path::new(dir).join(program).exists())
}

/// The ripgrep that grep is compared with. Built from crates.io, because distributions package a version that is years
/// old.
const RIPGREP: &str = "ripgrep@15.2.0";

/// Where the tools of the tests are kept: beside the build.
fn tools() -> Option<PathBuf> {
    Some(target_dir().ok()?.join("tools"))
}

/// The path of that ripgrep. Builds it if it is missing, unless `leave_alone` is set.
pub(crate) fn ripgrep(leave_alone: bool) -> Option<PathBuf> {
    let tools = tools()?;
    let program = tools.join("bin/rg");
    if !program.exists() && !leave_alone {
        println!("  build {RIPGREP} into {}: the search tests compare with it", tools.display());
        let install = ["install", "--locked", RIPGREP, "--root"];
        let built = cargo().args(install).arg(&tools).arg("--target-dir").arg(tools.join("build")).status();
        if !built.is_ok_and(|status| status.success()) {
            println!("  {RIPGREP} did not build; the tests that need it are skipped");
        }
    }
    Some(program).filter(|program| program.exists())
}

/// The clients and the suite that test the MCP front end. The suite needs this version of Node.
const MCP_FOR_NODE: &[&str] = &[
    "node@22.23.3",
    "@modelcontextprotocol/sdk@1.32.2",
    "@modelcontextprotocol/inspector@2.12.0",
    "@modelcontextprotocol/conformance@0.1.16",
];
const MCP_FOR_PYTHON: &str = "mcp==2.3.0";

/// Installs them into separate folders. Returns what is missing; its tests are skipped.
fn mcp_clients(leave_alone: bool) -> Vec<&'static str> {
    let Some(folder) = tools().map(|tools| tools.join("mcp")) else { return vec!["the MCP clients"] };
    let (node, python) = (folder.join("node"), folder.join("python"));
    let has_node = || node.join("node_modules/.bin/conformance").exists();
    let has_python = || python.join(".ready").exists();
    if !leave_alone && !has_node() {
        println!("  install {} with npm into {}", MCP_FOR_NODE.join(", "), node.display());
        let _ = std::fs::create_dir_all(&node);
        quietly(
            Command::new("npm")
                .args(["install", "--no-audit", "--no-fund", "--prefix"])
                .arg(&node)
                .args(MCP_FOR_NODE),
        );
    }
    if !leave_alone && !has_python() {
        println!("  install {MCP_FOR_PYTHON} with pip into {}", python.display());
        let installed = quietly(Command::new("python3").args(["-m", "venv"]).arg(&python))
            && quietly(Command::new(python.join("bin/python")).args([
                "-m",
                "pip",
                "install",
                "--quiet",
                MCP_FOR_PYTHON,
            ]));
        if installed {
            let _ = std::fs::write(python.join(".ready"), MCP_FOR_PYTHON);
        }
    }
    let found = [(has_node(), "the MCP clients for Node"), (has_python(), "the MCP client for Python")];
    found.into_iter().filter(|(is_there, _)| !is_there).map(|(_, name)| name).collect()
}

/// Runs an installer. Its last line is shown only when it fails.
fn quietly(command: &mut Command) -> bool {
    let outcome = command.stdin(Stdio::null()).output();
    let is_done = outcome.as_ref().is_ok_and(|output| output.status.success());
    if !is_done {
        let said = outcome.map_or_else(
            |why| why.to_string(),
            |output| String::from_utf8_lossy(&output.stderr).into_owned(),
        );
        let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        println!("  {:?} failed ({last}); the tests that need it are skipped", command.get_program());
    }
    is_done
}

/// Prints and installs what is missing. Returns what is still missing; its tests are skipped.
pub(crate) fn prepare(leave_alone: bool) -> Vec<&'static str> {
    let mut missing = prepare_packages(leave_alone);
    println!("  look for {RIPGREP}");
    if ripgrep(leave_alone).is_none() {
        missing.push("ripgrep");
    }
    println!("  look for the MCP clients for Node and Python");
    missing.extend(mcp_clients(leave_alone));
    missing
}

fn prepare_packages(leave_alone: bool) -> Vec<&'static str> {
    let all: Vec<&str> = NEEDS.iter().map(|need| need.program).collect();
    println!("  look for {}", all.join(", "));
    let missing: Vec<&Need> = NEEDS.iter().filter(|need| !is_there(need.program)).collect();
    if missing.is_empty() {
        return Vec::new();
    }
    for need in &missing {
        println!(
            "  `{}` is missing (Debian package {}): it is for {}",
            need.program, need.package, need.what_for
        );
    }
    if leave_alone {
        println!("  nothing is installed (--no-setup); the tests that need these are skipped");
    } else {
        install(&missing);
    }
    missing.iter().filter(|need| !is_there(need.program)).map(|need| need.program).collect()
}

fn install(missing: &[&Need]) {
    let mut packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    packages.sort_unstable();
    packages.dedup();
    let sudo: &[&str] = if is_root() { &[] } else { &["sudo", "-n"] };
    println!("  install {} with apt-get", packages.join(", "));
    let apt = |arguments: &[&str]| {
        let words: Vec<&str> =
            sudo.iter().chain(&["apt-get", "-q", "-y"]).chain(arguments).copied().collect();
        Command::new(words[0])
            .args(&words[1..])
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
    };
    let install: Vec<&str> = ["install", "--no-install-recommends"].into_iter().chain(packages).collect();
    if !apt(&["update"]) || !apt(&install) {
        println!("  apt-get failed; the tests that need these are skipped");
    }
}

pub(crate) fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|out| out.stdout == b"0\n")
}
