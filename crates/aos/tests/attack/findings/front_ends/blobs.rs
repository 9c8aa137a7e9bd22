//! S35: `aos blob put`, of what, how much, and what is left when it is killed.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use aos_testkit::{Findings, World, check, tree, wait_for};

use crate::Outcome;

/// `aos blob put` with a bound on its time: what it must refuse may have no end.
fn command(world: &World, arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["60"]).arg(&world.programs.aos).args(["blob", "put"]).args(arguments);
    command
        .env("AOS_HOME", &world.home)
        .current_dir(&world.root)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn put(world: &World, arguments: &[&str], input: Stdio) -> Output {
    command(world, arguments).stdin(input).output().expect("aos runs")
}

fn is_refused(output: &Output, why: &str) -> bool {
    output.status.code() == Some(1) && String::from_utf8_lossy(&output.stderr).contains(why)
}

/// How many bytes the store holds in blobs, finished or not.
fn stored_bytes(world: &World) -> u64 {
    let blobs = world.home.join("state/blobs");
    tree(&blobs)
        .keys()
        .filter_map(|path| blobs.join(path).metadata().ok())
        .filter(std::fs::Metadata::is_file)
        .map(|meta| meta.len())
        .sum()
}

/// Regular files and pipes are stored, by name and as standard input; nothing else is opened.
pub(super) fn only_files_and_pipes() -> Outcome {
    let world = World::new();
    let file = world.write("file", "content\n");
    let mut findings = Findings::default();
    std::os::unix::fs::symlink("/dev/zero", world.root.join("link")).unwrap();
    drop(UnixListener::bind(world.root.join("socket")).unwrap());
    for special in ["/dev/zero", "/dev/null", "/dev/urandom", "/dev/full", "/dev/tty", ".", "socket", "link"]
    {
        let output = put(&world, &[special], Stdio::null());
        findings.add(check(is_refused(&output, "neither a regular file nor a pipe"), || {
            format!("{special}: {output:?}")
        }));
    }
    for special in ["/dev/zero", "/dev/full"] {
        let input = std::fs::File::open(special).unwrap();
        let output = put(&world, &["-"], input.into());
        findings.add(check(is_refused(&output, "standard input is neither"), || {
            format!("{special}: {output:?}")
        }));
    }
    findings.add(check(stored_bytes(&world) == 0, || "something was stored".into()));
    let wanted = put(&world, &["file"], Stdio::null()).stdout;
    findings.add(check(wanted.starts_with(b"sha256:"), || format!("{wanted:?}")));
    let fifo = world.root.join("fifo");
    check(Command::new("mkfifo").arg(&fifo).status().is_ok_and(|made| made.success()), || "mkfifo".into())?;
    let writer = std::thread::spawn(move || std::fs::write(fifo, "content\n"));
    findings.add(check(put(&world, &["fifo"], Stdio::null()).stdout == wanted, || "a FIFO".into()));
    writer.join().expect("the writer ends").map_err(|why| why.to_string())?;
    let input = std::fs::File::open(&file).unwrap();
    findings.add(check(put(&world, &["-"], input.into()).stdout == wanted, || "a file as input".into()));
    findings.add(check(piped(&world, &["-"], b"content\n").stdout == wanted, || "a pipe as input".into()));
    findings.add(world.finish());
    findings.outcome()
}

fn piped(world: &World, arguments: &[&str], bytes: &[u8]) -> Output {
    let mut child = command(world, arguments).stdin(Stdio::piped()).spawn().expect("aos starts");
    let _ = child.stdin.take().expect("piped").write_all(bytes);
    child.wait_with_output().expect("aos ends")
}

/// At most 1 GiB, or as much as `--max-bytes` says; nothing is left of what was too much.
pub(super) fn the_bound() -> Outcome {
    let world = World::new();
    world.write("ten", "0123456789");
    let mut findings = Findings::default();
    let sparse = std::fs::File::create(world.root.join("sparse")).unwrap();
    sparse.set_len((1 << 30) + 1).map_err(|why| why.to_string())?;
    let refused = |output: Output| is_refused(&output, "--max-bytes");
    findings.add(check(refused(put(&world, &["sparse"], Stdio::null())), || "1 GiB and a byte".into()));
    findings.add(check(refused(put(&world, &["ten", "--max-bytes", "9"], Stdio::null())), || "nine".into()));
    let many = vec![b'x'; 3 << 20];
    for bound in ["0", "1", "65536", "3145727"] {
        let output = piped(&world, &["-", "--max-bytes", bound], &many);
        findings.add(check(refused(output.clone()), || format!("{bound}: {output:?}")));
    }
    findings.add(check(stored_bytes(&world) == 0, || "something was stored".into()));
    let output = put(&world, &["ten", "--max-bytes", "10"], Stdio::null());
    findings.add(check(output.status.success(), || format!("ten: {output:?}")));
    let output = piped(&world, &["-", "--max-bytes", "3145728"], &many);
    findings.add(check(output.status.success(), || format!("exactly: {output:?}")));
    findings.add(world.finish());
    findings.outcome()
}

/// A put that is killed leaves nothing; what an older version left is gone after the next start.
pub(super) fn killed_puts_leave_nothing() -> Outcome {
    let mut world = World::new();
    let mut child = Command::new(&world.programs.aos)
        .args(["blob", "put", "-"])
        .env("AOS_HOME", &world.home)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|why| why.to_string())?;
    let mut input = child.stdin.take().expect("piped");
    input.write_all(&vec![b'x'; 32 << 20]).map_err(|why| why.to_string())?;
    let opened = format!("/proc/{}/fd", child.id());
    wait_for("the bytes to be in a file", || {
        let files = std::fs::read_dir(&opened).into_iter().flatten().flatten();
        files
            .filter_map(|file| file.path().metadata().ok())
            .any(|meta| meta.is_file() && meta.len() > 30 << 20)
    })?;
    child.kill().map_err(|why| why.to_string())?;
    let mut out = String::new();
    let _ = child.stdout.take().expect("piped").read_to_string(&mut out);
    let _ = child.wait();
    let left = stored_bytes(&world);
    check(out.is_empty() && left == 0, || format!("{left} bytes are left; {out}"))?;
    let blobs = world.home.join("state/blobs");
    let leave = |name: &str| std::fs::write(blobs.join(name), vec![b'x'; 1 << 20]).unwrap();
    ["tmp-1-0", "tmp-4242-7"].into_iter().for_each(leave);
    world.kill9();
    world.start_daemon();
    let is_gone = |name: &str| !Path::new(&blobs).join(name).exists();
    check(is_gone("tmp-1-0") && is_gone("tmp-4242-7"), || "unfinished blobs are kept".into())?;
    world.finish()
}
