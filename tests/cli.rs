//! The command line: arguments in; text, files and exit codes out.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use habitat_tui::predict::bundle::{Bundle, Plain};
use habitat_tui::predict::habitat::Kind;
use habitat_tui::predict::mlp::{Activation, Architecture, Mlp};
use habitat_tui::store::bundled;
use serde_json::Value;

struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    fn run(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_habitat-tui"))
            .args(args)
            .current_dir(self.folder.path())
            .env("HABITAT_TUI_CONFIG_DIR", self.path("config"))
            .env_remove("HABITAT_TUI_THEME")
            .env_remove("HABITAT_TUI_MODELS")
            .output()
            .unwrap()
    }

    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(args)).unwrap()
    }

    /// Exit code 2 and the message.
    fn error(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", text(&output.stdout));
        text(&output.stderr)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A step of two operations measured on a V100.
const PROFILE: &str = r#"{"format": "habitat-profile", "version": 1,
  "workload": {"name": "tiny", "mode": "training", "batch_size": 64, "precision": "fp32", "parameter_count": 1000000},
  "origin": {"gpu": "v100-sxm2-16gb"},
  "step": {"duration_us": 1000.0, "device_busy_us": 900.0, "peak_memory_bytes": 4000000000},
  "operations": [
    {"name": "aten::mm", "phase": "forward", "inputs": [[4096, 1024], [1024, 1024]], "outputs": [[4096, 1024]], "dtype": "float32", "device_time_us": 700.0},
    {"name": "aten::relu", "phase": "forward", "count": 2, "inputs": [[4096, 1024]], "outputs": [[4096, 1024]], "dtype": "float32", "device_time_us": 100.0,
     "kernels": [{"name": "relu", "duration_us": 100.0, "grid": [4096, 1, 1], "block": [256, 1, 1], "registers_per_thread": 32}]}]}"#;

#[test]
fn without_a_terminal_the_report_is_printed() {
    let bench = Bench::new();
    assert!(bench.ok(&[]).contains("embedded sample, not your program: BERT-large"));
    let report = bench.ok(&["--sample", "resnet50-v100"]);
    assert!(report.contains("embedded sample, not your program: ResNet-50"), "{report}");
    // The longest wait in the timeline: the training thread itself loads the images.
    let wait = "longest 57.3 ms at its start (the CPU was in enumerate(DataLoader) for 57.0 ms)";
    assert!(report.contains(wait), "{report}");
    assert!(report.contains("h100-sxm5-80gb"));
    assert!(report.contains("measured"));
}

/// The screens open with the report's plan, and `C` copies its command.
#[test]
fn the_report_plans_with_other_batches_as_plan_does() {
    let bench = Bench::new();
    let asked = ["--samples", "10M", "--gpus", "h100-sxm5-80gb", "--max-gpus", "1"];
    let report = |more: &[&str]| bench.ok(&[&asked[..], more].concat());
    let plan = bench.ok(&[&["plan"], &asked[..], &["--batch-sizes", "96"]].concat());
    let line = plan.lines().find(|line| line.contains("batch: 96 samples per GPU")).expect("a larger batch pays here");
    assert!(report(&["--batch-sizes", "96"]).contains(line), "{line}");
    assert!(!report(&[]).contains("batch: 96"));
}

#[test]
fn every_command_reads_every_sample_by_name() {
    let bench = Bench::new();
    for name in ["bert-large-h100", "resnet50-h200", "resnet50-v100"] {
        for command in [
            &["predict", "--to", "h100-sxm5-80gb"][..],
            &["plan", "--steps", "1M", "--gpus", "h100-sxm5-80gb"],
            &["batches", "--to", "h100-sxm5-80gb"],
            &["models", "suggest", "--to", "h100-sxm5-80gb"],
        ] {
            bench.ok(&[command, &["--sample", name]].concat());
        }
        if name == "resnet50-v100" {
            bench.ok(&["export", "--black-box", "--sample", name]);
        }
        // A plan of a sample finds it again, for every sample.
        let toml = bench.ok(&["plan", "--steps", "1M", "--gpus", "h100-sxm5-80gb", "--toml", "--sample", name]);
        let plan = bench.file("plan.toml", &toml);
        bench.ok(&["plan", "--from", path(&plan)]);
    }
    let error = bench.error(&["predict", "--sample", "resnet50"]);
    assert!(error.contains("bert-large-h100, resnet50-h200, resnet50-v100"), "{error}");
    assert!(bench.error(&["predict", "--sample"]).contains("bert-large-h100, resnet50-h200, resnet50-v100"));
    let profile = bench.file("p.habitat.json", PROFILE);
    assert!(bench.error(&["predict", path(&profile), "--sample", "resnet50-v100"]).contains("cannot be used with"));
}

#[test]
fn predictions_as_json() {
    let bench = Bench::new();
    let profile = bench.file("p.habitat.json", PROFILE);
    let all = bench.json(&["predict", path(&profile), "--json"]);
    assert_eq!((all["format"].as_str(), all["version"].as_u64()), (Some("habitat-predictions"), Some(2)));
    assert_eq!(all["predictions"].as_array().unwrap().len(), bundled::gpus().len());
    assert_eq!(all["origin"]["gpu"], "v100-sxm2-16gb");
    let one =
        bench.json(&["predict", path(&profile), "--to", "h100-sxm5-80gb,v100-sxm2-16gb", "--json", "--operations"]);
    let [h100, v100] = one["predictions"].as_array().unwrap().as_slice() else { panic!("{one}") };
    assert_eq!(h100["gpu"], "h100-sxm5-80gb");
    let number = |value: &Value| value.as_f64().unwrap();
    let step = &h100["step_time_us"];
    assert!(number(&step["low"]) < number(&step["mid"]) && number(&step["mid"]) < number(&step["high"]));
    assert!(number(&step["mid"]) < 1000.0, "an H100 is faster: {step}");
    assert_eq!(h100["fits_in_memory"], "yes");
    assert_eq!(h100["operations"].as_array().unwrap().len(), 2);
    assert_eq!(h100["operations"][0]["method"], "learned-ratio");
    assert_eq!(h100["operations"][1]["method"], "wave-scaling");
    let throughput = number(&h100["throughput_samples_per_s"]["mid"]);
    assert!((throughput - 64.0 / (number(&step["mid"]) * 1e-6)).abs() < 1e-6 * throughput);
    // The origin itself shows its measurement, with a label.
    assert_eq!((v100["method"].as_str(), number(&v100["step_time_us"]["mid"])), (Some("measured"), 1000.0));
    // Without the origin, shapes predict everything.
    let bare = bench.json(&["predict", path(&profile), "--ignore-origin", "--to", "v100-sxm2-16gb", "--json"]);
    assert_eq!(bare.get("origin"), None);
    assert_eq!(bare["predictions"][0]["method"], "learned");
    let rule = bench.json(&["predict", path(&profile), "--to", "v100-sxm2-16gb", "--json", "--method", "roofline"]);
    assert_eq!(rule["predictions"][0]["method"], "roofline");
    assert_ne!(number(&bare["predictions"][0]["step_time_us"]["mid"]), 1000.0);
}

#[test]
fn what_makes_the_difference_adds_up() {
    let bench = Bench::new();
    let profile = bench.file("p.habitat.json", PROFILE);
    let two = ["predict", path(&profile), "--to", "v100-sxm2-16gb,h100-sxm5-80gb", "--difference"];
    let found = bench.json(&[&two[..], &["--json"]].concat());
    let number = |value: &Value| value.as_f64().unwrap();
    let operations = found["operations"].as_array().unwrap();
    // Largest difference first.
    assert_eq!([&operations[0]["name"], &operations[1]["name"]], ["mm", "relu"]);
    let (mm, relu) = (&operations[0]["device_time_us"], &operations[1]["device_time_us"]);
    assert_eq!([number(&mm[0]), number(&relu[0]), number(&found["rest_us"][0])], [700.0, 200.0, 100.0]);
    let sum = number(&mm[1]) + number(&relu[1]) + number(&found["rest_us"][1]);
    assert!((sum - number(&found["gpus"][1]["step_time_us"]["mid"])).abs() < 1e-6, "{found}");
    let text = bench.ok(&two);
    assert!(text.contains("1.0 ms on Tesla V100-SXM2-16GB (measured), "), "{text}");
    assert!(text.contains(" on H100 SXM5 80GB (predicted, "), "{text}");
    let csv = bench.ok(&[&two[..], &["--csv"]].concat());
    assert!(csv.starts_with("operation,phase,count,first_us,second_us,difference_us\n"), "{csv}");
    assert_eq!(csv.lines().count(), 6);
    assert!(bench.ok(&two).starts_with("tiny"));
    let one = bench.error(&["predict", path(&profile), "--to", "t4", "--difference"]);
    assert!(one.contains("--difference compares two GPUs, but 1 were given: pass two"), "{one}");
}

#[test]
fn a_gpu_with_other_figures_is_predicted_beside_the_real_one() {
    let bench = Bench::new();
    let profile = bench.file("p.habitat.json", PROFILE);
    let asked = |changes: &'static str| ["predict", path(&profile), "--to", "v100-sxm2-16gb", "--what-if", changes];
    let steps = |changes| {
        let found = bench.json(&[&asked(changes)[..], &["--json"]].concat());
        let [real, changed] = found["predictions"].as_array().unwrap().as_slice() else { panic!("{found}") };
        assert_eq!((&real["gpu"], &changed["gpu"]), (&"v100-sxm2-16gb".into(), &"what-if-v100-sxm2-16gb".into()));
        assert_eq!(real["method"], "measured");
        assert_ne!(changed["method"], "measured");
        [real, changed].map(|step| step["step_time_us"]["mid"].as_f64().unwrap())
    };
    // No change gives the measured step.
    let [real, same] = steps("bandwidth=1");
    assert!((same - real).abs() < 1e-6 * real, "{same} {real}");
    // A step of a product and of two memory-bound passes gains from both.
    let [_, faster] = steps("bandwidth=2");
    let [_, more] = steps("bandwidth=2x,sms=1.5,clock=1.2");
    assert!(more < faster && faster < 0.99 * real, "{more} {faster} {real}");
    let text = bench.ok(&asked("memory=0.5,bandwidth=2"));
    assert!(
        text.contains("what-if-v100-sxm2-16gb: Tesla V100-SXM2-16GB with 2 × memory bandwidth, 0.5 × memory"),
        "{text}"
    );
    let difference = bench.ok(&[&asked("sms=2")[..], &["--difference"]].concat());
    assert!(difference.contains("first step") && difference.contains("relu"), "{difference}");
    for (changes, expected) in [
        ("bandwidth", "expected NAME=FACTOR, such as bandwidth=2"),
        ("cache=2", "unknown name \"cache\"; names: bandwidth, sms, clock, tensor, memory"),
        ("sms=0", "sms=0: the factor must be from 0.1 to 10"),
        ("sms=NaN", "sms=NaN: the factor must be"),
    ] {
        let message = bench.error(&asked(changes));
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn predictions_in_other_forms() {
    let bench = Bench::new();
    let profile = bench.file("p.habitat.json", PROFILE);
    let csv = bench.ok(&["predict", path(&profile), "--csv"]);
    assert_eq!(csv.lines().count(), 109);
    assert!(csv.starts_with("gpu,step_time_us_mid,"));
    let markdown = bench.ok(&["predict", path(&profile), "--markdown", "--to", "t4"]);
    assert!(markdown.starts_with("# Step times: "), "{markdown}");
    assert_eq!(markdown.lines().filter(|line| line.starts_with('|')).count(), 3);
    let operations = bench.ok(&["predict", path(&profile), "--csv", "--operations", "--to", "t4,l4"]);
    assert_eq!(operations.lines().count(), 5);
}

#[test]
fn a_plan_as_json_and_toml() {
    let bench = Bench::new();
    let profile = bench.file("p.habitat.json", PROFILE);
    let args = ["plan", path(&profile), "--samples", "1e9", "--deadline", "48h", "--budget", "5000"];
    let plan = bench.json(&[&args[..], &["--json"]].concat());
    assert_eq!(
        (plan["format"].as_str(), plan["version"].as_u64(), plan["status"].as_str()),
        (Some("habitat-plan"), Some(2), Some("optimal"))
    );
    let part = &plan["parts"][0];
    for key in
        ["provider", "region", "instance_type", "gpu", "gpu_count", "nodes", "tier", "batch_size", "price_usd_per_hour"]
    {
        assert!(!part[key].is_null(), "{key}: {part}");
    }
    let hours = |end: &str| plan["total"]["hours"][end].as_f64().unwrap();
    assert!(hours("low") <= hours("mid") && hours("mid") <= hours("high") && hours("high") <= 48.0);
    let rejected = plan["rejected"].as_array().unwrap();
    let told =
        |reason: &Value| ["code", "text"].iter().all(|key| reason[key].as_str().is_some_and(|it| !it.is_empty()));
    assert!(rejected.iter().all(|rejected| told(&rejected["reason"])));
    assert!(part["notes"].as_array().unwrap().iter().all(told), "{part}");
    assert!(rejected.iter().any(|rejected| rejected["kind"] == "unusable_price"));
    let toml: toml::Table = bench.ok(&[&args[..], &["--toml"]].concat()).parse().unwrap();
    assert_eq!(toml["plan"]["status"].as_str(), Some("optimal"));
    assert_eq!(toml["part"][0]["offer"].as_str(), part["offer"].as_str());
    let expected = |key: &str| toml["totals"][key][1].as_float().unwrap();
    assert!((expected("hours") / hours("mid") - 1.0).abs() < 1e-5);
    assert!((expected("cost_usd") - plan["total"]["cost_usd"]["mid"].as_f64().unwrap()).abs() <= 0.005);
}

#[test]
fn a_plan_is_written_to_a_file_and_never_over_one_unasked() {
    let bench = Bench::new();
    let profile = bench.file("p.habitat.json", PROFILE);
    let args = ["plan", path(&profile), "--steps", "1000", "-o", "plan.toml"];
    bench.ok(&args);
    let first = std::fs::read_to_string(bench.path("plan.toml")).unwrap();
    assert!(bench.error(&args).contains("already exists"));
    assert_eq!(std::fs::read_to_string(bench.path("plan.toml")).unwrap(), first);
    bench.ok(&[&args[..], &["--force"]].concat());
}

#[test]
fn what_cannot_be_met_is_told_with_exit_code_1() {
    let bench = Bench::new();
    let profile = bench.file("p.habitat.json", PROFILE);
    for limit in [["--deadline", "1m"], ["--budget", "0.01"]] {
        let output = bench.run(&[&["plan", path(&profile), "--samples", "1e9", "--json"], &limit[..]].concat());
        assert_eq!(output.status.code(), Some(1), "{limit:?}");
        let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(plan["status"], "infeasible");
        assert!(!plan["reasons"].as_array().unwrap().is_empty());
        assert_eq!(plan.get("total"), None);
    }
    let output = bench.run(&["plan", path(&profile)]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--samples"));
}

#[test]
fn an_unknown_gpu_is_met_with_near_names() {
    let bench = Bench::new();
    for (filter, words) in [
        (&["gpus", "h100x"][..], "no GPU \"h100x\" in the catalog (near: h100-sxm5-80gb"),
        (&["gpus", "zzz", "--json"], "`habitat-tui gpus` lists all"),
        (&["offers", "--gpu", "a16"], "no offer matches \"a16\"; `habitat-tui offers --all` lists all"),
    ] {
        let empty = bench.run(filter);
        assert_eq!(empty.status.code(), Some(1));
        assert!(text(&empty.stderr).contains(words), "{filter:?}: {}", text(&empty.stderr));
    }
    let profile = bench.file("p.habitat.json", PROFILE);
    let error = bench.error(&["predict", path(&profile), "--to", "h100x"]);
    assert!(error.contains("h100-sxm5-80gb") && error.contains("habitat-tui gpus"), "{error}");
    let foreign = bench
        .file("f.habitat.json", PROFILE.replace(r#""gpu": "v100-sxm2-16gb""#, r#""gpu_name": "Tesla V100 Mystery""#));
    let error = bench.error(&["predict", path(&foreign)]);
    assert!(
        error.contains("--origin") && error.contains("--ignore-origin") && error.contains("Tesla V100 Mystery"),
        "{error}"
    );
    bench.ok(&["predict", path(&foreign), "--origin", "v100-sxm2-16gb"]);
    bench.ok(&["predict", path(&foreign), "--ignore-origin"]);
}

#[test]
fn recorded_facts_are_not_replaced_by_flags() {
    let bench = Bench::new();
    let profile = bench.file("p.habitat.json", PROFILE);
    for (flag, value) in
        [("--batch-size", "1e9"), ("--parameters", "5M"), ("--peak-memory", "1GB"), ("--batch-size", "0")]
    {
        let error = bench.error(&["predict", path(&profile), flag, value]);
        assert!(error.contains(flag), "{error}");
    }
    bench.ok(&["predict", path(&profile), "--batch-size", "64", "--sequence-length", "128"]);
}

#[test]
fn bad_files_are_named_with_place_and_remedy() {
    let bench = Bench::new();
    let mut cut = Vec::new();
    std::io::Write::write_all(
        &mut flate2::write::GzEncoder::new(&mut cut, flate2::Compression::default()),
        PROFILE.repeat(50).as_bytes(),
    )
    .unwrap();
    cut.truncate(cut.len() / 2);
    for (name, content, expected) in [
        ("empty.json", Vec::new(), "empty"),
        ("prose.json", b"hello".to_vec(), "looks like text"),
        ("cut.json", PROFILE.as_bytes()[..300].to_vec(), "line"),
        ("cut.json.gz", cut, "truncated"),
        ("nan.json", PROFILE.replace("700.0", "NaN").into_bytes(), "line"),
        ("negative.json", PROFILE.replace("700.0", "-700.0").into_bytes(), "operations[0].device_time_us: -700"),
        ("huge.json", PROFILE.replace("700.0", "1e999").into_bytes(), "out of range"),
        ("version.json", PROFILE.replace("\"version\": 1", "\"version\": 2").into_bytes(), "version: found 2"),
        ("none.json", PROFILE.split("\"operations\"").next().unwrap().to_owned().into_bytes(), "line"),
        ("text.json", PROFILE.replace("700.0", "\"long\"").into_bytes(), "operations[0].device_time_us"),
    ] {
        let file = bench.file(name, content);
        for command in ["predict", "check"] {
            let error = bench.error(&[command, path(&file)]);
            assert!(error.contains(name) && error.contains(expected), "{name}: {error}");
        }
    }
    assert!(bench.error(&["predict", "missing.json"]).contains("missing.json: no such file"));
    assert!(bench.error(&["predict", "."]).contains("folder"));
}

/// A measured step needs no catalog; the error suggests GPUs.
#[test]
fn a_step_of_an_unknown_gpu_is_shown_and_then_the_remedy() {
    let bench = Bench::new();
    let unknown = |origin: &str| PROFILE.replace("{\"gpu\": \"v100-sxm2-16gb\"}", origin);
    let file = bench.file("h.habitat.json", unknown("{\"gpu_name\": \"NVIDIA H100 of tomorrow\"}"));
    for command in [&["predict", path(&file)][..], &[path(&file)], &["predict", "--all-methods", path(&file)]] {
        let output = bench.run(command);
        assert_eq!(output.status.code(), Some(2));
        let (shown, error) = (text(&output.stdout), text(&output.stderr));
        assert!(shown.contains("step 1.0 ms measured") && shown.contains("aten::mm"), "{shown}");
        assert!(error.contains("--origin (it may be ") && error.contains("h100-sxm5-80gb"), "{error}");
    }
    let answered = bench.ok(&["predict", path(&file), "--origin", "h100-sxm5-80gb", "--to", "l4"]);
    assert_eq!(answered.matches("step 1.0 ms measured").count(), 1, "{answered}");
    // JSON has the answer or is empty.
    assert!(bench.run(&["predict", path(&file), "--json"]).stdout.is_empty());
    // Without a name, the kernels show the GPU.
    let file = bench.file("k.habitat.json", unknown("{}").replace("\"name\": \"relu\"", "\"name\": \"sm90_relu\""));
    let error = bench.error(&["predict", path(&file)]);
    assert!(error.contains("compute capability 9.0 or newer") && error.contains("h100-pcie-80gb"), "{error}");
}

/// A number of steps needs no batch size; samples, epochs and tokens do.
#[test]
fn steps_are_planned_without_a_batch_size() {
    let bench = Bench::new();
    let with = bench.file("with.habitat.json", PROFILE);
    let without = bench.file("without.habitat.json", PROFILE.replace("\"batch_size\": 64, ", ""));
    let plan = |file: &Path, form: &str| bench.ok(&["plan", path(file), "--steps", "10k", form]);
    let json = |file: &Path| serde_json::from_str::<Value>(&plan(file, "--json")).unwrap();
    let (known, unknown) = (json(&with), json(&without));
    assert_eq!(known["total"], unknown["total"]);
    assert_eq!((known["work_samples"].as_f64(), unknown["work_steps"].as_f64()), (Some(640_000.0), Some(10_000.0)));
    assert!(unknown.get("work_samples").is_none() && unknown["parts"][0].get("batch_size").is_none());
    let text = plan(&without, "--all");
    assert!(text.contains("\nwork: 10,000 steps of one GPU; energy: "), "{text}");
    // The answer comes first.
    assert!(text.starts_with("Take 1 × ") && text.lines().nth(1).unwrap().contains("cheapest of "), "{text}");
    // Number of rejected offers and the reasons, nearest first.
    let rejected = text.lines().skip_while(|line| !line.starts_with("Rejected (")).take(2).collect::<Vec<_>>();
    assert!(rejected[0].contains(" not the best, ") && rejected[0].contains(" without a usable price"), "{rejected:?}");
    assert!(rejected[1].contains("more than the plan"), "{rejected:?}");
    let toml: toml::Table = plan(&without, "--toml").parse().unwrap();
    assert_eq!(toml["part"][0]["steps"].as_float(), Some(10_000.0));
    for work in [&["--samples", "1M"][..], &["--epochs", "3", "--dataset", "1M"], &["--tokens", "1M"]] {
        let error = bench.error(&[&["plan", path(&without)], work].concat());
        assert!(error.contains("--batch-size") && error.contains("--steps"), "{error}");
    }
}

#[test]
fn files_of_other_kinds_are_told_and_the_command_that_reads_them() {
    let bench = Bench::new();
    let profile = bench.file("step.habitat.json", PROFILE);
    let file = |name: &str, content: &[u8]| bench.file(name, content);
    let csv = file("runs.csv", b"batch,iterations,seconds\n16,100,3\n");
    let png = file("loss.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
    let secret = file("secret.blackbox.json", b"{\"format\": \"habitat-black-box\", \"version\": 1}");
    let empty = file("empty.json", b"");
    let code = file("train.py", b"import torch\n");
    for (path_, what, read_here) in [
        (&csv, "looks like a table (CSV); read a log of runs with `habitat-tui fit", "op list"),
        (&png, "looks like a picture (PNG)", "op list"),
        (&secret, "looks like a black box; `habitat-tui predict --black-box", "op list"),
        (&empty, "looks like an empty file", "op list"),
        (&code, "looks like a Python program; `habitat-tui run -- python", "op list"),
    ] {
        let out = bench.path("out.habitat.json");
        for command in [
            &["predict", path(path_)][..],
            &["batches", path(path_)],
            &[path(path_)],
            &["import", path(path_), "-o", path(&out)],
        ] {
            let error = bench.error(command);
            assert!(
                error.contains(path(path_)) && error.contains(what) && error.contains(read_here),
                "{command:?}: {error}"
            );
        }
    }
    let empty = path(&empty);
    for command in [&["plan", "--from", empty][..], &["plan-jobs", empty], &["compare", empty, empty]] {
        let error = bench.error(command);
        assert!(error.contains("looks like an empty file; the program that wrote it"), "{command:?}: {error}");
    }
    let error = bench.error(&["import", path(&profile), "-o", path(&bench.path("x.habitat.json"))]);
    assert!(error.contains("looks like a profile; `habitat-tui") && error.contains("` opens it"), "{error}");
    let error = bench.error(&["predict", "--black-box", path(&profile)]);
    assert!(error.contains("looks like a profile") && error.contains("export --black-box"), "{error}");
    let damaged = file("trace.json.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\0\xff\xff\xff\xff");
    assert!(bench.error(&["predict", path(&damaged)]).contains("damaged"));
}

#[test]
fn bad_catalog_and_price_files_are_named_with_key() {
    for (name, content, expected) in [
        ("config/catalog/mine.toml", "schema = 1\nslug = \"mine\"\n", "missing field"),
        ("config/pricing/mine.toml", "schema = 1\nprovider = \"mine\"\n[[offer]]\nregion = \"r\"\n", "missing field"),
        (
            "config/pricing/neg.toml",
            "schema = 1\nprovider = \"mine\"\n[[offer]]\nregion = \"r\"\ninstance_type = \"i\"\ngpu_count = 1\nscope = \"instance_total\"\nsource = \"s\"\non_demand_usd_per_hour = -3\n",
            "on_demand_usd_per_hour",
        ),
    ] {
        let bench = Bench::new();
        bench.file(name, content);
        let error = bench.error(&["plan", "--steps", "1"]);
        assert!(
            error.contains(Path::new(name).file_name().unwrap().to_str().unwrap()) && error.contains(expected),
            "{error}"
        );
    }
    let bench = Bench::new();
    let valid = bench.ok(&["gpus", "--toml", "t4"]);
    for (from, to) in [
        ("sm_count = 40", "sm_count = -1"),
        ("boost_clock_mhz = 1590", "boost_clock_mhz = \"fast\""),
        ("memory_bandwidth_gbps = 320", "memory_bandwidth_gbps = 0"),
    ] {
        let file = bench.file("t4.toml", valid.replace(from, to));
        let error = bench.error(&["check", path(&file)]);
        assert!(error.contains("t4.toml") && error.contains(from.split(' ').next().unwrap()), "{error}");
    }
    let file = bench.file("config.toml", "");
    assert!(bench.error(&["check", path(&file)]).contains("empty"));
}

#[test]
fn the_users_own_gpu_and_price_count() {
    let bench = Bench::new();
    let profile = bench.file("p.habitat.json", PROFILE);
    let gpu = bench
        .ok(&["gpus", "--toml", "h100-sxm5-80gb"])
        .replace("\"h100-sxm5-80gb\"", "\"my-h100\"")
        .replace("H100 SXM5 80GB", "My H100");
    bench.file("config/catalog/my-h100.toml", gpu);
    bench.file(
        "config/pricing/lab.toml",
        "schema = 1\nprovider = \"lab\"\n[[offer]]\nregion = \"here\"\ninstance_type = \"box\"\ngpu_name = \"H100\"\ngpu = \"my-h100\"\ngpu_count = 1\non_demand_usd_per_hour = 0.001\nscope = \"instance_total\"\nas_of = \"2026-11-01\"\nsource = \"contract\"\n",
    );
    assert_eq!(bench.json(&["gpus", "--json"])["gpus"].as_array().unwrap().len(), 109);
    let plan = bench.json(&["plan", path(&profile), "--samples", "1e9", "--json"]);
    assert_eq!(
        (plan["parts"][0]["provider"].as_str(), plan["parts"][0]["price_as_of"].as_str()),
        (Some("lab"), Some("2026-11-01"))
    );
}

#[test]
fn settings_flags_win_over_environment_over_file() {
    let bench = Bench::new();
    let profile = bench.file("p.habitat.json", PROFILE);
    bench.file("config/config.toml", "[plan]\nproviders = [\"aws\"]\n");
    let provider = |args: &[&str]| {
        bench.json(&[&["plan", path(&profile), "--steps", "1000000", "--json"], args].concat())["parts"][0]["provider"]
            .clone()
    };
    assert_eq!(provider(&[]), "aws");
    assert_eq!(provider(&["--providers", "gcp"]), "gcp");
    // The error shows which of the three themes was requested.
    let picture = |args: &[&str], theme: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_habitat-tui"));
        command.args(["--screenshot", "x.svg", "--force"]).args(args).current_dir(bench.folder.path());
        command.env("HABITAT_TUI_CONFIG_DIR", bench.path("config")).env_remove("HABITAT_TUI_THEME");
        if let Some(theme) = theme {
            command.env("HABITAT_TUI_THEME", theme);
        }
        text(&command.output().unwrap().stderr)
    };
    bench.file("config/config.toml", "theme = \"of-file\"\n");
    assert!(picture(&[], None).contains("of-file"));
    assert!(picture(&[], Some("of-environment")).contains("of-environment"));
    assert!(picture(&["--theme", "of-flag"], Some("of-environment")).contains("of-flag"));
    assert_eq!(picture(&["--theme", "light"], Some("of-environment")), "");
    bench.file("config/config.toml", "colour = \"red\"\n");
    let error = bench.error(&["plan", path(&profile), "--steps", "1"]);
    assert!(error.contains("config.toml") && error.contains("colour"), "{error}");
}

#[test]
fn lists_and_schemas() {
    let bench = Bench::new();
    assert!(bench.ok(&["gpus", "hopper"]).contains("h200-sxm-141gb"));
    assert_eq!(bench.run(&["gpus", "nonsense"]).status.code(), Some(1));
    let offers = bench.json(&["offers", "--gpu", "t4", "--json"]);
    assert!(
        offers["offers"]
            .as_array()
            .unwrap()
            .iter()
            .all(|offer| offer["gpu"] == "t4" && offer.get("unusable").is_none())
    );
    for form in ["profile", "predictions", "plan"] {
        let schema = bench.json(&["schema", form]);
        assert!(schema["properties"]["version"].is_object(), "{schema}");
    }
    let whole = bench.ok(&["man"]);
    assert!(whole.starts_with(".ie") && whole.contains(r"habitat\-tui\-trace\-shapes(1)"), "{whole}");
    let page = bench.ok(&["man", "trace-shapes"]);
    assert!(page.contains(r"habitat\-tui\-trace\-shapes \- Trace the shapes"), "{page}");
    let error = bench.run(&["man", "job-log"]);
    assert!(
        String::from_utf8_lossy(&error.stderr).contains(r#"no command "job-log": run, jobs, join, history, attach"#)
    );
    let script = format!(
        "{}\nCOMP_WORDS=(habitat-tui plan --glob) COMP_CWORD=2\n_habitat__tui habitat-tui --glob plan\necho \"${{COMPREPLY[@]}}\"",
        bench.ok(&["completions", "bash"])
    );
    let completed = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&completed.stdout).trim(), "--global-batch", "{completed:?}");
    assert!(bench.ok(&["config"]).contains("config.toml"));
}

/// Every JSON output follows the printed schema: the same keys.
#[test]
fn printed_json_has_no_key_outside_its_schema() {
    let bench = Bench::new();
    let profile = bench.file("p.habitat.json", PROFILE);
    for (form, value) in [
        ("predictions", bench.json(&["predict", path(&profile), "--json", "--operations", "--to", "t4"])),
        ("plan", bench.json(&["plan", path(&profile), "--steps", "1000", "--json"])),
        ("difference", bench.json(&["predict", path(&profile), "--to", "t4,l4", "--difference", "--json"])),
    ] {
        let schema = bench.json(&["schema", form]);
        let known = &schema["properties"];
        for key in value.as_object().unwrap().keys() {
            assert!(known[key].is_object(), "{form}: {key}");
        }
    }
}

#[test]
fn a_trace_is_imported_and_opened_directly() {
    let bench = Bench::new();
    let trace = bench.file(
        "run.pt.trace.json",
        r#"{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "Tesla T4", "totalGlobalMem": 15843721216, "computeMajor": 7, "computeMinor": 5, "numSms": 40}],
        "traceEvents": [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 0, "dur": 1000},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 10, "dur": 50, "args": {"External id": 1, "Input Dims": [[64, 32], [32, 16]], "Input type": ["float", "float"]}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 20, "dur": 5, "args": {"correlation": 7}},
        {"ph": "X", "cat": "kernel", "name": "sgemm", "pid": 0, "tid": 7, "ts": 40, "dur": 200, "args": {"correlation": 7, "device": 0, "stream": 7, "grid": [4, 1, 1], "block": [128, 1, 1], "registers per thread": 64, "shared memory": 1024}}]}"#,
    );
    let found = bench.json(&["import", path(&trace), "-o", "run.habitat.json.gz", "--json"]);
    assert_eq!(
        (found["gpu"].as_str(), found["steps_found"].as_u64(), found["joined_share"].as_f64()),
        (Some("t4"), Some(1), Some(1.0))
    );
    assert!(bench.ok(&["check", "run.habitat.json.gz"]).contains("1 measured"));
    assert!(bench.error(&["import", path(&trace), "-o", "run.habitat.json.gz"]).contains("already exists"));
    let direct = bench.json(&["predict", path(&trace), "--to", "t4", "--json"]);
    assert_eq!(direct["predictions"][0]["method"], "measured");
    // Without kernels: reports that, and offers shapes only.
    let kernelless = bench.file(
        "cpu.json",
        std::fs::read_to_string(&trace).unwrap().replace("\"cat\": \"kernel\"", "\"cat\": \"cpu_instant_event\""),
    );
    let error = bench.error(&["import", path(&kernelless), "-o", "cpu.habitat.json"]);
    assert!(error.contains("--shapes-only") && !bench.path("cpu.habitat.json").exists(), "{error}");
    bench.ok(&["import", path(&kernelless), "-o", "cpu.habitat.json", "--shapes-only"]);
    assert_eq!(
        bench.json(&["predict", "cpu.habitat.json", "--to", "t4", "--json"])["predictions"][0]["method"],
        "learned"
    );
}

/// `habitat-tui … | head` ends quietly.
#[cfg(unix)]
#[test]
fn a_reader_that_goes_away_is_no_error() {
    let bench = Bench::new();
    let output = Command::new("sh")
        .args([
            "-c",
            &format!(
                "{} offers --csv | head -1; {} gpus --json | head -1",
                env!("CARGO_BIN_EXE_habitat-tui"),
                env!("CARGO_BIN_EXE_habitat-tui")
            ),
        ])
        .current_dir(bench.folder.path())
        .output()
        .unwrap();
    assert_eq!(text(&output.stderr), "");
}

/// An untrained network for linear layers, as training writes it.
fn linear_network() -> Vec<u8> {
    let width = Kind::Linear.inputs().len();
    let network = Mlp::new(Architecture::uniform(width, 2, 16, 1, Activation::Relu), 3).unwrap();
    let every = |value: f32| Plain { shape: vec![width], values: vec![value; width] };
    let bundle = Bundle {
        networks: BTreeMap::from([(Kind::Linear.name().to_owned(), network)]),
        tensors: BTreeMap::from([("lowest".to_owned(), every(0.0)), ("highest".to_owned(), every(1e9))]),
        metadata: BTreeMap::new(),
    };
    bundle.to_bytes().unwrap()
}

#[test]
fn habitats_networks_are_used_where_they_are() {
    let bench = Bench::new();
    let profile = bench.file("p.habitat.json", PROFILE);
    let predict = ["predict", path(&profile), "--to", "t4", "--method", "habitat-mlp", "--json", "--operations"];
    let message = bench.error(&predict);
    assert!(message.contains("habitat-lab train --habitat") && message.contains("--models"), "{message}");

    let weights = linear_network();
    bench.file("config/models/habitat-mlp-linear.safetensors", &weights);
    let json = bench.json(&predict);
    let operations = json["predictions"][0]["operations"].as_array().unwrap();
    assert_eq!(operations[0]["method"], "habitat-mlp", "{}", operations[0]);
    assert_ne!(operations[1]["method"], "habitat-mlp");
    bench.file("again/habitat-mlp-linear.safetensors", &weights);
    bench.ok(&["predict", path(&profile), "--method", "habitat-mlp", "--models", "again"]);

    bench.file("again/habitat-mlp-linear.safetensors", &weights[..weights.len() / 2]);
    let message = bench.error(&["predict", path(&profile), "--method", "habitat-mlp", "--models", "again"]);
    assert!(message.contains("habitat-mlp-linear.safetensors"), "{message}");
    bench.file("config/config.toml", "models = \"nowhere\"");
    assert!(bench.error(&predict).contains("nowhere"));
}

#[test]
fn gpus_are_named_as_people_type_them() {
    let bench = Bench::new();
    bench.file("t.json", PROFILE);
    let gpus = |answer: &Value| -> Vec<String> {
        answer["predictions"].as_array().unwrap().iter().map(|p| p["gpu"].as_str().unwrap().to_owned()).collect()
    };
    let answer = bench.json(&["predict", "t.json", "--json", "--to", "4090,rtx3090,RTX A6000,a100-80"]);
    assert_eq!(gpus(&answer), ["rtx-4090", "rtx-3090", "rtx-a6000", "a100-pcie-80gb", "a100-sxm4-80gb"]);
    let several = bench.run(&["predict", "t.json", "--json", "--to", "h100"]);
    assert_eq!(
        text(&several.stderr),
        "--to h100: matches h100-96gb-hbm2e-500w, h100-nvl, h100-pcie-80gb, h100-sxm5-80gb\n"
    );
    let rows = |args: &[&str]| bench.ok(args).lines().count() - 1;
    assert_eq!(rows(&["gpus", "a100-80", "--csv"]), 2);
    assert_eq!(rows(&["gpus", "rtx4090", "--csv"]), 1);
    assert!(rows(&["offers", "--gpu", "h100", "--csv"]) > rows(&["offers", "--gpu", "h100-nvl", "--csv"]));
    assert!(rows(&["offers", "rtx4090", "--csv"]) > 0);
    let plan = bench.json(&["plan", "t.json", "--steps", "1000", "--gpus", "h100", "--json"]);
    assert!(plan["parts"][0]["gpu"].as_str().unwrap().starts_with("h100-"), "{plan}");
}

#[test]
fn one_gpu_of_a_name_of_several_is_asked_for_with_the_commands() {
    let bench = Bench::new();
    bench.file("t.json", PROFILE);
    let error = bench.error(&["predict", "t.json", "--origin", "a100", "--to=l4"]);
    assert!(error.contains("--origin: a100 matches a100-pcie-40gb, a100-pcie-80gb, "), "{error}");
    assert!(error.contains("\n  habitat-tui predict t.json --origin a100-sxm4-80gb --to=l4\n"), "{error}");
    let error = bench.error(&["--gpu", "h100", "--screenshot", "x.svg"]);
    assert!(error.contains("\n  habitat-tui --gpu h100-nvl --screenshot x.svg\n"), "{error}");
    let error = bench.error(&["predict", "t.json", "--to", "h1000"]);
    assert!(error.contains("no GPU \"h1000\" in the catalog"), "{error}");
    let error = bench.error(&["predict", "t.json", "--to", "2x3090"]);
    assert!(error.contains("`plan --own 2x3090` plans with 2 of your own"), "{error}");
    // Does not suggest flags of other commands for a subcommand.
    let error = bench.error(&["prices", "update", "--all"]);
    assert!(!error.contains("attach"), "{error}");
    let cut = bench.file("cut.habitat.json", &PROFILE[..PROFILE.len() / 2]);
    let error = bench.error(&["predict", cut.to_str().unwrap()]);
    assert!(error.contains("cut.habitat.json: ") && error.contains("the file is truncated"), "{error}");
}

#[test]
fn an_origin_that_may_be_one_of_several_is_asked_for_with_the_commands() {
    let bench = Bench::new();
    bench.file("t.json", PROFILE.replace(r#""gpu": "v100-sxm2-16gb""#, r#""gpu_name": "NVIDIA A100-SXM4""#));
    for command in [&["predict", "t.json"][..], &["plan", "t.json", "--steps", "9"], &["t.json"]] {
        let error = bench.error(command);
        let again = format!("\n  habitat-tui {} --origin a100-sxm4-40gb\n", command.join(" "));
        assert!(error.contains(&again), "{error}");
    }
}

#[test]
fn misspelt_commands_and_several_files_are_met_with_the_right_command() {
    let bench = Bench::new();
    bench.file("a.json", PROFILE);
    bench.file("b.json", PROFILE);
    let error = bench.error(&["prdict", "a.json", "--to", "l4"]);
    assert!(error.contains("did you mean this?\n  habitat-tui predict a.json --to l4\n"), "{error}");
    for (typed, meant) in [("predit", "predict"), ("plans", "plan"), ("offer", "offers")] {
        let error = bench.error(&[typed]);
        assert!(error.contains(&format!("{typed}: neither a file nor a command")), "{error}");
        assert!(error.contains(&format!("did you mean `habitat-tui {meant}`?")), "{error}");
    }
    let error = bench.error(&["a.json", "b.json"]);
    for line in [
        "habitat-tui a.json",
        "habitat-tui diff a.json b.json",
        "habitat-tui b.json --against a.json",
        "habitat-tui import a.json b.json -o step.habitat.json.zst",
    ] {
        assert!(error.contains(&format!("\n  {line}")), "{error}");
    }
    let error = bench.error(&["a.json", "predict"]);
    assert!(error.contains("\n  habitat-tui predict a.json"), "{error}");
    let error = bench.error(&["step.habitat.json"]);
    assert!(error.ends_with("step.habitat.json: no such file\n"), "{error}");
}

#[test]
fn themes_of_ones_own_are_taken_by_name_and_by_file() {
    let bench = Bench::new();
    let theme = |name: &str| format!("name = \"{name}\"\nparent = \"dark\"\n[roles]\ntext = {{ fg = \"#abcdef\" }}\n");
    bench.file("config/themes/mine.toml", theme("mine"));
    bench.file("other.toml", theme("other"));
    for (asked, picture) in [("mine", "1.svg"), ("other.toml", "2.svg"), ("./other.toml", "3.svg")] {
        bench.ok(&["--theme", asked, "--screenshot", picture]);
        assert!(std::fs::read_to_string(bench.path(picture)).unwrap().contains("#abcdef"), "{asked}");
    }
    let error = bench.error(&["--theme", "nimble", "--screenshot", "x.svg"]);
    assert!(error.contains("unknown theme \"nimble\"; available: dark, light, high-contrast, none, mine"), "{error}");
    assert!(error.contains(path(&bench.path("config/themes"))), "{error}");
    let error = bench.error(&["--theme", "gone.toml", "--screenshot", "x.svg"]);
    assert!(error.contains("gone.toml: no such file"), "{error}");
    bench.file("config/themes/mine.toml", "name = 3");
    // A broken theme does not stop the screens, unless it is the selected one.
    bench.ok(&["--screenshot", "x.svg"]);
    assert!(bench.error(&["--theme", "mine", "--screenshot", "y.svg"]).contains("mine.toml"));
    let broken = bench.error(&["--theme", "config/themes/mine.toml", "--screenshot", "y.svg"]);
    assert!(broken.contains("mine.toml: TOML parse error"), "{broken}");
}

#[test]
fn a_picture_of_another_form_is_refused() {
    let bench = Bench::new();
    let error = bench.error(&["--screenshot", "x.jpg"]);
    assert!(error.contains("--screenshot x.jpg: images are SVG or PNG; use x.svg"), "{error}");
    assert!(!bench.path("x.jpg").exists());
}

/// Another program draws PNG: here three fakes.
#[cfg(unix)]
#[test]
fn a_png_is_drawn_by_librsvg_where_it_is_installed() {
    use std::os::unix::fs::PermissionsExt;

    let bench = Bench::new();
    let converter = bench.path("bin/rsvg-convert");
    let shot = |script: &str| {
        let _ = std::fs::remove_dir_all(bench.path("bin"));
        std::fs::create_dir(bench.path("bin")).unwrap();
        if !script.is_empty() {
            std::fs::write(&converter, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&converter, PermissionsExt::from_mode(0o755)).unwrap();
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_habitat-tui"));
        command.args(["--screenshot", "x.png"]).current_dir(bench.folder.path());
        command.env("HABITAT_TUI_CONFIG_DIR", bench.path("config")).env("PATH", bench.path("bin"));
        command.output().unwrap()
    };
    let refused = |script: &str| {
        let output = shot(script);
        assert_eq!(output.status.code(), Some(2), "{script}");
        assert!(!bench.path("x.png").exists(), "{script}");
        text(&output.stderr)
    };
    let missing = refused("");
    assert!(missing.contains("PNG needs rsvg-convert (package librsvg2-bin) on the PATH"), "{missing}");
    assert!(missing.contains("x.svg"), "{missing}");
    let failed = refused("echo no fonts >&2; exit 3");
    assert!(failed.contains("rsvg-convert: no fonts (exit status: 3)"), "{failed}");
    assert!(refused("/bin/cat > /dev/null").contains("rsvg-convert: no image"));
    // Its input is the SVG.
    let output = shot("printf '\\211PNG'; /bin/cat");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let png = std::fs::read(bench.path("x.png")).unwrap();
    assert!(png.starts_with(b"\x89PNG<svg xmlns=") && png.ends_with(b"</svg>\n"));
}

/// Offers of one GPU: dated, undated, on a peer-to-peer host, at a tenth of the list price, far below others.
const DOUBTED: &str = r#"schema = 1
provider = "lab"
[[offer]]
region = "r"
instance_type = "old"
gpu_name = "L4"
gpu = "l4"
gpu_count = 1
on_demand_usd_per_hour = 0.00031
spot_usd_per_hour = 0.00003
market = "peer-to-peer"
scope = "instance_total"
as_of = "2025-11-22"
source = "s"
"#;

#[test]
fn doubtful_prices_are_marked_wherever_they_are_shown() {
    let bench = Bench::new();
    bench.file("t.json", PROFILE);
    bench.file("config/pricing/lab.toml", DOUBTED);
    let day = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_habitat-tui"))
            .args(args)
            .current_dir(bench.folder.path())
            .env("HABITAT_TUI_CONFIG_DIR", bench.path("config"))
            .env("SOURCE_DATE_EPOCH", "1795305600") // 2026-11-22
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let json = |args: &[&str]| -> Value { serde_json::from_str(&day(args)).unwrap() };
    let reasons = ["365 days old", "of a host on a peer-to-peer market", "10 % of the same machine's on-demand price"];
    let check = |place: &Value| {
        assert_eq!(place["price_age_days"], 365, "{place}");
        assert_eq!(place["market"], "peer-to-peer");
        for reason in reasons {
            assert!(place["price_doubts"].as_array().unwrap().iter().any(|doubt| doubt["text"] == reason), "{place}");
        }
        assert!(place["price_doubts"].to_string().contains("other providers for this GPU"), "{place}");
    };
    let offers = json(&["offers", "--gpu", "l4", "--json"]);
    check(&offers["offers"][0]);
    let plan = ["plan", "t.json", "--steps", "100000", "--accept", "spot,marketplace", "--tiers", "spot"];
    let with = |last: &'static str| [&plan[..], &[last]].concat();
    let answer = json(&with("--json"));
    check(&answer["parts"][0]);
    assert!(answer["notes"].to_string().contains("lab/r/old/spot is in doubt: 365 days old"), "{answer}");
    assert!(answer["alternatives"][0]["market"].is_string());
    // A plan without such prices shows the possible saving.
    let firm = json(&["plan", "t.json", "--steps", "100000", "--tiers", "spot", "--json"]);
    assert_eq!(
        (&firm["parts"][0]["market"], &firm["beside"][0]["accept"][0]),
        (&"provider".into(), &"marketplace".into())
    );
    assert_eq!(firm["beside"][0]["part"]["offer"], "lab/r/old/spot");
    let without = json(&[&plan[..], &["--no-marketplace", "--json"]].concat());
    assert_eq!(without["parts"][0]["market"], "provider");
    let left_out =
        |row: &Value| row["offer"] == "lab/r/old/spot" && row["reason"].to_string().contains("peer-to-peer market");
    assert!(without["rejected"].as_array().unwrap().iter().any(left_out));
    let without = json(&["offers", "lab/r/old", "--no-marketplace", "--all", "--json"]);
    assert_eq!(without["offers"][0]["unusable"]["code"], "peer-to-peer-excluded");
    let report = day(&plan);
    assert!(report.contains("note: the price of lab/r/old/spot is in doubt: 365 days old; of a host"), "{report}");
    assert!(report.contains("old, peer-to-peer, low spot, far below others"), "{report}");
    let toml: toml::Table = day(&with("--toml")).parse().unwrap();
    assert_eq!(toml["part"][0]["price_age_days"].as_integer(), Some(365));
    assert_eq!(toml["part"][0]["price_doubts"].as_array().unwrap().len(), 4);
    // A firm price comes before a lower doubtful one.
    let predicted = json(&["predict", "t.json", "--to", "l4", "--json"]);
    assert_eq!(predicted["predictions"][0]["cheapest_offer"]["market"], "provider");
    // Also for shipped prices: a low spot price, and marketplace hosts.
    let shipped = json(&["offers", "g6.xlarge", "--json"]);
    let low = shipped["offers"].as_array().unwrap().iter().find(|it| it["offer"] == "aws/us-east-1/g6.xlarge/spot");
    let doubt = &low.unwrap()["price_doubts"][0];
    assert_eq!(
        (&doubt["code"], &doubt["text"]),
        (&"low-spot".into(), &"13 % of the same machine's on-demand price".into())
    );
    assert!((doubt["share"].as_f64().unwrap() - 0.13).abs() < 0.005, "{doubt}");
    assert!(day(&["offers", "vast", "--csv"]).lines().skip(1).all(|line| line.contains("peer-to-peer")));
}

#[test]
fn predictions_without_a_batch_size_keep_their_prices_and_name_the_flag() {
    let bench = Bench::new();
    bench.file("t.json", PROFILE.replace(r#""batch_size": 64, "#, ""));
    let report = bench.ok(&["predict", "t.json", "--to", "l4"]);
    assert!(report.contains("samples/s and samples/$ need the batch size: pass --batch-size N"), "{report}");
    let answer = bench.json(&["predict", "t.json", "--to", "l4", "--json"]);
    assert!(answer["predictions"][0]["cheapest_offer"]["usd_per_gpu_hour"].is_number(), "{answer}");
}

/// The plan's step on 8 GPUs equals the run measured there.
#[test]
fn a_step_measured_on_several_gpus_corrects_plans() {
    let bench = Bench::new();
    let profile = bench.file("p.habitat.json", PROFILE);
    let args = ["calibrate-scaling", path(&profile), "--gpus", "8", "--step-ms", "11"];
    let told = bench.json(&[&args[..], &["--json"]].concat());
    assert_eq!((told["gpus"].as_u64(), told["measured_extra_ms"].as_f64()), (Some(8), Some(10.0)));
    let factor = told["scaling_factor"].as_f64().unwrap();
    assert!((factor - 10.0 / told["expected_extra_ms"].as_f64().unwrap()).abs() < 1e-9);
    assert!(bench.ok(&args).contains(&format!("--scaling-factor {factor:.2}")));
    let given = factor.to_string();
    let wish = ["--steps", "1M", "--gpus", "v100-sxm2-16gb", "--min-gpus", "8", "--accept", "doubted,batch", "--json"];
    let plan = bench.json(&[&["plan", path(&profile), "--scaling-factor", &given], &wish[..]].concat());
    let part = &plan["parts"][0];
    assert_eq!(part["gpu_count"], 8);
    assert!((part["step_time_us"]["mid"].as_f64().unwrap() - 11_000.0).abs() < 1.0, "{part}");

    // A tenth of both steps waits for data: the plan counts it once.
    let loads = |loader: &str| {
        let timeline = format!(
            r#""timeline": {{"duration_us": 1000, "parts": [{{"operation": 0}}, {{"name": "{loader}"}}], "lanes": [
            {{"kind": "host", "start_us": [0], "duration_us": [100], "part": [1]}},
            {{"kind": "compute", "start_us": [100], "duration_us": [900], "part": [0]}}]}}, "operations": ["#
        );
        PROFILE.replace(r#""operations": ["#, &timeline)
    };
    let own = bench.file("l.habitat.json", loads("DataLoader_SingleProcess"));
    let args = ["calibrate-scaling", path(&own), "--gpus", "8", "--step-ms", "11"];
    assert!(bench.ok(&args).contains("Both wait 0.1 ms for data"));
    let given = bench.json(&[&args[..], &["--json"]].concat())["scaling_factor"].to_string();
    let plan = bench.json(&[&["plan", path(&own), "--scaling-factor", &given], &wish[..]].concat());
    let step = plan["parts"][0]["step_time_us"]["mid"].as_f64().unwrap();
    assert!((step - 11_000.0).abs() < 1.0, "{step}");
    let workers = bench.file("w.habitat.json", loads("DataLoader_MultiProcessing"));
    let error = bench.error(&["calibrate-scaling", path(&workers), "--gpus", "8", "--step-ms", "11"]);
    assert!(error.contains("waits for the workers of its DataLoader"), "{error}");

    let unsized_ = bench.file("u.habitat.json", PROFILE.replace(", \"parameter_count\": 1000000", ""));
    let error = bench.error(&["calibrate-scaling", path(&unsized_), "--gpus", "2", "--step-ms", "2"]);
    assert!(error.contains("u.habitat.json") && error.contains("--parameters"), "{error}");
    let shapes = bench.file("s.habitat.json", PROFILE.replace("\"duration_us\": 1000.0, ", ""));
    let error = bench.error(&["calibrate-scaling", path(&shapes), "--gpus", "2", "--step-ms", "2"]);
    assert!(error.contains("no measured step"), "{error}");
}

/// Slower than the range, with the most likely causes, beside published speeds of such models.
#[test]
fn a_speed_is_compared_with_the_predicted_and_with_published_ones() {
    let bench = Bench::new();
    bench.ok(&[
        "trace-shapes",
        "--config",
        "llama3-8b",
        "--batch-sizes",
        "1",
        "--sequence-length",
        "8192",
        "-o",
        "m.json",
    ]);
    let job = ["compare-speed", "m.json", "--to", "h100-sxm", "--gpus", "8", "--sharding", "zero3"];
    let of = |speed: &[&str]| bench.json(&[&job[..], speed, &["--json"]].concat());
    let slow = of(&["--tokens-per-second", "30000"]);
    // 8 sequences of 8,192 tokens.
    let measured = slow["measured_step_us"].as_f64().unwrap();
    assert!((measured - 8.0 * 8192.0 / 30e3 * 1e6).abs() < 1e-3, "{slow}");
    let [low, mid, high] = [0, 1, 2].map(|end| slow["expected_step_us"][end].as_f64().unwrap());
    assert!(low < mid && mid < high && high < measured, "{slow}");
    assert_eq!(slow["verdict"], "slower than expected");
    let causes = slow["causes"].as_array().unwrap();
    assert_eq!(causes.len(), 2);
    let far = |cause: &Value| (cause["step_us"].as_f64().unwrap() / measured).ln().abs();
    assert!(far(&causes[0]) <= far(&causes[1]), "{slow}");
    let nearest = &slow["published"][0];
    assert_eq!(
        (&nearest["gpu"], &nearest["model"], &nearest["precision"]),
        (&"h100-sxm5-80gb".into(), &"llama3-8b".into(), &"bf16".into())
    );
    let times = |name: &str, job: &Value| {
        let cause =
            job["causes"].as_array().unwrap().iter().find(|cause| cause["cause"].as_str().unwrap().contains(name));
        cause.map(|cause| cause["step_us"].as_f64().unwrap() / job["expected_step_us"][1].as_f64().unwrap())
    };
    let twice = of(&["--step-ms", &(2.0 * mid / 1e3).to_string()]);
    assert!((1.9..2.01).contains(&times("half its clock", &twice).unwrap()), "{twice}");
    assert!((1.3..1.34).contains(&times("recomputed", &twice).unwrap()), "{twice}");
    let slowly = of(&["--machines", "4", "--network-gbit", "3200", "--step-ms", "20000"]);
    assert!(times("over TCP", &slowly).is_some(), "{slowly}");
    let usual = of(&["--step-ms", &(mid / 1e3).to_string()]);
    assert_eq!((&usual["verdict"], usual["causes"].as_array().unwrap().len()), (&"as expected".into(), 0));
    assert_eq!(of(&["--samples-per-second", "100"])["verdict"], "faster than expected");
    let said = bench.ok(&[&job[..], &["--tokens-per-second", "30000"]].concat());
    assert!(said.starts_with("Your step takes 2.18 s") && said.contains("Published speeds nearest to it:"), "{said}");
    assert!(bench.ok(&[&job[..], &["--tokens-per-second", "300000"]].concat()).contains("hardly possible"));
    assert!(bench.error(&job).contains("pass --tokens-per-second"));
    // 495 TFLOP/s are half of the peak of 989.
    let [tflops, mfu] = [["--tflops", "494.5"], ["--mfu", "50"]].map(|speed| of(&speed)["measured_step_us"].as_f64());
    assert!((tflops.unwrap() / mfu.unwrap() - 1.0).abs() < 1e-3, "{tflops:?} {mfu:?}");
    // 6 times 8 billion parameters and the attention of 8,192 tokens.
    assert!((tflops.unwrap() * 494.5e6 / (8192.0 * 6.0 * 8e9) - 1.0).abs() < 0.3, "{tflops:?}");
    let unnamed = bench.error(&["compare-speed", "m.json", "--tflops", "400"]);
    assert!(unnamed.contains("the recording does not name its GPU: pass --to GPU"), "{unnamed}");
    let odd = bench.error(&[&job[..], &["--step-ms", "9", "--global-batch", "12"]].concat());
    assert!(odd.contains("not a multiple of 8"), "{odd}");
}

#[test]
fn the_frontier_without_a_terminal() {
    let bench = Bench::new();
    let profile = bench.file("p.habitat.json", PROFILE);
    let args = ["plan", path(&profile), "--samples", "1e9", "--frontier"];
    let found = bench.json(&[&args[..], &["--json"]].concat());
    assert_eq!((found["format"].as_str(), found["version"].as_u64()), (Some("habitat-frontier"), Some(1)));
    let points = found["points"].as_array().unwrap();
    let of = |point: &Value, key: &str, end: &str| point[key][end].as_f64().unwrap();
    assert!(points.len() > 2);
    for pair in points.windows(2) {
        assert!(of(&pair[0], "hours", "high") < of(&pair[1], "hours", "high"), "{pair:?}");
        assert!(of(&pair[0], "cost_usd", "mid") > of(&pair[1], "cost_usd", "mid"), "{pair:?}");
    }
    // The plan with a deadline is on the front.
    let deadline = of(&points[points.len() / 2], "hours", "high").to_string();
    let plan = bench.json(&["plan", path(&profile), "--samples", "1e9", "--deadline", &deadline, "--json"]);
    assert_eq!(plan["total"]["cost_usd"]["mid"], points[points.len() / 2]["cost_usd"]["mid"]);
    assert!(bench.ok(&args).lines().count() == points.len() + 1);
    assert!(bench.ok(&[&args[..], &["--csv"]].concat()).starts_with("hours,hours_high,cost_usd,parts"));
}

/// The JSON also has the layout of a training script, as flags of `plan`.
#[test]
fn a_training_script_gives_the_flags_of_its_layout() {
    let bench = Bench::new();
    let script = "torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --num-layers 61 --hidden-size 1024 \
                  --num-attention-heads 16 --vocab-size 32000 --pipeline-model-parallel-size 8 --seq-length 1024 \
                  --micro-batch-size 1 --global-batch-size 32 --train-iters 10";
    bench.file("train.sh", script);
    let found = bench.json(&["trace-shapes", "--config", "train.sh", "-o", "m.habitat.json", "--json"]);
    let flags: Vec<&str> = found["plan"].as_array().unwrap().iter().map(|flag| flag.as_str().unwrap()).collect();
    assert_eq!(flags[..4], ["--layout", "given", "--pipeline-parallel", "8"]);
    let launch = ["--command", "python pretrain_gpt.py", "--framework", "megatron", "--partition", "gpu"];
    let job =
        [&["plan", "m.habitat.json", "--own", "2x8xh100-sxm5-80gb", "--export", "slurm"], &flags[..], &launch[..]];
    let slurm = bench.ok(&job.concat());
    assert!(slurm.contains(r#"--pipeline-model-parallel-layout="Et*7|t*8|t*8|t*8|t*8|t*8|t*7|t*7L""#), "{slurm}");
    let named = bench.json(&["trace-shapes", "--config", "llama3-8b", "-o", "n.habitat.json", "--json"]);
    assert_eq!(named["plan"], Value::Array(Vec::new()));
}

/// A plan of a measured layout takes the measured time, and the same factor scales another layout.
#[test]
fn measured_layouts_correct_plans() {
    let bench = Bench::new();
    bench.ok(&["trace-shapes", "--config", "llama3-8b", "-o", "m.habitat.json"]);
    let columns = "machines,gpus,step_ms,tensor,sharding,global_batch";
    bench.file("runs.csv", format!("{columns}\n1,8,5000,4,zero1,64\n"));
    let args = ["calibrate-scaling", "m.habitat.json", "--to", "h100-sxm5-80gb", "--runs"];
    let told = bench.json(&[&args[..], &["runs.csv", "--json"]].concat());
    let factor = told["compute"].as_f64().unwrap();
    assert!(told["exchange"] == told["compute"] && (factor - 1.0).abs() > 0.01, "{told}");
    let near =
        |found: &Value, expected: f64| assert!((found.as_f64().unwrap() / expected - 1.0).abs() < 1e-3, "{found}");
    near(&told["runs"][0]["corrected_ms"], 5000.0);
    let shown = bench.ok(&[&args[..], &["runs.csv"]].concat());
    assert!(shown.contains(&format!("--layout-factors {factor:.3},{factor:.3}")), "{shown}");
    // Runs that differ in one column have different names.
    let alike = "1,8,5000,4,zero1,64\n1,8,5000,4,,64\n1,8,10000,4,zero1,128\n";
    bench.file("alike.csv", format!("{columns}\n{alike}"));
    let told = bench.json(&[&args[..], &["alike.csv", "--json"]].concat());
    let layouts = told["runs"].as_array().unwrap().iter().map(|run| run["layout"].as_str().unwrap());
    assert_eq!(layouts.collect::<std::collections::BTreeSet<_>>().len(), 3, "{told}");
    let step = |tensor: &str, more: &[&str]| {
        let wish =
            ["plan", "m.habitat.json", "--own", "8xh100-sxm5-80gb", "--steps", "10", "--min-gpus", "8", "--json"];
        let layout = ["--layout", "given", "--tensor-parallel", tensor, "--sharding", "zero1", "--global-batch", "64"];
        bench.json(&[&wish[..], &layout, more].concat())["parts"][0]["step_time_us"]["mid"].clone()
    };
    let given = format!("{factor},{factor}");
    let corrected = ["--layout-factors", given.as_str()];
    near(&step("4", &corrected), 5e6);
    assert!((step("2", &corrected).as_f64().unwrap() / step("2", &[]).as_f64().unwrap() / factor - 1.0).abs() < 0.02);
    for (line, problem) in [
        ("1,8,9000,4,zero1,63", "runs.csv, run 1: global_batch 63 is not a multiple of 2"),
        ("1,8,9000,3,zero1,64", "runs.csv, run 1: 3-way tensor parallel needs machines"),
        ("1,8,0,4,zero1,64", "runs.csv, run 1: step_ms is 0"),
        ("1,8,1,4,zero1,64", "more than 10 times from the predicted one"),
    ] {
        bench.file("wrong.csv", format!("{columns}\n{line}\n"));
        let output = bench.run(&[&args[..], &["wrong.csv"]].concat());
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(&problem.replace("runs.csv", "wrong.csv")), "{said}");
    }
    let output = bench.run(&["plan", "m.habitat.json", "--layout-factors", "1"]);
    assert!(text(&output.stderr).contains("expected operations,exchange"), "{}", text(&output.stderr));
}

/// From a name and from a `config.json`: a model that fits no GPU gets a plan with a layout, and the plan is
/// reproducible.
#[test]
fn a_language_model_is_planned_from_its_dimensions() {
    let bench = Bench::new();
    bench.file(
        "config.json",
        r#"{"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
            "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256}"#,
    );
    let made = |config: &str, name: &str| {
        bench.ok(&["trace-shapes", "--config", config, "--name", "m", "-o", name]);
        let profile: Value = serde_json::from_slice(&std::fs::read(bench.path(name)).unwrap()).unwrap();
        assert_eq!(profile["workload"]["parameter_count"], 70_553_706_496_u64);
        profile["operations"].clone()
    };
    assert_eq!(made("llama3-70b", "named.habitat.json"), made("config.json", "own.habitat.json"));
    let wish = ["--tokens", "1e9", "--global-batch", "512", "--max-machines", "4"];
    let plan = |more: &[&str]| bench.json(&[&["plan", "named.habitat.json", "--json"], &wish[..], more].concat());
    let found = plan(&[]);
    let part = &found["parts"][0];
    let degree = |key: &str| part[key].as_u64().unwrap_or(1);
    let gpus = part["gpu_count"].as_u64().unwrap();
    assert!(degree("tensor_parallel") * degree("pipeline_parallel") > 1 || part["sharding"] != "none", "{part}");
    assert_eq!(gpus % (degree("tensor_parallel") * degree("pipeline_parallel")), 0, "{part}");
    assert_eq!(part["global_batch_size"], 512);
    // Without the search there is no plan.
    let output = bench.run(&[&["plan", "named.habitat.json", "--layout", "given"], &wish[..]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    bench.ok(&[&["plan", "named.habitat.json", "-o", "plan.toml"], &wish[..]].concat());
    assert!(bench.ok(&["plan", "--from", "plan.toml"]).starts_with("Nothing changed since"));
    for (args, problem) in [
        (vec!["--config", "lama3-8b"], "did you mean llama3-8b?"),
        (vec!["--config", "none.json"], "none.json"),
        (vec!["t.py:f", "--config", "llama3-8b"], "cannot be used with"),
        (vec!["t.py:f", "--recompute", "full"], "--config"),
    ] {
        let told = bench.error(&[&["trace-shapes"], &args[..]].concat());
        assert!(told.contains(problem), "{told}");
    }
}

/// A file of jobs or a plan, given to the wrong command: the error names the right command.
#[test]
fn a_file_of_another_command_names_that_command() {
    let bench = Bench::new();
    bench.file("jobs.toml", "budget = 400\n[[job]]\nname = \"a\"\n");
    let plan = bench.ok(&["plan", "--steps", "1000", "--gpus", "l4", "--toml"]);
    bench.file("plan.toml", plan);
    for line in [&["jobs.toml"][..], &["predict", "jobs.toml"], &["plan", "jobs.toml"], &["jobs", "jobs.toml"]] {
        let error = bench.error(line);
        assert!(error.contains("a jobs file; `habitat-tui plan-jobs jobs.toml`"), "{line:?}: {error}");
    }
    let error = bench.error(&["compare", "jobs.toml", "jobs.toml"]);
    assert!(error.contains("plan-jobs jobs.toml"), "{error}");
    for line in [&["plan.toml"][..], &["plan-jobs", "plan.toml"], &["plan", "plan.toml"]] {
        let error = bench.error(line);
        assert!(error.contains("looks like a plan; `habitat-tui plan --from plan.toml`"), "{line:?}: {error}");
    }
}

/// Similar names in the typed command come before other commands with the flag.
#[test]
fn a_flag_is_sought_in_its_command_first() {
    let bench = Bench::new();
    let error = bench.error(&["plan", "--machines", "3"]);
    let own = error.find("habitat-tui plan --max-machines 3");
    assert!(own.is_some() && own < error.find("habitat-tui compare-speed --machines 3"), "{error}");
    let only = bench.error(&["predict", "--epochs", "3"]);
    assert!(only.contains("habitat-tui plan --epochs 3"), "{only}");
    let near = bench.error(&["plan", "--machine=3"]);
    assert!(near.contains("--max-machines"), "{near}");
    let one = bench.ok(&["--help", "html"]);
    assert!(one.contains("--html <FILE>") && one.contains("plan"), "{one}");
}
