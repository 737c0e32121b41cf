//! Waits of predicted steps for the host and for data, as recorded or without.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::process::Command;
use std::sync::Arc;

use habitat_tui::catalog::Catalog;
use habitat_tui::catalog::hypothetical::{Changes, Figure};
use habitat_tui::plan::{Goal, Work, plan};
use habitat_tui::predict::batches::sweep;
use habitat_tui::predict::compare::compare;
use habitat_tui::predict::hypothetical::what_if;
use habitat_tui::predict::scale::{Factors, Layout, optimizer_step};
use habitat_tui::predict::{
    Finding, Host, Method, MethodChoice, Options, PredictError, Prediction, Shared, StepTime, predict,
};
use habitat_tui::pricing::PriceBook;
use habitat_tui::profile::{Profile, Sample};
use habitat_tui::report::words::{self, Words};
use habitat_tui::store::bundled;
use habitat_tui::units::{GpuSlug, Micros};

fn catalog() -> Catalog {
    Catalog::new(bundled::gpus())
}

/// A profile of these operations, recorded on `gpu`; times in microseconds.
fn profile(gpu: &str, step: &str, operations: &str) -> Profile {
    let json = format!(
        r#"{{"format": "habitat-profile", "version": 1,
        "workload": {{"name": "w", "mode": "training", "batch_size": 32, "precision": "fp32"}},
        "origin": {{"gpu": "{gpu}"}}, "step": {step}, "operations": [{operations}]}}"#
    );
    Profile::from_json(json.as_bytes()).unwrap().0
}

fn with(gpu: &str, host: Host) -> Options {
    Options { targets: vec![GpuSlug::new(gpu).unwrap()], host, ..Options::default() }
}

fn on_with(profile: &Profile, gpu: &str, host: Host) -> Prediction {
    predict(profile, &catalog(), &with(gpu, host)).unwrap().predictions.remove(0)
}

fn on(profile: &Profile, gpu: &str) -> Prediction {
    on_with(profile, gpu, Host::AsRecorded)
}

/// The step in milliseconds: low, mid, high.
fn ends(prediction: &Prediction) -> [f64; 3] {
    let range = prediction.step.as_estimate().range;
    [range.low, range.mid, range.high].map(Micros::as_millis)
}

fn codes(prediction: &Prediction) -> Vec<&'static str> {
    prediction.warnings.iter().map(Finding::code).collect()
}

const PRODUCT: &str = r#"{"name": "aten::mm", "phase": "forward", "inputs": [[8192, 8192], [8192, 8192]], "dtype": "float32", "device_time_us": 92000}"#;
const COLLECTIVE: &str =
    r#"{"name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "phase": "communication", "device_time_us": 80000}"#;

/// GPU busy for 92 of 920 ms: on another GPU the host may be as slow, or the step may not wait at all.
#[test]
fn the_range_of_a_step_bound_by_the_host_reaches_from_the_device_to_the_recorded_step() {
    let step = r#"{"duration_us": 920000, "device_busy_us": 92000}"#;
    let recorded = profile("v100-sxm2-16gb", step, PRODUCT);
    let h100 = on(&recorded, "h100-sxm5-80gb");
    let [low, mid, high] = ends(&h100);
    assert!(low < 92.0 && mid > 828.0 && high >= 920.0, "{low}–{mid}–{high}");
    assert_eq!(codes(&h100), ["host-bound"]);
    let v100 = on(&recorded, "v100-sxm2-16gb");
    assert_eq!((ends(&v100), codes(&v100)), ([920.0; 3], vec!["host-bound"]));
    // On a slow GPU the host waits for the GPU.
    let busy = profile("b200", step, PRODUCT);
    let t4 = on(&busy, "t4");
    assert!(codes(&t4).is_empty() && t4.host_idle.get() > 0.0, "{:?}", ends(&t4));
    let quick = profile("v100-sxm2-16gb", r#"{"duration_us": 93000, "device_busy_us": 92000}"#, PRODUCT);
    assert!(codes(&on(&quick, "h100-sxm5-80gb")).is_empty());
}

/// 10,000 additions of four numbers, from shapes: launches take longer than the additions.
fn many_small_operations() -> Profile {
    let small =
        r#"{"name": "aten::add", "phase": "forward", "count": 10000, "inputs": [[4], [4]], "dtype": "float32"}"#;
    Profile { origin: None, ..profile("v100-sxm2-16gb", "{}", small) }
}

#[test]
fn shapes_alone_of_many_small_operations_have_a_floor_by_their_number() {
    let shapes = many_small_operations();
    let h100 = on(&shapes, "h100-sxm5-80gb");
    let [low, mid, high] = ends(&h100);
    assert_eq!([low, mid, high].map(f64::round), [90.0, 380.0, 600.0]);
    assert!(
        matches!(h100.warnings[..], [Finding::LaunchBound { launches: 10_000, expected: true, .. }]),
        "{:?}",
        h100.warnings
    );
    // Desktops have faster CPUs.
    assert_eq!(ends(&on(&shapes, "rtx-4090")).map(f64::round), [45.0, 190.0, 300.0]);
    // One warning for both, which covers the hosts of both.
    let targets = ["h100-sxm5-80gb", "rtx-4090"].map(|slug| GpuSlug::new(slug).unwrap()).to_vec();
    let both = predict(&shapes, &catalog(), &Options { targets, ..Options::default() }).unwrap().warnings();
    let [Shared { finding: Finding::LaunchBound { host_us, .. }, gpus: 2, of_gpus: 2, .. }] = &both[..] else {
        panic!("{both:?}");
    };
    assert_eq!(host_us.map(|time| time.as_millis().round()), [45.0, 600.0]);
    let mut large = profile("v100-sxm2-16gb", "{}", &PRODUCT.replace(r#", "device_time_us": 92000"#, ""));
    large.origin = None;
    assert!(codes(&on(&large, "h100-sxm5-80gb")).is_empty());
}

/// GPU busy for 92 of 100 ms: a faster host may remove the whole wait.
#[test]
fn the_range_reaches_down_to_the_device_where_the_host_was_waited_for_at_all() {
    let recorded = profile("v100-sxm2-16gb", r#"{"duration_us": 100000, "device_busy_us": 92000}"#, PRODUCT);
    let quick = profile("v100-sxm2-16gb", r#"{"duration_us": 92000, "device_busy_us": 92000}"#, PRODUCT);
    let ([low, mid, high], [device, ..]) = (ends(&on(&recorded, "t4")), ends(&on(&quick, "t4")));
    assert!((low - device).abs() < 1e-6, "{low} {device}");
    assert!(low < mid && mid < high);
    assert_eq!(ends(&on(&recorded, "v100-sxm2-16gb")), [100.0; 3], "it was measured there");
}

/// GPU busy for 92 of 920 ms, with a host that keeps up as with CUDA graphs.
#[test]
fn a_host_that_keeps_up_leaves_the_work_of_the_device() {
    let recorded = profile("v100-sxm2-16gb", r#"{"duration_us": 920000, "device_busy_us": 92000}"#, PRODUCT);
    let all_busy = profile("v100-sxm2-16gb", r#"{"duration_us": 92000, "device_busy_us": 92000}"#, PRODUCT);
    let h100 = on_with(&recorded, "h100-sxm5-80gb", Host::KeepsUp);
    assert_eq!(ends(&h100), ends(&on(&all_busy, "h100-sxm5-80gb")));
    assert_eq!((h100.host_idle.get(), codes(&h100)), (0.0, vec!["host-keeps-up"]));
    // On the recording GPU the step is then derived, not measured.
    let v100 = on_with(&recorded, "v100-sxm2-16gb", Host::KeepsUp);
    let [low, mid, high] = ends(&v100);
    assert_eq!((low, mid, v100.step.as_estimate().method), (92.0, 92.0, Method::Derived));
    // One kernel: at most 2 µs between launches.
    assert!((high - 92.002).abs() < 1e-9, "{high}");
    assert_eq!(v100.notes[0], Finding::BusyTime);
    let answers = predict(&recorded, &catalog(), &with("t4", Host::KeepsUp)).unwrap();
    let note = "GPU idle, waiting for the CPU: 828.00 ms of each step (90 %); left out on every GPU";
    assert_eq!((answers.host, words::all(&answers.notes)), (Host::KeepsUp, vec![note.to_owned()]));
}

/// One rank of several: exposed communication is subtracted too.
#[test]
fn a_rank_whose_host_keeps_up_waits_for_neither() {
    let step = r#"{"duration_us": 200000, "device_busy_us": 172000}"#;
    let rank = profile("v100-sxm2-16gb", step, &format!("{PRODUCT}, {COLLECTIVE}"));
    let v100 = on_with(&rank, "v100-sxm2-16gb", Host::KeepsUp);
    assert_eq!(ends(&v100), [92.0, 92.0, 172.0]);
    assert_eq!(codes(&v100), ["one-rank", "host-keeps-up"]);
}

#[test]
fn shapes_alone_have_no_floor_where_the_host_keeps_up() {
    let shapes = many_small_operations();
    let h100 = on_with(&shapes, "h100-sxm5-80gb", Host::KeepsUp);
    let [low, mid, high] = ends(&h100);
    let operation = h100.operations[0].time.unwrap().range.mid.as_millis();
    assert!((mid - 10_000.0 * operation).abs() < 1e-9 && low <= mid, "{low}–{mid}");
    // At most 2 µs between launches.
    assert!((high - mid - 20.0).abs() < 1e-9, "{mid}–{high}");
    assert_eq!(codes(&h100), ["host-keeps-up"]);
}

/// Without device times, the host's share of a measured step is unknown.
#[test]
fn what_the_recording_does_not_tell_of_the_host_is_said() {
    let silent = profile("v100-sxm2-16gb", r#"{"duration_us": 92000}"#, PRODUCT);
    for method in [MethodChoice::Auto, MethodChoice::KernelWise] {
        let kernel_wise = Some(Arc::new(bundled::kernel_wise()));
        let options = Options { method, kernel_wise, ..with("v100-sxm2-16gb", Host::KeepsUp) };
        let answers = predict(&silent, &catalog(), &options).unwrap();
        assert!(matches!(answers.predictions[0].step, StepTime::Measured { .. }));
        let said = |note: &&Finding| **note == Finding::UnknownWait;
        assert_eq!(answers.notes.iter().filter(said).count(), 1, "{method:?}: {:?}", answers.notes);
    }
}

#[test]
fn comparisons_batch_sizes_and_plans_have_the_same_host() {
    let recorded = profile("v100-sxm2-16gb", r#"{"duration_us": 920000, "device_busy_us": 92000}"#, PRODUCT);
    let (catalog, options) = (catalog(), with("v100-sxm2-16gb", Host::KeepsUp));
    let comparison = compare(&recorded, &catalog, &options).unwrap();
    assert_eq!((comparison.host, comparison.gpus[0].why.as_str()), (Host::KeepsUp, "derived on this GPU"));
    let sweep = sweep(&[("w".to_owned(), recorded.clone())], &catalog, &options, &[64]).unwrap();
    let steps: Vec<f64> = sweep.gpus[0].rows.iter().map(|row| row.step.range.mid.as_millis()).collect();
    assert!((steps[0], sweep.host) == (92.0, Host::KeepsUp) && steps[1] < 300.0, "{steps:?}");
    let answers = predict(&recorded, &catalog, &options).unwrap();
    let plan = plan(&answers, &PriceBook::default(), &Goal::new(Work::Steps(1000))).unwrap();
    assert_eq!(plan.host, Host::KeepsUp);
}

/// Totals of a black box are of whole steps.
#[test]
fn the_black_box_model_cannot_leave_the_host_out() {
    let recorded = profile("v100-sxm2-16gb", r#"{"duration_us": 920000, "device_busy_us": 92000}"#, PRODUCT);
    let options = Options { method: MethodChoice::BlackBox, ..with("t4", Host::KeepsUp) };
    assert!(matches!(predict(&recorded, &catalog(), &options), Err(PredictError::WholeSteps)));
}

/// Output for a GPU that is busy for 92 of 920 ms.
fn said(args: &[&str]) -> String {
    said_of(&profile("v100-sxm2-16gb", r#"{"duration_us": 920000, "device_busy_us": 92000}"#, PRODUCT), args)
}

/// Output of a command on a step in `w.habitat.json`.
fn said_of(recorded: &Profile, args: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("w.habitat.json"), recorded.to_json().unwrap()).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_habitat-tui"))
        .args(args)
        .current_dir(folder.path())
        .env("HABITAT_TUI_CONFIG_DIR", folder.path().join("config"))
        .env_remove("HABITAT_TUI_MODELS")
        .output()
        .unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!(output.status.code(), Some(0), "{args:?}: {err}");
    out
}

#[test]
fn every_command_says_that_the_host_keeps_up() {
    let sentence = "assuming the CPU keeps up, as with CUDA graphs";
    let commands = [
        "predict w.habitat.json --to t4,v100-sxm2-16gb",
        "predict w.habitat.json --to t4 --all-methods",
        "plan w.habitat.json --steps 1000",
        "batches w.habitat.json --at 64",
        "w.habitat.json",
    ];
    for command in commands {
        let args: Vec<&str> = command.split(' ').collect();
        let keeps_up: Vec<&str> = args.iter().copied().chain(["--host", "keeps-up"]).collect();
        assert!(!said(&args).contains(sentence), "{command}");
        assert!(said(&keeps_up).contains(sentence), "{command}");
        for form in ["--csv", "--markdown", "--toml", "--json"] {
            let has = match form {
                "--toml" => args[0] == "plan",
                "--json" => args[0] != "w.habitat.json",
                _ => ["predict", "batches"].contains(&args[0]),
            };
            if has {
                let text = said(&keeps_up.iter().copied().chain([form]).collect::<Vec<_>>());
                assert!(text.contains(sentence), "{command} {form}: {text}");
                let names_it = match form {
                    "--json" => text.contains(r#""host": "keeps-up""#),
                    "--toml" => text.contains(r#"host = "keeps-up""#),
                    _ => true,
                };
                assert!(names_it, "{command} {form}: {text}");
            }
        }
    }
}

/// A step on a CPU that waits 50 ms for its loader waits as long on a GPU.
#[test]
fn what_a_step_waits_for_its_data_is_added() {
    let json = r#"{"format": "habitat-profile", "version": 1, "workload": {"name": "w", "mode": "training", "batch_size": 32},
        "step": {"data_wait_us": 50000}, "operations": [{"name": "aten::mm", "phase": "forward", "inputs": [[8192, 8192], [8192, 8192]], "dtype": "float32"}]}"#;
    let waits = Profile::from_json(json.as_bytes()).unwrap().0;
    let none = Profile::from_json(json.replace("50000", "0").as_bytes()).unwrap().0;
    let ([low, mid, high], [least, alone, most]) = (ends(&on(&waits, "t4")), ends(&on(&none, "t4")));
    assert!((mid - alone - 50.0).abs() < 1e-6 && (high - most - 50.0).abs() < 1e-6 && (low - least).abs() < 1e-6);
    assert_eq!(codes(&on(&waits, "t4")), ["late-data"]);
    assert_eq!(on(&waits, "t4").host_idle.as_millis(), 50.0);
    let kept_up = on_with(&waits, "t4", Host::KeepsUp);
    assert!(ends(&kept_up)[1] < mid - 49.0 && codes(&kept_up) == ["host-keeps-up"]);
}

/// Workers load beside the training: a step shorter than their period waits for the rest of it.
#[test]
fn workers_of_a_loader_are_waited_for_by_steps_that_are_shorter() {
    let json = r#"{"format": "habitat-profile", "version": 1, "workload": {"name": "w", "mode": "training", "batch_size": 32},
        "step": {"data_wait_us": 50000, "loader_period_us": 150000}, "operations": [{"name": "aten::mm", "phase": "forward", "inputs": [[8192, 8192], [8192, 8192]], "dtype": "float32"}]}"#;
    let loads = Profile::from_json(json.as_bytes()).unwrap().0;
    let bare = r#""step": {"data_wait_us": 50000, "loader_period_us": 150000}, "#;
    let none = Profile::from_json(json.replace(bare, "").as_bytes()).unwrap().0;
    for gpu in ["t4", "h100-sxm5-80gb"] {
        let ([low, mid, high], [least, alone, most]) = (ends(&on(&loads, gpu)), ends(&on(&none, gpu)));
        assert!((mid - alone.max(150.0)).abs() < 1e-6 && (high - most.max(150.0)).abs() < 1e-6, "{gpu}: {mid} {alone}");
        assert!((low - least).abs() < 1e-6);
        let waits = 150.0 - alone;
        assert_eq!(codes(&on(&loads, gpu)).contains(&"slow-loader"), waits >= 7.5, "{gpu}: {waits}");
    }
}

/// One warning, although the share differs between GPUs.
#[test]
fn waiting_for_data_is_said_once() {
    for period in ["", r#", "loader_period_us": 9000"#] {
        let json = r#"{"format": "habitat-profile", "version": 1, "workload": {"name": "w", "mode": "training", "batch_size": 32},
            "step": {"data_wait_us": 6840}, "operations": [{"name": "aten::mm", "phase": "forward", "inputs": [[2048, 2048], [2048, 2048]], "dtype": "float32"}]}"#;
        let profile = Profile::from_json(json.replace("6840", &format!("6840{period}")).as_bytes()).unwrap().0;
        let all = predict(&profile, &catalog(), &Options::default()).unwrap();
        let warnings: Vec<String> = words::all(&all.warnings());
        let said: Vec<&String> = warnings.iter().filter(|text| text.contains("waits for data")).collect();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains(" ms per step, ") && said[0].contains(" % of the step"), "{said:?}");
        assert_eq!(said[0].contains("6.84 ms per step"), period.is_empty(), "{said:?}");
        let briefs: Vec<String> = all.warnings().iter().map(Words::brief).collect();
        assert_eq!(briefs.iter().filter(|text| text.contains("data loader")).count(), 1, "{briefs:?}");
    }
}

/// Samples per second on one GPU at the recorded batch and at another one.
fn rates(recorded: &Profile, batch: u64, gpu: &str, host: Host) -> [f64; 2] {
    let found = sweep(&[("w".to_owned(), recorded.clone())], &catalog(), &with(gpu, host), &[batch]).unwrap();
    let at = |batch| found.gpus[0].rows.iter().find(|row| row.batch == batch).unwrap().throughput.unwrap().mid.get();
    [recorded.workload.batch_size.unwrap(), batch].map(at)
}

/// The training process loads images for 70 ms a step, 13 of them hidden by the GPU's work. Loading grows with the batch.
#[test]
fn loading_takes_longer_for_a_larger_batch() {
    let sample = bundled::sample(Sample::ResNet50V100);
    let gain = |host| {
        let [now, larger] = rates(&sample, 256, "v100-sxm2-32gb", host);
        larger / now
    };
    let (waits, keeps_up) = (gain(Host::AsRecorded), gain(Host::KeepsUp));
    assert!((1.0..1.3).contains(&waits) && keeps_up < 1.3, "{waits} {keeps_up}");
    let text = said_of(&sample, &["batches", "w.habitat.json", "--at", "256"]);
    // The wait is that of the row, and no rate is named that no row has.
    assert!(text.contains(" while the training process loads") && !text.contains("458 samples/s"), "{text}");
    // A faster GPU hides less of the loading; a slower one more.
    let waits = |gpu| on(&sample, gpu).data_wait().as_millis();
    let [fast, own, slow] = ["h100-sxm5-80gb", "v100-sxm2-32gb", "t4"].map(waits);
    assert!(fast > own && own > slow && (own - 57.7).abs() < 0.2, "{fast} {own} {slow}");
    assert!(codes(&on(&sample, "h100-sxm5-80gb")).contains(&"loads-itself"));
}

/// GPU busy for 92 of 150 ms; workers need 100 ms for the data of a step, so only shorter steps wait.
#[test]
fn workers_load_beside_a_step_of_any_batch() {
    let step = r#"{"duration_us": 150000, "device_busy_us": 92000, "loader_period_us": 100000, "loader_workers": 4}"#;
    let recorded = profile("v100-sxm2-16gb", step, PRODUCT);
    let bare = profile("v100-sxm2-16gb", r#"{"duration_us": 150000, "device_busy_us": 92000}"#, PRODUCT);
    let [[_, loads], [_, alone]] = [&recorded, &bare].map(|of| rates(of, 64, "v100-sxm2-16gb", Host::AsRecorded));
    assert!((loads / alone - 1.0).abs() < 1e-9, "{loads} {alone}");
    let [now, larger] = rates(&recorded, 256, "h100-sxm5-80gb", Host::AsRecorded);
    assert!((now - 320.0).abs() < 1.0 && (larger - 320.0).abs() < 1.0, "{now} {larger}: 32 samples in 100 ms");
}

/// Eight processes, each with four workers, on the CPUs of a machine.
#[test]
fn processes_of_a_machine_share_its_cpus() {
    let step = r#"{"duration_us": 100000, "device_busy_us": 92000, "loader_period_us": 90000, "loader_workers": 4, "cpus": 4}"#;
    let mut recorded = profile("v100-sxm2-16gb", step, PRODUCT);
    recorded.workload.parameter_count = Some(1_000_000);
    let v100 = on(&recorded, "v100-sxm2-16gb");
    let mut workload = recorded.workload.clone();
    workload.batch_size = Some(32);
    let of = |gpus, cpus| {
        let step = v100.planning_step();
        let one = v100.micro_batch(&step, Some(32), v100.data.as_ref());
        let layout = Layout { cpus, ..Layout::one_machine(gpus) };
        let scaled = optimizer_step(&one, &v100.gpu, &layout, &workload, Factors::default(), 1).unwrap();
        (scaled.step.range.map(Micros::as_millis), scaled.scaling.words())
    };
    let why = |gpus, cpus| of(gpus, cpus).1;
    assert!(!why(1, Some(4.0)).contains("for data"), "{}", why(1, Some(4.0)));
    assert!(why(1, Some(2.0)).ends_with("; 80.0 ms for data on 2 CPUs"), "{}", why(1, Some(2.0)));
    let of = |gpus, cpus| of(gpus, cpus).0;
    assert_eq!(of(1, None).mid.to_bits(), 100_f64.to_bits());
    // Two workers for each process instead of four: 180 ms.
    assert!((of(8, Some(16.0)).mid - 180.0).abs() < 1e-6 && of(8, Some(64.0)).mid < 170.0);
    // Unknown CPUs: enough of them, or at the high end those of the recording, half a core per process.
    let unknown = of(8, None);
    assert!(unknown.mid < 170.0 && (unknown.high - 720.0).abs() < 1e-6, "{unknown:?}");
    // A machine with fewer CPUs than the recording's.
    assert!((of(1, Some(2.0)).mid - 180.0).abs() < 1e-6);
}

/// Workers deliver every 50 ms: the GPU waits 58 of 150 ms for something else, on any GPU.
#[test]
fn a_wait_beside_fast_workers_is_that_for_the_host() {
    let step = r#"{"duration_us": 150000, "device_busy_us": 92000, "loader_period_us": 50000, "loader_workers": 4}"#;
    let mut recorded = profile("v100-sxm2-16gb", step, PRODUCT);
    let timeline = r#"{"duration_us": 150000, "parts": [{"operation": 0}, {"name": "DataLoader"}], "lanes": [
        {"kind": "host", "start_us": [0], "duration_us": [58000], "part": [1]},
        {"kind": "compute", "start_us": [58000], "duration_us": [92000], "part": [0]}]}"#;
    recorded.timeline = Some(serde_json::from_str(timeline).unwrap());
    let v100 = on(&recorded, "v100-sxm2-16gb");
    assert!((v100.data.unwrap().alone.range.mid.as_millis() - 150.0).abs() < 1e-9, "{:?}", v100.data);
    let h100 = on(&recorded, "h100-sxm5-80gb");
    assert!((h100.host_idle.as_millis() - 58.0).abs() < 1e-9 && ends(&h100)[1] > 58.0, "{:?}", ends(&h100));
}

/// 30 of 100 ms wait for data, 36 of the other 70 for the host: the recorded step was CPU-bound, so its pace is known.
#[test]
fn a_step_is_cpu_bound_by_its_share_without_data() {
    let step = r#"{"duration_us": 100000, "device_busy_us": 34000}"#;
    let mut recorded = profile("v100-sxm2-16gb", step, &PRODUCT.replace("92000", "34000"));
    let timeline = r#"{"duration_us": 100000, "parts": [{"operation": 0}, {"name": "DataLoader_SingleProcess"}], "lanes": [
        {"kind": "host", "start_us": [0], "duration_us": [30000], "part": [1]},
        {"kind": "compute", "start_us": [30000], "duration_us": [34000], "part": [0]}]}"#;
    recorded.timeline = Some(serde_json::from_str(timeline).unwrap());
    for gpu in ["v100-sxm2-16gb", "h100-sxm5-80gb"] {
        let found = on(&recorded, gpu);
        let bound = found.warnings.iter().find_map(|one| match one {
            Finding::HostBound { idle_us, data_us, launch_us, .. } => {
                Some((idle_us.as_millis(), data_us.as_millis(), *launch_us))
            }
            _ => None,
        });
        assert_eq!(bound, Some((36.0, 30.0, None)), "{:?}", found.warnings);
    }
}

/// Loading takes as long on a GPU with four times the speed, which hides less of it.
#[test]
fn a_hypothetical_gpu_loads_no_faster() {
    let sample = bundled::sample(Sample::ResNet50V100);
    let gpu = GpuSlug::new("v100-sxm2-32gb").unwrap();
    let changes = Changes::default().with(Figure::Bandwidth, 4.0).with(Figure::Clock, 4.0);
    let options = with(gpu.as_str(), Host::AsRecorded);
    let found = what_if(&sample, &catalog(), &options, &gpu, &changes, Figure::Clock).unwrap();
    let (real, faster) = (found.real.data.unwrap(), found.changed.data.unwrap());
    assert_eq!(real.load, faster.load);
    let waits = [real.wait(), faster.wait(), real.load].map(Micros::as_millis);
    assert!(waits.is_sorted_by(|a, b| a < b), "{real:?} {faster:?}");
    let sum = (faster.alone.range.mid + faster.wait()).as_millis();
    let at_four = found.curve.iter().find(|(times, _)| *times == 4.0).unwrap().1.as_millis();
    for step in [ends(&found.changed)[1], at_four] {
        assert!((step - sum).abs() < 1e-9, "{step} {sum}");
    }
    let rate = found.changed.throughput.unwrap().mid.get();
    assert!((rate * sum / 1e3 - 32.0).abs() < 1e-9, "{rate}");
}

/// 10,000 launches take longer than their work on any GPU, so assumed hosts would rank the GPUs.
#[test]
fn a_comparison_of_assumed_hosts_says_so_first() {
    let text = said_of(&many_small_operations(), &["predict", "w.habitat.json", "--to", "rtx-4090,h100-sxm5-80gb"]);
    let place = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words}: {text}"));
    assert!(text.starts_with("CPU-bound on GeForce RTX 4090, H100 SXM5 80GB, with assumed CPUs"), "{text}");
    assert!(place("GPU alone: ") < place("On: ") && place("--host keeps-up") < place("On: "));
    assert!(!text.contains("Work per dollar"), "{text}");
    let compared = text.lines().find(|line| line.starts_with("Compared with ")).unwrap();
    assert!(compared.contains(" × as fast by its CPU (") && compared.contains(" × for the GPU alone)"));
    let all = said_of(&many_small_operations(), &["predict", "w.habitat.json"]);
    let fastest = all.lines().find(|line| line.starts_with("Fastest GPU: ")).unwrap();
    assert!(fastest.contains("bound by its assumed CPU"), "{fastest}");
    assert!(all.starts_with("CPU-bound on 1") && !all.contains("bound of the step"), "{all}");
}
