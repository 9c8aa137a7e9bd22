//! Section 8: patches of one and of many files over the socket, beside `git apply`.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use super::daemon::{Daemon, check_ok};
use super::{Options, Reach, Report, Sample};

const FILES: &[usize] = &[1, 2, 4, 8, 16, 32];
/// Of each kind of patch, a round.
const CALLS: usize = 20;
const LINES: usize = 40;
/// The line that each patch changes, in the middle of its file.
const CHANGED: usize = LINES / 2;
const CONTEXT: usize = 3;

pub(crate) fn run(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let dir = options.workplace()?;
    let (root, git_root) = (dir.path().join("product"), dir.path().join("git"));
    let most = FILES.last().copied().unwrap_or_default();
    for root in [&root, &git_root] {
        std::fs::create_dir(root)?;
        for file in 0..most {
            std::fs::write(root.join(name(file)), content(file, 0))?;
        }
    }
    let daemon = Daemon::start(&dir.path().join("home"), "process")?;
    let mut client = daemon.client(&root)?;
    // How often each file was patched: every patch is the next step of the one before.
    let mut steps = vec![0; most];
    let mut samples = vec![(Sample::default(), Sample::default()); FILES.len()];
    for round in 0..=options.rounds {
        for (files, (ours, gits)) in FILES.iter().zip(&mut samples) {
            if round == 1 {
                // The round before only warmed up.
                (*ours, *gits) = (Sample::default(), Sample::default());
            }
            for _ in 0..CALLS {
                let params = json!({ "patch": { "inline_text": { "text": v4a(&steps[..*files]) } } });
                let request = client.request("host.fs.apply_patch", params);
                check_ok(&ours.time(|| client.line.exchange(&request))?)?;
                let diff = unified(&steps[..*files]);
                gits.time(|| git_apply(&git_root, &diff))?;
                steps[..*files].iter_mut().for_each(|step| *step += 1);
            }
        }
    }
    for (file, step) in steps.iter().enumerate() {
        for root in [&root, &git_root] {
            let found = std::fs::read_to_string(root.join(name(file)))?;
            anyhow::ensure!(
                found == content(file, *step),
                "{} does not hold what the patches say",
                name(file)
            );
        }
    }
    let mut ours = Vec::new();
    for (files, (sample, git)) in FILES.iter().zip(&samples) {
        let task = format!("a patch of {files} file{}", if *files == 1 { "" } else { "s" });
        ours.push(report.race(&task, &[("aos", sample), ("git apply (a process each)", git)], |_| None));
    }
    println!("codex-apply-patch in process, for one file: 37–89 µs by bench.md; not run here");
    let per_file = ours[ours.len() - 1] / most as f64;
    let what = format!("one file of a patch of {most} costs, against a patch of one");
    report.figure(&what, per_file / ours[0], "times", Some(Reach::AtMost(1.0)));
    Ok(())
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

/// A file of about 2 KB after so many patches.
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
        // Whatever repository this folder may lie in is none of its business.
        .env("GIT_CEILING_DIRECTORIES", root.parent().unwrap_or(root))
        .stdin(Stdio::piped())
        .spawn()?;
    child.stdin.take().expect("BUG: piped above").write_all(diff.as_bytes())?;
    anyhow::ensure!(child.wait()?.success(), "`git apply` failed");
    Ok(())
}
