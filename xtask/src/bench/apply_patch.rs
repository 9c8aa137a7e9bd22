//! Section 8: patches of one and of many files over the socket, beside `git apply` and codex's `apply_patch`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use super::daemon::{Client, Daemon, check_ok};
use super::peers;
use super::{Options, Reach, Report, Sample};

const FILES: &[usize] = &[1, 2, 4, 8, 16, 32];
/// Patches of each kind per round.
const CALLS: usize = 20;
const LINES: usize = 40;
/// The line that each patch changes, in the middle of its file.
const CHANGED: usize = LINES / 2;
const CONTEXT: usize = 3;

/// A contender that applies patches, each in its own folder.
enum PatchTool {
    Product(Box<Client>),
    Git,
    /// The program that npm installs: the same file as the agent, under the name that makes it apply patches.
    Codex(PathBuf),
}

impl PatchTool {
    fn apply(&mut self, root: &Path, steps: &[usize], sample: &mut Sample) -> anyhow::Result<()> {
        match self {
            PatchTool::Product(client) => {
                let params = json!({ "patch": { "inline_text": { "text": v4a(steps) } } });
                let request = client.request("host.fs.apply_patch", params);
                check_ok(&sample.time(|| client.line.exchange(&request))?)
            }
            PatchTool::Git => {
                let diff = unified(steps);
                sample.time(|| git_apply(root, &diff))
            }
            PatchTool::Codex(program) => {
                let patch = v4a(steps);
                let mut command = Command::new(program);
                command.current_dir(root).arg(&patch).stdout(Stdio::null());
                let status = sample.time(|| Ok(command.status()?))?;
                anyhow::ensure!(status.success(), "`apply_patch` failed");
                Ok(())
            }
        }
    }
}

pub(crate) fn run(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let dir = options.workplace()?;
    let most = FILES.last().copied().unwrap_or_default();
    let root_of = |name: &str| -> anyhow::Result<PathBuf> {
        let root = dir.path().join(name);
        std::fs::create_dir(&root)?;
        for file in 0..most {
            std::fs::write(root.join(self::name(file)), content(file, 0))?;
        }
        Ok(root)
    };
    let daemon = Daemon::start(&dir.path().join("home"), "process")?;
    let root = root_of("product")?;
    let client = Box::new(daemon.client(&root)?);
    let mut tools = vec![
        ("aos".to_owned(), root, PatchTool::Product(client)),
        ("git apply (a process each)".to_owned(), root_of("git")?, PatchTool::Git),
    ];
    if !options.no_peers {
        match peers::codex() {
            Ok((name, program)) => {
                let name = format!("{name} apply_patch (a process each)");
                tools.push((name, root_of("codex")?, PatchTool::Codex(program)));
            }
            Err(why) => report.leave_out("codex apply_patch", &why),
        }
    }
    let samples = rounds(options, &mut tools, most)?;
    let mut ours = Vec::new();
    for (files, samples) in FILES.iter().zip(&samples) {
        let task = format!("a patch of {files} file{}", if *files == 1 { "" } else { "s" });
        let contenders: Vec<(&str, &Sample)> =
            tools.iter().map(|(name, ..)| name.as_str()).zip(samples).collect();
        ours.push(report.race(&task, &contenders, |_| None));
    }
    println!(
        "codex-apply-patch in process, for one file: 37–89 µs by bench.md; it is in no registry, so not run here"
    );
    let per_file = ours[ours.len() - 1] / most as f64;
    let what = format!("one file of a patch of {most} costs, against a patch of one");
    report.figure(&what, per_file / ours[0], "×", Some(Reach::AtMost(1.0)));
    Ok(())
}

/// Runs all contenders in turns. Returns their times for each number of files.
fn rounds(
    options: &Options,
    tools: &mut [(String, PathBuf, PatchTool)],
    most: usize,
) -> anyhow::Result<Vec<Vec<Sample>>> {
    // How often each file was patched: every patch builds on the one before.
    let mut steps = vec![0; most];
    let mut samples = vec![vec![Sample::default(); tools.len()]; FILES.len()];
    for round in 0..=options.rounds {
        for (files, samples) in FILES.iter().zip(&mut samples) {
            if round == 1 {
                // Discard the warm-up round.
                samples.fill(Sample::default());
            }
            for _ in 0..CALLS {
                for ((_, root, hand), sample) in tools.iter_mut().zip(samples.iter_mut()) {
                    hand.apply(root, &steps[..*files], sample)?;
                }
                steps[..*files].iter_mut().for_each(|step| *step += 1);
            }
        }
    }
    for (file, step) in steps.iter().enumerate() {
        for (who, root, _) in tools.iter() {
            let found = std::fs::read_to_string(root.join(name(file)))?;
            let wanted = content(file, *step);
            anyhow::ensure!(found == wanted, "{who}: {} does not hold what the patches say", name(file));
        }
    }
    Ok(samples)
}

fn name(file: usize) -> String {
    format!("file-{file:02}.txt")
}

fn line(number: usize) -> String {
    format!("line {number:02} of a file that is patched again and again")
}

fn changed_line(file: usize, step: usize) -> String {
    format!("file {file:02} was patched {step:06} times")
}

/// The content of a file of about 2 KB after `step` patches.
fn content(file: usize, step: usize) -> String {
    let lines = (0..LINES).map(|n| if n == CHANGED { changed_line(file, step) } else { line(n) });
    lines.map(|line| line + "\n").collect()
}

/// The hunk both formats share: some lines of context, the change, some lines of context.
fn hunk(file: usize, step: usize) -> String {
    let mut text = String::new();
    let mut push = |sign: char, line: &str| {
        text.push(sign);
        text.push_str(line);
        text.push('\n');
    };
    (CHANGED - CONTEXT..CHANGED).for_each(|n| push(' ', &line(n)));
    push('-', &changed_line(file, step));
    push('+', &changed_line(file, step + 1));
    (CHANGED + 1..=CHANGED + CONTEXT).for_each(|n| push(' ', &line(n)));
    text
}

fn v4a(steps: &[usize]) -> String {
    let files = steps.iter().enumerate();
    let updates =
        files.map(|(file, step)| format!("*** Update File: {}\n@@\n{}", name(file), hunk(file, *step)));
    format!("*** Begin Patch\n{}*** End Patch\n", updates.collect::<String>())
}

fn unified(steps: &[usize]) -> String {
    let (first, count) = (CHANGED - CONTEXT + 1, 2 * CONTEXT + 1);
    let files = steps.iter().enumerate();
    let diff = |(file, step): (usize, &usize)| {
        let (name, hunk) = (name(file), hunk(file, *step));
        format!("--- a/{name}\n+++ b/{name}\n@@ -{first},{count} +{first},{count} @@\n{hunk}")
    };
    files.map(diff).collect()
}

fn git_apply(root: &Path, diff: &str) -> anyhow::Result<()> {
    let mut child = Command::new("git")
        .arg("apply")
        .current_dir(root)
        // Git must not find a repository above this folder.
        .env("GIT_CEILING_DIRECTORIES", root.parent().unwrap_or(root))
        .stdin(Stdio::piped())
        .spawn()?;
    child.stdin.take().expect("BUG: piped above").write_all(diff.as_bytes())?;
    anyhow::ensure!(child.wait()?.success(), "`git apply` failed");
    Ok(())
}
