//! deepagents' FilesystemBackend: it runs inside Python, so Python times it and tells us.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::Peer;
use crate::bench::daemon::Running;
use crate::bench::report::Sample;
use crate::bench::small_files::Contender;
use crate::bench::task::{Kind, Task, content, mark};

/// Takes a job a line (an operation, a path and the arguments of each call), answers with the nanoseconds of each.
const DRIVER: &str = r#"
import json, sys, time
from importlib.metadata import version
from deepagents.backends.filesystem import FilesystemBackend

backend = FilesystemBackend(root_dir=sys.argv[1], virtual_mode=True)
print(json.dumps({"version": version("deepagents")}), flush=True)
for line in sys.stdin:
    job = json.loads(line)
    operation, path = getattr(backend, job["operation"]), job["path"]
    times, error = [], None
    for arguments in job["calls"]:
        begun = time.perf_counter_ns()
        result = operation(path, *arguments)
        times.append(time.perf_counter_ns() - begun)
        error = error or result.error
    print(json.dumps({"times_ns": times, "error": error}), flush=True)
"#;

#[derive(Debug)]
pub(super) struct Backend {
    name: String,
    root: PathBuf,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    _running: Running,
}

impl Backend {
    pub(super) fn start(python: &Path, root: &Path) -> anyhow::Result<Backend> {
        let mut command = Command::new(python);
        command.args(["-c", DRIVER]).arg(root).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let to = child.stdin.take().expect("BUG: piped above");
        let from = BufReader::new(child.stdout.take().expect("BUG: piped above"));
        let mut backend =
            Backend { name: String::new(), root: root.to_owned(), to, from, _running: Running(child) };
        let hello = backend.read()?;
        backend.name = format!("{} {}", Peer::PYTHON, hello["version"].as_str().unwrap_or_default());
        Ok(backend)
    }

    fn read(&mut self) -> anyhow::Result<Value> {
        let mut line = String::new();
        anyhow::ensure!(self.from.read_line(&mut line)? > 0, "Python ended early");
        Ok(serde_json::from_str(&line)?)
    }
}

impl Contender for Backend {
    fn name(&self) -> &str {
        &self.name
    }

    fn root(&self) -> &Path {
        &self.root
    }

    fn takes(&self, kind: Kind) -> bool {
        kind != Kind::Head
    }

    fn turn(
        &mut self,
        task: &Task,
        calls: std::ops::Range<usize>,
        sample: &mut Sample,
    ) -> anyhow::Result<()> {
        let (operation, arguments): (&str, fn(&Task, usize) -> Value) = match task.kind {
            Kind::Read | Kind::Head => ("read", |_, _| json!([])),
            Kind::Write => ("write", |task, call| json!([content(task.size, call + 1)])),
            Kind::Edit => ("edit", |_, call| json!([mark(call), mark(call + 1)])),
        };
        let calls: Vec<Value> = calls.map(|call| arguments(task, call)).collect();
        let job = json!({ "operation": operation, "path": format!("/{}", task.file()), "calls": calls });
        self.to.write_all(format!("{job}\n").as_bytes())?;
        let answer = self.read()?;
        anyhow::ensure!(answer["error"].is_null(), "{operation} failed: {}", answer["error"]);
        for time in answer["times_ns"].as_array().into_iter().flatten() {
            sample.add(Duration::from_nanos(time.as_u64().unwrap_or_default()));
        }
        Ok(())
    }
}
