//! The layered tree of a session that keeps its changes in the record: a persistent map from paths to nodes.
//!
//! A virtual tree is that map and nothing else. A staged tree is the same map over a folder of the host: where the map
//! says nothing about a path or a folder above it, what the folder holds is seen through. What a mutation changes is a
//! list of [`Delta`]s; a tree is what they add up to, so that replay, older versions and undo need nothing else.

mod name;
mod tree;

pub use name::{VfsPath, check_content, check_text};
pub use tree::Tree;

use serde::{Deserialize, Serialize};

/// What stands at a path of the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    pub what: What,
    pub mode: u32,
    /// Of a file: how often it was written since it came to be.
    pub version: u64,
    pub created_at_ns: u64,
    pub updated_at_ns: u64,
    /// What the host's folder held there when the path was first touched; nothing of the kind in a virtual tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum What {
    File(Body),
    /// A folder of the tree's own: of the host's folder nothing is seen through it.
    Dir,
    Link {
        target: String,
    },
    /// What the host's folder holds there is hidden.
    Gone,
}

/// Where the content of a file lies: a blob, or a part of one that holds many files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Body {
    pub blob_ref: String,
    pub size_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset_bytes: Option<u64>,
}

impl Body {
    /// A blob that is this file's content alone.
    pub fn whole(blob_ref: String, size_bytes: u64) -> Body {
        Body { blob_ref, size_bytes, offset_bytes: None }
    }

    /// The content's name, where the blob is nothing else.
    pub fn hash(&self) -> Option<&str> {
        self.offset_bytes.is_none().then_some(self.blob_ref.as_str())
    }
}

/// What the host's folder held at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Base {
    Absent,
    File { hash: String, mode: u32 },
    Link { target: String },
    Dir,
    Other,
}

impl Node {
    /// What a caller sees of it is the same: kind, content and mode.
    pub fn looks_like(&self, other: &Node) -> bool {
        self.what == other.what && (self.mode == other.mode || self.what == What::Gone)
    }

    pub fn is_gone(&self) -> bool {
        self.what == What::Gone
    }

    pub fn is_dir(&self) -> bool {
        self.what == What::Dir
    }

    pub fn body(&self) -> Option<&Body> {
        match &self.what {
            What::File(body) => Some(body),
            What::Dir | What::Link { .. } | What::Gone => None,
        }
    }
}

/// One path that a mutation changed, and both its nodes. Without a node the tree says nothing about the path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delta {
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Box<Node>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Box<Node>>,
}

/// What one entry makes of the tree of its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeChange {
    /// The version that it publishes.
    pub version: u64,
    pub deltas: Vec<Delta>,
}

impl TreeChange {
    /// The blobs that the tree needs from now on. Those of before were named when they came.
    pub fn blob_refs(&self) -> impl Iterator<Item = &str> {
        blob_refs(self.deltas.iter().filter_map(|delta| delta.after.as_deref()))
    }
}

/// The blobs that nodes need.
pub fn blob_refs<'a>(nodes: impl Iterator<Item = &'a Node>) -> impl Iterator<Item = &'a str> {
    nodes.filter_map(|node| Some(node.body()?.blob_ref.as_str()))
}

/// A path as it was when somebody captured it by hand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Box<Node>>,
}

/// The contract's times of files: RFC 3339, UTC, three decimals.
pub fn timestamp(at_ns: u64) -> String {
    let time = jiff::Timestamp::from_nanosecond(i128::from(at_ns)).unwrap_or(jiff::Timestamp::MAX);
    // Cut, not rounded: no time is later than the call it is of.
    let milliseconds = jiff::Timestamp::from_millisecond(time.as_millisecond()).unwrap_or(time);
    milliseconds.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_decimals_and_are_cut() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(timestamp(1_763_222_400_123_999_999), "2025-11-15T16:00:00.123Z");
    }

    #[test]
    fn the_bytes_of_a_node_are_frozen() {
        let node = Node {
            what: What::File(Body::whole("sha256:ab".into(), 3)),
            mode: 0o644,
            version: 2,
            created_at_ns: 5,
            updated_at_ns: 6,
            base: Some(Base::Absent),
        };
        let json = serde_json::to_string(&node).unwrap();
        assert_eq!(
            json,
            r#"{"what":{"file":{"blob_ref":"sha256:ab","size_bytes":3}},"mode":420,"version":2,"created_at_ns":5,"updated_at_ns":6,"base":"absent"}"#
        );
        assert_eq!(serde_json::from_str::<Node>(&json).unwrap(), node);
    }
}
