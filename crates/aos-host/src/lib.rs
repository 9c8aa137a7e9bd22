//! Executes effects: the only crate of `aos` that opens the files of a session. Commands run through `aos-sandbox`.
//!
//! Read `spine` first: it calls every stage of a request in order. The modules by layer, bottom up; a module uses only
//! its own layer and earlier layers, and the module graph has no cycles (checked by a test):
//!
//! 1. System calls and plain data: `disk` (files by descriptor), `content` (file contents on disk or in a layer), `fault`
//!    (errno to refusal), `lock` (path locks), `lane` (the mutation queue of a session), `ledger` (the snapshot index),
//!    `leftovers`, `machine`, `memory`, `outcome`, `output`.
//! 2. Paths and sessions: `jail` (path resolution inside the roots), `view` (the same in a layer), `steps` (the steps of a
//!    change), `exec` (settings and processes of commands), `session`, `finalizer`, `policy`, `target`, `subtree`,
//!    `search` (walk, grep, glob).
//! 3. One home: `host` (the stores and sessions together), `payload`, `overlay` and `command` (running a command),
//!    `proposed` (the changes of a command), `snapshot` (pre-images), `turns` (what an undo takes back), `restore` (undo on
//!    disk), `layer` (virtual and staged sessions), `lifecycle` (opening and closing sessions).
//! 4. `operation`: one file per effect; reads and plans, changes nothing.
//! 5. `stage` (session, capability, policy, plan), `change` (intent, steps, rollback, recovery), `capture` (a command's
//!    changes).
//! 6. Requests: `maintenance`, `admit`, `record` (receipt and journal), `spine`; beside them `start`, `operator`,
//!    `evaluate`, `history`, `readback`.

mod admit;
mod baseline;
mod capture;
mod change;
mod command;
mod content;
mod disk;
mod evaluate;
mod exec;
mod fault;
mod finalizer;
mod git;
mod history;
mod host;
mod jail;
mod lane;
mod layer;
mod led_to;
mod ledger;
mod leftovers;
mod lifecycle;
mod lock;
mod machine;
mod maintenance;
mod memory;
mod operation;
mod operator;
mod outcome;
mod output;
mod overlay;
mod payload;
mod policy;
mod programs;
mod proposed;
mod protection;
mod readback;
mod record;
mod restore;
mod search;
mod session;
mod snapshot;
mod spine;
mod stage;
mod start;
mod steps;
mod subtree;
mod target;
#[cfg(feature = "testing")]
pub mod testing;
mod turns;
mod view;

pub use admit::{Call, Job};
pub use aos_sandbox::{Abilities, Origin, abilities, serve_as_spawner_if_asked};
pub use command::{OutputChunk, Watcher};
pub use history::{Change, Touched, Turn as TurnShown};
pub use host::Host;
pub use machine::Machine;
pub use policy::{Evaluate, evaluate, evaluate_recorded};
pub use readback::{BlobRange, ReadBlob};
pub use record::{Answer, LaneGuard};
pub use start::StartReport;
