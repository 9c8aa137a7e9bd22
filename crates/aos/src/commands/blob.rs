//! `aos blob get|put`: content by its SHA-256.

use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context as _, bail};
use aos_model::receipt::Durability;
use aos_store::Home;
use serde_json::{Value, json};

use super::{daemon, daemon_error, refusal_text};
use crate::Exit;
use crate::cli::Blob;
use crate::home;

pub(crate) fn run(command: Blob) -> anyhow::Result<Exit> {
    match command {
        Blob::Get { blob_ref } => get(&blob_ref),
        Blob::Put { file } => put(&file),
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

fn put(file: &Path) -> anyhow::Result<Exit> {
    println!("{}", store(file)?);
    Ok(Exit::Success)
}

/// Writes the content to the store directly, whatever its size; the daemon then records it.
pub(crate) fn store(file: &Path) -> anyhow::Result<String> {
    let home = Home::open(&home::path()?)?;
    let mut source: Box<dyn Read> = if file == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        #[expect(clippy::disallowed_methods, reason = "the operator's own argument, read as the operator")]
        Box::new(std::fs::File::open(file).with_context(|| format!("cannot read {}", file.display()))?)
    };
    // The daemon may run with durability `power`, so the blob is synced in any case.
    let blobs = home.blobs(Durability::Power)?;
    let mut writer = blobs.writer()?;
    let mut buffer = vec![0; 256 << 10];
    loop {
        let n = source.read(&mut buffer).with_context(|| format!("cannot read {}", file.display()))?;
        if n == 0 {
            break;
        }
        writer.write(&buffer[..n])?;
    }
    let blob_ref = writer.finish()?;
    let answer: Value = serde_json::from_str(
        &daemon()?.call("blob.adopt", &json!({ "blob_ref": blob_ref }).to_string()).map_err(daemon_error)?,
    )?;
    if answer["status"] != "ok" {
        bail!("{}", refusal_text(&answer));
    }
    Ok(blob_ref)
}
