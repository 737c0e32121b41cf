//! The command line of `habitat-lab`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use habitat_tui::values;

/// Trains and evaluates the models that habitat-tui ships.
#[derive(Debug, Parser)]
#[command(name = "habitat-lab", version, about, max_term_width = 100)]
pub struct Lab {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Evaluate predictions on measurements: mean, median, 90 % and worst relative errors, and
    /// the share of measured times in the predicted ranges.
    Evaluate(EvaluateArgs),
    /// Train the operator models (or, with --habitat, Habitat's networks) on measurements.
    Train(TrainArgs),
    /// Print the terms of the efficiency model: prior, shipped value, reason and source.
    Terms,
}

/// Arguments of `evaluate`.
#[derive(Debug, Args)]
pub struct EvaluateArgs {
    /// The measurements to evaluate on.
    #[command(subcommand)]
    pub on: Option<EvaluateOn>,
    /// All tables of a folder with neusight/ops, neusight/steps and traces/gpu; models for every GPU are trained
    /// without it.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Folder that `train` wrote: uses its models without the GPU, if there are any. Without this flag the shipped
    /// models are evaluated; with --data models are trained (minutes).
    #[arg(long, value_name = "DIR", global = true)]
    pub models: Option<PathBuf>,
    /// Evaluate the models that saw everything: the shipped ones or those of --models.
    #[arg(long, global = true)]
    pub seen: bool,
    /// As JSON (habitat-evaluation, version 1; several tables as a list of them).
    #[arg(long, global = true)]
    pub json: bool,
}

/// Arguments of `train`.
#[derive(Debug, Args)]
pub struct TrainArgs {
    /// Habitat's own networks, one per operator, instead of the operator models.
    #[arg(long)]
    pub habitat: bool,
    /// Folder with neusight/ops, neusight/steps and mlpredict; with --habitat a folder of
    /// operator tables (linear, bmm, conv2d; or conv, dense: .csv or .csv.gz).
    #[arg(long, value_name = "DIR", required_unless_present_any = ["black_box", "efficiency", "amd"])]
    pub data: Option<PathBuf>,
    /// Output of `habitat-tui collect` to train on as well; one file per GPU.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["habitat", "black_box"])]
    pub collected: Vec<PathBuf>,
    /// The black-box model, from a folder with anchor_*.csv and latencies.csv in PROFET's format.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["habitat", "data"])]
    pub black_box: Option<PathBuf>,
    /// The efficiency model of mixed and reduced precision, from published steps
    /// (steps.jsonl.zst of models/lab/steps/trace.py).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["habitat", "data", "black_box"])]
    pub efficiency: Option<PathBuf>,
    /// Steps that models/lab/steps/recorded.py packed (folder/GPU/*.habitat.json.zst), to fit the efficiency model to
    /// as well.
    #[arg(long, value_name = "DIR", requires = "efficiency")]
    pub recorded: Option<PathBuf>,
    /// The AMD terms in the efficiency model of --out, from steps and operators on AMD GPUs (milabench.jsonl.zst and
    /// amd.jsonl.zst of models/lab/steps/trace.py); other terms stay.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["habitat", "data", "black_box", "efficiency"])]
    pub amd: Vec<PathBuf>,
    /// Folder for weights and cards (default: where predictions look for them).
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Also write every table of errors, by GPU, source and kind, to this file (Markdown); the card
    /// beside the weights has the totals.
    #[arg(long, value_name = "FILE", conflicts_with = "habitat")]
    pub tables: Option<PathBuf>,
    /// Train only these operators.
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
    /// GPUs to leave out of the training and to evaluate on.
    #[arg(long, requires = "habitat", value_name = "GPU", value_delimiter = ',')]
    pub leave_out: Vec<String>,
    /// Train on a sample of this many rows.
    #[arg(long, requires = "habitat", value_name = "N", value_parser = values::whole)]
    pub rows: Option<u64>,
    /// Seed of initial weights, order and samples: the same seed gives the same weights.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Replace existing weights.
    #[arg(long)]
    pub force: bool,
}

/// Operators for which Habitat has a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KindArg {
    /// Matrix products.
    Linear,
    /// Batched matrix products.
    Bmm,
    /// Two-dimensional convolutions.
    Conv2d,
}

/// Measurements to evaluate on.
#[derive(Debug, Subcommand)]
pub enum EvaluateOn {
    /// The table of docs/accuracy.md, as Markdown (minutes); with --models uses models without the GPU.
    Accuracy {
        /// Folder with neusight, profet and llm.
        data: PathBuf,
        /// Folder with the committed steps.
        #[arg(long, value_name = "DIR", default_value = "models/lab/samples")]
        samples: PathBuf,
    },
    /// Operator tables (elementwise, softmax, layernorm … .csv or .csv.gz): every ordered pair of GPUs.
    Ops {
        /// Folder of the tables, or a file that `habitat-tui collect` wrote.
        dir: PathBuf,
        /// Also evaluate the learned models after measuring this many operators of each table on the GPU: drawn at
        /// random, a few times, and not evaluated themselves.
        #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=200))]
        few: Vec<u32>,
    },
    /// Profiles of whole steps (folder/GPU/*.habitat.json…): from shapes and from every other GPU.
    Steps {
        /// Folder of the profiles.
        dir: PathBuf,
        /// Predict from the profiles of the same file names in this folder (or in its folders, one per GPU; it may be
        /// DIR itself), and evaluate the operations by kind as well.
        #[arg(long, value_name = "FOLDER")]
        origin: Option<PathBuf>,
    },
    /// Published steps (steps.jsonl.zst of models/lab/steps/trace.py), each by an efficiency model fitted without its
    /// GPU, without its family of networks, and without both. With --models, steps in FP32 by operator models that saw
    /// no GPU of the same chip. With --seen, by the shipped models, for steps outside the training data.
    Published {
        /// The file.
        file: PathBuf,
        /// Steps that models/lab/steps/recorded.py packed (folder/GPU/*.habitat.json.zst), to fit to and evaluate as
        /// well.
        #[arg(long, value_name = "DIR")]
        recorded: Option<PathBuf>,
    },
    /// Steps of milabench at batches from 1 up, and the memory that the driver reported (hosts.jsonl.zst of
    /// models/lab/steps/trace.py), by the shipped models.
    Hosts {
        /// The file.
        file: PathBuf,
    },
    /// Linear layers in FP8 against BF16 by width (fp8.csv.gz, published), from their sizes by the shipped models.
    Fp8 {
        /// The file.
        file: PathBuf,
    },
    /// Published training steps of language models on many GPUs (steps.csv.gz in DIR), from the dimensions of the
    /// model.
    Llm {
        /// The folder.
        dir: PathBuf,
    },
    /// Steps on several GPUs of one machine from the step on one (scaling.csv of models/lab/steps/scaling.py), or on
    /// more machines from the step on fewer (machines.csv), beside linear scaling.
    Scaling {
        /// The file.
        file: PathBuf,
    },
    /// Plans of random files of many jobs, beside list schedules of the same files: cost, bound and time.
    Jobs {
        /// Number of files, of 50 to 500 jobs each.
        #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        files: u32,
    },
    /// Plans with spot machines, replayed on traces of spot availability.
    Spot {
        /// The traces, as run lengths: a CSV file of trace, `start_s`, `length_s` and nodes.
        file: PathBuf,
    },
    /// Profiler traces named `gpu_workload.json…`: each workload that was recorded on two GPUs, in both directions, by
    /// kind of operator.
    Traces {
        /// Folder of the traces.
        dir: PathBuf,
    },
    /// Black boxes (operator kinds and total times on one GPU, tables in PROFET's format): each network left out, or
    /// one folder evaluated by another.
    BlackBox(BlackBoxArgs),
    /// Step times at several batch sizes, in PROFET's format (latencies.csv, anchor_*.csv): batches two and four times
    /// as large, predicted from the two or three smallest of a series.
    Batches {
        /// Folder of the tables.
        dir: PathBuf,
        /// Also evaluate steps with scaled shapes: profiles of measured steps at several batch sizes
        /// (folder/GPU/*.habitat.json…).
        #[arg(long, value_name = "FOLDER")]
        steps: Option<PathBuf>,
    },
    /// Every method on the same steps, from shapes alone and from another GPU.
    Methods {
        /// Folder with neusight/steps and traces/gpu.
        dir: PathBuf,
        /// Also published steps in mixed and reduced precision (minutes).
        #[arg(long, value_name = "FILE")]
        published: Option<PathBuf>,
        /// Also recorded steps of several GPUs (folder/GPU/*.habitat.json…), each from every other GPU, by the shipped
        /// models.
        #[arg(long, value_name = "FOLDER")]
        recorded: Option<PathBuf>,
    },
    /// Linear models of kernels, layers and steps (Li et al.): within a GPU, on a GPU left out, the faster of two GPUs,
    /// a queue of networks on two GPUs.
    #[command(name = "kernelwise")]
    KernelWise {
        /// Folder with ops/ (operator tables) and steps/ (profiles), or one of them.
        dir: PathBuf,
    },
    /// Logs of runs: fitted on small batch sizes and few iterations, evaluated far beyond both, on synthetic logs with
    /// known noise and on the given logs.
    Logs {
        /// CSV files with time, batch size and iterations.
        logs: Vec<PathBuf>,
    },
    /// The case study of Li et al.: the step time over the memory bandwidth of a GPU, and the bandwidth beyond which
    /// more does not pay off.
    Bandwidth {
        /// Profiles of steps.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// The GPU.
        #[arg(long, value_name = "GPU", default_value = "titan-rtx")]
        gpu: String,
    },
    /// The case studies of the Habitat paper (GNMT and DCGAN, embedded) from shapes alone.
    Cases,
}

/// Arguments of `evaluate black-box`.
#[derive(Debug, Clone, Default, Args)]
pub struct BlackBoxArgs {
    /// Folder with anchor_*.csv (and latencies.csv for the interpolation), in the format of PROFET's data.
    #[arg(conflicts_with_all = ["train", "test"])]
    pub dir: Option<PathBuf>,
    /// Fit on this folder, and evaluate on the folder of --test.
    #[arg(long, value_name = "DIR", requires = "test")]
    pub train: Option<PathBuf>,
    /// The folder to evaluate on.
    #[arg(long, value_name = "DIR", requires = "train")]
    pub test: Option<PathBuf>,
    /// Also leave out whole families of networks (such as the VGGs).
    #[arg(long)]
    pub families: bool,
    /// Also leave out kinds of operators (as normalisation).
    #[arg(long)]
    pub kinds: bool,
    /// Also fit and evaluate PROFET's predictor as published: least squares, forest, network and
    /// their median (minutes).
    #[arg(long)]
    pub published: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Lab::command().debug_assert();
    }
}
