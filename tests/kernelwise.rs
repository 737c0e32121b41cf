//! Linear models of kernels, layers and steps: known answers on synthetic data, the file, the commands.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use crate::program::Folder;
use habitat_tui::catalog::Catalog;
use habitat_tui::learn::kernelwise::{Data, Recipe, fit, lines};
use habitat_tui::predict::Method;
use habitat_tui::predict::kernelwise::{Across, Driver, KernelWise, KernelWiseError, Layer, Layers, Level, Property};
use habitat_tui::predict::layer::tile;
use habitat_tui::profile::{Operation, Profile, Sample};
use habitat_tui::store::bundled;
use habitat_tui::units::{GpuSlug, Micros};
use proptest::prelude::*;
use serde_json::{Value, json};

const OURS: Recipe = Recipe { published: false };

fn catalog() -> Catalog {
    Catalog::new(bundled::gpus())
}

fn slug(text: &str) -> GpuSlug {
    GpuSlug::new(text).unwrap()
}

fn operation(value: Value) -> Operation {
    serde_json::from_value(value).unwrap()
}

fn product(rows: u64, reduction: u64, columns: u64) -> Operation {
    operation(json!({"name": "aten::mm", "phase": "forward", "inputs": [[rows, reduction], [reduction, columns]],
                     "outputs": [[rows, columns]]}))
}

fn stream(name: &str, rows: u64) -> Operation {
    operation(json!({"name": name, "phase": "forward", "inputs": [[rows, 1024]], "outputs": [[rows, 1024]]}))
}

/// Products of many shapes: their inputs, operations and results do not grow together.
fn shapes() -> Vec<[u64; 3]> {
    let sizes = [64, 192, 512, 1536, 4096];
    let mut found = Vec::new();
    for rows in sizes {
        for reduction in sizes {
            found.extend(sizes.map(|columns| [rows, reduction, columns]));
        }
    }
    found
}

fn profile(gpu: &str, network: &str, step_us: f64, operations: &[Value]) -> Profile {
    let value = json!({"format": "habitat-profile", "version": 1,
        "workload": {"name": network, "mode": "inference", "batch_size": 8, "precision": "fp32"},
        "origin": {"gpu": gpu}, "step": {"duration_us": step_us}, "operations": operations});
    Profile::from_json(value.to_string().as_bytes()).unwrap().0
}

/// A recorded product that runs three kernels, one of each of the paper's classes.
fn three_kernels([rows, reduction, columns]: [u64; 3]) -> Value {
    let of = Layer::of(&product(rows, reduction, columns), None).unwrap();
    let times = [10.0 + of.input / 1e4, 5.0 + of.operations / 1e7, 2.0 + of.output / 2e3];
    let kernels: Vec<Value> = ["pack", "compute", "store"]
        .iter()
        .zip(times)
        .map(|(name, time)| json!({"name": name, "duration_us": time}))
        .collect();
    json!({"name": "aten::mm", "phase": "forward", "inputs": [[rows, reduction], [reduction, columns]],
           "outputs": [[rows, columns]], "device_time_us": times.iter().sum::<f64>(), "kernels": kernels})
}

#[test]
fn kernels_are_classed_by_what_drives_them() {
    let mut data = Data::default();
    let operations: Vec<Value> = shapes().into_iter().map(three_kernels).collect();
    assert_eq!(data.add_profile(profile("t4", "made", 1e6, &operations)), 125);
    let model = lines(&data, &catalog(), OURS, &|_| true).unwrap();
    let kind = &model.gpus[&slug("t4")].kinds["mm"];
    let group = |name: &str| kind.groups.iter().find(|group| group.kernels == [name]).unwrap();
    for (name, driver, intercept, slope) in [
        ("pack", Driver::Input, 10.0, 1e-4),
        ("compute", Driver::Operations, 5.0, 1e-7),
        ("store", Driver::Output, 2.0, 5e-4),
    ] {
        let found = group(name);
        assert_eq!(found.driver, driver, "{name}");
        assert!((found.line.intercept - intercept).abs() < 1e-6 * intercept.max(1.0), "{found:?}");
        assert!((found.line.slope / slope - 1.0).abs() < 1e-9 && found.r_squared > 0.999_999, "{found:?}");
    }
    // A shape without a measurement: the three kernels together.
    let catalog = catalog();
    let lines = model.on(catalog.find("t4").unwrap());
    let unseen = product(300, 700, 900);
    let answer = lines.time(&unseen, None, Level::Kernels).unwrap();
    let of = Layer::of(&unseen, None).unwrap();
    let expected = 17.0 + of.input / 1e4 + of.operations / 1e7 + of.output / 2e3;
    assert!((answer.time.get() / expected - 1.0).abs() < 1e-6, "{answer:?} for {expected}");
    assert_eq!(answer.method, Method::KernelWise);
    assert!(answer.why.contains("pack by input") && answer.why.contains("compute by operations"), "{}", answer.why);
    // By layers: one linear model in the operations, without inputs and results.
    let layers = lines.time(&unseen, None, Level::Layers).unwrap();
    assert_eq!(layers.method, Method::LayerWise);
    assert!((layers.time.get() / expected - 1.0).abs() > 0.01);
}

fn measured(data: &mut Data, gpu: &str, operation: &Operation, kernel: &str, time: f64) {
    assert!(data.add_measured(&slug(gpu), operation, None, kernel, Micros::new(time).unwrap()));
}

#[test]
fn kernels_of_similar_lines_share_one_and_a_table_says_which_run() {
    let mut data = Data::default();
    for [rows, reduction, columns] in shapes() {
        let operation = product(rows, reduction, columns);
        let operations = Layer::of(&operation, None).unwrap().operations;
        // Narrow results run a slow kernel; wide ones either of two nearly equal ones.
        let (kernel, rate) = match (columns, reduction % 128) {
            (64, _) => ("slow", 1e6),
            (_, 0) => ("fast a", 8e6),
            _ => ("fast b", 8.2e6),
        };
        measured(&mut data, "t4", &operation, kernel, 10.0 + operations / rate);
    }
    let model = lines(&data, &catalog(), OURS, &|_| true).unwrap();
    let kind = &model.gpus[&slug("t4")].kinds["mm"];
    let mut names: Vec<&[String]> = kind.groups.iter().map(|group| &group.kernels[..]).collect();
    names.sort();
    assert_eq!(names, [&["fast b".to_owned(), "fast a".to_owned()][..], &["slow".to_owned()][..]]);
    let catalog = catalog();
    let lines = model.on(catalog.find("t4").unwrap());
    let time = |columns: u64| lines.time(&product(1000, 1000, columns), None, Level::Kernels).unwrap();
    assert!((time(60).time.get() / (10.0 + 2e6 * 60.0 / 1e6) - 1.0).abs() < 0.01, "{:?}", time(60));
    assert!((time(1600).time.get() / (10.0 + 2e6 * 1600.0 / 8.1e6) - 1.0).abs() < 0.02, "{:?}", time(1600));
    assert!(time(1600).why.contains("and 1 alike"), "{}", time(1600).why);
}

#[test]
fn tiles_that_stick_out_are_counted() {
    let name = "made_sgemm_128x64_nn";
    let mut data = Data::default();
    for columns in (1..60).map(|n| 10 * n) {
        let operation = product(100, 1000, columns);
        let tiles = Layer::of(&operation, None).unwrap().size(Driver::Tiles(tile(name).unwrap())).unwrap();
        measured(&mut data, "t4", &operation, name, 20.0 + tiles / 1e6);
    }
    let model = lines(&data, &catalog(), OURS, &|_| true).unwrap();
    let [group] = &model.gpus[&slug("t4")].kinds["mm"].groups[..] else { panic!("one kernel") };
    assert_eq!(group.driver, Driver::Tiles([128, 64]));
    assert!((group.line.slope / 1e-6 - 1.0).abs() < 1e-9, "{group:?}");
    // The published recipe has no tiles.
    let published = lines(&data, &catalog(), Recipe { published: true }, &|_| true).unwrap();
    let [group] = &published.gpus[&slug("t4")].kinds["mm"].groups[..] else { panic!("one kernel") };
    assert!(matches!(group.driver, Driver::Input | Driver::Operations | Driver::Output), "{group:?}");
    assert!(group.r_squared < 0.999);
}

/// On four GPUs products run at 90 % of the rate in the rules, memory-bound kernels at 80 % of the bandwidth; one GPU
/// is left out.
#[test]
fn rates_go_with_the_property_that_explains_them() {
    let catalog = catalog();
    let gpus = ["p100-pcie-16gb", "v100-pcie-32gb", "mi100"];
    let time = |operation: &Operation, gpu: &str| {
        let spec = catalog.find(gpu).unwrap();
        let layer = Layer::of(operation, None).unwrap();
        if layer.is_streaming {
            5.0 + layer.bytes / (0.8 * Property::Bandwidth.of(&spec.into()) * 1e3)
        } else {
            5.0 + layer.operations / (0.9 * Property::ProductRate.of(&spec.into()) * 1e6)
        }
    };
    let mut data = Data::default();
    for gpu in gpus {
        for [rows, reduction, columns] in shapes() {
            let operation = product(rows, reduction, columns);
            measured(&mut data, gpu, &operation, "", time(&operation, gpu));
        }
        for rows in (8..20).map(|octave| 1_u64 << octave) {
            measured(&mut data, gpu, &stream("aten::relu", rows), "", time(&stream("aten::relu", rows), gpu));
        }
    }
    let model = lines(&data, &catalog, OURS, &|_| true).unwrap();
    assert_eq!(model.across["mm"].property, Property::ProductRate);
    assert_eq!((model.across["relu"].property, model.across["relu"].gpus), (Property::Bandwidth, 3));
    for gpu in ["a100-pcie-40gb", "t4"] {
        let lines = model.on(catalog.find(gpu).unwrap());
        assert!(!lines.is_measured());
        for operation in [product(4096, 1024, 512), stream("aten::relu", 100_000)] {
            let answer = lines.time(&operation, None, Level::Kernels).unwrap();
            let expected = time(&operation, gpu);
            assert!((answer.time.get() / expected - 1.0).abs() < 0.02, "{answer:?} for {expected} on {gpu}");
            assert!(answer.why.contains("of 3 other GPUs"), "{}", answer.why);
        }
    }
    // Published recipe: rates linear in the memory bandwidth. Those of memory-bound kernels nearly are.
    let spec = catalog.find("a100-pcie-40gb").unwrap();
    let published = model.across_to(spec, Across::Published);
    let answer = published.time(&stream("aten::relu", 100_000), None, Level::Kernels).unwrap();
    let expected = time(&stream("aten::relu", 100_000), "a100-pcie-40gb");
    assert!((answer.time.get() / expected - 1.0).abs() < 0.25, "{answer:?} for {expected}");
    // Two GPUs are too few.
    data.rows.retain(|row| row.gpu.as_str() != "mi100");
    let two = lines_of(&data);
    assert!(two.across.is_empty());
    assert!(two.on(spec).time(&product(64, 64, 64), None, Level::Kernels).is_err());
}

fn lines_of(data: &Data) -> KernelWise {
    lines(data, &catalog(), OURS, &|_| true).unwrap()
}

#[test]
fn fall_backs_are_told() {
    let mut data = Data::default();
    for rows in (8..20).map(|octave| 1_u64 << octave) {
        measured(&mut data, "t4", &stream("aten::relu", rows), "", 4.0 + rows as f64 / 50.0);
        measured(&mut data, "t4", &product(rows, 64, 64), "small", 4.0 + rows as f64 / 40.0);
        measured(&mut data, "t4", &product(rows, 64, 1024), "wide", 4.0 + rows as f64 / 4.0);
    }
    let (model, catalog) = (lines_of(&data), catalog());
    let lines = model.on(catalog.find("t4").unwrap());
    let of = |operation: &Operation| lines.time(operation, None, Level::Kernels);
    // A memory-bound kind without its own model: the common one, by bytes.
    let gelu = of(&stream("aten::gelu", 5000)).unwrap();
    assert_eq!(gelu.method, Method::LayerWise);
    assert!(gelu.why.starts_with("gelu not measured: line of all streaming kinds"), "{}", gelu.why);
    assert!((gelu.time.get() - 104.0).abs() < 1.0, "{gelu:?}");
    // Another phase of a kind: the forward model.
    let backward = operation(json!({"name": "aten::relu", "phase": "backward", "inputs": [[5000, 1024]],
                                    "outputs": [[5000, 1024]]}));
    assert!(of(&backward).unwrap().why.contains("relu backward not measured: line of relu"));
    // A shape far from all measured ones: the model of its kind.
    let far = of(&product(64, 64, 1 << 18)).unwrap();
    assert_eq!(far.method, Method::LayerWise);
    assert!(far.why.contains("kernel unknown"), "{}", far.why);
    // No similar kind.
    let convolution = operation(json!({"name": "aten::conv2d", "phase": "forward",
                                       "inputs": [[8, 16, 14, 14], [16, 16, 3, 3]]}));
    assert_eq!(of(&convolution).unwrap_err(), "convolution not measured");
    // Another element type is another kind: no FP32 model answers.
    let half = operation(json!({"name": "aten::mm", "phase": "forward", "dtype": "bfloat16",
                                "inputs": [[64, 64], [64, 64]]}));
    assert_eq!(of(&half).unwrap_err(), "mm bfloat16 not measured");
}

/// Two networks on each of three GPUs, each step a tenth longer than the sum of its layers.
fn recorded() -> Data {
    let mut data = Data::default();
    for (gpu, rate) in [("t4", 1.0), ("v100-pcie-32gb", 3.0), ("a100-pcie-40gb", 4.0)] {
        for (network, sizes) in [("one", [256, 1024, 4096]), ("other", [512, 2048, 3072])] {
            let mut sum = 0.0;
            let operations: Vec<Value> = sizes
                .iter()
                .map(|&size| {
                    let time = 10.0 + f64::from(size * size) * 1024.0 * 2.0 / (4e6 * rate);
                    sum += time;
                    json!({"name": "aten::mm", "phase": "forward", "inputs": [[size, 1024], [1024, size]],
                           "outputs": [[size, size]], "device_time_us": time})
                })
                .collect();
            assert_eq!(data.add_profile(profile(gpu, network, 1.1 * sum, &operations)), 3);
        }
    }
    data
}

#[test]
fn steps_take_more_than_their_layers_and_ranges_come_from_networks_left_out() {
    let (data, catalog) = (recorded(), catalog());
    let (model, held) = fit(&data, &catalog, OURS).unwrap();
    // Two steps of 1.1 and one of 1, the weight of the prior.
    let own = &model.gpus[&slug("t4")];
    assert!((own.step_factor - 1.1_f64.powf(2.0 / 3.0)).abs() < 1e-6 && own.steps == 2, "{}", own.step_factor);
    // Three methods, six steps.
    assert_eq!((held.networks.len(), held.gpus.len() % 3), (18, 0));
    let kernels = held.networks.iter().filter(|step| step.method == Method::KernelWise);
    // One network is known: its factor is √1.1.
    assert!(kernels.clone().count() == 6 && kernels.into_iter().all(|step| (step.error() - 0.0465).abs() < 0.001));
    let range = model.seen.kernel_wise.unwrap();
    assert!(range.low <= 1.0 && (1.04..1.06).contains(&range.high) && range.cases == 6, "{range:?}");
    assert!(model.unseen.kernel_wise.is_none(), "two GPUs carry nothing over");
    // A step without operator times is not used.
    let mut more = data.clone();
    let silent =
        profile("t4", "third", 1e6, &[json!({"name": "aten::mm", "phase": "forward", "inputs": [[8, 8], [8, 8]]})]);
    assert_eq!(more.add_profile(silent), 0);
    assert_eq!(more.steps.len(), data.steps.len());
}

#[test]
fn the_file_comes_back_and_others_are_refused() {
    let (model, _) = fit(&recorded(), &catalog(), OURS).unwrap();
    let text = model.to_json();
    let back = KernelWise::from_json(text.as_bytes()).unwrap();
    assert_eq!(back.to_json(), text);
    assert_eq!(back.gpus.len(), 3);
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((value["format"].as_str(), value["version"].as_u64()), (Some("habitat-kernel-wise"), Some(1)));
    let changed = |path: &str, to: Value| {
        let mut value = value.clone();
        *value.pointer_mut(path).unwrap() = to;
        KernelWise::from_json(value.to_string().as_bytes()).unwrap_err()
    };
    assert_eq!(changed("/version", json!(2)), KernelWiseError::Version(2));
    assert!(changed("/format", json!("x")).to_string().contains("format is \"x\""));
    let slope = changed("/gpus/t4/kinds/mm/layers/slope", json!(-1.0)).to_string();
    assert!(slope.contains("gpus.t4.kinds.mm.slope: must be 0 or more"), "{slope}");
    assert!(changed("/gpus/t4/step_factor", json!(0.0)).to_string().contains("step_factor"));
    assert!(changed("/across/mm/rate", json!(0.0)).to_string().contains("across.mm.rate"));
    let table = json!([{"octaves": [0, 1, 2, 3], "groups": [7]}]);
    let mut value = value.clone();
    value["gpus"]["t4"]["kinds"]["mm"]["table"] = table;
    let error = KernelWise::from_json(value.to_string().as_bytes()).unwrap_err().to_string();
    assert!(error.contains("refers to missing groups"), "{error}");
}

proptest! {
    #[test]
    fn no_file_makes_it_fall_over(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(KernelWise::from_json(&bytes).is_err());
    }

    #[test]
    fn no_shapes_make_a_layer_unsound(
        name in prop::sample::select(vec!["mm", "bmm", "conv2d", "convolution_backward", "add", "lstm", "_softmax"]),
        shapes in prop::collection::vec(prop::collection::vec(prop_oneof![0..4_u64, any::<u64>()], 0..5), 0..5),
    ) {
        let operation = operation(json!({"name": format!("aten::{name}"), "phase": "forward", "inputs": shapes}));
        let layers = Layers::of(&operation, None);
        for layer in layers.whole.into_iter().chain(layers.pieces.into_iter().map(|(piece, _)| piece)) {
            for driver in [Driver::Input, Driver::Operations, Driver::Output, Driver::Bytes, Driver::Tiles([128, 64])] {
                prop_assert!(layer.size(driver).is_none_or(|size| size.is_finite() && size >= 0.0));
            }
        }
    }
}

fn write_recorded(folder: &Folder) {
    for (index, (gpu, profile)) in recorded().steps.iter().enumerate() {
        let json = String::from_utf8(profile.to_json().unwrap()).unwrap();
        folder.write(&format!("steps/{gpu}/{index}.habitat.json"), &json);
    }
}

#[test]
fn fitted_lines_predict_as_the_program_is_called() {
    let folder = Folder::new();
    write_recorded(&folder);
    let found = folder.json(&["fit", "kernelwise", "steps", "-o", "lines.json"]);
    assert_eq!((found["format"].as_str(), found["version"].as_u64()), (Some("habitat-fit-kernel-wise"), Some(1)));
    let t4 = found["gpus"].as_array().unwrap().iter().find(|row| row["gpu"] == "t4").unwrap();
    assert_eq!((t4["rows"].as_u64(), t4["steps"].as_u64(), t4["held_out_steps"].as_u64()), (Some(6), Some(2), Some(2)));
    // Existing files stay.
    assert!(folder.error(&["fit", "kernelwise", "steps", "-o", "lines.json"]).contains("--force"));
    let text = folder.ok(&["fit", "kernelwise", "steps", "-o", "lines.json.zst"]);
    assert!(text.contains("mean error") && text.contains("written: lines.json.zst"), "{text}");

    let step = "steps/t4/0.habitat.json";
    let predict = |method: &str, gpu: &str| {
        let args = ["predict", step, "--ignore-origin", "--method", method, "--kernel-wise", "lines.json", "--to", gpu];
        folder.json(&[&args[..], &["--operations"]].concat())["predictions"][0].clone()
    };
    let within = predict("kernel-wise", "t4");
    assert_eq!(within["method"], "kernel-wise");
    let measured = recorded().steps[0].1.measured_step().unwrap().get();
    let mid = within["step_time_us"]["mid"].as_f64().unwrap();
    assert!((mid / measured - 1.0).abs() < 0.05, "{mid} for {measured}");
    assert!(within["operations"][0]["why"].as_str().unwrap().starts_with("mm by "), "{within}");
    assert_eq!(predict("layer-wise", "t4")["method"], "layer-wise");
    let whole = predict("end-to-end", "t4");
    assert_eq!(whole["method"], "end-to-end");
    assert!((whole["step_time_us"]["mid"].as_f64().unwrap() / measured - 1.0).abs() < 0.05, "{whole}");
    let elsewhere = predict("kernel-wise", "h100-sxm5-80gb");
    let notes = elsewhere["notes"].to_string();
    assert!(notes.contains("not among the 3 GPUs of the linear models"), "{notes}");
    // A file in the folder of weights is used without being named; else the shipped one.
    std::fs::create_dir(folder.0.path().join("weights")).unwrap();
    std::fs::copy(folder.0.path().join("lines.json"), folder.0.path().join("weights/kernelwise.json")).unwrap();
    let by = |more: &[&str]| {
        let args = ["predict", step, "--ignore-origin", "--method", "kernel-wise", "--to", "t4"];
        folder.json(&[&args[..], more].concat())["predictions"][0]["step_time_us"]["mid"].as_f64().unwrap()
    };
    assert_eq!(by(&["--models", "weights"]), mid);
    assert!((by(&[]) / mid - 1.0).abs() > 0.01);
}

#[test]
fn what_cannot_be_fitted_says_why() {
    let folder = Folder::new();
    folder.write(
        "nothing.habitat.json",
        &String::from_utf8(bundled::sample(Sample::ResNet50V100).without_origin().to_json().unwrap()).unwrap(),
    );
    let error = folder.error(&["fit", "kernelwise", "nothing.habitat.json", "-o", "lines.json"]);
    assert!(error.contains("nothing to fit"), "{error}");
    folder.write("empty/readme.txt", "");
    assert!(folder.error(&["fit", "kernelwise", "empty", "-o", "x.json"]).contains("no profiles"));
    assert!(folder.error(&["fit", "kernelwise", "--tables", "empty", "-o", "x.json"]).contains("no operator tables"));
    folder.write("later.json", r#"{"format": "habitat-kernel-wise", "version": 9}"#);
    let error = folder.error(&["predict", "--method", "kernel-wise", "--kernel-wise", "later.json"]);
    assert!(error.contains("later.json: version 9") && error.contains("fit kernelwise"), "{error}");
}
