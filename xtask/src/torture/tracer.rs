//! strace, attached to a daemon that runs.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStderr, Command, Stdio};

/// Its counters are per thread, so a connection made after it starts at one.
#[derive(Debug)]
pub(crate) struct Tracer {
    child: Child,
    // Kept open: strace goes on talking, and a closed pipe would end it.
    _said: BufReader<ChildStderr>,
}

impl Tracer {
    pub(crate) fn attach(pid: i32, arguments: &[&str]) -> Result<Tracer, String> {
        let mut command = Command::new("strace");
        command.args(["-f", "-p", &pid.to_string()]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|why| format!("strace: {why}"))?;
        let mut said = BufReader::new(child.stderr.take().expect("asked for above"));
        let mut line = String::new();
        let _ = said.read_line(&mut line);
        let tracer = Tracer { child, _said: said };
        if line.contains("attached") { Ok(tracer) } else { Err(format!("strace: {line}")) }
    }

    /// Lets the daemon go on untraced; the trace is whole afterwards.
    pub(crate) fn detach(mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

impl Drop for Tracer {
    /// Asked to stop politely, strace would wait for ever for threads of a daemon that was killed.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
