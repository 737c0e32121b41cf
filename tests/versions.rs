//! The first version of every kind of file reads, and newer versions than this program's are refused with their number.
//! `tests/fixtures/v1` never changes: such files exist.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::path::Path;

use crate::program::Folder;

fn kept() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/v1"))
}

fn text(name: &str) -> String {
    std::fs::read_to_string(kept().join(name)).unwrap()
}

/// A folder with all of them.
fn folder() -> Folder {
    let folder = Folder::new();
    for entry in std::fs::read_dir(kept()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        folder.write(&name, &text(&name));
    }
    folder
}

/// The command for each file, and its expected output. A file without a case fails the test.
const CASES: [(&str, &[&str], &str); 13] = [
    ("profile.habitat.json", &["predict", "profile.habitat.json", "--to", "t4"], "recorded on Tesla V100-SXM2-16GB"),
    ("op-list.json", &["predict", "op-list.json", "--to", "t4"], "9,408 parameters"),
    ("step.blackbox.json", &["predict", "--black-box", "step.blackbox.json"], "black box, 3 kinds of operators"),
    ("plan.toml", &["plan", "--from", "plan.toml"], "work: 64,000 samples"),
    ("jobs.toml", &["plan-jobs", "jobs.toml"], "one"),
    ("run.json", &["compare", "plan.toml", "run.json"], "25.1 h"),
    ("job.json", &["compare", "plan.toml", "job.json"], "1.5 h"),
    ("prices.toml", &["check", "prices.toml"], "price file of lab, 1 offer"),
    ("gpu.toml", &["check", "gpu.toml"], "catalog file of t4"),
    ("t4.calibration.toml", &["check", "t4.calibration.toml"], "calibration of t4"),
    ("theme.toml", &["check", "theme.toml"], "theme mine"),
    ("config.toml", &["check", "config.toml"], "settings"),
    (
        "collected.csv",
        &["predict", "profile.habitat.json", "--to", "t4", "--measured", ".", "--json"],
        "corrected by 1 operators measured on this GPU",
    ),
];

#[test]
fn the_first_version_of_every_kind_is_read() {
    let folder = folder();
    for entry in std::fs::read_dir(kept()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(CASES.iter().any(|(file, ..)| *file == name), "no case for {name}");
    }
    for (file, arguments, said) in CASES {
        let output = folder.ok(arguments);
        assert!(output.contains(said), "{file}: {said:?} is not in {output}");
    }
}

#[test]
fn newer_versions_are_refused_with_their_number() {
    let folder = folder();
    for (file, now, newer) in [
        ("profile.habitat.json", "\"version\": 1", "\"version\": 99"),
        ("op-list.json", "\"version\": 1", "\"version\": 99"),
        ("step.blackbox.json", "\"version\": 1", "\"version\": 99"),
        ("plan.toml", "version = 2", "version = 99"),
        ("run.json", "\"version\": 1", "\"version\": 99"),
        ("prices.toml", "schema = 1", "schema = 99"),
        ("gpu.toml", "schema = 1", "schema = 99"),
        ("t4.calibration.toml", "version = 1", "version = 99"),
        ("collected.csv", "habitat-operator-measurements 1 ", "habitat-operator-measurements 99 "),
    ] {
        let before = text(file);
        assert!(before.contains(now), "{file}");
        folder.write(file, &before.replacen(now, newer, 1));
        let (_, arguments, _) = CASES.iter().find(|(name, ..)| *name == file).unwrap();
        let refused = folder.error(arguments);
        assert!(refused.contains(file) && refused.contains("99"), "{file}: {refused}");
        folder.write(file, &before);
    }
}
