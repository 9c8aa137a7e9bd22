//! Section 1, without the socket: the spine against the raw system calls it cannot do without.

use std::os::fd::OwnedFd;
use std::path::Path;

use aos_host::{Call, Host, Machine};
use aos_model::receipt::Durability;
use aos_store::Home;
use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};

use super::{Options, Sample};

const CALLS: usize = 500;

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let dir = match &options.dir {
        Some(dir) => tempfile::tempdir_in(dir)?,
        None => tempfile::tempdir()?,
    };
    let (root, raw_root) = (dir.path().join("root"), dir.path().join("raw"));
    std::fs::create_dir(&root)?;
    std::fs::create_dir(&raw_root)?;
    for root in [&root, &raw_root] {
        std::fs::write(root.join("f"), "x".repeat(1024))?;
    }
    let (host, _) = Host::start(
        Home::open(&dir.path().join("home"))?,
        Machine::real(Durability::Process, 0o022, "/proc/self/exe".into()),
    )?;
    let opened =
        call(&host, "host.session.open", &json!({ "target": { "local": { "workdir": root } } }).to_string())?;
    let opened: Value = serde_json::from_str(&opened)?;
    let session = opened["session_id"].as_str().unwrap_or_default();
    let read = json!({ "session_id": session, "path": "f" }).to_string();
    let write = json!({ "session_id": session, "path": "f", "content": { "inline_text": { "text": "y".repeat(1024) } } }).to_string();
    let raw = rustix::fs::open(&raw_root, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
    let mut samples = vec![Sample::default(); 4];
    for _ in 0..options.rounds {
        for _ in 0..CALLS {
            samples[0].time(|| call(&host, "host.fs.read_file", &read).map(drop))?;
        }
        for _ in 0..CALLS {
            samples[1].time(|| raw_read(&raw))?;
        }
        for _ in 0..CALLS / 5 {
            samples[2].time(|| call(&host, "host.fs.write_file", &write).map(drop))?;
        }
        for _ in 0..CALLS / 5 {
            samples[3].time(|| raw_write(&raw_root))?;
        }
    }
    println!(
        "in process, p50 µs: read {:.1} (raw calls {:.1}, ×{:.2}); write {:.1} (temp + rename {:.1}, ×{:.2})",
        samples[0].median(),
        samples[1].median(),
        samples[0].median() / samples[1].median(),
        samples[2].median(),
        samples[3].median(),
        samples[2].median() / samples[3].median()
    );
    Ok(())
}

fn call(host: &Host, kind: &str, params: &str) -> anyhow::Result<String> {
    let job =
        host.admit(Call { kind, params, tool_call_id: None, turn_id: None }).map_err(anyhow::Error::msg)?;
    let answer = host.answer(job, None);
    anyhow::ensure!(
        answer.receipt.contains("\"status\":\"ok\"") || answer.receipt.contains("\"ready\""),
        "{}",
        answer.receipt
    );
    Ok(answer.receipt)
}

fn raw_read(root: &OwnedFd) -> anyhow::Result<()> {
    let file = rustix::fs::openat(root, "f", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let size = rustix::fs::fstat(&file)?.st_size as usize;
    let mut bytes = vec![0; size];
    rustix::io::read(&file, bytes.as_mut_slice())?;
    std::hint::black_box(bytes);
    Ok(())
}

fn raw_write(root: &Path) -> anyhow::Result<()> {
    std::fs::write(root.join("f.tmp"), "y".repeat(1024))?;
    std::fs::rename(root.join("f.tmp"), root.join("f"))?;
    Ok(())
}
