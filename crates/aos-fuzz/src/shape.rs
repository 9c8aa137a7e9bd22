//! The shape of a result: a cheap substitute for code coverage.

use std::hash::{DefaultHasher, Hash, Hasher as _};

/// A rough description of a result. Inputs with the same shape count as equivalent.
#[derive(Debug, Default)]
pub struct Shape {
    hasher: DefaultHasher,
    /// One bit per part for which only its presence counts.
    marks: u64,
}

impl Shape {
    /// Adds a part for which each value counts: a kind, a code.
    pub fn with(mut self, part: impl Hash) -> Shape {
        part.hash(&mut self.hasher);
        self
    }

    /// Adds a part for which number and order do not count.
    pub fn mark(mut self, part: impl Hash) -> Shape {
        let mut hasher = DefaultHasher::new();
        part.hash(&mut hasher);
        self.marks |= 1 << (hasher.finish() % 64);
        self
    }

    /// Adds a number for which only its magnitude counts.
    pub fn about(self, number: usize) -> Shape {
        self.with(number.checked_ilog2())
    }

    /// Adds the first line of a message, without numbers and quoted text.
    pub fn message(self, message: &str) -> Shape {
        let line = message.lines().next().unwrap_or_default();
        let parts = line.split('`').step_by(2).take(3);
        parts.fold(self, |shape, part| {
            shape.with(part.chars().filter(|c| !c.is_ascii_digit()).take(40).collect::<String>())
        })
    }

    pub(crate) fn number(&self) -> u64 {
        let mut hasher = self.hasher.clone();
        self.marks.hash(&mut hasher);
        hasher.finish()
    }
}
