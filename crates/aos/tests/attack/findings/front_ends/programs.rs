//! S13: what `exec.programs` allows, and the environment of what it allows.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;

use aos_testkit::{Findings, Start, World, check, expect};
use serde_json::{Value, json};

use crate::Outcome;

const REFUSED: &[&str] = &["forbidden / program_not_allowed"];

fn exec(world: &World, session: &str, argv: Value, env: Value) -> Value {
    world.client().effect("host.exec", json!({ "session_id": session, "argv": argv, "env_patch": env }))
}

/// No name by which a program loads code or starts another can be set or unset; other names can. Without `programs` all can.
pub(super) fn names_that_load_code() -> Outcome {
    let world = World::new();
    let listed = world.open(json!({ "capability": { "exec": { "programs": ["env", "true"] } } }));
    let open = world.open(json!({}));
    let mut findings = Findings::default();
    for name in [
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "LD_AUDIT",
        "GCONV_PATH",
        "BASH_ENV",
        "ENV",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "PYTHONHOME",
        "NODE_OPTIONS",
        "NODE_PATH",
        "PERL5LIB",
        "PERL5OPT",
        "PERL5DB",
        "RUBYOPT",
        "RUBYLIB",
        "GIT_SSH",
        "GIT_EXTERNAL_DIFF",
        "GIT_CONFIG_COUNT",
        "JAVA_TOOL_OPTIONS",
        "_JAVA_OPTIONS",
        "PATH",
        "BASH_FUNC_env%%",
        "PAGER",
        "LESSOPEN",
        "npm_config_node_options",
        "RUSTC_WRAPPER",
        "MAKEFLAGS",
        "HOME",
        "GLIBC_TUNABLES",
        "PS4",
        "IFS",
    ] {
        for value in [json!("/tmp/x"), json!(""), Value::Null] {
            let receipt = exec(&world, &listed, json!(["env"]), json!({ "A": "1", name: value }));
            findings.add(expect(&format!("{name}={value}"), &receipt, REFUSED));
            let told = receipt["error_message"].as_str().is_some_and(|text| text.contains(name));
            findings.add(check(told, || format!("{receipt}")));
        }
    }
    let plain = json!({ "A": "1", "LANG": "C", "LC_ALL": "C", "TERM": null, "TZ": "UTC", "NODE_ENV": "test", "CI": "1" });
    findings.add(expect("other names", &exec(&world, &listed, json!(["env"]), plain), &["ok"]));
    let all = json!({ "PATH": "/usr/bin:/bin", "PYTHONPATH": "x", "GIT_PAGER": "cat" });
    findings.add(expect("without a list", &exec(&world, &open, json!(["true"]), all), &["ok"]));
    findings.add(world.finish());
    findings.outcome()
}

/// The attack itself: a library in the workspace that every program would load.
pub(super) fn a_preloaded_library() -> Outcome {
    let world = World::new();
    let source = "#include <stdlib.h>\n__attribute__((constructor)) void run(void) { unsetenv(\"LD_PRELOAD\"); system(\"/usr/bin/touch owned\"); }\n";
    let file = world.write("evil.c", source);
    let library = world.root.join("evil.so");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(file).status();
    if !built.is_ok_and(|built| built.success()) {
        // Without a compiler the name alone is tried, by S13.
        return world.finish();
    }
    let session = world.open(json!({ "capability": { "exec": { "programs": ["true"] } } }));
    let receipt = exec(&world, &session, json!(["true"]), json!({ "LD_PRELOAD": library }));
    expect("LD_PRELOAD", &receipt, REFUSED)?;
    check(!world.root.join("owned").exists(), || "the library ran".into())?;
    world.finish()
}

/// The daemon's PATH leads into the workspace first. A program that is put there later, under a listed name, does not run.
pub(super) fn a_program_put_on_the_path_later() -> Outcome {
    let mut world = World::asleep(Start::default());
    let path = format!("{}:/usr/bin:/bin", world.root.join("bin").display());
    world.set_start(Start { env: vec![("PATH".into(), path)], ..Start::default() });
    world.start_daemon();
    let session = world.open(json!({ "capability": { "exec": { "programs": ["true"] } } }));
    expect("before", &exec(&world, &session, json!(["true"]), json!({})), &["ok"])?;
    let planted = world.write("bin/true", "#!/bin/sh\n/usr/bin/touch owned\n");
    std::fs::set_permissions(&planted, std::fs::Permissions::from_mode(0o755)).unwrap();
    expect("the planted one", &exec(&world, &session, json!(["true"]), json!({})), REFUSED)?;
    check(!world.root.join("owned").exists(), || "the planted program ran".into())?;
    let receipt = world.open_receipt(json!({ "capability": { "exec": { "programs": ["true"] } } }));
    expect("a session opened now", &receipt, &["error / invalid_capability"])?;
    world.finish()
}

/// A program in a folder that the session can write is refused when the session is opened, however it is named.
pub(super) fn programs_that_the_session_can_write() -> Outcome {
    let world = World::new();
    let tool = world.write("bin/tool", "#!/bin/sh\necho mine\n");
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
    let outside = world.parent.join("link-to-tool");
    symlink(&tool, &outside).unwrap();
    let folder = world.parent.join("link-to-bin");
    symlink(world.root.join("bin"), &folder).unwrap();
    let mut findings = Findings::default();
    let root = world.root.display().to_string();
    for named in [
        format!("{root}/bin/tool"),
        format!("{root}/./bin//tool"),
        format!("{root}/../ws/bin/tool"),
        format!("{root}/not-made-yet"),
        outside.display().to_string(),
        format!("{}/tool", folder.display()),
    ] {
        let receipt =
            world.open_receipt(json!({ "capability": { "exec": { "programs": ["true", named] } } }));
        findings.add(expect(&named, &receipt, &["error / invalid_capability"]));
    }
    let read_only =
        json!({ "allowed_fs_ops": ["read", "list"], "exec": { "programs": [format!("{root}/bin/tool")] } });
    let receipt = world.open_receipt(json!({ "capability": read_only }));
    findings.add(expect("a session that cannot write", &receipt, &["ready"]));
    let narrow = json!({ "fs_roots": ["src"], "exec": { "programs": [format!("{root}/bin/tool")] } });
    std::fs::create_dir(world.root.join("src")).unwrap();
    let receipt = world.open_receipt(json!({ "capability": narrow }));
    findings.add(expect("a program beside the roots", &receipt, &["ready"]));
    findings.add(expect(
        "system programs",
        &world.open_receipt(
            json!({ "capability": { "exec": { "programs": ["sh", "/usr/bin/env", "none-such"] } } }),
        ),
        &["ready"],
    ));
    findings.add(world.finish());
    findings.outcome()
}
