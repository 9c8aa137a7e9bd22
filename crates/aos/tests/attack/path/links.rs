//! Links: inside, outside, dangling, in chains and loops, and those of `/proc`.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use aos_testkit::ways::{following_ways, ways};
use aos_testkit::{Agent, Start, World, check, expect, is_root, text, timed, tree};
use serde_json::json;

use super::{INVALID, LINKED_OUT, OUTSIDE, another_thread, each, furnish, furnished, same_answer, shown};
use crate::Outcome;

/// Links to `$O/secret`, each of a different form.
fn links_to_the_secret(world: &World) -> Vec<&'static str> {
    world.link(world.outside.join("secret"), "l");
    world.link("../outside/secret", "relative");
    world.link("sub/../../outside/secret", "winding");
    world.link("./.././outside//secret", "dotted");
    world.link("l", "twice");
    world.link(world.root.join("relative"), "absolute-then-relative");
    std::os::unix::fs::symlink("../../outside/secret", world.root.join("sub/deep")).unwrap();
    world.link("sub/deep", "into-a-folder");
    vec!["l", "relative", "winding", "dotted", "twice", "absolute-then-relative", "sub/deep", "into-a-folder"]
}

pub(super) fn a_link_to_an_outside_file() -> Outcome {
    let world = furnished();
    let links = links_to_the_secret(&world);
    let before = tree(&world.root);
    for follow in ["within_root_only", "deny"] {
        let mut agent = world.agent(json!({ "capability": { "follow_symlinks": follow } }));
        for path in &links {
            each(&mut agent, &following_ways(), path, LINKED_OUT)?;
            each(&mut agent, &following_ways(), &format!("{path}/x"), LINKED_OUT)?;
        }
    }
    check(tree(&world.root) == before, || "a link or a file was changed".into())?;
    the_link_itself_is_inside(&world)?;
    world.finish()
}

/// Effects on the link itself are allowed, and its target is unchanged.
fn the_link_itself_is_inside(world: &World) -> Outcome {
    let mut agent = world.agent(json!({}));
    let looked = agent.way("no_follow", "l");
    expect("stat no_follow", &looked, &["ok"])?;
    check(looked["kind"] == "symlink", || format!("no_follow says {looked}"))?;
    expect("a folder onto the link", &agent.way("make_dir", "l"), &["conflict"])?;
    expect("a file onto the link", &agent.way("move_to", "l"), &["conflict"])?;
    expect("move l", &agent.way("move_from", "l"), &["ok"])?;
    each(&mut agent, &following_ways(), "moved", LINKED_OUT)?;
    expect("patch delete moved", &agent.way("patch_delete", "moved"), &["ok"])?;
    expect("remove relative", &agent.way("remove", "relative"), &["ok"])?;
    let gone = |name: &str| world.root.join(name).symlink_metadata().is_err();
    check(gone("moved") && gone("relative"), || "a removed link is still there".into())
}

pub(super) fn a_link_to_an_outside_folder() -> Outcome {
    let mut world = World::new();
    furnish(&world);
    std::os::unix::fs::symlink("loop", world.outside.join("loop")).unwrap();
    world.put_outside("room/file", "inside the room\n");
    world.link(&world.outside, "d");
    world.link("../outside/", "slashed");
    world.link("..", "up");
    let mut agent = world.agent(json!({}));
    expect("list_dir d", &agent.way("list_dir", "d"), LINKED_OUT)?;
    let places = ["d/secret", "d/new", "d/new/deeper", "d/room/file", "slashed/secret", "up/outside/secret"];
    for path in places {
        each(&mut agent, &ways(), path, LINKED_OUT)?;
    }
    each(&mut agent, &following_ways(), "d/", LINKED_OUT)?;
    let found = agent.fs("glob", json!({ "pattern": "d/**" }));
    expect("glob d/**", &found, &["ok", "forbidden"])?;
    check(found["status"] == "forbidden" || found["count"] == 0, || format!("glob d/** found {found}"))?;
    check(!world.outside.join("new").exists(), || "$O/new was made".into())?;
    check(world.root.join("d").is_symlink(), || "the link is gone".into())?;
    no_oracle_through_a_link(&mut agent)?;
    if is_root() {
        a_closed_folder_is_no_oracle()?;
    }
    world.finish()
}

/// The answer is the same whether the outside path exists or not.
fn no_oracle_through_a_link(agent: &mut Agent) -> Outcome {
    for way in ways() {
        same_answer(agent, way, "d/secret", "d/absent")?;
        same_answer(agent, way, "d/room/x", "d/none/x")?;
        same_answer(agent, way, "d/room/../x", "d/none/../x")?;
        same_answer(agent, way, "d/secret/x", "d/absent/x")?;
        expect("a link loop outside", &agent.way(way, "d/loop/x"), LINKED_OUT)?;
    }
    Ok(())
}

/// A folder that the daemon may not enter must give the same answer as one that does not exist.
fn a_closed_folder_is_no_oracle() -> Outcome {
    let world = World::with(Start { uid: Some(65_534), ..Start::default() });
    world.link(&world.outside, "d");
    std::fs::set_permissions(&world.outside, PermissionsExt::from_mode(0o700)).unwrap();
    let mut agent = world.agent(json!({}));
    for way in ways().into_iter().filter(|way| !["move_to", "patch_move_to"].contains(way)) {
        expect(way, &agent.way(way, "d/secret"), LINKED_OUT)?;
        same_answer(&mut agent, way, "d/secret", "d/absent")?;
    }
    world.finish()
}

pub(super) fn writing_through_a_link() -> Outcome {
    let world = furnished();
    let links = links_to_the_secret(&world);
    let secret = std::fs::read(world.outside.join("secret")).unwrap();
    let mut agent = world.agent(json!({}));
    for path in links {
        for way in ["write_file", "create_parents", "create_new", "append", "edit_file", "patch_add"] {
            expect(way, &agent.way(way, path), LINKED_OUT)?;
        }
        let hash = aos_model::request::content_hash(&secret);
        let params =
            json!({ "path": path, "content": text("PWN"), "expected_hash": hash, "with_diff": true });
        expect("with the right hash", &agent.fs("write_file", params), LINKED_OUT)?;
        check(world.root.join(path).is_symlink(), || format!("{path} is no link any more"))?;
    }
    check(std::fs::read(world.outside.join("secret")).unwrap() == secret, || "$O/secret was changed".into())?;
    world.finish()
}

pub(super) fn writing_through_a_dangling_link() -> Outcome {
    let world = furnished();
    world.link(world.outside.join("new"), "dl");
    world.link("../outside/new", "relative");
    world.link("dl", "twice");
    let before = tree(&world.root);
    let mut agent = world.agent(json!({}));
    for way in ["write_file", "create_new", "patch_add"] {
        expect(&format!("{way} dl"), &agent.way(way, "dl"), LINKED_OUT)?;
    }
    for path in ["dl", "relative", "twice"] {
        each(&mut agent, &following_ways(), path, LINKED_OUT)?;
        each(&mut agent, &ways(), &format!("{path}/x"), LINKED_OUT)?;
        each(&mut agent, &ways(), &format!("{path}/x/y"), LINKED_OUT)?;
    }
    check(tree(&world.root) == before, || "a link was changed".into())?;
    check(!world.outside.join("new").exists(), || "$O/new was made".into())?;
    world.finish()
}

pub(super) fn a_chain_of_links() -> Outcome {
    let world = furnished();
    world.link("b", "a");
    world.link("c", "b");
    world.link("../outside/secret", "c");
    world.link("sub/e", "d");
    std::os::unix::fs::symlink("../g", world.root.join("sub/e")).unwrap();
    world.link(&world.outside, "g");
    // A link whose target leads outside through another link.
    world.link("d/secret", "h");
    let before = tree(&world.root);
    let mut agent = world.agent(json!({}));
    expect("read_file a", &agent.way("read_file", "a"), LINKED_OUT)?;
    for path in ["a", "b", "c", "d", "h"] {
        each(&mut agent, &following_ways(), path, LINKED_OUT)?;
    }
    for path in ["d/secret", "sub/e/secret", "sub/../d/secret", "d/new"] {
        each(&mut agent, &ways(), path, LINKED_OUT)?;
    }
    check(tree(&world.root) == before, || "a link was changed".into())?;
    world.finish()
}

pub(super) fn out_and_in_again() -> Outcome {
    let world = furnished();
    let mut agent = world.agent(json!({}));
    let root = shown(&world.root);
    for path in [
        "../ws/f",
        "sub/../../ws/f",
        "./../ws/./f",
        "../ws",
        "../ws/sub/../f",
        "../ws/new",
        &format!("{root}/../ws/f"),
        &format!("{root}/sub/../../ws/new"),
    ] {
        each(&mut agent, &ways(), path, OUTSIDE)?;
    }
    // The same path through a link: the link's target is outside, so it is not followed, though the path leads back
    // inside.
    world.link(&world.outside, "d");
    for path in ["d/../ws/f", "d/../ws/new", "d/../outside/../ws/f"] {
        each(&mut agent, &ways(), path, LINKED_OUT)?;
    }
    check(world.read("f") == b"OLD\n", || "f was changed".into())?;
    check(!world.root.join("new").exists(), || "new was made".into())?;
    // Inside the root a path of the same form is allowed.
    expect("sub/../f", &agent.way("read_file", "sub/../f"), &["ok"])?;
    world.finish()
}

pub(super) fn magic_links() -> Outcome {
    let world = furnished();
    world.link("/proc/self/root", "p");
    world.link("/proc/self/cwd", "q");
    world.link("/proc/thread-self/root", "t");
    world.link(format!("/proc/{}/root", world.daemon_pid()), "daemon");
    world.link("/proc/1/root", "one");
    let secret = shown(&world.outside.join("secret"));
    let mut agent = world.agent(json!({}));
    each(&mut agent, &ways(), "q/../outside/secret", LINKED_OUT)?;
    own_entries_lead_nowhere(&world)?;
    // The daemon may not be allowed to read the last one; the answer must be the same.
    for link in ["p", "t", "daemon", "one"] {
        let harmless = ["read_file", "stat", "no_follow", "exists", "list_dir"];
        each(&mut agent, &harmless, &format!("{link}/etc/passwd"), LINKED_OUT)?;
        each(&mut agent, &ways(), &format!("{link}{secret}"), LINKED_OUT)?;
        expect(link, &agent.way("read_file", link), LINKED_OUT)?;
    }
    world.finish()
}

/// Links that may lead anywhere still do not lead to the daemon's own entries, neither by its pid nor by a thread's.
fn own_entries_lead_nowhere(world: &World) -> Outcome {
    let pid = world.daemon_pid();
    let mut entries = vec![
        ("self", "/proc/self/environ".to_owned()),
        ("thread-self", "/proc/thread-self/environ".to_owned()),
        ("pid", format!("/proc/{pid}/environ")),
        ("task", format!("/proc/{pid}/task/{pid}/environ")),
        ("maps", format!("/proc/{pid}/maps")),
        ("journal", shown(&world.home.join("state/journal.db"))),
    ];
    let thread = another_thread(pid).ok_or("the daemon has one thread only")?;
    entries.push(("thread", format!("/proc/{thread}/environ")));
    let anywhere =
        json!({ "capability": { "follow_symlinks": "allow" }, "policy": { "preset": "permissive" } });
    let mut agent = world.agent(anywhere);
    for (name, target) in entries {
        world.link(&target, name);
        for way in ["read_file", "stat", "exists", "list_dir", "append"] {
            expect(&format!("{way} {target}"), &agent.way(way, name), &["forbidden"])?;
        }
    }
    Ok(())
}

pub(super) fn link_loops() -> Outcome {
    let world = furnished();
    world.link("b", "a");
    world.link("a", "b");
    world.link("own", "own");
    world.link("longer/x", "longer");
    world.link("sub/../winding", "winding");
    world.link(".", "here");
    let before = tree(&world.root);
    let mut agent = world.agent(json!({}));
    let descriptors = world.open_descriptors();
    for path in ["a", "own", "longer", "winding"] {
        for way in following_ways() {
            in_a_second(&mut agent, way, path)?;
        }
        for way in ways() {
            in_a_second(&mut agent, way, &format!("{path}/x"))?;
            in_a_second(&mut agent, way, &format!("{path}/x/y"))?;
        }
    }
    let deep = |depth: usize| "here/".repeat(depth) + "f";
    expect("40 times round", &agent.way("read_file", &deep(40)), &["ok"])?;
    expect("41 times round", &agent.way("read_file", &deep(41)), INVALID)?;
    check(tree(&world.root) == before, || "a link was changed".into())?;
    world.expect_descriptors(descriptors)?;
    world.finish()
}

fn in_a_second(agent: &mut Agent, way: &str, path: &str) -> Outcome {
    let what = format!("{way} {path}");
    let receipt = timed(Duration::from_secs(1), &what, || agent.way(way, path))?;
    expect(&what, &receipt, &["error / invalid_path", "forbidden"])
}

pub(super) fn too_many_links() -> Outcome {
    let world = furnished();
    // l1 → l2 → … → l45 → f, so lN resolves through 46 - N links.
    for number in 1..45 {
        world.link(format!("l{}", number + 1), &format!("l{number}"));
    }
    world.link("f", "l45");
    let mut agent = world.agent(json!({}));
    for way in ["read_file", "stat", "exists"] {
        expect(way, &agent.way(way, "l1"), INVALID)?;
    }
    each(&mut agent, &following_ways(), "l1", INVALID)?;
    each(&mut agent, &ways(), "l1/x", INVALID)?;
    // Like the kernel: 40 links are followed, 41 are not.
    expect("41 links", &agent.way("read_file", "l5"), INVALID)?;
    for way in ["read_file", "stat", "exists", "write_file"] {
        expect(&format!("40 links, {way}"), &agent.way(way, "l6"), &["ok"])?;
    }
    check(world.read("f") == b"PWN", || "40 links were not written through".into())?;
    check(world.root.join("l6").is_symlink(), || "a link was replaced".into())?;
    let mut strict = world.agent(json!({ "capability": { "follow_symlinks": "deny" } }));
    let refusals = ["forbidden / symlink_not_allowed", "error / invalid_path"];
    each(&mut strict, &following_ways(), "l1", &refusals)?;
    each(&mut strict, &following_ways(), "l45", LINKED_OUT)?;
    world.finish()
}
