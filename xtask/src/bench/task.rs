//! The tasks that each contender of section 1 does with one file.

use std::path::Path;

/// The tasks, grouped by the rounds in which they run.
pub(crate) const TASKS: &[&[Task]] = &[
    &[Task { name: "read 1 KB", size: 1 << 10, kind: Kind::Read, calls: 200 }],
    &[Task { name: "write 1 KB", size: 1 << 10, kind: Kind::Write, calls: 100 }],
    &[Task { name: "edit 1 KB", size: 1 << 10, kind: Kind::Edit, calls: 100 }],
    &[Task { name: "edit 100 KB", size: 100 << 10, kind: Kind::Edit, calls: 40 }],
    &[Task { name: "edit 10 MB", size: 10 << 20, kind: Kind::Edit, calls: 3 }],
    &[
        Task { name: "first 4 KB of 4 KB", size: 4 << 10, kind: Kind::Head, calls: 100 },
        Task { name: "first 4 KB of 64 MB", size: 64 << 20, kind: Kind::Head, calls: 100 },
    ],
];

#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) name: &'static str,
    pub(crate) size: usize,
    pub(crate) kind: Kind,
    /// Calls per round.
    pub(crate) calls: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    Edit,
    /// The first 4 KB.
    Head,
}

impl Task {
    pub(crate) fn file(&self) -> String {
        format!("f{}.txt", self.size)
    }

    /// Writes the file and syncs before anything is timed: pending writes of the kernel would slow the contenders down.
    pub(crate) fn prepare(&self, root: &Path) -> anyhow::Result<()> {
        std::fs::write(root.join(self.file()), content(self.size, 0))?;
        Ok(rustix::fs::syncfs(std::fs::File::open(root)?)?)
    }

    /// Checks that the file has the content that the calls report.
    pub(crate) fn check(&self, root: &Path, calls: usize) -> anyhow::Result<()> {
        let found = std::fs::read(root.join(self.file()))?;
        let changes = matches!(self.kind, Kind::Write | Kind::Edit);
        let wanted = content(self.size, if changes { calls } else { 0 });
        anyhow::ensure!(found == wanted.as_bytes(), "{}: the file holds something else", self.name);
        Ok(())
    }
}

/// The text that an edit replaces. It has the same length in each call, and occurs once in the file.
pub(crate) fn mark(call: usize) -> String {
    format!("<mark {call:08}>")
}

/// Lines of text with one mark in the middle.
pub(crate) fn content(size: usize, call: usize) -> String {
    let line = "the quick brown fox jumps over the lazy dog; 0123456789\n";
    let mut text = line.repeat(size / line.len() + 1);
    text.truncate(size);
    let middle = (size / 2).saturating_sub(20);
    text.replace_range(middle..middle + mark(call).len(), &mark(call));
    text
}
