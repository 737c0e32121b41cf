//! Finds the GPU that a profile was recorded on.

use super::error::PredictError;
use super::options::Options;
use habitat_base::text;
use habitat_step::catalog::{Catalog, GpuSpec, candidates};
use habitat_step::profile::Profile;

/// GPU of a profile's measured times; `None` if nothing was measured or measurements are ignored.
///
/// # Errors
/// [`PredictError`] if the GPU is not in the catalog.
pub fn origin<'a>(
    profile: &Profile,
    catalog: &'a Catalog,
    options: &Options,
) -> Result<Option<&'a GpuSpec>, PredictError> {
    if options.ignore_origin {
        return Ok(None);
    }
    if let Some(slug) = &options.origin {
        return Ok(Some(catalog.find(slug.as_str())?));
    }
    let Some(origin) = &profile.origin else { return Ok(None) };
    if let Some(gpu) = catalog.recorded_on(origin) {
        return Ok(Some(gpu));
    }
    let name = origin.gpu_name.clone().or_else(|| origin.gpu.as_ref().map(ToString::to_string));
    let candidates = candidates(profile, catalog);
    let near = name.as_deref().filter(|_| candidates.gpus.is_empty()).map_or_else(Vec::new, |name| {
        catalog.find(name).map_or_else(|unknown| unknown.near, |gpu| vec![gpu.slug.to_string()])
    });
    let has_shapes = profile.operations.iter().any(|operation| !operation.inputs.is_empty());
    Err(PredictError::UnknownOrigin { name: name.map(|name| text::clean(&name, 80)), candidates, near, has_shapes })
}
