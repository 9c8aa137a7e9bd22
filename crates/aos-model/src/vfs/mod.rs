//! The tree of a virtual or staged session: a persistent map from paths to nodes.
//!
//! A virtual tree is only that map. A staged tree is the same map over a host folder: where the map has no node for a
//! path or a folder above it, the host folder shows through. A mutation is a list of [`Delta`]s, and a tree is the sum
//! of all deltas, so replay, older versions and undo need nothing else (I18).

mod name;
mod tree;

pub use name::{VfsPath, check_content, check_text_length};
pub use tree::Tree;

use serde::{Deserialize, Serialize};

/// What is at a path of the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    pub what: NodeKind,
    pub mode: u32,
    /// How often a file was written since it was created.
    pub version: u64,
    pub created_at_ns: u64,
    pub updated_at_ns: u64,
    /// What the host folder had at this path when it was first changed. Only in staged trees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Base>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum NodeKind {
    File(Body),
    /// A folder of the tree. The host folder does not show through it.
    Dir,
    Link {
        target: String,
    },
    /// Removed: hides what the host folder has there.
    Gone,
}

/// Where the content of a file is stored: a blob, or a part of a blob that holds many files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Body {
    pub blob_ref: String,
    pub size_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset_bytes: Option<u64>,
}

impl Body {
    /// A blob that holds only this file.
    pub fn whole(blob_ref: String, size_bytes: u64) -> Body {
        Body { blob_ref, size_bytes, offset_bytes: None }
    }

    /// The hash of the content, if the blob holds only this file.
    pub fn hash(&self) -> Option<&str> {
        self.offset_bytes.is_none().then_some(self.blob_ref.as_str())
    }
}

/// What the host folder had at a path.
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
    /// Whether kind, content and mode are the same.
    pub fn same_content_and_mode(&self, other: &Node) -> bool {
        self.what == other.what && (self.mode == other.mode || self.what == NodeKind::Gone)
    }

    pub fn is_gone(&self) -> bool {
        self.what == NodeKind::Gone
    }

    pub fn is_dir(&self) -> bool {
        self.what == NodeKind::Dir
    }

    pub fn body(&self) -> Option<&Body> {
        match &self.what {
            NodeKind::File(body) => Some(body),
            NodeKind::Dir | NodeKind::Link { .. } | NodeKind::Gone => None,
        }
    }
}

/// One path that a mutation changed, with its nodes before and after. `None`: the tree has no node for the path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delta {
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Box<Node>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Box<Node>>,
}

/// How one entry changes the tree of its session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeChange {
    /// The version that the entry publishes.
    pub version: u64,
    pub deltas: Vec<Delta>,
}

impl TreeChange {
    /// The blobs that the change adds to the tree. Earlier entries name the blobs of before.
    pub fn blob_refs(&self) -> impl Iterator<Item = &str> {
        blob_refs(self.deltas.iter().filter_map(|delta| delta.after.as_deref()))
    }
}

/// The blobs that the nodes name.
pub fn blob_refs<'a>(nodes: impl Iterator<Item = &'a Node>) -> impl Iterator<Item = &'a str> {
    nodes.filter_map(|node| Some(node.body()?.blob_ref.as_str()))
}

/// A path as `host.fs.snapshot` captured it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapturedNode {
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Box<Node>>,
}

/// The time of a file in a receipt: RFC 3339, UTC, three decimals.
pub fn timestamp(at_ns: u64) -> String {
    let time = jiff::Timestamp::from_nanosecond(i128::from(at_ns)).unwrap_or(jiff::Timestamp::MAX);
    // Truncated, not rounded: a time is never later than the call that it belongs to.
    let milliseconds = jiff::Timestamp::from_millisecond(time.as_millisecond()).unwrap_or(time);
    milliseconds.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_decimals_and_are_truncated() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(timestamp(1_763_222_400_123_999_999), "2025-11-15T16:00:00.123Z");
    }

    #[test]
    fn the_bytes_of_a_node_are_frozen() {
        let node = Node {
            what: NodeKind::File(Body::whole("sha256:ab".into(), 3)),
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
