//! Journal entries, one per line: an entry survives writing and reading, and folding is deterministic.

use aos_model::entry::{Entry, EntryDraft};
use aos_model::state::{FoldInput, State};

use super::Target;
use crate::Shape;

pub(super) const TARGET: Target = Target {
    name: "entry",
    run,
    dictionary: &[
        "{\"at_ns\":1,\"kind\":\"host.x\",\"params\":{},\"receipt\":{}}\n",
        "\"session_id\":\"hs_1\"",
        "\"turn_id\":\"t1\"",
        "\"tool_call_id\":\"c1\"",
        "\"blobs\":[\"sha256:00\"]",
        "\"facts\":[",
        "{\"session_ended\":{\"session_id\":\"hs_1\",\"state\":\"closed\"}}",
        "{\"snapshot_dropped\":{\"snapshot_id\":\"snap_1\"}}",
        "{\"rolled\":{\"steps\":[1],\"again\":false}}",
        "{\"rolled\":{\"steps\":[1],\"again\":true}}",
        "{\"blob_put\":{\"blob_ref\":\"sha256:00\"}}",
        "]",
        "null",
        "true",
        ",",
        "[[[[[[[[",
    ],
};

fn run(data: &[u8]) -> Shape {
    let (mut shape, mut once, mut twice) = (Shape::default(), State::default(), State::default());
    for (line, seq) in data.split(|b| *b == b'\n').take(16).zip(1..) {
        let entry: Entry<'_> = match serde_json::from_slice(line) {
            Ok(entry) => entry,
            Err(why) => {
                shape = shape.mark(why.classify() as u8);
                continue;
            }
        };
        let bytes = serialize(&entry);
        let again: Entry<'_> = serde_json::from_slice(&bytes)
            .unwrap_or_else(|why| panic!("{why}: serialized as {}", String::from_utf8_lossy(&bytes)));
        assert_eq!(serialize(&again), bytes, "an entry changes when it is read");
        shape = shape.mark((entry.session_id.is_some(), entry.turn_id.is_some(), entry.blobs.len().min(3)));
        for fact in &entry.facts {
            shape = shape.mark(std::mem::discriminant(fact));
        }
        let (effects, same) = (FoldInput::from(entry), FoldInput::from(again));
        assert_eq!(effects, same);
        effects.blob_refs().for_each(drop);
        once.apply(seq, &effects);
        twice.apply(seq, &same);
        assert!(once == twice, "folding is not deterministic");
    }
    shape.about(once.iter().count())
}

fn serialize(entry: &Entry<'_>) -> Vec<u8> {
    let blobs: Vec<&str> = entry.blobs.iter().map(|blob| &**blob).collect();
    let draft = EntryDraft {
        at_ns: entry.at_ns,
        kind: &entry.kind,
        session_id: entry.session_id.as_deref(),
        tool_call_id: entry.tool_call_id.as_deref(),
        turn_id: entry.turn_id.as_deref(),
        params: entry.params.get(),
        receipt: entry.receipt.get(),
        blobs: &blobs,
        facts: &entry.facts,
    };
    draft.to_bytes()
}
