//! Detached jobs: listed, joined from several terminals, killed with or without their followers.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;

use serde_json::Value;

use super::tests::{fixtures, is_running, signal};
use crate::needs::{Need, program, python, torch};
use crate::place::{Place, wait_for};
use crate::terminal::Terminal;

trials! {
    when (python()) => [
        a_detached_job_is_joined_from_several_terminals_and_outlives_them,
        a_job_is_stopped_from_another_terminal,
        the_plan_of_a_job_is_that_of_all_who_join,
        what_ended_a_job_is_told,
        what_a_killed_keeper_recorded_stays,
        a_job_that_cannot_start_leaves_nothing,
        a_script_follows_a_job_by_lines_of_json,
        lines_of_json_end_without_the_job,
        the_verdict_of_a_job_is_not_that_of_an_older_profile,
        pauses_are_the_verdict_with_and_without_a_terminal,
        a_quiet_job_keeps_its_whole_report,
    ],
    when (compiler()) => [
        #[cfg(target_os = "linux")]
        the_machines_clock_may_be_set_meanwhile,
    ],
    with (torch()) => [
        the_parts_of_steps_are_in_the_history,
        short_steps_of_a_short_job_have_parts,
    ],
}

/// A folder with the fake PyTorch.
fn place() -> Place {
    Place::with("PYTHONPATH", fixtures().join("fake").to_str().unwrap())
}

/// Standard output and error of the program.
fn says(place: &Place, arguments: &[&str]) -> (String, String) {
    let output = place.habitat(arguments).output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// Starts a detached job of the fixture; returns its name.
fn detach(place: &Place, job: &[&str]) -> String {
    let script = fixtures().join("fake_job.py");
    let arguments = [&["run", "--detach", "--", "python3", script.to_str().unwrap()], job].concat();
    let (name, said) = says(place, &arguments);
    assert!(said.contains(&format!("habitat-tui join {}", name.trim())), "{said}");
    name.trim().to_owned()
}

/// A row of `jobs`.
fn listed(place: &Place, name: &str) -> Value {
    let all: Value = serde_json::from_str(&says(place, &["jobs", "--json"]).0).unwrap();
    all["jobs"].as_array().unwrap().iter().find(|job| job["name"] == name).unwrap().clone()
}

fn pid(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap()).unwrap()
}

/// The history of a job as JSON.
fn history(place: &Place, name: &str) -> Value {
    serde_json::from_str(&says(place, &["history", name, "--json"]).0).unwrap()
}

/// Steps of all kinds in a history.
fn counted(history: &Value) -> u64 {
    let total = &history["total"];
    let beside = ["validation", "checkpoint", "other"].map(|kind| total["beside"][kind]["steps"].as_u64().unwrap());
    total["training_steps"].as_u64().unwrap() + beside.iter().sum::<u64>()
}

/// A file of the job's folder.
fn file(place: &Place, job: &str, name: &str) -> String {
    place.path(&format!("config/jobs/{job}/{name}"))
}

fn read(place: &Place, job: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(file(place, job, "job.json")).unwrap()).unwrap()
}

/// Opens the screens on a job.
fn join(place: &Place, arguments: &[&str]) -> Terminal {
    let config = place.path("config");
    let arguments = [&["join"], arguments].concat();
    Terminal::open(env!("CARGO_BIN_EXE_habitat-tui"), &arguments, &[("HABITAT_TUI_CONFIG_DIR", &config)])
}

fn a_detached_job_is_joined_from_several_terminals_and_outlives_them() {
    let place = place();
    let name = detach(&place, &["400", "0.02"]);
    assert_eq!(name, "fake_job");
    assert_eq!(listed(&place, &name)["standing"], "running");
    let mode = |path: &str| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&place.path("config/jobs")), 0o700);
    assert_eq!(mode(&place.path("config/jobs/fake_job")), 0o700);
    assert_eq!(mode(&file(&place, &name, "job.json")), 0o600);
    let [mut killed, mut closed, mut left] = [join(&place, &[]), join(&place, &[&name]), join(&place, &[])];
    for terminal in [&killed, &closed, &left] {
        terminal.sees("recorded; profile written to fake_job-");
        terminal.sees("of 400");
    }
    killed.signal("KILL");
    closed.close();
    left.press("q");
    left.sees("habitat-tui join fake_job");
    left.press("l");
    assert_eq!(left.ends(), 0);
    killed.ends();
    let before = listed(&place, &name)["steps"].as_u64().unwrap();
    wait_for("it goes on", || listed(&place, &name)["steps"].as_u64().unwrap() > before);
    wait_for("it ends", || listed(&place, &name)["standing"] == "ended");
    let row = listed(&place, &name);
    assert_eq!((row["state"].as_str(), row["steps"].as_u64()), (Some("ended with exit code 0"), Some(400)));
    assert!(!is_running(pid(&read(&place, &name)["keeper"]["pid"])), "our process has ended");
    // The report of a finished job stays.
    let mut again = join(&place, &[]);
    again.sees("ended with exit code 0, at step 400");
    again.sees("recorded; profile written to");
    again.sees("done");
    again.press("q");
    assert_eq!(again.ends(), 0);
    assert!(again.text().contains("steps seen, recorded 11–13"), "{}", again.text());
    let (table, _) = says(&place, &["jobs"]);
    assert!(table.contains("fake_job  ended with exit code 0"), "{table}");
    assert_eq!(detach(&place, &["3"]), "fake_job-2");
    wait_for("it ends", || listed(&place, "fake_job-2")["standing"] == "ended");
    says(&place, &["jobs", "--remove", "fake_job"]);
    assert!(!says(&place, &["jobs"]).0.contains("fake_job "));
    assert!(says(&place, &["join", "fake_job"]).1.contains("no such job"));
}

fn a_job_is_stopped_from_another_terminal() {
    let place = place();
    let name = detach(&place, &["4000", "0.02"]);
    assert!(says(&place, &["jobs", "--remove", &name]).1.contains("still running"));
    let mut terminal = join(&place, &[]);
    terminal.sees("steps 11–13");
    terminal.press("qs");
    assert_eq!(terminal.ends(), 0, "the exit code is that of join");
    assert!(terminal.text().contains("job stopped by you"), "{}", terminal.text());
    assert_eq!(listed(&place, &name)["state"], "stopped by you");
    // A signal to the process that keeps a job goes to the job.
    let name = detach(&place, &["4000", "0.02"]);
    let job = read(&place, &name);
    signal(pid(&job["keeper"]["pid"]), "HUP");
    wait_for("it makes steps", || listed(&place, &name)["steps"].as_u64() > Some(0));
    signal(pid(&job["keeper"]["pid"]), "TERM");
    wait_for("it ends", || listed(&place, &name)["standing"] == "ended");
    assert!(!is_running(pid(&job["process"]["pid"])));
}

fn the_plan_of_a_job_is_that_of_all_who_join() {
    let place = place();
    let made = |deadline: &str| {
        let plan = says(&place, &["plan", "--steps", "500", "--objective=time", "--deadline", deadline, "--toml"]).0;
        let plan = plan
            .lines()
            .map(|line| if line.starts_with("created = ") { "created = \"2026-01-01T00:00:00Z\"" } else { line });
        std::fs::write(place.path("plan.toml"), plan.collect::<Vec<_>>().join("\n")).unwrap();
        let hours = |name: &str| {
            let plan = std::fs::read_to_string(place.path("plan.toml")).unwrap();
            let value = plan.lines().find_map(|line| line.strip_prefix(&format!("{name} = "))).unwrap();
            value.parse::<f64>().unwrap()
        };
        let script = fixtures().join("fake_job.py");
        let job = ["run", "--detach", "--plan", "plan.toml", "--", "python3", script.to_str().unwrap(), "400", "0.02"];
        let started = place.habitat(&job).env("SLOW_START", "").output().unwrap();
        let name = String::from_utf8(started.stdout).unwrap().trim().to_owned();
        let aim = read(&place, &name)["job"]["aim"].clone();
        (name, hours("deadline_hours"), aim["plan"]["deadline"].as_f64().unwrap())
    };
    let (_, planned, left) = made("500h");
    assert_eq!(planned, 500.0);
    assert!(
        (left - 499.9).abs() < 1e-3,
        "hours count from the start of the machine, whose set-up takes 6 minutes: {left}"
    );
    let (name, planned, left) = made("2099-01-01");
    let since = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64() / 3600.0 - 490_896.0;
    assert!((planned - left - since).abs() < 1.0, "a date stays that date: {planned}, {left}, {since}");
    let mut terminal = join(&place, &[&name]);
    terminal.sees("recorded; profile written to fake_job-");
    terminal.sees("of the work left");
    terminal.press("n");
    terminal.sees("planning the rest");
    let text = terminal.text();
    let work = text.lines().find_map(|line| line.split_once(" work ")).unwrap().1.trim_start();
    let steps: u32 = work.split_once(" steps").unwrap().0.replace(',', "").parse().unwrap();
    let is_plans = (100..500).contains(&steps) && text.contains("objective fastest");
    assert!(is_plans, "the work and the goal are those of the plan, not those that screens begin with: {text}");
    // It had no steps when the screens opened.
    terminal.press("5");
    terminal.sees("first or long steps");
}

fn pauses_are_the_verdict_with_and_without_a_terminal() {
    let place = place();
    let script = fixtures().join("fake_job.py");
    let script = script.to_str().unwrap();
    let long = "long steps take ";
    let output =
        place.habitat(&["run", "--no-tui", "--", "python3", script, "70", "0.01"]).env("PAUSES", "1").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(&format!("verdict: {long}")) && said.contains("every 20 steps"), "{said}");
    // Two do not have a period yet.
    let output =
        place.habitat(&["run", "--json-lines", "--", "python3", script, "50", "0.01"]).env("PAUSES", "1").output();
    let said = String::from_utf8(output.unwrap().stdout).unwrap();
    assert!(said.contains(&format!("verdict: {long}")), "{said}");
    let said = says(&place, &["history", "fake_job"]).0;
    assert!(said.contains(&format!("verdict    {long}")) && said.contains(" 2 long steps, "), "{said}");
}

fn a_quiet_job_keeps_its_whole_report() {
    let place = place();
    let script = fixtures().join("fake_job.py");
    let (name, said) = says(&place, &["run", "--detach", "-q", "--", "python3", script.to_str().unwrap(), "30"]);
    assert_eq!((name.trim(), &*said), ("fake_job", ""));
    wait_for("it ends", || listed(&place, "fake_job")["standing"] == "ended");
    let lines = says(&place, &["join", "fake_job", "--json-lines"]).0;
    let end: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    let report = end["report"].as_str().unwrap();
    assert!(report.contains("verdict: ") && report.contains("job ended with exit code 0"), "{end}");
}

fn what_ended_a_job_is_told() {
    let place = place();
    let name = detach(&place, &["4000", "0.02"]);
    let job = read(&place, &name);
    let told = || listed(&place, &name)["state"].as_str().unwrap().to_owned();
    wait_for("it makes steps", || listed(&place, &name)["steps"].as_u64() > Some(0));
    signal(pid(&job["process"]["pid"]), "KILL");
    wait_for("its end is shown", || told().starts_with("killed by SIGKILL, not by habitat-tui"));
    assert!(says(&place, &["history", &name, "--csv"]).0.starts_with("rank,from_s,to_s,first_step,training_steps,"));
    // A job whose end was not recorded.
    std::fs::write(file(&place, &name, "state.json"), "{\"profiles\":0}").unwrap();
    assert!(says(&place, &["jobs", "--json"]).0.contains("\"jobs\": []"), "a file of another form is passed over");
    std::fs::write(file(&place, &name, "state.json"), "").unwrap();
    assert_eq!(told(), "ended unseen; the process that recorded it was killed");
    let own = std::process::id();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut job = job.clone();
        // A running process, but not the one that wrote this.
        job["keeper"]["pid"] = own.into();
        change(&mut job);
        std::fs::write(file(&place, &name, "job.json"), job.to_string()).unwrap();
        told()
    };
    assert_eq!(with(&|_| ()), "ended unseen; the process that recorded it was killed", "the number was reused");
    assert_eq!(with(&|job| job["keeper"]["boot"] = "x".into()), "ended when the machine was restarted");
    assert_eq!(with(&|job| job["keeper"]["host"] = "node7".into()), "on node7");
    let (_, said) = says(&place, &["jobs", "--remove", &name]);
    assert!(said.contains("started on node7 and may still run there; --force"), "{said}");
    says(&place, &["jobs", "--remove", &name, "--force"]);
    assert!(says(&place, &["jobs"]).0.contains("No jobs yet"));
}

fn what_a_killed_keeper_recorded_stays() {
    let place = place();
    let name = detach(&place, &["200", "0.03"]);
    let job = read(&place, &name);
    wait_for("it is recorded", || listed(&place, &name)["steps"].as_u64() > Some(20));
    signal(pid(&job["keeper"]["pid"]), "KILL");
    wait_for("it is noticed", || listed(&place, &name)["standing"] == "unwatched");
    let terminal = join(&place, &[]);
    terminal.sees("continues unwatched");
    let log = || std::fs::read_to_string(job["log"].as_str().unwrap()).unwrap();
    wait_for("the job makes all its steps and its output is kept", || log().ends_with("\ndone\n"));
    wait_for("its end is noticed", || listed(&place, &name)["standing"] == "lost");
    terminal.sees("ended unseen");
    assert!(listed(&place, &name)["steps"].as_u64() > Some(20));
    for command in [&["jobs"][..], &["history", &name]] {
        let said = says(&place, command).0;
        assert!(said.contains("at least "), "its steps are a lower bound: {said}");
    }
    // The written records are there, except the truncated one.
    let steps = counted(&history(&place, &name));
    assert!((15..200).contains(&steps), "{steps}");
    let path = file(&place, &name, "steps.0");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 7]).unwrap();
    assert_eq!(counted(&history(&place, &name)), steps - 1);
    assert!(says(&place, &["history", &name]).0.contains("ended unseen"));
}

fn a_job_that_cannot_start_leaves_nothing() {
    let place = place();
    let output = place.habitat(&["run", "--detach", "--", "no-such-program"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(127), 0));
    assert!(said.contains("no-such-program: no such program"), "{said}");
    assert_eq!(std::fs::read_dir(place.path("config/jobs")).unwrap().count(), 0);
    assert!(says(&place, &["jobs"]).0.contains("No jobs yet"));
    // A folder without write access: the job is not started.
    let output = place.habitat(&["run", "--keeper", &place.path("none"), "--", "touch", "ran"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("job.json: cannot be written"), "{said}");
    std::thread::sleep(std::time::Duration::from_millis(300));
    let left = std::fs::read_dir(place.path(".")).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name == "ran" || name.to_string_lossy().ends_with(".log")).collect();
    assert!(left.is_empty(), "{left:?}");
    // A folder that cannot be created: the job is not started.
    std::fs::remove_dir(place.path("config/jobs")).unwrap();
    std::fs::write(place.path("config/jobs"), "").unwrap();
    let output = place.habitat(&["run", "--detach", "--", "touch", "ran"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(!Command::new("test").args(["-e", &place.path("ran")]).status().unwrap().success());
}

/// Lines of JSON as they come, until the end; a reader that stops does no harm.
fn a_script_follows_a_job_by_lines_of_json() {
    let place = place();
    let script = fixtures().join("fake_job.py");
    let run = |steps: &str| {
        let arguments = ["run", "--json-lines", "--", "python3", script.to_str().unwrap(), steps, "0.02"];
        let mut command = place.habitat(&arguments);
        command.stdout(std::process::Stdio::piped()).spawn().unwrap()
    };
    let parsed = |line: &str| -> Value { serde_json::from_str(line).unwrap() };
    let mut job = run("100");
    let mut lines = Vec::new();
    for line in std::io::BufRead::lines(std::io::BufReader::new(job.stdout.take().unwrap())) {
        lines.push(parsed(&line.unwrap()));
        if lines.len() == 1 {
            assert_eq!(listed(&place, "fake_job")["standing"], "running", "a line comes at once: {lines:?}");
        }
    }
    assert_eq!(job.wait().unwrap().code(), Some(0));
    let kinds: Vec<&str> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!((kinds[0], kinds.last(), &lines[0]["name"]), ("job", Some(&"end"), &Value::from("fake_job")));
    assert!(kinds.contains(&"recorded"), "{kinds:?}");
    let states: Vec<&Value> = lines.iter().filter(|line| line["type"] == "state").collect();
    assert!(states.len() > 2 && states.windows(2).all(|pair| pair[0] != pair[1]), "{states:?}");
    assert_eq!((&states.last().unwrap()["steps"], &lines.last().unwrap()["code"]), (&100.into(), &0.into()));
    let steps = says(&place, &["history", "--json-lines", "--steps"]).0;
    let steps: Vec<Value> = steps.lines().map(parsed).collect();
    assert_eq!((&steps[0]["type"], &steps.last().unwrap()["step"]), (&"job".into(), &100.into()));
    let minutes = says(&place, &["history", "--json-lines"]).0;
    assert_eq!(parsed(minutes.lines().nth(1).unwrap())["type"], "stretch", "{minutes}");
    // The reader leaves after the first line.
    let mut job = run("150");
    let mut first = String::new();
    let mut output = std::io::BufReader::new(job.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut first).unwrap();
    drop(output);
    assert_eq!(job.wait().unwrap().code(), Some(0));
    let name = parsed(&first)["name"].as_str().unwrap().to_owned();
    assert_eq!(listed(&place, &name)["standing"], "running");
    let joined = says(&place, &["join", &name, "--json-lines"]).0;
    assert_eq!(parsed(joined.lines().last().unwrap())["state"], "ended with exit code 0");
    assert_eq!(listed(&place, &name)["steps"], 150);
    assert_eq!(says(&place, &["jobs", "--json-lines"]).0.lines().map(parsed).collect::<Vec<_>>().len(), 2);
}

/// By Ctrl-C, and when the process that records the job is killed.
fn lines_of_json_end_without_the_job() {
    let place = place();
    let script = fixtures().join("fake_job.py");
    let run = || {
        let arguments = ["run", "--json-lines", "--", "python3", script.to_str().unwrap(), "4000", "0.02"];
        let mut command = place.habitat(&arguments);
        let mut run = command.stdout(std::process::Stdio::piped()).process_group(0).spawn().unwrap();
        let mut output = std::io::BufReader::new(run.stdout.take().unwrap());
        let mut first = String::new();
        std::io::BufRead::read_line(&mut output, &mut first).unwrap();
        let first: Value = serde_json::from_str(&first).unwrap();
        (run, output, first["name"].as_str().unwrap().to_owned())
    };
    let (mut follower, _output, name) = run();
    wait_for("it trains", || listed(&place, &name)["steps"].as_u64() > Some(0));
    // As from a terminal: to all processes of the group.
    let group = format!("-{}", follower.id());
    assert!(Command::new("kill").args(["-s", "INT", "--", &group]).status().unwrap().success());
    assert_eq!(follower.wait().unwrap().signal(), Some(2));
    let before = listed(&place, &name)["steps"].as_u64();
    wait_for("it goes on", || listed(&place, &name)["steps"].as_u64() > before);
    assert_eq!(listed(&place, &name)["standing"], "running");
    signal(pid(&read(&place, &name)["keeper"]["pid"]), "TERM");
    let (mut follower, output, name) = run();
    let job = read(&place, &name);
    signal(pid(&job["keeper"]["pid"]), "KILL");
    let last = std::io::BufRead::lines(output).last().unwrap().unwrap();
    let last: Value = serde_json::from_str(&last).unwrap();
    assert_eq!((&last["type"], &last["code"]), (&"end".into(), &Value::Null), "{last}");
    assert_eq!(follower.wait().unwrap().code(), Some(1), "the job's code is unknown");
    assert_eq!(listed(&place, &name)["standing"], "unwatched");
    signal(pid(&job["process"]["pid"]), "KILL");
}

fn the_verdict_of_a_job_is_not_that_of_an_older_profile() {
    let mut place = place();
    place.variables.push(("FAKE_GPU".to_owned(), "1".to_owned()));
    let script = fixtures().join("fake_job.py");
    let verdict = |steps: &str| {
        let arguments =
            ["run", "--detach", "--force", "-o", "p.json", "--", "python3", script.to_str().unwrap(), steps];
        let name = says(&place, &arguments).0.trim().to_owned();
        wait_for("it ends", || listed(&place, &name)["standing"] == "ended");
        history(&place, &name)["verdict"].clone()
    };
    assert_ne!(verdict("100"), Value::Null);
    assert_eq!(verdict("3"), Value::Null, "it was not recorded");
}

/// Only a sample of steps below 2 ms is divided into parts; a job of seconds has some too.
fn short_steps_of_a_short_job_have_parts(python: &str) {
    let place = Place::new();
    let train = "import torch
model = torch.nn.Linear(32, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(4000):
    model(torch.zeros(8, 32)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()";
    let (name, said) = says(&place, &["run", "--detach", "--", python, "-c", train]);
    wait_for(&said, || listed(&place, name.trim())["standing"] == "ended");
    let told = history(&place, name.trim());
    assert!(told["total"]["step_us"]["mean"].as_f64().unwrap() < 2000.0, "{told}");
    assert!(told["total"]["parts_us"]["backward"].as_f64() > Some(0.0), "{told}");
    assert_eq!(told["verdict"]["bound"], "cpu", "{told}");
}

fn compiler() -> Need<String> {
    python().and_then(|_| program("cc"))
}

/// The clock goes back a day, and then forward by two, while a job runs.
#[cfg(target_os = "linux")]
fn the_machines_clock_may_be_set_meanwhile() {
    const SHIM: &str = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdlib.h>
        #include <time.h>
        #include <unistd.h>
        int clock_gettime(clockid_t clock, struct timespec *time) {
            static int (*real)(clockid_t, struct timespec *);
            if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
            int code = real(clock, time);
            const char *back = getenv("CLOCK_BACK"), *forward = getenv("CLOCK_FORWARD");
            if (clock == CLOCK_REALTIME && back && !access(back, F_OK)) time->tv_sec -= 86400;
            if (clock == CLOCK_REALTIME && forward && !access(forward, F_OK)) time->tv_sec += 2 * 86400;
            return code;
        }
    "#;
    let mut place = place();
    let [source, shim, back, forward] = ["shim.c", "shim.so", "back", "forward"].map(|name| place.path(name));
    std::fs::write(&source, SHIM).unwrap();
    let made = Command::new("cc").args(["-shared", "-fPIC", "-o", &shim, &source, "-ldl"]).status().unwrap();
    assert!(made.success());
    place.variables.extend([
        ("LD_PRELOAD".to_owned(), shim),
        ("CLOCK_BACK".to_owned(), back.clone()),
        ("CLOCK_FORWARD".to_owned(), forward.clone()),
    ]);
    let name = detach(&place, &["200", "0.03"]);
    let since = listed(&place, &name)["since"].clone();
    for (steps, set) in [(60, &back), (120, &forward)] {
        wait_for("it makes steps", || listed(&place, &name)["steps"].as_u64() > Some(steps));
        std::fs::write(set, "").unwrap();
    }
    let mut date = Command::new("date");
    date.arg("+%s").env("LD_PRELOAD", place.path("shim.so")).env("CLOCK_FORWARD", &forward);
    let shifted: u64 = String::from_utf8(date.output().unwrap().stdout).unwrap().trim().parse().unwrap();
    let real = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    assert!(shifted > real + 86_400, "the clock is another one: {shifted}, {real}");
    wait_for("it ends", || listed(&place, &name)["standing"] == "ended");
    assert_eq!(listed(&place, &name)["since"], since);
    let history = history(&place, &name);
    let lasted = history["total"]["to_s"].as_f64().unwrap();
    assert!((4.0..60.0).contains(&lasted) && counted(&history) > 150, "{history}");
    let steps = says(&place, &["history", &name, "--steps", "--csv"]).0;
    let ends: Vec<f64> = steps.lines().skip(1).map(|line| line.split(',').nth(1).unwrap().parse().unwrap()).collect();
    assert!(ends.len() > 150 && ends.windows(2).all(|pair| pair[0] <= pair[1]), "{ends:?}");
}

/// Steps with a known input, a validation every 40 steps and a checkpoint every 100.
fn the_parts_of_steps_are_in_the_history(python: &str) {
    let place = Place::new();
    let script = fixtures().join("parts.py");
    let (name, said) = says(&place, &["run", "--detach", "--", python, script.to_str().unwrap(), "240"]);
    wait_for(&said, || listed(&place, name.trim())["standing"] == "ended");
    let told = history(&place, name.trim());
    let (parts, step) = (&told["total"]["parts_us"], &told["total"]["step_us"]["mean"]);
    let of = |part: &Value| part.as_f64().unwrap() / 1e3;
    // The loader sleeps 10 ms, the forward pass 6, the backward pass 12, the loop 4 after the step.
    for (part, least) in [("input", 10.0), ("forward", 6.0), ("backward", 12.0), ("rest", 4.0)] {
        assert!((least..least + 8.0).contains(&of(&parts[part])), "{part}: {told}");
    }
    let sum: f64 = ["input", "forward", "backward", "optimizer", "rest"].iter().map(|part| of(&parts[*part])).sum();
    assert!((sum / of(step) - 1.0).abs() < 0.05, "{told}");
    let beside = |kind: &str| told["total"]["beside"][kind]["steps"].as_u64().unwrap();
    // One of the validations follows the last step, and one is beside a checkpoint.
    assert_eq!((beside("validation"), beside("checkpoint")), (6, 2), "{told}");
    assert_eq!(told["validation_every_steps"], 40);
    assert!(told["total"]["resident_mib"].as_f64().unwrap() > 50.0);
    let steps = says(&place, &["history", name.trim(), "--steps", "--csv"]).0;
    for row in steps.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>()) {
        let number: u64 = row[0].parse().unwrap();
        // The record of a save beside a validation has only its own time.
        if row[2] == "validation" || number == 201 {
            continue;
        }
        assert_eq!(row[5].is_empty(), number < 11, "unknown until a step was looked at: {row:?}");
    }
    let text = says(&place, &["history"]).0;
    assert!(text.contains("6 validations (every 40 steps) of") && text.contains("waiting for data"), "{text}");
    // The verdict equals that of the report and of the screens.
    let state = std::fs::read_to_string(file(&place, name.trim(), "state.json")).unwrap();
    let state: Value = serde_json::from_str(&state).unwrap();
    let because = told["verdict"]["because"].as_str().unwrap();
    assert!(state["end"]["report"].as_str().unwrap().contains(because), "{because}: {state}");
}
