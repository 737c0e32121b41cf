//! Black boxes: the export, predictions from it, and the shipped model.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::fmt::Write as _;
use std::sync::LazyLock;

use crate::program::Folder;
use habitat_tui::catalog::Catalog;
use habitat_tui::predict::blackbox::{BlackBoxError, BlackBoxModel, OperatorKind, OperatorTotals, predict};
use habitat_tui::predict::{Fits, Method};
use habitat_tui::profile::Profile;
use habitat_tui::report::words::joined;
use habitat_tui::store::bundled;
use habitat_tui::units::{GpuSlug, Micros};
use serde_json::Value;

static CATALOG: LazyLock<Catalog> = LazyLock::new(|| Catalog::new(bundled::gpus()));

fn slug(text: &str) -> GpuSlug {
    GpuSlug::new(text).unwrap()
}

/// A profile with a secret name, shapes, modules and kernels.
const SECRET: &str = r#"{"format": "habitat-profile", "version": 1,
  "workload": {"name": "project-lynx", "mode": "training", "batch_size": 48, "precision": "fp32", "parameter_count": 7654321},
  "origin": {"gpu": "v100-sxm2-16gb", "gpu_name": "Tesla V100-SXM2-16GB", "framework": "pytorch 9.8.7", "cuda": "12.34", "driver": "555.66"},
  "step": {"duration_us": 40000.0, "device_busy_us": 37000.0, "peak_memory_bytes": 4123456789, "samples": 31},
  "operations": [
    {"name": "aten::cudnn_convolution", "module": "lynx.encoder.stem", "phase": "forward", "count": 3, "inputs": [[48, 19, 224, 224], [67, 19, 7, 7]],
     "outputs": [[48, 67, 112, 112]], "dtype": "float32", "attributes": {"stride": 2}, "device_time_us": 4000.0,
     "kernels": [{"name": "volta_scudnn_128x64_relu", "duration_us": 4000.0, "grid": [4093, 1, 1], "block": [256, 1, 1]}]},
    {"name": "aten::convolution_backward", "module": "lynx.encoder.stem", "phase": "backward", "count": 2, "inputs": [[48, 67, 112, 112]], "device_time_us": 9000.0},
    {"name": "lynx::whisker", "module": "lynx.head", "phase": "forward", "inputs": [[48, 1009]], "device_time_us": 5000.0}]}"#;

fn secret() -> OperatorTotals {
    OperatorTotals::of_profile(&Profile::from_json(SECRET.as_bytes()).unwrap().0, None).unwrap()
}

#[test]
fn the_export_holds_nothing_else_of_the_profile() {
    let json = String::from_utf8(secret().to_json().unwrap()).unwrap();
    let value: Value = serde_json::from_str(&json).unwrap();
    // All keys and all values, so that any additional one fails here.
    let expected = serde_json::json!({
        "format": "habitat-black-box", "version": 1, "gpu": "v100-sxm2-16gb",
        "step_time_us": 40000.0, "batch_size": 48, "device_idle_us": 3000.0,
        "operators": [
            {"kind": "convolution", "device_time_us": 12000.0},
            {"kind": "convolution-backward", "device_time_us": 18000.0},
            {"kind": "other", "device_time_us": 5000.0}
        ]
    });
    assert_eq!(value, expected);
    for hidden in
        ["lynx", "aten", "224", "7654321", "4123456789", "pytorch", "12.34", "volta", "stride", "1009", "4093"]
    {
        assert!(SECRET.contains(hidden) && !json.contains(hidden), "{hidden} in {json}");
    }
    // Profiles that differ only in hidden parts give the same export.
    let renamed = SECRET.replace("lynx", "ocelot").replace("[67, 19, 7, 7]", "[31, 19, 5, 5]").replace("7654321", "5");
    let other = OperatorTotals::of_profile(&Profile::from_json(renamed.as_bytes()).unwrap().0, None).unwrap();
    assert_eq!(other.to_json().unwrap(), json.as_bytes());
}

#[test]
fn a_profile_without_what_is_needed_is_refused() {
    let refused = |from: &str, to: &str| {
        let bad = SECRET.replace(from, to);
        assert_ne!(bad, SECRET);
        OperatorTotals::of_profile(&Profile::from_json(bad.as_bytes()).unwrap().0, None).unwrap_err().to_string()
    };
    assert!(refused(r#""gpu": "v100-sxm2-16gb", "#, "").contains("--origin"));
    assert!(refused(r#""batch_size": 48, "#, "").contains("--batch-size"));
    assert!(refused(r#""duration_us": 40000.0, "device_busy_us": 37000.0, "#, "").contains("step time"));
    assert!(refused("\"training\"", "\"inference\"").contains("training steps"));
    assert!(refused("\"fp32\"", "\"amp-fp16\"").contains("recorded in amp-fp16"));
    // The step has communication in an operator of another kind.
    assert!(refused("lynx::whisker", "ncclDevKernel_AllReduce").contains("one of several GPUs"));
    let shapes = Profile::from_json(SECRET.as_bytes()).unwrap().0;
    let mut bare = shapes.clone();
    bare.operations.iter_mut().for_each(|operation| operation.device_time = None);
    assert!(OperatorTotals::of_profile(&bare, None).unwrap_err().to_string().contains("device time"));
}

#[test]
fn the_shipped_model_predicts_ordinary_predictions() {
    let model = bundled::black_box();
    let totals = secret();
    let all = predict(&totals, &model, &CATALOG, &[], None).unwrap();
    let gpus: Vec<&str> = all.predictions.iter().map(|prediction| prediction.gpu.slug.as_str()).collect();
    assert_eq!(gpus, ["v100-sxm2-16gb", "k80", "m60", "t4"]);
    let [v100, rest @ ..] = &all.predictions[..] else { panic!("{gpus:?}") };
    assert!(v100.step.is_measured() && v100.step.mid() == totals.step);
    for prediction in rest {
        let step = prediction.step.as_estimate();
        assert_eq!(step.method, Method::BlackBox);
        // None of these GPUs is as fast as a V100 at convolutions.
        let [low, mid, high] = [step.range.low, step.range.mid, step.range.high].map(Micros::get);
        assert!(low < mid && mid < high && mid > totals.step.get(), "{step:?}");
        let throughput = prediction.throughput.as_ref().unwrap().mid.get();
        assert!((throughput * step.range.mid.as_secs() / 48.0 - 1.0).abs() < 1e-9);
        // It ran on 16 GB; its memory is otherwise unknown.
        let enough = prediction.gpu.slug.as_str() == "t4";
        assert_eq!(prediction.memory.fits, if enough { Fits::Yes } else { Fits::Unknown });
        assert!(prediction.operations.is_empty());
    }
    assert!(joined(&all.notes, "; ").contains("TensorFlow"), "{:?}", all.notes);
}

/// The same step twice as long in all its parts takes about twice as long elsewhere.
#[test]
fn longer_steps_take_longer() {
    let model = bundled::black_box();
    let target = [slug("k80")];
    let on = |totals: &OperatorTotals| {
        predict(totals, &model, &CATALOG, &target, None).unwrap().predictions[0].step.mid().get()
    };
    let totals = secret();
    let double = |time: Micros| Micros::new(time.get() * 2.0).unwrap();
    let kinds = totals.kinds.iter().map(|(&kind, &time)| (kind, double(time))).collect();
    let twice =
        OperatorTotals::new(totals.gpu.clone(), double(totals.step), 96, totals.idle.map(double), kinds).unwrap();
    let ratio = on(&twice) / on(&totals);
    assert!((1.7..2.3).contains(&ratio), "{ratio}");
}

#[test]
fn unknown_gpus_are_named_with_the_known_ones() {
    let model = bundled::black_box();
    let totals = secret();
    let target = predict(&totals, &model, &CATALOG, &[slug("h100-sxm5-80gb")], None).unwrap_err();
    assert!(
        matches!(target, BlackBoxError::UnknownTarget { .. }) && target.to_string().contains("k80, m60, t4"),
        "{target}"
    );
    // The same board with twice the memory counts as the same.
    let larger = OperatorTotals { gpu: slug("v100-sxm2-32gb"), ..totals.clone() };
    let [here, there] =
        [&totals, &larger].map(|totals| predict(totals, &model, &CATALOG, &[slug("t4")], None).unwrap());
    assert_eq!(here.predictions[0].step, there.predictions[0].step);
    assert!(there.notes.iter().any(|note| note.code() == "treated-as"), "{:?}", there.notes);
    let elsewhere = OperatorTotals { gpu: slug("l4"), ..totals };
    let anchor = predict(&elsewhere, &model, &CATALOG, &[], None).unwrap_err().to_string();
    assert!(anchor.contains("cannot start from l4") && anchor.contains("v100-sxm2-16gb"), "{anchor}");
}

#[test]
fn the_shipped_file_is_small_and_comes_back() {
    let model = bundled::black_box();
    let json = model.to_json().unwrap();
    assert!(json.len() < 1_500_000, "{}", json.len());
    assert_eq!(BlackBoxModel::from_json(&json).unwrap(), model);
    for anchor in model.anchors() {
        for (target, factors) in model.anchor(&anchor).unwrap().factors() {
            assert!(factors.iter().all(|factor| (0.0..50.0).contains(factor)), "{anchor} → {target}: {factors:?}");
        }
        assert!(model.sizes(&anchor).is_some());
    }
}

// The program.

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

#[test]
fn from_a_profile_to_predictions_and_a_plan() {
    let folder = Folder::new();
    folder.write("s.habitat.json", SECRET);
    let told = folder.ok(&["export", "--black-box", "s.habitat.json", "-o", "s.blackbox.json"]);
    assert!(told.contains("3 kinds"), "{told}");
    assert_eq!(std::fs::read(folder.0.path().join("s.blackbox.json")).unwrap(), secret().to_json().unwrap());
    assert!(
        folder.error(&["export", "--black-box", "s.habitat.json", "-o", "s.blackbox.json"]).contains("s.blackbox.json")
    );
    assert_eq!(folder.ok(&["export", "--black-box", "s.habitat.json"]).as_bytes(), secret().to_json().unwrap());
    let json = folder.ok(&["predict", "--black-box", "s.blackbox.json", "--to", "t4", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["format"], &json["predictions"][0]["method"]),
        (&"habitat-predictions".into(), &"black-box".into())
    );
    assert_eq!(json["predictions"][0]["fits_in_memory"], "yes");
    let text = folder.ok(&["predict", "--black-box", "s.blackbox.json"]);
    assert!(text.contains("black box, 3 kinds") && text.contains("note: black box: fitted on"), "{text}");
    let csv = folder.ok(&["predict", "--black-box", "s.blackbox.json", "--csv"]);
    assert_eq!(csv.lines().count(), 5);
    let plan = ["plan", "--black-box", "s.blackbox.json", "--samples", "1e6", "--json"];
    let plan: Value = serde_json::from_str(&folder.ok(&plan)).unwrap();
    let gpu = plan["parts"][0]["gpu"].as_str().unwrap();
    assert!(["t4", "v100-sxm2-16gb"].contains(&gpu), "{plan}");
    let small = ["predict", "--black-box", "s.blackbox.json", "--peak-memory", "10GB", "--to", "m60,t4", "--json"];
    let small: Value = serde_json::from_str(&folder.ok(&small)).unwrap();
    let fits = [0, 1].map(|index| small["predictions"][index]["fits_in_memory"].as_str().unwrap());
    assert_eq!(fits, ["no", "yes"]);
    let unknown = folder.error(&["predict", "--black-box", "s.blackbox.json", "--to", "h100-sxm5-80gb"]);
    assert!(unknown.contains("s.blackbox.json") && unknown.contains("k80"), "{unknown}");
    assert!(folder.error(&["predict", "--black-box", "s.habitat.json"]).contains("export --black-box"));
    assert!(folder.error(&["predict", "s.habitat.json", "--black-box", "s.blackbox.json"]).contains("cannot be used"));
}

#[test]
fn between_two_batch_sizes() {
    let folder = Folder::new();
    let small = secret();
    let times = |factor: f64, time: Micros| Micros::new(time.get() * factor).unwrap();
    let kinds = small.kinds.iter().map(|(&kind, &time)| (kind, times(3.0, time))).collect();
    let large = OperatorTotals::new(small.gpu.clone(), times(2.9, small.step), 144, small.idle, kinds).unwrap();
    folder.write("small.blackbox.json", &text(small.to_json().unwrap()));
    folder.write("large.blackbox.json", &text(large.to_json().unwrap()));
    let mid = |args: &[&str]| {
        let all = [&["predict", "--json", "--to", "t4", "--black-box"], args].concat();
        let json: Value = serde_json::from_str(&folder.ok(&all)).unwrap();
        json["predictions"][0]["step_time_us"]["mid"].as_f64().unwrap()
    };
    let (low, high) = (mid(&["small.blackbox.json"]), mid(&["large.blackbox.json"]));
    let both = ["small.blackbox.json", "--up-to", "large.blackbox.json"];
    let half = mid(&[&both[..], &["--at-batch", "96"]].concat());
    let share = (half - low) / (high - low);
    assert!((0.4..0.6).contains(&share), "{share}");
    let all = [&["predict", "--black-box"], &both[..]].concat();
    assert!(folder.error(&[&all[..], &["--at-batch", "200"]].concat()).contains("between 48 and 144"));
    assert!(folder.error(&all).contains("--at-batch"));
    assert!(folder.error(&[&all[..], &["--at-pixels", "64", "--pixels", "32,128"]].concat()).contains("must be equal"));
}

/// Three networks that take a third as long on a V100 as on a T4.
#[test]
fn a_model_is_fitted_to_own_tables() {
    let folder = Folder::new();
    let heading = "exp_name,instance_name,model,dataset,batchsize,batch_latency";
    let mut anchor = format!("{heading},p3.2xlarge,Device_IDLE,Device_Conv2D,Device_Conv2DBackpropInput\n");
    let mut latencies = format!("{heading}\n");
    for (network, forward) in [("A", 0.2), ("B", 0.4), ("C", 0.6)] {
        for batch in [16, 32, 64] {
            let step = 500.0 * f64::from(batch);
            let row = format!("exp01,g4dn.xlarge,{network},64dataset,{batch},{}", step / 1e6);
            writeln!(latencies, "{row}").unwrap();
            // Operator times cover two steps.
            let (forward, backward) = (2.0 * step * forward, 2.0 * step * (1.0 - forward));
            writeln!(anchor, "{row},{},0,{forward},{backward}", step / 3.0).unwrap();
        }
    }
    folder.write("tables/anchor_t4.csv", &anchor);
    folder.write("tables/latencies.csv", &latencies);
    let fit = ["fit", "black-box", "tables", "--out", "mine"];
    let told = folder.ok(&fit);
    assert!(told.contains("9 workloads of 3 convolutional networks") && told.contains("on t4"), "{told}");
    assert!(folder.error(&fit).contains("blackbox.json"));
    folder.ok(&[&fit[..], &["--force"]].concat());

    let time = |micros: f64| Micros::new(micros).unwrap();
    let kinds = [(OperatorKind::Convolution, time(8000.0)), (OperatorKind::ConvolutionBackward, time(8000.0))];
    let totals = OperatorTotals::new(slug("t4"), time(16_000.0), 32, None, kinds.into()).unwrap();
    folder.write("t4.blackbox.json", &text(totals.to_json().unwrap()));
    let args = ["predict", "--black-box", "t4.blackbox.json", "--models", "mine", "--to", "v100-sxm2-16gb"];
    let found = folder.json(&args);
    let step = found["predictions"][0]["step_time_us"]["mid"].as_f64().unwrap();
    assert!((step / 16_000.0 * 3.0 - 1.0).abs() < 0.1, "{step}");

    folder.write("few/anchor_t4.csv", &anchor.replace(",C,", ",B,"));
    folder.write("few/latencies.csv", &latencies);
    assert!(folder.error(&["fit", "black-box", "few", "--out", "none"]).contains("rows of 2 networks"));
    assert!(folder.error(&["fit", "black-box", ".", "--out", "none"]).contains("anchor_"));
}
