//! The table, the texts and the order of the contract.

use serde_json::json;

use super::*;

fn query<'a>(input: &'a str, resolved: &'a str, workspaces: &'a [&'a str]) -> PathQuery<'a> {
    PathQuery { input, cwd: "/ws/app", workspaces, resolved }
}

#[test]
fn the_table_is_the_contract() {
    let rows = "
        absolute_path | absolute_path | warn | warn | warn
        path_outside_cwd | outside_cwd | warn | deny | allow
        path_outside_workspace | outside_workspace | deny | deny | warn
        command_cwd_outside_cwd | command_cwd_outside_cwd | warn | deny | allow
        command_cwd_outside_workspace | command_cwd_outside_workspace | deny | deny | warn
        command_external_paths | command_references_external_paths | warn | deny | warn
        command_paths_outside_workspace | command_references_outside_workspace | deny | deny | warn";
    let presets = [Preset::Default, Preset::Strict, Preset::Permissive].map(HostAccess::preset);
    let rows: Vec<&str> = rows.trim().lines().collect();
    assert_eq!(rows.len(), Point::ALL.len());
    for (point, row) in Point::ALL.into_iter().zip(rows) {
        let decisions = presets.map(|preset| preset.decision(point).as_str()).join(" | ");
        assert_eq!(row.trim(), format!("{} | {} | {decisions}", point.as_str(), point.risk_code()));
        assert_eq!(serde_json::to_value(point).unwrap(), point.as_str());
    }
}

#[test]
fn paths_by_both_spellings() {
    let app: &[&str] = &["/ws/app"];
    let none: &[&str] = &[];
    for (input, resolved, workspaces, codes) in [
        ("src/a", "/ws/app/src/a", app, ""),
        (".", "/ws/app", app, ""),
        ("src/../a", "/ws/app/a", app, ""),
        ("..notes", "/ws/app/..notes", app, ""),
        ("../notes.txt", "/ws/notes.txt", app, "outside_cwd outside_workspace"),
        ("../app-evil/x", "/ws/app-evil/x", app, "outside_cwd outside_workspace"),
        ("/ws/app/a", "/ws/app/a", app, "absolute_path"),
        ("/etc/passwd", "/etc/passwd", app, "absolute_path outside_cwd outside_workspace"),
        ("/etc/passwd", "/etc/passwd", none, "absolute_path outside_cwd"),
        ("link", "/etc/passwd", app, "outside_cwd outside_workspace"),
        ("../link", "/ws/app/a", app, "outside_cwd outside_workspace"),
        ("../second/x", "/ws/second/x", &["/ws/app", "/ws/second"], "outside_cwd"),
        ("../second/x", "/ws/third/x", &["/ws/app", "/ws/second"], "outside_cwd outside_workspace"),
        ("../x", "/ws/x", &["/ws"], "outside_cwd"),
        ("~/x", "/ws/app/~/x", app, ""),
        ("a\\..\\..\\x", "/ws/app/a\\..\\..\\x", app, ""),
    ] {
        let evaluation =
            HostAccess::preset(Preset::Default).evaluate_path(&query(input, resolved, workspaces));
        assert_eq!(evaluation.risk_codes().join(" "), codes, "{input} -> {resolved}");
    }
}

#[test]
fn the_texts_of_a_denied_path() {
    let access = HostAccess::preset(Preset::Strict);
    let evaluation = access.evaluate_path(&query("/etc/./hosts", "/etc/hosts", &["/ws/app"]));
    let absolute =
        json!({"code": "absolute_path", "message": "Path is absolute: /etc/hosts", "path": "/etc/hosts"});
    let message = "Path is absolute: /etc/hosts; Path is outside the active session cwd: /etc/hosts; \
                   Path escapes the workspace root: /etc/hosts";
    assert_eq!(
        serde_json::to_value(&evaluation).unwrap(),
        json!({
            "disposition": "deny",
            "headline": "Host access denied",
            "message": message,
            "recommendation": "Do not continue unless you intentionally relax the policy.",
            "risks": [
                absolute,
                {"code": "outside_cwd", "message": "Path is outside the active session cwd: /etc/hosts", "path": "/etc/hosts"},
                {"code": "outside_workspace", "message": "Path escapes the workspace root: /etc/hosts", "path": "/etc/hosts"},
            ],
            "risk_codes": ["absolute_path", "outside_cwd", "outside_workspace"],
            "primary_risk": absolute,
            "has_risks": true,
            "should_warn": false,
            "should_deny": true,
            "summary_lines": [
                "Host access denied",
                message,
                "Do not continue unless you intentionally relax the policy.",
            ],
            "resolved_path": "/etc/hosts",
        })
    );
}

#[test]
fn the_texts_of_an_allowed_and_of_a_warned_path() {
    let access = HostAccess::preset(Preset::Default);
    assert_eq!(
        serde_json::to_value(access.evaluate_path(&query("a", "/ws/app/a", &["/ws/app"]))).unwrap(),
        json!({
            "disposition": "allow",
            "headline": "Host access allowed",
            "message": "Host access allowed.",
            "recommendation": "Safe to continue.",
            "risks": [],
            "risk_codes": [],
            "has_risks": false,
            "should_warn": false,
            "should_deny": false,
            "summary_lines": ["Host access allowed", "Host access allowed.", "Safe to continue."],
            "resolved_path": "/ws/app/a",
        })
    );
    let warned = access.evaluate_path(&query("../x", "/ws/x", &[]));
    assert_eq!(
        warned.summary_lines(),
        [
            "Host access requires review",
            "Path is outside the active session cwd: /ws/x",
            "Review the target carefully before continuing.",
        ]
    );
    assert!(warned.should_warn() && !warned.should_deny());
}

#[test]
fn a_point_set_to_allow_still_lists_its_risk() {
    let access = HostAccess::preset(Preset::Permissive);
    let evaluation = access.evaluate_path(&query("../x", "/ws/x", &[]));
    assert_eq!(evaluation.disposition, Decision::Allow);
    assert_eq!(evaluation.risk_codes(), ["outside_cwd"]);
    assert_eq!(evaluation.risks[0].decision, Decision::Allow);
    assert_eq!(evaluation.headline(), "Host access allowed");
    assert_eq!(evaluation.message(), "Path is outside the active session cwd: /ws/x");
}

#[test]
fn a_literal_path_that_is_outside_is_shown() {
    let access = HostAccess::preset(Preset::Default);
    let evaluation = access.evaluate_path(&query("../link/a", "/ws/app/a", &["/ws/app"]));
    assert_eq!(evaluation.risks[0].path.as_deref(), Some("/ws/link/a"));
}

#[test]
fn without_risks_nothing_is_allocated() {
    let risks = HostAccess::preset(Preset::Strict).path_risks(&query(
        "src/../lib/./a",
        "/ws/app/lib/a",
        &["/ws/app"],
    ));
    assert_eq!(risks.capacity(), 0);
}
