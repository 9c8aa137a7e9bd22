//! Links that a command makes or meets: they do not lead outside, neither for it nor for the daemon.

use std::sync::atomic::{AtomicBool, Ordering};

use aos_testkit::{check, expect, full_figure};
use rustix::fs::{CWD, RenameFlags};
use serde_json::json;

use super::room::Room;
use crate::Outcome;

pub fn links_lead_nowhere() -> Outcome {
    let room = Room::permissive();
    room.world.link(&room.world.outside, "out");
    room.world.link("/", "top");
    room.world.link("../outside/secret", "up");
    let outside = room.world.outside.display().to_string();
    for script in [
        "cat out/secret".to_owned(),
        "cat up".into(),
        format!("cat top{outside}/secret"),
        "echo x > out/new".into(),
        "cp /etc/passwd up".into(),
        "rm out/secret".into(),
        "cd out && ls".into(),
        "cd -P out/.. && cat outside/secret".into(),
    ] {
        let receipt = room.sh(&script);
        expect(&script, &receipt, &["ok"])?;
        check(receipt["exit_code"] != 0, || format!("{script}: {receipt}"))?;
    }
    // A program behind a link that leads outside is not found; one behind a link that stays inside is.
    room.world.write("real.sh", "#!/bin/sh\necho real\n");
    room.world.link("real.sh", "inside.sh");
    expect("chmod", &room.sh("chmod 755 real.sh"), &["ok"])?;
    let receipt = room.run(&["./inside.sh"]);
    check(room.stdout(&receipt) == "real\n", || format!("a link inside: {receipt}"))?;
    let receipt = room.run(&["./out/secret"]);
    expect("a program outside", &receipt, &["error / spawn_failed", "forbidden"])?;
    room.finish()
}

/// Another process swaps the folder that the command runs in with a link to the outside.
pub fn a_swapped_folder() -> Outcome {
    let room = Room::permissive();
    let (folder, link) = (room.world.root.join("d"), room.world.root.join("l"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("secret"), "harmless\n").unwrap();
    room.world.link(&room.world.outside, "l");
    let stop = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = rustix::fs::renameat_with(CWD, &folder, CWD, &link, RenameFlags::EXCHANGE);
            }
        });
        let outcome = (0..full_figure(2_000, 60)).try_for_each(|number| {
            let argv = json!(["sh", "-c", "cat secret; echo x > left-by-command"]);
            let cwd = if number % 2 == 0 { "d" } else { "l" };
            let receipt = room.exec(json!({ "argv": argv, "cwd": cwd }));
            expect("a swapped folder", &receipt, &["ok", "forbidden", "error"])?;
            let said = room.stdout(&receipt);
            check(said.is_empty() || said == "harmless\n", || format!("it read {said}"))
        });
        stop.store(true, Ordering::Relaxed);
        outcome
    });
    outcome?;
    check(!room.world.outside.join("left-by-command").exists(), || "it wrote outside".into())?;
    room.finish()
}
