//! The command line: a single definition for flags, help, man page and completions.
//!
//! This module only parses; the front ends turn arguments into options, goals and files.

mod diff;
mod fit;
mod help;
mod input;
mod kept;
mod launch;
mod measure;
mod own;
mod predict;
mod prices;
mod print;
mod record;
mod run;
mod screens;

pub use diff::DiffArgs;
pub use fit::{FitArgs, FitBlackBoxArgs, FitCommand, FitKernelWiseArgs, FitLogArgs, FormChoice, RunSize};
pub use help::help;
pub use input::{BlackBoxArgs, InputArgs, ModelArgs, PredictionArgs, RecordedArgs, WorkloadArgs};
pub use kept::{HistoryArgs, JobsArgs, JoinArgs};
pub use launch::LaunchArgs;
pub use measure::{
    CalibrateArgs, CalibrateScalingArgs, CollectArgs, CollectDevice, CompareSpeedArgs, ModelsArgs, ModelsCommand,
    SuggestArgs,
};
pub use own::{OwnArgs, OwnMachine};
pub use predict::{BatchesArgs, CompareArgs, ExportArgs, PlanArgs, PlanJobsArgs, PredictArgs};
pub use prices::{PricesArgs, PricesCommand, PricesUpdateArgs};
pub use print::{
    CheckArgs, CompletionsArgs, ConfigArgs, FileArgs, GpusArgs, HelpArgs, ManArgs, OffersArgs, PagerArgs, SchemaArg,
    SchemaArgs, TableArgs, TableForm,
};
pub use record::{AttachArgs, EnvArgs, ImportArgs, ShellArg, TraceShapesArgs};
pub use run::RunArgs;
pub use screens::ScreensArgs;

use clap::{Parser, Subcommand};

/// On which GPU should this be trained, how long will it take, what will it cost?
///
/// Opens the screens for a recorded training step (FILE: a profile, a PyTorch profiler trace, or another recording that
/// `import` reads). Without FILE it opens an embedded sample. Without a terminal on standard output it prints the
/// report.
#[derive(Debug, Parser)]
#[command(
    name = "habitat-tui",
    version,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub struct Cli {
    /// The command; without one, the screens open.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The screens' own arguments.
    #[command(flatten)]
    pub screens: ScreensArgs,
}

/// The commands.
#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "one is made a run")]
pub enum Command {
    /// Start a training job and record its step, without changes to its code.
    ///
    /// On a terminal, the screens open and follow the job. The job then runs detached from the terminal: its output
    /// goes to a file (--log) whose end is shown, its input is empty, and Python's output is unbuffered
    /// (PYTHONUNBUFFERED=1, unless set). When you leave, you choose whether the job keeps running; it is then recorded
    /// without a terminal, and `join` shows it again. Its exit code is passed on.
    ///
    /// With --no-tui, --json or --quiet, or without a terminal, the job keeps its own output, input, signals and exit
    /// code, and a report follows at its end.
    Run(RunArgs),
    /// List jobs that `run` started (`join` shows one, `history` its days).
    Jobs(JobsArgs),
    /// Open the screens on a job that `run` started.
    ///
    /// Several terminals may look on at once. Losing one, or closing the screens, costs the job and its recording
    /// nothing.
    Join(JoinArgs),
    /// Print the times of a job's steps and their parts, over days.
    ///
    /// Input, forward, backward, optimizer and the rest of training steps, apart from validations and checkpoints, with
    /// memory and waits, and what stands out. It is measured without the profiler, all the time.
    History(HistoryArgs),
    /// Record the step of a running job (started with the variables that `env` prints).
    Attach(AttachArgs),
    /// Print variables that let `attach` record a job later.
    Env(EnvArgs),
    /// Trace the shapes of a training step: without GPU, memory or computation.
    TraceShapes(TraceShapesArgs),
    /// Convert recordings (PyTorch traces, Nsight Systems, XPlane) or an op list to a profile.
    Import(ImportArgs),
    /// Predict the step time on every GPU, or on selected ones.
    Predict(PredictArgs),
    /// Export an anonymised summary of a recorded step.
    Export(ExportArgs),
    /// Choose the best offers for the work.
    Plan(PlanArgs),
    /// Plan several jobs together, on rented machines with shared limits, or on your own machines.
    PlanJobs(PlanJobsArgs),
    /// Explain the difference between a plan and the actual run.
    Compare(CompareArgs),
    /// Compare the speed of a training job with the predicted one, and with published ones.
    CompareSpeed(CompareSpeedArgs),
    /// Compare two recordings of a step: which operations take longer in the second.
    Diff(DiffArgs),
    /// Predict the step and its memory at other batch sizes, and the largest that fits.
    Batches(BatchesArgs),
    /// List the GPUs of the catalog.
    Gpus(GpusArgs),
    /// List the offers of the price book.
    Offers(OffersArgs),
    /// List price sources and the age of prices, or fetch new prices (update).
    Prices(PricesArgs),
    /// Print the JSON Schema of a format.
    Schema(SchemaArgs),
    /// Validate profiles, catalog files, price files and others.
    Check(CheckArgs),
    /// Suggest measurements that improve predictions.
    Models(ModelsArgs),
    /// Measure the GPU of this machine: bandwidth, matrix products, launch overhead.
    Calibrate(CalibrateArgs),
    /// Compare a measured step on several GPUs with the expected one, for plans.
    CalibrateScaling(CalibrateScalingArgs),
    /// Measure operators on the GPU of this machine, to train operator models.
    Collect(CollectArgs),
    /// Fit a model to your data: a log of runs, recorded steps (kernelwise), or black-box tables (black-box).
    Fit(FitArgs),
    /// Serve predict, plan, trace-shapes and explain to agents, over the Model Context Protocol.
    ///
    /// Speaks JSON-RPC on standard input and output until the input ends, and uses no network. An agent starts it: in
    /// its settings the command is habitat-tui, and the argument mcp.
    Mcp,
    /// Print completions for a shell.
    Completions(CompletionsArgs),
    /// Print the manual page of the program, or of a command.
    ///
    /// The page is in roff. To read it: habitat-tui man plan | man -l -
    Man(ManArgs),
    /// Print the folders of configuration files, and the key bindings.
    Config(ConfigArgs),
    /// Print the help of a command, or of a topic of its flags.
    Help(HelpArgs),
    /// Write a job's output to its log, whatever happens to the log (`run` starts it).
    #[command(name = "job-log", hide = true)]
    JobLog,
}

impl Command {
    /// The table that a command prints.
    fn table(&mut self) -> Option<&mut TableArgs> {
        Some(match self {
            Self::PlanJobs(args) => &mut args.table,
            Self::Batches(args) => &mut args.table,
            Self::Jobs(args) => &mut args.table,
            Self::History(args) => &mut args.table,
            Self::Gpus(args) => &mut args.table,
            Self::Offers(args) => &mut args.table,
            Self::Prices(args) => match &mut args.command {
                None => &mut args.list,
                Some(PricesCommand::List(list)) => list,
                Some(PricesCommand::Update(_)) => return None,
            },
            _ => return None,
        })
    }

    /// The output file of a command, with the format of tables set by the file's extension; `None` for commands that
    /// write their own files.
    pub(crate) fn document(&mut self) -> Option<FileArgs> {
        let (file, form) = match self {
            Self::Predict(args) => (&args.file_args, Some(&mut args.form)),
            // Writes a folder of its own.
            Self::PlanJobs(args) if args.export.is_some() => return None,
            Self::Diff(args) => (&args.file_args, Some(&mut args.form)),
            Self::Compare(args) => (&args.file_args, None),
            Self::Schema(args) => (&args.file_args, None),
            Self::CalibrateScaling(args) => (&args.file_args, None),
            Self::CompareSpeed(args) => (&args.file_args, None),
            Self::Completions(args) => (&args.file_args, None),
            Self::Man(args) => (&args.file_args, None),
            Self::Config(args) => (&args.file_args, None),
            other => {
                let table = other.table()?;
                (&table.file_args, Some(&mut table.form))
            }
        };
        if let (Some(form), Some(path)) = (form, &file.output) {
            *form = form.for_file(path);
        }
        Some(file.clone())
    }
}

impl Command {
    /// Whether a pager may show the text for people that the command prints; `None` if it prints a document or
    /// runs a job.
    pub(crate) fn text(&mut self) -> Option<bool> {
        let (pager, is_text) = match self {
            Self::Predict(args) => (&args.pager, args.form.is_text()),
            Self::Plan(args) => (&args.pager, args.is_text()),
            Self::Compare(args) => (&args.pager, !args.json),
            Self::Diff(args) => (&args.pager, args.form.is_text()),
            Self::Check(_) | Self::Config(ConfigArgs { keys: false, .. }) => return Some(false),
            Self::Gpus(GpusArgs { toml: Some(_), .. })
            | Self::Jobs(JobsArgs { json_lines: true, .. })
            | Self::History(HistoryArgs { json_lines: true, .. }) => return None,
            other => {
                let table = other.table()?;
                (&table.pager, table.form.is_text())
            }
        };
        is_text.then_some(!pager.no_pager)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use habitat_base::units::{Hours, Samples, Usd};
    use habitat_planning::deadline::Deadline;
    use habitat_planning::pricing::Tier;
    use habitat_screens::action::Screen;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    fn screens(line: &str) -> ScreensArgs {
        Cli::try_parse_from(line.split(' ')).unwrap().screens
    }

    fn plan(line: &str) -> PlanArgs {
        match Cli::try_parse_from(line.split(' ')).unwrap().command {
            Some(Command::Plan(args)) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_line_a_flag() {
        assert_eq!(screens("habitat-tui").input.file, None);
        assert_eq!(screens("habitat-tui a.json").input.file, Some("a.json".into()));
        assert_eq!(screens("habitat-tui --screen plan").screen, Screen::Plan);
        assert_eq!(screens("habitat-tui --size 80x24").size, (80, 24));
        assert_eq!(plan("habitat-tui plan f --samples 1.2M").wish.samples, Samples::new(1.2e6).ok());
        assert_eq!(
            plan("habitat-tui plan f --deadline 24h").wish.deadline,
            Hours::new(24.0).ok().map(Deadline::Within)
        );
        assert_eq!(plan("habitat-tui plan f --budget $300").wish.budget, Usd::new(300.0).ok());
        assert_eq!(
            plan("habitat-tui plan f --tiers on-demand,spot").wish.tiers,
            Some(vec![Tier::OnDemand, Tier::Spot])
        );
        assert_eq!(plan("habitat-tui plan f --epochs 90 --dataset 1.28M").wish.dataset, Samples::new(1.28e6).ok());
        assert_eq!(plan("habitat-tui plan --parameters 25.6M").input.recorded.parameters, Some(25_600_000));
    }

    /// The same order as in `time`, `env` and `nsys profile`.
    #[test]
    fn a_job_needs_no_dashes() {
        let run = |line: &str| match Cli::try_parse_from(line.split(' ')).unwrap_or_else(|why| panic!("{why}")).command
        {
            Some(Command::Run(args)) => args,
            other => panic!("{other:?}"),
        };
        for (line, command) in [
            ("python train.py", "python train.py"),
            ("-- python train.py", "python train.py"),
            ("python train.py --epochs 3 -o x --json", "python train.py --epochs 3 -o x --json"),
            ("--json out -- python train.py", "python train.py"),
            ("--json out python train.py --quiet", "python train.py --quiet"),
            (
                "python -m torch.distributed.run --nproc-per-node 2 t.py",
                "python -m torch.distributed.run --nproc-per-node 2 t.py",
            ),
            ("-q -- ./train -h --version", "./train -h --version"),
            ("./train -h --version", "./train -h --version"),
            ("env A=1 sh -c x -- y", "env A=1 sh -c x -- y"),
            ("-- -odd-name x", "-odd-name x"),
        ] {
            let args = run(&format!("habitat-tui run {line}"));
            let words: Vec<_> = args.command.iter().map(|word| word.to_str().unwrap()).collect();
            assert_eq!(words.join(" "), command, "{line}");
            assert_eq!(args.json.is_some(), line.starts_with("--json"), "{line}");
        }
    }

    #[test]
    fn contradictions_are_refused() {
        for line in [
            "habitat-tui plan f --samples 1 --steps 1",
            "habitat-tui plan f --epochs 1",
            "habitat-tui plan f --json --toml",
            "habitat-tui plan f --deadline -3h",
            "habitat-tui plan f --max-parts 0",
            "habitat-tui predict f --json --csv",
            "habitat-tui import",
            "habitat-tui run",
            "habitat-tui run --no-such-flag python train.py",
            "habitat-tui run --",
            "habitat-tui trace-shapes",
            "habitat-tui trace-shapes t.py:f --batch-sizes x",
            "habitat-tui trace-shapes t.py:f --arg seq",
            "habitat-tui run --after 0 -- python train.py",
            "habitat-tui run --steps 5..7 --after 3 -- python train.py",
            "habitat-tui attach --pid 0",
            "habitat-tui attach --list --all",
            "habitat-tui attach --window 0",
            "habitat-tui env --json --shell fish",
        ] {
            assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }
}
