//! The state: a table that is a checkpoint of the fold, and in memory the changes of the entries after it (I7).

use std::collections::{BTreeMap, BTreeSet};

use aos_model::entry::Entry;
use aos_model::state::{self, Change, FoldInput, StateReader};
use rusqlite::{Connection, OptionalExtension, params};

use crate::fault::Fault;

/// What the entries after the last checkpoint change in the state; `None` removes a key.
#[derive(Debug, Default)]
pub(crate) struct RecentChanges {
    /// The number of the last entry that the table includes.
    folded: u64,
    map: BTreeMap<String, Option<Vec<u8>>>,
}

impl RecentChanges {
    /// Folds the entries after the checkpoint.
    pub(crate) fn load(connection: &Connection) -> Result<RecentChanges, Fault> {
        let folded = connection
            .query_row("SELECT seq FROM folded", [], |row| row.get::<_, i64>(0))
            .optional()?
            .unwrap_or(0);
        let mut recent = RecentChanges { folded: folded as u64, map: BTreeMap::new() };
        let mut select = connection.prepare("SELECT seq, body FROM entry WHERE seq > ? ORDER BY seq")?;
        let mut rows = select.query([folded])?;
        while let Some(row) = rows.next()? {
            let seq = row.get::<_, i64>(0)? as u64;
            let body = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
            let entry: Entry<'_> = serde_json::from_slice(body).map_err(|why| {
                Fault::Refused(format!(
                    "the journal is damaged: entry {seq} cannot be read: {why}; run `aos verify`"
                ))
            })?;
            let changes = recent.fold(&[], connection, seq, &entry.into());
            recent.accept(changes);
        }
        Ok(recent)
    }

    /// What entry `seq` changes. `fresh` holds the changes of earlier entries of the same commit.
    pub(crate) fn fold(
        &self,
        fresh: &[Change],
        table: &Connection,
        seq: u64,
        effects: &FoldInput,
    ) -> Vec<Change> {
        state::fold(&View { fresh, recent: &self.map, table }, seq, effects)
    }

    pub(crate) fn accept(&mut self, changes: Vec<Change>) {
        self.map.extend(changes.into_iter().map(|change| (change.key, change.value)));
    }

    /// How many entries the table lags behind entry `seq`.
    pub(crate) fn lag(&self, seq: u64) -> u64 {
        seq - self.folded
    }

    /// Writes the changes up to entry `seq` into the table, in a separate transaction.
    pub(crate) fn checkpoint(&mut self, connection: &mut Connection, seq: u64) -> Result<(), Fault> {
        let work = connection.transaction()?;
        for (key, value) in &self.map {
            match value {
                Some(value) => {
                    let mut put =
                        work.prepare_cached("INSERT OR REPLACE INTO state (key, value) VALUES (?, ?)")?;
                    put.execute(params![key, value])?;
                }
                None => {
                    work.prepare_cached("DELETE FROM state WHERE key = ?")?.execute([key])?;
                }
            }
        }
        // Intents that these entries closed are not needed any more.
        let delete_closed =
            "DELETE FROM intent WHERE id IN (SELECT closes FROM entry WHERE seq > ? AND closes IS NOT NULL)";
        work.prepare_cached(delete_closed)?.execute([self.folded as i64])?;
        work.prepare_cached("INSERT OR REPLACE INTO folded (one, seq) VALUES (1, ?)")?
            .execute([seq as i64])?;
        work.commit()?;
        *self = RecentChanges { folded: seq, map: BTreeMap::new() };
        Ok(())
    }

    pub(crate) fn get(&self, connection: &Connection, key: &str) -> Result<Option<Vec<u8>>, Fault> {
        match self.map.get(key) {
            Some(value) => Ok(value.clone()),
            None => Ok(get_state(connection, key)?),
        }
    }

    /// The table merged with the recent changes, in key order.
    pub(crate) fn each_below(
        &self,
        connection: &Connection,
        prefix: &str,
        each: &mut dyn FnMut(&str, &[u8]),
    ) -> Result<(), Fault> {
        let mut recent =
            self.map.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix)).peekable();
        each_in_table(connection, prefix, &mut |key, value| {
            while let Some((newer, value)) = recent.next_if(|(newer, _)| newer.as_str() < key) {
                if let Some(value) = value {
                    each(newer, value);
                }
            }
            match recent.next_if(|(newer, _)| newer.as_str() == key) {
                Some((_, Some(value))) => each(key, value),
                Some((_, None)) => {}
                None => each(key, value),
            }
        })?;
        for (key, value) in recent {
            if let Some(value) = value {
                each(key, value);
            }
        }
        Ok(())
    }
}

/// The state as the fold reads it: the changes of this commit, then the recent ones, then the table. A failed read looks
/// like a missing key; the commit then fails with the same error.
struct View<'a> {
    fresh: &'a [Change],
    recent: &'a BTreeMap<String, Option<Vec<u8>>>,
    table: &'a Connection,
}

impl StateReader for View<'_> {
    fn get(&self, key: &str) -> Option<Vec<u8>> {
        if let Some(change) = self.fresh.iter().rev().find(|change| change.key == key) {
            return change.value.clone();
        }
        match self.recent.get(key) {
            Some(value) => value.clone(),
            None => get_state(self.table, key).unwrap_or_else(|why| {
                tracing::error!("the state of {key} could not be read: {why}");
                None
            }),
        }
    }

    fn keys_with_prefix(&self, prefix: &str) -> Vec<String> {
        let mut keys = BTreeSet::new();
        let read = each_in_table(self.table, prefix, &mut |key, _| {
            keys.insert(key.to_owned());
        });
        if let Err(why) = read {
            tracing::error!("the state below {prefix} could not be read: {why}");
        }
        let recent = self.recent.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
        let fresh = self.fresh.iter().filter(|change| change.key.starts_with(prefix));
        for (key, value) in recent.chain(fresh.map(|change| (&change.key, &change.value))) {
            if value.is_some() {
                keys.insert(key.clone())
            } else {
                keys.remove(key)
            };
        }
        keys.into_iter().collect()
    }
}

fn get_state(connection: &Connection, key: &str) -> rusqlite::Result<Option<Vec<u8>>> {
    connection
        .prepare_cached("SELECT value FROM state WHERE key = ?")?
        .query_row([key], |row| row.get(0))
        .optional()
}

fn each_in_table(
    connection: &Connection,
    prefix: &str,
    each: &mut dyn FnMut(&str, &[u8]),
) -> rusqlite::Result<()> {
    let mut select = connection.prepare_cached("SELECT key, value FROM state WHERE key >= ? ORDER BY key")?;
    let mut rows = select.query([prefix])?;
    while let Some(row) = rows.next()? {
        let key = row.get_ref(0)?.as_str()?;
        if !key.starts_with(prefix) {
            break;
        }
        each(key, row.get_ref(1)?.as_blob()?);
    }
    Ok(())
}
