//! strace, attached to a running daemon.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use crate::check::check;

/// strace counts per thread, and a connection is a thread: one made after attaching counts from 1.
#[derive(Debug)]
pub struct Tracer(Child);

impl Tracer {
    /// Attaches with these arguments, and waits until it is attached to all threads.
    pub fn attach(pid: i32, arguments: &[&str]) -> Result<Tracer, String> {
        let mut command = Command::new("strace");
        command.args(["-f", "-p", &pid.to_string()]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|why| format!("strace: {why}"))?;
        let mut stderr = BufReader::new(child.stderr.take().expect("BUG: stderr is piped"));
        // Made first, so that strace is ended when it does not attach.
        let tracer = Tracer(child);
        let mut said = String::new();
        while !said.contains("attached") {
            let read = stderr.read_line(&mut said).map_err(|why| format!("strace: {why}"))?;
            check(read > 0, || format!("strace does not attach: {said}"))?;
        }
        // strace continues to write; a full or closed pipe would block or end it.
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        Ok(tracer)
    }

    /// Attaches with one `inject=…` or other expression, and keeps no trace.
    pub fn inject(pid: i32, expression: &str) -> Result<Tracer, String> {
        Tracer::attach(pid, &["-o", "/dev/null", "-e", expression])
    }

    /// Attaches to one system call only and tampers with it: `signal=KILL:when=3`, `delay_enter=…`.
    pub fn tamper(pid: i32, call: &str, how: &str) -> Result<Tracer, String> {
        let (trace, inject) = (format!("trace={call}"), format!("inject={call}:{how}"));
        Tracer::attach(pid, &["-o", "/dev/null", "-e", &trace, "-e", &inject])
    }

    /// Lets the daemon continue untraced; the trace is complete afterwards.
    pub fn detach(mut self) {
        crate::signal(self.0.id() as i32, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

impl Drop for Tracer {
    /// On SIGTERM strace would wait for ever for threads of a daemon that was killed.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
