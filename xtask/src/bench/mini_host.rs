//! The mini host: a bare loop behind the same transport that makes the same system calls as the product.
//!
//! With `duties` it also checks the root, keeps the pre-image and journals like the product: one commit per read, two
//! per change. With `power` it also syncs: each commit, the new file and its folder. It has no policy, no types and no
//! recovery: it shows what the transport and the kernel alone allow.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rusqlite::Connection;
use rustix::fs::{Mode, OFlags, RenameFlags, ResolveFlags};
use serde::Deserialize;

#[derive(Deserialize)]
struct Request<'a> {
    id: u64,
    op: &'a str,
    path: &'a str,
    #[serde(default)]
    text: String,
    #[serde(default)]
    old: String,
    #[serde(default)]
    max: usize,
}

struct Mini {
    root: OwnedFd,
    bank: OwnedFd,
    journal: Option<Connection>,
    power: bool,
    next: u64,
}

/// What the mini host does besides the system calls of the request.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct MiniHostOptions {
    /// Keep the pre-image and journal
    #[arg(long)]
    duties: bool,
    /// Sync all that a change needs to survive a power cut
    #[arg(long)]
    power: bool,
}

/// Serves one connection after the other, forever.
pub(crate) fn run(socket: &Path, root: &Path, bank: &Path, manner: MiniHostOptions) -> anyhow::Result<()> {
    let MiniHostOptions { duties, power } = manner;
    let open = |path: &Path| rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
    let journal = if duties { Some(journal(&bank.join("mini.db"), power)?) } else { None };
    let mut mini = Mini { root: open(root)?, bank: open(bank)?, journal, power, next: 0 };
    let listener = UnixListener::bind(socket)?;
    for stream in listener.incoming() {
        mini.serve(&stream?)?;
    }
    Ok(())
}

fn journal(path: &Path, power: bool) -> anyhow::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.execute_batch(&format!(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = {}; PRAGMA wal_autocheckpoint = 1000;
         CREATE TABLE entry (seq INTEGER PRIMARY KEY, body BLOB NOT NULL);",
        if power { "FULL" } else { "NORMAL" }
    ))?;
    Ok(connection)
}

impl Mini {
    fn serve(&mut self, stream: &UnixStream) -> anyhow::Result<()> {
        let mut reader = BufReader::with_capacity(64 << 10, stream);
        let mut line = String::new();
        while reader.read_line(&mut line)? > 0 {
            let request: Request<'_> = serde_json::from_str(&line)?;
            let answer = match request.op {
                "read" => self.read(&request)?,
                "write" => self.write(&request, request.text.as_bytes())?,
                "edit" => self.edit(&request)?,
                other => anyhow::bail!("no such operation: {other}"),
            };
            (&mut &*stream).write_all(answer.as_bytes())?;
            line.clear();
        }
        Ok(())
    }

    fn note(&mut self, body: &str) -> anyhow::Result<()> {
        if let Some(journal) = &self.journal {
            self.next += 1;
            journal
                .prepare_cached("INSERT INTO entry (seq, body) VALUES (?, ?)")?
                .execute((self.next as i64, body.as_bytes()))?;
        }
        Ok(())
    }

    fn open(&self, path: &str, flags: OFlags) -> anyhow::Result<OwnedFd> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        Ok(rustix::fs::openat2(&self.root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)?)
    }

    fn content(&self, path: &str, max: usize) -> anyhow::Result<Vec<u8>> {
        let file = self.open(path, OFlags::RDONLY)?;
        let size = rustix::fs::fstat(&file)?.st_size as usize;
        let mut bytes = vec![0; if max > 0 { size.min(max) } else { size }];
        let mut filled = 0;
        while filled < bytes.len() {
            filled += rustix::io::read(&file, &mut bytes[filled..])?;
        }
        Ok(bytes)
    }

    fn read(&mut self, request: &Request<'_>) -> anyhow::Result<String> {
        let text = String::from_utf8(self.content(request.path, request.max)?)?;
        let answer = serde_json::json!({ "id": request.id, "result": { "status": "ok", "text": text } })
            .to_string()
            + "\n";
        self.note(&answer)?;
        Ok(answer)
    }

    fn write(&mut self, request: &Request<'_>, bytes: &[u8]) -> anyhow::Result<String> {
        let temporary = format!("{}.tmp", request.path);
        if self.journal.is_some() {
            let hash = aos_model::request::content_hash(bytes);
            self.note(&format!("{{\"intent\":\"{}\",\"hash\":\"{hash}\"}}", request.path))?;
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.root, temporary.as_str(), flags, Mode::from_raw_mode(0o644))?;
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = &rest[rustix::io::write(&file, rest)?..];
        }
        if self.power {
            rustix::fs::fsync(&file)?;
        }
        if self.journal.is_some() {
            rustix::fs::renameat_with(
                &self.root,
                temporary.as_str(),
                &self.root,
                request.path,
                RenameFlags::EXCHANGE,
            )?;
            rustix::fs::renameat(&self.root, temporary.as_str(), &self.bank, format!("pre-{}", self.next))?;
        } else {
            rustix::fs::renameat(&self.root, temporary.as_str(), &self.root, request.path)?;
        }
        if self.power {
            rustix::fs::fsync(&self.root)?;
        }
        let answer = format!(
            "{{\"id\":{},\"result\":{{\"status\":\"ok\",\"written\":{}}}}}\n",
            request.id,
            bytes.len()
        );
        let params = serde_json::json!({ "path": request.path, "text": if request.text.len() > 16_384 { "" } else { &request.text } });
        self.note(&format!("{params}{answer}"))?;
        Ok(answer)
    }

    fn edit(&mut self, request: &Request<'_>) -> anyhow::Result<String> {
        let text = String::from_utf8(self.content(request.path, 0)?)?;
        let new = text.replacen(&request.old, &request.text, 1);
        self.write(request, new.as_bytes())
    }
}
