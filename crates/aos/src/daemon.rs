//! The daemon: opens AOS_HOME, recovers, serves the socket, and stops cleanly.

use std::io::Write as _;
use std::os::unix::net::UnixListener;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use aos_host::{Host, Machine, StartReport};
use aos_model::receipt::Durability;
use aos_store::Home;
use aos_wire::{Control, Server};
use clap::Parser;

use crate::logging::{self, LogOptions};
use crate::{Exit, detach, home, panics};

/// Serves one AOS_HOME: sessions, effects and the journal. `aos` starts it when needed.
#[derive(Debug, Clone, Parser)]
#[command(name = "aosd", version, about)]
pub struct Options {
    /// What an acknowledged change survives: the end of any process, or also a power failure
    #[arg(long, env = "AOS_DURABILITY", value_enum, default_value_t = DurabilityName::Process)]
    durability: DurabilityName,
    /// Detach from the terminal and print `ready` on standard output
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

/// How long a stop waits for requests in progress.
const STOP_TIMEOUT: Duration = Duration::from_secs(4);

/// What a detached daemon prints once it serves.
pub(crate) const READY: &str = "ready";

pub fn main() -> ExitCode {
    if let Some(code) = aos_host::serve_as_spawner_if_asked() {
        return code;
    }
    detach::close_inherited();
    panics::abort_on_panic();
    run(&Options::parse()).into()
}

/// Serves until it is stopped.
pub(crate) fn run(options: &Options) -> Exit {
    match serve(options) {
        Ok(()) => Exit::Success,
        Err(error) => {
            // The client that starts a daemon reads its standard output; in the foreground a person reads standard error.
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
        detach::leave_session();
    }
    let umask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077)).as_raw_mode();
    let _ = rustix::thread::set_name(c"aosd");
    // Root acts on files for the users of its sessions, who are not in root's groups. No other thread runs yet.
    if rustix::process::geteuid().is_root() {
        let _ = rustix::thread::set_thread_groups(&[]);
    }
    // Keeps its memory from other processes of the user and out of core files.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .context("cannot clear the dumpable flag")?;
    limit_allocator();
    let home = Home::open(&home::path()?)?;
    // The kernel releases the lock when the process has ended. A thread that outlives `close`, or the journal's last checkpoint,
    // must not run beside the next daemon, which stops when its files are changed.
    std::mem::forget(home.lock()?);
    logging::start(&home, &options.log)?;
    raise_descriptor_limit();
    let durability = match options.durability {
        DurabilityName::Process => Durability::Process,
        DurabilityName::Power => Durability::Power,
    };
    let started = Instant::now();
    let (host, report) = Host::start(home, Machine::real(durability, umask, "/proc/self/exe".into()))
        .inspect_err(|fault| tracing::error!("cannot start: {fault}"))?;
    // Under the umask of the process: another thread may be finalizing snapshots, and its folders need all of their mode.
    let listener = aos_wire::bind(host.home().run()).context("cannot bind run/aosd.sock");
    let listener = Arc::new(listener.inspect_err(|why| tracing::error!("cannot start: {why:#}"))?);
    log_start(&host, durability, &report, started);
    let (stop, stopped) = channel();
    let control = Arc::new(DaemonControl { host: host.clone(), stop: stop.clone(), durability, started });
    let server = Server::new(host.clone(), control);
    listen_for_signals(stop.clone())?;
    let (accepting, accepting_listener) = (server.clone(), listener.clone());
    std::thread::Builder::new().name("accept".into()).spawn(move || {
        // A daemon that cannot accept would still hold the home's lock and block the next daemon.
        if let Err(why) = accepting.serve(&accepting_listener) {
            tracing::error!("the socket failed: {why}");
            let _ = stop.send("the socket failed");
        }
    })?;
    let warming = host.clone();
    std::thread::Builder::new().name("warm-up".into()).spawn(move || warming.warm_up())?;
    announce(options);
    let reason = stopped.recv().unwrap_or("all senders gone");
    tracing::info!(reason, "aosd stops");
    close(&server, &listener, &host);
    Ok(())
}

fn announce(options: &Options) {
    if options.detach {
        let mut out = std::io::stdout();
        let _ = writeln!(out, "{READY}").and_then(|()| out.flush());
        detach::close_streams();
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

/// Answers what was received and closes the socket. From then on clients see no daemon, and start the next one.
fn close(server: &Server, listener: &UnixListener, host: &Host) {
    if !server.stop(listener, STOP_TIMEOUT) {
        tracing::warn!("requests were still in progress after {} s", STOP_TIMEOUT.as_secs());
        // Commands over an overlay end with the daemon, and the next one drops what they changed. What others may not
        // change is put back by the one that ran them.
        if host.end_commands_without_overlay() > 0 && !server.wait_for_rest(STOP_TIMEOUT) {
            tracing::warn!("not everything that commands may not change could be put back");
        }
    }
    if let Err(error) = aos_wire::unlink(host.home().run()) {
        tracing::warn!(%error, "cannot remove run/aosd.sock");
    }
    host.retire();
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
                // SIGHUP: the daemon outlives its terminal.
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
        tracing::warn!("cannot raise the limit of open files: {why}");
    }
}

/// Returns the memory of large requests to the system. By default glibc raises its mmap threshold up to 32 MB when such
/// blocks are freed, and keeps freed memory per arena.
#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "mallopt is a function of the C library")]
fn limit_allocator() {
    const THRESHOLD_BYTES: i32 = 1 << 20;
    const ARENAS_MAX: i32 = 4;
    // SAFETY: sets parameters of the allocator while there is one thread.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, THRESHOLD_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, THRESHOLD_BYTES);
        libc::mallopt(libc::M_ARENA_MAX, ARENAS_MAX);
    }
}

#[cfg(not(target_env = "gnu"))]
fn limit_allocator() {}

/// Answers `daemon.status` and `daemon.stop`.
struct DaemonControl {
    host: Arc<Host>,
    stop: Sender<&'static str>,
    durability: Durability,
    started: Instant,
}

impl Control for DaemonControl {
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
            "disk_full": self.host.is_disk_full(),
            "disk_free_bytes": self.host.home().space().map(|space| space.free_bytes).ok(),
        })
        .to_string()
    }

    fn stop(&self) {
        let _ = self.stop.send("asked by a client");
    }
}
