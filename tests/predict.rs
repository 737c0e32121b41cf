//! Predictions of whole steps: what is carried over from the origin, and what is not.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use habitat_tui::catalog::Catalog;
use habitat_tui::predict::{Fits, Method, Options, PredictError, Prediction, Predictions, StepTime, predict};
use habitat_tui::profile::Profile;
use habitat_tui::store::bundled;
use habitat_tui::units::GpuSlug;

fn catalog() -> Catalog {
    Catalog::new(bundled::gpus())
}

/// A profile of these operations, recorded on `gpu`; times in microseconds.
fn profile(gpu: &str, step: &str, operations: &str) -> Profile {
    let json = format!(
        r#"{{"format": "habitat-profile", "version": 1,
        "workload": {{"name": "w", "mode": "training", "batch_size": 32, "precision": "fp32", "parameter_count": 25600000}},
        "origin": {{"gpu": "{gpu}"}}, "step": {step}, "operations": [{operations}]}}"#
    );
    Profile::from_json(json.as_bytes()).unwrap().0
}

fn on(profile: &Profile, gpu: &str) -> Prediction {
    answer(profile, gpu).predictions.remove(0)
}

fn answer(profile: &Profile, gpu: &str) -> Predictions {
    let options = Options { targets: vec![GpuSlug::new(gpu).unwrap()], ..Options::default() };
    predict(profile, &catalog(), &options).unwrap()
}

fn millis(prediction: &Prediction) -> f64 {
    prediction.step.mid().as_millis()
}

const RELU: &str = r#"{"name": "aten::relu", "phase": "forward", "inputs": [[25000000]], "outputs": [[25000000]], "dtype": "float32",
    "device_time_us": 10000, "kernels": [{"name": "relu", "duration_us": 10000, "grid": [100000, 1, 1], "block": [256, 1, 1], "registers_per_thread": 32}]}"#;
const PRODUCT: &str = r#"{"name": "aten::mm", "phase": "forward", "inputs": [[8192, 8192], [8192, 8192]], "dtype": "float32", "device_time_us": 92000}"#;
const COLLECTIVE: &str =
    r#"{"name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "phase": "communication", "device_time_us": 80000}"#;

#[test]
fn a_memory_bound_kernel_follows_the_bandwidth() {
    let recorded = profile("v100-sxm2-16gb", r#"{"duration_us": 10000, "device_busy_us": 10000}"#, RELU);
    let t4 = on(&recorded, "t4");
    // 739 and 239 GB/s measured; a quarter of an operation a byte keeps γ next to 1.
    let ratio = millis(&t4) / 10.0;
    assert!((ratio / (739.0 / 239.0) - 1.0).abs() < 0.02, "{ratio}");
    assert_eq!(t4.step.as_estimate().method, Method::WaveScaling);
    // The published error of whole steps.
    let step = t4.step.as_estimate();
    assert!((step.high.get() / step.mid.get() - 1.118).abs() < 1e-9);
}

#[test]
fn the_hosts_part_is_carried_over_unchanged() {
    let busy = profile("v100-sxm2-16gb", r#"{"duration_us": 10000, "device_busy_us": 10000}"#, RELU);
    let waiting = profile("v100-sxm2-16gb", r#"{"duration_us": 17000, "device_busy_us": 10000}"#, RELU);
    let more = millis(&on(&waiting, "t4")) - millis(&on(&busy, "t4"));
    assert!((more - 7.0).abs() < 1e-6, "{more}");
}

#[test]
fn overlap_of_streams_is_carried_over() {
    let apart =
        profile("v100-sxm2-16gb", r#"{"duration_us": 20000, "device_busy_us": 20000}"#, &format!("{RELU}, {RELU}"));
    let together =
        profile("v100-sxm2-16gb", r#"{"duration_us": 10000, "device_busy_us": 10000}"#, &format!("{RELU}, {RELU}"));
    assert!((millis(&on(&apart, "t4")) / millis(&on(&together, "t4")) - 2.0).abs() < 1e-6);
}

/// 92 ms of product with 80 ms of collective, 5 of them not hidden: alone, the GPU takes 92.
#[test]
fn communication_that_was_hidden_makes_nothing_faster() {
    let step = r#"{"duration_us": 98000, "device_busy_us": 97000}"#;
    let recorded = profile("a100-sxm4-40gb", step, &format!("{PRODUCT}, {COLLECTIVE}"));
    let same_board = on(&recorded, "a100-sxm4-80gb");
    assert!((85.0..=95.0).contains(&millis(&same_board)), "{}", millis(&same_board));
    let origin = on(&recorded, "a100-sxm4-40gb");
    assert_eq!(millis(&origin), 98.0);
    assert!(origin.step.is_measured());
    // What a plan counts with is the step without the 5 ms.
    assert!((origin.planning_step().mid.as_millis() - 93.0).abs() < 1e-9);
    assert!(origin.notes[0].contains("recorded with other GPUs"), "{:?}", origin.notes);
}

#[test]
fn a_measured_step_stands_for_itself_in_plans() {
    let recorded = profile(
        "v100-sxm2-16gb",
        r#"{"duration_us": 10000, "device_busy_us": 10000, "duration_range_us": [9000, 90000]}"#,
        RELU,
    );
    let origin = on(&recorded, "v100-sxm2-16gb");
    assert!(matches!(origin.step, StepTime::Measured { .. }));
    let planned = origin.planning_step();
    assert_eq!((planned.low, planned.high), (planned.mid, planned.mid));
}

/// The importer joins a copy's kernels to `aten::copy_`.
#[test]
fn copies_over_the_host_link_do_not_follow_device_memory() {
    for kernel in ["Memcpy HtoD (Pageable -> Device)", "CopyHostToDevice"] {
        let copy = format!(
            r#"{{"name": "aten::copy_", "phase": "copy", "inputs": [[25000000]], "dtype": "float32", "device_time_us": 10000,
            "kernels": [{{"name": "{kernel}", "duration_us": 10000}}]}}"#
        );
        let recorded = profile("v100-sxm2-16gb", r#"{"duration_us": 10000, "device_busy_us": 10000}"#, &copy);
        assert!((millis(&on(&recorded, "h100-sxm5-80gb")) - 10.0).abs() < 1e-9, "{kernel}");
    }
}

#[test]
fn shapes_alone_give_a_roofline_and_nothing_measured() {
    let recorded = profile("v100-sxm2-16gb", r#"{"duration_us": 92000}"#, PRODUCT);
    let options = Options { ignore_origin: true, ..Options::default() };
    let answers = predict(&recorded, &catalog(), &options).unwrap();
    assert_eq!(answers.origin, None);
    assert!(answers.predictions.iter().all(|prediction| !prediction.step.is_measured()));
    let p100 = answers.predictions.iter().find(|prediction| prediction.gpu.slug.as_str() == "p100-pcie-16gb").unwrap();
    // 2 · 8192³ operations at the 7.35 TFLOP/s that the catalog has for products there.
    assert!((millis(p100) - 2.0 * 8192f64.powi(3) / 7.35e12 * 1e3).abs() < 1e-6, "{}", millis(p100));
}

#[test]
fn half_precision_is_told_from_the_workload_where_operators_have_no_type() {
    let untyped = PRODUCT.replace(r#""dtype": "float32", "#, "").replace(r#", "device_time_us": 92000"#, "");
    let mut shapes = profile("a100-sxm4-80gb", "{}", &untyped);
    shapes.origin = None;
    shapes.workload.precision = Some(habitat_tui::predict::Precision::AmpBf16);
    let a100 = on(&shapes, "a100-sxm4-80gb");
    assert!((millis(&a100) - 2.0 * 8192f64.powi(3) / 271.2e12 * 1e3).abs() < 1e-6, "{}", millis(&a100));
}

#[test]
fn what_cannot_be_known_is_said() {
    let mut foreign = profile("v100-sxm2-16gb", "{}", PRODUCT);
    foreign.origin.as_mut().unwrap().gpu = GpuSlug::new("x999").ok();
    assert!(matches!(predict(&foreign, &catalog(), &Options::default()), Err(PredictError::UnknownOrigin { .. })));
    let mut nothing = profile("v100-sxm2-16gb", "{}", r#"{"name": "my::op", "phase": "forward"}"#);
    nothing.origin = None;
    assert!(matches!(predict(&nothing, &catalog(), &Options::default()), Err(PredictError::NothingKnown { .. })));
}

#[test]
fn every_prediction_of_the_sample_has_its_range_its_method_and_its_memory() {
    let answers = predict(&bundled::sample(), &catalog(), &Options::default()).unwrap();
    assert_eq!(answers.predictions.len(), 64);
    for prediction in &answers.predictions {
        let step = prediction.step.as_estimate();
        assert!(0.0 < step.low.get() && step.low.get() <= step.mid.get() && step.mid.get() <= step.high.get());
        assert!((prediction.shares.iter().map(|share| share.share).sum::<f64>() - 1.0).abs() < 1e-9);
        assert!(!prediction.memory.reason.is_empty());
        assert!(prediction.operations.iter().all(|operation| !operation.why.is_empty()));
        // Nothing is faster than the host allows.
        assert!(step.mid.get() >= prediction.host_idle.get());
    }
    assert!(answers.predictions.iter().any(|prediction| prediction.memory.fits == Fits::Yes));
    assert_eq!(answers.predictions.iter().filter(|prediction| prediction.step.is_measured()).count(), 1);
}
