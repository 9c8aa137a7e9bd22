//! Every moment at which a step may be interrupted, and what another process may do then.
#![expect(clippy::disallowed_methods, reason = "the tests prepare and look at real folders")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use aos_model::request::content_hash;

use super::*;

const TEMPORARY: &str = ".aos-tmp-1-0";
const KEPT: &str = "snap_1.0";
const OLD: &[u8] = b"old content\n";
const NEW: &[u8] = b"new content!\n";

/// A folder with a file `f`, and a folder of pre-images.
struct Disk {
    _parent: tempfile::TempDir,
    f: PathBuf,
    temporary: PathBuf,
    kept: PathBuf,
    dir: PathBuf,
    preimages: OwnedFd,
}

impl Disk {
    fn new(has_old: bool) -> Disk {
        let parent = tempfile::tempdir().unwrap();
        let (dir, preimages) = (parent.path().join("work"), parent.path().join("preimages"));
        fs::create_dir(&dir).unwrap();
        fs::create_dir(&preimages).unwrap();
        if has_old {
            fs::write(dir.join("f"), OLD).unwrap();
        }
        let open = |path: &Path| disk::open_dir_at_path(path.as_os_str().as_encoded_bytes()).unwrap();
        Disk {
            f: dir.join("f"),
            temporary: dir.join(TEMPORARY),
            kept: preimages.join(KEPT),
            preimages: open(&preimages),
            dir,
            _parent: parent,
        }
    }

    fn site(&self) -> Site {
        let dir = disk::open_dir_at_path(self.dir.as_os_str().as_encoded_bytes()).unwrap();
        Site { dir, name: b"f".to_vec() }
    }

    fn at(&self) -> At {
        At { dir: self.dir.to_str().unwrap().into(), name: "f".into(), shown: "f".into() }
    }

    fn old(&self) -> Option<Seen> {
        self.site().now().unwrap().map(Seen::from)
    }

    fn take_back(&self, intent: &StepIntent) -> Result<bool, Errno> {
        take_back_step(intent, (Some(self.site()), None), &self.preimages, false)
    }

    fn content(path: &Path) -> Option<Vec<u8>> {
        fs::read(path).ok()
    }
}

/// What another process does at `f` after the daemon died.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Other {
    Nothing,
    Replaces,
    Removes,
    MakesALink,
    MakesAFolder,
}

const OTHERS: [Other; 5] =
    [Other::Nothing, Other::Replaces, Other::Removes, Other::MakesALink, Other::MakesAFolder];

impl Other {
    fn act(self, f: &Path) {
        if self != Other::Nothing {
            let _ = fs::remove_file(f);
        }
        match self {
            Other::Nothing | Other::Removes => {}
            Other::Replaces => fs::write(f, "theirs").unwrap(),
            Other::MakesALink => symlink("elsewhere", f).unwrap(),
            Other::MakesAFolder => fs::create_dir(f).unwrap(),
        }
    }

    fn assert_untouched(self, f: &Path, when: &str) {
        let is_untouched = match self {
            Other::Nothing => true,
            Other::Removes => f.symlink_metadata().is_err(),
            Other::Replaces => fs::read(f).is_ok_and(|content| content == b"theirs"),
            Other::MakesALink => f.is_symlink(),
            Other::MakesAFolder => f.is_dir(),
        };
        assert!(is_untouched, "{when}: what the other process did was changed");
    }
}

/// The moments at which a daemon may die while it puts a file.
#[derive(Debug, Clone, Copy)]
enum Moment {
    Announced,
    HalfWritten,
    Written,
    InPlace,
    Stored,
}

fn put(disk: &Disk) -> StepIntent {
    StepIntent::Put {
        at: disk.at(),
        temporary: TEMPORARY.into(),
        preimage: KEPT.into(),
        before: disk.old(),
        after: Content { hash: content_hash(NEW), size: NEW.len() as u64, mode: 0o644, kind: Kind::File },
    }
}

fn put_until(disk: &Disk, moment: Moment) {
    let Disk { f, temporary, kept, .. } = disk;
    let written = match moment {
        Moment::Announced => return,
        Moment::HalfWritten => &NEW[..3],
        Moment::Written | Moment::InPlace | Moment::Stored => NEW,
    };
    fs::write(temporary, written).unwrap();
    if matches!(moment, Moment::HalfWritten | Moment::Written) {
        return;
    }
    if !f.exists() {
        return fs::rename(temporary, f).unwrap();
    }
    let aside = disk.dir.join("aside");
    fs::rename(f, &aside).unwrap();
    fs::rename(temporary, f).unwrap();
    fs::rename(aside, if matches!(moment, Moment::Stored) { kept } else { temporary }).unwrap();
}

#[test]
fn a_put_is_taken_back_from_every_moment_and_what_others_did_stays() {
    let moments = [Moment::Announced, Moment::HalfWritten, Moment::Written, Moment::InPlace, Moment::Stored];
    for (has_old, moment, other) in [true, false]
        .into_iter()
        .flat_map(|old| moments.map(|moment| (old, moment)))
        .flat_map(|(old, moment)| OTHERS.map(|other| (old, moment, other)))
    {
        let when = format!("old {has_old}, {moment:?}, another process: {other:?}");
        let disk = Disk::new(has_old);
        let intent = put(&disk);
        put_until(&disk, moment);
        other.act(&disk.f);
        let undone = disk.take_back(&intent).unwrap_or_else(|why| panic!("{when}: {why}"));
        assert!(!disk.temporary.exists(), "{when}: the temporary file was left");
        other.assert_untouched(&disk.f, &when);
        if other == Other::Nothing {
            assert!(undone, "{when}: not taken back");
            assert_eq!(Disk::content(&disk.f).as_deref(), has_old.then_some(OLD), "{when}");
        } else if has_old && matches!(moment, Moment::InPlace | Moment::Stored) {
            assert!(!undone, "{when}: told as taken back");
            assert_eq!(Disk::content(&disk.kept).as_deref(), Some(OLD), "{when}: the old content is lost");
        }
        // A second recovery, after the first was interrupted at its end, changes nothing.
        let (f, kept) = (Disk::content(&disk.f), Disk::content(&disk.kept));
        disk.take_back(&intent).unwrap_or_else(|why| panic!("again, {when}: {why}"));
        assert_eq!((Disk::content(&disk.f), Disk::content(&disk.kept)), (f, kept), "again, {when}");
    }
}

#[test]
fn a_removal_is_taken_back_from_every_moment_and_what_others_did_stays() {
    for moment in [Moment::Announced, Moment::InPlace, Moment::Stored] {
        for other in OTHERS {
            let when = format!("{moment:?}, another process: {other:?}");
            let disk = Disk::new(true);
            let before = disk.old().unwrap();
            let intent = StepIntent::Remove {
                at: disk.at(),
                temporary: TEMPORARY.into(),
                preimage: KEPT.into(),
                before,
            };
            match moment {
                Moment::InPlace => fs::rename(&disk.f, &disk.temporary).unwrap(),
                Moment::Stored => fs::rename(&disk.f, &disk.kept).unwrap(),
                _ => {}
            }
            other.act(&disk.f);
            let undone = disk.take_back(&intent).unwrap_or_else(|why| panic!("{when}: {why}"));
            assert!(!disk.temporary.exists(), "{when}: the temporary file was left");
            let was_removed = matches!(moment, Moment::InPlace | Moment::Stored);
            if other == Other::Nothing || was_removed && other == Other::Removes {
                assert!(undone, "{when}: not taken back");
                assert_eq!(Disk::content(&disk.f).as_deref(), Some(OLD), "{when}");
                continue;
            }
            other.assert_untouched(&disk.f, &when);
            if was_removed {
                assert!(!undone, "{when}: told as taken back");
                assert_eq!(
                    Disk::content(&disk.kept).as_deref(),
                    Some(OLD),
                    "{when}: the old content is lost"
                );
            }
        }
    }
}

/// A process that replaced the file in the moment of the removal keeps its file.
#[test]
fn a_file_that_was_removed_by_mistake_is_not_lost() {
    let disk = Disk::new(true);
    let before = disk.old().unwrap();
    // In this order: a file that is made after the old one is gone may get its inode number.
    fs::write(&disk.temporary, "theirs").unwrap();
    fs::remove_file(&disk.f).unwrap();
    let intent =
        StepIntent::Remove { at: disk.at(), temporary: TEMPORARY.into(), preimage: KEPT.into(), before };
    assert_eq!(disk.take_back(&intent), Ok(false));
    assert!(!disk.temporary.exists());
    assert_eq!(Disk::content(&disk.kept).as_deref(), Some(&b"theirs"[..]));
}
