//! A training trace of any length, with the mix of events of a real one: for each kernel an operator with shapes, a
//! helper, a launch, the kernel and the flow arrows.

use std::fmt::Write as _;

/// Kernels of a step.
pub(crate) const KERNELS: u64 = 500;
/// End of the trace.
pub(crate) const TAIL: &str =
    r#"{"name": "process_name", "ph": "M", "ts": 0, "pid": 1, "tid": 0, "args": {"name": "python"}}]}"#;

/// Beginning of the trace.
pub(crate) fn head() -> String {
    r#"{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "Tesla V100-SXM2-16GB"}], "traceEvents": ["#
        .to_owned()
}

/// One step, about 800 kB; steps are 22.5 ms apart.
pub(crate) fn step(number: u64) -> String {
    let mut json = String::with_capacity(900_000);
    let start = 1e6 + 22_500.0 * number as f64;
    for kernel in 0..KERNELS {
        let t = start + 45.0 * kernel as f64;
        let (helper, launch, run) = (t + 2.0, t + 20.0, t + 50.0);
        let id = number * KERNELS + kernel + 1;
        let width = 64 << (kernel % 5);
        write!(
            json,
            r#"{{"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "pid": 1, "tid": 1, "ts": {t:.3}, "dur": 40.5, "args": {{"External id": {id}, "Record function id": 0, "Concrete Inputs": ["", "", "", "1", "1"], "Input type": ["float", "float", "float", "Scalar", "Scalar"], "Input Strides": [[1], [{width}, 1], [1, {width}], [], []], "Input Dims": [[{width}], [512, {width}], [{width}, {width}], [], []], "Ev Idx": {id}}}}},
{{"ph": "X", "cat": "cpu_op", "name": "aten::expand", "pid": 1, "tid": 1, "ts": {helper:.3}, "dur": 5.25, "args": {{"External id": {id}, "Record function id": 0, "Ev Idx": {id}}}}},
{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": {launch:.3}, "dur": 6.125, "args": {{"External id": {id}, "cbid": 211, "correlation": {id}}}}},
{{"ph": "s", "id": {id}, "pid": 1, "tid": 1, "ts": {launch:.3}, "cat": "ac2g", "name": "ac2g"}},
{{"ph": "X", "cat": "kernel", "name": "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4>(cutlass_80_tensorop_s1688gemm_128x128_16x5_tn_align4::Params)", "pid": 0, "tid": 7, "ts": {run:.3}, "dur": 30.016, "args": {{"External id": {id}, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": {id}, "registers per thread": 100, "shared memory": 98304, "blocks per SM": 0.727273, "warps per SM": 2.909091, "grid": [{width}, 4, 1], "block": [128, 1, 1], "est. achieved occupancy %": 0}}}},
{{"ph": "f", "id": {id}, "pid": 0, "tid": 7, "ts": {run:.3}, "cat": "ac2g", "name": "ac2g", "bp": "e"}},
"#,
        )
        .expect("a String takes any text");
    }
    writeln!(
        json,
        r#"{{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{number}", "pid": 1, "tid": 1, "ts": {start:.3}, "dur": 22499, "args": {{"External id": 1}}}},"#,
    )
    .expect("a String takes any text");
    json
}
