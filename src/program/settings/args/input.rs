//! Arguments shared by several commands: the recorded step, facts about it, and how to predict from it.

use crate::settings::choices::choice;
use std::path::PathBuf;

use clap::Args;

use habitat_base::units::Bytes;
use habitat_planning::values;
use habitat_prediction::{Host, MethodChoice, Mode, Precision, WaveForm};
use habitat_step::profile::Sample;

/// A recorded step and how to read it.
#[derive(Debug, Clone, Default, Args)]
pub struct InputArgs {
    /// The recorded step: a profile or a trace (default: the embedded sample).
    ///
    /// A profile (*.habitat.json, .gz, .zst), a PyTorch profiler trace, a recording of Nsight
    /// Systems (.sqlite) or XPlane (.xplane.pb), or an op list.
    pub file: Option<PathBuf>,
    /// Embedded sample to use without FILE.
    #[arg(long, value_name = "NAME", value_parser = choice::<Sample>(), conflicts_with = "file", help_heading = "Recorded step")]
    pub sample: Option<Sample>,
    /// Facts about it.
    #[command(flatten)]
    pub recorded: RecordedArgs,
    /// Tokens per sample, if the file lacks it.
    #[arg(long, value_name = "N", value_parser = values::within::<u64>(1, u32::MAX.into()), allow_hyphen_values = true, help_heading = "Recorded step")]
    pub sequence_length: Option<u64>,
    /// How to predict.
    #[command(flatten)]
    pub prediction: PredictionArgs,
    /// Equation of wave scaling.
    #[arg(long, value_parser = choice::<WaveForm>(), default_value = "many", help_heading = "Prediction")]
    pub waves: WaveForm,
    /// Linear models from `fit kernelwise`, for --method kernel-wise, layer-wise and end-to-end (default:
    /// kernelwise.json in the folder of weights, else the shipped ones).
    #[arg(long, value_name = "FILE", help_heading = "Prediction")]
    pub kernel_wise: Option<PathBuf>,
}

impl InputArgs {
    /// The embedded sample to use without a file.
    pub fn sample(&self) -> Sample {
        self.sample.unwrap_or_default()
    }
}

/// Facts about a recorded step in addition to its file.
#[derive(Debug, Clone, Default, Args)]
pub struct RecordedArgs {
    /// The recording GPU, instead of the one in the file.
    #[arg(long, value_name = "GPU", help_heading = "Recorded step")]
    pub origin: Option<String>,
    /// Ignore measurements and predict from shapes alone.
    #[arg(long, help_heading = "Recorded step")]
    pub ignore_origin: bool,
    /// Samples per step and GPU, if the file lacks it.
    #[arg(long, value_name = "N", value_parser = values::batch_size, allow_hyphen_values = true, help_heading = "Recorded step")]
    pub batch_size: Option<u64>,
    /// Parameters of the model (25.6M), if the file lacks it.
    #[arg(long, value_name = "N", value_parser = values::whole, allow_hyphen_values = true, help_heading = "Recorded step")]
    pub parameters: Option<u64>,
    /// Peak device memory of the step (11GB), if the file lacks it.
    #[arg(long, value_name = "SIZE", value_parser = values::bytes, help_heading = "Recorded step")]
    pub peak_memory: Option<Bytes>,
}

/// How to predict from a recorded step.
#[derive(Debug, Clone, Default, Args)]
pub struct PredictionArgs {
    /// Prediction method.
    #[arg(long, value_parser = choice::<MethodChoice>(), default_value = MethodChoice::Auto.name(), help_heading = "Prediction")]
    pub method: MethodChoice,
    /// Predict for another precision: bf16, amp-bf16, fp16, tf32, fp8 …
    ///
    /// One of fp32, fp32-strict (no TF32), tf32, tf32-products (not in convolutions), amp-fp16, amp-bf16 (mixed
    /// precision), fp16, bf16 (throughout) and fp8, or the names of PyTorch (bfloat16), Lightning (bf16-mixed, 16-true)
    /// and Keras (`mixed_float16`).
    #[arg(
        long,
        value_name = "NAME",
        value_parser = choice::<Precision>(),
        ignore_case = true,
        hide_possible_values = true,
        help_heading = "Prediction"
    )]
    pub precision: Option<Precision>,
    /// Whether the GPU waits for the host, which launches its operations and loads its data.
    #[arg(long, value_parser = choice::<Host>(), default_value = Host::AsRecorded.name(), help_heading = "Prediction")]
    pub host: Host,
    /// Models for predictions.
    #[command(flatten)]
    pub models: ModelArgs,
}

/// Models for predictions.
#[derive(Debug, Clone, Default, Args)]
pub struct ModelArgs {
    /// Folder of weights to use instead of the shipped models; also contains Habitat's networks, for --method
    /// habitat-mlp.
    #[arg(long, value_name = "DIR", env = "HABITAT_TUI_MODELS", help_heading = "Prediction")]
    pub models: Option<PathBuf>,
    /// Folder of operators that you measured on GPUs (linear.csv, conv2d.csv …), to correct the models for those GPUs
    /// (default: measured/ next to the settings).
    #[arg(long, value_name = "DIR", help_heading = "Prediction")]
    pub measured: Option<PathBuf>,
}

/// Facts about the workload that override the detected ones.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Workload")]
pub struct WorkloadArgs {
    /// Name of the workload (default: of the script or the file).
    #[arg(long)]
    pub name: Option<String>,
    /// Training or inference, instead of the detected mode.
    #[arg(long, value_parser = choice::<Mode>())]
    pub mode: Option<Mode>,
    /// Samples per step and GPU, instead of the detected number.
    #[arg(long, value_name = "N", value_parser = values::batch_size, allow_hyphen_values = true)]
    pub batch_size: Option<u64>,
    /// Tokens per sample, instead of the detected number.
    #[arg(long, value_name = "N", value_parser = values::within::<u64>(1, u32::MAX.into()), allow_hyphen_values = true)]
    pub sequence_length: Option<u64>,
    /// Parameters of the model, instead of the detected number.
    #[arg(long, value_name = "N", value_parser = values::whole, allow_hyphen_values = true)]
    pub parameters: Option<u64>,
    /// Precision of the step, instead of the detected one.
    #[arg(long, value_parser = choice::<Precision>(), ignore_case = true)]
    pub precision: Option<Precision>,
    /// The recording GPU, instead of the detected one.
    #[arg(long, value_name = "GPU")]
    pub origin: Option<String>,
}

/// A black box instead of a recorded step.
#[derive(Debug, Clone, Default, Args)]
pub struct BlackBoxArgs {
    /// Predict from a black box (`export --black-box`): only from and to GPUs that the black-box model knows.
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "Black box",
        conflicts_with_all = ["file", "origin", "ignore_origin", "batch_size", "sequence_length", "parameters", "method", "waves", "precision", "host", "measured"]
    )]
    pub black_box: Option<PathBuf>,
    /// A second black box of the same program at its largest size, to predict a size in between (PROFET's min–max
    /// interpolation).
    #[arg(long, value_name = "FILE", help_heading = "Black box", requires = "black_box")]
    pub up_to: Option<PathBuf>,
    /// Batch size between those of the two black boxes.
    #[arg(long, value_name = "N", help_heading = "Black box", requires = "up_to", conflicts_with = "at_pixels", value_parser = values::whole)]
    pub at_batch: Option<u64>,
    /// Image size (side in pixels) between those of the two black boxes.
    #[arg(long, value_name = "N", help_heading = "Black box", requires_all = ["up_to", "pixels"], value_parser = values::whole)]
    pub at_pixels: Option<u64>,
    /// Image sizes (sides in pixels) of the two black boxes, which do not record them.
    #[arg(long, value_name = "SMALL,LARGE", help_heading = "Black box", requires = "at_pixels", value_delimiter = ',', value_parser = values::whole)]
    pub pixels: Vec<u64>,
}
