//! Jobs of several trainings or ranks, jobs near a limit, and jobs beyond the hook's reach.

use std::path::Path;

use super::tests::{fixture, is_running};
use habitat_tui::profile::{Operation, Phase};

use crate::needs::{python, torch};
use crate::place::{self, Place, Ran, wait_for};

trials! {
    with (torch()) => [
        the_rank_that_the_others_wait_for_is_found,
        optimizers_that_are_not_pytorchs_are_counted,
        #[cfg(target_os = "linux")]
        limits_of_the_job_are_respected,
        trainings_one_after_another_are_no_ranks,
        trainings_beside_one_another_are_no_ranks,
    ],
    with (python()) => [
        a_sitecustomize_is_imported_as_without_us,
        another_framework_is_named,
        #[cfg(target_os = "linux")]
        a_command_that_ends_before_its_training_is_named,
        #[cfg(target_os = "linux")]
        a_search_path_that_the_job_sets_anew_is_named,
    ],
}

/// As packages and as files, and without one; the program sees its own or the usual error.
fn a_sitecustomize_is_imported_as_without_us(python: &str) {
    let program = "import sys\n\
        for name in ('sitecustomize', 'usercustomize'):\n\
        \x20   try:\n\
        \x20       module = __import__(name)\n\
        \x20       print(name, module.__file__, module.__name__, sorted(n for n in vars(module) if n[0] != '_'))\n\
        \x20   except ImportError as error: print(type(error).__name__, error.name, error)\n\
        print([type(finder).__name__ for finder in sys.meta_path].count('Finder') < 2)\n\
        print([entry for entry in [*sys.path, *sys.path_importer_cache] if 'habitat-tui/hook' in entry])";
    let files: [&[(&str, &str)]; 4] = [
        &[],
        &[("own/sitecustomize.py", "mine = 1\nprint('site')")],
        &[("own/sitecustomize/__init__.py", "from . import part"), ("own/sitecustomize/part.py", "print('part')")],
        &[("own/usercustomize.py", "print('user')"), ("own/sitecustomize.py", "raise ImportError('mine', name='x')")],
    ];
    for files in files {
        let place = Place::new();
        for (name, text) in files {
            let path = place.path(name);
            std::fs::create_dir_all(Path::new(&path).parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let place = Place { variables: vec![("PYTHONPATH".into(), place.path("own"))], ..place };
        let job = [python, "-c", program];
        let (ran, bare) = (place.run(&[], &job), place.bare(&job));
        assert_eq!(ran.job(), (0, place::out(&bare)), "{files:?}: {}", ran.err());
        assert!(ran.err().starts_with(&place::err(&bare)), "{}\n---\n{}", ran.err(), place::err(&bare));
        assert_eq!(ran.seen["seen"], "no torch", "the hook was heard");
    }
}

/// Fake JAX and TensorFlow modules: imported, or only looked up.
fn another_framework_is_named(python: &str) {
    let place = Place::new();
    std::fs::create_dir(place.path("own")).unwrap();
    for name in ["jax", "tensorflow"] {
        std::fs::write(place.path(&format!("own/{name}.py")), "made = True").unwrap();
    }
    let place = Place { variables: vec![("PYTHONPATH".into(), place.path("own"))], ..place };
    let said = |program: &str| {
        let job = [python, "-c", program];
        let ran = place.run(&[], &job);
        assert_eq!(ran.job(), (0, place::out(&place.bare(&job))), "{}", ran.err());
        ran.err()
    };
    for (name, words) in [("jax", "this is JAX"), ("tensorflow", "this is TensorFlow")] {
        let said = said(&format!("import {name}; print({name}.made, {name}.__spec__.name)"));
        for words in [words, "habitat-tui run --cupti", "habitat-tui import FILE.xplane.pb"] {
            assert!(said.contains(words), "{words}: {said}");
        }
    }
    let said = said("import importlib.util; print(importlib.util.find_spec('jax').name)");
    assert!(said.contains("never imported torch.optim"), "{said}");
}

/// A program that runs until the file `go` exists.
#[cfg(target_os = "linux")]
const WAITS: &str = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.05)";

#[cfg(target_os = "linux")]
fn a_command_that_ends_before_its_training_is_named(python: &str) {
    let place = Place::new();
    std::fs::write(place.path("t.py"), WAITS).unwrap();
    let ran = place.run(&[], &["bash", "-c", &format!("'{python}' t.py >/dev/null 2>&1 & echo $!")]);
    let pid: u32 = ran.out().trim().parse().unwrap();
    assert!(is_running(pid), "it was not touched");
    std::fs::write(place.path("go"), "").unwrap();
    let said = ran.err();
    assert_eq!(ran.code(), 0, "{said}");
    // A shim may not have become the interpreter yet.
    let named = said.contains(&format!("is still running (process {pid}, `")) && said.contains(" t.py`)");
    assert!(named && said.contains("attach"), "{said}");
    wait_for("it ends", || !is_running(pid));
}

#[cfg(target_os = "linux")]
fn a_search_path_that_the_job_sets_anew_is_named(python: &str) {
    for (prefix, words) in [
        ("PYTHONPATH=src '{python}' t.py", "Write `PYTHONPATH=src:$PYTHONPATH`"),
        ("'{python}' -E t.py", "`-E` disables the hook"),
        ("env -i '{python}' t.py", "HABITAT_TUI_SOCKET"),
    ] {
        let place = Place::new();
        std::fs::write(place.path("t.py"), WAITS).unwrap();
        let child = place.start(&[], &["bash", "-c", &format!("{}; true", prefix.replace("{python}", python))]);
        // Enough time to look at the job's processes several times.
        std::thread::sleep(std::time::Duration::from_secs(5));
        std::fs::write(place.path("go"), "").unwrap();
        let ran = place.end(child);
        assert!(ran.err().contains("t.py`)") && ran.err().contains(words), "{prefix}: {}", ran.err());
    }
}

fn line<'a>(said: &'a str, label: &str) -> Option<&'a str> {
    said.lines().find_map(|line| line.trim_start().strip_prefix(label)?.strip_prefix(": "))
}

fn trainings_one_after_another_are_no_ranks(python: &str) {
    let script = fixture("slow.py");
    // A launcher around the job may have set a rank.
    let place = Place::with("SLURM_LOCALID", "0");
    let all = format!("for steps in 20 45 30; do '{python}' '{script}' progress $steps || exit 1; done");
    let ran = place.run(&[], &["bash", "-c", &all]);
    assert_eq!((ran.code(), ran.steps().len()), (0, 3), "{}", ran.err());
    let said = ran.err();
    assert_eq!(line(&said, "ranks"), None, "{said}");
    assert!(!said.contains("rank is slow") && !said.contains("is slow:"), "{said}");
    assert!(line(&said, "trainings").unwrap().starts_with("3 separate; "), "{said}");
    assert!(line(&said, "trainings").unwrap().contains("45 steps"), "that with most steps: {said}");
    assert_eq!(ran.profile.unwrap().recording.unwrap().ranks, None);
}

/// A hyperparameter search: one of four is three times as slow.
fn trainings_beside_one_another_are_no_ranks(python: &str) {
    let script = fixture("waits.py");
    let place = Place::new();
    let one = |number: u32, pause: &str| {
        format!("SLURM_PROCID={number} SLURM_LOCALID={number} SLURM_NTASKS=4 '{python}' '{script}' {pause} 0 &")
    };
    let all: Vec<String> = (0..3).map(|number| one(number, if number == 1 { "0.1" } else { "0.02" })).collect();
    let ran = place.run(&[], &["bash", "-c", &format!("{} wait", all.join(" "))]);
    assert_eq!((ran.code(), ran.steps().len(), ran.windows().len()), (0, 3, 3), "{}", ran.err());
    let said = ran.err();
    assert_eq!(line(&said, "ranks"), None, "{said}");
    assert!(line(&said, "trainings").unwrap().starts_with("3 separate; "), "{said}");
    assert_ne!(ran.seen["verdict"]["bound"], "rank", "{said}");
}

fn the_rank_that_the_others_wait_for_is_found(python: &str) {
    let torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"];
    let script = fixture("slow_rank.py");
    let run = |options: &[&str], before: &[&str], after: &[&str]| -> Ran {
        let job = [&[python], before, &[script.as_str()], after].concat();
        let ran = Place::new().run(options, &job);
        assert_eq!((ran.code(), ran.steps()), (0, vec![40, 40]), "{job:?}: {}", ran.err());
        ran
    };
    for (options, before, after) in [
        (&[][..], &torchrun[..], &["forward"][..]),
        (&["--all-ranks"], &torchrun, &["backward"]),
        (&[], &[], &["forward", "spawn"]),
    ] {
        let ran = run(options, before, after);
        let verdict = &ran.seen["verdict"];
        assert_eq!(verdict["bound"], "rank", "{options:?} {after:?}: {}", ran.err());
        let because = verdict["because"].as_str().unwrap();
        assert!(because.starts_with("rank 1 is slow: the other ranks wait "), "{because}");
        let ranks = line(&ran.err(), "ranks").unwrap().to_owned();
        assert!(ranks.starts_with("rank 1 is slow: ") && ranks.contains("; rank 0 computes "), "{}", ran.err());
        let recorded = ran.profile.unwrap().recording.unwrap().ranks;
        assert_eq!(recorded, (!options.is_empty()).then_some(2));
    }
    for options in [&[][..], &["--all-ranks"]] {
        let ran = run(options, &torchrun, &["even"]);
        assert!(!ran.err().contains("is slow"), "{}", ran.err());
        assert!(line(&ran.err(), "ranks").unwrap().starts_with("2 ranks at the same pace"), "{}", ran.err());
    }
}

fn optimizers_that_are_not_pytorchs_are_counted(python: &str) {
    let script = fixture("own_optimizers.py");
    // If PyTorch counts itself, the first step too; nothing else shows it then.
    for (kind, steps) in [
        ("Plain", 39),
        ("InGroups", 39),
        ("OfModel", 39),
        ("WithClosure", 39),
        ("WithoutInit", 39),
        ("Keras", 39),
        ("accumulates", 40),
        ("Lion", 40),
        ("Around", 40),
    ] {
        let place = Place::new();
        let job = [python, script.as_str(), kind];
        let (ran, bare) = (place.run(&[], &job), place.bare(&job));
        assert_eq!(ran.job(), (0, place::out(&bare)), "{kind}: {}", ran.err());
        assert_eq!((ran.steps(), ran.windows()), (vec![steps], vec![(11, 13)]), "{kind}: {}", ran.err());
        let profile = ran.profile.unwrap();
        let updates = |one: &Operation| one.phase == Phase::Optimizer;
        assert!(profile.operations.iter().any(updates), "{kind}: {:?}", profile.operations);
        assert_eq!(profile.workload.parameter_count, Some(16 * 32 + 32 + 32 * 4 + 4), "{kind}");
        let batch = if kind == "accumulates" { 32 } else { 8 };
        assert_eq!(profile.workload.batch_size, Some(batch), "{kind}");
    }
    let place = Place::new();
    let job = [python, script.as_str(), "by hand"];
    let (ran, bare) = (place.run(&[], &job), place.bare(&job));
    assert_eq!(ran.job(), (0, place::out(&bare)), "{}", ran.err());
    assert!(ran.err().contains("the job made 40 backward passes"), "{}", ran.err());
}

/// The job ends as without us and the reason is reported; no limit kills it.
#[cfg(target_os = "linux")]
fn limits_of_the_job_are_respected(python: &str) {
    let script = fixture("limits.py");
    for (how, words) in [
        (&["files"][..], "the job may write no file over 0.2 MB (ulimit -f)"),
        (&["late"], "the trace was not written: it is cut off, as by a limit on the size of files (ulimit -f)"),
        (&["memory"], "more memory (ulimit -v)"),
        (&["data"], "more memory (ulimit -d)"),
        (&["time", "2"], "processor time left (ulimit -t)"),
        (&["threads"], "the job cannot start another thread"),
    ] {
        let place = Place::new();
        let job = [&[python, script.as_str()], how].concat();
        let ran = place.run(&[], &job);
        assert_eq!(ran.job(), (0, place::out(&place.bare(&job))), "{how:?}: {}", ran.err());
        assert!(ran.seen.to_string().contains(words), "{how:?}: {}", ran.err());
        assert_eq!(ran.windows(), [], "{how:?}: {}", ran.err());
    }
    let ran = Place::new().run(&[], &["bash", "-c", "ulimit -c 0; kill -XFSZ $$"]);
    assert_eq!(ran.code(), 153);
    assert!(ran.err().contains("ulimit -f") && !ran.err().contains("not by habitat-tui"), "{}", ran.err());
}
