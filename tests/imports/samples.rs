//! The public samples, against sums that SQL and a script of a few lines give.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::path::PathBuf;

use habitat_tui::profile::kineto::{ImportOptions, StepMarks};
use habitat_tui::profile::nsys::{self, Choice};
use habitat_tui::profile::{Mode, Phase, Precision, xplane};
use habitat_tui::store::nsys::Export;

use crate::program::Folder;

fn sample(name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/data/traces").join(name);
    if !path.exists() {
        eprintln!("skipped: {} is not there", path.display());
    }
    path.exists().then_some(path)
}

fn near(value: f64, expected: f64) {
    assert!((value - expected).abs() < 1e-3 * expected.max(1.0), "{value}, expected {expected}");
}

/// `SELECT sum("end" - start)` over kernels, copies and fills of device 1 whose correlation
/// number a call of the same process has: 257,913.733 µs in 2,648 rows, of them 2,005
/// kernels with 255,057.356 µs; from the first start to the last end 289,270.568 µs.
#[test]
fn two_h100_with_operators() {
    let Some(path) = sample("nsys/h100x2_fsdp_300ms.sqlite") else { return };
    let mut export = Export::open(&path).unwrap();
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
#[test]
fn the_next_commands_run_as_they_stand() {
    let bench = Folder::new();
    for (name, starts) in [
        ("nsys/h100x2_fsdp_300ms.sqlite", "next, by the GPU that it was recorded on (some of its kernels need"),
        ("nsys/rtx3080_tiny.sqlite", "next: habitat-tui out"),
        ("xplane/mi355_jax_te_attention_fwdbwd.xplane.pb", "next: habitat-tui out.habitat.json.zst --ignore-origin"),
    ] {
        let Some(path) = sample(name) else { return };
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

#[test]
fn a_recording_without_ranges_names_its_gpu() {
    let Some(path) = sample("nsys/rtx3080_tiny.sqlite") else { return };
    let import =
        nsys::import(&mut Export::open(&path).unwrap(), &ImportOptions::default(), &Choice::default()).unwrap();
    near(import.summary.kernel_time.get(), 4.129);
    let origin = import.profile.origin.as_ref().unwrap();
    assert_eq!(origin.gpu_name.as_deref(), Some("NVIDIA GeForce RTX 3080"));
    assert_eq!(origin.driver.as_deref(), Some("591.86"));
    let copy = import.profile.operations.iter().find(|operation| operation.phase == Phase::Copy).unwrap();
    assert_eq!(copy.name, "Memcpy DtoH (Device -> Pinned)");
}

/// 150 events, five runs of 30, 12,133.585 µs together; the ends of runs are 2,602.9,
/// 2,524.9, 2,485.4 and 2,471.7 µs apart.
#[test]
fn jax_on_an_mi355() {
    let Some(path) = sample("xplane/mi355_jax_te_attention_fwdbwd.xplane.pb") else { return };
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
