//! Another process that changes names while tool calls use them.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use aos_testkit::{Agent, World, check, expect, full_figure};
use rustix::fs::{CWD, RenameFlags};
use serde_json::json;

use crate::Outcome;

pub fn a_neighbour_that_swaps() -> Outcome {
    let mut world = World::new();
    world.put_outside("f", &world.canary.clone());
    world.write("d/f", "INSIDE");
    world.write("x", "INSIDE");
    world.write("donor", "OLD\n");
    world.link("../outside", "l");
    world.link("../outside/f", "y");
    let session = world.open(json!({}));
    let stop = AtomicBool::new(false);
    let (reads, changes) = (full_figure(100_000, 4_000) / 8, full_figure(2_000, 60));
    let seen = std::thread::scope(|scope| {
        scope.spawn(|| swap(&world.root, &stop));
        let readers: Vec<_> = (0..8)
            .map(|_| world.quiet_agent(&session))
            .map(|agent| scope.spawn(move || read_while_swapped(agent, reads)))
            .collect();
        let seen: Vec<_> = readers.into_iter().map(|reader| reader.join().expect("a reader ends")).collect();
        change_while_swapped(world.quiet_agent(&session), changes);
        stop.store(true, Ordering::Relaxed);
        seen.into_iter().collect::<Result<Vec<_>, _>>()
    })?;
    let (inside, refused) = seen.iter().fold((0, 0), |sum, seen| (sum.0 + seen.0, sum.1 + seen.1));
    check(inside > 0 && refused > 0, || format!("{inside} read, {refused} refused: nobody swapped"))?;
    let links = ["d", "l", "x", "y"].map(|name| world.root.join(name).is_symlink());
    check(links[0] != links[1] && links[2] != links[3], || format!("a link was replaced: {links:?}"))?;
    world.finish()
}

/// Exchanges a folder and a file with links to the outside, as fast as possible.
fn swap(root: &Path, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        exchange(&root.join("d"), &root.join("l"));
        exchange(&root.join("x"), &root.join("y"));
    }
}

/// Returns how many reads succeeded and how many were refused.
fn read_while_swapped(mut agent: Agent, reads: usize) -> Result<(usize, usize), String> {
    let (mut inside, mut refused) = (0, 0);
    for number in 0..reads {
        let receipt = agent.way("read_file", "d/f");
        expect("read_file d/f", &receipt, &["ok", "forbidden", "not_found"])?;
        if receipt["status"] == "ok" {
            let content = &receipt["content"]["inline_text"]["text"];
            check(content == "INSIDE", || format!("read {content}"))?;
            inside += 1;
        } else {
            refused += 1;
        }
        if number % 8 == 0 {
            expect("read_file x", &agent.way("read_file", "x"), &["ok", "forbidden", "not_found"])?;
            let way = ["stat", "list_dir", "exists", "no_follow"][number / 8 % 4];
            let allowed = ["ok", "forbidden", "not_found", "error / not_directory"];
            expect(way, &agent.way(way, "d/f"), &allowed)?;
        }
    }
    Ok((inside, refused))
}

/// Writes where another thread swaps: `$O` and the links stay as they are, which the end of the case checks.
fn change_while_swapped(mut agent: Agent, rounds: usize) {
    let ways = [
        "create_parents",
        "append",
        "edit_file",
        "patch_add",
        "patch_update",
        "move_from",
        "make_dir",
        "remove",
    ];
    for number in 0..rounds {
        for way in ways {
            agent.way(way, &format!("d/w{}", number % 7));
            agent.way("remove", "moved");
        }
        for way in ["write_file", "append", "patch_add"] {
            agent.way(way, "x");
        }
    }
}

/// Another process puts something else at one name again and again. Whatever a call meets there, it leaves no
/// temporary file, which the end of the case checks.
pub fn a_file_that_is_never_the_same() -> Outcome {
    let world = World::new();
    world.write("donor", "OLD\n");
    let session = world.open(json!({}));
    let calls = full_figure(20_000, 800);
    for other in [a_link, a_twin, a_folder, nothing] {
        world.write("x", "OLD\n");
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    other(&world.root.join("x"), &world.root.join("y"));
                }
            });
            let mut agent = world.quiet_agent(&session);
            for number in 0..calls {
                // Mostly whole writes: of their races there are the most.
                let way = match number % 8 {
                    1 => "append",
                    3 => ["edit_file", "patch_add", "remove", "move_from", "move_to"][number / 8 % 5],
                    _ => "write_file",
                };
                if way == "move_to" {
                    world.write("donor", "OLD\n");
                }
                agent.way(way, "x");
            }
            stop.store(true, Ordering::Relaxed);
        });
        for name in ["x", "y"].map(|name| world.root.join(name)) {
            let _ = std::fs::remove_file(&name).or_else(|_| std::fs::remove_dir(&name));
        }
    }
    world.finish()
}

fn a_link(x: &Path, y: &Path) {
    let _ = std::os::unix::fs::symlink("donor", y);
    exchange(x, y);
}

fn a_twin(x: &Path, y: &Path) {
    let _ = std::fs::write(y, "PWN");
    exchange(x, y);
}

fn a_folder(x: &Path, y: &Path) {
    let _ = std::fs::create_dir(y);
    exchange(x, y);
}

fn nothing(x: &Path, _: &Path) {
    let _ = std::fs::remove_file(x);
    let _ = std::fs::write(x, "OLD\n");
}

/// During a call one of the two may be absent for a moment.
fn exchange(one: &Path, other: &Path) {
    let _ = rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE);
}
