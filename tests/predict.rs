//! Predictions of whole steps: what they carry over from the origin.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use habitat_tui::catalog::Catalog;
use habitat_tui::catalog::hypothetical::{Changes, Figure};
use habitat_tui::predict::hypothetical::{WhatIf, what_if};
use habitat_tui::predict::rate::Rates;
use habitat_tui::predict::{
    Estimate, Finding, Fits, Method, MethodChoice, Options, Precision, PredictError, Prediction, Predictions, StepTime,
    predict,
};
use habitat_tui::profile::{Mode, Profile, Sample};
use habitat_tui::report::words::Words;
use habitat_tui::store::bundled;
use habitat_tui::units::{GpuSlug, Micros};

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
fn work_of_no_operation_is_warned_of_and_in_the_range() {
    let step = |busy: u32| format!(r#"{{"duration_us": 100000, "device_busy_us": {busy}}}"#);
    let [whole, lacking] = [10_000, 80_000].map(|busy| on(&profile("v100-sxm2-16gb", &step(busy), RELU), "t4"));
    let warns = |of: &Prediction| of.warnings.iter().any(|warning| warning.code() == "work-outside");
    assert!(!warns(&whole) && warns(&lacking));
    // Seven times the operation's time is in neither; the idle time differs by that much, too.
    let width = |of: &Prediction| of.step.as_estimate().range.high / of.step.as_estimate().range.mid;
    assert!(width(&lacking) > 4.0 && width(&whole) < width(&lacking), "{} {}", width(&lacking), width(&whole));
    let measured = on(&profile("v100-sxm2-16gb", &step(80_000), RELU), "v100-sxm2-16gb");
    assert!(warns(&measured) && (millis(&measured) - 100.0).abs() < 1e-9);
}

/// Medians over steps and ranks do not belong to one step.
#[test]
fn communication_that_is_not_hidden_is_at_most_the_whole() {
    let operations = format!("{RELU}, {COLLECTIVE}");
    let said = |step: &str| {
        let prediction = on(&profile("v100-sxm2-16gb", step, &operations), "t4");
        let one_rank = prediction.warnings.into_iter().find(|warning| warning.code() == "one-rank");
        one_rank.unwrap().words()
    };
    for exposed in ["", r#", "exposed_communication_us": 95000"#] {
        let text = said(&format!(r#"{{"duration_us": 100000, "device_busy_us": 100000{exposed}}}"#));
        assert!(text.contains("(80.00 ms of communication per step, 80.00 ms not hidden"), "{text}");
    }
    let text = said(r#"{"duration_us": 90000, "device_busy_us": 85000, "exposed_communication_us": 75000}"#);
    assert!(text.contains("75.00 ms not hidden"), "{text}");
}

#[test]
fn a_memory_bound_kernel_follows_the_bandwidth() {
    let recorded = profile("v100-sxm2-16gb", r#"{"duration_us": 10000, "device_busy_us": 10000}"#, RELU);
    let t4 = on(&recorded, "t4");
    // 739 and 239 GB/s measured; a quarter of an operation per byte keeps γ next to 1.
    let ratio = millis(&t4) / 10.0;
    assert!((ratio / (739.0 / 239.0) - 1.0).abs() < 0.02, "{ratio}");
    assert_eq!(t4.step.as_estimate().method, Method::WaveScaling);
    // The published error of whole steps.
    let step = t4.step.as_estimate();
    assert!((step.range.high.get() / step.range.mid.get() - 1.118).abs() < 1e-9);
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

fn codes(prediction: &Prediction) -> Vec<&'static str> {
    prediction.warnings.iter().map(Finding::code).collect()
}

fn ends(prediction: &Prediction) -> [f64; 3] {
    let step = prediction.step.as_estimate();
    [step.range.low, step.range.mid, step.range.high].map(Micros::as_millis)
}

/// 92 ms of product with 80 ms of collective, 5 of them exposed: alone, the GPU takes 92.
#[test]
fn communication_that_was_hidden_makes_nothing_faster() {
    let step = r#"{"duration_us": 98000, "device_busy_us": 97000}"#;
    let recorded = profile("a100-sxm4-40gb", step, &format!("{PRODUCT}, {COLLECTIVE}"));
    let same_board = on(&recorded, "a100-sxm4-80gb");
    assert!((85.0..=95.0).contains(&millis(&same_board)), "{}", millis(&same_board));
    let origin = on(&recorded, "a100-sxm4-40gb");
    // The step without the 5 ms is derived: at least the product, at most the whole step.
    assert_eq!(origin.step.as_estimate().method, Method::Derived);
    assert_eq!(ends(&origin), [92.0, 93.0, 98.0]);
    assert_eq!(origin.planning_step(), origin.step.as_estimate());
    for prediction in [&origin, &same_board] {
        assert_eq!(codes(prediction), ["one-rank"]);
    }
}

/// All communication is exposed: subtracted as a whole, or not at all.
#[test]
fn every_gpu_is_without_communication_and_in_doubt_of_it() {
    let step = r#"{"duration_us": 173000, "device_busy_us": 172000}"#;
    let recorded = profile("a100-sxm4-40gb", step, &format!("{PRODUCT}, {COLLECTIVE}"));
    assert_eq!(ends(&on(&recorded, "a100-sxm4-40gb")), [93.0, 93.0, 173.0]);
    let alone = profile("a100-sxm4-40gb", r#"{"duration_us": 93000, "device_busy_us": 92000}"#, PRODUCT);
    let ([low, mid, high], [alone_low, alone_mid, alone_high]) =
        (ends(&on(&recorded, "a100-sxm4-80gb")), ends(&on(&alone, "a100-sxm4-80gb")));
    assert!((low - alone_low).abs() < 1e-6 && (mid - alone_mid).abs() < 1e-6, "{low} {mid}");
    assert!((high - alone_high - 80.0).abs() < 1e-6, "{high} {alone_high}");
}

#[test]
fn a_model_split_over_gpus_is_said_to_be_one() {
    let step = r#"{"duration_us": 173000, "device_busy_us": 172000, "peak_memory_bytes": 1000000000}"#;
    for name in ["ncclDevKernel_AllGather_RING_LL", "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL"] {
        let split = COLLECTIVE.replace("ncclDevKernel_AllReduce_Sum_f32_RING_LL", name);
        let h100 = on(&profile("a100-sxm4-40gb", step, &format!("{PRODUCT}, {split}")), "h100-sxm5-80gb");
        assert_eq!(codes(&h100), ["sharded", "one-rank"], "{name}");
        assert_eq!(h100.memory.fits, Fits::Unknown, "a rank's share does not show the whole: {name}");
    }
    // A gathered metric beside all-reduced gradients does not mean model parallelism.
    let metric = COLLECTIVE.replace("AllReduce_Sum_f32", "AllGather").replace("80000", "100");
    let h100 = on(&profile("a100-sxm4-40gb", step, &format!("{PRODUCT}, {COLLECTIVE}, {metric}")), "h100-sxm5-80gb");
    assert_eq!((codes(&h100), h100.memory.fits), (vec!["one-rank"], Fits::Yes));
}

/// A convolution without shapes may scale with the bandwidth (7.7 times a V100's on a B200) or the arithmetic (5
/// times); an elementwise operation scales with the bandwidth.
#[test]
fn without_shapes_the_range_holds_both_ratios() {
    let step = r#"{"duration_us": 92000, "device_busy_us": 92000}"#;
    let bare = r#"{"name": "aten::cudnn_convolution", "phase": "forward", "device_time_us": 92000,
        "kernels": [{"name": "implicit_convolve_sgemm", "duration_us": 92000, "grid": [100000, 1, 1], "block": [256, 1, 1], "registers_per_thread": 64}]}"#;
    let by_default = profile("v100-sxm2-16gb", step, bare);
    let mut recorded = by_default.clone();
    recorded.workload.precision = Some(Precision::Fp32Strict);
    for target in ["b200", "t4", "h100-sxm5-80gb", "l4"] {
        let catalog = catalog();
        // In TF32 it is less compute-bound.
        let [in_tf32, strict] = [&by_default, &recorded].map(|profile| ends(&on(profile, target))[1]);
        assert!(if target == "t4" { in_tf32 == strict } else { in_tf32 < strict }, "{target}: {in_tf32} {strict}");
        let [here, there] = ["v100-sxm2-16gb", target].map(|gpu| catalog.find(gpu).unwrap());
        let prediction = on(&recorded, target);
        let [low, mid, high] = ends(&prediction);
        let by_bandwidth = 92.0 * (Rates::new(here).bandwidth.value / Rates::new(there).bandwidth.value);
        let by_rate = 92.0 * (here.peak.fp32 / there.peak.fp32);
        for time in [by_bandwidth, by_rate] {
            assert!(low < time && time < high, "{target}: {time} outside {low}–{high}");
        }
        assert!(low < mid && mid < high && high / low > 1.8, "{target}: {low}–{high}");
        assert_eq!(prediction.step.as_estimate().method, Method::BetweenRates);
        assert_eq!(codes(&prediction), ["no-shapes"]);
    }
    let relu = RELU.replace(r#""inputs": [[25000000]], "outputs": [[25000000]], "dtype": "float32","#, "");
    let followed = on(&profile("v100-sxm2-16gb", step, &relu), "t4");
    assert_eq!(followed.step.as_estimate().method, Method::WaveScaling);
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
    assert_eq!((planned.range.low, planned.range.high), (planned.range.mid, planned.range.mid));
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
    // 2 · 8192³ operations at the 7.35 TFLOP/s in the catalog for products there.
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

/// It was shown as a prediction or a measurement of 0 ms.
#[test]
fn a_recorded_step_of_no_time_is_an_error() {
    let zero = profile("v100-sxm2-16gb", r#"{"duration_us": 0}"#, PRODUCT);
    // A plan of such a short step crashed the program: its work is infinity times zero.
    let tiny = profile("v100-sxm2-16gb", r#"{"duration_us": 1e-300}"#, PRODUCT);
    for (step, words) in [(&zero, "takes 0 µs"), (&tiny, "takes 0.000")] {
        let error = predict(step, &catalog(), &Options::default()).unwrap_err();
        assert!(matches!(error, PredictError::NoTime { .. }), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    let shapes = Options { ignore_origin: true, ..Options::default() };
    assert!(predict(&zero, &catalog(), &shapes).is_ok());
}

/// It was shown as 1.8e308 samples per second.
#[test]
fn a_throughput_without_an_upper_end_has_none() {
    let step = Estimate::with_band(Micros::new(1000.0).unwrap(), 1.23, Method::HabitatMlp);
    let rate = step.throughput(32).unwrap();
    assert_eq!((rate.mid.get(), rate.high), (32_000.0, None));
    assert_eq!(Estimate::with_band(Micros::ZERO, 0.1, Method::Roofline).throughput(32), None);
}

#[test]
fn every_prediction_of_the_sample_has_its_range_its_method_and_its_memory() {
    let answers = predict(&bundled::sample(Sample::default()), &catalog(), &Options::default()).unwrap();
    assert_eq!(answers.predictions.len(), bundled::gpus().len());
    for prediction in &answers.predictions {
        let step = prediction.step.as_estimate();
        assert!(
            0.0 < step.range.low.get()
                && step.range.low.get() <= step.range.mid.get()
                && step.range.mid.get() <= step.range.high.get()
        );
        assert!((prediction.shares.iter().map(|share| share.share).sum::<f64>() - 1.0).abs() < 1e-9);
        assert!(!prediction.memory.basis.words().is_empty());
        assert!(prediction.operations.iter().all(|operation| !operation.why.is_empty()));
        // No step is faster than the host allows.
        assert!(step.range.mid.get() >= prediction.host_idle.get());
    }
    assert!(answers.predictions.iter().any(|prediction| prediction.memory.fits == Fits::Yes));
    assert_eq!(answers.predictions.iter().filter(|prediction| prediction.step.is_measured()).count(), 1);
}

/// The step in another precision, on one GPU.
fn changed(profile: &Profile, gpu: &str, precision: Precision) -> Predictions {
    let options =
        Options { targets: vec![GpuSlug::new(gpu).unwrap()], precision: Some(precision), ..Options::default() };
    predict(profile, &catalog(), &options).unwrap()
}

/// Times of the operations, in milliseconds.
fn times(answer: &Predictions) -> Vec<f64> {
    let operations = &answer.predictions[0].operations;
    operations.iter().map(|operation| operation.time.as_ref().unwrap().range.mid.as_millis()).collect()
}

/// A convolution of ResNet-50 in 32 bits, forward, at batch 64.
const CONVOLUTION: &str = r#"{"name": "aten::cudnn_convolution", "phase": "forward", "inputs": [[64, 256, 56, 56], [64, 256, 3, 3]],
    "outputs": [[64, 64, 56, 56]], "dtype": "float32", "device_time_us": 6000,
    "attributes": {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "groups": 1}}"#;

/// Times of a product, a convolution and a relu recorded on a V100, in a 32-bit precision, in milliseconds.
fn in_32_bits(gpu: &str, precision: Precision, method: MethodChoice, models: bool) -> Vec<f64> {
    let mut recorded = profile("v100-sxm2-16gb", "{}", &format!("{PRODUCT}, {CONVOLUTION}, {RELU}"));
    recorded.workload.precision = Some(precision);
    let models = models.then(|| std::sync::Arc::new(habitat_tui::store::bundled::models()));
    let options = Options { targets: vec![GpuSlug::new(gpu).unwrap()], method, models, ..Options::default() };
    times(&predict(&recorded, &catalog(), &options).unwrap())
}

/// By default PyTorch runs convolutions of an FP32 program in TF32, but not products; each of its two flags changes its
/// operations, on GPUs with TF32 and CUDA, by every method.
#[test]
fn either_flag_of_tf32_changes_its_own_operations() {
    for (method, models) in [
        (MethodChoice::Auto, true),
        (MethodChoice::Auto, false),
        (MethodChoice::Roofline, false),
        (MethodChoice::WaveScaling, false),
    ] {
        let of = |gpu, precision| in_32_bits(gpu, precision, method, models);
        for gpu in ["a100-sxm4-40gb", "h100-sxm5-80gb"] {
            let [strict, usual, products, both] =
                [Precision::Fp32Strict, Precision::Fp32, Precision::Tf32Products, Precision::Tf32]
                    .map(|it| of(gpu, it));
            let said = format!("{method:?}, {gpu}: {strict:?} {usual:?} {products:?} {both:?}");
            assert!(usual[1] < 0.6 * strict[1] && usual[0] == strict[0], "{said}");
            assert!(products[0] < 0.6 * strict[0] && products[1] == strict[1], "{said}");
            assert!(both[0] == products[0] && both[1] == usual[1], "{said}");
            assert!([&usual, &products, &both].iter().all(|times| times[2] == strict[2]), "{said}");
        }
        // Without TF32, and with ROCm, which ignores the flags, nothing changes.
        for gpu in ["v100-sxm2-32gb", "t4", "p100-pcie-16gb", "mi300x"] {
            let strict = of(gpu, Precision::Fp32Strict);
            for precision in [Precision::Fp32, Precision::Tf32Products, Precision::Tf32] {
                assert_eq!(of(gpu, precision), strict, "{method:?}, {gpu}, {precision}");
            }
        }
    }
}

/// From shapes alone, from a V100 and from an A100, and by conversion of the recording: no GPU is slower in TF32.
#[test]
fn tf32_is_never_slower_than_fp32() {
    let models = std::sync::Arc::new(habitat_tui::store::bundled::models());
    let all = catalog();
    let sample = bundled::sample(Sample::ResNet50V100);
    let mut volta = sample.clone();
    volta.workload.precision = Some(Precision::Fp32);
    let mut ampere = profile("a100-sxm4-40gb", "{}", &format!("{PRODUCT}, {CONVOLUTION}, {RELU}"));
    ampere.workload.precision = Some(Precision::Fp32);
    let steps = |profile: &Profile,
                 recorded: Precision,
                 asked: Option<Precision>,
                 ignore_origin: bool|
     -> Vec<(GpuSlug, f64)> {
        let mut profile = profile.clone();
        profile.workload.precision = Some(recorded);
        let models = Some(std::sync::Arc::clone(&models));
        let options = Options { models, precision: asked, ignore_origin, steps_only: true, ..Options::default() };
        let found = predict(&profile, &all, &options).unwrap().predictions;
        found.iter().map(|it| (it.gpu.slug.clone(), it.step.mid().get())).collect()
    };
    // From the slowest to the fastest.
    let order = [Precision::Fp32Strict, Precision::Fp32, Precision::Tf32];
    for (profile, ignore_origin) in [(&volta, true), (&volta, false), (&ampere, true), (&ampere, false)] {
        let converted = order.map(|asked| steps(profile, Precision::Fp32, Some(asked), ignore_origin));
        let recorded = order.map(|recorded| steps(profile, recorded, None, true));
        for found in [converted, recorded] {
            for pair in found.windows(2) {
                for ((gpu, slow), (_, fast)) in pair[0].iter().zip(&pair[1]) {
                    assert!(*fast <= slow * (1.0 + 1e-9), "{gpu}: {slow} then {fast}");
                }
            }
        }
    }
}

/// ResNet-50 in FP32 recorded on a V100, with PyTorch's defaults on an H100: reported once, and not on the recording
/// GPU.
#[test]
fn defaults_that_are_assumed_are_said_once() {
    let mut recorded = profile("v100-sxm2-16gb", "{}", &format!("{PRODUCT}, {CONVOLUTION}"));
    let said = |profile: &Profile, gpu: &str| {
        let notes = answer(profile, gpu).notes;
        notes.iter().filter(|note| **note == Finding::Tf32Assumed).count()
    };
    assert_eq!((said(&recorded, "h100-sxm5-80gb"), said(&recorded, "t4")), (1, 0));
    assert_eq!(said(&profile("v100-sxm2-16gb", "{}", PRODUCT), "h100-sxm5-80gb"), 0, "no convolution");
    let json = r#"{"source": "op list", "tf32_known": true}"#;
    recorded.recording = serde_json::from_str(json).unwrap();
    assert_eq!(said(&recorded, "h100-sxm5-80gb"), 0);
}

/// From an H100 to an AMD GPU in 16 bits, ranges are those of AMD's own steps, wider than to another NVIDIA GPU.
#[test]
fn ranges_of_amd_in_16_bits_are_those_of_its_steps() {
    let mut recorded = profile("h100-sxm5-80gb", "{}", &PRODUCT.replace("float32", "float16"));
    recorded.workload.precision = Some(Precision::AmpFp16);
    let models = std::sync::Arc::new(bundled::models());
    let upwards = |options: &Options| {
        ["mi325x", "a100-sxm4-40gb"].map(|gpu| {
            let options = Options { targets: vec![GpuSlug::new(gpu).unwrap()], ..options.clone() };
            let mut found = predict(&recorded, &catalog(), &options).unwrap();
            let step = found.predictions.remove(0).step.as_estimate().range;
            step.high / step.mid
        })
    };
    let [amd, nvidia] = upwards(&Options { models: Some(models), ..Options::default() });
    assert!((1.5..2.5).contains(&amd) && nvidia < amd, "{amd} {nvidia}");
    // Steps there took up to 3.2 times the ratio of rooflines to an NVIDIA GPU, and 5.3 times their roofline.
    let close =
        |found: [f64; 2], wanted: [f64; 2]| found.iter().zip(wanted).all(|(one, other)| (one - other).abs() < 1e-9);
    let scaled = upwards(&Options::default());
    assert!(close(scaled, [3.2, 1.118]), "{scaled:?}");
    let from_shapes = upwards(&Options { ignore_origin: true, ..Options::default() });
    assert!(close(from_shapes, [5.3, 1.319]), "{from_shapes:?}");
}

/// For FP32 training, another GPU's step is no better than shapes: the range is wider than that of inference, which
/// most of the underlying steps are.
#[test]
fn ranges_of_training_from_another_gpu_are_those_of_shapes_at_least() {
    let models = std::sync::Arc::new(bundled::models());
    let mut recorded = profile("v100-sxm2-16gb", r#"{"duration_us": 110000}"#, PRODUCT);
    recorded.workload.precision = Some(Precision::Fp32Strict);
    let ends = |profile: &Profile, ignore_origin: bool| {
        let targets = vec![GpuSlug::new("rtx-2080-ti").unwrap()];
        let options = Options { targets, models: Some(models.clone()), ignore_origin, ..Options::default() };
        let step = predict(profile, &catalog(), &options).unwrap().predictions.remove(0).step.as_estimate().range;
        [step.low / step.mid, step.high / step.mid]
    };
    let [training, from_shapes] = [false, true].map(|ignored| ends(&recorded, ignored));
    recorded.workload.mode = Mode::Inference;
    let inference = ends(&recorded, false);
    assert!(training[1] > 1.1 * inference[1] && training[0] < inference[0] + 1e-9, "{training:?} {inference:?}");
    assert!((training[1] - from_shapes[1]).abs() < 0.01, "{training:?} {from_shapes:?}");
}

#[test]
fn the_recorded_precision_changes_nothing() {
    let recorded = profile("v100-sxm2-16gb", r#"{"duration_us": 110000}"#, &format!("{PRODUCT}, {RELU}"));
    assert_eq!(changed(&recorded, "a100-sxm4-40gb", Precision::Fp32), answer(&recorded, "a100-sxm4-40gb"));
}

#[test]
fn tf32_speeds_up_products_only() {
    let recorded = profile("v100-sxm2-16gb", r#"{"duration_us": 110000}"#, &format!("{PRODUCT}, {RELU}"));
    let (fp32, tf32) = (answer(&recorded, "a100-sxm4-40gb"), changed(&recorded, "a100-sxm4-40gb", Precision::Tf32));
    let (slower, faster) = (times(&fp32), times(&tf32));
    assert!((4.0..9.0).contains(&(slower[0] / faster[0])), "{slower:?} {faster:?}");
    assert_eq!(slower[1], faster[1]);
    let (before, after) = (&fp32.predictions[0], &tf32.predictions[0]);
    assert!(after.operations[0].why.contains("fp32 → tf32"), "{}", after.operations[0].why);
    assert_eq!(after.notes[0], Finding::ConvertedPrecision { from: Precision::Fp32, to: Precision::Tf32 });
    assert!(matches!(tf32.notes[0], Finding::PrecisionChanged { mean_error: 0.161, .. }), "{:?}", tf32.notes);
    assert_eq!(tf32.workload.precision, Some(Precision::Tf32));
    let width = |prediction: &Prediction| prediction.step.as_estimate().range.high.get() / prediction.step.mid().get();
    // Habitat's mean error with and without the change.
    assert!((width(before) - 1.118).abs() < 1e-9 && (width(after) - 1.161).abs() < 1e-9, "{}", width(after));
}

#[test]
fn a_gpu_without_the_precision_says_so_and_keeps_the_recorded_one() {
    let recorded = profile("v100-sxm2-16gb", r#"{"duration_us": 110000}"#, &format!("{PRODUCT}, {RELU}"));
    for (gpu, precision, name) in [
        ("t4", Precision::AmpBf16, "bf16"),
        ("t4", Precision::Tf32, "tf32"),
        ("a100-sxm4-40gb", Precision::Fp8, "fp8"),
        ("p100-pcie-16gb", Precision::AmpFp16, "fp16"),
    ] {
        let answers = changed(&recorded, gpu, precision);
        assert_eq!(answers.predictions[0].step, on(&recorded, gpu).step);
        let note = answers.predictions[0].notes[0].words();
        assert!(note.contains(&format!("has no {name} tensor cores: its step stays in fp32")), "{note}");
    }
}

#[test]
fn sixteen_bits_halve_what_memory_bounds() {
    let layer_norm = r#"{"name": "aten::native_layer_norm", "phase": "forward", "inputs": [[25000000]], "outputs": [[25000000]], "dtype": "float32", "device_time_us": 10000}"#;
    let update = r#"{"name": "aten::_foreach_add_", "phase": "optimizer", "inputs": [[25000000]], "dtype": "float32", "device_time_us": 10000}"#;
    let recorded = profile("v100-sxm2-16gb", "{}", &format!("{RELU}, {layer_norm}, {update}"));
    let ratios = |precision| -> Vec<f64> {
        let before = times(&answer(&recorded, "a100-sxm4-40gb"));
        times(&changed(&recorded, "a100-sxm4-40gb", precision))
            .iter()
            .zip(before)
            .map(|(after, before)| after / before)
            .collect()
    };
    let close = |found: Vec<f64>, expected: [f64; 3]| {
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?} {expected:?}");
    };
    close(ratios(Precision::Bf16), [0.5, 0.5, 0.5]);
    close(ratios(Precision::AmpBf16), [0.5, 1.0, 1.0]);
}

#[test]
fn the_origin_in_another_precision_is_predicted_not_measured() {
    let recorded = profile("v100-sxm2-16gb", r#"{"duration_us": 92000, "device_busy_us": 92000}"#, PRODUCT);
    let v100 = changed(&recorded, "v100-sxm2-16gb", Precision::AmpFp16).predictions.remove(0);
    assert!(!v100.step.is_measured());
    assert!((4.0..9.0).contains(&(92.0 / millis(&v100))), "{}", millis(&v100));
}

#[test]
fn from_16_bits_to_32_memory_is_not_taken_as_recorded() {
    let half = PRODUCT.replace("float32", "bfloat16");
    let mut recorded = profile("a100-sxm4-40gb", r#"{"peak_memory_bytes": 20000000000}"#, &half);
    recorded.workload.precision = Some(Precision::Bf16);
    let fits = |gpu| changed(&recorded, gpu, Precision::Fp32).predictions.remove(0).memory.fits;
    assert_eq!((fits("t4"), fits("a100-sxm4-40gb"), fits("a100-sxm4-80gb")), (Fits::No, Fits::Unknown, Fits::Yes));
}

/// A step with 12 GB of state and 8 GB beside it, by recorded and predicted precision: least and most memory needed, in
/// GB.
#[test]
fn a_step_in_other_numbers_keeps_what_stays_as_wide() {
    let memory = r#"{"peak_memory_bytes": 20000000000, "memory": {"source": "recorded", "parameters_bytes": 3000000000,
        "gradients_bytes": 3000000000, "optimizer_state_bytes": 6000000000, "activations_bytes": 8000000000, "temporary_bytes": 0}}"#;
    let need = |from: Precision, to: Precision| {
        let dtype = if from == Precision::Fp32 { "float32" } else { "bfloat16" };
        let mut recorded = profile("h100-sxm5-80gb", memory, &PRODUCT.replace("float32", dtype));
        recorded.workload.precision = Some(from);
        recorded.workload.parameter_count = Some(750_000_000);
        let memory = changed(&recorded, "h200-sxm-141gb", to).predictions.remove(0).memory;
        [memory.needed, memory.at_most].map(|bytes| bytes.map(|bytes| (bytes.get() / 1e9 - 1.4) / 1.1))
    };
    // State and three quarters (FP8), half or less of the rest; with copies of the weights in 8 bits if there are none
    // in 16.
    for (from, to, expected) in [
        (Precision::AmpBf16, Precision::Fp8, [18.0, 20.0]),
        (Precision::Bf16, Precision::Fp8, [18.0, 21.5]),
        (Precision::Fp32, Precision::Fp8, [15.0, 21.5]),
        (Precision::Fp32, Precision::AmpBf16, [16.0, 20.0]),
        (Precision::Fp32, Precision::Bf16, [10.0, 20.0]),
        (Precision::AmpBf16, Precision::Bf16, [14.0, 20.0]),
        // Autocast keeps the state in 32 bits.
        (Precision::AmpBf16, Precision::Fp32, [20.0, 28.0]),
        (Precision::Bf16, Precision::Fp32, [20.0, 40.0]),
        (Precision::Bf16, Precision::AmpBf16, [20.0, 32.0]),
        (Precision::Fp8, Precision::Bf16, [20.0, 12.0 + 8.0 / 0.75]),
    ] {
        let found = need(from, to).map(Option::unwrap);
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{from} to {to}: {found:?}");
    }
}

#[test]
fn a_gpu_with_other_figures_is_as_much_faster_as_its_models_say() {
    let catalog = catalog();
    let v100 = GpuSlug::new("v100-sxm2-16gb").unwrap();
    let tried = |profile: &Profile, options: &Options, changes: Changes, along| {
        what_if(profile, &catalog, options, &v100, &changes, along).unwrap()
    };
    let times = |found: &WhatIf| found.real.step.mid() / found.changed.step.mid();
    // A memory-bound kernel scales with the bandwidth, a product with the SMs, and not the reverse.
    let relu = profile("v100-sxm2-16gb", r#"{"duration_us": 10000, "device_busy_us": 10000}"#, RELU);
    let product = profile("v100-sxm2-16gb", r#"{"duration_us": 92000, "device_busy_us": 92000}"#, PRODUCT);
    let roofline = Options { method: MethodChoice::Roofline, ..Options::default() };
    for (profile, figure, expected) in [
        (&relu, Figure::Bandwidth, 2.0),
        (&relu, Figure::Tensor, 1.0),
        (&product, Figure::Multiprocessors, 2.0),
        (&product, Figure::Bandwidth, 1.0),
        (&product, Figure::Memory, 1.0),
    ] {
        let found = tried(profile, &roofline, Changes::of(figure, 2.0), figure);
        assert!((times(&found) / expected - 1.0).abs() < 0.02, "{figure:?}: {}", times(&found));
        // The curve passes through the real step and never rises.
        let real = found.curve.iter().find(|(times, _)| *times == 1.0).unwrap().1;
        assert!((real / found.real.step.mid() - 1.0).abs() < 1e-9);
        assert!(
            found.curve.windows(2).all(|pair| pair[1].1.get() <= pair[0].1.get() * (1.0 + 1e-9)),
            "{:?}",
            found.curve
        );
    }
    // On the recording GPU it starts from the measurement, on others from the prediction; operations add up to the same
    // share of the step.
    for (slug, is_measured) in [("v100-sxm2-16gb", true), ("t4", false)] {
        let slug = GpuSlug::new(slug).unwrap();
        let found = what_if(&relu, &catalog, &Options::default(), &slug, &Changes::default(), Figure::Clock).unwrap();
        assert_eq!(found.real.step.is_measured(), is_measured);
        assert!(!found.changed.step.is_measured());
        assert!((times(&found) - 1.0).abs() < 1e-9, "{}", times(&found));
        let operation = |prediction: &Prediction| prediction.operations[0].time.unwrap().range.mid;
        assert!((operation(&found.changed) / operation(&found.real) - 1.0).abs() < 1e-9);
        assert_eq!(
            found.changed.throughput.unwrap().mid.get().round(),
            found.real.throughput.unwrap().mid.get().round()
        );
    }
}

/// Products in FP8 and BF16 on GPUs without tensor cores for them: both the step and the operation have a note, by
/// models and by the roofline. In TF32 such a GPU computes in FP32, as predicted: only the operation has a note.
#[test]
fn products_without_matrix_cores_are_warned_of() {
    let models = Some(std::sync::Arc::new(bundled::models()));
    for (dtype, precision, gpu, warning, is_said) in [
        ("float8_e4m3", Precision::Fp8, "a100-sxm4-40gb", "PyTorch does not run them", true),
        ("float8_e4m3", Precision::Fp8, "h100-sxm5-80gb", "", false),
        (
            "bfloat16",
            Precision::Bf16,
            "t4",
            "no bf16 tensor cores for the step's bf16 products, so these are predicted at FP32 speed",
            true,
        ),
        ("float32", Precision::Tf32, "v100-sxm2-16gb", "", false),
        ("float32", Precision::Fp32, "v100-sxm2-16gb", "", false),
    ] {
        let product = PRODUCT.replace("float32", dtype).replace(r#", "device_time_us": 92000"#, "");
        let mut recorded = profile("h100-sxm5-80gb", "{}", &product);
        recorded.workload.precision = Some(precision);
        for models in [None, models.clone()] {
            let options = Options { targets: vec![GpuSlug::new(gpu).unwrap()], models, ..Options::default() };
            let prediction = predict(&recorded, &catalog(), &options).unwrap().predictions.remove(0);
            let found = without_matrix_cores(&prediction).unwrap_or_default();
            assert_eq!(found.is_empty(), warning.is_empty(), "{dtype} on {gpu}: {found}");
            assert!(found.contains(warning), "{found}");
            let why = &prediction.operations[0].why;
            assert_eq!(why.contains("tensor cores: FP32 rate"), is_said, "{why}");
        }
    }
}

fn without_matrix_cores(prediction: &Prediction) -> Option<String> {
    let warning = prediction.warnings.iter().find(|one| one.code() == "no-matrix-cores");
    warning.map(Words::words)
}

/// A T4 with a measured step in BF16, and one that runs it in FP16.
#[test]
fn what_is_measured_or_changed_is_not_warned_of() {
    let product = PRODUCT.replace("float32", "bfloat16");
    let mut recorded = profile("t4", r#"{"duration_us": 92000, "device_busy_us": 92000}"#, &product);
    recorded.workload.precision = Some(Precision::Bf16);
    let here = on(&recorded, "t4");
    assert!(here.step.is_measured() && without_matrix_cores(&here).is_none(), "{:?}", here.warnings);
    assert!(without_matrix_cores(&on(&recorded, "v100-sxm2-16gb")).is_some());
    let changed = changed(&recorded, "v100-sxm2-16gb", Precision::Fp16).predictions.remove(0);
    assert_eq!(without_matrix_cores(&changed), None);
}
