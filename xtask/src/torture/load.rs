//! A load: writers that change a tree through the daemon, and know from its answers alone what must stand there.
//!
//! Each writer owns a folder below its session's root, so what it expects is exact. One request may be under way when
//! the daemon dies; which way that one went the journal says, and the disk must agree with it.
//!
//! It knows nothing of how the daemon is started or killed: `kill` does, and the attack cases, which share this file.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde::Deserialize;
use serde_json::{Value, json};

/// Random numbers that a seed gives again (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.number() % end as u64) as usize
    }

    pub(crate) fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }
}

/// One connection to the daemon of a home.
#[derive(Debug)]
pub(crate) struct Wire {
    reader: BufReader<UnixStream>,
}

impl Wire {
    pub(crate) fn connect(home: &Path) -> std::io::Result<Wire> {
        Ok(Wire { reader: BufReader::new(UnixStream::connect(home.join("run/aosd.sock"))?) })
    }

    /// The result of a method; `None` when the daemon ended before its answer was whole.
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Option<Value> {
        let line = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        self.reader.get_ref().write_all((line + "\n").as_bytes()).ok()?;
        let mut answer = String::new();
        self.reader.read_line(&mut answer).ok()?;
        let answer = answer.strip_suffix('\n')?;
        let mut answer: Value = serde_json::from_str(answer).ok()?;
        Some(answer["result"].take())
    }

    pub(crate) fn effect(&mut self, kind: &str, params: &Value, tool_call: &str) -> Option<Value> {
        self.call("effect.call", &json!({ "kind": kind, "params": params, "tool_call_id": tool_call }))
    }

    /// Opens a session on `root`.
    pub(crate) fn open(&mut self, root: &Path) -> Result<String, String> {
        let params = json!({ "target": { "local": { "workdir": root } } });
        let receipt = self.effect("host.session.open", &params, "open").unwrap_or_default();
        let id = receipt["session_id"].as_str().ok_or_else(|| format!("no session: {receipt}"))?;
        Ok(id.to_owned())
    }
}

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Node {
    Folder,
    File(String),
}

/// A folder's content by the path below it.
pub(crate) type Tree = BTreeMap<String, Node>;

/// All below `folder` as it stands on the disk, our own temporary names included: nobody expects those.
pub(crate) fn on_disk(folder: &Path) -> Tree {
    let mut tree = Tree::new();
    collect(folder, "", &mut tree);
    tree
}

fn collect(folder: &Path, below: &str, tree: &mut Tree) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = format!("{below}{}", entry.file_name().to_string_lossy());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&entry.path(), &format!("{path}/"), tree);
            tree.insert(path, Node::Folder);
        } else {
            let bytes = std::fs::read(entry.path()).unwrap_or_else(|why| format!("<{why}>").into_bytes());
            tree.insert(path, Node::File(String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
}

/// The first paths that differ, for people.
pub(crate) fn differences(expected: &Tree, found: &Tree) -> String {
    let show = |node: Option<&Node>| match node {
        None => "nothing".to_owned(),
        Some(Node::Folder) => "a folder".to_owned(),
        Some(Node::File(text)) => {
            format!("{} bytes `{}`", text.len(), text.lines().next().unwrap_or_default())
        }
    };
    let paths: std::collections::BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
    let differing = paths.into_iter().filter(|path| expected.get(*path) != found.get(*path));
    let lines = differing.take(8).map(|path| {
        format!("{path}: expected {}, found {}", show(expected.get(path)), show(found.get(path)))
    });
    lines.collect::<Vec<_>>().join("; ")
}

/// What a load is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taste {
    /// Everything that changes files, some reads and some refusals.
    Mixed,
    /// Five-file patches only, as soon as there are five files.
    Patches,
}

/// One request, what it must be answered, and what stands in the writer's folder once it is done.
#[derive(Debug, Clone)]
pub(crate) struct Act {
    kind: &'static str,
    params: Value,
    expected: &'static str,
    after: Tree,
}

/// A receipt that a writer has seen.
#[derive(Debug)]
pub(crate) struct Acked {
    at: Instant,
    seq: u64,
    tool_call: String,
    status: String,
    /// The act and what stood there before it, while it is recent enough to be doubted.
    recent: Option<(Act, Tree)>,
}

/// Why a writer stopped.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// It was told to, or the daemon went away.
    Quietly,
    /// The answer was not the one that its model of the tree demands.
    Strangely(String),
}

/// One client with its own folder.
#[derive(Debug)]
pub(crate) struct Writer {
    name: String,
    session: String,
    folder: PathBuf,
    taste: Taste,
    random: Random,
    made: u64,
    pub(crate) tree: Tree,
    pub(crate) acked: Vec<Acked>,
    /// Requests whose end the journal must tell: one that was not answered, and those that are doubted.
    under_way: Vec<(String, Act)>,
}

/// How many acknowledgements can be doubted later.
const RECENT: usize = 8;

/// Files in a writer's folder before it removes more than it makes.
const FILES_MAX: usize = 40;

impl Writer {
    /// A writer named `name`, whose folder below `root` is filled with some files first.
    pub(crate) fn new(
        name: &str,
        root: &Path,
        session: &str,
        taste: Taste,
        seed: u64,
    ) -> std::io::Result<Writer> {
        let folder = root.join(name);
        let mut writer = Writer {
            name: name.to_owned(),
            session: session.to_owned(),
            folder: folder.clone(),
            taste,
            random: Random::new(seed),
            made: 0,
            tree: Tree::new(),
            acked: Vec::new(),
            under_way: Vec::new(),
        };
        for place in ["a", "b", "sub/c", "sub/d", "sub/deep/e", "sub/deep/f", "g"] {
            let path = folder.join(place);
            std::fs::create_dir_all(path.parent().unwrap_or(&folder))?;
            std::fs::write(&path, writer.text())?;
        }
        // A second name outside the root makes the daemon copy a pre-image instead of moving it.
        std::fs::hard_link(folder.join("g"), root.with_extension(format!("{name}-g")))?;
        writer.tree = on_disk(&folder);
        Ok(writer)
    }

    /// Works until `stop` is set or the daemon is gone.
    pub(crate) fn run(&mut self, home: &Path, stop: &AtomicBool) -> Stopped {
        let Ok(mut wire) = Wire::connect(home) else { return Stopped::Quietly };
        while !stop.load(Ordering::Relaxed) {
            match self.step(&mut wire) {
                Ok(true) => {}
                Ok(false) => return Stopped::Quietly,
                Err(why) => return Stopped::Strangely(why),
            }
        }
        Stopped::Quietly
    }

    /// One request and its answer. False when the daemon died over it; then it stays under way until it is judged.
    pub(crate) fn step(&mut self, wire: &mut Wire) -> Result<bool, String> {
        let act = self.next();
        self.made += 1;
        let tool_call = format!("{}-{}", self.name, self.made);
        self.under_way.push((tool_call.clone(), act.clone()));
        let Some(receipt) = wire.effect(act.kind, &act.params, &tool_call) else { return Ok(false) };
        let verdict = verdict(&receipt);
        if verdict != act.expected {
            return Err(format!("{} {}: expected {}, got {receipt}", act.kind, act.params, act.expected));
        }
        let seq = receipt["seq"].as_u64().ok_or_else(|| format!("a receipt without seq: {receipt}"))?;
        let status = receipt["status"].as_str().unwrap_or_default().to_owned();
        let before = std::mem::replace(&mut self.tree, act.after.clone());
        let recent = Some((act, before));
        self.acked.push(Acked { at: Instant::now(), seq, tool_call, status, recent });
        if let Some(older) = self.acked.len().checked_sub(RECENT + 1) {
            self.acked[older].recent = None;
        }
        self.under_way.pop();
        Ok(true)
    }

    /// Takes answers that came at or after `moment` for no answers: the power was cut then, and whoever saw them
    /// would have had none either.
    pub(crate) fn doubt_since(&mut self, moment: Instant) {
        let mut doubted = Vec::new();
        while self.acked.last().is_some_and(|acked| acked.at >= moment && acked.recent.is_some()) {
            let Some(Acked { tool_call, recent: Some((act, before)), .. }) = self.acked.pop() else { break };
            self.tree = before;
            doubted.push((tool_call, act));
        }
        doubted.reverse();
        doubted.append(&mut self.under_way);
        self.under_way = doubted;
    }

    /// After a restart: holds what was acknowledged against the journal, and the tree against the disk.
    pub(crate) fn judge(&mut self, journal: &Journal, tally: &mut Tally) {
        for acked in &self.acked {
            journal.must_hold(acked, tally);
        }
        let before = self.tree.clone();
        let mut patched = None;
        for (tool_call, act) in std::mem::take(&mut self.under_way) {
            patched = (act.kind == "host.fs.apply_patch").then(|| act.after.clone());
            self.resolve(&tool_call, act, journal, tally);
        }
        let found = on_disk(&self.folder);
        if found == self.tree {
            return;
        }
        let what = differences(&self.tree, &found);
        let half_patch = patched.is_some_and(|after| found != before && found != after);
        let (count, word) =
            if half_patch { (&mut tally.mixed, "mixed") } else { (&mut tally.lost, "lost on disk") };
        *count += 1;
        tally.complaints.push(format!("{word}: {}: {what}", self.name));
        // Said once: from here on the disk is taken as it is.
        self.tree = found;
    }

    /// Lets the journal decide about a request that was not answered.
    fn resolve(&mut self, tool_call: &str, act: Act, journal: &Journal, tally: &mut Tally) {
        match journal.of(tool_call).as_slice() {
            [] => {}
            [line] if line.rolled_back() => {
                tally.rolled_back += 1;
                if !line.receipt.not_rolled_back.is_empty() {
                    tally.mixed += 1;
                    let left = &line.receipt.not_rolled_back;
                    tally.complaints.push(format!("mixed: {tool_call} was left in {left:?}"));
                }
            }
            [line] => {
                tally.unanswered += 1;
                // A refusal changes nothing; `after` is then what stood there before.
                if line.receipt.verdict() == act.expected {
                    self.tree = act.after;
                }
            }
            several => {
                tally.doubled += 1;
                tally.complaints.push(format!("doubled: {tool_call} stands {} times", several.len()));
            }
        }
    }
}

/// `status` or `status / error_code` of a receipt.
fn verdict(receipt: &Value) -> String {
    let text = |name: &str| receipt[name].as_str().unwrap_or_default();
    match text("error_code") {
        "" => text("status").to_owned(),
        code => format!("{} / {code}", text("status")),
    }
}

/// What the acts are chosen from.
impl Writer {
    fn next(&mut self) -> Act {
        let files = self.files();
        if files.len() < 5 {
            return self.write_new();
        }
        if self.taste == Taste::Patches {
            return self.five(files);
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

    fn files(&self) -> Vec<String> {
        let is_file = |(path, node): (&String, &Node)| matches!(node, Node::File(_)).then(|| path.clone());
        self.tree.iter().filter_map(is_file).collect()
    }

    fn folders(&self) -> Vec<String> {
        let is_folder = |(path, node): (&String, &Node)| (*node == Node::Folder).then(|| path.clone());
        self.tree.iter().filter_map(is_folder).collect()
    }

    fn pick(&mut self, names: &[String]) -> String {
        names[self.random.below(names.len())].clone()
    }

    /// A name that never was, in a folder that is there or, sometimes, in one that is not.
    fn fresh(&mut self) -> String {
        let name = format!("n{:x}", self.random.number() >> 20);
        let folders = self.folders();
        match self.random.below(4) {
            0 if !folders.is_empty() => format!("{}/{name}", self.pick(&folders)),
            1 => format!("{name}/in/{name}"),
            _ => name,
        }
    }

    /// Lines of text, the first of them unlike any other.
    fn text(&mut self) -> String {
        let first = format!("id {:016x}\n", self.random.number());
        let lines = if self.random.one_in(40) { 4_000 } else { self.random.below(30) };
        (0..lines).fold(first, |text, line| text + &format!("line {line} of some text that fills a file\n"))
    }

    fn act(&self, kind: &'static str, path_params: Value, after: Tree) -> Act {
        let mut params = path_params;
        params["session_id"] = json!(self.session);
        Act { kind, params, expected: "ok", after }
    }

    fn here(&self, path: &str) -> String {
        format!("{}/{path}", self.name)
    }

    fn content(&self, path: &str) -> String {
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

    /// The first line of a file, and what it becomes.
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
        // A file that was appended to holds several such lines, but no two alike.
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

fn put(tree: &mut Tree, path: &str, text: String) {
    parents(tree, path);
    tree.insert(path.to_owned(), Node::File(text));
}

fn parents(tree: &mut Tree, path: &str) {
    for (slash, _) in path.match_indices('/') {
        tree.entry(path[..slash].to_owned()).or_insert(Node::Folder);
    }
}

/// The journal as `aos log --json` tells it.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    lines: Vec<Line>,
    by_call: HashMap<String, Vec<usize>>,
}

/// What is needed of one entry.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Line {
    seq: u64,
    #[serde(default)]
    tool_call_id: Option<String>,
    receipt: Head,
}

#[derive(Debug, Clone, Deserialize)]
struct Head {
    status: String,
    #[serde(default)]
    error_code: Option<String>,
    #[serde(default)]
    not_rolled_back: Vec<String>,
}

impl Head {
    fn verdict(&self) -> String {
        match &self.error_code {
            None => self.status.clone(),
            Some(code) => format!("{} / {code}", self.status),
        }
    }
}

impl Line {
    fn rolled_back(&self) -> bool {
        self.receipt.error_code.as_deref() == Some("interrupted_rolled_back")
    }
}

impl Journal {
    /// Reads the log, and sees that it counts from 1 without a gap.
    pub(crate) fn parse(log: &str) -> Result<Journal, String> {
        let mut journal = Journal::default();
        for (index, text) in log.lines().enumerate() {
            let line: Line =
                serde_json::from_str(text).map_err(|why| format!("the log holds `{text}`: {why}"))?;
            if line.seq != index as u64 + 1 {
                return Err(format!("entry {} stands where {} was due", line.seq, index + 1));
            }
            if let Some(call) = &line.tool_call_id {
                journal.by_call.entry(call.clone()).or_default().push(index);
            }
            journal.lines.push(line);
        }
        Ok(journal)
    }

    /// How many entries say that something was rolled back.
    pub(crate) fn rolled_back(&self) -> usize {
        self.lines.iter().filter(|line| line.rolled_back()).count()
    }

    fn of(&self, tool_call: &str) -> Vec<&Line> {
        let places = self.by_call.get(tool_call).map_or(&[][..], Vec::as_slice);
        places.iter().map(|place| &self.lines[*place]).collect()
    }

    fn must_hold(&self, acked: &Acked, tally: &mut Tally) {
        let Acked { seq, tool_call, status, .. } = acked;
        match self.of(tool_call).as_slice() {
            [line] if line.seq == *seq && line.receipt.status == *status => {}
            [] => {
                tally.lost += 1;
                tally.complaints.push(format!("lost: {tool_call} was acknowledged as {seq} and is gone"));
            }
            [line] => {
                tally.lost += 1;
                tally.complaints.push(format!("lost: {tool_call} was {seq} {status} and is {line:?}"));
            }
            several => {
                tally.doubled += 1;
                tally.complaints.push(format!("doubled: {tool_call} stands {} times", several.len()));
            }
        }
    }
}

/// What was counted.
#[derive(Debug, Default, Clone)]
pub(crate) struct Tally {
    pub(crate) kills: u64,
    pub(crate) acked: u64,
    /// Acknowledged and not in the journal, or not on the disk.
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    /// Patches that stand half, or were left half by a rollback.
    pub(crate) mixed: u64,
    /// Unanswered requests that a restart took back: rightly so.
    pub(crate) rolled_back: u64,
    /// Unanswered requests that were done and written down all the same: rightly so.
    pub(crate) unanswered: u64,
    /// Anything else that must not be: a daemon that does not start, a strange answer, a damaged record.
    pub(crate) faults: u64,
    pub(crate) complaints: Vec<String>,
}

impl Tally {
    pub(crate) fn is_clean(&self) -> bool {
        self.lost + self.doubled + self.mixed + self.faults == 0
    }

    pub(crate) fn fault(&mut self, complaint: String) {
        self.faults += 1;
        self.complaints.push(complaint);
    }

    pub(crate) fn add(&mut self, other: Tally) {
        self.kills += other.kills;
        self.acked += other.acked;
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.mixed += other.mixed;
        self.rolled_back += other.rolled_back;
        self.unanswered += other.unanswered;
        self.faults += other.faults;
        self.complaints.extend(other.complaints);
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} kills, {} acknowledged, {} lost, {} doubled, {} mixed, {} rolled back, {} done unanswered, {} other faults",
            self.kills,
            self.acked,
            self.lost,
            self.doubled,
            self.mixed,
            self.rolled_back,
            self.unanswered,
            self.faults
        )
    }
}
