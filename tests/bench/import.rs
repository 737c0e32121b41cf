//! How fast traces are imported: `cargo bench --bench import`.

use std::fmt::Write as _;
use std::io::{Cursor, Read};
use std::ops::ControlFlow;

use divan::counter::BytesCount;
use habitat_tui::profile::kineto::{ImportOptions, import};

fn main() {
    divan::main();
}

/// A training trace of about `megabytes` MB with the mix of events of a real one: of each
/// kernel an operator with shapes, a helper, a launch, the kernel and the flow arrows.
fn trace(megabytes: usize) -> String {
    let mut json = String::with_capacity((megabytes + 1) << 20);
    json.push_str(
        r#"{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "Tesla V100-SXM2-16GB"}], "traceEvents": ["#,
    );
    let (mut t, mut correlation, mut step) = (1_000_000.0, 1_u64, 0_u32);
    while json.len() < megabytes << 20 {
        let start = t;
        for layer in 0..500 {
            let width = 64 << (layer % 5);
            write!(
                json,
                r#"{{"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "pid": 1, "tid": 1, "ts": {t:.3}, "dur": 40.5, "args": {{"External id": {correlation}, "Record function id": 0, "Concrete Inputs": ["", "", "", "1", "1"], "Input type": ["float", "float", "float", "Scalar", "Scalar"], "Input Strides": [[1], [{width}, 1], [1, {width}], [], []], "Input Dims": [[{width}], [512, {width}], [{width}, {width}], [], []], "Ev Idx": {correlation}}}}},
{{"ph": "X", "cat": "cpu_op", "name": "aten::expand", "pid": 1, "tid": 1, "ts": {a:.3}, "dur": 5.25, "args": {{"External id": {correlation}, "Record function id": 0, "Ev Idx": {correlation}}}}},
{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": {b:.3}, "dur": 6.125, "args": {{"External id": {correlation}, "cbid": 211, "correlation": {correlation}}}}},
{{"ph": "s", "id": {correlation}, "pid": 1, "tid": 1, "ts": {b:.3}, "cat": "ac2g", "name": "ac2g"}},
{{"ph": "X", "cat": "kernel", "name": "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4>(cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4::Params)", "pid": 0, "tid": 7, "ts": {c:.3}, "dur": 30.016, "args": {{"External id": {correlation}, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": {correlation}, "registers per thread": 100, "shared memory": 98304, "blocks per SM": 0.727273, "warps per SM": 2.909091, "grid": [{width}, 4, 1], "block": [128, 1, 1], "est. achieved occupancy %": 0}}}},
{{"ph": "f", "id": {correlation}, "pid": 0, "tid": 7, "ts": {c:.3}, "cat": "ac2g", "name": "ac2g", "bp": "e"}},
"#,
                a = t + 2.0,
                b = t + 20.0,
                c = t + 50.0,
            )
            .expect("a String takes any text");
            t += 45.0;
            correlation += 1;
        }
        step += 1;
        writeln!(
            json,
            r#"{{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{step}", "pid": 1, "tid": 1, "ts": {start:.3}, "dur": {:.3}, "args": {{"External id": 1}}}},"#,
            t - start - 1.0
        )
        .expect("a String takes any text");
    }
    json.push_str(r#"{"name": "process_name", "ph": "M", "ts": 0, "pid": 1, "tid": 0, "args": {"name": "python"}}]}"#);
    json
}

/// Reads `text`, which must be a valid trace.
fn run(text: &'static [u8], options: &ImportOptions<'_>) -> usize {
    let mut open = || Ok(Box::new(Cursor::new(text)) as Box<dyn Read>);
    let import = import(&mut open, options, &mut |_| ControlFlow::Continue(())).expect("the trace is valid");
    import.profile.operations.len()
}

/// The generated text lives as long as the process: every sample reads the same one.
fn text() -> &'static [u8] {
    static TEXT: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    TEXT.get_or_init(|| trace(20)).as_bytes()
}

#[divan::bench]
fn whole_in_one_pass(bencher: divan::Bencher<'_, '_>) {
    let text = text();
    bencher.counter(BytesCount::new(text.len())).bench(|| run(text, &ImportOptions::default()));
}

/// Three passes, as for a trace beyond the budget.
#[divan::bench]
fn a_part_in_three_passes(bencher: divan::Bencher<'_, '_>) {
    let text = text();
    let options = ImportOptions { max_records: Some(10_000), ..ImportOptions::default() };
    bencher.counter(BytesCount::new(text.len())).bench(|| run(text, &options));
}
