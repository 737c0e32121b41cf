//! Recordings designed to take hours or all memory: a few megabytes each, aimed at quadratic or unbounded structures of
//! the readers. They are read or refused within limits that ordinary recordings of their size stay far below.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::fmt::Write as _;
use std::process::Command;

use crate::protobuf::{bytes, int};

/// Kilobytes of memory including reserved memory, and CPU seconds.
const MEMORY: u64 = 1_500_000;
const SECONDS: u64 = 30;

/// Exit code and messages of an import.
fn import(name: &str, content: &[u8]) -> String {
    run(name, content, &["import", name, "-o", "p.habitat.json"])
}

/// Exit code and messages for a file.
fn run(name: &str, content: &[u8], arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(name), content).unwrap();
    let limits = format!("ulimit -v {MEMORY}; ulimit -t {SECONDS}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &limits, env!("CARGO_BIN_EXE_habitat-tui")]).args(arguments).current_dir(folder.path());
    let output = command.env("HABITAT_TUI_CONFIG_DIR", folder.path()).output().unwrap();
    format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr))
}

/// Events of a PyTorch trace; times in microseconds.
struct Trace(String);

impl Trace {
    fn new() -> Self {
        let head = r#"{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "Tesla V100-SXM2-16GB"}], "traceEvents": [null"#;
        Self(head.to_owned())
    }

    fn event(&mut self, category: &str, name: &str, start: f64, duration: f64, args: &str) {
        let at = format_args!(r#""ts": {start}, "dur": {duration}"#);
        write!(
            self.0,
            ",\n{{\"ph\": \"X\", \"cat\": \"{category}\", \"name\": \"{name}\", \"pid\": 1, \"tid\": 1, {at}, \"args\": {{{args}}}}}"
        )
        .unwrap();
    }

    fn mark(&mut self, name: &str, start: f64, duration: f64) {
        self.event("user_annotation", name, start, duration, "");
    }

    fn operator(&mut self, name: &str, start: f64, duration: f64) {
        self.event("cpu_op", name, start, duration, "");
    }

    fn kernel(&mut self, launch: f64, number: u32) {
        let correlation = format!("\"correlation\": {number}, \"device\": 0, \"stream\": 7");
        self.event("cuda_runtime", "cudaLaunchKernel", launch, 0.5, &correlation);
        self.event("kernel", "k", launch + 1.0, 2.0, &correlation);
    }

    /// Three steps of one product.
    fn steps(mut self) -> Self {
        for step in 0..3_u32 {
            let start = f64::from(step) * 1000.0;
            self.mark(&format!("ProfilerStep#{step}"), start, 999.0);
            self.operator("aten::mm", start + 1.0, 5.0);
            self.kernel(start + 2.0, step + 1);
        }
        self
    }

    fn read(self, what: &str) {
        let said = import("trace.json", format!("{}]}}", self.0).as_bytes());
        assert!(said.starts_with("exit status: 0"), "{what}: {said}");
    }
}

const MANY: u32 = 150_000;

#[test]
fn traces_made_to_take_hours_are_read_in_seconds() {
    let mut steps = Trace::new();
    for step in 0..MANY {
        let start = f64::from(step) * 10.0;
        steps.mark(&format!("ProfilerStep#{step}"), start, 9.0);
        steps.mark("Optimizer.step#SGD.step", start + 5.0, 0.0);
    }
    steps.kernel(11.0, 1);
    steps.read("steps with an update of no length in each");

    let mut deep = Trace::new().steps();
    for depth in 0..MANY {
        let depth = f64::from(depth);
        deep.operator("aten::add", 10.0 + depth * 1e-4, 900.0 - depth * 2e-4);
    }
    deep.read("operators within one another");

    let mut updates = Trace::new();
    for step in 0..MANY {
        updates.mark("Optimizer.step#SGD.step", f64::from(step) * 10.0, 5.0);
    }
    let last = f64::from(MANY) * 10.0 - 9.0;
    updates.operator("aten::add_", last, 2.0);
    updates.kernel(last + 1.0, 1);
    updates.read("updates of which only the last does something");

    let mut closures = Trace::new().steps();
    for number in 0..MANY / 2 {
        let start = 10.0 + f64::from(number) * 5e-3;
        let numbered = format!("\"Sequence number\": {number}, \"Fwd thread id\": 1");
        closures.event("cpu_op", "MmBackward0", start, 2e-3, &numbered);
        closures.event("cpu_op", "aten::mm", start - 1e-3, 1e-3, &format!("\"Sequence number\": {number}"));
    }
    for depth in 0..100_u32 {
        let depth = f64::from(depth) * 1e-4;
        closures.mark("Optimizer.step#SGD.step", 9.0 + depth, 900.0 - depth * 2.0);
    }
    closures.read("updates within one another around backward passes");

    let mut threads = Trace::new();
    threads.mark("ProfilerStep#1", 0.0, 1e9);
    for number in 0..MANY {
        let start = f64::from(number) * 10.0;
        let on = |text: &str| text.replace("\"tid\": 1,", &format!("\"tid\": {number},"));
        let mut one = Trace(String::new());
        one.operator("aten::mm", start, 8.0);
        one.kernel(start + 1.0, number);
        threads.0.push_str(&on(&one.0));
    }
    threads.read("a thread and a stream for each operator");

    let mut distinct = Trace::new().steps();
    distinct.event("cpu_op", "MmBackward0", 10.0, 1.0, "\"Sequence number\": 1, \"Fwd thread id\": 1");
    for number in 0..MANY {
        distinct.mark(&format!("Optimizer.step#O{number}.step"), 12.0 + f64::from(number) * 1e-3, 5e-4);
    }
    distinct.read("updates of as many optimizers");

    let mut lists = Trace::new().steps();
    for depth in 0..MANY / 2 {
        let depth = f64::from(depth);
        lists.operator("aten::_foreach_add_", 10.0 + depth * 1e-3, 900.0 - depth * 2e-3);
    }
    lists.read("operators on lists within one another");
}

fn plane(name: &str, rest: &[u8]) -> Vec<u8> {
    bytes(1, &[bytes(2, name.as_bytes()), rest.to_vec()].concat())
}

fn program(instructions: &[Vec<u8>]) -> Vec<u8> {
    let own: Vec<u8> = instructions.iter().flat_map(|one| bytes(2, one)).collect();
    let module = bytes(1, &bytes(3, &[own, int(5, 1)].concat()));
    let value = bytes(5, &[int(1, 1), bytes(6, &module)].concat());
    let kind = [int(1, 7), bytes(2, &[bytes(2, b"jit_step(7)"), value].concat())].concat();
    let name = [int(1, 1), bytes(2, &bytes(2, b"Hlo Proto"))].concat();
    [plane("/device:GPU:0", b""), plane("/host:metadata", &[bytes(5, &name), bytes(4, &kind)].concat())].concat()
}

#[test]
fn recordings_made_to_fill_the_memory_are_refused() {
    let short = |field: u64| bytes(field, b"").repeat(20_000_000);
    let kinds: Vec<u8> = (0..6_000_000).flat_map(|key| bytes(4, &int(1, key))).collect();
    let line = [bytes(2, b"Stream #1"), short(4)].concat();
    let extents = bytes(3, &vec![1; 60_000]);
    let parameter = [bytes(1, b"p"), int(35, 1), bytes(3, &[int(2, 11), extents].concat())].concat();
    let takes = |name: u32| [bytes(1, name.to_string().as_bytes()), bytes(36, &[1; 64]), int(35, name.into())].concat();
    let repeated: Vec<Vec<u8>> = std::iter::once(parameter).chain((2..20_000).map(takes)).collect();
    let calls = |name: u32| {
        [bytes(1, name.to_string().as_bytes()), bytes(2, b"fusion"), bytes(38, &[1]), int(35, name.into())].concat()
    };
    let called: Vec<Vec<u8>> = (0..150_000).map(calls).collect();
    for (what, content, said) in [
        ("lines", plane("/device:GPU:0", &short(3)), "more than 4194304 planes, lines, names and values"),
        ("planes", [plane("/device:GPU:0", b""), short(1)].concat(), "more than 4194304 planes, lines"),
        ("kinds", plane("/device:GPU:0", &kinds), "more than 4194304 planes, lines"),
        ("events", plane("/device:GPU:0", &bytes(3, &line)), "more than 4194304 kernels and copies of a GPU"),
        ("extents", program(&repeated), "instructions, shapes and extents of programs"),
        ("fusions", program(&called), "nothing ran on a GPU"),
    ] {
        let error = import("vm.xplane.pb", &content);
        assert!(error.starts_with("exit status: 2") && error.contains(said), "{what}: {error}");
        assert!(error.contains("vm.xplane.pb: XPlane recording: "), "{what}: {error}");
    }
}

/// A hundred thousand operations are predicted; individually, on a few GPUs only.
#[test]
fn a_step_of_many_operations_is_predicted_within_bounds() {
    let add = |size: u32| {
        format!(
            r#"{{"name": "aten::add", "phase": "forward", "inputs": [[{size}, 64], [{size}, 64]], "dtype": "float32"}}"#
        )
    };
    let profile = |count: u32| {
        let operations: Vec<String> = (1..=count).map(add).collect();
        format!(
            r#"{{"format": "habitat-profile", "version": 1, "workload": {{"name": "w", "mode": "inference"}}, "operations": [{}]}}"#,
            operations.join(", ")
        )
    };
    let asked = |count: u32, arguments: &[&str]| {
        run("p.json", profile(count).as_bytes(), &[&["predict", "p.json", "--json"], arguments].concat())
    };
    let said = asked(100_000, &["--operations", "--to", "h100-sxm5-80gb,l4"]);
    assert!(said.starts_with("exit status: 0"), "{said}");
    let said = asked(100_000, &["--operations"]);
    assert!(said.starts_with("exit status: 2") && said.contains("--to"), "{said}");
    let said = asked(100_001, &[]);
    assert!(!said.starts_with("exit status: 0") && said.contains("import --max-steps 1"), "{said}");
}
