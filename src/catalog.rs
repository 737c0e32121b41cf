//! The GPUs the program knows.
//!
//! One TOML file a GPU (`catalog/<slug>.toml`), shipped inside the program and overlaid by
//! the user's own files: a file with the slug of a shipped GPU replaces it, and a calibration
//! adds what was measured of one.

pub mod calibration;
mod error;
mod file;
pub mod hypothetical;
mod named;
pub mod occupancy;
mod spec;

use std::collections::BTreeMap;

pub use calibration::Calibration;
pub use error::SpecError;
pub use spec::{AchievedMatmul, GpuSpec, Layer, PeakRates, SmLimits, StreamingShare, Vendor};

use crate::text;
use crate::units::GpuSlug;

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

/// What a recording says of the GPU it was made on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceIdentity {
    /// Name the driver gives.
    pub name: String,
    /// CUDA compute capability.
    pub compute_capability: Option<(u8, u8)>,
    /// Multiprocessors.
    pub sm_count: Option<u32>,
    /// Device memory in bytes.
    pub memory_bytes: Option<u64>,
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
        self.gpus.values().find(|gpu| gpu.slug.as_str() == wanted || gpu.name.to_lowercase() == wanted).ok_or_else(
            || UnknownGpu {
                slug: text::clean(name, 64),
                near: text::nearest(&wanted, self.gpus.keys().map(GpuSlug::as_str), 5)
                    .into_iter()
                    .map(str::to_owned)
                    .collect(),
            },
        )
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

    /// The GPU a driver calls `identity.name`, told from its siblings by compute
    /// capability, multiprocessors and memory; `None` unless exactly one remains best.
    ///
    /// Boards that differ only in what a driver does not tell (SXM or `PCIe` with equal
    /// memory and multiprocessors) are told apart by the words of the name.
    pub fn identify(&self, identity: &DeviceIdentity) -> Option<&GpuSpec> {
        match self.scored(identity).as_slice() {
            [(_, only)] => Some(only),
            [(best, first), (second, _), ..] if best > second => Some(first),
            _ => None,
        }
    }

    /// The GPUs of the model that a driver calls `identity.name`, so far as its figures
    /// agree, the likeliest first.
    pub fn alike(&self, identity: &DeviceIdentity) -> Vec<&GpuSpec> {
        self.scored(identity).into_iter().map(|(_, gpu)| gpu).collect()
    }

    fn scored(&self, identity: &DeviceIdentity) -> Vec<(i32, &GpuSpec)> {
        let wanted = words(&identity.name);
        let mut scored: Vec<(i32, &GpuSpec)> = self
            .gpus
            .values()
            .filter(|gpu| {
                identity.compute_capability.is_none()
                    || gpu.compute_capability.is_none()
                    || gpu.compute_capability == identity.compute_capability
            })
            .filter(|gpu| identity.sm_count.is_none_or(|sms| sms == gpu.sm_count))
            .filter(|gpu| identity.memory_bytes.is_none_or(|bytes| memory_agrees(bytes as f64, gpu.memory.get())))
            .filter_map(|gpu| name_score(&wanted, gpu).map(|score| (score, gpu)))
            .collect();
        scored.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        scored
    }
}

impl Catalog {
    /// The only GPU with exactly this compute capability, these multiprocessors and this
    /// memory, for recordings that do not name theirs; `None` where one of the figures is
    /// missing, or several have the same.
    pub fn only_with(&self, identity: &DeviceIdentity) -> Option<&GpuSpec> {
        let (capability, count, bytes) = (identity.compute_capability?, identity.sm_count?, identity.memory_bytes?);
        let mut alike = self.gpus.values().filter(|gpu| {
            gpu.compute_capability == Some(capability)
                && gpu.sm_count == count
                && memory_agrees(bytes as f64, gpu.memory.get())
        });
        alike.next().filter(|_| alike.next().is_none())
    }
}

/// Drivers report 1 to 8 % less than the nominal size (ECC, firmware), in powers of two.
fn memory_agrees(reported: f64, nominal: f64) -> bool {
    (0.90..=1.03).contains(&(reported / nominal))
}

/// The telling words of a board name: model numbers and form factors, not makers.
fn words(name: &str) -> Vec<String> {
    const SILENT: [&str; 10] =
        ["nvidia", "amd", "tesla", "geforce", "quadro", "graphics", "generation", "gpu", "instinct", "radeon"];
    name.to_lowercase()
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter_map(split_memory)
        .filter(|word| !word.is_empty() && !SILENT.contains(&word.as_str()))
        .collect()
}

/// `32gb` says nothing that the memory size does not; `sxm2`, `sxm4` and `sxm5` are one word, but
/// `sxm3` is another: the V100 exists as SXM2 and as SXM3.
fn split_memory(word: &str) -> Option<String> {
    if word.strip_suffix("gb").is_some_and(|digits| digits.chars().all(|c| c.is_ascii_digit())) {
        return None;
    }
    Some(match word {
        "sxm2" | "sxm4" | "sxm5" | "dgxs" | "dgx" | "hbm3" => "sxm".to_owned(),
        "pcie" | "pci" => "pcie".to_owned(),
        _ => word.to_owned(),
    })
}

/// Words that make a board another one than that without them: an `RTX 2060 SUPER` is no `RTX
/// 2060`, and no desktop board is a `Laptop GPU`.
const VARIANTS: [&str; 9] = ["ti", "super", "laptop", "mobile", "max", "sff", "server", "workstation", "d"];

/// Shared words count for, words of either name alone against; `None` when the model
/// (the first word with a digit) is not among the catalog's words, or the name has a word of
/// another variant.
fn name_score(wanted: &[String], gpu: &GpuSpec) -> Option<i32> {
    let own: Vec<String> = words(&gpu.name).into_iter().chain(words(gpu.slug.as_str())).collect();
    let model = wanted.iter().find(|word| word.chars().any(|c| c.is_ascii_digit()))?;
    let is_another = wanted.iter().any(|word| VARIANTS.contains(&word.as_str()) && !own.contains(word));
    if is_another || !own.contains(model) {
        return None;
    }
    let shared = wanted.iter().filter(|word| own.contains(word)).count() as i32;
    let missing = wanted.len() as i32 - shared;
    let surplus =
        own.iter().filter(|word| !wanted.contains(word)).collect::<std::collections::BTreeSet<_>>().len() as i32;
    Some(4 * shared - 2 * missing - surplus)
}
