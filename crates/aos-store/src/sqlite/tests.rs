//! Intents in rows and slots, across the death of a daemon.

use aos_model::entry::EntryDraft;
use aos_model::state::FoldInput;

use super::*;

fn new_home() -> (tempfile::TempDir, Home) {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::open(dir.path()).unwrap();
    (dir, home)
}

fn open(home: &Home, durability: Durability) -> SqliteJournal {
    SqliteJournal::open(home, durability).unwrap()
}

fn close(journal: &SqliteJournal, intent: u64) {
    let entry = EntryDraft {
        at_ns: 1,
        kind: "host.fs.write_file",
        session_id: None,
        tool_call_id: None,
        turn_id: None,
        params: "{}",
        receipt: "{}",
        blobs: &[],
        facts: &[],
    };
    let append = Append { body: entry.to_bytes(), effects: FoldInput::default(), closes: Some(intent) };
    journal.append(append).unwrap();
}

fn open_intents(journal: &SqliteJournal) -> Vec<(u64, Vec<u8>)> {
    journal.open_intents().unwrap().into_iter().map(|intent| (intent.id, intent.body)).collect()
}

fn rows(journal: &SqliteJournal) -> i64 {
    let writer = journal.lock_writer();
    writer.connection.query_row("SELECT count(*) FROM intent", [], |row| row.get(0)).unwrap()
}

/// As a killed daemon leaves it: nothing is folded, erased or truncated.
fn kill(journal: SqliteJournal) {
    std::mem::forget(journal);
}

#[test]
fn intents_reuse_the_rows_and_slots_of_closed_ones_and_open_ones_are_kept() {
    for (durability, rows_left) in [(Durability::Process, 1), (Durability::Power, 2)] {
        let (_dir, home) = new_home();
        let journal = open(&home, durability);
        let stays = journal.begin_intent(b"stays".to_vec()).unwrap();
        for _ in 0..20 {
            let passing = journal.begin_intent(b"passing".to_vec()).unwrap();
            journal.replace_intent(passing, b"otherwise".to_vec()).unwrap();
            assert_eq!(
                open_intents(&journal),
                [(stays, b"stays".to_vec()), (passing, b"otherwise".to_vec())]
            );
            close(&journal, passing);
            assert_eq!(open_intents(&journal), [(stays, b"stays".to_vec())]);
        }
        assert_eq!(rows(&journal), rows_left, "at {durability:?}");
        close(&journal, stays);
        let abandoned = journal.begin_intent(b"abandoned".to_vec()).unwrap();
        journal.abandon(abandoned);
        let last = journal.begin_intent(b"last".to_vec()).unwrap();
        assert_eq!(open_intents(&journal), [(last, b"last".to_vec())]);
    }
}

#[test]
fn the_next_daemon_finds_the_intents_that_a_killed_one_left_open_and_no_others() {
    for then in [Durability::Process, Durability::Power] {
        let (_dir, home) = new_home();
        let journal = open(&home, Durability::Process);
        let closed = journal.begin_intent(b"closed".to_vec()).unwrap();
        let left = journal.begin_intent(b"left".to_vec()).unwrap();
        let replaced = journal.begin_intent(b"first".to_vec()).unwrap();
        journal.replace_intent(replaced, b"second".to_vec()).unwrap();
        close(&journal, closed);
        let also_closed = journal.begin_intent(b"also closed".to_vec()).unwrap();
        close(&journal, also_closed);
        kill(journal);
        let journal = open(&home, then);
        assert_eq!(open_intents(&journal), [(left, b"left".to_vec()), (replaced, b"second".to_vec())]);
        let next = journal.begin_intent(b"next".to_vec()).unwrap();
        assert!(next > also_closed, "an id that an entry closed is not used again");
        for intent in [left, replaced, next] {
            close(&journal, intent);
        }
        kill(journal);
        let journal = open(&home, then);
        assert_eq!(open_intents(&journal), []);
        drop(journal);
        assert_eq!(open_intents(&open(&home, then)), [], "after a clean end nothing is open");
    }
}

#[test]
fn a_slot_that_was_not_written_to_its_end_holds_no_intent() {
    let (dir, home) = new_home();
    let journal = open(&home, Durability::Process);
    let body = vec![b'x'; 9000];
    journal.begin_intent(body.clone()).unwrap();
    kill(journal);
    let path = dir.path().join("state").join(crate::slots::FILE);
    let file = rustix::fs::open(path, OFlags::WRONLY, rustix::fs::Mode::empty()).unwrap();
    rustix::io::pwrite(&file, &[0; 4096], 4096).unwrap();
    let journal = open(&home, Durability::Process);
    assert_eq!(open_intents(&journal), []);
    let intent = journal.begin_intent(body.clone()).unwrap();
    kill(journal);
    rustix::fs::ftruncate(&file, 100).unwrap();
    assert_eq!(open_intents(&open(&home, Durability::Process)), [], "intent {intent}");
}

#[test]
fn an_intent_that_fits_no_slot_is_a_row() {
    let (_dir, home) = new_home();
    let journal = open(&home, Durability::Process);
    let large = journal.begin_intent(vec![b'x'; 1 << 20]).unwrap();
    let small: Vec<u64> = (0..100).map(|_| journal.begin_intent(b"small".to_vec()).unwrap()).collect();
    assert!(rows(&journal) > 1, "more intents than slots");
    kill(journal);
    let journal = open(&home, Durability::Process);
    let found: Vec<u64> = open_intents(&journal).iter().map(|(id, _)| *id).collect();
    assert_eq!(found, [&[large], small.as_slice()].concat());
}

#[test]
fn a_closed_intent_stays_closed_when_the_state_is_folded() {
    let (_dir, home) = new_home();
    let journal = open(&home, Durability::Process);
    for _ in 0..=FOLD_EVERY {
        let intent = journal.begin_intent(b"short".to_vec()).unwrap();
        close(&journal, intent);
    }
    let left = journal.begin_intent(b"left".to_vec()).unwrap();
    kill(journal);
    assert_eq!(open_intents(&open(&home, Durability::Process)), [(left, b"left".to_vec())]);
}
