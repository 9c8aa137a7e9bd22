//! The findings C13 and C24 to C30, each as a history. P: a person; W: an agent's call, each its own turn.

use aos_model::records::Kind;
use aos_model::undo::{ChangedBy, Step, folder};

use super::actors::file;
use super::host::{Answer, Ask, Change, Host, Selection, remove_step, rename_step};
use super::world::{Files, Obj, ancestors, keys, remove, rename};

#[derive(Clone)]
struct Story {
    host: Host,
    calls: usize,
}

impl Story {
    fn new() -> Story {
        Story { host: Host::new(1), calls: 0 }
    }

    fn p(&mut self, path: &str, hash: u64) {
        for above in ancestors(path) {
            let obj = Obj::new(Kind::Dir, 0, self.host.tick()).by_person();
            self.host.files.entry(above.to_owned()).or_insert(obj);
        }
        let obj = Obj::new(Kind::File, hash, self.host.tick()).by_person();
        self.host.files.insert(path.to_owned(), obj);
    }

    fn p_removes(&mut self, path: &str) {
        remove(&mut self.host.files, path);
    }

    /// The number of the entry, if there is one.
    fn call(&mut self, what: impl FnOnce(&mut Change<'_>)) -> Option<u64> {
        self.calls += 1;
        let (call, turn) = (format!("c{}", self.calls), format!("t{}", self.calls));
        let mut change = self.host.change(0);
        what(&mut change);
        change.finish(&call, false, Some(&turn))
    }

    fn w(&mut self, path: &str, hash: u64) -> Option<u64> {
        self.call(|change| {
            for above in ancestors(path) {
                if !change.files().contains_key(above) {
                    change.step(Step::MakeDir { path: above.to_owned(), image: folder() });
                }
            }
            change.put(path, file(hash, None));
        })
    }

    fn moves(&mut self, from: &str, to: &str) -> Option<u64> {
        self.call(|change| change.step(rename_step(from, to)))
    }

    fn command(&mut self, what: impl FnOnce(&mut Files)) -> Option<u64> {
        let mut new = self.host.files.clone();
        what(&mut new);
        self.call(|change| change.become_tree(&new))
    }

    fn ask(&mut self, selection: Selection, paths: Option<&[&str]>, force: bool) -> Answer {
        self.calls += 1;
        let turn = format!("t{}", self.calls);
        let paths = paths.map(|paths| paths.iter().map(|path| (*path).to_owned()).collect());
        self.host.undo(&Ask { session: 0, selection, paths, force, turn }, false)
    }

    fn rollback(&mut self, turns: usize, force: bool) -> Answer {
        self.ask(Selection::Rollback(turns), None, force)
    }

    fn redo(&mut self, turns: usize) -> Answer {
        self.ask(Selection::Redo(turns), None, false)
    }

    fn at(&self, path: &str) -> Option<u64> {
        self.host.files.get(path).map(|obj| obj.hash)
    }
}

fn conflicts(answer: &Answer) -> Vec<(&str, &ChangedBy)> {
    match answer {
        Answer::Conflict(all) => all.iter().map(|one| (one.path.as_str(), &one.changed_by)).collect(),
        other => panic!("no conflict: {other:?}"),
    }
}

fn lists(answer: &Answer) -> (Vec<&str>, Vec<&str>) {
    match answer {
        Answer::Ok { restored, deleted, .. } => {
            (restored.iter().map(String::as_str).collect(), deleted.iter().map(String::as_str).collect())
        }
        other => panic!("not done: {other:?}"),
    }
}

#[test]
fn c13_redo_brings_back_what_the_last_undo_displaced() {
    let mut s = Story::new();
    s.w("/f", 1);
    for person in [12, 123, 1234] {
        s.p("/f", person);
        conflicts(&s.rollback(1, false));
        lists(&s.rollback(1, true));
        assert_eq!(s.at("/f"), None);
        lists(&s.redo(1));
        assert_eq!(s.at("/f"), Some(person));
    }
}

#[test]
fn c24_a_folder_that_a_person_removed_between_two_calls_is_a_conflict() {
    let mut s = Story::new();
    s.p("/d/e/c", 0);
    s.w("/d/e/c", 1);
    s.p_removes("/d/e");
    s.w("/d/e/f", 2);
    let answer = s.rollback(2, false);
    assert_eq!(conflicts(&answer), [("/d/e/c", &ChangedBy::Between(0, 1))]);
    let answer = s.rollback(2, true);
    assert_eq!(lists(&answer), (vec!["/d/e/c"], vec!["/d/e/f"]));
    assert_eq!((s.at("/d/e/c"), s.at("/d/e/f")), (Some(0), None));
    lists(&s.redo(2));
    assert_eq!((s.at("/d/e/c"), s.at("/d/e/f")), (None, Some(2)));
}

#[test]
fn c25_a_rollback_judges_and_touches_the_paths_of_its_turns() {
    let mut s = Story::new();
    s.p("/y", 0);
    s.w("/x", 1);
    s.w("/y", 2);
    lists(&s.rollback(1, false));
    s.p("/y", 99);
    assert_eq!(lists(&s.rollback(1, false)), (vec![], vec!["/x"]));
    assert_eq!(s.at("/y"), Some(99));
    lists(&s.redo(1));
    assert_eq!((s.at("/x"), s.at("/y")), (Some(1), Some(99)));
}

#[test]
fn c26_going_over_a_gap_is_a_conflict() {
    type Second = (&'static str, bool, fn(&mut Story) -> Option<u64>);
    let second: [Second; 5] = [
        ("write", false, |s| s.w("/f", 2)),
        ("remove", true, |s| s.call(|change| change.step(remove_step("/f")))),
        ("move", true, |s| s.moves("/f", "/g")),
        ("exec", false, |s| s.command(|files| files.get_mut("/f").unwrap().hash = 2)),
        ("exec removes", true, |s| s.command(|files| drop(remove(files, "/f")))),
    ];
    for (name, of_folders, second) in second {
        for is_folder in [false, of_folders] {
            let mut s = Story::new();
            s.w("/f", 1);
            s.p_removes("/f");
            s.p(if is_folder { "/f/in" } else { "/f" }, 99);
            second(&mut s);
            let before = s.host.files.clone();
            let answer = s.rollback(2, false);
            let gap = ("/f", &ChangedBy::Between(0, 1));
            assert!(conflicts(&answer).contains(&gap), "{name} {is_folder}: {answer:?}");
            // One by one.
            let mut single = s.clone();
            lists(&single.rollback(1, false));
            assert_eq!(single.at(if is_folder { "/f/in" } else { "/f" }), Some(99));
            conflicts(&single.rollback(1, false));
            // By force, and back.
            lists(&s.rollback(2, true));
            assert_eq!(s.at("/f"), None);
            lists(&s.redo(2));
            assert_eq!(keys(&s.host.files), keys(&before), "{name} {is_folder}");
        }
    }
}

#[test]
fn c26_what_force_displaced_is_in_a_listed_snapshot_after_a_new_change() {
    let mut s = Story::new();
    s.w("/f", 1);
    s.p("/f", 99);
    let Answer::Ok { snapshot, .. } = s.rollback(1, true) else { panic!() };
    s.w("/f", 3);
    let restore = Selection::Snapshot(snapshot);
    assert_eq!(conflicts(&s.ask(restore.clone(), None, false)), [("/f", &ChangedBy::Change(2))]);
    lists(&s.ask(restore, None, true));
    assert_eq!(s.at("/f"), Some(99));
}

#[test]
fn c27_restoring_a_move_twice_changes_nothing() {
    for edit in [false, true] {
        let mut s = Story::new();
        s.p("/b", 1);
        s.p("/d", 2);
        s.moves("/d", "/b");
        if edit {
            s.p("/b", 22);
        }
        let scope = Selection::Scope("c1".into());
        assert_eq!(lists(&s.ask(scope.clone(), None, true)), (vec!["/b", "/d"], vec![]));
        assert_eq!((s.at("/b"), s.at("/d")), (Some(1), Some(if edit { 22 } else { 2 })));
        assert_eq!(lists(&s.ask(scope.clone(), None, true)), (vec![], vec![]));
        // Without `force` the edited file is not what was there.
        match edit {
            false => assert_eq!(lists(&s.ask(scope, None, false)), (vec![], vec![])),
            true => assert_eq!(conflicts(&s.ask(scope, None, false)).len(), 1),
        }
    }
}

#[test]
fn c28_the_lists_are_the_difference_of_the_trees() {
    let mut s = Story::new();
    s.w("/f", 1);
    s.p_removes("/f");
    s.p("/f/in", 2);
    assert_eq!(lists(&s.rollback(1, true)), (vec![], vec!["/f", "/f/in"]));
    s.p("/d/x", 1);
    s.moves("/d", "/e");
    assert_eq!(lists(&s.rollback(1, false)), (vec!["/d", "/d/x"], vec!["/e", "/e/x"]));
    s.w("/n/m/x", 1);
    assert_eq!(lists(&s.rollback(1, false)), (vec![], vec!["/n", "/n/m", "/n/m/x"]));
}

#[test]
fn c29_mode_and_attributes_count_alike() {
    let change: [fn(&mut Obj); 2] = [|obj| obj.mode = 0o600, |obj| obj.xattrs.extend([("user.a".into(), 1)])];
    for change in change {
        let mut s = Story::new();
        s.w("/f", 1);
        change(s.host.files.get_mut("/f").unwrap());
        assert_eq!(conflicts(&s.rollback(1, false)), [("/f", &ChangedBy::Outside)]);
        let before = s.host.files.clone();
        lists(&s.rollback(1, true));
        lists(&s.redo(1));
        assert_eq!(keys(&s.host.files), keys(&before));
    }
}

#[test]
fn c30_a_command_that_cancels_out_makes_no_step() {
    let mut s = Story::new();
    s.p("/d/x", 1);
    let seq = s.command(|files| {
        for (path, obj) in files.clone() {
            files.insert(format!("/d2{}", &path[2..]), obj);
        }
        remove(files, "/d");
        rename(files, "/d2", "/d");
    });
    assert_eq!(seq, None);
    assert_eq!(s.rollback(1, false), Answer::Nothing);
}

#[test]
fn partial_redo_of_a_forced_rollback_of_two_turns() {
    let mut s = Story::new();
    s.p("/y", 0);
    s.w("/y", 1);
    s.w("/y", 2);
    s.p("/y", 99);
    lists(&s.rollback(2, true));
    assert_eq!(s.at("/y"), Some(0));
    lists(&s.redo(1));
    assert_eq!(s.at("/y"), Some(1));
    lists(&s.redo(1));
    assert_eq!(s.at("/y"), Some(99));
}

#[test]
fn a_folder_takes_a_persons_files_along() {
    let mut s = Story::new();
    s.p("/d/x", 1);
    s.moves("/d", "/e");
    s.p("/e/mine", 2);
    s.p("/e/x", 3);
    assert_eq!(lists(&s.rollback(1, false)).0, ["/d", "/d/mine", "/d/x"]);
    assert_eq!((s.at("/d/mine"), s.at("/d/x")), (Some(2), Some(3)));
}

#[test]
fn redo_of_a_move_onto_a_file_that_a_person_deleted_is_a_conflict() {
    let mut s = Story::new();
    s.p("/a", 1);
    s.p("/b", 2);
    s.moves("/a", "/b");
    lists(&s.rollback(1, false));
    s.p_removes("/b");
    assert_eq!(conflicts(&s.redo(1)), [("/b", &ChangedBy::Outside)]);
}

#[test]
fn what_a_turn_leaves_alone_overall_stays_with_force() {
    let mut s = Story::new();
    s.p("/f", 1);
    s.w("/f", 2);
    s.w("/f", 1);
    s.p("/f", 99);
    assert_eq!(lists(&s.rollback(2, true)), (vec![], vec![]));
    assert_eq!(s.at("/f"), Some(99));
}

#[test]
fn of_a_removed_folder_one_path_comes_back_alone() {
    let mut s = Story::new();
    s.p("/d/x", 1);
    s.p("/d/y", 2);
    s.host.files.get_mut("/d").unwrap().mode = 0o700;
    s.call(|change| change.step(remove_step("/d")));
    let answer = s.ask(Selection::Scope("c1".into()), Some(&["/d/x"]), false);
    assert_eq!(lists(&answer), (vec!["/d", "/d/x"], vec![]));
    assert_eq!(s.host.files["/d"].mode, 0o700);
}

#[test]
fn attributes_that_a_person_set_below_a_moved_folder_are_judged() {
    let mut s = Story::new();
    s.p("/d/e/x", 1);
    s.moves("/d", "/b");
    s.command(|files| files.get_mut("/b/e").unwrap().mode = 0o700);
    lists(&s.rollback(2, false));
    s.host.files.get_mut("/d/e").unwrap().mode = 0o775;
    assert_eq!(conflicts(&s.redo(2)), [("/d/e", &ChangedBy::Outside)]);
}

#[test]
fn a_link_in_place_of_a_folder_above_is_a_gap() {
    let mut s = Story::new();
    s.p("/d/x", 1);
    s.w("/d/x", 2);
    s.p_removes("/d");
    s.p("/d", 99);
    s.call(|change| change.step(remove_step("/d")));
    assert_eq!(conflicts(&s.rollback(2, false)), [("/d", &ChangedBy::Between(0, 1))]);
    lists(&s.rollback(2, true));
    assert_eq!(s.at("/d/x"), Some(1));
    lists(&s.redo(2));
    assert_eq!(s.at("/d"), None);
}
