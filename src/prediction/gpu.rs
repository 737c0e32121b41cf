//! Facts about a GPU that predictions pass on.

use super::rate::Rates;
use habitat_base::units::{Bytes, BytesPerSecond, GpuSlug, Watts};
use habitat_step::catalog::{GpuSpec, Vendor};

/// Facts about the GPU of a prediction that other modules need.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuFacts {
    /// Identifier.
    pub slug: GpuSlug,
    /// Display name.
    pub name: String,
    /// Vendor.
    pub vendor: Vendor,
    /// Architecture.
    pub architecture: String,
    /// Device memory, nominal.
    pub memory: Bytes,
    /// Link to other GPUs in its machine.
    pub link: Link,
    /// Power limit.
    pub power: Option<Watts>,
    /// Whether its catalog entry has unverified figures.
    pub doubtful: bool,
}

impl GpuFacts {
    /// Copies the facts of a GPU of the catalog.
    pub fn new(rates: &Rates<'_>) -> Self {
        let gpu = rates.gpu;
        Self {
            slug: gpu.slug.clone(),
            name: gpu.name.clone(),
            vendor: gpu.vendor,
            architecture: gpu.architecture.clone(),
            memory: gpu.memory,
            link: Link::new(gpu),
            power: gpu.power,
            doubtful: gpu.is_doubtful(),
        }
    }
}

/// Link between the GPUs of one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// PCI Express through host memory, the only copy path in drivers of `GeForce` and `TITAN` boards.
    HostMemory,
    /// PCI Express from board to board, with or without bridges.
    PciExpress,
    /// Modules with `NVLink` 1 to 3 or Infinity Fabric.
    Modules,
    /// `NVLink` 4 or later.
    Switched,
}

/// `NVLink` bandwidth, both directions, from which [`Link::Switched`] applies.
const SWITCHED: f64 = 900e9;
/// Maximum power of a PCI Express board; above it an AMD GPU is a module.
const BOARD_WATTS: f64 = 300.0;

impl Link {
    /// Classifies a GPU by name, `NVLink` and power.
    pub fn new(gpu: &GpuSpec) -> Self {
        let starts = |word: &str| gpu.name.starts_with(word);
        if starts("GeForce") || starts("TITAN") {
            return Self::HostMemory;
        }
        if gpu.nvlink.is_some_and(|nvlink| nvlink.get() >= SWITCHED) {
            return Self::Switched;
        }
        let is_amd_module = gpu.vendor == Vendor::Amd && gpu.power.is_some_and(|power| power.get() > BOARD_WATTS);
        if gpu.name.contains("SXM") || is_amd_module { Self::Modules } else { Self::PciExpress }
    }

    /// All-reduce bandwidth in training programs, and the relative standard deviation of a step (σ).
    pub(super) fn fitted(self) -> (BytesPerSecond, f64) {
        match self {
            Self::HostMemory => (BytesPerSecond::known(3e9), 0.03),
            Self::PciExpress => (BytesPerSecond::known(14e9), 0.02),
            Self::Modules => (BytesPerSecond::known(33e9), 0.035),
            Self::Switched => (BytesPerSecond::known(42e9), 0.011),
        }
    }

    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::HostMemory => "PCI Express through host memory",
            Self::PciExpress => "PCI Express",
            Self::Modules => "modules with NVLink",
            Self::Switched => "NVLink with switches",
        }
    }
}
