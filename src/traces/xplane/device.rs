//! Converts events and planes of a GPU to the terms of the other recorders.

use super::space::{Plane, Stat};
use crate::{Configuration, WorkKind};
use habitat_step::profile::DeviceInfo;

/// Time in microseconds since `base` (nanoseconds) of an event `offset` picoseconds into a line.
pub(super) fn microseconds(line: i64, base: i64, offset: i64) -> f64 {
    line.saturating_sub(base) as f64 / 1e3 + offset as f64 / 1e6
}

pub(super) fn work_kind(name: &str) -> WorkKind {
    if name.starts_with("Memcpy") {
        WorkKind::Copy
    } else if name.starts_with("Memset") {
        WorkKind::Set
    } else {
        WorkKind::Kernel
    }
}

/// Name as PyTorch's profiler writes it: copies renamed, kernels without the loader's suffix.
pub(super) fn shown(name: &str) -> String {
    match name.strip_prefix("Memcpy") {
        Some("H2D") => "Memcpy HtoD".to_owned(),
        Some("D2H") => "Memcpy DtoH".to_owned(),
        Some("D2D") => "Memcpy DtoD".to_owned(),
        Some("P2P") => "Memcpy PtoP".to_owned(),
        Some(_) => name.to_owned(),
        None => name.trim_end_matches(" [clone .kd]").trim_end_matches(".kd").to_owned(),
    }
}

/// Parses ` grid:32,16,2 block:256,1,1 regs:32 static_shared:0 dynamic_shared:1024 …`; AMD has `group_mem:` instead of
/// the shared memory.
pub(super) fn configuration(details: &str) -> Configuration {
    let mut launch = Configuration::default();
    for fact in details.split_ascii_whitespace() {
        let Some((name, value)) = fact.split_once(':') else { continue };
        let extent = || {
            let mut parts = value.split(',').map(|part| part.parse().ok());
            Some([parts.next()??, parts.next()??, parts.next()??])
        };
        match name {
            "grid" => launch.grid = extent(),
            "block" => launch.block = extent(),
            "regs" => launch.registers = value.parse().ok().filter(|count| *count > 0),
            "static_shared" | "group_mem" => launch.shared_memory = value.parse().ok(),
            "dynamic_shared" => launch.dynamic_memory = value.parse().ok(),
            _ => {}
        }
    }
    launch
}

/// Device information of a plane, which has specifications but no name.
pub(super) fn device_info(plane: &Plane<'_>) -> DeviceInfo {
    let whole = |name: &str| plane.stat(name).and_then(Stat::whole).and_then(|number| u64::try_from(number).ok());
    let small = |name: &str| whole(name).and_then(|number| u32::try_from(number).ok()).filter(|number| *number > 0);
    let vendor = plane.stat("device_vendor").map(|stat| plane.text(stat)).unwrap_or_default();
    let (cores, memory) = (small("core_count"), whole("memory_size").filter(|bytes| *bytes > 0));
    let capability = small("compute_cap_major").zip(whole("compute_cap_minor").and_then(|n| u32::try_from(n).ok()));
    DeviceInfo::unnamed(&vendor, capability, cores, memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launch_configurations() {
        let nvidia = configuration("regs:32 static_shared:16 dynamic_shared:1024 grid:8,2,1 block:128,1,1 occ_pct:50");
        assert_eq!((nvidia.grid, nvidia.block, nvidia.registers), (Some([8, 2, 1]), Some([128, 1, 1]), Some(32)));
        assert_eq!((nvidia.shared_memory, nvidia.dynamic_memory), (Some(16), Some(1024)));
        let amd = configuration(" grid:3072,1,1 block:256,1,1 private_mem:0 group_mem:16384 occ_pct:0");
        assert_eq!((amd.shared_memory, amd.registers), (Some(16384), None));
        assert_eq!(configuration("grid:1,2 block: nonsense"), Configuration::default());
    }
}
