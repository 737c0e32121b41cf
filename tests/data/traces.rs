//! Public traces of real GPUs, in a folder beside the checkout.
//!
//! The expected figures come from the folder's README, or were counted from the JSON with a few lines of Python
//! (launches between the marks, by correlation id).

use std::fs::File;
use std::io::{BufReader, Read};
use std::ops::ControlFlow;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use habitat_tui::profile::{Mode, Phase, Precision, Profile};
use habitat_tui::trace::import::{Import, ImportOptions, kineto};
use habitat_tui::trace::kineto::Recorded;
use habitat_tui::trace::{Fault, StepMarks, TraceError};

use crate::needs::shared;

trials! {
    with (shared("traces/gpu")) => [
        every_public_trace_imports_with_the_known_facts,
        resnet50_has_its_layers,
        steps_are_found_in_the_kernels_alone,
    ],
    with (shared("traces/torch-cpu")) => [cpu_traces_give_their_shapes],
}

fn read(path: &Path, options: &ImportOptions<'_>) -> Result<Import, TraceError> {
    kineto(recorded(MultiGzDecoder::new(BufReader::new(File::open(path).unwrap())))?, options)
}

fn recorded(text: impl Read) -> Result<Recorded, TraceError> {
    Recorded::read(text, None, &mut |_| ControlFlow::Continue(()))
}

struct Expected {
    file: &'static str,
    marks: StepMarks,
    /// Steps in the trace, steps used for the medians.
    steps: (usize, usize),
    kernels: f64,
    /// Kernel time of a step in ms.
    kernel_time: f64,
    /// Wall time of a step in ms.
    duration: f64,
    joined: f64,
    mode: Mode,
    batch: Option<u64>,
    precision: Option<Precision>,
}

#[rustfmt::skip]
const EXPECTED: &[Expected] = &[
    Expected { file: "a100-80gb_recsys_ddp16_rank0", marks: StepMarks::ProfilerStep, steps: (5, 5), kernels: 1075.0, kernel_time: 69.019, duration: 215.9, joined: 0.99, mode: Mode::Training, batch: Some(4096), precision: Some(Precision::Tf32) },
    Expected { file: "a100_alexnet_fwd", marks: StepMarks::WholeTrace, steps: (1, 1), kernels: 79.0, kernel_time: 10.692, duration: 12_840.0, joined: 0.99, mode: Mode::Inference, batch: None, precision: Some(Precision::Fp32) },
    // The products of its experts are in FP4.
    Expected { file: "b200_gptoss_infer_tp8_rank0", marks: StepMarks::WholeTrace, steps: (1, 1), kernels: 768.0, kernel_time: 10.863, duration: 87.0, joined: 0.99, mode: Mode::Inference, batch: None, precision: None },
    // Without operators around the sums of the autograd engine, for 2.5 % of the time.
    Expected { file: "gpu_unknown_resnet50_b32_2021_oldest", marks: StepMarks::ProfilerStep, steps: (6, 6), kernels: 1476.0, kernel_time: 100.868, duration: 158.4, joined: 0.97, mode: Mode::Training, batch: Some(32), precision: Some(Precision::Fp32) },
    Expected { file: "h100_bert-small_infer", marks: StepMarks::ProfilerStep, steps: (1, 1), kernels: 60.0, kernel_time: 0.307, duration: 4.426, joined: 0.99, mode: Mode::Inference, batch: Some(1), precision: Some(Precision::Bf16) },
    // Its single step has six batches of the DataLoader: the number of samples is unknown.
    Expected { file: "h100_owlv2-large_infer", marks: StepMarks::ProfilerStep, steps: (1, 1), kernels: 4330.0, kernel_time: 551.452, duration: 1211.182, joined: 0.99, mode: Mode::Inference, batch: None, precision: Some(Precision::Bf16) },
    Expected { file: "h100_qwen1.5-0.5b_infer", marks: StepMarks::ProfilerStep, steps: (1, 1), kernels: 1029.0, kernel_time: 31.760, duration: 47.151, joined: 0.99, mode: Mode::Inference, batch: Some(16), precision: Some(Precision::Bf16) },
    // Kernels and launches only.
    Expected { file: "mi210_gpu_only", marks: StepMarks::WholeTrace, steps: (1, 1), kernels: 562.0, kernel_time: 5.343, duration: 5.98, joined: 0.0, mode: Mode::Inference, batch: None, precision: Some(Precision::Bf16) },
    Expected { file: "mi250_toy_train_rocm6.2", marks: StepMarks::ProfilerStep, steps: (2, 1), kernels: 14.0, kernel_time: 0.111, duration: 9.3, joined: 0.99, mode: Mode::Training, batch: Some(5), precision: Some(Precision::Fp32) },
    Expected { file: "mi300x_bert-small_infer", marks: StepMarks::ProfilerStep, steps: (1, 1), kernels: 60.0, kernel_time: 0.388, duration: 4.007, joined: 0.99, mode: Mode::Inference, batch: Some(1), precision: Some(Precision::Bf16) },
    Expected { file: "mi300x_compile_triton", marks: StepMarks::WholeTrace, steps: (1, 1), kernels: 12.0, kernel_time: 12.549, duration: 12.55, joined: 0.99, mode: Mode::Inference, batch: None, precision: Some(Precision::Bf16) },
    Expected { file: "mi300x_norm_layers_fwdbwd", marks: StepMarks::WholeTrace, steps: (1, 1), kernels: 168.0, kernel_time: 0.992, duration: 1055.0, joined: 0.99, mode: Mode::Training, batch: None, precision: Some(Precision::Fp32) },
    Expected { file: "mi300x_owlv2-large_infer", marks: StepMarks::ProfilerStep, steps: (1, 1), kernels: 4255.0, kernel_time: 327.420, duration: 1096.36, joined: 0.99, mode: Mode::Inference, batch: None, precision: Some(Precision::Bf16) },
    Expected { file: "mi300x_qwen1.5-0.5b_infer", marks: StepMarks::ProfilerStep, steps: (1, 1), kernels: 1053.0, kernel_time: 29.743, duration: 42.739, joined: 0.99, mode: Mode::Inference, batch: Some(16), precision: Some(Precision::Bf16) },
    // The device lags behind the host: its marks are 16 ms apart.
    Expected { file: "mi300x_resnet_ckpt_ddp8_rank0", marks: StepMarks::ProfilerStep, steps: (3, 3), kernels: 746.0, kernel_time: 22.145, duration: 18.77, joined: 0.99, mode: Mode::Training, batch: Some(10), precision: Some(Precision::Bf16) },
    Expected { file: "rtx2080ti_linear_train", marks: StepMarks::OptimizerStep, steps: (39, 39), kernels: 220.0, kernel_time: 9.243, duration: 24.65, joined: 0.99, mode: Mode::Training, batch: None, precision: Some(Precision::Fp32) },
    // The README's 136.8 ms are the mean including the first step, which tries algorithms.
    Expected { file: "rtx2080ti_resnet_train", marks: StepMarks::OptimizerStep, steps: (29, 29), kernels: 321.0, kernel_time: 136.8, duration: 219.5, joined: 0.99, mode: Mode::Training, batch: None, precision: Some(Precision::Fp32) },
    Expected { file: "v100_dlrm_ddp2_rank1", marks: StepMarks::ProfilerStep, steps: (6, 6), kernels: 1555.0, kernel_time: 124.298, duration: 116.7, joined: 0.98, mode: Mode::Training, batch: Some(1024), precision: Some(Precision::Fp32) },
    // The last step waits for the other rank and is left out.
    Expected { file: "v100_recsys_ddp2_rank1_memory", marks: StepMarks::ProfilerStep, steps: (5, 4), kernels: 3874.0, kernel_time: 183.690, duration: 346.2, joined: 0.99, mode: Mode::Training, batch: None, precision: Some(Precision::Fp32) },
    Expected { file: "v100_resnet50_b32_2021", marks: StepMarks::ProfilerStep, steps: (6, 6), kernels: 1462.0, kernel_time: 98.589, duration: 175.15, joined: 0.99, mode: Mode::Training, batch: Some(32), precision: Some(Precision::Fp32) },
    Expected { file: "v100_resnet_ddp1_2024", marks: StepMarks::ProfilerStep, steps: (5, 5), kernels: 870.0, kernel_time: 93.6, duration: 95.62, joined: 0.99, mode: Mode::Training, batch: None, precision: Some(Precision::Fp32) },
];

fn every_public_trace_imports_with_the_known_facts(folder: &Path) {
    let mut wrong = Vec::new();
    for expected in EXPECTED {
        let Import { profile, summary } =
            read(&folder.join(format!("{}.json.gz", expected.file)), &ImportOptions::default()).unwrap();
        let step = profile.step.as_ref().unwrap();
        let (duration, busy) = (step.duration.unwrap(), step.device_busy.unwrap());
        println!(
            "{} | {} | {}/{} {:?} | {} operations | {:.0} kernels | joined {:.4} | step {:.3} ms | busy {:.1} %",
            expected.file,
            profile.origin.as_ref().and_then(|origin| origin.gpu_name.as_deref()).unwrap_or("-"),
            summary.steps_used,
            summary.steps_found,
            summary.marks,
            profile.operations.len(),
            summary.kernels_per_step,
            summary.joined_share,
            duration.as_millis(),
            100.0 * (busy / duration),
        );
        for note in &profile.recording.as_ref().unwrap().notes {
            println!("    {note}");
        }
        let mut check = |what: &str, holds: bool| {
            if !holds {
                wrong.push(format!("{}: {what}", expected.file));
            }
        };
        let near = |value: f64, known: f64, tolerance: f64| (value / known - 1.0).abs() <= tolerance;
        check("marks", summary.marks == expected.marks);
        check("steps", (summary.steps_found, summary.steps_used) == expected.steps);
        check("kernels", (summary.kernels_per_step - expected.kernels).abs() < 0.01);
        check("kernel time", near(summary.kernel_time.as_millis(), expected.kernel_time, 0.01));
        check("step time", near(duration.as_millis(), expected.duration, 0.1));
        check("joined share", summary.joined_share >= expected.joined);
        check("mode", profile.workload.mode == expected.mode);
        check("batch", profile.workload.batch_size == expected.batch);
        check(&format!("precision {:?}", profile.workload.precision), profile.workload.precision == expected.precision);
        check("busy", busy.get() <= duration.get() * 1.000_001 && busy.get() > 0.0);
        check("nothing lost", near(profile.total_device_time().get(), summary.device_time.get(), 1e-9));
        check("reads back", Profile::from_json(&profile.to_json().unwrap()).is_ok());
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn resnet50_has_its_layers(folder: &Path) {
    let profile = read(&folder.join("v100_resnet50_b32_2021.json.gz"), &ImportOptions::default()).unwrap().profile;
    let count = |name: &str, phase: Phase| -> u32 {
        profile.operations.iter().filter(|o| o.name == name && o.phase == phase).map(|o| o.count).sum()
    };
    // 53 convolutions and batch norms, one linear layer, 161 parameters.
    assert_eq!(count("aten::cudnn_convolution", Phase::Forward), 53);
    assert_eq!(count("aten::convolution_backward", Phase::Backward), 53);
    assert_eq!(count("aten::cudnn_batch_norm", Phase::Forward), 53);
    assert_eq!(count("aten::cudnn_batch_norm_backward", Phase::Backward), 53);
    assert_eq!(count("aten::addmm", Phase::Forward), 1);
    assert_eq!(count("aten::mul_", Phase::Optimizer), 161);
    assert_eq!(profile.workload.parameter_count, Some(25_557_032));
    // The first one: 7 x 7, stride 2, padding 3; worked out from the shapes.
    let first = profile.operations.iter().find(|o| o.name == "aten::cudnn_convolution").unwrap();
    assert_eq!(first.inputs, [vec![32, 3, 224, 224], vec![64, 3, 7, 7]]);
    assert_eq!(first.outputs, [[32, 64, 112, 112]]);
    assert_eq!(first.attributes["stride"].as_ints(), Some(vec![2, 2]));
    assert_eq!(first.attributes["padding"].as_ints(), Some(vec![3, 3]));
}

fn cpu_traces_give_their_shapes(folder: &Path) {
    let options = ImportOptions { shapes_only: true, ..ImportOptions::default() };
    // Products of GPT-2 with 4 layers: 4 a layer and the head forward, twice as many back.
    for (file, batch) in
        [("gpt2tiny_b2_adamw", Some(2)), ("kineto_ondemand_gpt_2steps", Some(1)), ("resnet18_b8_sgd", Some(8))]
    {
        let path = folder.join(format!("{file}.json.gz"));
        let fault = read(&path, &ImportOptions::default()).unwrap_err().fault;
        assert!(matches!(fault, Fault::NoKernels { with_shapes: true, .. }));
        let Import { profile, summary } = read(&path, &options).unwrap();
        println!("{file}: {:?}, {} operations", summary.marks, profile.operations.len());
        for note in &profile.recording.as_ref().unwrap().notes {
            println!("    {note}");
        }
        assert_eq!(profile.workload.batch_size, batch, "{file}");
        assert_eq!(profile.workload.mode, Mode::Training);
        let count = |names: &[&str], phase: Phase| -> u32 {
            profile
                .operations
                .iter()
                .filter(|o| names.contains(&o.name.as_str()) && o.phase == phase)
                .map(|o| o.count)
                .sum()
        };
        if file.starts_with("resnet18") {
            assert_eq!(count(&["aten::convolution"], Phase::Forward), 20);
            assert_eq!(count(&["aten::convolution_backward"], Phase::Backward), 20);
        } else {
            let forward = count(&["aten::addmm", "aten::mm", "aten::linear"], Phase::Forward);
            let backward = count(&["aten::addmm", "aten::mm"], Phase::Backward);
            assert_eq!((forward, backward), (17, 34), "{file}");
        }
    }
}

/// A trace without its marks: only the work of the GPU, as from a kernel recorder.
fn kernels_alone(path: &Path) -> Vec<u8> {
    let mut json = String::new();
    let file = File::open(path).expect("the trace is there");
    MultiGzDecoder::new(BufReader::new(file)).read_to_string(&mut json).expect("the trace is whole");
    let mut trace: serde_json::Value = serde_json::from_str(&json).expect("the trace is JSON");
    let of_device = ["kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset"];
    let events = trace["traceEvents"].as_array_mut().expect("the trace has events");
    events.retain(|event| event["cat"].as_str().is_some_and(|category| of_device.contains(&category)));
    serde_json::json!({"kernels_only": 1, "deviceProperties": trace["deviceProperties"], "traceEvents": trace["traceEvents"]})
        .to_string()
        .into_bytes()
}

/// Finds the steps of the nine traces with three or more marks from kernels alone, with the same number of kernels per
/// step. Cuts are within the steps, so there may be one step fewer than marks.
fn steps_are_found_in_the_kernels_alone(folder: &Path) {
    println!(
        "{:<40} {:>12} {:>6} {:>16} {:>16} {:>18}",
        "trace", "marked steps", "found", "kernels a step", "found", "step, ms (found)"
    );
    let mut wrong = Vec::new();
    let marked: Vec<&Expected> =
        EXPECTED.iter().filter(|it| it.marks != StepMarks::WholeTrace && it.steps.0 > 2).collect();
    assert_eq!(marked.len(), 9);
    for expected in marked {
        let json = kernels_alone(&folder.join(format!("{}.json.gz", expected.file)));
        let Import { profile, summary } =
            kineto(recorded(json.as_slice()).unwrap(), &ImportOptions::default()).unwrap();
        let step = profile.measured_step().unwrap().as_millis();
        println!(
            "{:<40} {:>12} {:>6} {:>16} {:>16.1} {:>9.2} ({step:.2})",
            expected.file,
            expected.steps.0,
            summary.steps_found,
            expected.kernels,
            summary.kernels_per_step,
            expected.duration
        );
        let found = summary.steps_found;
        if summary.marks != StepMarks::Pattern
            || !(expected.steps.0 - 1..=expected.steps.0).contains(&found)
            || (summary.kernels_per_step - expected.kernels).abs() > 0.01
            || (step / expected.duration - 1.0).abs() > 0.06
        {
            wrong.push(format!("{}: {summary:?}", expected.file));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
