//! Facts about a GPU that predictions pass on.

use super::fabric::{Fabric, Link};
use super::rate::Rates;
use habitat_base::units::{Bytes, GpuSlug, Watts};
use habitat_step::catalog::Vendor;

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
    /// Bandwidths of collectives over it.
    pub fabric: Fabric,
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
            fabric: Fabric::new(gpu),
            power: gpu.power,
            doubtful: gpu.is_doubtful(),
        }
    }
}
