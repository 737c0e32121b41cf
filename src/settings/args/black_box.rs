//! Arguments about black boxes: operator kinds and their total times, nothing else shown.

use std::path::PathBuf;

use clap::Args;

use crate::settings::values;

/// A black box in place of a recorded step.
#[derive(Debug, Clone, Default, Args)]
pub struct BlackBoxArgs {
    /// Predict from a black box (`export --black-box`): only from and to GPUs that the
    /// black-box model knows.
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "Black box",
        conflicts_with_all = ["file", "origin", "ignore_origin", "batch_size", "sequence_length", "parameters", "method", "waves", "precision", "measured"]
    )]
    pub black_box: Option<PathBuf>,
    /// A second black box of the same program at its largest size: predict a size between the
    /// two (PROFET's min–max interpolation).
    #[arg(long, value_name = "FILE", help_heading = "Black box", requires = "black_box")]
    pub up_to: Option<PathBuf>,
    /// The batch size between those of the two.
    #[arg(long, value_name = "N", help_heading = "Black box", requires = "up_to", conflicts_with = "at_pixels", value_parser = values::whole)]
    pub at_batch: Option<u64>,
    /// The side of square pictures between those of the two.
    #[arg(long, value_name = "N", help_heading = "Black box", requires_all = ["up_to", "pixels"], value_parser = values::whole)]
    pub at_pixels: Option<u64>,
    /// The sides of square pictures of the two black boxes, which do not tell it.
    #[arg(long, value_name = "SMALL,LARGE", help_heading = "Black box", requires = "at_pixels", value_delimiter = ',', value_parser = values::whole)]
    pub pixels: Vec<u64>,
}
