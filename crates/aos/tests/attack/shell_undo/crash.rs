//! The daemon dies during a command, or while it applies its changes: the tree is as it was, and the journal says so.

use std::time::Duration;

use aos_testkit::{Client, World, check, expect, full_figure, new_seed, wait_for};
use serde_json::{Value, json};

use super::{again, changed, furnished, same, seen};
use crate::Outcome;
use crate::exec::room::{Room, ordinary};

/// Sends a command and does not wait for its end.
fn sent(room: &Room, script: &str, tool_call: &str) -> Result<Client, String> {
    let params = json!({ "session_id": room.session, "argv": ["sh", "-c", script] });
    let call = json!({ "kind": "host.exec", "params": params, "tool_call_id": tool_call });
    let mut client = room.world.client();
    client.send_effect(1, &call)?;
    Ok(client)
}

fn receipt_of(room: &Room, tool_call: &str) -> Result<Value, String> {
    let mut entries = room.world.entries_of(&room.session, tool_call);
    entries.retain(|entry| !entry["receipt"].is_null());
    check(entries.len() == 1, || format!("{tool_call}: {entries:?}"))?;
    Ok(entries.remove(0)["receipt"].clone())
}

/// Overlays are deleted in the background.
pub fn no_overlay_is_left(room: &Room) -> Outcome {
    let overlays = room.world.home.join("state/overlays");
    wait_for("the overlays to go", || std::fs::read_dir(&overlays).map_or(0, Iterator::count) == 0)
}

/// Waits until the running command has written `name`, in its overlay.
pub fn written(room: &Room, name: &str) -> Outcome {
    let overlays = room.world.home.join("state/overlays");
    wait_for("the command to write", || {
        let made = std::fs::read_dir(&overlays).into_iter().flatten().flatten();
        made.into_iter().any(|change| change.path().join("0/upper").join(name).exists())
    })
}

pub fn while_it_runs() -> Outcome {
    for world in [World::new(), World::with(ordinary())] {
        let mut room = furnished(world, json!({}));
        let before = seen(&room.world.root);
        let client = sent(&room, "rm -r dir; echo x > changed; echo y > mark; sleep 100", "tc_killed")?;
        written(&room, "mark")?;
        room.world.kill9();
        drop(client);
        again(&mut room);
        same("discarded", &seen(&room.world.root), &before)?;
        expect("the record", &receipt_of(&room, "tc_killed")?, &["error / interrupted_rolled_back"])?;
        no_overlay_is_left(&room)?;
        // A command without an overlay is reported differently.
        let script = "echo z > changed; echo w > mark; sleep 100";
        let params = json!({ "session_id": room.session, "argv": ["sh", "-c", script], "capture": "none" });
        let call = json!({ "kind": "host.exec", "params": params, "tool_call_id": "tc_bare" });
        let mut client = room.world.client();
        client.send_effect(1, &call)?;
        wait_for("the command to run", || room.world.root.join("mark").exists())?;
        room.world.kill9();
        again(&mut room);
        expect("the record", &receipt_of(&room, "tc_bare")?, &["error / interrupted"])?;
        expect("the next", &room.call("tc_next", "echo v > changed"), &["ok"])?;
        room.world_finish()?;
    }
    Ok(())
}

/// All or nothing, whenever the daemon is killed while it applies the changes.
pub fn while_it_lands() -> Outcome {
    let script = "i=0; while [ $i -lt 150 ]; do echo new $i > f$i; i=$((i+1)); done
        rm -r dir; mkdir -p dir/new; echo x > dir/in; chmod 755 kept; mv gone dir/new/; ln -sf kept link; echo end > last";
    let mut room = furnished(World::new(), json!({}));
    for number in 0..150 {
        room.world.write(&format!("f{number}"), format!("old {number}\n"));
    }
    let before = seen(&room.world.root);
    expect("once", &room.call("tc_once", script), &["ok"])?;
    let after = seen(&room.world.root);
    expect("undo", &room.undo("tc_once"), &["ok"])?;
    same("undone", &seen(&room.world.root), &before)?;
    let (mut landed, mut taken_back) = (0, 0);
    for round in 0..full_figure(300, 12) {
        let tool_call = format!("tc_{round}");
        let client = sent(&room, script, &tool_call)?;
        written(&room, "last")?;
        // From before the changes are read to after the receipt.
        std::thread::sleep(Duration::from_micros(1 << (new_seed() % 19)));
        room.world.kill9();
        drop(client);
        again(&mut room);
        let now = seen(&room.world.root);
        let receipt = receipt_of(&room, &tool_call)?;
        if receipt["status"] == "ok" {
            landed += 1;
            same("landed whole", &now, &after)?;
            expect("undo", &room.undo(&tool_call), &["ok"])?;
        } else {
            taken_back += 1;
            expect("the record", &receipt, &["error / interrupted_rolled_back"])?;
            check(receipt.get("not_rolled_back").is_none(), || format!("{receipt}"))?;
        }
        same("as before", &seen(&room.world.root), &before)?;
        no_overlay_is_left(&room)?;
    }
    println!("killed while landing: {landed} landed, {taken_back} taken back");
    room.world_finish()
}

/// An ordinary user's overlay cannot cover a root with a mount below it: the receipt then does not report an overlay.
pub fn without_overlay() -> Outcome {
    let mut world = World::asleep(ordinary());
    let below = world.root.join("below");
    std::fs::create_dir(&below).map_err(|why| why.to_string())?;
    world.mount_tmpfs(&below, "mode=0755")?;
    world.start_daemon();
    let mut room = furnished(world, json!({}));
    let receipt = room.call("tc_scan", "echo x > changed; echo y > made");
    expect("scan", &receipt, &["ok"])?;
    check(receipt["coverage"] == "scan" && receipt["not_undoable"] == json!(["changed"]), || {
        format!("{receipt}")
    })?;
    check(aos_testkit::warning_codes(&receipt).contains(&"no_overlay"), || format!("{receipt}"))?;
    let dry = room.call_with("tc_dry", "rm made", json!({ "dry_run": true }));
    expect("dry", &dry, &["error / unsupported"])?;
    check(room.world.root.join("made").exists(), || "it ran".into())?;
    let client = sent(&room, "echo z > ready; sleep 100", "tc_killed")?;
    wait_for("the command", || room.world.root.join("ready").exists())?;
    room.world.kill9();
    drop(client);
    again(&mut room);
    expect("the record", &receipt_of(&room, "tc_killed")?, &["error / interrupted"])?;
    no_overlay_is_left(&room)?;
    drop(room);
    Ok(())
}

/// Changes that do not fit are not applied in part.
pub fn no_space() -> Outcome {
    if !aos_testkit::is_root() {
        return Ok(());
    }
    let mut world = World::asleep(aos_testkit::Start::default());
    let root = world.root.clone();
    world.mount_tmpfs(&root, "size=400k,mode=0755")?;
    world.start_daemon();
    let room = furnished(world, json!({}));
    let before = seen(&room.world.root);
    // The overlay is on another disk with free space; the root's disk is full.
    let receipt = room.call(
        "tc_full",
        "echo x > changed; rm gone; head -c 300000 /dev/zero > a; head -c 300000 /dev/zero > b; echo said",
    );
    expect("full", &receipt, &["error / no_space"])?;
    check(room.stdout(&receipt) == "said\n" && changed(&receipt).is_empty(), || format!("{receipt}"))?;
    same("full", &seen(&room.world.root), &before)?;
    // Across two disks files are copied, and are identical all the same.
    let receipt = room.call(
        "tc_fits",
        "head -c 1000 /dev/zero > a; touch -d 2001-01-01 a; chmod 751 a; rm -r dir; echo y > changed",
    );
    expect("fits", &receipt, &["ok"])?;
    check(super::mtime(&room.world.root.join("a")).0 < 1_000_000_000, || "its time was not kept".into())?;
    expect("undo", &room.undo("tc_fits"), &["ok"])?;
    same("undone", &seen(&room.world.root), &before)?;
    drop(room);
    Ok(())
}
