//! A file server that speaks MCP on its standard streams: one line of JSON-RPC per message.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::bench::daemon::Piped;
use crate::bench::report::Sample;
use crate::bench::small_files::Contender;
use crate::bench::task::{Kind, Task, content, mark};

/// How a server's tools are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// The tools of the two file servers.
    Filesystem,
    Ours,
}

#[derive(Debug)]
pub(crate) struct Server {
    name: String,
    dialect: Dialect,
    root: PathBuf,
    program: Piped,
    next: u64,
}

impl Server {
    /// `command` gets its root folder as the last argument.
    pub(crate) fn start(
        name: String,
        dialect: Dialect,
        mut command: Command,
        root: &Path,
    ) -> anyhow::Result<Server> {
        // Otherwise a server may treat the folder and a path below it as different places.
        let root = root.canonicalize()?;
        let program = Piped::start(command.arg(&root).stderr(Stdio::null()))?;
        let mut server = Server { name, dialect, root, program, next: 0 };
        let hello = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": { "name": "aos-bench", "version": env!("CARGO_PKG_VERSION") },
        });
        let (request, answered_by) = server.request("initialize", &hello);
        let answer: Value = serde_json::from_str(&server.exchange(&request, &answered_by)?)?;
        anyhow::ensure!(answer["result"]["serverInfo"].is_object(), "no MCP server: {answer}");
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        server.program.send(&format!("{ready}\n"))?;
        Ok(server)
    }

    /// A line to send, and two texts of which its answer contains one.
    fn request(&mut self, method: &str, params: &Value) -> (String, [String; 2]) {
        self.next += 1;
        let id = self.next;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        (format!("{request}\n"), [format!("\"id\":{id},"), format!("\"id\":{id}}}")])
    }

    /// Sends a line and reads until it is answered; a server may send notifications in between.
    fn exchange(&mut self, request: &str, answered_by: &[String; 2]) -> anyhow::Result<String> {
        self.program.send(request)?;
        loop {
            let line = self.program.line().with_context(|| self.name.clone())?;
            if answered_by.iter().any(|id| line.contains(id)) {
                return Ok(line);
            }
        }
    }

    fn arguments(&self, task: &Task, call: usize) -> (&'static str, Value) {
        if self.dialect == Dialect::Ours {
            return our_arguments(task, call);
        }
        // Both file servers use the same names.
        let path = self.root.join(task.file());
        match task.kind {
            Kind::Read | Kind::Head => ("read_text_file", json!({ "path": path })),
            Kind::Write => ("write_file", json!({ "path": path, "content": content(task.size, call + 1) })),
            Kind::Edit => {
                let edit = json!({ "oldText": mark(call), "newText": mark(call + 1) });
                ("edit_file", json!({ "path": path, "edits": [edit] }))
            }
        }
    }

    /// Calls a tool. An answer other than success is an error.
    pub(crate) fn call(
        &mut self,
        tool: &str,
        arguments: &Value,
        sample: &mut Sample,
    ) -> anyhow::Result<Value> {
        let (request, answered_by) =
            self.request("tools/call", &json!({ "name": tool, "arguments": arguments }));
        let answer = sample.time(|| self.exchange(&request, &answered_by))?;
        let mut answer: Value = serde_json::from_str(&answer)?;
        let succeeded = answer["result"]["content"].is_array() && answer["result"]["isError"] != true;
        anyhow::ensure!(succeeded, "{tool} failed: {answer}");
        Ok(answer["result"].take())
    }
}

fn our_arguments(task: &Task, call: usize) -> (&'static str, Value) {
    let path = task.file();
    match task.kind {
        Kind::Read | Kind::Head => ("read_file", json!({ "path": path })),
        Kind::Write => ("write_file", json!({ "path": path, "content": content(task.size, call + 1) })),
        Kind::Edit => {
            ("edit_file", json!({ "path": path, "old_string": mark(call), "new_string": mark(call + 1) }))
        }
    }
}

impl Contender for Server {
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
        for call in calls {
            let (tool, arguments) = self.arguments(task, call);
            self.call(tool, &arguments, sample)?;
        }
        Ok(())
    }
}
