//! JRNL-09, JRNL-11, JRNL-15: who owns the home, who else may use it, and what others may have put there.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use aos_testkit::time::wait_at_most;
use aos_testkit::{
    Programs, Start, World, check, expect, full_figure, is_root, signal, text, tree, wait_for,
};
use serde_json::json;

use crate::Outcome;

const OTHER_UID: u32 = 65_534;

fn io<T>(result: std::io::Result<T>) -> Result<T, String> {
    result.map_err(|why| why.to_string())
}

fn spawn(home: &Path) -> Result<Child, String> {
    let mut command = Command::new(&Programs::built().aosd);
    command.env("AOS_HOME", home).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    io(command.spawn())
}

/// Waits for a daemon that must end by itself.
fn ended(mut child: Child) -> Result<Output, String> {
    let waited = wait_at_most(Duration::from_secs(10), "the second daemon ends", || {
        child.try_wait().is_ok_and(|status| status.is_some())
    });
    if waited.is_err() {
        let _ = child.kill();
    }
    let output = io(child.wait_with_output())?;
    waited.map(|()| output)
}

/// JRNL-09.
pub fn second_daemon() -> Outcome {
    let mut world = World::new();
    let session = world.open(json!({}));
    let first = world.daemon_pid();
    refused_second(&world)?;
    let write = json!({ "session_id": session, "path": "f", "content": text("still served\n") });
    let receipt = world.client().effect("host.fs.write_file", write);
    expect("a write after the second was refused", &receipt, &["ok"])?;
    check(world.daemon_pid() == first, || "another daemon answers now".into())?;
    // A stopped daemon is not dead.
    signal(first, rustix::process::Signal::STOP);
    let refused = refused_second(&world);
    signal(first, rustix::process::Signal::CONT);
    refused?;
    world.kill9();
    check(world.home.join("run/aosd.sock").exists(), || "the kill left no stale socket to test with".into())?;
    world.try_start_daemon().map_err(|why| format!("a stale lock or socket blocks: {why}"))?;
    stale_leftovers(&mut world)?;
    race(&mut world)?;
    world.finish()
}

fn refused_second(world: &World) -> Outcome {
    let output = ended(spawn(&world.home)?)?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    check(!output.status.success(), || "the second daemon exits with success".into())?;
    check(said.contains("another daemon") && !said.contains("panicked"), || format!("unclear: `{said}`"))
}

/// A daemon that dies while it starts a process leaves its lock to that process for a moment. A daemon that starts in
/// that moment waits.
pub fn lock_let_go_late() -> Outcome {
    let mut world = World::new();
    world.kill9();
    let held = io(std::fs::File::options().write(true).open(world.home.join("run/aosd.lock")))?;
    io(held.lock())?;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            drop(held);
        });
        world.try_start_daemon()
    })?;
    world.finish()
}

/// What dead daemons of other versions may have left in `run/`.
fn stale_leftovers(world: &mut World) -> Outcome {
    world.kill9();
    let run = world.home.join("run");
    io(std::fs::write(run.join("aosd.lock"), "1\n"))?;
    io(std::fs::write(run.join("aosd.pid"), "1\n"))?;
    io(std::fs::remove_file(run.join("aosd.sock")))?;
    io(std::fs::write(run.join("aosd.sock"), "no socket"))?;
    world.try_start_daemon().map_err(|why| format!("leftovers block the start: {why}"))
}

/// Many daemons start at a time: one serves, and the others say so and exit.
fn race(world: &mut World) -> Outcome {
    for _ in 0..full_figure(10, 2) {
        world.kill9();
        let mut racers = (0..8).map(|_| spawn(&world.home)).collect::<Result<Vec<_>, _>>()?;
        let running = |racers: &mut Vec<Child>| {
            racers.iter_mut().map(Child::try_wait).filter(|ended| matches!(ended, Ok(None))).count()
        };
        let _ = wait_for("all but one to end", || running(&mut racers) <= 1);
        let left = running(&mut racers);
        for racer in &mut racers {
            let _ = racer.kill();
            let _ = racer.wait();
        }
        check(left == 1, || format!("{left} daemons of 8 serve one home"))?;
    }
    world.try_start_daemon()
}

/// JRNL-11.
pub fn prepared_journal() -> Outcome {
    for name in ["journal.db", "journal.db-wal", "journal.db-shm"] {
        link_in_place(name)?;
        for mode in [0o666, 0o640, 0o604, 0o602, 0o610] {
            refused(&format!("{name} with mode {mode:o}"), |world| {
                let path = world.home.join("state").join(name);
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
            })?;
        }
        if is_root() {
            refused(&format!("{name} of another uid"), |world| {
                std::os::unix::fs::chown(world.home.join("state").join(name), Some(OTHER_UID), None)
            })?;
        }
        refused(&format!("{name} as a folder"), |world| {
            let path = world.home.join("state").join(name);
            std::fs::remove_file(&path)?;
            std::fs::create_dir(path)
        })?;
    }
    folder_as_link()
}

/// A home with a journal and a log is not served once it is `prepare`d, and the refusal names the problem.
fn refused(what: &str, prepare: impl FnOnce(&World) -> std::io::Result<()>) -> Outcome {
    let mut world = World::new();
    world.open(json!({}));
    world.kill9();
    io(prepare(&world))?;
    let before = tree(&world.home.join("state"));
    let started = world.try_start_daemon();
    let said = match started {
        Ok(()) => return Err(format!("{what}: the daemon starts")),
        Err(said) => said,
    };
    check(said.contains("journal.db") && !said.contains("panicked"), || {
        format!("{what}: unclear: `{said}`")
    })?;
    check(tree(&world.home.join("state")) == before, || format!("{what}: the refusing daemon changed it"))?;
    let (code, _, err) = world.aos(&["call", "host.session.list"]);
    check(code != 0 && err.contains("journal.db"), || format!("{what}: aos call: {code}: {err}"))
}

/// A link to a real journal elsewhere, and a dangling link, through which a journal would be created elsewhere.
fn link_in_place(name: &str) -> Outcome {
    refused(&format!("{name} as a link"), |world| {
        let path = world.home.join("state").join(name);
        std::fs::rename(&path, world.parent.join("moved"))?;
        std::os::unix::fs::symlink(world.parent.join("moved"), path)
    })?;
    let mut target = PathBuf::new();
    refused(&format!("{name} as a dangling link"), |world| {
        let path = world.home.join("state").join(name);
        target = world.parent.join("not-there");
        std::fs::remove_file(&path)?;
        std::os::unix::fs::symlink(&target, path)
    })?;
    check(!target.exists(), || format!("{} was made through the link", target.display()))
}

/// The folder of the journal is a link to a place that others can prepare.
fn folder_as_link() -> Outcome {
    let mut world = World::new();
    world.open(json!({}));
    world.kill9();
    let (state, moved) = (world.home.join("state"), world.parent.join("moved"));
    io(std::fs::rename(&state, &moved))?;
    io(std::os::unix::fs::symlink(&moved, &state))?;
    match world.try_start_daemon() {
        Ok(()) => Err("state/ as a link: the daemon starts".into()),
        Err(said) => check(said.contains("state"), || format!("state/ as a link: unclear: `{said}`")),
    }
}

/// JRNL-15. A file's content replaces a command's output here; it takes the same path: request, receipt, journal,
/// pre-image and blob.
pub fn private() -> Outcome {
    let mut world = World::asleep(Start::default());
    // A home that was created by hand, open to all users.
    for folder in ["", "state", "run"] {
        let path = world.home.join(folder);
        io(std::fs::create_dir_all(&path))?;
        io(std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)))?;
    }
    world.start_daemon();
    let secret = format!("SECRET-{:016x}", aos_testkit::new_seed());
    leave_everywhere(&world, &secret)?;
    modes(&world)?;
    if is_root() {
        closed_to_others(&world)?;
    }
    let (_, out, _) = world.aos(&["log", "--json"]);
    check(out.contains(&secret), || "its owner does not find the value in the journal".into())?;
    out_of_reach_of_sessions(&world, &secret)?;
    out_of_reach_of_commands(&world, &secret)?;
    world.finish()
}

/// Puts the secret into the journal, the pre-images and the blobs.
fn leave_everywhere(world: &World, secret: &str) -> Outcome {
    let (session, mut client) = (world.open(json!({})), world.client());
    let large = format!("{secret}\n").repeat(2_000);
    for content in [secret, &large, "harmless\n"] {
        let params = json!({ "session_id": session, "path": "f", "content": text(content) });
        expect("a write", &client.effect("host.fs.write_file", params), &["ok"])?;
        let read = client.effect("host.fs.read_file", json!({ "session_id": session, "path": "f" }));
        expect("a read", &read, &["ok"])?;
    }
    let script = format!("echo {secret}; cd && echo {secret} > kept; yes {secret} | head -n 2000");
    let params = json!({ "session_id": session, "argv": ["sh", "-c", script] });
    expect("a command", &client.effect("host.exec", params), &["ok"])
}

/// A command cannot find what another session printed and stored, not even with `/` as its root.
fn out_of_reach_of_commands(world: &World, secret: &str) -> Outcome {
    let home = world.home.display().to_string();
    // The command's own arguments must not contain what it searches for.
    let (first, second) = secret.split_at(secret.len() / 2);
    let script = format!("grep -r \"$A$B\" {home}; find {home} | wc -l; ls -A {home}");
    for workdir in [world.root.as_path(), Path::new("/")] {
        let target = json!({ "local": { "workdir": workdir, "env": { "A": first, "B": second } } });
        let mut params =
            aos_testkit::uncaptured(json!({ "target": target, "policy": { "preset": "permissive" } }));
        // `/` has more paths than are compared before and after a command that may write.
        params["capability"]["allowed_fs_ops"] = json!(["read", "search", "list", "stat"]);
        let session = world.open(params);
        let params = json!({ "session_id": session, "argv": ["sh", "-c", script], "capture": "none" });
        let receipt = world.client().effect("host.exec", params);
        expect("a search", &receipt, &["ok"])?;
        check(!receipt.to_string().contains(secret), || format!("a command finds it: {receipt}"))?;
        check(!receipt.to_string().contains("state"), || format!("a command sees our home: {receipt}"))?;
    }
    Ok(())
}

fn modes(world: &World) -> Outcome {
    let mode = |path: &Path| path.symlink_metadata().map_or(0, |meta| meta.mode() & 0o7777);
    let (home, socket) = (mode(&world.home), mode(&world.home.join("run/aosd.sock")));
    check(home == 0o700, || format!("$AOS_HOME has mode {home:o}"))?;
    check(socket == 0o600, || format!("the socket has mode {socket:o}"))?;
    check(mode(&world.home.join("run")) == 0o700, || "run/ is open to others".into())?;
    // A pre-image is the user's own file, moved aside with its own mode; the folders above it protect it.
    // What a command stores in its own home has the modes that it chose; the same holds for it.
    // What a command writes into an overlay is the user's too, until it is applied to the root.
    let theirs = ["preimages", "rooms", "overlays"].map(|name| world.home.join("state").join(name));
    let ours = |path: &Path| !theirs.iter().any(|theirs| path.starts_with(theirs) && path != theirs);
    for (path, _) in tree(&world.home).into_iter().filter(|(path, _)| ours(path)) {
        let found = mode(&path);
        check(found & 0o077 == 0, || format!("{} has mode {found:o}", path.display()))?;
    }
    Ok(())
}

/// Another uid tries to read each file by name, and to connect to the daemon.
fn closed_to_others(world: &World) -> Outcome {
    let as_other = |program: &str, arguments: &[&Path]| {
        io(Command::new(program).args(arguments).uid(OTHER_UID).gid(OTHER_UID).stderr(Stdio::null()).output())
    };
    let files = tree(&world.home).into_keys().collect::<Vec<_>>();
    check(files.iter().any(|path| path.starts_with(world.home.join("state/preimages"))), || {
        "no pre-image was left to try".into()
    })?;
    for path in &files {
        let output = as_other("cat", &[path])?;
        check(!output.status.success() && output.stdout.is_empty(), || {
            format!("uid {OTHER_UID} reads {}", path.display())
        })?;
    }
    let output = as_other("ls", &[&world.home])?;
    check(output.stdout.is_empty(), || "another uid lists the home".into())
}

/// A session whose root is `/` still does not reach the home.
fn out_of_reach_of_sessions(world: &World, secret: &str) -> Outcome {
    let session = world.open(json!({ "target": { "local": { "workdir": "/" } } }));
    let mut client = world.client();
    for path in tree(&world.home).into_keys().chain([world.home.clone()]) {
        for kind in ["host.fs.read_file", "host.fs.stat", "host.fs.list_dir"] {
            let receipt = client.effect(kind, json!({ "session_id": session, "path": path }));
            expect(&format!("{kind} {}", path.display()), &receipt, &["forbidden / path_outside_roots"])?;
            check(!receipt.to_string().contains(secret), || format!("the secret comes out: {receipt}"))?;
        }
    }
    Ok(())
}
