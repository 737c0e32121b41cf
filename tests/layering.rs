//! Borders between crates and modules. Cargo enforces those between the crates of `src/`: a crate can only use those in
//! its manifest, and `arrows_between_crates` lists these. This test reads the sources and enforces the rest:
//!
//! 1. The crates from `base` to `planning`, and `recorder/live`, only compute: no
//!    files, environment, network, processes, threads, clock or printing.
//! 2. Only its reader knows a format of recordings; only `step/op` reads operators' names.
//! 3. `screens/app` knows neither a terminal nor the drawing.
//! 4. Some dependencies are used in only one place.
//! 5. Files are read, and text is printed, in one place.
//! 6. Modules of a folder use each other in one direction.
//! 7. No crate outgrows its budget, no file 500 lines, few functions 80.
//! 8. Crates that compute return values; `reports/words` writes the sentences.
//! 9. Every file of tests is in a target.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[path = "layering/circles.rs"]
mod circles;
#[path = "layering/functions.rs"]
mod functions;
#[path = "layering/literals.rs"]
mod literals;
#[path = "layering/targets.rs"]
mod targets;

use std::path::{Path, PathBuf};

/// Rust files in a folder and its subfolders.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Source files without unit tests, which are in files `tests.rs`, or a folder if there are many.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let is_tests = |path: &Path| path.iter().any(|part| part == "tests" || part == "tests.rs");
    rust_files(folder).into_iter().filter(|path| !is_tests(path.strip_prefix(folder).unwrap())).collect()
}

/// A source file: its path under `src/` (`lab/` for the lab), and its lines without comments and tests.
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

/// Numbered lines up to the unit tests at the end of a file (which may read files), without comments and declarations
/// of test modules.
fn code_lines(text: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let is_mark = |index: usize| lines[index].trim_end() == "#[cfg(test)]";
    let declares = |index: usize| lines.get(index + 1).is_some_and(|next| next.trim_end().ends_with(';'));
    (0..lines.len())
        .take_while(|&index| !is_mark(index) || declares(index))
        .filter(|&index| !is_mark(index) && (index == 0 || !is_mark(index - 1)))
        .filter(|&index| !lines[index].trim_start().starts_with("//"))
        .map(|index| (index + 1, lines[index].split(" // ").next().unwrap_or(lines[index]).to_owned()))
        .collect()
}

/// The crate of a file: the first part of its path.
fn crate_of(path: &str) -> &str {
    path.split('/').next().unwrap().trim_end_matches(".rs")
}

/// The part of the lab of a file; `None` for the program's.
fn part_of_lab(path: &str) -> Option<&str> {
    path.strip_prefix("lab/").map(crate_of)
}

fn offences(allowed_at: impl Fn(&str) -> bool, forbidden: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for source in read_all().iter().filter(|source| !allowed_at(&source.path)) {
        // A name may be one of several in braces: `use std::{env, fs}`.
        let brought = circles::brought(source).into_iter().map(|(number, path, _)| (number, path.join("::")));
        for (number, line) in source.code.iter().cloned().chain(brought) {
            for name in forbidden.iter().filter(|name| mentions(&line, name)) {
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

/// Crates that only compute.
const PURE: [&str; 5] = ["base", "step", "traces", "prediction", "planning"];

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
    let pure = |path: &str| {
        PURE.contains(&crate_of(path)) || path.starts_with("recorder/live") || part_of_lab(path) == Some("learn")
    };
    let found = offences(|path| !pure(path), &forbidden);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The crates that each crate of `src/` may use, as its manifest names them.
#[test]
fn arrows_between_crates() {
    let below = |crates: &str| crates.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    for (name, allowed) in [
        ("base", ""),
        ("step", "base"),
        ("traces", "base step"),
        ("prediction", "base step models"),
        ("planning", "base prediction"),
        ("recorder", "base step traces profiler"),
        ("reports", "base step prediction planning recorder themes"),
        ("screens", "base step prediction planning recorder reports"),
    ] {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(name).join("Cargo.toml");
        let manifest = std::fs::read_to_string(manifest).unwrap();
        let lines = manifest.lines().filter(|line| !line.starts_with("name = "));
        let named = lines.flat_map(|line| line.split("habitat-tui-").skip(1));
        let used: Vec<&str> = named.map(|rest| rest.split(['.', ' ', '"', ']']).next().unwrap()).collect();
        for other in &used {
            assert!(below(allowed).iter().any(|one| one == other), "src/{name} may not use {other}");
        }
    }
}

/// Most lines of code of each crate, without comments and unit tests; with little room for growth, on purpose.
const BUDGETS: [(&str, usize); 9] = [
    ("base", 1200),
    ("step", 7070),
    ("traces", 8440),
    ("prediction", 14114),
    ("planning", 10932),
    ("recorder", 7480),
    ("reports", 12732),
    ("screens", 10405),
    ("program", 14978),
];

#[test]
fn files_stay_short() {
    for source in read_all().iter().filter(|source| part_of_lab(&source.path).is_none()) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(&source.path);
        let lines = std::fs::read_to_string(path).unwrap().lines().count();
        assert!(lines <= 500, "src/{}: {lines} lines, more than 500: split it", source.path);
    }
}

/// Lines of a folder that are not blank: all of them, and comments.
fn size(folder: &Path) -> (usize, usize) {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).fold((0, 0), |(all, comments), path| {
        if path.is_dir() {
            let inner = size(&path);
            return (all + inner.0, comments + inner.1);
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let is_source = path.extension().is_some_and(|extension| extension == "rs");
        let of = |lines: usize| if is_source { lines } else { 0 };
        (all + of(lines.len()), comments + of(lines.iter().filter(|line| line.starts_with("//")).count()))
    })
}

/// With `-- --nocapture` prints the sizes of the crates.
#[test]
fn no_crate_outgrows_its_budget() {
    let sources = read_all();
    let lines = |own: &str| -> usize {
        let code = sources.iter().filter(|source| crate_of(&source.path) == own).flat_map(|source| &source.code);
        code.filter(|(_, line)| !line.trim().is_empty()).count()
    };
    println!("crate          code  comments   tests");
    let mut over = Vec::new();
    for (name, most) in BUDGETS {
        let found = lines(name);
        let (all, comments) = size(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(name));
        println!("{name:<12} {found:>6} {comments:>9} {:>7}", all - comments - found);
        if found > most {
            over.push(format!("src/{name} has {found} lines of code, budget {most}: make it smaller, or say why not"));
        }
    }
    assert!(over.is_empty(), "{}", over.join("\n"));
}

/// A format is a folder of `traces`: the builder of profiles knows none of them, and a reader knows neither the others
/// nor the builder.
#[test]
fn a_format_is_known_to_its_reader_alone() {
    let readers = ["kineto", "nsight", "xplane"];
    let named =
        |reader: &str| [format!("crate::{reader}"), format!("habitat_traces::{reader}"), format!("super::{reader}")];
    let all: Vec<String> = readers.into_iter().flat_map(named).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let found = offences(|path| !path.starts_with("traces/builder"), &all);
    assert!(found.is_empty(), "{}", found.join("\n"));
    for own in readers {
        let others: Vec<&str> = all.iter().copied().filter(|name| !name.ends_with(own)).collect();
        let is_own = |path: &str| path.starts_with(&format!("traces/{own}"));
        let found = offences(|path| !is_own(path), &others);
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
    let is_reader = |path: &str| readers.iter().any(|reader| path.starts_with(&format!("traces/{reader}")));
    let found = offences(|path| !is_reader(path), &["crate::builder", "crate::import"]);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The lab uses the parts of the library that compute, read and report; its training knows neither its protocols nor
/// its files.
#[test]
fn the_workshop_knows_the_library_alone() {
    let screens_and_jobs = ["tui", "app", "capture", "live", "action"].map(|module| format!("habitat_tui::{module}"));
    let forbidden: Vec<&str> = screens_and_jobs.iter().map(String::as_str).collect();
    let found = offences(|path| part_of_lab(path).is_none(), &forbidden);
    assert!(found.is_empty(), "{}", found.join("\n"));
    let front = ["cli", "store", "settings", "terminal"].map(|module| format!("habitat_tui::{module}"));
    let parts = ["args", "evaluate", "train"].map(|part| format!("crate::{part}"));
    let forbidden: Vec<&str> = front.iter().chain(&parts).map(String::as_str).collect();
    let found = offences(|path| part_of_lab(path) != Some("learn"), &forbidden);
    assert!(found.is_empty(), "{}", found.join("\n"));
    let found = offences(|path| crate_of(path) == "lab", &["habitat_tui_lab"]);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn one_crate_one_place() {
    for (names, places) in [
        (vec!["good_lp", "microlp::"], vec!["planning/plan/solve.rs"]),
        (vec!["candle_core", "candle_nn"], vec!["prediction/mlp.rs", "lab/learn/fit.rs"]),
        (vec!["rayon"], vec!["prediction/mlp.rs", "prediction/parallel.rs", "lab/learn/efficiency/folds.rs"]),
        (vec!["rmcp"], vec!["program/cli/mcp.rs", "program/cli/mcp/tools.rs"]),
        (vec!["safetensors::"], vec!["prediction/bundle.rs"]),
        (vec!["smartcore"], vec!["lab/learn/published.rs"]),
        (vec!["ureq"], vec!["program/store/download.rs"]),
        (vec!["rusqlite"], vec!["program/store/nsys.rs", "program/store/nsys/database.rs"]),
        (vec!["sha2::"], vec!["step/profile.rs", "lab/hash.rs"]),
        (
            vec!["cudarc", "libloading"],
            vec![
                "recorder/capture/device.rs",
                "recorder/capture/device/driver.rs",
                "recorder/capture/device/products.rs",
            ],
        ),
        (vec!["cpp_demangle"], vec!["traces/kineto/demangle.rs"]),
        (vec!["directories"], vec!["program/store/paths.rs"]),
        (vec!["include_dir"], vec!["program/store/bundled.rs"]),
        (
            vec!["nix::"],
            vec![
                "program/store/save.rs",
                "program/store/files.rs",
                "screens/tui/pause.rs",
                "recorder/capture/launch.rs",
                "recorder/capture/log.rs",
                "recorder/capture/folder.rs",
                "recorder/capture/private.rs",
                "recorder/capture/on_demand/endpoint.rs",
                "recorder/capture/on_demand/process.rs",
            ],
        ),
        (
            vec!["signal_hook"],
            vec![
                "recorder/capture/launch.rs",
                "recorder/capture/log.rs",
                "recorder/capture/signals.rs",
                "program/terminal/pager.rs",
                "screens/tui/pause.rs",
                "screens/tui/runner.rs",
            ],
        ),
    ] {
        let found = offences(|path| places.contains(&path), &names);
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
    let found = offences(|path| path.starts_with("screens/tui"), &["ratatui", "crossterm", "crate::tui"]);
    assert!(found.is_empty(), "{}", found.join("\n"));
    let waits = |path: &str| path.starts_with("screens/tui") || path.starts_with("program/cli/mcp");
    let found = offences(waits, &["tokio"]);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// `store/files.rs` reads all files that a user names, with a limit for each kind.
#[test]
fn files_are_read_in_one_place() {
    let elsewhere = [
        ("program/store/files.rs", "the reader with limits"),
        ("program/store/download.rs", "appends to the part of a file that has come"),
        ("program/store/save.rs", "writes"),
        ("recorder/capture/folder.rs", "files that our own jobs put into a folder of our own"),
        ("recorder/capture/on_demand/align.rs", "the two ends of a trace, with a limit"),
        ("recorder/capture/on_demand/endpoint.rs", "/proc/net/unix"),
        ("recorder/capture/on_demand/trace_folder.rs", "the end of a trace"),
        ("recorder/capture/on_demand/process.rs", "/proc"),
        ("recorder/capture/log.rs", "a process between the job and its log: what comes in goes out"),
        ("recorder/capture/launch.rs", "/dev/tty"),
        ("recorder/capture/private.rs", "/proc"),
        ("recorder/capture/smi.rs", "what nvidia-smi prints"),
        ("program/cli/run/log.rs", "the log of our own job, from where it was last read, with a limit"),
    ];
    let allowed = |path: &str| elsewhere.iter().any(|(place, _)| *place == path);
    let reads = ["fs::read", "fs::read_to_string", "File::open", "read_to_end", "read_to_string", "io::stdin"];
    let names = [&reads[..], &["File::options", "OpenOptions"]].concat();
    let found: Vec<String> =
        offences(allowed, &names).into_iter().filter(|line| !line.contains("is_terminal()")).collect();
    assert!(found.is_empty(), "read with store::read and a limit:\n{}", found.join("\n"));
}

/// `terminal.rs` sanitises all output; only the screens write directly.
#[test]
fn everything_is_printed_in_one_place() {
    let found = offences(|_| false, &["println!", "print!", "eprintln!", "eprint!"]);
    assert!(found.is_empty(), "use terminal.rs:\n{}", found.join("\n"));
    let elsewhere = [
        ("program/terminal.rs", "the writer that cleans"),
        ("main.rs", "flushes what clap printed"),
        ("program/cli/progress.rs", "redraws its line"),
        ("program/cli/import.rs", "redraws its line"),
        ("recorder/capture/log.rs", "a process between the job and its log"),
        ("recorder/capture/shapes.rs", "gives it to the child"),
        ("program/store/save.rs", "/dev/stdout as the file to write"),
    ];
    let allowed = |path: &str| path.starts_with("screens/tui") || elsewhere.iter().any(|(place, _)| *place == path);
    let found: Vec<String> = offences(allowed, &["io::stdout", "io::stderr"])
        .into_iter()
        .filter(|line| !line.contains("is_terminal()"))
        .collect();
    assert!(found.is_empty(), "use terminal.rs:\n{}", found.join("\n"));
}

/// Methods that parse a name.
const LOOKS: [&str; 7] = ["contains", "starts_with", "ends_with", "strip_prefix", "strip_suffix", "split", "rsplit"];
/// Sources of an operator's name.
const NAMES: [&str; 4] = ["operation.name", "call.name", "description.name", "trace.name("];

/// Lines that parse the name of an operator: directly, through a variable of the same function, or by a common prefix.
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
                && !["op::", "name::", "Name::"].iter().any(|module| value.contains(module))
            {
                aliases.push(alias);
            }
        }
    }
    found
}

/// Only `op/name.rs` and its folder parse an operator's name; other code asks them.
#[test]
fn only_op_looks_at_names_of_operators() {
    let elsewhere = [
        ("step/decoder/step.rs", "writes the names of a model's operators"),
        ("step/decoder/step/passes.rs", "writes the names of a model's operators"),
        ("prediction/suggest.rs", "writes the names of operators to measure"),
        ("traces/builder/nest.rs", "reads the names of modules and of the data loader's ranges"),
        ("traces/builder/parts.rs", "reads the names of the data loader's ranges"),
        ("traces/builder/update.rs", "reads the names of optimizers"),
        ("traces/xplane/hlo.rs", "writes instructions of XLA under names of PyTorch"),
        ("program/store/collected/operators.rs", "writes the names of a table's rows"),
        ("program/store/operator_tables.rs", "writes the names of a table's rows, and reads its own"),
    ];
    let sources = read_all();
    let looks = |keep: &dyn Fn(&str) -> bool| -> Vec<String> {
        sources.iter().filter(|source| keep(&source.path)).flat_map(looks_at_names).collect()
    };
    let found = looks(&|path| !path.starts_with("step/op") && !elsewhere.iter().any(|(place, _)| *place == path));
    assert!(found.is_empty(), "ask habitat_step::op::name:\n{}", found.join("\n"));
    for (place, reason) in elsewhere {
        assert!(!looks(&|path| path == place).is_empty(), "src/{place} no longer {reason}: strike it off");
    }
}

/// The scanner must find what it forbids.
#[test]
fn the_scanner_sees() {
    assert!(mentions("use std::fs::File;", "std::fs"));
    assert!(mentions("    println!(\"x\")", "println!"));
    assert!(!mentions("eprintln!()", "println!"));
    assert!(!mentions("use crate::plans::X;", "crate::plan"));
    assert!(mentions("crate::plan::Goal", "crate::plan"));
    assert_eq!(code_lines("a // b\n// c\nd\n#[cfg(test)]\ne"), [(1, "a".to_owned()), (3, "d".to_owned())]);
    assert!(read_all().len() > 30);
    let grouped = Source { path: "x.rs".to_owned(), code: code_lines("use std::{\n    env,\n    fs::File,\n};") };
    let paths = circles::brought(&grouped).into_iter().map(|(number, path, _)| (number, path.join("::")));
    assert_eq!(paths.collect::<Vec<_>>(), [(1, "std::env".to_owned()), (1, "std::fs::File".to_owned())]);
    let source = |text: &str| Source { path: "x.rs".to_owned(), code: code_lines(text) };
    let alias = "fn a() {\n    let name = &operation.name;\n    name.starts_with(\"x\")\n}";
    assert_eq!(looks_at_names(&source(alias)), ["x.rs:3: name.starts_with(\"x\")"]);
    let other = "fn a() {\n    let name = &operation.name;\n}\nfn b(name: &str) {\n    name.starts_with(\"x\")\n}";
    assert!(looks_at_names(&source(other)).is_empty());
    assert_eq!(looks_at_names(&source("fn a() {\n    let known = [\"aten::mm\"];\n}")).len(), 1);
}
