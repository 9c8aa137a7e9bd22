//! Random numbers from a seed: the same seed repeats the same run.

/// A SplitMix64 generator.
#[derive(Debug, Clone)]
pub struct Random {
    /// What the run is repeated with; printed when something fails.
    pub seed: u64,
    state: u64,
}

impl Random {
    pub fn new(seed: u64) -> Random {
        Random { seed, state: seed }
    }

    /// A new seed for each run; `AOS_ATTACK_SEED` repeats one.
    pub fn for_case() -> Random {
        let given = std::env::var("AOS_ATTACK_SEED").ok().and_then(|seed| seed.parse().ok());
        Random::new(given.unwrap_or_else(new_seed))
    }

    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which must not be 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end as u64) as usize
    }

    /// True once in `chances` times.
    pub fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// A seed from the kernel, for runs that are not repeated.
pub fn new_seed() -> u64 {
    let mut bytes = [0; 8];
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u64::from_ne_bytes(bytes)
}
