//! Policy, below the ceiling: every path of a request is judged by both its spellings, and deny wins.

use std::sync::Arc;

use aos_model::path::show;
use aos_model::policy::{Decision, Op, PathQuery, Verdict};
use aos_model::receipt::Warning;
use aos_model::refusal::{Code, Refusal};

use crate::evaluate;
use crate::jail::Found;
use crate::operation::{Authorized, Operation};
use crate::session::OpenSession;

/// A request that policy lets pass, with what it has to say about it.
#[derive(Debug)]
pub(crate) struct PolicyChecked {
    pub(crate) session: Arc<OpenSession>,
    pub(crate) operation: Box<dyn Operation>,
    pub(crate) found: Vec<Found>,
    /// Whether it wants to change any of them.
    pub(crate) changes: bool,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) blob_only: bool,
}

/// More remarks than this help nobody.
pub(crate) const WARNINGS_MAX: usize = 100;

pub(crate) fn judge(authorized: Authorized) -> Result<PolicyChecked, Refusal> {
    let Authorized { session, operation, targets, mut warnings } = authorized;
    let mut blob_only = false;
    let mut changes = false;
    let mut found = Vec::with_capacity(targets.len());
    for (target, resolved) in targets {
        let absolute = resolved.found.absolute();
        changes |= target.changes();
        blob_only |= match operation.words() {
            Some(words) => judge_command(&session, words, absolute, &mut warnings)?,
            None => {
                judge_path(&session, target.op, target.text(), &resolved.literal, absolute, &mut warnings)?
            }
        };
        found.push(resolved.found);
    }
    warnings.truncate(WARNINGS_MAX);
    Ok(PolicyChecked { session, operation, found, changes, warnings, blob_only })
}

/// Judges one path. `text` is as the request spelled it; the other two are absolute. Returns whether its content may
/// leave as a blob only.
pub(crate) fn judge_path(
    session: &OpenSession,
    op: Op,
    text: &str,
    literal: &[u8],
    resolved: &[u8],
    warnings: &mut Vec<Warning>,
) -> Result<bool, Refusal> {
    let workspaces: Vec<&str> = session.workspaces.iter().map(String::as_str).collect();
    let absolute = absolute_shown(resolved);
    // An absolute spelling may go through the link by which the workdir was opened: its clean form is what is meant.
    // In a virtual tree the slash at the start is a way of spelling, nothing else.
    let spelled = match text {
        _ if session.is_virtual() => session.jail.shown(literal),
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
                        session.jail.shown(resolved),
                        risk.message,
                        risk.code
                    ),
                ));
            }
        }
    }
    let (literal, shown) = (session.jail.shown(literal), session.jail.shown(resolved));
    weigh(session.policy.judge(op, &literal, &shown), op, &shown, warnings)
}

/// Judges a command by its words and by where it runs, with the function that `policy.evaluate` answers with.
fn judge_command(
    session: &OpenSession,
    words: &[String],
    cwd: &[u8],
    warnings: &mut Vec<Warning>,
) -> Result<bool, Refusal> {
    let workspaces: Vec<&str> = session.workspaces.iter().map(String::as_str).collect();
    let cwd = absolute_shown(cwd);
    let (evaluation, verdict) =
        evaluate::command(&session.policy, &session.workdir_shown, &workspaces, words, &cwd);
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
    weigh(verdict, Op::Exec, &program, warnings)
}

/// What the rules say, as a warning or a refusal. Returns whether content may leave as a blob only.
fn weigh(verdict: Verdict<'_>, op: Op, shown: &str, warnings: &mut Vec<Warning>) -> Result<bool, Refusal> {
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
                format!("rule \"{name}\" asks for care with {} of {shown}{reason}", op.as_str()),
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

pub(crate) fn absolute_shown(path: &[u8]) -> String {
    if path.is_empty() { "/".to_owned() } else { show(path) }
}
