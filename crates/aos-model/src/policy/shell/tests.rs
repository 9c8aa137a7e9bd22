//! Scripts in, simple commands out.

use super::*;

/// Commands joined by ` | `, words by `·`, redirections marked by `>`.
fn shape(script: &Script) -> String {
    let command = |simple: &Simple| {
        let redirects = simple.redirects.iter().map(|target| format!(">{target}"));
        simple.words.iter().cloned().chain(redirects).collect::<Vec<_>>().join("·")
    };
    script.commands.iter().map(command).collect::<Vec<_>>().join(" | ")
}

#[test]
fn commands_and_words() {
    for (text, expected) in [
        ("", ""),
        ("  a  b\tc ", "a·b·c"),
        ("a;b&&c||d|e&f\ng", "a | b | c | d | e | f | g"),
        ("a 'b c' \"d e\" f\\ g", "a·b c·d e·f g"),
        ("a 'b'\"c\"d", "a·bcd"),
        ("a ''", "a·"),
        ("a\\\nb", "ab"),
        ("\"a\\$b\\c\"", "a$b\\c"),
        ("a $'\\x41\\102\\u0043\\'\\n'", "a·ABC'\n"),
        ("a $\"b\"", "a·b"),
        ("a $b ${c} ${d:-e f} \"${g}\"", "a·$b·${c}·${d:-e f}·${g}"),
        ("a \"${b:-it's}\" c", "a·${b:-it's}·c"),
        ("a # b\nc#d", "a | c#d"),
        ("a $(b c) d", "b·c | a·$()·d"),
        ("a \"x$(b \"c d\")y\" e", "b·c d | a·x$()y·e"),
        ("a `b \"c\"` d", "b·c | a·$()·d"),
        ("a `b \\`c\\` d` e", "b | c | d | a·$()·e"),
        ("a $((1 + $(b)))", "b | a·$()"),
        ("(a; (b)); c", "b | a | c"),
        ("f() { a; }", "f | {·a | }"),
        ("case a in b) c;; (d) e;; esac; f", "d | case·a·in·b | c | e | esac | f"),
        ("a >b 2>>c <d &>e >|f >&g 2>&1 <&- h", "a·h·>b·>c·>d·>e·>f·>g"),
        ("a>b", "a·>b"),
        ("a 2 >b", "a·2·>b"),
        ("a <(b c) >(d)", "b·c | d | a"),
        ("a <<E b\nc d\nE\ne", "a·b | e"),
        ("a <<E <<F\nc\nE\nd\nF\ne", "a | e"),
        ("a ä\u{a0}b ö", "a·ä\u{a0}b·ö"),
        ("a )b", "a | b"),
    ] {
        let script = read_script(text);
        assert_eq!(shape(&script), expected, "{text:?}");
        assert!(script.pieces.is_empty(), "{text:?} is uncertain");
    }
}

#[test]
fn a_script_that_cannot_be_parsed_is_returned_in_pieces() {
    for text in ["a 'b /c", "a \"b /c", "a $'b /c", "a ${b /c", "a <<E\nb /c", "a \"$(b 'c /c"] {
        assert!(read_script(text).pieces.contains(&"/c".to_owned()), "{text:?}");
    }
}

#[test]
fn inputs_have_their_line_and_whether_they_expand() {
    let script = read_script("a\nb <<E <<'F'\n$(x)\nE\n$(y)\nF\nc <<< 'd e'");
    let inputs: Vec<_> =
        script.inputs.iter().map(|input| (input.text.as_str(), input.line, input.expands)).collect();
    assert_eq!(inputs, [("$(x)\n", 1, true), ("$(y)\n", 1, false), ("d e", 2, false)]);
    assert_eq!(shape(&read_here_document("it's \"$(x 'y z')\" `w`\n")), "x·y z | w");
}

#[test]
fn the_program_follows_keywords_and_assignments() {
    for (text, index) in
        [("a b", 0), ("A=1 b", 1), ("if ! A=1 b c", 3), ("a=b=c", 0), ("-a=b c", 0), ("A+=1 b", 1), ("", 0)]
    {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        assert_eq!(program_index(&words), index, "{text}");
    }
}
