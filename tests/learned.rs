//! The shipped learned models: known answers, the effect of an origin, and their limits.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use habitat_tui::catalog::hypothetical::{Changes, Figure};
use habitat_tui::catalog::{Calibration, Catalog};
use habitat_tui::predict::decoded::Decoded;
use habitat_tui::predict::efficiency::{Efficiency, Iterations};
use habitat_tui::predict::learned::Models;
use habitat_tui::predict::rate::Rates;
use habitat_tui::predict::{Finding, Method, MethodChoice, Mode, Options, Prediction, Predictions, predict};
use habitat_tui::profile::{Profile, Sample};
use habitat_tui::report::words::joined;
use habitat_tui::store::bundled;
use habitat_tui::units::GpuSlug;
use proptest::prelude::*;

const V100: &str = "v100-pcie-32gb";
const H100: &str = "h100-sxm5-80gb";

static CATALOG: LazyLock<Catalog> = LazyLock::new(|| Catalog::new(bundled::gpus()));
static MODELS: LazyLock<Arc<Models>> = LazyLock::new(|| Arc::new(bundled::models()));

/// A profile of these operations, with `rest` as additional fields.
fn profile(mode: &str, rest: &str, operations: &[String]) -> Profile {
    let json = format!(
        r#"{{"format": "habitat-profile", "version": 1,
        "workload": {{"name": "w", "mode": "{mode}", "precision": "fp32"}}{rest}, "operations": [{}]}}"#,
        operations.join(", ")
    );
    Profile::from_json(json.as_bytes()).unwrap().0
}

/// `rows × 1024` by `1024 × 4096`.
fn product(rows: u64, dtype: &str, rest: &str) -> String {
    format!(
        r#"{{"name": "aten::mm", "phase": "forward", "inputs": [[{rows}, 1024], [1024, 4096]], "dtype": "{dtype}"{rest}}}"#
    )
}

fn relu(rest: &str) -> String {
    format!(
        r#"{{"name": "aten::relu", "phase": "forward", "inputs": [[4096, 4096]], "outputs": [[4096, 4096]], "dtype": "float32"{rest}}}"#
    )
}

fn two() -> Vec<String> {
    vec![product(4096, "float32", ""), relu("")]
}

fn answers(profile: &Profile, gpus: &[&str], method: MethodChoice, models: &Arc<Models>) -> Predictions {
    let targets = gpus.iter().map(|gpu| GpuSlug::new(*gpu).unwrap()).collect();
    let options = Options { targets, method, models: Some(Arc::clone(models)), ..Options::default() };
    predict(profile, &CATALOG, &options).unwrap()
}

fn on(profile: &Profile, gpu: &str) -> Prediction {
    answers(profile, &[gpu], MethodChoice::Auto, &MODELS).predictions.remove(0)
}

fn methods(prediction: &Prediction) -> Vec<Method> {
    prediction.operations.iter().map(|operation| operation.time.as_ref().unwrap().method).collect()
}

/// One operation's time in microseconds.
fn time(prediction: &Prediction, operation: usize) -> f64 {
    prediction.operations[operation].time.as_ref().unwrap().range.mid.get()
}

fn step(prediction: &Prediction) -> f64 {
    prediction.step.mid().get()
}

/// High end of the step over its low end.
fn width(prediction: &Prediction) -> f64 {
    let step = prediction.step.as_estimate();
    step.range.high / step.range.low
}

/// 34.4 GFLOP at about 13 TFLOP/s, and 134 MB at about 780 GB/s, as in `NeuSight`'s tables for such shapes on a V100.
#[test]
fn shapes_alone_come_near_what_was_measured() {
    let shapes = profile("inference", "", &two());
    let v100 = on(&shapes, V100);
    assert_eq!(methods(&v100), [Method::Learned; 2]);
    assert_eq!(v100.step.as_estimate().method, Method::Learned);
    assert!((time(&v100, 0) / 2600.0 - 1.0).abs() < 0.2, "{}", time(&v100, 0));
    assert!((time(&v100, 1) / 172.0 - 1.0).abs() < 0.2, "{}", time(&v100, 1));
    let (h100, t4) = (on(&shapes, H100), on(&shapes, "t4"));
    for operation in 0..2 {
        let times = [&h100, &v100, &t4].map(|prediction| time(prediction, operation));
        assert!(times.is_sorted() && times[0] < times[2], "{times:?}");
    }
    assert!(!v100.operations.iter().any(|operation| operation.is_far));
}

#[test]
fn the_step_is_its_operators_times_what_steps_take_of_them() {
    let (training, inference) = (profile("training", "", &two()), profile("inference", "", &two()));
    for gpu in [V100, H100, "rtx-3090", "mi100"] {
        let spec = CATALOG.find(gpu).unwrap();
        for (profile, mode) in [(&training, Mode::Training), (&inference, Mode::Inference)] {
            let found = on(profile, gpu);
            let sum = time(&found, 0) + time(&found, 1);
            let models = MODELS.answering(&Decoded::all(profile), profile.workload.precision, None);
            // The host keeps up.
            let expected = sum * models.step_factor(spec, mode);
            assert!((step(&found) / expected - 1.0).abs() < 1e-9, "{gpu}");
        }
        let ratio = step(&on(&training, gpu)) / step(&on(&inference, gpu));
        assert!((ratio / MODELS.steps().training - 1.0).abs() < 1e-3, "{gpu}: {ratio}");
    }
}

/// In FP32 a convolution is a geometric mean of both kinds of models, and no other operator is; in TF32 the efficiency
/// model answers for everything.
#[test]
fn convolutions_in_fp32_are_a_mean_of_both_models() {
    let convolution = r#"{"name": "aten::convolution", "phase": "forward", "inputs": [[32, 64, 56, 56], [64, 64, 3, 3]], "dtype": "float32"}"#;
    let shapes = profile("inference", "", &[convolution.to_owned(), product(4096, "float32", "")]);
    let alone = Arc::new(Models::new(MODELS.ensembles().clone(), MODELS.steps().clone()));
    let own = answers(&shapes, &[V100], MethodChoice::Auto, &alone).predictions.remove(0);
    let both = on(&shapes, V100);
    let (decoded, gpu) = (Decoded::all(&shapes), Rates::new(CATALOG.find(V100).unwrap()));
    let efficiency = MODELS.efficiency().unwrap().columns(&decoded).on(&gpu);
    let mean = time(&own, 0).powf(0.2) * efficiency[0].unwrap().time.get().powf(0.8);
    assert!((time(&both, 0) / mean - 1.0).abs() < 1e-9, "{} {mean}", time(&both, 0));
    assert!((time(&both, 0) / time(&own, 0) - 1.0).abs() > 0.01, "both models say the same");
    assert_eq!(both.operations[0].why, "convolution: mean of two models on shapes");
    assert_eq!(time(&both, 1), time(&own, 1));
    assert_eq!(both.operations[1].why, own.operations[1].why);
}

/// A step with an optimizer is a whole iteration; the training steps behind the operator models had none. AMD's GPUs
/// keep the range of unmeasured GPUs.
#[test]
fn whole_iterations_have_a_factor_and_a_range_of_their_own() {
    let update =
        r#"{"name": "aten::_foreach_add_", "phase": "optimizer", "inputs": [[1024, 4096]], "dtype": "float32"}"#;
    let whole = profile("training", "", &[two(), vec![update.to_owned()]].concat());
    let iterations = MODELS.efficiency().unwrap().iterations.unwrap();
    for (gpu, is_own) in [("rtx-3090", true), ("mi100", false)] {
        let found = on(&whole, gpu);
        let sum: f64 = (0..3).map(|operation| time(&found, operation)).sum();
        let expected = sum * iterations.factor;
        assert!((step(&found) / expected - 1.0).abs() < 1e-9, "{gpu}");
        let spread = iterations.unseen;
        assert_eq!((width(&found) / (spread.high / spread.low) - 1.0).abs() < 1e-6, is_own, "{gpu}");
    }
    // The factor is reported if it changes a figure.
    let efficiency = |factor: f64| Efficiency {
        iterations: Some(Iterations { factor, ..iterations }),
        ..MODELS.efficiency().unwrap().clone()
    };
    for (factor, is_said) in [(0.9, true), (1.001, false)] {
        let models =
            Models::new(MODELS.ensembles().clone(), MODELS.steps().clone()).with_efficiency(efficiency(factor));
        let notes = answers(&whole, &["rtx-3090"], MethodChoice::Auto, &Arc::new(models)).predictions.remove(0).notes;
        let told = notes.iter().any(|note| matches!(note, Finding::StepFactor { iterations: true, .. }));
        assert_eq!(told, is_said, "{notes:?}");
    }
}

/// Both were measured on a V100, one with its launch.
#[test]
fn a_traced_origin_corrects_each_operator() {
    let launch = r#", "device_time_us": 172, "kernels": [{"name": "relu", "duration_us": 172, "grid": [32768, 1, 1], "block": [128, 1, 1], "registers_per_thread": 16}]"#;
    let rest = format!(r#", "origin": {{"gpu": "{V100}"}}, "step": {{"duration_us": 3000, "device_busy_us": 2900}}"#);
    let traced = |time: u32| {
        let product = product(4096, "float32", &format!(r#", "device_time_us": {time}"#));
        profile("training", &rest, &[product, relu(launch)])
    };
    let auto = on(&traced(2700), H100);
    assert_eq!(methods(&auto), [Method::LearnedRatio, Method::WaveScaling]);
    let learned = answers(&traced(2700), &[H100], MethodChoice::Learned, &MODELS).predictions.remove(0);
    assert_eq!(methods(&learned), [Method::LearnedRatio; 2]);
    assert_eq!(time(&auto, 0), time(&learned, 0));
    // The deviation is shared in part: more if it took longer, up to a limit.
    let ratio = time(&on(&traced(5400), H100), 0) / time(&auto, 0);
    let shared = ratio.log2();
    assert!((0.0..=1.0).contains(&shared), "{shared}");
    assert!(auto.operations[0].why.contains("as measured on the origin"), "{}", auto.operations[0].why);
    // The measured GPU keeps its measurement.
    assert!(on(&traced(2700), V100).step.is_measured());
}

#[test]
fn operators_measured_apart_move_the_step_by_the_shared_power_of_its_deviation() {
    let recorded = |gpu: &str, duration: f64| {
        let rest = format!(r#", "origin": {{"gpu": "{gpu}"}}, "step": {{"duration_us": {duration}}}"#);
        profile("training", &rest, &two())
    };
    let shared = MODELS.steps().shared_deviation;
    assert!(0.0 < shared && shared <= 1.0, "{shared}");
    let alone = on(&profile("training", "", &two()), H100);
    let expected = step(&on(&profile("training", "", &two()), V100));
    for factor in [0.5, 1.0, 3.0] {
        let found = answers(&recorded(V100, factor * expected), &[H100], MethodChoice::Auto, &MODELS);
        // Alone, it includes the host's part, which a measured step already has.
        let moved = step(&found.predictions[0]) / step(&alone);
        let expected = f64::powf(factor, shared);
        assert!((moved / expected - 1.0).abs() < 1e-3, "{factor}: {moved}");
        let Finding::ScaledToRecorded { factor, .. } = found.notes[0] else { panic!("{:?}", found.notes) };
        assert!((factor / expected - 1.0).abs() < 1e-3, "{factor}");
        assert_eq!(found.predictions[0].step.as_estimate().method, Method::LearnedRatio);
    }
    // A T4 is power-limited: how far it slows down is its own property.
    for duration in [5000.0, 50_000.0] {
        let found = answers(&recorded("t4", duration), &[H100], MethodChoice::Auto, &MODELS);
        assert!((step(&found.predictions[0]) / step(&alone) - 1.0).abs() < 1e-3);
        assert!(matches!(found.notes[0], Finding::Uncorrected { .. }), "{:?}", found.notes);
    }
}

#[test]
fn ranges_hold_the_middle_on_every_gpu() {
    let shapes = profile("training", "", &[two(), vec![product(100, "float16", "")]].concat());
    for prediction in answers(&shapes, &[], MethodChoice::Auto, &MODELS).predictions {
        let operations = prediction.operations.iter().filter_map(|operation| operation.time);
        for estimate in operations.chain([prediction.step.as_estimate()]) {
            let ends = [estimate.range.low.get(), estimate.range.mid.get(), estimate.range.high.get()];
            assert!(ends.is_sorted() && ends[0] > 0.0 && ends[2].is_finite(), "{}: {ends:?}", prediction.gpu.slug);
        }
    }
}

#[test]
fn what_was_not_trained_on_has_wider_ranges_and_says_so() {
    let one = |rows, dtype| on(&profile("inference", "", &[product(rows, dtype, "")]), "a100-sxm4-40gb");
    let known = one(4096, "float32");
    let noted = |prediction: &Prediction| prediction.notes.contains(&Finding::OutsideTraining { share: 1.0 });
    assert!(!known.operations[0].is_far && !noted(&known));
    // Another precision, and a single row although the measured products have dozens.
    for other in [one(4096, "bfloat16"), one(1, "float32")] {
        assert!(other.operations[0].is_far && noted(&other), "{:?}", other.notes);
        assert!(width(&other) > 1.05 * width(&known), "{} {}", width(&other), width(&known));
        assert!(other.operations[0].why.contains("outside the training data"));
    }
    // Beyond the largest sizes, time is proportional to the arithmetic.
    let ratio = step(&one(10_000_000, "float32")) / step(&one(5_000_000, "float32"));
    assert!((ratio - 2.0).abs() < 0.05, "{ratio}");
}

#[test]
fn what_is_remembered_is_what_would_be_computed() {
    let sample = bundled::sample(Sample::ResNet50V100);
    let shapes = Options { ignore_origin: true, ..Options::default() };
    let ask = |models: &Arc<Models>, options: &Options| {
        predict(&sample, &CATALOG, &Options { models: Some(Arc::clone(models)), ..options.clone() }).unwrap()
    };
    let fresh = Arc::new(bundled::models());
    let cold = ask(&fresh, &shapes);
    assert_eq!(ask(&fresh, &shapes), cold);
    // A cache filled by another request.
    let warmed = Arc::new(bundled::models());
    answers(&profile("training", "", &two()), &[], MethodChoice::Auto, &warmed);
    ask(&warmed, &Options::default());
    assert_eq!(ask(&warmed, &shapes), cold);

    // The same slug with other figures is another GPU.
    let real = CATALOG.find(H100).unwrap();
    let version = |times: f64| real.hypothetical(real.slug.clone(), &Changes::of(Figure::Bandwidth, times));
    let step = |models: &Arc<Models>, times: f64| {
        let options = Options { targets: vec![real.slug.clone()], models: Some(Arc::clone(models)), ..shapes.clone() };
        predict(&sample, &Catalog::new([version(times)]), &options).unwrap().predictions.remove(0).step.mid().get()
    };
    let slow = step(&warmed, 0.25);
    assert!(slow > 1.05 * step(&warmed, 1.0) && slow == step(&Arc::new(bundled::models()), 0.25), "{slow}");

    // An operator alone takes longer than in a step, and the cache keeps them apart.
    let operation = profile("inference", "", &two()).operations.remove(0);
    let v100 = CATALOG.find(V100).unwrap();
    let (decoded, rates) = ([Decoded::new(0, &operation, None)], Rates::new(v100));
    let table =
        |models: &Models| models.columns(&decoded, None, None).on(&[&rates], |_, _| true).unwrap()[0][0].unwrap();
    let alone = |models: &Models| models.alone(&[(&operation, v100)]).unwrap()[0].unwrap();
    let (first, then) = (bundled::models(), bundled::models());
    assert_eq!((table(&first), alone(&first)), {
        let alone = alone(&then);
        (table(&then), alone)
    });
    assert!(alone(&first).time.get() > table(&first).time.get());
}

#[test]
fn models_survive_their_file() {
    let metadata = BTreeMap::from([("seed".to_owned(), "7".to_owned())]);
    let bytes = MODELS.to_bytes(metadata.clone()).unwrap();
    let read = Models::from_bytes(&bytes).unwrap();
    // This part is in another file.
    let read = read.with_efficiency(MODELS.efficiency().unwrap().clone());
    assert_eq!(read, **MODELS);
    assert_eq!(read.to_bytes(metadata.clone()).unwrap(), bytes);
    assert!(Models::is_of(&bytes, &metadata));
    assert!(!Models::is_of(&bytes, &BTreeMap::from([("seed".to_owned(), "8".to_owned())])));
}

#[test]
fn other_files_are_refused_with_the_reason() {
    let bytes = MODELS.to_bytes(BTreeMap::new()).unwrap();
    let refused = |bytes: &[u8]| Models::from_bytes(bytes).unwrap_err().to_string();
    for foreign in [&bytes[..bytes.len() - 1], &bytes[..100], b"", b"PK\x03\x04 not weights", &[0xff; 64]] {
        assert!(!refused(foreign).is_empty());
    }
    let replaced = |from: &str, to: &str| {
        assert_eq!(from.len(), to.len());
        let place = bytes.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
        let mut bytes = bytes.clone();
        bytes[place..place + to.len()].copy_from_slice(to.as_bytes());
        refused(&bytes)
    };
    assert!(replaced(r#"\"version\":1"#, r#"\"version\":9"#).contains("version 9"));
    assert!(replaced("\"facts\"", "\"facto\"").contains("facts"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn damaged_files_never_panic(end in any::<prop::sample::Index>(), flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6), head in any::<bool>()) {
        static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| MODELS.to_bytes(BTreeMap::new()).unwrap());
        let cut = end.index(BYTES.len());
        prop_assert!(Models::from_bytes(&BYTES[..cut]).is_err());
        let mut bytes = BYTES.clone();
        for (place, byte) in flips {
            // The header is a small part of the file, and the part with most of the parsing.
            let place = place.index(if head { 20_000 } else { bytes.len() });
            bytes[place] ^= byte;
        }
        let _ = Models::from_bytes(&bytes);
    }

    #[test]
    fn any_sizes_are_predicted_or_left_out(sizes in prop::array::uniform4(prop_oneof![0..9_u64, 1..100_000_u64, any::<u64>()])) {
        let [a, b, c, d] = sizes;
        let mut hostile = profile("training", "", &[two(), vec![relu("")]].concat());
        hostile.operations[0].inputs = vec![vec![a, b], vec![b, c]];
        hostile.operations[1].inputs = vec![vec![a, b, c, d], vec![b, c, d]];
        hostile.operations[1].outputs.clear();
        let found = answers(&hostile, &[V100, "mi300x"], MethodChoice::Auto, &MODELS);
        for prediction in found.predictions {
            prop_assert!(prediction.step.mid().get() > 0.0 && prediction.step.mid().get().is_finite());
        }
    }
}

/// Half the rate and half the bandwidth in the rules: for an unmeasured GPU the models follow; for a GPU of the
/// training data their measurements count more.
#[test]
fn a_calibration_counts_on_gpus_that_were_not_trained_on() {
    let shapes = profile("inference", "", &two());
    let times = |slug: &str, calibration: Option<String>| {
        let mut catalog = Catalog::new(bundled::gpus());
        if let Some(text) = calibration {
            catalog.calibrate(Calibration::parse(&text).unwrap()).unwrap();
        }
        let options = Options {
            targets: vec![GpuSlug::new(slug).unwrap()],
            models: Some(Arc::clone(&MODELS)),
            ..Options::default()
        };
        let found = predict(&shapes, &catalog, &options).unwrap().predictions.remove(0);
        (time(&found, 0), time(&found, 1), joined(&found.notes, "; "))
    };
    let calibration = |slug: &str, tflops: f64, gbps: f64| {
        let figure = |value: f64| format!("{{ median = {value}, low = {value}, high = {value}, regions = 9 }}");
        format!(
            "format = \"habitat-calibration\"\nversion = 1\ngpu = \"{slug}\"\ndate = \"2026-11-21T10:00:00Z\"\nprogram = \"test\"\n\
             [device]\nname = \"x\"\ncompute_capability = \"8.6\"\nsm_count = 82\nmemory_bytes = 1\n\
             [bandwidth]\nbuffer_bytes = 1\ncopy_gbps = {}\n\
             [[product]]\ndtype = \"fp32\"\nshape = \"1\"\nsoftware = \"x\"\ntflops = {}\n",
            figure(gbps),
            figure(tflops)
        )
    };
    for (slug, counts) in [("rtx-3090", true), (V100, false)] {
        let spec = CATALOG.find(slug).unwrap();
        let tflops = Rates::new(spec).trained_fp32.sustained.get() / 2e12;
        let gbps = Rates::new(spec).streaming.value.get() / 2e9;
        let (before, after) = (times(slug, None), times(slug, Some(calibration(slug, tflops, gbps))));
        assert!(after.2.contains("calibrated on 2026-11-21") && !before.2.contains("calibrated"), "{}", after.2);
        let ratios = [after.0 / before.0, after.1 / before.1];
        if counts {
            assert!(ratios.iter().all(|ratio| (1.6..2.3).contains(ratio)), "{slug}: {ratios:?}");
        } else {
            assert_eq!(ratios, [1.0, 1.0], "{slug}");
        }
    }
}
