//! The public samples, against sums from SQL and a short script.

use std::path::{Path, PathBuf};

use habitat_tui::op::{Family, family};
use habitat_tui::predict::batches::rebatch::rebatch;
use habitat_tui::profile::{Mode, Operation, Phase, Precision};
use habitat_tui::store::nsys::Export;
use habitat_tui::trace::StepMarks;
use habitat_tui::trace::import::{self, ImportOptions};

use crate::needs::{Need, shared};
use crate::program::Folder;

const TWO_H100: &str = "traces/nsys/h100x2_fsdp_300ms.sqlite";
const RTX_3080: &str = "traces/nsys/rtx3080_tiny.sqlite";
const MI355: &str = "traces/xplane/mi355_jax_te_attention_fwdbwd.xplane.pb";

trials! {
    with (shared(TWO_H100)) => [two_h100_with_operators],
    with (shared(RTX_3080)) => [a_recording_without_ranges_names_its_gpu],
    with (shared(MI355)) => [jax_on_an_mi355],
    with (shared("traces/fake")) => [the_rule_for_mixed_precision_agrees_with_a_traced_autocast_step],
    with (shared("neusight/steps/v100-pcie-32gb")) => [
        measured_transformers_become_those_measured_at_another_batch_size,
    ],
    with (all()) => [the_next_commands_run_as_they_stand],
}

/// All three, in this order.
fn all() -> Need<[PathBuf; 3]> {
    Ok([shared(TWO_H100)?, shared(RTX_3080)?, shared(MI355)?])
}

fn near(value: f64, expected: f64) {
    assert!((value - expected).abs() < 1e-3 * expected.max(1.0), "{value}, expected {expected}");
}

/// `SELECT sum("end" - start)` over kernels, copies and fills of device 1 whose correlation id occurs in a call of the
/// same process: 257,913.733 µs in 2,648 rows, including 2,005 kernels with 255,057.356 µs; from the first start to the
/// last end 289,270.568 µs.
fn two_h100_with_operators(path: &Path) {
    let mut export = Export::open(path).unwrap();
    let options = ImportOptions { device: Some(1), ..ImportOptions::default() };
    let import = import::nsight(&mut export, &options).unwrap();
    assert_eq!((import.summary.marks, import.summary.kernels_per_step), (StepMarks::WholeTrace, 2005.0));
    near(import.profile.total_device_time().get(), 257_913.733);
    near(import.summary.kernel_time.get(), 255_057.356);
    near(import.profile.measured_step().unwrap().get(), 289_270.568);
    assert!(import.summary.joined_share > 0.999);
    let flash: f64 = import
        .profile
        .operations
        .iter()
        .filter(|operation| operation.name == "flash_attn::_flash_attn_forward")
        .map(|operation| operation.total_device_time().unwrap().get())
        .sum();
    near(flash, 128_489.9);

    // Both ranks: no operation has the time of another.
    let both = import::nsight(&mut export, &ImportOptions::default()).unwrap();
    assert_eq!(both.profile.recording.as_ref().unwrap().ranks, Some(2));
    let busy = both.profile.step.as_ref().unwrap().device_busy.unwrap().get();
    let total = both.profile.total_device_time().get();
    assert!((total / busy - 1.0).abs() < 0.03, "{total} of {busy}");
}

/// Every command that an import suggests works.
fn the_next_commands_run_as_they_stand(recordings: &[PathBuf; 3]) {
    let bench = Folder::new();
    for (path, starts) in recordings.iter().zip([
        "next, choose the recording GPU (some of its kernels need",
        "next: habitat-tui out",
        "next: habitat-tui out",
    ]) {
        let args = ["import", path.to_str().unwrap(), "-o", "out.habitat.json.zst", "--force"];
        let report = bench.ok(&args);
        let end = report.split("\nnext").nth(1).unwrap_or_else(|| panic!("{report}"));
        assert!(format!("next{end}").starts_with(starts), "{report}");
        let commands: Vec<&str> = report
            .lines()
            .filter_map(|line| {
                line.trim_start().strip_prefix("next: ").unwrap_or(line.trim_start()).strip_prefix("habitat-tui ")
            })
            .collect();
        assert!(!commands.is_empty(), "{report}");
        for command in commands {
            let words: Vec<&str> = command.split(' ').collect();
            assert!(bench.ok(&words).contains("GPU"), "{command}");
        }
    }
}

fn a_recording_without_ranges_names_its_gpu(path: &Path) {
    let import = import::nsight(&mut Export::open(path).unwrap(), &ImportOptions::default()).unwrap();
    near(import.summary.kernel_time.get(), 4.129);
    let origin = import.profile.origin.as_ref().unwrap();
    assert_eq!(origin.gpu_name.as_deref(), Some("NVIDIA GeForce RTX 3080"));
    assert_eq!(origin.driver.as_deref(), Some("591.86"));
    let copy = import.profile.operations.iter().find(|operation| operation.phase == Phase::Copy).unwrap();
    assert_eq!(copy.name, "Memcpy DtoH (Device -> Pinned)");
}

/// 150 events, five runs of 30, 12,133.585 µs together; the ends of runs are 2,602.9, 2,524.9, 2,485.4 and 2,471.7 µs
/// apart. The second run takes 2,747.864 µs, a sixth more than the others, and is left out.
fn jax_on_an_mi355(path: &Path) {
    let import = import::xplane(&std::fs::read(path).unwrap(), &ImportOptions::default()).unwrap();
    let profile = &import.profile;
    assert_eq!((import.summary.marks, import.summary.steps_used), (StepMarks::ProgramRuns, 4));
    assert_eq!((import.summary.kernels_per_step, import.summary.joined_share), (30.0, 1.0));
    near(profile.total_device_time().get(), (12_133.585 - 2_747.864) / 4.0);
    near(profile.measured_step().unwrap().get(), f64::midpoint(2_524.9, 2_485.4));
    assert_eq!((profile.workload.mode, profile.workload.precision), (Mode::Training, Some(Precision::Bf16)));
    let gemm = profile.operations.iter().find(|operation| operation.name == "aten::mm").unwrap();
    assert_eq!((gemm.inputs.as_slice(), gemm.phase), (&[vec![4096, 6144], vec![6144, 2048]][..], Phase::Backward));
    let products = profile.operations.iter().filter(|operation| operation.name == "aten::bmm");
    assert_eq!(products.map(|operation| operation.count).sum::<u32>(), 5);
}

/// ResNet-50 traced in FP32 and converted to BF16 by the rule, against autocast's list: each is in the other's range or
/// next to it.
fn the_rule_for_mixed_precision_agrees_with_a_traced_autocast_step(lists: &Path) {
    let folder = Folder::new();
    let (plain, mixed) = (lists.join("resnet50_b64.json.gz"), lists.join("resnet50_b64_amp.json.gz"));
    for gpu in ["a100-sxm4-40gb", "h100-sxm5-80gb", "l4"] {
        let range = |args: &[&str]| {
            let step = folder.json(args)["predictions"][0]["step_time_us"].clone();
            ["low", "high"].map(|end| step[end].as_f64().unwrap())
        };
        let by_rule = range(&["predict", plain.to_str().unwrap(), "--to", gpu, "--precision", "amp-bf16"]);
        let traced = range(&["predict", mixed.to_str().unwrap(), "--to", gpu]);
        assert!(by_rule[0] < traced[1] && traced[0] < by_rule[1], "{gpu}: {by_rule:?} {traced:?}");
    }
}

/// Transformers whose sequence, width and tokens are all multiples of the batch.
fn measured_transformers_become_those_measured_at_another_batch_size(folder: &Path) {
    let read =
        |name: &str| habitat_tui::store::read_profile(&folder.join(format!("{name}.habitat.json.gz"))).unwrap().0;
    for (from, to) in [
        ("bert_large-train-512-2", "bert_large-train-512-8"),
        ("bert_large-train-512-8", "bert_large-train-512-2"),
        ("bert_large-inf-512-8", "bert_large-inf-512-16"),
        ("gpt2_large-inf-1024-4", "gpt2_large-inf-1024-8"),
        ("opt_13-inf-2048-2", "opt_13-inf-2048-8"),
    ] {
        let (from, to) = (read(from), read(to));
        let scaled = rebatch(&from, to.workload.batch_size.unwrap()).unwrap().profile;
        let (mut wrong, mut all) = (0.0, 0.0);
        for (a, b) in scaled.operations.iter().zip(&to.operations) {
            let time = b.total_device_time().map_or(0.0, habitat_tui::units::Micros::get);
            all += time;
            // With as many tokens as features, the gradients of input and weight look alike: the work is the same.
            let work = |operation: &Operation| match &operation.inputs[..] {
                [left, right] if family(operation) == Family::Gemm => left.iter().product::<u64>() * right[1],
                _ => 0,
            };
            if a.inputs != b.inputs && (work(a) == 0 || work(a) != work(b)) {
                wrong += time;
                println!("{} {} x{} {time:.0} µs: {:?} for {:?}", a.name, a.phase, a.count, a.inputs, b.inputs);
            }
        }
        assert!(wrong / all < 0.02, "{} {:?}: {wrong} of {all} µs", from.workload.name, from.workload.batch_size);
    }
}
