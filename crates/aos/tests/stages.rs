//! Skipping a stage of the spine does not compile: the test adds such code to a copy of `aos-host`, and rustc rejects
//! it.
#![allow(clippy::disallowed_methods, reason = "a test copies sources and runs the compiler")]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Functions that skip or forge a stage, and the error that rustc must report: E0308 for a value of another stage's
/// type, E0451 for a private field.
const SKIPS: &[(&str, &str, &str)] = &[
    (
        "the capability is skipped",
        "E0308",
        "fn skip(s: InSession) -> Result<(), Refusal> { check_policy::<crate::proposed::ProposedChanges<'_>>(s).map(drop) }",
    ),
    (
        "the policy is skipped",
        "E0308",
        "fn skip(host: &Host, s: InSession) -> Result<(), Refusal> { let a = authorize(host, s)?; plan(host, a).map(drop) }",
    ),
    (
        "an authorized request is forged",
        "E0451",
        "fn skip<T>(session: Arc<OpenSession>, subject: T) -> Authorized<T> { Authorized { session, subject, warnings: Vec::new() } }",
    ),
    (
        "a checked request is forged",
        "E0451",
        "fn skip<T>(session: Arc<OpenSession>, subject: T) -> PolicyChecked<T> { PolicyChecked { session, subject, warnings: Vec::new(), blob_only: false } }",
    ),
    (
        "a plan is armed without its stages",
        "E0308",
        "fn skip(host: &Host, plan: Plan, ids: &mut Ids) -> Result<(), Refusal> { change::arm(host, plan, ids, (\"\", \"\")).map(drop) }",
    ),
    (
        "a planned change is forged",
        "E0451",
        "fn skip(session: Arc<OpenSession>, plan: Plan) -> DiskChange<'static> { DiskChange { session, plan, locks: Locked::default(), _made_by_plan: () } }",
    ),
    (
        "an armed change is forged",
        "E0451",
        "fn skip(armed: change::Armed<'static>) -> change::Armed<'static> { change::Armed { intent: 0, ..armed } }",
    ),
    (
        "a change is applied that is not armed",
        "E0308",
        "fn skip(host: &Host, change: DiskChange<'_>) -> Result<(), Refusal> { change::apply(host, &change).map(drop) }",
    ),
];

/// The imports of the functions above, and the allowed order of the stages.
const ALLOWED: &str = "
#[allow(unused_imports, dead_code)]
mod added {
    use std::sync::Arc;
    use aos_model::refusal::Refusal;
    use crate::change;
    use crate::host::Host;
    use crate::lock::Locked;
    use crate::outcome::Ids;
    use crate::session::OpenSession;
    use crate::stage::{Authorized, DiskChange, InSession, PolicyChecked, authorize, check_policy, plan};
    use crate::steps::Plan;

    fn allowed(host: &Host, s: InSession) -> Result<(), Refusal> {
        plan(host, check_policy(authorize(host, s)?)?).map(drop)
    }
";

#[test]
fn skipping_a_stage_does_not_compile() {
    let externs = externs();
    let allowed = compile(&externs, "");
    assert!(allowed.is_empty(), "the allowed way must compile, or this test proves nothing:\n{allowed}");
    for (what, code, function) in SKIPS {
        let errors = compile(&externs, function);
        assert!(errors.contains(&format!("error[{code}]")), "{what}: rustc said\n{errors}");
    }
}

/// The errors that rustc reports for `aos-host` with a function added.
fn compile(externs: &[String], function: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../aos-host/src");
    copy(&from, dir.path());
    let lib = dir.path().join("lib.rs");
    let text = std::fs::read_to_string(&lib).unwrap();
    std::fs::write(&lib, format!("{text}{ALLOWED}    {function}\n}}\n")).unwrap();
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args([
            "--crate-name",
            "aos_host",
            "--edition",
            "2024",
            "--crate-type",
            "lib",
            "--cap-lints",
            "allow",
        ])
        .args(["--emit", "metadata", "--out-dir"])
        .arg(dir.path())
        .args(externs)
        .arg(&lib)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.success(), errors.is_empty(), "{errors}");
    errors
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        if path.is_dir() {
            std::fs::create_dir(&to).unwrap();
            copy(&path, &to);
        } else {
            std::fs::copy(&path, &to).unwrap();
        }
    }
}

/// The libraries that `aos-host` is built with, as arguments of rustc. They exist because this test depends on them.
fn externs() -> Vec<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--workspace", "--all-targets", "--message-format", "json"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut arguments = Vec::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let artifact: Value = serde_json::from_str(line).unwrap();
        let is_test = artifact["profile"]["test"] == true;
        let files = artifact["filenames"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let libraries = files.filter(|file| file.ends_with(".rlib") || file.ends_with(".so"));
        for library in libraries.filter(|_| !is_test).map(PathBuf::from) {
            let name = artifact["target"]["name"].as_str().unwrap().replace('-', "_");
            if name != "aos_host" {
                arguments.extend(["--extern".to_owned(), format!("{name}={}", library.display())]);
            }
            let folder = format!("dependency={}", library.parent().unwrap().display());
            if !arguments.contains(&folder) {
                arguments.extend(["-L".to_owned(), folder]);
            }
        }
    }
    arguments
}
