//! Arguments of commands that use a recorded step: `predict`, `plan`, `plan-jobs`, `batches` and `export`.

use crate::settings::choices::choice;
use std::path::PathBuf;

use clap::Args;

use super::{
    BlackBoxArgs, FileArgs, InputArgs, LaunchArgs, ModelArgs, OwnArgs, PagerArgs, RecordedArgs, TableArgs, TableForm,
};
use crate::settings::goal_args::GoalArgs;
use habitat_planning::plan::Accept;
use habitat_planning::values::{self, BatchSizes};
use habitat_prediction::{Host, MethodChoice, Precision};
use habitat_reports::launch::Launcher;
use habitat_step::profile::Sample;

/// Arguments of `predict`.
#[derive(Debug, Args)]
pub struct PredictArgs {
    /// The recorded step.
    #[command(flatten)]
    pub input: InputArgs,
    /// A black box instead of a recorded step.
    #[command(flatten)]
    pub black_box: BlackBoxArgs,
    /// GPUs to predict for (default: all in the catalog).
    #[arg(long = "to", alias = "gpu", value_name = "GPU", value_delimiter = ',')]
    pub to: Vec<String>,
    /// Show every operation.
    #[arg(long)]
    pub operations: bool,
    /// Show details of the recorded step.
    ///
    /// Its longest operations, modules, waits and notes.
    #[arg(long)]
    pub verbose: bool,
    /// Compare all prediction methods.
    ///
    /// Shows the known error of each method, and which one is used.
    #[arg(long, conflicts_with_all = ["operations", "black_box"])]
    pub all_methods: bool,
    /// Each GPU of `--to` with changed specifications (bandwidth=2).
    ///
    /// As multiples of the real ones: bandwidth, sms, clock, tensor, memory.
    #[arg(long, requires = "to", value_name = "FIGURE=N,…", conflicts_with_all = ["all_methods", "black_box"])]
    pub what_if: Option<String>,
    /// Explain the difference between two GPUs by operation.
    ///
    /// Compares the two of `--to`, or one with its `--what-if` variant.
    #[arg(long, requires = "to", conflicts_with_all = ["operations", "all_methods", "black_box"])]
    pub difference: bool,
    /// Output format.
    #[command(flatten)]
    pub form: TableForm,
    /// Also write a report to share: one HTML file, without scripts or network.
    ///
    /// Contains the verdict, the recorded step with its idle time, cost against time, and with --difference the
    /// comparison of the two GPUs.
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
    /// A black box instead of a recorded step.
    #[command(flatten)]
    pub black_box: BlackBoxArgs,
    /// Price the plan in this file again, and show changes.
    ///
    /// TOML, version 2 to 5; uses today's prices and predictions. The recorded step is the one that the plan names, or
    /// FILE.
    #[arg(
        long,
        value_name = "PLAN",
        conflicts_with_all = ["origin", "ignore_origin", "batch_size", "sequence_length", "parameters", "peak_memory", "method", "waves", "precision", "host", "black_box", "batch_sizes"]
    )]
    pub from: Option<PathBuf>,
    /// With --from: plan the same work for a different recording FILE, such as one of the actual run.
    #[arg(long, requires_all = ["from", "file"])]
    pub other_profile: bool,
    /// Batch sizes per GPU to choose from: a list, or auto.
    ///
    /// In addition to the recorded one: sizes with commas, or `auto` (halved down to 1, doubled twice). Their steps are
    /// predicted like those of `batches` from one recording.
    #[arg(long, value_name = "N,…", value_parser = values::batch_sizes, help_heading = "Work", conflicts_with = "black_box")]
    pub batch_sizes: Option<BatchSizes>,
    /// The goal.
    #[command(flatten)]
    pub wish: GoalArgs,
    /// Own machines.
    #[command(flatten)]
    pub own: OwnArgs,
    /// Best trade-offs of time and cost (Pareto front).
    ///
    /// Ignores deadline and budget. As text, JSON, CSV or Markdown.
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
    /// As a launch file for a tool.
    #[arg(long, value_parser = choice::<Launcher>(), value_name = "TOOL", help_heading = "Output", group = "plan_form")]
    pub export: Option<Launcher>,
    /// How the parts start.
    #[command(flatten)]
    pub launch: LaunchArgs,
    /// Also write a report to share: one HTML file, without scripts or network.
    ///
    /// Contains the verdict, cost against time, the plan over time, the recorded step with its idle time, and all
    /// assumptions.
    #[arg(long, value_name = "FILE", help_heading = "Output", conflicts_with = "frontier")]
    pub html: Option<PathBuf>,
    /// Whether long text is paged.
    #[command(flatten)]
    pub pager: PagerArgs,
    /// Write to this file instead of standard output.
    ///
    /// The format follows from a flag, else from the extension (.json, .csv, .md), else it is TOML. Several parts are
    /// written to numbered files if the tool needs one file each.
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Overwrite an existing file.
    #[arg(long, help_heading = "Output")]
    pub force: bool,
    /// List every rejected offer (the text shows a few, TOML counts them by kind).
    #[arg(long, alias = "all", help_heading = "Output")]
    pub rejected: bool,
}

impl PlanArgs {
    /// Whether text for people goes to standard output.
    pub(crate) const fn is_text(&self) -> bool {
        let has_form = self.json || self.toml || self.csv || self.markdown || self.export.is_some();
        !has_form && self.output.is_none()
    }
}

/// Arguments of `plan-jobs`.
#[derive(Debug, Args)]
pub struct PlanJobsArgs {
    /// The jobs file (TOML): each job with its recorded step, work and limits; and shared budget, deadline and quotas,
    /// or the available machines.
    pub file: PathBuf,
    /// Prediction method.
    #[arg(long, value_parser = choice::<MethodChoice>(), default_value = MethodChoice::Auto.name(), help_heading = "Prediction")]
    pub method: MethodChoice,
    /// Whether the GPU waits for the host, which launches its operations and loads its data.
    #[arg(long, value_parser = choice::<Host>(), default_value = Host::AsRecorded.name(), help_heading = "Prediction")]
    pub host: Host,
    /// Models for predictions.
    #[command(flatten)]
    pub models: ModelArgs,
    /// Offers to accept in addition to firm ones, for each job.
    ///
    /// Firm offers are on-demand, from the provider itself, without doubts about the price, and match the platform and
    /// the global batch of the recording. Each job may accept more (`accept` in the file).
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = choice::<Accept>(), help_heading = "Offers")]
    pub accept: Vec<Accept>,
    /// As launch files for a tool, in the folder of -o: one for each job, and start.sh, which starts all.
    #[arg(long, value_parser = choice::<Launcher>(), value_name = "TOOL", help_heading = "Output", conflicts_with_all = ["json", "csv", "markdown"], requires = "output")]
    pub export: Option<Launcher>,
    /// How the jobs start, in addition to their file.
    #[command(flatten)]
    pub launch: LaunchArgs,
    /// How the table is written.
    #[command(flatten)]
    pub table: TableArgs,
}

/// Arguments of `compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The plan (TOML, version 2 to 5).
    pub plan: PathBuf,
    /// The actual run: a step recorded in it, the file from `run --json FILE`, a file with its hours and cost
    /// (habitat-run JSON), or a step and one of these.
    #[arg(required = true, num_args = 1..=2, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// The recording GPU of the step, instead of the one in the file.
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

/// Arguments of `batches`.
#[derive(Debug, Args)]
pub struct BatchesArgs {
    /// Profiles (or traces) of one workload at two or more batch sizes: a line. One alone: its
    /// shapes scaled. None: the embedded sample.
    pub files: Vec<PathBuf>,
    /// Embedded sample to use without files.
    #[arg(long, value_name = "NAME", value_parser = choice::<Sample>(), conflicts_with = "files")]
    pub sample: Option<Sample>,
    /// Batch sizes to predict (default: 2, 4 and 8 times the largest recorded one, and the largest
    /// that fits).
    #[arg(long, alias = "batch-sizes", value_name = "N", value_delimiter = ',', value_parser = values::batch_size)]
    pub at: Vec<u64>,
    /// GPUs (default: the recording GPU).
    #[arg(long = "to", alias = "gpu", value_name = "GPU", value_delimiter = ',')]
    pub to: Vec<String>,
    /// Show the linear models of operator families.
    #[arg(long)]
    pub families: bool,
    /// Facts about the recorded steps.
    #[command(flatten)]
    pub recorded: RecordedArgs,
    /// Prediction method for other GPUs at the recorded batch sizes.
    #[arg(long, value_parser = choice::<MethodChoice>(), default_value = MethodChoice::Auto.name(), help_heading = "Prediction")]
    pub method: MethodChoice,
    /// Whether the GPU waits for the host, which launches its operations and loads its data.
    #[arg(long, value_parser = choice::<Host>(), default_value = Host::AsRecorded.name(), help_heading = "Prediction")]
    pub host: Host,
    /// Predict for another precision: bf16, amp-bf16, fp16, tf32, fp8 …
    #[arg(
        long,
        value_name = "NAME",
        value_parser = choice::<Precision>(),
        ignore_case = true,
        hide_possible_values = true,
        help_heading = "Prediction"
    )]
    pub precision: Option<Precision>,
    /// Models for predictions.
    #[command(flatten)]
    pub models: ModelArgs,
    /// How the table is written.
    #[command(flatten)]
    pub table: TableArgs,
}

impl BatchesArgs {
    /// Input arguments for one of the files.
    pub fn input(&self, file: Option<PathBuf>) -> InputArgs {
        InputArgs {
            file,
            sample: self.sample,
            recorded: self.recorded.clone(),
            method: self.method,
            host: self.host,
            precision: self.precision,
            models: self.models.clone(),
            ..InputArgs::default()
        }
    }
}

/// Arguments of `export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// A profile or a PyTorch profiler trace with measured times (default: the embedded sample).
    pub file: Option<PathBuf>,
    /// Embedded sample to use without FILE.
    #[arg(long, value_name = "NAME", value_parser = choice::<Sample>(), conflicts_with = "file")]
    pub sample: Option<Sample>,
    /// As a black box: kinds of operators with total times, step time, batch size and GPU; without shapes, names or
    /// modules.
    #[arg(long, required = true)]
    pub black_box: bool,
    /// The recording GPU, instead of the one in the file.
    #[arg(long, value_name = "GPU")]
    pub origin: Option<String>,
    /// Samples per step and GPU, if the file lacks it.
    #[arg(long, value_name = "N", value_parser = values::batch_size)]
    pub batch_size: Option<u64>,
    /// Output file (*.blackbox.json; default: standard output).
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Overwrite an existing file.
    #[arg(long, requires = "output")]
    pub force: bool,
}
