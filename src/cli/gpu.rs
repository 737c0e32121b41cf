//! GPUs by the names that people type: `4090`, `a100-80`, `h100`.
//!
//! Where one GPU is wanted and the name fits several, the error has the command that was typed
//! once a candidate, each to copy as it stands.

use super::CliError;
use super::hints::with_flag;
use crate::catalog::{Catalog, GpuSpec};
use crate::terminal;
use crate::text;
use crate::units::GpuSlug;

/// The one GPU that `flag` names.
pub(super) fn one<'a>(catalog: &'a Catalog, flag: &str, name: &str) -> Result<&'a GpuSpec, CliError> {
    match catalog.named(name)[..] {
        [gpu] => Ok(gpu),
        [] => catalog.find(name).map_err(CliError::of),
        ref several => {
            let commands: Vec<String> =
                several.iter().map(|gpu| format!("\n  {}", with_flag(flag, gpu.slug.as_str()))).collect();
            let name = text::clean(name, 40);
            let count = several.len();
            Err(CliError(format!("{flag} {name}: {count} GPUs are called that; which one?{}", commands.concat())))
        }
    }
}

/// The same where a flag may be left out.
pub(super) fn maybe(catalog: &Catalog, flag: &str, name: Option<&String>) -> Result<Option<GpuSlug>, CliError> {
    name.map(|name| one(catalog, flag, name).map(|gpu| gpu.slug.clone())).transpose()
}

/// All GPUs that `flag` names: every one that a name fits, which is said where there are several.
///
/// # Errors
/// [`CliError`] with the name that fits none.
pub fn all(catalog: &Catalog, flag: &str, names: &[String]) -> Result<Vec<GpuSlug>, CliError> {
    let mut slugs: Vec<GpuSlug> = Vec::new();
    for name in names {
        let found = catalog.named(name);
        if found.is_empty() {
            catalog.find(name).map_err(CliError::of)?;
        }
        if found.len() > 1 {
            let all: Vec<&str> = found.iter().map(|gpu| gpu.slug.as_str()).collect();
            terminal::say(format_args!("{flag} {}: {}", text::clean(name, 40), all.join(", ")));
        }
        for gpu in found {
            if !slugs.contains(&gpu.slug) {
                slugs.push(gpu.slug.clone());
            }
        }
    }
    Ok(slugs)
}
