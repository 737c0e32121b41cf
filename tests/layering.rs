//! Who may import whom. A single crate has no walls, so this test reads `src/`, and the
//! workshop's `models/lab/src/` as `lab/`, and fails on a forbidden name.
//!
//! The rooms, from the ground up:
//!
//! 1. Core: units, text, regress, profile, op, trace, catalog, predict, pricing, plan. Bytes and
//!    values in, values out: no files, environment, network, processes, threads, clock or printing,
//!    no front-end crate. Arrows point one way: units → {profile, catalog, pricing}; profile's plain
//!    data → op → trace (readers of recordings) → profile's builder; regress → pricing;
//!    regress, profile, op and catalog → predict; predict and pricing → plan.
//! 2. report: core → text; of settings the roles of a theme, by which a cell says what it means; of
//!    live what is known of a running job.
//!    terminal: the only way to standard output and standard error.
//! 3. store: files and folders; knows profile, op, trace, catalog, pricing, and predict's weights
//!    and logs.
//!    capture: a job started, listened to, and what it did as a profile; a GPU measured, and
//!    what it reaches as a calibration; knows regress, profile, trace, catalog and live.
//!    live: what the screens and the one who follows a running job exchange, as data.
//! 4. action, settings: what can be done and set, as data; they know the core's plain
//!    choices (a tier, a precision, a grouping) and nothing that computes.
//! 5. app: core, report, action, settings and live; neither a terminal nor an async runtime.
//! 6. learn: models that a user fits to their own data. As pure as the core, which does
//!    not know it; only cli does.
//! 7. cli: everything but app and tui. tui: everything but learn and capture; of cli only what it
//!    orders to be opened (`cli::Screens`). Only `main.rs` knows both.
//! 8. lab: trains and evaluates the shipped models; a package of its own, which knows the
//!    library as cli does. In it, learn trains and is as pure as the core; evaluate and train
//!    read files and print.
//!
//! And one crate, one file, for those that a reader should find in one place. candle has
//! two: networks and what they compute (`predict/mlp.rs`), and their training
//! (`lab/learn/fit.rs`), which needs the same tensors.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Source files; those named `tests.rs` are the tests of a module, which may look at all they need.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // Unit tests have a file of their own, and a folder where they are many.
        if path.ends_with("tests") {
            continue;
        }
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// A source file: its path under `src/` (the workshop's begins with `lab/`), and its lines
/// without comments and tests.
struct Source {
    path: String,
    code: Vec<(usize, String)>,
}

fn read_all() -> Vec<Source> {
    let mut found = Vec::new();
    for (prefix, root) in [("", "src"), ("lab/", "models/lab/src")] {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(root);
        found.extend(sources(&root).into_iter().map(|file| {
            let text = std::fs::read_to_string(&file).unwrap();
            let path = file.strip_prefix(&root).unwrap().to_string_lossy().replace('\\', "/");
            Source { path: format!("{prefix}{path}"), code: code_lines(&text) }
        }));
    }
    found
}

/// Lines with their numbers, up to the unit tests at the end of a file (which may read
/// files), comments left out.
fn code_lines(text: &str) -> Vec<(usize, String)> {
    text.lines()
        .enumerate()
        .take_while(|(_, line)| line.trim_end() != "#[cfg(test)]")
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .map(|(index, line)| (index + 1, line.split(" // ").next().unwrap_or(line).to_owned()))
        .collect()
}

/// The room a file belongs to: the first part of its path.
fn room(path: &str) -> &str {
    path.split('/').next().unwrap().trim_end_matches(".rs")
}

/// The part of the workshop a file belongs to; `None` for the program's.
fn part_of_lab(path: &str) -> Option<&str> {
    path.strip_prefix("lab/").map(room)
}

fn offences(allowed_at: impl Fn(&str) -> bool, forbidden: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for source in read_all().iter().filter(|source| !allowed_at(&source.path)) {
        for (number, line) in &source.code {
            for name in forbidden.iter().filter(|name| mentions(line, name)) {
                found.push(format!("{}:{number} names {name}: {}", source.path, line.trim()));
            }
        }
    }
    found
}

/// Whether `line` has `name` as a whole path, not as part of a longer word.
fn mentions(line: &str, name: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(name).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + name.len()..].chars().next();
        let starts = !name.starts_with(word) || before.is_none_or(|c| !word(c));
        let ends = !name.ends_with(word) || after.is_none_or(|c| !word(c));
        starts && ends
    })
}

const CORE: [&str; 10] =
    ["units", "text", "regress", "profile", "op", "trace", "catalog", "predict", "pricing", "plan"];
/// Rooms that compute and nothing else.
const PURE: [&str; 12] =
    ["units", "text", "regress", "profile", "op", "trace", "catalog", "predict", "pricing", "plan", "learn", "live"];

#[test]
fn the_core_and_learning_compute_and_nothing_else() {
    let forbidden = [
        "std::fs",
        "std::env",
        "std::net",
        "std::process",
        "std::thread",
        "std::time::Instant",
        "std::time::SystemTime",
        "SystemTime::now",
        "Instant::now",
        "Timestamp::now",
        "Zoned::now",
        "println!",
        "print!",
        "eprintln!",
        "eprint!",
        "tokio",
        "ratatui",
        "crossterm",
        "cudarc",
        "directories",
        "clap",
        "tempfile",
    ];
    let pure = |path: &str| PURE.contains(&room(path)) || part_of_lab(path) == Some("learn");
    let found = offences(|path| !pure(path), &forbidden);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Which rooms a room may name with `crate::`.
fn may_import() -> BTreeMap<&'static str, Vec<&'static str>> {
    let all_core = CORE.to_vec();
    let with = |more: &[&'static str]| [all_core.clone(), more.to_vec()].concat();
    BTreeMap::from([
        ("units", vec![]),
        ("text", vec![]),
        ("terminal", vec!["text"]),
        ("regress", vec![]),
        ("profile", vec!["units", "text", "regress", "op", "trace"]),
        ("op", vec!["units", "profile"]),
        ("trace", vec!["units", "text", "profile", "op"]),
        ("catalog", vec!["units", "text"]),
        ("pricing", vec!["units", "text", "regress"]),
        ("predict", vec!["units", "text", "regress", "profile", "op", "catalog"]),
        ("plan", vec!["units", "text", "predict", "pricing"]),
        ("learn", vec!["units", "text", "regress", "profile", "op", "catalog", "predict"]),
        ("report", with(&["settings", "live"])),
        ("store", vec!["units", "text", "regress", "profile", "op", "trace", "catalog", "pricing", "predict"]),
        ("capture", vec!["units", "text", "regress", "profile", "trace", "catalog", "live"]),
        ("live", vec!["units", "text", "profile"]),
        ("action", vec!["units"]),
        ("settings", vec!["units", "action", "profile", "predict", "pricing", "plan", "text"]),
        ("app", with(&["report", "action", "settings", "live"])),
        ("cli", with(&["report", "store", "terminal", "action", "settings", "learn", "capture", "live"])),
        ("tui", with(&["report", "store", "action", "settings", "app", "cli", "live"])),
    ])
}

#[test]
fn arrows_between_rooms_point_one_way() {
    let rules = may_import();
    let rooms: Vec<&str> = rules.keys().copied().collect();
    let mut found = Vec::new();
    for source in read_all() {
        let own = room(&source.path);
        if matches!(own, "lib" | "main" | "lab") {
            continue;
        }
        let allowed = rules.get(own).unwrap_or_else(|| panic!("{} belongs to no room of this test", source.path));
        for (number, line) in &source.code {
            for other in rooms.iter().filter(|&&other| other != own && !allowed.contains(&other)) {
                if mentions(line, &format!("crate::{other}")) {
                    found.push(format!("{}:{number}: {own} may not import {other}: {}", source.path, line.trim()));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// A format is a folder of `trace`: what makes the profile knows none of them, and no reader
/// knows another or how a profile is made.
#[test]
fn a_format_is_known_to_its_reader_alone() {
    let readers = ["kineto", "nsight", "xplane"];
    let named = |reader: &str| [format!("trace::{reader}"), format!("super::{reader}")];
    let all: Vec<String> = readers.into_iter().flat_map(named).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let found = offences(|path| !path.starts_with("profile/builder"), &all);
    assert!(found.is_empty(), "{}", found.join("\n"));
    for own in readers {
        let others: Vec<&str> = all.iter().copied().filter(|name| !name.ends_with(own)).collect();
        let is_own = |path: &str| path.starts_with(&format!("trace/{own}"));
        let found = offences(|path| !is_own(path), &others);
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
    let found = offences(|path| room(path) != "trace", &["profile::builder", "profile::import"]);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The workshop takes from the library what computes, reads and reports; its training knows
/// neither its protocols nor its files.
#[test]
fn the_workshop_knows_the_library_alone() {
    let screens_and_jobs = ["tui", "app", "capture", "live", "action"].map(|room| format!("habitat_tui::{room}"));
    let forbidden: Vec<&str> = screens_and_jobs.iter().map(String::as_str).collect();
    let found = offences(|path| part_of_lab(path).is_none(), &forbidden);
    assert!(found.is_empty(), "{}", found.join("\n"));
    let rooms = ["cli", "store", "settings", "terminal"].map(|room| format!("habitat_tui::{room}"));
    let parts = ["args", "evaluate", "train"].map(|part| format!("crate::{part}"));
    let forbidden: Vec<&str> = rooms.iter().chain(&parts).map(String::as_str).collect();
    let found = offences(|path| part_of_lab(path) != Some("learn"), &forbidden);
    assert!(found.is_empty(), "{}", found.join("\n"));
    let found = offences(|path| room(path) == "lab", &["habitat_tui_lab"]);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// `use crate::{a, b}` would hide a room from the tests above.
#[test]
fn rooms_are_imported_one_a_line() {
    let found = offences(|path| path == "main.rs", &["crate::{", "habitat_tui::{"]);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn one_crate_one_place() {
    for (names, places) in [
        (vec!["good_lp", "microlp::"], vec!["plan/solve.rs"]),
        (vec!["candle_core", "candle_nn"], vec!["predict/mlp.rs", "lab/learn/fit.rs"]),
        (vec!["rayon"], vec!["predict/mlp.rs", "predict/parallel.rs", "lab/learn/efficiency/folds.rs"]),
        (vec!["safetensors::"], vec!["predict/bundle.rs"]),
        (vec!["smartcore"], vec!["lab/learn/published.rs"]),
        (vec!["ureq"], vec!["store/download.rs"]),
        (vec!["rusqlite"], vec!["store/nsys.rs", "store/nsys/database.rs"]),
        (vec!["sha2::"], vec!["profile.rs", "lab/train.rs"]),
        (
            vec!["cudarc", "libloading"],
            vec!["capture/device.rs", "capture/device/driver.rs", "capture/device/products.rs"],
        ),
        (vec!["cpp_demangle"], vec!["trace/kineto/demangle.rs"]),
        (vec!["directories"], vec!["store/paths.rs"]),
        (vec!["include_dir"], vec!["store/bundled.rs"]),
        (
            vec!["nix::"],
            vec![
                "store/save.rs",
                "store/files.rs",
                "tui/pause.rs",
                "capture/launch.rs",
                "capture/log.rs",
                "capture/folder.rs",
                "capture/private.rs",
                "capture/on_demand/endpoint.rs",
                "capture/on_demand/process.rs",
                "capture/on_demand/trace_folder.rs",
            ],
        ),
        (
            vec!["signal_hook"],
            vec![
                "capture/launch.rs",
                "capture/log.rs",
                "capture/signals.rs",
                "terminal/pager.rs",
                "tui/pause.rs",
                "tui/runner.rs",
            ],
        ),
    ] {
        let found = offences(|path| places.contains(&path), &names);
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
    let found = offences(|path| room(path) == "tui", &["ratatui", "crossterm", "tokio"]);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Whatever a user names is read by `store/files.rs`, which has a limit for each kind of file.
#[test]
fn files_are_read_in_one_place() {
    let elsewhere = [
        ("store/files.rs", "the reader with limits"),
        ("capture/assemble.rs", "traces of our own jobs, streamed"),
        ("capture/folder.rs", "the lock of a folder of our own, with a limit"),
        ("capture/on_demand/align.rs", "the two ends of a trace, with a limit"),
        ("capture/on_demand/endpoint.rs", "/proc/net/unix"),
        ("capture/on_demand/trace_folder.rs", "the end of a trace"),
        ("capture/on_demand/process.rs", "/proc"),
        ("capture/log.rs", "a process between the job and its log: what comes in goes out"),
        ("capture/private.rs", "our own package in a folder of our own, and /proc"),
        ("capture/shapes.rs", "what our own Python wrote into a folder of our own"),
        ("capture/smi.rs", "what nvidia-smi prints"),
        ("cli/run/live/log.rs", "the log of our own job, from where it was last read, with a limit"),
    ];
    let allowed = |path: &str| elsewhere.iter().any(|(place, _)| *place == path);
    let names = ["fs::read", "fs::read_to_string", "File::open", "read_to_end", "read_to_string", "io::stdin"];
    let found: Vec<String> =
        offences(allowed, &names).into_iter().filter(|line| !line.contains("is_terminal()")).collect();
    assert!(found.is_empty(), "read with store::read and a limit:\n{}", found.join("\n"));
}

/// What is printed is cleaned by `terminal.rs`; only the screens write for themselves.
#[test]
fn everything_is_printed_in_one_place() {
    let found = offences(|_| false, &["println!", "print!", "eprintln!", "eprint!"]);
    assert!(found.is_empty(), "use crate::terminal:\n{}", found.join("\n"));
    let elsewhere = [
        ("terminal.rs", "the writer that cleans"),
        ("main.rs", "flushes what clap printed"),
        ("cli/progress.rs", "redraws its line"),
        ("cli/import.rs", "redraws its line"),
        ("capture/log.rs", "a process between the job and its log"),
        ("capture/shapes.rs", "gives it to the child"),
        ("store/save.rs", "/dev/stdout as the file to write"),
    ];
    let allowed = |path: &str| room(path) == "tui" || elsewhere.iter().any(|(place, _)| *place == path);
    let found: Vec<String> = offences(allowed, &["io::stdout", "io::stderr"])
        .into_iter()
        .filter(|line| !line.contains("is_terminal()"))
        .collect();
    assert!(found.is_empty(), "use crate::terminal:\n{}", found.join("\n"));
}

/// Methods that read a name letter by letter.
const LOOKS: [&str; 7] = ["contains", "starts_with", "ends_with", "strip_prefix", "strip_suffix", "split", "rsplit"];
/// What gives the name of an operator.
const NAMES: [&str; 4] = ["operation.name", "call.name", "description.name", "trace.name("];

/// Lines that look at the name of an operator: by itself, under another name given to it before in
/// the same function, or by what such names begin with.
fn looks_at_names(source: &Source) -> Vec<String> {
    let mut aliases: Vec<&str> = Vec::new();
    let mut found = Vec::new();
    for (number, line) in &source.code {
        if mentions(line, "fn") && line.contains('(') {
            aliases.clear();
        }
        let is_looked_at = |name: &str| {
            let method = |method: &&str| mentions(line, &format!("{name}.{method}("));
            LOOKS.iter().any(method)
                || [" {", ".as_str()"].iter().any(|end| mentions(line, &format!("match {name}{end}")))
        };
        let literals = ["\"aten::", "\"c10d::"];
        if literals.iter().any(|start| line.contains(start))
            || NAMES.iter().any(|name| is_looked_at(name))
            || aliases.iter().any(|alias| is_looked_at(alias))
        {
            found.push(format!("{}:{number}: {}", source.path, line.trim()));
        }
        let bound = line.trim_start().strip_prefix("let ").and_then(|rest| rest.split_once(" = "));
        if let Some((alias, value)) = bound {
            let alias = alias.split(':').next().unwrap_or(alias).trim();
            aliases.retain(|known| *known != alias);
            if NAMES.iter().any(|name| value.contains(name))
                && !["op::", "name::", "Name::"].iter().any(|room| value.contains(room))
            {
                aliases.push(alias);
            }
        }
    }
    found
}

/// What an operator is, is read from its name in `op/name.rs` and its folder alone; the rest
/// asks there.
#[test]
fn only_op_looks_at_names_of_operators() {
    let elsewhere = [
        ("predict/suggest.rs", "writes the names of operators to measure"),
        ("profile/builder/nest.rs", "reads the names of modules and of the data loader's ranges"),
        ("profile/builder/samples.rs", "reads the names of the data loader's ranges"),
        ("profile/builder/update.rs", "reads the names of optimizers"),
        ("trace/xplane/hlo.rs", "writes instructions of XLA under names of PyTorch"),
        ("store/collected/operators.rs", "writes the names of a table's rows"),
        ("store/operator_tables.rs", "writes the names of a table's rows, and reads its own"),
    ];
    let sources = read_all();
    let looks = |keep: &dyn Fn(&str) -> bool| -> Vec<String> {
        sources.iter().filter(|source| keep(&source.path)).flat_map(looks_at_names).collect()
    };
    let found = looks(&|path| room(path) != "op" && !elsewhere.iter().any(|(place, _)| *place == path));
    assert!(found.is_empty(), "ask crate::op::name:\n{}", found.join("\n"));
    for (place, reason) in elsewhere {
        assert!(!looks(&|path| path == place).is_empty(), "src/{place} no longer {reason}: strike it off");
    }
}

#[test]
fn only_main_knows_the_screens_and_the_commands() {
    let found = offences(
        |path| room(path) == "tui" || path == "main.rs" || path == "lib.rs",
        &["crate::tui", "habitat_tui::tui"],
    );
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_screens_take_only_their_order_from_the_commands() {
    for source in read_all().iter().filter(|source| room(&source.path) == "tui") {
        for (number, line) in source.code.iter().filter(|(_, line)| mentions(line, "crate::cli")) {
            assert!(line.contains("crate::cli::Screens"), "{}:{number}: {line}", source.path);
        }
    }
}

/// The test's own eyes: it must see what it forbids.
#[test]
fn the_scanner_sees() {
    assert!(mentions("use std::fs::File;", "std::fs"));
    assert!(mentions("    println!(\"x\")", "println!"));
    assert!(!mentions("eprintln!()", "println!"));
    assert!(!mentions("use crate::plans::X;", "crate::plan"));
    assert!(mentions("crate::plan::Goal", "crate::plan"));
    assert_eq!(code_lines("a // b\n// c\nd\n#[cfg(test)]\ne"), [(1, "a".to_owned()), (3, "d".to_owned())]);
    assert!(read_all().len() > 30);
    let source = |text: &str| Source { path: "x.rs".to_owned(), code: code_lines(text) };
    let alias = "fn a() {\n    let name = &operation.name;\n    name.starts_with(\"x\")\n}";
    assert_eq!(looks_at_names(&source(alias)), ["x.rs:3: name.starts_with(\"x\")"]);
    let other = "fn a() {\n    let name = &operation.name;\n}\nfn b(name: &str) {\n    name.starts_with(\"x\")\n}";
    assert!(looks_at_names(&source(other)).is_empty());
    assert_eq!(looks_at_names(&source("fn a() {\n    let known = [\"aten::mm\"];\n}")).len(), 1);
}
