//! The sandbox itself: no privilege is gained, dangerous system calls are denied, and missing isolation is reported.

use std::os::unix::fs::PermissionsExt as _;

use aos_testkit::{Findings, Start, World, check, expect, is_root, warning_codes};
use serde_json::{Value, json};

use super::room::{Room, SECOND, in_time, ns, ordinary};
use crate::Outcome;

fn permissive() -> Value {
    json!({ "policy": { "preset": "permissive" } })
}

/// Attempts to become root: the effective uid must stay the same.
const GAIN: &[&str] = &[
    "sudo -n id -u",
    "su root -c 'id -u'",
    "./helper -u",
    "newgrp root < /dev/null; id -G | grep -w 0",
    "setpriv --reuid 0 --clear-groups id -u",
    "unshare -Ur --map-root-user sh -c 'cat /etc/shadow'",
    "python3 -c 'import os; os.setuid(0); print(os.getuid())'",
    "chroot / id -u",
    "mount -t tmpfs none /tmp && id -u",
    "nsenter -t 1 -a id -u",
    "capsh --has-p=cap_sys_admin",
    "chown 0:0 f && chmod u+s f && [ -u f ] && ./f",
];

pub fn no_privileges_to_gain() -> Outcome {
    let room = Room::permissive();
    let said = room.says("grep -E 'NoNewPrivs|Cap(Prm|Eff|Amb|Inh)' /proc/self/status | tr -d '\\t'")?;
    check(said.contains("NoNewPrivs:1"), || said.clone())?;
    for set in ["CapPrm", "CapEff", "CapAmb", "CapInh"] {
        check(said.contains(&format!("{set}:0000000000000000")), || said.clone())?;
    }
    for script in ["sudo -n true", "mount -t tmpfs none .", "chroot / true", "date -s @$(date +%s)"] {
        let receipt = room.sh(script);
        check(receipt["exit_code"] != 0, || format!("{script}: {receipt}"))?;
    }
    if !is_root() {
        gains_nothing(&room)?;
    }
    room.finish()
}

fn gains_nothing(room: &Room) -> Outcome {
    for script in GAIN {
        let receipt = room.exec(json!({ "argv": ["sh", "-c", script], "timeout_ns": ns(10 * SECOND) }));
        let out = room.stdout(&receipt);
        check(receipt["exit_code"] != 0 || !out.lines().any(|line| line.trim() == "0"), || {
            format!("{script}: {receipt}")
        })?;
    }
    Ok(())
}

/// A setuid program, in the root and on the system.
pub fn a_setuid_helper() -> Outcome {
    let world = World::new();
    std::fs::copy("/usr/bin/id", world.root.join("helper")).map_err(|why| why.to_string())?;
    std::fs::set_permissions(world.root.join("helper"), std::fs::Permissions::from_mode(0o6755)).unwrap();
    std::os::unix::fs::chown(&world.root, Some(12_345), Some(12_345)).unwrap();
    let room = Room::of(world, permissive());
    let said = room.says("id -u; ./helper -u; ./helper -g")?;
    check(said == "12345\n12345\n12345", || format!("it became {said}"))?;
    gains_nothing(&room)?;
    room.finish()
}

pub fn a_mount_inside() -> Outcome {
    let room = Room::permissive();
    let root = room.world.root.display().to_string();
    for script in [
        format!("unshare -Urm sh -c 'mount -t tmpfs t {root} && touch {root}/x'"),
        format!("unshare -Urm sh -c 'mount --bind / {root} && touch {root}/x'"),
        format!("unshare -Ur chroot / sh -c 'touch {root}/../x'"),
        "unshare -Urn ip link".into(),
        format!("unshare -Urpf --mount-proc sh -c 'cat /proc/1/environ; touch {root}/../x'"),
        "unshare -Urm sh -c 'umount -l /proc; umount -l /tmp; umount -l /; ls -A /run /root/.ssh'".into(),
    ] {
        let receipt = room.sh(&script);
        expect(&script, &receipt, &["ok", "signaled"])?;
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    check(!mounts.contains(&root), || "$R is a mount on the host".into())?;
    for name in ["x", "../x"] {
        check(!room.world.root.join(name).exists(), || format!("{name} landed"))?;
    }
    room.finish()
}

pub fn denied_calls() -> Outcome {
    let room = Room::permissive();
    room.plant_probe();
    let mut findings = Findings::default();
    let answers = room.probe("calls")?;
    check(answers.len() > 20, || format!("the probe says {answers:?}"))?;
    for line in answers {
        let (name, errno) = line.split_once(' ').unwrap_or((&line, ""));
        let allowed: &[&str] = match name {
            "io_uring_setup" | "io_uring_enter" | "io_uring_register" => &["ENOSYS"],
            "add_key" | "keyctl" | "request_key" | "mount" | "umount2" | "pivot_root" => &["EPERM"],
            // A call that the kernel does not have, or refuses by itself, is as safe.
            _ => {
                &["EPERM", "ENOSYS", "EACCES", "EAFNOSUPPORT", "EINVAL", "EBADF", "ESRCH", "EFAULT", "ENODEV"]
            }
        };
        findings.add(check(allowed.contains(&errno), || format!("{name} answers {errno}")));
    }
    // The calls that ordinary programs need work.
    for line in room.probe("needed")? {
        findings.add(check(line.ends_with(" ok"), || format!("needed: {line}")));
    }
    findings.add(room.finish());
    findings.outcome()
}

/// Preloaded code runs with the command's privileges, not with the launcher's.
pub fn preloaded_code() -> Outcome {
    let room = Room::permissive();
    let source = "#include <stdio.h>\n#include <string.h>\n__attribute__((constructor)) static void run(void) {\n\
        FILE *f = fopen(\"/proc/self/status\", \"r\"); char line[256];\n\
        while (f && fgets(line, sizeof line, f)) if (!strncmp(line, \"CapEff\", 6) || !strncmp(line, \"NoNewPrivs\", 10)) fputs(line, stderr);\n}\n";
    room.world.write("evil.c", source);
    let built = room.sh("cc -shared -fPIC -o evil.so evil.c");
    check(built["exit_code"] == 0, || format!("cc: {built}"))?;
    let library = room.world.root.join("evil.so").display().to_string();
    let run = |params: Value| {
        let receipt = room.exec(params);
        let said = room.stderr(&receipt);
        let bad = said.lines().find(|line| {
            let value = line.split_whitespace().nth(1).unwrap_or_default();
            if line.starts_with("CapEff") { value != "0000000000000000" } else { value != "1" }
        });
        check(receipt["exit_code"] == 0 && bad.is_none() && said.contains("CapEff"), || {
            format!("{said}: {receipt}")
        })
    };
    for variable in ["LD_PRELOAD", "LD_AUDIT"] {
        let receipt = room.exec(json!({ "argv": ["true"], "env_patch": { variable: library } }));
        expect(variable, &receipt, &["ok"])?;
    }
    run(json!({ "argv": ["true"], "env_patch": { "LD_PRELOAD": library } }))?;
    room.finish()
}

/// Without isolation the receipt says so; processes are still ended and limits still hold.
pub fn without_isolation() -> Outcome {
    let world = World::new();
    let receipt = world.open_receipt(json!({ "isolation": "none" }));
    expect("none", &receipt, &["ready"])?;
    let room = Room::of(world, json!({ "isolation": "none", "policy": { "preset": "permissive" } }));
    let walls = Room::new();
    let (open, closed) = (room.run(&["true"]), walls.run(&["true"]));
    check(open["isolation_applied"] != closed["isolation_applied"], || {
        format!("the receipts do not say which is which: {open}")
    })?;
    walls.finish()?;
    for script in [
        "sleep 300 & echo done",
        "setsid sleep 301 & echo x",
        "setsid sh -c 'trap \"\" TERM HUP INT; (setsid sleep 302 &) ; sleep 303' & sleep 0.2",
        "(while :; do echo spam; sleep 0.01; done) & exit 0",
    ] {
        let receipt = in_time(script, 3 * SECOND, || room.sh(script))?;
        expect(script, &receipt, &["ok"])?;
        room.nothing_runs().map_err(|why| format!("{script}: {why}"))?;
    }
    for script in
        ["sleep 300", "setsid sleep 300 & setsid sleep 300 & wait", "trap '' TERM; sleep 300; sleep 300"]
    {
        let params = json!({ "argv": ["sh", "-c", script], "timeout_ns": ns(SECOND) });
        let receipt = in_time(script, 3 * SECOND, || room.exec(params))?;
        expect(script, &receipt, &["timeout"])?;
        room.nothing_runs().map_err(|why| format!("{script}: {why}"))?;
    }
    // The environment is clean and privileges are dropped even so.
    let said = room.says("cat /proc/self/status | grep -e NoNewPrivs -e CapEff | tr -d '\\t'; env")?;
    check(said.contains("NoNewPrivs:1") && said.contains("CapEff:0000000000000000"), || said.clone())?;
    check(!said.contains("AOS_HOME"), || said.clone())?;
    room.finish()
}

/// The same sandbox where the daemon belongs to an ordinary user.
pub fn an_ordinary_users_daemon() -> Outcome {
    let start = ordinary();
    let uid = start.uid.unwrap_or_else(|| rustix::process::geteuid().as_raw());
    let world = World::with(start);
    let room = Room::of(world, permissive());
    let receipt = room.run(&["true"]);
    check(warning_codes(&receipt).is_empty(), || format!("it warns: {receipt}"))?;
    let said = room.says("id -u; id -g; touch mine; stat -c %u mine; grep NoNewPrivs /proc/self/status | tr -d '\\t'; [ -w ~ ]; echo $$")?;
    check(said.starts_with(&format!("{uid}\n{uid}\n{uid}\nNoNewPrivs:1\n")), || format!("it says {said}"))?;
    let outside = room.world.outside.display().to_string();
    for script in [format!("cat {outside}/secret"), "ls /run/*".into(), "ls /proc/*/exe | grep aosd".into()] {
        check(room.sh(&script)["exit_code"] != 0, || format!("{script} worked"))?;
    }
    let receipt = in_time("a timeout", 3 * SECOND, || {
        room.exec(json!({ "argv": ["sh", "-c", "setsid sleep 300 & sleep 300"], "timeout_ns": ns(SECOND) }))
    })?;
    expect("a timeout", &receipt, &["timeout"])?;
    let strict = room.world.open_receipt(json!({ "isolation": "strict" }));
    expect("strict", &strict, &["ready"])?;
    room.plant_probe();
    check(room.probe("calls")?.iter().all(|line| !line.ends_with(" ok")), || "a call is open".into())?;
    room.finish()
}

/// A daemon without privileges on a machine that permits no user namespaces.
pub fn no_namespaces() -> Start {
    Start::without_namespaces()
}

/// Without user namespaces and without privileges, the receipt does not report isolation that was not applied.
pub fn without_user_namespaces() -> Outcome {
    let world = World::with(no_namespaces());
    let strict = world.open_receipt(json!({ "isolation": "strict" }));
    expect("strict", &strict, &["error / isolation_unavailable"])?;
    let target = json!({ "local": { "workdir": world.root, "network_mode": "none" } });
    expect(
        "no network",
        &world.open_receipt(json!({ "target": target })),
        &["error / isolation_unavailable"],
    )?;
    let room = Room::of(world, json!({ "policy": { "preset": "permissive" }, "allow_reduced": true }));
    let receipt = room.run(&["true"]);
    expect("true", &receipt, &["ok"])?;
    check(receipt["isolation_applied"] == "reduced", || format!("{receipt}"))?;
    check(warning_codes(&receipt).contains(&"network_not_isolated"), || format!("no warning: {receipt}"))?;
    let said = room.says("grep -e NoNewPrivs -e CapEff /proc/self/status | tr -d '\\t'")?;
    check(said.contains("NoNewPrivs:1") && said.contains("CapEff:0000000000000000"), || said.clone())?;
    // What is still possible is applied: the process tree is killed, and Landlock's rules hold.
    for script in ["sleep 300 & echo x", "setsid sleep 300 & echo x"] {
        let receipt = in_time(script, 3 * SECOND, || room.sh(script))?;
        expect(script, &receipt, &["ok"])?;
        room.nothing_runs().map_err(|why| format!("{script}: {why}"))?;
    }
    let (outside, home) = (room.world.outside.display().to_string(), room.world.home.display().to_string());
    for script in [
        format!("cat {outside}/secret"),
        format!("echo x > {home}/state/journal.db"),
        format!("echo x > {outside}/new"),
    ] {
        let receipt = room.sh(&script);
        check(receipt["exit_code"] != 0, || format!("{script}: {receipt}"))?;
    }
    room.world_finish()
}
