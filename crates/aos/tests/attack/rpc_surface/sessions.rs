//! Unlimited sessions: too many are refused, and expired ones hold no resources.

use std::time::{Duration, Instant};

use aos_testkit::time::in_time;
use aos_testkit::world::DESCRIPTORS_SLACK;
use aos_testkit::{Client, Fixture, Start, World, check, expect, is_full, text, wait_for};
use serde_json::json;

use crate::Outcome;

pub(super) fn sessions_without_end() -> Outcome {
    let fixture = Fixture::new();
    fixture.world.write("f", "one\n");
    let before = fixture.world.rss();
    let wanted = if is_full() { 10_000 } else { 700 };
    let begun = Instant::now();
    let opened = open_many(&fixture.world, wanted)?;
    println!("RPC-19: {opened} of {wanted} sessions opened in {:?}", begun.elapsed());
    let grown = fixture.world.rss_peak().saturating_sub(before);
    check(grown < 200 << 20, || format!("memory grew by {grown} bytes"))?;
    let (limit, held) = (descriptor_limit(&fixture.world), fixture.world.open_descriptors());
    check(held < limit, || format!("{held} descriptors of {limit} are held"))?;
    // Other clients are served, on old and new connections, within one second.
    let asked = Instant::now();
    fixture.world.patient_client().must(&fixture.session, "read_file", json!({ "path": "f" }), &["ok"])?;
    in_time(asked, Duration::from_secs(1), "another connection")?;
    fixture.finish()?;
    the_limit()?;
    the_expiry()
}

/// Opens sessions and never closes one. Each is ready, or refused because there are too many.
fn open_many(world: &World, count: usize) -> Result<usize, String> {
    let mut client = world.patient_client();
    let params = json!({ "target": { "local": { "workdir": world.root } } });
    let mut opened = 0;
    for _ in 0..count {
        let receipt = client.effect("host.session.open", params.clone());
        expect("one more session", &receipt, &["ready", "error / too_many_sessions"])?;
        opened += usize::from(receipt["status"] == "ready");
    }
    Ok(opened)
}

fn descriptor_limit(world: &World) -> usize {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", world.daemon_pid())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    line.split_whitespace().nth(3).unwrap().parse().unwrap()
}

/// With few descriptors the limit is reached early, and leaves enough of them to keep serving.
fn the_limit() -> Outcome {
    let few = ["sh", "-c", "ulimit -n 1024; exec \"$@\"", "sh"].map(str::to_owned);
    let fixture = Fixture::of(World::with(Start { wrapper: few.into(), ..Start::default() }), json!({}));
    fixture.world.write("f", "one\n");
    let opened = open_many(&fixture.world, 1_500)?;
    check(opened < 1_024, || format!("{opened} sessions on 1,024 descriptors"))?;
    let clients: Vec<Client> = (0..50).map(|_| fixture.world.patient_client()).collect();
    for mut client in clients {
        client.must(&fixture.session, "write_file", json!({ "path": "f", "content": text("x") }), &["ok"])?;
    }
    // After closing one session, one more can be opened.
    let kill = json!({ "session_id": fixture.session, "signal": "kill" });
    expect("close", &fixture.world.client().effect("host.session.signal", kill), &["signaled"])?;
    check(open_many(&fixture.world, 2)? == 1, || "not exactly one more could be opened".into())?;
    fixture.finish()
}

/// Expired sessions hold no resources.
fn the_expiry() -> Outcome {
    let fixture = Fixture::new();
    let descriptors = fixture.world.open_descriptors();
    let mut client = fixture.world.patient_client();
    let mut params = json!({ "target": { "local": { "workdir": fixture.world.root } } });
    params["session_ttl_ns"] = json!(1_000_000);
    let mut last = String::new();
    for _ in 0..200 {
        let receipt = client.effect("host.session.open", params.clone());
        expect("a short session", &receipt, &["ready"])?;
        last = receipt["session_id"].as_str().unwrap().to_owned();
    }
    wait_for("the sessions to expire", || {
        let listed = client.effect("host.session.list", json!({}));
        listed["sessions"]
            .as_array()
            .is_some_and(|all| all.iter().filter(|one| one["state"] == "open").count() == 1)
    })?;
    client.must(&last, "list_dir", json!({}), &["error / session_expired"])?;
    wait_for("the descriptors to be closed", || {
        fixture.world.open_descriptors() <= descriptors + DESCRIPTORS_SLACK
    })?;
    fixture.finish()
}
