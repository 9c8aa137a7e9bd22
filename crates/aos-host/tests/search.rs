//! Searches by a host of its own: here the clock and the number of threads are parameters.
#![allow(
    clippy::disallowed_methods,
    reason = "a test prepares and inspects the disk behind the product's back"
)]

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use aos_host::{Call, Host, Machine};
use aos_model::receipt::Durability;
use aos_store::Home;
use serde_json::{Value, json};

struct Bench {
    dir: tempfile::TempDir,
    host: std::sync::Arc<Host>,
    session: String,
}

impl Bench {
    fn new(change: impl FnOnce(&mut Machine), furnish: impl FnOnce(&Path)) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("ws");
        std::fs::create_dir(&root).unwrap();
        furnish(&root);
        let mut machine = Machine::real(Durability::Process, 0o022, "/proc/self/exe".into());
        change(&mut machine);
        let (host, _) = Host::start(Home::open(&dir.path().join("home")).unwrap(), machine).unwrap();
        let mut bench = Bench { dir, host, session: String::new() };
        let opened = bench.ask("host.session.open", json!({ "target": { "local": { "workdir": root } } }));
        bench.session = opened["session_id"].as_str().expect("a session").to_owned();
        bench
    }

    fn ask(&self, kind: &str, mut params: Value) -> Value {
        if !self.session.is_empty() {
            params["session_id"] = json!(self.session);
        }
        let call = Call { kind, params: &params.to_string(), tool_call_id: None, turn_id: None };
        let job = self.host.admit(call).expect("it is JSON");
        serde_json::from_str(&self.host.answer(job, None).receipt).expect("a receipt is JSON")
    }
}

fn many_files(root: &Path) {
    for number in 0..600 {
        let dir = root.join(format!("d{}/e{}", number % 13, number % 7));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(format!("f{number}")), "needle\nhay\n".repeat(1 + number % 5)).unwrap();
    }
}

/// A clock that is a second further at each look.
fn hasty_clock() -> u64 {
    static LOOKS: AtomicU64 = AtomicU64::new(0);
    LOOKS.fetch_add(1, Ordering::Relaxed) * 1_000_000_000
}

#[test]
fn the_deadline_ends_a_search_with_what_it_has() {
    let bench = Bench::new(|machine| machine.monotonic_ns = hasty_clock, many_files);
    for (kind, pattern, count) in [("host.fs.grep", "needle", "match_count"), ("host.fs.glob", "**", "count")]
    {
        let receipt = bench.ask(kind, json!({ "pattern": pattern, "max_results": 100_000 }));
        assert_eq!(receipt["status"], "ok", "{receipt}");
        assert_eq!(receipt["truncated"], true, "{receipt}");
        assert_eq!(receipt["warnings"][0]["code"], "deadline", "{receipt}");
        let found = receipt[count].as_u64().unwrap();
        assert!(found > 0 && found < 600, "{found} found");
    }
    // In the middle of a file, too.
    std::fs::write(bench.dir.path().join("ws/big"), "needle\n".repeat(1 << 20)).unwrap();
    let receipt =
        bench.ask("host.fs.grep", json!({ "pattern": "needle", "path": "big", "max_results": 10_000_000 }));
    let found = receipt["match_count"].as_u64().unwrap();
    assert!(receipt["truncated"] == true && found > 1_000 && found < 1 << 20, "{found} found");
}

#[test]
fn the_answer_is_the_same_for_any_number_of_threads() {
    let questions = [
        json!({ "pattern": "needle", "max_results": 100 }),
        json!({ "pattern": "needle", "max_results": 1_000_000 }),
        json!({ "pattern": "hay", "context_lines": 2, "max_results": 333 }),
        json!({ "pattern": "needle", "files_only": true, "max_results": 77 }),
        json!({ "pattern": "absent" }),
    ];
    let answers = |cores: usize| {
        let bench = Bench::new(|machine| machine.cores = cores, many_files);
        let mut answers: Vec<Value> =
            questions.iter().map(|question| bench.ask("host.fs.grep", question.clone())).collect();
        answers.push(bench.ask("host.fs.glob", json!({ "pattern": "**/f*1" })));
        // The order of a glob is by time, which differs from tree to tree.
        answers.last_mut().unwrap()["paths"].take();
        answers
    };
    let alone = answers(1);
    for cores in [2, 3, 12, 100] {
        assert_eq!(answers(cores), alone, "{cores} threads");
    }
}
