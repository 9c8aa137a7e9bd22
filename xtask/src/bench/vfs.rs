//! Section 6: virtual trees. Searching one beside ripgrep on the same files, writing into a small and a large one, and
//! mounting beside the original (weakincentives 0.8.0, Python 3.12).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::daemon::{Client, Daemon};
use super::peers::python_with;
use super::{Options, Reach, Report, Sample, search};
use crate::cargo::target_dir;
use crate::setup;

/// The number and size of the text files of the small corpus that are mounted and searched.
const FILES: usize = 5_000;
const BYTES_MAX: u64 = 60 << 20;

/// The targets.
const GREP_REACH: f64 = 0.3;
const WRITE_REACH: f64 = 2.0;
const MOUNT_REACH: f64 = 0.1;

const PATTERNS: &[(&str, &str)] = &[
    ("literal", "ReadFromUDP"),
    ("regex", r"\bfunc \(\w+ \*?\w+\) Write\w*\("),
    ("no match", "qzxjkvwyqzx"),
    ("many matches", "return"),
];

pub(crate) fn run(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let rg = setup::ripgrep(false).context("no ripgrep to compare with")?;
    let place = options.workplace()?;
    let (root, bytes) = text_of(&search::small_corpus(&options.corpora()?)?, &place.path().join("text"))?;
    println!("{FILES} files of text, {} MB", bytes >> 20);
    let home = place.path().join("home");
    std::fs::create_dir(&home)?;
    let daemon = Daemon::start(&home, "process")?;
    let mut client = daemon.connect()?;
    mounting(options, report, &root, &mut client)?;
    searching(options, report, &root, &rg, &mut client)?;
    writing(options, report, &mut client)
}

/// Copies files that a virtual tree can hold (UTF-8, with plain names) up to the limits.
fn text_of(corpus: &Path, to: &Path) -> anyhow::Result<(PathBuf, u64)> {
    let mut paths = Vec::new();
    let mut folders = vec![corpus.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            match entry.file_type()? {
                kind if kind.is_dir() && entry.file_name() != ".git" => folders.push(entry.path()),
                kind if kind.is_file() => paths.push(entry.path()),
                _ => {}
            }
        }
    }
    paths.sort();
    let (mut files, mut bytes) = (0, 0);
    for path in paths {
        let below = path.strip_prefix(corpus)?;
        let name = below.to_str().unwrap_or_default();
        let content = std::fs::read(&path)?;
        let fits =
            bytes + content.len() as u64 <= BYTES_MAX && name.is_ascii() && name.split('/').count() < 16;
        let hidden = name.split('/').any(|name| name.starts_with('.'));
        if files == FILES || !fits || hidden || std::str::from_utf8(&content).is_err() {
            continue;
        }
        let copy = to.join(below);
        std::fs::create_dir_all(copy.parent().context("no folder")?)?;
        (files, bytes) = (files + 1, bytes + content.len() as u64);
        std::fs::write(copy, content)?;
    }
    anyhow::ensure!(files == FILES, "the corpus has only {files} files of text");
    Ok((to.to_owned(), bytes))
}

/// The target that mounts all of a folder.
fn mounted(root: &Path) -> Value {
    json!({ "vfs": { "allowed_roots": [root], "mounts": [{ "host_path": ".", "mount_path": "/" }] } })
}

fn close(client: &mut Client) -> anyhow::Result<()> {
    client.ask("host.session.signal", json!({ "signal": "kill" })).map(drop)
}

fn mounting(options: &Options, report: &mut Report, root: &Path, client: &mut Client) -> anyhow::Result<()> {
    let target = mounted(root);
    let (mut ours, mut theirs) = (Sample::default(), Sample::default());
    let peer = if options.no_peers { Err(anyhow::anyhow!("--no-peers")) } else { original() };
    for round in 0..=options.rounds {
        if round == 1 {
            // Discard the warm-up round.
            ours = Sample::default();
        }
        ours.time(|| client.open(&target))?;
        close(client)?;
        if let (Ok(python), true) = (&peer, round > 0) {
            theirs.add(mount_there(python, root)?);
        }
    }
    match &peer {
        Ok(_) => {
            let contenders = [("aos", &ours), ("weakincentives 0.8.0 (in process)", &theirs)];
            report.race("mounting", &contenders, |name| {
                name.starts_with("weak").then_some(Reach::AtMost(MOUNT_REACH))
            });
        }
        Err(why) => {
            report.leave_out("weakincentives", why);
            report.race("mounting", &[("aos", &ours)], |_| None);
        }
    }
    Ok(())
}

/// The original, in a separate virtual environment.
fn original() -> anyhow::Result<PathBuf> {
    let folder = target_dir()?.join("bench-peers/weakincentives");
    python_with("weakincentives==0.8.0", "weakincentives.tools.vfs", "python3.12", &folder)
}

/// Mounts once in a new process and prints how long that took, without the start of Python.
const MOUNT: &str = r#"
import sys, time
from weakincentives.prompt import MarkdownSection
from weakincentives.tools import vfs
begun = time.perf_counter_ns()
section = vfs.VfsToolsSection(mounts=(vfs.HostMount(host_path="."),), allowed_host_roots=(sys.argv[1],))
print(time.perf_counter_ns() - begun, len(section._mount_snapshot.files))
"#;

fn mount_there(python: &Path, root: &Path) -> anyhow::Result<Duration> {
    let output = Command::new(python).args(["-c", MOUNT]).arg(root).stderr(Stdio::inherit()).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let mut numbers = said.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
    let (time, files) = (numbers.next().context("no time")?, numbers.next().context("no count")?);
    anyhow::ensure!(files == FILES as u64, "it mounted {files} files");
    Ok(Duration::from_nanos(time))
}

fn searching(
    options: &Options,
    report: &mut Report,
    root: &Path,
    rg: &Path,
    client: &mut Client,
) -> anyhow::Result<()> {
    client.open(&mounted(root))?;
    for (name, pattern) in PATTERNS {
        let grep = json!({ "pattern": pattern, "max_results": 1_000_000 });
        let command = || {
            let mut command = Command::new(rg);
            command.current_dir(root).args(["--no-config", "--color=never", "--line-number", "--no-heading"]);
            command.args([pattern, "."]);
            command
        };
        let found = client.ask("host.fs.grep", grep.clone())?["match_count"].as_u64();
        let wanted = search::lines(command())?;
        anyhow::ensure!(found == Some(wanted), "{name}: aos finds {found:?}, rg {wanted}");
        let (mut ours, mut theirs) = (Sample::default(), Sample::default());
        for _ in 0..options.rounds {
            ours.time(|| client.ask("host.fs.grep", grep.clone()).map(drop))?;
            theirs.time(|| search::lines(command()).map(drop))?;
        }
        report.race(&format!("grep, {name}"), &[("aos", &ours), ("rg", &theirs)], |name| {
            (name == "rg").then_some(Reach::AtMost(GREP_REACH))
        });
    }
    close(client)
}

/// Writes per round into each tree.
const WRITES: usize = 200;
const SIZES: [usize; 2] = [100, 100_000];

fn writing(options: &Options, report: &mut Report, client: &mut Client) -> anyhow::Result<()> {
    let mut sessions = Vec::new();
    for files in SIZES {
        client.open(&json!({ "vfs": {} }))?;
        fill(client, files)?;
        sessions.push(client.session.clone());
    }
    let mut samples = [Sample::default(), Sample::default()];
    let content = "0123456789abcde\n".repeat(64);
    for round in 0..options.rounds {
        for (index, files) in SIZES.into_iter().enumerate() {
            client.session.clone_from(&sessions[index]);
            for write in 0..WRITES {
                let path = path_of((round * WRITES + write) * 7_919 % files);
                let params = json!({ "path": path, "content": { "inline_text": { "text": format!("{round} {write}\n{content}") } } });
                samples[index].time(|| client.ask("host.fs.write_file", params).map(drop))?;
            }
        }
    }
    let [small, large] = &samples;
    report.race("write 1 KB into 100 000 files", &[("100 000 files", large), ("100 files", small)], |name| {
        (name == "100 files").then_some(Reach::AtMost(WRITE_REACH))
    });
    Ok(())
}

fn path_of(file: usize) -> String {
    format!("d{}/e{}/f{file}", file % 50, file / 50 % 50)
}

/// Adds many files: each patch adds as many as fit into one line on the socket.
fn fill(client: &mut Client, files: usize) -> anyhow::Result<()> {
    let all: Vec<usize> = (0..files).collect();
    for some in all.chunks(10_000) {
        let added: String =
            some.iter().map(|file| format!("*** Add File: {}\n+{file}\n", path_of(*file))).collect();
        let patch = format!("*** Begin Patch\n{added}*** End Patch\n");
        client.ask("host.fs.apply_patch", json!({ "patch": { "inline_text": { "text": patch } } }))?;
    }
    Ok(())
}
