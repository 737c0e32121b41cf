//! GPUs by the names that people type: `4090`, `a100-80`, `h100`.
//!
//! Where one GPU is wanted and the name fits several, the error has the command that was typed
//! once a candidate, each to copy as it stands.

use super::error::{At, CliError};
use super::hints::with_flag;
use crate::terminal;
use habitat_base::text;
use habitat_base::units::GpuSlug;
use habitat_prediction::PredictError;
use habitat_step::catalog::{Catalog, GpuSpec};

/// The one GPU that `flag` names.
pub(super) fn one<'a>(catalog: &'a Catalog, flag: &str, name: &str) -> Result<&'a GpuSpec, CliError> {
    match catalog.named(name)[..] {
        [gpu] => Ok(gpu),
        [] => Ok(catalog.find(name)?),
        ref several => {
            let problem = format!("{} GPUs are called that; which one?", several.len());
            let error = CliError::Refused(problem).at(format_args!("{flag} {}", text::clean(name, 40)));
            Err(choose(error, flag, several.iter().map(|gpu| &gpu.slug)))
        }
    }
}

/// An error with the command that was typed, once for each GPU that may be meant.
fn choose<'a>(error: CliError, flag: &str, gpus: impl Iterator<Item = &'a GpuSlug>) -> CliError {
    let commands = gpus.map(|gpu| with_flag(flag, gpu.as_str())).collect();
    CliError::Choose { error: Box::new(error), commands }
}

/// What was predicted of the recorded step of that name; where the predictor does not know which
/// GPU it was recorded on, an error with the commands that say it.
pub(super) fn predicted<T>(result: Result<T, PredictError>, label: &str) -> Result<T, CliError> {
    let candidates = match &result {
        Err(PredictError::UnknownOrigin { candidates, .. }) => candidates.gpus.clone(),
        _ => Vec::new(),
    };
    result.at(label).map_err(|error| choose(error, "--origin", candidates.iter()))
}

/// The same where a flag may be left out.
pub(super) fn maybe(catalog: &Catalog, flag: &str, name: Option<&String>) -> Result<Option<GpuSlug>, CliError> {
    name.map(|name| one(catalog, flag, name).map(|gpu| gpu.slug.clone())).transpose()
}

/// All GPUs that `flag` names: every one that a name fits; where there are several, they are
/// printed.
///
/// # Errors
/// [`CliError`] with the name that fits none.
pub fn all(catalog: &Catalog, flag: &str, names: &[String]) -> Result<Vec<GpuSlug>, CliError> {
    let mut slugs: Vec<GpuSlug> = Vec::new();
    for name in names {
        let found = catalog.named(name);
        if found.is_empty() {
            catalog.find(name)?;
        }
        if found.len() > 1 {
            let all: Vec<&str> = found.iter().map(|gpu| gpu.slug.as_str()).collect();
            terminal::say(format_args!("{flag} {}: all of {}", text::clean(name, 40), all.join(", ")));
        }
        for gpu in found {
            if !slugs.contains(&gpu.slug) {
                slugs.push(gpu.slug.clone());
            }
        }
    }
    Ok(slugs)
}
