//! Specifications of one GPU, from its vendor, a white paper or a measurement.
//!
//! The file format is `catalog/<slug>.toml`: one GPU per file, flat keys with the unit in the name. `unconfirmed` lists
//! the keys of figures that no stored source confirms.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::calibration::Calibration;
use habitat_base::units::{Bytes, BytesPerSecond, FlopsPerSecond, GIB, GpuSlug, Megahertz, Watts};

/// A GPU of the catalog. Rates are per GPU (one die of a multi-die board).
#[derive(Debug, Clone, PartialEq)]
pub struct GpuSpec {
    /// Identifier, also the file name.
    pub slug: GpuSlug,
    /// Name of the board.
    pub name: String,
    /// Vendor.
    pub vendor: Vendor,
    /// Architecture, such as `Ampere`.
    pub architecture: String,
    /// CUDA compute capability as (major, minor); `None` for other vendors.
    pub compute_capability: Option<(u8, u8)>,
    /// Streaming multiprocessors (AMD: compute units).
    pub sm_count: u32,
    /// FP32 lanes per multiprocessor.
    pub fp32_cores_per_sm: u32,
    /// Boost clock.
    pub boost_clock: Megahertz,
    /// Nominal device memory.
    pub memory: Bytes,
    /// Kind of memory, such as `HBM2e`.
    pub memory_type: Option<String>,
    /// Nominal DRAM bandwidth.
    pub memory_bandwidth: BytesPerSecond,
    /// DRAM bandwidth achieved in a published measurement.
    pub measured_bandwidth: Option<BytesPerSecond>,
    /// Level-2 cache.
    pub l2_cache: Option<Bytes>,
    /// Dense peak rates.
    pub peak: PeakRates,
    /// Share of the bandwidth that streaming kernels sustain, if the default of the memory type does not apply.
    pub streaming: Option<StreamingShare>,
    /// Matrix-product rates achieved in published measurements.
    pub achieved_matmul: Vec<AchievedMatmul>,
    /// Limits per multiprocessor; `None` if unknown (AMD).
    pub limits: Option<SmLimits>,
    /// NVLink bandwidth, both directions together; `None` if unknown, zero if there is no NVLink.
    pub nvlink: Option<BytesPerSecond>,
    /// PCI Express generation.
    pub pcie_generation: Option<u8>,
    /// Board power limit.
    pub power: Option<Watts>,
    /// Year of launch.
    pub launch_year: Option<u16>,
    /// Sources of the figures, by the keys in `catalog/README.md`.
    pub sources: Vec<String>,
    /// Keys of figures that no stored source confirms, with remarks.
    pub unconfirmed: Vec<String>,
    /// Remarks.
    pub notes: Option<String>,
    /// The user's own measurements, which take precedence over published ones.
    pub calibration: Option<Box<Calibration>>,
    /// Origin of the entry: shipped or the user's own.
    pub layer: Layer,
}

/// Vendor of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Vendor {
    /// NVIDIA.
    Nvidia,
    /// AMD.
    Amd,
}

impl fmt::Display for Vendor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Nvidia => "NVIDIA",
            Self::Amd => "AMD",
        })
    }
}

/// Dense peak rates with FP32 accumulation, which training uses; no sparsity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PeakRates {
    /// FP32 on the vector units, a fused multiply-add counted as two.
    pub fp32: FlopsPerSecond,
    /// TF32 on tensor cores; `None` = unsupported or unknown (also below).
    pub tf32_tensor: Option<FlopsPerSecond>,
    /// FP16 on tensor or matrix cores.
    pub fp16_tensor: Option<FlopsPerSecond>,
    /// BF16 on tensor or matrix cores.
    pub bf16_tensor: Option<FlopsPerSecond>,
    /// FP8 on tensor or matrix cores.
    pub fp8_tensor: Option<FlopsPerSecond>,
    /// FP16 with FP16 accumulation, if the rate differs.
    pub fp16_tensor_fp16_accumulate: Option<FlopsPerSecond>,
}

/// A matrix-product rate achieved in a published measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AchievedMatmul {
    /// Element type: `fp32`, `tf32`, `fp16`, `bf16` or `fp8`.
    pub dtype: String,
    /// Rate in TFLOP/s.
    pub tflops: f64,
    /// Shape that achieved it, as M x N x K.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    /// Software used for the measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub software: Option<String>,
    /// Remarks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// Publication.
    pub source: String,
}

/// Share of the nominal bandwidth that streaming kernels sustain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamingShare {
    /// Share, above 0 and at most 1.
    pub share: f64,
    /// Source of the share.
    pub source: String,
}

/// Limits of one multiprocessor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SmLimits {
    /// Resident threads.
    pub threads: u32,
    /// Resident thread blocks.
    pub blocks: u32,
    /// Resident warps.
    pub warps: u32,
    /// 32-bit registers.
    pub registers: u32,
    /// Shared memory in bytes.
    pub shared_memory_bytes: u64,
}

/// Origin of a catalog entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layer {
    /// Shipped with the program.
    Shipped,
    /// The user's own file, with its path.
    User(String),
}

impl GpuSpec {
    /// Whether it is sold for desktops, as `GeForce`, `TITAN` and Radeon boards.
    pub fn is_for_desktops(&self) -> bool {
        ["GeForce", "TITAN", "Radeon"].iter().any(|name| self.name.starts_with(name))
    }

    /// Bandwidth achieved in a published measurement, unless the catalog marks it as unconfirmed.
    pub fn published_bandwidth(&self) -> Option<BytesPerSecond> {
        let is_doubted = self.unconfirmed.iter().any(|what| what.starts_with("measured_bandwidth"));
        self.measured_bandwidth.filter(|_| !is_doubted)
    }

    /// Fastest published rate of matrix products of one element type (`fp32`, `tf32`, `fp16`, `bf16`, `fp8`).
    pub fn fastest_published(&self, dtype: &str) -> Option<FlopsPerSecond> {
        let rates = self.achieved_matmul.iter().filter(|measured| measured.dtype == dtype);
        let fastest = rates.map(|measured| measured.tflops).max_by(f64::total_cmp)?;
        FlopsPerSecond::new(fastest * 1e12).ok()
    }

    /// Whether PyTorch runs products of 32-bit tensors in TF32 on this GPU if the program allows it: NVIDIA's GPUs from
    /// Ampere on. `ROCm` ignores the flags (`allow_tf32`), even on AMD GPUs whose matrix cores support it.
    pub fn runs_tf32(&self) -> bool {
        self.vendor == Vendor::Nvidia && self.peak.tf32_tensor.is_some()
    }

    /// Memory in GiB, as marketed.
    pub fn memory_gib(&self) -> f64 {
        self.memory.get() / GIB
    }

    /// Whether any figure is unconfirmed.
    pub fn is_doubtful(&self) -> bool {
        !self.unconfirmed.is_empty()
    }
}
