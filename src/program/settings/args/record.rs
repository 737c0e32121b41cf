//! Arguments of commands other than `run` that make a profile: `attach` and `env`, `trace-shapes`, `import`.

use crate::settings::choices::choice;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::WorkloadArgs;
use habitat_planning::values;
use habitat_prediction::Precision;
use habitat_step::decoder::{Loss, Recompute};

/// Arguments of `env`.
///
/// Start the job in a shell with these variables, `eval "$(habitat-tui env)"`; `habitat-tui attach` can then record its
/// step at any time. `PyTorch` polls a socket in the folder for requests, every 5 seconds (with --fast every second);
/// the socket is idle until you attach. Linux only.
///
/// Two limitations: with `KINETO_USE_DAEMON=1` but neither `KINETO_IPC_SOCKET_DIR` nor a running dynolog, every process
/// of the job waits up to 10 seconds before it exits. And a program that calls `os.fork()` itself after importing
/// `PyTorch` may hang in the child (`DataLoader` workers do not): start such a program with `habitat-tui run` instead.
#[derive(Debug, Args)]
pub struct EnvArgs {
    /// Folder of the socket, for a container or next to another user's daemon (default: `KINETO_IPC_SOCKET_DIR`, else a
    /// private one in your cache folder).
    #[arg(long, value_name = "DIR")]
    pub socket_dir: Option<PathBuf>,
    /// Poll every second instead of every 5; writes a settings file to the folder.
    #[arg(long)]
    pub fast: bool,
    /// Shell syntax to print.
    #[arg(long, value_enum, default_value_t = ShellArg::Sh, conflicts_with = "json")]
    pub shell: ShellArg,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// Shell syntax.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ShellArg {
    /// `export NAME=value`: sh, bash, zsh.
    Sh,
    /// `set -gx NAME value`.
    Fish,
    /// `NAME=value`, one per line: for `env`, Docker's --env-file, batch systems.
    Plain,
}

/// Arguments of `attach`.
///
/// The job must have been started with the variables that `habitat-tui env` prints. It records a few steps and keeps
/// running. No screens open, not even on a terminal; the report ends with the command that opens them.
#[derive(Debug, Args)]
pub struct AttachArgs {
    /// Record this process, or the job that it launched.
    #[arg(long, value_name = "N", value_parser = values::within::<u32>(1, u64::MAX))]
    pub pid: Option<u32>,
    /// Record every rank of the job on this machine instead of the first only, on the same steps.
    #[arg(long)]
    pub all: bool,
    /// List the processes that can be recorded, without recording.
    #[arg(long, conflicts_with_all = ["pid", "all", "output", "window"])]
    pub list: bool,
    /// Output profile (default: named by script and date, in the current folder).
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Overwrite an existing file.
    #[arg(long)]
    pub force: bool,
    /// Steps to record. One more call of `Optimizer.step` is recorded, because the first only marks where a step ends.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = values::within::<u32>(1, 1000), help_heading = "Recording")]
    pub window: u32,
    /// Omit input shapes of operators; predictions need them.
    #[arg(long, help_heading = "Recording")]
    pub no_shapes: bool,
    /// Also record Python stacks and modules.
    #[arg(long, help_heading = "Recording")]
    pub stacks: bool,
    /// Keep the traces in this folder.
    #[arg(long, value_name = "DIR", help_heading = "Recording")]
    pub keep_traces: Option<PathBuf>,
    /// Time to wait for processes (10s, 2m).
    #[arg(long, value_name = "TIME", value_parser = values::wait, help_heading = "Waiting")]
    pub wait: Option<Duration>,
    /// Maximum time for the recording (30s, 5m).
    #[arg(long, value_name = "TIME", value_parser = values::wait, help_heading = "Waiting")]
    pub timeout: Option<Duration>,
    /// Folder of the socket (default: `KINETO_IPC_SOCKET_DIR`, else the private one of `env`, plus dynolog's own name
    /// if it is free).
    #[arg(long, value_name = "DIR", help_heading = "Waiting")]
    pub socket_dir: Option<PathBuf>,
    /// Facts about the workload for the profile.
    #[command(flatten)]
    pub workload: WorkloadArgs,
    /// Print the recording or the list as JSON.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Print no progress.
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
}

/// Arguments of `import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// A trace (.json, .json.gz, .json.zst), Nsight Systems export (.sqlite) or XPlane (.xplane.pb), or one file per
    /// rank; or an op list.
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// Output profile (.habitat.json, .habitat.json.gz or .habitat.json.zst).
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Overwrite an existing file.
    #[arg(long)]
    pub force: bool,
    /// Read shapes only: for traces without GPU kernels.
    #[arg(long)]
    pub shapes_only: bool,
    /// Read at most this many steps.
    #[arg(long, value_name = "N")]
    pub max_steps: Option<usize>,
    /// GPU number in a recording of Nsight Systems or XPlane (default: all).
    #[arg(long, value_name = "N")]
    pub device: Option<u32>,
    /// Name of the program's own range (`record_function`, NVTX) that is one step.
    #[arg(long, value_name = "NAME")]
    pub step_range: Option<String>,
    /// Facts about the workload for the profile.
    #[command(flatten)]
    pub workload: WorkloadArgs,
    /// Print the result as JSON.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// Arguments of `trace-shapes`.
///
/// The function is called with `batch_size=N` if it has that parameter. It returns either a function that makes one
/// whole step, or `(model, inputs, optimizer[, loss_fn])`; None as the optimizer means inference. It runs in your
/// Python on tensors without values, which needs neither memory nor a GPU.
#[derive(Debug, Args)]
pub struct TraceShapesArgs {
    /// The function: train.py:build, or package.module:build.
    #[arg(value_name = "PLACE:FUNCTION", required_unless_present = "config")]
    pub target: Option<String>,
    /// Make the step of a language model from its dimensions instead, without Python: a name such as llama3-8b, a
    /// config.json of Hugging Face, or the script that trains it with Megatron-LM or torchtitan.
    #[arg(long, value_name = "NAME|FILE", conflicts_with_all = ["target", "arguments", "python"])]
    pub config: Option<String>,
    /// With --config: what the backward pass computes again to keep fewer activations (default: as in the script, else
    /// none).
    #[arg(long, value_parser = choice::<Recompute>())]
    pub recompute: Option<Recompute>,
    /// With --config: copies of the logits at the loss, which decide the memory of long vocabularies (default: as in the
    /// script, else plain).
    #[arg(long, value_parser = choice::<Loss>(), requires = "config")]
    pub loss: Option<Loss>,
    /// With --config: gradients of micro-batches add up in 16 bits, not in 32.
    #[arg(long, requires = "config")]
    pub narrow_gradients: bool,
    /// Batch sizes to call it with (16,32,64); one profile each.
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = values::batch_size)]
    pub batch_sizes: Vec<u64>,
    /// Another argument of the function: a Python literal, else a string.
    #[arg(long = "arg", value_name = "NAME=VALUE", value_parser = argument)]
    pub arguments: Vec<(String, String)>,
    /// Output profile (default: named by file and function, in the current folder); with several batch sizes, each is
    /// added to the name.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Overwrite existing files.
    #[arg(long)]
    pub force: bool,
    /// A Python with PyTorch (default: that of the active environment, else python3).
    #[arg(long, value_name = "PROGRAM")]
    pub python: Option<PathBuf>,
    /// Stop after this long (30s, 10m, 2h).
    #[arg(long, value_name = "TIME", value_parser = values::wait, default_value = "10m")]
    pub timeout: Duration,
    /// Trace each model as compiled by torch.compile, even if the function does not compile it.
    #[arg(long)]
    pub compile: bool,
    /// If the function fails, show the full traceback and PyTorch's own log.
    #[arg(long)]
    pub verbose: bool,
    /// Name of the workload (default: the file or module).
    #[arg(long, help_heading = "Workload")]
    pub name: Option<String>,
    /// Tokens per sample, instead of the detected number.
    #[arg(long, value_name = "N", value_parser = values::whole, help_heading = "Workload")]
    pub sequence_length: Option<u64>,
    /// Precision of the step, instead of the detected one.
    #[arg(long, value_parser = choice::<Precision>(), ignore_case = true, help_heading = "Workload")]
    pub precision: Option<Precision>,
    /// Print the result as JSON.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// Parses `NAME=VALUE`.
fn argument(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} is not a valid argument; expected NAME=VALUE, such as seq=1024")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_a_name_and_a_value() {
        assert_eq!(argument("seq=1024"), Ok(("seq".to_owned(), "1024".to_owned())));
        assert_eq!(argument("a = b=c"), Ok(("a".to_owned(), " b=c".to_owned())));
        for wrong in ["", "seq", "=3"] {
            assert!(argument(wrong).is_err(), "{wrong}");
        }
    }
}
