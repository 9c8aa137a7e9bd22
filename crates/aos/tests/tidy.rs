//! Checks of the repository itself: documents against tests, crates against their floors, and the size of files and
//! functions.
#![allow(clippy::disallowed_methods, reason = "this test reads its own repository")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use aos_model::refusal::Code;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(repository().join(&path))
        .unwrap_or_else(|why| panic!("{}: {why}", path.as_ref().display()))
}

/// Every Rust file of ours, relative to the repository.
fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![repository().join("crates"), repository().join("xtask")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") && !path.ends_with("patch_scenarios") {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                found.push(path.strip_prefix(repository()).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn every_module_opens_with_a_sentence() {
    let silent: Vec<PathBuf> = sources().into_iter().filter(|path| !read(path).starts_with("//! ")).collect();
    assert!(silent.is_empty(), "modules without `//!`: {silent:?}");
}

/// The rows of SEMANTICS.md: the cells between the bars.
fn rows() -> Vec<Vec<String>> {
    let is_row = |line: &&str| line.starts_with("| ") && !line.ends_with("| test |");
    let cells = |line: &str| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect();
    read("SEMANTICS.md").lines().filter(is_row).map(cells).collect()
}

#[test]
fn semantics_names_every_status_and_code() {
    let named: BTreeSet<String> = rows().into_iter().map(|row| row[0].clone()).collect();
    for code in Code::ALL {
        assert!(
            named.contains(&format!("`{}`", code.as_str())),
            "SEMANTICS.md has no row for the code {}",
            code.as_str()
        );
        let status = code.status().as_str();
        assert!(named.contains(&format!("`{status}`")), "SEMANTICS.md has no row for the status {status}");
    }
}

/// `WRITE-13`, or the id of a finding: `S24`.
fn is_attack_case(test: &str) -> bool {
    let is_finding =
        |letter| test.strip_prefix(letter).is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()));
    test.contains('-') || ['S', 'C', 'U', 'M'].into_iter().any(is_finding)
}

#[test]
fn every_row_of_semantics_names_a_test_that_exists() {
    let sources: Vec<(PathBuf, String)> =
        sources().into_iter().map(|path| (path.clone(), read(&path))).collect();
    let semantics = read("crates/aos/tests/semantics/main.rs");
    for row in rows() {
        let test = row.last().unwrap().trim_matches('`').to_owned();
        let exists = match test.strip_prefix("semantics::") {
            Some(name) => {
                semantics.contains(&format!("    {name} =>")) || semantics.contains(&format!("fn {name}()"))
            }
            None if is_attack_case(&test) => sources.iter().any(|(path, text)| {
                path.starts_with("crates/aos/tests/attack") && text.contains(&format!("\"{test}\""))
            }),
            None => sources.iter().any(|(_, text)| text.contains(&format!("fn {test}("))),
        };
        assert!(exists, "SEMANTICS.md names the test {test}, which does not exist: {row:?}");
    }
}

#[test]
fn the_crates_stand_on_their_floors() {
    let architecture = read("ARCHITECTURE.md");
    for krate in ["aos-model", "aos-store", "aos-sandbox", "aos-host", "aos-tools", "aos-wire", "aos"] {
        let line = architecture
            .lines()
            .find(|line| line.starts_with(&format!("- {krate} →")))
            .expect("ARCHITECTURE.md draws each crate");
        let drawn: BTreeSet<&str> = line
            .split('→')
            .nth(1)
            .unwrap()
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .collect();
        let manifest = read(format!("crates/{krate}/Cargo.toml"));
        let dependencies =
            manifest.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap().to_owned();
        let real: BTreeSet<&str> = dependencies
            .lines()
            .filter_map(|line| line.split(['.', ' ', '=']).next())
            .filter(|name| name.starts_with("aos-"))
            .collect();
        assert_eq!(real, drawn, "the edges of {krate} differ from ARCHITECTURE.md");
    }
}

/// Files that may be longer than [`FILE_LINES_MAX`]. The list may only shrink.
const LONG_FILES: &[&str] = &[];
const FILE_LINES_MAX: usize = 500;

#[test]
fn no_file_is_longer_than_500_lines() {
    let is_long = |path: &&PathBuf| read(path).lines().count() > FILE_LINES_MAX;
    let long: Vec<String> = sources().iter().filter(is_long).map(|path| path.display().to_string()).collect();
    compare_with_exceptions(&long, LONG_FILES, FILE_LINES_MAX);
}

/// Functions that may be longer than [`FUNCTION_LINES_MAX`], as `file: name`. The list may only shrink.
const LONG_FUNCTIONS: &[&str] = &[];
const FUNCTION_LINES_MAX: usize = 70;

#[test]
fn no_function_is_longer_than_70_lines() {
    let mut long = Vec::new();
    for path in sources() {
        let functions = functions(&read(&path)).into_iter();
        let too_long = functions.filter(|(_, lines)| *lines > FUNCTION_LINES_MAX);
        long.extend(too_long.map(|(name, _)| format!("{}: {name}", path.display())));
    }
    compare_with_exceptions(&long, LONG_FUNCTIONS, FUNCTION_LINES_MAX);
}

/// Fails on what is too long and not listed, and on what is listed and not too long any more.
fn compare_with_exceptions(long: &[String], listed: &[&str], lines_max: usize) {
    let unlisted: Vec<&String> = long.iter().filter(|name| !listed.contains(&name.as_str())).collect();
    assert!(unlisted.is_empty(), "longer than {lines_max} lines: {unlisted:#?}");
    let short: Vec<&&str> = listed.iter().filter(|name| !long.iter().any(|l| l == *name)).collect();
    assert!(short.is_empty(), "no longer too long, remove them from the list: {short:?}");
}

/// Name and length of each function, by rustfmt's indentation: a body ends at a `}` under its `fn`.
fn functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let Some(name) = line
            .trim_start()
            .split("fn ")
            .nth(1)
            .filter(|_| line.trim_start().split("fn ").next().is_some_and(is_head))
        else {
            continue;
        };
        let name: String = name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let opens = lines[start..].iter().find(|line| line.ends_with([';', '{', '}']));
        if opens.is_none_or(|line| line.ends_with(';')) {
            continue; // declared here, defined elsewhere
        }
        let close = format!("{}}}", " ".repeat(indent));
        if let Some(length) = lines[start..].iter().position(|line| *line == close) {
            found.push((name, length + 1));
        }
    }
    found
}

/// Whether the words before `fn` belong to a function's head.
fn is_head(before: &str) -> bool {
    before
        .split_whitespace()
        .all(|word| matches!(word, "pub" | "const" | "unsafe" | "async") || word.starts_with("pub("))
}

/// Where functions of `rustix::fs` may be called. Other code goes through these modules.
const FILE_MODULES: &[&str] = &[
    "crates/aos-host/src/disk/",
    "crates/aos-host/src/jail/",
    "crates/aos-sandbox/",
    "crates/aos-store/",
    "crates/aos-testkit/",
    "crates/aos/src/own_file.rs",
    "xtask/",
];

/// Files outside of [`FILE_MODULES`] that call `rustix::fs`. The list may only shrink.
const FILE_CALLERS: &[&str] = &[
    "crates/aos-wire/src/socket.rs",
    "crates/aos/src/commands/blob.rs",
    "crates/aos/src/commands/setup.rs",
    "crates/aos/src/connect.rs",
    "crates/aos/src/detach.rs",
];

#[test]
fn only_fenced_modules_call_rustix_fs() {
    let is_fenced = |path: &str| {
        FILE_MODULES.iter().any(|module| path.starts_with(module))
            || path.split('/').any(|part| part == "tests")
    };
    let callers: Vec<String> = sources()
        .iter()
        .filter(|path| calls_rustix_fs(&read(path)))
        .map(|path| path.display().to_string())
        .filter(|path| !is_fenced(path))
        .collect();
    let unlisted: Vec<&String> =
        callers.iter().filter(|path| !FILE_CALLERS.contains(&path.as_str())).collect();
    assert!(unlisted.is_empty(), "call `crate::disk` instead of `rustix::fs`: {unlisted:#?}");
    let gone: Vec<&&str> = FILE_CALLERS.iter().filter(|path| !callers.iter().any(|c| c == *path)).collect();
    assert!(gone.is_empty(), "no longer call `rustix::fs`, remove them from the list: {gone:?}");
}

/// Whether a source names a function of `rustix::fs`, or imports in a way that could hide calls. Types may be named.
fn calls_rustix_fs(text: &str) -> bool {
    let is_function = |item: &str| {
        let item = item.trim_start();
        item.starts_with(|c: char| c.is_ascii_lowercase() || c == '*')
            || item.starts_with("Dir")
            || item.starts_with("RawDir")
    };
    let group =
        |rest: &str| rest.strip_prefix('{').and_then(|rest| rest.split('}').next()).map(str::to_owned);
    let direct = text.split("rustix::fs").skip(1).any(|rest| match rest.strip_prefix("::") {
        Some(rest) => {
            group(rest).map_or_else(|| is_function(rest), |items| items.split(',').any(is_function))
        }
        None => rest.starts_with(';') || rest.starts_with(" as "),
    });
    let renamed = text.split("use rustix::{").skip(1).any(|rest| {
        let items = rest.split(';').next().unwrap_or_default();
        items.split([',', '{', '}']).any(|item| item.trim().split("::").next() == Some("fs"))
    });
    direct || renamed
}

#[test]
fn calls_of_rustix_fs_are_recognized() {
    for call in [
        "rustix::fs::fsync(file)",
        "use rustix::fs::{Mode, openat};",
        "use rustix::fs::*;",
        "use rustix::fs;",
        "use rustix::fs as files;",
        "use rustix::{fs, io};",
        "use rustix::{fs::openat, io};",
        "rustix::fs::Dir::read_from(dir)",
    ] {
        assert!(calls_rustix_fs(call), "{call}");
    }
    for harmless in
        ["use rustix::fs::{Mode, OFlags};", "rustix::fs::Mode::empty()", "use rustix::{io, process};"]
    {
        assert!(!calls_rustix_fs(harmless), "{harmless}");
    }
}

/// A file belongs to one crate; what two crates need is in a crate of its own (`aos-testkit`).
#[test]
fn no_module_is_included_by_path() {
    for path in sources() {
        assert!(!read(&path).contains("\n#[path"), "{} includes a module by path", path.display());
    }
}

#[test]
fn nothing_is_left_unfinished() {
    for path in sources() {
        let text = read(&path);
        for word in ["todo!(", "unimplemented!(", "#[ignore"] {
            // This file must name them to search for them.
            assert!(!text.contains(word) || path.ends_with("tidy.rs"), "{}: {word}", path.display());
        }
    }
}
