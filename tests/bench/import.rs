//! How fast traces are imported: `cargo bench --bench import`.

use std::ops::ControlFlow;

use divan::counter::BytesCount;
use habitat_tui::trace::import::{ImportOptions, kineto};
use habitat_tui::trace::kineto::Recorded;

mod generated;

fn main() {
    divan::main();
}

/// A training trace of about `megabytes` MB.
fn trace(megabytes: usize) -> String {
    let mut json = generated::head();
    for step in 0.. {
        json.push_str(&generated::step(step));
        if json.len() > megabytes << 20 {
            break;
        }
    }
    json.push_str(generated::TAIL);
    json
}

/// Reads `text`, which must be a valid trace.
fn run(text: &'static [u8], options: &ImportOptions<'_>) -> usize {
    let recorded = Recorded::read(text, None, &mut |_| ControlFlow::Continue(())).expect("the trace is valid");
    let import = kineto(recorded, options).expect("the trace is valid");
    import.profile.operations.len()
}

/// Generated once: every sample reads the same text.
fn text() -> &'static [u8] {
    static TEXT: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    TEXT.get_or_init(|| trace(20)).as_bytes()
}

#[divan::bench]
fn whole(bencher: divan::Bencher<'_, '_>) {
    let text = text();
    bencher.counter(BytesCount::new(text.len())).bench(|| run(text, &ImportOptions::default()));
}

/// A trace beyond the budget: only a few steps.
#[divan::bench]
fn a_part(bencher: divan::Bencher<'_, '_>) {
    let text = text();
    let options = ImportOptions { max_records: Some(10_000), ..ImportOptions::default() };
    bencher.counter(BytesCount::new(text.len())).bench(|| run(text, &options));
}
