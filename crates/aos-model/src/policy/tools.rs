//! Programs with an argument that is not a path: shells, whose script is parsed in turn, and programs that take a
//! pattern or a script, like `sed` and `python -c`.
//!
//! Only that argument is exempt. If the options are ambiguous, nothing is exempt: a word too many is a needless warning,
//! a word too few is a gap.

/// Which words of one command are scripts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    /// The indexes of the words that are scripts, ascending.
    pub(super) scripts: Vec<usize>,
    /// The scripts for a shell, including joined words (`eval`).
    pub(super) shell_texts: Vec<String>,
}

impl Reading {
    pub(super) fn is_script(&self, word: usize) -> bool {
        self.scripts.binary_search(&word).is_ok()
    }
}

/// Finds the scripts among the words of one simple command; `program` is the index of its program.
pub(super) fn read(words: &[String], program: usize) -> Reading {
    let mut reading = Reading::default();
    if words.get(program).is_some_and(|word| word == "eval") {
        // Its text is parsed later, and a shell in it is found then.
        reading.shell_texts.push(words[program + 1..].join(" "));
        return reading;
    }
    read_shells(words, program, &mut reading);
    if let Some((tool, first)) = find_tool(words, program) {
        tool.read_arguments(words, first, &mut reading.scripts);
    }
    reading.scripts.sort_unstable();
    reading
}

/// Whether a command runs a shell, so that its standard input is a script.
pub(super) fn runs_shell(words: &[String]) -> bool {
    words.iter().any(|word| is_shell(word))
}

fn is_shell(word: &str) -> bool {
    matches!(base_name(word), "sh" | "bash" | "dash" | "zsh" | "ksh" | "ash" | "mksh" | "rbash" | "fish")
}

fn base_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// Finds the script of every `sh -c` among the words. A shell may follow any wrapper (`env`, `sudo`, `timeout`, `xargs`,
/// `busybox`, `find -exec`), so its position does not matter.
fn read_shells(words: &[String], program: usize, reading: &mut Reading) {
    let mut at = 0;
    while at < words.len() {
        // A substitution may be a shell too: `$SHELL`, `$(which sh)`.
        if !is_shell(&words[at]) && !words[at].starts_with('$') {
            at += 1;
            continue;
        }
        let (script, next) = shell_script(words, at + 1);
        if let Some(script) = script {
            let text = &words[script];
            // In `grep sh -c /usr/bin/x` the last word is a file.
            if at == program || text.contains(char::is_whitespace) {
                reading.scripts.push(script);
            }
            reading.shell_texts.push(text.clone());
        }
        at = next;
    }
}

/// The index of the script that a shell gets by `-c`, and of the word after its options. The script is the first word
/// that is not an option, wherever `-c` is among them.
fn shell_script(words: &[String], first: usize) -> (Option<usize>, usize) {
    let mut at = first;
    let mut has_command = false;
    while let Some(word) = words.get(at) {
        let cluster = match word.strip_prefix(['-', '+']) {
            Some("-") => {
                at += 1;
                break;
            }
            Some(cluster) => cluster,
            None => break,
        };
        let takes_value = match cluster.strip_prefix('-') {
            Some(long) => matches!(long, "rcfile" | "init-file"),
            None => cluster.ends_with(['o', 'O']),
        };
        has_command |= word == "--command" || (!cluster.starts_with('-') && cluster.contains('c'));
        at += if takes_value { 2 } else { 1 };
    }
    let script = (has_command && at < words.len()).then_some(at);
    (script, at + usize::from(script.is_some()))
}

/// Programs that run another program from their arguments: their name, their short options with a value, and the number
/// of operands before the program.
const WRAPPERS: [(&str, &str, usize); 13] = [
    ("env", "uCS", 0),
    ("sudo", "ugpCDhRrtTU", 0),
    ("doas", "uC", 0),
    ("nice", "n", 0),
    ("timeout", "ks", 1),
    ("xargs", "aEIdLnPs", 0),
    ("nohup", "", 0),
    ("time", "fo", 0),
    ("stdbuf", "ioe", 0),
    ("setsid", "", 0),
    ("command", "", 0),
    ("exec", "a", 0),
    ("busybox", "", 0),
];

/// The tool that a command runs, after any wrappers, and the index of its first argument.
fn find_tool(words: &[String], program: usize) -> Option<(&'static Tool, usize)> {
    let at = find_program(words, program)?;
    Tool::named(base_name(&words[at])).map(|tool| (tool, at + 1))
}

/// The name of the program that a command runs, after any wrappers.
pub(super) fn program_name(words: &[String], program: usize) -> Option<&str> {
    find_program(words, program).map(|at| base_name(&words[at]))
}

fn find_program(words: &[String], program: usize) -> Option<usize> {
    let mut at = program;
    loop {
        let name = base_name(words.get(at)?);
        let Some((_, with_value, operands)) = WRAPPERS.iter().find(|(wrapper, ..)| *wrapper == name) else {
            return Some(at);
        };
        at = skip_options(words, at + 1, with_value) + operands;
    }
}

fn skip_options(words: &[String], first: usize, with_value: &str) -> usize {
    let mut at = first;
    while let Some(word) = words.get(at) {
        if word == "--" {
            return at + 1;
        }
        match word.strip_prefix('-') {
            Some(cluster) => at += if cluster.ends_with(|c| with_value.contains(c)) { 2 } else { 1 },
            None if word.contains('=') => at += 1,
            None => break,
        }
    }
    at
}

/// A program that takes a script or a pattern, and enough of its options to distinguish it from files.
#[derive(Debug)]
struct Tool {
    names: &'static [&'static str],
    /// The options whose value is the script.
    script: Options,
    /// The options with any other value.
    value: Options,
    /// The options after which no operand is the script: it comes from a file, or there is none.
    no_script: Options,
    /// Letters whose optional value is the rest of the word.
    attached: &'static str,
    /// Letters after whose value there are no more options.
    last: &'static str,
    /// Whether the first operand is the script, unless an option gives it.
    operand: bool,
    /// Whether options may follow operands (GNU permutation).
    permutes: bool,
    /// Whether long options may be abbreviated.
    abbreviates: bool,
}

#[derive(Debug)]
struct Options {
    short: &'static str,
    long: &'static [&'static str],
}

/// What kind of value an option takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Flag,
    Value,
    Script,
    NoScript,
}

/// An option in one word.
struct ParsedOption {
    meaning: Meaning,
    /// Whether its value is the next word.
    is_separate: bool,
    is_last: bool,
}

impl Tool {
    /// The tool with this name, ignoring a version suffix: `python3.12`.
    fn named(name: &str) -> Option<&'static Tool> {
        let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        TOOLS.iter().find(|tool| tool.names.contains(&name))
    }

    /// Adds the indexes of the words that are scripts.
    fn read_arguments(&self, words: &[String], first: usize, scripts: &mut Vec<usize>) {
        let mut at = first;
        let mut operand = None;
        let mut expects_operand = self.operand;
        while let Some(word) = words.get(at) {
            if word == "--" {
                operand = operand.or(Some(at + 1));
                break;
            }
            let Some(option) = self.option(word) else {
                operand = operand.or(Some(at));
                if !self.permutes {
                    break;
                }
                at += 1;
                continue;
            };
            let value = at + usize::from(option.is_separate);
            expects_operand &= !matches!(option.meaning, Meaning::Script | Meaning::NoScript);
            if option.meaning == Meaning::Script {
                scripts.push(value);
            }
            if option.is_last {
                break;
            }
            at = value + 1;
        }
        scripts.extend(operand.filter(|_| expects_operand));
    }

    fn option(&self, word: &str) -> Option<ParsedOption> {
        if let Some(long) = word.strip_prefix("--") {
            let (name, is_separate) = long.split_once('=').map_or((long, true), |(name, _)| (name, false));
            let meaning = self.meaning(|options| options.has_long(name, self.abbreviates));
            return Some(ParsedOption {
                meaning,
                is_separate: is_separate && meaning != Meaning::Flag,
                is_last: false,
            });
        }
        let cluster = word.strip_prefix('-').filter(|cluster| !cluster.is_empty())?;
        for (at, letter) in cluster.char_indices() {
            let meaning = self.meaning(|options| options.short.contains(letter));
            if meaning != Meaning::Flag {
                let is_separate = at + letter.len_utf8() == cluster.len();
                return Some(ParsedOption { meaning, is_separate, is_last: self.last.contains(letter) });
            }
            if self.attached.contains(letter) {
                break;
            }
        }
        Some(ParsedOption { meaning: Meaning::Flag, is_separate: false, is_last: false })
    }

    fn meaning(&self, is_in: impl Fn(&Options) -> bool) -> Meaning {
        [(&self.script, Meaning::Script), (&self.no_script, Meaning::NoScript), (&self.value, Meaning::Value)]
            .into_iter()
            .find_map(|(options, meaning)| is_in(options).then_some(meaning))
            .unwrap_or(Meaning::Flag)
    }
}

impl Options {
    fn has_long(&self, name: &str, abbreviates: bool) -> bool {
        self.long
            .iter()
            .any(|long| *long == name || (abbreviates && !name.is_empty() && long.starts_with(name)))
    }
}

const NONE: Options = Options { short: "", long: &[] };

const TOOLS: [Tool; 7] = [
    Tool {
        names: &["sed", "gsed"],
        script: Options { short: "e", long: &["expression"] },
        value: Options { short: "l", long: &["line-length"] },
        no_script: Options { short: "f", long: &["file"] },
        attached: "i",
        last: "",
        operand: true,
        permutes: true,
        abbreviates: true,
    },
    Tool {
        names: &["awk", "gawk", "mawk", "nawk"],
        script: Options { short: "e", long: &["source"] },
        value: Options { short: "FvilW", long: &["field-separator", "assign", "include", "load"] },
        no_script: Options { short: "fE", long: &["file", "exec"] },
        attached: "dDLop",
        last: "",
        operand: true,
        permutes: false,
        abbreviates: true,
    },
    Tool {
        names: &["grep", "egrep", "fgrep"],
        script: Options { short: "e", long: &["regexp"] },
        value: Options {
            short: "ABCmdD",
            long: &[
                "after-context",
                "before-context",
                "context",
                "max-count",
                "binary-files",
                "devices",
                "directories",
                "exclude",
                "exclude-dir",
                "exclude-from",
                "group-separator",
                "include",
                "label",
            ],
        },
        no_script: Options { short: "f", long: &["file"] },
        attached: "",
        last: "",
        operand: true,
        permutes: true,
        abbreviates: true,
    },
    Tool {
        names: &["rg"],
        script: Options { short: "e", long: &["regexp"] },
        value: Options {
            short: "ABCdEgjmMrtT",
            long: &[
                "after-context",
                "before-context",
                "color",
                "colors",
                "context",
                "context-separator",
                "dfa-size-limit",
                "encoding",
                "engine",
                "field-context-separator",
                "field-match-separator",
                "generate",
                "glob",
                "hostname-bin",
                "hyperlink-format",
                "iglob",
                "ignore-file",
                "max-columns",
                "max-count",
                "max-depth",
                "maxdepth",
                "max-filesize",
                "path-separator",
                "pre",
                "pre-glob",
                "regex-size-limit",
                "replace",
                "sort",
                "sortr",
                "threads",
                "type",
                "type-add",
                "type-clear",
                "type-not",
            ],
        },
        no_script: Options { short: "f", long: &["file", "files", "type-list"] },
        attached: "",
        last: "",
        operand: true,
        permutes: true,
        abbreviates: false,
    },
    Tool {
        names: &["perl"],
        script: Options { short: "eE", long: &[] },
        // In `perl -I -ple FILE` the folder is `-ple`.
        value: Options { short: "I", long: &[] },
        no_script: NONE,
        attached: "CDFMVimx",
        last: "",
        operand: false,
        permutes: false,
        abbreviates: false,
    },
    Tool {
        names: &["python"],
        script: Options { short: "c", long: &[] },
        value: Options { short: "WX", long: &[] },
        no_script: Options { short: "m", long: &[] },
        attached: "",
        last: "cm",
        operand: false,
        permutes: false,
        abbreviates: false,
    },
    Tool {
        names: &["node", "nodejs"],
        script: Options { short: "e", long: &["eval"] },
        value: Options { short: "rC", long: &["require", "import", "conditions"] },
        no_script: NONE,
        attached: "",
        last: "",
        operand: false,
        permutes: false,
        abbreviates: false,
    },
];
