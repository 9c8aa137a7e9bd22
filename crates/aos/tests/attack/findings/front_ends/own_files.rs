//! S32: files that `aos` writes for its operator, where others have put something in the way.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use aos_testkit::{Findings, World, check, is_root, tree};

use crate::Outcome;

/// Another user.
const OTHER: u32 = 1000;

/// Runs `aos` with this home of its operator: exit code and standard error.
fn run(world: &World, home: &Path, arguments: &[&str], uid: Option<u32>) -> (i32, String) {
    let mut command = Command::new(&world.programs.aos);
    command.args(arguments).env_clear().env("HOME", home).env("AOS_HOME", &world.home).current_dir("/");
    if let Some(uid) = uid {
        command.uid(uid).gid(uid);
    }
    let output = command.stdin(Stdio::null()).output().expect("aos runs");
    world.heard(String::from_utf8_lossy(&output.stdout).into_owned());
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn make_fifo(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().expect("mkfifo runs");
    assert!(made.success(), "mkfifo {}", path.display());
}

/// What is not a regular file, in the place of the file or of a folder above it, is neither followed, read nor replaced.
pub(super) fn planted_names() -> Outcome {
    let mut world = World::new();
    let secret = world.put_outside("settings.json", "{}");
    let folder = world.put_outside("folder/keep", "").parent().expect("a folder").to_owned();
    let mut findings = Findings::default();
    type Plant<'a> = &'a dyn Fn(&Path);
    let plants: [(&str, Plant<'_>); 6] = [
        ("a link to a file", &|at| symlink(&secret, at).unwrap()),
        ("a link to nothing", &|at| symlink(world.outside.join("new"), at).unwrap()),
        ("a link to a folder", &|at| symlink(&folder, at).unwrap()),
        ("a FIFO", &|at| make_fifo(at)),
        ("a socket", &|at| drop(UnixListener::bind(at).unwrap())),
        ("a file and a folder", &|at| std::fs::create_dir(at).unwrap()),
    ];
    for (n, (what, plant)) in plants.iter().enumerate() {
        for (agent, planted) in [
            ("claude-code", ".claude.json"),
            ("codex", ".codex"),
            ("codex", ".codex/config.toml"),
            ("opencode", ".config"),
            ("opencode", ".config/opencode"),
            ("zed", ".config/zed/settings.json"),
            ("vscode", ".config/Code"),
        ] {
            let home = world.parent.join(format!("user-{n}-{}", planted.replace('/', "-")));
            let place = home.join(planted);
            std::fs::create_dir_all(place.parent().expect("below the home")).unwrap();
            plant(&place);
            let is_plain_folder = place.is_dir() && !place.is_symlink() && !planted.contains("json");
            if is_plain_folder && !planted.contains("toml") {
                continue;
            }
            let before = tree(&home);
            let (code, err) = run(&world, &home, &["setup", agent, "--write"], None);
            let refused = code == 1 && err.contains("by hand") && tree(&home) == before;
            findings.add(check(refused, || format!("{what} at {planted}: {code} {err}")));
        }
    }
    findings.add(world.finish());
    findings.outcome()
}

/// Names that a temporary file might get lead outside: none of them is used.
pub(super) fn planted_temporary_names() -> Outcome {
    let mut world = World::new();
    let victim = world.put_outside("victim", "keep\n");
    let home = world.parent.join("user");
    std::fs::create_dir(&home).unwrap();
    let next = std::process::id();
    for pid in next..next + 5_000 {
        symlink(&victim, home.join(format!(".aos-setup-{pid}"))).unwrap();
    }
    let (code, err) = run(&world, &home, &["setup", "claude-code", "--write"], None);
    check(code == 0, || err)?;
    let written = std::fs::symlink_metadata(home.join(".claude.json")).map_err(|why| why.to_string())?;
    check(written.is_file() && written.mode() & 0o777 == 0o600, || format!("{written:?}"))?;
    world.finish()
}

/// A file that is changed keeps its mode and its owner; nothing else is left in its folder.
pub(super) fn owner_and_mode_are_kept() -> Outcome {
    let world = World::new();
    let home = world.parent.join("user");
    std::fs::create_dir(&home).unwrap();
    let file = home.join(".claude.json");
    let mut findings = Findings::default();
    for mode in [0o600, 0o640, 0o644, 0o444] {
        let _ = std::fs::remove_file(&file);
        std::fs::write(&file, "{\"mine\": 1}").unwrap();
        let owner = if is_root() { OTHER } else { file.metadata().unwrap().uid() };
        std::os::unix::fs::chown(&file, Some(owner), Some(owner)).unwrap_or_default();
        let before = file.metadata().unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        let (code, err) = run(&world, &home, &["setup", "claude-code", "--write"], None);
        let after = file.metadata().unwrap();
        findings.add(check(code == 0 && after.mode() & 0o7777 == mode, || {
            format!("{mode:o}: {code} {err} {:o}", after.mode())
        }));
        let owners = |meta: &std::fs::Metadata| (meta.uid(), meta.gid());
        findings.add(check(owners(&after) == owners(&before), || format!("{mode:o}: {:?}", owners(&after))));
        let text = std::fs::read_to_string(&file).unwrap();
        findings.add(check(text.contains("\"mine\": 1") && text.contains("\"aos\""), || text.clone()));
        findings.add(check(tree(&home).len() == 1, || format!("{:?}", tree(&home).keys())));
    }
    findings.add(world.finish());
    findings.outcome()
}

/// Root does not write into a user's home, nor a user into another's; a user writes into their own.
pub(super) fn homes_of_others() -> Outcome {
    let world = World::new();
    let home = world.parent.join("user");
    std::fs::create_dir(&home).unwrap();
    let own = |uid: u32| std::os::unix::fs::chown(&home, Some(uid), Some(uid)).unwrap();
    let mut findings = Findings::default();
    own(OTHER);
    for agent in ["claude-code", "codex", "opencode"] {
        let (code, err) = run(&world, &home, &["setup", agent, "--write"], None);
        findings.add(check(code == 1 && err.contains("uid 1000") && tree(&home).is_empty(), || {
            format!("root, {agent}: {code} {err} {:?}", tree(&home).keys())
        }));
    }
    let pages = home.display().to_string();
    let (code, err) = run(&world, &home, &["man", &pages], None);
    findings.add(check(code == 1 && tree(&home).is_empty(), || format!("root, man: {code} {err}")));
    // The program must be where another user can run it.
    let copy = world.parent.join("aos");
    std::fs::copy(&world.programs.aos, &copy).map_err(|why| why.to_string())?;
    let as_user = |arguments: &[&str]| {
        let mut command = Command::new(&copy);
        command.args(arguments).env_clear().env("HOME", &home).uid(OTHER).gid(OTHER).stdin(Stdio::null());
        command.current_dir("/").output().expect("aos runs")
    };
    let output = as_user(&["setup", "opencode", "--write"]);
    let written = std::fs::metadata(home.join(".config/opencode/opencode.json"));
    findings
        .add(check(written.is_ok_and(|file| file.uid() == OTHER && file.mode() & 0o777 == 0o600), || {
            format!("their own: {output:?}")
        }));
    own(OTHER + 1);
    std::fs::set_permissions(&home, PermissionsExt::from_mode(0o777)).unwrap();
    let before = tree(&home);
    let output = as_user(&["setup", "claude-code", "--write"]);
    findings.add(check(output.status.code() == Some(1) && tree(&home) == before, || format!("{output:?}")));
    findings.add(world.finish());
    findings.outcome()
}

/// `aos man` writes regular files into the folder it is given, and follows no link.
pub(super) fn manual_pages() -> Outcome {
    let mut world = World::new();
    let victim = world.put_outside("victim", "keep\n");
    let folder = world.put_outside("folder/keep", "").parent().expect("a folder").to_owned();
    let home = world.parent.clone();
    let mut findings = Findings::default();
    for (what, plant) in [
        ("a link", &(|at: &Path| symlink(&victim, at).unwrap()) as &dyn Fn(&Path)),
        ("a link to nothing", &|at: &Path| symlink(world.outside.join("new"), at).unwrap()),
        ("a FIFO", &|at: &Path| make_fifo(at)),
    ] {
        let pages = world.parent.join(format!("pages of {what}"));
        std::fs::create_dir(&pages).unwrap();
        plant(&pages.join("aos.1"));
        let (code, err) = run(&world, &home, &["man", &pages.display().to_string()], None);
        findings.add(check(code == 1 && err.contains("aos.1"), || format!("{what}: {code} {err}")));
    }
    let link = world.parent.join("link");
    symlink(&folder, &link).unwrap();
    for path in [link.clone(), link.join(".")] {
        let (code, err) = run(&world, &home, &["man", &path.display().to_string()], None);
        findings.add(check(code == 1 && err.contains("symbolic link"), || format!("{path:?}: {code} {err}")));
    }
    let pages = world.parent.join("pages");
    std::fs::create_dir(&pages).unwrap();
    std::fs::write(pages.join("aos.1"), "old").unwrap();
    std::fs::set_permissions(pages.join("aos.1"), PermissionsExt::from_mode(0o600)).unwrap();
    let (code, err) = run(&world, &home, &["man", &pages.display().to_string()], None);
    let mode = |name: &str| std::fs::symlink_metadata(pages.join(name)).map_or(0, |meta| meta.mode());
    findings.add(check(code == 0 && mode("aos.1") == 0o100_600 && mode("aos-exec.1") == 0o100_644, || {
        format!("{code} {err} {:o} {:o}", mode("aos.1"), mode("aos-exec.1"))
    }));
    let only_pages = tree(&pages).keys().all(|path| path.extension().is_some_and(|end| end == "1"));
    findings.add(check(only_pages, || format!("{:?}", tree(&pages).keys())));
    findings.add(world.finish());
    findings.outcome()
}
