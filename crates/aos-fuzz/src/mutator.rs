//! Mutates an input: flips, insertions, deletions, repetitions, dictionary words of the target, parts of other inputs.

use aos_testkit::Random;

/// Longer inputs cost time and find nothing new.
const INPUT_BYTES_MAX: usize = 2_048;
const CHANGES_MAX: usize = 6;

/// Bytes and numbers that are difficult for any parser.
const DIFFICULT: &[&[u8]] = &[
    b"\0",
    b"\r",
    b"\r\n",
    b"\n",
    b"\t",
    b" ",
    b"\\",
    b"\"",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    "\u{feff}".as_bytes(),
    "\u{202e}".as_bytes(),
    "\u{2028}".as_bytes(),
    "é".as_bytes(),
    "日本".as_bytes(),
    "ß\u{301}".as_bytes(),
    "\u{1f600}".as_bytes(),
    b"-1",
    b"0",
    b"18446744073709551616",
    b"9223372036854775808",
    b"1e309",
    b"0.1",
];

pub(crate) struct Mutator<'a> {
    pub(crate) random: Random,
    pub(crate) dictionary: &'a [&'a str],
}

impl Mutator<'_> {
    /// A new input from `corpus`, which is not empty.
    pub(crate) fn mutate(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut input = self.random.pick(corpus).clone();
        for _ in 0..=self.random.below(CHANGES_MAX) {
            self.change(&mut input, corpus);
        }
        input.truncate(INPUT_BYTES_MAX);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        match self.random.below(11) {
            0 => self.flip(input),
            1 => self.set(input),
            2 => self.put(input, &[]),
            3 | 4 => {
                let word = self.word().to_vec();
                self.put(input, &word);
            }
            5 => self.cut(input),
            6 => self.repeat(input),
            7 => self.move_part(input),
            8 => self.splice(input, corpus),
            9 => self.cross(input, corpus),
            _ => self.line(input, corpus),
        }
    }

    fn word(&mut self) -> &[u8] {
        let own = self.dictionary.len();
        match self.random.below(own + DIFFICULT.len()) {
            index if index < own => self.dictionary[index].as_bytes(),
            index => DIFFICULT[index - own],
        }
    }

    fn flip(&mut self, input: &mut [u8]) {
        if !input.is_empty() {
            let at = self.random.below(input.len());
            input[at] ^= 1 << self.random.below(8);
        }
    }

    fn set(&mut self, input: &mut [u8]) {
        if !input.is_empty() {
            let at = self.random.below(input.len());
            input[at] = self.random.number() as u8;
        }
    }

    /// Inserts bytes at a random offset, or overwrites there. An empty `bytes` means a few random ones.
    fn put(&mut self, input: &mut Vec<u8>, bytes: &[u8]) {
        let random: Vec<u8> = (0..=self.random.below(4)).map(|_| self.random.number() as u8).collect();
        let bytes = if bytes.is_empty() { &random } else { bytes };
        let at = self.random.below(input.len() + 1);
        let over = if self.random.below(3) == 0 { bytes.len().min(input.len() - at) } else { 0 };
        input.splice(at..at + over, bytes.iter().copied());
    }

    fn cut(&mut self, input: &mut Vec<u8>) {
        let part = self.part(input.len());
        if self.random.below(4) == 0 {
            input.truncate(part.start);
        } else {
            input.drain(part);
        }
    }

    fn repeat(&mut self, input: &mut Vec<u8>) {
        let part = self.part(input.len());
        // Mostly a few times; sometimes often, to exercise depth and length limits.
        let most = if self.random.below(16) == 0 { 200 } else { 4 };
        let times = 1 + self.random.below(most);
        let again = input[part.clone()].repeat(times);
        input.splice(part.end..part.end, again.into_iter().take(INPUT_BYTES_MAX));
    }

    fn move_part(&mut self, input: &mut Vec<u8>) {
        let part = self.part(input.len());
        let moved: Vec<u8> = input.drain(part).collect();
        let at = self.random.below(input.len() + 1);
        input.splice(at..at, moved);
    }

    /// Inserts a part of another input.
    fn splice(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let other = self.random.pick(corpus);
        let part = self.part(other.len());
        let (from, to) = (self.random.below(input.len() + 1), self.random.below(input.len() + 1));
        input.splice(from.min(to)..from.max(to), other[part].iter().copied());
    }

    /// Replaces the end by the end of another input.
    fn cross(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let other = self.random.pick(corpus);
        let (keep, from) = (self.random.below(input.len() + 1), self.random.below(other.len() + 1));
        input.truncate(keep);
        input.extend_from_slice(&other[from..]);
    }

    /// Inserts a whole line of another input between two lines.
    fn line(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let other = self.random.pick(corpus);
        let lines: Vec<&[u8]> = other.split_inclusive(|b| *b == b'\n').collect();
        if lines.is_empty() {
            return;
        }
        let line = self.random.pick(&lines).to_vec();
        let starts: Vec<usize> =
            std::iter::once(0).chain((1..=input.len()).filter(|at| input[at - 1] == b'\n')).collect();
        let at = *self.random.pick(&starts);
        input.splice(at..at, line);
    }

    fn part(&mut self, len: usize) -> std::ops::Range<usize> {
        let (a, b) = (self.random.below(len + 1), self.random.below(len + 1));
        a.min(b)..a.max(b)
    }
}
