//! Another uid cannot connect at any moment, and is rejected where the socket was opened to it.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use aos_testkit::{Start, World, check, is_full, tree, wait_for};

use super::{list_call, shown};
use crate::Outcome;

const OTHER_UID: u32 = 65_534;
const CONNECTED: u8 = 7;
const ANSWERED: u8 = 8;
const TURNED_AWAY: u8 = 9;

/// This program again, under another uid: tries to connect forever, or sends one request.
pub fn other_uid() -> Option<ExitCode> {
    if let Some(socket) = std::env::var_os("AOS_ATTACK_KNOCK") {
        println!("knocking");
        loop {
            if UnixStream::connect(&socket).is_ok() {
                return Some(CONNECTED.into());
            }
        }
    }
    let socket = std::env::var_os("AOS_ATTACK_SPEAK")?;
    let Ok(mut stream) = UnixStream::connect(&socket) else { return Some(ExitCode::FAILURE) };
    let _ = stream.write_all(format!("{}\n", list_call("1")).as_bytes());
    let mut answer = [0; 1];
    let answered = stream.read(&mut answer).is_ok_and(|bytes| bytes > 0);
    Some(if answered { ANSWERED.into() } else { TURNED_AWAY.into() })
}

pub(super) struct Stranger {
    pub(super) child: Child,
}

impl Stranger {
    fn start(program: &Path, variable: &str, socket: &Path) -> Stranger {
        let mut command = Command::new(program);
        command.env_clear().env(variable, socket).uid(OTHER_UID).gid(OTHER_UID);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the other uid may run the copy");
        if variable == "AOS_ATTACK_KNOCK" {
            // The race begins only once this process runs.
            let mut said = [0; 8];
            let _ = child.stdout.as_mut().expect("asked for above").read_exact(&mut said);
        }
        Stranger { child }
    }

    /// The exit code, if it has ended.
    pub(super) fn ended(&mut self) -> Option<i32> {
        self.child.try_wait().unwrap().map(|status| status.code().unwrap_or(-1))
    }

    fn end(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) fn other_uids_cannot_connect() -> Outcome {
    let umask = ["sh", "-c", "umask 000; exec \"$@\"", "sh"].map(str::to_owned);
    let mut world = World::asleep(Start { wrapper: umask.into(), ..Start::default() });
    let program = world.parent.join("stranger");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    knocking_has_teeth(&world, &program)?;
    let socket = world.home.join("run/aosd.sock");
    for round in 0..if is_full() { 100 } else { 8 } {
        std::fs::remove_dir_all(&world.home).unwrap();
        std::fs::create_dir(&world.home).unwrap();
        // In every other round the folders exist already, open to all users.
        for folder in ["", "run", "state"].into_iter().take(if round % 2 == 0 { 0 } else { 3 }) {
            let _ = std::fs::create_dir(world.home.join(folder));
            std::fs::set_permissions(world.home.join(folder), std::fs::Permissions::from_mode(0o777))
                .unwrap();
        }
        let mut stranger = Stranger::start(&program, "AOS_ATTACK_KNOCK", &socket);
        world.start_daemon();
        modes_are_tight(&world)?;
        check(stranger.ended().is_none(), || format!("round {round}: another uid connected"))?;
        drop(stranger);
        if round == 0 {
            strangers_are_turned_away(&world, &program)?;
        }
        world.kill9();
    }
    std::fs::remove_dir_all(&world.home).unwrap();
    world.finish()
}

/// The probe does connect to an open socket; otherwise its failure would prove nothing.
fn knocking_has_teeth(world: &World, program: &Path) -> Outcome {
    let open = world.parent.join("open.sock");
    let _listener = UnixListener::bind(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o666)).unwrap();
    let code = Stranger::start(program, "AOS_ATTACK_KNOCK", &open).end();
    check(code == Some(CONNECTED.into()), || format!("the stranger cannot even knock: {code:?}"))
}

/// Closed to all other users from the first moment; the exact modes follow once the daemon has set them.
fn modes_are_tight(world: &World) -> Outcome {
    for entry in walk(&world.home) {
        let mode = entry.symlink_metadata().map_or(0, |meta| meta.mode());
        check(mode & 0o077 == 0, || format!("{} is open: {mode:o}", shown(&entry)))?;
    }
    let mode = |path: &str| world.home.join(path).symlink_metadata().map_or(0, |meta| meta.mode() & 0o7777);
    for (path, wanted) in [("", 0o700), ("run", 0o700), ("state", 0o700), ("run/aosd.sock", 0o600)] {
        wait_for(&format!("{path:?} to have mode {wanted:o}"), || mode(path) == wanted)?;
    }
    Ok(())
}

fn walk(dir: &Path) -> Vec<PathBuf> {
    tree(dir).into_keys().collect()
}

/// Even where the folders were opened by hand, the daemon checks the peer's uid.
fn strangers_are_turned_away(world: &World, program: &Path) -> Outcome {
    let socket = world.home.join("run/aosd.sock");
    for (path, mode) in
        [(world.home.clone(), 0o755), (world.home.join("run"), 0o755), (socket.clone(), 0o666)]
    {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let code = Stranger::start(program, "AOS_ATTACK_SPEAK", &socket).end();
    check(code == Some(TURNED_AWAY.into()), || format!("a stranger was not turned away: {code:?}"))
}
