//! `plan-jobs` on the command line: the example files, every form, and refusals.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::path::Path;

use crate::program::Folder;
use serde_json::Value;

/// A step of a product measured on a V100.
const PROFILE: &str = r#"{"format": "habitat-profile", "version": 1,
  "workload": {"name": "tiny", "mode": "training", "batch_size": 64, "precision": "fp32", "parameter_count": 1000000},
  "origin": {"gpu": "v100-sxm2-16gb"},
  "step": {"duration_us": 1000.0, "device_busy_us": 900.0, "peak_memory_bytes": 4000000000},
  "operations": [
    {"name": "aten::mm", "phase": "forward", "inputs": [[4096, 1024], [1024, 1024]], "outputs": [[4096, 1024]], "dtype": "float32", "device_time_us": 900.0}]}"#;

/// The same, measured on an unknown GPU.
const NOWHERE: &str = r#"{"format": "habitat-profile", "version": 1,
  "workload": {"name": "tiny", "mode": "training", "batch_size": 64},
  "origin": {"gpu_name": "Unheard Of"},
  "step": {"duration_us": 1000.0, "device_busy_us": 900.0},
  "operations": [
    {"name": "aten::mm", "phase": "forward", "inputs": [[4096, 1024], [1024, 1024]], "outputs": [[4096, 1024]], "dtype": "float32", "device_time_us": 900.0}]}"#;

/// An hour on a V100.
const JOB: &str = "[[job]]\nname = \"a\"\nprofile = \"p.habitat.json\"\nsteps = \"3.6M\"\n";
const MACHINE: &str = "[[machine]]\ngpu = \"v100-sxm2-16gb\"\n";

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("runs/p.habitat.json", PROFILE);
    folder.write("runs/q.habitat.json", NOWHERE);
    folder
}

fn planned(text: &str) -> Value {
    let folder = folder();
    folder.write("runs/jobs.toml", text);
    folder.json(&["plan-jobs", "runs/jobs.toml"])
}

fn refused(text: &str) -> String {
    let folder = folder();
    folder.write("runs/jobs.toml", text);
    let problem = folder.error(&["plan-jobs", "runs/jobs.toml"]);
    assert!(problem.contains("runs/jobs.toml: "), "{problem}");
    problem
}

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/jobs").join(name);
    path.to_str().unwrap().to_owned()
}

#[test]
fn the_example_rents_within_its_limits() {
    let plan = Folder::new().json(&["plan-jobs", &example("rent.toml")]);
    assert_eq!((plan["format"].as_str(), plan["aim"].as_str()), (Some("habitat-jobs-plan"), Some("cost")));
    assert_eq!(plan["status"], "optimal");
    let jobs = plan["jobs"].as_array().unwrap();
    let names: Vec<&str> = jobs.iter().map(|job| job["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["pictures", "translation", "faces"]);
    let sum = |key: &str| -> f64 { jobs.iter().map(|job| job["part"][key].as_f64().unwrap()).sum() };
    assert!(sum("price_usd_per_hour") <= 30.0);
    let cost: f64 = jobs.iter().map(|job| job["part"]["cost_usd"]["mid"].as_f64().unwrap()).sum();
    assert!((cost - plan["total"]["cost_usd"]["mid"].as_f64().unwrap()).abs() < 1e-9 && cost <= 400.0);
    assert!(jobs[0]["end_hours"]["high"].as_f64().unwrap() <= 36.0);
    assert_eq!((&jobs[0]["deadline_hours"], &jobs[2]["deadline_hours"]), (&36.0.into(), &120.0.into()));
    assert_eq!(jobs[1]["part"]["tier"], "on-demand");
}

#[test]
fn the_example_puts_jobs_on_machines() {
    let folder = Folder::new();
    let file = example("machines.toml");
    let plan = folder.json(&["plan-jobs", &file]);
    assert_eq!((plan["aim"].as_str(), plan["jobs"].as_array().unwrap().len()), (Some("makespan"), 5));
    let bound = plan["lower_bound"].as_f64().unwrap();
    assert!(bound > 0.0 && bound <= plan["total"]["hours"]["high"].as_f64().unwrap() * (1.0 + 1e-9));
    let text = folder.ok(&["plan-jobs", &file]);
    assert!(text.starts_with("5 jobs: $") && text.contains("v100-sxm2-16gb 2"), "{text}");
    assert!(!text.contains("in doubt"), "{text}");
    let markdown = folder.ok(&["plan-jobs", &file, "--markdown"]);
    assert!(markdown.starts_with("| job | machine | GPUs | start |"), "{markdown}");
    let csv = folder.ok(&["plan-jobs", &file, "--csv"]);
    assert_eq!(csv.lines().count(), 6);
    assert!(csv.starts_with("job,machine,gpus,start_hours,start_hours_low"), "{csv}");
}

#[test]
fn jobs_on_one_machine_follow_one_another() {
    let second = JOB.replace("\"a\"", "\"b\"").replace("3.6M", "1.8M");
    let plan = planned(&format!("{JOB}{second}deadline = 0.6\n{MACHINE}usd_per_hour = 2\n"));
    let [a, b] = [0, 1].map(|job| &plan["jobs"][job]);
    assert_eq!((b["start_hours"]["mid"].as_f64(), a["machine"].as_str()), (Some(0.0), Some("v100-sxm2-16gb")));
    assert!((a["start_hours"]["mid"].as_f64().unwrap() - 0.5).abs() < 1e-6);
    assert!((a["end_hours"]["mid"].as_f64().unwrap() - 1.5).abs() < 1e-6);
    assert!((plan["total"]["cost_usd"]["mid"].as_f64().unwrap() - 3.0).abs() < 1e-6);
}

/// A machine of several GPUs keeps the recorded batch: each GPU has its share.
#[test]
fn several_gpus_share_the_recorded_batch() {
    let plan = planned(&format!("{JOB}{MACHINE}gpus = 4\nusd_per_hour = 2\n"));
    let part = &plan["jobs"][0]["part"];
    assert_eq!((&part["gpu_count"], &part["batch_size"]), (&4.into(), &16.into()), "{part}");
    assert_eq!(part["global_batch_size"], 64, "{part}");
}

#[test]
fn what_cannot_be_done_is_no_error_but_has_reasons() {
    let folder = folder();
    folder.write("runs/jobs.toml", &format!("budget = 0.001\n{JOB}"));
    let output = folder.run(&["plan-jobs", "runs/jobs.toml"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text.starts_with("No plan for all jobs within these limits.\n") && text.contains("spend $"), "{text}");
}

#[test]
fn quotas_of_the_settings_are_shared_too() {
    let folder = folder();
    let second = JOB.replace("\"a\"", "\"b\"");
    folder.write("runs/jobs.toml", &format!("{JOB}offers = [\"aws/us-east-1/p3.2xlarge/on-demand\"]\n{second}offers = [\"aws/us-east-1/p3.2xlarge/on-demand\"]\n"));
    folder.ok(&["plan-jobs", "runs/jobs.toml"]);
    folder.write("config/config.toml", "[[plan.quota]]\nprovider = \"aws\"\ngpus = 1\n");
    let output = folder.run(&["plan-jobs", "runs/jobs.toml"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("the quota of 1 at aws: 1 more GPUs (2)"), "{text}");
}

#[test]
fn what_is_wrong_names_the_file_the_line_and_the_remedy() {
    let lost = refused(&format!("\n{}", JOB.replace("p.habitat", "lost.habitat")));
    assert!(lost.contains("line 2: job \"a\": ") && lost.contains("runs/lost.habitat.json"), "{lost}");
    let provider = refused(&format!("[[quota]]\nprovider = \"awz\"\ngpus = 1\n{JOB}"));
    assert!(
        provider.contains("unknown provider \"awz\" (near: aws") && !provider.contains("config.toml"),
        "{provider}"
    );
    let gpu = refused(&format!("{JOB}gpus = [\"v1000\"]\n"));
    assert!(gpu.contains("line 1: job \"a\": ") && gpu.contains("v1000"), "{gpu}");
    let both = refused(&format!("{JOB}min_gpus = 4\nmax_gpus = 2\n"));
    assert!(both.contains("no offer meets both"), "{both}");
    let origin = refused(&JOB.replace("p.habitat", "q.habitat"));
    assert!(origin.contains("origin = \"GPU\""), "{origin}");
    let several = refused(&format!("{JOB}[[machine]]\ngpu = \"v100\"\n"));
    assert!(
        several.contains("line 5: machine \"v100\": gpu: v100 matches ") && several.contains("v100-sxm2-16gb"),
        "{several}"
    );
    assert!(refused(&format!("deadline = 0\n{JOB}")).contains("leaves no time for any work"));
    assert!(refused("job = 3").contains("line 1"));
    let settings = folder();
    settings.write("config/config.toml", "[plan]\ndeadline = \"3d\"\n");
    settings.write("runs/jobs.toml", JOB);
    let problem = settings.error(&["plan-jobs", "runs/jobs.toml"]);
    assert!(problem.contains("plan.deadline: is specific to a job"), "{problem}");
}

#[test]
fn the_schema_is_printed() {
    let schema: Value = serde_json::from_str(&Folder::new().ok(&["schema", "plan-jobs"])).unwrap();
    assert_eq!(schema["title"], "habitat-tui plan-jobs");
}

/// An hour each on the same machine, in turn; the second starts an hour later at the earliest.
#[test]
fn jobs_that_wait_follow_one_another() {
    let folder = folder();
    let offers = r#"schema = 1
provider = "lab"
[[offer]]
region = "here"
instance_type = "box"
gpu = "v100-sxm2-16gb"
gpu_count = 1
on_demand_usd_per_hour = 2.0
scope = "instance_total"
source = "made up"
"#;
    folder.write("config/pricing/lab.toml", offers);
    let job = |name: &str, more: &str| {
        JOB.replace("\"a\"", &format!("{name:?}")) + "providers = [\"lab\"]\nsetup_hours = 0\n" + more
    };
    let quota = "[[quota]]\nprovider = \"lab\"\ngpus = 1\n";
    let text = format!("wait = true\n{}{}{quota}", job("a", "not_before_hours = 3\n"), job("b", ""));
    folder.write("runs/jobs.toml", &text);
    let plan = folder.json(&["plan-jobs", "runs/jobs.toml"]);
    assert_eq!((plan["status"].as_str(), plan["wait"].as_bool()), (Some("optimal"), Some(true)));
    let starts: Vec<f64> =
        plan["jobs"].as_array().unwrap().iter().map(|job| job["start_hours"]["mid"].as_f64().unwrap()).collect();
    assert_eq!(starts, [3.0, 0.0]);
}

/// Without a terminal the screens of a file of jobs print the command's text, with a bar per job.
#[test]
fn the_screens_of_a_file_of_jobs_print_the_same_text() {
    let folder = Folder::new();
    let file = example("machines.toml");
    let text = folder.ok(&["plan-jobs", &file]);
    assert_eq!(folder.ok(&["--jobs", &file]), text);
    let bars: Vec<&str> = text.lines().filter(|line| line.contains('█')).collect();
    assert_eq!(bars.len(), 5, "{text}");
    // Per machine, in turn: the second begins at the end of the first.
    let begins = |line: &str| line.chars().position(|sign| sign == '█').unwrap();
    assert!(begins(bars[1]) > begins(bars[0]) && begins(bars[2]) == begins(bars[0]), "{text}");
    assert!(text.contains("1 deadline is beyond the chart"), "{text}");

    let picture = ["--jobs", &file, "--size", "100x30", "--screenshot", "jobs.svg", "--keys", "j enter"];
    folder.ok(&picture);
    let drawn = std::fs::read_to_string(folder.0.path().join("jobs.svg")).unwrap();
    assert!(drawn.contains("jobs screen") && drawn.contains("Esc: close"));

    let problem = folder.error(&["--screen", "jobs"]);
    assert!(problem.contains("--jobs FILE"), "{problem}");
    folder.write("none.toml", "budget = 3\n");
    assert!(folder.error(&["--jobs", "none.toml"]).contains("none.toml"));
}

/// Twenty jobs in turn: the limit of dollars per hour does not raise their cost.
#[test]
fn the_example_of_jobs_that_wait_is_proved() {
    let folder = Folder::new();
    let file = example("wait.toml");
    let plan = folder.json(&["plan-jobs", &file]);
    assert_eq!((plan["status"].as_str(), plan["jobs"].as_array().unwrap().len()), (Some("optimal"), 20));
    let (bound, cost) = (plan["lower_bound"].as_f64().unwrap(), plan["total"]["cost_usd"]["mid"].as_f64().unwrap());
    assert!((bound - cost).abs() <= 1e-6 * cost && plan["solver"]["gap"].is_null());
    assert_eq!(folder.json(&["plan-jobs", &file]), plan, "the same plan each time");
}

#[test]
fn the_example_that_no_plan_fits_is_proved_infeasible() {
    let output = Folder::new().run(&["plan-jobs", &example("infeasible.toml")]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("no plan exists: 3 jobs need at least "), "{text}");
    assert!(text.contains("the budget of $5.36 for all jobs: spend $"), "{text}");
}

/// The cheapest machines are four equal ones: no plan of equal cost ends before the end of the longest job.
#[test]
fn of_equal_cost_the_example_of_a_team_ends_first() {
    let offers = (1..=4).fold("schema = 1\nprovider = \"office\"\n".to_owned(), |text, number| {
        text + &format!(
            "[[offer]]\nregion = \"here\"\ninstance_type = \"gpu{number}\"\ngpu = \"rtx-4090\"\ngpu_count = 1\ntier = \"owned\"\nkw = 0.5\nusd_per_kwh = 0.25\nscope = \"instance_total\"\nsource = \"ours\"\n"
        )
    });
    let folder = Folder::new();
    folder.write("config/pricing/team.toml", &offers);
    let plan = folder.json(&["plan-jobs", &example("team.toml")]);
    assert_eq!(plan["status"], "optimal");
    let jobs = plan["jobs"].as_array().unwrap();
    assert!(jobs.iter().all(|job| job["part"]["provider"] == "office"), "{plan}");
    let longest = jobs.iter().map(|job| job["part"]["hours"]["high"].as_f64().unwrap()).fold(0.0, f64::max);
    assert!((plan["total"]["hours"]["high"].as_f64().unwrap() - longest).abs() < 1e-6);
}

/// As in `plan`: a marketplace host must be accepted, for all jobs or in the file.
#[test]
fn marketplace_hosts_have_to_be_accepted() {
    let folder = folder();
    folder.write("runs/jobs.toml", JOB);
    let market = |plan: &Value| {
        let part = &plan["jobs"][0]["part"];
        part["provider"] == "salad" || part["provider"] == "vast"
    };
    let firm = folder.json(&["plan-jobs", "runs/jobs.toml"]);
    let all = folder.json(&["plan-jobs", "runs/jobs.toml", "--accept", "marketplace,doubted"]);
    let cost = |plan: &Value| plan["total"]["cost_usd"]["mid"].as_f64().unwrap();
    assert!(!market(&firm) && market(&all) && cost(&all) < cost(&firm), "{firm}\n{all}");
    folder.write("runs/jobs.toml", &format!("{JOB}accept = [\"marketplace\", \"doubted\"]\n"));
    assert_eq!(folder.json(&["plan-jobs", "runs/jobs.toml"])["jobs"], all["jobs"]);
    // The flag adds to the settings.
    folder.write("runs/jobs.toml", JOB);
    folder.write("config/config.toml", "[plan]\naccept = [\"marketplace\", \"doubted\"]\n");
    let more = folder.json(&["plan-jobs", "runs/jobs.toml", "--accept", "batch"]);
    assert!(market(&more) && cost(&more) <= cost(&all), "{more}");
    folder.write("runs/jobs.toml", &format!("{JOB}{MACHINE}"));
    let problem = folder.error(&["plan-jobs", "runs/jobs.toml", "--accept", "spot"]);
    assert!(problem.contains("--accept: does not apply to [[machine]]"), "{problem}");
}

/// Two copies, then one job after both, which arrives after their end.
#[test]
fn copies_run_before_the_job_that_waits_for_them() {
    let copies = JOB.replace("\"a\"", "\"pretrain\"") + "count = 2\n";
    let tune = JOB.replace("\"a\"", "\"tune\"") + "after = [\"pretrain\"]\narrives = \"3h\"\n";
    let plan = planned(&format!("{tune}{copies}{MACHINE}"));
    let start = |job: usize| plan["jobs"][job]["start_hours"]["mid"].as_f64().unwrap();
    assert!((start(0) - 3.0).abs() < 1e-6 && (start(1) - start(2)).abs() > 0.9, "{plan}");
    assert_eq!(plan["jobs"][0]["after"], serde_json::json!(["pretrain 1", "pretrain 2"]));
    let late = refused(&format!("{JOB}arrives = \"30h\"\ndeadline = \"24h\"\n{MACHINE}"));
    assert!(late.contains("line 1: job \"a\": arrives: 30 h is not before its deadline, 24 h"), "{late}");
}

/// Two hours of work on one machine, due after an hour and a half.
#[test]
fn a_deadline_may_be_missed_at_a_price() {
    let second = JOB.replace("\"a\"", "\"b\"");
    let text =
        format!("deadline = 1.5\nlate_usd_per_hour = 4\n{JOB}{second}hour_value = 3\n{MACHINE}usd_per_hour = 2\n");
    let plan = planned(&text);
    assert_eq!((plan["status"].as_str(), plan["aim"].as_str()), (Some("optimal"), Some("cost")), "{plan}");
    // The second job ends first, because its waiting has a price.
    let [late, waiting] = ["late_usd", "waiting_usd"].map(|key| plan["time_cost"][key].as_f64().unwrap());
    assert!((late - 2.0).abs() < 1e-6 && (waiting - 3.0).abs() < 1e-6, "{plan}");
    assert!((plan["lower_bound"].as_f64().unwrap() - 9.0).abs() < 1e-6);
    let [a, b] = [0, 1].map(|job| &plan["jobs"][job]);
    assert!((a["soft_deadlines"][0]["late_hours"].as_f64().unwrap() - 0.5).abs() < 1e-6, "{a}");
    assert_eq!((b["soft_deadlines"][0]["late_hours"].as_f64(), a["deadline_hours"].as_f64()), (Some(0.0), None));
    let folder = folder();
    folder.write("runs/jobs.toml", &text);
    let text = folder.ok(&["plan-jobs", "runs/jobs.toml"]);
    let words = "2 jobs: $4.00; the last ends after 2 h; 1 late job costs $2.00; waiting costs $3.00 (lowest cost with time possible, proved)";
    assert!(text.starts_with(words) && text.contains("late 30 min"), "{text}");
    // Without a price, there is no plan.
    folder.write("runs/jobs.toml", &format!("deadline = 1.5\n{JOB}{second}{MACHINE}"));
    assert_eq!(folder.run(&["plan-jobs", "runs/jobs.toml"]).status.code(), Some(1));
}

/// Four copies for half of the work, then two of them for the rest.
#[test]
fn copies_that_stop_early_leave_time() {
    let sweep = JOB.replace("\"a\"", "\"sweep\"") + "count = 4\nsurvive = 0.5\ncheck = 0.5\n";
    let plan = planned(&format!("{sweep}{MACHINE}"));
    let jobs = plan["jobs"].as_array().unwrap();
    let names: Vec<&str> = jobs.iter().map(|job| job["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["sweep 1", "sweep 2", "sweep 3", "sweep 4", "sweep rung 2 1", "sweep rung 2 2"]);
    assert!((plan["total"]["hours"]["high"].as_f64().unwrap() - 3.0).abs() < 1e-6, "{plan}");
    assert!(jobs[4]["start_hours"]["mid"].as_f64().unwrap() > 1.999, "{plan}");
}

/// A rung continues from the checkpoint of another copy, for which frameworks have no flag. A price of 0 counts as
/// none.
#[test]
fn rungs_take_no_flags_of_a_framework() {
    let folder = folder();
    let sweep = format!("wait = true\n{JOB}count = 4\nsurvive = 0.5\ncheck = 0.5\n");
    let launch = "[job.launch]\ncommand = \"pretrain_gpt.py\"\nframework = \"megatron\"\n";
    folder.write("runs/jobs.toml", &format!("{sweep}{launch}"));
    let export = ["plan-jobs", "runs/jobs.toml", "--export", "slurm", "-o", "out"];
    let problem = folder.error(&export);
    assert!(problem.contains("runs/jobs.toml: line 2: job \"a") && problem.contains("launch.framework"), "{problem}");
    // A rung has at least one step.
    let tiny = planned(&sweep.replace("3.6M", "1").replace("check = 0.5", "check = 1e-10"));
    assert_eq!(tiny["status"], "optimal", "{tiny}");
    let free = planned(&format!("hour_value = 0\n{MACHINE}{JOB}"));
    assert_eq!(free["aim"], "makespan", "{free}");
}
