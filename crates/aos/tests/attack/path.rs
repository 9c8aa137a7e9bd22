//! Paths: however a path is spelled or linked, nothing outside the roots is read, written or even distinguishable.

mod links;
mod names;
mod neighbours;
mod protected;

use std::path::Path;

use aos_testkit::ways::{following_ways, ways};
use aos_testkit::{Agent, Start, World, check, expect, new_seed, tree, verdict};
use serde_json::{Value, json};

use crate::{Case, Outcome, plain};

pub fn cases() -> Vec<Case> {
    vec![
        plain("PATH-01", dot_dot_leads_nowhere),
        plain("PATH-02", absolute_paths_lead_nowhere),
        plain("PATH-03", a_root_is_no_prefix),
        plain("PATH-04", links::a_link_to_an_outside_file),
        plain("PATH-05", links::a_link_to_an_outside_folder),
        plain("PATH-06", links::writing_through_a_link),
        plain("PATH-07", links::writing_through_a_dangling_link),
        plain("PATH-08", links::a_chain_of_links),
        plain("PATH-10", links::out_and_in_again),
        plain("PATH-11", links::magic_links),
        plain("PATH-15", links::link_loops),
        plain("PATH-16", links::too_many_links),
        plain("PATH-17", names::nul_bytes),
        plain("PATH-18", names::control_characters_in_names),
        plain("PATH-19", names::odd_paths),
        plain("PATH-21", names::one_file_many_spellings),
        plain("PATH-22", names::long_paths),
        plain("PATH-24", names::unicode_forms_are_different_names),
        plain("PATH-25", protected::protected_names_in_any_case),
        plain("PATH-28", neighbours::a_neighbour_that_swaps),
        plain("PATH-32", a_workdir_behind_a_link),
        plain("PATH-36", nothing_is_expanded),
        plain("OWN-PATH-RACED", neighbours::a_file_that_is_never_the_same),
    ]
}

const OUTSIDE: &[&str] = &["forbidden / path_outside_roots"];
const LINKED_OUT: &[&str] = &["forbidden / symlink_not_allowed"];
const INVALID: &[&str] = &["error / invalid_path"];
const MISSING: &[&str] = &["not_found / path_not_found"];

/// A running world with a file `f`, a folder `sub` and the `donor` that moves and patches use.
fn furnished() -> World {
    let world = World::new();
    furnish(&world);
    world
}

fn furnish(world: &World) {
    world.write("f", "OLD\n");
    world.write("donor", "OLD\n");
    std::fs::create_dir(world.root.join("sub")).unwrap();
}

fn each(agent: &mut Agent, ways: &[&str], path: &str, allowed: &[&str]) -> Outcome {
    ways.iter().try_for_each(|way| expect(&format!("{way} {path:?}"), &agent.way(way, path), allowed))
}

fn shown(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// A refusal must not reveal whether a file exists.
fn same_answer(agent: &mut Agent, way: &str, present: &str, absent: &str) -> Outcome {
    let (one, other) = (agent.way(way, present), agent.way(way, absent));
    let told = |receipt: &Value, name: &str| {
        let message = receipt["error_message"].as_str().unwrap_or_default().replace(name, "NAME");
        (verdict(receipt), message)
    };
    let last = |path: &str| path.split('/').find(|name| NAMES.contains(name)).unwrap_or("").to_owned();
    let (one_told, other_told) = (told(&one, &last(present)), told(&other, &last(absent)));
    check(one_told == other_told, || {
        format!("{way} tells {present} (there) from {absent} (not there):\n{one_told:?}\n{other_told:?}")
    })
}

/// What `$O` holds and does not hold, for `same_answer`.
const NAMES: &[&str] = &["secret", "absent", "room", "none"];

fn dot_dot_leads_nowhere() -> Outcome {
    let world = furnished();
    let mut agent = world.agent(json!({}));
    let receipt = agent.way("read_file", "../outside/secret");
    expect("read_file ../outside/secret", &receipt, OUTSIDE)?;
    let (root, outside) = (shown(&world.root), shown(&world.outside));
    for path in [
        "..",
        "../",
        "../outside",
        "../outside/secret",
        "./../outside/secret",
        ".//..//outside//secret",
        "sub/../../outside/secret",
        "sub/./.././../outside/secret",
        "nope/../../outside/secret",
        "f/../../outside/secret",
        "../../../../../../../../../../../../../etc/hostname",
        "\\x2e\\x2e/outside/secret",
        "\\x2e./outside/secret",
        &format!("{outside}/secret"),
        &format!("{root}/../outside/secret"),
        &format!("{root}//..//outside/secret"),
        &format!("{root}/sub/../../outside/secret"),
    ] {
        each(&mut agent, &ways(), path, OUTSIDE)?;
    }
    for way in ways() {
        same_answer(&mut agent, way, "../outside/secret", "../outside/absent")?;
        same_answer(&mut agent, way, &format!("{outside}/secret"), &format!("{outside}/absent"))?;
    }
    check(world.read("donor") == b"OLD\n", || "the donor was touched".into())?;
    world.finish()
}

fn absolute_paths_lead_nowhere() -> Outcome {
    let world = furnished();
    let mut agent = world.agent(json!({}));
    for path in ["/etc/passwd", "//etc/passwd", "/./etc/passwd", "/etc/../etc/passwd", "/proc/self/environ"] {
        // Only harmless effects: if the jail failed, the machine must not be damaged.
        each(&mut agent, &["read_file", "stat", "no_follow", "exists", "list_dir"], path, OUTSIDE)?;
    }
    let decoy = std::env::temp_dir().join(format!("x_{:016x}", new_seed()));
    each(&mut agent, &ways(), &shown(&decoy), OUTSIDE)?;
    each(&mut agent, &ways(), &format!("{}/y", decoy.display()), OUTSIDE)?;
    check(!decoy.exists(), || format!("{} was made", decoy.display()))?;
    world.finish()
}

fn a_root_is_no_prefix() -> Outcome {
    let world = furnished();
    let evil = ["ws-evil", "ws2", "ws.", "ws ", "WS"].map(|name| world.parent.join(name));
    for folder in &evil {
        std::fs::create_dir(folder).unwrap();
        std::fs::write(folder.join("secret"), &world.canary).unwrap();
    }
    let before: Vec<_> = evil.iter().map(|folder| tree(folder)).collect();
    let mut agent = world.agent(json!({ "capability": { "fs_roots": [world.root] } }));
    for folder in &evil {
        let name = folder.file_name().unwrap().to_str().unwrap();
        // A patch trims the names that it reads, so a name that ends in a blank is tested by the other effects.
        let ways: Vec<&str> = ways().into_iter().filter(|way| !way.starts_with("patch")).collect();
        each(&mut agent, &ways, &format!("{}/secret", folder.display()), OUTSIDE)?;
        each(&mut agent, &ways, &format!("../{name}/secret"), OUTSIDE)?;
        each(&mut agent, &ways, &format!("{}-evil/secret", world.root.display()), OUTSIDE)?;
    }
    each(&mut agent, &ways(), "../ws-evil/secret", OUTSIDE)?;
    world.link(world.parent.join("ws-evil/secret"), "l");
    each(&mut agent, &following_ways(), "l", LINKED_OUT)?;
    std::fs::remove_file(world.root.join("l")).unwrap();
    let after: Vec<_> = evil.iter().map(|folder| tree(folder)).collect();
    check(after == before, || "something beside the root changed".into())?;
    a_root_below_the_workdir(&world)?;
    world.finish()
}

fn a_root_below_the_workdir(world: &World) -> Outcome {
    world.write("a/f", "OLD\n");
    world.write("a-evil/f", "OLD\n");
    let mut agent = world.agent(json!({ "capability": { "fs_roots": ["a"] } }));
    expect("a/f", &agent.way("read_file", "a/f"), &["ok"])?;
    let ways: Vec<&str> =
        ways().into_iter().filter(|way| !["move_to", "patch_move_to"].contains(way)).collect();
    for path in ["a-evil/f", "f", "a/../f", "a/../a-evil/f", ".", "a/.."] {
        each(&mut agent, &ways, path, OUTSIDE)?;
    }
    check(world.read("a-evil/f") == b"OLD\n", || "a-evil/f was touched".into())
}

/// The id of a thread other than the first: it has its own entry in /proc, which no listing shows.
pub fn another_thread(pid: i32) -> Option<i32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let ids = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok());
    ids.into_iter().find(|id| *id != pid)
}

fn a_workdir_behind_a_link() -> Outcome {
    let world = furnished();
    let alias = world.parent.join("alias");
    std::os::unix::fs::symlink(&world.root, &alias).unwrap();
    let receipt = world.open_receipt(json!({ "target": { "local": { "workdir": alias } } }));
    expect("open", &receipt, &["ready"])?;
    check(receipt["capability"]["fs_roots"] == json!([world.root]), || format!("the roots are {receipt}"))?;
    let session = receipt["session_id"].as_str().unwrap().to_owned();
    let mut agent = Agent { session, client: world.client() };
    let (by_alias, canonical) = (shown(&alias.join("f")), shown(&world.root.join("f")));
    for path in ["f", &by_alias, &canonical] {
        let read = agent.way("read_file", path);
        check(read["content"]["inline_text"]["text"] == "OLD\n", || format!("{path}: {read}"))?;
        let patched = agent.patch(&format!("*** Update File: {path}\n@@\n-OLD\n+NEW\n"));
        check(patched["changed_paths"] == json!(["f"]), || format!("{path}: {patched}"))?;
        let edited = agent.edit(path, "NEW", "OLD");
        let summary = edited["summary_text"].as_str().unwrap_or_default();
        check(summary.starts_with("Updated f "), || format!("{path}: {edited}"))?;
        let missing = agent.way("read_file", &format!("{path}.absent"));
        let message = missing["error_message"].as_str().unwrap_or_default();
        check(message.starts_with("f.absent"), || format!("{path}.absent: {missing}"))?;
    }
    let refused = agent.way("read_file", "../outside/secret");
    check(refused["error_message"].as_str().unwrap_or_default().contains(&shown(&world.root)), || {
        format!("the refusal names other roots: {refused}")
    })?;
    each(&mut agent, &ways(), &format!("{}/../outside/secret", alias.display()), OUTSIDE)?;
    let params = json!({ "session_id": agent.session, "argv": ["pwd", "-P"] });
    let ran = agent.client.effect("host.exec", params);
    let printed = ran["stdout"]["inline_text"]["text"].as_str().unwrap_or_default();
    check(printed.trim_end() == shown(&world.root), || format!("pwd says {ran}"))?;
    the_link_turns(world, &alias, agent)
}

/// The folder was pinned: a later target of the link does not matter, not even after a restart.
fn the_link_turns(mut world: World, alias: &Path, mut agent: Agent) -> Outcome {
    std::fs::remove_file(alias).unwrap();
    std::os::unix::fs::symlink(&world.outside, alias).unwrap();
    let secret = shown(&alias.join("secret"));
    expect("the secret by the old link", &agent.way("read_file", &secret), &["not_found", "forbidden"])?;
    expect("a write by the old link", &agent.write(&shown(&alias.join("f")), "OLD\n"), &["ok", "forbidden"])?;
    world.restart(Start::default());
    agent.client = world.client();
    expect("after a restart", &agent.way("read_file", "f"), &["ok"])?;
    expect("the secret", &agent.way("read_file", &secret), &["not_found", "forbidden"])?;
    world.finish()
}

fn nothing_is_expanded() -> Outcome {
    let mut world = World::asleep(Start::default());
    let canary = world.canary.clone();
    for name in [".ssh/id_rsa", "x"] {
        world.put_outside(name, &canary);
    }
    let home = shown(&world.outside);
    world.restart(Start {
        env: vec![("HOME".into(), home), ("X".into(), "../outside".into())],
        ..Start::default()
    });
    furnish(&world);
    let mut agent = world.agent(json!({}));
    for path in ["~/.ssh/id_rsa", "$HOME/x", "%2e%2e/outside/secret", "file:///etc/passwd"] {
        expect(path, &agent.way("read_file", path), MISSING)?;
    }
    for path in [
        "~",
        "~/x",
        "~root/x",
        "~/.ssh/id_rsa",
        "$HOME/x",
        "${HOME}/x",
        "$X/secret",
        "%HOME%/x",
        "%2e%2e/outside/secret",
        "%2e%2e%2foutside%2fsecret",
        "..%2foutside/secret",
        "..%252foutside/secret",
        "..%c0%afoutside/secret",
        "\\xc0\\xae\\xc0\\xae/outside/secret",
        "..\\outside\\secret",
        "..\\u002foutside/secret",
        "\u{2025}/outside/secret",
        "\u{ff0e}\u{ff0e}/outside/secret",
        "..\u{2215}outside/secret",
        "file:///etc/passwd",
        "file:/etc/passwd",
        "C:\\outside",
        "`echo f`",
        "$(echo f)",
        "{f,sub}",
        "*",
        "f*",
        "?",
        "\"f\"",
        "'f'",
        " f",
        "f ",
        "F",
    ] {
        each(&mut agent, &["read_file", "stat", "list_dir"], path, MISSING)?;
        check(agent.way("exists", path)["exists"] == false, || format!("{path} is said to exist"))?;
    }
    // Written, these are folders and files with exactly these names, inside the root.
    for path in ["~/x", "$HOME/x", "%2e%2e/y", "file:///etc/z"] {
        expect(path, &agent.way("create_parents", path), &["ok"])?;
        check(world.read(path) == b"PWN", || format!("{path} is not where it should be"))?;
    }
    world.finish()
}
