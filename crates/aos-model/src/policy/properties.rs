//! Properties of every path, command and policy.

use proptest::prelude::*;
use proptest::sample::select;

use super::lexical::is_within;
use super::{
    CommandQuery, Decision, HostAccess, HostAccessSpec, Op, PathQuery, Point, Policy, Preset, lexical_join,
};

const CWD: &str = "/ws/app";
const HOME: &str = "/home/me";

/// Texts of pieces that have a meaning in paths, words and scripts.
fn text() -> impl Strategy<Value = String> {
    let pieces = select(vec![
        "/",
        "..",
        ".",
        "a",
        "ws",
        "app",
        "~",
        "=",
        "-",
        "--",
        "@",
        ",",
        "{",
        "}",
        "\\",
        "$",
        "HOME",
        "'",
        "\"",
        "`",
        "(",
        ")",
        "$(",
        ";",
        "|",
        "&",
        "<",
        ">",
        "<<",
        "\n",
        " ",
        "#",
        "2",
        ":",
        "file:",
        "://",
        "%2e",
        "ä",
        "sh",
        " -c ",
        "case ",
        "eval ",
        "grep ",
        "/dev/null",
        "${",
    ]);
    prop_oneof![3 => prop::collection::vec(pieces, 0..16).prop_map(|pieces| pieces.concat()), 1 => any::<String>()]
}

/// Words without characters that a shell or a tool interprets.
fn plain_word() -> impl Strategy<Value = String> {
    let pieces = select(vec![
        "/", "..", ".", "a", "ws", "app", "=", "-", "@", ",", "{", "}", "\\", "$", "<", ">", "2", ":",
    ]);
    prop_oneof![
        9 => prop::collection::vec(pieces, 0..12).prop_map(|pieces| pieces.concat()),
        1 => Just("~/x".to_owned()),
    ]
}

fn decision() -> impl Strategy<Value = Decision> {
    select(vec![Decision::Allow, Decision::Warn, Decision::Deny])
}

fn host_access() -> impl Strategy<Value = HostAccess> {
    prop::collection::vec(decision(), 7).prop_map(|decisions| {
        let points = HostAccessSpec(Point::ALL.into_iter().zip(decisions).collect());
        HostAccess::preset(Preset::Default).with_points(&points)
    })
}

fn command<'a>(argv: &'a [String], command_cwd: &'a str) -> CommandQuery<'a> {
    CommandQuery {
        argv,
        cwd: CWD,
        workspaces: &[CWD],
        command_cwd,
        home: Some(HOME),
        resolve: &str::to_owned,
    }
}

/// The words that the original heuristic (`HostAccessPolicy` of pydantic-acp) takes for paths.
fn paths_of_the_original(argv: &[String]) -> Vec<String> {
    let looks_like_path = |word: &str| {
        matches!(word, "." | "..") || (!word.starts_with('-') && (word.contains('/') || word.contains('\\')))
    };
    let path_of = |(number, word): (usize, &String)| {
        if looks_like_path(word) {
            return Some(word.clone());
        }
        let is_pair = number > 0 && (word.starts_with("--") || !word.starts_with('-'));
        let (_, value) = word.split_once('=').filter(|_| is_pair)?;
        looks_like_path(value).then(|| value.to_owned())
    };
    let expand = |path: String| match path.strip_prefix("~/") {
        Some(rest) => format!("{HOME}/{rest}"),
        None => path,
    };
    argv.iter().enumerate().filter_map(path_of).map(expand).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn evaluation_never_panics_and_is_deterministic(
        argv in prop::collection::vec(text(), 0..5),
        access in host_access(),
        resolved in text(),
    ) {
        let resolve = |_: &str| resolved.clone();
        let query = CommandQuery { resolve: &resolve, ..command(&argv, CWD) };
        let evaluation = access.evaluate_command(&query);
        prop_assert_eq!(&evaluation, &access.evaluate_command(&query));
        prop_assert!(serde_json::to_string(&evaluation).is_ok());
        let path = PathQuery { input: &resolved, cwd: CWD, workspaces: &[CWD], resolved: &resolved };
        prop_assert_eq!(access.evaluate_path(&path), access.evaluate_path(&path));
        let script = ["sh".to_owned(), "-c".to_owned(), argv.concat()];
        access.evaluate_command(&command(&script, CWD));
    }

    #[test]
    fn denying_a_point_never_weakens_the_disposition(
        argv in prop::collection::vec(text(), 0..4),
        input in text(),
        access in host_access(),
        point in select(Point::ALL.to_vec()),
        command_cwd in select(vec![CWD, "/ws", "/tmp/x"]),
    ) {
        let stricter = access.with_points(&HostAccessSpec([(point, Decision::Deny)].into()));
        let query = command(&argv, command_cwd);
        prop_assert!(stricter.evaluate_command(&query).disposition >= access.evaluate_command(&query).disposition);
        let resolved = lexical_join(CWD, &input);
        let path = PathQuery { input: &input, cwd: CWD, workspaces: &[CWD], resolved: &resolved };
        prop_assert!(stricter.evaluate_path(&path).disposition >= access.evaluate_path(&path).disposition);
    }

    #[test]
    fn the_disposition_is_the_strictest_of_the_risks(argv in prop::collection::vec(text(), 0..4), access in host_access()) {
        let evaluation = access.evaluate_command(&command(&argv, "/ws"));
        let strongest = evaluation.risks.iter().map(|risk| access.decision(risk.point)).max();
        prop_assert_eq!(evaluation.disposition, strongest.unwrap_or(Decision::Allow));
        prop_assert!(evaluation.risks.is_sorted_by_key(|risk| risk.point));
    }

    /// The generated words exclude the exemptions of the contract: URLs, tools, devices, system programs.
    #[test]
    fn never_weaker_than_the_original(
        words in prop::collection::vec(plain_word(), 0..4),
        command_cwd in select(vec![CWD, "/ws/app/sub", "/ws", "/tmp/x"]),
    ) {
        prop_assume!(!words.iter().any(|word| word.contains("://")));
        let argv: Vec<String> = ["prog".to_owned()].into_iter().chain(words).collect();
        let leaves = |path: &String| !is_within(command_cwd, path, CWD);
        if paths_of_the_original(&argv).iter().any(leaves) {
            let evaluation = HostAccess::preset(Preset::Strict).evaluate_command(&command(&argv, command_cwd));
            prop_assert!(evaluation.should_deny());
            prop_assert!(evaluation.risk_codes().contains(&"command_references_external_paths"));
        }
    }

    #[test]
    fn containment_agrees_with_the_joined_path(path in text(), base in text(), root in text()) {
        let (base, root) = (lexical_join("/", &base), lexical_join("/", &root));
        let joined = lexical_join(&base, &path);
        let below = joined.strip_prefix(root.trim_end_matches('/'));
        prop_assert_eq!(is_within(&base, &path, &root), below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')));
    }

    #[test]
    fn a_risk_fires_if_either_spelling_does(input in text(), resolved in text()) {
        let resolved = lexical_join("/", &resolved);
        let query = PathQuery { input: &input, cwd: CWD, workspaces: &[], resolved: &resolved };
        let evaluation = HostAccess::preset(Preset::Default).evaluate_path(&query);
        let either = !is_within(CWD, &input, CWD) || !is_within("", &resolved, CWD);
        prop_assert_eq!(evaluation.risk_codes().contains(&"outside_cwd"), either);
    }

    /// A quoted path is found anywhere among other commands.
    #[test]
    fn a_quoted_path_is_found_in_any_script(before in "[a-z ;|&\n]{0,20}", after in "[a-z ;|&\n]{0,20}", name in "[ -&(-~]{1,12}") {
        for quoted in [format!("'/{name}'"), format!("$'/{}'", name.replace('\\', "\\\\"))] {
            let argv = ["sh".to_owned(), "-c".to_owned(), format!("{before};cat {quoted};{after}")];
            let evaluation = HostAccess::preset(Preset::Strict).evaluate_command(&command(&argv, CWD));
            prop_assert!(evaluation.should_deny() || is_within("/", &format!("/{name}"), CWD), "{:?}", argv[2]);
        }
    }

    #[test]
    fn a_deny_rule_in_front_never_weakens_the_verdict(
        literal in text(),
        resolved in text(),
        decisions in prop::collection::vec(decision(), 1..4),
        glob in select(vec!["**", "*", "a/**", "**/ws", ".", "app/"]),
    ) {
        let rules: Vec<_> = decisions
            .iter()
            .map(|decision| serde_json::json!({"name": "r", "ops": ["read"], "paths": [glob, "a"], "decision": decision}))
            .collect();
        let spec = |rules: &[serde_json::Value]| {
            Policy::compile(serde_json::from_value(serde_json::json!({"rules": rules})).unwrap()).unwrap()
        };
        let deny = serde_json::json!({"name": "deny", "ops": ["read"], "paths": [glob], "decision": "deny"});
        let (given, stricter) = (spec(&rules), spec(&[vec![deny], rules.clone()].concat()));
        let verdict = stricter.check(Op::Read, &literal, &resolved);
        prop_assert!(verdict.decision >= given.check(Op::Read, &literal, &resolved).decision);
        prop_assert_eq!(verdict.rule.map(|rule| rule.decision).unwrap_or(Decision::Allow), verdict.decision);
    }
}
