//! `aos blob get|put`: content by its SHA-256.

use std::io::{IsTerminal as _, Write};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use aos_model::receipt::Durability;
use aos_store::{Home, Spool};
use rustix::fs::{FileType, Mode, OFlags};
use serde_json::{Value, json};

use super::{daemon, daemon_error, refusal_text};
use crate::Exit;
use crate::cli::Blob;
use crate::home;

pub(crate) fn run(command: Blob) -> anyhow::Result<Exit> {
    match command {
        Blob::Get { blob_ref } => get(&blob_ref),
        Blob::Put { file, max_bytes } => put(&file, max_bytes),
    }
}

fn get(blob_ref: &str) -> anyhow::Result<Exit> {
    copy_out(blob_ref, 0, &mut std::io::stdout().lock())?;
    Ok(Exit::Success)
}

/// Writes a blob, starting at an offset.
pub(crate) fn copy_out(blob_ref: &str, offset: u64, out: &mut dyn Write) -> anyhow::Result<()> {
    let home = Home::open(&home::path()?)?;
    let blob = home
        .blobs(Durability::Process)?
        .open_checked(blob_ref)?
        .with_context(|| format!("there is no blob {}", aos_model::text::escape(blob_ref)))?;
    rustix::fs::seek(&blob, rustix::fs::SeekFrom::Start(offset))?;
    let mut buffer = vec![0; 256 << 10];
    loop {
        let n = rustix::io::read(&blob, buffer.as_mut_slice())?;
        if n == 0 {
            return Ok(out.flush()?);
        }
        out.write_all(&buffer[..n])?;
    }
}

fn put(file: &Path, bytes_max: u64) -> anyhow::Result<Exit> {
    println!("{}", store(file, bytes_max)?);
    Ok(Exit::Success)
}

/// How much is stored unless the operator asks for more.
pub(crate) const PUT_BYTES_DEFAULT: u64 = 1 << 30;

/// Writes the content to the store directly; the daemon then records it. Until then it has no name there, so nothing is left
/// of a client that is killed.
pub(crate) fn store(file: &Path, bytes_max: u64) -> anyhow::Result<String> {
    let cannot_read = || format!("cannot read {}", file.display());
    let source = if file == Path::new("-") { standard_input()? } else { open_source(file)? };
    let too_long = || {
        anyhow!("{} has more than {bytes_max} bytes; `aos blob put --max-bytes` stores more", file.display())
    };
    let stat = rustix::fs::fstat(&source).with_context(cannot_read)?;
    if FileType::from_raw_mode(stat.st_mode).is_file() && stat.st_size as u64 > bytes_max {
        return Err(too_long());
    }
    let home = Home::open(&home::path()?)?;
    // The daemon may run with durability `power`, so the blob is synced in any case.
    let blobs = home.blobs(Durability::Power)?;
    let mut spool = Spool::new(bytes_max);
    let mut buffer = vec![0; 256 << 10];
    loop {
        match rustix::io::read(&source, buffer.as_mut_slice()) {
            Ok(0) => break,
            Ok(n) => spool.write(&blobs, &buffer[..n]),
            Err(rustix::io::Errno::INTR) => {}
            Err(why) => return Err(why).with_context(cannot_read),
        }
        if spool.is_truncated() {
            return Err(too_long());
        }
        if let Some(why) = spool.lost() {
            return Err(why).context("cannot store it");
        }
    }
    let blob_ref = spool.into_blob(&blobs)?;
    let answer: Value = serde_json::from_str(
        &daemon()?.call("blob.adopt", &json!({ "blob_ref": blob_ref }).to_string()).map_err(daemon_error)?,
    )?;
    if answer["status"] != "ok" {
        bail!("{}", refusal_text(&answer));
    }
    Ok(blob_ref)
}

/// Opens a regular file or a pipe. What it is, is known before it is opened for reading: a device could act on that.
fn open_source(file: &Path) -> anyhow::Result<OwnedFd> {
    let cannot_read = || format!("cannot read {}", file.display());
    let named =
        rustix::fs::open(file, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).with_context(cannot_read)?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&named).with_context(cannot_read)?.st_mode);
    if !matches!(kind, FileType::RegularFile | FileType::Fifo) {
        bail!("{} is neither a regular file nor a pipe", file.display());
    }
    let same = format!("/proc/self/fd/{}", named.as_raw_fd());
    rustix::fs::open(same, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).with_context(cannot_read)
}

/// Standard input: also a socket, which some programs use as a pipe, or a terminal.
fn standard_input() -> anyhow::Result<OwnedFd> {
    let input = std::io::stdin();
    let stat = rustix::fs::fstat(&input).context("cannot read standard input")?;
    let is_fit = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile | FileType::Fifo | FileType::Socket => true,
        _ => input.is_terminal(),
    };
    if !is_fit {
        bail!("standard input is neither a regular file nor a pipe");
    }
    input.as_fd().try_clone_to_owned().context("cannot read standard input")
}
