//! Section 4, commands: `true` by itself, through the daemon with and without its walls, and through bubblewrap; and how
//! fast output becomes a blob.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use super::{Options, Sample, small_files};
use crate::torture::kill::{Bench, Programs};
use crate::torture::load::Wire;

const CALLS: usize = 50;
/// As much as is kept whole; each round a page less, so that no blob is there already.
const OUTPUT_BYTES: usize = 256 << 20;
/// What an isolated command may take over a plain one, in microseconds.
const OVER_PLAIN_MAX: f64 = 2_000.0;
const OF_BWRAP_MAX: f64 = 0.75;
const OUTPUT_MB_A_SECOND: f64 = 500.0;

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let dir = match &options.dir {
        Some(dir) => tempfile::tempdir_in(dir)?,
        None => tempfile::tempdir()?,
    };
    let programs = small_files::build()?;
    let programs = Programs { aosd: programs.join("aosd"), aos: programs.join("aos") };
    let root = dir.path().join("root");
    std::fs::create_dir(&root)?;
    let bench = Bench { programs, home: dir.path().join("home"), roots: vec![root.clone()] };
    let daemon =
        bench.start(&[], &[]).map_err(|why| anyhow::anyhow!("the daemon does not start: {why:?}"))?;
    spawns(options, &bench.home, &root)?;
    output(options, &bench.home, &root)?;
    daemon.kill();
    Ok(())
}

/// Who runs `true`.
enum Contender {
    Plain,
    Product { wire: Wire, session: String, capture: &'static str },
    Bubblewrap,
}

impl Contender {
    fn product(
        home: &Path,
        root: &Path,
        isolation: &str,
        capture: &'static str,
    ) -> anyhow::Result<Contender> {
        let mut wire = Wire::connect(home)?;
        let session = open(&mut wire, root, isolation)?;
        Ok(Contender::Product { wire, session, capture })
    }

    fn run(&mut self) -> anyhow::Result<()> {
        match self {
            Contender::Plain => ended_well(Command::new("true")),
            Contender::Bubblewrap => {
                let mut command = Command::new("bwrap");
                command.args(["--unshare-all", "--ro-bind", "/", "/", "true"]);
                ended_well(command)
            }
            Contender::Product { wire, session, capture } => {
                let params = json!({ "session_id": session, "argv": ["true"], "capture": capture });
                let receipt = wire.effect("host.exec", &params, "bench").unwrap_or_default();
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

fn open(wire: &mut Wire, root: &Path, isolation: &str) -> anyhow::Result<String> {
    let params = json!({ "target": { "local": { "workdir": root } }, "isolation": isolation });
    let receipt = wire.effect("host.session.open", &params, "bench").unwrap_or_default();
    let session = receipt["session_id"].as_str().map(str::to_owned);
    session.ok_or_else(|| anyhow::anyhow!("no session: {receipt}"))
}

fn spawns(options: &Options, home: &Path, root: &Path) -> anyhow::Result<()> {
    let mut contenders = vec![
        ("plain spawn", Contender::Plain),
        ("aos, isolation none", Contender::product(home, root, "none", "none")?),
        ("aos, isolated", Contender::product(home, root, "strict", "none")?),
        ("aos, isolated, capture auto", Contender::product(home, root, "strict", "auto")?),
        ("bwrap --unshare-all", Contender::Bubblewrap),
    ];
    // A contender that does not work here is left out, and said so: not every machine lets bwrap be root.
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
    let (plain, bwrap) = (median("plain spawn"), median("bwrap --unshare-all"));
    for ((name, _), sample) in contenders.iter().zip(&samples) {
        let (middle, worst) = (sample.median(), sample.quantile(0.99));
        println!("{name:<28} {middle:>9.0} µs ({worst:>8.0})  plain + {:>6.0} µs", middle - plain);
    }
    let isolated = median("aos, isolated");
    println!("isolated over plain: {:.0} µs (reach: {OVER_PLAIN_MAX:.0})", isolated - plain);
    println!("isolated of bwrap: ×{:.2} (reach: {OF_BWRAP_MAX})", isolated / bwrap);
    Ok(())
}

/// A command's output on its way into a blob, beside the same through a pipe that nobody keeps.
fn output(options: &Options, home: &Path, root: &Path) -> anyhow::Result<()> {
    let mut wire = Wire::connect(home)?;
    let session = open(&mut wire, root, "strict")?;
    let (mut kept, mut piped) = (Sample::default(), Sample::default());
    for round in 0..options.rounds {
        let bytes = OUTPUT_BYTES - 4096 * round;
        let params = json!({ "session_id": session, "argv": ["head", "-c", bytes.to_string(), "/dev/zero"] });
        kept.time(|| {
            let receipt = wire.effect("host.exec", &params, "bench").unwrap_or_default();
            anyhow::ensure!(receipt["stdout"]["blob"]["size_bytes"] == bytes, "output: {receipt}");
            Ok(())
        })?;
        piped.time(|| pipe(bytes))?;
    }
    let rate = |sample: &Sample| OUTPUT_BYTES as f64 / sample.median();
    println!("output into a blob: {:.0} MB/s (reach: {OUTPUT_MB_A_SECOND:.0})", rate(&kept));
    println!("output through a pipe, dropped: {:.0} MB/s", rate(&piped));
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
