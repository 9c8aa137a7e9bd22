//! Limits: each accepts its exact value and refuses or truncates one over it; without limits everything is accepted.

use aos_testkit::{Findings, Fixture, check, expect, is_full, patch_params, text, tree};
use serde_json::{Value, json};

use super::capability;
use crate::Outcome;

pub(super) fn reads_are_cut() -> Outcome {
    let mut fixture = Fixture::open(capability(json!({ "max_read_bytes": 100 })));
    fixture.world.write("f", "0123456789".repeat(100));
    for max_bytes in [json!(1_000_000_000), json!(101), json!(100), json!(u64::MAX)] {
        let receipt = fixture.fs("read_file", json!({ "path": "f", "max_bytes": max_bytes }));
        cut_at(&receipt, 0, 100)?;
    }
    cut_at(&fixture.fs("read_file", json!({ "path": "f" })), 0, 100)?;
    cut_at(&fixture.fs("read_file", json!({ "path": "f", "max_bytes": 99 })), 0, 99)?;
    cut_at(&fixture.fs("read_file", json!({ "path": "f", "offset_bytes": 50 })), 50, 100)?;
    let whole = json!({ "path": "f", "output_mode": "require_inline", "with_hash": true });
    cut_at(&fixture.fs("read_file", whole), 0, 100)?;
    // A read limit of the session does not keep a file from being read in pieces.
    let mut read = String::new();
    loop {
        let receipt = fixture.fs("read_file", json!({ "path": "f", "offset_bytes": read.len() }));
        read.push_str(receipt["content"]["inline_text"]["text"].as_str().unwrap_or_default());
        match receipt["next_offset_bytes"].as_u64() {
            Some(next) => check(next == read.len() as u64 && next < 1_000, || format!("{receipt}"))?,
            None => break,
        }
    }
    check(read.len() == 1_000, || format!("read {} bytes in pieces", read.len()))?;
    fixture.finish()
}

fn cut_at(receipt: &Value, offset: u64, bytes: usize) -> Outcome {
    expect("read_file", receipt, &["ok"])?;
    let found = receipt["content"]["inline_text"]["text"].as_str().unwrap_or_default().len();
    let next = json!(offset + bytes as u64);
    check(found == bytes && receipt["truncated"] == true && receipt["next_offset_bytes"] == next, || {
        format!("wanted {bytes} bytes from {offset}, truncated: {receipt}")
    })?;
    check(receipt["size_bytes"] == 1_000, || format!("size_bytes is the whole file's: {receipt}"))
}

pub(super) fn inline_or_not_at_all() -> Outcome {
    let mut fixture = Fixture::open(capability(json!({ "max_inline_bytes": 1_000 })));
    fixture.world.write("over", "x".repeat(1_001));
    let blobs = || tree(&fixture.world.home.join("state/blobs"));
    let before = blobs();
    for encoding in ["utf8", "bytes"] {
        let params = json!({ "path": "over", "output_mode": "require_inline", "encoding": encoding });
        let receipt = fixture.client.fs(&fixture.session, "read_file", params);
        expect("1,001 bytes", &receipt, &["error / inline_required_too_large"])?;
        check(receipt["content"].is_null(), || format!("content all the same: {receipt}"))?;
        check(!receipt.to_string().contains("sha256:"), || format!("a blob all the same: {receipt}"))?;
    }
    check(blobs() == before, || "a blob was stored".into())?;
    let cut = json!({ "path": "over", "output_mode": "require_inline", "max_bytes": 1_000 });
    expect("a cut of 1,000 bytes", &fixture.fs("read_file", cut), &["ok"])?;
    fixture.finish()
}

/// Creates a file with `bytes` bytes of content; returns its name.
fn planted(fixture: &Fixture, bytes: usize) -> String {
    let name = format!("f{bytes}");
    fixture.world.write(&name, "x".repeat(bytes));
    name
}

/// The sizes of a payload in a receipt: inline or as a blob.
fn payload_bytes(payload: &Value) -> (Option<usize>, Option<u64>) {
    (payload["inline_text"]["text"].as_str().map(str::len), payload["blob"]["size_bytes"].as_u64())
}

pub(super) fn nothing_binds() -> Outcome {
    let mut fixture = Fixture::new();
    let mut findings = Findings::default();
    findings.add(large_writes(&mut fixture));
    findings.add(many_changes(&mut fixture));
    findings.add(ceilings_that_always_hold(&mut fixture));
    // Paths outside the roots and protected names are refused all the same.
    let outside = fixture.fs("read_file", json!({ "path": "../outside/secret" }));
    findings.add(expect("outside", &outside, &["forbidden / path_outside_roots"]));
    findings.add(fixture.finish());
    findings.outcome()
}

fn large_writes(fixture: &mut Fixture) -> Outcome {
    let large = "0123456789abcde\n".repeat(1 << 20);
    let blob = fixture.world.blob(large.as_bytes());
    let by_blob = json!({ "path": "by_blob", "content": { "blob_ref": { "blob_ref": blob } } });
    expect("16 MiB by blob", &fixture.fs("write_file", by_blob), &["ok"])?;
    check(fixture.world.read("by_blob") == large.as_bytes(), || "the blob was not written".into())?;
    let inline = json!({ "path": "inline", "content": text(&large[..12 << 20]) });
    expect("12 MiB inline", &fixture.fs("write_file", inline), &["ok"])?;
    let read = fixture.fs("read_file", json!({ "path": "by_blob" }));
    check(payload_bytes(&read["content"]) == (None, Some(16 << 20)), || format!("{read}"))?;
    check(read["truncated"] == false, || format!("{read}"))?;
    for (bytes, inline, blob) in [(16_384, Some(16_384), None), (16_385, None, Some(16_385))] {
        let path = planted(fixture, bytes);
        let read = fixture.fs("read_file", json!({ "path": path }));
        check(payload_bytes(&read["content"]) == (inline, blob), || format!("{bytes} bytes: {read}"))?;
    }
    Ok(())
}

fn many_changes(fixture: &mut Fixture) -> Outcome {
    fixture.world.write("words", "old ".repeat(20_000));
    let edit = json!({ "path": "words", "old_string": "old", "new_string": "new", "replace_all": true });
    let receipt = fixture.fs("edit_file", edit);
    expect("20,000 replacements", &receipt, &["ok"])?;
    check(receipt["replacements"] == 20_000, || format!("{receipt}"))?;
    let adds: String = (0..1_500).map(|n| format!("*** Add File: many/f{n:04}\n+x\n")).collect();
    let receipt = fixture.patch(&adds);
    expect("1,500 files", &receipt, &["ok"])?;
    check(receipt["files_changed"] == 1_500, || format!("{}", receipt["files_changed"]))?;
    // Lists of paths are truncated at 1,000, with the full count beside them.
    check(receipt["changed_paths"].as_array().map(Vec::len) == Some(1_000), || "changed_paths".into())?;
    check(receipt["changed_paths_count"] == 1_500, || format!("{}", receipt["changed_paths_count"]))?;
    let listed = fixture.fs("list_dir", json!({ "path": "many" }));
    check(listed["count"] == 1_000 && listed["truncated"] == true, || format!("{listed}"))?;
    let listed = fixture.fs("list_dir", json!({ "path": "many", "max_results": 5_000 }));
    check(listed["count"] == 1_500 && listed["truncated"] == false, || format!("{listed}"))?;
    let removed = fixture.fs("remove", json!({ "path": "many", "recursive": true }));
    expect("1,500 removals", &removed, &["ok"])?;
    check(removed["removed"] == 1_500, || format!("{removed}"))
}

/// 64 MiB for edits and patches, 256 MiB for a read: these hold even without limits.
fn ceilings_that_always_hold(fixture: &mut Fixture) -> Outcome {
    let sparse = |name: &str, bytes: u64| {
        std::fs::File::create(fixture.world.root.join(name)).unwrap().set_len(bytes).unwrap();
    };
    sparse("over", (64 << 20) + 1);
    let edit = json!({ "path": "over", "old_string": "a", "new_string": "b" });
    expect("edit", &fixture.client.fs(&fixture.session, "edit_file", edit), &["error / file_too_large"])?;
    let patch = patch_params("*** Update File: over\n@@\n-a\n+b\n");
    expect("patch", &fixture.client.fs(&fixture.session, "apply_patch", patch), &["error / file_too_large"])?;
    if is_full() {
        sparse("read", (256 << 20) + 1);
        let receipt =
            fixture.client.fs(&fixture.session, "read_file", json!({ "path": "read", "encoding": "bytes" }));
        expect("read", &receipt, &["ok"])?;
        check(payload_bytes(&receipt["content"]).1 == Some(256 << 20), || format!("{receipt}"))?;
        check(receipt["truncated"] == true, || format!("{receipt}"))?;
        check(receipt["next_offset_bytes"] == 256 << 20, || format!("{receipt}"))?;
    }
    Ok(())
}

pub(super) fn read_limit() -> Outcome {
    let mut fixture = Fixture::open(capability(json!({ "max_read_bytes": 1_000 })));
    let mut findings = Findings::default();
    for (bytes, read, truncated) in [(999, 999, false), (1_000, 1_000, false), (1_001, 1_000, true)] {
        let path = planted(&fixture, bytes);
        let receipt = fixture.fs("read_file", json!({ "path": path }));
        let found = payload_bytes(&receipt["content"]).0;
        findings.add(check(found == Some(read) && receipt["truncated"] == truncated, || {
            format!("{bytes}: {receipt}")
        }));
        let next = if truncated { json!(1_000) } else { Value::Null };
        findings.add(check(receipt["next_offset_bytes"] == next, || format!("{bytes}: {receipt}")));
    }
    // A character that does not fit completely is left for the next read.
    fixture.world.write("wide", format!("{}\u{20ac}\u{20ac}", "x".repeat(998)));
    let receipt = fixture.fs("read_file", json!({ "path": "wide" }));
    findings.add(check(receipt["next_offset_bytes"] == 998 && receipt["truncated"] == true, || {
        format!("{receipt}")
    }));
    let rest = fixture.fs("read_file", json!({ "path": "wide", "offset_bytes": 998 }));
    findings.add(check(rest["content"] == text("\u{20ac}\u{20ac}") && rest["truncated"] == false, || {
        format!("{rest}")
    }));
    // The limit applies to reads, not to edits and patches of a larger file.
    let edit = json!({ "path": "wide", "old_string": "\u{20ac}\u{20ac}", "new_string": "!" });
    findings.add(fixture.must("edit_file", edit, &["ok"]));
    let zero = fixture.world.open(capability(json!({ "max_read_bytes": 0 })));
    let receipt = fixture.client.fs(&zero, "read_file", json!({ "path": "wide" }));
    findings
        .add(check(receipt["content"] == text("") && receipt["truncated"] == true, || format!("{receipt}")));
    findings.add(fixture.finish());
    findings.outcome()
}

const WRITE_LIMIT: usize = 1_000;

fn write_limited() -> Fixture {
    Fixture::open(capability(json!({ "max_write_bytes": WRITE_LIMIT })))
}

/// At the limit `ok`, one over `limit_exceeded`.
fn at_and_over() -> [(usize, &'static str); 2] {
    [(WRITE_LIMIT, "ok"), (WRITE_LIMIT + 1, "forbidden / limit_exceeded")]
}

pub(super) fn write_limit_of_writes() -> Outcome {
    use base64::Engine as _;
    let mut fixture = write_limited();
    let mut findings = Findings::default();
    for (bytes, wanted) in at_and_over() {
        let full = "x".repeat(bytes);
        let base64 = base64::engine::general_purpose::STANDARD.encode(&full);
        let blob = fixture.world.blob(full.as_bytes());
        for (name, content) in [
            ("text", text(full.clone())),
            ("bytes", json!({ "inline_bytes": { "bytes": base64 } })),
            ("blob", json!({ "blob_ref": { "blob_ref": blob } })),
        ] {
            for mode in ["overwrite", "create_new", "append"] {
                let path = format!("{bytes}/{name}/{mode}");
                let params =
                    json!({ "path": path, "content": content, "mode": mode, "create_parents": true });
                findings.add(fixture.must("write_file", params, &[wanted]));
            }
        }
    }
    // A refused write leaves nothing behind, not even folders.
    findings.add(check(!fixture.world.root.join("1001").exists(), || "folders were made".into()));
    fixture.world.write("grow", "x".repeat(WRITE_LIMIT - 1));
    for wanted in ["ok", "forbidden / limit_exceeded"] {
        let append = json!({ "path": "grow", "content": text("x"), "mode": "append" });
        findings.add(fixture.must("write_file", append, &[wanted]));
        findings
            .add(check(fixture.world.read("grow").len() == WRITE_LIMIT, || "grow has another size".into()));
    }
    fixture.world.write("kept", "old");
    let over = json!({ "path": "kept", "content": text("x".repeat(WRITE_LIMIT + 1)) });
    findings.add(fixture.must("write_file", over, &["forbidden / limit_exceeded"]));
    findings.add(check(fixture.world.read("kept") == b"old", || "kept changed".into()));
    findings.add(fixture.finish());
    findings.outcome()
}

pub(super) fn write_limit_of_edits() -> Outcome {
    let mut fixture = write_limited();
    let mut findings = Findings::default();
    for (bytes, wanted) in at_and_over() {
        let old = format!("a{}", "x".repeat(WRITE_LIMIT - 1));
        let grown = "b".repeat(bytes - WRITE_LIMIT + 1);
        fixture.world.write("f", &old);
        let one = json!({ "path": "f", "old_string": "a", "new_string": grown });
        findings.add(expect(&format!("edit to {bytes}"), &fixture.fs("edit_file", one), &[wanted]));
        let size = fixture.world.read("f").len();
        findings.add(check(size == WRITE_LIMIT, || format!("edit to {bytes}: {size} bytes stand")));
        fixture.world.write("f", &old);
        let several =
            json!([{ "old_string": "a", "new_string": "c" }, { "old_string": "c", "new_string": grown }]);
        let receipt = fixture.fs("edit_file", json!({ "path": "f", "edits": several }));
        findings.add(expect(&format!("edits to {bytes}"), &receipt, &[wanted]));
        let unchanged = fixture.world.read("f") == old.as_bytes();
        findings
            .add(check(unchanged == (wanted != "ok"), || format!("edits to {bytes}: unchanged {unchanged}")));
    }
    // A file that is too large already may be edited down to the limit.
    fixture.world.write("large", format!("cut{}", "x".repeat(WRITE_LIMIT)));
    let down = json!({ "path": "large", "old_string": "cut", "new_string": "" });
    findings.add(fixture.must("edit_file", down, &["ok"]));
    findings.add(fixture.finish());
    findings.outcome()
}

pub(super) fn write_limit_of_patches() -> Outcome {
    let mut fixture = write_limited();
    let mut findings = Findings::default();
    for (bytes, wanted) in at_and_over() {
        let line = "x".repeat(bytes - 1); // and its line end
        fixture.world.write("u", "old\n");
        fixture.world.write("m", "old\n");
        let before = tree(&fixture.world.root);
        let _ = std::fs::remove_file(fixture.world.root.join("moved"));
        for sections in [
            format!("*** Add File: new\n+{line}\n"),
            format!("*** Update File: u\n@@\n-old\n+{line}\n"),
            format!("*** Update File: m\n*** Move to: moved\n@@\n-old\n+{line}\n"),
            // The limit is per file: two at the limit pass; one over it fails the whole patch.
            format!("*** Add File: one\n+{}\n*** Add File: two\n+{line}\n", "x".repeat(WRITE_LIMIT - 1)),
        ] {
            let what = format!("{bytes}: {sections:.40}");
            findings.add(expect(&what, &fixture.patch(&sections), &[wanted]));
        }
        let changed = tree(&fixture.world.root) != before;
        findings.add(check(changed == (wanted == "ok"), || format!("{bytes}: changed is {changed}")));
        for name in ["new", "one", "two", "moved"] {
            let _ = std::fs::remove_file(fixture.world.root.join(name));
        }
    }
    fixture.world.write("large", "x".repeat(WRITE_LIMIT + 1));
    findings.add(expect("a deletion", &fixture.patch("*** Delete File: large\n"), &["ok"]));
    findings.add(fixture.finish());
    findings.outcome()
}

pub(super) fn patch_limit() -> Outcome {
    const LIMIT: usize = 1_000;
    let mut fixture = Fixture::open(capability(json!({ "max_patch_bytes": LIMIT })));
    let mut findings = Findings::default();
    let frame = "*** Begin Patch\n*** Add File: f\n+\n*** End Patch\n";
    for (bytes, wanted) in [(LIMIT, "ok"), (LIMIT + 1, "forbidden / limit_exceeded")] {
        let patch = frame.replace("+\n", &format!("+{}\n", "x".repeat(bytes - frame.len())));
        let blob = fixture.world.blob(patch.as_bytes());
        for source in [text(patch), json!({ "blob_ref": { "blob_ref": blob } })] {
            for dry_run in [true, false] {
                let receipt = fixture.fs("apply_patch", json!({ "patch": source, "dry_run": dry_run }));
                findings.add(expect(&format!("{bytes} bytes, dry_run {dry_run}"), &receipt, &[wanted]));
            }
            let there = fixture.world.root.join("f").exists();
            findings.add(check(there == (wanted == "ok"), || format!("{bytes} bytes: f exists is {there}")));
            let _ = std::fs::remove_file(fixture.world.root.join("f"));
        }
    }
    // The limit counts bytes, not characters, and white space around a patch counts too.
    let wide = frame.replace("+\n", &format!("+{}\n", "\u{20ac}".repeat((LIMIT - frame.len()) / 3 + 1)));
    let receipt = fixture.fs("apply_patch", json!({ "patch": text(wide) }));
    findings.add(expect("wide characters", &receipt, &["forbidden / limit_exceeded"]));
    let padded = format!("{frame}{}", "\n".repeat(LIMIT));
    let receipt = fixture.fs("apply_patch", json!({ "patch": text(padded) }));
    findings.add(expect("padding", &receipt, &["forbidden / limit_exceeded"]));
    findings.add(fixture.finish());
    findings.outcome()
}

pub(super) fn inline_limit() -> Outcome {
    let mut findings = Findings::default();
    // Below and above the default of 16,384, and zero.
    for limit in [0_usize, 100, 16_384, 50_000] {
        let mut fixture = Fixture::open(capability(json!({ "max_inline_bytes": limit })));
        for (bytes, inline) in [(limit, true), (limit + 1, false)] {
            let path = planted(&fixture, bytes);
            let receipt = fixture.fs("read_file", json!({ "path": path }));
            let wanted = if inline { (Some(bytes), None) } else { (None, Some(bytes as u64)) };
            let found = payload_bytes(&receipt["content"]);
            findings.add(check(found == wanted, || format!("{limit}: {bytes} bytes: {found:?}")));
            let required = fixture.fs("read_file", json!({ "path": path, "output_mode": "require_inline" }));
            let wanted = if inline { "ok" } else { "error / inline_required_too_large" };
            findings.add(expect(&format!("{limit}: {bytes} bytes"), &required, &[wanted]));
            findings.add(listing_of(&mut fixture, bytes, inline));
        }
        findings.add(fixture.finish());
    }
    findings.outcome()
}

/// A folder whose listing is `bytes` long: one name of some length, or two.
fn listing_of(fixture: &mut Fixture, bytes: usize, inline: bool) -> Outcome {
    let dir = format!("d{bytes}");
    std::fs::create_dir(fixture.world.root.join(&dir)).unwrap();
    // Names of 200 bytes with their line ends, then one that fills up; a listing does not end with a line end.
    let (mut left, mut number) = (bytes, 0);
    while left > 0 {
        let length = if left > 402 {
            200
        } else if left > 201 {
            left / 2
        } else {
            left
        };
        fixture.world.write(
            &format!("{dir}/{}", format!("{number:03}{}", "n".repeat(length)).get(..length).unwrap()),
            "",
        );
        left = left.saturating_sub(length + 1);
        number += 1;
    }
    let receipt = fixture.fs("list_dir", json!({ "path": dir }));
    let (text, blob) = payload_bytes(&receipt["entries"]);
    let size = text.map_or(blob, |bytes| Some(bytes as u64)).unwrap_or_default() as usize;
    check(size == bytes, || format!("the listing has {size} bytes, not {bytes}: the test is wrong"))?;
    check(text.is_some() == inline, || format!("a listing of {bytes} bytes: inline is {}", text.is_some()))?;
    let required = fixture.fs("list_dir", json!({ "path": dir, "output_mode": "require_inline" }));
    let wanted = if inline { "ok" } else { "error / inline_required_too_large" };
    expect(&format!("a listing of {bytes} bytes"), &required, &[wanted])
}

pub(super) fn patch_formats() -> Outcome {
    let mut findings = Findings::default();
    let v4a = patch_params("*** Add File: f\n+x\n");
    for (formats, wanted) in [
        (json!(["v4a"]), "ok"),
        (json!(["unified", "v4a"]), "ok"),
        (json!([]), "error / unsupported_patch_format"),
        (json!(["unified"]), "error / unsupported_patch_format"),
        (json!(["V4A"]), "error / unsupported_patch_format"),
        (json!([""]), "error / unsupported_patch_format"),
    ] {
        let mut fixture = Fixture::open(capability(json!({ "allowed_patch_formats": formats })));
        findings.add(expect(&format!("{formats}"), &fixture.fs("apply_patch", v4a.clone()), &[wanted]));
        let mut named = v4a.clone();
        named["patch_format"] = json!("v4a");
        findings.add(expect(&format!("{formats}, named"), &fixture.fs("apply_patch", named), &[wanted]));
        let there = fixture.world.root.join("f").exists();
        findings.add(check(there == (wanted == "ok"), || format!("{formats}: f exists is {there}")));
        findings.add(fixture.finish());
    }
    findings.outcome()
}

pub(super) fn changed_files_limit() -> Outcome {
    let mut fixture = Fixture::open(capability(json!({ "max_changed_files": 3 })));
    let mut findings = Findings::default();
    for (files, wanted) in [(3, "ok"), (4, "forbidden / limit_exceeded")] {
        let dir = format!("d{files}");
        let adds: String = (0..files).map(|n| format!("*** Add File: {dir}/{n}\n+x\n")).collect();
        findings.add(expect(&format!("{files} additions"), &fixture.patch(&adds), &[wanted]));
        for n in 0..files {
            fixture.world.write(&format!("{dir}/{n}"), "x\n");
        }
        let moves: String =
            (0..files).map(|n| format!("*** Update File: {dir}/{n}\n*** Move to: {dir}/m{n}\n")).collect();
        findings.add(expect(&format!("{files} moves"), &fixture.patch(&moves), &[wanted]));
        let name = if wanted == "ok" { "m" } else { "" };
        let deletions: String = (0..files).map(|n| format!("*** Delete File: {dir}/{name}{n}\n")).collect();
        findings.add(expect(&format!("{files} deletions"), &fixture.patch(&deletions), &[wanted]));
    }
    // Several sections about one file count as one changed file.
    fixture.world.write("f", "1\n");
    let sections: String = (1..6).map(|n| format!("*** Update File: f\n@@\n-{n}\n+{}\n", n + 1)).collect();
    let receipt = fixture.patch(&sections);
    findings.add(expect("five sections about one file", &receipt, &["ok"]));
    findings.add(check(receipt["files_changed"] == 1, || format!("{receipt}")));
    // With zero allowed, not even one change passes.
    let none = fixture.world.open(capability(json!({ "max_changed_files": 0 })));
    let receipt = fixture.client.fs(&none, "apply_patch", patch_params("*** Delete File: f\n"));
    findings.add(expect("none allowed", &receipt, &["forbidden / limit_exceeded"]));
    findings.add(fixture.finish());
    findings.outcome()
}

pub(super) fn replacements_limit() -> Outcome {
    let mut fixture = Fixture::open(capability(json!({ "max_edit_replacements": 5 })));
    let mut findings = Findings::default();
    for (count, wanted) in [(5, "ok"), (6, "forbidden / limit_exceeded")] {
        let old = "old ".repeat(count);
        let all = json!({ "path": "f", "old_string": "old", "new_string": "new", "replace_all": true });
        // The less exact kinds of matching count the same: here the line ends differ.
        let loose = "a\r\nb\r\n".repeat(count);
        let loosely =
            json!({ "path": "f", "old_string": "a\nb\n", "new_string": "c\n", "replace_all": true });
        let one_by_one: Vec<Value> =
            (0..count).map(|n| json!({ "old_string": format!("<{n}>"), "new_string": "x" })).collect();
        let marks: String = (0..count).map(|n| format!("<{n}>")).collect();
        let twice = json!([
            { "old_string": "old", "new_string": "new", "replace_all": true },
            { "old_string": "one", "new_string": "two" },
        ]);
        let mixed = format!("{}one", "old ".repeat(count - 1));
        for (content, params) in [
            (&old, all),
            (&loose, loosely),
            (&marks, json!({ "path": "f", "edits": one_by_one })),
            (&mixed, json!({ "path": "f", "edits": twice })),
        ] {
            fixture.world.write("f", content);
            let what = format!("{count} replacements: {params}");
            let receipt = fixture.fs("edit_file", params);
            findings.add(expect(&what, &receipt, &[wanted]));
            let unchanged = fixture.world.read("f") == content.as_bytes();
            findings.add(check(unchanged == (wanted != "ok"), || format!("{what}: unchanged {unchanged}")));
        }
    }
    findings.add(fixture.finish());
    findings.outcome()
}
