//! The report of a check: what was counted and what was found wrong.

/// One fault that was found, as a sentence that names its subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    Journal(String),
    /// A blob that an entry names is missing, or its content does not hash to its name.
    Blob(String),
    /// The live state differs from what the journal folds to.
    State(String),
    /// A manifest is damaged, or a body that it names is missing or damaged: the snapshot cannot be restored.
    Snapshot(String),
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Finding::Journal(text) | Finding::Blob(text) | Finding::State(text) | Finding::Snapshot(text)) =
            self;
        f.write_str(text)
    }
}

#[derive(Debug, Default)]
pub struct Report {
    pub entries: u64,
    pub blobs: u64,
    pub state_keys: u64,
    pub findings: Vec<Finding>,
    pub findings_count: u64,
}

/// Findings beyond this are only counted.
const FINDINGS_MAX: usize = 100;

impl Report {
    pub(super) fn add(&mut self, finding: Finding) {
        self.findings_count += 1;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}
