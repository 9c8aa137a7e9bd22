#![no_main]
//! The body stands in `crates/aos-fuzz`.
libfuzzer_sys::fuzz_target!(|data: &[u8]| drop((aos_fuzz::find("entry").expect("BUG: a target").run)(data)));
