//! The list of attack cases: every case of an area that this version has is one of ours; the others are counted as
//! skipped.

use std::path::Path;

use aos_testkit::needs::trial;
use aos_testkit::{Outcome, check};
use libtest_mimic::{Arguments, Trial};
use serde::Deserialize;

/// The list is kept beside the repository, not in it.
const LIST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/cases/attack_cases.json");

/// Areas of the list that have no tests here, and why.
const SKIPPED: &[(&str, &str)] = &[
    ("fuse", "the FUSE mount is not part of this version yet"),
    ("intents_approvals", "approvals are not part of this version yet"),
    ("breaker_unlock", "budgets are not part of this version yet"),
    ("idempotency", "message queues are not part of this version yet"),
    ("load", "load runs of half an hour are not part of these tests"),
];

#[derive(Deserialize)]
struct Listed {
    id: String,
    area: String,
}

impl Listed {
    fn skip_reason(&self) -> Option<&'static str> {
        SKIPPED.iter().find(|(area, _)| *area == self.area).map(|(_, why)| *why)
    }
}

pub fn trials(arguments: &Arguments) -> Vec<Trial> {
    let Ok(text) = std::fs::read_to_string(Path::new(LIST)) else {
        let why = "the list of attack cases (attack_cases.json) is not beside this repository";
        return vec![trial(arguments, "EVERY-ID", Some(why), || Ok(()))];
    };
    let listed: Vec<Listed> = match serde_json::from_str(&text) {
        Ok(listed) => listed,
        Err(why) => return vec![trial(arguments, "EVERY-ID", None, move || Err(why.to_string()))],
    };
    let skipped = |case: &Listed| Some(trial(arguments, &case.id, Some(case.skip_reason()?), || Ok(())));
    let mut trials: Vec<Trial> = listed.iter().filter_map(skipped).collect();
    trials.push(trial(arguments, "EVERY-ID", None, move || every_id(&listed)));
    trials
}

fn every_id(listed: &[Listed]) -> Outcome {
    let ours: Vec<&str> = crate::areas().iter().map(|case| case.id).collect();
    let wanted = listed.iter().filter(|case| case.skip_reason().is_none());
    let missing: Vec<&str> = wanted.map(|case| case.id.as_str()).filter(|id| !ours.contains(id)).collect();
    check(missing.is_empty(), || format!("no case for {missing:?}"))
}
