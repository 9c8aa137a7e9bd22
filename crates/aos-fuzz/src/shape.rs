//! The shape of an outcome: a cheap sign that an input led somewhere new.

use std::hash::{DefaultHasher, Hash, Hasher as _};

/// What an input came to, roughly. Two inputs of one shape are taken to say the same.
#[derive(Debug, Default)]
pub struct Shape {
    hasher: DefaultHasher,
    /// A bit for each part of which only counts that there is one.
    marks: u64,
}

impl Shape {
    /// Adds something of which each value counts: a kind, a code.
    pub fn with(mut self, part: impl Hash) -> Shape {
        part.hash(&mut self.hasher);
        self
    }

    /// Adds something that may stand there often and in any order.
    pub fn mark(mut self, part: impl Hash) -> Shape {
        let mut hasher = DefaultHasher::new();
        part.hash(&mut hasher);
        self.marks |= 1 << (hasher.finish() % 64);
        self
    }

    /// Adds a number of which only the size counts.
    pub fn about(self, number: usize) -> Shape {
        self.with(number.checked_ilog2())
    }

    /// Adds what a message says in its first line, without the numbers in it and without what it quotes.
    pub fn message(self, message: &str) -> Shape {
        let line = message.lines().next().unwrap_or_default();
        let said = line.split('`').step_by(2).take(3);
        said.fold(self, |shape, part| {
            shape.with(part.chars().filter(|c| !c.is_ascii_digit()).take(40).collect::<String>())
        })
    }

    pub(crate) fn number(&self) -> u64 {
        let mut hasher = self.hasher.clone();
        self.marks.hash(&mut hasher);
        hasher.finish()
    }
}
