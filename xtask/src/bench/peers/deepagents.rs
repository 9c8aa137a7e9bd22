//! deepagents' FilesystemBackend: it runs inside Python, so Python measures the times and prints them.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::Peer;
use crate::bench::daemon::Piped;
use crate::bench::report::Sample;
use crate::bench::small_files::Contender;
use crate::bench::task::{Kind, Task, content, mark};

/// Reads one job per line (an operation, a path and the arguments of each call), answers with the nanoseconds of each.
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
    python: Piped,
}

impl Backend {
    pub(super) fn start(python: &Path, root: &Path) -> anyhow::Result<Backend> {
        let mut python = Piped::start(Command::new(python).args(["-c", DRIVER]).arg(root))?;
        let hello: Value = serde_json::from_str(&python.line()?)?;
        let name = format!("{} {}", Peer::PYTHON, hello["version"].as_str().unwrap_or_default());
        Ok(Backend { name, root: root.to_owned(), python })
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

    fn turn(&mut self, task: &Task, calls: Range<usize>, sample: &mut Sample) -> anyhow::Result<()> {
        let (operation, arguments): (&str, fn(&Task, usize) -> Value) = match task.kind {
            Kind::Read | Kind::Head => ("read", |_, _| json!([])),
            Kind::Write => ("write", |task, call| json!([content(task.size, call + 1)])),
            Kind::Edit => ("edit", |_, call| json!([mark(call), mark(call + 1)])),
        };
        let calls: Vec<Value> = calls.map(|call| arguments(task, call)).collect();
        let job = json!({ "operation": operation, "path": format!("/{}", task.file()), "calls": calls });
        self.python.send(&format!("{job}\n"))?;
        let answer: Value = serde_json::from_str(&self.python.line()?)?;
        anyhow::ensure!(answer["error"].is_null(), "{operation} failed: {}", answer["error"]);
        for time in answer["times_ns"].as_array().into_iter().flatten() {
            sample.add(Duration::from_nanos(time.as_u64().unwrap_or_default()));
        }
        Ok(())
    }
}
