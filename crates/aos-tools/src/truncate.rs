//! Truncates text to a model's budget: head, tail, and how to get the rest.

/// The text of one result, in bytes.
pub(crate) const BUDGET_BYTES: usize = 40_000;
/// The shown part of one line of a file.
pub(crate) const LINE_BYTES_MAX: usize = 2_000;

/// Splits a budget between head and tail. Output has its headings at the start and its errors at the end.
pub(crate) fn head_and_tail_bytes(budget: usize) -> (usize, usize) {
    (budget * 3 / 5, budget * 2 / 5)
}

/// The text itself if it fits, otherwise its head and tail.
pub(crate) fn fit(text: &str, budget: usize) -> String {
    if text.len() <= budget {
        return text.to_owned();
    }
    let (head, tail) = head_and_tail_bytes(budget);
    let head = &text[..text.floor_char_boundary(head)];
    let tail = &text[text.ceil_char_boundary(text.len() - tail)..];
    join(head, tail, text.len() as u64, None)
}

/// Joins head and tail of a larger text, each truncated to whole lines if it has any.
pub(crate) fn join(head: &str, tail: &str, size: u64, blob: Option<&str>) -> String {
    let head = head.rfind('\n').map_or(head, |end| &head[..=end]);
    let tail = tail.find('\n').map_or(tail, |end| &tail[end + 1..]);
    let omitted = size.saturating_sub((head.len() + tail.len()) as u64);
    let rest = match blob {
        Some(blob) => format!("; to read all: read_file {{\"path\":\"blob:{blob}\"}}"),
        None => String::new(),
    };
    let gap = if head.is_empty() || head.ends_with('\n') { "" } else { "\n" };
    format!("{head}{gap}… [{omitted} of {size} bytes left out{rest}] …\n{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_text_is_unchanged_and_a_long_one_keeps_head_and_tail() {
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
    fn truncation_never_splits_a_character() {
        let long = "é".repeat(5_000);
        assert!(fit(&long, 999).contains("left out"));
    }
}
