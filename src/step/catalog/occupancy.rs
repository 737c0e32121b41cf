//! Resident thread blocks per multiprocessor, and the wave size of a GPU.
//!
//! The rules are those of NVIDIA's CUDA occupancy calculator. Registers are allocated per warp in units of 256, and
//! warps in groups of 4 (2 on compute capability 6.0). Shared memory is allocated in units of 128 bytes from compute
//! capability 8.0 (256 before), where the system also reserves 1 KiB per block.

use super::spec::{GpuSpec, SmLimits};

/// Threads per warp.
const WARP: u64 = 32;
/// Register allocation unit per warp.
const REGISTER_UNIT: u64 = 256;
/// Maximum registers per block; multiprocessors of 3.7 have twice as many in total.
const REGISTERS_PER_BLOCK: u64 = 65_536;
/// Shared memory that the system reserves per block from compute capability 8.0, in bytes.
const RESERVED_SHARED: u64 = 1024;
/// Maximum threads per block.
const THREADS_PER_BLOCK: u64 = 1024;

/// Resources that one block of a kernel needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockNeeds {
    /// Threads per block.
    pub threads: u64,
    /// Registers per thread; 0 if unknown, which never limits.
    pub registers_per_thread: u64,
    /// Static and dynamic shared memory in bytes.
    pub shared_memory_bytes: u64,
}

/// Blocks of a kernel resident on one multiprocessor of `gpu`.
///
/// `None` if the limits are unknown (AMD); `Some(0)` if the GPU cannot run such a block (too much shared memory, too
/// many threads or registers).
pub fn blocks_per_sm(gpu: &GpuSpec, needs: BlockNeeds) -> Option<u64> {
    let (capability, limits) = (gpu.compute_capability?, gpu.limits?);
    if needs.threads == 0 || needs.threads > THREADS_PER_BLOCK {
        return Some(0);
    }
    let warps = needs.threads.div_ceil(WARP);
    let by_warps = u64::from(limits.warps) / warps;
    Some(
        u64::from(limits.blocks)
            .min(by_warps)
            .min(by_registers(capability, limits, needs.registers_per_thread, warps))
            .min(by_shared_memory(capability, limits, needs.shared_memory_bytes)),
    )
}

fn by_registers(capability: (u8, u8), limits: SmLimits, registers_per_thread: u64, warps: u64) -> u64 {
    if registers_per_thread == 0 {
        return u64::MAX;
    }
    // Warps are allocated in groups, one per sub-partition: 2 on 6.0, 4 on all others here.
    let granularity = if capability == (6, 0) { 2 } else { 4 };
    let per_warp = registers_per_thread.saturating_mul(WARP).div_ceil(REGISTER_UNIT).saturating_mul(REGISTER_UNIT);
    let file = u64::from(limits.registers);
    let per_file = REGISTERS_PER_BLOCK.min(file);
    let resident_warps = per_file / per_warp / granularity * granularity;
    resident_warps / warps * (file / per_file)
}

fn by_shared_memory(capability: (u8, u8), limits: SmLimits, bytes: u64) -> u64 {
    let ampere_or_later = capability >= (8, 0);
    let (unit, reserved) = if ampere_or_later { (128, RESERVED_SHARED) } else { (256, 0) };
    let needed = bytes.saturating_add(reserved).div_ceil(unit).saturating_mul(unit);
    limits.shared_memory_bytes.checked_div(needed).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Layer;

    fn spec(slug: &str) -> GpuSpec {
        let path = format!("{}/../../catalog/{slug}.toml", env!("CARGO_MANIFEST_DIR"));
        GpuSpec::parse(&std::fs::read_to_string(path).unwrap(), Layer::Shipped).unwrap()
    }

    fn blocks(slug: &str, threads: u64, registers_per_thread: u64, shared_memory_bytes: u64) -> u64 {
        blocks_per_sm(&spec(slug), BlockNeeds { threads, registers_per_thread, shared_memory_bytes }).unwrap()
    }

    /// Values of NVIDIA's occupancy calculator, by the limiting resource.
    #[test]
    fn known_launches() {
        // Threads: 2048 on Volta, 1024 on Turing, 1536 on 8.6, 2048 on 8.0 and 9.0.
        assert_eq!(blocks("v100-sxm2-16gb", 256, 32, 0), 8);
        assert_eq!(blocks("t4", 1024, 32, 0), 1);
        assert_eq!(blocks("a10", 256, 32, 0), 6);
        assert_eq!(blocks("a100-sxm4-40gb", 1024, 32, 0), 2);
        // Blocks: 32 on Volta and 8.0, 16 on Turing and 8.6.
        assert_eq!(blocks("v100-sxm2-16gb", 32, 16, 0), 32);
        assert_eq!(blocks("a10", 32, 16, 0), 16);
        // Registers: 48 per thread are 1,536 per warp: 42 warps, 40 in groups of 4, 5 blocks of 8.
        assert_eq!(blocks("a10", 256, 48, 0), 5);
        // 122 per thread round up to 4,096 per warp: 16 warps, 4 blocks of 4.
        assert_eq!(blocks("v100-sxm2-16gb", 128, 122, 12_288), 4);
        assert_eq!(blocks("a100-sxm4-80gb", 256, 255, 0), 1);
        // Shared memory: 48 KiB + 1 KiB reserved by the system, out of 164 KiB.
        assert_eq!(blocks("a100-sxm4-40gb", 128, 32, 49_152), 3);
        assert_eq!(blocks("v100-sxm2-16gb", 128, 32, 49_152), 2);
        assert_eq!(blocks("h100-sxm5-80gb", 128, 32, 232_448), 1);
        // P100: 40 registers are 1,280 per warp: 51 warps, 50 in groups of 2, 25 blocks of 2.
        assert_eq!(blocks("p100-pcie-16gb", 64, 40, 0), 25);
        assert_eq!(blocks("p4", 64, 40, 0), 24);
        // The K80's register file holds two blocks of 65,536.
        assert_eq!(blocks("k80", 1024, 64, 0), 2);
    }

    #[test]
    fn a_block_that_cannot_run_there() {
        // A Hopper kernel with 200 KiB of shared memory does not fit on Turing.
        assert_eq!(blocks("t4", 128, 32, 204_800), 0);
        assert_eq!(blocks("t4", 2048, 32, 0), 0);
        assert_eq!(blocks("a10", 128, 32, u64::MAX), 0);
    }

    #[test]
    fn without_limits_nothing_is_said() {
        assert_eq!(
            blocks_per_sm(
                &spec("mi300x"),
                BlockNeeds { threads: 256, registers_per_thread: 32, shared_memory_bytes: 0 }
            ),
            None
        );
    }
}
