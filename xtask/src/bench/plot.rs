//! A section as an SVG plot: one bar per contender for each task, scaled to the longest.

use std::fmt::Write as _;

use super::report::{Race, Reach, Section, Standing};
use super::table::time;

const WIDTH: f64 = 820.0;
const NAMES: f64 = 250.0;
const FIGURES: f64 = 190.0;
const BARS: f64 = WIDTH - NAMES - FIGURES;
const ROW: f64 = 20.0;
const OURS: &str = "#2f6f4f";
const THEIRS: &str = "#a9b3bd";
const MARK: &str = "#c0392b";

/// Simple enough to read in a review: one element per line, no scripts, no external fonts.
pub(crate) fn svg(section: &Section) -> String {
    let rows: usize = section.races.iter().map(|race| race.contenders.len() + 2).sum();
    let height = ROW * (rows as f64 + 3.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let heading = format!("{} (p50; {}, {})", section.title, section.commit, section.date);
    text(&mut out, 10.0, ROW, "font-weight=\"bold\" font-size=\"14\"", &heading);
    let mut y = ROW * 2.0;
    for race in &section.races {
        y = draw(&mut out, race, y);
    }
    text(&mut out, 10.0, y + ROW / 2.0, &format!("fill=\"{MARK}\""), "the mark: what is to be reached");
    out.push_str("</svg>\n");
    out
}

/// Draws one race. Returns the y at which the next one begins.
fn draw(out: &mut String, race: &Race, mut y: f64) -> f64 {
    text(out, 10.0, y, "font-weight=\"bold\"", &race.task);
    // The longest allowed length of our own bar.
    let allowed = |contender: &Standing| match contender.reach {
        Some(Reach::AtMost(limit)) => Some(limit * contender.p50_us),
        Some(Reach::AtLeast(_)) | None => None,
    };
    let most = race.contenders.iter().filter_map(allowed).reduce(f64::min);
    let slowest = race.contenders.iter().map(|contender| contender.p50_us).fold(0.0, f64::max);
    let longest = slowest.max(most.unwrap_or(0.0));
    let length = |micros: f64| (BARS * micros / longest).clamp(1.0, BARS);
    let mark = most.map(length);
    for (number, contender) in race.contenders.iter().enumerate() {
        y += ROW;
        let color = if number == 0 { OURS } else { THEIRS };
        text(out, 20.0, y, "", &contender.name);
        let width = length(contender.p50_us);
        let _ = writeln!(
            out,
            "<rect x=\"{NAMES}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{}\" fill=\"{color}\"/>",
            y - ROW * 0.7,
            ROW * 0.8
        );
        let figure = if number == 0 {
            time(contender.p50_us)
        } else {
            format!("{} ({:.2} of it)", time(contender.p50_us), contender.ratio)
        };
        let drawn = if number == 0 { width.max(mark.unwrap_or(0.0)) } else { width };
        text(out, NAMES + drawn + 6.0, y, "", &figure);
    }
    if let Some(mark) = mark {
        let (x, top) = (NAMES + mark, y - ROW * (race.contenders.len() as f64 - 1.0) - ROW * 0.8);
        let _ = writeln!(
            out,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top:.1}\" y2=\"{:.1}\" stroke=\"{MARK}\" stroke-width=\"2\"/>",
            top + ROW
        );
    }
    y + ROW * 2.0
}

fn text(out: &mut String, x: f64, y: f64, extra: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" {extra}>{words}</text>");
}
