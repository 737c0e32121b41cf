use super::*;
use habitat_base::units::{Bytes, FlopsPerSecond, GpuSlug};
use habitat_prediction::Finding as F;
use habitat_step::profile::{Execution, Precision};

/// One finding of each kind.
fn one_of_each() -> Vec<Finding> {
    let ms = |time: f64| Micros::known(time * 1e3);
    let gpu = || GpuSlug::new("t4").unwrap();
    let operators = || vec![Calls { name: "aten::mm".to_owned(), calls: 2 }];
    let (from, to, batch, largest, share, factor) = (Precision::Fp32, Precision::AmpBf16, 256, 32, 0.25, 1.2);
    let (predicted_us, recorded_us, fixed_bytes) = (ms(1.0), ms(2.0), Bytes::known(1e9));
    vec![
        F::Sharded { evidence: vec!["reduce-scatter"] },
        F::OneRank { communication_us: ms(2.0), exposed_us: ms(1.0) },
        F::Communicates,
        F::WorkOutside { busy_us: ms(2.0), outside_us: ms(1.0) },
        F::NoMatrixCores { dtype: "fp8" },
        F::UnknownFlops { operators: operators(), more: 2 },
        F::EstimatedFlops { operators: operators(), more: 0 },
        F::Float64Products { operators: operators(), more: 0 },
        F::Fp4Products { operators: operators(), more: 0 },
        F::NoShapes { all: true, share },
        F::HostBound { idle_us: ms(2.0), data_us: ms(0.5), step_us: ms(3.0), launch_us: None },
        F::LaunchBound { launches: 10, launch_us: [9.0, 60.0], host_us: [ms(0.09), ms(0.6)], expected: true },
        F::SlowLoader { period_us: ms(9.0) },
        F::LoadsItself { load_us: ms(9.0) },
        F::LateData { wait_us: ms(9.0) },
        F::HostKeepsUp,
        F::ConvertedPrecision { from, to },
        F::PrecisionKept { gpu: gpu(), dtype: "bf16", from, to },
        F::PrecisionChanged { from, recorded: true, to, mean_error: 0.161 },
        F::PrecisionKeptOn { from, to, gpus: vec![gpu(); 8] },
        F::PossibleCasts { copies: 3, to },
        F::CastsDropped { casts: 3, to },
        F::CastsAdded { bytes: Bytes::known(50_197.4e6), to },
        F::CastsMissing { to },
        F::OperandsCast { bytes: Bytes::known(1e6) },
        F::SlowerInFp8 { factor: 1.1, from },
        F::ShapelessOperators { share, from },
        F::AsTf32,
        F::Tf32Assumed,
        F::UnmeasuredOperations { operations: 1, of: 2 },
        F::OverlappingOperations { share },
        F::UnknownWait,
        F::CpuWait { wait_us: ms(1.0), share, counts: WaitCounts::Kept },
        F::ScaledToRecorded { predicted_us, recorded_us, factor },
        F::Uncorrected { predicted_us, recorded_us },
        F::NoLaunches { execution: Execution::CudaGraphs },
        F::BusyTime,
        F::UnverifiedSpecifications { specifications: vec!["power_w".to_owned()] },
        F::Calibrated { day: "2026-11-21".to_owned() },
        F::BandwidthByRule { rule: "share of the nominal bandwidth" },
        F::LeftOut { operations: 1, of: 2 },
        F::StepFactor { factor, iterations: false, measured: true },
        F::MeasuredOperators { used: 5, unused: 1 },
        F::UnseenGpu,
        F::PowerLimited {
            sustained_flops_per_s: FlopsPerSecond::known(4e12),
            burst_flops_per_s: FlopsPerSecond::known(8e12),
        },
        F::OutsideTraining { share },
        F::LinesFactor { factor },
        F::LinesExtrapolated { gpus: 3 },
        F::LayersWithoutLine { share },
        F::LinesPreferred { error: 0.05, steps: 20, on: "on the t4".to_owned(), default_error: None },
        F::HypotheticalStep,
        F::HypotheticalGpu { gpu: "what-if-t4".to_owned(), name: "T4".to_owned() },
        F::BlackBox { trained_on: "PROFET".to_owned() },
        F::TreatedAs { gpu: gpu(), known: gpu() },
        F::UnusualMix,
        F::Unexplained,
        F::ScaledTotals { factor },
        F::UnseenKind { kind: "gemm", share },
        F::UnknownMemory,
        F::Interpolated { pixels: false, sizes: [16, 64] },
        F::NoShares { error: "no batch".to_owned() },
        F::OneBatch { batch },
        F::FarBatch { batch, largest },
        F::UnlikeOperators { operators: 2, batches: [16, 32] },
        F::Bend { faster: true, distance: share },
        F::FlatStep { share, batch },
        F::MostlyFixed { share, batch },
        F::BeyondTested { batch, largest },
        F::BusyExtrapolated,
        F::LineOfPredictions,
        F::NoBatchDimension { operations: 1, of: 2, share: Some(share) },
        F::MemoryByBatch {
            fixed_bytes,
            per_sample_bytes: Bytes::known(1e6),
            least_bytes: Some([Bytes::known(2e9), Bytes::ZERO]),
            basis: LineBasis::Peaks(2),
            peaks: MemorySource::Computed,
            converted: true,
        },
    ]
}

#[test]
fn every_finding_has_a_sentence_and_its_code() {
    let all = one_of_each();
    let codes: Vec<&str> = all.iter().map(Finding::code).collect();
    assert_eq!(codes, Finding::codes());
    let formats = include_str!("../../../../docs/formats.md");
    for finding in &all {
        let kind = if finding.rank().is_some() { "warning" } else { "note" };
        assert!(formats.contains(&format!("| `{}` | {kind} |", finding.code())), "{finding:?}");
        assert!(!finding.words().is_empty(), "{finding:?}");
        let is_short = finding.brief() != finding.words();
        assert_eq!(is_short, finding.rank().is_some(), "{finding:?}");
        let json = serde_json::to_value(finding).unwrap();
        assert_eq!(json["code"], finding.code());
    }
}

#[test]
fn sentences_have_the_numbers() {
    let words = |code: &str| one_of_each().into_iter().find(|one| one.code() == code).unwrap().words();
    for (code, start) in [
        (
            "no-matrix-cores",
            "no fp8 tensor cores for the step's fp8 products, so these are predicted at FP32 speed; PyTorch does not",
        ),
        ("unknown-flops", "unknown FLOPs of aten::mm (×2) and 2 more, because"),
        (
            "host-bound",
            "the GPU is idle 2.50 of the 3.00 ms of the recorded step, 0.50 of it waiting for data: a faster",
        ),
        (
            "launch-bound",
            "waits for the host: 10 launches × 9–60 µs of CPU time are 0.1 to 0.6 ms (estimated; the CPU is unknown), most",
        ),
        ("precision-kept-on", "no amp-bf16 tensor cores, so the step stays in fp32: t4, t4, t4, t4, t4, t4 and 2 more"),
        ("step-factor", "learned models: steps take 1.20 times the sum of their operators, as measured on this GPU"),
        ("measured-operators", "corrected by 5 operators measured on this GPU (1 more unused)"),
        ("scaled-totals", "operator times scaled by 1.20 to fill the step: the profiler lost events"),
        ("casts-added", "casts that amp-bf16 adds are estimated by the rules of PyTorch's autocast: 46.7 GB, counted"),
        ("far-batch", "batch 256 is 8 times the largest recorded"),
    ] {
        assert!(words(code).starts_with(start), "{}", words(code));
    }
    let memory = words("memory-by-batch");
    assert!(
        memory.contains(" a sample, at least ") && memory.contains("computed from shapes at 2 batch sizes"),
        "{memory}"
    );
    assert!(memory.ends_with("; in the recorded precision"), "{memory}");
}

#[test]
fn warnings_name_the_gpus_that_they_concern() {
    let of = |finding, gpus, waits| Shared { finding, gpus, of_gpus: 108, waits };
    let some = of(F::HostKeepsUp, 35, None);
    assert!(some.words().starts_with("on 35 of 108 GPUs: assuming"), "{}", some.words());
    assert_eq!(some.brief(), "assuming the CPU keeps up (35 of 108 GPUs)");
    assert!(of(F::HostKeepsUp, 108, None).words().starts_with("assuming"));
    let waits = Waits { idle_us: [Micros::known(6840.0); 2], idle_share: [0.74, 0.88] };
    let data = of(F::LateData { wait_us: Micros::known(6840.0) }, 99, Some(waits)).words();
    assert!(
        data.starts_with("waits for data: 6.84 ms per step, 74 to 88 % of the step on 99 of 108 GPUs; the DataLoader"),
        "{data}"
    );
}
