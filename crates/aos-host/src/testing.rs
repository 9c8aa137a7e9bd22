//! Panics on demand, for tests of what the next start finds. Compiled in only with the feature `testing`.

/// Panics when `AOS_TEST_PANIC` names this point: an effect's kind, or a program.
pub fn maybe_panic(point: &str) {
    if std::env::var_os("AOS_TEST_PANIC").is_some_and(|wanted| wanted == point) {
        panic!("AOS_TEST_PANIC names {point}");
    }
}
