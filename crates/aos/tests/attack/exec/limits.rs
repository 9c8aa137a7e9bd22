//! A session's capability for commands: programs, time, output, processes, memory, and which folders can be written.

use std::os::unix::fs::PermissionsExt as _;

use aos_testkit::{Start, World, check, expect, tree};
use serde_json::{Value, json};

use super::floods::pinged;
use super::room::{GRACE, Room, SECOND, in_time, ns};
use crate::Outcome;

fn capped(exec: Value) -> Value {
    json!({ "capability": { "exec": exec } })
}

pub fn too_much_memory() -> Outcome {
    let room = Room::open(capped(json!({ "max_memory_bytes": 1_u64 << 30 })));
    let greedy = "import sys\ntry:\n    held = bytearray(4 << 30)\nexcept MemoryError:\n    sys.exit('no memory')\nprint('held', len(held))\n";
    let piecemeal = "import sys\nheld = []\ntry:\n    for _ in range(400): held.append(bytearray(10 << 20))\nexcept MemoryError:\n    held = None\n    sys.exit('no memory')\nprint('held')\n";
    let forked = "import os, sys\npids = [os.fork() for _ in range(1)]\nheld = []\ntry:\n    for _ in range(400): held.append(bytearray(10 << 20))\nexcept MemoryError:\n    held = None\n    os._exit(9)\nprint('held')\n";
    for script in [greedy, piecemeal, forked] {
        let params = json!({ "argv": ["python3", "-c", script], "timeout_ns": ns(60 * SECOND) });
        let (receipt, longest) = pinged(&room.world, || room.exec(params));
        check(longest < SECOND, || format!("the daemon took {longest:?} to answer"))?;
        check(!room.stdout(&receipt).contains("held"), || format!("4 GB were held: {receipt}"))?;
        let died = receipt["status"] == "signaled" && receipt["signal"] == "SIGKILL";
        let failed = receipt["status"] == "ok" && receipt["exit_code"] != 0;
        check(died || failed, || format!("neither died nor failed: {receipt}"))?;
    }
    expect("the next", &room.run(&["true"]), &["ok"])?;
    room.finish()
}

pub fn processes_are_counted() -> Outcome {
    let room = Room::open(capped(json!({ "max_processes": 20 })));
    let script = "import os, time\nmade = 0\ntry:\n    for _ in range(100):\n        if os.fork() == 0:\n            time.sleep(300)\n            os._exit(0)\n        made += 1\nexcept OSError: pass\nprint(made)\n";
    let receipt = in_time("forks", 5 * SECOND, || room.run(&["python3", "-c", script]))?;
    let made: u32 = room.stdout(&receipt).trim().parse().map_err(|_| format!("{receipt}"))?;
    check((1..=20).contains(&made), || format!("{made} processes were made under a limit of 20"))?;
    // The next command has its full allowance again, and another session has its own.
    for _ in 0..3 {
        let params =
            json!({ "argv": ["sh", "-c", "true & true & true & wait"], "timeout_ns": ns(5 * SECOND) });
        expect("the next", &room.exec(params), &["ok"])?;
    }
    let other = room.another(json!({}));
    let receipt = room.exec_in(&other, json!({ "argv": ["python3", "-c", script] }));
    check(room.stdout(&receipt).trim() == "100", || format!("without a limit: {receipt}"))?;
    room.finish()
}

pub fn not_allowed() -> Outcome {
    let room = Room::open(capped(json!({ "allowed": false })));
    for argv in [json!(["touch", "started"]), json!(["true"]), json!(["/bin/sh", "-c", "touch started"])] {
        let receipt = room.exec(json!({ "argv": argv }));
        expect(&argv.to_string(), &receipt, &["forbidden / exec_not_allowed"])?;
    }
    check(!room.world.root.join("started").exists(), || "it ran".into())?;
    // The limit does not apply to file requests.
    let written = room.world.client().fs(
        &room.session,
        "write_file",
        json!({ "path": "f", "content": { "inline_text": { "text": "x" } } }),
    );
    expect("a write", &written, &["ok"])?;
    for odd in [
        json!({ "allowed": "yes" }),
        json!({ "program": [] }),
        json!({ "max_processes": -1 }),
        json!({ "programs": [1] }),
        json!([]),
    ] {
        let receipt = room.world.open_receipt(json!({ "capability": { "exec": odd } }));
        expect(&odd.to_string(), &receipt, &["error / invalid_capability", "error / invalid_params"])?;
    }
    room.finish()
}

const REFUSED: &[&str] = &["forbidden / program_not_allowed"];

pub fn programs() -> Outcome {
    let room = Room::open(json!({
        "capability": { "exec": { "programs": ["echo", "/usr/bin/wc", "true"] } },
        "policy": { "preset": "permissive" },
    }));
    for argv in [
        json!(["echo", "x"]),
        json!(["/usr/bin/echo", "x"]),
        json!(["/bin/echo", "x"]),
        json!(["/usr/bin/wc", "-c"]),
        json!(["wc", "-c"]),
    ] {
        expect(&argv.to_string(), &room.exec(json!({ "argv": argv })), &["ok"])?;
    }
    for argv in [
        json!(["sh", "-c", "touch started"]),
        json!(["/bin/sh", "-c", "touch started"]),
        json!(["touch", "started"]),
        json!(["/usr/bin/../bin/touch", "started"]),
        json!(["../../../../../../usr/bin/touch", "started"]),
        json!(["echo ", "x"]),
        json!(["ECHO", "x"]),
        json!(["env", "touch", "started"]),
    ] {
        let receipt = room.exec(json!({ "argv": argv }));
        expect(&argv.to_string(), &receipt, &["forbidden / program_not_allowed", "error / spawn_failed"])?;
        if argv[0] != "echo " && argv[0] != "ECHO" {
            expect(&argv.to_string(), &receipt, REFUSED)?;
        }
    }
    check(!room.world.root.join("started").exists(), || "one ran".into())?;
    let none = room.another(capped(json!({ "programs": [] })));
    expect("none at all", &room.exec_in(&none, json!({ "argv": ["true"] })), REFUSED)?;
    room.finish()
}

/// A program with an allowed name that the agent created itself is not the allowed program.
pub fn planted_programs() -> Outcome {
    let room = Room::open(json!({
        "capability": { "exec": { "programs": ["echo", "true"] } },
        "policy": { "preset": "permissive" },
    }));
    let evil = "#!/bin/sh\n/usr/bin/touch \"$(/usr/bin/dirname \"$0\")/started\"\n";
    let plant = |name: &str| {
        let path = room.world.write(name, evil);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    plant("echo");
    plant("bin/echo");
    room.world.link("/bin/sh", "true");
    room.world.link("/usr/bin/echo", "honest");
    let bin = room.world.root.join("bin").display().to_string();
    let here = room.world.root.display().to_string();
    for params in [
        json!({ "argv": ["./echo", "x"] }),
        json!({ "argv": [format!("{here}/echo"), "x"] }),
        json!({ "argv": ["./true", "-c", "touch started"] }),
        json!({ "argv": ["echo", "x"], "env_patch": { "PATH": bin } }),
        json!({ "argv": ["echo", "x"], "env_patch": { "PATH": format!("{bin}:/usr/bin") } }),
        json!({ "argv": ["echo", "x"], "env_patch": { "PATH": "." } }),
        json!({ "argv": ["bin/echo", "x"] }),
    ] {
        let receipt = room.exec(params.clone());
        let planted = ["started", "bin/started"].iter().any(|name| room.world.root.join(name).exists());
        check(!planted, || format!("{params}: the planted one ran: {receipt}"))?;
        expect(&params.to_string(), &receipt, &["forbidden / program_not_allowed", "error / spawn_failed"])?;
    }
    // A link to the allowed program is the allowed program.
    expect("a link", &room.run(&["./honest", "x"]), &["ok", "forbidden / program_not_allowed"])?;
    room.finish()
}

pub fn the_shorter_time() -> Outcome {
    let room = Room::open(capped(json!({ "max_timeout_ns": ns(SECOND) })));
    for params in [json!({}), json!({ "timeout_ns": ns(100 * SECOND) }), json!({ "timeout_ns": u64::MAX })] {
        let mut params = params;
        params["argv"] = json!(["sleep", "100"]);
        let receipt = in_time("the ceiling", SECOND + GRACE, || room.exec(params.clone()))?;
        expect(&params.to_string(), &receipt, &["timeout"])?;
    }
    let params = json!({ "argv": ["sleep", "100"], "timeout_ns": ns(SECOND / 5) });
    let receipt = in_time("its own time", SECOND + GRACE, || room.exec(params))?;
    expect("its own", &receipt, &["timeout"])?;
    expect("in time", &room.run(&["sleep", "0.1"]), &["ok"])?;
    room.finish()
}

pub fn the_smaller_output() -> Outcome {
    let room = Room::open(capped(json!({ "max_output_bytes": 0 })));
    let receipt = room.sh("echo out; echo err >&2");
    expect("no output", &receipt, &["ok"])?;
    check(receipt["stdout_bytes"] == 4 && receipt["truncated"] == true, || format!("{receipt}"))?;
    check(room.stdout(&receipt).len() < 200 && !room.stdout(&receipt).contains("out\n"), || {
        format!("{receipt}")
    })?;
    for cap in [1, 2, 3, 4] {
        let session = room.another(capped(json!({ "max_output_bytes": cap })));
        let receipt = room.exec_in(&session, json!({ "argv": ["printf", "abcd"] }));
        expect("a few bytes", &receipt, &["ok"])?;
        check((receipt["truncated"] == true) == (cap < 4), || format!("{cap}: {receipt}"))?;
    }
    room.finish()
}

/// Without `write` no command can change the roots.
pub fn read_only_roots() -> Outcome {
    let room = Room::open(json!({
        "capability": { "allowed_fs_ops": ["read", "search", "list", "stat"] },
        "policy": { "preset": "permissive" },
    }));
    room.world.write("f", "kept\n");
    room.world.write("d/g", "kept\n");
    let before = tree(&room.world.root);
    for script in [
        "echo x > f",
        "echo x > new",
        "rm f",
        "mv f h",
        "mkdir n",
        "ln -s f l",
        "ln f hard",
        "chmod 700 f",
        "touch f",
        "rm -r d",
        "truncate -s 0 f",
        "cp f copy",
        "sed -i s/kept/lost/ f",
        "mkfifo p",
        "mount -o remount,rw . && echo x > f",
        "git init",
        ": >> f",
        "chown $(id -u) f",
    ] {
        let receipt = room.sh(script);
        expect(script, &receipt, &["ok"])?;
        check(receipt["exit_code"] != 0, || format!("{script} worked: {receipt}"))?;
        check(tree(&room.world.root) == before, || format!("{script} changed the root"))?;
    }
    check(room.says("cat f d/g; echo x > ~/y; echo x > /tmp/y; cat ~/y")? == "kept\nkept\nx", || {
        "it cannot read or use its own".into()
    })?;
    room.finish()
}

/// A world with folders beside its root; each holds a file `f` with the folder's name.
fn world_beside(folders: [&str; 2]) -> World {
    let mut world = World::asleep(Start::default());
    for folder in folders {
        std::fs::create_dir(world.parent.join(folder)).unwrap();
        std::fs::write(world.parent.join(folder).join("f"), format!("{folder}\n")).unwrap();
    }
    world.start_daemon();
    world
}

/// Several roots: each one is visible, nothing between them is.
pub fn several_roots() -> Outcome {
    let world = world_beside(["second", "third"]);
    let roots = json!([world.root, world.parent.join("second")]);
    let room =
        Room::of(world, json!({ "capability": { "fs_roots": roots }, "policy": { "preset": "permissive" } }));
    let parent = room.world.parent.display().to_string();
    let said =
        room.says(&format!("cat {parent}/second/f; echo new > {parent}/second/g; cat {parent}/second/g"))?;
    check(said == "second\nnew", || said.clone())?;
    check(room.world.parent.join("second/g").exists(), || "the second root is not the real one".into())?;
    let third = room.sh(&format!("cat {parent}/third/f"));
    check(third["exit_code"] != 0, || format!("what is no root: {third}"))?;
    // A root that is only a part of the workdir: the rest is not visible.
    room.world.write("src/a", "a\n");
    room.world.write("other", "o\n");
    let part =
        room.another(json!({ "capability": { "fs_roots": ["src"] }, "policy": { "preset": "permissive" } }));
    let receipt = room.exec_in(&part, json!({ "argv": ["sh", "-c", "cat a ../src/a"], "cwd": "src" }));
    expect("a part", &receipt, &["ok"])?;
    let receipt =
        room.exec_in(&part, json!({ "argv": ["sh", "-c", "cat ../other; echo x > ../other"], "cwd": "src" }));
    check(receipt["stdout_bytes"] == 0, || format!("{receipt}"))?;
    check(room.world.read("other") == b"o\n", || "what is no root was written".into())?;
    room.finish()
}

/// The folders that a session mounts are visible under the names that it gives them.
pub fn mounts() -> Outcome {
    let world = world_beside(["data", "work"]);
    let (data, work) = (world.parent.join("data"), world.parent.join("work"));
    let mounts = json!([
        { "host_path": data, "mount_path": "/data", "mode": "ro" },
        { "host_path": work, "mode": "rw" },
    ]);
    let extra = json!({ "local": { "mounts": mounts }, "policy": { "preset": "permissive" } });
    let room = Room::of(world, extra);
    let work = work.display().to_string();
    check(room.says("cat /data/f")? == "data", || "a named place".into())?;
    check(room.sh("echo x > /data/new")["exit_code"] != 0, || "ro is written".into())?;
    check(room.says(&format!("echo x > {work}/new; cat {work}/f"))? == "work", || "its own place".into())?;
    check(room.world.parent.join("work/new").exists(), || "rw does not land".into())?;
    check(!room.world.parent.join("data/new").exists(), || "ro landed".into())?;
    our_home_is_no_mount(&room)?;
    room.finish()
}

/// Our own home cannot be mounted either: not whole, not in part, not inside another folder.
fn our_home_is_no_mount(room: &Room) -> Outcome {
    let home = &room.world.home;
    for path in [home.clone(), home.join("state"), home.join("run"), room.world.parent.clone()] {
        let mounts = json!([{ "host_path": path, "mount_path": "/got", "mode": "rw" }]);
        let target = json!({ "local": { "workdir": room.world.root, "mounts": mounts } });
        let opened =
            room.world.open_receipt(json!({ "target": target, "policy": { "preset": "permissive" } }));
        expect(&format!("{}", path.display()), &opened, &["error / invalid_mount", "ready"])?;
        if let Some(session) = opened["session_id"].as_str() {
            let script = "find /got | grep -e journal.db -e aosd.sock; echo x > /got/journal.db; echo x > /got/home/state/journal.db";
            let receipt = room.exec_in(session, json!({ "argv": ["sh", "-c", script] }));
            check(receipt["stdout_bytes"] == 0, || format!("{}: {receipt}", path.display()))?;
        }
    }
    Ok(())
}
