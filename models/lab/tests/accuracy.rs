//! The shipped models on measurements in `models/lab/samples`: each GPU is predicted by models trained without it. The
//! bounds are tight, so a change of operators, rates or weights that costs accuracy fails on every clone.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[path = "../../../tests/common/program.rs"]
mod program;

use std::path::Path;
use std::sync::{Arc, LazyLock};

use habitat_tui::catalog::Catalog;
use habitat_tui::predict::efficiency::Efficiency;
use habitat_tui::predict::learned::Models;
use habitat_tui::predict::{Options, predict};
use habitat_tui::profile::{Mode, Precision};
use habitat_tui::store::bundled;
use habitat_tui_lab::learn::efficiency::Design;
use habitat_tui_lab::published::{Extent, PublishedStep, read_all};
use program::{Folder, row};
use rayon::prelude::*;
use serde_json::Value;

static CATALOG: LazyLock<Catalog> = LazyLock::new(|| Catalog::new(bundled::gpus()));

/// Published steps, then recorded steps.
static STEPS: LazyLock<Vec<PublishedStep>> = LazyLock::new(|| {
    let samples = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/samples"));
    read_all(&samples.join("published/steps.jsonl.zst"), Some(&samples.join("recorded")), &CATALOG).unwrap()
});

fn evaluate(what: &str, folder: &str) -> Value {
    let (models, sample) =
        (concat!(env!("CARGO_MANIFEST_DIR"), "/.."), concat!(env!("CARGO_MANIFEST_DIR"), "/samples/neusight"));
    Folder::new().json(&["evaluate", what, &format!("{sample}/{folder}"), "--models", models])
}

/// Group, method, cases, largest mean error, least share in range.
type Bound = (&'static str, &'static str, u64, f64, f64);

fn check(found: &Value, bounds: &[Bound]) {
    for &(group, method, cases, error, coverage) in bounds {
        let row = row(found, group, method);
        assert_eq!(row["pairs"], cases, "{row}");
        assert!(row["mean_absolute_error"].as_f64().unwrap() <= error, "{row}: at most {error}");
        assert!(row["coverage"].as_f64().unwrap() >= coverage, "{row}: at least {coverage}");
    }
}

#[test]
fn operators_on_gpus_left_out() {
    let bounds = [
        ("linear", "learned, shapes alone", 280, 0.138, 0.78),
        ("linear", "learned, with the origin", 1236, 0.099, 0.87),
        ("bmm", "learned, shapes alone", 280, 0.172, 0.82),
        ("conv2d", "learned, shapes alone", 200, 0.231, 0.86),
        ("elementwise", "learned, shapes alone", 240, 0.061, 0.85),
        ("layernorm", "learned, shapes alone", 240, 0.130, 0.64),
        ("softmax", "learned, shapes alone", 240, 0.135, 0.80),
    ];
    check(&evaluate("ops", "ops"), &bounds);
}

#[test]
fn steps_on_gpus_left_out() {
    let bounds = [
        ("inference", "shapes alone", 43, 0.072, 0.88),
        ("inference", "from another GPU", 194, 0.077, 0.84),
        ("training", "shapes alone", 18, 0.128, 0.94),
        ("training", "from another GPU", 38, 0.118, 0.90),
    ];
    check(&evaluate("steps", "steps"), &bounds);
}

/// Linear models fitted anew without the network, then without the GPU.
#[test]
fn linear_models_of_networks_and_gpus_left_out() {
    let found = evaluate("kernelwise", "");
    let [_, networks, gpus, ..] = &found.as_array().unwrap()[..] else { panic!("{found}") };
    check(networks, &[("all", "kernel-wise", 61, 0.077, 0.86), ("all", "layer-wise", 61, 0.082, 0.90)]);
    check(gpus, &[("all", "kernel-wise", 61, 0.102, 0.82), ("all", "layer-wise", 61, 0.107, 0.90)]);
}

/// Name, steps to leave out, whether these are GPUs, largest mean error.
type LeftOut<'a> = (&'a str, &'a (dyn Fn(&PublishedStep) -> bool + Sync), bool, f64);

/// Published steps by efficiency models that were fitted without their networks, or their GPU.
#[test]
fn published_steps_of_networks_and_gpus_left_out() {
    let (catalog, steps) = (&*CATALOG, &STEPS[..]);
    assert!(steps.len() > 2000, "{}", steps.len());
    let design = Design::new(steps, catalog);
    let shipped = bundled::models().efficiency().unwrap().clone();
    let all = design.values_of(&shipped);
    let is_timm = |step: &PublishedStep| step.source == "timm";
    let is_recorded = |step: &PublishedStep| step.source == "recorded";
    // Recorded steps: networks of the kinds, and all of both GPUs with the third of their chip.
    let cases: [LeftOut<'_>; 9] = [
        ("ResNets of timm", &|step| is_timm(step) && step.family.starts_with("res"), false, 0.039),
        ("ViT of timm", &|step| is_timm(step) && step.family.starts_with("vit"), false, 0.062),
        ("Llama", &|step| step.network == "llama-3.2-1b", false, 0.104),
        ("RTX 5090", &|step| step.gpu.as_str() == "rtx-5090", true, 0.059),
        ("A100", &|step| step.gpu.as_str().starts_with("a100"), true, 0.095),
        ("ResNets recorded", &|step| is_recorded(step) && step.family.starts_with("res"), false, 0.061),
        ("EfficientNet recorded", &|step| is_recorded(step) && step.family.starts_with("efficientnet"), false, 0.071),
        ("transformers recorded", &|step| is_recorded(step) && step.family == "transformer", false, 0.078),
        (
            "Hopper",
            &|step| ["h100", "h200", "gh200"].iter().any(|chip| step.gpu.as_str().starts_with(chip)),
            true,
            0.174,
        ),
    ];
    let judged = cases.par_iter().map(|(name, is_out, is_gpu, most)| {
        let is_in = |row: usize| !is_out(&steps[row]);
        let model = design.model(&design.values(&is_in, Some(&all)), &is_in);
        // The roofline has its share on a GPU that was left out.
        let share = if *is_gpu { model.roofline } else { 0.0 };
        let is_step = |row: &usize| is_out(&steps[*row]) && steps[*row].extent == Extent::Step;
        let rows: Vec<usize> = (0..steps.len()).filter(is_step).collect();
        let mean = |model: &Efficiency, share: f64| -> f64 {
            let errors = rows.iter().map(|&row| (design.residual(row, model, share).exp() - 1.0).abs());
            errors.sum::<f64>() / rows.len() as f64
        };
        // Fits begin at the shipped values, which know these steps: a fit that does not move would equal them.
        let (found, seen) = (mean(&model, share), mean(&shipped, 0.0));
        let holds = seen < found && found <= *most;
        (holds, format!("{name}: {found:.4} of {} steps, above {seen:.4}, at most {most}", rows.len()))
    });
    let judged: Vec<(bool, String)> = judged.collect();
    let said: Vec<&str> = judged.iter().map(|(_, said)| said.as_str()).collect();
    println!("{}", said.join("\n"));
    assert!(judged.iter().all(|(holds, _)| *holds), "{}", said.join("\n"));
}

/// Fine-tuning on A100 and RTX 4090, eager and compiled, by the shipped models, which did not see it in training.
#[test]
fn published_steps_that_nothing_was_trained_with() {
    let evaluated = |name: &str| {
        let file = format!("{}/samples/published/{name}.jsonl.zst", env!("CARGO_MANIFEST_DIR"));
        Folder::new().json(&["evaluate", "published", &file, "--seen"])
    };
    check(&evaluated("finetuning"), &[("training, bf16, torchtune", "learned", 10, 0.073, 0.8)]);
    // Parts of language models; three priors come from a few of them.
    let parts = [
        ("operators, bf16, liger-kernel", "learned", 161, 0.133, 0.81),
        ("operators, fp32, liger-kernel", "learned", 178, 0.288, 0.60),
    ];
    check(&evaluated("parts"), &parts);
}

/// Batch 1 waits for the host, whose pace is assumed: a mean that includes these runs. Memory is that reported by the
/// driver; the part beside tensors was chosen on these runs.
#[test]
fn milabench_at_batch_1_and_its_memory() {
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/samples/published/hosts.jsonl.zst");
    let found = Folder::new().json(&["evaluate", "hosts", sample]);
    check(&found, &[("batch 1", "shapes alone", 5, 0.25, 1.0)]);
    for (group, cases, error) in [
        ("memory → h100-sxm5-80gb: bert-fp16", 8, 0.04),
        ("memory → h100-sxm5-80gb: lightning", 10, 0.03),
        ("memory → mi325x: bert-fp16", 9, 0.04),
    ] {
        let row = row(&found, group, "shapes alone");
        assert_eq!(row["pairs"], cases, "{row}");
        assert!(row["mean_absolute_error"].as_f64().unwrap() <= error, "{row}: at most {error}");
    }
}

/// Training steps in FP32 by the operator models; their convolutions by a mean with an efficiency model that saw no
/// step in FP32 and no network of their families.
#[test]
fn training_steps_in_fp32_of_networks_left_out() {
    let published = STEPS.iter().take_while(|step| step.source != "recorded").count();
    let (catalog, steps) = (&*CATALOG, &STEPS[..published]);
    let is_out = |step: &PublishedStep| {
        let workload = &step.profile.workload;
        step.extent == Extent::Step && (workload.mode, workload.precision) == (Mode::Training, Some(Precision::Fp32))
    };
    let families: Vec<&str> = steps.iter().filter(|step| is_out(step)).map(|step| step.family.as_str()).collect();
    let design = Design::new(steps, catalog);
    let shipped = bundled::models();
    let is_in = |row: usize| !families.contains(&steps[row].family.as_str());
    let all = design.values_of(shipped.efficiency().unwrap());
    let model = design.model(&design.values(&is_in, Some(&all)), &is_in);
    let iterations = shipped.efficiency().unwrap().iterations;
    let models = Models::new(shipped.ensembles().clone(), shipped.steps().clone());
    let models = Arc::new(models.with_efficiency(Efficiency { iterations, ..model }));
    let errors: Vec<f64> = steps
        .iter()
        .filter(|step| is_out(step))
        .map(|step| {
            let targets = vec![step.gpu.clone()];
            let options = Options { targets, models: Some(Arc::clone(&models)), ..Options::default() };
            let answer = predict(&step.profile, catalog, &options).unwrap();
            (answer.predictions[0].step.mid() / step.time - 1.0).abs()
        })
        .collect();
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    assert!(errors.len() == 60 && mean <= 0.092, "{mean} of {} steps", errors.len());
}

/// The script that fits the constants of several GPUs finds the shipped ones in the sources.
#[test]
fn the_shipped_constants_of_scaling_are_found_in_the_sources() {
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/steps");
    let asked = ["-B", "-c", "import scaling; print(len(scaling.shipped()) - len(scaling.PRIOR))"];
    let said = std::process::Command::new("python3").args(asked).current_dir(scripts).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), "0", "{}", String::from_utf8_lossy(&said.stderr));
}
