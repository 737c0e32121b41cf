//! A trace too large for memory.

use std::io::Read;
use std::ops::ControlFlow;

use habitat_tui::trace::StepMarks;
use habitat_tui::trace::import::{ImportOptions, kineto};
use habitat_tui::trace::kineto::Recorded;

#[path = "../bench/generated.rs"]
mod generated;

/// Text generated while it is read, so that only the importer uses memory.
struct Generated {
    steps: std::ops::Range<u64>,
    text: Vec<u8>,
    at: usize,
    ended: bool,
}

impl Generated {
    fn new(steps: u64) -> Self {
        Self { steps: 0..steps, text: generated::head().into_bytes(), at: 0, ended: false }
    }
}

impl Read for Generated {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.at == self.text.len() {
            self.at = 0;
            self.text = match self.steps.next() {
                Some(step) => generated::step(step).into_bytes(),
                None if self.ended => Vec::new(),
                None => {
                    self.ended = true;
                    generated::TAIL.into()
                }
            };
        }
        let count = out.len().min(self.text.len() - self.at);
        out[..count].copy_from_slice(&self.text[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

/// Largest resident memory of this process, in bytes.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kibibytes| kibibytes * 1024)
}

/// `cargo test --release --test kineto -- --ignored --exact large::memory_stays_bounded --nocapture`
#[test]
#[ignore = "reads 1 GB; run it alone, in release"]
fn memory_stays_bounded() {
    const STEPS: u64 = 1400;
    let before = peak_memory();
    let started = std::time::Instant::now();
    let recorded = Recorded::read(Generated::new(STEPS), None, &mut |_| ControlFlow::Continue(())).unwrap();
    let import = kineto(recorded, &ImportOptions::default()).unwrap();
    let seconds = started.elapsed().as_secs_f64();
    let summary = &import.summary;
    assert_eq!((summary.marks, summary.steps_found), (StepMarks::ProfilerStep, STEPS as usize));
    assert!(summary.bytes > 1_000_000_000, "{}", summary.bytes);
    assert!(summary.steps_used > 100);
    assert!((summary.kernels_per_step - generated::KERNELS as f64).abs() < 1e-9);
    if let (Some(before), Some(after)) = (before, peak_memory()) {
        println!(
            "{:.2} GB of text in {seconds:.1} s; {} of {STEPS} steps used; peak memory {:.0} MB (before {:.0} MB)",
            summary.bytes as f64 / 1e9,
            summary.steps_used,
            after as f64 / 1e6,
            before as f64 / 1e6
        );
        assert!(after < 250 << 20, "peak memory {after} bytes");
    }
}
