use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::place::wait_for;
use crate::terminal::Terminal;

use crate::needs::{Need, program, python, torch};

trials! {
    when (python()) => [
        the_screens_follow_a_job_from_its_start_to_its_end,
        a_job_that_is_left_goes_on,
        a_job_that_is_stopped_ends_and_then_the_screens_close,
        ctrl_c_twice_stops_the_job_as_in_a_shell,
        a_job_that_does_not_heed_an_interrupt_is_stopped_more_strongly,
        the_job_outlives_us_whatever_ends_us,
        without_a_shell_nothing_is_suspended,
        a_full_disk_costs_the_window_and_nothing_else,
        #[cfg(target_os = "linux")]
        a_full_disk_under_the_log_does_no_harm_to_the_job,
        #[cfg(target_os = "linux")]
        the_log_is_written_on_where_its_writer_is_killed,
        a_folder_that_is_gone_costs_the_window_and_nothing_else,
        the_gpus_are_told_of_while_the_screens_are_open,
        with_every_a_new_window_comes_again_and_again,
        with_every_windows_that_are_missed_come_again,
    ],
    always () => [
        what_cannot_start_opens_no_screens,
    ],
    when (shell()) => [
        without_screens_ctrl_c_ends_the_job_as_if_it_were_bare,
        suspending_stops_the_screens_and_not_the_job,
        without_screens_the_job_is_suspended_as_any_job_of_the_shell,
    ],
    when (small_file_system()) => [
        #[cfg(target_os = "linux")]
        no_window_opens_where_there_is_no_room_for_it,
    ],
    with (torch()) => [
        with_pytorch_the_screens_fill_too,
    ],
}

pub(super) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/capture")
}

/// A shell, and a Python for the job in it.
fn shell() -> Need<String> {
    python().and_then(|_| program("bash"))
}

/// A Python, and permission to mount and fill a small file system.
#[cfg(target_os = "linux")]
fn small_file_system() -> Need<String> {
    let mount = ["-Urm", "mount", "-t", "tmpfs", "-o", "size=8m", "none", "/mnt"];
    let mounts = Command::new("unshare").args(mount).output().is_ok_and(|output| output.status.success());
    if mounts { python() } else { Err("a small file system cannot be mounted here".to_owned()) }
}

/// Starts `program` with `arguments`, and the fake PyTorch for its Python.
pub(super) fn open(program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Terminal {
    let fake = fixtures().join("fake");
    let variables = [&[("PYTHONPATH", fake.to_str().unwrap())], variables].concat();
    Terminal::open(program, arguments, &variables)
}

impl Terminal {
    /// Starts `habitat-tui run` on the fake job.
    pub(super) fn run(options: &[&str], job: &[&str], variables: &[(&str, &str)]) -> Self {
        let script = fixtures().join("fake_job.py");
        let mut arguments = vec!["run"];
        arguments.extend_from_slice(options);
        arguments.extend(["--", "python3", script.to_str().unwrap()]);
        arguments.extend_from_slice(job);
        open(env!("CARGO_BIN_EXE_habitat-tui"), &arguments, variables)
    }

    pub(super) fn signal(&self, name: &str) {
        signal(self.child.process_id().unwrap(), name);
    }

    /// The last step that the job wrote.
    pub(super) fn step(&self) -> u64 {
        self.read("steps").parse().unwrap_or(0)
    }

    /// The job's process.
    pub(super) fn job(&self) -> u32 {
        let saw: Value = serde_json::from_str(&self.read("saw")).unwrap();
        u32::try_from(saw["pid"].as_u64().unwrap()).unwrap()
    }

    pub(super) fn job_goes_on(&self) {
        let before = self.step();
        wait_for("the job makes steps", || self.step() > before + 2);
    }

    pub(super) fn job_finishes(&self, steps: u64) {
        wait_for("the job makes all its steps", || self.step() == steps);
        wait_for("the job ends", || !is_running(self.job()));
        // Another process writes it.
        wait_for("all it said is in the log", || self.log().ends_with("\ndone\n"));
    }
}

/// The stored facts of the only job.
pub(super) fn kept(terminal: &Terminal) -> Value {
    serde_json::from_str(&terminal.read("config/jobs/fake_job/job.json")).unwrap()
}

fn state(pid: u32) -> Option<char> {
    let output = Command::new("ps").args(["-o", "stat=", "-p", &pid.to_string()]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().chars().next()
}

pub(super) fn is_running(pid: u32) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

pub(super) fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap().success());
}

fn the_screens_follow_a_job_from_its_start_to_its_end() {
    // On a fake GPU, so that there are times to show.
    let mut terminal = Terminal::run(&[], &["150", "0.02"], &[("FAKE_GPU", "1"), ("EXIT_CODE", "6")]);
    terminal.sees("5 job");
    terminal.press("2");
    terminal.sees("this screen shows the operations of the step");
    terminal.press("5");
    terminal.sees("steps 11–13");
    terminal.sees("recorded; profile written to fake_job-");
    terminal.sees("Tesla V100");
    terminal.sees("steps/s");
    terminal.press("2");
    terminal.sees("aten::addmm");
    terminal.press("3");
    terminal.sees("H100");
    terminal.press("4");
    terminal.sees("cost against time");
    terminal.press("1");
    terminal.sees("Fastest GPU");
    terminal.press("5");
    terminal.sees("training for 150 steps");
    terminal.sees("ended with exit code 6, at step 150");
    // The progress bar as a terminal would show it, without colours.
    terminal.sees("step 150 of 150");
    assert!(!terminal.text().contains("step 149 of 150"), "{}", terminal.text());
    let log = terminal.log();
    assert!(log.starts_with("training for 150 steps\n") && log.contains("\r\x1b[32mstep 9 of 150"), "{log:?}");
    assert!(!log.contains("Warning"), "what PyTorch warns of our profiler is none of the job's: {log}");
    let saw: Value = serde_json::from_str(&terminal.read("saw")).unwrap();
    assert_eq!(saw["tty"], serde_json::json!([false, false, false]));
    assert_eq!(saw["unbuffered"], "1", "the tail would come 8 KiB at a time");
    // The job has ended: no question.
    terminal.press("q");
    assert_eq!(terminal.ends(), 6, "the exit code is the job's");
    let text = terminal.text();
    assert!(text.contains("steps seen, recorded 11–13") && text.contains("next: habitat-tui fake_job-"), "{text}");
    assert!(text.contains("the job's output is in fake_job-"), "{text}");
    assert_eq!(terminal.files(".habitat.json.zst").len(), 1);
}

/// A script replaces `nvidia-smi` and ends with the screens; the cost of the job, here and on other GPUs, on the screen
/// and in the report.
fn the_gpus_are_told_of_while_the_screens_are_open() {
    let tools = tempfile::tempdir().unwrap();
    let script = "#!/bin/sh\necho $$ > \"$(dirname \"$0\")/pid\"\n\
                  echo '0, 91, 30720, 32768, 1380, 251.00, 74, 0x0, 0x0'\n\
                  echo '0, 93, 30720, 32768, 1100, 251.00, 86, 0x20, 0x20'\nexec sleep 600\n";
    let program = tools.path().join("nvidia-smi");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", tools.path().display(), std::env::var("PATH").unwrap());
    let options = ["--total-steps", "150000", "--price", "2"];
    let mut terminal = Terminal::run(&options, &["150", "0.02"], &[("FAKE_GPU", "1"), ("PATH", &path)]);
    terminal.sees("93 % busy · 30.0 GB of 32.0 GB · 1,100 MHz");
    terminal.sees("GPU 0 throttled to 1,100 of 1,380 MHz: temperature (driver)");
    terminal.sees("of 150,000 steps");
    let pid: u32 = std::fs::read_to_string(tools.path().join("pid")).unwrap().trim().parse().unwrap();
    assert!(is_running(pid));
    terminal.sees("ended with exit code 0, at step 150");
    terminal.sees("same run, cheapest");
    terminal.press("q");
    assert_eq!(terminal.ends(), 0);
    wait_for("nvidia-smi ends with the job", || !is_running(pid));
    let text = terminal.text();
    assert!(text.contains("same run, cheapest") && text.contains("cost: $"), "{text}");
}

fn with_every_a_new_window_comes_again_and_again() {
    let mut terminal = Terminal::run(&["--every", "30"], &["150", "0.03"], &[("FAKE_GPU", "1")]);
    for (first, last) in [(11, 13), (41, 43), (71, 73), (101, 103)] {
        terminal.sees(&format!("recorded every 30 steps · last steps {first}–{last}"));
    }
    // At most the one being read, and the next.
    let cache = terminal.path("").join(".cache/habitat-tui");
    let mut traces = Vec::new();
    for folder in std::fs::read_dir(cache).unwrap().flatten() {
        let files = std::fs::read_dir(folder.path()).into_iter().flatten().flatten();
        traces.extend(files.map(|file| file.path()).filter(|path| path.to_string_lossy().contains("trace-")));
    }
    assert!((1..=2).contains(&traces.len()), "{traces:?}");
    terminal.sees("ended with exit code 0, at step 150");
    terminal.press("q");
    assert_eq!(terminal.ends(), 0);
    let text = terminal.text();
    assert!(text.contains("101–103") || text.contains("131–133"), "{text}");
}

/// More than are retried in a job with one window.
fn with_every_windows_that_are_missed_come_again() {
    let mut terminal = Terminal::run(&["--every", "20"], &["150", "0.02"], &[("OWN_PROFILER", "90")]);
    terminal.sees("own profiler has priority");
    terminal.sees("recorded every 20 steps · last steps ");
    terminal.sees("ended with exit code 0, at step 150");
    terminal.press("q");
    assert_eq!(terminal.ends(), 0);
}

fn a_job_that_is_left_goes_on() {
    let mut terminal = Terminal::run(&["-o", "p.habitat.json", "--log", "out"], &["400", "0.02"], &[]);
    terminal.sees("recorded; profile written to p.habitat.json");
    terminal.sees("CPU: no GPU kernels");
    for stay in ["\x1b", "q"] {
        terminal.press("q");
        terminal.sees("leave it running");
        terminal.press(stay);
        wait_for("the dialog closes", || !terminal.text().contains("leave it running"));
    }
    terminal.press("\x03");
    terminal.sees("leave it running");
    terminal.press("l");
    assert_eq!(terminal.ends(), 0);
    let (text, job) = (terminal.text(), terminal.job());
    assert!(text.contains(&format!("the job keeps running as process {job}; its output goes to out")), "{text}");
    assert!(text.contains("habitat-tui join fake_job"), "{text}");
    assert!(terminal.path("p.habitat.json").exists());
    terminal.close();
    wait_for("all steps are made", || terminal.step() == 400);
    wait_for("the job ends", || terminal.read("out").ends_with("\ndone\n"));
}

fn a_job_that_is_stopped_ends_and_then_the_screens_close() {
    let mut terminal = Terminal::run(&["--after", "5000"], &["4000", "0.02"], &[]);
    terminal.sees("steps 5001–5003 will be recorded");
    let job = terminal.job();
    terminal.press("qs");
    assert_eq!(terminal.ends(), 130, "as Ctrl-C ends it in a shell");
    assert!(!is_running(job));
    let text = terminal.text();
    assert!(text.contains("the job was stopped by you; nothing recorded: the job made"), "{text}");
    assert!(!text.contains("try "), "who stops a job needs no advice: {text}");
    assert!(terminal.log().contains("KeyboardInterrupt"), "{}", terminal.log());
}

fn ctrl_c_twice_stops_the_job_as_in_a_shell() {
    let mut terminal = Terminal::run(&[], &["4000", "0.02"], &[]);
    terminal.sees("recorded; profile written to");
    let job = terminal.job();
    terminal.press("\x03");
    terminal.sees("or press ctrl-c again");
    terminal.job_goes_on();
    terminal.press("\x03");
    assert_eq!(terminal.ends(), 130);
    assert!(!is_running(job));
    let text = terminal.text();
    assert!(text.contains("job stopped by you; next: habitat-tui fake_job-"), "{text}");
    assert!(terminal.log().contains("KeyboardInterrupt"), "{}", terminal.log());
}

/// A job that ignores SIGINT gets the next signal on request, but not by a key that is held down.
fn a_job_that_does_not_heed_an_interrupt_is_stopped_more_strongly() {
    let script = fixtures().join("fake_job.py");
    let command = format!("trap '' INT; exec python3 '{}' 4000 0.02", script.display());
    let arguments = ["run", "--", "sh", "-c", &command];
    let mut terminal = open(env!("CARGO_BIN_EXE_habitat-tui"), &arguments, &[]);
    terminal.sees("recorded; profile written to");
    let job = terminal.job();
    terminal.press("\x03\x03");
    terminal.sees("sent SIGINT; SIGTERM follows if it still runs after 30 s");
    terminal.press("\x03\x03\x03");
    terminal.sees("It was already asked to stop");
    std::thread::sleep(Duration::from_millis(500));
    assert!(is_running(job));
    terminal.press("s");
    assert_eq!(terminal.ends(), 143);
    assert!(!is_running(job));
}

/// The shell sees the same end as of the bare job: interrupted, with its traceback.
fn without_screens_ctrl_c_ends_the_job_as_if_it_were_bare() {
    let mut ends = Vec::new();
    let script = fixtures().join("fake_job.py");
    let run = format!("'{}' run --no-tui -- ", env!("CARGO_BIN_EXE_habitat-tui"));
    for before in ["", &run] {
        let mut terminal = open("bash", &["--norc", "--noprofile", "-i"], &[("PS1", "shell> ")]);
        terminal.sees("shell>");
        terminal.press(&format!("{before}python3 '{}' 4000 0.02; echo never\r", script.display()));
        terminal.sees("step 30 of 4000");
        let job = terminal.job();
        terminal.press("\x03");
        terminal.sees("KeyboardInterrupt");
        wait_for("the job has ended", || !is_running(job));
        if !before.is_empty() {
            terminal.sees("job stopped by you; next:");
        }
        terminal.press("echo code $?\r");
        terminal.sees("code 130");
        let text = terminal.text();
        ends.push((text.contains("\nnever"), text.matches("Traceback").count()));
    }
    assert_eq!(ends[0], ends[1]);
    assert_eq!(ends[1].1, 1);
}

fn the_job_outlives_us_whatever_ends_us() {
    // Killed before the window, in it, and while the trace is written.
    for (how, at) in [("KILL", 5), ("KILL", 12), ("KILL", 14), ("TERM", 60), ("hang-up", 5), ("hang-up", 60)] {
        let mut terminal = Terminal::run(&["--window", "2"], &["120", "0.03"], &[("FAKE_EXPORT", "0.2")]);
        wait_for("the step is reached", || terminal.step() >= at);
        if how == "hang-up" {
            // Closes the terminal, and with it our standard input and output.
            terminal.close();
            wait_for("we end", || terminal.child.try_wait().unwrap().is_some());
        } else {
            terminal.signal(how);
            let code = terminal.ends();
            assert!(how != "TERM" || code == 143, "{code}: {}", terminal.text());
        }
        terminal.job_goes_on();
        terminal.job_finishes(120);
        wait_for("the recording goes on", || terminal.files(".habitat.json.zst").len() == 1);
    }
}

/// A shell in which the program runs a long job.
fn in_a_shell(options: &str) -> Terminal {
    let mut terminal = open("bash", &["--norc", "--noprofile", "-i"], &[("PS1", "shell> ")]);
    terminal.sees("shell>");
    let script = fixtures().join("fake_job.py");
    let program = env!("CARGO_BIN_EXE_habitat-tui");
    terminal.press(&format!("'{program}' run {options} -- python3 '{}' 4000 0.02\r", script.display()));
    terminal
}

fn suspending_stops_the_screens_and_not_the_job() {
    let mut terminal = in_a_shell("");
    terminal.sees("steps 11–13");
    terminal.press("\x1a");
    terminal.sees("Stopped");
    terminal.job_goes_on();
    terminal.press("fg\r");
    terminal.sees("5 job");
    terminal.press("qs");
    terminal.sees("stopped by you");
    terminal.press("echo code $?\r");
    terminal.sees("code 130");
}

fn without_screens_the_job_is_suspended_as_any_job_of_the_shell() {
    let mut terminal = in_a_shell("--no-tui");
    terminal.sees("of 4000");
    let job = terminal.job();
    for _ in 0..2 {
        terminal.press("\x1a");
        terminal.sees("Stopped");
        assert_eq!(state(job), Some('T'));
        terminal.screen.lock().unwrap().process(b"\x1b[2J\x1b[H");
        terminal.press("fg\r");
        wait_for("the job goes on", || state(job) != Some('T'));
        terminal.job_goes_on();
    }
    terminal.press("\x1a");
    terminal.sees("Stopped");
    terminal.press("bg\r");
    terminal.job_goes_on();
    terminal.press("fg\r");
    terminal.sees("--no-tui");
    std::thread::sleep(Duration::from_millis(300));
    terminal.press("\x03");
    wait_for("Ctrl-C ends the job", || !is_running(job));
}

/// As the first process of a container: no shell could continue us.
fn without_a_shell_nothing_is_suspended() {
    let mut terminal = Terminal::run(&["--no-tui"], &["300", "0.02"], &[]);
    terminal.sees("of 300");
    terminal.press("\x1a");
    std::thread::sleep(Duration::from_millis(500));
    terminal.job_goes_on();
    assert_eq!(terminal.ends(), 0);
}

/// The disk is full in the middle of a window: the job goes on, and no files remain.
fn a_full_disk_costs_the_window_and_nothing_else() {
    let traces = tempfile::tempdir().unwrap();
    let folder = traces.path().to_str().unwrap();
    let variables = [("FULL_DISK", "1"), ("XDG_CACHE_HOME", folder)];
    let mut terminal = Terminal::run(&[], &["60", "0.02"], &variables);
    terminal.sees("the trace was not written: it is cut off");
    terminal.sees("ended with exit code 0, at step 60");
    let left: Vec<_> =
        std::fs::read_dir(traces.path()).unwrap().flat_map(|entry| files_below(&entry.unwrap().path())).collect();
    assert!(left.iter().all(|path| !path.to_str().unwrap().contains("trace-")), "{left:?}");
    terminal.press("q");
    assert_eq!(terminal.ends(), 0);
    assert!(terminal.text().contains("nothing recorded: the trace was not written"), "{}", terminal.text());
    let left: Vec<_> = std::fs::read_dir(traces.path().join("habitat-tui")).unwrap().flatten().collect();
    assert!(left.len() == 1 && left[0].file_name().to_str().unwrap().starts_with("hook-"), "{left:?}");
}

/// A log that accepts nothing more, whatever happens to us meanwhile.
#[cfg(target_os = "linux")]
fn a_full_disk_under_the_log_does_no_harm_to_the_job() {
    let script = fixtures().join("fake_job.py");
    let command = format!("python3 '{}' 150 0.03; echo $? >code", script.display());
    for how in ["stay", "leave", "KILL"] {
        let arguments = ["run", "--log", "/dev/full", "--", "sh", "-c", &command];
        let mut terminal = open(env!("CARGO_BIN_EXE_habitat-tui"), &arguments, &[("EXIT_CODE", "6")]);
        terminal.sees("bytes of the job's output are missing in the log: No space left on device");
        match how {
            "leave" => {
                terminal.press("ql");
                assert_eq!(terminal.ends(), 0);
            }
            "KILL" => terminal.signal(how),
            _ => {}
        }
        wait_for("the job ends", || !terminal.read("code").trim().is_empty());
        assert_eq!((terminal.read("code").trim(), terminal.step()), ("6", 150), "{how}");
    }
}

/// The log writer is killed: another one takes over, and the job notices nothing.
#[cfg(target_os = "linux")]
fn the_log_is_written_on_where_its_writer_is_killed() {
    let mut terminal = Terminal::run(&[], &["150", "0.03"], &[]);
    let writer = || -> Option<u32> {
        let own = format!("\nPPid:\t{}\n", kept(&terminal)["keeper"]["pid"]);
        let all = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|it| it.file_name().to_str()?.parse().ok());
        all.into_iter().find(|pid: &u32| {
            let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
            read("comm") == "job-log\n" && read("status").contains(&own)
        })
    };
    wait_for("the job makes steps", || terminal.step() > 5);
    let first = writer().unwrap();
    signal(first, "TERM");
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(writer(), Some(first), "it heeds no such signal");
    signal(first, "KILL");
    wait_for("another one is there", || writer().is_some_and(|other| other != first));
    terminal.sees("ended with exit code 0, at step 150");
    assert!(terminal.log().ends_with("\ndone\n"), "{}", terminal.log());
    terminal.press("q");
    assert_eq!(terminal.ends(), 0);
}

/// A user empties the cache folder: only the window is lost.
fn a_folder_that_is_gone_costs_the_window_and_nothing_else() {
    let mut terminal = Terminal::run(&["--after", "60"], &["120", "0.03"], &[]);
    wait_for("some steps are made", || terminal.step() >= 5);
    for entry in std::fs::read_dir(terminal.path(".cache/habitat-tui")).unwrap() {
        std::fs::remove_dir_all(entry.unwrap().path()).unwrap();
    }
    terminal.sees("ended with exit code 0, at step 120");
    assert!(terminal.log().ends_with("\ndone\n") && !terminal.log().contains("Traceback"), "{}", terminal.log());
    terminal.press("q");
    assert_eq!(terminal.ends(), 0);
    let text = terminal.text();
    assert!(text.contains("the folder for traces, was removed while the job ran"), "{text}");
}

fn files_below(path: &Path) -> Vec<PathBuf> {
    match std::fs::read_dir(path) {
        Ok(entries) => entries.flat_map(|entry| files_below(&entry.unwrap().path())).collect(),
        Err(_) => vec![path.to_owned()],
    }
}

/// With little free space no window opens.
#[cfg(target_os = "linux")]
fn no_window_opens_where_there_is_no_room_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=8m none /mnt && XDG_CACHE_HOME=/mnt exec \"$@\"";
    let output = Command::new("unshare")
        .args(["-Urm", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_habitat-tui"), "run", "--", "python3"])
        .arg(fixtures().join("fake_job.py"))
        .arg("80")
        .current_dir(folder.path())
        .env("PYTHONPATH", fixtures().join("fake"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("MB are free in /mnt/") && said.contains("set XDG_CACHE_HOME"), "{said}");
}

fn what_cannot_start_opens_no_screens() {
    let mut terminal = open(env!("CARGO_BIN_EXE_habitat-tui"), &["run", "--", "no-such-program"], &[]);
    assert_eq!(terminal.ends(), 127);
    assert!(terminal.text().contains("no-such-program: no such program"), "{}", terminal.text());
    assert!(terminal.files(".log").is_empty(), "no empty log is left");
}

fn with_pytorch_the_screens_fill_too(python: &str) {
    let script = fixtures().join("slow.py");
    let arguments = ["run", "--stacks", "-o", "p.habitat.json", "--", python, script.to_str().unwrap(), "steps", "120"];
    let mut terminal = open(env!("CARGO_BIN_EXE_habitat-tui"), &arguments, &[("PYTHONPATH", "")]);
    terminal.sees("recorded; profile written to p.habitat.json");
    terminal.sees("CPU: no GPU kernels");
    terminal.press("2");
    terminal.sees("addmm");
    terminal.press("3");
    terminal.sees(&format!("{0} of {0} GPUs", habitat_tui::store::bundled::gpus().len()));
    terminal.press("5");
    terminal.sees("ended with exit code 0, at step 120");
    terminal.press("q");
    assert_eq!(terminal.ends(), 0);
    assert!(terminal.read("p.habitat.json").contains("\"module\":\"Sequential"), "--stacks names the modules");
}
