//! Shell commands of a writer, and what is left when one ran out of space.

use serde_json::json;

use super::acts::put;
use super::{Act, COMMAND, Writer, differences, on_disk};

impl Act {
    /// Whether a command that was acknowledged failed by itself: its changes land all the same, those that it made.
    pub(super) fn is_partly_done(&self, exit_code: Option<i64>) -> bool {
        self.kind == COMMAND && exit_code != Some(0)
    }
}

impl Writer {
    /// A command that writes two files, removes one or moves one, and uses its private `/tmp`.
    pub(super) fn command(&mut self, files: &[String]) -> Act {
        let mut after = self.tree.clone();
        let path = self.pick(files);
        let at = self.here(&path);
        let script = match self.random.below(4) {
            0 => {
                after.remove(&path);
                format!("rm '{at}'")
            }
            1 => {
                let to = format!("c{:x}", self.random.number() >> 20);
                put(&mut after, &to, self.content(&path));
                after.remove(&path);
                format!("mv '{at}' '{}'", self.here(&to))
            }
            _ => {
                let fresh = format!("c{:x}", self.random.number() >> 20);
                let (first, lines) = (format!("id {:016x}", self.random.number()), self.random.below(2_000));
                let text = format!("{first}\n{}", "a line of a command\n".repeat(lines));
                put(&mut after, &path, text.clone());
                put(&mut after, &fresh, text);
                let fresh = self.here(&fresh);
                format!(
                    "{{ echo {first}; yes a line of a command | head -n {lines}; }} > /tmp/text; cp /tmp/text '{at}'; cp /tmp/text '{fresh}'; rm /tmp/text"
                )
            }
        };
        let params = json!({ "argv": ["sh", "-ec", script], "timeout_ns": 60_000_000_000_u64 });
        self.act(COMMAND, params, after)
    }

    /// Takes what a failed command left for the expected tree, after a check that it changed only what it was to change.
    pub(super) fn done_in_part(&mut self, act: &Act) -> Result<(), String> {
        if !self.scarce.allowed {
            return Err(format!("{} {}: failed although there is room", act.kind, act.params));
        }
        let mut found = on_disk(&self.folder);
        std::mem::swap(&mut self.tree, &mut found);
        self.last = None;
        let (before, now) = (found, &self.tree);
        let mut others = now.clone();
        others.extend(before.clone());
        let is_other = |path: &String| before.get(path) == act.after.get(path);
        let changed: Vec<&String> =
            others.keys().filter(|path| is_other(path) && before.get(*path) != now.get(*path)).collect();
        if changed.is_empty() {
            return Ok(());
        }
        Err(format!("{}: changed more than it was to: {}", act.params, differences(&before, now)))
    }
}
