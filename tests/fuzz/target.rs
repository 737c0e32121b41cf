//! A fuzz target: libFuzzer's input for the reader with the name of this binary.
#![no_main]

mod readers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| readers::run(env!("CARGO_BIN_NAME"), bytes));
