//! Commands that this system does not support, with alternatives.

/// Defines a command that is always refused.
macro_rules! unavailable {
    ($($name:ident($($argument:ty),*) -> $answer:ty: $why:literal;)+) => {$(
        pub(super) mod $name {
            use crate::cli::error::CliError;

            pub(in crate::cli) fn run($(_: $argument),*) -> Result<$answer, CliError> {
                Err(CliError::Refused($why.to_owned()))
            }
        }
    )+};
}

unavailable! {
    attach(&crate::settings::args::AttachArgs, &mut dyn std::io::Write) -> u8:
        "attach: this needs Linux; `habitat-tui run -- python train.py` works on macOS too";
    env(&crate::settings::args::EnvArgs, &mut dyn std::io::Write) -> u8:
        "env: attaching needs Linux; `habitat-tui run -- python train.py` works on macOS too";
}

#[cfg(not(unix))]
unavailable! {
    calibrate(&crate::settings::args::CalibrateArgs, &mut dyn std::io::Write) -> u8:
        "calibrate: measuring a GPU needs Linux; predictions use the catalog's figures";
    trace_shapes(&crate::settings::args::TraceShapesArgs, &mut dyn std::io::Write) -> u8:
        "trace-shapes: needs Linux or macOS";
    run(crate::settings::args::RunArgs, crate::settings::args::ScreensArgs) -> crate::cli::Outcome:
        "run: recording a job needs Linux or macOS; save a trace with torch.profiler and use `habitat-tui import`";
}

#[cfg(not(unix))]
pub(super) mod kept {
    use crate::cli::error::CliError;
    use crate::settings::args::{HistoryArgs, JobsArgs, JoinArgs, ScreensArgs};

    /// Why there are none.
    const WHY: &str = "jobs: recording a job needs Linux or macOS";

    pub(in crate::cli) fn jobs(_: &JobsArgs, _: &mut dyn std::io::Write) -> Result<u8, CliError> {
        Err(CliError::Refused(WHY.to_owned()))
    }

    pub(in crate::cli) fn history(_: &HistoryArgs, _: &mut dyn std::io::Write) -> Result<u8, CliError> {
        Err(CliError::Refused(WHY.to_owned()))
    }

    pub(in crate::cli) fn join(_: &JoinArgs, _: ScreensArgs) -> Result<crate::cli::Outcome, CliError> {
        Err(CliError::Refused(WHY.to_owned()))
    }
}
