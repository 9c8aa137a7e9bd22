//! Section 7: `aos mcp` beside other MCP servers: the first answer, small files, a search, memory.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::daemon::{Daemon, connect, programs};
use super::peers::mcp::{Dialect, Server};
use super::peers::{self, Peer};
use super::small_files::{Contender, race};
use super::task::{Kind, TASKS};
use super::{Options, Reach, Report, Sample};

const FIRST_ANSWER_MS: Reach = Reach::AtMost(20.0);
const FIRST_ANSWER_ALONE_MS: Reach = Reach::AtMost(100.0);
const IDLE_MB: Reach = Reach::AtMost(20.0);
const OF_A_SEARCH: Reach = Reach::AtMost(0.05);

pub(crate) fn run(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let dir = options.workplace()?;
    let (home, root) = (dir.path().join("home"), dir.path().join("ours"));
    std::fs::create_dir(&root)?;
    first_answers(options, report, &dir.path().join("home of its own"), &root, false)?;
    let daemon = Daemon::start(&home, "process")?;
    connect(&home.join("run/aosd.sock"))?;
    report.figure("the daemon's memory, idle", daemon.resident_mb()?, "MB", Some(IDLE_MB));
    first_answers(options, report, &home, &root, true)?;
    let mut servers = vec![ours(&home, &root)?];
    if !options.no_peers {
        servers.extend(peers::start_mcp(dir.path(), report)?);
    }
    search(options, report, &mut servers)?;
    let mut contenders = peers::boxed(servers);
    for tasks in &TASKS[..3] {
        race(tasks, &mut contenders, options.rounds, report, &reach)?;
    }
    report.figure("the daemon's memory afterwards", daemon.resident_mb()?, "MB", None);
    Ok(())
}

fn reach(kind: Kind, name: &str) -> Option<Reach> {
    let limit = match kind {
        _ if name.starts_with(Peer::NODE) => 0.4,
        Kind::Read if name.starts_with(Peer::RUST) => 0.8,
        // It keeps no record and writes in place.
        Kind::Write | Kind::Edit if name.starts_with(Peer::RUST) => 1.1,
        _ => return None,
    };
    Some(Reach::AtMost(limit))
}

fn ours(home: &Path, root: &Path) -> anyhow::Result<Server> {
    let mut command = Command::new(programs()?.aos);
    command.args(["mcp", "--root"]).env("AOS_HOME", home);
    Server::start("aos mcp".to_owned(), Dialect::Ours, command, root)
}

/// The time from the start of the program to its first answer, with or without a running daemon.
fn first_answers(
    options: &Options,
    report: &mut Report,
    home: &Path,
    root: &Path,
    has_daemon: bool,
) -> anyhow::Result<()> {
    let aos = programs()?.aos;
    let mut sample = Sample::default();
    for _ in 0..options.rounds {
        let mut command = Command::new(&aos);
        command.args(["mcp", "--root"]).env("AOS_HOME", home);
        sample.time(|| Server::start("aos mcp".to_owned(), Dialect::Ours, command, root))?;
        if !has_daemon {
            let stopped = Command::new(&aos).args(["daemon", "stop"]).env("AOS_HOME", home).output()?;
            anyhow::ensure!(stopped.status.success(), "the daemon does not stop");
        }
    }
    let (what, reach) = match has_daemon {
        true => ("start to first answer, with the daemon running", FIRST_ANSWER_MS),
        false => ("start to first answer, without a daemon", FIRST_ANSWER_ALONE_MS),
    };
    report.figure(what, sample.median() / 1_000.0, "ms", Some(reach));
    Ok(())
}

const FILES: usize = 2_000;
const SEARCHES: usize = 3;

/// The same search in the same tree, by the servers that can search file contents.
fn search(options: &Options, report: &mut Report, servers: &mut [Server]) -> anyhow::Result<()> {
    let mut searchers: Vec<&mut Server> =
        servers.iter_mut().filter(|server| asked(server).is_some()).collect();
    for server in &searchers {
        plant(server.root())?;
    }
    let mut samples = vec![Sample::default(); searchers.len()];
    for round in 0..=options.rounds {
        for (server, sample) in searchers.iter_mut().zip(&mut samples) {
            if round == 1 {
                *sample = Sample::default();
            }
            for _ in 0..SEARCHES {
                let (tool, arguments) = asked(server).expect("BUG: only those that can");
                let result = server.call(tool, &arguments, sample)?;
                anyhow::ensure!(result.to_string().contains("needle"), "nothing was found: {result}");
            }
        }
    }
    let standings: Vec<(&str, &Sample)> =
        searchers.iter().zip(&samples).map(|(server, sample)| (server.name(), sample)).collect();
    report.race("search 2 000 files of 10 KB", &standings, |name| {
        name.starts_with(Peer::RUST).then_some(OF_A_SEARCH)
    });
    Ok(())
}

fn asked(server: &Server) -> Option<(&'static str, Value)> {
    let name = server.name();
    if name.starts_with(Peer::RUST) {
        let place = server.root().join("tree");
        return Some((
            "search_files_content",
            json!({ "path": place, "pattern": "*.txt", "query": "needle", "is_regex": false }),
        ));
    }
    (!name.starts_with(Peer::NODE)).then(|| ("grep", json!({ "pattern": "needle", "path": "tree" })))
}

/// Folders of files with a needle in every fortieth.
fn plant(root: &Path) -> anyhow::Result<()> {
    for file in 0..FILES {
        let folder = root.join(format!("tree/{:02}", file / 50));
        std::fs::create_dir_all(&folder)?;
        let mut text = "hay and more hay, and nothing else in this line\n".repeat(200);
        if file % 40 == 0 {
            text.push_str("here is a needle\n");
        }
        std::fs::write(folder.join(format!("{file}.txt")), text)?;
    }
    Ok(())
}
