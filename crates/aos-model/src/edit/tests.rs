//! Each match level as a table of `(text, old, new, expected)`, and the error messages.

use super::*;

fn one<'a>(old: &'a str, new: &'a str) -> Edit<'a> {
    Edit { old, new, replace_all: false }
}

fn all<'a>(old: &'a str, new: &'a str) -> Edit<'a> {
    Edit { old, new, replace_all: true }
}

/// Each row is one edit that finds one place; `replace_all` gives the same result.
fn check(kind: MatchKind, rows: &[(&str, &str, &str, &str)]) {
    for &(text, old, new, expected) in rows {
        let expected = Ok(Edited { text: expected.to_owned(), replacements: 1, kind });
        assert_eq!(edit(text, &[one(old, new)]), expected, "{old:?} -> {new:?} in {text:?}");
        assert_eq!(edit(text, &[all(old, new)]), expected, "{old:?} -> {new:?} in {text:?}, replace_all");
    }
}

/// Each row is one edit that finds these many places.
fn check_all(kind: MatchKind, rows: &[(&str, &str, &str, &str, u64)]) {
    for &(text, old, new, expected, count) in rows {
        let edited = edit(text, &[all(old, new)]);
        let expected = Edited { text: expected.to_owned(), replacements: count, kind };
        assert_eq!(edited, Ok(expected), "{old:?} -> {new:?} in {text:?}");
        let refused = edit(text, &[one(old, new)]);
        assert!(
            matches!(refused, Err(EditError::Ambiguous { count: found, .. }) if found == count),
            "{old:?} in {text:?}: {refused:?}"
        );
    }
}

fn check_not_found(rows: &[(&str, &str)]) {
    for &(text, old) in rows {
        let refused = edit(text, &[one(old, "new")]);
        assert!(
            matches!(refused, Err(EditError::NotFound { index: 0, .. })),
            "{old:?} in {text:?}: {refused:?}"
        );
    }
}

fn message(text: &str, edits: &[Edit<'_>]) -> String {
    edit(text, edits).expect_err("the edit should fail").to_string()
}

#[test]
fn exact() {
    check(
        MatchKind::Exact,
        &[
            ("one two", "two", "three", "one three"),
            ("one two", "one ", "", "two"),
            ("whole", "whole", "", ""),
            ("same", "same", "same", "same"),
            ("a\nb\nc", "b\nc", "x\ny\nz", "a\nx\ny\nz"),
            ("a\nb\nc\n", "b\n", "", "a\nc\n"),
            ("añ→𝕏z", "ñ→𝕏", "é", "aéz"),
            // Exact wins over looser places, wherever they are.
            ("f( x )\nf(x)\n", "f(x)", "g", "f( x )\ng\n"),
            ("“q”\n\"q\"\n", "\"q\"", "r", "“q”\nr\n"),
            ("\u{feff}a\nb", "\u{feff}a", "c", "c\nb"),
        ],
    );
}

#[test]
fn exact_takes_places_in_order_that_do_not_overlap() {
    check_all(
        MatchKind::Exact,
        &[
            ("aa", "a", "aa", "aaaa", 2),
            ("aaaaa", "aa", "b", "bba", 2),
            ("x\nx\n", "x", "y", "y\ny\n", 2),
            ("ababab", "ab", "", "", 3),
            ("abab", "ab", "ab", "abab", 2),
        ],
    );
}

#[test]
fn line_ends_and_byte_order_mark() {
    check(
        MatchKind::Whitespace,
        &[
            ("a\r\nb\r\nc\r\n", "a\nb\n", "x\n", "x\r\nc\r\n"),
            ("a\r\nb\r\nc\r\n", "a\nb", "x\ny", "x\r\ny\r\nc\r\n"),
            ("a\nb\nc\n", "a\r\nb", "x\r\ny\r\nz", "x\ny\nz\nc\n"),
            // As in an exact match, the first and the last line may be pieces.
            ("f(\r\n  a,\r\n  b);\r\n", "(\n  a,\n  b)", "()", "f();\r\n"),
            ("a\r\nb\r\n", "\nb", "", "a\r\n"),
            ("a\r\nb\r\n", "a\n", "", "b\r\n"),
            // WRITE-22: the byte-order mark, the line ends and the missing final one stay.
            ("\u{feff}a\r\nb\r\nc", "b\n", "x\ny\n", "\u{feff}a\r\nx\r\ny\r\nc"),
            ("\u{feff}a\r\nb\r\nc", "a\nb", "x", "\u{feff}x\r\nc"),
            ("a\nb", "\u{feff}a", "\u{feff}x", "x\nb"),
            ("\u{feff}a\r\nb", "\u{feff}a\nb", "\u{feff}x\ny", "\u{feff}x\r\ny"),
            // The text has no final line end.
            ("a\nb", "b\n", "c\n", "a\nc"),
            ("a\nb", "b\n", "c\r\n", "a\nc"),
            ("a\nb", "b\n", "c", "a\nc"),
            ("a\nb", "b\n", "", "a\n"),
            ("a\r\nb", "a\nb\n", "c\nd\n", "c\r\nd"),
            // Mixed line ends are matched, and `new` keeps its own.
            ("a\r\nb\nc\n", "a\nb\nc\n", "x\ny\n", "x\ny\n"),
        ],
    );
    check_all(
        MatchKind::Whitespace,
        &[("a\r\nb\r\na\r\nb", "a\nb", "x\ny", "x\r\ny\r\nx\r\ny", 2), ("a\r\n\r\nb", "\n", " ", "a  b", 2)],
    );
}

#[test]
fn new_takes_the_line_ends_of_what_it_replaces() {
    check(
        MatchKind::Exact,
        &[
            ("a\r\nb\r\n", "a\r\nb", "x\ny", "x\r\ny\r\n"),
            ("a\r\nb\r\n", "b", "x\ny", "a\r\nx\r\ny\r\n"),
            ("a\r\nb\r\n", "b", "x\r\ny\nz", "a\r\nx\r\ny\r\nz\r\n"),
            ("a\nb\n", "b", "x\r\ny", "a\nx\ny\n"),
            ("a\nb\r\n", "b", "x\ny", "a\nx\ny\r\n"),
            ("a\nb\r\n", "b\r\n", "x\ny\n", "a\nx\r\ny\r\n"),
            ("ab", "b", "x\r\ny\n", "ax\r\ny\n"),
        ],
    );
}

#[test]
fn a_line_end_is_never_cut_in_two() {
    check(MatchKind::Whitespace, &[("a\r\nb\r\n", "\nb", " b", "a b\r\n"), ("a\r\nb", "a\r", "x", "x\r\nb")]);
    check(MatchKind::Exact, &[("a\rb\r", "b\r", "x", "a\rx")]);
}

#[test]
fn trailing_white_space() {
    check(
        MatchKind::Whitespace,
        &[
            ("a  \nb\t\nc\n", "a\nb\n", "x\n", "x\nc\n"),
            ("a\nb\nc\n", "a \nb  \n", "x\n", "x\nc\n"),
            ("a  \nb  \nc\n", "a\nb", "x", "x\nc\n"),
            ("a\r\nb \r\nc\r\n", "a\nb\nc\n", "x\ny\n", "x\r\ny\r\n"),
            ("\u{feff}a \nb\n", "a\nb\n", "x\n", "\u{feff}x\n"),
            ("a\n\nb\n", "a\n  \nb\n", "x\n", "x\n"),
            ("z\na \nb", "a\nb\n", "x\ny\n", "z\nx\ny"),
            ("foobar\nfoo\n", "foo  ", "x", "foobar\nx\n"),
        ],
    );
    check_all(MatchKind::Whitespace, &[("a \nb\na\t\nb\n", "a\nb\n", "x\n", "x\nx\n", 2)]);
    // A line is matched whole.
    check_not_found(&[("xa \nb\n", "a\nb\n"), ("a \nbx\n", "a\nb"), ("foobar", "foo ")]);
}

#[test]
fn one_shift_of_indentation() {
    check(
        MatchKind::Whitespace,
        &[
            ("    if a:\n        b\n", "if a:\n    b\n", "if c:\n    d\n", "    if c:\n        d\n"),
            ("if a:\n    b\n", "    if a:\n        b\n", "    if c:\n        d\n", "if c:\n    d\n"),
            ("\t\ta\n\t\t\tb\n", "\ta\n\t\tb\n", "\tx\n\t\ty\n", "\t\tx\n\t\t\ty\n"),
            ("\ta\n\tb\n", "    a\n    b\n", "    x\n        y\n", "\tx\n\t    y\n"),
            // Blank lines have no indentation, neither in `old` nor in `new`.
            ("  a\n\n  b\n", "a\n  \nb\n", "x\n\ny\n", "  x\n\n  y\n"),
            ("z\n\n  a\n    b\n", "\na\n  b\n", "\nx\n", "z\n\n  x\n"),
            // A line of `new` that is indented less than `old` loses what it has.
            ("a\nb\n", "    a\n    b\n", "    x\n  y\nz\n", "x\ny\nz\n"),
            ("\t\ta\n\t\tb\n", "\t    a\n\t    b\n", "\t    x\n\ty\n", "\t\tx\n\ty\n"),
            ("        a\n        b\n", "    a\n    b\n", "    x\ny\n", "        x\n    y\n"),
            ("\u{feff}  a\r\n  b", "a\nb\n", "x\ny\n", "\u{feff}  x\r\n  y"),
            ("\tf(a)\n", "    f(a)", "    g(a)", "\tg(a)\n"),
            ("  a\n    b\nz", "a\n  b", "", "\nz"),
        ],
    );
    check_all(
        MatchKind::Whitespace,
        &[
            ("  a\n  b\n\ta\n\tb\n", " a\n b\n", " x\n", "  x\n\tx\n", 2),
            ("  a\n a\n", "\ta", "\tb", "  b\n b\n", 2),
        ],
    );
}

#[test]
fn a_shift_that_is_not_uniform_is_found_a_level_later() {
    // Both places have these lines; only the second has their relative indentation.
    check(MatchKind::Whitespace, &[("a\n  b\n  a\n  b\n", "\ta\n\tb\n", "\tx\n", "a\n  b\n  x\n")]);
    // The first line sets the indentation of the block.
    check(
        MatchKind::Whitespace,
        &[("    if a:\n        b\n", "  if a:\n    b\n", "  if c:\n    d\n", "    if c:\n      d\n")],
    );
}

#[test]
fn blanks_and_edges() {
    check(
        MatchKind::Whitespace,
        &[
            ("  a = f(x,  y)\n\tb\n", "a  = f(x, y)\nb\n", "c\nd\n", "  c\n  d\n"),
            ("let a   =\t1;\n", "a = 1", "b = 2", "let b = 2;\n"),
            ("let a = 1;\n", "a\t=  1", "b = 2", "let b = 2;\n"),
            ("x  +  y\n", "x + y", "z", "z\n"),
            // A blank at the edge of `old` is a blank of the text, or the edge of a line.
            ("f(a,  b) + c\n", "f(a, b) ", "g ", "g + c\n"),
            ("\tf(a,  b);\n", "    f(a, b)", "    g()", "\tg();\n"),
            ("\tf(a,  b)  \n", "f(a, b) ", "g()", "\tg()\n"),
            ("a  b", "a b", "c\nd", "c\nd"),
            ("\u{feff}a  b\r\n", "a b", "c\nd", "\u{feff}c\r\nd\r\n"),
        ],
    );
    check_all(
        MatchKind::Whitespace,
        &[
            ("a  b, a\tb\n a   b", "a b", "c", "c, c\n c", 3),
            ("a  b\n  c\na b\nc\n", "a   b\nc\n", "x\n", "x\nx\n", 2),
        ],
    );
    check(MatchKind::Whitespace, &[("a  a  a", "a a", "b", "b  a")]);
    check_not_found(&[("a  bc", "a b "), ("ab", "a b"), ("xa  b", " a b"), ("a\n b", "a b")]);
}

#[test]
fn punctuation() {
    check(
        MatchKind::Punctuation,
        &[
            ("say “hello” – or ‘bye’\n", "say \"hello\" - or 'bye'\n", "x\n", "x\n"),
            ("a “b” c", "\"b\"", "'d'", "a 'd' c"),
            ("a \"b\" c", "“b”", "d", "a d c"),
            ("1\u{a0}000\u{202f}km — 2", "1 000 km - 2", "far", "far"),
            ("«a» ‹b›", "\"a\" 'b'", "c", "c"),
            ("x \u{2212} y", "x - y", "z", "z"),
            ("pre\u{a0}“fix”\u{a0}post", "\"fix\"", "mid", "pre\u{a0}mid\u{a0}post"),
            ("\u{a0}\u{a0}a “b”\nc\n", "  a \"b\"\n", "  d\n", "\u{a0}\u{a0}d\nc\n"),
        ],
    );
    check_all(MatchKind::Punctuation, &[("“a” ‘a’ ”a“", "\"a\"", "b", "b ‘a’ b", 2)]);
    check_not_found(&[("a…b", "a...b"), ("Äb", "Ab"), ("a\u{200b}b", "a b")]);
}

/// WRITE-25.
#[test]
fn folding_touches_nothing_else_and_is_always_the_same() {
    let text = "\u{feff}“a”\r\n\tif\u{a0}x – “y”:\r\n“z”";
    for _ in 0..100 {
        let edited = edit(text, &[one("if x - \"y\":\n", "if x:\n")]).unwrap();
        assert_eq!(edited.text, "\u{feff}“a”\r\n\tif x:\r\n“z”");
        assert_eq!((edited.replacements, edited.kind.as_str()), (1, "punctuation"));
    }
}

#[test]
fn white_space_alone_is_not_ignored() {
    check_not_found(&[
        ("a\tb", "  "),
        ("a\n \nb", "\n\n"),
        ("a", "\n"),
        ("a\u{a0}b", " "),
        ("a", "\u{feff}"),
    ]);
    check(MatchKind::Whitespace, &[("a\r\n\r\nb", "\n\n", "\n", "a\r\nb")]);
}

#[test]
fn never_by_similarity() {
    check_not_found(&[
        ("return a - b;", "return a + b;"),
        ("a\nb\nc\n", "a\nc\n"),
        ("Foo", "foo"),
        ("", "a"),
        ("a\nb", "b\nc"),
    ]);
}

#[test]
fn edits_follow_each_other_or_do_nothing() {
    let edited = edit("a b \"x\"", &[one("a", "b"), all("b", "c"), one("c  c", "e"), one("“x”", "y")]);
    let expected = Edited { text: "e y".to_owned(), replacements: 5, kind: MatchKind::Punctuation };
    assert_eq!(edited, Ok(expected));
    let edited = edit("a b", &[one("a", "b"), all("b", "c"), one("a", "d")]);
    assert!(matches!(edited, Err(EditError::NotFound { index: 2, .. })));
    let edited = edit("a", &[]);
    assert_eq!(edited, Ok(Edited { text: "a".to_owned(), replacements: 0, kind: MatchKind::Exact }));
}

#[test]
fn empty_old() {
    assert_eq!(edit("a", &[one("a", "b"), one("", "x")]), Err(EditError::EmptyOld { index: 1 }));
    assert_eq!(
        message("a", &[one("", "x")]),
        "old_string of edit 1 is empty: give the text to replace, or write the whole file."
    );
}

#[test]
fn ambiguous() {
    let lines = |text: &str, old: &str| match edit(text, &[one(old, "x")]) {
        Err(EditError::Ambiguous { index: 0, lines, count }) => (lines, count),
        other => panic!("{old:?} in {text:?}: {other:?}"),
    };
    assert_eq!(lines("a\nb\na\n a", "a"), (vec![1, 3, 4], 3));
    assert_eq!(lines("a a\r\na", "a"), (vec![1, 1, 2], 3));
    assert_eq!(lines("x\na \nb\n\na\nb \n", "a\nb\n"), (vec![2, 5], 2));
    assert_eq!(lines(&"a\n".repeat(1000), "a"), ((1..=20).collect(), 1000));
    assert_eq!(lines(&"a  b\n".repeat(1000), "a b\n"), ((1..=20).collect(), 1000));
    assert_eq!(
        message("a\nb\na\na", &[one("a", "x")]),
        "old_string of edit 1 occurs at 3 places (lines 1, 3 and 4): add the lines around the one to replace, or set \
         replace_all to replace them all."
    );
    assert!(message("a a", &[one("a", "x")]).contains("at 2 places (line 1): add"));
    assert!(message(&"a\n".repeat(30), &[one("a", "x")]).contains("at 30 places (lines 1, 2, 3,"));
    assert!(message(&"a\n".repeat(30), &[one("a", "x")]).contains("19 and 20, and more): add"));
    assert!(
        message("z a\na", &[one("z", "\n"), one("a", "x")]).starts_with(
            "old_string of edit 2 occurs at 2 places (lines 2 and 3 as counted after edit 1): add"
        )
    );
}

const SUM: &str = "fn sum(a: i32, b: i32) -> i32 {\n    let total = a - b;\n    total\n}\n";

#[test]
fn not_found_names_the_closest_place() {
    assert_eq!(
        message(SUM, &[one("fn sum(a: i32, b: i32) -> i32 {\n    let total = a + b;\n    total\n}", "x")]),
        "old_string was not found. The closest place is lines 1 to 4; the first line that differs is line 2: \
         old_string has `    let total = a + b;`, but the text has `    let total = a - b;`. Copy that line \
         exactly."
    );
    assert_eq!(
        message(SUM, &[one("let total = a + b", "x")]),
        "old_string was not found. The closest place is line 2; the first line that differs is line 2: old_string \
         has `let total = a + b`, but the text has `    let total = a - b;`. Copy that line exactly."
    );
    assert_eq!(
        message(SUM, &[one("sum", "add"), one("  total\n}\n\nfn main() {\n", "x")]),
        "old_string of edit 2 of 2 was not found. The closest place is lines 3 to 4 as counted after edit 1; the \
         first line that differs is line 5: old_string has ``, but the text ends with line 4. 2 of 4 lines differ: \
         read lines 3 to 4 and copy old_string from there."
    );
    assert_eq!(
        message(SUM, &[one("struct Unrelated;", "x")]),
        "old_string was not found, and the text has nothing similar. Read the file again and copy old_string from it."
    );
    assert_eq!(
        message("", &[one("a", "x")]),
        "old_string was not found: the text is empty. Write the whole file instead."
    );
    assert_eq!(
        message("a\tb", &[one("  ", "x")]),
        "old_string was not found: it is only white space, which must match exactly. Add the lines around it."
    );
}

#[test]
fn not_found_shows_lines_safely() {
    let shown = message("key\t= \u{1b}[31m\u{202e}value", &[one("key = 1 value", "x")]);
    assert!(shown.contains(r"the text has `key\t= \u{1b}[31m\u{202e}value`. Copy"), "{shown}");
    let (same, tail) = ("word ".repeat(100), "y".repeat(1000));
    let shown = message(&format!("{same}left {tail}"), &[one(&format!("{same}right {tail}"), "x")]);
    assert!(shown.contains("word right yyy") && shown.contains("word left yyy"), "{shown}");
    assert!(shown.contains("1 of 1 lines differ: read line 1 and copy old_string from there."), "{shown}");
    assert!(shown.len() < 1000, "{shown}");
}

#[test]
fn not_found_recognises_an_edit_that_was_made_before() {
    let applied = |text: &str, old: &str, new: &str| match edit(text, &[one(old, new)]) {
        Err(EditError::NotFound { message, already_applied, .. }) => (already_applied, message),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        applied("a\nlet b = 2;\n", "let b = 1;", "let b = 2;"),
        (
            true,
            "old_string was not found. The closest place is line 2; the first line that differs is line 2: \
             old_string has `let b = 1;`, but the text has `let b = 2;`. Copy that line exactly. \
             new_string already occurs once in the text, at line 2: if this edit was made before, nothing is left to do."
                .to_owned()
        )
    );
    assert!(applied("a\r\nx\r\ny\r\n", "b", "x\ny").0);
    assert!(!applied("x x", "b", "x").0);
    assert!(!applied("x", "b", "").0);
    assert!(!applied("x", "b", "y").0);
}

/// Inputs on which a naive search is quadratic. With one, this test would not end in reasonable time.
#[test]
fn hostile_inputs_take_linear_time() {
    let equal = "    x \n".repeat(50_000);
    let long = "x".repeat(200_000);
    let olds = [
        format!("{}y\n", "x\n".repeat(20_000)),
        format!("\n{}", "x\n".repeat(20_000)),
        format!("{}  x\n", "x\n".repeat(20_000)),
        format!("{}  y", "x ".repeat(20_000)),
        format!("{}y", "x\n".repeat(20_000)),
    ];
    for old in &olds {
        for text in [&equal, &long, &"x  ".repeat(50_000), &"\tx\n  x\n".repeat(25_000)] {
            let _ = edit(text, &[all(old, "z\n")]);
        }
    }
}

#[test]
fn an_edit_that_would_exhaust_memory_is_refused() {
    let (text, new) = ("a".repeat(1 << 20), "b".repeat(1 << 16));
    let huge = Edit { old: "a", new: &new, replace_all: true };
    assert_eq!(edit(&text, &[huge]), Err(EditError::TooLarge { index: 0 }));
}
