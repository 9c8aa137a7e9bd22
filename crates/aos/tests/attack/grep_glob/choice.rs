//! Which files a search scans: ignore files, hidden names, filters, policy, mounts, our own state.

use std::path::Path;
use std::process::Command;

use aos_testkit::time::in_time;
use aos_testkit::{Start, World, check, expect, verdict, warning_codes};
use serde_json::{Value, json};

use super::{glob, grep, paths, rows};
use crate::{Case, Need, Outcome, plain};

pub fn cases() -> Vec<Case> {
    vec![
        plain("OWN-SRCH-ORDER", whole_paths_byte_by_byte),
        plain("OWN-SRCH-IGNORE", ignore_files),
        plain("OWN-SRCH-NESTED-GIT", repositories_in_repositories),
        plain("OWN-SRCH-IGNORE-ABOVE", rules_from_above_the_base),
        plain("OWN-SRCH-FILTER", filters),
        plain("OWN-SRCH-BASE", where_it_begins),
        plain("OWN-SRCH-GLOB", globs),
        plain("OWN-SRCH-POLICY", denied_parts),
        plain("OWN-SRCH-HOME", our_own_state),
        Case { id: "OWN-SRCH-MOUNT", needs: &[Need::Root], run: mounts },
        plain("OWN-SRCH-SPECIAL", special_files_on_the_way),
    ]
}

fn whole_paths_byte_by_byte() -> Outcome {
    let world = World::new();
    let sorted = ["a-b", "a.txt", "a/a", "a/a.txt", "a/a/x", "a/ab", "a0", "b", "\u{e9}"];
    let sorted = sorted.into_iter().filter(|path| *path != "a/a");
    let sorted: Vec<&str> = sorted.collect();
    for path in &sorted {
        world.write(path, "needle\n");
    }
    let mut agent = world.agent(json!({}));
    let wanted: Vec<String> = sorted.iter().map(|path| format!("{path}:1:needle")).collect();
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    grep(&mut agent, json!({ "pattern": "needle" }), &wanted)?;
    for max in 0..wanted.len() {
        let receipt = agent.fs("grep", json!({ "pattern": "needle", "max_results": max }));
        check(rows(&receipt) == wanted[..max] && receipt["truncated"] == true, || {
            format!("{max}: {receipt}")
        })?;
        check(receipt["match_count"] == max, || format!("{receipt}"))?;
    }
    world.finish()
}

fn ignore_files() -> Outcome {
    let world = World::new();
    for path in [
        "a.log",
        "a.txt",
        "keep.log",
        "sub/b.log",
        "sub/keep.log",
        ".hidden/h",
        ".dot",
        "gen/x",
        "gen/y",
        "sub/gen/z",
    ] {
        world.write(path, "needle\n");
    }
    world.write(".gitignore", "*.log\n!keep.log\n/gen/*\n!/gen/y\n!.dot\n");
    let mut agent = world.agent(json!({}));
    let files = |agent: &mut aos_testkit::Agent, extra: Value, wanted: &[&str]| {
        let mut params = json!({ "pattern": "needle", "files_only": true });
        for (key, value) in extra.as_object().cloned().unwrap_or_default() {
            params[key] = value;
        }
        grep(agent, params, wanted)
    };
    // Git's ignore files count only in repositories.
    let all = ["a.log", "a.txt", "gen/x", "gen/y", "keep.log", "sub/b.log", "sub/gen/z", "sub/keep.log"];
    files(&mut agent, json!({}), &all)?;
    std::fs::create_dir_all(world.root.join(".git/info")).unwrap();
    let in_git = [".dot", "a.txt", "gen/y", "keep.log", "sub/gen/z", "sub/keep.log"];
    files(&mut agent, json!({}), &in_git)?;
    glob(&mut agent, json!({ "pattern": "**/*" }), &in_git)?;
    files(&mut agent, json!({ "include_ignored": true }), &all)?;
    world.write(".git/info/exclude", "sub/gen\n");
    files(&mut agent, json!({}), &[".dot", "a.txt", "gen/y", "keep.log", "sub/keep.log"])?;
    // `.ignore` counts everywhere and overrides git's files; `.rgignore` overrides both; the nearest folder wins.
    world.write(".ignore", "a.txt\n!a.log\n");
    files(&mut agent, json!({}), &[".dot", "a.log", "gen/y", "keep.log", "sub/keep.log"])?;
    world.write(".rgignore", "!a.txt\nkeep.log\n");
    files(&mut agent, json!({}), &[".dot", "a.log", "a.txt", "gen/y"])?;
    world.write("sub/.rgignore", "!keep.log\n");
    files(&mut agent, json!({}), &[".dot", "a.log", "a.txt", "gen/y", "sub/keep.log"])?;
    files(&mut agent, json!({ "include_ignored": true }), &all)?;
    // A file that is named directly is searched.
    for named in ["a.log", ".hidden/h", "sub/b.log", ".git/info/exclude"] {
        let receipt = agent.fs("grep", json!({ "pattern": ".", "path": named }));
        check(receipt["match_count"] == 1, || format!("{named}: {receipt}"))?;
    }
    odd_ignore_files(&world)?;
    world.finish()
}

/// Lines that are not rules are skipped; what is not a regular file is not read.
fn odd_ignore_files(world: &World) -> Outcome {
    for name in ["o/one", "o/two", "o/three", "l/one", "l/two", "p/one", "u/one", "u/two"] {
        world.write(name, "odd\n");
    }
    world.write("o/.ignore", "\u{feff}one\r\n[bad\n# two\n\nthree");
    world.write("u/.ignore", b"one\n\xff\xfe\ntwo\n");
    world.write("rules", "*\n");
    world.link("../rules", "l/.ignore");
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        world.root.join("p/.ignore"),
        rustix::fs::Mode::from_raw_mode(0o644),
    )
    .unwrap();
    let mut agent = world.agent(json!({}));
    let wanted = ["l/one", "l/two", "o/two", "p/one", "u/two"];
    grep(&mut agent, json!({ "pattern": "^odd", "files_only": true }), &wanted)
}

fn repositories_in_repositories() -> Outcome {
    let world = World::new();
    for path in ["x.log", "inner/x.log", "inner/y.tmp", "inner/deep/y.tmp", "tree/x.log", "plain/y.tmp"] {
        world.write(path, "needle\n");
    }
    world.write(".gitignore", "*.log\n");
    world.write("inner/.gitignore", "*.tmp\n");
    world.write("plain/.gitignore", "y.tmp\n");
    std::fs::create_dir(world.root.join("inner/.git")).unwrap();
    let mut agent = world.agent(json!({}));
    // Only the inner one is a repository: the rules above it do not apply to it, and those beside it apply nowhere.
    let wanted = ["inner/x.log", "plain/y.tmp", "tree/x.log", "x.log"];
    grep(&mut agent, json!({ "pattern": "needle", "files_only": true }), &wanted)?;
    std::fs::create_dir(world.root.join(".git")).unwrap();
    grep(&mut agent, json!({ "pattern": "needle", "files_only": true }), &["inner/x.log"])?;
    // A worktree's `.git` file makes a repository as well as a `.git` folder.
    std::fs::remove_dir(world.root.join(".git")).unwrap();
    world.write(".git", "gitdir: /nowhere/at/all\n");
    grep(&mut agent, json!({ "pattern": "needle", "files_only": true }), &["inner/x.log"])?;
    world.finish()
}

fn rules_from_above_the_base() -> Outcome {
    let world = World::new();
    // Above the root, so these files are not read.
    std::fs::write(world.parent.join(".ignore"), "*\n").unwrap();
    std::fs::write(world.parent.join(".gitignore"), "*\n").unwrap();
    std::fs::create_dir(world.parent.join(".git")).unwrap();
    for path in ["sub/deep/a.log", "sub/deep/a.txt", "sub/gen/x"] {
        world.write(path, "needle\n");
    }
    world.write(".ignore", "*.log\nsub/gen/\n");
    let mut agent = world.agent(json!({}));
    for base in [".", "sub", "sub/deep"] {
        grep(&mut agent, json!({ "pattern": "needle", "path": base }), &["sub/deep/a.txt:1:needle"])?;
        glob(&mut agent, json!({ "pattern": "**", "path": base }), &["sub/deep/a.txt"])?;
    }
    // An ignored folder that is named is searched, as in ripgrep.
    grep(&mut agent, json!({ "pattern": "needle", "path": "sub/gen" }), &["sub/gen/x:1:needle"])?;
    world.finish()
}

fn filters() -> Outcome {
    let world = World::new();
    for path in ["a.rs", "a.txt", "src/b.rs", "src/b.c", "src/gen/c.rs", ".dot.rs", "weird[1].rs", "tgt/x.rs"]
    {
        world.write(path, "needle\n");
    }
    world.write(".ignore", "tgt\n");
    let mut agent = world.agent(json!({}));
    for (filter, wanted) in [
        ("*.rs", &[".dot.rs", "a.rs", "src/b.rs", "src/gen/c.rs", "weird[1].rs"][..]),
        ("!*.rs", &["a.txt", "src/b.c"]),
        ("src/*.rs", &["src/b.rs"]),
        ("/a.*", &["a.rs", "a.txt"]),
        ("src/**", &["src/b.c", "src/b.rs", "src/gen/c.rs"]),
        ("!src/", &["a.rs", "a.txt", "weird[1].rs"]),
        ("*.{c,txt}", &["a.txt", "src/b.c"]),
        ("weird\\[1\\].rs", &["weird[1].rs"]),
        ("*.RS", &[]),
        ("tgt/x.rs", &[]),
        ("", &["a.rs", "a.txt", "src/b.c", "src/b.rs", "src/gen/c.rs", "weird[1].rs"]),
        ("# no glob", &["a.rs", "a.txt", "src/b.c", "src/b.rs", "src/gen/c.rs", "weird[1].rs"]),
    ] {
        let params = json!({ "pattern": "needle", "files_only": true, "glob_filter": filter });
        grep(&mut agent, params, wanted).map_err(|why| format!("filter {filter:?}: {why}"))?;
    }
    // A filter matches paths below the workdir, wherever the search begins; a named file is not filtered.
    let params = json!({ "pattern": "needle", "path": "src", "glob_filter": "src/*.c" });
    grep(&mut agent, params, &["src/b.c:1:needle"])?;
    let params = json!({ "pattern": "needle", "path": "a.txt", "glob_filter": "*.rs" });
    grep(&mut agent, params, &["a.txt:1:needle"])?;
    world.finish()
}

fn where_it_begins() -> Outcome {
    let world = World::new();
    world.write("f", "needle\n");
    world.write("sub/g", "needle\n");
    world.write("other/h", "needle\n");
    let second = world.parent.join("second");
    std::fs::create_dir(&second).unwrap();
    std::fs::write(second.join("s"), "needle\n").unwrap();
    let mut agent = world.agent(json!({
        "capability": { "fs_roots": [world.root, second] },
        "policy": { "preset": "permissive" },
    }));
    let second = second.display().to_string();
    grep(&mut agent, json!({ "pattern": "needle" }), &["f:1:needle", "other/h:1:needle", "sub/g:1:needle"])?;
    grep(&mut agent, json!({ "pattern": "needle", "path": second }), &[&format!("{second}/s:1:needle")])?;
    glob(&mut agent, json!({ "pattern": "*", "path": second }), &[&format!("{second}/s")])?;
    for path in ["sub", "sub/", "./sub/.", "other/../sub", &world.root.join("sub").display().to_string()] {
        grep(&mut agent, json!({ "pattern": "needle", "path": path }), &["sub/g:1:needle"])?;
        glob(&mut agent, json!({ "pattern": "g", "path": path }), &["sub/g"])?;
    }
    for op in ["grep", "glob"] {
        let receipt = agent.fs(op, json!({ "pattern": "a", "path": "nope" }));
        expect(op, &receipt, &["not_found / path_not_found"])?;
        let receipt = agent.fs(op, json!({ "pattern": "a", "path": "f/x" }));
        expect(op, &receipt, &["not_found / path_not_found"])?;
    }
    let receipt = agent.fs("glob", json!({ "pattern": "*", "path": "f" }));
    expect("glob in a file", &receipt, &["error / not_directory"])?;
    // A workdir below its root, and one that is not a root.
    let inner = json!({ "target": { "local": { "workdir": world.root.join("sub") } }, "capability": { "fs_roots": [world.root] } });
    let mut agent = world.agent(inner);
    grep(&mut agent, json!({ "pattern": "needle" }), &["g:1:needle"])?;
    let above = world.root.display().to_string();
    let receipt = agent.fs("grep", json!({ "pattern": "needle", "path": ".." }));
    check(
        rows(&receipt)
            == [format!("{above}/f:1:needle"), format!("{above}/other/h:1:needle"), "g:1:needle".into()],
        || format!("{receipt:#}"),
    )?;
    let mut agent = world.agent(json!({ "capability": { "fs_roots": ["sub"] } }));
    for op in ["grep", "glob"] {
        expect(op, &agent.fs(op, json!({ "pattern": "a" })), &["forbidden / path_outside_roots"])?;
    }
    grep(&mut agent, json!({ "pattern": "needle", "path": "sub" }), &["sub/g:1:needle"])?;
    world.finish()
}

fn globs() -> Outcome {
    let world = World::new();
    for path in [
        "a.rs",
        "src/b.rs",
        "src/x/c.rs",
        ".env",
        ".github/w/ci.yml",
        "src/.keep",
        ".git/config",
        "sub/.git/HEAD",
        "ign/y.rs",
        "we ird/$(x).rs",
        "br[a]cket",
        "UP.RS",
    ] {
        world.write(path, "");
    }
    world.write(".ignore", "ign\n.secret\n");
    world.write(".secret", "");
    world.link("a.rs", "link.rs");
    world.link("src", "dirlink");
    let mut agent = world.agent(json!({}));
    for (pattern, wanted) in [
        ("*.rs", &["a.rs", "link.rs"][..]),
        ("**/*.rs", &["a.rs", "link.rs", "src/b.rs", "src/x/c.rs", "we ird/$(x).rs"]),
        ("src/*", &["src/b.rs"]),
        ("src/**", &["src/b.rs", "src/x/c.rs"]),
        ("src", &[]),
        ("src/", &[]),
        ("*/", &[]),
        ("*", &["UP.RS", "a.rs", "br[a]cket", "dirlink", "link.rs"]),
        (
            "**",
            &["UP.RS", "a.rs", "br[a]cket", "dirlink", "link.rs", "src/b.rs", "src/x/c.rs", "we ird/$(x).rs"],
        ),
        (".env", &[".env"]),
        (".*", &[".env", ".ignore"]),
        ("**/.*", &[".env", ".ignore", "src/.keep"]),
        (".github/**", &[".github/w/ci.yml"]),
        (".github/**/*.yml", &[".github/w/ci.yml"]),
        ("{.env,a.rs}", &[".env", "a.rs"]),
        ("**/.git/**", &[]),
        (".git/config", &[]),
        (".git*/**", &[".github/w/ci.yml"]),
        ("ign/*", &[]),
        ("br\\[a\\]cket", &["br[a]cket"]),
        ("br[[]a]cket", &["br[a]cket"]),
        ("we*/*", &["we ird/$(x).rs"]),
        ("?.rs", &["a.rs"]),
        ("[!l]*.rs", &["a.rs"]),
        ("{src,we ird}/{b,$(x)}.rs", &["src/b.rs", "we ird/$(x).rs"]),
        ("{src/b,a}.rs", &["a.rs", "src/b.rs"]),
        ("./src//./b.rs", &["src/b.rs"]),
        ("dirlink/*", &[]),
        ("src/**/**/c.rs", &["src/x/c.rs"]),
        ("**/x/**", &["src/x/c.rs"]),
    ] {
        glob(&mut agent, json!({ "pattern": pattern }), wanted).map_err(|why| format!("{pattern}: {why}"))?;
    }
    glob(&mut agent, json!({ "pattern": "ign/*", "include_ignored": true }), &["ign/y.rs"])?;
    glob(&mut agent, json!({ "pattern": ".*", "include_ignored": true }), &[".env", ".ignore", ".secret"])?;
    glob(&mut agent, json!({ "pattern": "b.rs", "path": "src" }), &["src/b.rs"])?;
    glob(&mut agent, json!({ "pattern": "ci.yml", "path": ".github/w" }), &[".github/w/ci.yml"])?;
    world.finish()
}

fn denied_parts() -> Outcome {
    let world = World::new();
    for path in ["a", "secret/b", "secret/ok", "noread/c", "nosearch/d", "care/e", "blob/f"] {
        world.write(path, "needle\n");
    }
    let rule = |name: &str, ops: &[&str], paths: &[&str], decision: &str| json!({ "name": name, "ops": ops, "paths": paths, "decision": decision });
    let mut quiet = rule("quiet", &["read"], &["blob/**"], "allow");
    quiet["output"] = json!("blob_only");
    let rules = json!([
        rule("fine", &["read", "search"], &["secret/ok"], "allow"),
        rule("hush", &["read", "search"], &["secret/**"], "deny"),
        rule("r", &["read"], &["noread/**"], "deny"),
        rule("s", &["search"], &["nosearch/"], "deny"),
        rule("care", &["search"], &["care/*"], "warn"),
        quiet,
    ]);
    let mut agent = world.agent(json!({ "policy": { "rules": rules } }));
    let params = json!({ "pattern": "needle", "glob_filter": "!blob/" });
    grep(&mut agent, params, &["a:1:needle", "care/e:1:needle", "secret/ok:1:needle"])?;
    let receipt = agent.fs("grep", json!({ "pattern": "needle", "path": "care" }));
    check(warning_codes(&receipt) == ["policy_rule"], || format!("{receipt}"))?;
    glob(&mut agent, json!({ "pattern": "**" }), &["a", "blob/f", "care/e", "secret/ok"])?;
    for (path, allowed) in [
        ("secret/b", "forbidden / policy_denied"),
        ("noread/c", "forbidden / policy_denied"),
        ("nosearch/d", "forbidden / policy_denied"),
        ("nosearch", "forbidden / policy_denied"),
        ("secret/ok", "ok"),
    ] {
        let receipt = agent.fs("grep", json!({ "pattern": "needle", "path": path }));
        check(verdict(&receipt) == allowed, || format!("{path}: {receipt}"))?;
    }
    grep(&mut agent, json!({ "pattern": "needle", "path": "noread" }), &[])?;
    // One match that may leave only as a blob makes the whole answer a blob.
    for params in [json!({ "pattern": "needle" }), json!({ "pattern": "needle", "path": "blob/f" })] {
        let receipt = agent.fs("grep", params.clone());
        let blob = &receipt["matches"]["blob"];
        check(blob["blob_ref"].is_string() && blob.get("preview_bytes").is_none(), || format!("{receipt}"))?;
        let mut inline = params;
        inline["output_mode"] = json!("require_inline");
        expect("inline", &agent.fs("grep", inline), &["forbidden / policy_denied"])?;
    }
    world.finish()
}

/// The state of the daemon is below the root and hidden.
fn our_own_state() -> Outcome {
    let world = World::new();
    world.write("f", "needle\n");
    let mut agent = world.agent(json!({ "target": { "local": { "workdir": world.parent } } }));
    let receipt = agent.fs("grep", json!({ "pattern": ".", "include_ignored": true, "files_only": true }));
    expect("grep", &receipt, &["ok"])?;
    let found = rows(&receipt);
    check(found.contains(&"ws/f".to_owned()), || format!("{receipt}"))?;
    check(!found.iter().any(|path| path.starts_with("home")), || format!("{receipt}"))?;
    let receipt = agent.fs("glob", json!({ "pattern": "**", "include_ignored": true }));
    check(!paths(&receipt).iter().any(|path| path.starts_with("home")), || format!("{receipt}"))?;
    glob(&mut agent, json!({ "pattern": "home/**" }), &[])?;
    for op in ["grep", "glob"] {
        let receipt = agent.fs(op, json!({ "pattern": "a", "path": "home/state" }));
        expect(op, &receipt, &["forbidden / path_outside_roots"])?;
    }
    // This case reads `$O` through a root of its own: that is allowed and not a leak.
    check(found.contains(&"outside/secret".to_owned()), || format!("{receipt}"))?;
    world.finish()
}

fn mount_bind(from: &Path, to: &Path) -> Outcome {
    let output =
        Command::new("mount").arg("--bind").args([from, to]).output().map_err(|why| why.to_string())?;
    check(output.status.success(), || String::from_utf8_lossy(&output.stderr).into_owned())
}

fn mounts() -> Outcome {
    let mut world = World::asleep(Start::default());
    world.write("f", "needle\n");
    for folder in ["mnt", "own"] {
        let on = world.root.join(folder);
        std::fs::create_dir(&on).unwrap();
        world.mount_tmpfs(&on, "size=1m")?;
        world.write(&format!("{folder}/inner/g"), "needle\n");
    }
    let file = world.write("bound", "");
    let source = world.parent.join("source");
    std::fs::write(&source, "needle\n").unwrap();
    mount_bind(&source, &file)?;
    world.start_daemon();
    let outcome = (|| {
        let mut agent = world.agent(json!({}));
        grep(&mut agent, json!({ "pattern": "needle" }), &["f:1:needle"])?;
        let receipt = agent.fs("grep", json!({ "pattern": "needle", "path": "mnt" }));
        expect("mnt", &receipt, &["forbidden / path_outside_roots"])?;
        glob(&mut agent, json!({ "pattern": "*/**" }), &[])?;
        let mut agent = world.agent(json!({ "capability": { "fs_roots": [".", "own"] } }));
        grep(&mut agent, json!({ "pattern": "needle" }), &["f:1:needle", "own/inner/g:1:needle"])?;
        let mut agent = world.agent(json!({ "capability": { "cross_mounts": true } }));
        let all = ["bound:1:needle", "f:1:needle", "mnt/inner/g:1:needle", "own/inner/g:1:needle"];
        grep(&mut agent, json!({ "pattern": "needle" }), &all)
    })();
    let _ = Command::new("umount").arg("--lazy").arg(&file).status();
    outcome?;
    world.finish()
}

fn special_files_on_the_way() -> Outcome {
    let world = World::new();
    world.write("f", "needle\n");
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mkfifoat(rustix::fs::CWD, world.root.join("fifo"), mode).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(world.root.join("sock")).unwrap();
    world.write(".aos-tmp-x", "needle\n");
    let mut agent = world.agent(json!({}));
    let begun = std::time::Instant::now();
    grep(&mut agent, json!({ "pattern": "needle", "include_ignored": true }), &["f:1:needle"])?;
    grep(&mut agent, json!({ "pattern": "needle", "glob_filter": ".*" }), &[])?;
    glob(&mut agent, json!({ "pattern": "{.*,*}" }), &["f"])?;
    for name in ["fifo", "sock"] {
        let receipt = agent.fs("grep", json!({ "pattern": "x", "path": name }));
        expect(name, &receipt, &["error / not_regular_file"])?;
    }
    in_time(begun, std::time::Duration::from_secs(2), "a search beside special files")?;
    std::fs::remove_file(world.root.join(".aos-tmp-x")).unwrap();
    world.finish()
}
