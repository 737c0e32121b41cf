//! Errors of the commands: those of the rooms that they use, with the file or flag that caused them. The message and
//! the exit code follow from the type, never from the text.

use std::error::Error;
use std::fmt::Display;
use std::io;

use crate::settings::file::SettingsError;
use crate::settings::jobs::JobsFileError;
use crate::store::{DownloadError, StoreError};
use crate::terminal;
use habitat_base::units::QuantityError;
use habitat_planning::plan::PlanError;
use habitat_planning::pricing::SnapshotError;
use habitat_planning::pricing::import::ImportError;
use habitat_prediction::batches::SweepError;
use habitat_prediction::blackbox::{BetweenError, BlackBoxError, TotalsError};
use habitat_prediction::learn::{blackbox::BlackBoxFitError, kernelwise::FitError};
use habitat_prediction::runlog::RunLogError;
use habitat_prediction::{PredictError, mlp::ModelError};
#[cfg(target_os = "linux")]
use habitat_recorder::capture::on_demand::AttachError;
#[cfg(unix)]
use habitat_recorder::capture::{
    CaptureError, PrivateError, assemble::AssembleError, cupti::CuptiError, device::NoGpu, shapes::ShapesError,
};
use habitat_reports::outcome::{OutcomeError, RunFileError};
use habitat_reports::theme::ThemeError;
use habitat_reports::{launch::LaunchError, plan_form::PlanFormError, plan_toml::PlanFileError};
use habitat_screens::keymap::KeymapError;
use habitat_step::catalog::{SpecError, UnknownGpu};
use habitat_step::profile::ProfileError;
use habitat_traces::TraceError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The command cannot work with the arguments or with what it found.
    #[error("{0}")]
    Refused(String),
    /// The reader of standard output closed it, which is not a failure.
    #[error("standard output was closed")]
    BrokenPipe,
    /// Standard output cannot be written.
    #[error("standard output: {0}")]
    Output(io::Error),
    /// An error with the file, the flag or the recorded step that caused it.
    #[error("{place}: {error}")]
    At {
        /// The file, flag or step.
        place: String,
        /// The error.
        error: Box<Self>,
    },
    /// An error with commands to choose from.
    #[error("{error}{}", .commands.iter().flat_map(|command| ["\n  ", command.as_str()]).collect::<String>())]
    Choose {
        /// The error.
        error: Box<Self>,
        /// Commands to type instead.
        commands: Vec<String>,
    },
    /// A file.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The settings file.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A jobs file.
    #[error(transparent)]
    JobsFile(#[from] JobsFileError),
    /// Key bindings.
    #[error(transparent)]
    Keymap(#[from] KeymapError),
    /// A theme.
    #[error(transparent)]
    Theme(#[from] ThemeError),
    /// An invalid quantity.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// A GPU that the catalog does not have.
    #[error(transparent)]
    UnknownGpu(#[from] UnknownGpu),
    /// A catalog file.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A price file.
    #[error(transparent)]
    Prices(#[from] SnapshotError),
    /// A catalog of prices.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// A download.
    #[error(transparent)]
    Download(#[from] DownloadError),
    /// A profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A recording.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A prediction.
    #[error(transparent)]
    Predict(#[from] PredictError),
    /// A prediction at other batch sizes.
    #[error(transparent)]
    Sweep(#[from] SweepError),
    /// A GPU that the black-box model does not know.
    #[error(transparent)]
    BlackBox(#[from] BlackBoxError),
    /// A black box.
    #[error(transparent)]
    Totals(#[from] TotalsError),
    /// A size between those of two black boxes.
    #[error(transparent)]
    Between(#[from] BetweenError),
    /// A learned model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A model of logged runs.
    #[error(transparent)]
    RunLog(#[from] RunLogError),
    /// A plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A file about the actual run.
    #[error(transparent)]
    Run(#[from] RunFileError),
    /// A plan and a run that do not match.
    #[error(transparent)]
    Outcome(#[from] OutcomeError),
    /// A plan's file.
    #[error(transparent)]
    PlanFile(#[from] PlanFileError),
    /// An output format of a plan.
    #[error(transparent)]
    PlanForm(#[from] PlanFormError),
    /// A fit of linear models.
    #[error(transparent)]
    Fit(#[from] FitError),
    /// A fit of the black-box model.
    #[error(transparent)]
    BlackBoxFit(#[from] BlackBoxFitError),
    /// A job that could not be started.
    #[cfg(unix)]
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The private folder for files of jobs.
    #[cfg(unix)]
    #[error(transparent)]
    Private(#[from] PrivateError),
    /// The recorder for CUDA programs.
    #[cfg(unix)]
    #[error(transparent)]
    Cupti(#[from] CuptiError),
    /// Recorded windows without a usable profile.
    #[cfg(unix)]
    #[error(transparent)]
    Assemble(#[from] AssembleError),
    /// Tracing of shapes.
    #[cfg(unix)]
    #[error(transparent)]
    Shapes(#[from] ShapesError),
    /// No GPU that can be measured.
    #[cfg(unix)]
    #[error(transparent)]
    NoGpu(#[from] NoGpu),
    /// Attaching to a job.
    #[cfg(target_os = "linux")]
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// An error of a program that uses the commands as a library, or of a serialiser.
    #[error(transparent)]
    Other(Box<dyn Error + Send + Sync>),
}

impl CliError {
    /// Wraps any other error.
    pub fn other(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Other(error.into())
    }

    /// Adds the file, flag or step that caused the error.
    #[must_use]
    pub fn at(self, place: impl Display) -> Self {
        Self::At { place: place.to_string(), error: Box::new(self) }
    }

    /// Exit code of the process. As in a shell, 126 or 127 for a program that cannot be started and 128 plus the number
    /// of a signal that ended us. 0 if the output was closed, 1 if there is no plan to export, else 2.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::BrokenPipe => 0,
            // The same code as for a plan in any other form.
            Self::PlanForm(PlanFormError::Launch(LaunchError::NoPlan(_))) => 1,
            #[cfg(unix)]
            Self::Capture(error) => error.exit_code(),
            #[cfg(unix)]
            Self::Shapes(ShapesError::Interrupted { signal }) => of_signal(*signal),
            #[cfg(target_os = "linux")]
            Self::Attach(AttachError::Interrupted { signal, .. }) => of_signal(*signal),
            _ => 2,
        }
    }

    /// Prints the error, unless the user already knows of it.
    pub fn print(&self) {
        match self {
            Self::BrokenPipe => {}
            #[cfg(unix)]
            Self::Shapes(ShapesError::Interrupted { .. }) => {}
            #[cfg(target_os = "linux")]
            Self::Attach(AttachError::Interrupted { .. }) => terminal::say(format_args!("habitat-tui: {self}")),
            _ => terminal::error(self),
        }
    }
}

/// Exit code for a signal, as in shells.
#[cfg(unix)]
fn of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(130)
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::BrokenPipe } else { Self::Output(error) }
    }
}

impl From<serde_json::Error> for CliError {
    fn from(error: serde_json::Error) -> Self {
        Self::other(error)
    }
}

/// Adds the place to an error.
pub(super) trait At<T> {
    /// Adds the file, flag or step that caused the error.
    ///
    /// # Errors
    /// The same error, in [`CliError::At`].
    fn at(self, place: impl Display) -> Result<T, CliError>;
}

impl<T, E: Into<CliError>> At<T> for Result<T, E> {
    fn at(self, place: impl Display) -> Result<T, CliError> {
        self.map_err(|error| error.into().at(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_that_of_the_error() {
        let closed = CliError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        let full = CliError::from(io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!((closed.exit_code(), full.exit_code()), (0, 2));
        #[cfg(unix)]
        {
            let program = "x".to_owned();
            assert_eq!(CliError::from(CaptureError::NotFound { program }).exit_code(), 127);
            assert_eq!(CliError::from(ShapesError::Interrupted { signal: 15 }).exit_code(), 143);
        }
        // The exit code depends on the variant, not on the text.
        assert_eq!(CliError::Refused(closed.to_string()).exit_code(), 2);
    }

    #[test]
    fn an_error_names_its_place() {
        let error: Result<(), _> = Err(PlanError::NoParts).at("step.json");
        assert_eq!(error.unwrap_err().to_string(), format!("step.json: {}", PlanError::NoParts));
    }
}
