//! Grep against ripgrep itself: random patterns and flags over real sources, compared row by row.
//!
//! `rg` is only the reference, never a backend. `AOS_RG` names one; otherwise the one that `cargo xtask test` built is
//! used. Where there is none, the test says so and compares nothing. `AOS_ATTACK_SEED` repeats a run.
#![allow(
    clippy::disallowed_methods,
    reason = "a test prepares and inspects the disk behind the product's back"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use aos_testkit::needs::trial;
use aos_testkit::{Agent, Outcome, Programs, Random, World};
use libtest_mimic::Arguments;
use serde_json::{Value, json};

const PATTERNS_PER_TREE: usize = 120;
const TREE_BYTES_MAX: u64 = 12 << 20;
const TREE_FILES_MAX: usize = 700;
const LINE_BYTES_MAX: usize = 64 << 10;

const PLANTED: &str = "int main(void) { return 0; }\nfn main() { let x = 1; }\r\n\n# define The the\n";

fn oracle() -> Option<PathBuf> {
    let given = std::env::var_os("AOS_RG").map(PathBuf::from);
    given.into_iter().chain([Programs::tools().join("bin/rg")]).find(|rg| rg.exists())
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let rg = oracle();
    let why = rg.is_none().then_some("there is no ripgrep to compare with (`cargo xtask test` builds one)");
    let trial = trial(&arguments, "grep_finds_what_ripgrep_finds", why, move || {
        rg.map_or(Ok(()), |rg| grep_finds_what_ripgrep_finds(&rg))
    });
    libtest_mimic::run(&arguments, vec![trial]).exit_code()
}

fn grep_finds_what_ripgrep_finds(rg: &Path) -> Outcome {
    let mut random = Random::for_case();
    println!("seed {}", random.seed);
    let trees =
        [("this repository", own_sources()), ("a crate", crate_sources()), ("headers", header_sources())];
    let mut compared = 0;
    for (name, files) in trees {
        assert!(files.len() > 20, "{name}: too few files to compare with");
        let world = World::new();
        plant(&world, &files);
        // A line over 64 KiB grows the buffer of the ripgrep thread that reads it, and with it how far that thread
        // looks for a NUL from then on: two runs of ripgrep may differ. So a tree has one or the other.
        if compared == 0 {
            world.write("bin/late.c", [PLANTED.repeat(2_000).as_bytes(), b"\0 main\n"].concat());
        } else {
            world.write("bin/long.c", "return x; ".repeat(10_000) + "\nreturn\n");
            world.write("bin/huge.c", "the end of int ".repeat(200_000) + "\nint\n");
        }
        let mut agent = world.agent(json!({ "capability": { "max_inline_bytes": 256 << 20 } }));
        let words = words(&world.root, &mut random);
        for _ in 0..PATTERNS_PER_TREE {
            let question = Question::random(&mut random, &words);
            let compare = question.compare(rg, &world, &mut agent);
            compare.map_err(|why| format!("seed {}: {name}: {question:?}\n{why}", random.seed))?;
            compared += 1;
        }
    }
    println!("{compared} searches, all equal");
    Ok(())
}

/// The sources of this repository, without build output.
fn own_sources() -> Vec<(PathBuf, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    ["crates", "xtask", "README.md", "SEMANTICS.md", "ARCHITECTURE.md", "Cargo.lock"]
        .iter()
        .flat_map(|name| files_below(&root, &root.join(name)))
        .collect()
}

/// SQLite's own C sources from cargo's registry: the product is built from them.
fn crate_sources() -> Vec<(PathBuf, PathBuf)> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home =
        home.unwrap_or_else(|| Path::new(&std::env::var_os("HOME").unwrap_or_default()).join(".cargo"));
    let registries = std::fs::read_dir(home.join("registry/src")).into_iter().flatten().flatten();
    let mut found = Vec::new();
    for registry in registries {
        for krate in std::fs::read_dir(registry.path()).into_iter().flatten().flatten() {
            let name = krate.file_name().to_string_lossy().into_owned();
            if ["libsqlite3-sys-", "jiff-0", "regex-syntax-"].iter().any(|wanted| name.starts_with(wanted)) {
                found.extend(files_below(&registry.path(), &krate.path()));
            }
        }
    }
    found
}

fn header_sources() -> Vec<(PathBuf, PathBuf)> {
    let include = Path::new("/usr/include");
    files_below(include, include)
}

/// Regular files with their paths relative to `base`, in path order.
fn files_below(base: &Path, dir: &Path) -> Vec<(PathBuf, PathBuf)> {
    if dir.is_file() {
        return vec![(dir.to_owned(), dir.strip_prefix(base).unwrap().to_owned())];
    }
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    let is_wanted = |path: &&PathBuf| !path.is_symlink() && !path.ends_with("target");
    entries.iter().filter(is_wanted).flat_map(|path| files_below(base, path)).collect()
}

/// Copies a tree, and adds files that are difficult to walk and to read.
fn plant(world: &World, files: &[(PathBuf, PathBuf)]) {
    let mut bytes = 0;
    let step = files.len().div_ceil(TREE_FILES_MAX);
    for (from, to) in files.iter().step_by(step) {
        let size = from.metadata().map_or(0, |meta| meta.len());
        if bytes + size > TREE_BYTES_MAX {
            continue;
        }
        bytes += size;
        world.write(to.to_str().unwrap(), std::fs::read(from).unwrap());
    }
    std::fs::create_dir_all(world.root.join(".git/info")).unwrap();
    world.write(".git/info/exclude", "excluded*\n");
    world.write(".gitignore", "*.log\n!keep.log\n/gen/\n**/deep/*.tmp\n");
    world.write("sub/.gitignore", "!*.log\nonly.txt\n");
    world.write("sub/.ignore", "*.bak\n");
    for path in [
        "a.log",
        "keep.log",
        "gen/x.c",
        "sub/b.log",
        "sub/only.txt",
        "sub/c.bak",
        "x/deep/y.tmp",
        "x/deep/y.txt",
        "excluded.h",
        ".hidden/z.c",
        "a/1",
        "a.c",
        "a0",
        "UPPER.C",
        "sp ace/we:ird-1-.txt",
    ] {
        world.write(path, PLANTED);
    }
    world.write("bin/nul.c", b"int main\n\0int main\n");
    world.write("bin/bad.c", b"int \xff\xfe main caf\xe9\n\xed\xa0\x80 return\n");
    world.write("bin/bom.c", [b"\xef\xbb\xbf".as_slice(), PLANTED.as_bytes()].concat());
    let utf16: Vec<u8> =
        std::iter::once(0xfeff).chain(PLANTED.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    world.write("bin/utf16.c", utf16);
    world.link("a.c", "link.c");
    world.link("sub", "linkdir");
}

/// Words of the tree, from which patterns are made.
fn words(root: &Path, random: &mut Random) -> Vec<String> {
    let files = files_below(root, root);
    let mut words = Vec::new();
    while words.len() < 400 {
        let (file, _) = &files[random.below(files.len())];
        let text = String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()).into_owned();
        let all: Vec<&str> =
            text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| w.len() > 1).collect();
        words.extend((0..5.min(all.len())).map(|_| all[random.below(all.len())].to_owned()));
    }
    words
}

/// One search, for both programs.
#[derive(Debug)]
struct Question {
    pattern: String,
    fixed: bool,
    ignore_case: bool,
    files_only: bool,
    no_ignore: bool,
    context: usize,
    filter: Option<&'static str>,
    path: Option<&'static str>,
    max_results: Option<usize>,
}

const FILTERS: &[&str] = &[
    "*.rs",
    "*.h",
    "*.c",
    "!*.h",
    "!*.rs",
    "sub/**",
    "**/tests/**",
    "*.{c,h}",
    "!sub/",
    "/a*",
    "[a-m]*",
    ".hidden/**",
    "!**/a*",
];

impl Question {
    fn random(random: &mut Random, words: &[String]) -> Question {
        let mut chance = |percent: usize| random.below(100) < percent;
        let (fixed, ignore_case, files_only) = (chance(15), chance(25), chance(15));
        let (no_ignore, with_context, with_filter) = (chance(15), chance(25), chance(25));
        let (with_path, with_max) = (chance(15), chance(20));
        Question {
            pattern: pattern(random, words, fixed),
            fixed,
            ignore_case,
            files_only,
            no_ignore,
            context: if with_context { 1 + random.below(4) } else { 0 },
            filter: with_filter.then(|| *random.pick(FILTERS)),
            path: with_path
                .then(|| *random.pick(&["sub", "bin", "x/deep", "a.c", "gen", ".hidden", "keep.log"])),
            max_results: with_max.then(|| random.below(60)),
        }
    }

    fn compare(&self, rg: &Path, world: &World, agent: &mut Agent) -> Result<(), String> {
        let mut params = json!({
            "pattern": self.pattern, "fixed_strings": self.fixed, "case_insensitive": self.ignore_case,
            "files_only": self.files_only, "include_ignored": self.no_ignore, "context_lines": self.context,
            "max_results": self.max_results.unwrap_or(10_000_000), "output_mode": "require_inline",
        });
        for (key, value) in [("glob_filter", self.filter), ("path", self.path)] {
            if let Some(value) = value {
                params[key] = json!(value);
            }
        }
        let receipt = agent.fs("grep", params);
        let theirs = self.ask(rg, &world.root)?;
        let Some(theirs) = theirs else {
            let refused = receipt["status"] == "invalid_regex";
            return if refused { Ok(()) } else { Err(format!("rg refuses it, we say {receipt:.500}")) };
        };
        let wanted = self.as_ours(&theirs);
        let text = receipt["matches"]["inline_text"]["text"].as_str();
        let text = text.ok_or_else(|| format!("no rows: {receipt:.500}"))?;
        let ours: Vec<&str> = if text.is_empty() { Vec::new() } else { text.split('\n').collect() };
        match (0..ours.len().max(wanted.len()))
            .find(|at| ours.get(*at).copied() != wanted.get(*at).map(String::as_str))
        {
            None => self.count(&receipt, &theirs),
            Some(at) => {
                let show = |row: Option<&str>| row.map(|row| row.chars().take(300).collect::<String>());
                Err(format!(
                    "row {at}: ours {:?}, theirs {:?}",
                    show(ours.get(at).copied()),
                    show(wanted.get(at).map(String::as_str))
                ))
            }
        }
    }

    fn count(&self, receipt: &Value, theirs: &Rows) -> Result<(), String> {
        let all = theirs.values().flatten().filter(|row| row.is_match).count();
        let returned = all.min(self.max_results.unwrap_or(usize::MAX));
        let counted = receipt["match_count"] == returned;
        if counted { Ok(()) } else { Err(format!("rg has {all} matches: {:?}", receipt["match_count"])) }
    }

    /// The rows that ripgrep prints, by path; `None` when it refuses the pattern.
    fn ask(&self, rg: &Path, root: &Path) -> Result<Option<Rows>, String> {
        let mut command = Command::new(rg);
        let flags = [
            "--no-config",
            "--no-ignore-global",
            "--no-heading",
            "--with-filename",
            "--line-number",
            "--null",
            "--color=never",
        ];
        command.current_dir(root).args(flags);
        for (wanted, flag) in [
            (self.fixed, "--fixed-strings"),
            (self.ignore_case, "--ignore-case"),
            (self.files_only, "--files-with-matches"),
            (self.no_ignore, "--no-ignore"),
            // Above the base but inside the root our ignore rules apply; above the root there are no visible ones.
            (self.path.is_none(), "--no-ignore-parent"),
        ] {
            if wanted {
                command.arg(flag);
            }
        }
        command.arg(format!("--context={}", self.context));
        command.args(self.filter.map(|filter| format!("--glob={filter}")));
        command.arg(format!("--regexp={}", self.pattern)).arg("--").arg(self.path.unwrap_or("./"));
        let output = command.output().map_err(|why| why.to_string())?;
        match output.status.code() {
            Some(0 | 1) => Ok(Some(parse(&output.stdout, self.files_only))),
            Some(2) => Ok(None),
            _ => Err(format!("rg: {output:?}")),
        }
    }

    /// ripgrep's rows in our order and form, truncated where ours are.
    fn as_ours(&self, theirs: &Rows) -> Vec<String> {
        let mut rows: Vec<String> = Vec::new();
        let mut left = self.max_results.unwrap_or(usize::MAX);
        for (path, found) in theirs {
            let shown = aos_model::path::show(path);
            if self.files_only {
                rows.extend((left > 0).then_some(shown));
                left = left.saturating_sub(1);
                continue;
            }
            let kept = first_matches(found, left, self.context);
            left -= kept.iter().filter(|row| row.is_match).count();
            if self.context > 0 && !rows.is_empty() && !kept.is_empty() {
                rows.push("--".into());
            }
            for row in kept {
                if row.after_gap {
                    rows.push("--".into());
                }
                let mark = if row.is_match { ':' } else { '-' };
                rows.push(format!("{shown}{mark}{}{mark}{}", row.number, row.text));
            }
        }
        rows
    }
}

/// The rows of the first `count` matches with their context; the context before the next match is not included.
fn first_matches(rows: &[Row], count: usize, context: usize) -> &[Row] {
    let matches: Vec<usize> = (0..rows.len()).filter(|at| rows[*at].is_match).collect();
    if matches.len() <= count {
        return rows;
    }
    let Some(last) = count.checked_sub(1).map(|last| matches[last]) else { return &[] };
    let follows = |at: &usize| {
        !rows[*at].is_match && !rows[*at].after_gap && rows[*at].number <= rows[last].number + context
    };
    let after = (last + 1..rows.len()).take_while(follows).count();
    &rows[..=last + after]
}

type Rows = BTreeMap<Vec<u8>, Vec<Row>>;

#[derive(Debug)]
struct Row {
    number: usize,
    is_match: bool,
    text: String,
    /// Lines were skipped before it.
    after_gap: bool,
}

fn parse(output: &[u8], files_only: bool) -> Rows {
    let mut rows = Rows::new();
    if files_only {
        for path in output.split(|b| *b == 0).filter(|path| !path.is_empty()) {
            let row = Row { number: 0, is_match: true, text: String::new(), after_gap: false };
            rows.insert(plain(path), vec![row]);
        }
        return rows;
    }
    let mut gap = false;
    for line in output.strip_suffix(b"\n").unwrap_or(output).split(|b| *b == b'\n') {
        if line == b"--" {
            gap = true;
            continue;
        }
        let Some(nul) = line.iter().position(|b| *b == 0) else { continue };
        let rest = &line[nul + 1..];
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let (Ok(number), Some(mark)) =
            (std::str::from_utf8(&rest[..digits]).unwrap().parse(), rest.get(digits))
        else {
            continue; // a message about a binary file
        };
        let file = rows.entry(plain(&line[..nul])).or_default();
        let after_gap = gap && !file.is_empty();
        file.push(Row { number, is_match: *mark == b':', text: cut(&rest[digits + 1..]), after_gap });
        gap = false;
    }
    rows
}

fn plain(path: &[u8]) -> Vec<u8> {
    path.strip_prefix(b"./").unwrap_or(path).to_vec()
}

fn cut(text: &[u8]) -> String {
    let mut end = text.len().min(LINE_BYTES_MAX);
    while end < text.len() && text[end] & 0b1100_0000 == 0b1000_0000 {
        end -= 1;
    }
    String::from_utf8_lossy(&text[..end]).into_owned()
}

/// A pattern that is likely to be found, or to be refused.
fn pattern(random: &mut Random, words: &[String], fixed: bool) -> String {
    let one = words[random.below(words.len())].clone();
    let two = words[random.below(words.len())].clone();
    let piece: String = one.chars().take(1 + random.below(3)).collect();
    if fixed {
        return [
            one.clone(),
            format!("{one}("),
            format!("#{piece}"),
            ".*".into(),
            format!("{piece} {two}"),
            "::".into(),
        ][random.below(6)]
        .clone();
    }
    let shapes = [
        one.clone(),
        format!(r"\b{one}\b"),
        format!("{one}|{two}"),
        format!(r"{piece}\w+"),
        format!(r"^\s*{one}"),
        format!(r"{one}\s*\("),
        format!("{piece}.*{two}"),
        format!("(?i){one}"),
        format!("[{piece}]{{2,}}"),
        format!("{one}$"),
        format!("({piece}|){two}"),
        format!(r"{piece}[^a-z]+?{piece}"),
        format!(r"\S{{30,}}{piece}"),
        format!(r"(?-u){one}"),
        format!("{one}("),
        r"^$".into(),
        r"\d+\.\d+".into(),
        r"\p{Lu}{4,}\b".into(),
        r"\w{12,18}\s".into(),
        r"[^\x00-\x7f]".into(),
        r"(\w+)::\w+\(".into(),
        r"\r$".into(),
        r"[[:upper:]]_[[:digit:]]".into(),
        r"\bint\b.*\bint\b".into(),
        r"a{3}|\x{fffd}".into(),
        r"^.{100,}$".into(),
        r"(?s).x".into(),
        r"\Bre\B".into(),
        r"".into(),
        r"x*".into(),
    ];
    // The last two match every line: they are rarely needed.
    let sides = if random.below(20) == 0 { shapes.len() } else { shapes.len() - 2 };
    shapes[random.below(sides)].clone()
}
