//! Plan files: written in every form, priced again, compared with the outcome.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::path::Path;

use crate::program::{Folder, PROFILE};
use toml::Table;

/// One machine of an own provider.
fn prices(instance: &str, gpu: &str, price: f64) -> String {
    format!(
        "schema = 1\nprovider = \"lab\"\n[[offer]]\nregion = \"here\"\ninstance_type = \"{instance}\"\ngpu = \"{gpu}\"\ngpu_name = \"X\"\ngpu_count = 1\ngpu_memory_gib = 16\non_demand_usd_per_hour = {price}\nscope = \"instance_total\"\nas_of = \"2026-11-01\"\nsource = \"contract\"\n"
    )
}

const PLAN: [&str; 7] = ["plan", "p.habitat.json", "--samples", "1e9", "--deadline", "480h", "--budget=5000"];

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("p.habitat.json", PROFILE);
    folder
}

fn read(folder: &Folder, name: &str) -> String {
    std::fs::read_to_string(folder.0.path().join(name)).unwrap()
}

/// If machines may be joined, the file has version 3 if every offer is accepted, else 4, and reads back.
#[test]
fn a_plan_on_several_machines_is_read_again() {
    let folder = folder();
    let all = "--accept=spot,marketplace,doubted,platform,batch";
    let asked = ["--max-machines", "4", "--network-gbit=100", "--sharding=auto", "--min-gpus=32", all];
    let text = folder.ok(&[&PLAN[..], &asked, &["--objective=time", "--toml"]].concat());
    let plan: Table = text.parse().unwrap();
    assert_eq!(plan["plan"]["version"].as_integer(), Some(3));
    let goal = plan["goal"].as_table().unwrap();
    assert_eq!(goal["limits"]["max_machines"].as_integer(), Some(4));
    assert_eq!(goal["sharding"].as_str(), Some("auto"));
    assert_eq!(goal["assumptions"]["network_gbit_per_second"].as_float(), Some(100.0));
    let part = plan["part"][0].as_table().unwrap();
    let count = |key: &str| part[key].as_integer().unwrap();
    assert!(count("nodes") > 1 && count("gpu_count") >= 32, "{part}");
    assert_eq!(part["sharding"].as_str(), Some("none"));
    folder.write("plan.toml", &text);
    let again: Table = folder.ok(&["plan", "--from", "plan.toml", "--toml"]).parse().unwrap();
    for key in ["goal", "part", "totals"] {
        assert_eq!(again[key], plan[key], "{key}");
    }
    folder.write("bad.toml", &text.replace("max_machines = 4", "max_machines = 0"));
    assert!(folder.error(&["plan", "--from", "bad.toml"]).contains("goal.limits.max_machines"));
}

#[test]
fn toml_is_compact_and_without_tails() {
    let folder = folder();
    let text = folder.ok(&[&PLAN[..], &["--toml"]].concat());
    let plan: Table = text.parse().unwrap();
    assert_eq!(plan["plan"]["version"].as_integer(), Some(4));
    assert_eq!(plan["goal"]["limits"]["accept"].as_array().map(Vec::len), Some(0));
    assert_eq!(
        plan["plan"]["command"].as_str(),
        Some("habitat-tui plan p.habitat.json --samples 1e9 --deadline 480h --budget=5000 --toml")
    );
    assert_eq!(plan["request"]["profile_sha256"].as_str().unwrap().len(), 64);
    assert_eq!(plan["goal"]["deadline_hours"].as_float(), Some(480.0));
    let counts: i64 = plan["rejected"].as_table().unwrap().iter().map(|(_, count)| count.as_integer().unwrap()).sum();
    assert!(counts > 500, "{counts}");
    let lines = text.lines().count();
    assert!(lines < 160, "{lines} lines");
    for line in text.lines().filter(|line| line.contains('=') && !line.contains('"')) {
        let fractions = line.split('.').skip(1).map(|tail| tail.chars().take_while(char::is_ascii_digit).count());
        assert!(fractions.max().unwrap_or(0) <= 6, "{line}");
    }
    let all: Table = folder.ok(&[&PLAN[..], &["--toml", "--rejected"]].concat()).parse().unwrap();
    assert_eq!(all["rejected_offer"].as_array().unwrap().len() as i64, counts);
}

#[test]
fn a_gpu_that_nobody_has_is_an_error_in_a_file_of_ones_own() {
    let folder = folder();
    folder.write("config/pricing/lab.toml", &prices("box", "rtx-9090", 0.01));
    let error = folder.error(&PLAN);
    assert!(error.contains("lab.toml: no GPU \"rtx-9090\" in the catalog (near: rtx-"), "{error}");
}

#[test]
fn a_plan_is_priced_again_and_says_what_changed() {
    let folder = folder();
    folder.write("config/pricing/lab.toml", &prices("box", "v100-sxm2-16gb", 0.01));
    folder.ok(&[&PLAN[..], &["-o", "plan.toml"]].concat());
    let plan: Table = read(&folder, "plan.toml").parse().unwrap();
    assert_eq!(plan["part"][0]["offer"].as_str(), Some("lab/here/box/on-demand"));
    let again = folder.ok(&["plan", "--from", "plan.toml"]);
    assert!(again.starts_with("Nothing changed since the plan of 20"), "{again}");
    // The same goal and the same answer, to the last digit.
    folder.ok(&["plan", "--from", "plan.toml", "-o", "again.toml"]);
    let same: Table = read(&folder, "again.toml").parse().unwrap();
    for key in ["goal", "request", "totals", "part", "alternative", "rejected", "assumptions"] {
        assert_eq!(plan[key], same[key], "{key}");
    }
    folder.write("config/pricing/lab.toml", &prices("box", "v100-sxm2-16gb", 0.02));
    let dearer = folder.ok(&["plan", "--from", "plan.toml"]);
    assert!(dearer.contains("+100.0 %") && dearer.contains("$0.020/h"), "{dearer}");
    folder.write("config/pricing/lab.toml", &prices("other", "v100-sxm2-16gb", 0.02));
    let gone = folder.ok(&["plan", "--from", "plan.toml"]);
    assert!(gone.contains("another offer") && gone.contains("no longer offered: lab/here/box/on-demand"), "{gone}");
    // Machine-readable output has no other text.
    let json = folder.json(&["plan", "--from", "plan.toml"]);
    assert_eq!(json["format"], "habitat-plan");
}

#[test]
fn facts_and_assumptions_typed_are_kept() {
    let folder = Folder::new();
    folder.write("p.habitat.json", &PROFILE.replace(r#""batch_size": 64, "#, ""));
    let typed = [
        "plan",
        "p.habitat.json",
        "--batch-size",
        "32",
        "--tokens",
        "1e9",
        "--sequence-length",
        "128",
        "--setup",
        "10m",
        "--hour-value",
        "2",
        "--gpus",
        "t4,l4",
        "--tiers",
        "spot",
        "--method",
        "roofline",
        "--max-parts",
        "2",
        "-o",
        "a.toml",
    ];
    folder.ok(&typed);
    folder.ok(&["plan", "--from", "a.toml", "-o", "b.toml"]);
    let [a, b]: [Table; 2] = ["a.toml", "b.toml"].map(|name| read(&folder, name).parse().unwrap());
    for key in ["goal", "request", "totals", "part"] {
        assert_eq!(a[key], b[key], "{key}");
    }
    assert_eq!(a["request"]["batch_size"].as_integer(), Some(32));
    assert_eq!(a["goal"]["assumptions"].as_table().unwrap().len(), 1);
}

#[test]
fn the_global_batch_is_kept_and_stands_in_every_form() {
    let folder = folder();
    folder.write("config/pricing/lab.toml", &prices("box", "v100-sxm2-16gb", 0.01).replace("count = 1", "count = 4"));
    let asked = ["plan", "p.habitat.json", "--steps", "1000", "--global-batch", "1024", "--providers", "lab"];
    let with = |more: &[&'static str]| [&asked[..], more].concat();
    folder.ok(&with(&["-o", "a.toml"]));
    folder.ok(&["plan", "--from", "a.toml", "-o", "b.toml"]);
    let [a, b]: [Table; 2] = ["a.toml", "b.toml"].map(|name| read(&folder, name).parse().unwrap());
    for key in ["goal", "totals", "part"] {
        assert_eq!(a[key], b[key], "{key}");
    }
    assert_eq!(a["goal"]["global_batch_size"].as_integer(), Some(1024));
    let part = &a["part"][0];
    let numbers = ["batch_size", "accumulation", "global_batch_size"].map(|key| part[key].as_integer().unwrap());
    assert_eq!((numbers, part["updates"].as_float()), ([64, 4, 1024], Some(1000.0)));
    let json = folder.json(&asked);
    assert_eq!((&json["global_batch_size"], &json["parts"][0]["accumulation"]), (&1024.into(), &4.into()));
    assert_eq!(json["parts"][0]["updates"], 1000.0);
    let csv = folder.ok(&with(&["--csv"]));
    let mut lines = csv.lines();
    assert!(
        lines.next().unwrap().contains(",batch_size,accumulation,global_batch_size,updates,nodes,sharding,"),
        "{csv}"
    );
    assert!(lines.next().unwrap().contains(",64,4,1024,1000,1,none,"), "{csv}");
    let text = folder.ok(&asked);
    assert!(text.contains("batch: 64 samples per GPU × 4 GPUs × 4 accumulated = 1,024; 1,000 steps"), "{text}");
    assert!(text.contains("4 batches per GPU and update, gradients exchanged once; 4 GPUs:"), "{text}");
    let markdown = folder.ok(&with(&["--markdown"]));
    assert!(markdown.contains("64 samples per GPU × 4 GPUs × 4 accumulated"), "{markdown}");
    let typed = folder.error(&["plan", "--from", "a.toml", "--global-batch", "64"]);
    assert!(typed.contains("--from uses"), "{typed}");
}

/// Two layers of 1,024 columns and 16 heads, with 4 tokens of 1,024 samples.
const DECODER: &str = r#"{"format": "habitat-profile", "version": 1,
  "workload": {"name": "decoder", "mode": "training", "batch_size": 4, "precision": "bf16", "parameter_count": 25000000},
  "step": {"peak_memory_bytes": 4000000000},
  "operations": [
    {"name": "aten::mm", "phase": "forward", "count": 2, "inputs": [[4096, 1024], [1024, 1024]], "dtype": "bfloat16"},
    {"name": "aten::native_layer_norm", "phase": "forward", "count": 2, "inputs": [[4, 1024, 1024], [1024]], "dtype": "bfloat16"},
    {"name": "aten::_scaled_dot_product_flash_attention", "phase": "forward", "count": 2, "inputs": [[4, 16, 1024, 64], [4, 16, 1024, 64], [4, 16, 1024, 64]], "dtype": "bfloat16"}]}"#;

#[test]
fn a_model_divided_over_gpus_is_kept_and_stands_in_every_form() {
    let folder = folder();
    folder.write("d.habitat.json", DECODER);
    folder.write("config/pricing/lab.toml", &prices("box", "a100-sxm4-80gb", 0.01).replace("count = 1", "count = 8"));
    let asked =
        ["plan", "d.habitat.json", "--steps=1000", "--global-batch=32", "--providers=lab", "--tensor-parallel=2"];
    let with = |more: &[&'static str]| [&asked[..], &["--pipeline-parallel=2"], more].concat();
    folder.ok(&with(&["-o", "a.toml"]));
    folder.ok(&["plan", "--from", "a.toml", "-o", "b.toml"]);
    let [a, b]: [Table; 2] = ["a.toml", "b.toml"].map(|name| read(&folder, name).parse().unwrap());
    for key in ["goal", "totals", "part"] {
        assert_eq!(a[key], b[key], "{key}");
    }
    assert_eq!(a["plan"]["version"].as_integer(), Some(4));
    for of in [&a["goal"], &a["part"][0]] {
        let of = of["model_parallel"].as_table().unwrap();
        assert_eq!(["tensor", "pipeline"].map(|key| of[key].as_integer().unwrap()), [2, 2]);
    }
    // Two replicas of four GPUs.
    let json = folder.json(&with(&[]));
    let part = &json["parts"][0];
    assert_eq!((&part["tensor_parallel"], &part["pipeline_parallel"]), (&2.into(), &2.into()));
    assert_eq!(
        (&part["accumulation"], &part["global_batch_size"], &part["updates"]),
        (&4.into(), &32.into(), &1000.0.into())
    );
    let csv = folder.ok(&with(&["--csv"]));
    let mut lines = csv.lines();
    assert!(lines.next().unwrap().contains(",nodes,sharding,tensor_parallel,pipeline_parallel,"), "{csv}");
    assert!(lines.next().unwrap().contains(",4,4,32,1000,1,none,2,2,1,1,"), "{csv}");
    let text = folder.ok(&with(&[]));
    assert!(text.contains("batch: 4 samples per replica × 2 replicas × 4 accumulated = 32; 1,000 steps"), "{text}");
    assert!(
        text.contains("2 replicas of 2-way tensor parallel × 2 pipeline stages, 4 micro-batches: 25 % bubble"),
        "{text}"
    );
    let slurm = folder.ok(&with(&["--export=slurm", "--partition=gpu"]));
    assert!(slurm.contains("Planned with 2-way tensor parallel × 2 pipeline stages (replicas: 2)"), "{slurm}");
    // If each GPU has a whole model, there is no such field.
    let whole = folder.ok(&[&asked[..5], &["--toml"]].concat());
    assert!(!whole.contains("model_parallel"), "{whole}");
    let typed = folder.error(&["plan", "--from", "a.toml", "--tensor-parallel=2"]);
    assert!(typed.contains("--from uses"), "{typed}");
    folder.write("bad.toml", &read(&folder, "a.toml").replace("tensor = 2", "tensor = 3"));
    assert!(folder.error(&["plan", "--from", "bad.toml"]).contains("part 1, model_parallel"));
    // A profile without attention does not show its layers.
    let unknown = folder.error(&["plan", "p.habitat.json", "--steps=1000", "--tensor-parallel=2"]);
    assert!(unknown.contains("no attention layers found in the forward pass"), "{unknown}");
    assert!(folder.error(&[&asked[..5], &["--tensor-parallel=0"]].concat()).contains("0 is not in 1..=1024"));
}

/// A term of 720 h at $0.01 is paid for less than an hour of work, and appears in every form.
#[test]
fn a_contract_is_paid_by_the_term_and_stands_in_every_form() {
    let folder = folder();
    let contract = prices("box", "v100-sxm2-16gb", 0.01)
        .replace("on_demand_usd_per_hour = 0.01", "tier = \"reserved\"\nusd_per_hour = 0.01\nterm_hours = 720");
    folder.write("config/pricing/lab.toml", &contract);
    let asked = ["plan", "p.habitat.json", "--steps", "1000", "--providers", "lab"];
    let with = |more: &[&'static str]| [&asked[..], more].concat();
    folder.ok(&with(&["-o", "a.toml"]));
    folder.ok(&["plan", "--from", "a.toml", "-o", "b.toml"]);
    let [a, b]: [Table; 2] = ["a.toml", "b.toml"].map(|name| read(&folder, name).parse().unwrap());
    for key in ["goal", "totals", "part"] {
        assert_eq!(a[key], b[key], "{key}");
    }
    let part = &a["part"][0];
    assert_eq!(part["offer"].as_str(), Some("lab/here/box/reserved-720h"));
    assert_eq!(
        (part["contract"]["term_hours"].as_integer(), part["contract"]["terms"].as_float()),
        (Some(720), Some(1.0))
    );
    let cost = part["cost_usd"].as_array().unwrap();
    assert!(cost.iter().all(|end| end.as_float() == Some(7.2)), "{part}");
    let json = folder.json(&asked);
    assert_eq!(
        (&json["parts"][0]["billing"], &json["parts"][0]["contract"]["term_hours"]),
        (&"term".into(), &720.into())
    );
    let csv = folder.ok(&with(&["--csv"]));
    assert!(
        csv.lines().next().unwrap().contains(",term_hours,terms,idle_hours,") && csv.contains(",720,1,719."),
        "{csv}"
    );
    assert!(folder.ok(&asked).contains("720 h paid (1 term of 720 h)"));
    let offers = folder.ok(&["offers", "lab"]);
    assert!(offers.contains("each of the 720 h of a term, used or not"), "{offers}");
    folder.write("run.json", r#"{"format": "habitat-run", "version": 1, "hours": 0.5, "cost_usd": 7.2}"#);
    assert!(folder.ok(&["compare", "a.toml", "run.json"]).contains("contracts are paid in whole terms"));
}

/// Notes and reasons are texts in TOML, as in files from before the codes.
#[test]
fn what_a_file_says_is_text() {
    let folder = folder();
    let none = folder.run(&[&PLAN[..4], &["--budget=0.01", "--toml", "--rejected"]].concat());
    let text = String::from_utf8(none.stdout).unwrap();
    let plan: Table = text.parse().unwrap();
    let reasons = plan["plan"]["reasons"].as_array().unwrap();
    assert!(reasons[0].as_str().is_some_and(|reason| reason.starts_with("spend $")), "{reasons:?}");
    assert!(plan["rejected_offer"].as_array().unwrap().iter().all(|one| one["reason"].is_str()), "{text}");
    folder.write("none.toml", &text);
    let again = folder.run(&["plan", "--from", "none.toml"]);
    assert_eq!(again.status.code(), Some(1), "{}", String::from_utf8_lossy(&again.stderr));
    let found: Table = folder.ok(&[&PLAN[..], &["--toml"]].concat()).parse().unwrap();
    assert!(found["part"][0]["notes"].as_array().unwrap().iter().all(toml::Value::is_str), "{found}");
}

#[test]
fn batches_to_choose_from_are_kept_too() {
    let folder = folder();
    folder.write("config/pricing/lab.toml", &prices("box", "v100-sxm2-16gb", 0.01));
    let asked = ["plan", "p.habitat.json", "--steps", "1000", "--global-batch", "96", "--providers", "lab"];
    // Neither 64 nor 7 samples per step give an update of 96; 32, half of the recorded batch, do.
    assert_eq!(folder.json(&asked)["parts"][0]["accumulation"], 3);
    let none = folder.run(&[&asked[..], &["--batch-sizes", "7"]].concat());
    let text = String::from_utf8_lossy(&none.stdout);
    assert!(none.status.code() == Some(1) && text.contains("48 samples per GPU works (accumulation ×2)"), "{text}");
    let with = |sizes: &'static str| [&asked[..], &["--batch-sizes", sizes]].concat();
    let json = folder.json(&with("48,7"));
    let part = &json["parts"][0];
    assert_eq!((&part["batch_size"], &part["accumulation"]), (&48.into(), &2.into()));
    assert!(part["notes"].to_string().contains("batch 48 instead of the recorded 64: shapes scaled"), "{part}");
    assert_eq!(folder.json(&with("auto"))["parts"][0]["batch_size"], 32);
    folder.ok(&[&with("48,7")[..], &["-o", "a.toml"]].concat());
    folder.ok(&["plan", "--from", "a.toml", "-o", "b.toml"]);
    let [a, b]: [Table; 2] = ["a.toml", "b.toml"].map(|name| read(&folder, name).parse().unwrap());
    for key in ["goal", "request", "totals", "part"] {
        assert_eq!(a[key], b[key], "{key}");
    }
    let wrong = folder.error(&with("8,many"));
    assert!(wrong.contains("--batch-sizes") && wrong.contains("many"), "{wrong}");
}

#[test]
fn files_that_cannot_be_priced_again_are_refused_with_place_and_remedy() {
    let folder = folder();
    folder.ok(&[&PLAN[..], &["-o", "plan.toml"]].concat());
    let good = read(&folder, "plan.toml");
    let refused = |text: String, words: &[&str]| {
        folder.write("bad.toml", &text);
        let error = folder.error(&["plan", "--from", "bad.toml"]);
        assert!(words.iter().all(|word| error.contains(word)) && error.contains("bad.toml"), "{words:?}: {error}");
    };
    refused(good.replace("\nversion = 4", "\nversion = 1"), &["version: found 1", "plan again"]);
    refused(good.replace("\nversion = 4", "\nversion = 6"), &["version: found 6", "newer"]);
    refused(good.replace("habitat-plan", "x\\u001b[31m"), &["format", "habitat-plan"]);
    refused(good.replace("deadline_hours", "deadlin_hours"), &["deadlin_hours", "line", "damaged"]);
    refused(good.replace("deadline_hours = 480.0", "deadline_hours = -1.0"), &["-1", "line"]);
    refused(good.replace("max_parts = 1", "max_parts = 77"), &["goal.max_parts"]);
    refused(good[..good.len() / 3].to_owned(), &["damaged"]);
    refused(String::new(), &["plan"]);
    // Another recording, and none.
    folder.write("q.habitat.json", &PROFILE.replace("900.0}", "901.0}"));
    let other = folder.error(&["plan", "q.habitat.json", "--from", "plan.toml"]);
    assert!(other.contains("plan.toml: request.profile_sha256") && other.contains("--other-profile"), "{other}");
    folder.ok(&["plan", "q.habitat.json", "--from", "plan.toml", "--other-profile"]);
    std::fs::remove_file(folder.0.path().join("p.habitat.json")).unwrap();
    let none = folder.error(&["plan", "--from", "plan.toml"]);
    assert!(none.contains("p.habitat.json") && none.contains("plan FILE --from"), "{none}");
    let typed = folder.error(&["plan", "--from", "plan.toml", "--steps", "3"]);
    assert!(typed.contains("--from uses the work"), "{typed}");
}

#[test]
fn a_recording_packed_or_renamed_is_the_same() {
    let folder = folder();
    folder.ok(&[&PLAN[..], &["-o", "plan.toml"]].concat());
    folder.write("elsewhere.habitat.json", &PROFILE.replace(",\n", ", "));
    let again = folder.ok(&["plan", "elsewhere.habitat.json", "--from", "plan.toml"]);
    assert!(again.starts_with("Nothing changed"), "{again}");
}

#[test]
fn a_plan_is_compared_with_what_happened_and_planned_anew() {
    let folder = folder();
    folder.write("config/pricing/lab.toml", &prices("box", "v100-sxm2-16gb", 0.01));
    folder.ok(&[&PLAN[..], &["-o", "plan.toml"]].concat());
    folder.write("run.habitat.json", &PROFILE.replace("\"duration_us\": 1000.0", "\"duration_us\": 1500.0"));
    folder.write("run.json", r#"{"format": "habitat-run", "version": 1, "hours": 7.0, "cost_usd": 0.08, "losses": 1}"#);
    let text = folder.ok(&["compare", "plan.toml", "run.habitat.json", "run.json"]);
    assert!(text.contains("+50.0 %, outside the range") && text.contains("A machine was lost once."), "{text}");
    let json = folder.json(&["compare", "plan.toml", "run.json", "run.habitat.json"]);
    // 1e9 samples in steps of 64 that take 0.5 ms longer.
    let slower = json["shares"].as_array().unwrap().iter().find(|share| share["cause"] == "step time").unwrap();
    assert!((slower["hours"].as_f64().unwrap() - 1e9 / 64.0 * 0.5e-3 / 3600.0).abs() < 1e-3, "{slower}");
    // The suggested command plans from the measured step.
    let (_, next) = text.lines().last().unwrap().split_once(": habitat-tui ").unwrap();
    let again = folder.ok(&next.split(' ').collect::<Vec<_>>());
    assert!(again.contains("part 1, step   1.0 ms                  1.5 ms"), "{again}");
    let error = folder.error(&["compare", "plan.toml", "config/pricing/lab.toml"]);
    assert!(error.contains("lab.toml") && error.contains("habitat-run"), "{error}");
    let other = folder.error(&["compare", "plan.toml", "run.habitat.json", "--origin", "t4"]);
    assert!(other.contains("plan.toml: the step was measured on t4, the plan uses v100-sxm2-16gb"), "{other}");
}

#[test]
fn forms_of_a_plan_are_asked_for_by_flag() {
    let folder = folder();
    let aws = [&PLAN[..], &["--providers", "aws"]].concat();
    let with = |more: &[&str]| folder.ok(&[&aws[..], more].concat());
    assert!(with(&["--csv"]).starts_with("part,offer,gpus,step_time_us,hours,cost_usd"));
    assert!(with(&["--markdown"]).contains("| part | offer |"));
    assert!(with(&["--export", "skypilot"]).contains("\n  infra: \"aws/us-east-1\"\n"));
    with(&["--export", "dstack", "-o", "plan.dstack.yml"]);
    assert!(read(&folder, "plan.dstack.yml").contains("\nbackends: [aws]\n"));
    assert!(with(&["--export", "slurm", "--partition", "gpu"]).contains("\n#SBATCH --partition=gpu\n"));
    let slurm = folder.error(&[&aws[..], &["--export", "slurm"]].concat());
    assert!(slurm.contains("--partition NAME"), "{slurm}");
    let refused = folder.error(&[&PLAN[..], &["--providers", "hyperstack", "--export", "dstack"]].concat());
    assert!(refused.contains("dstack cannot start hyperstack/"), "{refused}");
    let none = folder.run(&["plan", "p.habitat.json", "--samples", "1e12", "--deadline", "1h", "--export", "dstack"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(!Path::new(&folder.0.path().join("plan.toml")).exists());
}

#[test]
fn a_tool_that_takes_a_file_a_part_gets_numbered_files() {
    let folder = folder();
    folder.write("config/pricing/slow.toml", &prices("slow", "v100-sxm2-16gb", 1.0));
    let fast = prices("fast", "h100-sxm5-80gb", 9.0).replace("\"lab\"", "\"own\"");
    folder.write("config/pricing/fast.toml", &fast);
    let plan = |more: &[&str]| {
        let asked = ["plan", "p.habitat.json", "--samples", "1e9", "--max-parts", "2", "--providers", "lab,own"];
        let limits = ["--deadline", "4h", "--confidence", "expected", "--export", "slurm", "--partition", "gpu"];
        folder.run(&[&asked[..], &limits, more].concat())
    };
    let printed = plan(&[]);
    assert_eq!(printed.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&printed.stderr).contains("the plan has 2 parts, one script each"));
    let written = plan(&["-o", "job.sbatch"]);
    assert_eq!(written.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&written.stdout), "wrote job-1.sbatch, job-2.sbatch\n");
    for part in ["1", "2"] {
        let script = read(&folder, &format!("job-{part}.sbatch"));
        assert!(script.starts_with("#!/bin/bash\n") && script.contains(&format!("part {part} of 2")), "{script}");
    }
    // If one exists, none is replaced.
    std::fs::remove_file(folder.0.path().join("job-1.sbatch")).unwrap();
    assert_eq!(plan(&["-o", "job.sbatch"]).status.code(), Some(2));
    assert!(!folder.0.path().join("job-1.sbatch").exists());
}
