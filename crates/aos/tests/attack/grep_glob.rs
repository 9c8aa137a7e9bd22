//! Grep and glob: patterns are not options, answers are ordered and bounded, and nothing outside is ever shown.

mod bounds;
mod choice;
mod patterns;
mod text;

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aos_testkit::{Agent, Start, Tracer, World, check, expect, full_figure, is_root, timed, warning_codes};
use serde_json::{Value, json};

use crate::{Case, Need, Outcome, plain};

pub fn cases() -> Vec<Case> {
    let case = |id, needs, run| Case { id, needs, run };
    let mut cases = vec![
        plain("SRCH-01", patterns::options_are_patterns),
        plain("SRCH-04", patterns::dashes_are_names),
        plain("SRCH-05", patterns::patterns_that_explode),
        plain("SRCH-06", patterns::patterns_that_are_too_large),
        plain("SRCH-07", patterns::patterns_of_another_engine),
        plain("SRCH-09", one_endless_line),
        plain("SRCH-10", the_same_hundred_rows),
        plain("SRCH-11", links_are_not_followed),
        plain("SRCH-12", controls_in_a_line),
        plain("SRCH-13", stars_over_many_files),
        plain("SRCH-14", patterns::patterns_that_repeat),
        plain("SRCH-15", patterns::patterns_that_leave),
        plain("SRCH-16", patterns::invalid_patterns),
        plain("SRCH-17", one_time_for_all),
        case("SRCH-19", &[Need::Strace], no_more_opens_than_allowed),
        plain("SRCH-20", a_busy_neighbour),
        plain("SRCH-21", a_closed_folder),
    ];
    cases.extend(choice::cases());
    cases.extend(text::cases());
    cases.extend(bounds::cases());
    cases
}

const SECOND: Duration = Duration::from_secs(1);

/// The rows of a grep.
fn rows(receipt: &Value) -> Vec<String> {
    lines_of(receipt, "matches")
}

/// The paths of a glob.
fn paths(receipt: &Value) -> Vec<String> {
    lines_of(receipt, "paths")
}

fn lines_of(receipt: &Value, field: &str) -> Vec<String> {
    let text = receipt[field]["inline_text"]["text"].as_str();
    let text = text.unwrap_or_else(|| panic!("no inline {field}: {receipt}"));
    if text.is_empty() { Vec::new() } else { text.split('\n').map(str::to_owned).collect() }
}

/// A grep that must be `ok` and give exactly these rows, with a count to match where there is no context.
fn grep(agent: &mut Agent, params: Value, wanted: &[&str]) -> Outcome {
    let what = format!("grep {params}");
    let receipt = agent.fs("grep", params);
    expect(&what, &receipt, &["ok"])?;
    check(rows(&receipt) == wanted, || format!("{what}: wanted {wanted:#?}, got {receipt:#}"))
}

/// A glob that must be `ok` and give exactly these paths, in any order.
fn glob(agent: &mut Agent, params: Value, wanted: &[&str]) -> Outcome {
    let what = format!("glob {params}");
    let receipt = agent.fs("glob", params);
    expect(&what, &receipt, &["ok"])?;
    let mut found = paths(&receipt);
    found.sort_unstable();
    check(found == wanted && receipt["count"] == wanted.len(), || {
        format!("{what}: wanted {wanted:#?}, got {receipt:#}")
    })
}

/// One line of more bytes than the daemon may use memory.
fn one_endless_line() -> Outcome {
    use std::io::Write as _;
    let world = World::new();
    let megabytes = full_figure(1024, 300);
    let mut file = std::fs::File::create(world.root.join("big")).unwrap();
    let mut piece = vec![b'y'; 1 << 20];
    piece[777] = b'x';
    for _ in 0..megabytes {
        file.write_all(&piece).unwrap();
    }
    file.write_all(b"END\n").unwrap();
    drop(file);
    let mut agent = world.agent(json!({}));
    for (pattern, path, found) in [
        ("x", ".", 1),
        ("x", "big", 1),
        ("END$", ".", 1),
        ("y+", "big", 1),
        ("^END", ".", 0),
        ("yx$", "big", 0),
    ] {
        let params = json!({ "pattern": pattern, "path": path });
        let receipt = timed(10 * SECOND, pattern, || agent.fs("grep", params))?;
        expect(pattern, &receipt, &["ok"])?;
        check(receipt["match_count"] == found, || format!("{pattern}: {receipt:.300}"))?;
        check(receipt["truncated"] == (found == 1), || format!("{pattern}: {receipt:.300}"))?;
        let size = receipt["matches"]["blob"]["size_bytes"].as_u64().unwrap_or(0);
        check(found == 0 || (size == "big:1:".len() as u64 + (64 << 10)), || format!("{size} bytes"))?;
    }
    let peak = world.rss_peak();
    check(peak < 256 << 20, || format!("the daemon held {} MiB", peak >> 20))?;
    world.finish()
}

/// Many small files in folders of a hundred.
fn many_files(world: &World, count: usize, content: &str) {
    for folder in 0..count.div_ceil(100) {
        let dir = world.root.join(format!("d{:02}/e{:03}", folder % 17, folder));
        std::fs::create_dir_all(&dir).unwrap();
        for file in 0..100.min(count - folder * 100) {
            std::fs::write(dir.join(format!("f{file:02}.txt")), content).unwrap();
        }
    }
}

fn the_same_hundred_rows() -> Outcome {
    let world = World::new();
    let count = full_figure(100_000, 4_000);
    many_files(&world, count, &"a line of text\n".repeat(100));
    // The first file in path order has fewer matches than requested, so that the limit cuts the second.
    world.write("d00/e000/f00.txt", "one\ntwo\n");
    let mut agent = world.agent(json!({}));
    let mut first: Option<Vec<String>> = None;
    for _ in 0..20 {
        let receipt = agent.fs("grep", json!({ "pattern": ".", "max_results": 100 }));
        expect("grep", &receipt, &["ok"])?;
        check(receipt["truncated"] == true && receipt["match_count"] == 100, || format!("{receipt:.400}"))?;
        let found = rows(&receipt);
        let first = first.get_or_insert_with(|| found.clone());
        check(*first == found, || "two searches differ".into())?;
    }
    let first = first.unwrap_or_default();
    check(first[1] == "d00/e000/f00.txt:2:two" && first[2] == "d00/e000/f01.txt:1:a line of text", || {
        format!("not in path order: {first:#?}")
    })?;
    check(first.len() == 100 && first[99] == "d00/e000/f01.txt:98:a line of text", || format!("{first:#?}"))?;
    let all =
        agent.fs("grep", json!({ "pattern": "two|text", "files_only": true, "max_results": 1_000_000 }));
    check(all["match_count"] == count && all["truncated"] == false, || format!("{all:.300}"))?;
    world.finish()
}

fn links_are_not_followed() -> Outcome {
    let world = World::new();
    world.write("real/f", "inside\n");
    world.link(".", "loop");
    world.link("real", "again");
    world.link(&world.outside, "out");
    world.link(world.outside.join("secret"), "secret");
    world.link("nowhere", "dangling");
    world.write("real/deep/g", "inside\n");
    world.link("../..", "real/deep/up");
    let mut agent = world.agent(json!({}));
    for (pattern, wanted) in [("CANARY", &[][..]), ("inside", &["real/deep/g:1:inside", "real/f:1:inside"])] {
        timed(2 * SECOND, pattern, || grep(&mut agent, json!({ "pattern": pattern }), wanted))??;
    }
    let all = ["again", "dangling", "loop", "out", "real/deep/g", "real/deep/up", "real/f", "secret"];
    timed(2 * SECOND, "glob", || glob(&mut agent, json!({ "pattern": "**/*" }), &all))??;
    glob(&mut agent, json!({ "pattern": "out/**" }), &[])?;
    glob(&mut agent, json!({ "pattern": "loop/real/*" }), &[])?;
    // A base may be a link that stays inside; matches are reported under their real paths.
    grep(
        &mut agent,
        json!({ "pattern": "inside", "path": "again" }),
        &["real/deep/g:1:inside", "real/f:1:inside"],
    )?;
    glob(&mut agent, json!({ "pattern": "*", "path": "again" }), &["real/f"])?;
    for op in ["grep", "glob"] {
        let receipt = agent.fs(op, json!({ "pattern": "*", "path": "out", "fixed_strings": true }));
        let receipt =
            if op == "glob" { agent.fs(op, json!({ "pattern": "*", "path": "out" })) } else { receipt };
        expect(op, &receipt, &["forbidden / symlink_not_allowed"])?;
    }
    world.finish()
}

fn controls_in_a_line() -> Outcome {
    let world = World::new();
    let line = "needle \u{1b}]52;c;AAAA\u{7} \u{1b}[2J \u{202e}gpj.exe \u{9b}31m";
    world.write("f", format!("{line}\n"));
    world.write("n\u{1b}[2J\u{202e}", "needle\n");
    let mut agent = world.agent(json!({}));
    for pattern in ["needle", "\u{1b}", "nothing\u{1b}", "\u{202e}"] {
        let receipt = agent.fs("grep", json!({ "pattern": pattern }));
        expect("grep", &receipt, &["ok"])?;
        let summary = receipt["summary_text"].as_str().unwrap_or_default();
        let acts = |c: char| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c);
        check(!summary.is_empty() && !summary.contains(acts), || format!("summary_text {summary:?}"))?;
    }
    let receipt = agent.fs("grep", json!({ "pattern": "needle" }));
    check(rows(&receipt)[0] == format!("f:1:{line}"), || format!("the text is not as it was: {receipt}"))?;
    let none = agent.fs("grep", json!({ "pattern": "absent" }));
    check(none["summary_text"] == "No matches found" && none["match_count"] == 0, || format!("{none}"))?;
    check(none["matches"]["inline_text"]["text"] == "" && none["truncated"] == false, || format!("{none}"))?;
    let none = agent.fs("glob", json!({ "pattern": "absent" }));
    check(none["summary_text"] == "No files matched" && none["count"] == 0, || format!("{none}"))?;
    let (_, shown, _) = world.aos(&["log"]);
    check(!shown.contains(|c: char| c.is_control() && c != '\n'), || format!("aos log: {shown:?}"))?;
    world.finish()
}

fn stars_over_many_files() -> Outcome {
    let world = World::new();
    let count = full_figure(100_000, 4_000);
    many_files(&world, count, "");
    let mut agent = world.agent(json!({}));
    for pattern in ["**/**/**/**/**/**/*", "**/*/**/*/**/f*", "*/*/*", "**/{d,e,f}*/**/*[0-9]*"] {
        let receipt = timed(5 * SECOND, pattern, || agent.fs("glob", json!({ "pattern": pattern })))?;
        expect(pattern, &receipt, &["ok"])?;
        check(receipt["count"] == 1_000 && receipt["truncated"] == true, || {
            format!("{pattern}: {receipt:.200}")
        })?;
    }
    world.finish()
}

fn one_time_for_all() -> Outcome {
    let world = World::new();
    let time = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let mut wanted = Vec::new();
    for number in 0..1_000 {
        let path = format!("d{}/f{}", number % 7, number);
        let file = std::fs::File::options().write(true).open(world.write(&path, "")).unwrap();
        file.set_modified(time).unwrap();
        wanted.push(path);
    }
    wanted.sort_unstable();
    let mut agent = world.agent(json!({}));
    for turn in 0..100 {
        let max = [1_000, 1, 10, 999][turn % 4];
        let receipt =
            agent.fs("glob", json!({ "pattern": "**", "max_results": max, "output_mode": "require_inline" }));
        expect("glob", &receipt, &["ok"])?;
        check(paths(&receipt) == wanted[..max], || format!("the order is another: {receipt:.300}"))?;
        check(receipt["truncated"] == (max < 1_000), || format!("{receipt:.300}"))?;
    }
    // The newest file comes first, whatever its name.
    let newest = std::fs::File::options().write(true).open(world.root.join("d3/f3")).unwrap();
    newest.set_modified(time + Duration::from_nanos(1)).unwrap();
    let receipt = agent.fs("glob", json!({ "pattern": "**", "max_results": 2 }));
    check(paths(&receipt) == ["d3/f3", "d0/f0"], || format!("{receipt}"))?;
    world.finish()
}

fn no_more_opens_than_allowed() -> Outcome {
    let world = World::new();
    many_files(&world, full_figure(10_000, 3_000), &"some text\n".repeat(50));
    let capability = json!({ "max_scan_files": 100, "max_scan_bytes": 1_000_000 });
    let mut agent = world.agent(json!({ "capability": capability }));
    let trace = world.parent.join("trace");
    let words = ["-e", "trace=open,openat,openat2", "-o", trace.to_str().unwrap()];
    let tracer = Tracer::attach(world.daemon_pid(), &words)?;
    let receipt = agent.fs("grep", json!({ "pattern": "absent" }));
    tracer.detach();
    expect("grep", &receipt, &["ok"])?;
    check(receipt["truncated"] == true, || format!("{receipt}"))?;
    let trace = std::fs::read_to_string(&trace).unwrap();
    let opened: Vec<&str> =
        trace.lines().filter(|line| line.contains("\"f") && line.contains(".txt\"")).collect();
    check(opened.len() == 100, || format!("{} files were opened", opened.len()))?;
    check(opened.iter().all(|line| line.contains("O_NOFOLLOW")), || opened[0].to_owned())?;
    bounds::counted_in_path_order(&world)?;
    world.finish()
}

fn a_busy_neighbour() -> Outcome {
    let world = World::new();
    many_files(&world, 300, "steady text\n");
    let churn = world.root.join("churn");
    let stop = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                let dir = churn.join(format!("c{}", number % 5));
                let _ = std::fs::create_dir_all(&dir);
                for file in 0..40 {
                    let _ = std::fs::write(dir.join(format!("f{file}")), "fleeting text\n");
                }
                let _ = std::fs::remove_dir_all(&dir);
                number += 1;
            }
        });
        let mut agent = world.agent(json!({}));
        let outcome = (0..full_figure(200, 60)).try_for_each(|_| {
            let receipt = agent.fs("grep", json!({ "pattern": "steady", "max_results": 1_000 }));
            expect("grep", &receipt, &["ok"])?;
            check(receipt["match_count"] == 300 && warning_codes(&receipt).is_empty(), || {
                format!("{receipt:.300}")
            })?;
            let receipt = agent.fs("glob", json!({ "pattern": "d*/**/*.txt", "max_results": 1_000 }));
            expect("glob", &receipt, &["ok"])?;
            check(receipt["count"] == 300, || format!("{receipt:.300}"))?;
            let receipt = agent.fs("grep", json!({ "pattern": "text", "path": "churn" }));
            expect("grep churn", &receipt, &["ok", "not_found / path_not_found"])
        });
        stop.store(true, Ordering::Relaxed);
        outcome
    });
    outcome?;
    world.finish()
}

fn a_closed_folder() -> Outcome {
    let uid = is_root().then_some(12345);
    let world = World::with(Start { uid, ..Start::default() });
    for name in ["open/f", "shut/f", "zz/f", "zz/closed", "noexec/f"] {
        world.write(name, "needle\n");
        for folder in ["open", "shut", "zz", "noexec"] {
            let folder = world.root.join(folder);
            if folder.exists() {
                std::os::unix::fs::chown(&folder, uid, uid).unwrap();
            }
        }
    }
    let mode = |path: &str, mode: u32| {
        std::fs::set_permissions(world.root.join(path), PermissionsExt::from_mode(mode)).unwrap();
    };
    mode("shut", 0o000);
    mode("zz/closed", 0o000);
    mode("noexec", 0o444);
    let mut agent = world.agent(json!({}));
    let found = agent.fs("grep", json!({ "pattern": "needle" }));
    let named = |receipt: &Value, path: &str| {
        let warnings = receipt["warnings"].as_array().cloned().unwrap_or_default();
        let says = |warning: &Value| {
            warning["message"].as_str().unwrap_or_default().starts_with(&format!("{path} was"))
        };
        warnings.iter().any(says)
    };
    let mut outcome = expect("grep", &found, &["ok"])
        .and_then(|()| check(rows(&found) == ["open/f:1:needle", "zz/f:1:needle"], || format!("{found:#}")))
        .and_then(|()| {
            let all = ["noexec/f", "shut", "zz/closed"].iter().all(|path| named(&found, path));
            check(all, || format!("not all are named: {found:#}"))
        });
    let globbed = agent.fs("glob", json!({ "pattern": "**/f" }));
    outcome = outcome
        .and_then(|()| expect("glob", &globbed, &["ok"]))
        .and_then(|()| check(globbed["count"] == 2 && named(&globbed, "shut"), || format!("{globbed:#}")));
    let base = agent.fs("grep", json!({ "pattern": "x", "path": "shut" }));
    outcome = outcome.and_then(|()| expect("a closed base", &base, &["error / permission_denied"]));
    let base = agent.fs("grep", json!({ "pattern": "x", "path": "zz/closed" }));
    outcome = outcome.and_then(|()| expect("a closed file", &base, &["error / permission_denied"]));
    mode("shut", 0o755);
    mode("noexec", 0o755);
    outcome?;
    world.finish()
}
