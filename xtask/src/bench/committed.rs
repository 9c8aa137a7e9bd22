//! The committed figures: a run is compared with them, and the documents show them.
//!
//! Only ratios are compared: absolute times differ between machines, and on the same machine from hour to hour.

use std::path::{Path, PathBuf};

use super::report::{Ratio, Reach, Section};
use super::{SECTIONS, plot, table};

/// The factor by which a ratio may get worse without a report: two runs on a shared machine differ by less.
pub(crate) const SLACK: f64 = 1.5;

/// Reads the committed figures; empty if there is no file.
pub(crate) fn load() -> anyhow::Result<Vec<Section>> {
    match std::fs::read(folder().join("figures.json")) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(why) => Err(why.into()),
    }
}

/// Prints each ratio that got worse by more than `slack`. Returns their number.
pub(crate) fn compare(kept: &[Section], found: &[Section], slack: f64) -> usize {
    let kept: Vec<Ratio> = kept.iter().flat_map(Section::ratios).collect();
    let mut worse = 0;
    for now in found.iter().flat_map(Section::ratios) {
        let Some(before) = kept.iter().find(|before| before.what == now.what) else { continue };
        let factor = match now.reach {
            Some(Reach::AtLeast(_)) => before.found / now.found,
            Some(Reach::AtMost(_)) | None => now.found / before.found,
        };
        if factor > slack {
            println!("  worse: {}: {:.2}, kept is {:.2}", now.what, now.found, before.found);
            worse += 1;
        }
    }
    worse
}

/// Writes the figures of this run. Sections that were not run stay as they are.
pub(crate) fn record(kept: Vec<Section>, found: Vec<Section>) -> anyhow::Result<()> {
    let mut all = found;
    let is_new = |section: &Section| !all.iter().any(|new| new.name == section.name);
    let old: Vec<Section> = kept.into_iter().filter(is_new).collect();
    all.extend(old);
    all.sort_by_key(|section| SECTIONS.iter().position(|(name, ..)| *name == section.name));
    let folder = folder();
    std::fs::write(folder.join("figures.json"), serde_json::to_string_pretty(&all)? + "\n")?;
    for section in all.iter().filter(|section| !section.races.is_empty()) {
        std::fs::write(folder.join(format!("{}.svg", section.name)), plot::svg(section))?;
    }
    table::renew(&folder.join("README.md"), &all)
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A section with one race against `rg` and one figure that should be large.
    fn section(ratio: f64, times_faster: f64) -> Section {
        let race = json!({ "task": "grep", "contenders": [
            { "name": "aos", "calls": 1, "p50_us": ratio, "p99_us": 1.0, "ratio": 1.0 },
            { "name": "rg", "calls": 1, "p50_us": 1.0, "p99_us": 1.0, "ratio": ratio, "reach": { "at_most": 0.95 }, "met": true },
        ] });
        let figure = |unit: &str| json!({ "what": format!("faster, in {unit}"), "found": times_faster, "unit": unit, "reach": { "at_least": 10.0 }, "met": true });
        let section = json!({
            "name": "search", "title": "3. Search", "commit": "c", "date": "d", "rounds": 7, "load": [],
            "races": [race], "figures": [figure("×"), figure("a second")], "left_out": [],
        });
        serde_json::from_value(section).unwrap()
    }

    #[test]
    fn worse_ratios_are_found_whichever_way_is_worse() {
        let kept = [section(0.5, 100.0)];
        let worse = |ratio, faster| compare(&kept, &[section(ratio, faster)], 1.5);
        assert_eq!(worse(0.5, 100.0), 0);
        assert_eq!(worse(0.2, 900.0), 0, "better is not worse");
        assert_eq!(worse(0.74, 67.0), 0, "within the slack");
        assert_eq!(worse(0.76, 100.0), 1);
        assert_eq!(worse(0.5, 66.0), 1, "a rate is no ratio and does not count");
        assert_eq!(compare(&[], &[section(9.0, 1.0)], 1.5), 0, "nothing was kept to be worse than");
    }

    #[test]
    fn pictures_and_tables_show_what_was_missed() {
        let mut missed = section(1.2, 5.0);
        missed.races[0].contenders[1].met = Some(false);
        missed.races[0].task = "a < b & c".to_owned();
        let picture = plot::svg(&missed);
        assert!(picture.contains("a &lt; b &amp; c") && picture.contains("1.20 of it"), "{picture}");
        let dir = tempfile::tempdir().unwrap();
        let document = dir.path().join("README.md");
        std::fs::write(
            &document,
            "before\n<!-- bench: made by `cargo xtask bench --record` -->\nformer\n<!-- bench: end -->\nafter\n",
        )
        .unwrap();
        table::renew(&document, &[missed]).unwrap();
        let text = std::fs::read_to_string(&document).unwrap();
        assert!(
            text.starts_with("before\n") && text.ends_with("after\n") && !text.contains("former"),
            "{text}"
        );
        assert!(text.contains("**1.20**, reach 0.95"), "{text}");
    }
}
