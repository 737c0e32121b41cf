//! Arguments of `trace-shapes`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::predict::Precision;
use crate::settings::values;

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
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = values::whole)]
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
    /// Of a function that fails, show the whole traceback, and PyTorch's own log.
    #[arg(long)]
    pub verbose: bool,
    /// A name for the workload (default: the function's place).
    #[arg(long, help_heading = "Workload")]
    pub name: Option<String>,
    /// Tokens of one sample, in place of what is seen.
    #[arg(long, value_name = "N", value_parser = values::whole, help_heading = "Workload")]
    pub sequence_length: Option<u64>,
    /// What the step runs in (fp32, tf32, amp-fp16, amp-bf16, fp16, bf16, fp8), in place of
    /// what is seen.
    #[arg(long, value_parser = values::precision, help_heading = "Workload")]
    pub precision: Option<Precision>,
    /// Print what was traced as JSON.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// `NAME=VALUE`.
fn argument(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} is no argument; write seq=1024")),
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
