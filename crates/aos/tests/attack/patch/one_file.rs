//! Several sections about one file, and sections about links and special files.

use std::time::{Duration, Instant};

use aos_testkit::time::in_time;
use aos_testkit::{Findings, Fixture, check, expect, tree};
use serde_json::{Value, json};

use crate::Outcome;

pub(super) fn sections_about_one_file() -> Outcome {
    let twice = "*** Update File: a\n@@\n-one\n+1\n*** Update File: a\n@@\n-1\n+uno\n-two\n+due\n";
    let come_and_go = "*** Add File: b\n+x\n*** Delete File: b\n";
    let gone = "*** Update File: a\n*** Move to: b\n*** Update File: a\n@@\n-one\n+1\n";
    let mut said: Vec<Vec<Value>> = Vec::new();
    for _ in 0..3 {
        let mut fixture = Fixture::new();
        fixture.world.write("a", "one\ntwo\n");
        let before = tree(&fixture.world.root);
        let missing = fixture.patch(gone);
        expect("Move a->b then Update a", &missing, &["not_found / path_not_found", "reject"])?;
        check(tree(&fixture.world.root) == before, || "the tree changed".into())?;
        let both = fixture.patch(twice);
        expect("Update a twice", &both, &["ok"])?;
        check(fixture.world.read("a") == b"uno\ndue\n", || format!("{:?}", fixture.world.read("a")))?;
        let nothing = fixture.patch(come_and_go);
        expect("Add b + Delete b", &nothing, &["ok"])?;
        check(!fixture.world.root.join("b").exists(), || "b is there".into())?;
        said.push([missing, both, nothing].map(without_ids).into());
        fixture.finish()?;
    }
    let mut fixture = Fixture::new();
    one_file_many_ways(&mut fixture)?;
    fixture.finish()?;
    check(said.iter().all(|answers| *answers == said[0]), || format!("not the same each run: {said:#?}"))
}

/// A receipt without the ids that are new in every run.
fn without_ids(mut receipt: Value) -> Value {
    for name in ["seq", "tool_call_id", "turn_id", "snapshot_id"] {
        receipt.as_object_mut().unwrap().remove(name);
    }
    receipt
}

/// More orders of sections about one file, with the file's content afterwards.
const ONE_FILE: &[(&str, &str, Option<&str>)] = &[
    ("*** Delete File: f\n*** Add File: f\n+new\n", "ok", Some("new\n")),
    ("*** Delete File: f\n*** Delete File: f\n", "not_found / path_not_found", Some("old\n")),
    ("*** Delete File: f\n*** Update File: f\n@@\n-old\n+x\n", "not_found / path_not_found", Some("old\n")),
    ("*** Update File: f\n*** Move to: g\n*** Update File: g\n*** Move to: f\n", "ok", Some("old\n")),
    ("*** Update File: f\n*** Move to: g\n*** Delete File: g\n", "ok", None),
    ("*** Update File: f\n*** Move to: ./f\n@@\n-old\n+new\n", "ok", Some("new\n")),
    ("*** Add File: ./f\n+new\n*** Update File: f\n@@\n-new\n+newer\n", "ok", Some("newer\n")),
    // A file is not a folder. apply_patch has no status `conflict`, and no file appeared in between.
    ("*** Add File: f/g\n+x\n", "error", Some("old\n")),
    ("*** Delete File: f\n*** Add File: f/g\n+x\n*** Delete File: f/g\n", "ok", None),
];

fn one_file_many_ways(fixture: &mut Fixture) -> Outcome {
    let mut findings = Findings::default();
    for (sections, wanted, content) in ONE_FILE {
        fixture.world.write("f", "old\n");
        let receipt = fixture.patch(sections);
        findings.add(expect(sections, &receipt, &[wanted]));
        let path = fixture.world.root.join("f");
        let found = path.is_file().then(|| std::fs::read_to_string(&path).unwrap());
        findings
            .add(check(found.as_deref() == *content, || format!("{sections}: f is {found:?}; {receipt}")));
        findings.add(check(!fixture.world.root.join("g").exists(), || format!("{sections}: g is there")));
        if path.is_dir() {
            std::fs::remove_dir_all(&path).unwrap();
        }
    }
    findings.outcome()
}

pub(super) fn deletions_of_what_is_no_file() -> Outcome {
    let mut fixture = Fixture::new();
    fixture.world.write("d/inner", "kept\n");
    fixture.world.write("f", "content\n");
    fixture.world.link("f", "l");
    let before = tree(&fixture.world.root);
    for sections in [
        "*** Delete File: d\n",
        "*** Delete File: d/\n",
        "*** Delete File: .\n",
        "*** Update File: d\n@@\n+x\n",
        "*** Add File: d\n+x\n",
        "*** Update File: f\n*** Move to: d\n",
        "*** Update File: d\n*** Move to: e\n",
        "*** Delete File: f\n*** Delete File: d\n",
    ] {
        expect(sections, &fixture.patch(sections), &["error / is_directory"])?;
        check(tree(&fixture.world.root) == before, || format!("the tree changed: {sections}"))?;
    }
    let receipt = fixture.patch("*** Delete File: l\n");
    expect("Delete File: l", &receipt, &["ok"])?;
    check(receipt["changed_paths"] == json!(["l"]), || format!("Delete File: l: {receipt}"))?;
    check(fixture.world.root.join("l").symlink_metadata().is_err(), || "l is still there".into())?;
    check(fixture.world.read("f") == b"content\n", || "f was touched".into())?;
    let mut findings = Findings::default();
    findings.add(other_links_deleted(&mut fixture));
    findings.add(a_link_moved(&mut fixture));
    findings.add(a_link_made_a_file(&mut fixture));
    findings.add(special_files_refused(&mut fixture));
    findings.add(fixture.finish());
    findings.outcome()
}

/// Deleting a link deletes the link, wherever it leads.
fn other_links_deleted(fixture: &mut Fixture) -> Outcome {
    for (target, name) in [("d", "to_folder"), ("nowhere", "dangling"), ("to_itself", "to_itself")] {
        fixture.world.link(target, name);
        expect(name, &fixture.patch(&format!("*** Delete File: {name}\n")), &["ok"])?;
        check(fixture.world.root.join(name).symlink_metadata().is_err(), || {
            format!("{name} is still there")
        })?;
    }
    check(fixture.world.read("d/inner") == b"kept\n", || "d was touched".into())
}

/// The link itself is removed from its name; its target stays, and the receipt names what changed.
fn a_link_moved(fixture: &mut Fixture) -> Outcome {
    fixture.world.link("f", "l");
    let receipt = fixture.patch("*** Update File: l\n*** Move to: taken\n@@\n-content\n+changed\n");
    expect("Update a link and move it", &receipt, &["ok"])?;
    check(fixture.world.root.join("l").symlink_metadata().is_err(), || "the link is still there".into())?;
    check(fixture.world.read("f") == b"content\n", || "the link's target was changed".into())?;
    check(fixture.world.read("taken") == b"changed\n", || "the moved file is wrong".into())?;
    check(receipt["changed_paths"] == json!(["l", "taken"]), || {
        format!("l went and f stayed, but the receipt says {receipt}")
    })
}

/// A link is deleted and a file added under its name: the patch does not touch the link's target.
fn a_link_made_a_file(fixture: &mut Fixture) -> Outcome {
    fixture.world.link("f", "m");
    let receipt = fixture.patch("*** Delete File: m\n*** Add File: m\n+mine\n");
    expect("Delete a link and add a file", &receipt, &["ok"])?;
    check(fixture.world.read("f") == b"content\n", || {
        format!("the link's target was overwritten: {receipt}")
    })?;
    check(fixture.world.read("m") == b"mine\n", || format!("m is not the new file: {receipt}"))
}

/// Opening a FIFO would block; it is refused at once.
fn special_files_refused(fixture: &mut Fixture) -> Outcome {
    rustix::fs::mknodat(
        rustix::fs::CWD,
        fixture.world.root.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )
    .unwrap();
    let begun = Instant::now();
    for sections in [
        "*** Update File: fifo\n@@\n+x\n",
        "*** Add File: fifo\n+x\n",
        "*** Delete File: fifo\n",
        "*** Update File: fifo\n*** Move to: x\n",
        "*** Update File: f\n*** Move to: fifo\n",
    ] {
        expect(sections, &fixture.patch(sections), &["error / not_regular_file"])?;
    }
    in_time(begun, Duration::from_secs(2), "patches of a FIFO")
}
