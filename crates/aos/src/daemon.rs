//! The daemon: opens the home, recovers, listens, and stops cleanly when asked.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use aos_host::{Host, Machine, StartReport};
use aos_model::receipt::Durability;
use aos_store::Home;
use aos_wire::{Control, Server};
use clap::Parser;

use crate::logging::{self, LogOptions};
use crate::{Exit, detach, home, panics};

/// Serves one AOS_HOME: sessions, effects and the journal. Usually started by `aos` itself.
#[derive(Debug, Clone, Parser)]
#[command(name = "aosd", version, about)]
pub struct Options {
    /// How far an acknowledged change survives: the death of any process, or also a power cut.
    #[arg(long, env = "AOS_DURABILITY", value_enum, default_value_t = DurabilityName::Process)]
    durability: DurabilityName,
    /// Leave the caller's terminal; say `ready` on standard output once, then nothing.
    #[arg(long, hide = true)]
    detach: bool,
    #[command(flatten)]
    log: LogOptions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum DurabilityName {
    Process,
    Power,
}

/// How long a stop waits for effects that are under way.
const STOP_PATIENCE: Duration = Duration::from_secs(4);

/// What the daemon says when a caller that started it may go on.
pub(crate) const READY: &str = "ready";

pub fn main() -> ExitCode {
    if let Some(code) = aos_host::serve_as_spawner_if_asked() {
        return code;
    }
    detach::close_inherited();
    panics::abort_on_panic();
    run(&Options::parse()).into()
}

/// Serves until it is told to stop.
pub(crate) fn run(options: &Options) -> Exit {
    match serve(options) {
        Ok(()) => Exit::Success,
        Err(error) => {
            // The one that started us reads standard output; a person in front of it reads standard error.
            let text = format!("aosd: {error:#}");
            if options.detach {
                println!("{text}");
            } else {
                eprintln!("{text}");
            }
            Exit::Upstream
        }
    }
}

fn serve(options: &Options) -> anyhow::Result<()> {
    if options.detach {
        detach::leave();
    }
    let umask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077)).as_raw_mode();
    let _ = rustix::thread::set_name(c"aosd");
    // What the daemon holds in memory is not for debuggers and core files.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .context("cannot become undumpable")?;
    keep_little_memory();
    let home = Home::open(&home::path()?)?;
    let lock = home.lock()?;
    logging::start(&home, &options.log)?;
    raise_descriptor_limit();
    let durability = match options.durability {
        DurabilityName::Process => Durability::Process,
        DurabilityName::Power => Durability::Power,
    };
    let started = Instant::now();
    let (host, report) = Host::start(home, Machine::real(durability, umask, "/proc/self/exe".into()))
        .inspect_err(|fault| tracing::error!("cannot start: {fault}"))?;
    // The socket is made with its final mode. Nothing else makes files at this moment.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = aos_wire::bind(host.home().run()).context("cannot bind run/aosd.sock");
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let listener = listener.inspect_err(|why| tracing::error!("cannot start: {why:#}"))?;
    log_start(&host, durability, &report, started);
    let (stop, stopped) = channel();
    let control = Arc::new(Steering { host: host.clone(), stop: stop.clone(), durability, started });
    let server = Server::new(host.clone(), control);
    listen_for_signals(stop.clone())?;
    let serving = server.clone();
    std::thread::Builder::new().name("accept".into()).spawn(move || {
        // A daemon that accepts nobody would still hold the home's lock and keep the next one out.
        if let Err(why) = serving.serve(&listener) {
            tracing::error!("the socket failed: {why}");
            let _ = stop.send("the socket failed");
        }
    })?;
    let warming = host.clone();
    std::thread::Builder::new().name("warm-up".into()).spawn(move || warming.warm_up())?;
    announce(options);
    wait_and_drain(&server, &stopped);
    host.retire();
    // The lock goes last: whoever starts next finds the home at rest.
    drop(lock);
    Ok(())
}

fn announce(options: &Options) {
    if options.detach {
        let mut out = std::io::stdout();
        let _ = writeln!(out, "{READY}").and_then(|()| out.flush());
        detach::let_go_of_streams();
    }
}

fn log_start(host: &Host, durability: Durability, report: &StartReport, started: Instant) {
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        pid = std::process::id(),
        home = %host.home().path().display(),
        ?durability,
        sessions_open = report.sessions_open,
        sessions_closed = report.sessions_closed,
        rolled_back = report.rolled_back,
        ms = started.elapsed().as_millis() as u64,
        "aosd serves"
    );
}

fn wait_and_drain(server: &Arc<Server>, stopped: &Receiver<&'static str>) {
    let reason = stopped.recv().unwrap_or("all senders gone");
    tracing::info!(reason, "aosd stops");
    if !server.drain(STOP_PATIENCE) {
        tracing::warn!("requests were still under way after {} s", STOP_PATIENCE.as_secs());
    }
}

fn listen_for_signals(stop: Sender<&'static str>) -> anyhow::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])
        .context("cannot listen for signals")?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            let why = match signal {
                SIGTERM => "SIGTERM",
                SIGINT => "SIGINT",
                // A terminal that closed is no reason to stop.
                _ => continue,
            };
            if stop.send(why).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(why) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!("the limit of open files stays low: {why}");
    }
}

/// What a large request needed goes back to the machine with its answer: left alone, the C library learns to keep
/// pieces of up to 32 MB, and does so for each thread.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "the C library is told by its own function")]
fn keep_little_memory() {
    const PIECE_BYTES_MAX: i32 = 1 << 20;
    const ARENAS_MAX: i32 = 4;
    // SAFETY: sets numbers of the allocator, while there is one thread.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, PIECE_BYTES_MAX);
        libc::mallopt(libc::M_TRIM_THRESHOLD, PIECE_BYTES_MAX);
        libc::mallopt(libc::M_ARENA_MAX, ARENAS_MAX);
    }
}

#[cfg(not(target_env = "gnu"))]
fn keep_little_memory() {}

/// The daemon's answers about itself.
struct Steering {
    host: Arc<Host>,
    stop: Sender<&'static str>,
    durability: Durability,
    started: Instant,
}

impl Control for Steering {
    fn status(&self) -> String {
        serde_json::json!({
            "status": "ok",
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "home": self.host.home().path().display().to_string(),
            "durability": self.durability,
            "sessions_open": self.host.sessions_open(),
            "seq": self.host.head(),
            "uptime_ns": self.started.elapsed().as_nanos() as u64,
        })
        .to_string()
    }

    fn stop(&self) {
        let _ = self.stop.send("asked by a client");
    }
}
