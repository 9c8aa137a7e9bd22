//! Section 1: one small file over the daemon's socket.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Options, Sample};

const TASKS: &[Task] = &[
    Task { name: "read 1 KB", size: 1 << 10, kind: Kind::Read, calls: 200 },
    Task { name: "write 1 KB", size: 1 << 10, kind: Kind::Write, calls: 100 },
    Task { name: "edit 1 KB", size: 1 << 10, kind: Kind::Edit, calls: 100 },
    Task { name: "edit 100 KB", size: 100 << 10, kind: Kind::Edit, calls: 40 },
    Task { name: "edit 10 MB", size: 10 << 20, kind: Kind::Edit, calls: 3 },
    Task { name: "first 4 KB of 4 KB", size: 4 << 10, kind: Kind::Head, calls: 100 },
    Task { name: "first 4 KB of 64 MB", size: 64 << 20, kind: Kind::Head, calls: 100 },
];

struct Task {
    name: &'static str,
    size: usize,
    kind: Kind,
    calls: usize,
}

#[derive(Clone, Copy)]
enum Kind {
    Read,
    Write,
    Edit,
    Head,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let dir = match &options.dir {
        Some(dir) => tempfile::tempdir_in(dir)?,
        None => tempfile::tempdir()?,
    };
    let programs = build()?;
    let mut contenders = vec![
        Contender::product(dir.path(), &programs)?,
        Contender::mini(dir.path(), "mini host", false)?,
        Contender::mini(dir.path(), "mini host with duties", true)?,
    ];
    println!(
        "{:<22} {}",
        "p50 µs (p99)",
        contenders.iter().map(|c| format!("{:>26}", c.name)).collect::<String>()
    );
    for task in TASKS {
        for contender in &mut contenders {
            contender.prepare(task)?;
        }
        let mut samples = vec![Sample::default(); contenders.len()];
        for round in 0..options.rounds {
            for (contender, sample) in contenders.iter_mut().zip(&mut samples) {
                for call in 0..task.calls {
                    let line = contender.request(task, round * task.calls + call);
                    sample.time(|| contender.ask(&line))?;
                }
            }
        }
        let cells = samples
            .iter()
            .map(|s| format!("{:>15.1} ({:>8.1})", s.median(), s.quantile(0.99)))
            .collect::<String>();
        println!(
            "{:<22} {cells}   ×{:.2} of the mini host with duties",
            task.name,
            samples[0].median() / samples[2].median()
        );
    }
    Ok(())
}

/// Builds the product in release and says where the programs are.
pub(super) fn build() -> anyhow::Result<PathBuf> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let status =
        Command::new(cargo).args(["build", "--quiet", "--release", "--package", "aos", "--bins"]).status()?;
    anyhow::ensure!(status.success(), "the product does not build");
    let own = std::env::current_exe()?;
    let target = own.parent().and_then(Path::parent).expect("BUG: xtask lies in target/<profile>");
    Ok(target.join("release"))
}

struct Contender {
    name: &'static str,
    child: Child,
    root: PathBuf,
    session: Option<String>,
    reader: BufReader<UnixStream>,
    next: u64,
}

impl Drop for Contender {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Contender {
    fn product(dir: &Path, programs: &Path) -> anyhow::Result<Contender> {
        let (home, root) = (dir.join("home"), dir.join("product"));
        std::fs::create_dir(&root)?;
        let child =
            Command::new(programs.join("aosd")).env("AOS_HOME", &home).stdin(Stdio::null()).spawn()?;
        let stream = connect(&home.join("run/aosd.sock"))?;
        let mut contender =
            Contender { name: "aos", child, root, session: None, reader: BufReader::new(stream), next: 1 };
        let open = json!({ "jsonrpc": "2.0", "id": 0, "method": "effect.call", "params": { "kind": "host.session.open", "params": { "target": { "local": { "workdir": contender.root } } } } });
        let answer: Value = serde_json::from_str(&contender.exchange(&format!("{open}\n"))?)?;
        contender.session = answer["result"]["session_id"].as_str().map(str::to_owned);
        anyhow::ensure!(contender.session.is_some(), "no session: {answer}");
        Ok(contender)
    }

    fn mini(dir: &Path, name: &'static str, duties: bool) -> anyhow::Result<Contender> {
        let place = dir.join(if duties { "mini-duties" } else { "mini" });
        let (root, bank, socket) = (place.join("root"), place.join("bank"), place.join("socket"));
        std::fs::create_dir_all(&root)?;
        std::fs::create_dir_all(&bank)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("mini-host").arg(&socket).arg(&root).arg(&bank);
        if duties {
            command.arg("--duties");
        }
        let child = command.stdin(Stdio::null()).spawn()?;
        let reader = BufReader::new(connect(&socket)?);
        Ok(Contender { name, child, root, session: None, reader, next: 1 })
    }

    fn file(task: &Task) -> String {
        format!("f{}", task.size)
    }

    fn prepare(&self, task: &Task) -> anyhow::Result<()> {
        Ok(std::fs::write(self.root.join(Contender::file(task)), content(task.size, 0))?)
    }

    fn request(&mut self, task: &Task, call: usize) -> String {
        self.next += 1;
        let (path, id) = (Contender::file(task), self.next);
        let new = content(task.size.min(1 << 16), call + 1);
        let (old_mark, new_mark) = (mark(call), mark(call + 1));
        let Some(session) = &self.session else {
            let request = match task.kind {
                Kind::Read => json!({ "id": id, "op": "read", "path": path }),
                Kind::Head => json!({ "id": id, "op": "read", "path": path, "max": 4096 }),
                Kind::Write => json!({ "id": id, "op": "write", "path": path, "text": new }),
                Kind::Edit => {
                    json!({ "id": id, "op": "edit", "path": path, "old": old_mark, "text": new_mark })
                }
            };
            return format!("{request}\n");
        };
        let (kind, params) = match task.kind {
            Kind::Read => ("host.fs.read_file", json!({ "session_id": session, "path": path })),
            Kind::Head => {
                ("host.fs.read_file", json!({ "session_id": session, "path": path, "max_bytes": 4096 }))
            }
            Kind::Write => (
                "host.fs.write_file",
                json!({ "session_id": session, "path": path, "content": { "inline_text": { "text": new } } }),
            ),
            Kind::Edit => (
                "host.fs.edit_file",
                json!({ "session_id": session, "path": path, "old_string": old_mark, "new_string": new_mark }),
            ),
        };
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": "effect.call", "params": { "kind": kind, "params": params } });
        format!("{call}\n")
    }

    fn exchange(&mut self, line: &str) -> anyhow::Result<String> {
        self.reader.get_ref().write_all(line.as_bytes())?;
        let mut answer = String::new();
        self.reader.read_line(&mut answer)?;
        Ok(answer)
    }

    fn ask(&mut self, line: &str) -> anyhow::Result<()> {
        let answer = self.exchange(line)?;
        anyhow::ensure!(answer.contains("\"status\":\"ok\""), "{}: {line} → {answer}", self.name);
        Ok(())
    }
}

fn connect(socket: &Path) -> anyhow::Result<UnixStream> {
    for _ in 0..2000 {
        if let Ok(stream) = UnixStream::connect(socket) {
            return Ok(stream);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    anyhow::bail!("nobody listens on {}", socket.display())
}

/// What an edit replaces: the same length at each call.
fn mark(call: usize) -> String {
    format!("<mark {call:08}>")
}

/// Lines of text with one mark in the middle.
fn content(size: usize, call: usize) -> String {
    let line = "the quick brown fox jumps over the lazy dog; 0123456789\n";
    let mut text = line.repeat(size / line.len() + 1);
    text.truncate(size);
    let middle = (size / 2).saturating_sub(20);
    text.replace_range(middle..middle + mark(call).len(), &mark(call));
    text
}
