use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use habitat_tui::profile::{Operation, Phase, Precision, Profile};
use habitat_tui::units::{Bytes, Micros};
use serde_json::Value;

use crate::needs::{Need, python, root, torch, torch_from, torch_version};
use crate::place::{self, Place, Ran, wait_for};

trials! {
    with (torch()) => [
        what_a_step_processes_is_found_or_it_is_said_why_not,
    ],
    with (torch_from(2, 6)) => [
        what_is_compiled_is_as_it_would_be,
        what_another_network_compiles_is_as_it_would_be,
        exports_in_the_step_looked_at_are_as_they_would_be,
    ],
    always () => [
        a_program_that_is_not_there,
        a_program_that_is_no_python_keeps_its_output_and_code,
        a_job_ended_by_a_signal_gives_128_and_the_signal,
        nothing_is_started_that_could_not_be_written,
        batch_sizes_that_make_no_sense_start_nothing,
        the_jobs_output_can_go_to_a_file,
        secrets_of_the_command_stay_out_of_what_is_written,
        #[cfg(target_os = "linux")]
        a_full_disk_under_the_log_does_not_end_the_job,
        what_the_job_loads_is_where_nobody_else_can_put_anything,
        the_folder_of_a_killed_recorder_goes_and_that_of_a_living_one_stays,
        an_interrupted_trace_of_shapes_leaves_nothing,
        a_job_is_ended_after_the_time_given,
    ],
    with (python()) => [
        python_without_torch_keeps_output_and_code,
        python_that_shuts_the_hook_out_is_said_so,
        a_torch_that_is_too_old_is_left_alone,
        the_users_own_sitecustomize_runs_and_its_faults_are_reported_as_ever,
        a_log_that_is_full_costs_its_text_and_nothing_else,
        a_cache_folder_with_a_long_name_or_none_will_do_where_there_is_another,
        #[cfg(target_os = "linux")]
        whoever_floods_the_socket_takes_neither_memory_nor_threads,
        signals_reach_the_job,
        in_a_terminal_the_job_reads_and_gets_the_keys,
    ],
    with (torch()) => [
        every_way_to_train_is_recorded_and_none_is_changed,
        the_users_profiler_loses_nothing,
        a_job_that_ends_in_the_window_is_left_to,
        what_keeps_a_job_from_being_recorded_is_said,
        training_goes_on_when_we_are_killed,
        two_at_once_and_one_that_is_stopped_when_recorded,
        one_job_at_several_batch_sizes,
        a_profile_is_there_while_the_job_goes_on,
        #[cfg(target_os = "linux")]
        a_full_disk_costs_the_profile_but_not_the_traces,
        what_stays_in_memory_is_measured,
        a_window_waits_for_the_capture_of_a_graph,
        a_validation_in_the_window_ends_it,
        memory_that_grows_at_every_step_is_no_validation,
        a_window_is_tried_again_however_many_were_dropped,
        steps_that_do_more_than_the_recorded_ones_are_noted,
        steps_on_a_cpu_are_not_judged_by_their_time,
        crowded_jobs_are_left_as_they_are,
        the_next_command_works_as_it_is,
        who_ended_a_job_and_why_nothing_was_recorded_is_said,
        no_window_opens_where_the_optimizer_steps_in_backward,
        training_in_other_threads_is_recorded_or_left_alone,
        samples_and_parameters_are_those_of_the_step_that_is_counted,
        a_profiler_that_the_program_begins_in_a_thread_is_whole,
        the_programs_profiler_and_ours_never_overlap,
        what_the_programs_signal_handlers_raise_reaches_the_program,
        signals_between_any_lines_of_ours_reach_the_program_and_leave_nothing_open,
        children_by_fork_end_as_they_would,
        steps_of_very_many_operators_are_recorded_one_by_one_or_not_at_all,
        files_of_a_job_that_closed_all_are_left_alone,
        what_the_process_sees_of_itself_is_as_it_would_be,
        a_signal_while_a_window_is_dropped_ends_the_job_as_it_would,
        another_optimizer_takes_over_where_the_first_one_rests,
        what_is_waited_for_data_is_measured_and_told,
        work_between_the_steps_is_no_forward_pass,
        a_loader_that_is_not_what_it_was_costs_that_figure_alone,
        what_a_loader_warns_of_names_the_programs_line,
    ],
    when (root()) => [
        another_user_cannot_have_code_run_in_a_job_that_goes_on,
    ],
    // PyTorch 2.1 removes the hooks of all optimizers when it compiles.
    with (torch_from(2, 2)) => [torch_compile_is_recorded_and_not_changed],
    // The first version with `torch.amp.GradScaler`.
    with (torch_from(2, 3)) => [a_grad_scaler_is_recorded_and_not_changed],
    with (torch_and("lightning")) => [lightning_is_recorded_and_not_changed],
    with (torch_and("transformers")) => [the_hugging_face_trainer_is_recorded_and_not_changed],
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/capture")
}

pub(crate) fn fixture(name: &str) -> String {
    fixtures().join(name).to_str().unwrap().to_owned()
}

pub(crate) fn is_running(pid: u32) -> bool {
    // A zombie counts as ended.
    Command::new("ps")
        .args(["-o", "stat=", "-p", &pid.to_string()])
        .output()
        .is_ok_and(|output| output.status.success() && !output.stdout.starts_with(b"Z"))
}

fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap().success());
}

// ----- without PyTorch

fn a_program_that_is_not_there() {
    let ran = Place::new().run(&[], &["no-such-program-anywhere"]);
    assert_eq!(ran.code(), 127);
    assert!(ran.err().contains("no-such-program-anywhere: no such program"), "{}", ran.err());
    let place = Place::new();
    std::fs::write(place.path("train.py"), "print(1)").unwrap();
    let ran = place.run(&[], &["./train.py"]);
    assert_eq!(ran.code(), 126);
    assert!(ran.err().contains("start it as `python ./train.py`"), "{}", ran.err());
}

fn a_program_that_is_no_python_keeps_its_output_and_code() {
    let ran = Place::new().run(&[], &["sh", "-c", "echo out; echo err >&2; exit 3"]);
    assert_eq!((ran.code(), ran.out().as_str()), (3, "out\n"));
    assert!(ran.err().starts_with("err\n"), "{}", ran.err());
    assert!(ran.err().contains("no Python of the job loaded the hook"), "{}", ran.err());
    assert_eq!(ran.seen["seen"], "no python");
    assert!(ran.profile.is_none());
}

fn a_job_ended_by_a_signal_gives_128_and_the_signal() {
    let ran = Place::new().run(&[], &["sh", "-c", "kill -9 $$"]);
    assert_eq!(ran.code(), 137);
    assert_eq!(ran.seen["exit_code"], 137);
    assert!(ran.err().contains("killed by SIGKILL, not by habitat-tui (out of memory?"), "{}", ran.err());
}

fn python_without_torch_keeps_output_and_code(python: &str) {
    let place = Place::new();
    let script = fixture("without_torch.py");
    let job = [python, script.as_str(), "a b", "--json"];
    let (ran, bare) = (place.run(&[], &job), place.bare(&job));
    assert_eq!((ran.code(), ran.output.stdout.clone()), (7, bare.stdout));
    assert_eq!(ran.out(), "a b --json\n");
    assert!(ran.output.stderr.starts_with(&bare.stderr), "{}", ran.err());
    assert!(ran.err().contains("never imported torch.optim"), "{}", ran.err());
    assert_eq!(ran.seen["seen"], "no torch");
}

fn python_that_shuts_the_hook_out_is_said_so(python: &str) {
    for switch in ["-I", "-E", "-S"] {
        let ran = Place::new().run(&[], &[python, switch, &fixture("without_torch.py")]);
        assert_eq!((ran.code(), ran.seen["seen"].as_str()), (7, Some("no python")), "{switch}");
        // Names the switch if the process was found while it ran.
        let met = format!("`{switch}` disables the hook");
        assert!(ran.err().contains("`python -I`") || ran.err().contains(&met), "{}", ran.err());
    }
}

fn a_torch_that_is_too_old_is_left_alone(python: &str) {
    let place = Place::with("PYTHONPATH", &fixture("old"));
    let ran = place.run(&[], &[python, &fixture("old_torch.py")]);
    assert_eq!((ran.code(), ran.out().as_str()), (0, "torch 1.13.1\n"));
    assert!(ran.err().contains("PyTorch 1.13.1 is older than 2.1"), "{}", ran.err());
}

fn the_users_own_sitecustomize_runs_and_its_faults_are_reported_as_ever(python: &str) {
    for (text, out) in
        [("import sys; sys.mine = 'mine'", "mine True False"), ("raise RuntimeError('broken')", "None True False")]
    {
        let place = Place::new();
        std::fs::create_dir(place.path("own")).unwrap();
        std::fs::write(place.path("own/sitecustomize.py"), text).unwrap();
        let place = Place { variables: vec![("PYTHONPATH".into(), place.path("own"))], ..place };
        let code = "import sys, sitecustomize; own = 'own' in (sitecustomize.__file__ or ''); \
                    ours = any('habitat' in entry for entry in sys.path); print(getattr(sys, 'mine', None), own, ours)";
        // A failed import stays failed, with us or without.
        let code = if text.starts_with("raise") {
            "import sys; print(None, True, any('habitat' in e for e in sys.path))"
        } else {
            code
        };
        let job = [python, "-c", code];
        let (ran, bare) = (place.run(&[], &job), place.bare(&job));
        assert_eq!(ran.out().trim(), out);
        assert_eq!(ran.output.stdout, bare.stdout);
        assert!(
            ran.output.stderr.starts_with(&bare.stderr),
            "{}\n---\n{}",
            ran.err(),
            String::from_utf8_lossy(&bare.stderr)
        );
    }
}

fn nothing_is_started_that_could_not_be_written() {
    let place = Place::new();
    for (options, problem) in [
        (vec!["-o", "no/such/folder/p.habitat.json"], "cannot be written"),
        (vec!["-o", "."], "is a folder"),
        (vec!["-o", "there.habitat.json"], "already exists"),
        (vec!["--log", "no/such/folder/log"], "cannot be written"),
        (vec!["--batch-size", "0"], "at least one sample"),
        (vec!["--origin", "gtx-99"], "gtx-99"),
    ] {
        std::fs::write(place.path("there.habitat.json"), "x").unwrap();
        let output = place.habitat(&["run"]).args(&options).args(["--", "sh", "-c", "echo started"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        assert!(output.stdout.is_empty(), "{options:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(problem), "{options:?}: {output:?}");
    }
}

fn batch_sizes_that_make_no_sense_start_nothing() {
    let place = Place::new();
    for (options, job, problem) in [
        (vec!["--batches", "16,32"], "echo started", "write {batch} there"),
        (vec!["--batches", "16,0"], "echo {batch}", "at least one sample"),
        (vec!["--batches", "16", "--batch-size", "16"], "echo {batch}", "--batches and --batch-size"),
        (vec!["--batches", "many"], "echo {batch}", "many"),
    ] {
        let ran = place.run(&options, &["sh", "-c", job]);
        assert_eq!((ran.code(), ran.out().as_str()), (2, ""), "{options:?}");
        assert!(ran.err().contains(problem), "{options:?}: {}", ran.err());
    }
    // Tries every size, and reports those that were not recorded.
    let ran = place.run(&["--batches", "16,32"], &["sh", "-c", "echo started {batch}; exit {batch}"]);
    assert_eq!((ran.code(), ran.out().as_str()), (16, "started 16\nstarted 32\n"));
    for line in ["batch size 32 (2 of 2): sh -c echo", "batch size 32 was not recorded (2 of 2, exit code 32, "] {
        assert!(ran.err().contains(line), "{line}: {}", ran.err());
    }
}

fn secrets_of_the_command_stay_out_of_what_is_written() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let seen = PathBuf::from(place.path("seen.json"));
    std::fs::write(&seen, "{}").unwrap();
    std::fs::set_permissions(&seen, PermissionsExt::from_mode(0o644)).unwrap();
    let job = ["env", "WANDB_API_KEY=S3CRET", "sh", "-c", "echo $WANDB_API_KEY {batch}", "x", "--token", "S3CRET"];
    let ran = place.run(&[], &job);
    assert!(ran.code() == 0 && ran.out().contains("S3CRET"), "the job has it: {}", ran.err());
    let text = std::fs::read_to_string(&seen).unwrap();
    assert!(text.contains("\"WANDB_API_KEY=***\"") && text.contains("\"--token\",\"***\""), "{text}");
    assert!(!text.contains("S3CRET") && !ran.err().contains("S3CRET"), "{text} {}", ran.err());
    assert_eq!(seen.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let ran = place.run(&["--batches", "16", "-q"], &job);
    assert!(!ran.err().contains("S3CRET"), "{}", ran.err());
}

fn the_jobs_output_can_go_to_a_file() {
    let place = Place::new();
    let ran = place.run(&["--log", "job.log"], &["sh", "-c", "echo out; echo err >&2"]);
    assert_eq!((ran.code(), ran.out().as_str()), (0, ""));
    assert!(!ran.err().contains("err\n"), "{}", ran.err());
    assert_eq!(std::fs::read_to_string(place.path("job.log")).unwrap(), "out\nerr\n");
    // All output, however much at once, and from processes that outlive the first one too.
    let job = "head -c 20000000 /dev/zero; (sleep 0.5; echo late; touch done) & echo soon";
    let ran = place.run(&["--log", "long.log"], &["sh", "-c", job]);
    assert_eq!(ran.code(), 0, "{}", ran.err());
    wait_for("the last one ends", || Path::new(&place.path("done")).exists());
    wait_for("it is written", || std::fs::read(place.path("long.log")).unwrap().ends_with(b"late\n"));
    assert_eq!(std::fs::metadata(place.path("long.log")).unwrap().len(), 20_000_000 + "soon\nlate\n".len() as u64);
}

/// A log that cannot grow, because of a file size limit that the job itself does not have: only the log suffers.
fn a_log_that_is_full_costs_its_text_and_nothing_else(python: &str) {
    let place = Place::new();
    let program = "import resource, sys\n\
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)\n\
        for number in range(20000): print(number, 'x' * 50, flush=True)\n\
        sys.exit(7)";
    let run = "ulimit -S -f 100; exec \"$@\"";
    let output = place
        .command("bash")
        .args(["-c", run, "bash", env!("CARGO_BIN_EXE_habitat-tui"), "run", "--log", "job.log", "--json", "seen.json"])
        .args(["-o", "p.habitat.json", "--", python, "-c", program])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("bytes of the job's output are missing in the log: File too large"), "{said}");
    let seen: Value = serde_json::from_slice(&std::fs::read(place.path("seen.json")).unwrap()).unwrap();
    let (lacks, there) =
        (seen["log_lacks_bytes"].as_u64().unwrap(), std::fs::metadata(place.path("job.log")).unwrap().len());
    assert_eq!(lacks + there, (0..20_000).map(|number| format!("{number} ").len() as u64 + 51).sum::<u64>());
}

/// The same with a full disk.
#[cfg(target_os = "linux")]
fn a_full_disk_under_the_log_does_not_end_the_job() {
    let ran = Place::new().run(&["--log", "/dev/full"], &["sh", "-c", "seq 100000; echo $? >code; exit 7"]);
    assert_eq!(ran.code(), 7, "{}", ran.err());
    assert!(
        ran.err().contains("588,895 bytes of the job's output are missing in the log: No space left"),
        "{}",
        ran.err()
    );
}

fn a_cache_folder_with_a_long_name_or_none_will_do_where_there_is_another(python: &str) {
    let place = Place::new();
    let (long, at_run_time) = (place.path(&"x".repeat(120)), place.path("at-run-time"));
    std::fs::create_dir(&at_run_time).unwrap();
    let with = |variables: &[(&str, &str)]| {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Place { variables, folder: tempfile::tempdir_in(place.folder.path()).unwrap() }
    };
    // The path of the socket would be too long: only the socket goes elsewhere.
    let ran = with(&[("XDG_CACHE_HOME", &long), ("XDG_RUNTIME_DIR", &at_run_time)]).run(&[], &[python, "-c", "pass"]);
    assert_eq!(ran.seen["seen"], "no torch", "the hook was heard: {}", ran.err());
    assert!(Path::new(&long).join("habitat-tui").exists());
    // A home without write access.
    let nowhere = [("XDG_CACHE_HOME", "/proc/none"), ("HOME", "/proc/none")];
    let ran = with(&[nowhere[0], nowhere[1], ("XDG_RUNTIME_DIR", &at_run_time)]).run(&[], &[python, "-c", "pass"]);
    assert_eq!(ran.seen["seen"], "no torch", "{}", ran.err());
}

/// No other user can create the folder of the hook's files: it is in the user's own cache folder, refused if others can
/// write to it.
fn what_the_job_loads_is_where_nobody_else_can_put_anything() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let open = place.path("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    let show = "echo $PYTHONPATH";
    let place = Place { variables: vec![("XDG_CACHE_HOME".into(), open.clone())], ..place };
    let ran = place.run(&[], &["sh", "-c", show]);
    let there = format!("{open}/habitat-tui");
    assert!(!Path::new(&there).exists() && !ran.out().contains(&open), "{}", ran.out());
    if ran.code() == 2 {
        assert!(ran.err().contains("other users can write to"), "{}", ran.err());
    }
    let place = Place::new();
    let ran = place.run(&[], &["sh", "-c", show]);
    let hook = PathBuf::from(ran.out().trim());
    assert!(
        hook.starts_with(place.folder.path().canonicalize().unwrap().join("cache/habitat-tui")),
        "{}",
        hook.display()
    );
    assert!(hook.join("sitecustomize.py").exists(), "it stays: the job may still start a Python");
    for folder in [hook.as_path(), &hook.join("habitat_hook"), hook.parent().unwrap()] {
        assert_eq!(std::fs::metadata(folder).unwrap().permissions().mode() & 0o777, 0o700, "{}", folder.display());
    }
    // Changes by others do not last.
    std::fs::write(hook.join("sitecustomize.py"), "raise SystemExit('changed')").unwrap();
    let again = place.run(&[], &["sh", "-c", show]);
    assert_eq!(again.out(), ran.out());
    assert!(!std::fs::read_to_string(hook.join("sitecustomize.py")).unwrap().contains("changed"));
}

/// Another user of this machine, who waits until the folder of a running job is gone.
fn another_user_cannot_have_code_run_in_a_job_that_goes_on() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    // This folder itself lets them in.
    std::fs::set_permissions(place.folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let later = "(while [ ! -e go ]; do sleep 0.02; done; python3 -c 'print(1)' >out 2>err; echo $? >code) \
                 >/dev/null 2>&1 & echo $PYTHONPATH";
    let ran = place.run(&[], &["sh", "-c", later]);
    assert_eq!(ran.code(), 0, "{}", ran.err());
    let folder = ran.out().trim().to_owned();
    let attack = "mkdir -p \"$1\" && echo \"open('$2', 'w')\" >\"$1/sitecustomize.py\"";
    let mark = place.path("owned");
    let attacked = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", attack, "sh", &folder, &mark])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&attacked.stderr);
    std::fs::write(place.path("go"), "").unwrap();
    wait_for("the job ends", || !std::fs::read_to_string(place.path("code")).unwrap_or_default().is_empty());
    let read = |name: &str| std::fs::read_to_string(place.path(name)).unwrap();
    assert_eq!((read("code"), read("out")), ("0\n".into(), "1\n".into()), "{}", read("err"));
    assert!(!Path::new(&mark).exists(), "code of another user ran in the job: {folder}");
    assert!(!attacked.status.success() && said.contains("ermission denied"), "{said}");
}

/// The next recorder removes what a killed one left, a day later. The job and every Python that it starts go on without
/// it.
fn the_folder_of_a_killed_recorder_goes_and_that_of_a_living_one_stays() {
    let place = Place::new();
    let cache = place.folder.path().join("cache/habitat-tui");
    let there = || -> Vec<PathBuf> {
        let all = std::fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path());
        let mut all: Vec<_> = all.filter(|path| path.join("socket").exists()).collect();
        all.sort();
        all
    };
    let age = || {
        let done =
            Command::new("find").arg(&cache).args(["-exec", "touch", "-h", "-t", "202001010000", "{}", "+"]).status();
        assert!(done.unwrap().success());
    };
    let go = |name: &str| std::fs::write(place.path(name), "").unwrap();
    let later = ">runs-1; while [ ! -e go-1 ]; do sleep 0.02; done; python3 -c 'print(1)' >out 2>err; echo $? >code";
    let mut killed = place.start(&[], &["sh", "-c", later]);
    wait_for("the first job runs", || Path::new(&place.path("runs-1")).exists());
    let dead = there();
    assert_eq!(dead.len(), 1);
    let living = place.start(&[], &["sh", "-c", ">runs-2; while [ ! -e go-2 ]; do sleep 0.02; done"]);
    wait_for("the second one runs", || Path::new(&place.path("runs-2")).exists());
    killed.kill().unwrap();
    killed.wait().unwrap();
    let next = || assert_eq!(place.run(&[], &["true"]).code(), 0);
    next();
    assert_eq!(there().len(), 2, "a job may still write a trace there");
    age();
    next();
    let left = there();
    assert!(left.len() == 1 && left[0] != dead[0], "{left:?}");
    go("go-2");
    assert_eq!(place.end(living).code(), 0);
    assert_eq!(there().len(), 0);
    go("go-1");
    if Command::new("python3").arg("--version").output().is_ok() {
        wait_for("the job ends", || !std::fs::read_to_string(place.path("code")).unwrap_or_default().is_empty());
        let read = |name: &str| std::fs::read_to_string(place.path(name)).unwrap();
        assert_eq!((read("code"), read("out"), read("err")), ("0\n".into(), "1\n".into(), String::new()));
    }
}

/// A client that sends anything, as often as it can.
#[cfg(target_os = "linux")]
fn whoever_floods_the_socket_takes_neither_memory_nor_threads(python: &str) {
    let place = Place::new();
    let ran = place.run(&[], &[python, &fixture("flood.py")]);
    let said = ran.out();
    let numbers: Vec<u64> = said.split_whitespace().map(|word| word.parse().unwrap()).collect();
    eprintln!("flooded: {} MB, {} threads at the most", numbers[0] / 1024, numbers[1]);
    // 128 at a time; on a busy machine a client that gave up may still be there.
    assert!(numbers[0] < 250_000 && numbers[1] < 256, "{said}");
    assert_eq!(ran.code(), 0);
    assert!(ran.err().len() < 200_000, "{} bytes of notes", ran.err().len());
}

/// An interrupted trace of shapes ends its Python and removes its files.
fn an_interrupted_trace_of_shapes_leaves_nothing() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    std::fs::write(place.path("t.py"), "").unwrap();
    std::fs::write(place.path("python"), "#!/bin/sh\necho $$ >pid.part; mv pid.part pid\nexec sleep 60\n").unwrap();
    std::fs::set_permissions(place.path("python"), std::fs::Permissions::from_mode(0o755)).unwrap();
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let traces =
            place.habitat(&["trace-shapes", "t.py:f", "--python", "./python"]).stderr(Stdio::piped()).spawn().unwrap();
        let pid = || std::fs::read_to_string(place.path("pid")).ok().and_then(|pid| pid.trim().parse::<u32>().ok());
        wait_for("its Python runs", || pid().is_some());
        let python = pid().unwrap();
        signal(traces.id(), name);
        assert_eq!(traces.wait_with_output().unwrap().status.code(), Some(code), "{name}");
        assert!(!is_running(python), "{name}");
        let left: Vec<_> = std::fs::read_dir(place.path("cache/habitat-tui")).unwrap().flatten().collect();
        assert!(left.len() == 1 && left[0].file_name().to_str().unwrap().starts_with("shapes-"), "{left:?}");
        std::fs::remove_file(place.path("pid")).unwrap();
    }
}

fn signals_reach_the_job(python: &str) {
    for (name, code) in [("TERM", 143), ("INT", 9), ("USR1", 10)] {
        let place = Place::new();
        let program = "import signal, sys, time\n\
            def end(code): return lambda *_: sys.exit(code)\n\
            signal.signal(signal.SIGINT, end(9)); signal.signal(signal.SIGUSR1, end(10))\n\
            open('ready', 'w').close()\n\
            for _ in range(600): time.sleep(0.1)";
        let child = place.start(&[], &[python, "-c", program]);
        wait_for("the job is ready", || Path::new(&place.path("ready")).exists());
        signal(child.id(), name);
        assert_eq!(place.end(child).code(), code, "{name}");
    }
}

fn a_job_is_ended_after_the_time_given() {
    let began = Instant::now();
    let bare = Place::new().run(&["--timeout", "30"], &["sh", "-c", "echo started"]);
    assert_eq!((bare.code(), bare.out().as_str()), (2, ""), "{}", bare.err());
    assert!(bare.err().contains("30 lacks a unit: write 30s, 30m or 30h"), "{}", bare.err());
    let ran = Place::new().run(&["--timeout", "1s"], &["sleep", "60"]);
    assert_eq!((ran.code(), ran.seen["ended_by_habitat"].as_bool()), (143, Some(true)));
    assert!(began.elapsed() < Duration::from_secs(20));
    assert!(ran.err().contains("the job was stopped by --timeout after 1 s; nothing recorded"), "{}", ran.err());
}

/// In a terminal the job has the foreground: it can read, and gets Ctrl-C itself. (It sleeps in short naps: Python
/// notices a signal just before `time.sleep` only after the sleep.)
fn in_a_terminal_the_job_reads_and_gets_the_keys(python: &str) {
    use std::io::{Read, Write};
    let pty = portable_pty::native_pty_system().openpty(portable_pty::PtySize::default()).unwrap();
    let place = Place::new();
    let mut command = portable_pty::CommandBuilder::new(env!("CARGO_BIN_EXE_habitat-tui"));
    let program = "name = input('name? ')\n\
        import time\n\
        try:\n    print('hello', name, flush=True)\n    for _ in range(600): time.sleep(0.1)\n\
        except KeyboardInterrupt: print('interrupted', flush=True); raise SystemExit(4)";
    command.args(["run", "-q", "-o", "p.habitat.json", "--", python, "-c", program]);
    command.cwd(place.folder.path());
    let mut child = pty.slave.spawn_command(command).unwrap();
    drop(pty.slave);
    let mut reader = pty.master.try_clone_reader().unwrap();
    let mut writer = pty.master.take_writer().unwrap();
    let (send, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = reader.read(&mut buffer) {
            send.send(String::from_utf8_lossy(&buffer[..read]).into_owned()).unwrap_or_default();
        }
    });
    let mut text = String::new();
    let mut until = |what: &str| {
        while !text.contains(what) {
            text += &heard.recv_timeout(Duration::from_secs(30)).unwrap_or_else(|_| panic!("no {what:?} in {text:?}"));
        }
    };
    until("name?");
    writer.write_all(b"world\n").unwrap();
    until("hello world");
    writer.write_all(b"\x03").unwrap();
    until("interrupted");
    assert_eq!(child.wait().unwrap().exit_code(), 4);
}

// ----- with PyTorch

/// A scenario that ends in a profile: name, job, options, and expectations.
struct Scenario {
    name: &'static str,
    job: Vec<String>,
    options: Vec<&'static str>,
    steps: Vec<u64>,
    windows: Vec<(u64, u64)>,
    batch: Option<u64>,
}

fn scenarios(python: &str) -> Vec<Scenario> {
    let py = |words: &[&str]| -> Vec<String> {
        std::iter::once(python.to_owned())
            .chain(words.iter().map(|word| {
                if Path::new(word).extension().is_some_and(|e| e == "py") { fixture(word) } else { (*word).to_owned() }
            }))
            .collect()
    };
    let usual =
        |name, job| Scenario { name, job, options: vec![], steps: vec![40], windows: vec![(11, 13)], batch: Some(8) };
    let torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "distributed.py"];
    vec![
        usual("plain script", py(&["plain.py"])),
        usual("python -m", py(&["-m", "plain"])),
        Scenario {
            options: vec!["--steps", "20..21"],
            windows: vec![(20, 21)],
            ..usual("--steps 20..21", py(&["plain.py"]))
        },
        Scenario {
            options: vec!["--windows", "2", "--memory"],
            windows: vec![(11, 13), (24, 26)],
            steps: vec![60],
            ..usual("two windows, memory", py(&["slow.py", "progress", "60"]))
        },
        Scenario { steps: vec![32], ..usual("DataLoader fork", py(&["loader.py", "fork"])) },
        Scenario { steps: vec![32], ..usual("DataLoader spawn", py(&["loader.py", "spawn"])) },
        usual("torch.compile", py(&["compiled.py"])),
        Scenario { steps: vec![40, 40], ..usual("torchrun, 2 ranks", py(&torchrun)) },
        Scenario {
            steps: vec![40, 40],
            windows: vec![(11, 13), (11, 13)],
            options: vec!["--all-ranks"],
            ..usual("torchrun, all ranks", py(&torchrun))
        },
        usual("autocast, GradScaler", py(&["autocast.py"])),
        Scenario { batch: Some(32), ..usual("accumulation of 4", py(&["accumulation.py"])) },
        usual("two optimizers", py(&["two_optimizers.py"])),
        Scenario {
            steps: vec![40, 40],
            windows: vec![(11, 13), (11, 13)],
            ..usual("in a fork, in a spawn", py(&["forked.py"]))
        },
        usual("Lightning", py(&["lightning_trainer.py"])),
        usual("Hugging Face Trainer", py(&["hf_trainer.py"])),
    ]
}

/// Trainings that need more than PyTorch 2.1: each is a separate test.
const WITH_MORE: [&str; 4] = ["torch.compile", "autocast, GradScaler", "Lightning", "Hugging Face Trainer"];

/// The interpreter, if this package is installed beside PyTorch.
fn torch_and(package: &str) -> Need<String> {
    let python = torch()?;
    let ask = format!("import importlib.metadata; importlib.metadata.version('{package}')");
    let installed = Command::new(&python).args(["-c", &ask]).output().unwrap().status.success();
    if installed { Ok(python) } else { Err(format!("{package} is not installed")) }
}

fn every_way_to_train_is_recorded_and_none_is_changed(python: &str) {
    ways_to_train(python, |name| !WITH_MORE.contains(&name));
}

fn torch_compile_is_recorded_and_not_changed(python: &str) {
    ways_to_train(python, |name| name == WITH_MORE[0]);
}

fn a_grad_scaler_is_recorded_and_not_changed(python: &str) {
    ways_to_train(python, |name| name == WITH_MORE[1]);
}

fn lightning_is_recorded_and_not_changed(python: &str) {
    ways_to_train(python, |name| name == WITH_MORE[2]);
}

fn the_hugging_face_trainer_is_recorded_and_not_changed(python: &str) {
    ways_to_train(python, |name| name == WITH_MORE[3]);
}

fn ways_to_train(python: &str, is_chosen: impl Fn(&str) -> bool) {
    let row = |cells: [&str; 6]| {
        let [name, steps, windows, operations, batch, code] = cells;
        eprintln!("{name:<22} {steps:>9} {windows:>16} {operations:>10} {batch:>6} {code:>10}");
    };
    row(["scenario", "steps", "recorded", "operations", "batch", "exit code"]);
    for scenario in scenarios(python).into_iter().filter(|scenario| is_chosen(scenario.name)) {
        let name = scenario.name;
        // If a rank fails, torchrun ends the others, whose last line may be lost.
        let code = if name.starts_with("torchrun") { "0" } else { "6" };
        let place = Place::with("EXIT_CODE", code);
        let place = if name == "python -m" {
            let fixtures = fixtures().to_str().unwrap().to_owned();
            Place { variables: vec![("PYTHONPATH".into(), fixtures), ("EXIT_CODE".into(), "6".into())], ..place }
        } else {
            place
        };
        let job = words(&scenario.job);
        let (ran, bare) = (place.run(&scenario.options, &job), place.bare(&job));
        let bare_err = String::from_utf8_lossy(&bare.stderr);
        assert_eq!(Some(ran.code()), bare.status.code(), "{name}: {}\nwithout us: {bare_err}", ran.err());
        assert_eq!(ran.out(), String::from_utf8_lossy(&bare.stdout), "{name}: the output is the job's own");
        let profile = ran.profile.as_ref().unwrap_or_else(|| panic!("{name}: {}\n{}", ran.err(), ran.seen));
        assert_eq!(ran.steps(), scenario.steps, "{name}: {}", ran.seen);
        let mut windows = ran.windows();
        if let (true, [_, second]) = (name == "two windows, memory", &mut windows[..]) {
            // Ten steps after the first window, or as soon as its trace is written.
            assert!(second.0 >= 24 && second.1 == second.0 + 2, "{name}: {second:?}");
            *second = (24, 26);
        }
        assert_eq!(windows, scenario.windows, "{name}: {}", ran.seen);
        assert_eq!(profile.workload.batch_size, scenario.batch, "{name}: {}", ran.notes());
        assert!(profile.origin.is_none() && profile.measured_step().is_none(), "{name}: no GPU, no origin");
        assert!(
            ran.seen["processes"].as_array().unwrap().iter().all(|process| process["faults"] == Value::Array(vec![]))
        );
        let phases: Vec<Phase> = profile.operations.iter().map(|operation| operation.phase).collect();
        for phase in [Phase::Forward, Phase::Backward, Phase::Optimizer] {
            assert!(name == "torch.compile" || phases.contains(&phase), "{name}: no {phase} in {phases:?}");
        }
        let products = |phase| {
            let all = profile.operations.iter().filter(|o| o.phase == phase && o.name.contains("mm"));
            all.map(|operation| operation.count).sum::<u32>()
        };
        if !matches!(name, "torch.compile" | "two optimizers") {
            let parts = if name.starts_with("accumulation") { 4 } else { 1 };
            assert_eq!(products(Phase::Forward), 2 * parts, "{name}");
            assert_eq!(profile.workload.parameter_count, Some(16 * 32 + 32 + 32 * 4 + 4), "{name}");
        }
        let windows: Vec<String> = ran.windows().iter().map(|(first, last)| format!("{first}-{last}")).collect();
        let steps: Vec<String> = ran.steps().iter().map(u64::to_string).collect();
        let batch = profile.workload.batch_size.map_or_else(|| "-".to_owned(), |batch| batch.to_string());
        let (operations, code) = (profile.operations.len().to_string(), ran.code().to_string());
        row([name, &steps.join(", "), &windows.join(", "), &operations, &batch, &code]);
        if name.starts_with("autocast") {
            assert_eq!(profile.workload.precision, Some(Precision::AmpBf16));
        } else {
            let expected = if name.starts_with("accumulation") { Precision::Tf32Products } else { Precision::Fp32 };
            assert_eq!(profile.workload.precision, Some(expected), "{name}");
        }
        if name == "two windows, memory" {
            assert!(ran.notes().contains("2 windows"), "{}", ran.notes());
        }
        assert_eq!(
            ran.profile.as_ref().unwrap().recording.as_ref().unwrap().ranks,
            name.ends_with("all ranks").then_some(2)
        );
    }
}

fn the_users_profiler_loses_nothing(python: &str) {
    for kind in ["whole", "late", "schedule"] {
        let place = Place::new();
        let script = fixture("users_profiler.py");
        let job = [python, script.as_str(), kind];
        let (ran, bare) = (place.run(&[], &job), place.bare(&job));
        let (with, without) = (ran.out(), String::from_utf8_lossy(&bare.stdout).into_owned());
        let but_events = |out: &str| out.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(but_events(&with), but_events(&without), "{kind}: products with us and without");
        // 2.1 loses a few of its own events, different ones each time.
        if torch_version(python) > (2, 1) {
            assert_eq!(with, without, "{kind}: events with us and without");
        }
        eprintln!("{kind}: {}", ran.out().lines().next().unwrap());
        match kind {
            "whole" => {
                assert!(ran.profile.is_none());
                assert!(ran.err().contains("its own profiler"), "{}", ran.err());
            }
            // Dropped at first, recorded once the user's profiler is done.
            _ => assert!(ran.profile.is_some(), "{kind}: {}", ran.seen),
        }
    }
}

fn a_job_that_ends_in_the_window_is_left_to(python: &str) {
    for (how, code) in [("raise", 1), ("kill", 137), ("exit", 5)] {
        let place = Place::new();
        let script = fixture("crash.py");
        let job = [python, script.as_str(), how];
        let (ran, bare) = (place.run(&[], &job), place.bare(&job));
        assert_eq!(ran.code(), code, "{how}: {}", ran.err());
        assert!(ran.output.stderr.starts_with(&bare.stderr), "{how}: {}", ran.err());
        assert!(
            ran.err().contains("during the recording") || ran.err().contains("in the window"),
            "{how}: {}",
            ran.err()
        );
        assert!(ran.profile.is_none(), "{how}");
    }
}

fn what_keeps_a_job_from_being_recorded_is_said(python: &str) {
    let ran = Place::new().run(&[], &[python, &fixture("no_steps.py")]);
    assert_eq!((ran.code(), ran.out().as_str()), (0, "done\n"));
    assert!(ran.err().contains("no torch optimizer made a step"), "{}", ran.err());
    let place = Place::with("STEPS", "7");
    let ran = place.run(&[], &[python, &fixture("plain.py")]);
    assert_eq!(ran.code(), 0);
    assert!(ran.err().contains("made 7 steps") && ran.err().contains("try --after 4 --window 3"), "{}", ran.err());
    let ran = place.run(&["--after", "4"], &[python, &fixture("plain.py")]);
    assert_eq!(ran.windows(), [(5, 7)], "what was advised works: {}", ran.err());
    assert!(ran.profile.is_some());
}

fn training_goes_on_when_we_are_killed(python: &str) {
    // Killed before the window, in it, and after it.
    for at in [5, 12, 20] {
        let place = Place::new();
        let progress = place.path("progress");
        // A window long enough to hit.
        let script = fixture("slow.py");
        let job = [python, script.as_str(), progress.as_str(), "40"];
        let out = std::fs::File::create(place.path("out")).unwrap();
        let mut child = place
            .habitat(&["run", "-q", "-o", "p.habitat.json", "--window", "5", "--", "sh", "-c"])
            .arg(format!("'{}'; echo \"code $?\" >>'{}'", job.join("' '"), place.path("code")))
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn()
            .unwrap();
        let step = || std::fs::read_to_string(&progress).ok().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        wait_for("the step is reached", || step() >= at);
        signal(child.id(), "KILL");
        child.wait().unwrap();
        wait_for("the job ends", || Path::new(&place.path("code")).exists());
        assert_eq!(step(), 40, "all steps were made");
        assert_eq!(std::fs::read_to_string(place.path("code")).unwrap(), "code 0\n");
        let bare = place.bare(&job);
        assert_eq!(std::fs::read_to_string(place.path("out")).unwrap(), String::from_utf8_lossy(&bare.stdout), "{at}");
    }
}

fn words(job: &[String]) -> Vec<&str> {
    job.iter().map(String::as_str).collect()
}

fn two_at_once_and_one_that_is_stopped_when_recorded(python: &str) {
    let (one, two) = (Place::new(), Place::new());
    let slow = |place: &Place| vec![python.to_owned(), fixture("slow.py"), place.path("progress"), "2000".to_owned()];
    let (first, second) = (slow(&one), slow(&two));
    let (a, b) = (
        one.start(&["--stop-after-recording"], &words(&first)),
        two.start(&["--stop-after-recording"], &words(&second)),
    );
    for (place, child) in [(&one, a), (&two, b)] {
        let ran = place.end(child);
        assert_eq!((ran.code(), ran.seen["ended_by_habitat"].as_bool()), (0, Some(true)), "{}", ran.err());
        assert_eq!(ran.windows(), [(11, 13)]);
        assert_eq!(ran.steps().len(), 1, "each hears its own job only");
        assert!(ran.profile.is_some());
    }
}

fn one_job_at_several_batch_sizes(python: &str) {
    let place = Place::new();
    let ran = place.run(&["--batches", "16,13,48"], &[python, &fixture("sized.py"), "--batch-size={batch}"]);
    assert_eq!(ran.code(), 3, "the job at 13 failed: {}", ran.err());
    assert!(ran.err().contains("batch size 13 was not recorded"), "{}", ran.err());
    for batch in [16, 48] {
        let json = std::fs::read(place.path(&format!("p-b{batch}.habitat.json"))).unwrap();
        let profile = Profile::from_json(&json).unwrap().0;
        assert_eq!(profile.workload.batch_size, Some(batch));
        assert!(Path::new(&place.path(&format!("seen-b{batch}.json"))).exists());
    }
    for (batch, place) in [(16, "1 of 3"), (48, "3 of 3")] {
        let line = format!("habitat-tui: batch size {batch} ({place}): ");
        let told = ran.err();
        let lines: Vec<&str> = told.lines().filter_map(|it| it.strip_prefix(&line)).collect();
        assert_eq!(lines.len(), 2, "before and after: {told}");
        let recorded = " steps seen, recorded 11–13, a step took ";
        let wrote = format!("; wrote p-b{batch}.habitat.json after ");
        assert!(lines[0].contains("sized.py") && lines[1].contains(recorded) && lines[1].contains(&wrote), "{told}");
    }
    assert_eq!(ran.err().matches("next:").count(), 1, "{}", ran.err());
    assert!(
        ran.err().contains("next: habitat-tui batches p-b16.habitat.json p-b48.habitat.json --to h100-sxm5-80gb,l4"),
        "{}",
        ran.err()
    );
}

fn a_profile_is_there_while_the_job_goes_on(python: &str) {
    let place = Place::new();
    let child = place.start(&[], &[python, &fixture("slow.py"), &place.path("progress"), "2000"]);
    wait_for("the profile is written", || Path::new(&place.path("p.habitat.json")).exists());
    assert!(is_running(child.id()));
    signal(child.id(), "TERM");
    let ran = place.end(child);
    assert_eq!(ran.code(), 143);
    let how = "job ended by SIGTERM, sent to habitat-tui and passed on; next:";
    assert!(ran.err().contains("the job keeps running") && ran.err().contains(how), "{}", ran.err());
}

/// A full device: the profile cannot be written, the traces are kept.
#[cfg(target_os = "linux")]
fn a_full_disk_costs_the_profile_but_not_the_traces(python: &str) {
    let place = Place::new();
    let output =
        place.habitat(&["run", "-o", "/dev/full", "--force", "--", python, &fixture("plain.py")]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("No space left"), "{said}");
    let kept = said.lines().find_map(|line| line.split("kept the recorded traces in ").nth(1)).unwrap();
    let traces = std::fs::read_dir(kept)
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("trace-"));
    assert_eq!(traces.count(), 1);
    assert!(!Path::new(kept).join("habitat-tui.lock").exists(), "what is kept is never removed by us");
    std::fs::remove_dir_all(kept).unwrap();
}

/// Linear(16, 32) and BatchNorm1d(32) are trained: 16·32 + 32 + 2·32 = 608 numbers; Linear(32, 4) with 132 is frozen;
/// the buffers are two times 32 floats and a 64-bit count. Adam keeps two numbers for each trained one, and a step
/// count for each of four tensors.
fn what_stays_in_memory_is_measured(python: &str) {
    let ran = Place::new().run(&["--memory"], &[python, &fixture("memory.py")]);
    assert_eq!(ran.code(), 0, "{}", ran.err());
    let parameters = 4 * (608 + 132) + 4 * 64 + 8;
    let (gradients, state) = (4 * 608, 2 * 4 * 608 + 4 * 4);
    let shown = |bytes: u32| Bytes::new(f64::from(bytes)).unwrap().to_string();
    let expected = format!(
        "parameters and buffers {}, gradients {}, optimizer state {}, measured",
        shown(parameters),
        shown(gradients),
        shown(state)
    );
    assert!(ran.notes().contains(&expected), "{expected}\n{}", ran.notes());
    assert!(ran.profile.unwrap().step.is_none_or(|step| step.memory.is_none()), "a CPU's peak is not known");
}

fn a_window_waits_for_the_capture_of_a_graph(python: &str) {
    let place = Place::new();
    let ran = place.run(&[], &[python, &fixture("capturing.py")]);
    assert_eq!(ran.code(), 0, "{}", ran.err());
    // It closes after step 19 and excludes the steps after the last one.
    assert_eq!(ran.windows(), [(14, 16)], "{}", ran.seen);
    assert_eq!(ran.seen["steps_used"], 3, "{}", ran.seen);
}

fn a_validation_in_the_window_ends_it(python: &str) {
    let place = Place::new();
    let job = [python, &fixture("validates.py")];
    let (ran, bare) = (place.run(&[], &job), place.bare(&job));
    assert_eq!((ran.code(), ran.out()), (0, String::from_utf8_lossy(&bare.stdout).into_owned()), "{}", ran.err());
    assert_eq!(ran.windows(), [(23, 25)], "{}", ran.seen);
    let dropped = ran.seen["processes"][0]["dropped"].to_string();
    assert!(dropped.contains("did a validation begin?"), "{}", ran.seen);
}

/// Memory that the job itself adds at every step does not end a window; memory of a validation does, within the time
/// that the window may be open.
fn memory_that_grows_at_every_step_is_no_validation(python: &str) {
    let recorded = |kind: &str| Place::new().run(&[], &[python, &fixture("grows.py"), kind]);
    for kind in ["caches", "closures"] {
        let ran = recorded(kind);
        assert_eq!(ran.windows(), [(11, 13)], "{kind}: {}", ran.seen);
    }
    let ran = recorded("validates");
    let dropped = ran.seen["processes"][0]["dropped"].to_string();
    assert!(dropped.contains("MB more memory in it; did a validation begin?"), "{}", ran.seen);
    assert_eq!(ran.windows(), [(23, 25)], "{}", ran.seen);
}

/// The job's own profiler is on for 70 steps: more windows are dropped than are tried in quick succession.
fn a_window_is_tried_again_however_many_were_dropped(python: &str) {
    let ran = Place::new().run(&["--after", "2"], &[python, &fixture("grows.py"), "profiled"]);
    assert!(ran.profile.is_some(), "{}", ran.seen);
    let [(first, last)] = ran.windows()[..] else { panic!("{}", ran.seen) };
    assert!(first > 70 && last == first + 2, "{}", ran.seen);
}

/// The window has one batch per step; later steps accumulate the gradients of four.
fn steps_that_do_more_than_the_recorded_ones_are_noted(python: &str) {
    let ran = Place::new().run(&[], &[python, &fixture("ramps.py")]);
    assert_eq!(ran.windows(), [(11, 13)], "{}", ran.seen);
    assert!(ran.err().contains("times the autograd nodes of the recorded ones"), "{}", ran.err());
    let times = ran.seen["processes"][0]["later_work"].as_f64().unwrap();
    assert!((3.5..4.5).contains(&times), "{times}");
    // Two batches in the window; the model gets one in the step before it.
    let ran = Place::new().run(&[], &[python, &fixture("ramps.py"), "twice"]);
    let times = ran.seen["processes"][0]["later_work"].as_f64().unwrap();
    assert!((1.8..2.2).contains(&times), "{times}");
    assert!(ran.err().contains("did 2.0 times the work of the one before them, which had 1 call of"), "{}", ran.err());
    let even = Place::new().run(&[], &[python, &fixture("plain.py")]);
    assert!(even.seen["processes"][0]["later_work"].is_null(), "{}", even.seen);
}

/// Other programs delay the recorded steps of a job without a GPU: no prediction uses their time.
fn steps_on_a_cpu_are_not_judged_by_their_time(python: &str) {
    let ran = Place::new().run(&[], &[python, &fixture("ramps.py"), "delayed"]);
    assert!(ran.profile.is_some(), "{}", ran.err());
    assert!(ran.err().contains("or other programs delayed them"), "{}", ran.err());
}

/// Code that exports or compiles a model in the watched step gets the usual result.
fn exports_in_the_step_looked_at_are_as_they_would_be(python: &str) {
    for how in ["export", "strict", "compile", "trace"] {
        let place = Place::new();
        let script = fixture("exports.py");
        let job = [python, script.as_str(), how];
        let (ran, bare) = (place.run(&[], &job), place.bare(&job));
        assert_eq!(Some(ran.code()), bare.status.code(), "{how}: {}", ran.err());
        assert_eq!(ran.out(), String::from_utf8_lossy(&bare.stdout), "{how}: {}", ran.err());
        assert!(!ran.err().contains("TracerWarning"), "{how}: {}", ran.err());
        assert_eq!(ran.windows(), [(11, 13)], "{how}: {}", ran.seen);
    }
}

/// Jobs that leave little room: the report explains what was not recorded, and the job's output stays the same.
fn crowded_jobs_are_left_as_they_are(python: &str) {
    for how in ["signals", "files", "optimizers", "nested"] {
        let place = Place::new();
        let script = fixture("crowded.py");
        let job = [python, script.as_str(), how];
        let (ran, bare) = (place.run(&[], &job), place.bare(&job));
        assert_eq!(Some(ran.code()), bare.status.code(), "{how}: {}", ran.err());
        assert_eq!(ran.out(), String::from_utf8_lossy(&bare.stdout), "{how}: {}", ran.err());
        let own: Vec<_> = ran.err().lines().filter(|line| line.contains(".cpp:")).map(str::to_owned).collect();
        assert!(own.is_empty(), "{how}: {own:?}");
        if how == "files" {
            assert!(ran.err().contains("no file descriptor left for its trace (ulimit -n)"), "{}", ran.err());
            continue;
        }
        assert_eq!(ran.windows(), [(11, 13)], "{how}: {}", ran.seen);
        let parameters = ran.profile.unwrap().workload.parameter_count;
        assert_eq!(parameters, Some(if how == "optimizers" { 20 * 272 } else { 676 }), "{how}");
    }
}

/// The batch size is that of the model's input, or the report explains why it is unknown; and the operators are those
/// of the step: counted by hand, the optimizer's as a GPU runs them.
fn what_a_step_processes_is_found_or_it_is_said_why_not(python: &str) {
    let products = |ran: &Ran, phase: Phase| -> u32 {
        let operations = &ran.profile.as_ref().unwrap().operations;
        let is_product = |name: &str| matches!(name, "aten::addmm" | "aten::mm");
        operations.iter().filter(|one| one.phase == phase && is_product(&one.name)).map(|one| one.count).sum()
    };
    // Products of the forward and of the backward pass: the first layer's input has no gradient.
    for (kind, batch, forward, backward, note) in [
        ("loader", Some(12), 2, 3, "batch size 12 from the first input of Sequential, [12, 16]"),
        // The loader's batches differ from the network's rows.
        (
            "pairs in rows",
            Some(24),
            2,
            3,
            "batch size 24 (rows of the model's input), from the first input of Sequential, [24, 16]; the DataLoader supplies 12 \
             per step: --batch-size 12 counts those",
        ),
        (
            "pictures in a list",
            Some(12),
            2,
            3,
            "batch size 12 from the DataLoader's batch_size 12 (Given takes a list of tensors)",
        ),
        (
            "tokens in a row",
            Some(12),
            0,
            0,
            "batch size 12 from the DataLoader's batch_size 12 (the input of Given, [240]",
        ),
        ("closure on a loader", Some(12), 0, 0, "batch_size 12 (the optimizer evaluates its closure"),
        ("ready batches", Some(12), 2, 3, "the DataLoader has no fixed batch size"),
        ("keywords", Some(12), 2, 3, "batch size 12 from the first input of Given, [12, 16]"),
        ("dictionary", Some(12), 2, 3, "batch size 12 from the first input of Given, [12, 16]"),
        ("list", None, 2, 3, "Given takes a list of tensors; --batch-size sets it"),
        ("sequence first", None, 0, 0, "[35, 12], the sequence may come first"),
        ("graph", None, 2, 3, "begin with different extents, [270, 16] and [2, 1000]"),
        ("acts", None, 24, 36, "a step has 12 calls of the model, 1 backward pass, 1 optimizer step"),
        ("learns from what it did", Some(12), 4, 3, "batch size 12 from"),
        ("pairs", None, 4, 6, "a step has 2 calls of the model, 1 backward pass"),
        ("closure", None, 0, 0, "the optimizer evaluates its closure"),
        // Recomputation stops before the last product of the block.
        ("checkpoints", Some(12), 2, 4, "batch size 12 from the first input of Given, [12, 16]"),
        ("adversary", None, 4, 7, "each with a backward pass: on different batches, or on one again"),
        ("twice", None, 4, 6, "each with a backward pass: on different batches, or on one again"),
        (
            "accumulates",
            Some(24),
            4,
            6,
            "batch size 24 from the first input of Sequential, [12, 16] × 2 forward passes",
        ),
        ("short", Some(12), 2, 3, "batch size 12 from the first input of Sequential, [12, 16]"),
        ("clips", Some(12), 2, 3, "operations on single tensors are replaced by the 8 on lists"),
        ("validates", Some(12), 2, 3, "step 13 was left out: it took"),
        ("fused", Some(12), 20, 39, "batch size 12 from"),
        ("in lists", Some(12), 20, 39, "batch size 12 from"),
    ] {
        let ran = Place::new().run(&[], &[python, &fixture("kinds.py"), kind]);
        let (notes, said) = (ran.notes(), ran.err());
        let profile = ran.profile.as_ref().unwrap_or_else(|| panic!("{kind}: {said}"));
        let old = torch_version(python) < (2, 2);
        if old && kind == "keywords" {
            continue; // 2.2 and later record a module's keywords.
        }
        assert_eq!(profile.workload.batch_size, batch, "{kind}: {notes}");
        assert!(old || notes.contains(note), "{kind}: {notes}");
        if forward > 0 {
            let found = (products(&ran, Phase::Forward), products(&ran, Phase::Backward));
            assert_eq!(found, (forward, backward), "{kind}: {:?}", profile.operations);
        }
        let elements = |name: &str| -> Option<u64> {
            let operation = profile.operations.iter().find(|one| one.name == name && one.phase == Phase::Optimizer)?;
            Some(operation.inputs.iter().map(|shape| shape.iter().product::<u64>()).sum())
        };
        match kind {
            // 20 layers of 272 parameters, with gradients and two moments.
            "fused" => assert_eq!(elements("aten::_fused_adamw_"), Some(4 * 20 * 272), "{:?}", profile.operations),
            "in lists" => assert_eq!(elements("aten::_foreach_addcdiv_"), Some(3 * 20 * 272)),
            "clips" if !old => assert_eq!(elements("aten::_foreach_norm"), Some(676), "{:?}", profile.operations),
            _ => {}
        }
    }
}

/// The suggested next command works as printed, whatever the file names.
fn the_next_command_works_as_it_is(python: &str) {
    let next = |said: &str| {
        let line = said.lines().rev().find_map(|line| line.split_once("next: ")).unwrap_or_else(|| panic!("{said}")).1;
        line.replace("habitat-tui ", &format!("'{}' ", env!("CARGO_BIN_EXE_habitat-tui")))
    };
    let script = fixture("sized.py");
    let sized = [python, script.as_str(), "--batch-size={batch}"];
    let plain = fixture("plain.py");
    for (options, job) in [
        (&["-o", "it's mine.habitat.json", "--batches", "4,8"][..], &sized[..]),
        (&["-o", "it's mine.habitat.json"], &[python, &plain]),
    ] {
        let place = Place::new();
        let output = place
            .command(env!("CARGO_BIN_EXE_habitat-tui"))
            .arg("run")
            .args(options)
            .arg("--")
            .args(job)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let command = next(&said);
        let output = place.command("sh").args(["-c", &command]).output().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).contains("h100"), "{command}");
    }
}

/// Reports how the job ended, and gives advice if it helps.
fn who_ended_a_job_and_why_nothing_was_recorded_is_said(python: &str) {
    let place = Place::new();
    let script = fixture("slow.py");
    let ran = place.run(&["--after", "5000", "--timeout", "12s"], &[python, &script, &place.path("progress"), "9000"]);
    let said = ran.err();
    assert!(said.contains("the job was stopped by --timeout after 12 s; nothing recorded: the job made"), "{said}");
    assert!(said.contains("try a longer --timeout, or --after"), "{said}");
    let ran = Place::new().run(&[], &[python, &fixture("crash.py"), "kill"]);
    let said = ran.err();
    assert!(said.contains("killed by SIGKILL") && said.contains("out of memory?") && !said.contains("try "), "{said}");
}

/// Autograd removes a profiler that was started in one of its hooks.
fn no_window_opens_where_the_optimizer_steps_in_backward(python: &str) {
    let ran = Place::new().run(&[], &[python, &fixture("in_backward.py")]);
    assert_eq!(ran.code(), 0, "{}", ran.err());
    assert!(ran.err().contains("nothing recorded: the optimizer steps inside backward()"), "{}", ran.err());
}

/// Every step in its own thread; the last one ends inside the window if there are 12.
fn training_in_other_threads_is_recorded_or_left_alone(python: &str) {
    let ask = "import torch; torch._C._profiler._ExperimentalConfig(profile_all_threads=True)";
    let can_all = Command::new(python).args(["-c", ask]).output().unwrap().status.success();
    for (how, steps, window) in [("each", 40, (11, 13)), ("each", 12, (11, 12)), ("from-11", 40, (0, 0))] {
        let ran = Place::new().run(&[], &[python, &fixture("in_threads.py"), how, &steps.to_string()]);
        assert_eq!(ran.code(), 0, "{how}: {}", ran.err());
        assert_eq!(ran.out().contains("events of its own: True"), steps > 20, "{}", ran.err());
        if window == (0, 0) {
            // That window is dropped; a later one records all threads, if PyTorch can.
            let later = ran.windows();
            let is_later = can_all && later.len() == 1 && later[0].0 > 20;
            let reason = "the training went on in another thread";
            assert!(ran.seen.to_string().contains(reason) && (is_later || later.is_empty()), "{}", ran.seen);
        } else if can_all {
            assert_eq!(ran.windows(), [window], "{}", ran.seen);
        } else {
            assert!(ran.windows().is_empty() && ran.err().contains("a newer one can"), "{}", ran.err());
        }
    }
}

/// Whole programs: the batch size is that of the counted step, or unknown.
fn samples_and_parameters_are_those_of_the_step_that_is_counted(python: &str) {
    let program = |name: &str, how: &[&str]| {
        let place = Place::new();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/foreign/programs").join(name);
        let ran = place.run(&[], &[&[python, path.to_str().unwrap()], how].concat());
        let profile = ran.profile.as_ref().unwrap_or_else(|| panic!("{name}: {}", ran.err())).clone();
        let product = |columns: u64| {
            let is_one = |it: &&Operation| it.inputs.last().and_then(|shape| shape.last()) == Some(&columns);
            profile.operations.iter().find(is_one).map(|it| (it.name.clone(), it.inputs.clone()))
        };
        (profile.workload.batch_size, profile.workload.parameter_count, product(32), ran)
    };
    // One sample at a time, all at once.
    let (batch, _, product, ran) = program("functional.py", &[]);
    assert_eq!(batch, None, "{}", ran.seen);
    assert!(ran.seen.to_string().contains("torch.func.vmap"), "{}", ran.seen);
    let (_, inputs) = product.unwrap();
    assert!(inputs.iter().flatten().any(|extent| *extent == 12), "{inputs:?}");
    // An inner loop, whose optimizers are short-lived.
    let (batch, _, _, ran) = program("meta.py", &[]);
    assert_eq!(batch, Some(10));
    assert!(ran.seen.to_string().contains("of short-lived optimizers"), "{}", ran.seen);
    // Another thread trains its own model.
    if torch_version(python) >= (2, 15) {
        let (_, parameters, _, ran) = program("threads.py", &["two"]);
        assert_eq!(parameters, Some(676), "{}", ran.seen);
    }
}

fn a_profiler_that_the_program_begins_in_a_thread_is_whole(python: &str) {
    let ran = Place::new().run(&[], &[python, &fixture("profiled_in_a_thread.py")]);
    assert_eq!(ran.code(), 0, "{}", ran.err());
    assert!(ran.out().starts_with("events of its own: [True]\n"), "{}", ran.err());
    assert_eq!(ran.windows(), [(23, 25)], "the first was dropped: {}", ran.seen);
}

/// `PyTorch` crashes, or fails in the program, if two threads start or stop profilers at once.
fn the_programs_profiler_and_ours_never_overlap(python: &str) {
    for moment in ["starts", "stops", "ends"] {
        let ran = Place::new().run(&[], &[python, &fixture("overlapping.py"), moment]);
        assert_eq!(ran.code(), 0, "{moment}: {}", ran.err());
        let whole = "moment came: True own profiler whole: [True] overlaps: 0\n";
        assert!(ran.out().starts_with(whole), "{moment}: {}", ran.out());
        // Our window was about to open, and gave way.
        assert!(moment != "ends" || ran.seen.to_string().contains("users_profiler"), "{moment}: {}", ran.seen);
    }
}

fn what_the_programs_signal_handlers_raise_reaches_the_program(python: &str) {
    let ran = Place::new().run(&[], &[python, &fixture("alarms.py")]);
    assert!(ran.out().starts_with("caught 40 of 40\n"), "{}\n{}", ran.out(), ran.err());
    assert_eq!(ran.windows(), [(11, 13)], "{}", ran.seen);
}

fn signals_between_any_lines_of_ours_reach_the_program_and_leave_nothing_open(python: &str) {
    let ran = Place::new().run(&["--window", "1"], &[python, &fixture("interrupted.py")]);
    let out = "left open 0 events as before True\n";
    assert_eq!((ran.code(), ran.out().as_str()), (0, out), "{}", ran.err());
}

/// Kineto's destructor waits for a thread that a child of `os.fork()` lacks.
fn children_by_fork_end_as_they_would(python: &str) {
    let place = Place::new();
    let script = fixture("forks.py");
    let job = [python, script.as_str()];
    let (ran, bare) = (place.run(&[], &job), place.bare(&job));
    assert_eq!(Some(ran.code()), bare.status.code(), "{}", ran.err());
    assert_eq!(ran.out(), String::from_utf8_lossy(&bare.stdout), "{}", ran.err());
    assert!(ran.seen.to_string().contains("the process forked in it"), "{}", ran.seen);
}

/// An `LSTMCell` in a loop over time creates about 190 events per time step.
fn steps_of_very_many_operators_are_recorded_one_by_one_or_not_at_all(python: &str) {
    let script = fixture("many_operators.py");
    // Time steps, and those from the fifth step on; recorded steps; message.
    for (times, later, window, said) in [
        ("400", "400", Some((5, 5)), "operators: 1 of 3 steps recorded"),
        ("90", "90", Some((5, 6)), "operators: 2 of 3 steps recorded"),
        ("700", "700", None, "operators, too many to record (100000 at most)"),
        ("20", "2000", None, "its steps had more operators than those before"),
    ] {
        let place = Place::new();
        let job = [python, script.as_str(), times, later];
        let cost = |said: &str| -> Vec<f64> {
            let text = std::fs::read_to_string(place.path("cost")).unwrap_or_else(|_| panic!("{said}"));
            text.split_whitespace().map(|number| number.parse().unwrap()).collect()
        };
        let bare = place.bare(&job);
        let plainly = cost(&String::from_utf8_lossy(&bare.stderr));
        let ran = place.run(&["--after", "4"], &job);
        let with = cost(&ran.err());
        assert_eq!(ran.out(), String::from_utf8_lossy(&bare.stdout), "{}", ran.err());
        assert_eq!(ran.windows().first().copied(), window, "{times}: {}", ran.seen);
        assert!(ran.err().contains(said), "{times}: {}", ran.err());
        eprintln!("{times}: peak, end in MB, longest step in s: {plainly:?} plainly, {with:?} recorded");
        assert!(with[0] < plainly[0] + 600.0 && with[1] < plainly[1] + 75.0, "{times}: {plainly:?} {with:?}");
    }
}

/// A file of the job may have the number of the hook's socket.
fn files_of_a_job_that_closed_all_are_left_alone(python: &str) {
    let ran = Place::new().run(&[], &[python, &fixture("closes_files.py")]);
    assert_eq!((ran.code(), ran.out().as_str()), (0, "steps 40 loss 0.036575\n"), "{}", ran.err());
    assert!(ran.err().contains("the job sent no message after step"), "{}", ran.err());
}

fn what_the_process_sees_of_itself_is_as_it_would_be(python: &str) {
    let place = Place::new();
    let script = fixture("unchanged.py");
    let job = [python, script.as_str()];
    let (ran, bare) = (place.run(&[], &job), place.bare(&job));
    assert_eq!(ran.out(), String::from_utf8_lossy(&bare.stdout), "{}", ran.err());
    assert_eq!(ran.windows(), [(11, 13)], "{}", ran.seen);
}

/// The same graphs and frames, no break in a whole graph, and no line of output.
fn what_is_compiled_is_as_it_would_be(python: &str) {
    for name in ["compiled.py", "compiled_whole.py"] {
        let place = Place::new();
        let script = fixture(name);
        let job = [python, script.as_str()];
        let (ran, bare) = (place.run(&[], &job), place.bare(&job));
        assert_eq!(Some(ran.code()), bare.status.code(), "{name}: {}", ran.err());
        assert_eq!(ran.out(), String::from_utf8_lossy(&bare.stdout), "{name}: {}", ran.err());
        let warnings = |said: &str| said.matches("Warning").count();
        assert_eq!(warnings(&ran.err()), warnings(&String::from_utf8_lossy(&bare.stderr)), "{name}: {}", ran.err());
        assert_eq!(ran.windows(), [(11, 13)], "{name}: {}", ran.seen);
    }
}

fn a_signal_while_a_window_is_dropped_ends_the_job_as_it_would(python: &str) {
    let ran = Place::new().run(&[], &[python, &fixture("ends_while_dropped.py")]);
    assert_eq!((ran.code(), &*ran.out()), (7, ""), "{}", ran.err());
}

/// The second optimizer counts from the hundredth step on that the first did not make.
fn another_optimizer_takes_over_where_the_first_one_rests(python: &str) {
    let place = Place::new();
    let ran = place.run(&[], &[python, &fixture("two_phases.py")]);
    assert_eq!(ran.code(), 0, "{}", ran.err());
    assert_eq!(ran.steps(), [8 + 100], "{}", ran.seen);
    assert_eq!(ran.windows(), [(19, 21)], "{}", ran.seen);
    assert_eq!(ran.profile.unwrap().workload.parameter_count, Some(16 * 32 + 32 + 32 * 4 + 4));
}

/// Steps of 20 ms plus the loader's time: about half of a step, or hardly any of it.
fn what_is_waited_for_data_is_measured_and_told(python: &str) {
    let script = fixture("waits.py");
    let run = |waits: &[&str]| {
        let place = Place::new();
        let job = [&[python, script.as_str()], waits].concat();
        let ran = place.run(&["--total-steps", "1000", "--price", "36"], &job);
        assert_eq!(ran.job(), (0, "steps 60 loss 0.000000\n".to_owned()), "{}", ran.err());
        ran
    };
    let told = |ran: &Ran| ran.seen["processes"][0]["waiting_for_data"].clone();
    let slow = run(&["0.04", "0"]);
    let waiting = told(&slow);
    let share = waiting["share"].as_f64().unwrap();
    // 40 ms of 60 by the clock, more on a loaded machine; not 60 of 80, as if the inner loader counted twice.
    assert!((0.5..0.74).contains(&share), "{share}");
    assert_eq!(waiting["workers"], 0);
    assert_eq!(slow.seen["verdict"]["bound"], "data", "{}", slow.seen);
    assert!(slow.seen["verdict"]["next"].as_str().unwrap().contains("num_workers=0"), "{}", slow.seen);
    let cost = slow.seen["cost_usd"].as_f64().unwrap();
    let seconds = slow.seen["elapsed_s"].as_f64().unwrap();
    assert!((cost - seconds * 0.01).abs() < 1e-6, "{cost} for {seconds} s at a cent a second");
    let said = slow.err();
    for words in ["verdict: waiting for data: ", "cost: $", "waited for data: ", " at $36.00/h"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let quick = run(&["0", "0"]);
    assert!(told(&quick)["share"].as_f64().unwrap() < 0.2, "{}", quick.seen);
    assert_eq!(quick.seen["verdict"]["bound"], "cpu", "{}", quick.seen);
    // Two workers load eight samples during the computation of two batches.
    let beside = run(&["0.04", "2"]);
    assert_eq!(told(&beside)["workers"], 2);
    assert!(told(&beside)["share"].as_f64().unwrap() < share, "{}", beside.seen);
    // 20 ms per batch in each worker, more on a loaded machine.
    let period = |ran: &Ran| ran.profile.as_ref().and_then(|it| it.step.as_ref()?.loader_period);
    let times = period(&beside).map(Micros::as_millis);
    assert!(times.is_some_and(|ms| (9.9..200.0).contains(&ms)), "{times:?}: {}", beside.seen);
    assert_eq!(period(&slow), None, "loads in the training process");
    assert!(told(&slow)["cores"].as_u64().unwrap() >= 1, "{}", slow.seen);
    // The start of an epoch: 40 ms for two steps.
    let epochs = run(&["0", "0", "0.04"]);
    assert!((0.3..0.65).contains(&told(&epochs)["share"].as_f64().unwrap()), "{}", epochs.seen);
    // A job without a loader.
    let none = Place::new().run(&[], &[python, &fixture("plain.py")]);
    assert!(told(&none).is_null() && !none.seen["processes"][0].is_null(), "{}", none.seen);
    assert!(!none.err().contains("waited for data"), "{}", none.err());
}

/// A PyTorch with a different loader inside: the job and the rest of the recording do not change.
fn a_loader_that_is_not_what_it_was_costs_that_figure_alone(python: &str) {
    let place = Place::new();
    let broken = "import os, runpy, sys, torch.utils.data.dataloader as loader\n\
                  loader._Inner, loader._BaseDataLoaderIter = loader._BaseDataLoaderIter, object()\n\
                  sys.argv = sys.argv[1:]\nsys.path.insert(0, os.path.dirname(sys.argv[0]))\nrunpy.run_path(sys.argv[0], run_name='__main__')\n";
    std::fs::write(place.path("broken.py"), broken).unwrap();
    let script = fixture("plain.py");
    let job = [python, &place.path("broken.py"), &script];
    let ran = place.run(&[], &job);
    assert_eq!(ran.job(), (0, place::out(&place.bare(&[python, &script]))), "{}", ran.err());
    assert_eq!(ran.windows(), [(11, 13)]);
    assert!(ran.err().contains("waiting for data is not measured: AttributeError"), "{}", ran.err());
    assert!(ran.seen["processes"][0]["waiting_for_data"].is_null());
}

fn what_a_loader_warns_of_names_the_programs_line(python: &str) {
    let script = fixture("loader_warns.py");
    let place = Place::new();
    let bare = place.bare(&[python, &script]);
    let ran = place.run(&["--after", "4"], &[python, &script]);
    assert_eq!(ran.job(), (0, place::out(&bare)), "{}", ran.err());
    let warnings = place::err(&bare);
    assert!(warnings.contains("loader_warns.py:24: UserWarning: Length of IterableDataset Long"), "{warnings}");
    assert!(ran.err().starts_with(&warnings), "{}", ran.err());
    assert!(!ran.seen["processes"][0]["waiting_for_data"].is_null(), "{}", ran.seen);
}

/// In one graph, without gradients, while the steps before the window are timed.
fn what_another_network_compiles_is_as_it_would_be(python: &str) {
    let script = fixture("compiled_teacher.py");
    for first in ["1", "3", "9"] {
        let place = Place::new();
        let job = [python, script.as_str(), first];
        let ran = place.run(&[], &job);
        assert_eq!(ran.job(), (0, place::out(&place.bare(&job))), "{first}: {}", ran.err());
        assert_eq!(ran.windows(), [(11, 13)], "{first}: {}", ran.err());
    }
}

/// A pause, or a generator that computes: the program's clock, its history and its verdict agree.
fn work_between_the_steps_is_no_forward_pass(python: &str) {
    let script = fixture("between.py");
    for (kind, seconds, outside) in [
        ("sleep", "0.1", true),
        ("slow", "0.1", true),
        ("list", "0", false),
        ("varied", "0", false),
        ("grows", "0", false),
        ("once", "1", false),
    ] {
        let place = Place::new();
        let ran = place.run(&[], &[python, &script, kind, seconds]);
        let (code, printed) = ran.job();
        let share: f64 = printed.trim().strip_prefix("outside ").unwrap().parse().unwrap();
        assert_eq!((code, share > 0.5), (0, outside), "{kind}: {share}");
        let verdict = &ran.seen["verdict"];
        let because = verdict["because"].as_str().unwrap();
        assert_eq!(because.contains("works outside the passes for "), outside, "{kind}: {verdict}");
        assert!(!because.contains("input"), "no DataLoader: {because}");
        let after = |words: &str| because.split(words).nth(1)?.split_whitespace().next()?.parse::<f64>().ok();
        let rest = after("outside the passes for ").or_else(|| after(" and the rest ")).unwrap() / 100.0;
        // On a loaded machine the sampled steps run at another speed than the others.
        assert!((rest - share).abs() < 0.2, "{kind}: {share} by its clock: {verdict}");
    }
}
