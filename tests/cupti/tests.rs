use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use habitat_tui::profile::{Mode, Phase, Profile};

use crate::place::{self, Place, Ran, wait_for};
use crate::terminal::Terminal;

use crate::needs::Need;

trials! {
    with (program()) => [
        a_cuda_program_becomes_a_profile,
        named_ranges_are_steps_and_others_say_phases,
        a_window_waits_for_the_first_kernel,
        what_cupti_refuses_is_said_and_harms_nothing,
        the_end_of_the_program_is_heard,
        a_crash_in_the_window_is_the_programs_own,
        a_child_of_the_program_writes_nothing,
        a_limit_on_files_costs_the_trace_and_not_the_program,
        the_screens_follow_a_cuda_program,
        the_screens_say_why_a_cuda_program_is_not_recorded,
        our_end_does_not_touch_the_program,
    ],
    always () => [
        what_cannot_be_is_refused_before_the_job_starts,
        without_the_recorder_it_is_said_how_to_get_it,
    ],
    when (program()) => [
        a_job_that_never_starts_cuda_is_said,
    ],
    with (without_driver()) => [
        without_a_driver_nothing_is_loaded_and_it_is_said,
    ],
    with (real_cupti()) => [
        a_real_cupti_does_no_harm_without_a_driver,
    ],
}

/// The recorder from the tests' build.
fn recorder() -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_habitat-tui")).parent().unwrap();
    let built = ["deps/libhabitat_cupti.so", "libhabitat_cupti.so"].map(|name| folder.join(name));
    built.into_iter().find(|path| path.is_file()).unwrap()
}

/// A folder with the program and both fakes.
fn built() -> Need<&'static Path> {
    static BUILT: OnceLock<Need<PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cupti");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cupti");
        std::fs::create_dir_all(&folder).unwrap();
        for (source, output, more) in [
            ("cuda.c", "libcuda.so.1", &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"][..]),
            ("cupti.c", "libcupti.so.12", &["-shared", "-fPIC", "-Wl,-soname,libcupti.so.12"]),
            ("program.c", "program", &[]),
        ] {
            let mut cc = Command::new("cc");
            cc.args(more).arg("-o").arg(folder.join(output)).arg(sources.join(source)).args(["-ldl", "-lpthread"]);
            match cc.output() {
                Err(_) => return Err("there is no cc".to_owned()),
                Ok(made) => assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr)),
            }
        }
        Ok(folder)
    });
    built.as_deref().map_err(Clone::clone)
}

/// A folder in which the program finds the fakes.
fn place(variables: &[(&str, &str)]) -> Place {
    let mut place = Place::new();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let found =
        [("HABITAT_TUI_CUPTI", text(&recorder())), ("LD_LIBRARY_PATH", text(built().unwrap_or(Path::new("/"))))];
    place.variables.extend(found.map(|(name, value)| (name.to_owned(), value)));
    place.variables.extend(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    place
}

/// A job recorded by CUPTI, in its own place.
fn run(variables: &[(&str, &str)], options: &[&str], job: &[&str]) -> Ran {
    place(variables).run(&[&["--cupti"], options].concat(), job)
}

fn program() -> Need<String> {
    built().map(|folder| folder.join("program").to_str().unwrap().to_owned())
}

/// The program, if the machine has no driver.
fn without_driver() -> Need<String> {
    let program = program()?;
    let bare = Command::new(&program).args(["train", "0"]).env("LD_LIBRARY_PATH", "/nowhere").output().unwrap();
    if bare.stdout == b"no driver\n" { Ok(program) } else { Err("this machine has a driver".to_owned()) }
}

/// A real libcupti on a machine without a driver.
fn real_cupti() -> Need<String> {
    without_driver()?;
    std::env::var("HABITAT_TUI_TEST_LIBCUPTI").map_err(|_| "HABITAT_TUI_TEST_LIBCUPTI names no libcupti".to_owned())
}

const WINDOW: [&str; 4] = ["--after-seconds", "0.3", "--for-seconds", "0.6"];

/// The kernels of a step, by name: their number and total time.
fn kernels(profile: &Profile, name: &str) -> (u32, f64) {
    let all = profile.operations.iter().filter(|operation| operation.name.starts_with(name));
    all.fold((0, 0.0), |(count, time), operation| {
        (count + operation.count, time + operation.total_device_time().unwrap().get())
    })
}

fn a_cuda_program_becomes_a_profile(program: &str) {
    let place = place(&[]);
    let ran = place.run(&[&["--cupti"], &WINDOW[..]].concat(), &[program, "train", "1.5"]);
    assert_eq!(ran.job(), (3, "done\n".to_owned()), "{}", ran.err());
    let profile = ran.profile.as_ref().unwrap_or_else(|| panic!("{}", ran.err()));
    let recording = profile.recording.as_ref().unwrap();
    assert_eq!(recording.step_marks.as_deref(), Some("repeating sequence of kernels"));
    assert_eq!(profile.origin.as_ref().unwrap().gpu.as_ref().unwrap().as_str(), "a100-sxm4-80gb");
    assert_eq!(profile.origin.as_ref().unwrap().framework, None);
    assert_eq!(profile.workload.mode, Mode::Training);
    // As the program launches them, to the nanosecond.
    for (name, count, time) in [
        ("embed(int const*, float*)", 1, 5.0),
        ("gemm(float const*, float const*, float*)", 2, 40.0),
        ("gemm_back(", 2, 80.0),
        ("adam(", 1, 7.0),
        ("Memcpy HtoD (Pinned -> Device)", 1, 3.0),
        ("Memset (Device)", 1, 1.0),
    ] {
        let (found, took) = kernels(profile, name);
        assert_eq!(found, count, "{name}");
        assert!((took - time).abs() < 0.01, "{name}: {took}");
    }
    let gemm = profile.operations.iter().find(|operation| operation.name.starts_with("gemm(")).unwrap();
    let kernel = &gemm.kernels[0];
    assert_eq!((gemm.phase, kernel.grid, kernel.block), (Phase::Other, Some([256, 1, 1]), Some([256, 1, 1])));
    assert_eq!((kernel.registers_per_thread, kernel.shared_memory_bytes()), (Some(40), Some(1536)));
    println!("{}", ran.err());
    // `predict` accepts it.
    let predicted = Command::new(env!("CARGO_BIN_EXE_habitat-tui"))
        .current_dir(place.folder.path())
        .env("HABITAT_TUI_CONFIG_DIR", place.folder.path().join("config"))
        .args(["predict", "p.habitat.json", "--to", "h100-sxm5-80gb"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&predicted.stdout).into_owned() + &String::from_utf8_lossy(&predicted.stderr);
    assert!(predicted.status.success(), "{text}");
    println!("{text}");
}

fn named_ranges_are_steps_and_others_say_phases(program: &str) {
    let options = [&WINDOW[..], &["--step-range", "epoch part"]].concat();
    let ran = run(&[], &options, &[program, "ranges", "1.5"]);
    assert_eq!(ran.job(), (3, "nvtx 1\ndone\n".to_owned()), "{}", ran.err());
    let profile = ran.profile.as_ref().unwrap_or_else(|| panic!("{}", ran.err()));
    assert_eq!(profile.recording.as_ref().unwrap().step_marks.as_deref(), Some("ranges named by --step-range"));
    // The named part of the step is its phase, as in recordings of Nsight Systems.
    let of = |name: &str| {
        let operation = profile.operations.iter().find(|operation| operation.name.starts_with(name)).unwrap();
        (operation.phase.name(), operation.module.as_deref())
    };
    assert_eq!((of("gemm("), of("adam(")), (("forward", None), ("other", None)));
    assert_eq!(kernels(profile, "gemm(").0, 2);

    let options = [&WINDOW[..], &["--step-range", "no such"]].concat();
    let ran = run(&[], &options, &[program, "ranges", "1.5"]);
    assert_eq!(ran.job().0, 3);
    assert!(
        ran.err().contains("no range is named \"no such\"; the recording has \"epoch part\", \"forward\""),
        "{}",
        ran.err()
    );
}

/// PyTorch loads libraries for seconds after it starts CUDA.
fn a_window_waits_for_the_first_kernel(program: &str) {
    let ran = run(&[], &["--after-seconds", "0.1", "--for-seconds", "0.3"], &[program, "late", "2.5"]);
    assert_eq!(ran.job(), (3, "done\n".to_owned()), "{}", ran.err());
    let profile = ran.profile.as_ref().unwrap_or_else(|| panic!("{}", ran.err()));
    assert_eq!(kernels(profile, "gemm(").0, 2, "{}", ran.err());
}

fn what_cupti_refuses_is_said_and_harms_nothing(program: &str) {
    for (variable, value, said) in [
        (
            "FAKE_SUBSCRIBE",
            "39",
            "cuptiSubscribe answers 39 CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED; another profiler",
        ),
        ("FAKE_SUBSCRIBE", "15", "CUPTI_ERROR_NOT_INITIALIZED; the driver may be missing"),
        ("FAKE_ENABLE", "35", "cuptiActivityEnable answers 35 CUPTI_ERROR_INSUFFICIENT_PRIVILEGES; this user"),
        // A status code of a future version.
        ("FAKE_ENABLE", "4711", "answers 4711"),
        ("HABITAT_TUI_CUPTI_LIBRARY", "/nowhere/libcupti.so", "no CUPTI could be loaded: /nowhere/libcupti.so"),
    ] {
        let ran = run(&[(variable, value)], &WINDOW, &[program, "train", "0.8"]);
        assert_eq!(ran.job(), (3, "done\n".to_owned()), "{}", ran.err());
        assert!(ran.err().contains(said), "{}", ran.err());
        assert_eq!(ran.seen["seen"], "no kernels");
        assert!(ran.profile.is_none());
    }
}

fn without_a_driver_nothing_is_loaded_and_it_is_said(program: &str) {
    let place = place(&[("LD_LIBRARY_PATH", "/nowhere")]);
    let ran = place.run(&["--cupti", "--after-seconds", "0"], &[program, "train", "0.5"]);
    assert_eq!(ran.job(), (4, "no driver\n".to_owned()));
    assert!(ran.err().contains("there is no libcuda.so.1"), "{}", ran.err());
}

fn a_job_that_never_starts_cuda_is_said() {
    let ran = run(&[], &WINDOW, &["sh", "-c", "echo out; exit 6"]);
    assert_eq!(ran.job(), (6, "out\n".to_owned()));
    assert!(ran.err().contains("no process of the job started CUDA"), "{}", ran.err());
}

fn a_real_cupti_does_no_harm_without_a_driver(real: &str) {
    let program = program().unwrap();
    // With a fake driver, the real CUPTI is loaded and must refuse.
    let ran = run(&[("HABITAT_TUI_CUPTI_LIBRARY", real)], &WINDOW, &[&program, "train", "0.8"]);
    println!("{}", ran.err());
    assert!(ran.profile.is_none());
    let none = place(&[("HABITAT_TUI_CUPTI_LIBRARY", real), ("LD_LIBRARY_PATH", "/nowhere")]);
    let ran = none.run(&["--cupti", "--after-seconds", "0"], &[&program, "train", "0.5"]);
    assert_eq!(ran.job(), (4, "no driver\n".to_owned()), "{}", ran.err());
}

fn the_end_of_the_program_is_heard(program: &str) {
    let ran = run(&[], &["--after-seconds", "30"], &[program, "train", "0.3"]);
    assert_eq!(ran.job(), (3, "done\n".to_owned()));
    assert!(ran.err().contains("the window opens after 30.0 s; try a smaller --after-seconds"), "{}", ran.err());
    // Ends within the window: the trace so far is written.
    let ran = run(&[], &["--after-seconds", "0.1", "--for-seconds", "60"], &[program, "train", "0.8"]);
    assert_eq!(ran.job(), (3, "done\n".to_owned()));
    assert_eq!(kernels(ran.profile.as_ref().unwrap(), "gemm(").0, 2, "{}", ran.err());
}

fn a_crash_in_the_window_is_the_programs_own(program: &str) {
    let ran = run(&[], &["--after-seconds", "0.1", "--for-seconds", "60"], &[program, "crash", "2.0"]);
    assert_eq!(ran.output.status.code(), Some(139), "{}", ran.err());
    assert!(ran.err().contains("was ended within the window"), "{}", ran.err());
    assert!(ran.profile.is_none());
}

fn a_child_of_the_program_writes_nothing(program: &str) {
    let began = Instant::now();
    let ran = run(&[], &WINDOW, &[program, "fork", "1.2"]);
    assert_eq!(ran.job(), (3, "child 5\ndone\n".to_owned()), "{}", ran.err());
    assert_eq!(ran.seen["processes"].as_array().unwrap().len(), 1);
    assert!(ran.seen["not_understood"].as_array().unwrap().is_empty(), "{}", ran.seen);
    assert!(ran.profile.is_some() && began.elapsed() < Duration::from_secs(30));
}

/// `run --cupti` in a terminal. A thread of the recorder writes the trace; at the program's end one of the program
/// does.
fn a_limit_on_files_costs_the_trace_and_not_the_program(program: &str) {
    for seconds in ["0.6", "60"] {
        let limited = format!("ulimit -f 2; exec '{program}' train 1.5");
        let ran = run(&[], &["--after-seconds", "0.3", "--for-seconds", seconds], &["bash", "-c", &limited]);
        assert_eq!(ran.job(), (3, "done\n".to_owned()), "{seconds}: {}", ran.err());
        assert!(ran.err().contains("the trace could not be written: File too large"), "{seconds}: {}", ran.err());
    }
}

fn screens(options: &[&str], job: &[&str]) -> Terminal {
    let arguments = [&["run", "--cupti"], options, &["--"], job].concat();
    let libraries = built().unwrap_or(Path::new("/")).to_str().unwrap();
    let recorder = recorder();
    let variables = [("HABITAT_TUI_CUPTI", recorder.to_str().unwrap()), ("LD_LIBRARY_PATH", libraries)];
    Terminal::open(env!("CARGO_BIN_EXE_habitat-tui"), &arguments, &variables)
}

fn the_screens_follow_a_cuda_program(program: &str) {
    let window = ["--after-seconds", "2", "--for-seconds", "2", "-o", "p.habitat.json"];
    let mut terminal = screens(&window, &[program, "train", "8"]);
    terminal.sees("CUDA started; recording begins in");
    let text = terminal.text();
    assert!(text.contains("2 s of kernels, 2 s after CUDA's start"), "{text}");
    for word in ["Python", "PyTorch", "step 0", "steps timed"] {
        assert!(!text.contains(word), "{word}: nothing counts steps, and there is no Python: {text}");
    }
    terminal.sees("recording kernels");
    terminal.sees("recorded; profile written to p.habitat.json");
    terminal.sees("running; recorded");
    terminal.sees("A100");
    assert!(terminal.text().contains(" kernels in 2."), "{}", terminal.text());
    terminal.press("2");
    terminal.sees("gemm_back(");
    terminal.press("3");
    terminal.sees("H100");
    terminal.press("5");
    terminal.sees("ended with exit code 3");
    terminal.sees("done");
    terminal.press("q");
    assert_eq!(terminal.ends(), 3, "the exit code is the program's");
    let text = terminal.text();
    assert!(text.contains("recorded 2.") && text.contains("next: habitat-tui p.habitat.json"), "{text}");
    assert_eq!(terminal.read("p.log"), "done\n");
}

fn the_screens_say_why_a_cuda_program_is_not_recorded(program: &str) {
    let window = ["--after-seconds", "0.3", "--for-seconds", "60", "--step-range", "no such"];
    let mut terminal = screens(&window, &[program, "train", "60"]);
    terminal.sees("recording kernels, 5");
    terminal.press("qs");
    // Interrupted within the window: CUPTI's records are lost with the program.
    assert_eq!(terminal.ends(), 130);
    let text = terminal.text();
    assert!(text.contains("the job was stopped by you; nothing recorded: the recording was not complete"), "{text}");

    let mut terminal = screens(&[], &["sh", "-c", "sleep 1; echo out; exit 6"]);
    terminal.sees("started; waiting for it to start CUDA");
    terminal.sees("no process of the job started CUDA with the recorder");
    terminal.press("q");
    assert_eq!(terminal.ends(), 6);
}

fn our_end_does_not_touch_the_program(program: &str) {
    let place = place(&[]);
    let script = format!("{program} train 1.5 > out.txt; echo $? > code.txt");
    let mut child = place.start(&["--cupti", "--after-seconds", "0.2", "--for-seconds", "60"], &["sh", "-c", &script]);
    std::thread::sleep(Duration::from_millis(700));
    child.kill().unwrap();
    child.wait().unwrap();
    let code = place.folder.path().join("code.txt");
    wait_for("the program ends", || !std::fs::read_to_string(&code).unwrap_or_default().is_empty());
    assert_eq!(std::fs::read_to_string(code).unwrap(), "3\n");
    assert_eq!(std::fs::read_to_string(place.folder.path().join("out.txt")).unwrap(), "done\n");
}

fn what_cannot_be_is_refused_before_the_job_starts() {
    for (variable, value, said) in [
        ("HABITAT_TUI_CUPTI", "/nowhere/x.so", "/nowhere/x.so: no such file; HABITAT_TUI_CUPTI names it"),
        ("CUDA_INJECTION64_PATH", "/opt/nsys/lib.so", "another profiler, and a program can load only one"),
    ] {
        let ran = run(&[(variable, value)], &[], &["sh", "-c", "echo started"]);
        assert_eq!(ran.job(), (2, String::new()));
        assert!(ran.err().contains(said), "{}", ran.err());
    }
}

/// After `cargo install`: only the program.
fn without_the_recorder_it_is_said_how_to_get_it() {
    let place = Place::new();
    std::fs::create_dir(place.path("bin")).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_habitat-tui"), place.path("bin/habitat-tui")).unwrap();
    let job = ["run", "--cupti", "--", "sh", "-c", "echo started"];
    let output = place.command(&place.path("bin/habitat-tui")).args(job).output().unwrap();
    let told = place::err(&output);
    assert_eq!((output.status.code(), place::out(&output)), (Some(2), String::new()));
    for part in [
        &place.path("bin/libhabitat_cupti.so"),
        &place.path("lib/habitat-tui/libhabitat_cupti.so"),
        "cargo build --release -p habitat-tui-cupti",
        "HABITAT_TUI_CUPTI",
    ] {
        assert!(told.contains(part), "{part:?} is not in {told}");
    }
}
