//! `aos doctor`: which isolation this machine supports, measured, and what commands get.

use aos_host::Abilities;

use crate::Exit;
use crate::render::{BAD, DIM, GOOD, STRONG};

pub(crate) fn run(json: bool) -> anyhow::Result<Exit> {
    let abilities = aos_host::abilities("/proc/self/exe".as_ref());
    let disk_full = crate::home::path().ok().and_then(|home| aos_store::is_disk_full(&home));
    if json {
        let mut all = serde_json::to_value(&abilities)?;
        if let Some(disk_full) = disk_full {
            all["disk_full"] = disk_full.into();
        }
        println!("{}", aos_model::text::escape_json(&all.to_string()));
    } else {
        show(&abilities);
        if disk_full == Some(true) {
            anstream::println!("{BAD}{}{BAD:#}", super::daemon::DISK_FULL);
        }
    }
    Ok(Exit::Success)
}

fn show(found: &Abilities) {
    anstream::println!("{STRONG}This machine{STRONG:#}");
    let line = |is: bool, name: &str, meaning: &str| {
        let (style, answer) = if is { (GOOD, "yes") } else { (BAD, "no ") };
        anstream::println!("  {style}{answer}{style:#}  {name:<18} {DIM}{meaning}{DIM:#}");
    };
    line(found.namespaces, "namespaces", "new mount, pid, ipc and uts namespaces for each command");
    line(
        found.network_namespace,
        "network namespace",
        "a new network namespace for each command, with loopback only",
    );
    line(found.landlock >= 2, "Landlock", &landlock(found.landlock));
    line(found.seccomp, "seccomp", "system calls that no command needs are refused");
    line(found.process_limit == "cgroup", "pids cgroup", process_limit(found.process_limit));
    line(found.memory_limit == "cgroup", "memory cgroup", memory_limit(found.memory_limit));
    line(found.overlay, "overlay", "overlayfs is available; undo of commands needs it");
    if let Some(obstacle) = &found.obstacle {
        anstream::println!("  {DIM}reason: {}{DIM:#}", aos_model::text::escape(obstacle));
    }
    anstream::println!("{STRONG}What commands get{STRONG:#}");
    for sentence in consequences(found) {
        anstream::println!("  {sentence}");
    }
}

fn landlock(version: u32) -> String {
    match version {
        0 => "restricts file access a second time; this kernel does not have it".to_owned(),
        1 => "version 1 refuses renames between folders, so it is not used".to_owned(),
        version => format!("restricts file access a second time, version {version}"),
    }
}

fn process_limit(mechanism: &str) -> &'static str {
    match mechanism {
        "cgroup" => "`max_processes` limits a command and its descendants",
        "pid_namespace" => "no cgroup: the pid namespace enforces `max_processes`, never below 301",
        "rlimit" => "no cgroup: RLIMIT_NPROC enforces `max_processes`, for all processes of the user",
        _ => "no cgroup: `max_processes` cannot be enforced",
    }
}

fn memory_limit(mechanism: &str) -> &'static str {
    match mechanism {
        "cgroup" => "`max_memory_bytes` limits a command and its descendants together",
        _ => "no cgroup: `max_memory_bytes` limits the address space of each process",
    }
}

/// Where there are no namespaces.
fn reduced(found: &Abilities) -> impl Iterator<Item = &'static str> {
    let lines: &[&str] = if found.isolation == "reduced" {
        &[
            "they run only in sessions opened with `--allow-reduced`",
            "they share the machine's processes and network, and cannot open sockets in folders",
            "they cannot access files outside the roots, the system and their home",
            "they cannot access /tmp; TMPDIR is a private folder",
            "their processes are found and ended one by one",
        ]
    } else {
        &["they do not run: without namespaces they need Landlock version 6 (Linux 6.12) and seccomp"]
    };
    lines.iter().copied()
}

fn consequences(found: &Abilities) -> Vec<String> {
    let mut lines = vec![format!("isolation auto: {STRONG}{}{STRONG:#}", found.isolation)];
    lines.push(if found.root {
        "they run as the owner of the session's workdir, without capabilities".to_owned()
    } else {
        "they run as you, without capabilities".to_owned()
    });
    if found.namespaces {
        lines.push("they see the session's roots, the system read-only, a private home and /tmp".to_owned());
        lines.push("all of their processes end with them".to_owned());
        lines.push("isolation strict is available".to_owned());
    } else {
        lines.push("isolation strict is refused".to_owned());
        lines.extend(reduced(found).map(str::to_owned));
    }
    if found.namespaces && !found.network_namespace {
        lines.push("they share the machine's network; `network_mode` `none` is refused".to_owned());
    }
    lines
}
