//! Recordings that are no PyTorch traces, made profiles.

use std::ops::ControlFlow;
use std::path::Path;

use super::CliError;
use crate::profile::import::{self, Import, ImportOptions};
use crate::store::nsys::Export;
use crate::store::{self, Limit};
use crate::trace::Format;

/// Imports one recording, of whatever format.
pub(super) fn import(path: &Path, format: Format, options: &ImportOptions<'_>) -> Result<Import, CliError> {
    match format {
        Format::Kineto => {
            import::kineto(&mut || store::open(path, Limit::TRACE), options, &mut |_| ControlFlow::Continue(()))
        }
        Format::Nsight => import::nsight(&mut Export::open(path)?, options),
        Format::Xplane => import::xplane(&store::read(path, Limit::XPLANE)?, options),
    }
    .map_err(|error| CliError(format!("{}: {error}", path.display())))
}
