//! Arguments of the commands that answer from a recorded step: `predict`, `plan`, `plan-jobs`,
//! `batches`, `export` and `sweep`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{BlackBoxArgs, FileArgs, InputArgs, ModelArgs, OwnArgs, PagerArgs, RecordedArgs, TableForm};
use crate::predict::{Host, MethodChoice};
use crate::profile::Sample;
use crate::settings::values::{self, BatchSizes};
use crate::settings::wish::Wish;

/// Arguments of `predict`.
#[derive(Debug, Args)]
pub struct PredictArgs {
    /// The recorded step.
    #[command(flatten)]
    pub input: InputArgs,
    /// In place of a recorded step.
    #[command(flatten)]
    pub black_box: BlackBoxArgs,
    /// GPUs to predict for (all of the catalog without it).
    #[arg(long = "to", alias = "gpu", value_name = "GPU", value_delimiter = ',')]
    pub to: Vec<String>,
    /// Every operation too.
    #[arg(long)]
    pub operations: bool,
    /// What is known of the recorded step too.
    ///
    /// Its longest operations, modules, waits and notes.
    #[arg(long)]
    pub verbose: bool,
    /// What every method predicts, and their errors.
    ///
    /// With the errors that each was found to have, and which is used.
    #[arg(long, conflicts_with_all = ["operations", "black_box"])]
    pub all_methods: bool,
    /// Each GPU of `--to` with other figures too (bandwidth=2).
    ///
    /// In times of the real ones: bandwidth, sms, clock, tensor, memory.
    #[arg(long, requires = "to", value_name = "FIGURE=N,…", conflicts_with_all = ["all_methods", "black_box"])]
    pub what_if: Option<String>,
    /// Which operations make the difference between two GPUs.
    ///
    /// Between the two of `--to`, or between one and what `--what-if` makes of it.
    #[arg(long, requires = "to", conflicts_with_all = ["operations", "all_methods", "black_box"])]
    pub difference: bool,
    /// Output form.
    #[command(flatten)]
    pub form: TableForm,
    /// Write a report to share as well: one HTML file, without scripts or network.
    ///
    /// It has the verdict, the recorded step with its idle time, cost against time, and with --difference
    /// the two GPUs compared.
    #[arg(long, value_name = "FILE", help_heading = "Output", conflicts_with = "all_methods")]
    pub html: Option<PathBuf>,
    /// Whether long text is paged.
    #[command(flatten)]
    pub pager: PagerArgs,
    /// A file instead of standard output.
    #[command(flatten)]
    pub file_args: FileArgs,
}

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// The recorded step.
    #[command(flatten)]
    pub input: InputArgs,
    /// In place of a recorded step.
    #[command(flatten)]
    pub black_box: BlackBoxArgs,
    /// Price the plan of this file again, and show what changed.
    ///
    /// TOML, version 2 to 4, with the prices and predictions of today. The recorded step is the one that
    /// the plan names, or FILE.
    #[arg(
        long,
        value_name = "PLAN",
        conflicts_with_all = ["origin", "ignore_origin", "batch_size", "sequence_length", "parameters", "peak_memory", "method", "waves", "precision", "host", "black_box", "batch_sizes"]
    )]
    pub from: Option<PathBuf>,
    /// With --from: plan the same work for FILE though it is another recording, such as that of the
    /// real run.
    #[arg(long, requires_all = ["from", "file"])]
    pub other_profile: bool,
    /// Batches a GPU to choose from: sizes, or auto.
    ///
    /// Beside the recorded one: sizes with commas, or `auto` (halved down to 1, doubled twice). Their
    /// steps are predicted as `batches` does from one recording.
    #[arg(long, value_name = "N,…", value_parser = values::batch_sizes, help_heading = "Work", conflicts_with = "black_box")]
    pub batch_sizes: Option<BatchSizes>,
    /// The goal.
    #[command(flatten)]
    pub wish: Wish,
    /// Own machines.
    #[command(flatten)]
    pub own: OwnArgs,
    /// Best trade-offs of time and cost (Pareto front).
    ///
    /// All plans that no other beats in both; deadline and budget do not count. As text, JSON, CSV or Markdown.
    #[arg(long, help_heading = "Output", conflicts_with_all = ["toml", "export", "from", "rejected"])]
    pub frontier: bool,
    /// As JSON.
    #[arg(long, help_heading = "Output", group = "plan_form")]
    pub json: bool,
    /// As TOML.
    #[arg(long, help_heading = "Output", group = "plan_form")]
    pub toml: bool,
    /// As CSV: parts and alternatives.
    #[arg(long, help_heading = "Output", group = "plan_form")]
    pub csv: bool,
    /// As a Markdown table: parts and alternatives.
    #[arg(long, help_heading = "Output", group = "plan_form")]
    pub markdown: bool,
    /// As the file with which a tool starts the parts; put the training command into it.
    #[arg(long, value_enum, value_name = "TOOL", help_heading = "Output", group = "plan_form")]
    pub export: Option<ExportTool>,
    /// The partition of your Slurm cluster that has such GPUs, for --export slurm.
    #[arg(long, value_name = "NAME", help_heading = "Output", requires = "export")]
    pub partition: Option<String>,
    /// Write a report to share as well: one HTML file, without scripts or network.
    ///
    /// It has the verdict, cost against time, the plan over time, the recorded step with its idle time,
    /// and all assumptions.
    #[arg(long, value_name = "FILE", help_heading = "Output", conflicts_with = "frontier")]
    pub html: Option<PathBuf>,
    /// Whether long text is paged.
    #[command(flatten)]
    pub pager: PagerArgs,
    /// Write to this file instead of standard output.
    ///
    /// As a flag says, else by its ending (.json, .csv, .md), else TOML. Several parts become numbered
    /// files if the tool takes a file each.
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Replace the file if it is there.
    #[arg(long, help_heading = "Output")]
    pub force: bool,
    /// List every rejected offer (the text shows a few, TOML counts them by kind).
    #[arg(long, alias = "all", help_heading = "Output")]
    pub rejected: bool,
}

impl PlanArgs {
    /// Whether text for people goes to standard output.
    pub const fn is_text(&self) -> bool {
        let has_form = self.json || self.toml || self.csv || self.markdown || self.export.is_some();
        !has_form && self.output.is_none()
    }
}

/// Arguments of `plan-jobs`.
#[derive(Debug, Args)]
pub struct PlanJobsArgs {
    /// The jobs (TOML): each with its recorded step, its work and its own limits; and what they
    /// share: budget, deadline, quotas, or the machines that are there.
    pub file: PathBuf,
    /// How times are predicted.
    #[arg(long, value_enum, default_value_t = MethodChoice::Auto, help_heading = "Prediction")]
    pub method: MethodChoice,
    /// Whether the GPU waits for the host, which launches its operations and loads its data.
    #[arg(long, value_enum, default_value_t = Host::AsRecorded, help_heading = "Prediction")]
    pub host: Host,
    /// The models to predict with.
    #[command(flatten)]
    pub models: ModelArgs,
    /// Output form.
    #[command(flatten)]
    pub form: TableForm,
    /// Whether long text is paged.
    #[command(flatten)]
    pub pager: PagerArgs,
    /// A file instead of standard output.
    #[command(flatten)]
    pub file_args: FileArgs,
}

/// Arguments of `compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The plan (TOML, version 2 to 4).
    pub plan: PathBuf,
    /// What happened: a step recorded in the run, what `run --json FILE` wrote of it, a file with its
    /// hours and cost (habitat-run JSON), or a step and one of these.
    #[arg(required = true, num_args = 1..=2, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// The GPU that the step was recorded on, in place of what the file says.
    #[arg(long, value_name = "GPU")]
    pub origin: Option<String>,
    /// As JSON (habitat-outcome, version 1).
    #[arg(long)]
    pub json: bool,
    /// Whether long text is paged.
    #[command(flatten)]
    pub pager: PagerArgs,
    /// A file instead of standard output.
    #[command(flatten)]
    pub file_args: FileArgs,
}

/// Tools that start the parts of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExportTool {
    /// Task YAML for `sky launch` and `sky jobs launch`.
    Skypilot,
    /// Task YAML for `dstack apply`.
    Dstack,
    /// A script for `sbatch`, on machines of your own.
    Slurm,
}

/// Arguments of `batches`.
#[derive(Debug, Args)]
pub struct BatchesArgs {
    /// Profiles (or traces) of one workload at two or more batch sizes: a line. One alone: its
    /// shapes scaled. None: the embedded sample.
    pub files: Vec<PathBuf>,
    /// An embedded sample if no files are given.
    #[arg(long, value_name = "NAME", value_enum, conflicts_with = "files")]
    pub sample: Option<Sample>,
    /// Batch sizes to predict (2 and 4 times the largest recorded one without it).
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = values::batch_size)]
    pub at: Vec<u64>,
    /// GPUs (the one the profiles were recorded on without it).
    #[arg(long = "to", alias = "gpu", value_name = "GPU", value_delimiter = ',')]
    pub to: Vec<String>,
    /// The linear models of the families of operators too.
    #[arg(long)]
    pub families: bool,
    /// What is known of the recorded steps.
    #[command(flatten)]
    pub recorded: RecordedArgs,
    /// How the steps at the recorded batch sizes are predicted on other GPUs.
    #[arg(long, value_enum, default_value_t = MethodChoice::Auto, help_heading = "Prediction")]
    pub method: MethodChoice,
    /// Whether the GPU waits for the host, which launches its operations and loads its data.
    #[arg(long, value_enum, default_value_t = Host::AsRecorded, help_heading = "Prediction")]
    pub host: Host,
    /// The models to predict with.
    #[command(flatten)]
    pub models: ModelArgs,
    /// Output form.
    #[command(flatten)]
    pub form: TableForm,
    /// Whether long text is paged.
    #[command(flatten)]
    pub pager: PagerArgs,
    /// A file instead of standard output.
    #[command(flatten)]
    pub file_args: FileArgs,
}

impl BatchesArgs {
    /// How one of the files is read and predicted.
    pub fn input(&self, file: Option<PathBuf>) -> InputArgs {
        InputArgs {
            file,
            sample: self.sample,
            recorded: self.recorded.clone(),
            method: self.method,
            host: self.host,
            models: self.models.clone(),
            ..InputArgs::default()
        }
    }
}

/// Arguments of `export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// A profile or a PyTorch profiler trace with measured times; without it, the embedded
    /// sample.
    pub file: Option<PathBuf>,
    /// The embedded sample to read if FILE is not given.
    #[arg(long, value_name = "NAME", value_enum, conflicts_with = "file")]
    pub sample: Option<Sample>,
    /// As a black box: kinds of operators with their total times, step time, batch size and
    /// GPU; no shapes, names or modules.
    #[arg(long, required = true)]
    pub black_box: bool,
    /// The GPU it was recorded on, in place of what the file says.
    #[arg(long, value_name = "GPU")]
    pub origin: Option<String>,
    /// Samples of one step on one GPU, where the file does not say.
    #[arg(long, value_name = "N", value_parser = values::batch_size)]
    pub batch_size: Option<u64>,
    /// The file to write (*.blackbox.json); without it, standard output.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace the file if it is there.
    #[arg(long, requires = "output")]
    pub force: bool,
}

/// Arguments of `sweep`.
#[derive(Debug, Args)]
pub struct SweepArgs {
    /// What to vary.
    #[command(subcommand)]
    pub command: SweepCommand,
}

/// Hypothetical versions of a GPU.
#[derive(Debug, Subcommand)]
pub enum SweepCommand {
    /// The step time over the memory bandwidth of a GPU that is otherwise as it is, and where
    /// more of it no longer pays.
    Bandwidth(SweepBandwidthArgs),
}

/// Arguments of `sweep bandwidth`.
#[derive(Debug, Args)]
pub struct SweepBandwidthArgs {
    /// A profile, trace or op list; without it, the embedded sample.
    pub file: Option<PathBuf>,
    /// The embedded sample to read if FILE is not given.
    #[arg(long, value_name = "NAME", value_enum, conflicts_with = "file")]
    pub sample: Option<Sample>,
    /// The GPU.
    #[arg(long, value_name = "GPU", default_value = "titan-rtx")]
    pub gpu: String,
    /// The lowest bandwidth, GB/s.
    #[arg(long, value_name = "GB/S", default_value = "200", value_parser = values::gigabytes)]
    pub from: f64,
    /// The highest bandwidth, GB/s.
    #[arg(long, value_name = "GB/S", default_value = "1200", value_parser = values::gigabytes)]
    pub to: f64,
    /// Steps between points, GB/s.
    #[arg(long, value_name = "GB/S", default_value = "100", value_parser = values::gigabytes)]
    pub by: f64,
    /// Whether the GPU waits for the host, which launches its operations and loads its data.
    #[arg(long, value_enum, default_value_t = Host::AsRecorded)]
    pub host: Host,
    /// Linear models that `fit kernelwise` wrote (default: kernelwise.json in the folder of weights,
    /// else the shipped ones).
    #[arg(long, value_name = "FILE")]
    pub kernel_wise: Option<PathBuf>,
    /// Folder of weights, where kernelwise.json is looked for.
    #[arg(long, value_name = "DIR", env = "HABITAT_TUI_MODELS")]
    pub models: Option<PathBuf>,
    /// As JSON (habitat-bandwidth-sweep, version 1).
    #[arg(long)]
    pub json: bool,
    /// A file instead of standard output.
    #[command(flatten)]
    pub file_args: FileArgs,
}
