//! Black boxes: what is exported, what is predicted from it, and the model that is shipped.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[path = "common/program.rs"]
mod program;

use std::path::PathBuf;
use std::sync::LazyLock;

use habitat_tui::catalog::Catalog;
use habitat_tui::learn::blackbox::sizes;
use habitat_tui::learn::blackbox::{cross_validate, fit, judge};
use habitat_tui::predict::blackbox::{BlackBoxError, BlackBoxModel, OperatorTotals, Recorded, predict};
use habitat_tui::predict::{Fits, Method};
use habitat_tui::profile::Profile;
use habitat_tui::store::{bundled, profet};
use habitat_tui::units::{GpuSlug, Micros};
use program::{Folder, shared};
use serde_json::Value;

static CATALOG: LazyLock<Catalog> = LazyLock::new(|| Catalog::new(bundled::gpus()));

/// PROFET's tables, where there are any.
fn data() -> Option<PathBuf> {
    shared("profet").map(PathBuf::from)
}

fn slug(text: &str) -> GpuSlug {
    GpuSlug::new(text).unwrap()
}

/// Every n-th repetition: the nine say nearly the same.
fn first_repetition(rows: Vec<Recorded>) -> Vec<Recorded> {
    rows.into_iter().filter(|row| &*row.repetition == "exp01").collect()
}

/// A profile with a name, shapes, modules and kernels that nobody else is to see.
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
    // All keys and all values, so that whatever is added fails here.
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
    // What differs only in what is hidden is exported alike.
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
    // The step holds communication that no kind of operator does.
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
        // Nothing here is as fast as a V100 at convolutions.
        let [low, mid, high] = [step.low, step.mid, step.high].map(Micros::get);
        assert!(low < mid && mid < high && mid > totals.step.get(), "{step:?}");
        let throughput = prediction.throughput.as_ref().unwrap().mid.get();
        assert!((throughput * step.mid.as_secs() / 48.0 - 1.0).abs() < 1e-9);
        // It ran on 16 GB; nothing else is known of its memory.
        let enough = prediction.gpu.slug.as_str() == "t4";
        assert_eq!(prediction.memory.fits, if enough { Fits::Yes } else { Fits::Unknown });
        assert!(prediction.operations.is_empty());
    }
    assert!(all.notes.iter().any(|note| note.contains("TensorFlow")), "{:?}", all.notes);
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
    // The same board with twice the memory is no other.
    let larger = OperatorTotals { gpu: slug("v100-sxm2-32gb"), ..totals.clone() };
    let [here, there] =
        [&totals, &larger].map(|totals| predict(totals, &model, &CATALOG, &[slug("t4")], None).unwrap());
    assert_eq!(here.predictions[0].step, there.predictions[0].step);
    assert!(there.notes.iter().any(|note| note.contains("memory size alone")), "{:?}", there.notes);
    let elsewhere = OperatorTotals { gpu: slug("l4"), ..totals };
    let anchor = predict(&elsewhere, &model, &CATALOG, &[], None).unwrap_err().to_string();
    assert!(anchor.contains("no anchor l4") && anchor.contains("v100-sxm2-16gb"), "{anchor}");
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

/// The shipped model is what training on the data gives, to the byte.
#[test]
fn the_shipped_model_is_that_of_the_data() {
    let Some(dir) = data() else { return };
    let rows = profet::read(&dir).unwrap();
    assert_eq!(rows.len(), 4 * 2178);
    let shipped = bundled::black_box();
    let sizes = sizes::fit(&profet::read_latencies(&dir).unwrap());
    let all: Vec<&Recorded> = rows.iter().collect();
    let again = fit(&all, &CATALOG, shipped.trained_on(), sizes).unwrap();
    assert_eq!(again.settings(), shipped.settings());
    // Other processors may round the last digit otherwise: predictions, not bytes, are compared.
    let some: Vec<&Recorded> = rows.iter().step_by(97).collect();
    for (a, b) in judge(&again, &some).iter().zip(judge(&shipped, &some)) {
        for (a, b) in a.predicted.iter().zip(b.predicted) {
            assert!((a / b - 1.0).abs() < 1e-3, "{}: {a} {b}", some[0].label());
        }
    }
}

/// Networks left out, one repetition: the aims, with what nine repetitions add.
#[test]
fn networks_that_were_left_out_are_predicted() {
    let Some(dir) = data() else { return };
    let rows = first_repetition(profet::read(&dir).unwrap());
    let keep = ["VGG11", "VGG16", "ResNet18", "ResNet50", "AlexNet", "InceptionV3"];
    let rows: Vec<Recorded> = rows.into_iter().filter(|row| keep.contains(&&*row.network)).collect();
    let mut groups = Vec::new();
    let judged = cross_validate(&rows, &CATALOG, &str::to_owned, &mut |name, _| groups.push(name.to_owned())).unwrap();
    assert_eq!(groups.len(), keep.len());
    assert_eq!(judged.len(), rows.len() * 3);
    let errors: Vec<f64> = judged.iter().map(|one| (one.predicted[1] / one.measured - 1.0).abs()).collect();
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    assert!(mean < 0.10, "{mean}");
    let inside = judged.iter().filter(|one| (one.predicted[0]..=one.predicted[2]).contains(&one.measured)).count();
    let coverage = inside as f64 / judged.len() as f64;
    assert!((0.6..0.99).contains(&coverage), "{coverage}");
}

#[test]
fn too_few_networks_are_refused() {
    let Some(dir) = data() else { return };
    let rows = first_repetition(profet::read(&dir).unwrap());
    let two: Vec<&Recorded> =
        rows.iter().filter(|row| row.network.starts_with("VGG1") && &*row.network != "VGG11").collect();
    let error = fit(&two, &CATALOG, "", Vec::new()).unwrap_err().to_string();
    assert!(error.contains("2 networks"), "{error}");
}

// The program itself.

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
    assert!(folder.error(&[&all[..], &["--at-pixels", "64", "--pixels", "32,128"]].concat()).contains("must have one"));
}

/// A table of three networks, written and judged: columns by name, in any order.
#[test]
fn one_folder_judges_another() {
    let Some(data) = data() else { return };
    let folder = Folder::new();
    let mut reader = String::new();
    std::io::Read::read_to_string(
        &mut habitat_tui::store::open(&data.join("anchor_g4.csv.gz"), habitat_tui::store::Limit::TABLE).unwrap(),
        &mut reader,
    )
    .unwrap();
    let (train, test) = (folder.0.path().join("train"), folder.0.path().join("test"));
    for (folder, networks) in [(&train, &["VGG16", "ResNet18", "AlexNet", "LeNet5"][..]), (&test, &["VGG11"])] {
        std::fs::create_dir(folder).unwrap();
        let mut lines = reader.lines();
        let head = lines.next().unwrap();
        let model = head.split(',').position(|column| column == "model").unwrap();
        let kept = lines.filter(|line| {
            let network = line.split(',').nth(model).unwrap();
            networks.contains(&network) && line.contains("exp01")
        });
        let table: Vec<&str> = std::iter::once(head).chain(kept).collect();
        std::fs::write(folder.join("anchor_g4.csv"), table.join("\n")).unwrap();
    }
    let args = ["models", "evaluate", "black-box", "--train", "train", "--test", "test", "--published", "--json"];
    let json: Value = serde_json::from_str(&folder.ok(&args)).unwrap();
    assert_eq!(json["format"], "habitat-evaluation");
    let all = json["rows"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["group"] == "all" && row["method"] == "black box")
        .unwrap();
    assert_eq!((all["method"].as_str(), all["pairs"].as_u64()), (Some("black box"), Some(22 * 3)));
    let rows = json["rows"].as_array().unwrap();
    for part in ["linear", "forest", "network", "median"] {
        let method = format!("PROFET {part}");
        let row = rows.iter().find(|row| row["group"] == "t4 → k80" && row["method"] == method.as_str()).unwrap();
        assert_eq!(row["pairs"], 22, "{row}");
    }
    assert!(all["mean_absolute_error"].as_f64().unwrap() < 0.3, "{all}");
    let none = folder.error(&["models", "evaluate", "black-box"]);
    assert!(none.contains("--train"), "{none}");
    assert!(folder.error(&["models", "evaluate", "black-box", "."]).contains("anchor_"));
}
