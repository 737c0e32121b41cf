//! Names of providers and GPUs in tools that rent them.
//!
//! Names of `SkyPilot` are from its catalogs and the scripts that make them (`sky/catalog/data_fetchers` of 0.14.1),
//! those of dstack from gpuhunt 0.1.34 (`constraints.py`, `providers/`).

use super::Launcher;

/// Providers: name in the price book, in `SkyPilot`, in dstack; empty if the tool does not support it.
pub(super) const PROVIDERS: [(&str, &str, &str); 20] = [
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
        Launcher::Slurm => true,
    }
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
