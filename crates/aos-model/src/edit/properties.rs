//! Properties of every text and every edit.

use proptest::prelude::*;

use super::*;

fn one<'a>(old: &'a str, new: &'a str) -> Edit<'a> {
    Edit { old, new, replace_all: false }
}

fn all<'a>(old: &'a str, new: &'a str) -> Edit<'a> {
    Edit { old, new, replace_all: true }
}

/// Texts of few characters, all of which some match level treats specially.
fn text() -> impl Strategy<Value = String> {
    let atom = prop::sample::select(vec![
        "a", "b", " ", "\t", "\n", "\r\n", "\r", "\u{feff}", "“", "\"", "–", "-", "\u{a0}", "é", "  ", "a\n",
    ]);
    prop::collection::vec(atom, 0..24).prop_map(|atoms| atoms.concat())
}

fn visible(text: &str) -> String {
    text.chars().map(fold::punctuation).filter(|&c| c != ' ' && c != '\u{feff}').collect()
}

proptest! {
    #[test]
    fn exact_edits_are_those_of_the_standard_library(text in "[ab\n ]{0,40}", old in "[ab\n ]{1,3}", new in "[abc\n]{0,4}") {
        if text.contains(&old) {
            let edited = edit(&text, &[all(&old, &new)]).unwrap();
            prop_assert_eq!(&edited.text, &text.replace(&old, &new));
            prop_assert_eq!(edited.replacements, text.matches(&old).count() as u64);
            prop_assert_eq!(edited.kind, MatchKind::Exact);
        }
        if text.matches(&old).count() == 1 {
            prop_assert_eq!(edit(&text, &[one(&old, &new)]).unwrap().text, text.replacen(&old, &new, 1));
        }
    }

    /// The text before and after the place is unchanged (but `new` may be indented), and the replaced text equals `old`
    /// except for ignored characters.
    #[test]
    fn nothing_else_is_replaced(text in text(), old in text()) {
        if let Ok(edited) = edit(&text, &[one(&old, "<new>")]) {
            let (before, after) = edited.text.split_once("<new>").unwrap();
            prop_assert!(text.starts_with(before.trim_end()));
            prop_assert!(text.ends_with(after));
            prop_assert_eq!(visible(before) + &visible(&old) + &visible(after), visible(&text));
        }
    }

    #[test]
    fn never_panics_and_is_deterministic(text in text(), old in text(), new in text(), every: bool) {
        let edits = [Edit { old: &old, new: &new, replace_all: every }];
        let edited = edit(&text, &edits);
        if let Err(error) = &edited {
            prop_assert!(!error.to_string().is_empty());
        }
        prop_assert_eq!(edited, edit(&text, &edits));
    }

    #[test]
    fn never_panics_on_any_string(text: String, old: String, new: String) {
        let _ = edit(&text, &[one(&old, &new), all(&new, &old)]);
    }

    #[test]
    fn the_loosest_level_finds_whatever_another_finds(text in text(), old in text()) {
        let old = old.trim_start_matches('\u{feff}');
        if !old.trim().is_empty() && Level::Punctuation.find(&text, old).is_empty() {
            for level in [Level::Trailing, Level::Indent, Level::Blanks] {
                prop_assert!(level.find(&text, old).is_empty());
            }
        }
    }

    /// A piece cut out of the text is found again, however its white space was changed.
    #[test]
    fn a_line_is_found_whatever_its_white_space(
        lines in prop::collection::vec("[a-c]{1,3}( {1,3}[a-c]{1,3}){0,2}", 1..6),
        edges in prop::collection::vec("[ \t]{0,3}", 6),
        crlf: bool,
    ) {
        let end = if crlf { "\r\n" } else { "\n" };
        let old: String = lines.iter().map(|line| line.replace(' ', "\t ") + "\n").collect();
        let text: String = lines.iter().zip(&edges).map(|(line, edge)| format!("{edge}{line}{edge}{end}")).collect();
        let edited = edit(&text, &[one(&old, "")]).unwrap();
        prop_assert_eq!(edited.text, "");
    }

    /// The search by indentation steps finds the same as trying every place and every shift.
    #[test]
    fn shifted_blocks_are_found_at_the_same_places(text in block(12), old in block(4)) {
        let (text_lines, old_lines): (Vec<_>, Vec<_>) = (text.lines().collect(), old.lines().collect());
        let mut naive = Vec::new();
        let mut at = 0;
        while at + old_lines.len() <= text_lines.len() {
            let found = is_shifted(&text_lines[at..at + old_lines.len()], &old_lines);
            naive.extend(found.then_some(at + 1));
            at += if found { old_lines.len() } else { 1 };
        }
        if !old.trim().is_empty() {
            let spans = Level::Indent.find(&text, &old);
            prop_assert_eq!(line::numbers(&text, spans.iter().map(|span| span.start)), naive);
        }
    }
}

fn block(lines_max: usize) -> impl Strategy<Value = String> {
    prop::collection::vec("(| {0,2}a|\t{0,1} {0,1}a| {0,3}b)\n", 1..=lines_max)
        .prop_map(|lines| lines.concat())
}

/// Whether the lines of `text` are those of `old` with one indentation replaced by another.
fn is_shifted(text: &[&str], old: &[&str]) -> bool {
    let Some(first) = old.iter().position(|line| !line.trim().is_empty()) else { return false };
    let indent = |line: &str| line.len() - line.trim_start().len();
    let same = |text: &str, old: &str, to: &str, from: &str| match (text.trim(), old.trim()) {
        ("", "") => true,
        _ => text.strip_prefix(to).is_some_and(|rest| Some(rest) == old.strip_prefix(from)),
    };
    (0..=indent(old[first])).any(|from| {
        (0..=indent(text[first])).any(|to| {
            let (to, from) = (&text[first][..to], &old[first][..from]);
            text.iter().zip(old).all(|(text, old)| same(text, old, to, from))
        })
    })
}
