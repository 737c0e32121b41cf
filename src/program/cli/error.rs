//! Why a command failed: the errors of the rooms that it uses, with the place they are about.
//! What is printed and the exit code follow from the type, never from the text.

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
    /// What was typed, or what was found, is not something that the command can work with.
    #[error("{0}")]
    Refused(String),
    /// Nobody reads the output any more, which is no failure.
    #[error("standard output was closed")]
    BrokenPipe,
    /// The output cannot be written.
    #[error("standard output: {0}")]
    Output(io::Error),
    /// An error with the file, the flag or the recorded step that it is about.
    #[error("{place}: {error}")]
    At {
        /// What it is about.
        place: String,
        /// What is wrong.
        error: Box<Self>,
    },
    /// An error with the commands to choose from.
    #[error("{error}{}", .commands.iter().flat_map(|command| ["\n  ", command.as_str()]).collect::<String>())]
    Choose {
        /// What is wrong.
        error: Box<Self>,
        /// What to type instead.
        commands: Vec<String>,
    },
    /// A file.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The settings file.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A file of jobs.
    #[error(transparent)]
    JobsFile(#[from] JobsFileError),
    /// Key bindings.
    #[error(transparent)]
    Keymap(#[from] KeymapError),
    /// A theme.
    #[error(transparent)]
    Theme(#[from] ThemeError),
    /// A number that is no quantity.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// A GPU that the catalog does not have.
    #[error(transparent)]
    UnknownGpu(#[from] UnknownGpu),
    /// A file of the catalog.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A file of prices.
    #[error(transparent)]
    Prices(#[from] SnapshotError),
    /// A catalog of prices.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// A file of a server.
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
    /// What became of a plan.
    #[error(transparent)]
    Run(#[from] RunFileError),
    /// A plan and a run that do not fit together.
    #[error(transparent)]
    Outcome(#[from] OutcomeError),
    /// A plan's file.
    #[error(transparent)]
    PlanFile(#[from] PlanFileError),
    /// A form of a plan.
    #[error(transparent)]
    PlanForm(#[from] PlanFormError),
    /// A fit of linear models.
    #[error(transparent)]
    Fit(#[from] FitError),
    /// A fit of the black-box model.
    #[error(transparent)]
    BlackBoxFit(#[from] BlackBoxFitError),
    /// A job that was not started.
    #[cfg(unix)]
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The folder for what jobs write.
    #[cfg(unix)]
    #[error(transparent)]
    Private(#[from] PrivateError),
    /// The recorder for CUDA programs.
    #[cfg(unix)]
    #[error(transparent)]
    Cupti(#[from] CuptiError),
    /// Recorded windows that make no profile.
    #[cfg(unix)]
    #[error(transparent)]
    Assemble(#[from] AssembleError),
    /// Shapes that were not traced.
    #[cfg(unix)]
    #[error(transparent)]
    Shapes(#[from] ShapesError),
    /// No GPU to measure.
    #[cfg(unix)]
    #[error(transparent)]
    NoGpu(#[from] NoGpu),
    /// A job that was not attached to.
    #[cfg(target_os = "linux")]
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// An error of a program that uses the commands, or of a serialiser.
    #[error(transparent)]
    Other(Box<dyn Error + Send + Sync>),
}

impl CliError {
    /// An error of another kind.
    pub fn other(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Other(error.into())
    }

    /// The error with what it is about.
    #[must_use]
    pub fn at(self, place: impl Display) -> Self {
        Self::At { place: place.to_string(), error: Box::new(self) }
    }

    /// The exit code of the process: that of a shell for a program that cannot be started, 128
    /// and the signal where one ended us, 0 where nobody reads the output, 1 where there is no plan
    /// to export, else 2.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::BrokenPipe => 0,
            // As for a plan in any other form.
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

    /// Prints the error, where there is something to say that the user does not know.
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

/// As shells count.
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

/// Puts what an error is about in front of it.
pub(super) trait At<T> {
    /// The error with what it is about.
    ///
    /// # Errors
    /// As before, as [`CliError::At`].
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
        // The same words in another error are another error.
        assert_eq!(CliError::Refused(closed.to_string()).exit_code(), 2);
    }

    #[test]
    fn an_error_names_its_place() {
        let error: Result<(), _> = Err(PlanError::NoParts).at("step.json");
        assert_eq!(error.unwrap_err().to_string(), format!("step.json: {}", PlanError::NoParts));
    }
}
