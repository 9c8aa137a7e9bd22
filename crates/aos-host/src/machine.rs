//! The properties of the machine, as parameters: clocks, randomness, cores, umask, durability, the spawner program.

use std::fmt;
use std::path::PathBuf;

use aos_model::receipt::Durability;

pub struct Machine {
    pub durability: Durability,
    /// Applied to new user files. The daemon's own files are always private.
    pub umask: u32,
    /// A program that calls [`crate::serve_as_spawner_if_asked`] at its start. Commands are started by it.
    pub spawner: PathBuf,
    pub now_ns: fn() -> u64,
    /// A monotonic clock, for the time limit of searches.
    pub monotonic_ns: fn() -> u64,
    /// The number of threads for one search.
    pub cores: usize,
    pub random: fn() -> u64,
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine")
            .field("durability", &self.durability)
            .field("umask", &self.umask)
            .finish_non_exhaustive()
    }
}

impl Machine {
    /// The real machine.
    pub fn real(durability: Durability, umask: u32, spawner: PathBuf) -> Machine {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Machine { durability, umask, spawner, now_ns, monotonic_ns, cores, random }
    }
}

fn now_ns() -> u64 {
    nanoseconds(rustix::time::clock_gettime(rustix::time::ClockId::Realtime))
}

fn monotonic_ns() -> u64 {
    nanoseconds(rustix::time::clock_gettime(rustix::time::ClockId::Monotonic))
}

fn nanoseconds(now: rustix::time::Timespec) -> u64 {
    (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    let mut filled = 0;
    while filled < bytes.len() {
        // The kernel's pool is initialized long before a daemon starts; only a signal can interrupt the call.
        filled +=
            rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()).unwrap_or(0);
    }
    u64::from_ne_bytes(bytes)
}
