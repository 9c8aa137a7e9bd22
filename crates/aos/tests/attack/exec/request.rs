//! The fields of a request: what is started, where, with which variables, and which requests are invalid.

use std::os::unix::fs::PermissionsExt as _;

use aos_testkit::{Findings, check, expect, full_figure};
use serde_json::{Value, json};

use super::room::{Room, SECOND, in_time};
use crate::Outcome;

const FAILED: &[&str] = &["error / spawn_failed"];
const INVALID: &[&str] = &["error / invalid_params"];

pub fn impossible_words() -> Outcome {
    let room = Room::new();
    let run = |argv: Value| in_time("a refusal", 5 * SECOND, || room.exec(json!({ "argv": argv })));
    expect("NUL", &run(json!(["touch", "started\0"]))?, INVALID)?;
    expect("NUL in the program", &run(json!(["touch\0", "started"]))?, INVALID)?;
    expect("empty", &run(json!([]))?, &["error / argv_empty"])?;
    let long = "x".repeat(3_000_000);
    expect("one word of 3 MB", &run(json!(["touch", "started", long]))?, FAILED)?;
    expect("a program of 3 MB", &run(json!([long]))?, &["error / spawn_failed", "error / invalid_params"])?;
    let many = vec!["x".repeat(999); 3_000];
    let argv: Vec<String> = ["touch".to_owned(), "started".into()].into_iter().chain(many).collect();
    expect("3 MB of words", &run(json!(argv))?, FAILED)?;
    for program in ["", "/"] {
        expect(program, &run(json!([program]))?, &["error / spawn_failed", "forbidden"])?;
        expect(program, &run(json!([program, "x"]))?, &["error / spawn_failed", "forbidden"])?;
    }
    let patch = json!({ "LARGE": "x".repeat(3_000_000) });
    let receipt = room.exec(json!({ "argv": ["touch", "started"], "env_patch": patch }));
    expect("a variable of 3 MB", &receipt, FAILED)?;
    // An argument just within the kernel's limit is accepted.
    let receipt = run(json!(["sh", "-c", "echo ${#1}", "sh", "x".repeat(131_000)]))?;
    check(room.stdout(&receipt).trim() == "131000", || format!("a long word: {}", receipt["status"]))?;
    check(!room.world.root.join("started").exists(), || "a part of it ran".into())?;
    room.finish()
}

pub fn by_the_book() -> Outcome {
    let room = Room::new();
    let mut findings = Findings::default();
    for (params, allowed) in [
        (json!({}), INVALID),
        (json!({ "argv": "true" }), INVALID),
        (json!({ "argv": [1] }), INVALID),
        (json!({ "argv": null }), INVALID),
        (json!({ "argv": ["true"], "shell": true }), INVALID),
        (json!({ "argv": ["true"], "timeout_ns": -1 }), INVALID),
        (json!({ "argv": ["true"], "timeout_ns": 1.5 }), INVALID),
        (json!({ "argv": ["true"], "timeout_ns": "1s" }), INVALID),
        (json!({ "argv": ["true"], "timeout_ns": null }), INVALID),
        (json!({ "argv": ["true"], "env_patch": [] }), INVALID),
        (json!({ "argv": ["true"], "env_patch": { "A": 1 } }), INVALID),
        (json!({ "argv": ["true"], "env_patch": { "A=B": "x" } }), INVALID),
        (json!({ "argv": ["true"], "env_patch": { "": "x" } }), INVALID),
        (json!({ "argv": ["true"], "env_patch": { "A\0": "x" } }), INVALID),
        (json!({ "argv": ["true"], "env_patch": { "A": "x\0y" } }), INVALID),
        (json!({ "argv": ["true"], "capture": "all" }), INVALID),
        (json!({ "argv": ["true"], "dry_run": "yes" }), INVALID),
        (json!({ "argv": ["true"], "cwd": 1 }), INVALID),
        (json!({ "argv": ["true"], "cwd": "" }), &["error / invalid_path"]),
        (json!({ "argv": ["true"], "cwd": "a\0b" }), &["error / invalid_path"]),
        (json!({ "argv": ["true"], "isolation": "none" }), INVALID),
        (json!({ "argv": ["true"], "background": true }), &["error / unsupported"]),
        (json!({ "argv": ["true"], "background": false }), &["ok"]),
        (json!({ "argv": ["true"], "capture": "none" }), &["ok"]),
        (json!({ "argv": ["true"], "capture": "auto" }), &["ok"]),
    ] {
        findings.add(expect(&params.to_string(), &room.exec(params.clone()), allowed));
    }
    let twice = format!("{{\"session_id\":\"{}\",\"argv\":[\"true\"],\"argv\":[\"false\"]}}", room.session);
    let receipt = room.world.client().raw_effect("host.exec", &twice);
    findings.add(expect("argv twice", &receipt, INVALID));
    // Each of the session's own settings can be invalid too.
    for local in [
        json!({ "network_mode": "some" }),
        json!({ "home": "mine" }),
        json!({ "env": { "A=B": "x" } }),
        json!({ "env": { "A": null } }),
    ] {
        let mut target = json!({ "workdir": room.world.root });
        for (key, value) in local.as_object().cloned().unwrap_or_default() {
            target[key] = value;
        }
        let receipt = room.world.open_receipt(json!({ "target": { "local": target } }));
        findings.add(expect(&local.to_string(), &receipt, INVALID));
    }
    let receipt = room.world.open_receipt(json!({ "isolation": "somewhat" }));
    findings.add(expect("isolation somewhat", &receipt, INVALID));
    findings.add(room.finish());
    findings.outcome()
}

fn plant(room: &Room, name: &str, content: &str, mode: u32) {
    let path = room.world.write(name, content);
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

pub fn what_is_started() -> Outcome {
    let room = Room::new();
    plant(&room, "our-script", "#!/bin/sh\necho ran \"$@\"\n", 0o755);
    plant(&room, "bare", "echo ran by the shell\n", 0o755);
    plant(&room, "closed", "#!/bin/sh\necho ran\n", 0o644);
    plant(&room, "nobody", "#!/nowhere/interpreter\n", 0o755);
    plant(&room, "garbage", "\x7fELF garbage", 0o755);
    plant(&room, "empty", "", 0o755);
    plant(&room, "dir/inner", "#!/bin/sh\necho inner; pwd\n", 0o755);
    plant(&room, "own folder/ünï", "#!/bin/sh\necho odd\n", 0o755);
    let ran = |argv: Value| room.exec(json!({ "argv": argv }));
    let receipt = ran(json!(["./our-script", "a b", "", "*", "$X", ";"]));
    check(room.stdout(&receipt) == "ran a b  * $X ;\n", || format!("words are not words: {receipt}"))?;
    let full = room.world.root.join("our-script").display().to_string();
    check(room.stdout(&ran(json!([full, "x"]))) == "ran x\n", || "by its whole path".into())?;
    check(room.stdout(&ran(json!(["own folder/ünï"]))) == "odd\n", || "an odd name".into())?;
    for program in [
        "./closed",
        "./nobody",
        "./garbage",
        "./dir",
        "./absent",
        "no-such-program-at-all",
        "our-script",
        ".",
    ] {
        let receipt = ran(json!([program]));
        expect(program, &receipt, FAILED)?;
        check(
            receipt["error_message"]
                .as_str()
                .is_some_and(|text| text.contains(program.trim_start_matches("./"))),
            || format!("the message does not name {program}: {receipt}"),
        )?;
    }
    // A file without an interpreter line is not a program for execve but a script for a shell; either is reported so.
    expect("./bare", &ran(json!(["./bare"])), &["ok", "error / spawn_failed"])?;
    expect("./empty", &ran(json!(["./empty"])), &["ok", "error / spawn_failed"])?;
    // A program with a slash is relative to the folder that the command runs in.
    let receipt = room.exec(json!({ "argv": ["./inner"], "cwd": "dir" }));
    check(room.stdout(&receipt).starts_with("inner\n"), || format!("relative to cwd: {receipt}"))?;
    expect("not of the root", &room.exec(json!({ "argv": ["./our-script"], "cwd": "dir" })), FAILED)?;
    room.finish()
}

pub fn looked_up_on_its_own_path() -> Outcome {
    let room = Room::new();
    plant(&room, "bin/tool", "#!/bin/sh\necho from bin\n", 0o755);
    plant(&room, "bin/ls", "#!/bin/sh\necho not the real one\n", 0o755);
    plant(&room, "tool2", "#!/bin/sh\necho from here\n", 0o755);
    let bin = room.world.root.join("bin").display().to_string();
    let path = format!("{bin}:/usr/bin:/bin");
    let with = |argv: Value, path: Value| room.exec(json!({ "argv": argv, "env_patch": { "PATH": path } }));
    check(room.stdout(&with(json!(["tool"]), json!(path))) == "from bin\n", || {
        "its PATH is not asked".into()
    })?;
    check(room.stdout(&with(json!(["ls"]), json!(path))).starts_with("not the real"), || {
        "the first counts".into()
    })?;
    expect("without the folder", &room.run(&["tool"]), FAILED)?;
    // The folder that the command runs in is not on PATH.
    expect("tool2", &room.run(&["tool2"]), FAILED)?;
    expect("an empty PATH", &with(json!(["no-such-tool"]), json!("")), FAILED)?;
    expect("a PATH to nowhere", &with(json!(["ls"]), json!("/nowhere")), FAILED)?;
    let outside = room.world.outside.display().to_string();
    expect("a PATH to the outside", &with(json!(["secret"]), json!(outside)), FAILED)?;
    // The session's own PATH counts as well.
    let session = room.another(json!({ "local": { "env": { "PATH": path } } }));
    let receipt = room.exec_in(&session, json!({ "argv": ["tool"] }));
    check(room.stdout(&receipt) == "from bin\n", || format!("the session's PATH: {receipt}"))?;
    room.finish()
}

pub fn variables() -> Outcome {
    let room = Room::new();
    let session =
        room.another(json!({ "local": { "env": { "KEPT": "kept", "GONE": "gone", "OVER": "old" } } }));
    let patch =
        json!({ "GONE": null, "OVER": "new", "ADDED": "a=b c\nd", "EMPTY": "", "TERM": null, "ünï": "ö" });
    let receipt = room.exec_in(&session, json!({ "argv": ["env", "-0"], "env_patch": patch }));
    let out = room.stdout(&receipt);
    let lines: Vec<&str> = out.split('\0').collect();
    for present in ["KEPT=kept", "OVER=new", "ADDED=a=b c\nd", "EMPTY=", "ünï=ö"] {
        check(lines.contains(&present), || format!("{present} is not there: {lines:?}"))?;
    }
    for absent in ["GONE=", "TERM="] {
        check(!lines.iter().any(|line| line.starts_with(absent)), || {
            format!("{absent} is there: {lines:?}")
        })?;
    }
    // The next command has the session's own variables again.
    let receipt = room.exec_in(&session, json!({ "argv": ["sh", "-c", "echo $GONE $OVER $ADDED"] }));
    check(room.stdout(&receipt) == "gone old\n", || format!("a patch stayed: {receipt}"))?;
    // A HOME and a USER from the caller give no access.
    let lie =
        json!({ "HOME": "/root", "USER": "root", "AOS_HOME": room.world.home, "LD_PRELOAD": "/nowhere.so" });
    let receipt = room.exec(json!({ "argv": ["sh", "-c", "cd; ls state; true"], "env_patch": lie }));
    expect("a lie", &receipt, &["ok", "forbidden"])?;
    check(!room.stdout(&receipt).contains("journal"), || format!("{receipt}"))?;
    room.finish()
}

/// Another thread forks while the file is still open for writing: the kernel answers ETXTBSY.
pub fn a_program_just_written() -> Outcome {
    let room = Room::new();
    std::thread::scope(|scope| {
        let busy: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    (0..full_figure(300, 30)).try_for_each(|_| expect("true", &room.run(&["true"]), &["ok"]))
                })
            })
            .collect();
        let mut client = room.world.client();
        let written = (0..full_figure(300, 30)).try_for_each(|number| {
            let content = json!({ "inline_text": { "text": format!("#!/bin/sh\necho {number}\n") } });
            let params = json!({ "path": format!("p{number}"), "content": content, "executable": true });
            expect("write", &client.fs(&room.session, "write_file", params), &["ok"])?;
            let receipt = room.run(&[&format!("./p{number}")]);
            check(room.stdout(&receipt) == format!("{number}\n"), || format!("p{number}: {receipt}"))
        });
        busy.into_iter().try_for_each(|thread| thread.join().expect("no panic"))?;
        written
    })?;
    room.finish()
}

pub fn where_it_runs() -> Outcome {
    let room = Room::new();
    room.world.write("sub/deep/f", "x");
    room.world.write("file", "x");
    room.world.link("sub/deep", "inside");
    let root = room.world.root.display().to_string();
    let pwd = |cwd: &str| room.exec(json!({ "argv": ["pwd", "-P"], "cwd": cwd }));
    for (cwd, expected) in [
        (".", ""),
        ("./", ""),
        ("sub", "/sub"),
        ("sub/deep/", "/sub/deep"),
        ("sub/../sub", "/sub"),
        ("inside", "/sub/deep"),
        (&format!("{root}/sub"), "/sub"),
        (&root, ""),
    ] {
        let receipt = pwd(cwd);
        expect(cwd, &receipt, &["ok"])?;
        check(room.stdout(&receipt).trim_end() == format!("{root}{expected}"), || {
            format!("{cwd}: {receipt}")
        })?;
    }
    check(room.stdout(&room.run(&["pwd", "-P"])).trim_end() == root, || "without cwd".into())?;
    for cwd in ["file", "absent", "sub/absent", "file/x"] {
        expect(cwd, &pwd(cwd), &["error / cwd_not_found"])?;
    }
    // PWD names the folder or is not set; it is never wrong.
    let receipt = room.exec(json!({ "argv": ["sh", "-c", "echo $PWD"], "cwd": "sub" }));
    check(room.stdout(&receipt).trim_end() == format!("{root}/sub"), || format!("PWD: {receipt}"))?;
    // The folder is removed while the command runs in it: the command keeps running.
    let receipt = room.exec(json!({ "argv": ["sh", "-c", "rm -r ../deep; echo still"], "cwd": "sub/deep" }));
    check(room.stdout(&receipt) == "still\n", || format!("{receipt}"))?;
    room.finish()
}
