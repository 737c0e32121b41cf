//! The command line: one definition for flags, help, man page and completions.
//!
//! This is what was typed; the front ends turn it into options, goals and files.

mod diff;
mod fit;
mod input;
mod measure;
mod own;
mod predict;
mod prices;
mod print;
mod record;
mod run;
mod screens;
mod short;

pub use diff::DiffArgs;
pub use fit::{FitArgs, FitBlackBoxArgs, FitCommand, FitKernelWiseArgs, FitLogArgs, FormChoice, RunSize};
pub use input::{BlackBoxArgs, InputArgs, ModelArgs, RecordedArgs, WorkloadArgs};
pub use measure::{
    CalibrateArgs, CalibrateScalingArgs, CollectArgs, CollectDevice, ModelsArgs, ModelsCommand, SuggestArgs,
};
pub use own::{OwnArgs, OwnMachine};
pub use predict::{
    BatchesArgs, CompareArgs, ExportArgs, ExportTool, PlanArgs, PlanJobsArgs, PredictArgs, SweepArgs,
    SweepBandwidthArgs, SweepCommand,
};
pub use prices::{PricesArgs, PricesCommand, PricesListArgs, PricesUpdateArgs};
pub use print::{
    CheckArgs, CompletionsArgs, ConfigArgs, FileArgs, GpusArgs, ManArgs, OffersArgs, PagerArgs, SchemaArg, SchemaArgs,
    TableForm,
};
pub use record::{AttachArgs, EnvArgs, ImportArgs, ShellArg, TraceShapesArgs};
pub use run::RunArgs;
pub use screens::ScreensArgs;
pub use short::command;

use clap::{Parser, Subcommand};

/// On which GPU should this be trained, how long will it take, what will it cost?
///
/// Opens the screens on a recorded training step (FILE: a profile, a PyTorch profiler trace,
/// or another recording that `import` reads). Without FILE it opens an embedded sample. Without a
/// terminal on standard output it prints the report.
#[derive(Debug, Parser)]
#[command(
    name = "habitat-tui",
    version,
    about,
    long_about,
    args_conflicts_with_subcommands = true,
    max_term_width = 100
)]
pub struct Cli {
    /// What to do; without one, the screens.
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
    /// Start a training job and record its step, with no change to its code.
    ///
    /// On a terminal the screens open on the running job. The job itself runs apart from the
    /// terminal then: its output goes to a file (--log) whose end is shown, its input is empty,
    /// Python's output is not buffered (PYTHONUNBUFFERED=1, unless set), and on leaving you are
    /// asked whether it goes on. Its exit code is passed on.
    ///
    /// With --no-tui, --json, --quiet, or without a terminal, the job keeps its own output,
    /// input, signals and exit code, and a report follows at its end.
    Run(RunArgs),
    /// Record the step of a job that runs already (started with what `env` prints).
    Attach(AttachArgs),
    /// Print the variables that let `attach` record a job later.
    Env(EnvArgs),
    /// Trace a training step by its shapes alone: no GPU, no memory, nothing computed.
    TraceShapes(TraceShapesArgs),
    /// Turn recordings (PyTorch traces, Nsight Systems, XPlane), or an op list, into a profile.
    Import(ImportArgs),
    /// Predict the step time on every GPU, or on those named.
    Predict(PredictArgs),
    /// Write what a black box shows of a recorded step, and nothing else.
    Export(ExportArgs),
    /// Choose the offers that do the work best.
    Plan(PlanArgs),
    /// Plan several jobs together: what each rents within shared limits, or which of your machines
    /// runs which job, and when.
    PlanJobs(PlanJobsArgs),
    /// Say where the difference between a plan and what happened comes from.
    Compare(CompareArgs),
    /// Compare two recordings of a step: which operations take longer in the second.
    Diff(DiffArgs),
    /// Predict the step and its memory at other batch sizes, and the largest that fits.
    Batches(BatchesArgs),
    /// List the GPUs of the catalog.
    Gpus(GpusArgs),
    /// List the offers of the price book.
    Offers(OffersArgs),
    /// List where prices are from and how old they are, or fetch new ones (update).
    Prices(PricesArgs),
    /// Print the JSON Schema of a file form.
    Schema(SchemaArgs),
    /// Check a profile, a catalog file or a price file.
    Check(CheckArgs),
    /// Show which measurements would make predictions better.
    Models(ModelsArgs),
    /// Measure the GPU of this machine: bandwidth, matrix products, launches.
    Calibrate(CalibrateArgs),
    /// Compare a step measured on several GPUs with what is expected of them, for plans.
    CalibrateScaling(CalibrateScalingArgs),
    /// Measure operators on the GPU of this machine, to train the operator models on.
    Collect(CollectArgs),
    /// Fit a model to what you have: a log of runs, recorded steps (kernelwise), or tables of
    /// black boxes (black-box).
    Fit(FitArgs),
    /// Vary a property of a GPU.
    Sweep(SweepArgs),
    /// Print completions for a shell.
    Completions(CompletionsArgs),
    /// Print the manual page.
    Man(ManArgs),
    /// Print where files are read from, and the keys.
    Config(ConfigArgs),
    /// Write a job's output to its log, whatever becomes of the log (`run` starts it).
    #[command(name = "job-log", hide = true)]
    JobLog,
}

impl Command {
    /// The file that a command writes instead of standard output, once the form of its tables follows
    /// the file's ending; `None` for commands that write files of their own.
    pub fn document(&mut self) -> Option<FileArgs> {
        let (file, form) = match self {
            Self::Predict(args) => (&args.file_args, Some(&mut args.form)),
            Self::PlanJobs(args) => (&args.file_args, Some(&mut args.form)),
            Self::Diff(args) => (&args.file_args, Some(&mut args.form)),
            Self::Batches(args) => (&args.file_args, Some(&mut args.form)),
            Self::Gpus(args) => (&args.file_args, Some(&mut args.form)),
            Self::Offers(args) => (&args.file_args, Some(&mut args.form)),
            Self::Prices(args) => match &mut args.command {
                None => (&args.list.file_args, Some(&mut args.list.form)),
                Some(PricesCommand::List(list)) => (&list.file_args, Some(&mut list.form)),
                Some(PricesCommand::Update(_)) => return None,
            },
            Self::Compare(args) => (&args.file_args, None),
            Self::Schema(args) => (&args.file_args, None),
            Self::CalibrateScaling(args) => (&args.file_args, None),
            Self::Sweep(SweepArgs { command: SweepCommand::Bandwidth(args) }) => (&args.file_args, None),
            Self::Completions(args) => (&args.file_args, None),
            Self::Man(args) => (&args.file_args, None),
            Self::Config(args) => (&args.file_args, None),
            _ => return None,
        };
        if let (Some(form), Some(path)) = (form, &file.output) {
            *form = form.for_file(path);
        }
        Some(file.clone())
    }
}

impl Command {
    /// Whether the command prints text for people that may be longer than a terminal, and may be paged.
    pub fn is_paged(&self) -> bool {
        let (pager, is_text) = match self {
            Self::Predict(args) => (&args.pager, args.form.is_text()),
            Self::Plan(args) => (&args.pager, args.is_text()),
            Self::PlanJobs(args) => (&args.pager, args.form.is_text()),
            Self::Compare(args) => (&args.pager, !args.json),
            Self::Diff(args) => (&args.pager, args.form.is_text()),
            Self::Batches(args) => (&args.pager, args.form.is_text()),
            Self::Gpus(args) => (&args.pager, args.form.is_text()),
            Self::Offers(args) => (&args.pager, args.form.is_text()),
            Self::Prices(args) => match &args.command {
                None => (&args.list.pager, args.list.form.is_text()),
                Some(PricesCommand::List(list)) => (&list.pager, list.form.is_text()),
                Some(PricesCommand::Update(_)) => return false,
            },
            _ => return false,
        };
        is_text && !pager.no_pager
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Screen;
    use crate::pricing::Tier;
    use crate::settings::deadline::Deadline;
    use crate::units::{Hours, Samples, Usd};
    use clap::CommandFactory;

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

    /// As `time`, `env` and `nsys profile` take a program.
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
