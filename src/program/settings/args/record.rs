//! Arguments of the commands that make a profile, beside `run`: `attach` and `env`,
//! `trace-shapes`, `import`.

use crate::settings::choices::choice;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::WorkloadArgs;
use habitat_planning::values;
use habitat_prediction::Precision;

/// Arguments of `env`.
///
/// Start the job in a shell that has them, `eval "$(habitat-tui env)"`, and `habitat-tui
/// attach` can record its step at any time later. `PyTorch` then asks every 5 seconds (with
/// --fast every second) at a socket in the folder whether there is anything to do; between
/// attaches nothing listens there. Only Linux has it.
///
/// Two things to know. With `KINETO_USE_DAEMON=1` alone (no `KINETO_IPC_SOCKET_DIR`) and no
/// dynolog running, every process of the job waits up to 10 seconds at its end. And a
/// program that calls `os.fork()` itself after importing `PyTorch` may hang in the child:
/// `DataLoader` workers do not, but start such a program with `habitat-tui run` instead.
#[derive(Debug, Args)]
pub struct EnvArgs {
    /// The folder of the socket, for a container or beside another user's daemon (default:
    /// `KINETO_IPC_SOCKET_DIR`, else a private one among your caches).
    #[arg(long, value_name = "DIR")]
    pub socket_dir: Option<PathBuf>,
    /// Let the job ask every second, not every 5; writes a file for it into the folder.
    #[arg(long)]
    pub fast: bool,
    /// Whose syntax to print.
    #[arg(long, value_enum, default_value_t = ShellArg::Sh, conflicts_with = "json")]
    pub shell: ShellArg,
    /// Print them as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Whose syntax.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ShellArg {
    /// `export NAME=value`: sh, bash, zsh.
    Sh,
    /// `set -gx NAME value`.
    Fish,
    /// `NAME=value`, a line each: for `env`, Docker's --env-file, batch systems.
    Plain,
}

/// Arguments of `attach`.
///
/// The job must have been started with what `habitat-tui env` prints. It is asked to record
/// a few steps, and goes on. No screens open, not in a terminal either: the report ends with
/// the command that opens them.
#[derive(Debug, Args)]
pub struct AttachArgs {
    /// Record this process, or the job that it launched.
    #[arg(long, value_name = "N", value_parser = values::within::<u32>(1, u64::MAX))]
    pub pid: Option<u32>,
    /// Record every rank of the job on this machine, on the same steps, not the first only.
    #[arg(long)]
    pub all: bool,
    /// List the processes that can be recorded, and record none.
    #[arg(long, conflicts_with_all = ["pid", "all", "output", "window"])]
    pub list: bool,
    /// The profile to write (default: the script's name and the date, in this folder).
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace a file that is there.
    #[arg(long)]
    pub force: bool,
    /// Steps to record (calls of `Optimizer.step`, one more than that, since the first one
    /// only marks where a step ends).
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = values::within::<u32>(1, 1000), help_heading = "Recording")]
    pub window: u32,
    /// Leave the shapes of the operators' inputs out; predictions need them.
    #[arg(long, help_heading = "Recording")]
    pub no_shapes: bool,
    /// Record Python stacks and modules too.
    #[arg(long, help_heading = "Recording")]
    pub stacks: bool,
    /// Keep the traces, in this folder.
    #[arg(long, value_name = "DIR", help_heading = "Recording")]
    pub keep_traces: Option<PathBuf>,
    /// How long to listen for processes (10s, 2m).
    #[arg(long, value_name = "TIME", value_parser = values::wait, help_heading = "Waiting")]
    pub wait: Option<Duration>,
    /// How long the recording may take (30s, 5m).
    #[arg(long, value_name = "TIME", value_parser = values::wait, help_heading = "Waiting")]
    pub timeout: Option<Duration>,
    /// The folder of the socket (default: `KINETO_IPC_SOCKET_DIR`, else the private one of
    /// `env`, and dynolog's own name where it is free).
    #[arg(long, value_name = "DIR", help_heading = "Waiting")]
    pub socket_dir: Option<PathBuf>,
    /// What the profile says of the workload.
    #[command(flatten)]
    pub workload: WorkloadArgs,
    /// Print as JSON what was recorded or listed.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Say nothing on the way.
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
}

/// Arguments of `import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// One trace (.json, .json.gz, .json.zst), Nsight Systems export (.sqlite) or XPlane
    /// (.xplane.pb), or one a rank; or one op list.
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// The profile to write (.habitat.json, .habitat.json.gz or .habitat.json.zst).
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Replace the file if it is there.
    #[arg(long)]
    pub force: bool,
    /// Read the shapes only: for traces without GPU kernels.
    #[arg(long)]
    pub shapes_only: bool,
    /// Read at most this many steps.
    #[arg(long, value_name = "N")]
    pub max_steps: Option<usize>,
    /// Of a recording of Nsight Systems or XPlane, the GPU by its number there (default: all).
    #[arg(long, value_name = "N")]
    pub device: Option<u32>,
    /// The program's own range (`record_function`, NVTX) that is one step.
    #[arg(long, value_name = "NAME")]
    pub step_range: Option<String>,
    /// What the profile says of the workload.
    #[command(flatten)]
    pub workload: WorkloadArgs,
    /// Print what was found as JSON.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// Arguments of `trace-shapes`.
///
/// The function is called with `batch_size=N` if it takes that, and returns either a function
/// that makes one whole step, or `(model, inputs, optimizer[, loss_fn])`; None for the
/// optimizer is inference. It runs in your Python, on tensors without values: it takes no
/// memory and needs no GPU.
#[derive(Debug, Args)]
pub struct TraceShapesArgs {
    /// The function: train.py:build, or package.module:build.
    #[arg(value_name = "PLACE:FUNCTION")]
    pub target: String,
    /// Batch sizes to call it with (16,32,64), a profile each.
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = values::batch_size)]
    pub batch_sizes: Vec<u64>,
    /// Another argument of the function: a Python literal, else a text.
    #[arg(long = "arg", value_name = "NAME=VALUE", value_parser = argument)]
    pub arguments: Vec<(String, String)>,
    /// The profile to write (default: the function's place and name, in this folder); with
    /// several batch sizes each has its own in its name.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace files that are there.
    #[arg(long)]
    pub force: bool,
    /// The Python that has PyTorch (default: that of the active environment, else python3).
    #[arg(long, value_name = "PROGRAM")]
    pub python: Option<PathBuf>,
    /// End it after this long (30s, 10m, 2h).
    #[arg(long, value_name = "TIME", value_parser = values::wait, default_value = "10m")]
    pub timeout: Duration,
    /// Trace each model as compiled (torch.compile), whatever the function does.
    #[arg(long)]
    pub compile: bool,
    /// Of a function that fails, show the whole traceback, and PyTorch's own log.
    #[arg(long)]
    pub verbose: bool,
    /// A name for the workload (default: the function's place).
    #[arg(long, help_heading = "Workload")]
    pub name: Option<String>,
    /// Tokens of one sample, in place of what is seen.
    #[arg(long, value_name = "N", value_parser = values::whole, help_heading = "Workload")]
    pub sequence_length: Option<u64>,
    /// What the step runs in, in place of what is seen.
    #[arg(long, value_parser = choice::<Precision>(), ignore_case = true, help_heading = "Workload")]
    pub precision: Option<Precision>,
    /// Print what was traced as JSON.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// `NAME=VALUE`.
fn argument(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} is not a valid argument; write seq=1024")),
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
