use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::collected::{HEADINGS, collected};
use crate::needs::{python, torch};
use crate::program::Folder;

trials! {
    always () => [
        rows_correct_predictions_for_their_gpu,
        rows_that_teach_nothing_are_refused,
        what_is_missing_is_said,
    ],
    with (torch()) => [
        the_program_on_a_processor_killed_and_going_on,
    ],
    when (python()) => [
        a_python_that_will_not_do_is_said,
    ],
}

const STEP: &str = r#"{"format": "habitat-profile", "version": 1,
    "workload": {"name": "layer", "mode": "inference", "batch_size": 8, "precision": "fp32"},
    "operations": [{"name": "aten::linear", "phase": "forward", "dtype": "float32",
                    "inputs": [[2048, 1024], [2048, 1024]], "outputs": [[2048, 2048]]}]}"#;

/// Microseconds of the one operation on a T4.
fn on_t4(folder: &Folder, more: &[&str]) -> (f64, String) {
    let found = folder.json(&[&["predict", "step.json", "--to", "t4", "--operations"], more].concat());
    let prediction = &found["predictions"][0];
    let time = prediction["operations"][0]["device_time_us"]["mid"].as_f64();
    (time.unwrap_or_else(|| panic!("{prediction:#}")), prediction["notes"].to_string())
}

fn rows_correct_predictions_for_their_gpu() {
    let folder = Folder::new();
    folder.write("step.json", STEP);
    folder.write("operators.csv", &collected(60));
    // 8.6 GFLOP at 2 TFLOP/s: 4.3 ms; the shipped models assume a faster board.
    let (before, _) = on_t4(&folder, &[]);
    assert!(before < 3500.0, "{before}");
    let (after, notes) = on_t4(&folder, &["--measured", "operators.csv"]);
    assert!((after / 4297.0 - 1.0).abs() < 0.1, "{before} {after}");
    assert!(notes.contains("corrected by 5") && notes.contains("operators measured on this GPU"), "{notes}");
    // The same from the configuration folder, under any name.
    folder.write("config/measured/mine.csv", &collected(60));
    assert_eq!(on_t4(&folder, &[]).0, after);
    folder.write("config/measured/notes.csv", "a,b\n1,2\n");
    let text = folder.error(&["predict", "step.json"]);
    assert!(
        text.contains("notes.csv: neither written by `habitat-tui collect` nor named like an operator table"),
        "{text}"
    );
}

fn rows_that_teach_nothing_are_refused() {
    let folder = Folder::new();
    folder.write("step.json", STEP);
    for (from, to, expected) in [
        ("\"device\": \"cuda\"", "\"device\": \"cpu\"", "line 1: measured on \"cpu\""),
        ("measurements 1", "measurements 3", "line 1: habitat-operator-measurements 3: this program reads version 1"),
        ("Tesla T4", "Rage 128", "line 1: the catalog has no entry for \"Rage 128\""),
        (",ok,cuda,", ",ok,cuda,-", "line 3: latency_us: \"-"),
        (",ok,cuda,", ",ok,cpu,", "line 3: device: \"cpu\""),
    ] {
        folder.write("bad.csv", &collected(3).replace(from, to));
        let text = folder.error(&["predict", "step.json", "--measured", "bad.csv"]);
        assert!(text.contains(&format!("bad.csv: {expected}")), "{expected}: {text}");
    }
}

fn collect(folder: &Folder, variables: &[(&str, &Path)], args: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_habitat-tui"))
        .arg("collect")
        .args(args)
        .current_dir(folder.0.path())
        .env("HABITAT_TUI_CONFIG_DIR", folder.0.path().join("config"))
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

fn what_is_missing_is_said() {
    let folder = Folder::new();
    let (code, text) = collect(&folder, &[], &["--budget", "1m", "--python", "no-such-python"]);
    assert_eq!(code, 2);
    assert!(text.contains("no-such-python: no such program; pass a Python with PyTorch"), "{text}");
    let (code, text) = collect(&folder, &[], &["--budget", "3s"]);
    assert!(code == 2 && text.contains("--budget: 3 s"), "{text}");
    let (code, text) = collect(&folder, &[], &["--budget", "1m", "--gpu", "a900"]);
    assert!(code == 2 && text.contains("no GPU \"a900\""), "{text}");
}

/// A Python without PyTorch, and one whose PyTorch sees no GPU.
fn a_python_that_will_not_do_is_said() {
    let folder = Folder::new();
    folder.write("none/torch.py", "raise ImportError('No module named torch')\n");
    folder.write(
        "blind/torch.py",
        "__version__ = '9.9'\nclass version: cuda = '13.0'\nclass cuda: is_available = staticmethod(lambda: False)\n",
    );
    // A file of the current folder must not shadow a module.
    folder.write("random.py", "raise SystemExit('taken for the standard library')\n");
    let path = |name: &str| -> PathBuf { folder.0.path().join(name) };
    let (code, text) = collect(&folder, &[("PYTHONPATH", &path("none"))], &["--budget", "1m"]);
    assert!(code == 2 && text.contains("cannot import torch (No module named torch); --python names one"), "{text}");
    let (code, text) = collect(&folder, &[("PYTHONPATH", &path("blind"))], &["--budget", "1m"]);
    assert!(code == 2 && text.contains("PyTorch 9.9 (built for CUDA 13.0) finds no GPU here"), "{text}");
    assert!(text.contains("--device cpu --tiny") && !path("operators.csv").exists(), "{text}");
}

fn the_program_on_a_processor_killed_and_going_on(python: &str) {
    let folder = Folder::new();
    let args = ["--device", "cpu", "--tiny", "--python", python, "-o", "cpu.csv", "--budget"];
    let csv = folder.0.path().join("cpu.csv");
    let lines = || std::fs::read_to_string(&csv).map_or(0, |text| text.lines().count());
    let mut child = Command::new(env!("CARGO_BIN_EXE_habitat-tui"))
        .arg("collect")
        .args(args)
        .arg("10m")
        .current_dir(folder.0.path())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(120);
    while lines() < 12 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    // The interpreter has our process id: nothing keeps running.
    child.kill().unwrap();
    child.wait().unwrap();
    let before = std::fs::read_to_string(&csv).unwrap();
    assert!(lines() >= 12, "{before}");
    std::fs::write(&csv, format!("{}99,linear,fw", before.rsplit_once('\n').unwrap().0.to_owned() + "\n")).unwrap();
    let whole = std::fs::read_to_string(&csv).unwrap().lines().count() - 1;
    let began = Instant::now();
    let (code, text) = collect(&folder, &[], &[&args[..], &["25s"]].concat());
    assert_eq!(code, 0, "{text}");
    // There were rows for ten minutes.
    assert!(began.elapsed() < Duration::from_secs(120), "{:?}", began.elapsed());
    assert!(text.contains("its last line was cut off and is measured again"), "{text}");
    assert!(text.contains(&format!("going on after {} of", whole - 2)), "{text}");
    assert!(text.contains("a minute): ") && text.contains("rows of the sample ("), "{text}");
    assert!(text.contains("measured on the processor: a check of the program"), "{text}");
    let after = std::fs::read_to_string(&csv).unwrap();
    assert!(after.lines().count() > whole && !after.contains("99,linear,fw\n"), "{after}");
    assert_eq!(after.lines().nth(1), Some(HEADINGS));
    // Every row once, all of them timed.
    let mut keys: Vec<(&str, &str)> = after
        .lines()
        .skip(2)
        .map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            assert!(cells.len() == 16 && cells[5] == "ok" && cells[6] == "cpu", "{line}");
            assert!(cells[7].parse::<f64>().unwrap() > 0.0, "{line}");
            (cells[0], cells[2])
        })
        .collect();
    let count = keys.len();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), count);
    let (code, text) = collect(&folder, &[], &[&args[..], &["25s", "--seed", "1"]].concat());
    assert!(code == 2 && text.contains("begun with seed 0, now it is 1; -o names another file"), "{text}");
    folder.write("other.csv", "a,b\n");
    let other = [&args[..5], &["-o", "other.csv", "--budget", "25s"]].concat();
    let (code, text) = collect(&folder, &[], &other);
    assert!(code == 2 && text.contains("other.csv: is there and is not a collection of version 1"), "{text}");
    assert!(folder.error(&["predict", "--measured", "cpu.csv"]).contains("line 1: measured on \"cpu\""));
}
