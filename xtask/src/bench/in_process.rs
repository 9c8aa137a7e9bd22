//! Section 1, without the socket: the spine against the raw system calls it cannot do without.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use aos_host::{Call, Host, Machine};
use aos_model::receipt::Durability;
use aos_store::Home;
use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};

use super::daemon::check_ok;
use super::{Options, Reach, Report, Sample};

const CALLS: usize = 500;

pub(crate) fn run(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let dir = options.workplace()?;
    let (root, raw_root) = (dir.path().join("root"), dir.path().join("raw"));
    std::fs::create_dir(&root)?;
    std::fs::create_dir(&raw_root)?;
    for root in [&root, &raw_root] {
        std::fs::write(root.join("f"), "x".repeat(1024))?;
    }
    let host = start(&dir.path().join("home"))?;
    let session = open_session(&host, &root)?;
    let read = json!({ "session_id": session, "path": "f" }).to_string();
    let write = json!({ "session_id": session, "path": "f", "content": { "inline_text": { "text": "y".repeat(1024) } } }).to_string();
    let raw = rustix::fs::open(&raw_root, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
    let mut samples = vec![Sample::default(); 4];
    for _ in 0..options.rounds {
        for _ in 0..CALLS {
            check_ok(&samples[0].time(|| call(&host, "host.fs.read_file", &read))?)?;
        }
        for _ in 0..CALLS {
            samples[1].time(|| raw_read(&raw))?;
        }
        for _ in 0..CALLS / 5 {
            check_ok(&samples[2].time(|| call(&host, "host.fs.write_file", &write))?)?;
        }
        for _ in 0..CALLS / 5 {
            samples[3].time(|| raw_write(&raw_root))?;
        }
    }
    report.race("read 1 KB in process", &[("aos", &samples[0]), ("raw calls", &samples[1])], |name| {
        (name == "raw calls").then_some(Reach::AtMost(2.5))
    });
    report.race("write 1 KB in process", &[("aos", &samples[2]), ("temp + rename", &samples[3])], |name| {
        (name == "temp + rename").then_some(Reach::AtMost(1.1))
    });
    Ok(())
}

pub(super) fn start(home: &Path) -> anyhow::Result<Arc<Host>> {
    Ok(Host::start(Home::open(home)?, Machine::real(Durability::Process, 0o022, "/proc/self/exe".into()))?.0)
}

pub(super) fn open_session(host: &Host, root: &Path) -> anyhow::Result<String> {
    let target = json!({ "target": { "local": { "workdir": root } } });
    let receipt: Value = serde_json::from_str(&call(host, "host.session.open", &target.to_string())?)?;
    Ok(receipt["session_id"].as_str().unwrap_or_default().to_owned())
}

pub(super) fn call(host: &Host, kind: &str, params: &str) -> anyhow::Result<String> {
    let job =
        host.admit(Call { kind, params, tool_call_id: None, turn_id: None }).map_err(anyhow::Error::msg)?;
    Ok(host.answer(job, None).receipt)
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
