//! Step intents: what the journal keeps of each step before it begins, enough for another process to take it back.

use aos_model::records::{Attributes, Kind};
use serde::{Deserialize, Serialize};

use crate::disk::Meta;

/// One step as the journal keeps it. Paths are spelled as receipts spell them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(crate) enum StepIntent {
    Put {
        at: At,
        temporary: String,
        /// Its name among the pre-images.
        #[serde(rename = "bank")]
        preimage: String,
        before: Option<Seen>,
        after: Content,
    },
    Remove {
        at: At,
        temporary: String,
        /// Its name among the pre-images.
        #[serde(rename = "bank")]
        preimage: String,
        before: Seen,
    },
    MakeDir {
        at: At,
    },
    SetMode {
        at: At,
        before: u32,
        after: u32,
        /// Before and after, where they are set too.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        xattrs: Option<(Attributes, Attributes)>,
        /// Another step opened the folder or made it, and tells whether it was begun.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        closes: bool,
    },
    Rename {
        from: At,
        to: At,
        temporary: String,
        /// Its name among the pre-images.
        #[serde(rename = "bank")]
        preimage: String,
        before: Seen,
        replaced: Option<Seen>,
    },
}

/// A folder, absolute and link-free, and a plain name in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct At {
    pub(crate) dir: String,
    pub(crate) name: String,
    pub(crate) shown: String,
}

/// A file as it was: enough to know it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    pub(crate) size: u64,
    pub(crate) mtime_ns: i64,
}

/// The file or link that a step puts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Content {
    pub(crate) hash: String,
    pub(crate) size: u64,
    pub(crate) mode: u32,
    pub(crate) kind: Kind,
}

impl Seen {
    pub(crate) fn is(&self, meta: &Meta) -> bool {
        (self.kind, self.dev, self.ino) == (meta.kind, meta.dev, meta.ino)
    }
}

impl Seen {
    /// The object itself, as it was. A folder's time moves with what is put into it; a file of the same number may be
    /// another, made since.
    pub(crate) fn is_untouched(&self, meta: &Meta) -> bool {
        let same = (self.mtime_ns, self.size) == (meta.mtime_ns, meta.size);
        self.is(meta) && (self.kind == Kind::Dir || same)
    }

    /// The object itself or a copy of it that we made: a copy keeps size and time of change.
    pub(crate) fn is_or_was_copied_to(&self, meta: &Meta) -> bool {
        let like_it = self.kind == meta.kind
            && self.mtime_ns == meta.mtime_ns
            && (self.kind == Kind::Dir || self.size == meta.size);
        self.is(meta) || like_it
    }
}

impl From<Meta> for Seen {
    fn from(meta: Meta) -> Seen {
        Seen {
            kind: meta.kind,
            mode: meta.mode,
            dev: meta.dev,
            ino: meta.ino,
            size: meta.size,
            mtime_ns: meta.mtime_ns,
        }
    }
}

impl StepIntent {
    pub(crate) fn places(&self) -> impl Iterator<Item = &At> {
        let (first, second) = match self {
            StepIntent::Put { at, .. }
            | StepIntent::Remove { at, .. }
            | StepIntent::MakeDir { at }
            | StepIntent::SetMode { at, .. } => (at, None),
            StepIntent::Rename { from, to, .. } => (from, Some(to)),
        };
        std::iter::once(first).chain(second)
    }

    /// The temporary name, where it has one.
    pub(crate) fn temporary(&self) -> Option<&str> {
        match self {
            StepIntent::Put { temporary, .. }
            | StepIntent::Remove { temporary, .. }
            | StepIntent::Rename { temporary, .. } => Some(temporary),
            StepIntent::MakeDir { .. } | StepIntent::SetMode { .. } => None,
        }
    }

    /// Whether the temporary name and the name of the pre-image are such as a change of this id gives.
    pub(crate) fn names_are_ours(&self, change_id: &str) -> bool {
        let (temporary, preimage) = match self {
            StepIntent::Put { temporary, preimage, .. }
            | StepIntent::Remove { temporary, preimage, .. }
            | StepIntent::Rename { temporary, preimage, .. } => (temporary, preimage),
            StepIntent::MakeDir { .. } | StepIntent::SetMode { .. } => return true,
        };
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let id = change_id
            .strip_prefix(aos_model::id::SNAPSHOT)
            .filter(|id| id.bytes().all(|b| b.is_ascii_hexdigit()));
        id.is_some_and(|id| temporary.strip_prefix(&format!(".aos-tmp-{id}-")).is_some_and(is_number))
            && preimage.strip_prefix(&format!("{change_id}.")).is_some_and(is_number)
    }
}

/// What the intent row holds: the request, and the steps in order.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Intent<Steps = Vec<StepIntent>> {
    pub(crate) at_ns: u64,
    pub(crate) kind: String,
    pub(crate) session_id: String,
    pub(crate) tool_call_id: String,
    pub(crate) turn_id: String,
    /// What temporary names and names of pre-images are made from. Empty for a command without an overlay, which
    /// displaces nothing that we know of.
    pub(crate) change_id: String,
    /// As the record will keep it: JSON, here inside a string.
    pub(crate) params: String,
    #[serde(rename = "marks")]
    pub(crate) steps: Steps,
}
