//! The catalog of GPUs.
//!
//! One TOML file per GPU (`catalog/<slug>.toml`), shipped inside the program. The user's own files override it: a file
//! with the slug of a shipped GPU replaces that GPU, and a calibration adds measurements to it.

pub mod calibration;
mod candidates;
mod error;
mod file;
pub mod hypothetical;
mod identity;
mod named;
pub mod occupancy;
mod spec;

use std::collections::BTreeMap;

pub use calibration::Calibration;
pub use candidates::{Candidates, candidates};
pub use error::SpecError;
pub use identity::{DeviceIdentity, Unrecognised};
pub use spec::{AchievedMatmul, GpuSpec, Layer, PeakRates, SmLimits, StreamingShare, Vendor};

use crate::profile::Origin;
use habitat_base::text;
use habitat_base::units::GpuSlug;

/// GPUs by slug.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Catalog {
    gpus: BTreeMap<GpuSlug, GpuSpec>,
}

/// Error for a slug that is not in the catalog.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no GPU {slug:?} in the catalog{}{}; `habitat-tui gpus` lists all", did_you_mean(.near), one_gpu(.slug))]
pub struct UnknownGpu {
    /// The requested slug.
    pub slug: String,
    /// The nearest slugs in the catalog.
    pub near: Vec<String>,
}

fn did_you_mean(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!(" (near: {})", near.join(", ")) }
}

/// The flags for a number of GPUs, for a name such as `2x3090`.
fn one_gpu(name: &str) -> String {
    let count = name.split_once(['x', '×', '*']).map(|(count, name)| (count.trim(), name.trim()));
    match count.filter(|(count, name)| count.parse::<u32>().is_ok() && name.len() > 1) {
        Some((count, name)) => format!(
            "; name one GPU, {name}: `plan --own {count}x{name}` plans with {count} of your own, `--min-gpus {count}` with rented ones"
        ),
        None => String::new(),
    }
}

impl Catalog {
    /// A catalog of these GPUs; for duplicate slugs the last one wins.
    pub fn new(gpus: impl IntoIterator<Item = GpuSpec>) -> Self {
        Self { gpus: gpus.into_iter().map(|gpu| (gpu.slug.clone(), gpu)).collect() }
    }

    /// GPU of a recording, if it names one of these.
    pub fn recorded_on(&self, origin: &Origin) -> Option<&GpuSpec> {
        origin.gpu.as_ref().and_then(|slug| self.get(slug))
    }

    /// Adds the calibration of a GPU; of two calibrations of one GPU the newer wins.
    ///
    /// # Errors
    /// [`UnknownGpu`] if the GPU is not in the catalog.
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

    /// The GPU with this slug.
    pub fn get(&self, slug: &GpuSlug) -> Option<&GpuSpec> {
        self.gpus.get(slug)
    }

    /// The GPU whose slug or name is `name`, ignoring case.
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

    /// GPUs that an informal name such as `4090`, `a100-80` or `h100` may mean: the one with exactly this slug or name,
    /// otherwise all that contain its words; empty if none does.
    pub fn named(&self, name: &str) -> Vec<&GpuSpec> {
        self.find(name).map_or_else(|_| named::fitting(name, &self.gpus.values()), |gpu| vec![gpu])
    }

    /// Iterates over all GPUs in slug order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &GpuSpec> {
        self.gpus.values()
    }

    /// Number of GPUs.
    pub fn len(&self) -> usize {
        self.gpus.len()
    }

    /// Whether the catalog is empty.
    pub fn is_empty(&self) -> bool {
        self.gpus.is_empty()
    }
}
