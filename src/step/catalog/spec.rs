//! One GPU: what its maker, its white paper or a measurement says of it.
//!
//! The file form is `catalog/<slug>.toml`, one GPU a file, flat keys with the unit in the
//! name. Figures that no stored source confirms are listed in `unconfirmed`, by key.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::calibration::Calibration;
use habitat_base::units::{Bytes, BytesPerSecond, FlopsPerSecond, GIB, GpuSlug, Megahertz, Watts};

/// A GPU of the catalog. Rates are per GPU (one die of a board that has several).
#[derive(Debug, Clone, PartialEq)]
pub struct GpuSpec {
    /// Identifier, also the name of its file.
    pub slug: GpuSlug,
    /// The board's name.
    pub name: String,
    /// Maker.
    pub vendor: Vendor,
    /// Architecture, such as `Ampere`.
    pub architecture: String,
    /// CUDA compute capability as (major, minor); `None` for other makers.
    pub compute_capability: Option<(u8, u8)>,
    /// Streaming multiprocessors (AMD: compute units).
    pub sm_count: u32,
    /// FP32 lanes of one multiprocessor.
    pub fp32_cores_per_sm: u32,
    /// Boost clock.
    pub boost_clock: Megahertz,
    /// Device memory, nominal.
    pub memory: Bytes,
    /// Kind of memory, such as `HBM2e`.
    pub memory_type: Option<String>,
    /// DRAM bandwidth, nominal.
    pub memory_bandwidth: BytesPerSecond,
    /// DRAM bandwidth reached in a published measurement.
    pub measured_bandwidth: Option<BytesPerSecond>,
    /// Level-2 cache.
    pub l2_cache: Option<Bytes>,
    /// Dense peak rates.
    pub peak: PeakRates,
    /// What streaming kernels reach, where the memory type does not tell.
    pub streaming: Option<StreamingShare>,
    /// Matrix-product rates reached in published measurements.
    pub achieved_matmul: Vec<AchievedMatmul>,
    /// Limits of one multiprocessor; `None` where not known (AMD).
    pub limits: Option<SmLimits>,
    /// NVLink, both directions together; `None` where not known, zero where there is none.
    pub nvlink: Option<BytesPerSecond>,
    /// PCI Express generation.
    pub pcie_generation: Option<u8>,
    /// Board power limit.
    pub power: Option<Watts>,
    /// Year of launch.
    pub launch_year: Option<u16>,
    /// Where the figures come from (keys explained in `catalog/README.md`).
    pub sources: Vec<String>,
    /// What no stored source confirms, as the table it came from words it.
    pub unconfirmed: Vec<String>,
    /// Remarks.
    pub notes: Option<String>,
    /// What was measured of it here, which stands in for published measurements.
    pub calibration: Option<Box<Calibration>>,
    /// Whether the row is shipped or the user's own.
    pub layer: Layer,
}

/// Maker of a GPU.
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

/// Dense peak rates, accumulating in FP32 (what training uses); no sparsity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PeakRates {
    /// FP32 on the vector units, a fused multiply-add counted as two.
    pub fp32: FlopsPerSecond,
    /// TF32 on tensor cores; `None` = not supported or not known (so for the rest).
    pub tf32_tensor: Option<FlopsPerSecond>,
    /// FP16 on tensor or matrix cores.
    pub fp16_tensor: Option<FlopsPerSecond>,
    /// BF16 on tensor or matrix cores.
    pub bf16_tensor: Option<FlopsPerSecond>,
    /// FP8 on tensor or matrix cores.
    pub fp8_tensor: Option<FlopsPerSecond>,
    /// FP16 with FP16 accumulation, where it differs.
    pub fp16_tensor_fp16_accumulate: Option<FlopsPerSecond>,
}

/// A matrix-product rate that was really reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AchievedMatmul {
    /// Element type: `fp32`, `tf32`, `fp16`, `bf16` or `fp8`.
    pub dtype: String,
    /// The rate, in TFLOP/s.
    pub tflops: f64,
    /// Shape that reached it, as M x N x K.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    /// Software it was measured with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub software: Option<String>,
    /// Remarks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// Where it was published.
    pub source: String,
}

/// The share of the nominal bandwidth that kernels which stream through memory reach.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamingShare {
    /// Above 0, at most 1.
    pub share: f64,
    /// Where it comes from.
    pub source: String,
}

/// What one multiprocessor can hold at a time.
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

/// Where a row of the catalog comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layer {
    /// Shipped with the program.
    Shipped,
    /// The user's own file, by its path.
    User(String),
}

impl GpuSpec {
    /// The bandwidth reached in a published measurement, unless the catalog doubts it.
    pub fn published_bandwidth(&self) -> Option<BytesPerSecond> {
        let is_doubted = self.unconfirmed.iter().any(|what| what.starts_with("measured_bandwidth"));
        self.measured_bandwidth.filter(|_| !is_doubted)
    }

    /// The fastest published rate of products of that element type (`fp32`, `tf32`, `fp16`,
    /// `bf16`, `fp8`).
    pub fn fastest_published(&self, dtype: &str) -> Option<FlopsPerSecond> {
        let rates = self.achieved_matmul.iter().filter(|measured| measured.dtype == dtype);
        let fastest = rates.map(|measured| measured.tflops).max_by(f64::total_cmp)?;
        FlopsPerSecond::new(fastest * 1e12).ok()
    }

    /// Whether PyTorch runs products of 32-bit tensors in TF32 on it if the program allows that: on NVIDIA's GPUs
    /// from Ampere on. `ROCm` ignores the flags (`allow_tf32`), also on AMD's GPUs with matrix units for it.
    pub fn runs_tf32(&self) -> bool {
        self.vendor == Vendor::Nvidia && self.peak.tf32_tensor.is_some()
    }

    /// Memory in GiB, as sold.
    pub fn memory_gib(&self) -> f64 {
        self.memory.get() / GIB
    }

    /// Whether anything about the row is unconfirmed.
    pub fn is_doubtful(&self) -> bool {
        !self.unconfirmed.is_empty()
    }
}
