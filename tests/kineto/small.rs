//! Small traces with known answers.
#![expect(clippy::float_cmp, reason = "sums of whole microseconds are exact")]

use habitat_tui::profile::{Attribute, DType, DeviceInfo, Mode, Operation, Phase, Precision, Profile};
use habitat_tui::trace::StepMarks;
use habitat_tui::trace::import::{Import, ImportOptions, ModelInput, kineto_ranks};
use habitat_tui::units::{GpuSlug, Micros};

use crate::trace::{AUTOGRAD, MAIN, Trace, read, recorded, training_step, two_steps};

fn operation<'a>(profile: &'a Profile, name: &str, phase: Phase) -> &'a Operation {
    let mut found = profile.operations.iter().filter(|operation| operation.name == name && operation.phase == phase);
    let operation = found.next().expect("the operation is in the profile");
    assert!(found.next().is_none(), "{name} twice in {phase}");
    operation
}

#[test]
fn two_training_steps() {
    let import = two_steps().import().unwrap();
    let profile = &import.profile;
    assert_eq!(import.summary.marks, StepMarks::ProfilerStep);
    assert_eq!((import.summary.steps_found, import.summary.steps_used), (2, 2));
    assert_eq!(import.summary.kernels_per_step, 5.0);
    assert_eq!(import.summary.joined_share, 1.0);
    assert_eq!(profile.workload.mode, Mode::Training);
    assert_eq!(profile.workload.precision, Some(Precision::Fp32));
    assert_eq!(profile.workload.batch_size, Some(2));

    let forward = operation(profile, "aten::addmm", Phase::Forward);
    assert_eq!(forward.inputs, [vec![4], vec![2, 3], vec![3, 4]]);
    assert_eq!(forward.outputs, [[2, 4]]);
    assert_eq!(forward.dtype, Some(DType::Float32));
    assert_eq!(forward.device_time.unwrap().get(), 20.0);
    let kernel = &forward.kernels[0];
    assert_eq!((kernel.grid, kernel.block), (Some([8, 2, 1]), Some([128, 1, 1])));
    assert_eq!((kernel.registers_per_thread, kernel.static_shared_memory_bytes), (Some(32), Some(1024)));

    assert_eq!(operation(profile, "aten::mm", Phase::Backward).outputs, [[3, 4]]);
    let sum = operation(profile, "aten::sum", Phase::Backward);
    assert_eq!(sum.attributes["keepdim"], Attribute::Bool(true));
    assert_eq!(operation(profile, "aten::add_", Phase::GradientAccumulation).device_time.unwrap().get(), 4.0);
    assert_eq!(operation(profile, "aten::add_", Phase::Optimizer).device_time.unwrap().get(), 10.0);
    assert_eq!(operation(profile, "aten::copy_", Phase::Copy).device_time.unwrap().get(), 2.0);
    assert_eq!(profile.operations.len(), 6);

    // 2 + 20 + 15 (two of 10 that overlap for 5) + 4 + 10.
    let step = profile.step.as_ref().unwrap();
    assert_eq!(step.device_busy.unwrap().get(), 51.0);
    assert_eq!(step.duration.unwrap().get(), 100.0);
    assert_eq!(step.samples, Some(2));
    assert_eq!(profile.total_device_time().get(), 56.0);
    assert_eq!(import.summary.device_time.get(), 56.0);
    assert_eq!(profile.origin.as_ref().unwrap().cuda.as_deref(), Some("12.4"));
    // The profile reads back from its own format.
    let (again, warnings) = Profile::from_json(&profile.to_json().unwrap()).unwrap();
    assert_eq!((&again, warnings.len()), (profile, 0));
}

/// The range in which the profiler stopped, as PyTorch 2.1 writes it.
#[test]
fn the_last_update_is_one_though_its_range_has_no_length() {
    let whole = two_steps();
    let mut cut = whole.clone();
    let last = cut.events.iter_mut().rfind(|event| event.contains("Optimizer.step#")).unwrap();
    *last = last.replace(r#""dur": 8"#, r#""dur": 0"#);
    assert_ne!(cut.json(), whole.json());
    assert_eq!(cut.import().unwrap().profile, whole.import().unwrap().profile);
}

/// The shape of its result is that of the gradient, which the trace has for only one of them.
#[test]
fn a_call_is_one_operation_though_its_result_is_not_always_known() {
    for with_gradient in [0, 1] {
        let mut trace = Trace::default();
        for step in 0..2 {
            let t = 1000.0 + 100.0 * f64::from(step);
            trace.mark(&format!("ProfilerStep#{step}"), t, 90.0);
            let sequence = |thread: u32| format!(r#""Sequence number": {step}, "Fwd thread id": {thread}"#);
            let shapes = r#""Input Dims": [[8, 4], []], "Input type": ["float", "Scalar"]"#;
            trace.operator(MAIN, "aten::pow", t + 5.0, 10.0, &format!("{shapes}, {}", sequence(0)));
            trace.kernel(MAIN, t + 6.0, "pow_kernel", t + 10.0, 4.0);
            if step == with_gradient {
                let shapes = r#""Input Dims": [[8, 4]], "Input type": ["float"]"#;
                trace.operator(AUTOGRAD, "PowBackward0", t + 25.0, 20.0, &format!("{shapes}, {}", sequence(1)));
            }
        }
        let profile = trace.import().unwrap().profile;
        let [pow] = &profile.operations[..] else { panic!("{:?}", profile.operations) };
        assert_eq!((pow.count, &pow.outputs[..]), (1, &[vec![8, 4]][..]));
        assert_eq!(pow.device_time.unwrap().get(), 4.0);
    }
}

/// A normalisation of an image in 16 bits with channels last, and the cast before it.
#[test]
fn tensors_have_their_own_types_and_order_in_memory() {
    let traced = |strides: &str| {
        let mut trace = Trace::default();
        for step in 0..2 {
            let t = 1000.0 + 100.0 * f64::from(step);
            trace.mark(&format!("ProfilerStep#{step}"), t, 90.0);
            let arguments = format!(
                r#""Input Dims": [[8, 64, 16, 16], [64], [64]], "Input type": ["c10::Half", "float", "float"], "Input Strides": [{strides}, [1], [1]]"#
            );
            let copied = r#""Input Dims": [[64, 64], [64, 64], []], "Input type": ["c10::Half", "float", "Scalar"], "Input Strides": [[64, 1], [1, 64], []]"#;
            trace.operator(MAIN, "aten::copy_", t + 1.0, 3.0, copied);
            trace.kernel(MAIN, t + 2.0, "elementwise_kernel", t + 5.0, 2.0);
            trace.operator(MAIN, "aten::native_batch_norm", t + 5.0, 10.0, &arguments);
            trace.kernel(MAIN, t + 6.0, "batch_norm", t + 10.0, 4.0);
        }
        trace.import().unwrap().profile
    };
    let types =
        |names: &[&str]| Attribute::List(names.iter().map(|name| Attribute::Text((*name).to_owned())).collect());
    let profile = traced("[16384, 1, 1024, 64]");
    let norm = operation(&profile, "aten::native_batch_norm", Phase::Forward);
    assert_eq!(norm.attributes["memory_format"], Attribute::Text("channels_last".to_owned()));
    assert_eq!(norm.attributes["input_dtypes"], types(&["float16", "float32", "float32"]));
    let copy = operation(&profile, "aten::copy_", Phase::Forward);
    assert_eq!(copy.attributes["input_dtypes"], types(&["float16", "float32"]));
    assert!(!copy.attributes.contains_key("memory_format"));
    assert_eq!(copy.attributes["access"], Attribute::Text("transposed".to_owned()));
    assert_eq!(habitat_tui::op::work(copy, None).unwrap().bytes.get(), 6.0 * 4096.0);
    let usual = traced("[16384, 256, 16, 1]");
    let norm = operation(&usual, "aten::native_batch_norm", Phase::Forward);
    assert!(!norm.attributes.contains_key("memory_format"));
}

#[test]
fn work_belongs_to_the_step_that_launched_it() {
    // The device is a step behind: kernels of the first step run during the launches of the second.
    let mut trace = Trace::default();
    for n in 0..4 {
        let t = 1000.0 + 50.0 * f64::from(n);
        trace.mark(&format!("ProfilerStep#{n}"), t, 49.0);
        trace.operator(MAIN, "aten::relu", t + 1.0, 5.0, r#""Input Dims": [[8]], "Input type": ["float"]"#);
        trace.kernel(MAIN, t + 2.0, "relu", 1100.0 + 80.0 * f64::from(n), 80.0);
    }
    let import = trace.import().unwrap();
    assert_eq!(import.summary.kernels_per_step, 1.0);
    // The host takes 50 us per step, the device 80.
    let step = import.profile.step.unwrap();
    assert_eq!(step.duration.unwrap().get(), 80.0);
    assert_eq!(step.device_busy.unwrap().get(), 80.0);
    let notes = import.profile.recording.unwrap().notes;
    assert!(notes.iter().any(|note| note.contains("host marks are 0.050 ms apart")), "{notes:?}");
}

#[test]
fn kernels_launched_before_the_recording_belong_to_no_step() {
    let mut trace = two_steps();
    trace.events.push(
        r#"{"ph": "X", "cat": "kernel", "name": "stray", "pid": 0, "tid": 7, "ts": 1001, "dur": 5, "args": {"device": 0, "correlation": 777}}"#.to_owned(),
    );
    let import = trace.import().unwrap();
    assert_eq!(import.summary.kernels_per_step, 5.0);
    let notes = import.profile.recording.unwrap().notes;
    assert!(notes.iter().any(|note| note.starts_with("1 kernels were launched before the recording")), "{notes:?}");
}

#[test]
fn a_step_cut_off_is_left_out() {
    let mut trace = Trace::default();
    for n in 1..=4 {
        training_step(&mut trace, n, 1000.0 + 100.0 * f64::from(n));
    }
    trace.mark("ProfilerStep#5", 1500.0, 20.0);
    trace.operator(MAIN, "aten::addmm", 1505.0, 5.0, "");
    trace.kernel(MAIN, 1506.0, "volta_sgemm_32x32_tn", 1507.0, 20.0);
    let import = trace.import().unwrap();
    assert_eq!((import.summary.steps_found, import.summary.steps_used), (5, 4));
    assert_eq!(import.summary.kernels_per_step, 5.0);
}

#[test]
fn without_profiler_steps_the_optimizer_marks_them() {
    let mut trace = Trace::default();
    for n in 1..=4 {
        training_step(&mut trace, n, 1000.0 + 100.0 * f64::from(n));
    }
    trace.events.retain(|event| !event.contains("ProfilerStep"));
    let import = trace.import().unwrap();
    assert_eq!(import.summary.marks, StepMarks::OptimizerStep);
    assert_eq!(import.summary.steps_used, 3);
    assert_eq!(import.profile.measured_step().unwrap().get(), 100.0);
    assert_eq!(import.profile.total_device_time().get(), 56.0);
}

/// `optimizer.step(closure)`: the passes run inside the step's range, the backward pass on its own thread.
#[test]
fn an_update_begins_after_its_closure() {
    let mut trace = Trace::default();
    for n in 1..=2 {
        let t = 1000.0 + 100.0 * f64::from(n);
        trace.mark(&format!("ProfilerStep#{n}"), t, 90.0);
        trace.mark("Optimizer.step#SGD.step", t + 2.0, 80.0);
        let numbered = |sequence: u32, thread: u32| {
            format!(
                r#""Input Dims": [[8]], "Input type": ["float"], "Sequence number": {sequence}, "Fwd thread id": {thread}"#
            )
        };
        trace.operator(MAIN, "aten::relu", t + 5.0, 5.0, &numbered(n, 0));
        trace.kernel(MAIN, t + 6.0, "relu", t + 10.0, 3.0);
        trace.operator(AUTOGRAD, "autograd::engine::evaluate_function: ReluBackward0", t + 20.0, 20.0, &numbered(n, 1));
        trace.operator(AUTOGRAD, "ReluBackward0", t + 21.0, 18.0, &numbered(n, 1));
        trace.operator(
            AUTOGRAD,
            "aten::threshold_backward",
            t + 22.0,
            10.0,
            r#""Input Dims": [[8]], "Input type": ["float"]"#,
        );
        trace.kernel(AUTOGRAD, t + 23.0, "threshold", t + 25.0, 5.0);
        trace.operator(MAIN, "aten::add_", t + 50.0, 10.0, r#""Input Dims": [[8]], "Input type": ["float"]"#);
        trace.kernel(MAIN, t + 52.0, "add", t + 55.0, 7.0);
    }
    let profile = trace.import().unwrap().profile;
    assert_eq!(operation(&profile, "aten::relu", Phase::Forward).device_time.unwrap().get(), 3.0);
    assert_eq!(operation(&profile, "aten::threshold_backward", Phase::Backward).device_time.unwrap().get(), 5.0);
    assert_eq!(operation(&profile, "aten::add_", Phase::Optimizer).device_time.unwrap().get(), 7.0);
    assert_eq!(profile.operations.len(), 3);
}

#[test]
fn without_marks_the_pattern_of_kernels_tells() {
    let mut trace = Trace::default();
    for n in 1..=5 {
        training_step(&mut trace, n, 1000.0 + 100.0 * f64::from(n));
    }
    trace.events.retain(|event| !event.contains("ProfilerStep") && !event.contains("Optimizer"));
    let import = trace.import().unwrap();
    assert_eq!(import.summary.marks, StepMarks::Pattern);
    assert_eq!(import.summary.kernels_per_step, 5.0);
    assert_eq!(import.profile.measured_step().unwrap().get(), 100.0);
}

#[test]
fn without_any_repetition_the_trace_is_one_step() {
    let mut trace = Trace::default();
    training_step(&mut trace, 1, 1000.0);
    trace.events.retain(|event| !event.contains("ProfilerStep") && !event.contains("Optimizer"));
    let import = trace.import().unwrap();
    assert_eq!(import.summary.marks, StepMarks::WholeTrace);
    assert_eq!(import.profile.total_device_time().get(), 56.0);
}

#[test]
fn the_names_of_2021_read_the_same() {
    let old = |json: String| {
        json.replace("\"cpu_op\"", "\"Operator\"")
            .replace("\"user_annotation\"", "\"Operator\"")
            .replace("\"kernel\"", "\"Kernel\"")
            .replace("\"cuda_runtime\"", "\"Runtime\"")
            .replace("\"gpu_memcpy\"", "\"Memcpy\"")
            .replace("\"External id\"", "\"external id\"")
            .replace("\"tid\": 7", "\"tid\": \"stream 7\"")
    };
    let new = two_steps();
    let import = read(old(new.json()).as_bytes(), &ImportOptions::default()).unwrap();
    assert_eq!(import.profile, new.import().unwrap().profile);
}

#[test]
fn nothing_is_lost_when_kernels_vary() {
    // The library sometimes picks another kernel, and one step launches one more.
    let mut trace = Trace::default();
    for n in 0..9_u32 {
        let t = 1000.0 + 100.0 * f64::from(n);
        trace.mark(&format!("ProfilerStep#{n}"), t, 99.0);
        for k in 0..12 + u32::from(n == 3) {
            let at = t + 2.0 * f64::from(k);
            trace.operator(
                MAIN,
                "aten::mm",
                at,
                1.5,
                r#""Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"]"#,
            );
            let name = if (n + k) % 4 == 0 { "gemm_a" } else { "gemm_b" };
            trace.kernel(MAIN, at + 0.2, name, at + 1.0, 0.5 + f64::from(k % 3));
        }
    }
    let import = trace.import().unwrap();
    assert_eq!(import.summary.steps_used, 9);
    let total = import.profile.total_device_time().get();
    assert!((total - import.summary.device_time.get()).abs() < 1e-6 * total);
    for operation in &import.profile.operations {
        let kernels: f64 = operation.kernels.iter().map(|k| k.duration.get() * f64::from(k.count)).sum();
        assert!((kernels - operation.device_time.unwrap().get()).abs() < 1e-6);
    }
    assert_eq!(import.profile.operations.iter().map(|operation| operation.count).sum::<u32>(), 12);
}

#[test]
fn collectives_are_communication() {
    let mut trace = two_steps();
    for t in [1000.0, 1100.0] {
        trace.range(
            "user_annotation",
            AUTOGRAD,
            "nccl:all_reduce",
            t + 50.0,
            3.0,
            r#""Input Dims": [[1000]], "Input type": ["float"]"#,
        );
        trace.kernel(AUTOGRAD, t + 51.0, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", t + 57.0, 12.0);
        trace.work("gpu_memset", "cudaMemsetAsync", MAIN, t + 64.0, "Memset (Device)", t + 81.0, 1.0, 7);
    }
    let profile = trace.import().unwrap().profile;
    let reduce = operation(&profile, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", Phase::Communication);
    assert_eq!(reduce.inputs, [[1000]]);
    operation(&profile, "Memset (Device)", Phase::Copy);
}

#[test]
fn modules_join_forward_and_backward() {
    let mut trace = two_steps();
    for t in [1000.0, 1100.0] {
        trace.range("python_function", MAIN, "nn.Module: Model_0", t + 4.0, 17.0, "");
        trace.range("python_function", MAIN, "nn.Module: Linear_3", t + 4.5, 16.0, "");
    }
    let profile = trace.import().unwrap().profile;
    assert_eq!(operation(&profile, "aten::addmm", Phase::Forward).module.as_deref(), Some("Model.Linear"));
    assert_eq!(operation(&profile, "aten::mm", Phase::Backward).module.as_deref(), Some("Model.Linear"));
    assert_eq!(operation(&profile, "aten::add_", Phase::Optimizer).module, None);
}

#[test]
fn an_operator_without_shapes_gives_way_to_the_one_around_it() {
    let mut trace = Trace::default();
    trace.mark("ProfilerStep#1", 0.0, 100.0);
    trace.operator(MAIN, "custom::layer", 1.0, 50.0, r#""Input Dims": [[8, 8]], "Input type": ["c10::BFloat16"]"#);
    trace.operator(MAIN, "helper", 2.0, 40.0, "");
    trace.kernel(MAIN, 3.0, "k", 10.0, 5.0);
    // A copy inside that fills gaps has shapes and stays separate.
    trace.operator(
        MAIN,
        "aten::copy_",
        10.0,
        5.0,
        r#""Input Dims": [[4], [4], []], "Input type": ["float", "float", "Scalar"]"#,
    );
    trace.kernel(MAIN, 11.0, "copy", 20.0, 1.0);
    let profile = trace.import().unwrap().profile;
    let names: Vec<&str> = profile.operations.iter().map(|operation| operation.name.as_str()).collect();
    assert_eq!(names, ["custom::layer", "aten::copy_"]);
    assert_eq!(profile.operations[0].dtype, Some(DType::Bfloat16));
}

#[test]
fn overlapping_ranges_do_not_confuse_the_join() {
    let mut trace = Trace::default();
    trace.mark("ProfilerStep#1", 0.0, 100.0);
    trace.operator(MAIN, "aten::relu", 10.0, 20.0, r#""Input Dims": [[8]], "Input type": ["float"]"#);
    trace.operator(MAIN, "aten::tanh", 20.0, 20.0, r#""Input Dims": [[9]], "Input type": ["float"]"#);
    trace.kernel(MAIN, 12.0, "relu", 15.0, 5.0);
    trace.kernel(MAIN, 35.0, "tanh", 40.0, 5.0);
    let import = trace.import().unwrap();
    assert_eq!(import.summary.overlaps, 1);
    let shapes: Vec<u64> = import.profile.operations.iter().map(|operation| operation.inputs[0][0]).collect();
    assert_eq!(shapes, [8, 9]);
}

#[test]
fn long_names_and_escape_sequences_are_made_safe() {
    let mut trace = Trace::default();
    trace.mark("ProfilerStep#1", 0.0, 100.0);
    trace.operator(MAIN, "aten::relu", 1.0, 20.0, "");
    trace.kernel(MAIN, 2.0, &format!("k{}", "<int, ".repeat(20_000)), 3.0, 5.0);
    trace.kernel(MAIN, 4.0, r"\u001b[31mred\n\ud83d\ude00\ud800", 10.0, 5.0);
    let profile = trace.import().unwrap().profile;
    let names: Vec<&str> = profile.operations[0].kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    assert_eq!(names[0].chars().count(), 512);
    assert_eq!(names[1], "\u{fffd}[31mred\u{fffd}\u{1f600}\u{fffd}");
}

#[test]
fn the_caller_knows_better() {
    let resolve = |info: &DeviceInfo| {
        assert_eq!(
            *info,
            DeviceInfo {
                name: "Tesla V100-SXM2-16GB".to_owned(),
                compute_capability: Some((7, 0)),
                multiprocessors: Some(80),
                memory_bytes: Some(16_945_512_448),
            }
        );
        GpuSlug::new("v100-sxm2-16gb").map_err(|error| error.to_string())
    };
    let options = ImportOptions {
        workload: "toy".to_owned(),
        mode: Some(Mode::Inference),
        batch_size: Some(64),
        sequence_length: Some(7),
        precision: Some(Precision::Tf32),
        parameter_count: Some(16),
        resolve_gpu: Some(&resolve),
        max_steps: Some(1),
        ..ImportOptions::default()
    };
    let import = read(two_steps().json().as_bytes(), &options).unwrap();
    assert_eq!(import.summary.steps_used, 1);
    let workload = &import.profile.workload;
    assert_eq!((workload.name.as_str(), workload.mode, workload.batch_size), ("toy", Mode::Inference, Some(64)));
    assert_eq!(workload.parameter_count, Some(16));
    assert_eq!(import.profile.origin.unwrap().gpu.unwrap().as_str(), "v100-sxm2-16gb");
}

#[test]
fn a_trace_over_the_budget_is_read_in_passes() {
    let mut trace = Trace::default();
    for n in 1..=40 {
        training_step(&mut trace, n, 1000.0 + 100.0 * f64::from(n));
    }
    let whole = trace.import().unwrap();
    let options = ImportOptions { max_records: Some(200), ..ImportOptions::default() };
    let part = read(trace.json().as_bytes(), &options).unwrap();
    assert_eq!(part.summary.steps_found, 40);
    assert!((2..=20).contains(&part.summary.steps_used), "{}", part.summary.steps_used);
    assert_eq!(part.profile.operations, whole.profile.operations);
    assert_eq!(part.profile.measured_step(), whole.profile.measured_step());
    assert!(part.profile.recording.unwrap().notes.iter().any(|note| note.contains("large")));
}

#[test]
fn shapes_alone_make_a_profile_without_origin() {
    let mut trace = two_steps();
    trace.events.retain(|event| !event.contains("cuda_runtime") && !event.contains("\"pid\": 0"));
    let options = ImportOptions { shapes_only: true, ..ImportOptions::default() };
    let profile = read(trace.json().as_bytes(), &options).unwrap().profile;
    assert_eq!(profile.origin, None);
    assert_eq!(profile.measured_step(), None);
    // CPU times are separate: predictions do not use them.
    let step = profile.step.clone().unwrap();
    assert_eq!((step.duration, step.cpu.map(|cpu| cpu.duration.get())), (None, Some(95.0)));
    let forward = operation(&profile, "aten::addmm", Phase::Forward);
    assert_eq!((forward.count, forward.device_time), (1, None));
    assert_eq!(operation(&profile, "aten::mm", Phase::Backward).inputs, [[3, 2], [2, 4]]);
    assert!(profile.operations.iter().all(|operation| operation.name != "aten::linear" && operation.name != "aten::t"));
}

#[test]
fn ranks_are_joined_by_their_medians() {
    let rank = |stretch: f64| {
        let mut trace = Trace::default();
        for n in 0..3_u32 {
            let t = 1000.0 + stretch * 100.0 * f64::from(n);
            trace.mark(&format!("ProfilerStep#{n}"), t, stretch * 99.0);
            trace.operator(MAIN, "aten::relu", t, 9.0, "");
            trace.kernel(MAIN, t + 1.0, "relu", t + 2.0, stretch * 10.0);
        }
        trace.json()
    };
    let ranks = [rank(1.0), rank(3.0), rank(2.0)].map(|text| recorded(text.as_bytes()));
    let import = kineto_ranks(ranks, &ImportOptions::default()).unwrap();
    assert_eq!(import.profile.measured_step().unwrap().get(), 200.0 + 0.0);
    assert_eq!(import.profile.operations[0].device_time.unwrap().get(), 20.0);
    assert_eq!(import.profile.recording.unwrap().ranks, Some(3));
}

#[test]
fn the_sample_that_comes_with_the_program_reads() {
    let packed = include_bytes!("../../profiler/samples/resnet50-v100-b32.habitat.json.zst");
    let json = zstd::decode_all(&packed[..]).unwrap();
    let (profile, warnings) = Profile::from_json(&json).unwrap();
    assert!(warnings.is_empty());
    assert_eq!((profile.workload.name.as_str(), profile.workload.batch_size), ("resnet50", Some(32)));
    assert_eq!(profile.origin.as_ref().unwrap().gpu.as_ref().unwrap().as_str(), "v100-sxm2-32gb");
    let busy = profile.step.as_ref().unwrap().device_busy.unwrap();
    assert!((profile.total_device_time() / busy - 1.0).abs() < 0.01);
}

/// A kernel recorder has NVTX ranges as in Nsight Systems: ranges that name a part of the step set the phase, those
/// that name a part of the model group their kernels.
#[test]
fn ranges_of_a_program_say_phases_and_parts() {
    let mut events = Vec::new();
    let mut range = |name: &str, at: i64, long: i64| {
        events.push(format!(
            r#"{{"ph": "X", "cat": "nvtx", "name": "{name}", "pid": 1, "tid": 1, "ts": {at}, "dur": {long}}}"#
        ));
    };
    for step in 0..3 {
        let at = 1000 * step;
        range(&format!("step {step}"), at, 900);
        range("forward", at + 10, 300);
        range("layer 1", at + 20, 100);
        range("layer 2", at + 150, 100);
        range("optimizer", at + 400, 300);
    }
    for (number, at) in (0..3).flat_map(|step| [30, 160, 410].map(|at| 1000 * step + at)).enumerate() {
        events.push(format!(
            r#"{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": {at}, "dur": 5, "args": {{"correlation": {number}}}}}"#
        ));
        events.push(format!(
            r#"{{"ph": "X", "cat": "kernel", "name": "k{}", "pid": 0, "tid": 7, "ts": {}, "dur": 50, "args": {{"correlation": {number}, "device": 0, "stream": 7}}}}"#,
            number % 3,
            at + 10
        ));
    }
    let json = format!(r#"{{"kernels_only": 1, "traceEvents": [{}]}}"#, events.join(", "));
    let import = read(json.as_bytes(), &ImportOptions::default()).unwrap();
    assert_eq!((import.summary.marks, import.summary.steps_found), (StepMarks::Annotation, 3));
    let of = |name: &str, phase: Phase| operation(&import.profile, name, phase).module.clone();
    assert_eq!(of("k0", Phase::Forward).as_deref(), Some("layer"));
    assert_eq!(of("k1", Phase::Forward).as_deref(), Some("layer"));
    assert_eq!(of("k2", Phase::Optimizer), None);
    let notes = &import.profile.recording.as_ref().unwrap().notes;
    assert!(notes.iter().any(|note| note.starts_with("kernels only")), "{notes:?}");
}

const LINEAR: &str = r#""Input Dims": [[4], [2, 3], [3, 4]], "Input type": ["float", "float", "float"]"#;

/// A step on a CPU, of forty microseconds per part: a forward pass of `calls` products without a gradient and one with,
/// its backward pass, and an update of two tensors.
fn step_on_a_cpu(trace: &mut Trace, number: u32, t: f64, calls: u32) {
    let sequence = |thread: u32| format!(r#""Sequence number": {number}, "Fwd thread id": {thread}"#);
    let length = 200.0 + 10.0 * f64::from(calls);
    trace.mark(&format!("ProfilerStep#{number}"), t, length);
    for call in 0..calls {
        trace.operator(MAIN, "aten::addmm", t + 1.0 + 10.0 * f64::from(call), 8.0, LINEAR);
    }
    let t = t + 10.0 * f64::from(calls);
    trace.operator(MAIN, "aten::addmm", t + 5.0, 8.0, &format!("{LINEAR}, {}", sequence(0)));
    trace.operator(MAIN, "AddmmBackward0", t + 40.0, 30.0, &sequence(1));
    trace.operator(
        MAIN,
        "aten::mm",
        t + 41.0,
        5.0,
        r#""Input Dims": [[3, 2], [2, 4]], "Input type": ["float", "float"]"#,
    );
    for (number, dims) in ["[[4, 3]]", "[[4]]"].into_iter().enumerate() {
        let args = format!(r#""Input Dims": {dims}, "Input type": ["float"]"#);
        trace.operator(MAIN, "torch::autograd::AccumulateGrad", t + 72.0 + 3.0 * number as f64, 2.0, &args);
    }
    trace.mark("Optimizer.step#SGD.step", t + 120.0, 70.0);
    let added = [("[[4, 3], [4, 3], []]", "[[3, 1], [1, 4], []]"), ("[[4], [4], []]", "[[1], [1], []]")];
    for (number, (dims, strides)) in added.into_iter().enumerate() {
        let args =
            format!(r#""Input Dims": {dims}, "Input type": ["float", "float", "Scalar"], "Input Strides": {strides}"#);
        trace.operator(MAIN, "aten::add_", t + 121.0 + 10.0 * number as f64, 5.0, &args);
    }
}

fn on_a_cpu(trace: &Trace) -> Import {
    let options = ImportOptions { shapes_only: true, ..ImportOptions::default() };
    read(trace.json().as_bytes(), &options).expect("a trace made here is one")
}

fn notes(profile: &Profile) -> String {
    profile.recording.as_ref().expect("a trace is a recording").notes.join("\n")
}

fn counted(profile: &Profile, phase: Phase) -> u32 {
    profile.operations.iter().filter(|operation| operation.phase == phase).map(|operation| operation.count).sum()
}

/// In one step of three, or in two.
#[test]
fn a_validation_in_the_recording_is_no_part_of_the_step() {
    for (calls, used) in [([0, 477, 0], 2), ([477, 0, 400], 1)] {
        let mut trace = Trace::default();
        let mut t = 1000.0;
        for (number, calls) in (11..).zip(calls) {
            step_on_a_cpu(&mut trace, number, t, calls);
            t += 200.0 + 10.0 * f64::from(calls);
        }
        let Import { profile, summary } = on_a_cpu(&trace);
        assert_eq!((summary.steps_used, counted(&profile, Phase::Forward)), (used, 1), "{}", notes(&profile));
        let told = if used == 2 { "step 12 was left out: it took 25 times" } else { "step 13 was left out" };
        assert!(notes(&profile).contains(told), "{}", notes(&profile));
    }
}

/// The last batch of an epoch is short; sequences have any length.
#[test]
fn steps_of_different_shapes_are_not_added_up() {
    let trace = |rows: [u64; 3]| {
        let mut trace = Trace::default();
        for (number, rows) in (11..).zip(rows) {
            let mut step = Trace::default();
            step_on_a_cpu(&mut step, number, 1000.0 * f64::from(number), 0);
            let sized = |event: &String| {
                event.replace("[2, 3]", &format!("[{rows}, 3]")).replace("[2, 4]", &format!("[{rows}, 4]"))
            };
            trace.events.extend(step.events.iter().map(sized));
        }
        on_a_cpu(&trace).profile
    };
    for (rows, kept, told) in [
        ([8, 2, 8], 8, "the profile is of step 11 and step 13"),
        ([9, 5, 7], 7, "the 3 recorded steps have different shapes: the profile is of step 13"),
    ] {
        let profile = trace(rows);
        let products: Vec<_> = profile.operations.iter().filter(|it| it.name == "aten::addmm").collect();
        assert_eq!(products.len(), 1, "{products:?}");
        assert_eq!((products[0].count, &products[0].inputs[1]), (1, &vec![kept, 3]));
        assert!(notes(&profile).contains(told), "{}", notes(&profile));
    }
    assert!(!notes(&trace([8, 8, 8])).contains("different shapes"));
}

/// The hook looks at the model in the step before the recorded ones, which may be the last of an epoch.
#[test]
fn the_batch_is_that_of_the_recorded_steps() {
    let mut trace = Trace::default();
    step_on_a_cpu(&mut trace, 11, 1000.0, 0);
    for (looked_at, known) in [(2, Some(2)), (1, Some(2))] {
        let model = ModelInput {
            module: "Net".to_owned(),
            calls: 1,
            inputs: vec![(vec![looked_at, 3], false)],
            leads: vec![looked_at],
            ..ModelInput::default()
        };
        let options = ImportOptions { shapes_only: true, model: Some(model), ..ImportOptions::default() };
        let profile = read(trace.json().as_bytes(), &options).unwrap().profile;
        assert_eq!(profile.workload.batch_size, known, "{}", notes(&profile));
    }
}

/// When a checkpointed block is recomputed, PyTorch aborts its last operator before any computation (early stop of
/// `torch.utils.checkpoint`).
#[test]
fn what_checkpointing_breaks_off_is_no_operation() {
    let product = |sequence: u32| {
        format!(
            r#""Sequence number": {sequence}, "Input Dims": [[2], [5, 3], [3, 2]], "Input type": ["float", "float", "float"]"#
        )
    };
    for broken_off in [false, true] {
        let mut trace = Trace::default();
        step_on_a_cpu(&mut trace, 1, 1000.0, 0);
        trace.operator(MAIN, "aten::addmm", 1002.0, 8.0, &product(1));
        trace.operator(MAIN, "aten::expand", 1003.0, 1.0, "");
        trace.operator(MAIN, "AddmmBackward0", 1050.0, 20.0, r#""Sequence number": 1, "Fwd thread id": 1"#);
        trace.operator(MAIN, "aten::addmm", 1051.0, 8.0, &product(2));
        trace.operator(MAIN, "aten::detach", 1052.0, 2.0, "");
        trace.operator(MAIN, "detach", 1053.0, 0.5, "");
        if !broken_off {
            trace.operator(MAIN, "aten::expand", 1055.0, 1.0, "");
        }
        let profile = on_a_cpu(&trace).profile;
        let shape = [vec![2], vec![5, 3], vec![3, 2]];
        let found: u32 = profile.operations.iter().filter(|it| it.inputs == shape).map(|it| it.count).sum();
        assert_eq!(found, if broken_off { 1 } else { 2 }, "{:?}", profile.operations);
    }
}

/// `torch.func.vmap` calls an operator with the shapes of one sample, which calls another with those of all samples.
#[test]
fn what_vmap_batches_is_taken_as_it_runs() {
    for (inner, dims) in [("aten::bmm", "[[12, 5, 3], [12, 3, 2]]"), ("aten::mm", "[[60, 3], [3, 2]]")] {
        let mut trace = Trace::default();
        step_on_a_cpu(&mut trace, 1, 1000.0, 0);
        let one = r#""Input Dims": [[2], [5, 3], [3, 2]], "Input type": ["float", "float", "float"]"#;
        trace.operator(MAIN, "aten::addmm", 1002.0, 8.0, one);
        let all = format!(r#""Input Dims": {dims}, "Input type": ["float", "float"]"#);
        trace.operator(MAIN, inner, 1003.0, 5.0, &all);
        let profile = on_a_cpu(&trace).profile;
        assert!(profile.operations.iter().all(|it| it.inputs != [vec![2], vec![5, 3], vec![3, 2]]), "{inner}");
        assert_eq!(operation(&profile, inner, Phase::Forward).count, 1, "{:?}", profile.operations);
    }
}

/// A separate operator checks whether NNPACK can compute a convolution.
#[test]
fn a_convolution_that_nnpack_might_compute_is_one() {
    let mut trace = Trace::default();
    step_on_a_cpu(&mut trace, 1, 1000.0, 0);
    let dims = r#""Input Dims": [[4, 8, 6, 6], [16, 8, 1, 1], [16]], "Input type": ["float", "float", "float"]"#;
    for (name, at, long, args) in [
        ("aten::convolution", 1015.0, 20.0, dims),
        ("aten::_convolution", 1016.0, 18.0, dims),
        ("aten::_nnpack_available", 1017.0, 1.0, ""),
        ("aten::thnn_conv2d", 1019.0, 14.0, dims),
        ("aten::_slow_conv2d_forward", 1020.0, 12.0, dims),
    ] {
        trace.operator(MAIN, name, at, long, args);
    }
    let profile = on_a_cpu(&trace).profile;
    let found: Vec<_> = profile.operations.iter().filter(|it| it.name.contains("conv")).collect();
    assert!(matches!(found[..], [one] if one.count == 1), "{found:?}");
}

/// A CPU updates tensor by tensor, a GPU all at once.
#[test]
fn an_update_on_a_cpu_is_brought_to_lists() {
    let mut trace = Trace::default();
    step_on_a_cpu(&mut trace, 1, 1000.0, 0);
    let profile = on_a_cpu(&trace).profile;
    let add = operation(&profile, "aten::_foreach_add_", Phase::Optimizer);
    assert_eq!((add.count, &add.inputs[..]), (1, &[vec![4, 3], vec![4], vec![4, 3], vec![4]][..]));
    assert!(!add.attributes.contains_key("access"), "one gradient lies in another order, the list does not");
    assert!(
        notes(&profile).contains("the optimizer's 2 operations on single tensors are replaced by the 1"),
        "{}",
        notes(&profile)
    );
    // Another optimizer may lack such a form.
    let mut other = trace.clone();
    for event in &mut other.events {
        *event = event.replace("#SGD.step", "#Muon.step");
    }
    assert_eq!(counted(&on_a_cpu(&other).profile, Phase::Optimizer), 2);
}

/// Kineto records no shapes for lists of more than 30 tensors.
#[test]
fn an_update_of_many_tensors_has_its_shapes() {
    let mut trace = Trace::default();
    step_on_a_cpu(&mut trace, 1, 1000.0, 0);
    trace.events.retain(|event| !event.contains("aten::add_"));
    let lists = |count: usize| vec![r#""TensorList""#; count].join(", ");
    let args = format!(
        r#""Input Dims": [[], [], [], [], [], []], "Input type": [{}], "Concrete Inputs": ["", "", "", "", "", "", "0.001", "0.9", "0.999", "0.01", "1e-08", "False", "False", "", ""]"#,
        lists(6)
    );
    trace.operator(MAIN, "aten::_fused_adamw_", 1125.0, 20.0, &args);
    let args = format!(r#""Input Dims": [[], []], "Input type": [{}, "Scalar"]"#, lists(1));
    trace.operator(MAIN, "aten::_foreach_mul_", 1150.0, 20.0, &args);
    for (number, dims) in ["[[4, 3], []]", "[[4], []]"].into_iter().enumerate() {
        let args = format!(r#""Input Dims": {dims}, "Input type": ["float", "Scalar"]"#);
        trace.operator(MAIN, "aten::mul_", 1151.0 + 4.0 * number as f64, 2.0, &args);
    }
    // A GPU handles a list at once.
    let args = format!(r#""Input Dims": [[], [], []], "Input type": [{}, "Scalar"]"#, lists(2));
    trace.operator(MAIN, "aten::_foreach_lerp_", 1172.0, 5.0, &args);
    let profile = on_a_cpu(&trace).profile;
    let at_once = operation(&profile, "aten::_foreach_lerp_", Phase::Optimizer);
    assert_eq!(at_once.inputs, vec![[vec![4, 3], vec![4]]; 2].concat());
    let fused = operation(&profile, "aten::_fused_adamw_", Phase::Optimizer);
    assert_eq!(fused.inputs, vec![[vec![4, 3], vec![4]]; 4].concat());
    assert_eq!(fused.dtype, Some(DType::Float32));
    assert_eq!(operation(&profile, "aten::_foreach_mul_", Phase::Optimizer).inputs, [vec![4, 3], vec![4]]);
    assert_eq!(counted(&profile, Phase::Optimizer), 3, "the parts of a list do not count again");
}

/// The gradient of memory-efficient attention calls a product and a sum beside its kernel.
#[test]
fn attention_is_one_piece_of_work_whatever_it_calls() {
    let mut trace = Trace::default();
    step_on_a_cpu(&mut trace, 1, 1000.0, 0);
    let heads =
        r#""Input Dims": [[2, 4, 8, 16], [2, 4, 8, 16], [2, 4, 8, 16]], "Input type": ["float", "float", "float"]"#;
    let name = "aten::_scaled_dot_product_efficient_attention_backward";
    trace.operator(MAIN, name, 1041.0, 20.0, heads);
    trace.operator(MAIN, "aten::_efficient_attention_backward", 1042.0, 18.0, heads);
    trace.operator(MAIN, "aten::mul", 1043.0, 3.0, heads).operator(MAIN, "aten::sum", 1047.0, 3.0, heads);
    let profile = on_a_cpu(&trace).profile;
    let names: Vec<&str> = profile.operations.iter().map(|operation| operation.name.as_str()).collect();
    assert!(names.contains(&name) && !names.contains(&"aten::mul"), "{names:?}");
}

#[test]
fn clipping_belongs_to_the_update_and_loading_to_nothing() {
    let mut trace = Trace::default();
    step_on_a_cpu(&mut trace, 1, 1000.0, 0);
    let norm = r#""Input Dims": [[[4, 3], [4]], []], "Input type": ["TensorList", "Scalar"]"#;
    trace.operator(MAIN, "aten::_foreach_norm", 1090.0, 10.0, norm);
    trace.mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1020.0, 18.0);
    trace.operator(
        MAIN,
        "aten::conv2d",
        1021.0,
        8.0,
        r#""Input Dims": [[1, 3, 8, 8], [3, 3, 3, 3]], "Input type": ["float", "float"]"#,
    );
    let profile = on_a_cpu(&trace).profile;
    assert_eq!(counted(&profile, Phase::Forward), 1, "{:?}", profile.operations);
    operation(&profile, "aten::_foreach_norm", Phase::Optimizer);
    assert_eq!(profile.workload.batch_size, None, "no layer of the model shows it");
    assert_eq!(profile.step.unwrap().data_wait.map(Micros::get), Some(18.0));
}

/// LBFGS evaluates its closure several times per step; the work in between is its own.
#[test]
fn an_optimizer_with_a_closure_has_its_own_work_only() {
    let mut trace = Trace::default();
    trace.mark("ProfilerStep#1", 1000.0, 400.0).mark("Optimizer.step#LBFGS.step", 1010.0, 380.0);
    for number in 0..3 {
        let t = 1020.0 + 100.0 * f64::from(number);
        let sequence = |thread: u32| format!(r#""Sequence number": {}, "Fwd thread id": {thread}"#, 7 + number);
        let input = r#""Input Dims": [[2, 3], [4, 3], [4]], "Input type": ["float", "float", "float"]"#;
        trace.operator(MAIN, "aten::linear", t, 10.0, input);
        trace.operator(MAIN, "aten::addmm", t + 1.0, 8.0, &format!("{LINEAR}, {}", sequence(0)));
        trace.operator(MAIN, "AddmmBackward0", t + 20.0, 30.0, &sequence(1));
        trace.operator(
            MAIN,
            "aten::mm",
            t + 21.0,
            5.0,
            r#""Input Dims": [[3, 2], [2, 4]], "Input type": ["float", "float"]"#,
        );
        trace.operator(
            MAIN,
            "aten::dot",
            t + 60.0,
            5.0,
            r#""Input Dims": [[12], [12]], "Input type": ["float", "float"]"#,
        );
    }
    let profile = on_a_cpu(&trace).profile;
    assert_eq!(operation(&profile, "aten::dot", Phase::Optimizer).count, 3);
    assert_eq!(operation(&profile, "aten::addmm", Phase::Forward).count, 3);
    assert_eq!(operation(&profile, "aten::mm", Phase::Backward).count, 3);
    assert_eq!(profile.workload.batch_size, None);
    assert!(notes(&profile).contains("evaluates its closure 3 times per step"), "{}", notes(&profile));
}

/// A step of a GAN ends with the second of two updates, although both have the same name.
#[test]
fn two_updates_that_take_turns_are_one_step() {
    let mut trace = Trace::default();
    for update in 0..5 {
        let t = 1000.0 + 100.0 * f64::from(update);
        let (name, dims) = if update % 2 == 0 { ("aten::addmm", "[[4], [4]]") } else { ("aten::mm", "[[8], [8]]") };
        trace.operator(MAIN, name, t + 1.0, 8.0, LINEAR);
        trace.mark("Optimizer.step#Adam.step", t + 50.0, 30.0);
        let args = format!(r#""Input Dims": {dims}, "Input type": ["float", "float"]"#);
        trace.operator(MAIN, "aten::add_", t + 55.0, 5.0, &args);
    }
    let Import { profile, summary } = on_a_cpu(&trace);
    assert_eq!((summary.marks, summary.steps_found), (StepMarks::OptimizerStep, 2));
    assert_eq!(counted(&profile, Phase::Forward), 2, "{:?}", profile.operations);
    assert_eq!(counted(&profile, Phase::Optimizer), 2);
}

#[test]
fn of_two_trainings_at_once_one_is_read() {
    let mut trace = Trace::default();
    step_on_a_cpu(&mut trace, 1, 1000.0, 0);
    let mut other = Trace::default();
    step_on_a_cpu(&mut other, 1, 990.0, 3);
    let moved = other.events.iter().filter(|event| !event.contains("ProfilerStep"));
    trace.events.extend(moved.map(|event| event.replace(r#""tid": 10"#, r#""tid": 30"#)));
    let profile = on_a_cpu(&trace).profile;
    assert_eq!(counted(&profile, Phase::Forward), 1);
    assert!(notes(&profile).contains("2 threads train at once"), "{}", notes(&profile));
}

/// Only numbers, as in some AMD GPU traces.
#[test]
fn a_gpu_without_a_name_has_its_figures() {
    let named = two_steps().json();
    let json = named.replace("Tesla V100-SXM2-16GB", "");
    assert_ne!(json, named);
    let resolve = |device: &DeviceInfo| {
        assert!(!device.is_named());
        assert_eq!(device.name, "unnamed compute capability 7.0, 80 multiprocessors, 17 GB");
        GpuSlug::new("v100-sxm2-16gb").map_err(|error| error.to_string())
    };
    let options = ImportOptions { resolve_gpu: Some(&resolve), ..ImportOptions::default() };
    let profile = read(json.as_bytes(), &options).unwrap().profile;
    assert_eq!(profile.origin.unwrap().gpu.unwrap().as_str(), "v100-sxm2-16gb");
    let notes = profile.recording.unwrap().notes;
    assert!(notes.iter().any(|note| note.contains("identified by its specifications")), "{notes:?}");
    let refuse = |_: &DeviceInfo| Err("it is a MIG slice".to_owned());
    let options = ImportOptions { resolve_gpu: Some(&refuse), ..ImportOptions::default() };
    let profile = read(named.as_bytes(), &options).unwrap().profile;
    let notes = profile.recording.unwrap().notes;
    assert!(notes.contains(&"it is a MIG slice; --origin sets it".to_owned()), "{notes:?}");
}
