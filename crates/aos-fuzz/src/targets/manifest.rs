//! Manifests: a manifest survives writing and reading, and a changed bit is detected unless it changes nothing.

use aos_store::Manifest;

use super::Target;
use crate::Shape;

pub(super) const TARGET: Target = Target {
    name: "manifest",
    run,
    dictionary: &[
        "\"entries\":{",
        "\"pieces\":{",
        "\"kind\":\"file\"",
        "\"kind\":\"absent\"",
        "\"kind\":\"symlink\"",
        "\"kind\":\"dir\"",
        "\"body_hash\":\"sha256:00\"",
        "\"mode\":493",
        "\"target\":\"a\"",
        "\"xattrs\":{\"user.a\":\"AA==\"}",
        "\"moved_to\":\"b\"",
        "\"checksum\":\"\"",
        "},",
        "{}",
        "null",
    ],
};

fn run(data: &[u8]) -> Shape {
    let verdict = Manifest::from_bytes(data);
    // Hardly any input has the right checksum, so it is written again with the right one.
    let manifest: Manifest = match serde_json::from_slice(data) {
        Ok(manifest) => manifest,
        Err(why) => {
            assert!(verdict.is_err());
            return Shape::default().with(why.classify() as u8).message(&why.to_string());
        }
    };
    let bytes = manifest.to_bytes();
    let read = Manifest::from_bytes(&bytes).expect("a written manifest is valid");
    assert_eq!(read.to_bytes(), bytes, "a manifest changes when it is read");
    if let Ok(whole) = verdict {
        assert_eq!(whole, read, "two reads of one manifest differ");
    }
    check_bit_flip(&bytes, data, &read);
    let bodies = manifest.bodies().count();
    for (preimage, piece) in &manifest.pieces {
        assert_eq!(
            manifest.below(preimage).count(),
            piece.keys().filter(|suffix| !suffix.is_empty()).count()
        );
        assert!(piece.keys().all(|suffix| manifest.kept(preimage, "", suffix).is_some()));
    }
    let shape = Shape::default().about(manifest.entries.len()).about(manifest.pieces.len()).about(bodies);
    manifest.entries.values().take(8).fold(shape, |shape, kept| {
        let has =
            (kept.body_hash.is_some(), kept.mode.is_some(), kept.target.is_some(), kept.moved_to.is_some());
        shape.mark((kept.kind as u8, has, kept.xattrs.len().min(2)))
    })
}

/// Flips one bit, at an offset that depends on the input.
fn check_bit_flip(bytes: &[u8], data: &[u8], whole: &Manifest) {
    let place = data.iter().fold(7_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte)));
    let mut flipped = bytes.to_vec();
    let at = place % flipped.len();
    flipped[at] ^= 1 << (place / flipped.len() % 8);
    if let Ok(taken) = Manifest::from_bytes(&flipped) {
        assert_eq!(taken, *whole, "the flip of bit {place} changed the manifest and was not detected");
    }
}
