//! Arguments of `batches`.

use std::path::PathBuf;

use clap::Args;

use super::{InputArgs, TableForm};
use crate::predict::MethodChoice;
use crate::settings::values;
use crate::units::Bytes;

/// Arguments of `batches`.
#[derive(Debug, Args)]
pub struct BatchesArgs {
    /// Profiles (or traces) of one workload at two or more batch sizes: a line. One alone: its
    /// shapes scaled.
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Batch sizes to predict (2 and 4 times the largest recorded one without it).
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = values::whole)]
    pub at: Vec<u64>,
    /// GPUs (the one the profiles were recorded on without it).
    #[arg(long = "to", value_name = "GPU", value_delimiter = ',')]
    pub to: Vec<String>,
    /// The lines of the families of operators too.
    #[arg(long)]
    pub families: bool,
    /// The GPU they were recorded on, in place of what the files say.
    #[arg(long, value_name = "GPU", help_heading = "Recorded steps")]
    pub origin: Option<String>,
    /// Drop what was measured and predict from shapes alone.
    #[arg(long, help_heading = "Recorded steps")]
    pub ignore_origin: bool,
    /// Samples of one step on one GPU, where the one file does not say.
    #[arg(long, value_name = "N", value_parser = values::whole, allow_hyphen_values = true, help_heading = "Recorded steps")]
    pub batch_size: Option<u64>,
    /// Parameters of the model (25.6M), where the files do not say.
    #[arg(long, value_name = "N", value_parser = values::whole, allow_hyphen_values = true, help_heading = "Recorded steps")]
    pub parameters: Option<u64>,
    /// Peak device memory of the step (11GB), where the one file does not say.
    #[arg(long, value_name = "SIZE", value_parser = values::bytes, help_heading = "Recorded steps")]
    pub peak_memory: Option<Bytes>,
    /// How the steps at the recorded batch sizes are predicted on other GPUs.
    #[arg(long, value_enum, default_value_t = MethodChoice::Auto, help_heading = "Prediction")]
    pub method: MethodChoice,
    /// Folder of weights in place of the shipped models.
    #[arg(long, value_name = "DIR", env = "HABITAT_TUI_MODELS", help_heading = "Prediction")]
    pub models: Option<PathBuf>,
    /// Folder of operators that you measured on GPUs, in place of measured/ beside the settings.
    #[arg(long, value_name = "DIR", help_heading = "Prediction")]
    pub measured: Option<PathBuf>,
    /// Output form.
    #[command(flatten)]
    pub form: TableForm,
}

impl BatchesArgs {
    /// How one of the files is read and predicted.
    pub fn input(&self, file: PathBuf) -> InputArgs {
        InputArgs {
            file: Some(file),
            origin: self.origin.clone(),
            ignore_origin: self.ignore_origin,
            batch_size: self.batch_size,
            parameters: self.parameters,
            peak_memory: self.peak_memory,
            method: self.method,
            models: self.models.clone(),
            measured: self.measured.clone(),
            ..InputArgs::default()
        }
    }
}
