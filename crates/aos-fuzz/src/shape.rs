//! The shape of an outcome: a cheap sign that an input led somewhere new.

use std::hash::{DefaultHasher, Hash, Hasher as _};

/// What an input came to, roughly. Two inputs of one shape are taken to say the same.
#[derive(Debug, Default)]
pub struct Shape(DefaultHasher);

impl Shape {
    /// Adds something of which each value counts: a kind, a code.
    pub fn with(mut self, part: impl Hash) -> Shape {
        part.hash(&mut self.0);
        self
    }

    /// Adds a number of which only the size counts.
    pub fn about(self, number: usize) -> Shape {
        self.with(number.checked_ilog2())
    }

    /// Adds a message without what it quotes: digits and names differ, the sentence is the shape.
    pub fn message(self, message: &str) -> Shape {
        // Every second piece between backquotes is quoted.
        message.split('`').step_by(2).fold(self, |shape, piece| {
            let letters: String = piece.chars().filter(|c| !c.is_ascii_digit()).take(80).collect();
            shape.with(letters)
        })
    }

    pub(crate) fn number(&self) -> u64 {
        self.0.finish()
    }
}
