//! A patch whose system calls fail or whose daemon is killed is applied as a whole or not at all.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use aos_testkit::{
    Client, Fixture, Start, Tracer, World, check, expect, is_full, is_root, new_seed, patch_params, tree,
    verdict,
};
use serde_json::{Value, json};

use crate::Outcome;

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

pub(super) type Shape = BTreeMap<PathBuf, String>;

/// A tree by relative paths, so that two trees can be compared.
fn shape(dir: &Path) -> Shape {
    tree(dir).into_iter().map(|(path, what)| (path.strip_prefix(dir).unwrap().to_owned(), what)).collect()
}

/// The five files before and after the patch.
struct Five {
    old: Shape,
    new: Shape,
}

impl Five {
    /// Recorded from one patch without a fault.
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

    /// Whether the tree is the new one; an error when it is neither.
    fn is_new(&self, what: &str, dir: &Path) -> Result<bool, String> {
        let now = shape(dir);
        if now == self.new {
            return Ok(true);
        }
        check(now == self.old, || format!("{what}: a mixed tree: {now:#?}"))?;
        Ok(false)
    }
}

pub(super) fn renames_that_fail() -> Outcome {
    let five = Five::learn()?;
    for nth in 1..=8 {
        let inject = format!("inject=renameat2,renameat,rename:error=EIO:when={nth}");
        let start = Start { wrapper: under_strace(&inject), ..Start::default() };
        let mut fixture = Fixture::of(World::with(start), json!({}));
        plant_five(&fixture.world.root);
        fails_whole(&mut fixture, &five, &inject)?;
        // The thread's call counter is past the injected call now: the same patch succeeds.
        expect(&format!("again after {inject}"), &fixture.patch(FIVE), &["ok"])?;
        check(five.is_new(&inject, &fixture.world.root)?, || format!("{inject}: ok, but the tree is old"))?;
        fixture.finish()?;
    }
    if is_root() { other_calls_that_fail(&five) } else { Ok(()) }
}

/// One patch that hits a fault: the tree and the status agree.
fn fails_whole(fixture: &mut Fixture, five: &Five, what: &str) -> Outcome {
    let receipt = fixture.patch(FIVE);
    let is_new = five.is_new(what, &fixture.world.root)?;
    check((receipt["status"] == "ok") == is_new, || format!("{what}: new is {is_new}, but {receipt}"))?;
    check(receipt["not_rolled_back"].is_null(), || format!("{what}: {receipt}"))?;
    check(!is_new, || format!("{what}: the fault was not met: {receipt}"))?;
    expect(what, &receipt, &["error / io_error", "error / no_space", "error / permission_denied"])
}

/// The rename is not the only call that can fail: so can every other call of the commit.
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

/// Some faults are handled and not every call is made three times, so only agreement is required here.
fn one_call_fails(fixture: &mut Fixture, five: &Five, round: usize, inject: &str) -> Outcome {
    let dir = fixture.world.root.join(format!("r{round}"));
    plant_five(&dir);
    let session = fixture.world.open(json!({ "target": { "local": { "workdir": dir } } }));
    let tracer = Tracer::attach(fixture.world.daemon_pid(), &["-o", "/dev/null", "-e", inject])?;
    let tool_call = format!("tc_fault{round}");
    let receipt = send_five(&mut fixture.world.client(), &session, &tool_call);
    tracer.detach();
    if receipt.is_null() {
        // A daemon that can no longer trust its journal may stop; the tree is checked after the restart.
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

/// At most one receipt, and it agrees with the tree.
pub(super) fn journal_agrees(entries: &[Value], is_new: bool, what: &str) -> Outcome {
    check(entries.len() <= 1, || format!("{what}: {} receipts: {entries:?}", entries.len()))?;
    let found = entries.first().map(|entry| verdict(&entry["receipt"]));
    let agrees = match found.as_deref() {
        Some("ok") => is_new,
        Some(verdict) => !is_new && verdict.starts_with("error / "),
        None => !is_new,
    };
    check(agrees, || format!("{what}: the tree is {}, the journal says {found:?}", age(is_new)))
}

pub(super) fn age(is_new: bool) -> &'static str {
    if is_new { "new" } else { "old" }
}

/// A system call by name, and its number among the thread's calls of that name.
type Point = (String, usize);

pub(super) fn killed_at_each_step() -> Outcome {
    let five = Five::learn()?;
    // At `power` there are more calls to be killed at: the syncs. Only the long form takes them.
    for power in [false, true].into_iter().take(if is_full() { 2 } else { 1 }) {
        killed_at_durability(&five, &Start { power, ..Start::default() })?;
    }
    Ok(())
}

fn killed_at_durability(five: &Five, start: &Start) -> Outcome {
    let points = commit_points(start)?;
    // The short form takes every nth call, a different set each time; a failure names its point.
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

/// The calls that the thread of a patch makes between reading the request and answering it.
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

/// One kill, in a folder and a session of its own; afterwards the daemon runs again.
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

/// Whether the kill came before the answer.
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

/// A second crash, during the rollback of the first, changes nothing.
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

/// Starts a daemon that is killed while it recovers, then one that is not.
fn die_recovering(world: &mut World, start: &Start, inject: &str) {
    world.set_start(Start { wrapper: under_strace(inject), ..start.clone() });
    // A daemon that makes too few such calls keeps running; it is killed as well.
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
