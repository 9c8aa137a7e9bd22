//! JRNL-05: the disk under the journal is full.

use std::path::PathBuf;

use aos_testkit::torture::errors::SmallDisk;
use aos_testkit::{Client, Start, World, check, expect, is_full, text, tree};
use serde_json::{Value, json};

use crate::Outcome;

/// A world whose home is on a small disk, with a session and some files.
struct Scene {
    // The daemon of the world ends before its disk is unmounted.
    world: World,
    disk: SmallDisk,
    session: String,
}

impl Scene {
    fn new() -> Result<Scene, String> {
        let mut world = World::asleep(Start::default());
        let disk = SmallDisk::mount(2_048)?;
        world.home = disk.at().join("home");
        world.start_daemon();
        for n in 0..5 {
            world.write(&format!("p{n}"), format!("old {n}\n"));
        }
        world.write("f", "old\n");
        world.write("d/in", "inside\n");
        let session = world.open(json!({}));
        let scene = Scene { world, disk, session };
        // The log and its index get their first pages before space runs out.
        expect("a first write", &scene.ask("host.fs.write_file", scene.write("g", "first\n")), &["ok"])?;
        Ok(scene)
    }

    fn write(&self, path: &str, content: &str) -> Value {
        json!({ "path": path, "content": text(content) })
    }

    fn ask(&self, kind: &str, params: Value) -> Value {
        ask(&mut self.world.client(), &self.session, kind, params)
    }

    /// Every mutation; each one succeeds once when there is space.
    fn mutations(&self) -> Vec<(&'static str, Value)> {
        let sections: String =
            (0..5).map(|n| format!("*** Update File: p{n}\n@@\n-old {n}\n+new {n}\n")).collect();
        let patch = json!({ "patch": text(format!("*** Begin Patch\n{sections}*** End Patch\n")) });
        let mut append = self.write("f", "more\n");
        append["mode"] = json!("append");
        vec![
            ("host.fs.write_file", self.write("f", "new\n")),
            ("host.fs.write_file", self.write("fresh", "new\n")),
            ("host.fs.write_file", append),
            ("host.fs.edit_file", json!({ "path": "g", "old_string": "first", "new_string": "second" })),
            ("host.fs.apply_patch", patch),
            ("host.fs.make_dir", json!({ "path": "made/below", "parents": true })),
            ("host.fs.move", json!({ "from": "g", "to": "moved" })),
            ("host.fs.move", json!({ "from": "moved", "to": "f", "overwrite": true })),
            ("host.fs.move", json!({ "from": "d", "to": "e" })),
            ("host.fs.remove", json!({ "path": "f" })),
            ("host.fs.remove", json!({ "path": "e", "recursive": true })),
        ]
    }

    fn finish(self) -> Outcome {
        let Scene { world, disk, .. } = self;
        let outcome = world.finish();
        drop(disk);
        outcome
    }
}

fn ask(client: &mut Client, session: &str, kind: &str, mut params: Value) -> Value {
    params["session_id"] = json!(session);
    client.effect(kind, params)
}

/// JRNL-05.
pub fn full_disk() -> Outcome {
    let mut scene = Scene::new()?;
    scene.disk.fill(0)?;
    let before = tree(&scene.world.root);
    for (kind, params) in scene.mutations() {
        let what = format!("full: {kind} {params}");
        let receipt = scene.ask(kind, params);
        let allowed: &[&str] = match kind {
            // What an earlier mutation failed to create cannot be moved or removed.
            "host.fs.move" | "host.fs.remove" => &["error / no_space", "not_found"],
            _ => &["error / no_space"],
        };
        expect(&what, &receipt, allowed)?;
        check(tree(&scene.world.root) == before, || format!("{what}: something was changed all the same"))?;
    }
    restart_while_full(&mut scene, &before)?;
    scene.disk.free()?;
    scene.world.restart(Start::default());
    for (kind, params) in scene.mutations() {
        let what = format!("freed: {kind} {params}");
        expect(&what, &scene.ask(kind, params), &["ok"])?;
    }
    scene.finish()
}

/// A daemon that is killed on a full disk starts there or says why it does not; nothing changes either way.
fn restart_while_full(scene: &mut Scene, before: &std::collections::BTreeMap<PathBuf, String>) -> Outcome {
    scene.world.kill9();
    if let Err(said) = scene.world.try_start_daemon() {
        check(!said.trim().is_empty() && !said.contains("panicked"), || format!("unclear: `{said}`"))?;
    } else {
        // A start empties the log, which may free enough space for one write: then the write is complete.
        let receipt = scene.ask("host.fs.write_file", scene.write("f", "new\n"));
        expect("full and restarted: write_file", &receipt, &["error / no_space", "ok"])?;
        if receipt["status"] == "ok" {
            return check(scene.world.read("f") == b"new\n", || {
                "acknowledged on a full disk, but not done".into()
            });
        }
    }
    check(tree(&scene.world.root) == *before, || "a restart on a full disk changed something".into())
}

/// With some space left the intent still fits and the receipt does not. The mutation is then rolled back. Repeated once
/// there is space, it is acknowledged, and no later start may roll it back a second time.
pub fn rolled_back_twice() -> Outcome {
    let mut wrong = Vec::new();
    // A new file, a new folder and a move: a second rollback would lose these. The long form takes all mutations.
    let all: Vec<usize> = (0..Scene::new()?.mutations().len()).collect();
    for index in if is_full() { all } else { vec![1, 5, 6] } {
        for pages in 0..40 {
            match one_level(index, pages)? {
                Level::Fits => break,
                Level::Full => {}
                Level::Wrong(what) => {
                    wrong.push(what);
                    break;
                }
            }
        }
    }
    check(wrong.is_empty(), || wrong.join("\n"))
}

enum Level {
    /// This much space is enough: more need not be tried.
    Fits,
    Full,
    Wrong(String),
}

fn one_level(index: usize, pages: usize) -> Result<Level, String> {
    let mut scene = Scene::new()?;
    let mutations = scene.mutations();
    for (kind, params) in &mutations[..index] {
        expect("preparing", &scene.ask(kind, params.clone()), &["ok"])?;
    }
    let (kind, params) = mutations[index].clone();
    let before = tree(&scene.world.root);
    scene.disk.fill(pages)?;
    let receipt = scene.ask(kind, params.clone());
    scene.disk.free()?;
    let what = format!("{kind} {params} with {pages} pages left");
    if receipt["status"] == "ok" {
        scene.finish()?;
        return Ok(Level::Fits);
    }
    expect(&what, &receipt, &["error / no_space"])?;
    check(tree(&scene.world.root) == before, || {
        format!("{what}: refused, but something changed: {receipt}")
    })?;
    expect(&format!("{what}, then again"), &scene.ask(kind, params), &["ok"])?;
    let acked = tree(&scene.world.root);
    scene.world.kill9();
    scene.world.start_daemon();
    let found = tree(&scene.world.root);
    if found != acked {
        let paths = acked.keys().chain(found.keys()).filter(|path| acked.get(*path) != found.get(*path));
        let names: Vec<String> = paths.map(|path| path.display().to_string()).collect();
        return Ok(Level::Wrong(format!(
            "{what}: refused, repeated and acknowledged; the next start took it back: {}",
            names.join(", ")
        )));
    }
    scene.finish()?;
    Ok(Level::Full)
}
