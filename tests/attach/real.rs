//! Jobs that train with `PyTorch`.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::{Place, env, wait_for};
use crate::needs::{Need, torch_from, torch_version};

trials! {
    with (attachable()) => [
        a_real_job_goes_on_as_if_nothing_had_happened,
        both_ranks_record_the_same_step,
        the_users_own_profiler_sees_what_it_sees_without_us,
        a_trace_that_the_users_own_profiler_cuts_off_is_asked_for_again,
        ranks_are_all_recorded_beside_a_launcher_that_is_coming_up,
        the_process_that_trains_is_told_from_its_spawned_workers,
    ],
    with (torch_from(2, 12)) => [a_trace_asked_for_before_the_users_own_profiler_starts_harms_neither],
}

/// The interpreter, if its `PyTorch` supports attaching.
fn attachable() -> Need<String> {
    // 2.1.2 does not report for requests on a machine without a GPU; 2.6.0 does.
    torch_from(2, 6)
}

/// Whether a program with this `PyTorch` survives if its own profiler starts while a trace on demand is written.
fn bears_its_own_profiler(python: &str) -> bool {
    torch_version(python) >= (2, 12)
}

fn fixture(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/capture").join(name).to_str().unwrap().to_owned()
}

impl Place {
    /// Starts a real job, attachable, and waits until it has made this many steps.
    fn job(&self, python: &str, fast: bool, arguments: &[&str], steps: u32) -> Child {
        let variables = env(self, if fast { &["--shell", "plain", "--fast"] } else { &["--shell", "plain"] });
        let variables = String::from_utf8(variables.stdout).unwrap();
        let job = self
            .command(python)
            .args(arguments)
            .envs(variables.lines().map(|line| line.split_once('=').unwrap()))
            .env("EXIT_CODE", "3")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_for("it makes steps", || {
            let text = std::fs::read_to_string(self.path("progress")).unwrap_or_default();
            text.parse::<u32>().is_ok_and(|made| made >= steps)
        });
        job
    }

    /// Starts the same job without the variables.
    fn bare(&self, python: &str, arguments: &[&str]) -> Child {
        self.command(python)
            .args(arguments)
            .env("EXIT_CODE", "3")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }
}

fn tell(what: &str, json: &Value) {
    eprintln!(
        "{what}: total {:.1} s, {}, operators {}, aligned {}, rounds {}",
        json["total_s"].as_f64().unwrap(),
        json["seconds"],
        json["operations"],
        json["aligned"],
        json["rounds"]
    );
}

fn a_real_job_goes_on_as_if_nothing_had_happened(python: &str) {
    for fast in [true, false] {
        let place = Place::new();
        // Long enough for a busy machine.
        let steps = if fast { "600" } else { "900" };
        let script = fixture("slow.py");
        let bare = place.bare(python, &[&script, "progress-of-the-other", steps]);
        let job = place.job(python, fast, &[&script, "progress", steps], 5);
        let ran = place.attach(&["--json"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let json = ran.json();
        tell(if fast { "polls every second" } else { "polls every 5 s" }, &json);
        assert_eq!(json["steps_used"], 3);
        assert!(ran.profile.as_ref().unwrap().operations.iter().any(|one| one.name == "aten::addmm"));
        assert_eq!(ran.profile.as_ref().unwrap().workload.batch_size, Some(8));
        let attached = job.wait_with_output().unwrap();
        let bare = bare.wait_with_output().unwrap();
        assert_eq!(bare.status.code(), Some(3));
        assert_eq!((attached.status.code(), &attached.stdout), (bare.status.code(), &bare.stdout));
        assert_eq!(String::from_utf8_lossy(&attached.stderr), String::from_utf8_lossy(&bare.stderr));
    }
}

fn both_ranks_record_the_same_step(python: &str) {
    let place = Place::new();
    let script = fixture("ranks.py");
    let launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", &script, "progress", "3000"];
    let mut job = place.job(python, true, &launch, 20);
    let listed = place.attach_list();
    let roles: Vec<&str> =
        listed["processes"].as_array().unwrap().iter().map(|one| one["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["launches", "trains", "trains"], "{listed}");
    std::fs::create_dir(place.path("traces")).unwrap();
    let ran = place.attach(&["--all", "--json", "--keep-traces", "traces"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let json = ran.json();
    tell("two ranks", &json);
    let numbers: Vec<Vec<String>> = json["traces"]
        .as_array()
        .unwrap()
        .iter()
        .map(|trace| {
            let name = format!("traces/trace-rank{}-{}.json", trace["rank"], trace["pid"]);
            numbers(&std::fs::read_to_string(place.path(&name)).unwrap())
        })
        .collect();
    eprintln!("steps in the ranks' windows: {numbers:?}");
    assert_eq!(numbers.len(), 2);
    // A window begins and ends within `Optimizer.step`: both have the steps that were recorded as a whole.
    assert!(numbers[0].len() >= 3 && numbers[0] == numbers[1], "{numbers:?}");
    assert_eq!(json["aligned"], true);
    let _ = job.kill();
    let _ = job.wait();
}

/// Numbers of the steps in a trace.
fn numbers(trace: &str) -> Vec<String> {
    let mut found: Vec<String> =
        trace.split("\"number ").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()).collect();
    found.sort();
    found.dedup();
    found
}

fn the_users_own_profiler_sees_what_it_sees_without_us(python: &str) {
    attached_beside_a_profiler(python, 65);
}

/// An older PyTorch may end the job (docs/capture.md).
fn a_trace_asked_for_before_the_users_own_profiler_starts_harms_neither(python: &str) {
    attached_beside_a_profiler(python, 20);
}

/// Requests a trace after `began` steps of a job that records steps 60 to 120 itself.
fn attached_beside_a_profiler(python: &str, began: u32) {
    let place = Place::new();
    let script = fixture("profiled_for_a_while.py");
    let arguments = [script.as_str(), "progress", "60", "120"];
    let job = place.job(python, true, &arguments, began);
    let ran = place.attach(&["--json"]);
    if bears_its_own_profiler(python) {
        assert_eq!(ran.code, 0, "{}", ran.err);
        tell(&format!("asked after {began} steps, the user's window from 60 on"), &ran.json());
    } else {
        assert!(ran.code == 2 && ran.err.contains("it was not asked"), "{}", ran.err);
    }
    sees_the_same(&place, python, job, &arguments);
}

/// Ends the job, and compares with one without attach.
fn sees_the_same(place: &Place, python: &str, job: Child, arguments: &[&str]) {
    std::fs::write(place.path("enough"), "").unwrap();
    std::fs::write(place.path("begin"), "").unwrap();
    let attached = job.wait_with_output().unwrap();
    let bare = place.command(python).args(arguments).output().unwrap();
    assert!(String::from_utf8_lossy(&bare.stdout).contains("events "), "{bare:?}");
    assert_eq!(String::from_utf8_lossy(&attached.stdout), String::from_utf8_lossy(&bare.stdout), "{attached:?}");
    assert_eq!(attached.status.code(), bare.status.code());
}

/// The program's own profiler starts as soon as ours has begun.
fn a_trace_that_the_users_own_profiler_cuts_off_is_asked_for_again(python: &str) {
    let place = Place::new();
    let script = fixture("profiled_when_traced.py");
    let arguments = [script.as_str(), "progress", "60"];
    let job = place.job(python, true, &arguments, 5);
    // Long windows: ours is still recording when the other starts, not yet writing.
    let ran = place.attach(&["--json", "--window", "10"]);
    if bears_its_own_profiler(python) {
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(ran.err.contains("was cut off: its own profiler"), "{}", ran.err);
        tell("cut off by the user's window", &ran.json());
        assert_eq!(ran.json()["steps_used"], 10);
    } else {
        assert!(ran.code == 2 && ran.err.contains("it was not asked again"), "{}", ran.err);
    }
    sees_the_same(&place, python, job, &arguments);
}

fn ranks_are_all_recorded_beside_a_launcher_that_is_coming_up(python: &str) {
    // Ranks of 2.6 that are just importing PyTorch end if a program listens.
    for (attach_ms, launch_ms) in [(0, 1000), (500, 0), (1000, 0), (2500, 0)] {
        let place = Place::new();
        let script = fixture("ranks.py");
        let variables = String::from_utf8(env(&place, &["--shell", "plain"]).stdout).unwrap();
        let launch = || {
            place
                .command(python)
                .args(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"])
                .args([&script, "progress", "100000"])
                .envs(variables.lines().map(|line| line.split_once('=').unwrap()))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        };
        let options = ["-o", "p.habitat.json", "--json", "--all", "--wait", "90s"];
        let (attach, mut job) = if launch_ms > 0 {
            let attach = place.start(&options);
            std::thread::sleep(Duration::from_millis(launch_ms));
            (attach, launch())
        } else {
            let job = launch();
            std::thread::sleep(Duration::from_millis(attach_ms));
            (place.start(&options), job)
        };
        let ran = place.end(attach);
        // Its ranks end too.
        let _ = Command::new("kill").arg(job.id().to_string()).status();
        let _ = job.wait();
        assert_eq!(ran.code, 0, "{}", ran.err);
        let json = ran.json();
        tell(&format!("launched {launch_ms} ms after the attach, attached {attach_ms} ms after the launch"), &json);
        let ranks: Vec<u64> =
            json["traces"].as_array().unwrap().iter().map(|one| one["rank"].as_u64().unwrap()).collect();
        assert_eq!(ranks, [0, 1], "{}", ran.err);
        assert_eq!(json["aligned"], true, "{}", ran.err);
    }
}

fn the_process_that_trains_is_told_from_its_spawned_workers(python: &str) {
    let place = Place::new();
    let script = fixture("spawned_loader.py");
    let mut job = place.job(python, true, &[&script, "progress", "2000"], 30);
    let ran = place.attach(&["--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(ran.json()["traces"][0]["pid"], job.id(), "{}", ran.out);
    let _ = job.kill();
    let _ = job.wait();
}
