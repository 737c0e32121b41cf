//! The papers: their links lead somewhere, their commands are right, and what they show of the
//! output is what is printed.
//!
//! Every command, in blocks and within sentences, is given to the parser of the command line.
//! The lines of blocks that begin with a program are then run, paper by paper and in their order,
//! in a folder with the files that papers name. They end with exit code 0, or with the one that the
//! comment beside them names. Of a block of `text`, every line is in the output of the command above
//! it, where `…` stands for anything.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command as Process, Stdio};

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use habitat_tui::Coded;
use habitat_tui::plan::{NoPlan, PlanNote, Reason, Setback};
use habitat_tui::predict::Finding;
use habitat_tui::pricing::{PriceIssue, Unusable};
use habitat_tui::profile::Sample;
use habitat_tui::settings::args::{Cli, Command, PricesArgs, PricesCommand};
use habitat_tui::store::bundled;
use habitat_tui::text::grouped;
use habitat_tui::units::{GpuSlug, most};
use libtest_mimic::Trial;

trials! {
    always () => [
        every_relative_link_leads_somewhere,
        the_book_has_every_paper,
        every_command_is_known,
        every_code_is_listed,
        limits_are_those_of_the_program,
        every_finding_is_listed,
    ],
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every `*.md` below `folder`, without what is built or hidden, by its path from the root.
fn papers_in(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            found.extend(papers_in(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/"));
        }
    }
    found.sort();
    found
}

fn papers() -> Vec<String> {
    let found = papers_in(root());
    assert!(found.iter().any(|paper| paper == "docs/guide.md"), "{found:?}");
    found
}

/// The papers with commands of today: all but the list of changes.
fn papers_with_commands() -> Vec<String> {
    papers().into_iter().filter(|paper| paper != "CHANGELOG.md").collect()
}

fn read(paper: &str) -> String {
    std::fs::read_to_string(root().join(paper)).unwrap()
}

/// Targets of `[text](target)`.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

/// The anchors of the headings, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let headings = text
        .lines()
        .filter_map(|line| line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')));
    headings
        .map(|heading| {
            let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            kept.collect::<String>().to_lowercase().replace(' ', "-")
        })
        .collect()
}

fn every_relative_link_leads_somewhere() {
    let (mut broken, mut checked) = (Vec::new(), 0);
    for paper in papers() {
        let text = read(&paper);
        let path = root().join(&paper);
        for target in targets(&text).filter(|target| !target.contains("://")) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let there = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            let is_right = there.exists()
                && (anchor.is_empty()
                    || anchors(&std::fs::read_to_string(&there).unwrap()).iter().any(|it| it == anchor));
            checked += 1;
            if !is_right {
                broken.push(format!("{paper}: {target}"));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(checked > 50, "{checked} links");
}

/// A page that `docs/SUMMARY.md` lacks would not be in the book.
fn the_book_has_every_paper() {
    let summary = read("docs/SUMMARY.md");
    let from_root = |target: &str| target.strip_prefix("../").map_or(format!("docs/{target}"), str::to_owned);
    let listed: BTreeSet<String> = targets(&summary).map(from_root).collect();
    let there: BTreeSet<String> = papers().into_iter().filter(|paper| paper != "docs/SUMMARY.md").collect();
    assert_eq!(listed, there);
}

/// The table of findings has their codes in their order, each with its numbers.
fn every_finding_is_listed() {
    let formats = read("docs/formats.md");
    let section = formats.split("\n## ").find(|section| section.starts_with("Findings\n")).unwrap();
    let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let rows: Vec<Vec<&str>> =
        section.lines().filter(|line| line.starts_with("| `")).map(|row| row.split('|').collect()).collect();
    let listed: Vec<String> = rows.iter().flat_map(|row| quoted(row[1])).collect();
    assert_eq!(listed, Finding::codes());
    let schema = schemars::schema_for!(Finding).to_value();
    for (row, finding) in rows.iter().zip(schema["oneOf"].as_array().unwrap()) {
        let fields: BTreeSet<String> = finding["properties"].as_object().unwrap().keys().cloned().collect();
        let listed: BTreeSet<String> = quoted(row[3]).into_iter().chain(["code".to_owned()]).collect();
        assert_eq!(listed, fields, "{}", row[1]);
    }
}

/// The first column of a table below a heading of `docs/formats.md`, without its title.
fn listed_codes(text: &str, heading: &str) -> Vec<String> {
    let (_, below) = text.split_once(&format!("\n### {heading}\n")).unwrap_or_else(|| panic!("no {heading}"));
    let rows = below.lines().take_while(|line| !line.starts_with('#')).filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| row.split('`').next().unwrap().to_owned()).collect()
}

/// Programs read the codes of notes and reasons: none is missing, and none is listed that is not.
fn every_code_is_listed() {
    let text = read("docs/formats.md");
    for (heading, codes) in [
        ("Doubts about a price", PriceIssue::CODES),
        ("Prices that plans do not use", Unusable::CODES),
        ("Offers that are not in a plan", Reason::CODES),
        ("No plan", NoPlan::CODES),
        ("Notes on plans and parts", PlanNote::CODES),
        ("Accepted offers that fail", Setback::CODES),
    ] {
        assert_eq!(listed_codes(&text, heading), codes, "{heading}");
    }
}

/// The table of limits has the program's.
fn limits_are_those_of_the_program() {
    let formats = read("docs/formats.md");
    let section = formats.split("\n## ").find(|section| section.starts_with("Limits\n")).unwrap();
    let million = |number: usize| format!("{} million", number / 1_000_000);
    for limit in [
        format!("{} operations (", grouped(most::OPERATIONS as f64)),
        format!("{} times GPUs with", million(most::PREDICTED_OPERATIONS)),
        format!("a tensor of {} dimensions", most::DIMENSIONS),
        format!("{} values of a list", grouped(most::VALUES as f64)),
        format!("{} intervals of the timeline", grouped(most::INTERVALS as f64)),
        format!("{} GPUs", grouped(f64::from(most::GPUS))),
        format!("{} entries of a list", most::NAMES),
        format!("each of {} bytes", most::NAME),
        format!("{} batch sizes", most::BATCH_SIZES),
        format!("{} times operations, GPUs and batch sizes", million(most::OPERATIONS_AT_SIZES)),
    ] {
        assert!(section.contains(&format!(" {limit}")), "{limit}");
    }
}

/// A block of a paper, indented or fenced.
struct Block {
    /// What the fence says, empty where it says nothing or there is none.
    language: String,
    lines: Vec<String>,
}

/// The blocks of a paper, and what is between them.
fn blocks(text: &str) -> (Vec<Block>, String) {
    let (mut blocks, mut between) = (Vec::<Block>::new(), String::new());
    let (mut is_fenced, mut is_indented, mut is_after_blank) = (false, false, true);
    for line in text.lines() {
        if let Some(language) = line.strip_prefix("```") {
            is_fenced = !is_fenced;
            if is_fenced {
                blocks.push(Block { language: language.to_owned(), lines: Vec::new() });
            }
            is_indented = false;
        } else if is_fenced {
            blocks.last_mut().unwrap().lines.push(line.to_owned());
        } else if let Some(code) = line.strip_prefix("    ").filter(|_| is_indented || is_after_blank) {
            if !is_indented {
                blocks.push(Block { language: String::new(), lines: Vec::new() });
            }
            blocks.last_mut().unwrap().lines.push(code.to_owned());
            is_indented = true;
        } else {
            is_indented = is_indented && line.is_empty();
            between.push_str(line);
            between.push('\n');
        }
        is_after_blank = line.is_empty();
    }
    assert!(!is_fenced, "a block is not closed");
    (blocks, between)
}

impl Block {
    fn has_commands(&self) -> bool {
        matches!(self.language.as_str(), "" | "sh" | "shell" | "console")
    }
}

/// A line of a shell.
#[derive(Debug, Default, PartialEq)]
struct Line {
    /// The programs, each piped into the next, with their words.
    programs: Vec<Vec<String>>,
    /// The file that takes the output.
    into: Option<String>,
    comment: String,
}

impl Line {
    /// Takes a line apart as a shell does, as far as papers need it: quotes, pipes, `>`, comments.
    fn parse(text: &str) -> Self {
        let mut line = Self { programs: vec![Vec::new()], ..Self::default() };
        let (mut word, mut is_file) = (None::<String>, false);
        let mut rest = text.chars();
        loop {
            let next = rest.next();
            match next {
                None | Some(' ' | '\n' | '|') => {
                    if let Some(word) = word.take() {
                        if is_file {
                            line.into = Some(word);
                        } else {
                            line.programs.last_mut().unwrap().push(word);
                        }
                        is_file = false;
                    }
                    match next {
                        None => return line,
                        Some('|') => line.programs.push(Vec::new()),
                        Some(_) => (),
                    }
                }
                Some('#') if word.is_none() => {
                    line.comment = rest.collect();
                    return line;
                }
                Some('>') if word.is_none() => is_file = true,
                Some(quote @ ('\'' | '"')) => {
                    word.get_or_insert_default().extend(rest.by_ref().take_while(|c| *c != quote));
                }
                Some(c) => word.get_or_insert_default().push(c),
            }
        }
    }

    /// The exit code that the comment names, else 0.
    fn code(&self) -> i32 {
        let named = self.comment.split_once("exit code ").map(|(_, code)| code.trim().parse().unwrap());
        named.unwrap_or(0)
    }

    /// The programs beside our own that it needs.
    fn others(&self) -> impl Iterator<Item = &str> {
        self.programs.iter().map(|words| words[0].as_str()).filter(|name| !matches!(*name, "habitat-tui" | "cp"))
    }
}

/// The commands of ours in a line of a shell or a piece of code: what begins with our name, up to
/// the end of the quotation or substitution that it is in.
fn ours(code: &str) -> Vec<Line> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("habitat-tui ") {
        let end = match code[..at].chars().next_back() {
            None | Some(' ') => None,
            Some(quote @ ('\'' | '"')) => Some(quote),
            Some('(') => Some(')'),
            Some(_) => continue,
        };
        let rest = &code[at..];
        let line = Line::parse(end.and_then(|end| rest.split_once(end)).map_or(rest, |(command, _)| command));
        // Of `cd habitat-tui` and of `habitat-tui` at the end of what is said.
        if line.programs[0].len() > 1 {
            found.push(line);
        }
    }
    found
}

/// What stands for something of the reader's: `FILE`, `NEUSIGHT/steps`.
fn is_placeholder(word: &str) -> bool {
    let first = word.split(['/', '.']).next().unwrap();
    first.len() > 1 && first.chars().all(|c| c.is_ascii_uppercase() || c == '_')
}

/// All commands are ones that the program knows, with their flags and values.
fn every_command_is_known() {
    let definition = Cli::command();
    let names: Vec<&str> = definition.get_subcommands().map(clap::Command::get_name).collect();
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for paper in papers_with_commands() {
        let (blocks, between) = blocks(&read(&paper));
        let mut check = |words: &[String], is_allowed: &dyn Fn(ErrorKind) -> bool| {
            seen += 1;
            // `--version` and `--help` end like errors, with exit code 0.
            if let Err(error) = Cli::try_parse_from(words).map(drop)
                && error.exit_code() != 0
                && !is_allowed(error.kind())
            {
                wrong.push(format!("{paper}: {}\n  {}", words.join(" "), error.to_string().lines().next().unwrap()));
            }
        };
        for line in blocks.iter().filter(|block| block.has_commands()).flat_map(|block| &block.lines) {
            for command in ours(line) {
                check(&command.programs[0], &|_| false);
            }
        }
        // A sentence may name a command without all that it needs.
        let is_short = |kind| {
            let is_help = kind == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
            is_help || matches!(kind, ErrorKind::MissingRequiredArgument | ErrorKind::MissingSubcommand)
        };
        assert!(between.matches('`').count().is_multiple_of(2), "{paper}: a piece of code is not closed");
        for code in between.split('`').skip(1).step_by(2) {
            for command in ours(code) {
                check(&command.programs[0], &is_short);
            }
            // `plan --csv`, `run --price USD`: without our name, and without true values.
            if code.split_once(' ').is_some_and(|(first, rest)| names.contains(&first) && rest.contains('-')) {
                let words = Line::parse(&format!("habitat-tui {code}")).programs.swap_remove(0);
                let is_value = |kind| matches!(kind, ErrorKind::InvalidValue | ErrorKind::ValueValidation);
                check(&words, &|kind| is_short(kind) || is_value(kind));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 150, "{seen} commands");
}

/// Whether a command needs a job, a GPU, PyTorch or the network, and where it is run instead.
fn needs_more(command: &Command) -> bool {
    match command {
        Command::Run(_) // tests/capture, tests/live, tests/cupti
        | Command::Join(_) // tests/live
        | Command::History(_) // tests/live
        | Command::Attach(_) // tests/attach
        | Command::TraceShapes(_) // tests/shapes
        | Command::Calibrate(_) // tests/calibrate
        | Command::Collect(_) => true, // tests/collect
        // tests/prices.rs, from a server of its own.
        Command::Prices(PricesArgs { command: Some(PricesCommand::Update(args)), .. }) => args.from.is_none(),
        _ => false,
    }
}

/// Whether a line is to be run. Lines of other programs, such as `cargo`, are not.
fn is_run(line: &Line) -> bool {
    let first = &line.programs[0];
    match first.first().map(String::as_str) {
        // One that is not known fails the test of commands.
        Some("habitat-tui") => Cli::try_parse_from(first).is_ok_and(|parsed| {
            !first.iter().any(|word| is_placeholder(word)) && !parsed.command.as_ref().is_some_and(needs_more)
        }),
        Some("python3") => first.get(1).is_some_and(|flag| flag == "-c"),
        Some("cp") => true,
        _ => false,
    }
}

/// A model whose layers can be divided.
const MODEL: &str = r#"{"format": "habitat-profile", "version": 1,
  "workload": {"name": "decoder", "mode": "training", "batch_size": 4, "sequence_length": 1024, "precision": "bf16",
               "parameter_count": 100000000},
  "operations": [
    {"name": "aten::mm", "phase": "forward", "count": 32, "inputs": [[4096, 4096], [4096, 4096]], "dtype": "bfloat16"},
    {"name": "aten::native_layer_norm", "phase": "forward", "count": 32, "inputs": [[4, 1024, 4096], [4096]],
     "dtype": "bfloat16"},
    {"name": "aten::_scaled_dot_product_flash_attention", "phase": "forward", "count": 32,
     "inputs": [[4, 32, 1024, 128], [4, 32, 1024, 128], [4, 32, 1024, 128]], "dtype": "bfloat16"}]}"#;

const PRICES: &str = "InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Price,SpotPrice,Region\n\
                      gpu_1x_h100_sxm5,26,225,H100-SXM,1,,3.29,,us-east-1\n\
                      gpu_2x_h100_sxm5,52,450,H100-SXM,2,,6.38,,us-east-1\n\
                      gpu_4x_h100_sxm5,104,900,H100-SXM,4,,12.36,,us-east-1\n\
                      gpu_8x_h100_sxm5,208,1800,H100-SXM,8,,23.92,,us-east-1\n\
                      gpu_1x_h100_pcie,26,225,H100,1,,2.49,,us-east-1\n\
                      gpu_1x_a10,30,226,A10,1,,0.75,,us-east-1\n\
                      gpu_1x_a100,30,225,A100,1,,1.29,,us-east-1\n\
                      gpu_2x_a100,60,450,A100,2,,2.58,,us-east-1\n\
                      gpu_4x_a100,120,900,A100,4,,5.16,,us-east-1\n\
                      gpu_8x_a100,124,1800,A100,8,,10.32,,us-east-1\n\
                      gpu_1x_a6000,14,100,RTXA6000,1,,0.8,,us-east-1\n\
                      gpu_2x_a6000,28,200,RTXA6000,2,,1.6,,us-east-1\n\
                      gpu_4x_a6000,56,400,RTXA6000,4,,3.2,,us-east-1\n";

/// What happened in a run.
const RUN: &str = r#"{"format": "habitat-run", "version": 1, "hours": 25.1, "cost_usd": 31.5}"#;

/// A folder with what the papers name: files of the repository under their own names, and a
/// reader's, made from them.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    };
    let samples = "models/lab/samples/neusight/steps";
    let samples = ["a100-pcie-80gb", "h100-sxm5-80gb"].map(|gpu| format!("{samples}/{gpu}"));
    for kept in ["profiler/samples", "tests/fixtures/jobs"].into_iter().chain(samples.iter().map(String::as_str)) {
        for entry in std::fs::read_dir(root().join(kept)).unwrap() {
            let entry = entry.unwrap();
            write(&format!("{kept}/{}", entry.file_name().to_str().unwrap()), &std::fs::read(entry.path()).unwrap());
        }
    }
    let step = bundled::sample(Sample::ResNet50V100);
    let mut slower = step.clone();
    slower.step.as_mut().unwrap().duration = step.step.as_ref().unwrap().duration.map(|took| took * 1.2);
    let mut real = step.clone();
    real.origin.as_mut().unwrap().gpu = Some(GpuSlug::new("rtx-4090").unwrap());
    for (name, profile) in [
        ("step.habitat.json", &step),
        ("real.habitat.json", &real),
        ("last-week.habitat.json.zst", &step),
        ("today.habitat.json.zst", &step),
        ("main.habitat.json.gz", &step),
        ("branch.habitat.json.gz", &slower),
    ] {
        write(name, &profile.to_json().unwrap());
    }
    for name in ["main.trace.json.gz", "branch.trace.json.gz"] {
        write(name, crate::trace::two_steps().json().as_bytes());
    }
    write("model.json", MODEL.as_bytes());
    write("run.json", RUN.as_bytes());
    write("jobs.toml", read("tests/fixtures/jobs/rent.toml").replace("../../../", "").as_bytes());
    for name in ["lambda.csv", "catalogs/lambda.csv"] {
        write(name, PRICES.as_bytes());
    }
    folder
}

/// Runs a program to its end with this input: its exit code, its output and its messages.
fn run(words: &[String], input: &[u8], folder: &Path) -> (i32, Vec<u8>, String) {
    let program = if words[0] == "habitat-tui" { env!("CARGO_BIN_EXE_habitat-tui") } else { &words[0] };
    let mut command = Process::new(program);
    let own = std::env::vars_os().map(|(name, _)| name).filter(|name| name.to_string_lossy().starts_with("HABITAT_"));
    for name in own {
        command.env_remove(name);
    }
    command
        .args(&words[1..])
        .current_dir(folder)
        .env("HABITAT_TUI_CONFIG_DIR", folder.join("config"))
        .env("XDG_DATA_HOME", folder.join("data"))
        // What prices are doubted for their age does not depend on the day.
        .env("SOURCE_DATE_EPOCH", "1795564800")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // It may not read all of it.
    let feeding = std::thread::spawn(move || stdin.write_all(&input).is_ok());
    let output = child.wait_with_output().unwrap();
    feeding.join().unwrap();
    (output.status.code().unwrap(), output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Runs a line, and returns all that it printed.
fn run_line(line: &Line, folder: &Path) -> String {
    let (mut piped, mut printed) = (Vec::new(), String::new());
    for words in &line.programs {
        if words[0] == "cp" {
            std::fs::copy(folder.join(&words[1]), folder.join(&words[2])).unwrap();
            continue;
        }
        let (code, output, messages) = run(words, &piped, folder);
        assert_eq!(code, line.code(), "{}: {messages}", words.join(" "));
        printed.push_str(&messages);
        piped = output;
    }
    match &line.into {
        Some(name) => std::fs::write(folder.join(name), &piped).unwrap(),
        None => printed.push_str(&String::from_utf8_lossy(&piped)),
    }
    printed
}

fn words_of(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether a line of the output has what is shown of it: its parts between `…`, in their order.
fn shows(printed: &str, shown: &str) -> bool {
    printed.lines().map(words_of).any(|line| {
        let mut rest = line.as_str();
        shown.split('…').map(words_of).all(|part| match rest.split_once(&part) {
            Some((_, after)) => {
                rest = after;
                true
            }
            None => false,
        })
    })
}

/// Runs the lines of a paper that need no other program than this one. What is shown of lines that
/// need another is looked at where that one is there.
fn run_paper(paper: &str, with: Option<&str>) {
    let folder = folder();
    let mut printed = Some(String::new());
    for block in blocks(&read(paper)).0 {
        if block.language == "text" {
            let Some(printed) = &printed else { continue };
            for shown in &block.lines {
                assert!(shows(printed, shown), "{paper} shows {shown:?}, and printed is:\n{printed}");
            }
        } else if block.has_commands() {
            for line in block.lines.iter().map(|line| Line::parse(line)).filter(is_run) {
                let can_run = line.others().all(|other| Some(other) == with);
                printed = can_run.then(|| run_line(&line, folder.path()));
            }
        }
    }
}

/// A test for each paper with commands, and one more for each other program that it needs.
pub(crate) fn runs() -> Vec<Trial> {
    let mut trials = Vec::new();
    for paper in papers_with_commands() {
        let blocks = blocks(&read(&paper)).0;
        let lines = blocks.iter().filter(|block| block.has_commands()).flat_map(|block| &block.lines);
        let lines: Vec<Line> = lines.map(|line| Line::parse(line)).filter(is_run).collect();
        if lines.is_empty() {
            continue;
        }
        let others: BTreeSet<String> = lines.iter().flat_map(Line::others).map(str::to_owned).collect();
        for with in std::iter::once(None).chain(others.into_iter().map(Some)) {
            let name = with.as_ref().map_or(format!("docs::{paper}"), |with| format!("docs::{paper} with {with}"));
            let (paper, needed) = (paper.clone(), with.clone());
            let need = move || needed.map_or(Ok(String::new()), |program| crate::needs::program(&program));
            trials.push(crate::needs::trial(name.leak(), need, move |_| run_paper(&paper, with.as_deref())));
        }
    }
    assert!(trials.len() > 5, "papers with commands");
    trials
}
