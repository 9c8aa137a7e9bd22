//! RPLY-04, RPLY-05, RPLY-09: blobs that are missing, corrupted, or kept by garbage collection.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use aos_model::receipt::Durability;
use aos_store::Home;
use aos_testkit::{check, expect, text};
use serde_json::json;

use super::Recorded;
use crate::Outcome;

const REPLAY_FAULT: i32 = 103;

fn io<T>(result: std::io::Result<T>) -> Result<T, String> {
    result.map_err(|why| why.to_string())
}

/// Where a blob is stored.
fn blob_path(home: &Path, blob_ref: &str) -> PathBuf {
    let digits = blob_ref.trim_start_matches("sha256:");
    home.join("state/blobs").join(&digits[..2]).join(&digits[2..])
}

impl Recorded {
    /// The number of the first entry that names a blob.
    fn named_by(&self, blob_ref: &str) -> Result<u64, String> {
        let (_, log, _) = self.world.aos(&["log", "--json"]);
        let naming = log.lines().find(|line| line.contains(blob_ref)).ok_or("no entry names the blob")?;
        let entry: serde_json::Value = serde_json::from_str(naming).map_err(|why| why.to_string())?;
        entry["seq"].as_u64().ok_or_else(|| "an entry without seq".into())
    }

    /// Replays three times: each exits with 103 and the same message, which names the blob and the entry.
    fn stops_at(&self, what: &str, blob_ref: &str) -> Result<String, String> {
        let seq = self.named_by(blob_ref)?;
        let told: Vec<_> = (0..3).map(|_| self.world.aos(&["replay", "--verify"])).collect();
        let (code, out, err) = &told[0];
        check(*code == REPLAY_FAULT, || format!("{what}: exit {code}: {out}{err}"))?;
        check(told.iter().all(|one| one == &told[0]), || format!("{what}: three replays differ: {told:?}"))?;
        let named = err.contains(blob_ref) && err.contains(&format!("entry {seq}"));
        check(named && !err.contains("panicked"), || format!("{what}: does not name blob and {seq}: {err}"))?;
        check(!out.contains("MATCH"), || format!("{what}: says {out}"))?;
        let (code, out, err_of_verify) = self.world.aos(&["verify"]);
        check(code != 0 && format!("{out}{err_of_verify}").contains(blob_ref), || {
            format!("{what}: aos verify: {code}: {out}{err_of_verify}")
        })?;
        Ok(err.clone())
    }
}

/// Damages the blob, runs `look`, and restores the blob.
fn with_damage(
    recorded: &Recorded,
    blob_ref: &str,
    damage: impl FnOnce(&Path) -> std::io::Result<()>,
    look: impl FnOnce() -> Outcome,
) -> Outcome {
    let path = blob_path(&recorded.world.home, blob_ref);
    let kept = recorded.world.parent.join("kept");
    io(std::fs::rename(&path, &kept))?;
    io(damage(&path))?;
    let outcome = look();
    let _ = std::fs::remove_dir(&path).or_else(|_| std::fs::remove_file(&path));
    io(std::fs::rename(&kept, &path))?;
    outcome
}

/// RPLY-04.
pub fn missing() -> Outcome {
    let recorded = Recorded::new(60)?;
    for blob_ref in &recorded.blobs {
        let look = || recorded.stops_at("missing", blob_ref).map(drop);
        with_damage(&recorded, blob_ref, |_| Ok(()), look)?;
    }
    recorded.matches("all blobs in their places")?;
    recorded.world.finish()
}

/// Something else is in the blob's place: reported like a missing blob.
pub fn replaced() -> Outcome {
    let recorded = Recorded::new(60)?;
    let blob_ref = &recorded.blobs[0];
    let kept = recorded.world.parent.join("kept");
    let folder = with_damage(
        &recorded,
        blob_ref,
        |path| std::fs::create_dir(path),
        || recorded.stops_at("a folder in its place", blob_ref).map(drop),
    );
    let link = with_damage(
        &recorded,
        blob_ref,
        |path| std::os::unix::fs::symlink(&kept, path),
        || recorded.stops_at("a link in its place", blob_ref).map(drop),
    );
    let wrong: Vec<String> = [folder, link].into_iter().filter_map(Result::err).collect();
    check(wrong.is_empty(), || wrong.join("\n"))?;
    recorded.world.finish()
}

/// The journal also names a blob that the operator put and a session used.
pub fn put_and_missing() -> Outcome {
    let recorded = Recorded::new(60)?;
    let file = recorded.world.parent.join("put");
    io(std::fs::write(&file, "what the operator put\n".repeat(10)))?;
    let (code, out, err) = recorded.world.aos(&["blob", "put", &file.display().to_string()]);
    check(code == 0, || format!("aos blob put: {err}"))?;
    let blob_ref = out.trim().to_owned();
    let content = json!({ "blob_ref": { "blob_ref": blob_ref } });
    let params = json!({ "session_id": recorded.sessions[0], "path": "from-blob", "content": content });
    expect("a write", &recorded.world.client().effect("host.fs.write_file", params), &["ok"])?;
    with_damage(
        &recorded,
        &blob_ref,
        |_| Ok(()),
        || recorded.stops_at("put, then missing", &blob_ref).map(drop),
    )?;
    recorded.world.finish()
}

type Corrupt = fn(&mut Vec<u8>);

const CORRUPTIONS: [(&str, Corrupt); 5] = [
    ("first bit", |bytes| bytes[0] ^= 1),
    ("last bit", |bytes| *bytes.last_mut().expect("it is not empty") ^= 0x80),
    ("cut", |bytes| bytes.truncate(bytes.len() - 1)),
    ("longer", |bytes| bytes.push(b'\n')),
    ("empty", Vec::clear),
];

/// Corrupts a blob in each way in turn and runs `case` with the name of the way.
fn with_each_corruption(
    recorded: &Recorded,
    blob_ref: &str,
    whole: &[u8],
    case: impl Fn(&str) -> Outcome,
) -> Outcome {
    CORRUPTIONS.into_iter().try_for_each(|(what, corrupt)| {
        let mut bytes = whole.to_vec();
        corrupt(&mut bytes);
        with_damage(recorded, blob_ref, |path| std::fs::write(path, bytes), || case(what))
    })
}

/// RPLY-05.
pub fn corrupted() -> Outcome {
    let recorded = Recorded::new(60)?;
    let blob_ref = &recorded.blobs[1];
    let whole = io(std::fs::read(blob_path(&recorded.world.home, blob_ref)))?;
    with_each_corruption(&recorded, blob_ref, &whole, |what| {
        let said = recorded.stops_at(what, blob_ref)?;
        check(said.contains("hash mismatch"), || format!("{what}: no hash mismatch is named: {said}"))?;
        // A write from the blob is refused instead of writing corrupted bytes.
        let content = json!({ "blob_ref": { "blob_ref": blob_ref } });
        let params = json!({ "session_id": recorded.sessions[1], "path": "from-blob", "content": content });
        let receipt = recorded.world.client().effect("host.fs.write_file", params);
        expect(&format!("{what}: a write from it"), &receipt, &["error"])?;
        check(!recorded.world.root.join("from-blob").exists(), || format!("{what}: garbage was written"))
    })?;
    recorded.matches("the blob put right")?;
    recorded.world.finish()
}

/// `aos blob get` of a corrupted blob fails; it does not return the corrupted bytes.
pub fn fetched_corrupted() -> Outcome {
    let recorded = Recorded::new(60)?;
    let blob_ref = &recorded.blobs[1];
    let (code, whole, _) = recorded.world.aos(&["blob", "get", blob_ref]);
    check(code == 0 && aos_model::request::content_hash(whole.as_bytes()) == *blob_ref, || {
        "aos blob get gives other bytes".into()
    })?;
    with_each_corruption(&recorded, blob_ref, whole.as_bytes(), |what| {
        let (code, _, err) = recorded.world.aos(&["blob", "get", blob_ref]);
        check(code != 0 && !err.trim().is_empty(), || format!("{what}: aos blob get: exit {code}, `{err}`"))
    })?;
    recorded.world.finish()
}

/// RPLY-09.
pub fn swept() -> Outcome {
    let recorded = Recorded::new(60)?;
    let file = recorded.world.parent.join("put");
    io(std::fs::write(&file, "named by the operator alone\n"))?;
    let (_, put, _) = recorded.world.aos(&["blob", "put", &file.display().to_string()]);
    let store = |bytes: &[u8]| -> Result<String, String> {
        let home = Home::open(&recorded.world.home).map_err(|why| why.to_string())?;
        home.blobs(Durability::Process).and_then(|blobs| blobs.put(bytes)).map_err(|why| why.to_string())
    };
    let nobody_names = store(b"an old blob that nobody names\n")?;
    age_all(&recorded.world.home.join("state/blobs"))?;
    let young = store(b"a young blob that nobody names yet\n")?;
    let named: Vec<String> = recorded.blobs.iter().cloned().chain([put.trim().to_owned()]).collect();
    // The session of the third large read is closed: its entry still names the blob.
    for round in 0..3 {
        let (code, out, err) = recorded.world.aos(&["gc"]);
        check(code == 0, || format!("aos gc: {code}: {out}{err}"))?;
        let gone = !blob_path(&recorded.world.home, &nobody_names).exists();
        check(gone, || format!("round {round}: gc leaves what nobody names: {out}"))?;
        check(blob_path(&recorded.world.home, &young).exists(), || "gc takes what is young".into())?;
        for blob_ref in &named {
            let (code, out, err) = recorded.world.aos(&["blob", "get", blob_ref]);
            let hash = aos_model::request::content_hash(out.as_bytes());
            check(code == 0 && hash == *blob_ref, || format!("{blob_ref} after gc: {code}: {err}"))?;
        }
        recorded.matches("after gc")?;
    }
    swept_beside_readers(&recorded)?;
    recorded.matches("after gc beside readers")?;
    recorded.world.finish()
}

/// Sets the time of every blob two days back.
fn age_all(blobs: &Path) -> Outcome {
    let old = SystemTime::now() - Duration::from_secs(2 * 24 * 3600);
    for (path, _) in aos_testkit::tree(blobs).into_iter().filter(|(_, what)| what.starts_with("file")) {
        let file = io(std::fs::File::options().write(true).open(&path))?;
        io(file.set_modified(old))?;
    }
    Ok(())
}

/// Blobs that are named again during garbage collection: a receipt may name a blob just after it was found to be old.
fn swept_beside_readers(recorded: &Recorded) -> Outcome {
    let world = &recorded.world;
    let session = &recorded.sessions[0];
    for n in 0..20 {
        let bytes = format!("a blob that comes back {n}\n").repeat(1_000);
        world.write(&format!("back{n}"), &bytes);
        let home = Home::open(&world.home).map_err(|why| why.to_string())?;
        home.blobs(Durability::Process)
            .and_then(|blobs| blobs.put(bytes.as_bytes()))
            .map_err(|why| why.to_string())?;
    }
    age_all(&world.home.join("state/blobs"))?;
    std::thread::scope(|scope| {
        let sweeper = scope.spawn(|| (0..5).map(|_| world.aos(&["gc"]).0).max());
        let mut client = world.client();
        for n in 0..20 {
            let params = json!({ "session_id": session, "path": format!("back{n}") });
            expect("a read beside gc", &client.effect("host.fs.read_file", params), &["ok"])?;
            let write = json!({ "session_id": session, "path": "beside", "content": text(format!("{n}\n")) });
            expect("a write beside gc", &client.effect("host.fs.write_file", write), &["ok"])?;
        }
        let worst = sweeper.join().unwrap_or(None);
        check(worst == Some(0), || format!("gc beside readers: exit {worst:?}"))
    })
}
