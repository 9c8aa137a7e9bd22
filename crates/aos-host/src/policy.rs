//! Policy for paths and commands: the same functions for the preview and the check.

use aos_model::path::{RequestPath, show};
use aos_model::policy::{
    CommandQuery, Decision, Evaluation, Op, PathQuery, Policy, PolicyError, PolicySpec, Verdict, lexical_join,
};
use aos_model::receipt::Warning;
use aos_model::records::SessionRecord;
use aos_model::refusal::{Code, Refusal};
use aos_model::request::TargetSpec;
use aos_model::strict::present;
use aos_model::vfs::VfsPath;
use serde::Deserialize;

use crate::jail::absolute_shown;
use crate::session::OpenSession;

/// Further warnings are dropped.
pub(crate) const WARNINGS_MAX: usize = 100;

/// The params of `policy.evaluate`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evaluate {
    #[serde(default, deserialize_with = "present")]
    pub session_id: Option<String>,
    #[serde(default, deserialize_with = "present")]
    pub cwd: Option<String>,
    #[serde(default, deserialize_with = "present")]
    pub workspace: Option<String>,
    #[serde(default, deserialize_with = "present")]
    pub policy: Option<PolicySpec>,
    #[serde(default, deserialize_with = "present")]
    pub path: Option<String>,
    #[serde(default, deserialize_with = "present")]
    pub argv: Option<Vec<String>>,
    #[serde(default, deserialize_with = "present")]
    pub command_cwd: Option<String>,
}

/// Evaluates in an open session: under its policy, in its workdir, with its roots.
pub(crate) fn evaluate_in(session: &OpenSession, asked: &Evaluate) -> Result<Evaluation, Refusal> {
    let policy = match &asked.policy {
        Some(spec) => compile(spec)?.in_workdir(vec![session.workdir_shown.clone()]),
        None => session.policy.clone(),
    };
    let roots: Vec<&str> = session.workspaces.iter().map(String::as_str).collect();
    match &asked.path {
        Some(path) if session.is_virtual() => in_virtual_tree(&policy, &roots, path),
        _ => run(&policy, &session.workdir_shown, &roots, asked),
    }
}

/// A virtual tree resolves no links, and the host's links do not apply to it.
fn in_virtual_tree(policy: &Policy, workspaces: &[&str], path: &str) -> Result<Evaluation, Refusal> {
    let path = VfsPath::parse(if path == "." { "/" } else { path })?;
    let relative = if path.as_str().is_empty() { "." } else { path.as_str() };
    let resolved = format!("/{}", path.as_str());
    let query = PathQuery { input: relative, cwd: "/", workspaces, resolved: &resolved };
    Ok(policy.host_access().evaluate_path(&query))
}

/// Evaluates without a session, as `aos policy` does when it is given folders.
pub fn evaluate(asked: &Evaluate) -> Result<Evaluation, Refusal> {
    let invalid = |why: &str| Refusal::new(Code::InvalidParams, why);
    let cwd = asked.cwd.as_deref().ok_or_else(|| invalid("missing field `cwd` (or `session_id`)"))?;
    if !cwd.starts_with('/') {
        return Err(invalid("field `cwd`: give an absolute path"));
    }
    let cwd = link_free(cwd);
    let workspace = asked.workspace.as_deref().map(|workspace| link_free(&join(&cwd, workspace)));
    let policy = compile(asked.policy.as_ref().unwrap_or(&PolicySpec::default()))?;
    let policy = policy.in_workdir(vec![cwd.clone()]);
    let workspaces: Vec<&str> = workspace.as_deref().into_iter().collect();
    run(&policy, &cwd, &workspaces, asked)
}

/// Evaluates a path or a command under the policy of a recorded session, open or ended.
pub fn evaluate_recorded(record: &SessionRecord, asked: &Evaluate) -> Result<Evaluation, Refusal> {
    let policy = Policy::compile_recorded(record.policy.clone()).map_err(invalid)?;
    let policy = policy.in_workdir(vec![record.workdir.path.clone()]);
    if let (Some(path), Ok(TargetSpec::Vfs(_))) = (&asked.path, serde_json::from_str(record.target.get())) {
        let roots = record.capability.fs_roots.iter().flatten().map(String::as_str).collect::<Vec<_>>();
        return in_virtual_tree(&policy, &roots, path);
    }
    let roots: Vec<&str> = record.roots.iter().map(|root| root.path.as_str()).collect();
    run(&policy, &record.workdir.path, &roots, asked)
}

fn compile(spec: &PolicySpec) -> Result<Policy, Refusal> {
    Policy::compile(spec.clone()).map_err(invalid)
}

/// The refusal of a policy.
#[expect(clippy::needless_pass_by_value, reason = "it maps errors")]
pub(crate) fn invalid(why: PolicyError) -> Refusal {
    Refusal::new(Code::InvalidPolicy, format!("policy: {why}"))
}

fn run(policy: &Policy, cwd: &str, workspaces: &[&str], asked: &Evaluate) -> Result<Evaluation, Refusal> {
    let access = policy.host_access();
    match (&asked.path, &asked.argv) {
        (Some(path), None) => {
            let resolved = link_free(&join(cwd, path));
            Ok(access.evaluate_path(&PathQuery { input: path, cwd, workspaces, resolved: &resolved }))
        }
        (None, Some(argv)) => {
            let command_cwd = link_free(&join(cwd, asked.command_cwd.as_deref().unwrap_or(cwd)));
            Ok(command(policy, cwd, workspaces, argv, &command_cwd).0)
        }
        _ => Err(Refusal::new(Code::InvalidParams, "give either `path` or `argv`")),
    }
}

/// Policy for a command: the built-in checks look at the paths it reaches, the rules at its arguments.
fn command<'p>(
    policy: &'p Policy,
    cwd: &str,
    workspaces: &[&str],
    argv: &[String],
    command_cwd: &str,
) -> (Evaluation, Verdict<'p>) {
    let home = std::env::var("HOME").ok();
    let query = CommandQuery {
        argv,
        cwd,
        workspaces,
        command_cwd,
        home: home.as_deref(),
        resolve: &|path| link_free_past_missing(path),
    };
    let evaluation = policy.host_access().evaluate_command(&query);
    let verdict = policy.check_command(&query, evaluation.references());
    (evaluation, verdict)
}

/// Joined but not normalized: the meaning of `..` depends on the links before it.
fn join(cwd: &str, path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("{cwd}/{path}") }
}

/// The target of an absolute path with its links resolved; the path itself if they cannot be.
fn link_free(path: &str) -> String {
    let Ok(spelled) = RequestPath::parse(path) else { return lexical_join("/", path) };
    if let Some(followed) = crate::jail::follow_text(spelled.as_bytes()) {
        return absolute_shown(&followed);
    }
    // A `..` after a missing name: nothing can exist there, and the jail normalizes the text too.
    lexical_join("/", &show(spelled.as_bytes()))
}

/// As [`link_free`] for a path that a command names: it may make what is missing before it uses the path, so the links
/// after a missing name and `..` count.
fn link_free_past_missing(path: &str) -> String {
    let followed = RequestPath::parse(path).ok();
    let followed = followed.and_then(|spelled| crate::jail::follow_text_past_missing(spelled.as_bytes()));
    followed.map_or_else(|| link_free(path), |followed| absolute_shown(&followed))
}

/// Checks one path. `text` is as the request spelled it; the other two are absolute. Returns whether its content may
/// be returned as a blob only.
pub(crate) fn check_path(
    session: &OpenSession,
    op: Op,
    text: &str,
    literal: &[u8],
    resolved: &[u8],
    warnings: &mut Vec<Warning>,
) -> Result<bool, Refusal> {
    let workspaces: Vec<&str> = session.workspaces.iter().map(String::as_str).collect();
    let absolute = absolute_shown(resolved);
    // An absolute spelling may contain the link by which the workdir was opened; the normalized form is checked.
    // In a virtual tree the leading slash is optional and has no other meaning.
    let spelled = match text {
        _ if session.is_virtual() => session.jail.display(literal),
        text if text.starts_with('/') => absolute_shown(literal),
        text => text.to_owned(),
    };
    let query = PathQuery {
        input: &spelled,
        cwd: &session.workdir_shown,
        workspaces: &workspaces,
        resolved: &absolute,
    };
    for risk in session.policy.host_access().path_risks(&query) {
        match risk.decision {
            Decision::Allow => {}
            Decision::Warn => add(warnings, Warning::new(risk.code, risk.message)),
            Decision::Deny => {
                return Err(Refusal::new(
                    Code::PolicyDenied,
                    format!(
                        "cannot {} {}: {} (the policy denies `{}`). See `aos policy path`",
                        op.as_str(),
                        session.jail.display(resolved),
                        risk.message,
                        risk.code
                    ),
                ));
            }
        }
    }
    let (literal, shown) = (session.jail.display(literal), session.jail.display(resolved));
    apply_verdict(session.policy.check(op, &literal, &shown), op, &shown, warnings)
}

/// Refuses what would show content that a rule forbids to read, by an operation of another name.
pub(crate) fn check_shown(session: &OpenSession, literal: &[u8], resolved: &[u8]) -> Result<(), Refusal> {
    if session.policy.rules().is_empty() {
        return Ok(());
    }
    let (literal, shown) = (session.jail.display(literal), session.jail.display(resolved));
    let verdict = session.policy.check(Op::Read, &literal, &shown);
    apply_verdict(verdict, Op::Read, &shown, &mut Vec::new()).map(drop)
}

/// Refuses to bring content from a name that may not be read to one that may.
pub(crate) fn check_moved(session: &OpenSession, from: &[u8], to: &[u8]) -> Result<(), Refusal> {
    if session.policy.denies(Op::Read, &session.jail.display(to)) {
        return Ok(());
    }
    check_shown(session, from, from)
}

/// Checks a command by its arguments and its working folder, with the function that `policy.evaluate` uses.
pub(crate) fn check_command(
    session: &OpenSession,
    words: &[String],
    cwd: &[u8],
    warnings: &mut Vec<Warning>,
) -> Result<bool, Refusal> {
    let workspaces: Vec<&str> = session.workspaces.iter().map(String::as_str).collect();
    let cwd = absolute_shown(cwd);
    let (evaluation, verdict) = command(&session.policy, &session.workdir_shown, &workspaces, words, &cwd);
    let program: String = words.first().map_or_else(String::new, |word| word.chars().take(200).collect());
    let program = aos_model::text::escape(&program);
    if evaluation.should_deny() {
        let denied = evaluation.risks.iter().filter(|risk| risk.decision == Decision::Deny);
        let (codes, messages): (Vec<&str>, Vec<&str>) =
            denied.map(|risk| (risk.code, risk.message.as_str())).unzip();
        return Err(Refusal::new(
            Code::PolicyDenied,
            format!(
                "cannot exec {program}: {} (the policy denies `{}`). See `aos policy command`; nothing was run",
                messages.join("; "),
                codes.join("`, `")
            ),
        ));
    }
    for risk in evaluation.risks.iter().filter(|risk| risk.decision == Decision::Warn) {
        add(warnings, Warning::new(risk.code, risk.message.clone()));
    }
    apply_verdict(verdict, Op::Exec, &program, warnings)
}

/// Turns the verdict of the rules into a warning or a refusal. Returns whether content may be returned as a blob only.
fn apply_verdict(
    verdict: Verdict<'_>,
    op: Op,
    shown: &str,
    warnings: &mut Vec<Warning>,
) -> Result<bool, Refusal> {
    let Some(rule) = verdict.rule else { return Ok(verdict.blob_only) };
    let reason = rule
        .reason
        .as_ref()
        .map(|reason| format!(" ({})", aos_model::text::escape(reason)))
        .unwrap_or_default();
    let name = aos_model::text::escape(&rule.name);
    match verdict.decision {
        Decision::Allow => {}
        Decision::Warn => add(
            warnings,
            Warning::new(
                "policy_rule",
                format!("rule \"{name}\" warns about {} of {shown}{reason}", op.as_str()),
            ),
        ),
        Decision::Deny => {
            return Err(Refusal::new(
                Code::PolicyDenied,
                format!(
                    "cannot {} {shown}: rule \"{name}\" denies it{reason}. Work elsewhere or ask the operator to change the rule",
                    op.as_str()
                ),
            ));
        }
    }
    Ok(verdict.blob_only)
}

fn add(warnings: &mut Vec<Warning>, warning: Warning) {
    if !warnings.contains(&warning) {
        warnings.push(warning);
    }
}
