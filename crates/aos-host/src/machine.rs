//! What the host takes from the machine it runs on, as parameters: time, randomness, umask, durability, a program.

use std::fmt;
use std::path::PathBuf;

use aos_model::receipt::Durability;

pub struct Machine {
    pub durability: Durability,
    /// New files take this; the daemon's own files are private whatever it says.
    pub umask: u32,
    /// A program that calls [`crate::serve_as_spawner_if_asked`] first thing: commands are started by it.
    pub spawner: PathBuf,
    pub now_ns: fn() -> u64,
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
    /// The machine as it is.
    pub fn real(durability: Durability, umask: u32, spawner: PathBuf) -> Machine {
        Machine { durability, umask, spawner, now_ns, random }
    }
}

fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    let mut filled = 0;
    while filled < bytes.len() {
        // The pool is ready long before a daemon starts; only a signal can get in between.
        filled +=
            rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()).unwrap_or(0);
    }
    u64::from_ne_bytes(bytes)
}
