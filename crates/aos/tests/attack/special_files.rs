//! Special files: stat works, everything else is refused and never opens them; endless or huge files are read in
//! bounds.

mod immutable;

use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use aos_testkit::{Agent, World, check, expect, full_figure, text, timed, tree, wait_for};
use rustix::fs::{CWD, FileType, Mode, RenameFlags};
use serde_json::{Value, json};

use crate::path::another_thread;
use crate::{Case, Need, Outcome};

pub fn cases() -> Vec<Case> {
    let case = |id, needs, run| Case { id, needs, run };
    vec![
        case("SPEC-01", &[], a_fifo),
        case("SPEC-02", &[Need::Root], devices),
        case("SPEC-03", &[], a_socket),
        case("SPEC-05", &[], a_tebibyte),
        case("SPEC-06", &[], a_file_that_grows),
        case("SPEC-08", &[Need::Root], files_of_the_kernel),
        case("SPEC-09", &[], folders_are_no_files),
        case("SPEC-13", &[Need::Root], immutable::immutable_files),
    ]
}

const NOT_REGULAR: &[&str] = &["error / not_regular_file"];
const SECOND: Duration = Duration::from_secs(1);

fn make_special(path: &Path, kind: FileType, device: u64) {
    rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(0o666), device).expect("a special file");
}

/// How every special file is refused, at once and without being opened.
fn refused_at_once(agent: &mut Agent, path: &str) -> Outcome {
    for (way, allowed) in [
        ("read_file", NOT_REGULAR),
        ("edit_file", NOT_REGULAR),
        ("write_file", NOT_REGULAR),
        ("create_parents", NOT_REGULAR),
        ("append", NOT_REGULAR),
        ("create_new", &["conflict / file_exists", "error / not_regular_file"]),
        ("patch_add", NOT_REGULAR),
        ("patch_update", NOT_REGULAR),
        ("patch_move_to", NOT_REGULAR),
        ("list_dir", &["error / not_directory"]),
        ("exists", &["ok"]),
        ("make_dir", &["conflict / file_exists"]),
    ] {
        at_once(agent, way, path, allowed)?;
    }
    for params in [json!({ "encoding": "bytes" }), json!({ "with_hash": true }), json!({ "max_bytes": 0 })] {
        let mut params = params;
        params["path"] = json!(path);
        let what = format!("read_file {params}");
        let receipt = timed(SECOND, &what, || agent.fs("read_file", params))?;
        expect(&what, &receipt, NOT_REGULAR)?;
    }
    let hashed = json!({ "path": path, "content": text("x"), "expected_hash": "sha256:".to_owned() + &"0".repeat(64) });
    let receipt = timed(SECOND, "expected_hash", || agent.fs("write_file", hashed))?;
    expect("expected_hash", &receipt, &["error / not_regular_file", "conflict / stale_base"])?;
    at_once(agent, "grep", path, NOT_REGULAR)?;
    for way in ["stat", "no_follow"] {
        let looked = at_once(agent, way, path, &["ok"])?;
        check(looked["kind"] == "other", || format!("{way} {path}: {looked}"))?;
    }
    // It is not a folder of a path.
    for way in ["read_file", "stat", "edit_file", "list_dir"] {
        at_once(agent, way, &format!("{path}/x"), &["not_found / path_not_found", "error / not_directory"])?;
    }
    at_once(agent, "write_file", &format!("{path}/x"), &["error"])?;
    at_once(agent, "create_parents", &format!("{path}/x"), &["error", "conflict"])?;
    Ok(())
}

fn at_once(agent: &mut Agent, way: &str, path: &str, allowed: &[&str]) -> Result<Value, String> {
    let what = format!("{way} {path}");
    let receipt = timed(SECOND, &what, || agent.way(way, path))?;
    expect(&what, &receipt, allowed)?;
    Ok(receipt)
}

fn a_fifo() -> Outcome {
    let world = World::new();
    world.write("donor", "OLD\n");
    let fifo = world.root.join("ff");
    make_special(&fifo, FileType::Fifo, 0);
    world.link("ff", "link");
    let mut agent = world.agent(json!({}));
    let descriptors = world.open_descriptors();
    // A writer blocks until there is a reader; if the daemon opened the FIFO, the writer would return.
    let writer = {
        let fifo = fifo.clone();
        std::thread::spawn(move || std::fs::OpenOptions::new().write(true).open(fifo).map(drop))
    };
    refused_at_once(&mut agent, "ff")?;
    for way in ["read_file", "edit_file", "write_file", "append", "patch_update"] {
        at_once(&mut agent, way, "link", NOT_REGULAR)?;
    }
    check(!writer.is_finished(), || "the FIFO was opened".into())?;
    let reader =
        rustix::fs::open(&fifo, rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK, Mode::empty());
    writer.join().expect("the writer ends").map_err(|why| why.to_string())?;
    drop(reader);
    a_fifo_that_appears(&world, &agent.session)?;
    a_fifo_may_go(&world, &mut agent)?;
    world.expect_descriptors(descriptors)?;
    world.finish()
}

/// Another thread puts the FIFO in place of a file that was just checked.
fn a_fifo_that_appears(world: &World, session: &str) -> Outcome {
    let (file, fifo) = (world.write("s", "OLD\n"), world.root.join("other"));
    make_special(&fifo, FileType::Fifo, 0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = rustix::fs::renameat_with(CWD, &file, CWD, &fifo, RenameFlags::EXCHANGE);
            }
        });
        let mut agent = world.quiet_agent(session);
        let outcome = (0..full_figure(20_000, 500)).try_for_each(|number| {
            let way = ["read_file", "read_file", "read_file", "append", "edit_file"][number % 5];
            let receipt = timed(SECOND, way, || agent.way(way, "s"))?;
            expect(
                way,
                &receipt,
                &["ok", "error / not_regular_file", "conflict", "not_found / edit_target_not_found"],
            )
        });
        stop.store(true, Ordering::Relaxed);
        outcome
    })
}

/// A FIFO can be moved and removed like any name.
fn a_fifo_may_go(world: &World, agent: &mut Agent) -> Outcome {
    at_once(agent, "move_from", "ff", &["ok"])?;
    at_once(agent, "remove", "moved", &["ok"])?;
    check(world.root.join("moved").symlink_metadata().is_err(), || "the FIFO is still there".into())
}

fn devices() -> Outcome {
    let world = World::new();
    world.write("donor", "OLD\n");
    let devices =
        [("z", 1, 5), ("n", 1, 3), ("full", 1, 7), ("random", 1, 8), ("tty", 5, 0), ("kmsg", 1, 11)];
    for (name, major, minor) in devices {
        let device = rustix::fs::makedev(major, minor);
        make_special(&world.root.join(name), FileType::CharacterDevice, device);
    }
    make_special(&world.root.join("disk"), FileType::BlockDevice, rustix::fs::makedev(7, 0));
    let mut agent = world.agent(json!({}));
    let before = world.rss();
    let receipt = timed(SECOND, "read_file z", || agent.fs("read_file", json!({ "path": "z" })))?;
    expect("read_file z", &receipt, NOT_REGULAR)?;
    for (name, ..) in devices {
        refused_at_once(&mut agent, name)?;
    }
    refused_at_once(&mut agent, "disk")?;
    let grown = world.rss_peak().saturating_sub(before);
    check(grown < 16 << 20, || format!("the daemon grew by {grown} bytes"))?;
    world.finish()
}

fn a_socket() -> Outcome {
    let world = World::new();
    world.write("donor", "OLD\n");
    let listener = std::os::unix::net::UnixListener::bind(world.root.join("s")).unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut agent = world.agent(json!({}));
    at_once(&mut agent, "read_file", "s", NOT_REGULAR)?;
    refused_at_once(&mut agent, "s")?;
    check(listener.accept().is_err(), || "somebody called the socket".into())?;
    world.finish()
}

fn a_tebibyte() -> Outcome {
    let world = World::new();
    let file = std::fs::File::create(world.root.join("big")).unwrap();
    file.set_len(1 << 40).map_err(|why| format!("this file system takes no file of a tebibyte: {why}"))?;
    let mut agent = world.agent(json!({}));
    let before = world.rss();
    let mut read = |params: Value| {
        let mut params = params;
        params["path"] = json!("big");
        let what = format!("read_file {params}");
        timed(5 * SECOND, &what, || agent.fs("read_file", params))
    };
    let whole = read(json!({}))?;
    expect("the whole", &whole, &["ok"])?;
    let bytes = whole["content"]["blob"]["size_bytes"].as_u64().unwrap_or(u64::MAX);
    check(bytes <= 256 << 20 && whole["truncated"] == true && whole["next_offset_bytes"] == bytes, || {
        format!("a read of a tebibyte: {whole}")
    })?;
    let ten = read(json!({ "offset_bytes": 999_999_999_990_u64, "max_bytes": 10 }))?;
    check(ten["content"]["inline_text"]["text"] == "\0".repeat(10), || format!("ten bytes: {ten}"))?;
    let end = read(json!({ "offset_bytes": (1_u64 << 40) - 3, "max_bytes": 10 }))?;
    check(end["content"]["inline_text"]["text"] == "\0\0\0" && end["truncated"] == false, || {
        format!("the end: {end}")
    })?;
    for past in [1_u64 << 40, (1 << 40) + 1, i64::MAX as u64, u64::MAX] {
        let empty = read(json!({ "offset_bytes": past }))?;
        check(empty["content"]["inline_text"]["text"] == "" && empty["truncated"] == false, || {
            format!("at {past}: {empty}")
        })?;
    }
    let inline = read(json!({ "output_mode": "require_inline" }))?;
    expect("require_inline", &inline, &["error / inline_required_too_large"])?;
    changes_of_a_tebibyte(&mut agent)?;
    let grown = world.rss_peak().saturating_sub(before);
    check(grown < 64 << 20, || format!("the daemon grew by {grown} bytes"))?;
    check(file.metadata().unwrap().len() == 1 << 40, || "big was changed".into())?;
    world.finish()
}

fn changes_of_a_tebibyte(agent: &mut Agent) -> Outcome {
    let too_large: &[&str] = &["error / file_too_large"];
    for (way, allowed) in [("edit_file", too_large), ("patch_update", too_large), ("append", too_large)] {
        let receipt = timed(5 * SECOND, way, || agent.way(way, "big"))?;
        expect(way, &receipt, allowed)?;
    }
    let hash = "sha256:".to_owned() + &"0".repeat(64);
    let guarded = json!({ "path": "big", "content": text("x"), "expected_hash": hash });
    let receipt = timed(5 * SECOND, "expected_hash", || agent.fs("write_file", guarded))?;
    expect("expected_hash", &receipt, &["error / file_too_large", "conflict / stale_base"])?;
    let found = timed(5 * SECOND, "grep", || agent.fs("grep", json!({ "pattern": "x" })))?;
    expect("grep", &found, &["ok"])?;
    check(found["match_count"] == 0, || format!("grep found {found}"))?;
    // Its pre-image is larger than a session may store.
    let receipt = timed(5 * SECOND, "overwrite", || agent.way("write_file", "big"))?;
    expect("overwrite", &receipt, &["forbidden / limit_exceeded"])
}

fn a_file_that_grows() -> Outcome {
    let world = World::new();
    let path = world.write("grow", "");
    let mut agent = world.agent(json!({}));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| grow(&path, &stop));
        let outcome = read_what_grows(&mut agent, &path);
        stop.store(true, Ordering::Relaxed);
        outcome
    })?;
    a_file_that_shrinks(&world, &mut agent)?;
    world.finish()
}

/// Appends about 100 MB/s of numbered lines, so that a wrong prefix is noticed.
fn grow(path: &Path, stop: &AtomicBool) {
    let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
    let begun = Instant::now();
    let mut line = 0_u64;
    // A gigabyte is enough for any reader that ends.
    while !stop.load(Ordering::Relaxed) && line < 64 << 20 {
        let piece: String = (line..line + 65_536).map(|number| format!("{number:015}\n")).collect();
        file.write_all(piece.as_bytes()).unwrap();
        line += 65_536;
        let due = Duration::from_secs_f64(line as f64 * 16.0 / 100e6);
        // The rate is part of the case; nothing waits for this sleep.
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
    }
}

fn read_what_grows(agent: &mut Agent, path: &Path) -> Outcome {
    wait_for("the file to grow", || path.metadata().unwrap().len() > 10_000_000)?;
    let part = json!({ "path": "grow", "max_bytes": 1_000_000 });
    for (params, bytes_max) in [(json!({ "path": "grow" }), 256 << 20), (part, 1_000_000)] {
        let receipt = timed(5 * SECOND, "read_file grow", || agent.fs("read_file", params))?;
        expect("read_file grow", &receipt, &["ok"])?;
        let blob = &receipt["content"]["blob"];
        let size = blob["size_bytes"].as_u64().unwrap_or(u64::MAX);
        check(size <= bytes_max, || format!("{size} bytes were read: {receipt}"))?;
        let prefix = &std::fs::read(path).unwrap()[..size as usize];
        check(blob["blob_ref"] == aos_model::request::content_hash(prefix), || {
            format!("what was read is no prefix: {receipt}")
        })?;
        if bytes_max == 1_000_000 {
            let cut = receipt["truncated"] == true && receipt["next_offset_bytes"] == 1_000_000;
            check(size == 1_000_000 && cut, || format!("a cut read: {receipt}"))?;
        }
    }
    Ok(())
}

/// A file that is truncated while it is read gives the bytes that there were.
fn a_file_that_shrinks(world: &World, agent: &mut Agent) -> Outcome {
    let path = world.write("shrink", "x");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            while !stop.load(Ordering::Relaxed) {
                file.set_len(3 << 20).unwrap();
                file.set_len(0).unwrap();
            }
        });
        let outcome = (0..200).try_for_each(|_| {
            let params = json!({ "path": "shrink", "with_hash": true });
            let receipt = timed(SECOND, "read_file shrink", || agent.fs("read_file", params))?;
            expect("read_file shrink", &receipt, &["ok"])?;
            let edited = timed(5 * SECOND, "edit_file shrink", || agent.edit("shrink", "y", "z"))?;
            expect("edit_file shrink", &edited, &["not_found / edit_target_not_found"])
        });
        stop.store(true, Ordering::Relaxed);
        outcome
    })
}

fn files_of_the_kernel() -> Outcome {
    let world = World::new();
    let mut agent = world.agent(json!({
        "capability": { "fs_roots": [world.root, "/proc", "/sys"] },
        "policy": { "preset": "permissive" },
    }));
    let own = std::process::id();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ping = scope.spawn(|| answers_meanwhile(&world, &stop));
        let outcome = read_of_the_kernel(&mut agent, own);
        stop.store(true, Ordering::Relaxed);
        ping.join().expect("the pings end").and(outcome)
    })?;
    the_daemon_is_not_there(&world, &mut agent)?;
    // `/proc/PID/comm` could be written in place: nothing writes it.
    let name = format!("/proc/{own}/comm");
    let before = std::fs::read(&name).unwrap();
    for way in ["write_file", "append", "create_new", "remove", "move_from"] {
        expect(way, &agent.way(way, &name), &["error", "forbidden", "conflict", "not_found"])?;
    }
    check(std::fs::read(&name).unwrap() == before, || format!("{name} was written"))?;
    world.finish()
}

fn read_of_the_kernel(agent: &mut Agent, own: u32) -> Outcome {
    let named =
        ["kmsg", "self/pagemap", "kallsyms", "sysrq-trigger", "kpagecount", "mounts", "net/tcp", "1/mem"];
    let others =
        ["mem", "pagemap", "environ", "fd/0", "fd/1", "cwd/x", "root/etc/passwd", "map_files", "clear_refs"];
    let sys = ["kernel/debug/tracing/trace_pipe", "kernel/tracing/trace_pipe", "kernel/uevent_seqnum"];
    let paths = named.iter().map(|name| format!("/proc/{name}"));
    let paths = paths.chain(others.iter().map(|name| format!("/proc/{own}/{name}")));
    for path in paths.chain(sys.iter().map(|name| format!("/sys/{name}"))) {
        for params in
            [json!({ "path": path }), json!({ "path": path, "encoding": "bytes", "max_bytes": 4096 })]
        {
            let receipt = timed(2 * SECOND, &path, || agent.fs("read_file", params))?;
            expect(&path, &receipt, &["ok", "error", "not_found", "forbidden", "is_directory"])?;
            let bytes = receipt["content"]["blob"]["size_bytes"].as_u64().unwrap_or(0);
            check(bytes <= 256 << 20, || format!("{path}: {bytes} bytes"))?;
        }
        timed(2 * SECOND, &path, || agent.way("stat", &path))?;
    }
    Ok(())
}

/// Pings all the time; each answer must come within a second.
fn answers_meanwhile(world: &World, stop: &AtomicBool) -> Outcome {
    let mut client = world.client();
    while !stop.load(Ordering::Relaxed) {
        let receipt = timed(SECOND, "a ping", || client.effect("host.session.list", json!({})))?;
        expect("a ping", &receipt, &["ok"])?;
    }
    Ok(())
}

/// The daemon's own entries are outside, under any number: each thread has an entry too, which no listing shows.
fn the_daemon_is_not_there(world: &World, agent: &mut Agent) -> Outcome {
    let pid = world.daemon_pid();
    let thread = another_thread(pid).ok_or("the daemon has one thread only")?;
    let outside: &[&str] = &["forbidden / path_outside_roots"];
    for entry in [
        "self".to_owned(),
        "thread-self".to_owned(),
        pid.to_string(),
        format!("{pid}/task/{thread}"),
        format!("self/task/{thread}"),
        format!("{thread}"),
        format!("{thread}/task/{pid}"),
    ] {
        for name in ["environ", "maps", "mem", "fd", "fd/0", "cmdline", "root/etc/hostname"] {
            let path = format!("/proc/{entry}/{name}");
            for way in ["read_file", "stat", "no_follow", "exists", "list_dir"] {
                let receipt = timed(2 * SECOND, &path, || agent.way(way, &path))?;
                expect(&format!("{way} {path}"), &receipt, outside)?;
            }
        }
        expect(&entry, &agent.way("list_dir", &format!("/proc/{entry}")), outside)?;
    }
    Ok(())
}

fn folders_are_no_files() -> Outcome {
    let world = World::new();
    world.write("dir/inner", "OLD\n");
    world.write("donor", "OLD\n");
    world.link("dir", "link");
    std::fs::create_dir(world.root.join("empty")).unwrap();
    let before = tree(&world.root);
    let mut agent = world.agent(json!({}));
    let is_directory: &[&str] = &["error / is_directory"];
    for path in ["dir", "dir/", "empty", "link", "./dir/."] {
        expect(path, &agent.way("read_file", path), &["is_directory / is_directory"])?;
        for way in [
            "write_file",
            "create_parents",
            "append",
            "edit_file",
            "patch_add",
            "patch_update",
            "patch_move_to",
        ] {
            expect(&format!("{way} {path}"), &agent.way(way, path), is_directory)?;
        }
        expect(path, &agent.way("create_new", path), &["conflict / file_exists", "error / is_directory"])?;
    }
    for path in ["dir", "empty"] {
        expect(path, &agent.way("patch_delete", path), is_directory)?;
        expect(path, &agent.way("move_to", path), is_directory)?;
        let moved = agent.fs("move", json!({ "from": path, "to": "donor", "overwrite": true }));
        expect("a folder onto a file", &moved, &["error", "conflict"])?;
    }
    let removed = agent.fs("remove", json!({ "path": "dir" }));
    expect("remove, not recursive", &removed, &["error / directory_not_empty"])?;
    // One bad file fails the whole patch, in any order.
    for sections in [
        "*** Update File: donor\n@@\n-OLD\n+NEW\n*** Update File: dir\n@@\n-OLD\n+NEW\n",
        "*** Delete File: dir\n*** Update File: donor\n@@\n-OLD\n+NEW\n",
        "*** Add File: fresh\n+x\n*** Add File: dir\n+x\n",
    ] {
        expect(sections, &agent.patch(sections), is_directory)?;
    }
    check(tree(&world.root) == before, || "something was changed".into())?;
    world.finish()
}
