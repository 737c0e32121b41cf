//! Google's part of the SkyPilot catalogs. The price of a machine is the sum of a row for its GPUs and a row for its
//! host in the same zone.
//!
//! `sky/catalog/data_fetchers/fetch_gcp.py` and `sky/catalog/gcp_catalog.py` of `skypilot-org/skypilot` choose the host
//! of a GPU.

use std::collections::HashMap;

use super::{Listed, board};

/// Sizes of the `n1-highmem` hosts for older GPUs.
const N1_VCPUS: [u32; 7] = [2, 4, 8, 16, 32, 64, 96];

const BELOW_SPOT: &str = "the on-demand price is below the spot price: probably a discounted one";
const BELOW_OTHERS: &str = "the on-demand price is far below that of other regions: probably a discounted one";
const TWO_FIGURES: &str = "the on-demand prices of regions differ by a factor of 1.4, unknown which is right";

/// An on-demand price below this share of that in the most expensive region is a discounted one, since regions differ
/// by less.
const LEAST_SHARE: f64 = 0.6;

/// Rows of whole machines if the host is known and listed, otherwise of the GPUs alone; and the number of hosts without
/// a GPU.
pub(super) fn composed(mut gpus: Vec<Listed>, hosts: &[Listed]) -> (Vec<Listed>, usize) {
    mark_suspects(&mut gpus);
    let by_place: HashMap<(&str, &str), &Listed> =
        hosts.iter().map(|host| ((host.zone.as_str(), host.instance_type.as_str()), host)).collect();
    let mut used = std::collections::HashSet::new();
    let mut rows = Vec::new();
    for gpu in gpus {
        let names = hosts_of(&gpu.gpu_name, gpu.gpu_count);
        let found: Vec<&Listed> =
            names.iter().filter_map(|name| by_place.get(&(gpu.zone.as_str(), name.as_str())).copied()).collect();
        used.extend(found.iter().map(|host| (host.zone.as_str(), host.instance_type.as_str())));
        // A row with an instance type is already a whole machine (a TPU).
        if !gpu.instance_type.is_empty() {
            rows.push(gpu);
        } else if found.is_empty() {
            rows.push(alone(gpu));
        } else {
            rows.extend(found.into_iter().map(|host| sum(&gpu, host)));
        }
    }
    (rows, by_place.len() - used.len())
}

fn mark_suspects(gpus: &mut [Listed]) {
    let mut unit_prices: HashMap<String, Vec<f64>> = HashMap::new();
    let unit = |gpu: &Listed| gpu.on_demand.map(|price| price / f64::from(gpu.gpu_count.max(1)));
    for gpu in gpus.iter() {
        unit_prices.entry(gpu.gpu_name.clone()).or_default().extend(unit(gpu));
    }
    for gpu in gpus {
        let Some(own) = unit(gpu) else { continue };
        let others = &unit_prices[&gpu.gpu_name];
        let is_factor = |other: &f64| ((own / other).max(other / own) - 1.4).abs() < 1e-3;
        gpu.suspect = if gpu.spot.zip(gpu.on_demand).is_some_and(|(spot, on_demand)| spot > on_demand) {
            Some(BELOW_SPOT)
        } else if others.iter().any(|other| own < LEAST_SHARE * other) {
            Some(BELOW_OTHERS)
        } else if gpu.gpu_name == "B200" && others.iter().any(is_factor) {
            Some(TWO_FIGURES)
        } else {
            None
        };
    }
}

/// Hosts for a number of GPUs of a kind.
fn hosts_of(gpu: &str, count: u32) -> Vec<String> {
    let one = |name: String| vec![name];
    match (gpu, count) {
        ("A100", 16) => one("a2-megagpu-16g".to_owned()),
        ("A100", _) => one(format!("a2-highgpu-{count}g")),
        ("A100-80GB", _) => one(format!("a2-ultragpu-{count}g")),
        ("H100", _) => one(format!("a3-highgpu-{count}g")),
        ("H100-MEGA", _) => one(format!("a3-megagpu-{count}g")),
        ("H200", _) => one(format!("a3-ultragpu-{count}g")),
        ("B200", _) => one(format!("a4-highgpu-{count}g")),
        ("L4", 1) => [4, 8, 12, 16, 32].map(|vcpus| format!("g2-standard-{vcpus}")).to_vec(),
        ("L4", 2 | 4 | 8) => one(format!("g2-standard-{}", 12 * count)),
        ("T4", 1) => n1(4),
        ("T4", 2) => n1(8),
        ("T4", 4) => n1(48),
        ("P4" | "P100" | "V100" | "K80", _) => n1(count.saturating_mul(8)),
        _ => Vec::new(),
    }
}

fn n1(vcpus: u32) -> Vec<String> {
    N1_VCPUS.iter().find(|size| **size >= vcpus).map(|size| format!("n1-highmem-{size}")).into_iter().collect()
}

fn alone(gpu: Listed) -> Listed {
    Listed {
        instance_type: format!("(gpu only) {}x{}", gpu.gpu_name, gpu.gpu_count),
        is_without_host: true,
        note: Some("price of the GPUs only; the host is not in the catalog".to_owned()),
        ..gpu
    }
}

fn sum(gpu: &Listed, host: &Listed) -> Listed {
    // The price of the GPUs includes a host without a price.
    let both = |gpu: Option<f64>, host: f64| gpu.map(|gpu| board::rounded(gpu + host));
    let host_on_demand = host.on_demand.unwrap_or(0.0);
    let has_spot = host.spot.is_some() || host_on_demand == 0.0;
    let is_n1 = host.instance_type.starts_with("n1-");
    let ssd = if ["a2-ultragpu", "a3-"].iter().any(|name| host.instance_type.starts_with(name)) {
        "; without local SSD"
    } else {
        ""
    };
    Listed {
        instance_type: if is_n1 {
            format!("{}+{}x{}", host.instance_type, gpu.gpu_name, gpu.gpu_count)
        } else {
            host.instance_type.clone()
        },
        vcpus: host.vcpus,
        host_memory_gib: host.host_memory_gib,
        on_demand: both(gpu.on_demand, host_on_demand),
        spot: both(gpu.spot.filter(|_| has_spot), host.spot.unwrap_or(0.0)),
        is_composed: true,
        note: Some(format!(
            "sum of GPUs {} and host {host_on_demand}{ssd}",
            gpu.on_demand.map_or_else(|| "(spot only)".to_owned(), |price| price.to_string())
        )),
        ..gpu.clone()
    }
}
