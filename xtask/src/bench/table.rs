//! The table of bench/README.md, generated from the recorded figures, so that no figure is copied by hand.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;

use super::report::{Figure, Race, Reach, Section, Standing};

const BEGIN: &str = "<!-- bench: made by `cargo xtask bench --record` -->\n";
const END: &str = "<!-- bench: end -->";

/// Contenders that show what the machine allows; the others are peers.
const LIMITS: &[&str] =
    &["mini host", "raw calls", "temp + rename", "SQLite FULL", "plain", "without capture", "100 files"];

/// Writes the table of these sections between the marks of the document.
pub(crate) fn renew(document: &Path, sections: &[Section]) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(document)?;
    let (before, rest) = text.split_once(BEGIN).context("the document has no place for the table")?;
    let (_, after) = rest.split_once(END).context("the place for the table has no end")?;
    Ok(std::fs::write(document, format!("{before}{BEGIN}{}{END}{after}", markdown(sections)))?)
}

fn markdown(sections: &[Section]) -> String {
    let mut out = String::from("\n| | aos | limit | peers |\n|---|---|---|---|\n");
    for section in sections {
        for race in &section.races {
            row(&mut out, &section.name, race);
        }
    }
    out.push_str("\n| | found | reach |\n|---|---|---|\n");
    for section in sections {
        for figure in section.figures.iter().filter(|figure| figure.reach.is_some()) {
            let (shown, reach) = judged(figure);
            let _ = writeln!(out, "| {}: {} | {shown} | {reach} |", section.name, figure.what);
        }
    }
    let verdicts: Vec<(String, bool)> = sections.iter().flat_map(Section::verdicts).collect();
    let reached = verdicts.iter().filter(|(_, met)| *met).count();
    let _ = writeln!(
        out,
        "\nMedians; in brackets ours divided by theirs, bold where that misses what is to be reached. {reached} of {} figures reached.",
        verdicts.len()
    );
    for section in sections {
        let _ = writeln!(
            out,
            "{}: {}, {}, {} rounds, load {}{}.",
            section.name,
            section.commit,
            section.date,
            section.rounds,
            section.load.join(" to "),
            left_out(section)
        );
    }
    out.push('\n');
    out
}

fn left_out(section: &Section) -> String {
    let names: Vec<&str> = section.left_out.iter().filter_map(|who| who.split(':').next()).collect();
    if names.is_empty() { String::new() } else { format!(", without {}", names.join(" and ")) }
}

fn row(out: &mut String, section: &str, race: &Race) {
    let Some((ours, others)) = race.contenders.split_first() else { return };
    let is_limit = |standing: &&Standing| LIMITS.iter().any(|limit| standing.name.starts_with(limit));
    let (limits, peers): (Vec<&Standing>, Vec<&Standing>) = others.iter().partition(is_limit);
    let cell = |standings: Vec<&Standing>| standings.into_iter().map(shown).collect::<Vec<_>>().join("<br>");
    let _ = writeln!(
        out,
        "| {section}: {} | {} | {} | {} |",
        race.task,
        time(ours.p50_us),
        cell(limits),
        cell(peers)
    );
}

fn shown(standing: &Standing) -> String {
    let ratio = match (standing.met, standing.reach) {
        (Some(false), Some(Reach::AtMost(limit) | Reach::AtLeast(limit))) => {
            format!("**{:.2}**, reach {limit}", standing.ratio)
        }
        _ => format!("{:.2}", standing.ratio),
    };
    format!("{} {} ({ratio})", standing.name, time(standing.p50_us))
}

fn judged(figure: &Figure) -> (String, String) {
    let digits = if figure.found.abs() < 100.0 { 2 } else { 0 };
    let found = format!("{:.digits$} {}", figure.found, figure.unit);
    let reach = figure.reach.map(|reach| reach.to_string()).unwrap_or_default();
    (if figure.met == Some(false) { format!("**{found}**") } else { found }, reach)
}

/// A time in a readable unit.
pub(crate) fn time(micros: f64) -> String {
    match micros {
        t if t < 1_000.0 => format!("{t:.1} µs"),
        t if t < 1_000_000.0 => format!("{:.1} ms", t / 1e3),
        t => format!("{:.2} s", t / 1e6),
    }
}
