//! Checks of a case, and what holds for every receipt.

use serde_json::Value;

/// The result of a case: nothing, or an error message.
pub type Outcome = Result<(), String>;

/// Fails a case with the message `why` unless `holds`.
pub fn check(holds: bool, why: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(why()) }
}

/// `status` or `status / error_code` of a receipt.
pub fn verdict(receipt: &Value) -> String {
    let text = |name: &str| receipt[name].as_str().unwrap_or_default();
    match text("error_code") {
        "" => text("status").into(),
        code => format!("{} / {code}", text("status")),
    }
}

/// Expects one of `allowed`, each written as `forbidden / path_outside_roots`, `ok`, or a status alone for any code.
pub fn expect(what: &str, receipt: &Value, allowed: &[&str]) -> Outcome {
    let found = verdict(receipt);
    let fits = |want: &&str| found == **want || (!want.contains(" / ") && receipt["status"] == **want);
    check(allowed.iter().any(fits), || format!("{what}: expected {allowed:?}, got {found}: {receipt}"))
}

/// The codes of a receipt's warnings.
pub fn warning_codes(receipt: &Value) -> Vec<&str> {
    let warnings = receipt["warnings"].as_array().map(Vec::as_slice).unwrap_or_default();
    warnings.iter().filter_map(|warning| warning["code"].as_str()).collect()
}

/// Collects failures, so that one does not hide the next.
#[derive(Debug, Default)]
pub struct Findings(Vec<String>);

impl Findings {
    pub fn add(&mut self, outcome: Outcome) {
        self.0.extend(outcome.err());
    }

    pub fn outcome(self) -> Outcome {
        check(self.0.is_empty(), || self.0.join("\n"))
    }
}

/// The statuses that the contract gives to each file effect.
fn statuses(op: &str) -> &'static [&'static str] {
    match op {
        "read_file" => &["ok", "not_found", "is_directory", "forbidden", "error"],
        "write_file" | "make_dir" => &["ok", "conflict", "forbidden", "error"],
        "edit_file" => &["ok", "not_found", "ambiguous", "conflict", "forbidden", "error"],
        "apply_patch" => &["ok", "parse_error", "reject", "not_found", "forbidden", "error"],
        "grep" => &["ok", "invalid_regex", "not_found", "forbidden", "error"],
        "glob" => &["ok", "invalid_pattern", "not_found", "forbidden", "error"],
        "stat" | "list_dir" | "remove" => &["ok", "not_found", "forbidden", "error"],
        "exists" => &["ok", "forbidden", "error"],
        "move" | "restore" => &["ok", "not_found", "conflict", "forbidden", "error"],
        "snapshot" => &["ok", "forbidden", "error"],
        "list_snapshots" => &["ok", "error"],
        "drop_snapshot" => &["ok", "not_found", "error"],
        // The contract names no `forbidden` for these two, but policy checks them like any other mutation.
        "rollback" => &["ok", "nothing_to_roll_back", "conflict", "forbidden", "error"],
        "redo" => &["ok", "nothing_to_redo", "conflict", "forbidden", "error"],
        _ => &[],
    }
}

/// What holds for every receipt of a file effect, whatever was requested.
pub fn well_formed(op: &str, receipt: &Value) -> Outcome {
    // A daemon that died sends no receipt. The case checks whether the daemon may die.
    if receipt.is_null() {
        return Ok(());
    }
    let status = receipt["status"].as_str().unwrap_or_default();
    check(statuses(op).is_empty() || statuses(op).contains(&status), || {
        format!("the contract has no status `{status}` here")
    })?;
    let has = |name: &str| receipt[name].as_str().is_some_and(|text| !text.is_empty());
    check(has("error_code") == (status != "ok") && has("error_message") == (status != "ok"), || {
        "a refusal has a code and a message, a success has neither".into()
    })
}
