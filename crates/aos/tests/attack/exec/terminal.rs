//! The daemon's terminal, where it has one, is out of a command's reach.

use aos_testkit::{Findings, Start, World, check};
use serde_json::json;

use super::room::Room;
use crate::Outcome;

pub fn no_terminal() -> Outcome {
    let wrapper = ["script", "-q", "-f", "-O", "/dev/null", "-c"].map(str::to_owned).to_vec();
    let world = World::with(Start { wrapper, ..Start::default() });
    let room = Room::of(world, json!({ "policy": { "preset": "permissive" } }));
    room.plant_probe();
    let mut findings = Findings::default();
    for line in room.probe("terminal")? {
        findings.add(check(!line.ends_with(" typed"), || format!("it types into the terminal: {line}")));
        if line.starts_with("/dev/tty") {
            findings.add(check(line.ends_with("ENXIO") || line.ends_with("ENOENT"), || {
                format!("it has a terminal: {line}")
            }));
        }
    }
    let stat = room.says("cat /proc/self/stat")?;
    let terminal =
        stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(4)).unwrap_or("?").to_owned();
    findings.add(check(terminal == "0", || format!("its terminal is {terminal}: {stat}")));
    let seen = room.says("ls /dev/pts")?;
    findings.add(check(seen.lines().all(|name| name == "ptmx"), || format!("/dev/pts holds {seen}")));
    // Ctrl-C goes to the terminal's foreground group, the daemon's; a command is not in that group.
    let receipt = room.sh("[ -t 0 ] || [ -t 1 ] || [ -t 2 ]");
    findings.add(check(receipt["exit_code"] != 0, || format!("a stream is a terminal: {receipt}")));
    findings.add(room.nothing_runs());
    findings.add(room.world_finish());
    findings.outcome()
}
