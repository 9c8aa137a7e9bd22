//! Patches: none leaves the roots, none lands by half, and the receipt says what the tree shows.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use aos_testkit::time::{bound, in_time};
use aos_testkit::world::DESCRIPTORS_SLACK;
use aos_testkit::{
    Client, Findings, Fixture, Start, Tracer, World, check, expect, is_full, is_root, new_seed, patch_params,
    text, tree, verdict, wait_for, warning_codes,
};
use serde_json::{Value, json};

use crate::{Case, Need, Outcome};

pub fn cases() -> Vec<Case> {
    let plain = |id, run| Case { id, needs: &[], run };
    vec![
        plain("PATCH-01", additions_outside),
        plain("PATCH-02", moves_outside),
        plain("PATCH-05", through_links),
        plain("PATCH-06", one_misfit_and_nothing_moves),
        Case { id: "PATCH-07", needs: &[Need::Strace], run: renames_that_fail },
        // Root, because a daemon that is not dumpable lets only root attach.
        Case { id: "PATCH-08", needs: &[Need::Strace, Need::Root], run: killed_at_each_step },
        plain("PATCH-09", sections_about_one_file),
        plain("PATCH-10", deletions_of_what_is_no_file),
        plain("PATCH-11", more_files_than_allowed),
        plain("PATCH-13", patches_too_large),
        plain("PATCH-15", line_ends),
        plain("PATCH-16", onto_an_existing_file),
        plain("PATCH-17", odd_names),
        plain("PATCH-18", only_the_case),
        plain("PATCH-21", another_format),
        plain("PATCH-23", signaled_or_left_alone),
        plain("OWN-PATCH-BOTH", a_file_and_a_folder_of_one_name),
    ]
}

/// Sends each patch, for real and as a dry run, and expects it refused with the tree as it was.
fn refused_whole(fixture: &mut Fixture, patches: &[String], allowed: &[&str]) -> Outcome {
    let before = tree(&fixture.world.root);
    for sections in patches {
        for dry_run in [true, false] {
            let mut params = patch_params(sections);
            params["dry_run"] = json!(dry_run);
            let receipt = fixture.fs("apply_patch", params);
            expect(&format!("dry_run {dry_run}: {sections}"), &receipt, allowed)?;
            check(tree(&fixture.world.root) == before, || format!("the tree changed: {sections}"))?;
        }
    }
    Ok(())
}

/// Such a patch was planned, and failed only when the second of the two was put: a dry run promised it, and a kill in
/// between was told as something that could not be taken back.
fn a_file_and_a_folder_of_one_name() -> Outcome {
    let mut fixture = Fixture::new();
    fixture.world.write("old", "OLD\n");
    let (file, below) = ("*** Add File: e\n+x\n", "*** Add File: e/f/g\n+x\n");
    let moved = "*** Update File: old\n*** Move to: e/f\n";
    let updated = "*** Update File: old\n@@\n-OLD\n+NEW\n*** Add File: old/x\n+x\n";
    let patches =
        [[file, below].concat(), [below, file].concat(), [moved, file].concat(), updated.to_owned()];
    refused_whole(&mut fixture, &patches, &["error / parent_not_found"])?;
    fixture.finish()
}

fn names_in(dir: &Path) -> Vec<std::ffi::OsString> {
    let mut names: Vec<_> =
        std::fs::read_dir(dir).unwrap().flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    names
}

fn additions_outside() -> Outcome {
    let mut fixture = Fixture::new();
    fixture.world.write("sub/a.txt", "one\n");
    std::fs::create_dir(fixture.world.parent.join("ws-evil")).unwrap();
    let around = names_in(&fixture.world.parent);
    let elsewhere = std::env::temp_dir().join(format!("p_{:x}", new_seed()));
    let inside_home = fixture.world.home.join("state/p");
    let beside = fixture.world.parent.join("p");
    let absolute = |path: &Path| path.display().to_string();
    let paths = [
        absolute(&elsewhere),
        "../outside/p".into(),
        "sub/../../outside/p".into(),
        "../p".into(),
        "../ws/p".into(),
        "../ws-evil/p".into(),
        absolute(&beside),
        absolute(&inside_home),
        format!("{}/../p", absolute(&fixture.world.root)),
        "..".into(),
    ];
    let mut patches = Vec::new();
    for path in &paths {
        // Behind and before a section that is fine: nothing of it may land either.
        patches.push(format!("*** Add File: good\n+x\n*** Add File: {path}\n+x\n"));
        patches.push(format!("*** Add File: {path}\n+x\n*** Add File: good\n+x\n"));
        patches.push(format!("*** Delete File: {path}\n*** Delete File: sub/a.txt\n"));
        patches.push(format!(
            "*** Update File: sub/a.txt\n@@\n-one\n+two\n*** Update File: {path}\n@@\n-x\n+y\n"
        ));
    }
    patches.push("*** Update File: ../outside/secret\n@@\n+more\n".into());
    patches.push("*** Delete File: ../outside/secret\n".into());
    refused_whole(&mut fixture, &patches, &["forbidden / path_outside_roots"])?;
    check(!elsewhere.exists() && !inside_home.exists(), || "a file was made outside".into())?;
    check(names_in(&fixture.world.parent) == around, || "something was made beside the root".into())?;
    fixture.finish()
}

fn moves_outside() -> Outcome {
    let mut fixture = Fixture::new();
    fixture.world.write("a.txt", "one\ntwo\n");
    fixture.world.write("sub/b.txt", "one\ntwo\n");
    let around = names_in(&fixture.world.parent);
    let beside = fixture.world.parent.join("moved").display().to_string();
    let home = fixture.world.home.join("moved").display().to_string();
    let mut patches = Vec::new();
    for to in ["../outside/a.txt", "../outside/secret", "sub/../../outside/a.txt", "../ws/a2", &beside, &home]
    {
        patches.push(format!("*** Update File: a.txt\n*** Move to: {to}\n@@\n-one\n+1\n"));
        patches.push(format!("*** Update File: a.txt\n*** Move to: {to}\n"));
        patches.push(format!(
            "*** Update File: sub/b.txt\n@@\n-one\n+1\n*** Update File: a.txt\n*** Move to: {to}\n"
        ));
    }
    // And from outside to inside: that would read what may not be read.
    patches.push("*** Update File: ../outside/secret\n*** Move to: stolen\n".into());
    refused_whole(&mut fixture, &patches, &["forbidden / path_outside_roots"])?;
    check(fixture.world.read("a.txt") == b"one\ntwo\n", || "a.txt changed".into())?;
    check(names_in(&fixture.world.parent) == around, || "something was made beside the root".into())?;
    fixture.finish()
}

fn through_links() -> Outcome {
    let mut fixture = Fixture::new();
    fixture.world.write("a.txt", "one\n");
    fixture.world.link(&fixture.world.outside, "d");
    fixture.world.link("d", "e");
    fixture.world.link("../outside", "relative");
    fixture.world.link(fixture.world.outside.join("secret"), "s");
    fixture.world.link(fixture.world.outside.join("new"), "dangling");
    let mut patches = Vec::new();
    for path in ["d/x", "e/x", "relative/x", "d/new/x", "d/secret", "s", "dangling", "d/../outside/x"] {
        patches.push(format!("*** Add File: good\n+x\n*** Add File: {path}\n+x\n"));
        patches.push(format!("*** Update File: a.txt\n*** Move to: {path}\n"));
    }
    for path in ["d/secret", "e/secret", "relative/secret"] {
        patches.push(format!("*** Update File: {path}\n@@\n+more\n"));
        patches.push(format!("*** Delete File: {path}\n"));
        patches.push(format!("*** Update File: {path}\n*** Move to: stolen\n"));
    }
    patches.push("*** Update File: s\n@@\n+more\n".into());
    patches.push("*** Update File: s\n*** Move to: stolen\n".into());
    refused_whole(
        &mut fixture,
        &patches,
        &["forbidden / symlink_not_allowed", "forbidden / path_outside_roots"],
    )?;
    fixture.finish()
}

fn one_misfit_and_nothing_moves() -> Outcome {
    let mut fixture = Fixture::new();
    let files = ["one.txt", "two.txt", "three.txt"].map(|name| fixture.world.write(name, "alpha\nbeta\n"));
    let stamp = |path: &PathBuf| {
        let meta = path.metadata().unwrap();
        (meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.ctime_nsec(), std::fs::read(path).unwrap())
    };
    let before: Vec<_> = files.iter().map(stamp).collect();
    let names = names_in(&fixture.world.root);
    for misfit in 0..3 {
        let section = |(index, name): (usize, &&str)| {
            let line = if index == misfit { "gamma" } else { "alpha" };
            format!("*** Update File: {name}\n@@\n-{line}\n+omega\n")
        };
        let updates: String = ["one.txt", "two.txt", "three.txt"].iter().enumerate().map(section).collect();
        for sections in [
            updates.clone(),
            format!("*** Add File: new/file\n+x\n{updates}"),
            format!("{updates}*** Delete File: one.txt\n"),
            format!(
                "*** Update File: one.txt\n*** Move to: moved.txt\n{}",
                updates.replace("one.txt", "moved.txt")
            ),
        ] {
            let receipt = fixture.patch(&sections);
            expect(&sections, &receipt, &["reject / patch_context_not_found"])?;
            check(!receipt["errors"].as_array().is_none_or(Vec::is_empty), || {
                format!("no errors: {receipt}")
            })?;
            let after: Vec<_> = files.iter().map(stamp).collect();
            check(after == before, || format!("a file was touched: {sections}"))?;
            check(names_in(&fixture.world.root) == names, || format!("names changed: {sections}"))?;
        }
    }
    fixture.finish()
}

/// Five files in one patch: an update, a move, a deletion, an update in a folder, and a new file in a new folder.
const FIVE: &str = "*** Update File: a\n@@\n-one\n+1\n\
                    *** Update File: b\n*** Move to: moved\n@@\n-one\n+1\n\
                    *** Delete File: c\n\
                    *** Update File: sub/d\n@@\n-one\n+1\n\
                    *** Add File: new/e\n+fresh\n";

fn plant_five(dir: &Path) {
    std::fs::create_dir_all(dir.join("sub")).unwrap();
    for name in ["a", "b", "c", "sub/d"] {
        std::fs::write(dir.join(name), format!("one\ntwo\n{name}\n")).unwrap();
    }
    std::fs::set_permissions(dir.join("b"), std::fs::Permissions::from_mode(0o640)).unwrap();
}

type Shape = BTreeMap<PathBuf, String>;

/// A tree by relative names, so that two can be compared.
fn shape(dir: &Path) -> Shape {
    tree(dir).into_iter().map(|(path, what)| (path.strip_prefix(dir).unwrap().to_owned(), what)).collect()
}

/// What the five files are before and after the patch.
struct Five {
    old: Shape,
    new: Shape,
}

impl Five {
    /// Learned from one patch that nothing disturbs.
    fn learn() -> Result<Five, String> {
        let mut fixture = Fixture::new();
        plant_five(&fixture.world.root);
        let old = shape(&fixture.world.root);
        expect("the undisturbed patch", &fixture.patch(FIVE), &["ok"])?;
        let new = shape(&fixture.world.root);
        for (name, content) in [("a", "1\ntwo\na\n"), ("moved", "1\ntwo\nb\n"), ("new/e", "fresh\n")] {
            check(fixture.world.read(name) == content.as_bytes(), || format!("{name} is not as patched"))?;
        }
        for name in ["b", "c"] {
            check(!fixture.world.root.join(name).exists(), || format!("{name} is still there"))?;
        }
        fixture.finish()?;
        Ok(Five { old, new })
    }

    /// Whether the tree is new; an error when it is neither.
    fn is_new(&self, what: &str, dir: &Path) -> Result<bool, String> {
        let now = shape(dir);
        if now == self.new {
            return Ok(true);
        }
        check(now == self.old, || format!("{what}: a mixed tree: {now:#?}"))?;
        Ok(false)
    }
}

fn renames_that_fail() -> Outcome {
    let five = Five::learn()?;
    for nth in 1..=8 {
        let inject = format!("inject=renameat2,renameat,rename:error=EIO:when={nth}");
        let start = Start { wrapper: under_strace(&inject), ..Start::default() };
        let mut fixture = Fixture::of(World::with(start), json!({}));
        plant_five(&fixture.world.root);
        fails_whole(&mut fixture, &five, &inject)?;
        // The same thread's counter is past its mark now: the patch is not spoiled for good.
        expect(&format!("again after {inject}"), &fixture.patch(FIVE), &["ok"])?;
        check(five.is_new(&inject, &fixture.world.root)?, || format!("{inject}: ok, but the tree is old"))?;
        fixture.finish()?;
    }
    if is_root() { other_calls_that_fail(&five) } else { Ok(()) }
}

/// One patch that meets a fault: the tree and the status agree.
fn fails_whole(fixture: &mut Fixture, five: &Five, what: &str) -> Outcome {
    let receipt = fixture.patch(FIVE);
    let is_new = five.is_new(what, &fixture.world.root)?;
    check((receipt["status"] == "ok") == is_new, || format!("{what}: new is {is_new}, but {receipt}"))?;
    check(receipt["not_rolled_back"].is_null(), || format!("{what}: {receipt}"))?;
    check(!is_new, || format!("{what}: the fault was not met: {receipt}"))?;
    expect(what, &receipt, &["error / io_error", "error / no_space", "error / permission_denied"])
}

/// The rename is not the only call that can fail: so can each other one that the commit needs.
fn other_calls_that_fail(five: &Five) -> Outcome {
    let mut fixture = Fixture::new();
    let mut round = 0;
    for (call, error) in [
        ("openat", "EMFILE"),
        ("openat", "ENOSPC"),
        ("write", "ENOSPC"),
        ("write", "EIO"),
        ("fchmod", "EPERM"),
        ("mkdirat", "ENOSPC"),
        ("pwrite64", "ENOSPC"),
    ] {
        for nth in 1..=3 {
            round += 1;
            one_call_fails(&mut fixture, five, round, &format!("inject={call}:error={error}:when={nth}"))?;
        }
    }
    fixture.finish()
}

/// Some faults are overcome and not every call happens three times, so only agreement is asked for here.
fn one_call_fails(fixture: &mut Fixture, five: &Five, round: usize, inject: &str) -> Outcome {
    let dir = fixture.world.root.join(format!("r{round}"));
    plant_five(&dir);
    let session = fixture.world.open(json!({ "target": { "local": { "workdir": dir } } }));
    let tracer = Tracer::attach(fixture.world.daemon_pid(), &["-o", "/dev/null", "-e", inject])?;
    let tool_call = format!("tc_fault{round}");
    let receipt = send_five(&mut fixture.world.client(), &session, &tool_call);
    tracer.detach();
    if receipt.is_null() {
        // A daemon that cannot trust its journal any more may stop; what it left is judged after the restart.
        fixture.world.reap();
        fixture.world.start_daemon();
        fixture.client = fixture.world.client();
    }
    let is_new = five.is_new(inject, &dir)?;
    check(receipt["not_rolled_back"].is_null(), || format!("{inject}: {receipt}"))?;
    check(receipt.is_null() || (receipt["status"] == "ok") == is_new, || {
        format!("{inject}: new is {is_new}, but {receipt}")
    })?;
    journal_agrees(&fixture.world.entries_of(&session, &tool_call), is_new, inject)
}

fn send_five(client: &mut Client, session: &str, tool_call: &str) -> Value {
    let mut params = patch_params(FIVE);
    params["session_id"] = json!(session);
    client.effect_of("host.fs.apply_patch", params, Some(tool_call))
}

/// One receipt at most, and it says what the tree shows.
fn journal_agrees(entries: &[Value], is_new: bool, what: &str) -> Outcome {
    check(entries.len() <= 1, || format!("{what}: {} receipts: {entries:?}", entries.len()))?;
    let found = entries.first().map(|entry| verdict(&entry["receipt"]));
    let agrees = match found.as_deref() {
        Some("ok") => is_new,
        Some(verdict) => !is_new && verdict.starts_with("error / "),
        None => !is_new,
    };
    check(agrees, || format!("{what}: the tree is {}, the journal says {found:?}", age(is_new)))
}

fn age(is_new: bool) -> &'static str {
    if is_new { "new" } else { "old" }
}

/// A system call by name, and how manieth of its thread it is.
type Point = (String, usize);

fn killed_at_each_step() -> Outcome {
    let five = Five::learn()?;
    // At `power` there are more calls to die at: the syncs. The short form leaves that to the long one.
    for power in [false, true].into_iter().take(if is_full() { 2 } else { 1 }) {
        killed_at_durability(&five, &Start { power, ..Start::default() })?;
    }
    Ok(())
}

fn killed_at_durability(five: &Five, start: &Start) -> Outcome {
    let points = commit_points(start)?;
    // The short form takes every so manieth, another set each time; a failure names its point.
    let step = if is_full() { 1 } else { points.len().div_ceil(16) };
    let offset = new_seed() as usize % step;
    let mut world = World::with(start.clone());
    let mut ended = Vec::new();
    for (round, point) in points.iter().skip(offset).step_by(step).enumerate() {
        ended.push(killed_at(&mut world, five, round, point)?);
    }
    let met = ended.iter().filter(|kill| kill.met).count();
    println!(
        "PATCH-08 (power {}): {} points, {} kills tried, {met} met",
        start.power,
        points.len(),
        ended.len()
    );
    check(met * 10 >= ended.len() * 9, || format!("only {met} of {} kills met their point", ended.len()))?;
    let journal = world.journal();
    for kill in &ended {
        let entries: Vec<Value> =
            journal.iter().filter(|entry| entry["tool_call_id"] == kill.tool_call).cloned().collect();
        journal_agrees(&entries, kill.is_new, &kill.what)?;
    }
    killed_while_recovering(&mut world, five, &points, start)?;
    world.finish()
}

/// The calls that the thread of a patch makes from having read it until it has answered.
fn commit_points(start: &Start) -> Result<Vec<Point>, String> {
    let mut fixture = Fixture::of(World::with(start.clone()), json!({}));
    plant_five(&fixture.world.root);
    let trace = fixture.world.parent.join("trace");
    let tracer = Tracer::attach(fixture.world.daemon_pid(), &["-s", "4096", "-o", trace.to_str().unwrap()])?;
    expect(
        "the traced patch",
        &send_five(&mut fixture.world.client(), &fixture.session, "tc_traced"),
        &["ok"],
    )?;
    tracer.detach();
    fixture.client = fixture.world.client();
    let lines = String::from_utf8_lossy(&std::fs::read(&trace).unwrap()).into_owned();
    fixture.finish()?;
    let points = points_of(&lines);
    check(points.len() > 50, || format!("the trace shows only {} calls", points.len()))?;
    Ok(points)
}

fn points_of(trace: &str) -> Vec<Point> {
    let split = |line: &str| {
        let (thread, rest) = line.split_once(' ')?;
        let (call, _) = rest.trim_start().split_once('(')?;
        let is_name = call.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        is_name.then(|| (thread.to_owned(), call.to_owned()))
    };
    let reader = trace.lines().find(|line| line.contains("Begin Patch")).and_then(split);
    let Some((thread, _)) = reader else { return Vec::new() };
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let (mut points, mut inside) = (Vec::new(), false);
    for line in trace.lines() {
        let Some((_, call)) = split(line).filter(|(of, _)| *of == thread) else { continue };
        let count = counts.entry(call.clone()).or_default();
        *count += 1;
        if inside {
            points.push((call, *count));
        }
        inside = (inside || line.contains("Begin Patch")) && !line.contains("files_changed");
    }
    points
}

struct Kill {
    what: String,
    tool_call: String,
    is_new: bool,
    met: bool,
}

/// One kill in a folder and a session of its own; the daemon runs again afterwards.
fn killed_at(world: &mut World, five: &Five, round: usize, point: &Point) -> Result<Kill, String> {
    let (dir, tool_call) = (world.root.join(format!("k{round}")), format!("tc_kill{round}"));
    plant_five(&dir);
    let session = world.open(json!({ "target": { "local": { "workdir": dir } } }));
    let met = kill_during_five(world, &session, &tool_call, point)?;
    if met {
        world.reap();
        world.start_daemon();
    }
    let what = format!("killed at {} {}", point.0, point.1);
    let is_new = five.is_new(&what, &dir)?;
    check(met || is_new, || format!("{what}: not met, answered, and yet the tree is old"))?;
    Ok(Kill { what, tool_call, is_new, met })
}

/// Whether the kill came before the answer did.
fn kill_during_five(world: &World, session: &str, tool_call: &str, point: &Point) -> Result<bool, String> {
    let (call, nth) = point;
    let inject = format!("inject={call}:signal=KILL:when={nth}");
    let trace = format!("trace={call}");
    let arguments = ["-o", "/dev/null", "-e", &trace, "-e", &inject];
    let tracer = Tracer::attach(world.daemon_pid(), &arguments)?;
    let receipt = send_five(&mut world.client(), session, tool_call);
    if !receipt.is_null() {
        expect(&format!("{call} {nth} was not met"), &receipt, &["ok"])?;
        tracer.detach();
    }
    Ok(receipt.is_null())
}

/// A second crash, in the middle of taking the first one back, changes nothing.
fn killed_while_recovering(world: &mut World, five: &Five, points: &[Point], start: &Start) -> Outcome {
    let last_rename = points.iter().rev().find(|(call, _)| call == "renameat2").expect("a commit renames");
    let times = if is_full() { 8 } else { 2 };
    let second =
        ["renameat2", "unlinkat"].into_iter().flat_map(|call| (1..=times).map(move |nth| (call, nth)));
    for (round, (call, nth)) in second.enumerate() {
        let (dir, tool_call) = (world.root.join(format!("again{round}")), format!("tc_again{round}"));
        plant_five(&dir);
        let session = world.open(json!({ "target": { "local": { "workdir": dir } } }));
        let what = format!("recovery killed at {call} {nth}");
        let met = kill_during_five(world, &session, &tool_call, last_rename)?;
        check(met, || format!("{what}: the first kill was not met"))?;
        world.reap();
        die_recovering(world, start, &format!("inject={call}:signal=KILL:when={nth}"));
        let is_new = five.is_new(&what, &dir)?;
        check(!is_new, || format!("{what}: the tree is new"))?;
        let entries = world.entries_of(&session, &tool_call);
        check(entries.len() == 1, || format!("{what}: {} receipts", entries.len()))?;
        expect(&what, &entries[0]["receipt"], &["error / interrupted_rolled_back"])?;
        check(entries[0]["receipt"]["not_rolled_back"].is_null(), || format!("{what}: {entries:?}"))?;
    }
    Ok(())
}

/// Starts a daemon that dies while it recovers, then one that does not.
fn die_recovering(world: &mut World, start: &Start, inject: &str) {
    world.set_start(Start { wrapper: under_strace(inject), ..start.clone() });
    // Too few calls to meet this one leave a daemon that runs; it is killed like any other.
    if world.try_start_daemon().is_ok() {
        world.kill9();
    }
    world.set_start(start.clone());
    world.start_daemon();
}

/// `-D` keeps aosd our child, so that killing the child ends aosd and not only strace.
fn under_strace(inject: &str) -> Vec<String> {
    ["strace", "-D", "-f", "-qqq", "-o", "/dev/null", "-e", inject].map(str::to_owned).into()
}

fn sections_about_one_file() -> Outcome {
    let twice = "*** Update File: a\n@@\n-one\n+1\n*** Update File: a\n@@\n-1\n+uno\n-two\n+due\n";
    let come_and_go = "*** Add File: b\n+x\n*** Delete File: b\n";
    let gone = "*** Update File: a\n*** Move to: b\n*** Update File: a\n@@\n-one\n+1\n";
    let mut said: Vec<Vec<Value>> = Vec::new();
    for _ in 0..3 {
        let mut fixture = Fixture::new();
        fixture.world.write("a", "one\ntwo\n");
        let before = tree(&fixture.world.root);
        let missing = fixture.patch(gone);
        expect("Move a->b then Update a", &missing, &["not_found / path_not_found", "reject"])?;
        check(tree(&fixture.world.root) == before, || "the tree changed".into())?;
        let both = fixture.patch(twice);
        expect("Update a twice", &both, &["ok"])?;
        check(fixture.world.read("a") == b"uno\ndue\n", || format!("{:?}", fixture.world.read("a")))?;
        let nothing = fixture.patch(come_and_go);
        expect("Add b + Delete b", &nothing, &["ok"])?;
        check(!fixture.world.root.join("b").exists(), || "b is there".into())?;
        said.push([missing, both, nothing].map(without_ids).into());
        fixture.finish()?;
    }
    let mut fixture = Fixture::new();
    one_file_many_ways(&mut fixture)?;
    fixture.finish()?;
    check(said.iter().all(|answers| *answers == said[0]), || format!("not the same each run: {said:#?}"))
}

/// A receipt less what is new in every run.
fn without_ids(mut receipt: Value) -> Value {
    for name in ["seq", "tool_call_id", "turn_id", "snapshot_id"] {
        receipt.as_object_mut().unwrap().remove(name);
    }
    receipt
}

/// More orders of sections about one file, with what must stand there afterwards.
const ONE_FILE: &[(&str, &str, Option<&str>)] = &[
    ("*** Delete File: f\n*** Add File: f\n+new\n", "ok", Some("new\n")),
    ("*** Delete File: f\n*** Delete File: f\n", "not_found / path_not_found", Some("old\n")),
    ("*** Delete File: f\n*** Update File: f\n@@\n-old\n+x\n", "not_found / path_not_found", Some("old\n")),
    ("*** Update File: f\n*** Move to: g\n*** Update File: g\n*** Move to: f\n", "ok", Some("old\n")),
    ("*** Update File: f\n*** Move to: g\n*** Delete File: g\n", "ok", None),
    ("*** Update File: f\n*** Move to: ./f\n@@\n-old\n+new\n", "ok", Some("new\n")),
    ("*** Add File: ./f\n+new\n*** Update File: f\n@@\n-new\n+newer\n", "ok", Some("newer\n")),
    // A file is no folder. `conflict` is no status of apply_patch, and nothing appeared meanwhile.
    ("*** Add File: f/g\n+x\n", "error", Some("old\n")),
    ("*** Delete File: f\n*** Add File: f/g\n+x\n*** Delete File: f/g\n", "ok", None),
];

fn one_file_many_ways(fixture: &mut Fixture) -> Outcome {
    let mut findings = Findings::default();
    for (sections, wanted, content) in ONE_FILE {
        fixture.world.write("f", "old\n");
        let receipt = fixture.patch(sections);
        findings.add(expect(sections, &receipt, &[wanted]));
        let path = fixture.world.root.join("f");
        let found = path.is_file().then(|| std::fs::read_to_string(&path).unwrap());
        findings
            .add(check(found.as_deref() == *content, || format!("{sections}: f is {found:?}; {receipt}")));
        findings.add(check(!fixture.world.root.join("g").exists(), || format!("{sections}: g is there")));
        if path.is_dir() {
            std::fs::remove_dir_all(&path).unwrap();
        }
    }
    findings.outcome()
}

fn deletions_of_what_is_no_file() -> Outcome {
    let mut fixture = Fixture::new();
    fixture.world.write("d/inner", "kept\n");
    fixture.world.write("f", "content\n");
    fixture.world.link("f", "l");
    let before = tree(&fixture.world.root);
    for sections in [
        "*** Delete File: d\n",
        "*** Delete File: d/\n",
        "*** Delete File: .\n",
        "*** Update File: d\n@@\n+x\n",
        "*** Add File: d\n+x\n",
        "*** Update File: f\n*** Move to: d\n",
        "*** Update File: d\n*** Move to: e\n",
        "*** Delete File: f\n*** Delete File: d\n",
    ] {
        expect(sections, &fixture.patch(sections), &["error / is_directory"])?;
        check(tree(&fixture.world.root) == before, || format!("the tree changed: {sections}"))?;
    }
    let receipt = fixture.patch("*** Delete File: l\n");
    expect("Delete File: l", &receipt, &["ok"])?;
    check(receipt["changed_paths"] == json!(["l"]), || format!("Delete File: l: {receipt}"))?;
    check(fixture.world.root.join("l").symlink_metadata().is_err(), || "l is still there".into())?;
    check(fixture.world.read("f") == b"content\n", || "f was touched".into())?;
    let mut findings = Findings::default();
    findings.add(other_links_deleted(&mut fixture));
    findings.add(a_link_moved(&mut fixture));
    findings.add(a_link_made_a_file(&mut fixture));
    findings.add(special_files_refused(&mut fixture));
    findings.add(fixture.finish());
    findings.outcome()
}

/// A link is a name of its own, wherever it leads.
fn other_links_deleted(fixture: &mut Fixture) -> Outcome {
    for (target, name) in [("d", "to_folder"), ("nowhere", "dangling"), ("to_itself", "to_itself")] {
        fixture.world.link(target, name);
        expect(name, &fixture.patch(&format!("*** Delete File: {name}\n")), &["ok"])?;
        check(fixture.world.root.join(name).symlink_metadata().is_err(), || {
            format!("{name} is still there")
        })?;
    }
    check(fixture.world.read("d/inner") == b"kept\n", || "d was touched".into())
}

/// What goes away under a link's name is the link; what it led to stays, and the receipt names what changed.
fn a_link_moved(fixture: &mut Fixture) -> Outcome {
    fixture.world.link("f", "l");
    let receipt = fixture.patch("*** Update File: l\n*** Move to: taken\n@@\n-content\n+changed\n");
    expect("Update a link and move it", &receipt, &["ok"])?;
    check(fixture.world.root.join("l").symlink_metadata().is_err(), || "the link is still there".into())?;
    check(fixture.world.read("f") == b"content\n", || "the link's target was changed".into())?;
    check(fixture.world.read("taken") == b"changed\n", || "the moved file is wrong".into())?;
    check(receipt["changed_paths"] == json!(["l", "taken"]), || {
        format!("l went and f stayed, but the receipt says {receipt}")
    })
}

/// A link deleted and a file added under its name: what the link led to is not the patch's business.
fn a_link_made_a_file(fixture: &mut Fixture) -> Outcome {
    fixture.world.link("f", "m");
    let receipt = fixture.patch("*** Delete File: m\n*** Add File: m\n+mine\n");
    expect("Delete a link and add a file", &receipt, &["ok"])?;
    check(fixture.world.read("f") == b"content\n", || {
        format!("the link's target was overwritten: {receipt}")
    })?;
    check(fixture.world.read("m") == b"mine\n", || format!("m is not the new file: {receipt}"))
}

/// A FIFO would hang whoever opened it; it is refused at once.
fn special_files_refused(fixture: &mut Fixture) -> Outcome {
    rustix::fs::mknodat(
        rustix::fs::CWD,
        fixture.world.root.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )
    .unwrap();
    let begun = Instant::now();
    for sections in [
        "*** Update File: fifo\n@@\n+x\n",
        "*** Add File: fifo\n+x\n",
        "*** Delete File: fifo\n",
        "*** Update File: fifo\n*** Move to: x\n",
        "*** Update File: f\n*** Move to: fifo\n",
    ] {
        expect(sections, &fixture.patch(sections), &["error / not_regular_file"])?;
    }
    in_time(begun, Duration::from_secs(2), "patches of a FIFO")
}

fn more_files_than_allowed() -> Outcome {
    let mut fixture = Fixture::open(json!({ "capability": { "max_changed_files": 2 } }));
    for name in ["a", "b", "c"] {
        fixture.world.write(name, "one\n");
    }
    let update = |name: &str| format!("*** Update File: {name}\n@@\n-one\n+1\n");
    let refused = [
        format!("{}{}{}", update("a"), update("b"), update("c")),
        format!("{}*** Delete File: b\n*** Add File: new\n+x\n", update("a")),
        format!("{}{}*** Update File: c\n*** Move to: d\n", update("a"), update("b")),
        "*** Add File: x/1\n+x\n*** Add File: x/2\n+x\n*** Add File: x/3\n+x\n".to_owned(),
    ];
    refused_whole(&mut fixture, &refused, &["forbidden / limit_exceeded"])?;
    let moved = format!("{}*** Update File: b\n*** Move to: b2\n@@\n-one\n+1\n", update("a"));
    let receipt = fixture.patch(&moved);
    expect("two updates, one of them a move", &receipt, &["ok"])?;
    check(receipt["files_changed"] == 2, || format!("a move is one changed file: {receipt}"))?;
    check(receipt["changed_paths"] == json!(["a", "b", "b2"]), || format!("{receipt}"))?;
    let moves = "*** Update File: a\n*** Move to: a2\n*** Update File: b2\n*** Move to: b3\n";
    expect("two moves", &fixture.patch(moves), &["ok"])?;
    fixture.finish()
}

fn patches_too_large() -> Outcome {
    const LIMIT: usize = 1_000_000;
    let mut fixture = Fixture::open(json!({ "capability": { "max_patch_bytes": LIMIT } }));
    fixture.world.write("a", "one\n");
    let before = tree(&fixture.world.root);
    let huge = format!("*** Begin Patch\n*** Add File: huge\n+{}\n*** End Patch\n", "x".repeat(100_000_000));
    let blob = fixture.world.blob(huge.as_bytes());
    let start_bytes = fixture.world.rss();
    inline_is_cut_off(&fixture, &huge)?;
    let begun = Instant::now();
    let receipt = fixture.fs("apply_patch", json!({ "patch": { "blob_ref": { "blob_ref": blob } } }));
    expect("100 MB by blob_ref", &receipt, &["forbidden / limit_exceeded"])?;
    let nul = fixture.patch("*** Add File: a\0b\n+x\n");
    expect("NUL in a header", &nul, &["parse_error", "error / invalid_path"])?;
    for sections in ["*** Delete File: a\0\n", "*** Update File: a\n*** Move to: b\0c\n"] {
        expect("NUL", &fixture.patch(sections), &["parse_error", "error / invalid_path"])?;
    }
    in_time(begun, Duration::from_secs(2), "patches that are too large")?;
    check(tree(&fixture.world.root) == before, || "the tree changed".into())?;
    let grown = fixture.world.rss_peak().saturating_sub(start_bytes);
    check(grown < 128 << 20, || format!("memory grew by {grown} bytes"))?;
    at_the_limit(&mut fixture, LIMIT)?;
    fixture.finish()
}

/// 100 MB on the socket: one answer, and the connection is closed.
fn inline_is_cut_off(fixture: &Fixture, patch: &str) -> Outcome {
    let mut client = fixture.world.client();
    client.give_up_after(bound(Duration::from_secs(10))).unwrap();
    let params = json!({ "session_id": fixture.session, "patch": text(patch) });
    let call = json!({ "kind": "host.fs.apply_patch", "params": params });
    let begun = Instant::now();
    let sent = client.send_effect(1, &call);
    let answer = client.line().unwrap_or_default();
    check(answer.contains("-32600"), || format!("sent: {sent:?}; answered: {answer:?}"))?;
    check(client.line().is_none(), || "the connection is still open".into())?;
    in_time(begun, Duration::from_secs(2), "a patch that is too large")
}

/// Exactly the limit is taken, one byte more is not; by text and by blob alike.
fn at_the_limit(fixture: &mut Fixture, limit: usize) -> Outcome {
    let of_size = |bytes: usize| {
        let frame = "*** Begin Patch\n*** Add File: big\n+\n*** End Patch\n".len();
        format!("*** Begin Patch\n*** Add File: big\n+{}\n*** End Patch\n", "x".repeat(bytes - frame))
    };
    for (bytes, wanted) in [(limit, "ok"), (limit + 1, "forbidden / limit_exceeded")] {
        let _ = std::fs::remove_file(fixture.world.root.join("big"));
        let receipt = fixture.fs("apply_patch", json!({ "patch": text(of_size(bytes)) }));
        expect(&format!("{bytes} bytes inline"), &receipt, &[wanted])?;
        let _ = std::fs::remove_file(fixture.world.root.join("big"));
        let blob = fixture.world.blob(of_size(bytes).as_bytes());
        let receipt = fixture.fs("apply_patch", json!({ "patch": { "blob_ref": { "blob_ref": blob } } }));
        expect(&format!("{bytes} bytes by blob"), &receipt, &[wanted])?;
    }
    Ok(())
}

fn line_ends() -> Outcome {
    let mut fixture = Fixture::new();
    let same = |fixture: &Fixture, name: &str, wanted: &str| {
        let found = String::from_utf8_lossy(&fixture.world.read(name)).into_owned();
        check(found == wanted, || format!("{name}: {found:?}, wanted {wanted:?}"))
    };
    fixture.world.write("f", "one\r\ntwo\r\nthree");
    expect("a middle line", &fixture.patch("*** Update File: f\n@@\n one\n-two\n+2\n"), &["ok"])?;
    same(&fixture, "f", "one\r\n2\r\nthree")?;
    expect("the last line", &fixture.patch("*** Update File: f\n@@\n-three\n+3\n"), &["ok"])?;
    same(&fixture, "f", "one\r\n2\r\n3\r\n")?;
    // Two lines for one, the patch itself in CRLF, and a pure addition in the middle: still the file's line ends.
    fixture.world.write("g", "one\r\ntwo\r\nthree");
    expect("two for one", &fixture.patch("*** Update File: g\n@@\n-two\n+2a\n+2b\n"), &["ok"])?;
    same(&fixture, "g", "one\r\n2a\r\n2b\r\nthree")?;
    expect("a patch in CRLF", &fixture.patch("*** Update File: g\r\n@@\r\n-one\r\n+1\r\n"), &["ok"])?;
    same(&fixture, "g", "1\r\n2a\r\n2b\r\nthree")?;
    expect("an addition", &fixture.patch("*** Update File: g\n@@\n 2a\n+2aa\n 2b\n"), &["ok"])?;
    same(&fixture, "g", "1\r\n2a\r\n2aa\r\n2b\r\nthree")?;
    // A move keeps them too, and a file of mixed ends keeps each line's own.
    fixture.world.write("h", "one\r\ntwo\nthree");
    expect("a move", &fixture.patch("*** Update File: h\n*** Move to: i\n@@\n-two\n+2\n"), &["ok"])?;
    check(fixture.world.read("i").starts_with(b"one\r\n2"), || "the first line lost its CR".into())?;
    check(fixture.world.read("i").ends_with(b"\nthree"), || "the last line was touched".into())?;
    fixture.finish()
}

fn onto_an_existing_file() -> Outcome {
    let mut fixture = Fixture::new();
    fixture.world.write("a", "one\ntwo\n");
    fixture.world.write("b", "bee\n");
    for (tool_call, sections, a, b) in [
        ("tc_add", "*** Add File: b\n+new\n", Some("one\ntwo\n"), "new\n"),
        ("tc_move", "*** Update File: a\n*** Move to: b\n@@\n-one\n+1\n", None, "1\ntwo\n"),
        ("tc_rename", "*** Update File: a\n*** Move to: b\n", None, "one\ntwo\n"),
    ] {
        let before = tree(&fixture.world.root);
        let mut params = patch_params(sections);
        params["session_id"] = json!(fixture.session);
        let receipt = fixture.client.effect_of("host.fs.apply_patch", params, Some(tool_call));
        expect(sections, &receipt, &["ok"])?;
        check(!warning_codes(&receipt).is_empty(), || format!("{sections}: no warning: {receipt}"))?;
        let kept = a.is_some_and(|a| fixture.world.read("a") == a.as_bytes());
        check(kept || (a.is_none() && !fixture.world.root.join("a").exists()), || format!("{sections}: a"))?;
        check(fixture.world.read("b") == b.as_bytes(), || format!("{sections}: b"))?;
        restored(&mut fixture, tool_call, &before)?;
    }
    fixture.finish()
}

/// Undo brings both files back byte for byte.
fn restored(fixture: &mut Fixture, tool_call: &str, before: &Shape) -> Outcome {
    let receipt = fixture.fs("restore", json!({ "scope_id": tool_call }));
    expect(&format!("restore of {tool_call}"), &receipt, &["ok"])?;
    check(tree(&fixture.world.root) == *before, || format!("{tool_call} was not undone"))
}

fn odd_names() -> Outcome {
    // Trailing blanks of a header are not part of the path, as Codex reads it.
    for (written, shown, name) in [
        ("./a", "a", "a"),
        ("a//b", "a/b", "a/b"),
        (" a", " a", " a"),
        ("a ", "a", "a"),
        ("-rf", "-rf", "-rf"),
        ("--", "--", "--"),
        ("a\tb", "a\\x09b", "a\tb"),
        ("a/./b", "a/b", "a/b"),
        ("x/../a", "a", "a"),
        ("a\\x41b", "aAb", "aAb"),
        ("caf\u{e9}", "caf\u{e9}", "caf\u{e9}"),
        ("*", "*", "*"),
        ("$HOME", "$HOME", "$HOME"),
        ("~", "~", "~"),
    ] {
        let mut fixture = Fixture::new();
        std::fs::create_dir(fixture.world.root.join("x")).unwrap();
        let receipt = fixture.patch(&format!("*** Add File: {written}\n+content\n"));
        expect(&format!("Add File: {written:?}"), &receipt, &["ok"])?;
        check(receipt["changed_paths"] == json!([shown]), || format!("{written:?}: {receipt}"))?;
        check(fixture.world.read(name) == b"content\n", || format!("{written:?} did not make {name:?}"))?;
        let read = fixture.fs("read_file", json!({ "path": shown }));
        check(read["content"] == text("content\n"), || format!("{shown:?} cannot be asked for: {read}"))?;
        fixture.finish()?;
    }
    ordered_paths()
}

fn ordered_paths() -> Outcome {
    let mut fixture = Fixture::new();
    let sections: String = ["./z", "m//n", "-rf", "m.x", "B", "a\tb", "a", "m/a", " a"]
        .iter()
        .map(|path| format!("*** Add File: {path}\n+x\n"))
        .collect();
    let receipt = fixture.patch(&sections);
    expect("many odd names", &receipt, &["ok"])?;
    let wanted = json!([" a", "-rf", "B", "a", "a\\x09b", "m.x", "m/a", "m/n", "z"]);
    check(receipt["changed_paths"] == wanted, || format!("not in path order: {receipt}"))?;
    check(receipt["ops"] == json!({ "add": 9, "update": 0, "delete": 0, "move": 0 }), || {
        format!("ops: {receipt}")
    })?;
    fixture.finish()
}

fn only_the_case() -> Outcome {
    let mut fixture = Fixture::new();
    let path = fixture.world.write("a.txt", "one\ntwo\n");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o751)).unwrap();
    expect("a.txt -> A.txt", &fixture.patch("*** Update File: a.txt\n*** Move to: A.txt\n"), &["ok"])?;
    check(names_in(&fixture.world.root) == ["A.txt"], || "not exactly A.txt is there".into())?;
    check(fixture.world.read("A.txt") == b"one\ntwo\n", || "the content was lost".into())?;
    let mode = fixture.world.root.join("A.txt").metadata().unwrap().mode() & 0o7777;
    check(mode == 0o751, || format!("the mode became {mode:o}"))?;
    let receipt = fixture.patch("*** Update File: A.txt\n*** Move to: a.TXT\n@@\n-one\n+1\n");
    expect("A.txt -> a.TXT with a change", &receipt, &["ok"])?;
    check(fixture.world.read("a.TXT") == b"1\ntwo\n", || "the change was lost".into())?;
    check(receipt["changed_paths"] == json!(["A.txt", "a.TXT"]), || format!("{receipt}"))?;
    fixture.finish()
}

fn another_format() -> Outcome {
    let unsupported = &["error / unsupported_patch_format"];
    let mut fixture = Fixture::open(json!({ "capability": { "allowed_patch_formats": ["v4a"] } }));
    fixture.world.write("a", "one\n");
    let before = tree(&fixture.world.root);
    let v4a = "*** Begin Patch\n*** Update File: a\n@@\n-one\n+1\n*** End Patch\n";
    let unified = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-one\n+1\n";
    for patch in [v4a, unified, ""] {
        for format in ["unified", "V4A", "v4a ", "", "git", "v4b"] {
            let params = json!({ "patch": text(patch), "patch_format": format });
            expect(format, &fixture.fs("apply_patch", params), unsupported)?;
        }
    }
    check(tree(&fixture.world.root) == before, || "something was applied".into())?;
    expect(
        "unified by default",
        &fixture.fs("apply_patch", json!({ "patch": text(unified) })),
        &["parse_error"],
    )?;
    let explicit = json!({ "patch": text(v4a), "patch_format": "v4a" });
    expect("v4a by name", &fixture.fs("apply_patch", explicit), &["ok"])?;
    // What the capability does not list is not taken, the default included; what it lists too much does not exist.
    for formats in [json!([]), json!(["unified"])] {
        let session = fixture.world.open(json!({ "capability": { "allowed_patch_formats": formats } }));
        for params in [
            json!({ "patch": text(v4a) }),
            json!({ "patch": text(v4a), "patch_format": "v4a" }),
            json!({ "patch": text(unified), "patch_format": "unified" }),
        ] {
            expect("not listed", &fixture.client.fs(&session, "apply_patch", params), unsupported)?;
        }
    }
    fixture.finish()
}

const MANY: usize = 200;

fn plant_many(dir: &Path) {
    std::fs::create_dir_all(dir).unwrap();
    for index in 0..MANY {
        std::fs::write(dir.join(format!("f{index:03}")), format!("old\n{index}\n")).unwrap();
    }
}

fn many_updates() -> String {
    (0..MANY).map(|index| format!("*** Update File: f{index:03}\n@@\n-old\n+new\n")).collect()
}

/// Whether all of the many files are new; an error when only some are.
fn many_are_new(dir: &Path) -> Result<bool, String> {
    let count = |age: &str| {
        let is_it = |index: &usize| {
            let found = std::fs::read_to_string(dir.join(format!("f{index:03}"))).unwrap_or_default();
            found == format!("{age}\n{index}\n")
        };
        (0..MANY).filter(is_it).count()
    };
    let (old, new, names) = (count("old"), count("new"), names_in(dir).len());
    check(names == MANY && (old == MANY || new == MANY), || {
        format!("{old} files are old and {new} new; there are {names} names")
    })?;
    Ok(new == MANY)
}

fn signaled_or_left_alone() -> Outcome {
    let world = World::new();
    let triggers = if is_full() { (0..MANY).step_by(9).collect() } else { vec![0, 3, MANY / 2, MANY - 2] };
    let descriptors = world.open_descriptors();
    for nth in triggers {
        for leaves in [false, true] {
            interrupted_at(&world, nth, leaves)?;
        }
    }
    wait_for("the descriptors to be closed", || world.open_descriptors() <= descriptors + DESCRIPTORS_SLACK)?;
    world.finish()
}

/// Sends the large patch, waits until its `nth` file is new, and then kills the session or leaves.
fn interrupted_at(world: &World, nth: usize, leaves: bool) -> Outcome {
    let what = format!("{} at file {nth}", if leaves { "left" } else { "signaled" });
    let (dir, tool_call) = (world.root.join(format!("{leaves}{nth}")), format!("tc_{leaves}{nth}"));
    plant_many(&dir);
    let session = world.open(json!({ "target": { "local": { "workdir": dir } } }));
    let mut params = patch_params(&many_updates());
    params["session_id"] = json!(session);
    let call = json!({ "kind": "host.fs.apply_patch", "params": params, "tool_call_id": tool_call });
    let (mut client, mut other) = (world.client(), world.client());
    client.send_effect(1, &call)?;
    let file = dir.join(format!("f{nth:03}"));
    wait_for("the patch to be under way", || {
        std::fs::read(&file).is_ok_and(|bytes| bytes.starts_with(b"new"))
    })?;
    let signal = json!({ "session_id": session, "signal": "kill" });
    if leaves {
        drop(client);
        wait_for("the receipt", || !world.entries_of(&session, &tool_call).is_empty())?;
        expect("the end", &other.effect("host.session.signal", signal), &["signaled"])?;
    } else {
        expect(&what, &other.effect("host.session.signal", signal), &["signaled"])?;
        let read = other.fs(&session, "read_file", json!({ "path": "f000" }));
        expect(&format!("{what}: afterwards"), &read, &["error / session_closed"])?;
        check(client.line().is_some(), || format!("{what}: no answer"))?;
    }
    let is_new = many_are_new(&dir).map_err(|why| format!("{what}: {why}"))?;
    let entries = world.entries_of(&session, &tool_call);
    check(entries.len() == 1, || format!("{what}: {} receipts", entries.len()))?;
    journal_agrees(&entries, is_new, &what)
}
