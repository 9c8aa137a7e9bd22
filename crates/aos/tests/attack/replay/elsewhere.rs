//! RPLY-02, RPLY-03: a replay depends only on the home, and touches nothing else.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use aos_testkit::{Programs, check, is_root, tree};

use super::Recorded;
use crate::Outcome;
use aos_testkit::torture::replay as replay_torture;

const OTHER_UID: u32 = 65_534;

fn io<T>(result: std::io::Result<T>) -> Result<T, String> {
    result.map_err(|why| why.to_string())
}

/// Copies a home: folders and files, without the socket. Files named `skip` are left out.
fn copy(from: &Path, to: &Path, skip: &str) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_name() == skip {
            continue;
        }
        match copy_entry(&entry, &to.join(entry.file_name()), skip) {
            // A daemon that runs moves pre-images into the blobs in the background; a replay needs neither.
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => {}
            outcome => outcome?,
        }
    }
    Ok(())
}

fn copy_entry(entry: &std::fs::DirEntry, to: &Path, skip: &str) -> std::io::Result<()> {
    let kind = entry.file_type()?;
    if kind.is_dir() {
        copy(&entry.path(), to, skip)?;
    } else if kind.is_file() {
        std::fs::copy(entry.path(), to)?;
    }
    Ok(())
}

/// How a replay is run.
struct Surroundings {
    what: &'static str,
    env: &'static [(&'static str, &'static str)],
    cwd: &'static str,
    umask: &'static str,
    cpu: &'static str,
    other_owner: bool,
}

const SURROUNDINGS: [Surroundings; 3] = [
    Surroundings {
        what: "far east, in C",
        env: &[("TZ", "Pacific/Kiritimati"), ("LANG", "C"), ("LC_ALL", "C"), ("HOME", "/nonexistent")],
        cwd: "/",
        umask: "000",
        cpu: "0",
        other_owner: false,
    },
    Surroundings {
        what: "far west, in Turkish",
        env: &[("TZ", "Etc/GMT+12"), ("LANG", "tr_TR.UTF-8"), ("LC_ALL", "tr_TR.UTF-8"), ("HOME", "/tmp")],
        cwd: "/usr",
        umask: "777",
        cpu: "0-1",
        other_owner: true,
    },
    Surroundings {
        what: "without anything",
        env: &[],
        cwd: "/proc",
        umask: "077",
        cpu: "0",
        other_owner: true,
    },
];

impl Surroundings {
    /// Replays the copy three times.
    fn replay(&self, program: &Path, home: &Path) -> Outcome {
        let as_other = self.other_owner && is_root();
        if as_other {
            chown_all(home, OTHER_UID)?;
        }
        for _ in 0..3 {
            let script =
                format!("umask {} && exec taskset -c {} \"$0\" replay --verify", self.umask, self.cpu);
            let mut command = Command::new("/bin/sh");
            command.args(["-c", &script]).arg(program).env_clear().env("AOS_HOME", home);
            command.env("PATH", "/usr/bin:/bin").envs(self.env.iter().copied()).current_dir(self.cwd);
            if as_other {
                command.uid(OTHER_UID).gid(OTHER_UID);
            }
            let output = io(command.stdin(Stdio::null()).output())?;
            let err = String::from_utf8_lossy(&output.stderr).into_owned();
            check(output.status.success() && output.stdout == b"MATCH\n" && err.is_empty(), || {
                let out = String::from_utf8_lossy(&output.stdout);
                format!("{} at {}: {}: {out}{err}", self.what, home.display(), output.status)
            })?;
        }
        if as_other {
            chown_all(home, 0)?;
        }
        Ok(())
    }
}

fn chown_all(home: &Path, uid: u32) -> Outcome {
    for path in tree(home).into_keys().chain([home.to_owned()]) {
        io(std::os::unix::fs::lchown(path, Some(uid), Some(uid)))?;
    }
    Ok(())
}

/// The client in a place that another uid can reach, wherever it was built.
fn program(recorded: &Recorded) -> Result<PathBuf, String> {
    let path = recorded.world.parent.join("aos");
    io(std::fs::copy(&Programs::built().aos, &path))?;
    io(std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)))?;
    Ok(path)
}

/// RPLY-02: of a home whose daemon is running, stopped or killed.
pub fn other_surroundings() -> Outcome {
    let mut recorded = Recorded::new(500)?;
    let program = program(&recorded)?;
    for what in ["running", "stopped", "killed"] {
        match what {
            "running" => {}
            "stopped" => drop(recorded.world.terminate()),
            _ => {
                recorded.world.start_daemon();
                recorded.world.kill9();
            }
        }
        let home = recorded.world.parent.join(what);
        io(copy(&recorded.world.home, &home, ""))?;
        for surroundings in &SURROUNDINGS {
            surroundings.replay(&program, &home).map_err(|why| format!("{what}: {why}"))?;
        }
    }
    recorded.world.finish()
}

/// A copy that its reader may not write to gives the same result. A copy without the log's index, as a careful tool
/// makes it, is read too, or the refusal says what is missing.
pub fn read_only_copies() -> Outcome {
    let mut recorded = Recorded::new(60)?;
    let program = program(&recorded)?;
    recorded.world.kill9();
    let home = recorded.world.parent.join("read-only");
    io(copy(&recorded.world.home, &home, ""))?;
    close_all(&home)?;
    Surroundings { what: "read-only", ..SURROUNDINGS[2] }.replay(&program, &home)?;
    let home = recorded.world.parent.join("no-index");
    io(copy(&recorded.world.home, &home, "journal.db-shm"))?;
    if let Err(said) = (Surroundings { what: "without the index", ..SURROUNDINGS[0] }).replay(&program, &home)
    {
        let told = said.contains("journal.db-shm") || said.contains("aos daemon start");
        check(told, || format!("does not say what is missing: {said}"))?;
    }
    recorded.world.finish()
}

/// Removes every permission to write. Root can still write; the replay then runs as another user.
fn close_all(home: &Path) -> Outcome {
    for (path, what) in tree(home).into_iter().chain([(home.to_owned(), "dir".to_owned())]) {
        let mode = if what == "dir" { 0o500 } else { 0o400 };
        io(std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)))?;
    }
    Ok(())
}

/// RPLY-03: beside a running daemon, after a stop, after a kill.
pub fn watched() -> Outcome {
    in_each_state(|recorded, what| {
        let calls = trace(recorded, what)?;
        let out = |call: &&String| replay_torture::reaches_out(call, &recorded.world.home);
        let reaching: Vec<&String> = calls.iter().filter(out).take(5).collect();
        check(reaching.is_empty(), || format!("{what}: {reaching:?}"))?;
        let programs = calls.iter().filter(|call| call.contains("execve(")).count();
        check(programs == 1, || format!("{what}: {programs} programs were started"))
    })
}

/// Inside the home nothing is opened for writing either: a replay only reads there.
pub fn watched_at_home() -> Outcome {
    in_each_state(|recorded, what| {
        let calls = trace(recorded, what)?;
        let writing: Vec<&String> =
            calls.iter().filter(|call| replay_torture::opens_to_write(call)).take(5).collect();
        check(writing.is_empty(), || format!("{what}: {writing:?}"))
    })
}

fn in_each_state(look: impl Fn(&Recorded, &str) -> Outcome) -> Outcome {
    let mut recorded = Recorded::new(100)?;
    look(&recorded, "running")?;
    recorded.world.terminate();
    look(&recorded, "stopped")?;
    recorded.world.start_daemon();
    recorded.world.kill9();
    look(&recorded, "killed")?;
    recorded.world.finish()
}

/// Every call of a replay that reaches outside the process, with its arguments. The home stays as it was.
fn trace(recorded: &Recorded, what: &str) -> Result<Vec<String>, String> {
    let trace = recorded.world.parent.join("trace");
    // The daemon may still finalize the pre-images of the last mutations.
    let mut before = tree(&recorded.world.home);
    aos_testkit::wait_for("the home to come to rest", || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let last = std::mem::replace(&mut before, tree(&recorded.world.home));
        last == before
    })?;
    let mut command = Command::new("strace");
    command.args(["-f", "-s", "4096", "-e", replay_torture::WATCH, "-o"]).arg(&trace);
    command.arg(&Programs::built().aos).args(["replay", "--verify"]).env("AOS_HOME", &recorded.world.home);
    // Cargo sets it, and the loader would search every library there first.
    command.env_remove("LD_LIBRARY_PATH");
    let output = io(command.stdin(Stdio::null()).output())?;
    check(output.stdout == b"MATCH\n", || format!("{what}: {}", String::from_utf8_lossy(&output.stderr)))?;
    check(tree(&recorded.world.home) == before, || format!("{what}: the replay changed the home"))?;
    Ok(replay_torture::calls(&io(std::fs::read_to_string(&trace))?))
}
