#[path = "real.rs"]
pub(crate) mod real;

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use habitat_tui::capture::on_demand::wire::{self, Message, TAKES_ACTIVITIES};
use habitat_tui::profile::Profile;
use serde_json::Value;

use crate::needs::Need;

trials! {
    always () => [
        the_only_job_is_recorded_and_nothing_is_left_behind,
        several_jobs_are_listed_and_one_is_named,
        launchers_and_workers_are_listed_and_never_asked,
        a_list_names_who_asks_and_records_nothing,
        nobody_there_says_how_to_start_the_job,
        a_job_that_polls_elsewhere_is_found_out,
        another_daemon_is_left_alone,
        of_two_attaches_the_second_is_refused_and_the_first_goes_on,
        a_profiler_of_the_jobs_own_goes_first,
        what_goes_wrong_with_the_trace_is_told_apart,
        a_trace_that_is_cut_off_is_asked_for_again,
        a_trace_that_is_cut_off_every_time_is_not_asked_for_for_ever,
        a_trace_that_is_written_slowly_is_waited_for,
        a_process_that_cannot_be_attached_to_is_refused_at_once,
        ranks_that_come_up_late_are_waited_for_and_missed_aloud,
        messages_that_make_no_sense_are_ignored_and_counted,
        an_interrupted_attach_takes_its_socket_away,
        nobody_is_asked_for_what_could_not_be_written,
        traces_are_kept_where_asked,
        the_variables_are_those_of_the_protocol_in_every_form,
        a_folder_or_a_config_file_that_will_not_do_is_refused,
    ],
    with (library()) => [
        a_program_that_its_own_profiler_would_break_is_not_asked_after_it,
    ],
}

const HABITAT: &str = env!("CARGO_BIN_EXE_habitat-tui");

/// A folder for sockets and files; ends its processes when dropped.
struct Place {
    folder: tempfile::TempDir,
    jobs: Vec<Child>,
}

impl Drop for Place {
    fn drop(&mut self) {
        for job in &mut self.jobs {
            let _ = job.kill();
            let _ = job.wait();
        }
    }
}

/// Result of an attach.
struct Ran {
    code: i32,
    out: String,
    err: String,
    profile: Option<Profile>,
}

impl Ran {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|_| panic!("{}\n{}", self.out, self.err))
    }

    fn notes(&self) -> String {
        self.profile.as_ref().unwrap().recording.as_ref().unwrap().notes.join("\n")
    }
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::Builder::new().prefix("a").tempdir_in("/tmp").unwrap(), jobs: Vec::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.folder.path())
            .env("HABITAT_TUI_CONFIG_DIR", self.path("config"))
            .env("KINETO_IPC_SOCKET_DIR", self.folder.path())
            .env_remove("RANK")
            .stdin(Stdio::null());
        command
    }

    /// Starts a process that polls and behaves like `mode`.
    fn fake(&mut self, mode: &str, variables: &[(&str, &str)]) -> u32 {
        let job = self
            .command(std::env::current_exe().unwrap().to_str().unwrap())
            .arg("pretended_job")
            .env("PRETEND", mode)
            .envs(variables.iter().copied())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let pid = job.id();
        self.jobs.push(job);
        wait_for("it polls", || self.path(&format!("dynoconfigclient-{pid}")).exists());
        pid
    }

    fn start(&self, options: &[&str]) -> Child {
        self.command(HABITAT).arg("attach").args(options).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn end(&self, child: Child) -> Ran {
        let output = child.wait_with_output().unwrap();
        let profile = std::fs::read(self.path("p.habitat.json")).ok().map(|json| Profile::from_json(&json).unwrap().0);
        Ran {
            code: output.status.code().unwrap(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
            profile,
        }
    }

    fn attach(&self, options: &[&str]) -> Ran {
        self.end(self.start(&[&["-o", "p.habitat.json", "--force"], options].concat()))
    }

    fn requests(&self, pid: u32) -> Vec<String> {
        let text = std::fs::read_to_string(self.path(&format!("requests-{pid}"))).unwrap_or_default();
        text.split("---\n").filter(|part| !part.is_empty()).map(str::to_owned).collect()
    }
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(90), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn now_us() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64() * 1e6
}

/// A small trace: a matrix product and an optimizer step for each iteration.
fn trace(iterations: u32) -> String {
    let mut events = Vec::new();
    let start = now_us();
    let base = (start / 1e6).floor() * 1e9;
    let first = start - base / 1e3;
    for iteration in 0..iterations {
        let at = first + 1e4 * f64::from(iteration);
        events.push(format!(
            r#"{{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":{at},"dur":50,"args":{{"External id":1,"Input Dims":[[8,16],[16,4]],"Input type":["float","float"]}}}}"#
        ));
        events.push(format!(
            r#"{{"ph":"X","cat":"user_annotation","name":"Optimizer.step#SGD.step","pid":1,"tid":1,"ts":{},"dur":20,"args":{{"External id":2}}}}"#,
            at + 5e3
        ));
    }
    let end = first + 1e4 * f64::from(iterations);
    events.push(format!(
        r#"{{"ph":"i","s":"g","name":"Iteration Start: PyTorch Profiler","pid":"Traces","ts":{first}}}"#
    ));
    events.push(format!(r#"{{"ph":"i","s":"g","name":"Record Window End","pid":"","ts":{end}}}"#));
    format!(
        r#"{{"schemaVersion":1,"deviceProperties":[],"baseTimeNanoseconds":{base},"traceEvents":[{}]}}"#,
        events.join(",")
    )
}

/// libkineto's name for an incomplete trace.
fn unfinished(trace: &Path) -> PathBuf {
    let mut name = trace.as_os_str().to_owned();
    name.push(".tmp");
    name.into()
}

/// The job that the tests attach to.
pub(crate) fn pretended_job(mode: &str) {
    let folder = PathBuf::from(std::env::var("KINETO_IPC_SOCKET_DIR").unwrap());
    let pid = std::process::id();
    let socket = UnixDatagram::bind(folder.join(format!("dynoconfigclient-{pid}"))).unwrap();
    // As in libkineto: a later message counts as the next answer.
    socket.set_read_timeout(Some(Duration::from_millis(90))).unwrap();
    let parent = std::env::var("PARENT").map_or_else(|_| std::os::unix::process::parent_id(), |it| it.parse().unwrap());
    let (mut buffer, mut dropped) = (vec![0; 8192], false);
    // Number of polls at which it refuses requests.
    let mut busy = match mode {
        "busy" => usize::MAX,
        "busy a while" => 8,
        _ => 0,
    };
    let mut under_way: Option<PathBuf> = None;
    loop {
        let kinds = if busy > 0 { 0 } else { TAKES_ACTIVITIES };
        busy = busy.saturating_sub(1);
        if busy == 0
            && let Some(file) = under_way.take()
        {
            std::fs::write(&file, trace(4)).unwrap();
        }
        let poll = Message::Poll { kinds, job: 0, pids: vec![pid as i32, parent as i32, 1] }.to_bytes();
        if mode == "garbled" {
            let _ = socket.send_to(&poll[..30], folder.join("dynolog"));
            let _ = socket.send_to(b"what?", folder.join("dynolog"));
            for unnamed in [&b""[..], b"x", &poll] {
                let _ = UnixDatagram::unbound().unwrap().send_to(unnamed, folder.join("dynolog"));
            }
        }
        if socket.send_to(&poll, folder.join("dynolog")).is_ok()
            && let Ok(length) = socket.recv(&mut buffer)
            && let Ok(text) = wire::read_poll_reply(&buffer[..length])
            && !text.is_empty()
        {
            let requests = folder.join(format!("requests-{pid}"));
            let before = std::fs::read_to_string(&requests).unwrap_or_default();
            std::fs::write(&requests, format!("{before}{text}---\n")).unwrap();
            let value =
                |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).unwrap().to_owned();
            let file = PathBuf::from(value("ACTIVITIES_LOG_FILE").replace(".json", &format!("_{pid}.json")));
            match mode {
                "never" => {}
                "dies" => std::process::exit(0),
                "unfinished" => {
                    std::fs::write(&file, "{\"traceEvents\":[").unwrap();
                    busy = usize::MAX;
                }
                "late" if !dropped => dropped = true,
                // As its own profiler does if it starts meanwhile; the file stays as it is.
                "cut off" if !dropped => {
                    std::fs::write(unfinished(&file), "").unwrap();
                    (dropped, busy) = (true, 4);
                }
                "cut off always" => {
                    std::fs::write(unfinished(&file), "").unwrap();
                    busy = 1;
                }
                // Far more polls than show that a trace was cut off.
                "slow" => {
                    std::fs::write(&file, "{").unwrap();
                    (under_way, busy) = (Some(file), 12);
                }
                _ => {
                    let temporary = unfinished(&file);
                    std::fs::write(&temporary, "{").unwrap();
                    let text = trace(value("ACTIVITIES_ITERATIONS").parse().unwrap());
                    std::thread::sleep(Duration::from_millis(150));
                    std::fs::write(&temporary, text).unwrap();
                    std::fs::rename(&temporary, &file).unwrap();
                }
            }
        }
        std::thread::sleep(Duration::from_millis(150));
    }
}

fn the_only_job_is_recorded_and_nothing_is_left_behind() {
    let mut place = Place::new();
    let pid = place.fake("plain", &[]);
    let ran = place.attach(&["--window", "2", "--batch-size", "8", "--name", "mine", "--precision", "bf16"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("mine (p.habitat.json)") && ran.out.contains("the job keeps running"), "{}", ran.out);
    assert!(ran.out.contains("2 found, 2 used") && ran.out.contains("found the job"), "{}", ran.out);
    let workload = &ran.profile.as_ref().unwrap().workload;
    assert_eq!((workload.batch_size, workload.precision.unwrap().to_string().as_str()), (Some(8), "bf16"));
    assert!(ran.notes().contains(&format!("attached to process {pid}")), "{}", ran.notes());
    let requests = place.requests(pid);
    assert_eq!(requests.len(), 1, "asked once");
    for line in ["ACTIVITIES_ITERATIONS=3", "ACTIVITIES_DURATION_SECS=0", "PROFILE_REPORT_INPUT_SHAPES=true"] {
        assert!(requests[0].lines().any(|other| other == line), "{line}: {}", requests[0]);
    }
    assert!(!place.path("dynolog").exists(), "the socket is gone, so that nobody waits for it");
    let log = requests[0].lines().find_map(|line| line.strip_prefix("ACTIVITIES_LOG_FILE=")).unwrap();
    assert!(log.starts_with("/tmp/") && !Path::new(log).parent().unwrap().exists(), "{log}");
}

fn several_jobs_are_listed_and_one_is_named() {
    let mut place = Place::new();
    let (one, other) = (place.fake("plain", &[]), place.fake("plain", &[]));
    let ran = place.attach(&[]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("2 jobs can be attached to") && ran.err.contains("--pid"), "{}", ran.err);
    assert!(ran.err.contains(&one.to_string()) && ran.err.contains(&other.to_string()), "{}", ran.err);
    assert!(place.requests(one).is_empty() && place.requests(other).is_empty());
    let ran = place.attach(&["--pid", &other.to_string(), "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let json = ran.json();
    assert_eq!(
        (json["format"].as_str(), json["traces"][0]["pid"].as_u64()),
        (Some("habitat-attach"), Some(other.into()))
    );
    assert!(json["seconds"]["step_wait_s"].is_number() && json["total_s"].as_f64().unwrap() > 0.0);
    assert!(place.requests(one).is_empty(), "the other one was not asked");
}

fn launchers_and_workers_are_listed_and_never_asked() {
    let mut place = Place::new();
    let launcher = place.fake("plain", &[]);
    let parent = launcher.to_string();
    let meeting = [("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500")];
    let rank = |rank: &'static str, parent: &'static str| [meeting[0], meeting[1], ("RANK", rank), ("PARENT", parent)];
    let parent: &'static str = parent.leak();
    let second = place.fake("plain", &rank("1", parent));
    let first = place.fake("plain", &rank("0", parent));
    let worker = place.fake("plain", &rank("0", first.to_string().leak()));
    let listed = place.attach_list();
    let role = |pid: u32| {
        let all = listed["processes"].as_array().unwrap();
        all.iter().find(|one| one["pid"] == pid).unwrap()["role"].as_str().unwrap().to_owned()
    };
    assert_eq!([role(launcher), role(first), role(second), role(worker)], ["launches", "trains", "trains", "helps"]);
    let ran = place.attach(&["--all", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let json = ran.json();
    let recorded: Vec<(u64, u64)> = json["traces"]
        .as_array()
        .unwrap()
        .iter()
        .map(|trace| (trace["rank"].as_u64().unwrap(), trace["pid"].as_u64().unwrap()))
        .collect();
    assert_eq!(recorded, [(0, first.into()), (1, second.into())]);
    assert!(ran.notes().contains("2 ranks"), "{}", ran.notes());
    assert!(place.requests(first)[0].contains("PROFILE_START_ITERATION_ROUNDUP=16"));
    // A launcher's id selects the first rank.
    assert_eq!(place.attach(&["--pid", parent, "--json"]).json()["traces"][0]["pid"], first);
    assert!(place.requests(launcher).is_empty() && place.requests(worker).is_empty());
}

impl Place {
    fn attach_list(&self) -> Value {
        let ran = self.end(self.start(&["--list", "--json"]));
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.json()
    }
}

fn a_list_names_who_asks_and_records_nothing() {
    let mut place = Place::new();
    let pid = place.fake("plain", &[]);
    let ran = place.end(place.start(&["--list"]));
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains(&pid.to_string()) && ran.out.contains("trains"), "{}", ran.out);
    assert!(ran.out.contains("pretended_job"), "the command: {}", ran.out);
    assert!(place.requests(pid).is_empty());
}

fn nobody_there_says_how_to_start_the_job() {
    let place = Place::new();
    let ran = place.attach(&["--wait", "1s"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("no job to attach to was found in 1 s"), "{}", ran.err);
    let ran = place.end(place.start(&["--list", "--json", "--wait", "1s"]));
    assert_eq!((ran.code, ran.json()["processes"].as_array().unwrap().len()), (1, 0));
    let mut place = Place::new();
    place.fake("plain", &[]);
    let ran = place.attach(&["--pid", "4194304", "--wait", "1s"]);
    assert!(ran.code == 2 && ran.err.contains("no such process runs"), "{}", ran.err);
}

fn a_job_that_polls_elsewhere_is_found_out() {
    let mut place = Place::new();
    place.fake("plain", &[]);
    let elsewhere = Place::new();
    let ran = elsewhere.attach(&["--wait", "1s"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("can be attached to") && ran.err.contains("--socket-dir"), "{}", ran.err);
}

fn another_daemon_is_left_alone() {
    let place = Place::new();
    let _daemon = UnixDatagram::bind(place.path("dynolog")).unwrap();
    let ran = place.attach(&[]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("another daemon listens there") && ran.err.contains("--socket-dir"), "{}", ran.err);
    assert!(place.path("dynolog").exists());
}

fn of_two_attaches_the_second_is_refused_and_the_first_goes_on() {
    let mut place = Place::new();
    let pid = place.fake("late", &[]);
    let first = place.start(&["-o", "p.habitat.json", "--force"]);
    wait_for("it listens", || place.path("dynolog").exists());
    let second = place.end(place.start(&["-o", "second.habitat.json"]));
    assert!(second.code == 2 && second.err.contains("another daemon"), "{}", second.err);
    let first = place.end(first);
    assert_eq!(first.code, 0, "{}", first.err);
    // It dropped the first request, as a process without a step does.
    assert_eq!(place.requests(pid).len(), 2);
}

fn a_profiler_of_the_jobs_own_goes_first() {
    let mut place = Place::new();
    let pid = place.fake("busy", &[]);
    let ran = place.attach(&["--timeout", "2s"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("its own profiler is running"), "{}", ran.err);
    assert!(place.requests(pid).is_empty(), "it was not asked");
    let mut place = Place::new();
    let pid = place.fake("busy a while", &[]);
    let ran = place.attach(&[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(place.requests(pid).len(), 1);
}

fn what_goes_wrong_with_the_trace_is_told_apart() {
    for (mode, problem) in [
        ("never", "has made no step of a torch optimizer"),
        ("unfinished", "has not completed its trace"),
        ("dies", "ended before its trace was complete"),
    ] {
        let mut place = Place::new();
        place.fake(mode, &[]);
        let ran = place.attach(&["--timeout", "3s"]);
        assert_eq!(ran.code, 2, "{mode}: {}", ran.err);
        assert!(ran.err.contains(problem), "{mode}: {}", ran.err);
        assert!(ran.profile.is_none() && !place.path("dynolog").exists());
    }
}

fn file_of(request: &str) -> &str {
    request.lines().find_map(|line| line.strip_prefix("ACTIVITIES_LOG_FILE=")).unwrap()
}

fn a_trace_that_is_cut_off_is_asked_for_again() {
    let mut place = Place::new();
    let pid = place.fake("cut off", &[]);
    let ran = place.attach(&[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("was cut off: its own profiler"), "{}", ran.err);
    let requests = place.requests(pid);
    assert_eq!(requests.len(), 2);
    assert_ne!(file_of(&requests[0]), file_of(&requests[1]), "the first one may be completed yet");
}

fn a_trace_that_is_cut_off_every_time_is_not_asked_for_for_ever() {
    let mut place = Place::new();
    let pid = place.fake("cut off always", &[]);
    let ran = place.attach(&[]);
    assert!(ran.code == 2 && ran.err.contains("started recording 5 times, but each trace was cut off"), "{}", ran.err);
    assert_eq!(place.requests(pid).len(), 5);
}

fn a_trace_that_is_written_slowly_is_waited_for() {
    let mut place = Place::new();
    let pid = place.fake("slow", &[]);
    let ran = place.attach(&[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(place.requests(pid).len(), 1);
}

impl Place {
    /// Variables that make a process appear to have loaded such a `PyTorch`: any library under the name of PyTorch's.
    fn pretended_torch(&self, library: &str, version: &str) -> [(&'static str, String); 1] {
        let copy = self.path("torch/lib/libtorch_cpu.so");
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        std::fs::copy(library, &copy).unwrap();
        std::fs::write(self.path("torch/version.py"), format!("__version__ = '{version}'\n")).unwrap();
        [("LD_PRELOAD", copy.to_str().unwrap().to_owned())]
    }
}

/// A shared library of this program that can be loaded under another name.
fn library() -> Need<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let named = |name: &str| {
        let paths = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
        paths.into_iter().find(|path| path.contains(name)).map(str::to_owned)
    };
    named("libm.so").or_else(|| named("libgcc_s.so")).ok_or_else(|| "this program has no shared library".to_owned())
}

fn a_program_that_its_own_profiler_would_break_is_not_asked_after_it(library: &str) {
    for (version, mode, asked) in [("2.6.0+cu124", "busy a while", 0), ("2.11.0", "cut off", 1)] {
        let mut place = Place::new();
        let torch = place.pretended_torch(library, version);
        let pid = place.fake(mode, &torch.each_ref().map(|(name, value)| (*name, value.as_str())));
        let ran = place.attach(&[]);
        assert_eq!(ran.code, 2, "{}", ran.err);
        assert!(ran.err.contains("a profiler of its own") && ran.err.contains(version), "{}", ran.err);
        assert_eq!(place.requests(pid).len(), asked, "{}", ran.err);
    }
    // The first request and one without effect are safe, and a new PyTorch is.
    for (version, mode, asked) in [("2.6.0", "late", 2), ("2.12.1", "cut off", 2)] {
        let mut place = Place::new();
        let torch = place.pretended_torch(library, version);
        let pid = place.fake(mode, &torch.each_ref().map(|(name, value)| (*name, value.as_str())));
        let ran = place.attach(&[]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert_eq!(place.requests(pid).len(), asked);
    }
}

fn a_process_that_cannot_be_attached_to_is_refused_at_once() {
    let mut place = Place::new();
    let elsewhere = Place::new();
    let mut start = |variables: &[(&str, &Path)]| {
        let mut command = place.command("sleep");
        command.arg("300").env_remove("KINETO_USE_DAEMON").env_remove("KINETO_IPC_SOCKET_DIR");
        let job = command.envs(variables.iter().copied()).spawn().unwrap();
        let pid = job.id();
        place.jobs.push(job);
        wait_for("it runs", || std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|it| it.starts_with(b"sleep")));
        pid.to_string()
    };
    let here = start(&[]);
    let one = Path::new("1");
    let there = start(&[("KINETO_USE_DAEMON", one), ("KINETO_IPC_SOCKET_DIR", elsewhere.folder.path())]);
    let abstract_name = start(&[("KINETO_USE_DAEMON", one)]);
    for (pid, problem) in [
        ("4194304", "--pid 4194304: no such process runs".to_owned()),
        (&here, format!("process {here} (sleep 300) was started without KINETO_USE_DAEMON")),
        (&there, format!("use --socket-dir {}", elsewhere.folder.path().display())),
        (&abstract_name, "unset KINETO_IPC_SOCKET_DIR and stop dynolog".to_owned()),
    ] {
        let began = Instant::now();
        let ran = place.attach(&["--pid", pid, "--wait", "300s"]);
        assert!(ran.code == 2 && ran.err.contains(&problem), "{problem}: {}", ran.err);
        assert!(began.elapsed() < Duration::from_secs(100), "at once, not after 300 s of listening");
    }
    // This one still works.
    let folder = place.folder.path().to_owned();
    let job = place.command("sleep").arg("301").env("KINETO_USE_DAEMON", "1").spawn().unwrap();
    let pid = job.id().to_string();
    place.jobs.push(job);
    let ran = place.attach(&["--pid", &pid, "--wait", "1s", "--socket-dir", folder.to_str().unwrap()]);
    assert!(ran.code == 2 && ran.err.contains("has loaded PyTorch in 1 s"), "{}", ran.err);
    assert!(ran.err.contains(&format!("process {pid} (sleep 301)")), "{}", ran.err);
}

fn ranks_that_come_up_late_are_waited_for_and_missed_aloud() {
    let mut place = Place::new();
    let rank = |rank: &'static str| {
        [("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500"), ("LOCAL_WORLD_SIZE", "2"), ("RANK", rank)]
    };
    let first = place.fake("plain", &rank("0"));
    let options = ["-o", "p.habitat.json", "--force", "--json", "--all", "--wait", "20s"];
    let attach = place.start(&options);
    wait_for("it listens", || place.path("dynolog").exists());
    std::thread::sleep(Duration::from_secs(2));
    assert!(place.requests(first).is_empty(), "one of two is not all");
    let second = place.fake("plain", &rank("1"));
    let ran = place.end(attach);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let pids: Vec<u64> =
        ran.json()["traces"].as_array().unwrap().iter().map(|one| one["pid"].as_u64().unwrap()).collect();
    assert_eq!(pids, [u64::from(first), second.into()]);
    let mut place = Place::new();
    place.fake("plain", &rank("0"));
    let ran = place.attach(&["--json", "--all", "--wait", "1s"]);
    assert_eq!((ran.code, ran.json()["traces"].as_array().unwrap().len()), (0, 1), "{}", ran.err);
    assert!(ran.err.contains("only 1 of the 2 ranks on this machine"), "{}", ran.err);
}

fn messages_that_make_no_sense_are_ignored_and_counted() {
    let mut place = Place::new();
    place.fake("garbled", &[]);
    let ran = place.attach(&["--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.json()["messages_ignored"].as_u64().unwrap() >= 5);
}

fn an_interrupted_attach_takes_its_socket_away() {
    let mut place = Place::new();
    place.fake("never", &[]);
    let attach = place.start(&["-o", "p.habitat.json"]);
    wait_for("it asked", || !place.requests(place.jobs[0].id()).is_empty());
    assert!(Command::new("kill").args(["-INT", &attach.id().to_string()]).status().unwrap().success());
    let ran = place.end(attach);
    assert_eq!(ran.code, 130, "{}", ran.err);
    assert!(ran.err.contains("may still wait in the job"), "{}", ran.err);
    assert!(!place.path("dynolog").exists());
}

fn nobody_is_asked_for_what_could_not_be_written() {
    let mut place = Place::new();
    let pid = place.fake("plain", &[]);
    std::fs::write(place.path("there.habitat.json"), "x").unwrap();
    for (options, problem) in [
        (vec!["-o", "no/such/p.habitat.json"], "cannot be written"),
        (vec!["-o", "there.habitat.json"], "already exists"),
        (vec!["--origin", "gtx-99"], "gtx-99"),
        (vec!["--batch-size", "0"], "at least one sample"),
        (vec!["--keep-traces", "no/such"], "no such folder"),
        (vec!["--socket-dir", "no/such"], "no such folder"),
    ] {
        let ran = place.end(place.start(&options));
        assert!(ran.code == 2 && ran.err.contains(problem), "{options:?}: {}", ran.err);
    }
    assert!(place.requests(pid).is_empty());
}

fn traces_are_kept_where_asked() {
    let mut place = Place::new();
    let pid = place.fake("plain", &[]);
    std::fs::create_dir(place.path("traces")).unwrap();
    assert_eq!(place.attach(&["--keep-traces", "traces"]).code, 0);
    assert!(place.path(&format!("traces/trace-{pid}.json")).exists());
}

fn env(place: &Place, options: &[&str]) -> Output {
    place.command(HABITAT).arg("env").args(options).output().unwrap()
}

fn the_variables_are_those_of_the_protocol_in_every_form() {
    let place = Place::new();
    let folder = place.folder.path().to_str().unwrap();
    let text = |options: &[&str]| String::from_utf8(env(&place, options).stdout).unwrap();
    let json: Value = serde_json::from_str(&text(&["--json"])).unwrap();
    assert_eq!(json["variables"]["KINETO_USE_DAEMON"], "1");
    assert_eq!(json["variables"]["KINETO_IPC_SOCKET_DIR"], folder);
    assert!(text(&["--shell", "fish"]).contains("set -gx KINETO_USE_DAEMON 1"));
    assert!(text(&[]).contains("10 s"), "the hazard is shown");
    for line in text(&["--shell", "plain", "--fast"]).lines() {
        assert!(line.starts_with("KINETO_"), "{line}");
    }
    let conf = std::fs::read_to_string(place.path("kineto.conf")).unwrap();
    assert!(conf.ends_with("ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=1\n"));
    // The shell accepts it unchanged.
    let script = format!("eval \"$({HABITAT} env --fast)\" && echo $KINETO_USE_DAEMON $KINETO_CONFIG");
    let output = place.command("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), format!("1 {folder}/kineto.conf"));
}

fn a_folder_or_a_config_file_that_will_not_do_is_refused() {
    let place = Place::new();
    let output = env(&place, &["--socket-dir", &format!("/tmp/{}", "x".repeat(60))]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("shorter"));
    let output =
        place.command(HABITAT).args(["env", "--fast"]).env("KINETO_CONFIG", "/etc/mine.conf").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("already points to /etc/mine.conf"), "{output:?}");
}
