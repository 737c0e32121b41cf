//! The public samples, against sums that SQL and a script of a few lines give.

use std::path::{Path, PathBuf};

use habitat_tui::profile::kineto::{ImportOptions, StepMarks};
use habitat_tui::profile::nsys::{self, Choice};
use habitat_tui::profile::{Mode, Phase, Precision, xplane};
use habitat_tui::store::nsys::Export;

use crate::needs::{Need, shared};
use crate::program::Folder;

const TWO_H100: &str = "traces/nsys/h100x2_fsdp_300ms.sqlite";
const RTX_3080: &str = "traces/nsys/rtx3080_tiny.sqlite";
const MI355: &str = "traces/xplane/mi355_jax_te_attention_fwdbwd.xplane.pb";

trials! {
    with (shared(TWO_H100)) => [two_h100_with_operators],
    with (shared(RTX_3080)) => [a_recording_without_ranges_names_its_gpu],
    with (shared(MI355)) => [jax_on_an_mi355],
    with (all()) => [the_next_commands_run_as_they_stand],
}

/// All three, in this order.
fn all() -> Need<[PathBuf; 3]> {
    Ok([shared(TWO_H100)?, shared(RTX_3080)?, shared(MI355)?])
}

fn near(value: f64, expected: f64) {
    assert!((value - expected).abs() < 1e-3 * expected.max(1.0), "{value}, expected {expected}");
}

/// `SELECT sum("end" - start)` over kernels, copies and fills of device 1 whose correlation
/// number a call of the same process has: 257,913.733 µs in 2,648 rows, of them 2,005
/// kernels with 255,057.356 µs; from the first start to the last end 289,270.568 µs.
fn two_h100_with_operators(path: &Path) {
    let mut export = Export::open(path).unwrap();
    let choice = Choice { device: Some(1), ..Choice::default() };
    let import = nsys::import(&mut export, &ImportOptions::default(), &choice).unwrap();
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

    // Both ranks: no operation is counted with another's time.
    let both = nsys::import(&mut export, &ImportOptions::default(), &Choice::default()).unwrap();
    assert_eq!(both.profile.recording.as_ref().unwrap().ranks, Some(2));
    let busy = both.profile.step.as_ref().unwrap().device_busy.unwrap().get();
    let total = both.profile.total_device_time().get();
    assert!((total / busy - 1.0).abs() < 0.03, "{total} of {busy}");
}

/// Every command that an import ends with does what it says.
fn the_next_commands_run_as_they_stand(recordings: &[PathBuf; 3]) {
    let bench = Folder::new();
    for (path, starts) in recordings.iter().zip([
        "next, by the GPU that it was recorded on (some of its kernels need",
        "next: habitat-tui out",
        "next: habitat-tui out.habitat.json.zst --ignore-origin",
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
    let import = nsys::import(&mut Export::open(path).unwrap(), &ImportOptions::default(), &Choice::default()).unwrap();
    near(import.summary.kernel_time.get(), 4.129);
    let origin = import.profile.origin.as_ref().unwrap();
    assert_eq!(origin.gpu_name.as_deref(), Some("NVIDIA GeForce RTX 3080"));
    assert_eq!(origin.driver.as_deref(), Some("591.86"));
    let copy = import.profile.operations.iter().find(|operation| operation.phase == Phase::Copy).unwrap();
    assert_eq!(copy.name, "Memcpy DtoH (Device -> Pinned)");
}

/// 150 events, five runs of 30, 12,133.585 µs together; the ends of runs are 2,602.9,
/// 2,524.9, 2,485.4 and 2,471.7 µs apart.
fn jax_on_an_mi355(path: &Path) {
    let import = xplane::import(&std::fs::read(path).unwrap(), &ImportOptions::default(), None).unwrap();
    let profile = &import.profile;
    assert_eq!((import.summary.marks, import.summary.steps_used), (StepMarks::ProgramRuns, 5));
    assert_eq!((import.summary.kernels_per_step, import.summary.joined_share), (30.0, 1.0));
    near(profile.total_device_time().get(), 12_133.585 / 5.0);
    near(profile.measured_step().unwrap().get(), f64::midpoint(2_524.9, 2_485.4));
    assert_eq!((profile.workload.mode, profile.workload.precision), (Mode::Training, Some(Precision::Bf16)));
    let gemm = profile.operations.iter().find(|operation| operation.name == "aten::mm").unwrap();
    assert_eq!((gemm.inputs.as_slice(), gemm.phase), (&[vec![4096, 6144], vec![6144, 2048]][..], Phase::Backward));
    let products = profile.operations.iter().filter(|operation| operation.name == "aten::bmm");
    assert_eq!(products.map(|operation| operation.count).sum::<u32>(), 5);
}
