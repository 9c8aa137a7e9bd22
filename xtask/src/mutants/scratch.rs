//! The copy of the repository in which bugs are planted: a git worktree of the last commit, always at the same path,
//! with its own build folder, so that each bug rebuilds only what it changes.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, WaitOptions};

use super::{Edit, Program, Test};
use crate::cargo::{cargo, target_dir};

/// A test that takes longer has hung, which counts as a failure.
const PATIENCE: Duration = Duration::from_secs(600);

pub(super) struct Scratch {
    tree: PathBuf,
    build: PathBuf,
    /// The attack suite's program.
    attack: PathBuf,
    /// The commit that is tested.
    pub(super) commit: String,
}

/// The result of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    Green,
    Red,
    /// There is no such test, or it was skipped.
    NotRun,
    NotBuilt,
}

/// A planted bug. Dropping it restores the files.
pub(super) struct Planted<'a> {
    tree: &'a Path,
}

impl Scratch {
    pub(super) fn prepare() -> anyhow::Result<Scratch> {
        // Processes that a planted bug leaves running become our children, and we end them.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let target = target_dir()?;
        let mut scratch = Scratch {
            tree: target.join("mutants/tree"),
            build: target.join("mutants/build"),
            attack: PathBuf::new(),
            commit: git(Path::new("."), &["rev-parse", "--short", "HEAD"])?,
        };
        if !git(Path::new("."), &["status", "--porcelain"])?.is_empty() {
            println!("there are changes that are not committed; what is tested is {}", scratch.commit);
        }
        let tree = scratch.tree.display().to_string();
        if scratch.tree.join(".git").exists() {
            git(&scratch.tree, &["checkout", "--quiet", "--force", "--detach", &scratch.commit])?;
        } else {
            // `--force`: an earlier worktree may have been deleted with the build folder.
            git(
                Path::new("."),
                &["worktree", "add", "--quiet", "--force", "--detach", &tree, &scratch.commit],
            )?;
        }
        scratch.attack = scratch.build_attack()?;
        Ok(scratch)
    }

    /// Plants a bug. The inner error says why it does not apply.
    pub(super) fn plant(&self, edits: &[Edit]) -> anyhow::Result<Result<Planted<'_>, String>> {
        let planted = Planted { tree: &self.tree };
        for edit in edits {
            let path = self.tree.join(edit.file);
            let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            match edit.apply(&text) {
                Ok(text) => std::fs::write(&path, text)?,
                Err(why) => return Ok(Err(why)),
            }
        }
        Ok(Ok(planted))
    }

    pub(super) fn run(&self, test: &Test) -> anyhow::Result<Seen> {
        let mut building = match test.program {
            Program::Attack => self.cargo(&["build", "--bin", "aos", "--bin", "aosd"]),
            Program::Fuzz => self.cargo(&["test", "--test", "short", "--no-run"]),
        };
        let built = building.output().context("cannot run cargo")?;
        if !built.status.success() {
            println!("{}", String::from_utf8_lossy(&built.stderr));
            return Ok(Seen::NotBuilt);
        }
        let mut running = match test.program {
            Program::Attack => Command::new(&self.attack),
            Program::Fuzz => self.cargo(&["test", "--test", "short", "--"]),
        };
        running.args(["--exact", test.name]).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = running.process_group(0).spawn().context("cannot run the test")?;
        let ended = wait(child);
        end_descendants();
        Ok(match ended? {
            None => Seen::Red,
            Some(output) if !output.status.success() => Seen::Red,
            Some(output) if was_run(&output.stdout) => Seen::Green,
            Some(_) => Seen::NotRun,
        })
    }

    /// Builds the attack suite. Returns the path of its program.
    fn build_attack(&self) -> anyhow::Result<PathBuf> {
        let arguments = ["test", "--test", "attack", "--no-run", "--message-format", "json"];
        let built = self.cargo(&arguments).stderr(Stdio::inherit()).output().context("cannot run cargo")?;
        let told = String::from_utf8_lossy(&built.stdout);
        let messages = told.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let mut programs = messages.filter(|message| message["target"]["name"] == "attack");
        let program = programs.find_map(|message| message["executable"].as_str().map(PathBuf::from));
        program.context("the attack suite does not build without any planted bug")
    }

    fn cargo(&self, arguments: &[&str]) -> Command {
        let mut cargo = cargo();
        cargo.current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.build).arg(arguments[0]);
        // Always the whole workspace, so that the dependencies are built once.
        cargo.args(["--quiet", "--locked", "--workspace"]).args(&arguments[1..]);
        cargo
    }
}

impl Drop for Planted<'_> {
    fn drop(&mut self) {
        git(self.tree, &["checkout", "--quiet", "--force", "--", "."]).expect("BUG: our own worktree");
    }
}

/// Whether the summary of a test program reports a passed test.
fn was_run(stdout: &[u8]) -> bool {
    let text = String::from_utf8_lossy(stdout);
    let passed = |line: &str| line.split("ok. ").nth(1)?.split(" passed").next()?.parse::<u64>().ok();
    text.lines().filter(|line| line.starts_with("test result: ")).filter_map(passed).sum::<u64>() > 0
}

/// Waits for the end of a test; `None` when it took too long.
fn wait(mut child: Child) -> anyhow::Result<Option<Output>> {
    use std::io::Read as _;
    let until = Instant::now() + PATIENCE;
    let mut pipe = child.stdout.take().context("BUG: the output is piped")?;
    // A daemon that a test left running may hold the pipe open, so a separate thread reads it.
    let (told, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut stdout = Vec::new();
        let read = pipe.read_to_end(&mut stdout);
        let _ = told.send(read.map(|_| stdout));
    });
    let status = loop {
        match child.try_wait()? {
            Some(status) => break status,
            None if Instant::now() > until => {
                child.kill()?;
                child.wait()?;
                return Ok(None);
            }
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    end_descendants();
    let stdout = heard.recv_timeout(Duration::from_secs(10)).unwrap_or(Ok(Vec::new()))?;
    Ok(Some(Output { status, stdout, stderr: Vec::new() }))
}

/// Kills all descendants of this process.
fn end_descendants() {
    for _ in 0..1_000 {
        let children = children();
        if children.is_empty() {
            return;
        }
        for child in children {
            // Its children become ours when it ends.
            let _ = rustix::process::kill_process(child, Signal::KILL);
        }
        while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn children() -> Vec<Pid> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let listed = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    listed
        .flat_map(|line| line.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>())
        .filter_map(Pid::from_raw)
        .collect()
}

fn git(at: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("git").current_dir(at).args(arguments).output().context("cannot run git")?;
    if !output.status.success() {
        bail!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
