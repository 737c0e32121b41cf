//! A fuzz target: the reader that has the name of this binary is given what libFuzzer makes up.
#![no_main]

mod readers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| readers::run(env!("CARGO_BIN_NAME"), bytes));
