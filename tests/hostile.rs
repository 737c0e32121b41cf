//! Broken files, names, pipes and limits: the program reports an error with the right exit code, and leaves nothing
//! behind.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::program::PROFILE;

struct Bench(tempfile::TempDir);

impl Bench {
    fn new() -> Self {
        let bench = Self(tempfile::tempdir().unwrap());
        std::fs::write(bench.path("p.habitat.json"), PROFILE).unwrap();
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        std::fs::write(self.path(name), content).unwrap();
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_habitat-tui"));
        command.current_dir(self.0.path()).env("HABITAT_TUI_CONFIG_DIR", self.path("config"));
        command.env_remove("HABITAT_TUI_MODELS").env_remove("HABITAT_TUI_THEME").stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command().args(args).output().unwrap()
    }

    /// Runs a line of the shell, with the program as `$0`.
    fn shell(&self, line: &str) -> Output {
        let mut command = Command::new("sh");
        command.args(["-c", line, env!("CARGO_BIN_EXE_habitat-tui")]).current_dir(self.0.path());
        command.env("HABITAT_TUI_CONFIG_DIR", self.path("config")).output().unwrap()
    }

    /// Error of a refused run.
    fn refused(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        fit_to_show(&said);
        said
    }

    fn files(&self) -> Vec<String> {
        let mut found: Vec<String> = std::fs::read_dir(self.0.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        found.sort();
        found
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn fit_to_show(text: &str) {
    let bad = text.chars().find(|c| c.is_control() && *c != '\n' || "\u{202e}\u{2028}\u{3164}\u{e0041}".contains(*c));
    assert_eq!(bad, None, "{text:?}");
    assert!(!text.contains("panicked"), "{text}");
}

/// Packed: a start, then over a gigabyte of blanks.
fn bomb(start: &str) -> Vec<u8> {
    static BLANKS: std::sync::LazyLock<Vec<u8>> =
        std::sync::LazyLock::new(|| zstd::stream::encode_all(std::io::repeat(b' ').take(1200 << 20), 1).unwrap());
    assert!(BLANKS.len() < 200_000);
    [&zstd::stream::encode_all(start.as_bytes(), 1).unwrap(), &BLANKS[..]].concat()
}

#[test]
fn ninety_kilobytes_that_hold_gigabytes_are_refused_within_a_gigabyte() {
    let bench = Bench::new();
    bench.file("p.habitat.json.zst", bomb(r#"{"format": "habitat-profile", "version": 1"#));
    bench.file("trace.json.zst", bomb(r#"{"traceEvents": ["#));
    bench.file("ops.json.zst", bomb(r#"{"format": "habitat-op-list", "version": 1"#));
    bench.file("box.json.zst", bomb(r#"{"format": "habitat-black-box", "version": 1"#));
    bench.file("lines.json.zst", bomb(r#"{"format": "habitat-kernel-wise", "version": 1"#));
    bench.file("runs.csv.zst", bomb("batch,iterations,seconds\n1,2,"));
    bench.file("m/linear.csv.zst", bomb("gpu,op,dtype,B,M,N,K,latency_ms\n"));
    for (file, line) in [
        ("p.habitat.json.zst", "predict p.habitat.json.zst"),
        ("p.habitat.json.zst", "check p.habitat.json.zst"),
        ("trace.json.zst", "import trace.json.zst -o x.habitat.json"),
        ("ops.json.zst", "predict ops.json.zst"),
        ("box.json.zst", "predict --black-box box.json.zst"),
        ("lines.json.zst", "predict p.habitat.json --method kernel-wise --kernel-wise lines.json.zst"),
        ("runs.csv.zst", "fit runs.csv.zst"),
        ("linear.csv.zst", "predict p.habitat.json --measured m"),
        ("/dev/zero", "predict /dev/zero"),
        ("/dev/zero", "fit /dev/zero"),
        ("/dev/zero", "predict p.habitat.json --kernel-wise /dev/zero"),
    ] {
        let output = bench.shell(&format!("ulimit -v 1000000; ulimit -t 20; exec \"$0\" {line}"));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {} {said}", output.status);
        assert!(said.contains(file) && (said.contains(" MB") || said.contains("device")), "{line}: {said}");
    }
    bench.file("config/config.toml", vec![b' '; 2 << 20]);
    assert!(bench.refused(&["predict"]).contains("config.toml: has more than 1 MB"), "settings");
}

#[test]
fn names_and_contents_reach_no_terminal_as_they_are() {
    let bench = Bench::new();
    let name = "\u{1b}]0;x\u{7}\u{202e}\u{2028}\u{3164}\u{e0041}.json";
    for content in
        [PROFILE.replace("aten::mm", ""), "{\"a".to_owned(), PROFILE.replace("900.0", "\"\u{1b}[2J\u{202e}\"")]
    {
        bench.file(name, content);
        for command in ["predict", "check", "plan"] {
            let said = bench.refused(&[command, name, "--steps", "1"][..if command == "plan" { 4 } else { 2 }]);
            assert!(said.contains("\u{fffd}]0;x"), "{said}");
        }
    }
    bench.file(name, PROFILE);
    let shown = bench.run(&["predict", name, "--to", "t4"]);
    assert_eq!(shown.status.code(), Some(0));
    fit_to_show(&text(&shown.stdout));
    // The suggested command can be copied.
    let ops = r#"{"ops": [{"op": "aten.mm.default", "inputs": [{"shape": [2, 2], "dtype": "float32"}], "count": 1}]}"#;
    bench.file("ops.json", ops);
    let said = bench.run(&["import", "ops.json", "-o", "a\u{1b}b.habitat.json"]);
    fit_to_show(&text(&said.stdout));
    assert!(text(&said.stdout).contains(r"next: habitat-tui $'a\x1bb.habitat.json'"), "{}", text(&said.stdout));
    // Typed values.
    for args in
        [&["--\u{1b}[31m"][..], &["predict", "--to", "\u{1b}[31m"], &["plan", "--steps", "\u{202e}"], &["\u{1b}x"]]
    {
        bench.refused(args);
    }
    // Parse errors of the settings show the line.
    bench.file("config/config.toml", "[plan]\nexclude_providers = [\"nobody\"]\n");
    assert!(bench.refused(&["plan", "--steps", "10"]).contains("config.toml: unknown provider \"nobody\""));
    for (line, said) in [
        ("theme = \"no\"", "unknown theme"),
        ("color = \"no\"", "color"),
        ("[keys]\n\"no\" = [\"q\"]", "no such action"),
    ] {
        bench.file("config/config.toml", line);
        let error = bench.refused(&["--screenshot", "x.svg", "--size", "80x24"]);
        assert!(error.contains("config.toml: ") && error.contains(said), "{error}");
    }
    bench.file("config/config.toml", "theme = \"\u{1b}[31m\u{202e}");
    let said = bench.refused(&["config", "--keys"]);
    assert!(said.contains("config.toml"), "{said}");
    bench.file("config/config.toml", format!("theme = \"{}", "x".repeat(200_000)));
    let said = bench.refused(&["config", "--keys"]);
    assert!(
        said.contains("config.toml") && said.contains("characters left out") && said.len() < 3000,
        "{}",
        said.len()
    );
}

#[test]
fn json_keeps_what_it_escapes() {
    let bench = Bench::new();
    bench.file("p.habitat.json", PROFILE.replace("\"tiny\"", "\"a\u{202e}\u{9b}\u{e0041}b\""));
    let output = bench.run(&["predict", "p.habitat.json", "--to", "t4", "--json"]);
    fit_to_show(&text(&output.stdout));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["workload"]["name"], "a\u{202e}\u{9b}\u{e0041}b");
}

#[test]
fn a_closed_pipe_is_no_failure_and_a_full_disk_is_one() {
    let bench = Bench::new();
    for args in [
        &["completions", "bash"][..],
        &["--help"],
        &["man"],
        &["gpus", "--json"],
        &["predict", "p.habitat.json", "--json"],
        &["offers"],
    ] {
        let mut child = bench.command().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut one = [0; 1];
        child.stdout.take().unwrap().read_exact(&mut one).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()), "{args:?}");
        if Path::new("/dev/full").exists() {
            let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
            let output = bench.command().args(args).stdout(full).output().unwrap();
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
            assert!(said.contains("standard output") && !said.contains("panicked"), "{args:?}: {said}");
        }
    }
    for line in [
        "\"$0\" gpus >&-",
        "\"$0\" predict nothing 2>&-",
        "\"$0\" check nothing 2>/dev/full",
        "\"$0\" --nothing 2>/dev/full",
    ] {
        let output = bench.shell(line);
        let code = if line.contains("2>") { 2 } else { 0 };
        assert_eq!(output.status.code(), Some(code), "{line}: {}", text(&output.stderr));
    }
}

#[test]
fn a_pipe_is_read_like_a_file() {
    let bench = Bench::new();
    for line in [
        "cat p.habitat.json | \"$0\" predict - --to t4",
        "cat p.habitat.json | \"$0\" predict /dev/stdin --to t4",
        "\"$0\" predict - --to t4 < p.habitat.json",
        "gzip < p.habitat.json | \"$0\" check -",
        "mkfifo pipe && (cat p.habitat.json > pipe &) && \"$0\" plan pipe --steps 1000",
    ] {
        let output = bench.shell(line);
        assert_eq!(output.status.code(), Some(0), "{line}: {}", text(&output.stderr));
    }
    let said = text(&bench.shell("\"$0\" predict - < /dev/null").stderr);
    assert!(said.contains("-: looks like an empty file"), "{said}");
}

/// A pipe without a writer, in a place where the program looks for a file.
#[test]
fn a_pipe_that_the_command_line_does_not_name_is_not_waited_for() {
    let bench = Bench::new();
    bench.file("jobs.toml", "[[job]]\nname = \"a\"\nprofile = \"pipe\"\nsteps = 10\n");
    for (pipe, line) in [
        ("config/config.toml", "predict p.habitat.json"),
        ("config/measured/linear.csv", "predict p.habitat.json"),
        ("m/linear.csv", "predict p.habitat.json --measured m"),
        ("config/models/efficiency.json", "predict p.habitat.json"),
        ("m/efficiency.json", "predict p.habitat.json --models m"),
        ("m/operators.safetensors", "predict p.habitat.json --models m"),
        ("m/blackbox.json", "predict p.habitat.json --models m"),
        ("m/kernelwise.json", "predict p.habitat.json --models m"),
        ("config/catalog/x.toml", "gpus"),
        ("config/pricing/x.toml", "prices"),
        ("config/themes/x.toml", "p.habitat.json --theme x --screen predict --screenshot a.svg --force"),
        ("pipe", "plan-jobs jobs.toml"),
        ("m/a.habitat.json", "fit kernelwise m -o k.json"),
    ] {
        std::fs::create_dir_all(bench.path(pipe).parent().unwrap()).unwrap();
        assert!(Command::new("mkfifo").arg(bench.path(pipe)).status().unwrap().success());
        let before = std::time::Instant::now();
        let output = bench.run(&line.split(' ').collect::<Vec<_>>());
        let said = text(&output.stderr);
        assert!(said.contains(&format!("{pipe}: is a pipe, not a file")), "{pipe}: {line}: {said}");
        assert!(before.elapsed().as_secs() < 8, "{pipe}: {line}: {said}");
        std::fs::remove_file(bench.path(pipe)).unwrap();
    }
}

#[test]
fn outputs_go_where_they_should_or_nowhere() {
    let bench = Bench::new();
    let before = bench.files();
    let plan = |output: &str, force: bool| {
        let mut args = vec!["plan", "p.habitat.json", "--steps", "1000", "-o", output];
        args.extend(force.then_some("--force"));
        bench.run(&args)
    };
    let output = plan("/dev/stdout", false);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("[plan]"));
    for (place, said) in [
        ("-", "/dev/stdout"),
        ("nowhere/plan.toml", "No such file"),
        ("/proc/plan.toml", "cannot be written"),
        (".", "directory"),
    ] {
        let output = plan(place, true);
        assert_eq!(output.status.code(), Some(2), "{place}");
        assert!(text(&output.stderr).contains(said), "{place}: {}", text(&output.stderr));
    }
    symlink("loop", bench.path("loop")).unwrap();
    assert_eq!(plan("loop", true).status.code(), Some(2));
    std::fs::remove_file(bench.path("loop")).unwrap();
    assert_eq!(bench.files(), before);
    symlink("later.toml", bench.path("dangling")).unwrap();
    assert_eq!(plan("dangling", false).status.code(), Some(0));
    assert!(bench.path("later.toml").is_file() && bench.path("dangling").is_symlink());
    // The output does not overwrite the trace.
    let ops = r#"{"ops": [{"op": "aten.mm.default", "inputs": [{"shape": [2, 2], "dtype": "float32"}], "count": 1}]}"#;
    bench.file("ops.json", ops);
    symlink("ops.json", bench.path("same.json")).unwrap();
    for same in ["ops.json", "./ops.json", "same.json"] {
        assert!(
            bench.refused(&["import", "ops.json", "-o", same, "--force"]).contains("same.json") || same != "same.json"
        );
        assert_eq!(std::fs::read_to_string(bench.path("ops.json")).unwrap(), ops);
    }
}

#[test]
fn a_signal_leaves_no_temporary_file() {
    let bench = Bench::new();
    // Large enough to take a while to pack.
    let operations: Vec<String> = (1..20_000)
        .map(|n| format!(r#"{{"op": "aten.mm.default", "module": "layer.{n}", "inputs": [{{"shape": [{n}, 64], "dtype": "float32"}}, {{"shape": [64, {n}], "dtype": "float32"}}], "outputs": [{{"shape": [{n}, {n}], "dtype": "float32"}}], "count": 1}}"#))
        .collect();
    bench.file("ops.json", format!("{{\"ops\": [{}]}}", operations.join(",\n")));
    let temporary = || bench.files().into_iter().find(|name| name.starts_with('.'));
    for (round, signal) in ["INT", "TERM", "HUP"].into_iter().cycle().take(9).enumerate() {
        let args = ["import", "ops.json", "-o", "p.habitat.json.zst", "--force"];
        let mut child = bench.command().args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(300 + 250 * round as u64));
        let mut kill = Command::new("kill");
        kill.args([&format!("-{signal}"), &child.id().to_string()]).stderr(Stdio::null()).status().unwrap();
        let status = child.wait().unwrap();
        assert!(status.code() == Some(0) || status.signal().is_some(), "{status}");
        assert_eq!(temporary(), None, "{signal}");
    }
}

/// The user nobody, if the tests run as root.
fn as_nobody(bench: &Bench, program: &str) -> Command {
    let copy = bench.path("bin/habitat-tui");
    if !copy.exists() {
        std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
        std::fs::copy(env!("CARGO_BIN_EXE_habitat-tui"), &copy).unwrap();
        std::fs::set_permissions(bench.0.path(), PermissionsExt::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new(program);
    command.current_dir(bench.0.path()).env_remove("HABITAT_TUI_CONFIG_DIR").stdin(Stdio::null());
    let is_root = text(&Command::new("id").arg("-u").output().unwrap().stdout).trim() == "0";
    if is_root {
        command.uid(65534).gid(65534);
    }
    command
}

/// A step of one product.
#[cfg(target_os = "linux")]
const TRACE: &str = r#"{"deviceProperties": [{"id": 0, "name": "Tesla V100-SXM2-16GB"}], "traceEvents": [
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 0, "dur": 90},
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 9,
     "args": {"Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"]}},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 2, "dur": 1,
     "args": {"correlation": 1}},
    {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 5, "dur": 20,
     "args": {"correlation": 1, "device": 0, "stream": 7}}]}"#;

/// With `prlimit`, which every Linux has.
#[cfg(target_os = "linux")]
#[test]
fn one_thread_is_enough() {
    let bench = Bench::new();
    bench.file("trace.json", TRACE);
    bench.file("out/.keep", "");
    std::fs::set_permissions(bench.path("out"), PermissionsExt::from_mode(0o777)).unwrap();
    for args in [
        &["predict"][..],
        &["plan", "--steps", "1000"],
        &["predict", "p.habitat.json", "--all-methods"],
        &["import", "trace.json", "-o", "out/one.json"],
        &["import", "trace.json", "trace.json", "-o", "out/two.json"],
    ] {
        let mut command = as_nobody(&bench, "prlimit");
        command.args(["--nproc=1", "bin/habitat-tui"]).args(args).env("HABITAT_TUI_CONFIG_DIR", bench.path("config"));
        let output = command.output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {said}");
    }
}

#[test]
fn a_home_that_cannot_be_entered_is_no_reason_to_stop() {
    let bench = Bench::new();
    let own = as_nobody(&bench, "bin/habitat-tui").args(["gpus"]).env("HOME", bench.path("none")).output().unwrap();
    assert_eq!(own.status.code(), Some(0), "{}", text(&own.stderr));
    std::fs::create_dir(bench.path("closed")).unwrap();
    std::fs::set_permissions(bench.path("closed"), PermissionsExt::from_mode(0o000)).unwrap();
    symlink("loop", bench.path("loop")).unwrap();
    for home in ["p.habitat.json", "closed", "loop"] {
        for args in
            [&["gpus"][..], &["predict", "p.habitat.json"], &["plan", "p.habitat.json", "--steps", "1000"], &["config"]]
        {
            let mut command = as_nobody(&bench, "bin/habitat-tui");
            command.args(args).env("HOME", bench.path(home)).env_remove("XDG_CONFIG_HOME").env_remove("XDG_DATA_HOME");
            let output = command.output().unwrap();
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{home} {args:?}: {said}");
            assert_eq!(said.contains("not accessible"), home != "p.habitat.json", "{home} {args:?}: {said}");
        }
        // A named file must be readable.
        let mut command = as_nobody(&bench, "bin/habitat-tui");
        let output = command.arg("gpus").env("HABITAT_TUI_CONFIG_DIR", bench.path(home)).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{home}: {}", text(&output.stderr));
    }
    std::fs::set_permissions(bench.path("closed"), PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn a_database_that_computes_is_given_up() {
    let bench = Bench::new();
    let path = bench.path("report.sqlite");
    let make = |tables: &str| {
        let _ = std::fs::remove_file(&path);
        rusqlite::Connection::open(&path).unwrap().execute_batch(tables).unwrap();
    };
    let kernels = "start INTEGER, \"end\" INTEGER, correlationId INTEGER, demangledName INTEGER";
    make(&format!(
        "CREATE TABLE t ({kernels}); INSERT INTO t VALUES (1, 2, 3, 4);
         CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS start, i AS \"end\", i AS correlationId, i AS demangledName FROM n;"
    ));
    let said = bench.refused(&["predict", "report.sqlite"]);
    assert!(said.contains("report.sqlite: its \"CUPTI_ACTIVITY_KIND_KERNEL\" is a view"), "{said}");
    // Texts without an index, and as many look-ups.
    make(&format!(
        "CREATE TABLE StringIds (id INTEGER, value TEXT); CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({kernels});
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 60000) INSERT INTO StringIds SELECT i, 'k' FROM n;
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 60000) INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT i * 10, i * 10 + 5, i, 70000 + i FROM n;"
    ));
    let said = bench.refused(&["predict", "report.sqlite"]);
    assert!(said.contains("report.sqlite: Nsight Systems recording: reading took far too long"), "{said}");
    // Writes nothing beside it.
    make("PRAGMA journal_mode = WAL; CREATE TABLE x (y);");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o444)).unwrap();
    let before = bench.files();
    bench.refused(&["predict", "report.sqlite"]);
    assert_eq!(bench.files(), before);
}

#[test]
fn numbers_that_nothing_has_are_refused_at_the_door() {
    let bench = Bench::new();
    let said = |args: &[&str]| bench.refused(args);
    for (from, to) in [
        ("1000.0", "1e300"),
        ("1000.0", "-0.0"),
        ("1024, 1024", "1024, 18446744073709551615"),
        ("\"batch_size\": 64", "\"batch_size\": 10000000000000000000"),
    ] {
        bench.file("bad.habitat.json", PROFILE.replacen(from, to, 1));
        let said = said(&["predict", "bad.habitat.json"]);
        let value = to.rsplit([' ', ':']).next().unwrap().trim_end_matches(".0");
        assert!(said.contains("bad.habitat.json: ") && said.contains(value), "{said}");
    }
    bench.file("runs.csv", "batch,iterations,seconds\n8,10,1\n8,20,1e300\n");
    assert!(said(&["fit", "runs.csv"]).contains("runs.csv: line 3: seconds: \"1e300\""));
    bench.file("runs.csv", "batch,iterations,seconds\n8,10,1\n8,1e19,2\n");
    assert!(said(&["fit", "runs.csv"]).contains("runs.csv: line 3: iterations: \"1e19\""));
    for (flag, value) in [
        ("--steps", "1e19"),
        ("--samples", "1e300"),
        ("--deadline", "1e300"),
        ("--budget", "1e300"),
        ("--steps", "-0.0"),
    ] {
        let line = format!("{flag}={value}");
        let said = said(&["plan", "p.habitat.json", &line]);
        assert!(said.contains(flag) && said.contains(value.trim_end_matches(".0")), "{said}");
    }
    let card = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/catalog/t4.toml")).unwrap();
    bench.file("t4.toml", card.replace("memory_gb = 16", "memory_gb = 1e300"));
    assert!(said(&["check", "t4.toml"]).contains("t4.toml: memory_gb: 1e300"));
    let prices = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/pricing/verda.toml")).unwrap();
    bench.file("v.toml", prices.replacen("1.889", "1e300", 1));
    assert!(said(&["check", "v.toml"]).contains("1e300 is not a valid price"));
    let trace = r#"{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 1e300, "args": {"correlation": 1}}]}"#;
    bench.file("trace.json", trace);
    assert!(said(&["import", "trace.json", "-o", "x.habitat.json"]).contains("trace.json: "), "trace");
}

#[test]
fn cells_are_no_formulas() {
    let bench = Bench::new();
    bench.file("p.habitat.json", PROFILE.replace("aten::mm", "=HYPERLINK(1)|<b>"));
    let csv = text(&bench.run(&["predict", "p.habitat.json", "--to", "t4", "--csv", "--operations"]).stdout);
    assert!(csv.contains("'=HYPERLINK(1)|<b>") && !csv.contains(",=HYPERLINK"), "{csv}");
    let markdown = text(&bench.run(&["predict", "p.habitat.json", "--to", "t4", "--markdown", "--operations"]).stdout);
    assert!(markdown.contains(r"=HYPERLINK(1)\|&lt;b&gt;"), "{markdown}");
    std::io::stderr().flush().unwrap();
}
