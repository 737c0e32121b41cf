//! XPlane recordings, encoded by hand.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use habitat_tui::profile::Phase;
use habitat_tui::trace::import::{self, Import, ImportOptions};
use habitat_tui::trace::{StepMarks, TraceError};

use crate::program::Folder;
use crate::protobuf::{bytes, int, number};

fn packed(field: u64, values: &[u64]) -> Vec<u8> {
    bytes(field, &values.iter().flat_map(|value| number(*value)).collect::<Vec<u8>>())
}

fn table(field: u64, key: u64, content: &[u8]) -> Vec<u8> {
    bytes(field, &[int(1, key), bytes(2, &[int(1, key), content.to_vec()].concat())].concat())
}

fn shape(element: u64, extents: &[u64]) -> Vec<u8> {
    [int(2, element), packed(3, extents)].concat()
}

struct Instruction {
    id: u64,
    name: &'static str,
    opcode: &'static str,
    shape: Vec<u8>,
    operands: Vec<u64>,
    more: Vec<u8>,
    op_name: &'static str,
}

impl Instruction {
    fn encode(&self) -> Vec<u8> {
        [
            bytes(1, self.name.as_bytes()),
            bytes(2, self.opcode.as_bytes()),
            bytes(3, &self.shape),
            bytes(7, &bytes(2, self.op_name.as_bytes())),
            int(35, self.id),
            packed(36, &self.operands),
            self.more.clone(),
        ]
        .concat()
    }
}

fn instruction(
    (id, name, opcode): (u64, &'static str, &'static str),
    shape: Vec<u8>,
    operands: &[u64],
    more: Vec<u8>,
    op_name: &'static str,
) -> Instruction {
    Instruction { id, name, opcode, shape, operands: operands.to_vec(), more, op_name }
}

/// A product in a fusion (forward), a convolution, a product of cuBLAS (backward), and an
/// update of the parameters.
fn program() -> Vec<u8> {
    let dot = [packed(1, &[1]), packed(2, &[0])].concat();
    let inner = [
        instruction((1, "p0", "parameter"), shape(16, &[64, 128]), &[], vec![], ""),
        instruction((2, "p1", "parameter"), shape(16, &[128, 10]), &[], vec![], ""),
        instruction(
            (3, "dot.5", "dot"),
            shape(16, &[64, 10]),
            &[1, 2],
            bytes(30, &dot),
            "jit(step)/jvp(f)/dot_general",
        ),
    ];
    let dimension = [int(1, 3), int(2, 2), int(3, 1), int(4, 1), int(5, 1), int(6, 1)].concat();
    let window = [bytes(1, &dimension), bytes(1, &dimension)].concat();
    // NHWC, HWIO, NHWC, in two groups; as JAX writes it.
    let layout =
        [int(3, 2), int(4, 3), packed(6, &[0, 1]), int(8, 3), int(10, 3), packed(11, &[1, 2]), packed(12, &[1, 2])]
            .concat();
    let config = r#"{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["1"]}}}"#;
    let entry = [
        instruction((11, "x", "parameter"), shape(16, &[64, 128]), &[], vec![], ""),
        instruction((12, "w", "parameter"), shape(16, &[128, 10]), &[], vec![], ""),
        instruction((13, "gemm_fusion_dot.1", "fusion"), shape(16, &[64, 10]), &[11, 12], packed(38, &[5]), ""),
        instruction((14, "i", "parameter"), shape(11, &[2, 8, 8, 8]), &[], vec![], ""),
        instruction((15, "k", "parameter"), shape(11, &[3, 3, 4, 16]), &[], vec![], ""),
        instruction(
            (16, "convolution.2", "convolution"),
            shape(11, &[2, 4, 4, 16]),
            &[14, 15],
            [bytes(15, &window), bytes(16, &layout), int(50, 2)].concat(),
            "jit(step)/jvp(f)/conv",
        ),
        instruction(
            (17, "custom-call.7", "custom-call"),
            shape(16, &[64, 128]),
            &[13, 12],
            [bytes(28, b"__cublas$gemm"), bytes(43, config.as_bytes())].concat(),
            "jit(step)/transpose(jvp(f))/dot_general",
        ),
        instruction(
            (18, "loop_add_fusion.3", "fusion"),
            shape(11, &[128, 10]),
            &[12, 12],
            vec![],
            "jit(step)/optimizer/add",
        ),
    ];
    let computation = |id: u64, list: &[Instruction]| {
        let own: Vec<u8> = list.iter().flat_map(|instruction| bytes(2, &instruction.encode())).collect();
        bytes(3, &[own, int(5, id)].concat())
    };
    let module = [bytes(1, b"jit_step"), computation(5, &inner), computation(6, &entry)].concat();
    bytes(1, &module)
}

const INSTRUCTIONS: [&str; 4] = ["gemm_fusion_dot.1", "convolution.2", "custom-call.7", "loop_add_fusion.3"];

/// A GPU's plane: three runs of the program, 100 µs apart; the instructions take 10, 20, 30 and 5 µs. `steps` adds the
/// line of steps.
fn gpu(name: &str, steps: bool) -> Vec<u8> {
    let mut plane = bytes(2, name.as_bytes());
    let names = ["hlo_op", "hlo_module", "program_id", "kernel_details", "device_vendor", "core_count", "memory_size"];
    for (number, name) in names.iter().enumerate() {
        plane.extend(table(5, number as u64 + 1, &bytes(2, name.as_bytes())));
    }
    let details = "regs:40 static_shared:0 dynamic_shared:49152 grid:8,2,1 block:128,1,1 occ_pct:50";
    for (number, text) in INSTRUCTIONS.iter().chain([&"jit_step", &details]).enumerate() {
        plane.extend(table(5, number as u64 + 20, &bytes(2, text.as_bytes())));
    }
    plane.extend(table(4, 1, &bytes(2, b"kernel_1")));
    plane.extend(bytes(6, &[int(1, 5), bytes(5, b"Nvidia")].concat()));
    plane.extend(bytes(6, &[int(1, 6), int(3, 132)].concat()));
    let mut line = [int(1, 7), bytes(2, b"Stream #7(Compute)"), int(3, 1_700_000_000_000_000_000)].concat();
    let mut marks = [int(1, 9), bytes(2, b"Steps"), int(3, 1_700_000_000_000_000_000)].concat();
    for run in 0..3_u64 {
        let mut at = run * 100_000_000;
        marks.extend(bytes(4, &[int(1, 1), int(2, at), int(3, 99_000_000)].concat()));
        for (index, length) in [10, 20, 30, 5_u64].into_iter().enumerate() {
            let stat = |name: u64, reference: u64| bytes(4, &[int(1, name), int(7, reference)].concat());
            let event = [
                int(1, 1),
                int(2, at),
                int(3, length * 1_000_000),
                stat(1, 20 + index as u64),
                stat(2, 24),
                bytes(4, &[int(1, 3), int(3, 17)].concat()),
                stat(4, 25),
            ]
            .concat();
            line.extend(bytes(4, &event));
            at += length * 1_000_000;
        }
    }
    plane.extend(bytes(3, &line));
    if steps {
        plane.extend(bytes(3, &marks));
    }
    plane
}

fn metadata() -> Vec<u8> {
    let stat = [int(1, 1), bytes(6, &program())].concat();
    let kind = [bytes(2, b"jit_step(17)"), bytes(5, &stat)].concat();
    [bytes(2, b"/host:metadata"), table(5, 1, &bytes(2, b"Hlo Proto")), table(4, 17, &kind)].concat()
}

fn space(planes: &[Vec<u8>]) -> Vec<u8> {
    planes.iter().flat_map(|plane| bytes(1, plane)).collect()
}

fn import(planes: &[Vec<u8>]) -> Result<Import, TraceError> {
    import::xplane(&space(planes), &ImportOptions::default())
}

#[test]
fn instructions_are_operators_with_shapes_and_phases() {
    let import = import(&[metadata(), gpu("/device:GPU:0", false)]).unwrap();
    assert_eq!((import.summary.marks, import.summary.steps_used), (StepMarks::ProgramRuns, 3));
    assert_eq!(import.summary.joined_share, 1.0);
    let operations = &import.profile.operations;
    let found: Vec<_> =
        operations.iter().map(|it| (it.name.as_str(), it.phase, it.device_time.unwrap().get())).collect();
    assert_eq!(
        found.iter().map(|it| (it.0, it.1)).collect::<Vec<_>>(),
        [
            ("aten::mm", Phase::Forward),
            ("aten::convolution", Phase::Forward),
            ("aten::mm", Phase::Backward),
            ("loop_add_fusion", Phase::Optimizer)
        ]
    );
    for ((.., time), expected) in found.iter().zip([10.0, 20.0, 30.0, 5.0]) {
        assert!((time - expected).abs() < 1e-6, "{found:?}");
    }
    assert_eq!(operations[0].inputs, [[64, 128], [128, 10]]);
    assert_eq!(operations[0].dtype.as_ref().unwrap().name(), "bfloat16");
    let convolution = &operations[1];
    assert_eq!(convolution.inputs, [[2, 8, 8, 8], [16, 4, 3, 3]]);
    assert_eq!(convolution.outputs, [[2, 16, 4, 4]]);
    assert_eq!(convolution.attributes["stride"].as_ints(), Some(vec![2, 2]));
    assert_eq!(convolution.attributes["groups"].as_int(), Some(2));
    // (64, 10) times the transpose of (128, 10).
    assert_eq!(operations[2].inputs, [[64, 10], [10, 128]]);
    let kernel = &operations[2].kernels[0];
    assert_eq!((kernel.grid, kernel.dynamic_shared_memory_bytes), (Some([8, 2, 1]), Some(49152)));
    let step = import.profile.step.as_ref().unwrap();
    assert!((step.duration.unwrap().get() - 100.0).abs() < 1e-6);
    assert!((step.device_busy.unwrap().get() - 65.0).abs() < 1e-6);
    assert!(import.profile.origin.as_ref().unwrap().gpu_name.as_ref().unwrap().contains("132 multiprocessors"));
}

#[test]
fn the_recorders_own_steps_come_first_and_gpus_are_ranks() {
    let one = import(&[metadata(), gpu("/device:GPU:0", true)]).unwrap();
    assert_eq!((one.summary.marks, one.summary.steps_used), (StepMarks::Recorder, 3));
    let planes = [metadata(), gpu("/device:GPU:0", true), gpu("/device:GPU:1", true)];
    let two = import(&planes).unwrap();
    assert_eq!(two.profile.recording.as_ref().unwrap().ranks, Some(2));
    assert!((two.profile.total_device_time().get() - 65.0).abs() < 1e-6);
    let error =
        import::xplane(&space(&planes), &ImportOptions { device: Some(4), ..ImportOptions::default() }).unwrap_err();
    assert_eq!(
        error.to_string(),
        "XPlane recording: no kernel ran on device 4; the recording has kernels of devices 0, 1"
    );
}

#[test]
fn without_programs_the_instructions_keep_their_names() {
    let import = import(&[gpu("/device:GPU:0", false)]).unwrap();
    assert_eq!(import.profile.operations[0].name, "gemm_fusion_dot.1");
    assert!(import.profile.recording.unwrap().notes.iter().any(|note| note.contains("no shapes")));
}

#[test]
fn what_is_no_gpus_recording_is_said() {
    let host = bytes(2, b"/host:CPU");
    assert!(import(std::slice::from_ref(&host)).unwrap_err().fault.to_string().starts_with("no GPU in the recording;"));
    let tpu = import(&[host.clone(), bytes(2, b"/device:TPU:0")]).unwrap_err().to_string();
    assert!(tpu.contains("TPU:0"), "{tpu}");
    let idle = import(&[host, bytes(2, b"/device:GPU:0")]).unwrap_err().to_string();
    assert!(idle.contains("nothing ran on a GPU"), "{idle}");
}

#[test]
fn a_recording_cut_off_anywhere_is_an_error_or_whole() {
    let whole = space(&[metadata(), gpu("/device:GPU:0", false)]);
    for end in 0..whole.len() {
        match import::xplane(&whole[..end], &ImportOptions::default()) {
            Ok(_) => panic!("{end}"),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    let error = import::xplane(&whole[..whole.len() - 1], &ImportOptions::default()).unwrap_err();
    assert!(error.to_string().contains("cut off at byte"), "{error}");
}

#[test]
fn the_program_opens_a_recording() {
    let folder = Folder::new();
    let whole = space(&[metadata(), gpu("/device:GPU:0", false)]);
    std::fs::write(folder.0.path().join("vm.xplane.pb"), &whole).unwrap();
    let said = folder.ok(&["import", "vm.xplane.pb", "-o", "p.habitat.json", "--origin", "h100-sxm5-80gb"]);
    assert!(said.contains("vm (p.habitat.json)") && said.contains("runs of the compiled program: 3 found"), "{said}");
    let said = folder.ok(&["predict", "p.habitat.json", "--to", "t4"]);
    assert!(said.contains("t4"), "{said}");
    std::fs::write(folder.0.path().join("cut.xplane.pb"), &whole[..whole.len() / 2]).unwrap();
    let output = folder.run(&["predict", "cut.xplane.pb"]);
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("cut.xplane.pb: XPlane recording: damaged or cut off at byte")
    );
}
