//! Arguments that say which recorded step and how to predict from it.

use std::path::PathBuf;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};

use crate::predict::{MethodChoice, Precision, WaveForm};
use crate::settings::values;
use crate::units::Bytes;

/// A recorded step and how to read it.
#[derive(Debug, Clone, Default, Args)]
pub struct InputArgs {
    /// A profile (*.habitat.json, .gz, .zst), a PyTorch profiler trace, a recording of Nsight
    /// Systems (.sqlite) or XPlane (.xplane.pb), or an op list; without it, the embedded sample.
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
    #[arg(long, value_enum, default_value_t = MethodChoice::Auto, help_heading = "Prediction")]
    pub method: MethodChoice,
    /// Which equation of wave scaling is used (Habitat's 1 or 2).
    #[arg(long, value_enum, default_value_t = WaveArg::Many, help_heading = "Prediction")]
    pub waves: WaveArg,
    /// Predict for another precision than the recorded one: fp32, tf32, amp-fp16, amp-bf16,
    /// fp16, bf16, fp8.
    #[arg(long, value_name = "PRECISION", value_parser = values::precision, help_heading = "Prediction")]
    pub precision: Option<Precision>,
    /// Folder of weights: operators.safetensors in place of the shipped models, and those of
    /// Habitat's networks for --method habitat-mlp.
    #[arg(long, value_name = "DIR", env = "HABITAT_TUI_MODELS", help_heading = "Prediction")]
    pub models: Option<PathBuf>,
    /// Lines that `fit kernelwise` wrote, for --method kernel-wise, layer-wise and end-to-end
    /// (default: kernelwise.json in the folder of weights, else the shipped ones).
    #[arg(long, value_name = "FILE", help_heading = "Prediction")]
    pub kernel_wise: Option<PathBuf>,
    /// Folder of operators that you measured on GPUs (linear.csv, conv2d.csv …), in place of
    /// measured/ beside the settings; they correct the models for those GPUs.
    #[arg(long, value_name = "DIR", help_heading = "Prediction")]
    pub measured: Option<PathBuf>,
}

/// `--method`, with the names and words of the methods themselves.
impl ValueEnum for MethodChoice {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()).help(self.summary()))
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
