//! Planted bugs in what commands can do in each isolation and capture mode.

use super::{Edit, Mutant, attack};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "exited-peer-served",
        promise: 1,
        breaks: "a peer that exited before it could be judged is served: a command that connects by a child is the operator",
        edits: &[Edit {
            file: "crates/aos-wire/src/peer.rs",
            old: "Origin::Exited => Err(PeerError::Exited { pid }),",
            new: "Origin::Exited => Ok(()),",
        }],
        caught_by: &[attack("S26")],
    },
    Mutant {
        name: "ancestors-not-walked",
        promise: 1,
        breaks: "only the parent of a peer is looked at, so that a grandchild of a command is the operator",
        edits: &[Edit {
            file: "crates/aos-sandbox/src/origin.rs",
            old: "ancestors.iter().skip(1).any(",
            new: "ancestors.iter().skip(1).take(1).any(",
        }],
        caught_by: &[attack("S26")],
    },
    Mutant {
        name: "uncaptured-by-argument",
        promise: 2,
        breaks: "any caller may run a command without capture, so that nothing that it changes is checked",
        edits: &[Edit {
            file: "crates/aos-host/src/operation/exec.rs",
            old: "if !request.is_ordered() && !session.capability.exec.uncaptured {",
            new: "if false {",
        }],
        caught_by: &[attack("S1")],
    },
];
