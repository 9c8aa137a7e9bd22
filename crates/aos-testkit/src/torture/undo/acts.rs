//! Chooses the next step of a history: any file mutation or a shell command, on few names, so that steps often collide.

use serde_json::{Value, json};

use crate::copy::{Kind, Tree};
use crate::random::Random;

const NAMES: &[&str] = &["a", "b", "c", "d", "e", "f", "g", "\\xff"];

pub(super) const COMMAND: &str = "host.exec";

/// One mutation. The daemon may refuse it; it then must change nothing.
pub(super) fn next(random: &mut Random, tree: &Tree, number: u64) -> (&'static str, Value) {
    one(Chance::new(random, tree, number))
}

/// As [`next`], with names of a prepared choice.
pub(super) fn one(mut chance: Chance<'_>) -> (&'static str, Value) {
    match chance.random.below(100) {
        0..16 => chance.write(),
        16..23 => chance.append(),
        23..32 => chance.edit(),
        32..43 => chance.patch(),
        43..50 => chance.remove(),
        50..56 => chance.remove_folder(),
        56..65 => chance.move_file(),
        65..73 => chance.move_folder(),
        73..79 => chance.make_folder(),
        _ => chance.command(),
    }
}

/// Chooses names and contents.
pub(super) struct Chance<'a> {
    pub(super) random: &'a mut Random,
    tree: &'a Tree,
    number: u64,
    /// Paths that are chosen half of the time.
    preferred: &'a [String],
}

/// Whether a step may change `path`. No step changes anything below `keep`, so its files must stay as they are.
fn is_free(path: &str) -> bool {
    path != "keep" && !path.starts_with("keep/")
}

/// Quotes a word for a shell. A name with escaped bytes, which an argument cannot contain, becomes another name.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\\', "_"))
}

impl<'a> Chance<'a> {
    pub(super) fn new(random: &'a mut Random, tree: &'a Tree, number: u64) -> Chance<'a> {
        Chance { random, tree, number, preferred: &[] }
    }

    pub(super) fn preferring(self, preferred: &'a [String]) -> Chance<'a> {
        Chance { preferred, ..self }
    }

    fn pick(&mut self, of: impl Fn(&Kind) -> bool) -> Option<String> {
        let is_it = |path: &str| is_free(path) && self.tree.get(path).is_some_and(|thing| of(&thing.kind));
        let preferred: Vec<&String> = self.preferred.iter().filter(|path| is_it(path)).collect();
        if !preferred.is_empty() && self.random.one_in(2) {
            return Some(preferred[self.random.below(preferred.len())].clone());
        }
        let fits: Vec<&String> = self.tree.keys().filter(|path| is_it(path)).collect();
        if fits.is_empty() { None } else { Some(fits[self.random.below(fits.len())].clone()) }
    }

    pub(super) fn file(&mut self) -> String {
        let file = self.pick(|kind| matches!(kind, Kind::File { .. } | Kind::Link { .. }));
        file.unwrap_or_else(|| "f".to_owned())
    }

    pub(super) fn folder(&mut self) -> String {
        self.pick(|kind| *kind == Kind::Folder).unwrap_or_else(|| "a".to_owned())
    }

    /// A path, existing or not.
    pub(super) fn path(&mut self) -> String {
        let name = NAMES[self.random.below(NAMES.len())];
        if !self.preferred.is_empty() && self.random.one_in(3) {
            return self.preferred[self.random.below(self.preferred.len())].clone();
        }
        match self.random.below(4) {
            0 => name.to_owned(),
            1 => format!("{}/{}", NAMES[self.random.below(NAMES.len())], name),
            _ => format!("{}/{name}", self.folder()),
        }
    }

    /// Unique content.
    pub(super) fn text(&mut self) -> String {
        let lines = if self.random.one_in(30) { 3_000 } else { self.random.below(5) };
        let first = format!("text {} {:x}\n", self.number, self.random.number());
        first + &"some text that fills a file\n".repeat(lines)
    }

    fn write(&mut self) -> (&'static str, Value) {
        let path = if self.random.one_in(2) { self.file() } else { self.path() };
        let content = json!({ "inline_text": { "text": self.text() } });
        let mut params = json!({ "path": path, "content": content, "create_parents": true });
        if self.random.one_in(3) {
            params["executable"] = json!(self.random.one_in(2));
        }
        ("host.fs.write_file", params)
    }

    fn append(&mut self) -> (&'static str, Value) {
        let content = json!({ "inline_text": { "text": self.text() } });
        ("host.fs.write_file", json!({ "path": self.file(), "content": content, "mode": "append" }))
    }

    fn first_line(&self, path: &str) -> String {
        match self.tree.get(path).map(|thing| &thing.kind) {
            Some(Kind::File { first_line, .. }) => first_line.clone(),
            _ => "not in the file".to_owned(),
        }
    }

    fn edit(&mut self) -> (&'static str, Value) {
        let path = self.file();
        let (old, new) = (self.first_line(&path), self.text());
        let params = json!({ "path": path, "old_string": old, "new_string": new.trim_end() });
        ("host.fs.edit_file", params)
    }

    fn patch(&mut self) -> (&'static str, Value) {
        let mut body = String::new();
        let mut named = Vec::new();
        for _ in 0..=self.random.below(4) {
            let (file, path) = (self.file(), self.path());
            if named.contains(&file) || named.contains(&path) {
                continue;
            }
            let (old, new) =
                (self.first_line(&file), self.text().lines().next().unwrap_or_default().to_owned());
            body += &match self.random.below(4) {
                0 => format!("*** Add File: {path}\n+{new}\n"),
                1 => format!("*** Delete File: {file}\n"),
                2 => format!("*** Update File: {file}\n@@\n-{old}\n+{new}\n"),
                _ => format!("*** Update File: {file}\n*** Move to: {path}\n@@\n-{old}\n+{new}\n"),
            };
            named.extend([file, path]);
        }
        let patch = format!("*** Begin Patch\n{body}*** End Patch\n");
        ("host.fs.apply_patch", json!({ "patch": { "inline_text": { "text": patch } } }))
    }

    fn remove(&mut self) -> (&'static str, Value) {
        ("host.fs.remove", json!({ "path": self.file() }))
    }

    fn remove_folder(&mut self) -> (&'static str, Value) {
        ("host.fs.remove", json!({ "path": self.folder(), "recursive": true }))
    }

    fn move_file(&mut self) -> (&'static str, Value) {
        let to = if self.random.one_in(2) { self.file() } else { self.path() };
        ("host.fs.move", json!({ "from": self.file(), "to": to, "overwrite": self.random.one_in(2) }))
    }

    fn move_folder(&mut self) -> (&'static str, Value) {
        ("host.fs.move", json!({ "from": self.folder(), "to": self.path() }))
    }

    /// A script of a few lines. A failed line does not end it.
    fn command(&mut self) -> (&'static str, Value) {
        let mut script = String::new();
        for _ in 0..=self.random.below(4) {
            script += &self.line();
            script.push('\n');
        }
        (COMMAND, json!({ "argv": ["sh", "-c", script + "exit 0"] }))
    }

    /// One line of shell. `touch` is left out: undo does not restore times.
    fn line(&mut self) -> String {
        let (file, folder) = (quoted(&self.file()), quoted(&self.folder()));
        let (path, other) = (quoted(&self.path()), quoted(&self.path()));
        let text = quoted(&self.text());
        match self.random.below(14) {
            0 => format!("printf %s {text} > {file}"),
            1 => format!("mkdir -p \"$(dirname {path})\"; printf %s {text} > {path}"),
            2 => format!("printf %s {text} >> {file}"),
            3 => format!("rm -f {file}"),
            4 => format!("rm -rf {folder}"),
            5 => format!("mv -T {file} {path}"),
            6 => format!("mv -T {folder} {path}"),
            7 => format!(
                "[ -d {file} ] || chmod {} {file}",
                ["600", "755", "444", "4711"][self.random.below(4)]
            ),
            8 => format!("chmod {} {folder}", ["700", "755", "1777", "500"][self.random.below(4)]),
            9 => format!("mkdir -p {path}"),
            10 => format!("ln -sfT {other} {path}"),
            11 => format!("rm -rf {folder}; mkdir -p {folder}; printf %s {text} > {folder}/{}", quoted("n")),
            12 => format!("rm -rf {path}; ln {file} {path}"),
            _ => {
                let name = if self.random.one_in(2) { file } else { folder };
                format!(
                    "python3 -c 'import os,sys; os.setxattr(sys.argv[1], \"user.color\", sys.argv[2].encode())' {name} {}",
                    self.number
                )
            }
        }
    }

    fn make_folder(&mut self) -> (&'static str, Value) {
        ("host.fs.make_dir", json!({ "path": self.path(), "parents": true }))
    }
}
