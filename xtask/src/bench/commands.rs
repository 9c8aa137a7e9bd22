//! Section 4, commands: `true` by itself, through the daemon with and without its sandbox, and through bubblewrap; and
//! how fast output becomes a blob.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use super::daemon::programs;
use super::{Options, Reach, Report, Sample};
use aos_testkit::Client;
use aos_testkit::torture::Setup;

const CALLS: usize = 50;
/// The most output that is stored whole. Each round writes a page less, so that its blob does not exist yet.
const OUTPUT_BYTES: usize = 256 << 20;
/// How much longer an isolated command may take than a plain one, in microseconds.
const OVER_PLAIN: Reach = Reach::AtMost(2_000.0);
const OF_BWRAP: Reach = Reach::AtMost(0.75);
const OUTPUT_MB_A_SECOND: Reach = Reach::AtLeast(500.0);

pub(crate) fn run(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let dir = options.workplace()?;
    let root = dir.path().join("root");
    std::fs::create_dir(&root)?;
    let setup = Setup { programs: programs()?, home: dir.path().join("home"), roots: vec![root.clone()] };
    let daemon = setup.start_daemon(&[]).map_err(anyhow::Error::msg)?;
    spawns(options, report, &setup.home, &root)?;
    output(options, report, &setup.home, &root)?;
    daemon.kill();
    Ok(())
}

/// A way to run `true`.
enum Contender {
    Plain,
    Product { client: Client, session: String, capture: &'static str },
    Bubblewrap,
}

impl Contender {
    fn product(
        home: &Path,
        root: &Path,
        isolation: &str,
        capture: &'static str,
    ) -> anyhow::Result<Contender> {
        let mut client = Client::connect(home)?;
        let session = open(&mut client, root, isolation)?;
        Ok(Contender::Product { client, session, capture })
    }

    fn run(&mut self) -> anyhow::Result<()> {
        match self {
            Contender::Plain => ended_well(Command::new("true")),
            Contender::Bubblewrap => {
                let mut command = Command::new("bwrap");
                command.args(["--unshare-all", "--ro-bind", "/", "/", "true"]);
                ended_well(command)
            }
            Contender::Product { client, session, capture } => {
                let params = json!({ "session_id": session, "argv": ["true"], "capture": capture });
                let receipt = client.try_effect("host.exec", &params, "setup").unwrap_or_default();
                anyhow::ensure!(receipt["exit_code"] == 0, "true: {receipt}");
                Ok(())
            }
        }
    }
}

fn ended_well(mut command: Command) -> anyhow::Result<()> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    anyhow::ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

fn open(client: &mut Client, root: &Path, isolation: &str) -> anyhow::Result<String> {
    let params = json!({ "target": { "local": { "workdir": root } }, "isolation": isolation,
        "capability": { "exec": { "uncaptured": true } } });
    client.open_with(&params).map_err(anyhow::Error::msg)
}

fn spawns(options: &Options, report: &mut Report, home: &Path, root: &Path) -> anyhow::Result<()> {
    let mut contenders = vec![
        ("aos, isolated", Contender::product(home, root, "strict", "none")?),
        ("aos, isolation none", Contender::product(home, root, "none", "none")?),
        ("aos, isolated, capture auto", Contender::product(home, root, "strict", "auto")?),
        ("plain spawn", Contender::Plain),
        ("bwrap --unshare-all", Contender::Bubblewrap),
    ];
    // A contender that does not work here is left out and reported: bwrap cannot be root on every machine.
    contenders.retain_mut(|(name, contender)| match contender.run() {
        Ok(()) => true,
        Err(why) => {
            println!("left out: {name}: {why}");
            false
        }
    });
    let mut samples = vec![Sample::default(); contenders.len()];
    for _ in 0..options.rounds {
        for ((_, contender), sample) in contenders.iter_mut().zip(&mut samples) {
            for _ in 0..CALLS {
                sample.time(|| contender.run())?;
            }
        }
    }
    let median = |wanted: &str| {
        let found = contenders.iter().zip(&samples).find(|((name, _), _)| *name == wanted);
        found.map_or(f64::NAN, |(_, sample)| sample.median())
    };
    let standings: Vec<(&str, &Sample)> = contenders.iter().map(|(name, _)| *name).zip(&samples).collect();
    let isolated =
        report.race("`true`", &standings, |name| (name == "bwrap --unshare-all").then_some(OF_BWRAP));
    let over = isolated - median("plain spawn");
    report.figure("isolated `true` over a plain spawn", over, "µs", Some(OVER_PLAIN));
    Ok(())
}

/// A command's output into a blob, compared with the same output through a pipe that is discarded.
fn output(options: &Options, report: &mut Report, home: &Path, root: &Path) -> anyhow::Result<()> {
    let mut client = Client::connect(home)?;
    let session = open(&mut client, root, "strict")?;
    let (mut kept, mut piped) = (Sample::default(), Sample::default());
    for round in 0..options.rounds {
        // Without this the disk's speed is measured: the kernel throttles a process that has many dirty pages.
        rustix::fs::syncfs(std::fs::File::open(home)?)?;
        let bytes = OUTPUT_BYTES - 4096 * round;
        let params = json!({ "session_id": session, "argv": ["head", "-c", bytes.to_string(), "/dev/zero"] });
        kept.time(|| {
            let receipt = client.try_effect("host.exec", &params, "setup").unwrap_or_default();
            anyhow::ensure!(receipt["stdout"]["blob"]["size_bytes"] == bytes, "output: {receipt}");
            Ok(())
        })?;
        piped.time(|| pipe(bytes))?;
    }
    let rate = |sample: &Sample| OUTPUT_BYTES as f64 / sample.median();
    report.figure("output into a blob", rate(&kept), "MB/s", Some(OUTPUT_MB_A_SECOND));
    report.figure("output through a pipe, dropped", rate(&piped), "MB/s", None);
    Ok(())
}

fn pipe(bytes: usize) -> anyhow::Result<()> {
    let mut command = Command::new("head");
    let mut child = command.args(["-c", &bytes.to_string(), "/dev/zero"]).stdout(Stdio::piped()).spawn()?;
    let mut from = child.stdout.take().ok_or_else(|| anyhow::anyhow!("it was piped"))?;
    let copied = std::io::copy(&mut from, &mut std::io::sink())?;
    child.wait()?;
    anyhow::ensure!(copied == bytes as u64, "{copied} bytes came through");
    Ok(())
}
