//! GPUs by the names that people type: `4090`, `a100-80`, `h100`.
//!
//! If a command needs one GPU and the name fits several, the error lists the same command once for each, ready to copy.

use super::error::{At, CliError};
use super::hints::with_flag;
use crate::terminal;
use habitat_base::text;
use habitat_base::units::GpuSlug;
use habitat_prediction::PredictError;
use habitat_step::catalog::{Catalog, GpuSpec};

/// The single GPU that `flag` names.
pub(super) fn one<'a>(catalog: &'a Catalog, flag: &str, name: &str) -> Result<&'a GpuSpec, CliError> {
    one_of(catalog, flag, name, |gpu| Some(with_flag(flag, gpu.slug.as_str())))
}

/// The single GPU that a name at a place means. If it fits several, the error has the command that names each, if any.
pub(super) fn one_of<'a>(
    catalog: &'a Catalog,
    place: &str,
    name: &str,
    command: impl Fn(&GpuSpec) -> Option<String>,
) -> Result<&'a GpuSpec, CliError> {
    let fitting = catalog.named(name);
    if let [] | [_] = fitting[..] {
        return fitting.first().map_or_else(|| catalog.find(name).at(place), |gpu| Ok(*gpu));
    }
    let all: Vec<&str> = fitting.iter().map(|gpu| gpu.slug.as_str()).collect();
    let problem = format!("{} matches {}; choose one", text::clean(name, 40), all.join(", "));
    let error = CliError::Refused(problem).at(place);
    let commands: Vec<String> = fitting.iter().filter_map(|gpu| command(gpu)).collect();
    Err(if commands.is_empty() { error } else { CliError::Choose { error: Box::new(error), commands } })
}

/// An error that lists the current command once for each matching GPU.
fn choose<'a>(error: CliError, flag: &str, gpus: impl Iterator<Item = &'a GpuSlug>) -> CliError {
    let commands = gpus.map(|gpu| with_flag(flag, gpu.as_str())).collect();
    CliError::Choose { error: Box::new(error), commands }
}

/// Unwraps a prediction of the recorded step `label`. If its GPU is unknown, the error lists commands with `--origin`
/// for each candidate.
pub(super) fn predicted<T>(result: Result<T, PredictError>, label: &str) -> Result<T, CliError> {
    let candidates = match &result {
        Err(PredictError::UnknownOrigin { candidates, .. }) => candidates.gpus.clone(),
        _ => Vec::new(),
    };
    result.at(label).map_err(|error| choose(error, "--origin", candidates.iter()))
}

/// The same for an optional flag.
pub(super) fn maybe(catalog: &Catalog, flag: &str, name: Option<&String>) -> Result<Option<GpuSlug>, CliError> {
    name.map(|name| one(catalog, flag, name).map(|gpu| gpu.slug.clone())).transpose()
}

/// All GPUs that `flag` names. A name may match several, which are then printed.
///
/// # Errors
/// [`CliError`] with the name that matches no GPU.
pub fn all(catalog: &Catalog, flag: &str, names: &[String]) -> Result<Vec<GpuSlug>, CliError> {
    let mut slugs: Vec<GpuSlug> = Vec::new();
    for name in names {
        let found = catalog.named(name);
        if found.is_empty() {
            catalog.find(name)?;
        }
        if found.len() > 1 {
            let all: Vec<&str> = found.iter().map(|gpu| gpu.slug.as_str()).collect();
            terminal::say(format_args!("{flag} {}: matches {}", text::clean(name, 40), all.join(", ")));
        }
        for gpu in found {
            if !slugs.contains(&gpu.slug) {
                slugs.push(gpu.slug.clone());
            }
        }
    }
    Ok(slugs)
}
