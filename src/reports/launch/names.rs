//! Names of providers and GPUs in tools that rent them.
//!
//! Names of `SkyPilot` are from its catalogs and the scripts that make them (`sky/catalog/data_fetchers` of 0.14.1),
//! those of dstack from gpuhunt 0.1.34 (`constraints.py`, `providers/`), those in Kubernetes are the driver's names, as
//! NVIDIA's GPU feature discovery labels machines with them (`nvidia.com/gpu.product`).

use super::Launcher;
use habitat_planning::pricing::Offer;

/// Providers: name in the price book, in `SkyPilot`, in dstack; empty if the tool does not support it.
const PROVIDERS: [(&str, &str, &str); 20] = [
    ("aws", "aws", "aws"),
    ("azure", "azure", "azure"),
    ("crusoe", "", "crusoe"),
    ("do", "do", "digitalocean"),
    ("fluidstack", "fluidstack", ""),
    ("gcp", "gcp", "gcp"),
    ("hotaisle", "", "hotaisle"),
    ("hyperbolic", "hyperbolic", ""),
    ("hyperstack", "", ""),
    ("jarvislabs", "", "jarvislabs"),
    ("lambda", "lambda", "lambda"),
    ("nebius", "nebius", "nebius"),
    ("oci", "oci", "oci"),
    ("paperspace", "paperspace", ""),
    ("primeintellect", "primeintellect", ""),
    ("runpod", "runpod", "runpod"),
    ("vast", "vast", "vastai"),
    ("verda", "verda", "verda"),
    ("vultr", "", "vultr"),
    ("yottalabs", "yotta", ""),
];

/// Providers on which `SkyPilot` cannot start a job on several machines (`MULTI_NODE` in `sky/clouds` of 0.14.1).
const SKYPILOT_SINGLE: [&str; 6] = ["hyperbolic", "primeintellect", "runpod", "vast", "verda", "yottalabs"];
/// The same for dstack (`ComputeWithMultinodeSupport` in `core/backends` of 0.22.5).
const DSTACK_SINGLE: [&str; 5] = ["do", "hotaisle", "lambda", "vast", "verda"];

/// Whether a tool can start a job on several machines of a provider.
pub(super) fn joins(launcher: Launcher, provider: &str) -> bool {
    match launcher {
        Launcher::SkyPilot => !SKYPILOT_SINGLE.contains(&provider),
        Launcher::Dstack => !DSTACK_SINGLE.contains(&provider),
        Launcher::Slurm | Launcher::Kubernetes => true,
    }
}

/// Providers at which `SkyPilot` cannot mount buckets (`STORAGE_MOUNTING` in `sky/clouds` of 0.14.1).
const SKYPILOT_UNMOUNTED: [&str; 5] = ["hyperbolic", "runpod", "vast", "verda", "yottalabs"];

/// Whether `SkyPilot` can mount a bucket at a provider.
pub(super) fn mounts_buckets(provider: &str) -> bool {
    !SKYPILOT_UNMOUNTED.contains(&provider)
}

/// Whether `network_tier: best` of `SkyPilot` joins machines by a fast network: EFA at AWS, if the machine has it, and
/// `InfiniBand` at Nebius (`INFINIBAND_ACCELERATORS` in `sky/provision/nebius` of 0.14.1). Other providers refuse the key
/// or, as GCP, change the machine's image with it.
pub(super) fn is_fast_network(provider: &str, gpu: &str, gpu_count: u32) -> bool {
    let is_infiniband = || gpu_count == 8 && ["H100", "H200", "B200", "B300"].contains(&gpu);
    provider == "aws" || (provider == "nebius" && is_infiniband())
}

/// Name of a provider in a tool that rents machines; `None` if the tool does not support it.
pub(super) fn provider(launcher: Launcher, name: &str) -> Option<&'static str> {
    let (_, skypilot, dstack) = PROVIDERS.iter().find(|(provider, ..)| *provider == name)?;
    let name = if launcher == Launcher::SkyPilot { skypilot } else { dstack };
    Some(*name).filter(|name| !name.is_empty())
}

/// All providers that a tool supports, by their names in the price book.
pub(super) fn providers(launcher: Launcher) -> Vec<&'static str> {
    let all = PROVIDERS.iter().map(|(name, ..)| *name);
    all.filter(|name| provider(launcher, name).is_some()).collect()
}

/// Providers whose offers have the machine types of their own interface, which tools use too. Prices of the others are
/// listed by GPU.
const TYPED: [&str; 9] = ["aws", "azure", "do", "fluidstack", "gcp", "hyperbolic", "lambda", "oci", "verda"];

/// Types of lambda's machines with one GPU: `SkyPilot` has one name for two boards and would take the cheaper one:
/// slug and type, as lambda's interface has it.
const LAMBDA: [(&str, &str); 4] = [
    ("a100-pcie-40gb", "gpu_1x_a100"),
    ("a100-sxm4-40gb", "gpu_1x_a100_sxm4"),
    ("h100-pcie-80gb", "gpu_1x_h100_pcie"),
    ("h100-sxm5-80gb", "gpu_1x_h100_sxm5"),
];

/// Machine type of an offer, as the provider and the tools name it; `None` if the price list describes the machine in
/// words.
pub(super) fn instance_type(offer: &Offer) -> Option<&str> {
    if offer.provider == "lambda"
        && offer.gpu_count == 1
        && let Some((_, name)) =
            LAMBDA.iter().find(|(slug, _)| offer.gpu.as_ref().is_some_and(|gpu| gpu.as_str() == *slug))
    {
        return Some(name);
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || "._-:".contains(c);
    let name = Some(offer.instance_type.as_str()).filter(|name| !name.is_empty() && name.chars().all(is_name))?;
    TYPED.contains(&offer.provider.as_str()).then_some(name)
}

/// GPUs: slug in the catalog, name in `SkyPilot`, name and memory in dstack; empty if the tool does not have it.
const GPUS: [(&str, &str, &str); 70] = [
    ("a10", "A10", "A10:24GB"),
    ("a100-pcie-40gb", "A100", "A100:40GB"),
    ("a100-pcie-80gb", "A100-80GB", "A100:80GB"),
    ("a100-sxm4-40gb", "A100", "A100:40GB"),
    ("a100-sxm4-80gb", "A100-80GB", "A100:80GB"),
    ("a10g", "A10G", "A10G:24GB"),
    ("a30", "A30", "A30:24GB"),
    ("a40", "A40", "A40:48GB"),
    ("b200", "B200", "B200:180GB"),
    // Listed with 268 to 270 GB.
    ("b300", "B300", "B300:268GB.."),
    ("gb200", "", "GB200:186GB"),
    ("gb300", "", "GB300:270GB.."),
    ("gh200-96gb", "GH200", "GH200:96GB"),
    ("h100-nvl", "H100-NVL", "H100NVL:94GB"),
    ("h100-pcie-80gb", "H100", "H100:80GB"),
    ("h100-sxm5-80gb", "H100", "H100:80GB"),
    ("h200-nvl-141gb", "H200-NVL", "H200NVL:141GB"),
    ("h200-sxm-141gb", "H200", "H200:141GB"),
    ("k80", "K80", ""),
    ("l4", "L4", "L4:24GB"),
    ("l40", "L40", "L40:48GB"),
    ("l40s", "L40S", "L40S:48GB"),
    ("m60", "M60", ""),
    ("mi300x", "MI300X", "MI300X:192GB"),
    ("mi325x", "", "MI325X:256GB.."),
    ("mi355x", "", "MI355X:288GB"),
    ("p100-pcie-16gb", "P100", "P100:16GB"),
    ("p4", "P4", ""),
    ("quadro-p4000", "P4000", ""),
    ("quadro-rtx-5000", "RTX5000", ""),
    ("quadro-rtx-6000", "RTX6000", "RTX6000:24GB"),
    ("rtx-2000-ada", "RTX2000-Ada", "RTX2000Ada:16GB"),
    ("rtx-3060", "RTX3060", "RTX3060:12GB"),
    ("rtx-3060-ti", "RTX3060-Ti", "RTX3060Ti:8GB"),
    ("rtx-3070", "RTX3070", "RTX3070:8GB"),
    ("rtx-3080", "RTX3080", "RTX3080:10GB"),
    ("rtx-3080-ti", "RTX3080-Ti", "RTX3080Ti:12GB"),
    ("rtx-3090", "RTX3090", "RTX3090:24GB"),
    ("rtx-3090-ti", "RTX3090-Ti", "RTX3090Ti:24GB"),
    ("rtx-4000-ada", "RTX4000-Ada", "RTX4000Ada:20GB"),
    ("rtx-4060-ti-16gb", "RTX4060-Ti", "RTX4060Ti:16GB"),
    ("rtx-4070", "RTX4070", "RTX4070:12GB"),
    ("rtx-4070-ti", "RTX4070-Ti", "RTX4070Ti:12GB"),
    ("rtx-4070-ti-super", "RTX4070-Ti-SUPER", "RTX4070TiSUPER:16GB"),
    ("rtx-4080", "RTX4080", "RTX4080:16GB"),
    ("rtx-4080-super", "RTX4080-SUPER", "RTX4080SUPER:16GB"),
    ("rtx-4090", "RTX4090", "RTX4090:24GB"),
    ("rtx-5000-ada", "RTX5000-Ada", ""),
    ("rtx-5060-ti-16gb", "RTX5060-Ti", "RTX5060Ti:16GB"),
    ("rtx-5070", "RTX5070", "RTX5070:12GB"),
    ("rtx-5070-ti", "RTX5070-Ti", "RTX5070Ti:16GB"),
    ("rtx-5080", "RTX5080", "RTX5080:16GB"),
    ("rtx-5090", "RTX5090", "RTX5090:32GB"),
    ("rtx-5880-ada", "RTX5880-Ada", "RTX5880Ada:48GB"),
    ("rtx-6000-ada", "RTX6000-Ada", "RTX6000Ada:48GB"),
    ("rtx-a4000", "RTXA4000", "A4000:16GB"),
    ("rtx-a4500", "RTXA4500", "A4500:20GB"),
    ("rtx-a5000", "RTXA5000", "A5000:24GB"),
    ("rtx-a6000", "RTXA6000", "A6000:48GB"),
    ("rtx-pro-4000-blackwell", "RTXPRO4000", ""),
    ("rtx-pro-4500-blackwell", "RTXPRO4500", "RTXPRO4500:32GB"),
    ("rtx-pro-5000-blackwell", "RTXPRO5000", ""),
    ("rtx-pro-6000-blackwell", "RTXPRO6000", "RTXPRO6000:96GB"),
    ("rtx-pro-6000-blackwell-max-q", "RTXPRO6000-MaxQ", "RTXPRO6000:96GB"),
    ("rtx-pro-6000-blackwell-server", "RTXPRO6000", "RTXPRO6000:96GB"),
    ("t4", "T4", "T4:16GB"),
    ("v100-pcie-16gb", "V100", "V100:16GB"),
    ("v100-pcie-32gb", "V100-32GB", "V100:32GB"),
    ("v100-sxm2-16gb", "V100", "V100:16GB"),
    ("v100-sxm2-32gb", "V100-32GB", "V100:32GB"),
];

/// Exceptions for `SkyPilot`: provider, slug, prefix of the instance type, name; empty if `SkyPilot` uses one name for
/// several GPUs.
const SKYPILOT_OTHERWISE: [(&str, &str, &str, &str); 18] = [
    ("azure", "h100-nvl", "", "H100"),
    ("fluidstack", "a100-sxm4-80gb", "", "A100-80GB-SXM"),
    ("fluidstack", "h100-sxm5-80gb", "", "H100-SXM"),
    ("gcp", "h100-sxm5-80gb", "a3-megagpu", "H100-MEGA"),
    ("lambda", "rtx-a6000", "", "A6000"),
    ("paperspace", "rtx-a4000", "", "A4000"),
    ("runpod", "a100-sxm4-80gb", "", "A100-80GB-SXM"),
    ("runpod", "h100-sxm5-80gb", "", "H100-SXM"),
    ("runpod", "h200-sxm-141gb", "", "H200-SXM"),
    ("runpod", "rtx-pro-6000-blackwell", "", "RTXPRO6000-WK"),
    // fetch_vast.py drops PCIE, SXM, NVL, Ti and the memory from Vast's names.
    ("vast", "a100-", "", ""),
    ("vast", "h100-", "", ""),
    ("vast", "rtx-3060-ti", "", ""),
    ("vast", "rtx-4060-ti", "", ""),
    ("vast", "rtx-4070-ti", "", ""),
    ("vast", "v100-", "", ""),
    ("vast", "rtx-pro-6000-blackwell-server", "", "RTXPRO6000S"),
    ("vast", "rtx-pro-6000-blackwell", "", "RTXPRO6000WS"),
];

/// Exceptions for dstack: provider, slug, name and memory; empty if dstack does not list the provider's machines with
/// this GPU.
const DSTACK_OTHERWISE: [(&str, &str, &str); 10] = [
    ("aws", "v100-", ""),
    ("azure", "h100-sxm5-80gb", ""),
    ("azure", "mi300x", ""),
    ("gcp", "h200-", ""),
    ("gcp", "p100-", ""),
    ("lambda", "quadro-rtx-6000", "RTX6000:24GB"),
    ("verda", "rtx-5090", ""),
    ("vast", "rtx-4070-ti-super", "RTX4070STi:16GB"),
    ("vast", "rtx-pro-6000-blackwell-server", "RTXPRO6000S:96GB"),
    ("vast", "rtx-pro-6000-blackwell", "RTXPRO6000WS:96GB"),
];

/// Name of a provider's GPU in `SkyPilot`.
pub(super) fn skypilot_gpu(provider: &str, slug: &str, instance_type: &str) -> Result<&'static str, &'static str> {
    let otherwise = SKYPILOT_OTHERWISE.iter().find(|(where_, gpu, machine, _)| {
        *where_ == provider && slug.starts_with(gpu) && instance_type.starts_with(machine)
    });
    let usual = || GPUS.iter().find(|(gpu, name, _)| *gpu == slug && !name.is_empty()).map(|(_, name, _)| *name);
    match otherwise.map(|(.., name)| *name).or_else(usual) {
        Some("") => Err("its name for this GPU is ambiguous at this provider"),
        Some(name) => Ok(name),
        None => Err("its name for this GPU is unknown"),
    }
}

/// Name of a provider's GPU in dstack, with its memory.
pub(super) fn dstack_gpu(provider: &str, slug: &str) -> Result<&'static str, &'static str> {
    let otherwise = DSTACK_OTHERWISE.iter().find(|(where_, gpu, _)| *where_ == provider && slug.starts_with(gpu));
    if let Some((.., name)) = otherwise {
        return if name.is_empty() { Err("it does not list this GPU at this provider") } else { Ok(name) };
    }
    match GPUS.iter().find(|(gpu, ..)| *gpu == slug).map(|(.., name)| *name) {
        Some("") | None => Err("it does not know this GPU"),
        Some(name) => Ok(name),
    }
}

/// GPUs: slug in the catalog, name of the driver with dashes.
const PRODUCTS: [(&str, &str); 61] = [
    ("a10", "NVIDIA-A10"),
    ("a100-pcie-40gb", "NVIDIA-A100-PCIE-40GB"),
    ("a100-pcie-80gb", "NVIDIA-A100-80GB-PCIe"),
    ("a100-sxm4-40gb", "NVIDIA-A100-SXM4-40GB"),
    ("a100-sxm4-80gb", "NVIDIA-A100-SXM4-80GB"),
    ("a10g", "NVIDIA-A10G"),
    ("a30", "NVIDIA-A30"),
    ("a40", "NVIDIA-A40"),
    ("b200", "NVIDIA-B200"),
    ("gb200", "NVIDIA-GB200"),
    ("gh200-96gb", "NVIDIA-GH200-480GB"),
    ("h100-nvl", "NVIDIA-H100-NVL"),
    ("h100-pcie-80gb", "NVIDIA-H100-PCIe"),
    ("h100-sxm5-80gb", "NVIDIA-H100-80GB-HBM3"),
    ("h200-nvl-141gb", "NVIDIA-H200-NVL"),
    ("h200-sxm-141gb", "NVIDIA-H200"),
    ("k80", "Tesla-K80"),
    ("l4", "NVIDIA-L4"),
    ("l40", "NVIDIA-L40"),
    ("l40s", "NVIDIA-L40S"),
    ("m60", "Tesla-M60"),
    ("p100-pcie-16gb", "Tesla-P100-PCIE-16GB"),
    ("p4", "Tesla-P4"),
    ("quadro-p4000", "Quadro-P4000"),
    ("quadro-rtx-5000", "Quadro-RTX-5000"),
    ("quadro-rtx-6000", "Quadro-RTX-6000"),
    ("rtx-2000-ada", "NVIDIA-RTX-2000-Ada-Generation"),
    ("rtx-2080-ti", "NVIDIA-GeForce-RTX-2080-Ti"),
    ("rtx-3060", "NVIDIA-GeForce-RTX-3060"),
    ("rtx-3060-ti", "NVIDIA-GeForce-RTX-3060-Ti"),
    ("rtx-3070", "NVIDIA-GeForce-RTX-3070"),
    ("rtx-3080", "NVIDIA-GeForce-RTX-3080"),
    ("rtx-3080-ti", "NVIDIA-GeForce-RTX-3080-Ti"),
    ("rtx-3090", "NVIDIA-GeForce-RTX-3090"),
    ("rtx-3090-ti", "NVIDIA-GeForce-RTX-3090-Ti"),
    ("rtx-4000-ada", "NVIDIA-RTX-4000-Ada-Generation"),
    ("rtx-4070", "NVIDIA-GeForce-RTX-4070"),
    ("rtx-4070-ti", "NVIDIA-GeForce-RTX-4070-Ti"),
    ("rtx-4070-ti-super", "NVIDIA-GeForce-RTX-4070-Ti-SUPER"),
    ("rtx-4080", "NVIDIA-GeForce-RTX-4080"),
    ("rtx-4080-super", "NVIDIA-GeForce-RTX-4080-SUPER"),
    ("rtx-4090", "NVIDIA-GeForce-RTX-4090"),
    ("rtx-5000-ada", "NVIDIA-RTX-5000-Ada-Generation"),
    ("rtx-5070", "NVIDIA-GeForce-RTX-5070"),
    ("rtx-5070-ti", "NVIDIA-GeForce-RTX-5070-Ti"),
    ("rtx-5080", "NVIDIA-GeForce-RTX-5080"),
    ("rtx-5090", "NVIDIA-GeForce-RTX-5090"),
    ("rtx-5880-ada", "NVIDIA-RTX-5880-Ada-Generation"),
    ("rtx-6000-ada", "NVIDIA-RTX-6000-Ada-Generation"),
    ("rtx-a4000", "NVIDIA-RTX-A4000"),
    ("rtx-a4500", "NVIDIA-RTX-A4500"),
    ("rtx-a5000", "NVIDIA-RTX-A5000"),
    ("rtx-a6000", "NVIDIA-RTX-A6000"),
    ("rtx-pro-6000-blackwell", "NVIDIA-RTX-PRO-6000-Blackwell-Workstation-Edition"),
    ("rtx-pro-6000-blackwell-max-q", "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition"),
    ("rtx-pro-6000-blackwell-server", "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"),
    ("t4", "Tesla-T4"),
    ("v100-pcie-16gb", "Tesla-V100-PCIE-16GB"),
    ("v100-pcie-32gb", "Tesla-V100-PCIE-32GB"),
    ("v100-sxm2-16gb", "Tesla-V100-SXM2-16GB"),
    ("v100-sxm2-32gb", "Tesla-V100-SXM2-32GB"),
];

/// Label of a machine with this GPU in Kubernetes; `None` if it is unknown, as for GPUs of AMD.
pub(super) fn product(slug: &str) -> Option<&'static str> {
    PRODUCTS.iter().find(|(gpu, _)| *gpu == slug).map(|(_, name)| *name)
}
