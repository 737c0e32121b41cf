//! The command line: one definition for flags, help, man page and completions.
//!
//! This is what was typed; the front ends turn it into options, goals and files.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::values;
use crate::predict::{MethodChoice, Mode, Precision, WaveForm};
use crate::pricing::Tier;
use crate::units::{Bytes, Hours, Usd, UsdPerHour};

/// On which GPU should this be trained, how long will it take, what will it cost?
///
/// Opens the screens on a recorded training step (FILE: a profile, or a PyTorch profiler
/// trace). Without FILE it opens an embedded sample. Without a terminal on standard output
/// it prints the report.
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
    /// Turn PyTorch profiler traces, or the op list of a traced step, into a profile.
    Import(ImportArgs),
    /// Predict the step time on every GPU, or on those named.
    Predict(PredictArgs),
    /// Choose the offers that do the work best.
    Plan(PlanArgs),
    /// List the GPUs of the catalog.
    Gpus(GpusArgs),
    /// List the offers of the price book.
    Offers(OffersArgs),
    /// Print the JSON Schema of a file form.
    Schema(SchemaArgs),
    /// Check a profile, a catalog file or a price file.
    Check(CheckArgs),
    /// Judge the predictors on measured data.
    Models(ModelsArgs),
    /// Print completions for a shell.
    Completions(CompletionsArgs),
    /// Print the manual page.
    Man,
    /// Print where files are read from, and the keys.
    Config(ConfigArgs),
}

/// A recorded step and how to read it.
#[derive(Debug, Clone, Default, Args)]
pub struct InputArgs {
    /// A profile (*.habitat.json, .gz, .zst), a PyTorch profiler trace or an op list;
    /// without it, the embedded sample.
    pub file: Option<PathBuf>,
    /// The GPU it was recorded on, in place of what the file says.
    #[arg(long, value_name = "GPU", help_heading = "Recorded step")]
    pub origin: Option<String>,
    /// Drop what was measured and predict from shapes alone.
    #[arg(long, help_heading = "Recorded step")]
    pub ignore_origin: bool,
    /// Samples of one step on one GPU, where the file does not say.
    #[arg(long, value_name = "N", value_parser = values::whole, allow_hyphen_values = true, help_heading = "Recorded step")]
    pub batch_size: Option<u64>,
    /// Tokens of one sample, where the file does not say.
    #[arg(long, value_name = "N", value_parser = values::whole, allow_hyphen_values = true, help_heading = "Recorded step")]
    pub sequence_length: Option<u64>,
    /// Parameters of the model (25.6M), where the file does not say.
    #[arg(long, value_name = "N", value_parser = values::whole, allow_hyphen_values = true, help_heading = "Recorded step")]
    pub parameters: Option<u64>,
    /// Peak device memory of the step (11GB), where the file does not say.
    #[arg(long, value_name = "SIZE", value_parser = values::bytes, help_heading = "Recorded step")]
    pub peak_memory: Option<Bytes>,
    /// How times are predicted.
    #[arg(long, value_enum, default_value_t = MethodArg::Auto, help_heading = "Prediction")]
    pub method: MethodArg,
    /// Which equation of wave scaling is used (Habitat's 1 or 2).
    #[arg(long, value_enum, default_value_t = WaveArg::Many, help_heading = "Prediction")]
    pub waves: WaveArg,
    /// Predict for another precision than the recorded one: fp32, tf32, amp-fp16, amp-bf16,
    /// fp16, bf16, fp8.
    #[arg(long, value_name = "PRECISION", value_parser = parse_precision, help_heading = "Prediction")]
    pub precision: Option<Precision>,
    /// Folder of weights: operators.safetensors in place of the shipped models, and those of
    /// Habitat's networks for --method habitat-mlp.
    #[arg(long, value_name = "DIR", env = "HABITAT_TUI_MODELS", help_heading = "Prediction")]
    pub models: Option<PathBuf>,
    /// Folder of operators that you measured on GPUs (linear.csv, conv2d.csv …), in place of
    /// measured/ beside the settings; they correct the models for those GPUs.
    #[arg(long, value_name = "DIR", help_heading = "Prediction")]
    pub measured: Option<PathBuf>,
}

/// `--method`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum MethodArg {
    /// The best available for each operation.
    #[default]
    Auto,
    /// The learned models wherever they know the operator.
    Learned,
    /// Wave scaling wherever launches are known.
    WaveScaling,
    /// The roofline on shapes, whatever was measured.
    Roofline,
    /// Habitat's networks for products and convolutions in FP32 (`models train --habitat`
    /// makes them), the rest as auto.
    HabitatMlp,
}

impl From<MethodArg> for MethodChoice {
    fn from(arg: MethodArg) -> Self {
        match arg {
            MethodArg::Auto => Self::Auto,
            MethodArg::Learned => Self::Learned,
            MethodArg::WaveScaling => Self::WaveScaling,
            MethodArg::Roofline => Self::Roofline,
            MethodArg::HabitatMlp => Self::HabitatMlp,
        }
    }
}

/// `--waves`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum WaveArg {
    /// Whole waves (equation 1).
    Whole,
    /// Many waves (equation 2).
    #[default]
    Many,
}

impl From<WaveArg> for WaveForm {
    fn from(arg: WaveArg) -> Self {
        match arg {
            WaveArg::Whole => Self::WholeWaves,
            WaveArg::Many => Self::ManyWaves,
        }
    }
}

/// How much is to be done, within which limits.
#[derive(Debug, Clone, Default, Args)]
pub struct GoalArgs {
    /// Work in samples (1.28M).
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true, help_heading = "Work", group = "work")]
    pub samples: Option<f64>,
    /// Work in steps of the recorded batch size.
    #[arg(long, value_name = "N", value_parser = values::whole, allow_hyphen_values = true, help_heading = "Work", group = "work")]
    pub steps: Option<u64>,
    /// Work in passes over a data set of --dataset samples.
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true, help_heading = "Work", group = "work", requires = "dataset")]
    pub epochs: Option<f64>,
    /// Samples of the data set, for --epochs.
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true, help_heading = "Work", requires = "epochs")]
    pub dataset: Option<f64>,
    /// Work in tokens (needs the sequence length).
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true, help_heading = "Work", group = "work")]
    pub tokens: Option<f64>,
    /// Latest finish (24h, "1d 12h"), set-up included.
    #[arg(long, value_name = "TIME", value_parser = values::hours, allow_hyphen_values = true, help_heading = "Limits")]
    pub deadline: Option<Hours>,
    /// Most to spend in all, in US dollars.
    #[arg(long, value_name = "USD", value_parser = values::usd, allow_hyphen_values = true, help_heading = "Limits")]
    pub budget: Option<Usd>,
    /// Most to spend an hour, in US dollars.
    #[arg(long, value_name = "USD", value_parser = values::usd_per_hour, allow_hyphen_values = true, help_heading = "Limits")]
    pub max_price: Option<UsdPerHour>,
    /// What is best within the limits.
    #[arg(long, value_enum, help_heading = "Limits")]
    pub objective: Option<ObjectiveArg>,
    /// What an hour of waiting is worth, in US dollars: minimise cost plus this.
    #[arg(long, value_name = "USD", value_parser = values::usd_per_hour, allow_hyphen_values = true, help_heading = "Limits", conflicts_with = "objective")]
    pub hour_value: Option<UsdPerHour>,
    /// Whether the expected time or the upper end of its range has to meet the deadline.
    #[arg(long, value_enum, help_heading = "Limits")]
    pub confidence: Option<ConfidenceArg>,
    /// Parts that may follow one another (2 allows "spot, then on demand").
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3), help_heading = "Limits")]
    pub max_parts: Option<u32>,
    /// Ways to pay: on-demand, spot, reserved, owned.
    #[arg(long, value_name = "TIER", value_delimiter = ',', value_parser = parse_tier, help_heading = "Offers")]
    pub tiers: Vec<Tier>,
    /// Only these GPUs.
    #[arg(long = "gpus", value_name = "GPU", value_delimiter = ',', help_heading = "Offers")]
    pub gpus: Vec<String>,
    /// Only these providers.
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Offers")]
    pub providers: Vec<String>,
    /// Never these providers.
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Offers")]
    pub exclude_providers: Vec<String>,
    /// Only regions whose names begin so.
    #[arg(long, value_name = "PREFIX", value_delimiter = ',', help_heading = "Offers")]
    pub regions: Vec<String>,
    /// Fewest GPUs.
    #[arg(long, value_name = "N", help_heading = "Offers")]
    pub min_gpus: Option<u32>,
    /// Most GPUs.
    #[arg(long, value_name = "N", help_heading = "Offers")]
    pub max_gpus: Option<u32>,
    /// Use GPUs of which it is not known whether the step fits in their memory.
    #[arg(long, help_heading = "Offers")]
    pub allow_unknown_memory: bool,
    /// Boot and set-up before useful work.
    #[arg(long, value_name = "TIME", value_parser = values::hours, allow_hyphen_values = true, help_heading = "Assumptions")]
    pub setup: Option<Hours>,
    /// Losses of a spot machine in an hour.
    #[arg(long, value_name = "RATE", value_parser = values::count, allow_hyphen_values = true, help_heading = "Assumptions")]
    pub spot_losses_per_hour: Option<f64>,
    /// Time between checkpoints.
    #[arg(long, value_name = "TIME", value_parser = values::hours, allow_hyphen_values = true, help_heading = "Assumptions")]
    pub checkpoint_interval: Option<Hours>,
    /// All-reduce bandwidth inside a machine that you measured, in GB/s.
    #[arg(long, value_name = "GBPS", value_parser = values::gigabytes, allow_hyphen_values = true, help_heading = "Assumptions")]
    pub allreduce_gbps: Option<f64>,
}

fn parse_tier(text: &str) -> Result<Tier, String> {
    match text.trim() {
        "on-demand" => Ok(Tier::OnDemand),
        "spot" => Ok(Tier::Spot),
        "reserved" => Ok(Tier::Reserved),
        "owned" => Ok(Tier::Owned),
        _ => Err(format!("{text:?} is no way to pay; write on-demand, spot, reserved or owned")),
    }
}

/// `--objective`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ObjectiveArg {
    /// Lowest cost.
    Cost,
    /// Earliest finish.
    Time,
}

/// `--confidence`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ConfidenceArg {
    /// The expected time meets the deadline.
    Expected,
    /// The upper end of the range meets the deadline.
    High,
}

/// Arguments of the screens.
#[derive(Debug, Clone, Default, Args)]
pub struct ScreensArgs {
    /// The recorded step.
    #[command(flatten)]
    pub input: InputArgs,
    /// The goal to plan for.
    #[command(flatten)]
    pub goal: GoalArgs,
    /// Screen to open.
    #[arg(long, value_enum, default_value_t = ScreenArg::Overview, help_heading = "Screens")]
    pub screen: ScreenArg,
    /// GPU to select.
    #[arg(long, help_heading = "Screens")]
    pub gpu: Option<String>,
    /// Filter to start with.
    #[arg(long, help_heading = "Screens")]
    pub filter: Option<String>,
    /// Colours: dark, light, high-contrast, or one of your own.
    #[arg(long, env = "HABITAT_TUI_THEME", help_heading = "Screens")]
    pub theme: Option<String>,
    /// How many colours.
    #[arg(long, value_enum, env = "HABITAT_TUI_COLOR", help_heading = "Screens")]
    pub color: Option<ColorArg>,
    /// Draw with ASCII characters only.
    #[arg(long, env = "HABITAT_TUI_ASCII", help_heading = "Screens")]
    pub ascii: bool,
    /// Leave the mouse to the terminal.
    #[arg(long, help_heading = "Screens")]
    pub no_mouse: bool,
    /// Write a picture (SVG) of the screen to this file and exit.
    #[arg(long, value_name = "FILE", help_heading = "Picture")]
    pub screenshot: Option<PathBuf>,
    /// Columns x rows of the picture.
    #[arg(long, value_name = "WxH", value_parser = values::size, default_value = "120x40", help_heading = "Picture")]
    pub size: (u16, u16),
    /// Keys to press before the picture is taken, as "j j enter".
    #[arg(long, value_name = "KEYS", default_value = "", help_heading = "Picture")]
    pub keys: String,
    /// Replace the file if it is there.
    #[arg(long, help_heading = "Picture")]
    pub force: bool,
}

/// `--screen`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ScreenArg {
    /// What was recorded, and the answer so far.
    #[default]
    Overview,
    /// Operation by operation.
    Profile,
    /// GPU by GPU.
    Predict,
    /// The plan.
    Plan,
}

/// `--color`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorArg {
    /// None.
    None,
    /// The 16 of every terminal.
    #[value(name = "16")]
    Sixteen,
    /// 256.
    #[value(name = "256")]
    Indexed,
    /// 24 bits.
    True,
    /// What the terminal says it can do.
    Auto,
}

/// Arguments of `import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// One trace (.json, .json.gz, .json.zst), or one a rank; or one op list.
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// The profile to write (.habitat.json, .habitat.json.gz or .habitat.json.zst).
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Replace the file if it is there.
    #[arg(long)]
    pub force: bool,
    /// A name for the workload (default: the trace's file name).
    #[arg(long)]
    pub name: Option<String>,
    /// Training or inference, in place of what the trace shows.
    #[arg(long, value_parser = parse_mode)]
    pub mode: Option<Mode>,
    /// Samples of one step on one GPU.
    #[arg(long, value_name = "N", value_parser = values::whole, allow_hyphen_values = true)]
    pub batch_size: Option<u64>,
    /// Tokens of one sample.
    #[arg(long, value_name = "N", value_parser = values::whole, allow_hyphen_values = true)]
    pub sequence_length: Option<u64>,
    /// Parameters of the model.
    #[arg(long, value_name = "N", value_parser = values::whole, allow_hyphen_values = true)]
    pub parameters: Option<u64>,
    /// What the step ran in: fp32, tf32, amp-fp16, amp-bf16, fp16, bf16, fp8.
    #[arg(long, value_parser = parse_precision)]
    pub precision: Option<Precision>,
    /// The GPU it was recorded on, in place of what the trace says.
    #[arg(long, value_name = "GPU")]
    pub origin: Option<String>,
    /// Read the shapes only: for traces without GPU kernels.
    #[arg(long)]
    pub shapes_only: bool,
    /// Read at most this many steps.
    #[arg(long, value_name = "N")]
    pub max_steps: Option<usize>,
    /// Print what was found as JSON.
    #[arg(long)]
    pub json: bool,
}

fn parse_mode(text: &str) -> Result<Mode, String> {
    match text {
        "training" => Ok(Mode::Training),
        "inference" => Ok(Mode::Inference),
        _ => Err("write training or inference".to_owned()),
    }
}

fn parse_precision(text: &str) -> Result<Precision, String> {
    const ALL: [Precision; 7] = [
        Precision::Fp32,
        Precision::Tf32,
        Precision::AmpFp16,
        Precision::AmpBf16,
        Precision::Fp16,
        Precision::Bf16,
        Precision::Fp8,
    ];
    ALL.into_iter()
        .find(|precision| precision.name() == text)
        .ok_or_else(|| format!("write one of {}", ALL.map(Precision::name).join(", ")))
}

/// Arguments of `predict`.
#[derive(Debug, Args)]
pub struct PredictArgs {
    /// The recorded step.
    #[command(flatten)]
    pub input: InputArgs,
    /// GPUs to predict for (all of the catalog without it).
    #[arg(long = "to", value_name = "GPU", value_delimiter = ',')]
    pub to: Vec<String>,
    /// Every operation too.
    #[arg(long)]
    pub operations: bool,
    /// Output form.
    #[command(flatten)]
    pub form: TableForm,
}

/// Forms of a table.
#[derive(Debug, Clone, Copy, Default, Args)]
#[group(multiple = false)]
pub struct TableForm {
    /// As JSON.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// As CSV.
    #[arg(long, help_heading = "Output")]
    pub csv: bool,
    /// As a Markdown table.
    #[arg(long, help_heading = "Output")]
    pub markdown: bool,
}

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// The recorded step.
    #[command(flatten)]
    pub input: InputArgs,
    /// The goal.
    #[command(flatten)]
    pub goal: GoalArgs,
    /// As JSON.
    #[arg(long, help_heading = "Output", conflicts_with = "toml")]
    pub json: bool,
    /// As TOML.
    #[arg(long, help_heading = "Output")]
    pub toml: bool,
    /// Write to this file in place of standard output (TOML unless --json).
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Replace the file if it is there.
    #[arg(long, help_heading = "Output")]
    pub force: bool,
    /// List every rejected offer (the text form shows a few).
    #[arg(long, help_heading = "Output")]
    pub all: bool,
}

/// Arguments of `gpus`.
#[derive(Debug, Args)]
pub struct GpusArgs {
    /// Only GPUs with this in slug, name or architecture.
    pub filter: Option<String>,
    /// Output form.
    #[command(flatten)]
    pub form: TableForm,
    /// Print the catalog file of one GPU, to start your own from.
    #[arg(long, value_name = "GPU", conflicts_with_all = ["filter", "json", "csv", "markdown"])]
    pub toml: Option<String>,
}

/// Arguments of `offers`.
#[derive(Debug, Args)]
pub struct OffersArgs {
    /// Only offers with this in provider, region, instance type or GPU.
    pub filter: Option<String>,
    /// Only this GPU.
    #[arg(long)]
    pub gpu: Option<String>,
    /// Offers that plans do not use as well, with the reason.
    #[arg(long)]
    pub all: bool,
    /// Output form.
    #[command(flatten)]
    pub form: TableForm,
}

/// Arguments of `schema`.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// Which form.
    #[arg(value_enum, default_value_t = SchemaArg::Profile)]
    pub of: SchemaArg,
}

/// Forms that have a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchemaArg {
    /// `*.habitat.json`.
    Profile,
    /// What `predict --json` prints.
    Predictions,
    /// What `plan --json` prints.
    Plan,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Files to check: profiles (.json…), catalog or price files (.toml).
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// Arguments of `models`.
#[derive(Debug, Args)]
pub struct ModelsArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ModelsCommand,
}

/// Commands about the predictors.
#[derive(Debug, Subcommand)]
pub enum ModelsCommand {
    /// Judge predictions on measurements: mean, median, 90 % and worst relative errors, and
    /// the share of measured times in the predicted ranges.
    Evaluate(EvaluateArgs),
    /// Train the operator models (or, with --habitat, Habitat's networks) on measurements.
    Train(TrainArgs),
    /// Say which operators of a step to measure on a GPU to predict it better there.
    Suggest(SuggestArgs),
}

/// Arguments of `models suggest`.
#[derive(Debug, Args)]
pub struct SuggestArgs {
    /// A profile, trace or op list; without it, the embedded sample.
    pub file: Option<PathBuf>,
    /// The GPU to measure on.
    #[arg(long, value_name = "GPU")]
    pub to: String,
    /// How many operators.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub count: u32,
    /// Write tables to fill in into this folder.
    #[arg(long, value_name = "DIR")]
    pub csv: Option<PathBuf>,
    /// Replace tables that are there.
    #[arg(long, requires = "csv")]
    pub force: bool,
    /// Folder of weights in place of the shipped models.
    #[arg(long, value_name = "DIR", env = "HABITAT_TUI_MODELS")]
    pub models: Option<PathBuf>,
    /// Folder of operators measured already, in place of measured/ beside the settings.
    #[arg(long, value_name = "DIR")]
    pub measured: Option<PathBuf>,
}

/// Arguments of `models evaluate`.
#[derive(Debug, Args)]
pub struct EvaluateArgs {
    /// On what.
    #[command(subcommand)]
    pub on: Option<EvaluateOn>,
    /// All tables, of a folder with neusight/ops, neusight/steps and traces/gpu; every GPU is
    /// judged by models that were trained without it.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Folder that `models train` wrote: GPUs that it has models without are judged by those.
    /// Without it the shipped models are judged; with --data models are trained (minutes).
    #[arg(long, value_name = "DIR", global = true)]
    pub models: Option<PathBuf>,
    /// Judge by the models that saw everything, the shipped ones or those of --models.
    #[arg(long, global = true)]
    pub seen: bool,
    /// As JSON (habitat-evaluation, version 1; several tables as a list of them).
    #[arg(long, global = true)]
    pub json: bool,
}

/// Arguments of `models train`.
#[derive(Debug, Args)]
pub struct TrainArgs {
    /// Habitat's own networks, one an operator, in place of the operator models.
    #[arg(long)]
    pub habitat: bool,
    /// Folder with neusight/ops, neusight/steps and mlpredict; with --habitat a folder of
    /// operator tables (linear, bmm, conv2d; or conv, dense: .csv or .csv.gz).
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Folder to write weights and cards to (default: where predictions look for them).
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Only these operators.
    #[arg(long, requires = "habitat", value_name = "NAME", value_delimiter = ',', value_enum)]
    pub operators: Vec<KindArg>,
    /// Hidden layers.
    #[arg(long, requires = "habitat", value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=32))]
    pub layers: u32,
    /// Units of a hidden layer.
    #[arg(long, requires = "habitat", value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=8192))]
    pub width: u32,
    /// Passes over the rows.
    #[arg(long, requires = "habitat", value_name = "N", default_value_t = 80, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub epochs: u32,
    /// GPUs to leave out, and to judge on.
    #[arg(long, requires = "habitat", value_name = "GPU", value_delimiter = ',')]
    pub leave_out: Vec<String>,
    /// Train on a sample of so many rows.
    #[arg(long, requires = "habitat", value_name = "N", value_parser = values::whole)]
    pub rows: Option<u64>,
    /// Of initial weights, order and samples: the same seed gives the same weights.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Replace weights that are there.
    #[arg(long)]
    pub force: bool,
}

/// Operators that Habitat has a network for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KindArg {
    /// Matrix products.
    Linear,
    /// Batched matrix products.
    Bmm,
    /// Two-dimensional convolutions.
    Conv2d,
}

/// What to judge on.
#[derive(Debug, Subcommand)]
pub enum EvaluateOn {
    /// Operator tables (elementwise, softmax, layernorm … .csv or .csv.gz): every ordered pair of GPUs.
    Ops {
        /// Folder of the tables.
        dir: PathBuf,
        /// Judge the learned models also after so many operators of each table were measured
        /// on the GPU: drawn at random, a few times over, and not judged themselves.
        #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=200))]
        few: Vec<u32>,
    },
    /// Profiles of whole steps (folder/GPU/*.habitat.json…): from shapes and from every other GPU.
    Steps {
        /// Folder of the profiles.
        dir: PathBuf,
        /// Predict from the profiles of the same file names in this folder (or in folders of
        /// it, one a GPU; it may be DIR itself), and judge the operations by kind as well.
        #[arg(long, value_name = "FOLDER")]
        origin: Option<PathBuf>,
    },
    /// Profiler traces named `gpu_workload.json…`: each workload that was recorded on two
    /// GPUs, in both directions, by kind of operator.
    Traces {
        /// Folder of the traces.
        dir: PathBuf,
    },
    /// The case studies of the Habitat paper (GNMT and DCGAN, embedded) from shapes alone.
    Cases,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Shell.
    pub shell: clap_complete::Shell,
}

/// Arguments of `config`.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// Print the key bindings in the form of the settings file.
    #[arg(long)]
    pub keys: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
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
        assert_eq!(screens("habitat-tui --screen plan").screen, ScreenArg::Plan);
        assert_eq!(screens("habitat-tui --size 80x24").size, (80, 24));
        assert_eq!(plan("habitat-tui plan f --samples 1.2M").goal.samples, Some(1.2e6));
        assert_eq!(plan("habitat-tui plan f --deadline 24h").goal.deadline, Hours::new(24.0).ok());
        assert_eq!(plan("habitat-tui plan f --budget $300").goal.budget, Usd::new(300.0).ok());
        assert_eq!(plan("habitat-tui plan f --tiers on-demand,spot").goal.tiers, [Tier::OnDemand, Tier::Spot]);
        assert_eq!(plan("habitat-tui plan f --epochs 90 --dataset 1.28M").goal.dataset, Some(1.28e6));
        assert_eq!(plan("habitat-tui plan --parameters 25.6M").input.parameters, Some(25_600_000));
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
        ] {
            assert!(Cli::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }
}
