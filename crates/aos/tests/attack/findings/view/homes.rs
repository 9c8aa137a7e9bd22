//! Homes, toolchains and our own state: what PATH may show of them, and what it never shows.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use aos_testkit::{Findings, Start, World, check};
use serde_json::{Value, json};

use crate::exec::room::Room;
use crate::{Case, Need, Outcome, plain};

pub(super) fn cases() -> Vec<Case> {
    vec![
        plain("S6", a_home_on_path_by_any_name),
        Case { id: "OWN-S6-ALIAS", needs: &[Need::Root], run: a_home_by_a_bind_mount },
        plain("OWN-S6-STATE", our_state_on_path),
        plain("OWN-S6-ROWS", toolchains_are_shown_one_by_one),
        plain("OWN-S6-ENV", env_patch_widens_nothing),
        plain("OWN-S6-NETWORK", caches_belong_to_a_session_with_a_network),
        plain("OWN-S6-LINKS", links_beside_a_bin_lead_nowhere),
        plain("S10", one_toolchain_on_path_shows_no_other),
        Case { id: "OWN-S10-UID", needs: &[Need::Root], run: nothing_that_the_user_could_not_reach },
        Case { id: "S11", needs: &[Need::Root], run: what_only_root_may_read },
        Case { id: "OWN-S11-WALK", needs: &[Need::Root], run: what_only_root_may_read_without_mapped_ids },
    ]
}

/// A world whose daemon has this home and PATH; `{user}` in PATH is the home.
struct Person {
    world: World,
    home: PathBuf,
}

impl Person {
    fn new() -> Person {
        let world = World::asleep(Start::default());
        let home = world.parent.join("user");
        let person = Person { world, home };
        for name in [".ssh/id_ed25519", "secret", ".netrc", ".config/gh/hosts.yml"] {
            person.secret(name);
        }
        person.file("bin/own", "#!/bin/sh\necho own\n");
        person
    }

    fn file(&self, name: &str, content: &str) {
        write(&self.home.join(name), content);
    }

    fn secret(&self, name: &str) {
        self.file(name, &self.world.canary);
    }

    fn room(mut self, path: &str, session: Value) -> Room {
        let user = self.home.display().to_string();
        let path =
            path.replace("{user}", &user).replace("{parent}", &self.world.parent.display().to_string());
        let env = vec![("HOME".to_owned(), user), ("PATH".to_owned(), format!("{path}:/usr/bin:/bin"))];
        self.world.set_start(Start { env, ..Start::default() });
        self.world.start_daemon();
        Room::of(self.world, session)
    }
}

fn write(path: &Path, content: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn permissive() -> Value {
    json!({ "policy": { "preset": "permissive" } })
}

/// Reads everything below a folder; the room's end searches the answers for the canary.
fn read_all(room: &Room, folder: &Path) -> Value {
    room.sh(&format!("cd {} && find . && find . -type f -exec cat {{}} +; true", folder.display()))
}

/// The home on PATH, whatever it is called, shows nothing of itself; a folder in it shows only itself.
fn a_home_on_path_by_any_name() -> Outcome {
    let mut findings = Findings::default();
    for path in [
        "{user}",
        "{user}/.",
        "{user}/",
        "{user}/bin/..",
        "{parent}/alias",
        "{parent}/alias/.ssh",
        "{user}/.ssh",
        "{user}/.config",
        "{parent}",
        "{parent}/tool/bin",
        "{parent}/up/bin",
        ":.:../user:user",
    ] {
        let person = Person::new();
        let parent = person.world.parent.clone();
        let home = person.home.clone();
        symlink(&home, parent.join("alias")).unwrap();
        // A `bin` beside a `lib`, and one whose parent leads to the home.
        write(&parent.join("tool/bin/x"), "#!/bin/sh\necho x\n");
        write(&parent.join("tool/lib/x"), "lib\n");
        write(&parent.join("tool/secret"), &person.world.canary);
        write(&parent.join("up/bin/x"), "#!/bin/sh\necho x\n");
        symlink(&home, parent.join("up/lib")).unwrap();
        let room = person.room(path, permissive());
        for folder in [&home, &parent.join("alias"), &parent.join("tool"), &parent.join("up")] {
            let seen = room.stdout(&read_all(&room, folder));
            let leaks = ["CANARY", "id_ed25519", "hosts.yml", "./secret", "./lib"];
            let leak = leaks.iter().find(|name| seen.contains(*name));
            findings.add(check(leak.is_none(), || format!("PATH={path}: {} shows {seen}", folder.display())));
        }
        findings.add(room.finish().map_err(|why| format!("PATH={path}: {why}")));
    }
    let room = Person::new().room("{user}/bin", permissive());
    findings.add(room.says("own").and_then(|said| check(said == "own", || said)));
    findings.add(room.finish());
    findings.outcome()
}

/// A second mount of the home, or of the folder above it: below a system folder, and on PATH.
fn a_home_by_a_bind_mount() -> Outcome {
    let mut findings = Findings::default();
    for (source, path) in [("user", "{parent}/mnt"), ("", "{parent}/mnt/user"), ("user", "{parent}/mnt/.ssh")]
    {
        let mut person = Person::new();
        let parent = person.world.parent.clone();
        let at = parent.join("mnt");
        std::fs::create_dir(&at).unwrap();
        person.world.mount_bind(&parent.join(source), &at)?;
        let room = person.room(path, permissive());
        let seen = room.stdout(&read_all(&room, &at));
        findings.add(check(!seen.contains("id_ed25519") && !seen.contains("CANARY"), || {
            format!("{path}: {seen}")
        }));
        // Our own mount is still there, which the end of a room takes for one that was left.
        findings.add(room.world.finish());
    }
    findings.outcome()
}

/// Folders of our own state on PATH, by name and by link.
fn our_state_on_path() -> Outcome {
    let mut findings = Findings::default();
    for path in ["{parent}/home", "{parent}/home/run", "{parent}/to-state", "{parent}/home/state/blobs"] {
        let person = Person::new();
        let parent = person.world.parent.clone();
        symlink(parent.join("home/state"), parent.join("to-state")).unwrap();
        let room = person.room(path, permissive());
        for folder in ["home", "to-state"] {
            let seen = room.stdout(&room.sh(&format!("cd {}/{folder} && find .; true", parent.display())));
            let leak = ["journal", "aosd", "blobs/"].iter().find(|name| seen.contains(*name));
            findings.add(check(leak.is_none(), || format!("PATH={path}: {folder} shows {seen}")));
        }
        findings.add(room.finish());
    }
    findings.outcome()
}

/// Of a toolchain, only what its row lists; tokens are masked.
fn toolchains_are_shown_one_by_one() -> Outcome {
    let person = Person::new();
    person.file(".cargo/bin/tool", "#!/bin/sh\ncat ~/.cargo/registry/index ~/.rustup/settings.toml\n");
    person.file(".cargo/registry/index", "index\n");
    person.file(".rustup/settings.toml", "settings\n");
    person.file(".rustup/toolchains/stable/bin/rustc", "rustc\n");
    person.file(".cargo/config.toml", &format!("[registry]\ntoken = \"{}\"\n", person.world.canary));
    for name in [".cargo/credentials.toml", ".cargo/credentials", ".cargo/other", ".rustup/other", ".npmrc"] {
        person.secret(name);
    }
    let home = person.home.clone();
    let mut room = person.room("{user}/.cargo/bin", permissive());
    let mut findings = Findings::default();
    findings.add(room.says("tool").and_then(|said| check(said == "index\nsettings", || said)));
    let seen = room.stdout(&read_all(&room, &home));
    for hidden in ["CANARY", ".cargo/other", ".rustup/other"] {
        findings.add(check(!seen.contains(hidden), || format!("{hidden}: {seen}")));
    }
    // The folder around what is shown is the session's own.
    findings.add(room.says("echo x > ~/.cargo/.package-cache && stat -c %U ~/.cargo").map(drop));
    for script in
        ["echo x > ~/.cargo/bin/new", "echo x > ~/.cargo/registry/new", "rm ~/.rustup/settings.toml"]
    {
        findings.add(check(room.sh(script)["exit_code"] != 0, || script.to_owned()));
    }
    findings.add(check(!home.join(".cargo/.package-cache").exists(), || "it wrote into the home".into()));
    room.settle();
    findings.add(room.finish());
    // A configuration without a token is of use.
    let person = Person::new();
    person.file(".cargo/bin/tool", "#!/bin/sh\ncat ~/.cargo/config.toml\n");
    person.file(".cargo/config.toml", "[build]\njobs = 2\n");
    let room = person.room("{user}/.cargo/bin", permissive());
    findings.add(room.says("tool").and_then(|said| check(said.contains("jobs"), || said)));
    findings.add(room.finish());
    findings.outcome()
}

/// Variables that a call sets do not change what is mounted.
fn env_patch_widens_nothing() -> Outcome {
    let person = Person::new();
    person.file(".cargo/bin/tool", "#!/bin/sh\necho tool\n");
    person.file(".pyenv/shims/other", "#!/bin/sh\necho other\n");
    let (home, outside) = (person.home.clone(), person.world.outside.clone());
    let room = person.room("{user}/.cargo/bin", permissive());
    let user = home.display();
    let mut findings = Findings::default();
    for (name, value) in [
        ("PATH", format!("{user}/.pyenv/shims:{user}:{user}/.ssh:{}:/usr/bin:/bin", outside.display())),
        ("HOME", outside.display().to_string()),
        ("CARGO_HOME", user.to_string()),
        ("RUSTUP_HOME", outside.display().to_string()),
        ("VIRTUAL_ENV", outside.display().to_string()),
    ] {
        let script = format!(
            "PATH=/usr/bin:/bin; cat {0}/secret {1}/secret {1}/.ssh/*; ls {1}/.pyenv",
            outside.display(),
            user
        );
        let receipt = room.exec(json!({ "argv": ["/bin/sh", "-c", script], "env_patch": { name: value } }));
        findings.add(check(room.stdout(&receipt).is_empty(), || format!("{name}: {receipt}")));
    }
    findings.add(room.finish());
    findings.outcome()
}

/// Offline the machine's downloads can be read; with a network the session has its own, and can write them.
fn caches_belong_to_a_session_with_a_network() -> Outcome {
    let person = Person::new();
    person.file(".cargo/bin/tool", "#!/bin/sh\necho tool\n");
    person.file(".cargo/registry/index", "index\n");
    let home = person.home.clone();
    let room = person.room("{user}/.cargo/bin", permissive());
    let mut findings = Findings::default();
    findings.add(room.says("cat ~/.cargo/registry/index").map(drop));
    let session = room.another(json!({
        "local": { "network_mode": "full" }, "policy": { "preset": "permissive" },
    }));
    let script =
        "mkdir -p ~/.cargo/registry && ls -A ~/.cargo/registry && echo x > ~/.cargo/registry/new && tool";
    let receipt = room.exec_in(&session, json!({ "argv": ["sh", "-c", script] }));
    findings.add(check(room.stdout(&receipt) == "tool\n", || format!("{receipt}")));
    findings.add(check(!home.join(".cargo/registry/new").exists(), || "it wrote into the home".into()));
    findings.add(room.finish());
    findings.outcome()
}

/// What lies beside a `bin` outside a home may be made by anybody: links there and `pyvenv.cfg` show nothing more.
fn links_beside_a_bin_lead_nowhere() -> Outcome {
    let person = Person::new();
    let parent = person.world.parent.clone();
    let outside = person.world.outside.clone();
    write(&parent.join("tools/.cargo/bin/x"), "#!/bin/sh\necho x\n");
    symlink(&outside, parent.join("tools/.cargo/registry")).unwrap();
    symlink(&outside, parent.join("tools/.rustup")).unwrap();
    write(&parent.join("venv/bin/y"), "#!/bin/sh\necho y\n");
    write(&parent.join("venv/pyvenv.cfg"), &format!("home = {}\n", outside.display()));
    let room = person.room("{parent}/tools/.cargo/bin:{parent}/venv/bin", permissive());
    let mut findings = Findings::default();
    findings.add(room.says("x; y").and_then(|said| check(said == "x\ny", || said)));
    let seen = read_all(&room, &parent);
    findings.add(check(!room.stdout(&seen).contains("CANARY"), || format!("{seen}")));
    findings.add(room.finish());
    findings.outcome()
}

/// Each toolchain counts by its own folder on PATH.
fn one_toolchain_on_path_shows_no_other() -> Outcome {
    let person = Person::new();
    person.file(".cargo/bin/tool", "#!/bin/sh\necho tool\n");
    for name in [".pyenv/shims/x", ".nvm/versions/node/v1/bin/x", "go/bin/x", ".volta/bin/x", ".bun/bin/x"] {
        person.secret(name);
    }
    let home = person.home.clone();
    let room = person.room("{user}/.cargo/bin", permissive());
    let mut findings = Findings::default();
    findings.add(room.says("tool").map(drop));
    let seen = room.stdout(&read_all(&room, &home));
    for hidden in [".pyenv", ".nvm", "./go", ".volta", ".bun"] {
        findings.add(check(!seen.contains(hidden), || format!("{hidden}: {seen}")));
    }
    findings.add(room.finish());
    findings.outcome()
}

/// A daemon of root runs a command as the owner of the workdir: it sees nothing behind a folder that this user may not
/// enter.
fn nothing_that_the_user_could_not_reach() -> Outcome {
    let person = Person::new();
    std::os::unix::fs::chown(&person.world.root, Some(12_345), Some(12_345)).unwrap();
    for name in [".cargo/bin/tool", ".cargo/registry/index", "closed/bin/x"] {
        person.secret(name);
    }
    let (home, open) = (person.home.clone(), person.world.parent.join("open"));
    write(&open.join("bin/x"), "#!/bin/sh\necho x\n");
    for closed in [&home, &home.join("closed")] {
        std::fs::set_permissions(closed, std::fs::Permissions::from_mode(0o700)).unwrap();
    }
    let room = person.room("{user}/.cargo/bin:{user}/closed/bin:{parent}/open/bin", permissive());
    let mut findings = Findings::default();
    findings.add(room.says("id -u; x").and_then(|said| check(said == "12345\nx", || said)));
    let seen = room.stdout(&read_all(&room, &home));
    findings
        .add(check(!seen.contains("tool") && !seen.contains("index") && !seen.contains("closed"), || seen));
    findings.add(room.finish());
    findings.outcome()
}

/// A command in root's own folder keeps uid 0: it reads of the system what anybody may read.
/// Where a file system in the system's folders has no mapping of ids.
fn what_only_root_may_read_without_mapped_ids() -> Outcome {
    let script = "mount -t ramfs ramfs /opt && exec \"$@\"";
    let wrapper = ["unshare", "--mount", "sh", "-c", script, "sh"].map(str::to_owned).to_vec();
    let room = Room::of(World::with(Start { wrapper, ..Start::default() }), permissive());
    let mut findings = Findings::default();
    findings.add(room.says("stat -c %u /etc/passwd").and_then(|said| check(said == "0", || said)));
    for path in ["/etc/shadow", "/etc/gshadow"] {
        let receipt = room.run(&["cat", path]);
        let refused = receipt["exit_code"] == 1 && room.stdout(&receipt).is_empty();
        findings.add(check(refused, || format!("{path}: {receipt}")));
    }
    findings.add(room.finish());
    findings.outcome()
}

fn what_only_root_may_read() -> Outcome {
    let world = World::new();
    let mark = world.canary.trim_start_matches("CANARY-").to_owned();
    let folder = PathBuf::from(format!("/opt/aos-attack-{mark}"));
    let canary = world.canary.clone();
    let put = |name: &str, mode: u32, folder_mode: u32| {
        let path = folder.join(name);
        write(&path, &canary);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let parent = path.parent().unwrap();
        std::fs::set_permissions(parent, std::fs::Permissions::from_mode(folder_mode)).unwrap();
    };
    put("shut/all", 0o644, 0o700);
    put("entered/all", 0o644, 0o711);
    put("own/private", 0o600, 0o755);
    put("open/group", 0o640, 0o755);
    write(&folder.join("open/public"), "public\n");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let room = Room::of(world, permissive());
    let shown = folder.display().to_string();
    let mut findings = Findings::default();
    findings.add(room.says("id -u").and_then(|said| check(said == "0", || said)));
    let later = folder.join("open/later");
    write(&later, &canary);
    std::fs::set_permissions(&later, std::fs::Permissions::from_mode(0o600)).unwrap();
    // Root's ids are mapped, where this is tested.
    findings.add(room.says("stat -c %u /etc/passwd").and_then(|said| check(said == "65534", || said)));
    for path in [
        "/etc/shadow",
        "/etc/gshadow",
        &format!("{shown}/shut/all"),
        &format!("{shown}/entered/all"),
        &format!("{shown}/open/group"),
        &format!("{shown}/open/later"),
    ] {
        for script in [
            format!("cat {path}"),
            format!("chmod 644 {path}; cat {path}"),
            format!("cat /proc/1/root{path}"),
        ] {
            let receipt = room.sh(&script);
            let refused = receipt["exit_code"] != 0 && room.stdout(&receipt).is_empty();
            findings.add(check(refused, || format!("{script}: {receipt}")));
        }
    }
    findings.add(room.says(&format!("cat /etc/passwd {shown}/open/public > /dev/null")).map(drop));
    // In a root of the session nothing is masked.
    let session = room
        .another(json!({ "local": { "workdir": folder.join("own") }, "policy": { "preset": "permissive" } }));
    let receipt = room.exec_in(&session, json!({ "argv": ["sh", "-c", "wc -c < private"] }));
    findings.add(check(receipt["exit_code"] == 0, || format!("{receipt}")));
    let finished = room.finish();
    let _ = std::fs::remove_dir_all(&folder);
    findings.add(finished);
    findings.outcome()
}
