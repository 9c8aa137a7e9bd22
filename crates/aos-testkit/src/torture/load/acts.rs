//! Chooses the next request of a writer: any act that, by its model of the tree, must succeed or must be refused.

use serde_json::{Value, json};

use super::{Act, Node, Tree, Workload, Writer};

/// With more files than this in its folder, a writer removes more than it creates.
const FILES_MAX: usize = 40;

impl Writer {
    pub(super) fn next(&mut self) -> Act {
        let files = self.files();
        if files.len() < 5 {
            return self.write_new();
        }
        let often = if self.workload == Workload::Patches { 3 } else { 12 };
        if let Some((call, before)) = self.last.clone().filter(|_| self.random.one_in(often)) {
            return self.act("host.fs.restore", json!({ "scope_id": call }), before);
        }
        if self.workload == Workload::Patches {
            return self.five(files);
        }
        if self.workload == Workload::Commands && self.random.one_in(3) {
            return self.command(&files);
        }
        let crowded = files.len() > FILES_MAX;
        match self.random.below(100) {
            0..20 if !crowded => self.write_new(),
            0..30 => self.overwrite(&files),
            30..45 => self.edit(&files),
            45..65 => self.five(files),
            65..73 => self.move_file(&files),
            73..76 => self.move_folder(),
            76..80 if !crowded => self.make_folder(),
            76..86 => self.remove_file(&files),
            86..88 => self.remove_folder(),
            88..93 => self.refused(&files),
            _ => self.read(&files),
        }
    }

    /// The files with content. Where a disk was full, a command may have left an empty one, which has no line to replace.
    fn files(&self) -> Vec<String> {
        let is_file = |(path, node): (&String, &Node)| {
            matches!(node, Node::File(text) if !text.is_empty()).then(|| path.clone())
        };
        self.tree.iter().filter_map(is_file).collect()
    }

    fn folders(&self) -> Vec<String> {
        let is_folder = |(path, node): (&String, &Node)| (*node == Node::Folder).then(|| path.clone());
        self.tree.iter().filter_map(is_folder).collect()
    }

    pub(super) fn pick(&mut self, names: &[String]) -> String {
        names[self.random.below(names.len())].clone()
    }

    /// A name that was never used, in an existing folder or, sometimes, in a missing one.
    fn fresh(&mut self) -> String {
        let name = format!("n{:x}", self.random.number() >> 20);
        let folders = self.folders();
        match self.random.below(4) {
            0 if !folders.is_empty() => format!("{}/{name}", self.pick(&folders)),
            1 => format!("{name}/in/{name}"),
            _ => name,
        }
    }

    /// Lines of text with a unique first line.
    pub(super) fn text(&mut self) -> String {
        let first = format!("id {:016x}\n", self.random.number());
        let lines = if self.random.one_in(40) { 4_000 } else { self.random.below(30) };
        (0..lines).fold(first, |text, line| text + &format!("line {line} of some text that fills a file\n"))
    }

    pub(super) fn act(&self, kind: &'static str, path_params: Value, after: Tree) -> Act {
        let mut params = path_params;
        params["session_id"] = json!(self.session);
        Act { kind, params, expected: "ok", after }
    }

    pub(super) fn here(&self, path: &str) -> String {
        format!("{}/{path}", self.name)
    }

    pub(super) fn content(&self, path: &str) -> String {
        match self.tree.get(path) {
            Some(Node::File(text)) => text.clone(),
            _ => String::new(),
        }
    }

    fn write_new(&mut self) -> Act {
        let (path, text) = (self.fresh(), self.text());
        let mut after = self.tree.clone();
        put(&mut after, &path, text.clone());
        let content = json!({ "inline_text": { "text": text } });
        let params = json!({ "path": self.here(&path), "content": content, "create_parents": true });
        self.act("host.fs.write_file", params, after)
    }

    fn overwrite(&mut self, files: &[String]) -> Act {
        let (path, mut text) = (self.pick(files), self.text());
        let mut params = json!({ "path": self.here(&path), "content": { "inline_text": { "text": text } } });
        if self.random.one_in(4) {
            params["mode"] = json!("append");
            text = self.content(&path) + &text;
        }
        let mut after = self.tree.clone();
        put(&mut after, &path, text);
        self.act("host.fs.write_file", params, after)
    }

    /// The first line of a file, and its replacement.
    fn new_first_line(&mut self, path: &str) -> (String, String) {
        let old = self.content(path).lines().next().unwrap_or_default().to_owned();
        (old, format!("id {:016x}", self.random.number()))
    }

    fn edit(&mut self, files: &[String]) -> Act {
        let path = self.pick(files);
        let (old, new) = self.new_first_line(&path);
        let mut after = self.tree.clone();
        put(&mut after, &path, self.content(&path).replacen(&old, &new, 1));
        let params = json!({ "path": self.here(&path), "old_string": old, "new_string": new });
        // A file that was appended to holds several such lines, but each is unique.
        self.act("host.fs.edit_file", params, after)
    }

    /// Five files by one patch: all updated, or two updated, one deleted, one moved and one added.
    fn five(&mut self, mut files: Vec<String>) -> Act {
        let mut after = self.tree.clone();
        let mut body = String::new();
        let variety = self.random.one_in(2);
        for role in 0..5 {
            let path = files.swap_remove(self.random.below(files.len()));
            if variety && role == 4 {
                body += &self.add_section(&mut after);
            } else if variety && role == 3 {
                body += &format!("*** Delete File: {}\n", self.here(&path));
                after.remove(&path);
            } else {
                let moves = variety && role == 2;
                body += &self.update_section(&path, moves, &mut after);
            }
        }
        let patch = format!("*** Begin Patch\n{body}*** End Patch\n");
        self.act("host.fs.apply_patch", json!({ "patch": { "inline_text": { "text": patch } } }), after)
    }

    fn add_section(&mut self, after: &mut Tree) -> String {
        let (path, text) = (self.fresh(), self.text());
        let lines = text.lines().map(|line| format!("+{line}\n")).collect::<String>();
        put(after, &path, text);
        format!("*** Add File: {}\n{lines}", self.here(&path))
    }

    fn update_section(&mut self, path: &str, moves: bool, after: &mut Tree) -> String {
        let (old, new) = self.new_first_line(path);
        let text = self.content(path).replacen(&old, &new, 1);
        let mut section = format!("*** Update File: {}\n", self.here(path));
        if moves {
            let to = self.fresh();
            section += &format!("*** Move to: {}\n", self.here(&to));
            after.remove(path);
            put(after, &to, text);
        } else {
            put(after, path, text);
        }
        section + &format!("@@\n-{old}\n+{new}\n")
    }

    fn move_file(&mut self, files: &[String]) -> Act {
        let (from, onto) = (self.pick(files), self.pick(files));
        let overwrite = from != onto && self.random.one_in(2);
        let name = format!("m{:x}", self.random.number() >> 20);
        let to = if overwrite { onto } else { name };
        let mut after = self.tree.clone();
        let text = self.content(&from);
        after.remove(&from);
        put(&mut after, &to, text);
        let params = json!({ "from": self.here(&from), "to": self.here(&to), "overwrite": overwrite });
        self.act("host.fs.move", params, after)
    }

    fn move_folder(&mut self) -> Act {
        let folders = self.folders();
        if folders.is_empty() {
            return self.make_folder();
        }
        let from = self.pick(&folders);
        let to = format!("d{:x}", self.random.number() >> 20);
        let rename = |(path, node): (&String, &Node)| match path.strip_prefix(&from) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => (to.clone() + rest, node.clone()),
            _ => (path.clone(), node.clone()),
        };
        let after = self.tree.iter().map(rename).collect();
        self.act("host.fs.move", json!({ "from": self.here(&from), "to": self.here(&to) }), after)
    }

    fn make_folder(&mut self) -> Act {
        let path = self.fresh();
        let mut after = self.tree.clone();
        parents(&mut after, &path);
        after.insert(path.clone(), Node::Folder);
        self.act("host.fs.make_dir", json!({ "path": self.here(&path), "parents": true }), after)
    }

    fn remove_file(&mut self, files: &[String]) -> Act {
        let path = self.pick(files);
        let mut after = self.tree.clone();
        after.remove(&path);
        self.act("host.fs.remove", json!({ "path": self.here(&path) }), after)
    }

    fn remove_folder(&mut self) -> Act {
        let folders = self.folders();
        if folders.is_empty() {
            return self.make_folder();
        }
        let gone = self.pick(&folders);
        let below = format!("{gone}/");
        let stays = |path: &String| *path != gone && !path.starts_with(&below);
        let after =
            self.tree.iter().filter(|(path, _)| stays(path)).map(|(p, n)| (p.clone(), n.clone())).collect();
        self.act("host.fs.remove", json!({ "path": self.here(&gone), "recursive": true }), after)
    }

    /// Something that must be refused and change nothing.
    fn refused(&mut self, files: &[String]) -> Act {
        let path = self.pick(files);
        let path = self.here(&path);
        let text = json!({ "inline_text": { "text": "never" } });
        let (kind, params, expected) = match self.random.below(3) {
            0 => {
                let params = json!({ "path": path, "content": text, "mode": "create_new" });
                ("host.fs.write_file", params, "conflict / file_exists")
            }
            1 => {
                let params = json!({ "path": path, "old_string": "stands nowhere", "new_string": "x" });
                ("host.fs.edit_file", params, "not_found / edit_target_not_found")
            }
            _ => {
                let params = json!({ "path": self.here("is/not/there") });
                ("host.fs.remove", params, "not_found / path_not_found")
            }
        };
        Act { expected, ..self.act(kind, params, self.tree.clone()) }
    }

    fn read(&mut self, files: &[String]) -> Act {
        let path = self.pick(files);
        let params = json!({ "path": self.here(&path) });
        self.act("host.fs.read_file", params, self.tree.clone())
    }
}

pub(super) fn put(tree: &mut Tree, path: &str, text: String) {
    parents(tree, path);
    tree.insert(path.to_owned(), Node::File(text));
}

fn parents(tree: &mut Tree, path: &str) {
    for (slash, _) in path.match_indices('/') {
        tree.entry(path[..slash].to_owned()).or_insert(Node::Folder);
    }
}
