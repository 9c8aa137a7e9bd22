//! Names that are excluded or reserved, and how much is returned inline.

use serde_json::{Value, json};

use aos_testkit::{World, check, expect, warning_codes};

use crate::Outcome;

/// A glob that excludes a file excludes it under every name that a link gives it.
pub fn excluded_through_a_link() -> Outcome {
    let world = World::new();
    world.write("m/secret/key", "SECRET");
    world.write("m/deep/a.key", "SECRET");
    world.write("m/open", "open");
    world.write("elsewhere/secret/key", "SECRET");
    world.link("secret/key", "m/plain");
    world.link("plain", "m/twice");
    world.link("secret", "m/folder");
    world.link(world.root.join("m/secret/key"), "m/absolute");
    world.link("../elsewhere", "m/beside");
    world.link("../elsewhere/secret/key", "m/other");
    world.link("deep/a.key", "m/a.txt");
    world.link("open", "m/alias");
    for host_path in ["m", "."] {
        let mount = json!({
            "host_path": host_path, "mount_path": "/t", "follow_symlinks": true,
            "exclude_glob": ["secret/*", "*.key", "m/secret/*", "elsewhere/secret/*"],
        });
        let target = json!({ "vfs": { "allowed_roots": [world.root], "mounts": [mount] } });
        let session = world.open(json!({ "target": target }));
        let mut client = world.client();
        let found = client.fs(&session, "grep", json!({ "pattern": "SECRET", "include_ignored": true }));
        check(found["match_count"] == 0, || format!("{host_path}: {found}"))?;
        let open = client.fs(&session, "grep", json!({ "pattern": "^open", "include_ignored": true }));
        check(open["match_count"] == 2, || format!("{host_path}: {open}"))?;
    }
    world.finish()
}

/// Lists and searches hide the names of unfinished writes, so nothing else may have one.
pub fn reserved_in_every_effect() -> Outcome {
    let world = World::new();
    world.write("a", "text");
    world.link(".aos-tmp-target", "link");
    let text = json!({ "inline_text": { "text": "x" } });
    let patch = |path: &str| json!({ "inline_text": { "text": format!("*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch\n") } });
    for target in [
        json!({ "local": { "workdir": world.root } }),
        json!({ "staged": { "workdir": world.root } }),
        json!({ "vfs": {} }),
    ] {
        let session = world.open(json!({ "target": target }));
        let mut client = world.client();
        if target.get("vfs").is_some() {
            client.must(&session, "write_file", json!({ "path": "a", "content": text }), &["ok"])?;
        }
        for path in [".aos-tmp-x", "./.aos-tmp-x", ".aos-tmp-x/inner", "d/.aos-tmp-", r".aos-tmp-\x41"] {
            let is_plain = target.get("vfs").is_none() || !(path.starts_with("./") || path.contains('\\'));
            for (op, params) in [
                ("write_file", json!({ "path": path, "content": text, "create_parents": true })),
                ("edit_file", json!({ "path": path, "old_string": "a", "new_string": "b" })),
                ("apply_patch", json!({ "patch": patch(path) })),
                ("make_dir", json!({ "path": path, "parents": true })),
                ("move", json!({ "from": "a", "to": path })),
                ("move", json!({ "from": path, "to": "b" })),
                ("remove", json!({ "path": path })),
                ("read_file", json!({ "path": path })),
                ("stat", json!({ "path": path })),
                ("exists", json!({ "path": path })),
                ("list_dir", json!({ "path": path })),
                ("grep", json!({ "path": path, "pattern": "x" })),
                ("snapshot", json!({ "scope_id": "s", "paths": [path] })),
            ] {
                let receipt = client.fs(&session, op, params.clone());
                let codes: &[&str] = &["error / invalid_path", "reject / invalid_path"];
                if is_plain || receipt["error_code"] != "invalid_path" {
                    expect(&format!("{op} {params}"), &receipt, codes)?;
                }
            }
        }
    }
    let session = world.open(json!({}));
    let through = json!({ "path": "link", "content": text });
    world.client().must(&session, "write_file", through, &["error / invalid_path"])?;
    let cwd = json!({ "session_id": session, "argv": ["true"], "cwd": ".aos-tmp-x" });
    expect("cwd", &world.client().effect("host.exec", cwd), &["error / invalid_path"])?;
    std::fs::remove_file(world.root.join("link")).unwrap();
    world.finish()
}

/// What a command leaves under such a name stays out, and the rest lands.
pub fn reserved_names_of_a_command() -> Outcome {
    let world = World::new();
    world.write("old/kept", "1");
    let session = world.open(json!({}));
    let script = "echo x > .aos-tmp-1; mkdir .aos-tmp-d new; echo x > .aos-tmp-d/f; echo x > new/.aos-tmp-2; \
                  echo x > old/.aos-tmp-3; ln -s a .aos-tmp-4; echo x > fine";
    let params = json!({ "session_id": session, "argv": ["sh", "-c", script] });
    let receipt = world.client().effect("host.exec", params);
    expect("the command", &receipt, &["ok"])?;
    if receipt["coverage"] == "overlay" {
        check(receipt["changed_paths"] == json!(["fine", "new"]), || format!("{receipt}"))?;
        check(warning_codes(&receipt).contains(&"reserved_names_not_kept"), || format!("{receipt}"))?;
        check(!receipt["warnings"].to_string().contains("fine"), || format!("{receipt}"))?;
    }
    let quiet = json!({ "session_id": session, "argv": ["sh", "-c", "echo y > fine"] });
    let receipt: Value = world.client().effect("host.exec", quiet);
    check(!warning_codes(&receipt).contains(&"reserved_names_not_kept"), || format!("{receipt}"))?;
    world.finish()
}

/// A capability cannot raise what is returned inline above the fixed ceiling.
pub fn inline_ceiling() -> Outcome {
    const CEILING: u64 = 16 << 20;
    let world = World::new();
    let session = world.open(json!({ "capability": { "max_inline_bytes": u64::MAX } }));
    let mut client = world.client();
    let file = std::fs::File::create(world.root.join("large")).unwrap();
    for (size, form) in [(CEILING, "inline_bytes"), (CEILING + 1, "blob")] {
        file.set_len(size).unwrap();
        let read = client.fs(&session, "read_file", json!({ "path": "large", "encoding": "bytes" }));
        check(read["content"].get(form).is_some(), || format!("{size}: {:.300}", read.to_string()))?;
    }
    let wanted = json!({ "path": "large", "encoding": "bytes", "output_mode": "require_inline" });
    client.must(&session, "read_file", wanted, &["error / inline_required_too_large"])?;
    let params =
        json!({ "session_id": session, "argv": ["head", "-c", (CEILING + 1).to_string(), "/dev/zero"] });
    let printed = client.effect("host.exec", params);
    check(printed["stdout"].get("blob").is_some(), || format!("{:.300}", printed.to_string()))?;
    let lines = format!("{}\n", "x".repeat(1 << 20)).repeat(17);
    world.write("lines", lines);
    let params = json!({ "path": "lines", "output_mode": "auto" });
    let read = client.fs(&session, "read_file", params);
    check(read["content"].get("blob").is_some(), || format!("{:.300}", read.to_string()))?;
    world.finish()
}
