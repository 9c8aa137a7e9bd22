//! `aos doctor`: what this machine can do for commands, found by trying, and what they therefore get.

use aos_host::Abilities;

use crate::Exit;
use crate::render::{BAD, DIM, GOOD, STRONG};

pub(crate) fn run(json: bool) -> anyhow::Result<Exit> {
    let abilities = aos_host::abilities("/proc/self/exe".as_ref());
    if json {
        println!("{}", aos_model::text::escape_json(&serde_json::to_string(&abilities)?));
    } else {
        show(&abilities);
    }
    Ok(Exit::Success)
}

fn show(found: &Abilities) {
    anstream::println!("{STRONG}This machine{STRONG:#}");
    let line = |is: bool, name: &str, meaning: &str| {
        let (style, word) = if is { (GOOD, "yes") } else { (BAD, "no ") };
        anstream::println!("  {style}{word}{style:#}  {name:<18} {DIM}{meaning}{DIM:#}");
    };
    line(found.namespaces, "namespaces", "own mounts, processes, ipc and host name for each command");
    line(found.network_namespace, "own network", "each command alone with its own 127.0.0.1");
    line(found.landlock >= 2, "Landlock", &landlock(found.landlock));
    line(found.seccomp, "seccomp", "system calls that no command needs are refused");
    line(found.process_limit == "cgroup", "process groups", process_limit(found.process_limit));
    line(found.memory_limit == "cgroup", "memory groups", memory_limit(found.memory_limit));
    line(
        found.overlay,
        "overlay",
        "the kernel knows overlay file systems, on which the undo of commands stands",
    );
    if let Some(obstacle) = &found.obstacle {
        anstream::println!("  {DIM}in the way: {}{DIM:#}", aos_model::text::escape(obstacle));
    }
    anstream::println!("{STRONG}What commands get{STRONG:#}");
    for sentence in consequences(found) {
        anstream::println!("  {sentence}");
    }
}

fn landlock(version: u32) -> String {
    match version {
        0 => "a second wall around files; this kernel has none".to_owned(),
        1 => "version 1 makes renames between folders fail, so it is not used".to_owned(),
        version => format!("a second wall around files, version {version}"),
    }
}

fn process_limit(who: &str) -> &'static str {
    match who {
        "cgroup" => "`max_processes` holds for a command and all it starts",
        "pid_namespace" => "no control groups: `max_processes` is kept by the pid namespace, never below 301",
        "rlimit" => {
            "no control groups: `max_processes` is kept by the kernel's count of the user's processes"
        }
        _ => "no control groups: `max_processes` cannot be kept",
    }
}

fn memory_limit(who: &str) -> &'static str {
    match who {
        "cgroup" => "`max_memory_bytes` holds for a command and all it starts, together",
        _ => "no control groups: `max_memory_bytes` holds for the address space of each process",
    }
}

fn consequences(found: &Abilities) -> Vec<String> {
    let mut said = vec![format!("isolation auto: {STRONG}{}{STRONG:#}", found.isolation)];
    said.push(if found.root {
        "they run as the owner of the session's workdir, without capabilities".to_owned()
    } else {
        "they run as you, without capabilities".to_owned()
    });
    if found.namespaces {
        said.push("they see the session's roots, the system read-only, a private home and /tmp".to_owned());
        said.push("all their processes end with them".to_owned());
        said.push("isolation strict can be had".to_owned());
    } else {
        said.push("they share the machine's processes and network; isolation strict is refused".to_owned());
        if found.landlock >= 2 {
            said.push("files outside the roots, the system and their home are out of reach".to_owned());
            said.push("/tmp is out of reach too: TMPDIR names a private one".to_owned());
        }
        said.push("their processes are found and ended one by one".to_owned());
    }
    if found.namespaces && !found.network_namespace {
        said.push("they share the machine's network; `network_mode` `none` is refused".to_owned());
    }
    said
}
