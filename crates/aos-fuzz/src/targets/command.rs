//! Commands: the paths that they name are normalised and distinct, and evaluation is deterministic.

use std::collections::HashSet;

use aos_model::policy::{CommandQuery, Decision, HostAccess, Preset};

use super::Target;
use crate::Shape;

pub(super) const TARGET: Target = Target {
    name: "command",
    run,
    dictionary: &[
        "sh\n-c\n",
        "bash\n-lc\n",
        "/bin/sh",
        "env\n",
        "sudo\n",
        "xargs\n",
        "find\n",
        "-exec\n",
        "sed\n-e\n",
        "awk\n",
        "git\n-C\n",
        "python3\n-c\n",
        "cat /etc/passwd",
        "../x",
        "~/x",
        "~root/x",
        "$HOME/x",
        "${HOME}/x",
        "$(cat ",
        "`",
        ")",
        "<<EOF\n",
        "EOF\n",
        "<(",
        ">",
        "2>",
        "&>",
        "|",
        "&&",
        ";",
        "'",
        "\"",
        "$'\\x2f'",
        "\\",
        "{a,/b}",
        "--file=/etc/x",
        "-I/usr/include",
        "@/etc/passwd",
        "file:///etc/x",
        "case x in a)",
        ";;",
        "esac",
        "eval ",
        "if ",
        "fi",
        "#",
        "/dev/null",
        "=",
    ],
};

const CWD: &str = "/ws/app";

/// One word per line.
fn run(data: &[u8]) -> Shape {
    let text = String::from_utf8_lossy(data);
    let argv: Vec<String> = text.split('\n').take(64).map(str::to_owned).collect();
    let shape = evaluate(&argv, Shape::default());
    // The same text as a script exercises the shell parser.
    evaluate(&["sh".to_owned(), "-c".to_owned(), text.into_owned()], shape)
}

fn evaluate(argv: &[String], shape: Shape) -> Shape {
    let query = CommandQuery {
        argv,
        cwd: CWD,
        workspaces: &[CWD],
        command_cwd: CWD,
        home: Some("/home/me"),
        resolve: &str::to_owned,
    };
    let access = HostAccess::preset(Preset::Strict);
    let evaluation = access.evaluate_command(&query);
    assert_eq!(evaluation, access.evaluate_command(&query), "evaluation is not deterministic");
    let strongest = evaluation.risks.iter().map(|risk| risk.decision).max();
    assert_eq!(evaluation.disposition, strongest.unwrap_or(Decision::Allow));
    let references = evaluation.references();
    let distinct: HashSet<_> = references.iter().collect();
    assert_eq!(distinct.len(), references.len(), "a path is listed twice");
    let mut outside = 0;
    for reference in references.iter().filter(|reference| reference.literal.starts_with('/')) {
        let path = &reference.literal;
        assert!(path.split('/').all(|name| name != "." && name != ".."), "{path:?} is not normalised");
        outside += usize::from(path != CWD && !path.starts_with("/ws/app/"));
    }
    assert!(outside == 0 || evaluation.should_deny(), "a path outside is not denied: {references:?}");
    shape.with(evaluation.risk_codes()).about(references.len()).about(outside)
}
