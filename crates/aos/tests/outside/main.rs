//! The MCP front end, tested by third-party software: the official clients, the inspector, the conformance suite.
//!
//! `cargo xtask test` installs them into the target folder (`AOS_OUTSIDE` names another place). What is not installed
//! is reported and counted as skipped.
#![allow(
    clippy::disallowed_methods,
    reason = "a test prepares and inspects the disk behind the product's back"
)]

mod fixture;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use aos_testkit::{Outcome, Programs, World, check};
use libtest_mimic::{Arguments, Trial};

const FIXTURE: &str = "--fixture-server";
const TOKEN: &str = "a-token-of-the-outside-tests";

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == FIXTURE) {
        fixture::main();
    }
    let arguments = Arguments::from_args();
    let trials = [
        ("the official Python client", "python/.ready", python as fn(&Path) -> Outcome),
        (
            "the official TypeScript SDK",
            "node/node_modules/@modelcontextprotocol/sdk/package.json",
            typescript,
        ),
        ("the inspector", "node/node_modules/.bin/mcp-inspector", inspector),
        ("the conformance suite of 2025-11-25", "node/node_modules/.bin/conformance", conformance),
    ];
    let trials = trials.into_iter().map(|(name, needs, run)| trial(&arguments, name, needs, run)).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn outside() -> PathBuf {
    std::env::var_os("AOS_OUTSIDE").map_or_else(|| Programs::tools().join("mcp"), PathBuf::from)
}

fn trial(arguments: &Arguments, name: &str, needs: &str, run: fn(&Path) -> Outcome) -> Trial {
    let place = outside();
    let why = (!place.join(needs).exists())
        .then(|| format!("{needs} is not installed (`cargo xtask test` installs it)"));
    aos_testkit::needs::trial(arguments, name, why.as_deref(), move || run(&place))
}

/// A world with a file in it.
fn greeted() -> World {
    let world = World::new();
    world.write("greeting.txt", "hello\nworld\n");
    world
}

/// Runs a program to its end; when it fails, its output is the error.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|why| format!("{command:?}: {why}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let told = String::from_utf8_lossy(&output.stderr);
    check(output.status.success(), || format!("{:?}: {said}\n{told}", output.status))?;
    Ok(said)
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/outside").join(name)
}

fn node(place: &Path) -> Command {
    Command::new(place.join("node/node_modules/node/bin/node"))
}

fn python(place: &Path) -> Outcome {
    let world = greeted();
    let mut command = Command::new(place.join("python/bin/python"));
    command.arg(script("client.py")).arg(&world.programs.aos).arg(&world.root).env("AOS_HOME", &world.home);
    let said = run(&mut command)?;
    check(said.contains("all well"), || said.clone())?;
    world.finish()
}

fn typescript(place: &Path) -> Outcome {
    let world = greeted();
    let mut server = Command::new(&world.programs.aos);
    server.args(["mcp", "--http", "127.0.0.1:0", "--structured", "--root"]).arg(&world.root);
    server.env("AOS_HOME", &world.home).env("AOS_MCP_TOKEN", TOKEN);
    let server =
        Served::start(server.stderr(Stdio::piped()), |child| Box::new(child.stderr.take().expect("piped")))?;
    let mut command = node(place);
    command.arg(script("client.mjs")).arg(place.join("node")).args([&server.url, TOKEN]).arg(&world.root);
    let said = run(&mut command)?;
    check(said.contains("all well"), || said.clone())?;
    drop(server);
    world.finish()
}

fn inspector(place: &Path) -> Outcome {
    let world = greeted();
    let ask = |words: &[&str]| {
        let mut command = node(place);
        command.arg(place.join("node/node_modules/.bin/mcp-inspector")).arg("--cli");
        command.arg("-e").arg(format!("AOS_HOME={}", world.home.display()));
        run(command.arg(&world.programs.aos).args(["mcp", "--root"]).arg(&world.root).args(words))
    };
    let tools = ask(&["--method", "tools/list"])?;
    check(tools.contains("\"apply_patch\""), || tools.clone())?;
    let read =
        ask(&["--method", "tools/call", "--tool-name", "read_file", "--tool-arg", "path=greeting.txt"])?;
    check(read.contains("   2 | world"), || read.clone())?;
    let resources = ask(&["--method", "resources/list"])?;
    check(resources.contains("aos://journal"), || resources.clone())?;
    world.finish()
}

fn conformance(place: &Path) -> Outcome {
    let own = std::env::current_exe().map_err(|why| why.to_string())?;
    let mut server = Command::new(own);
    let server = Served::start(server.arg(FIXTURE).stdout(Stdio::piped()), |child| {
        Box::new(child.stdout.take().expect("piped"))
    })?;
    let results = tempfile::tempdir().map_err(|why| why.to_string())?;
    let mut command = node(place);
    command.arg(place.join("node/node_modules/.bin/conformance"));
    command.args([
        "server",
        "--url",
        &server.url,
        "--spec-version",
        "2025-11-25",
        "--suite",
        "all",
        "--output-dir",
    ]);
    let said = run(command.arg(results.path()))?;
    println!("{}", said.lines().filter(|line| line.contains("Total")).collect::<Vec<_>>().join("\n"));
    Ok(())
}

/// A server that prints its address on one of its first lines.
struct Served {
    child: Child,
    url: String,
}

impl Served {
    fn start(
        command: &mut Command,
        stream: impl FnOnce(&mut Child) -> Box<dyn std::io::Read + Send>,
    ) -> Result<Served, String> {
        let mut child = command.stdin(Stdio::null()).spawn().map_err(|why| why.to_string())?;
        let mut lines = BufReader::new(stream(&mut child)).lines();
        let url = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let start = line.find("http://")?;
            Some(line[start..].split([';', ' ']).next().unwrap_or_default().to_owned())
        });
        // Its later output must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        url.map(|url| Served { child, url }).ok_or_else(|| "the server said no address".to_owned())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
