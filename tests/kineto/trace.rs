//! Writes small traces with known answers.

use std::fmt::Write as _;
use std::ops::ControlFlow;

use habitat_tui::trace::TraceError;
use habitat_tui::trace::import::{Import, ImportOptions, kineto};
use habitat_tui::trace::kineto::Recorded;

/// A trace under construction; times in microseconds.
#[derive(Clone, Default)]
pub(crate) struct Trace {
    pub(crate) events: Vec<String>,
    next: u64,
}

/// Thread of the forward pass.
pub(crate) const MAIN: u32 = 10;
/// Thread of autograd.
pub(crate) const AUTOGRAD: u32 = 20;

impl Trace {
    pub(crate) fn operator(&mut self, tid: u32, name: &str, start: f64, duration: f64, args: &str) -> &mut Self {
        self.range("cpu_op", tid, name, start, duration, args)
    }

    pub(crate) fn range(
        &mut self,
        category: &str,
        tid: u32,
        name: &str,
        start: f64,
        duration: f64,
        args: &str,
    ) -> &mut Self {
        self.events.push(format!(
            r#"{{"ph": "X", "cat": "{category}", "name": "{name}", "pid": 1, "tid": {tid}, "ts": {start}, "dur": {duration}, "args": {{{args}}}}}"#
        ));
        self
    }

    pub(crate) fn mark(&mut self, name: &str, start: f64, duration: f64) -> &mut Self {
        self.range("user_annotation", MAIN, name, start, duration, "")
    }

    /// A launch at `launch` and the kernel it starts at `start`.
    pub(crate) fn kernel(&mut self, tid: u32, launch: f64, name: &str, start: f64, duration: f64) -> &mut Self {
        self.work("kernel", "cudaLaunchKernel", tid, launch, name, start, duration, 7)
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of the event")]
    pub(crate) fn work(
        &mut self,
        category: &str,
        call: &str,
        tid: u32,
        launch: f64,
        name: &str,
        start: f64,
        duration: f64,
        stream: u32,
    ) -> &mut Self {
        self.next += 1;
        let correlation = self.next;
        self.range("cuda_runtime", tid, call, launch, 1.0, &format!(r#""correlation": {correlation}"#));
        self.events.push(format!(
            r#"{{"ph": "X", "cat": "{category}", "name": "{name}", "pid": 0, "tid": {stream}, "ts": {start}, "dur": {duration}, "args": {{"External id": 99, "device": 0, "stream": {stream}, "correlation": {correlation}, "registers per thread": 32, "shared memory": 1024, "blocks per SM": "inf", "grid": [8, 2, 1], "block": [128, 1, 1]}}}}"#
        ));
        self
    }

    pub(crate) fn json(&self) -> String {
        let mut json = String::from(
            r#"{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "Tesla V100-SXM2-16GB", "totalGlobalMem": 16945512448, "computeMajor": 7, "computeMinor": 0, "numSms": 80}], "cuda_runtime_version": 12040, "traceEvents": ["#,
        );
        for (index, event) in self.events.iter().enumerate() {
            write!(json, "{}{event}", if index > 0 { ",\n" } else { "" }).expect("a String takes any text");
        }
        json.push_str("]}");
        json
    }

    pub(crate) fn import(&self) -> Result<Import, TraceError> {
        read(self.json().as_bytes(), &ImportOptions::default())
    }
}

/// Imports a trace from memory.
pub(crate) fn read(text: &[u8], options: &ImportOptions<'_>) -> Result<Import, TraceError> {
    kineto(recorded(text)?, options)
}

pub(crate) fn recorded(text: &[u8]) -> Result<Recorded, TraceError> {
    Recorded::read(text, None, &mut |_| ControlFlow::Continue(()))
}

/// One training step of a linear layer that begins at `t` and launches until `t + 60`; its kernels run from `t + 10` to
/// `t + 80`. `n` numbers the step.
pub(crate) fn training_step(trace: &mut Trace, n: u32, t: f64) {
    let shapes = r#""Input Dims": [[4], [2, 3], [3, 4], [], []], "Input type": ["float", "float", "float", "Scalar", "Scalar"], "Concrete Inputs": ["", "", "", "1", "1"]"#;
    trace.mark(&format!("ProfilerStep#{n}"), t, 90.0);
    // Input copy, then the forward pass.
    trace.operator(
        MAIN,
        "aten::copy_",
        t + 1.0,
        3.0,
        r#""Input Dims": [[2, 3], [2, 3], []], "Input type": ["float", "float", "Scalar"]"#,
    );
    trace.work("gpu_memcpy", "cudaMemcpyAsync", MAIN, t + 2.0, "Memcpy HtoD (Pinned -> Device)", t + 10.0, 2.0, 7);
    trace.operator(
        MAIN,
        "aten::linear",
        t + 5.0,
        15.0,
        r#""Input Dims": [[2, 3], [4, 3], [4]], "Input type": ["float", "float", "float"]"#,
    );
    trace.operator(MAIN, "aten::t", t + 6.0, 2.0, &format!(r#""Sequence number": {}, "Fwd thread id": 0"#, 10 * n));
    trace.operator(
        MAIN,
        "aten::addmm",
        t + 9.0,
        10.0,
        &format!(r#"{shapes}, "Sequence number": {}, "Fwd thread id": 0"#, 10 * n + 1),
    );
    trace.kernel(MAIN, t + 12.0, "volta_sgemm_32x32_tn", t + 14.0, 20.0);
    // The backward pass on its own thread; the two kernels overlap for 5 us.
    trace.operator(
        AUTOGRAD,
        "autograd::engine::evaluate_function: AddmmBackward0",
        t + 25.0,
        20.0,
        &format!(r#""Sequence number": {}, "Fwd thread id": 1"#, 10 * n + 1),
    );
    trace.operator(
        AUTOGRAD,
        "AddmmBackward0",
        t + 26.0,
        18.0,
        &format!(
            r#""Sequence number": {}, "Fwd thread id": 1, "Input Dims": [[2, 4]], "Input type": ["float"]"#,
            10 * n + 1
        ),
    );
    trace.operator(
        AUTOGRAD,
        "aten::mm",
        t + 27.0,
        7.0,
        r#""Input Dims": [[3, 2], [2, 4]], "Input type": ["float", "float"]"#,
    );
    trace.kernel(AUTOGRAD, t + 28.0, "volta_sgemm_64x64_nt", t + 40.0, 10.0);
    trace.operator(AUTOGRAD, "aten::sum", t + 36.0, 7.0, r#""Input Dims": [[2, 4], [], []], "Input type": ["float", "ScalarList", "Scalar"], "Concrete Inputs": ["", "[0]", "True"]"#);
    trace.work("kernel", "cudaLaunchKernel", AUTOGRAD, t + 37.0, "reduce_kernel", t + 45.0, 10.0, 8);
    trace.operator(
        AUTOGRAD,
        "torch::autograd::AccumulateGrad",
        t + 46.0,
        6.0,
        r#""Input Dims": [[4, 3]], "Input type": ["float"]"#,
    );
    trace.operator(
        AUTOGRAD,
        "aten::add_",
        t + 47.0,
        4.0,
        r#""Input Dims": [[4, 3], [4, 3], []], "Input type": ["float", "float", "Scalar"]"#,
    );
    trace.kernel(AUTOGRAD, t + 48.0, "add_kernel", t + 56.0, 4.0);
    // The update.
    trace.mark("Optimizer.step#SGD.step", t + 55.0, 8.0);
    trace.operator(
        MAIN,
        "aten::add_",
        t + 56.0,
        4.0,
        r#""Input Dims": [[4, 3], [4, 3], []], "Input type": ["float", "float", "Scalar"]"#,
    );
    trace.kernel(MAIN, t + 57.0, "add_kernel", t + 70.0, 10.0);
}

/// Two of these steps, 100 us apart.
pub(crate) fn two_steps() -> Trace {
    let mut trace = Trace::default();
    training_step(&mut trace, 1, 1000.0);
    training_step(&mut trace, 2, 1100.0);
    trace
}
