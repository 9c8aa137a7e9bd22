//! The paths that policy judges for an operation, by the reference: those that it names, and what it reaches with them.

use super::chance::{self, Act};
use super::{Trial, reference};
use crate::torture::load::on_disk;

impl Trial<'_> {
    /// The decision of the rules, where nothing else influences it.
    pub(super) fn by_reference(&self, act: &Act) -> Option<&str> {
        if act.paths.is_empty() || !act.paths.iter().all(|path| chance::is_plain(path)) {
            return None;
        }
        let judged = act.paths.iter().flat_map(|path| {
            let below = if act.looks_below() { self.below(act, path) } else { Vec::new() };
            [vec![(act.op, path.clone())], below].concat()
        });
        let judged = judged.chain(self.shown(act)).chain(self.made(act));
        let decisions = judged.map(|(op, path)| reference::decision(&self.policy, op, &path));
        // The strongest decision applies.
        decisions.max_by_key(|decision| ["allow", "warn", "deny"].iter().position(|one| one == decision))
    }

    /// What policy checks as a read, because the operation shows its content or brings it to a name that may be read.
    fn shown(&self, act: &Act) -> Vec<(&'static str, String)> {
        let is_denied = |path: &str| reference::decision(&self.policy, "read", path) == "deny";
        let first = act.paths[0].clone();
        match (act.kind, act.paths.get(1)) {
            ("host.fs.apply_patch", Some(_)) => vec![("read", first)],
            ("host.fs.edit_file", _) if act.params["with_diff"] == true => vec![("read", first)],
            ("host.fs.move", Some(to)) if *to != first => {
                let names = on_disk(&self.root.join(&first)).into_keys().map(|name| format!("/{name}"));
                let names = names.chain([String::new()]);
                let moved = names.filter(|name| !is_denied(&format!("{to}{name}")));
                moved.map(|name| ("read", format!("{first}{name}"))).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The folders that a patch makes with a file.
    fn made(&self, act: &Act) -> Vec<(&'static str, String)> {
        let Some(path) = act.paths.last().filter(|_| act.kind == "host.fs.apply_patch") else {
            return Vec::new();
        };
        let above = path.match_indices('/').map(|(at, _)| path[..at].to_owned());
        above.filter(|folder| !self.root.join(folder).exists()).map(|folder| ("write", folder)).collect()
    }

    /// What else policy checks: the content of a searched file, and everything in a removed or moved folder, under its
    /// old and its new path.
    fn below(&self, act: &Act, path: &str) -> Vec<(&'static str, String)> {
        if act.op == "search" {
            let is_read = act.kind == "host.fs.grep" && self.root.join(path).is_file();
            return if is_read { vec![("read", path.to_owned())] } else { Vec::new() };
        }
        // A move onto itself moves nothing.
        if act.paths.len() == 2 && act.paths[0] == act.paths[1] {
            return Vec::new();
        }
        let first = self.root.join(&act.paths[0]);
        on_disk(&first).into_keys().map(|name| (act.op, format!("{path}/{name}"))).collect()
    }
}
