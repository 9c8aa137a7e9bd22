//! Section 5, undo: the cost of keeping pre-images, compared with not keeping them, by the size of the tree, and with
//! a shadow git repository as in other agents.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::daemon::programs;
use super::task::content;
use super::{Options, Reach, Report, Sample};
use aos_testkit::Client;
use aos_testkit::torture::Setup;

const SMALL: usize = 1 << 10;
const LARGE: usize = 10 << 20;
const SMALL_CALLS: usize = 100;
const LARGE_CALLS: usize = 3;
const COMMAND_CALLS: usize = 30;
/// The two trees: the number of folders of a hundred files, and how much faster than a shadow commit we must be.
const TREES: [(&str, usize, f64); 2] = [("S", 50, 100.0), ("L", 500, 500.0)];

const OF_NO_CAPTURE: Reach = Reach::AtMost(1.3);
const LARGE_OF_WRITE_AND_HASH: Reach = Reach::AtMost(1.5);
const SAME_ON_BOTH_TREES: Reach = Reach::AtMost(1.1);
const RESTORE_US: Reach = Reach::AtMost(500.0);
const COMMAND_OVER_PLAIN_US: Reach = Reach::AtMost(4_000.0);

pub(crate) fn run(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let dir = options.workplace()?;
    let trees: Vec<PathBuf> = TREES.iter().map(|(name, ..)| dir.path().join(name)).collect();
    for (root, (_, folders, _)) in trees.iter().zip(TREES) {
        plant(root, folders)?;
    }
    rustix::fs::syncfs(std::fs::File::open(dir.path())?)?;
    let setup = Setup { programs: programs()?, home: dir.path().join("home"), roots: trees.clone() };
    let daemon = setup.start_daemon(&[]).map_err(anyhow::Error::msg)?;
    let mut captured = trees
        .iter()
        .map(|root| Session::open(&setup.home, root, true))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let mut bare = Session::open(&setup.home, &trees[0], false)?;
    let written = small(options, report, &mut captured, &mut bare)?;
    for (((name, _, reach), root), ours) in TREES.iter().zip(&trees).zip(written) {
        shadow(options, report, &dir.path().join(format!("{name}.git")), root, (ours, *reach))?;
    }
    large(options, report, &mut captured[0], &mut bare)?;
    command(options, report, &mut captured[0])?;
    daemon.kill();
    Ok(())
}

/// Folders of a hundred files of two kilobytes.
fn plant(root: &Path, folders: usize) -> anyhow::Result<()> {
    for folder in 0..folders {
        let path = root.join(format!("d{folder:03}"));
        std::fs::create_dir_all(&path)?;
        for file in 0..100 {
            std::fs::write(path.join(format!("f{file:02}.txt")), content(2 << 10, folder * 100 + file))?;
        }
    }
    Ok(())
}

/// A connection with a session that does or does not keep pre-images.
struct Session {
    client: Client,
    id: String,
    calls: usize,
}

impl Session {
    fn open(home: &Path, root: &Path, captures: bool) -> anyhow::Result<Session> {
        let mut client = Client::connect(home)?;
        let params = json!({ "target": { "local": { "workdir": root } }, "auto_snapshot": captures });
        let id = client.open_with(&params).map_err(anyhow::Error::msg)?;
        Ok(Session { client, id, calls: 0 })
    }

    /// One effect with a new tool call id.
    fn ask(&mut self, kind: &str, mut params: Value) -> anyhow::Result<Value> {
        self.calls += 1;
        params["session_id"] = json!(self.id);
        let call = format!("c{}", self.calls);
        let receipt = self.client.try_effect(kind, &params, &call).unwrap_or_default();
        anyhow::ensure!(receipt["status"] == "ok", "{kind}: {receipt}");
        Ok(receipt)
    }

    fn write(&mut self, path: &str, text: &str) -> anyhow::Result<Value> {
        self.ask(
            "host.fs.write_file",
            json!({ "path": path, "content": { "inline_text": { "text": text } } }),
        )
    }
}

/// Writes a small file with and without capture, on both trees, and restores it. Returns the time of a captured write
/// on each tree.
fn small(
    options: &Options,
    report: &mut Report,
    captured: &mut [Session],
    bare: &mut Session,
) -> anyhow::Result<Vec<f64>> {
    let mut kept = vec![Sample::default(); captured.len()];
    let (mut dropped, mut restored) = (Sample::default(), Sample::default());
    for round in 0..options.rounds {
        for call in 0..SMALL_CALLS {
            let text = content(SMALL, round * SMALL_CALLS + call);
            for (session, sample) in captured.iter_mut().zip(&mut kept) {
                sample.time(|| session.write("d000/f00.txt", &text))?;
            }
            dropped.time(|| bare.write("d000/f01.txt", &text))?;
        }
        for call in 0..SMALL_CALLS {
            let session = &mut captured[0];
            session.write("d000/f00.txt", &content(SMALL, 1_000_000 + round * SMALL_CALLS + call))?;
            let undo = json!({ "scope_id": format!("c{}", session.calls) });
            restored.time(|| session.ask("host.fs.restore", undo))?;
        }
    }
    let reach = |name: &str| (name == "without capture").then_some(OF_NO_CAPTURE);
    report.race("write 1 KB", &[("aos, captured", &kept[0]), ("without capture", &dropped)], reach);
    let medians: Vec<f64> = kept.iter().map(Sample::median).collect();
    let what = "a captured write in 50 000 files, against one in 5 000";
    report.figure(what, medians[1] / medians[0], "×", Some(SAME_ON_BOTH_TREES));
    report.figure("restore of one file, over the socket", restored.median(), "µs", Some(RESTORE_US));
    Ok(medians)
}

/// What other agents do before each tool call: commit the whole tree to a separate repository.
fn shadow(
    options: &Options,
    report: &mut Report,
    git_dir: &Path,
    root: &Path,
    (ours, reach): (f64, f64),
) -> anyhow::Result<()> {
    let git = |words: &[&str]| -> anyhow::Result<()> {
        let mut command = Command::new("git");
        command.arg("--git-dir").arg(git_dir).arg("--work-tree").arg(root).args(words);
        command.args(if words[0] == "commit" { &["--no-verify"][..] } else { &[] });
        for (name, value) in [("NAME", "setup"), ("EMAIL", "setup@example.com")] {
            command.env(format!("GIT_AUTHOR_{name}"), value).env(format!("GIT_COMMITTER_{name}"), value);
        }
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
        let output = command.stdin(Stdio::null()).output()?;
        anyhow::ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    };
    git(&["init", "-q"])?;
    git(&["add", "-A"])?;
    git(&["commit", "-q", "-m", "first"])?;
    let mut sample = Sample::default();
    for round in 0..options.rounds {
        std::fs::write(root.join("d000/f02.txt"), content(SMALL, round + 1))?;
        sample.time(|| git(&["add", "-A"]).and_then(|()| git(&["commit", "-q", "-m", "next"])))?;
    }
    let files = if reach > 100.0 { "50 000" } else { "5 000" };
    let what = format!("a shadow commit of one file in {files}, against a captured write");
    report.figure(&what, sample.median() / ours, "×", Some(Reach::AtLeast(reach)));
    Ok(())
}

fn large(
    options: &Options,
    report: &mut Report,
    captured: &mut Session,
    bare: &mut Session,
) -> anyhow::Result<()> {
    let (mut kept, mut dropped, mut hashed) = (Sample::default(), Sample::default(), Sample::default());
    for round in 0..options.rounds * LARGE_CALLS {
        let text = content(LARGE, round);
        kept.time(|| captured.write("large-1", &text))?;
        dropped.time(|| bare.write("large-2", &text))?;
        hashed.time(|| Ok(std::hint::black_box(Sha256::digest(&text))))?;
    }
    let what = "write of 10 MB, captured, against without and one SHA-256";
    let ratio = kept.median() / (dropped.median() + hashed.median());
    report.figure(what, ratio, "×", Some(LARGE_OF_WRITE_AND_HASH));
    Ok(())
}

/// A command that changes one file, by itself and captured.
fn command(options: &Options, report: &mut Report, session: &mut Session) -> anyhow::Result<()> {
    let dir = options.workplace()?;
    let (mut plain, mut captured) = (Sample::default(), Sample::default());
    for call in 0..options.rounds * COMMAND_CALLS {
        let script = format!("echo {call} > changed.txt");
        plain.time(|| {
            let status = Command::new("sh").args(["-c", &script]).current_dir(dir.path()).status()?;
            anyhow::ensure!(status.success(), "{script}: {status}");
            Ok(())
        })?;
        let params = json!({ "argv": ["sh", "-c", script] });
        let receipt = captured.time(|| session.ask("host.exec", params))?;
        anyhow::ensure!(receipt["coverage"] == "overlay", "no overlay here: {receipt}");
    }
    let over = captured.median() - plain.median();
    report.figure("a captured command over a plain one", over, "µs", Some(COMMAND_OVER_PLAIN_US));
    Ok(())
}
