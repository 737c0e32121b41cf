//! The models that a GPU is evaluated with.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use habitat_tui::catalog::{Catalog, GpuSpec};
use habitat_tui::cli::CliError;
use habitat_tui::predict::efficiency::Efficiency;
use habitat_tui::predict::learned::Models;
use habitat_tui::store::{self, Limit, StoreError, WEIGHTS};
use habitat_tui::units::GpuSlug;

/// For every GPU the models that did not see it, else the models that saw everything.
#[derive(Debug, Clone, Default)]
pub(crate) struct ModelsByGpu {
    pub(crate) shipped: Option<Arc<Models>>,
    pub(crate) without: BTreeMap<GpuSlug, Arc<Models>>,
}

impl ModelsByGpu {
    /// Opens the models in a folder that training wrote, except its efficiency model, which saw all GPUs.
    ///
    /// # Errors
    /// [`CliError`] if a file cannot be read or holds no weights.
    pub(crate) fn open(dir: &Path) -> Result<Self, CliError> {
        let mut models = Self { shipped: read(&dir.join(WEIGHTS))?, without: BTreeMap::new() };
        let folder = dir.join("without");
        if !folder.is_dir() {
            return Ok(models);
        }
        for entry in std::fs::read_dir(&folder).map_err(|error| StoreError::read(&folder, error))? {
            let path = entry.map_err(|error| StoreError::read(&folder, error))?.path();
            let slug = path.file_stem().and_then(|stem| GpuSlug::new(stem.to_string_lossy()).ok());
            if let (Some(slug), Some(found)) = (slug, read(&path)?) {
                models.without.insert(slug, found);
            }
        }
        Ok(models)
    }

    /// The models for some GPUs, each with an efficiency model.
    pub(crate) fn with_efficiency(&self, efficiencies: BTreeMap<GpuSlug, Efficiency>) -> Self {
        let with = |(gpu, efficiency): (GpuSlug, Efficiency)| {
            let models = self.for_gpu(&gpu)?;
            let alone = Models::new(models.ensembles().clone(), models.steps().clone());
            Some((gpu, Arc::new(alone.with_efficiency(efficiency))))
        };
        Self { shipped: self.shipped.clone(), without: efficiencies.into_iter().filter_map(with).collect() }
    }

    /// Note for a table of errors of these models.
    pub(crate) fn protocol(&self) -> String {
        let names: Vec<&str> = self.without.keys().map(GpuSlug::as_str).collect();
        match (&self.shipped, names.is_empty()) {
            (None, true) => "no learned models".to_owned(),
            (_, true) => "learned models that saw all their training data, whatever GPU is evaluated".to_owned(),
            _ => format!(
                "learned models that were trained and calibrated without the GPU evaluated ({})",
                names.join(", ")
            ),
        }
    }

    /// The models to predict `gpu` with.
    pub(crate) fn for_gpu(&self, gpu: &GpuSlug) -> Option<Arc<Models>> {
        self.without.get(gpu).or(self.shipped.as_ref()).cloned()
    }
}

/// The models by GPU for published steps: those that saw no GPU of the same chip (capability and multiprocessors), else
/// the shipped ones.
pub(crate) fn without_chip<'a>(models: &'a ModelsByGpu, gpu: &GpuSpec, catalog: &Catalog) -> Option<&'a Models> {
    let chip = |gpu: &GpuSpec| (gpu.compute_capability, gpu.sm_count);
    let is_alike = |slug: &&GpuSlug| catalog.get(slug).is_some_and(|other| chip(other) == chip(gpu));
    let found = models.without.get(&gpu.slug).or_else(|| models.without.get(models.without.keys().find(is_alike)?));
    found.or(models.shipped.as_ref()).map(|models| &**models)
}

fn read(path: &Path) -> Result<Option<Arc<Models>>, CliError> {
    let Some(bytes) = store::there(store::read(path, Limit::WEIGHTS))? else { return Ok(None) };
    Ok(Some(Arc::new(Models::from_bytes(&bytes).map_err(|error| StoreError::content(path, error))?)))
}
