//! `aos exec`: runs a command in a session and streams its output.

use std::io::Write;

use anyhow::{Context as _, bail};
use aos_model::request::Base64;
use aos_tools::Progress;
use serde_json::{Value, json};

use super::session::newest_in_cwd;
use super::{blob, daemon, daemon_error, refusal_text};
use crate::Exit;
use crate::cli::Exec;

pub(crate) fn run(exec: &Exec) -> anyhow::Result<Exit> {
    let session = match &exec.session {
        Some(session) => session.clone(),
        None => newest_in_cwd()?,
    };
    let params = params(exec, &session)?;
    let call = aos_tools::effect_call(
        "host.exec",
        &params.to_string(),
        exec.tool_call.as_deref(),
        exec.turn.as_deref(),
    );
    let mut client = daemon()?;
    interrupt_on_ctrl_c(session)?;
    let mut streams = [Stream::new("stdout"), Stream::new("stderr")];
    let receipt = client.call_with_progress("effect.call", &call, &mut |progress| {
        if let Some(stream) = streams.iter_mut().find(|stream| stream.name == progress.stream) {
            stream.show(&progress, exec.json);
        }
    });
    let receipt: Value = serde_json::from_str(&receipt.map_err(daemon_error)?)?;
    if exec.json {
        println!("{}", aos_model::text::escape_json(&receipt.to_string()));
    } else {
        for stream in &mut streams {
            stream.finish(&receipt)?;
        }
        for warning in receipt["warnings"].as_array().into_iter().flatten() {
            let text = |name: &str| aos_model::text::escape(warning[name].as_str().unwrap_or_default());
            eprintln!("aos: {} ({})", text("message"), text("code"));
        }
    }
    exit_of(&receipt, exec.json)
}

fn params(exec: &Exec, session: &str) -> anyhow::Result<Value> {
    let mut params = json!({ "session_id": session, "argv": exec.argv });
    if let Some(cwd) = &exec.cwd {
        params["cwd"] = json!(cwd);
    }
    if let Some(seconds) = exec.timeout {
        if !seconds.is_finite() || seconds <= 0.0 {
            bail!("--timeout {seconds}: give a number of seconds above 0");
        }
        params["timeout_ns"] = json!((seconds * 1e9) as u64);
    }
    for pair in &exec.env {
        let (name, value) = match pair.split_once('=') {
            Some((name, value)) => (name, json!(value)),
            None => (pair.as_str(), Value::Null),
        };
        params["env_patch"][name] = value;
    }
    if let Some(file) = &exec.stdin {
        params["stdin_ref"] = json!(blob::store(file, blob::PUT_BYTES_DEFAULT)?);
    }
    if exec.no_capture {
        params["capture"] = json!("none");
    }
    Ok(params)
}

/// The first Ctrl-C interrupts the session's commands; the second ends this client.
fn interrupt_on_ctrl_c(session: String) -> anyhow::Result<()> {
    use signal_hook::consts::SIGINT;
    let mut signals = signal_hook::iterator::Signals::new([SIGINT]).context("cannot listen for Ctrl-C")?;
    std::thread::Builder::new().name("ctrl-c".into()).spawn(move || {
        for (nth, _) in signals.forever().enumerate() {
            let params = json!({ "session_id": session, "signal": "int" });
            let delivered = nth == 0
                && daemon().is_ok_and(|mut client| {
                    client.effect("host.session.signal", &params.to_string(), None, None).is_ok()
                });
            if !delivered {
                eprintln!("aos: no longer waiting; the command may still run. `aos session close` ends it");
                std::process::exit(i32::from(INTERRUPTED));
            }
        }
    })?;
    Ok(())
}

const INTERRUPTED: u8 = 130;

/// One of the command's streams, printed as it arrives. Output that was not streamed is taken from the receipt.
struct Stream {
    name: &'static str,
    shown_bytes: u64,
    /// No output was skipped so far.
    complete: bool,
    /// Our own output could not be written. The command continues.
    failed: Option<std::io::Error>,
}

impl Stream {
    fn new(name: &'static str) -> Stream {
        Stream { name, shown_bytes: 0, complete: true, failed: None }
    }

    fn show(&mut self, progress: &Progress, quiet: bool) {
        self.complete &= progress.offset_bytes == self.shown_bytes;
        if quiet || !self.complete || self.failed.is_some() {
            return;
        }
        self.failed = self.write(&progress.bytes.0).err();
        self.shown_bytes += progress.bytes.0.len() as u64;
    }

    fn write(&self, bytes: &[u8]) -> std::io::Result<()> {
        let mut out = self.out();
        out.write_all(bytes)?;
        out.flush()
    }

    fn out(&self) -> Box<dyn Write> {
        if self.name == "stdout" { Box::new(std::io::stdout()) } else { Box::new(std::io::stderr()) }
    }

    fn finish(&mut self, receipt: &Value) -> anyhow::Result<()> {
        match self.failed.take() {
            // Whoever read the output has seen enough; the command's exit code still counts.
            Some(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            Some(error) => {
                return Err(error).with_context(|| format!("cannot write the command's {}", self.name));
            }
            None => {}
        }
        let total = receipt[format!("{}_bytes", self.name)].as_u64().unwrap_or(0);
        if self.shown_bytes >= total {
            return Ok(());
        }
        let payload = &receipt[self.name];
        if let Some(text) = payload.pointer("/inline_text/text").and_then(Value::as_str) {
            return Ok(self.write(&text.as_bytes()[self.shown_bytes as usize..])?);
        }
        if let Some(bytes) = payload.pointer("/inline_bytes/bytes") {
            let bytes: Base64 = serde_json::from_value(bytes.clone())?;
            return Ok(self.write(&bytes.0[self.shown_bytes as usize..])?);
        }
        if let Some(blob_ref) = payload.pointer("/blob/blob_ref").and_then(Value::as_str) {
            let kept = payload.pointer("/blob/size_bytes").and_then(Value::as_u64).unwrap_or(0);
            if kept < total {
                eprintln!("aos: {total} bytes of {} were written, {kept} are stored: {blob_ref}", self.name);
                return Ok(());
            }
            blob::copy_out(blob_ref, self.shown_bytes, &mut self.out())?;
        }
        Ok(())
    }
}

/// The program's own code; 128 + N for a signal, 66 for a timeout, 1 for a refusal.
fn exit_of(receipt: &Value, quiet: bool) -> anyhow::Result<Exit> {
    let number = |name: &str| receipt[name].as_i64();
    match receipt["status"].as_str().unwrap_or_default() {
        "ok" => Ok(match number("exit_code").unwrap_or(0) {
            0 => Exit::Success,
            code => Exit::Program(code as u8),
        }),
        "timeout" => {
            if !quiet {
                eprintln!("aos: the command exceeded its timeout and was ended");
            }
            Ok(Exit::Timeout)
        }
        "signaled" => {
            let signal = receipt["signal"].as_str().unwrap_or_default();
            Ok(Exit::Program(128_u8.saturating_add(signal_number(signal))))
        }
        _ if quiet => Ok(Exit::Failure),
        _ => bail!("{}", refusal_text(receipt)),
    }
}

fn signal_number(name: &str) -> u8 {
    let found = name.parse::<nix::sys::signal::Signal>().ok().map(|signal| signal as i32);
    // Real-time signals have no name, only a number.
    let number = found.or_else(|| name.trim_start_matches("SIG").parse().ok());
    number.and_then(|number| u8::try_from(number).ok()).unwrap_or(0)
}
