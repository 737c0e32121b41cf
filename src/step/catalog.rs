//! The GPUs the program knows.
//!
//! One TOML file a GPU (`catalog/<slug>.toml`), shipped inside the program and overlaid by
//! the user's own files: a file with the slug of a shipped GPU replaces it, and a calibration
//! adds what was measured of one.

pub mod calibration;
mod error;
mod file;
pub mod hypothetical;
mod identity;
mod named;
pub mod occupancy;
mod spec;

use std::collections::BTreeMap;

pub use calibration::Calibration;
pub use error::SpecError;
pub use identity::{DeviceIdentity, Unrecognised};
pub use spec::{AchievedMatmul, GpuSpec, Layer, PeakRates, SmLimits, StreamingShare, Vendor};

use habitat_base::text;
use habitat_base::units::GpuSlug;

/// GPUs by slug.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Catalog {
    gpus: BTreeMap<GpuSlug, GpuSpec>,
}

/// A slug the catalog does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no GPU {slug:?} in the catalog{}; `habitat-tui gpus` lists all", did_you_mean(.near))]
pub struct UnknownGpu {
    /// The slug asked for.
    pub slug: String,
    /// The nearest ones that exist.
    pub near: Vec<String>,
}

fn did_you_mean(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!(" (near: {})", near.join(", ")) }
}

impl Catalog {
    /// A catalog of these GPUs; of two with one slug the later wins.
    pub fn new(gpus: impl IntoIterator<Item = GpuSpec>) -> Self {
        Self { gpus: gpus.into_iter().map(|gpu| (gpu.slug.clone(), gpu)).collect() }
    }

    /// Adds what was measured of a GPU; of two calibrations of one GPU the newer counts.
    ///
    /// # Errors
    /// [`UnknownGpu`] where the catalog lacks the GPU.
    pub fn calibrate(&mut self, calibration: Calibration) -> Result<(), UnknownGpu> {
        let slug = self.find(calibration.gpu.as_str())?.slug.clone();
        if let Some(gpu) = self.gpus.get_mut(&slug) {
            let is_newer = gpu.calibration.as_ref().is_none_or(|known| known.date <= calibration.date);
            if is_newer {
                gpu.calibration = Some(Box::new(calibration));
            }
        }
        Ok(())
    }

    /// The GPU of that slug.
    pub fn get(&self, slug: &GpuSlug) -> Option<&GpuSpec> {
        self.gpus.get(slug)
    }

    /// The GPU whose slug, or whose name, is `name` (letters of either case).
    ///
    /// # Errors
    /// [`UnknownGpu`] with the nearest slugs.
    pub fn find(&self, name: &str) -> Result<&GpuSpec, UnknownGpu> {
        let wanted = name.trim().to_lowercase();
        self.gpus
            .values()
            .find(|gpu| gpu.slug.as_str() == wanted || gpu.name.to_lowercase() == wanted)
            .ok_or_else(|| UnknownGpu { slug: text::clean(name, 64), near: named::near(&wanted, self.gpus.values()) })
    }

    /// The GPUs that a name as people type it may mean (`4090`, `a100-80`, `h100`): the one whose
    /// slug or name it is, else all whose words it is made of; none where it fits none.
    pub fn named(&self, name: &str) -> Vec<&GpuSpec> {
        self.find(name).map_or_else(|_| named::fitting(name, &self.gpus.values()), |gpu| vec![gpu])
    }

    /// All GPUs, by slug.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &GpuSpec> {
        self.gpus.values()
    }

    /// How many GPUs there are.
    pub fn len(&self) -> usize {
        self.gpus.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.gpus.is_empty()
    }
}
