//! Paths: a shown path parses to the same path, a joined path is normalised, and containment is right.

use aos_model::path::{RequestPath, show};
use aos_model::policy::protected_name;
use aos_model::policy::{HostAccess, Op, PathQuery, Policy, Preset, lexical_join, rule_path};
use aos_model::vfs::VfsPath;

use super::Target;
use crate::Shape;

pub(super) const TARGET: Target = Target {
    name: "path",
    run,
    dictionary: &[
        "/",
        "..",
        "../",
        "./",
        "//",
        "/ws/app",
        "/ws/app-evil",
        "/ws/application",
        "~",
        "\\x00",
        "\\x2f",
        "\\x5c",
        "\\xff",
        "\\x",
        ".git/hooks/x",
        ".GIT/config",
        ".mcp.json",
        ".claude/settings.local.json",
        "ſ",
        "\u{212a}",
    ],
};

const CWD: &str = "/ws/app";
const RULES: &str = r#"{"rules":[{"name":"no","ops":["write"],"paths":["src/**","a*"],"decision":"deny"}]}"#;

thread_local! {
    static POLICY: Policy = Policy::compile(serde_json::from_str(RULES).expect("a spec")).expect("a policy");
}

fn run(data: &[u8]) -> Shape {
    let shown = show(data);
    assert!(!shown.chars().any(char::is_control), "a control character is not escaped: {shown:?}");
    let lossy = String::from_utf8_lossy(data);
    let mut shape = Shape::default().with(protected_name(data, true));
    for text in [&*lossy, &*shown] {
        shape = shape.with(spelled(text)).with(virtual_path(text));
    }
    let joined = lexical_join(CWD, &lossy);
    assert!(joined.starts_with('/') && !joined.contains("//"), "{joined:?}");
    assert!(joined.split('/').all(|name| name != "." && name != ".."), "{joined:?} is not normalised");
    assert_eq!(lexical_join("/", &joined), joined, "joining is not idempotent");
    shape.with(evaluate(&lossy, &joined))
}

/// The number of `..` in the path, or its error.
fn spelled(text: &str) -> Result<usize, String> {
    let spelled = RequestPath::parse(text).map_err(|fault| fault.to_string())?;
    let bytes = spelled.as_bytes();
    assert!(!bytes.is_empty() && !bytes.contains(&0) && bytes.len() <= 4_095);
    assert!(spelled.names().all(|name| !name.is_empty() && name != b"." && name.len() <= 255));
    let again = RequestPath::parse(&show(bytes)).expect("a shown path parses");
    assert_eq!(again, spelled, "shown as {:?}", show(bytes));
    Ok(spelled.names().filter(|name| *name == b"..").count().min(4))
}

fn virtual_path(text: &str) -> Result<usize, String> {
    let path = VfsPath::parse(text).map_err(|refusal| refusal.message)?;
    let path = path.as_str();
    assert!(path.is_ascii() && !path.starts_with('/') && !path.ends_with('/') && !path.contains("//"));
    let names = path.split('/').filter(|name| !name.is_empty());
    assert!(names.clone().all(|name| name != "." && name != ".." && name.len() <= 80) && names.count() <= 16);
    Ok(path.split('/').count())
}

/// The risks and the decision of a rule.
fn evaluate(input: &str, joined: &str) -> String {
    let query = PathQuery { input, cwd: CWD, workspaces: &[CWD], resolved: joined };
    let access = HostAccess::preset(Preset::Strict);
    let evaluation = access.evaluate_path(&query);
    assert_eq!(evaluation, access.evaluate_path(&query), "evaluation is not deterministic");
    let is_inside = joined == CWD || joined.starts_with("/ws/app/");
    assert_eq!(evaluation.risk_codes().contains(&"outside_workspace"), !is_inside, "{joined:?}");
    assert!(is_inside || evaluation.should_deny(), "{joined:?} is outside and not denied");
    let spelling = rule_path(CWD, joined);
    let decision = POLICY.with(|policy| policy.check(Op::Write, spelling, spelling).decision);
    format!("{:?} {decision:?}", evaluation.risk_codes())
}
