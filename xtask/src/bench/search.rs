//! Section 3: grep and glob over the daemon's socket beside ripgrep and `git grep`, on two real trees.
//!
//! deepagents, rust-mcp-filesystem and the Node server are left out: each is far slower than ripgrep, and this section
//! does not install them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;
use serde_json::json;

use super::daemon::{Client, Daemon};
use super::{Options, Reach, Report, Sample};
use crate::setup;

/// A source tree that a package manager can download.
struct Corpus {
    name: &'static str,
    package: &'static str,
    /// Where the sources are in the package: a folder, or an archive.
    inside: &'static str,
    tasks: &'static [Task],
}

struct Task {
    name: &'static str,
    kind: Kind,
    pattern: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Grep,
    /// The ripgrep file type that corresponds to the pattern.
    Glob(&'static str),
}

const CORPORA: &[Corpus] = &[
    Corpus {
        name: "S",
        package: "golang-1.19-src",
        inside: "usr/share/go-1.19",
        tasks: &[
            Task { name: "literal", kind: Kind::Grep, pattern: "ReadFromUDP" },
            Task { name: "regex", kind: Kind::Grep, pattern: r"\bfunc \(\w+ \*?\w+\) Write\w*\(" },
            Task { name: "no match", kind: Kind::Grep, pattern: "qzxjkvwyqzx" },
            Task { name: "many matches", kind: Kind::Grep, pattern: "return" },
            Task { name: "glob by mtime", kind: Kind::Glob("go"), pattern: "**/*.go" },
        ],
    },
    Corpus {
        name: "L",
        package: "linux-source-6.1",
        inside: "usr/src/linux-source-6.1.tar.xz",
        tasks: &[
            Task { name: "literal", kind: Kind::Grep, pattern: "mutex_lock_interruptible" },
            Task { name: "regex", kind: Kind::Grep, pattern: r"\bk[mz]alloc_node\(\w+" },
            Task { name: "no match", kind: Kind::Grep, pattern: "qzxjkvwyqzx" },
            Task { name: "many matches", kind: Kind::Grep, pattern: "static int" },
            Task { name: "glob by mtime", kind: Kind::Glob("rust"), pattern: "**/*.rs" },
        ],
    },
];

/// The targets, as a share of ripgrep's time.
const GREP_REACH: f64 = 0.95;
const GLOB_REACH: f64 = 0.65;

pub(crate) fn run(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let rg = setup::ripgrep(false).context("no ripgrep to compare with")?;
    let cache = options.corpora()?;
    let version = Command::new(&rg).arg("--version").output()?.stdout;
    println!("beside: {}", first_line(&version));
    for corpus in CORPORA {
        let root = corpus.fetch(&cache)?;
        let home = tempfile::tempdir()?;
        let daemon = Daemon::start(home.path(), "process")?;
        let mut client = daemon.client(&root)?;
        for task in corpus.tasks {
            let [ours, rg, git] = measure(options, task, &root, &rg, &mut client)?;
            let reach = if task.kind == Kind::Grep { GREP_REACH } else { GLOB_REACH };
            let mut contenders = vec![("aos", &ours), ("rg", &rg)];
            if task.kind == Kind::Grep {
                contenders.push(("git grep", &git));
            }
            report.race(&format!("{} {}", corpus.name, task.name), &contenders, |name| {
                (name == "rg").then_some(Reach::AtMost(reach))
            });
        }
    }
    Ok(())
}

/// The smaller of the two trees.
pub(super) fn small_corpus(cache: &Path) -> anyhow::Result<PathBuf> {
    CORPORA[0].fetch(cache)
}

fn first_line(output: &[u8]) -> String {
    String::from_utf8_lossy(output).lines().next().unwrap_or_default().to_owned()
}

/// Our times, ripgrep's and git's.
fn measure(
    options: &Options,
    task: &Task,
    root: &Path,
    rg: &Path,
    client: &mut Client,
) -> anyhow::Result<[Sample; 3]> {
    let mut samples: [Sample; 3] = Default::default();
    let [ours, theirs, git] = &mut samples;
    let (found, wanted) = (task.ask(client)?, lines(task.rg(rg, root))?);
    // With a file type ripgrep also lists hidden files, and we count links as files: a few results may differ.
    let differ =
        if task.kind == Kind::Grep { found != wanted } else { found.abs_diff(wanted) > wanted / 100 };
    anyhow::ensure!(!differ, "{}: aos finds {found}, rg {wanted}", task.name);
    for _ in 0..options.rounds {
        ours.time(|| task.ask(client).map(drop))?;
        theirs.time(|| lines(task.rg(rg, root)).map(drop))?;
        if task.kind == Kind::Grep {
            git.time(|| lines(task.git(root)).map(drop))?;
        }
    }
    Ok(samples)
}

/// The number of lines that a command prints. All output is read, as an agent would read it.
pub(super) fn lines(mut command: Command) -> anyhow::Result<u64> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    Ok(output.stdout.iter().filter(|b| **b == b'\n').count() as u64)
}

impl Task {
    /// Searches with the product. Returns the number of results.
    fn ask(&self, client: &mut Client) -> anyhow::Result<u64> {
        let (kind, count) = match self.kind {
            Kind::Grep => ("host.fs.grep", "match_count"),
            Kind::Glob(_) => ("host.fs.glob", "count"),
        };
        let receipt = client.ask(kind, json!({ "pattern": self.pattern, "max_results": 1_000_000 }))?;
        receipt[count].as_u64().context("no count")
    }

    fn rg(&self, rg: &Path, root: &Path) -> Command {
        let mut command = Command::new(rg);
        command.current_dir(root).args(["--no-config", "--color=never"]);
        match self.kind {
            Kind::Grep => command.args(["--line-number", "--no-heading", self.pattern, "."]),
            Kind::Glob(kind) => command.args(["--files", "--sort=modified", "--type", kind, "."]),
        };
        command
    }

    fn git(&self, root: &Path) -> Command {
        let mut command = Command::new("git");
        let words = ["grep", "--line-number", "--no-color", "--perl-regexp", "-e", self.pattern];
        command.current_dir(root).args(words);
        command
    }
}

impl Corpus {
    /// Downloads, unpacks and commits the tree, once.
    fn fetch(&self, cache: &Path) -> anyhow::Result<PathBuf> {
        let root = cache.join(self.name);
        if root.join(".git").join("HEAD").exists() {
            return Ok(root.canonicalize()?);
        }
        println!("fetching {} for corpus {}", self.package, self.name);
        std::fs::create_dir_all(cache)?;
        let work = tempfile::tempdir_in(cache)?;
        succeed(Command::new("apt-get").args(["-q", "download", self.package]).current_dir(work.path()))?;
        let is_package = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "deb");
        let package = std::fs::read_dir(work.path())?
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .find(is_package)
            .context("apt-get downloaded nothing")?;
        let unpacked = work.path().join("unpacked");
        succeed(Command::new("dpkg-deb").arg("-x").args([&package, &unpacked]))?;
        let inside = unpacked.join(self.inside);
        let tree = if inside.is_dir() {
            inside
        } else {
            let tree = work.path().join("tree");
            std::fs::create_dir(&tree)?;
            succeed(
                Command::new("tar").args(["--strip-components=1", "-xf"]).arg(&inside).current_dir(&tree),
            )?;
            tree
        };
        clear_of_packaging(&tree)?;
        for words in [
            &["init", "--quiet"][..],
            &["add", "--all", "--force"],
            &[
                "-c",
                "user.name=bench",
                "-c",
                "user.email=bench@localhost",
                "commit",
                "--quiet",
                "-m",
                "corpus",
            ],
        ] {
            succeed(Command::new("git").args(words).current_dir(&tree))?;
        }
        std::fs::rename(&tree, &root)?;
        Ok(root.canonicalize()?)
    }
}

/// Removes a rule of Debian's kernel sources that makes git ignore all of them.
fn clear_of_packaging(tree: &Path) -> anyhow::Result<()> {
    let path = tree.join(".gitignore");
    let rules = std::fs::read_to_string(&path).unwrap_or_default();
    if let Some(start) = rules.find("# Debian packaging") {
        std::fs::write(&path, &rules[..start])?;
    }
    Ok(())
}

fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let status = command.stdout(Stdio::null()).status()?;
    anyhow::ensure!(status.success(), "{command:?} did not succeed");
    Ok(())
}
