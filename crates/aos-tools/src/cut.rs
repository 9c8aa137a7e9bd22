//! Fitting text into what a model can read: its head, its tail, and how to get the rest.

/// What one result may hold, in bytes of text.
pub(crate) const BUDGET_BYTES: usize = 40_000;
/// A line of a file as it is shown.
pub(crate) const LINE_BYTES_MAX: usize = 2_000;

/// How much of a budget goes to the head and to the tail. Errors stand at the end, headings at the start.
pub(crate) fn shares(budget: usize) -> (usize, usize) {
    (budget * 3 / 5, budget * 2 / 5)
}

/// The text itself, or its head and its tail.
pub(crate) fn fit(text: &str, budget: usize) -> String {
    if text.len() <= budget {
        return text.to_owned();
    }
    let (head, tail) = shares(budget);
    let head = &text[..text.floor_char_boundary(head)];
    let tail = &text[text.ceil_char_boundary(text.len() - tail)..];
    join(head, tail, text.len() as u64, None)
}

/// A head and a tail of something larger, both cut to whole lines where there are lines.
pub(crate) fn join(head: &str, tail: &str, size: u64, blob: Option<&str>) -> String {
    let head = head.rfind('\n').map_or(head, |end| &head[..=end]);
    let tail = tail.find('\n').map_or(tail, |end| &tail[end + 1..]);
    let left_out = size.saturating_sub((head.len() + tail.len()) as u64);
    let rest = match blob {
        Some(blob) => format!("; all of it: read_file {{\"path\":\"blob:{blob}\"}}"),
        None => String::new(),
    };
    let gap = if head.is_empty() || head.ends_with('\n') { "" } else { "\n" };
    format!("{head}{gap}… [{left_out} of {size} bytes left out{rest}] …\n{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_untouched_and_the_rest_keeps_head_and_tail() {
        assert_eq!(fit("short", 10), "short");
        let long: String = (0..1_000).map(|n| format!("line {n}\n")).collect();
        let cut = fit(&long, 1_000);
        assert!(cut.len() < 1_100, "{}", cut.len());
        assert!(cut.starts_with("line 0\n") && cut.ends_with("line 999\n"), "{cut}");
        assert!(cut.contains("bytes left out"));
        for shown in cut.lines().filter(|line| !line.starts_with('…')) {
            assert!(long.lines().any(|line| line == shown), "a line is whole: {shown}");
        }
    }

    #[test]
    fn a_cut_never_splits_a_character() {
        let long = "é".repeat(5_000);
        assert!(fit(&long, 999).contains("left out"));
    }
}
