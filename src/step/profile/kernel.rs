//! Kernels with their launch configuration.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use habitat_base::units::{Bytes, Flops, Micros};

/// A kernel that ONE occurrence of an operation launches `count` times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Kernel {
    /// The kernel's demangled name.
    pub name: String,
    /// Launches per occurrence of the operation.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: u32,
    /// Device time of one launch, mean over launches and recorded steps.
    #[serde(rename = "duration_us")]
    pub duration: Micros,
    /// Thread blocks in x, y and z.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grid: Option<[u32; 3]>,
    /// Threads per block in x, y and z.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<[u32; 3]>,
    /// Registers per thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registers_per_thread: Option<u32>,
    /// Static shared memory per block. Recorders that report only the sum of static and dynamic shared memory put it
    /// here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub static_shared_memory_bytes: Option<u64>,
    /// Dynamic shared memory per block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamic_shared_memory_bytes: Option<u64>,
    /// Floating-point operations per launch, if hardware counters were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flops: Option<Flops>,
    /// DRAM traffic per launch, if hardware counters were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dram_bytes: Option<Bytes>,
}

impl Kernel {
    /// Number of thread blocks in the grid, if recorded.
    pub fn blocks(&self) -> Option<u64> {
        self.grid.map(volume)
    }

    /// Number of threads per block, if recorded.
    pub fn threads_per_block(&self) -> Option<u64> {
        self.block.map(volume)
    }

    /// Static and dynamic shared memory per block in bytes; `None` if neither is known.
    pub fn shared_memory_bytes(&self) -> Option<u64> {
        match (self.static_shared_memory_bytes, self.dynamic_shared_memory_bytes) {
            (None, None) => None,
            (fixed, dynamic) => Some(fixed.unwrap_or(0).saturating_add(dynamic.unwrap_or(0))),
        }
    }
}

/// Whether a kernel (or operation) with this name is a copy between host and device, in the naming of CUDA and `ROCm`.
pub fn is_host_transfer(name: &str) -> bool {
    ["HtoD", "DtoH", "HostToDevice", "DeviceToHost"].iter().any(|word| name.contains(word))
}

fn volume(extent: [u32; 3]) -> u64 {
    extent.into_iter().map(u64::from).fold(1, u64::saturating_mul)
}

pub(super) fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
pub(super) fn is_one(count: &u32) -> bool {
    *count == 1
}
