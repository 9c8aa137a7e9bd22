//! A load: writers that change a tree through the daemon, and know from its answers alone what must stand there.
//!
//! Each writer owns a folder below its session's root, so what it expects is exact. One request may be under way when
//! the daemon dies; which way that one went the journal says, and the disk must agree with it.
//!
//! It knows nothing of how the daemon is started or killed: `kill` does, and the attack cases, which share this file.

mod acts;
mod record;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub(crate) use record::{Journal, Tally};

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

    /// From here on, no answer within that time counts as none at all.
    pub(crate) fn give_up_after(&self, patience: Duration) -> std::io::Result<()> {
        self.reader.get_ref().set_read_timeout(Some(patience))
    }

    /// The result of a method; `None` when the daemon ended before its answer was whole.
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Option<Value> {
        let line = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        self.reader.get_ref().write_all((line + "\n").as_bytes()).ok()?;
        loop {
            let mut answer = String::new();
            self.reader.read_line(&mut answer).ok()?;
            let answer = answer.strip_suffix('\n')?;
            let mut answer: Value = serde_json::from_str(answer).ok()?;
            // A notification tells of a command that still runs; the answer has an id.
            if answer.get("id").is_some() {
                return Some(answer["result"].take());
            }
        }
    }

    /// Sends a line as it is. The whole answer, or `None` when there was none.
    pub(crate) fn raw(&mut self, line: &str) -> Option<Value> {
        // The daemon may stop reading before the end; its answer says why.
        let _ = self.reader.get_ref().write_all(line.as_bytes());
        let _ = self.reader.get_ref().write_all(b"\n");
        let mut answer = String::new();
        self.reader.read_line(&mut answer).ok()?;
        serde_json::from_str(&answer).ok()
    }

    /// Sends several requests before it reads the first answer. Each answer as it came and its result, in the order
    /// of the requests.
    pub(crate) fn batch(&mut self, method: &str, all_params: &[Value]) -> Option<Vec<(String, Value)>> {
        let mut lines = String::new();
        for (id, params) in all_params.iter().enumerate() {
            let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
            lines.push_str(&line.to_string());
            lines.push('\n');
        }
        self.reader.get_ref().write_all(lines.as_bytes()).ok()?;
        let mut answers = vec![(String::new(), Value::Null); all_params.len()];
        let mut missing = all_params.len();
        while missing > 0 {
            let mut line = String::new();
            self.reader.read_line(&mut line).ok()?;
            let mut answer: Value = serde_json::from_str(line.strip_suffix('\n')?).ok()?;
            if let Some(id) = answer["id"].as_u64() {
                answers[id as usize] = (line, answer["result"].take());
                missing -= 1;
            }
        }
        Some(answers)
    }

    pub(crate) fn effect(&mut self, kind: &str, params: &Value, tool_call: &str) -> Option<Value> {
        self.call("effect.call", &json!({ "kind": kind, "params": params, "tool_call_id": tool_call }))
    }

    /// Opens a session on `root`.
    pub(crate) fn open(&mut self, root: &Path) -> Result<String, String> {
        self.open_with(&json!({ "target": { "local": { "workdir": root } } }))
    }

    pub(crate) fn open_with(&mut self, params: &Value) -> Result<String, String> {
        let receipt = self.effect("host.session.open", params, "open").unwrap_or_default();
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
    /// Everything that changes files, some restores, some reads and some refusals.
    Mixed,
    /// Five-file patches and their restores only, as soon as there are five files.
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
    Strangely { at: Instant, why: String },
}

/// One client with its own folder.
#[derive(Debug)]
pub(crate) struct Writer {
    name: String,
    pub(crate) session: String,
    folder: PathBuf,
    taste: Taste,
    random: Random,
    made: u64,
    pub(crate) tree: Tree,
    pub(crate) acked: Vec<Acked>,
    /// Requests whose end the journal must tell: one that was not answered, and those that are doubted.
    under_way: Vec<(String, Act)>,
    /// The last mutation and the tree before it, while nothing happened since: it can be taken back.
    last: Option<(String, Tree)>,
}

/// How many acknowledgements can be doubted later.
const RECENT: usize = 8;

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
            last: None,
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
                Err(why) => return Stopped::Strangely { at: Instant::now(), why },
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
        if status == "ok" && receipt["snapshot_id"].is_string() {
            self.last = Some((tool_call.clone(), before.clone()));
        }
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
        self.last = None;
        let mut patched = None;
        for (tool_call, act) in std::mem::take(&mut self.under_way) {
            let several = ["host.fs.apply_patch", "host.fs.restore"].contains(&act.kind);
            patched = several.then(|| act.after.clone());
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
