//! Finds GPUs of the catalog that a recording may have been made on, if it names none.

use super::{Catalog, DeviceIdentity, GpuSpec, Vendor};
use crate::profile::{DeviceInfo, Profile};
use habitat_base::units::GpuSlug;

/// Maximum number of candidates.
const NAMED: usize = 6;

/// GPUs of the catalog that a profile may have been recorded on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Candidates {
    /// Slugs, most likely first if their likelihoods differ.
    pub gpus: Vec<GpuSlug>,
    /// Evidence in words, if it is not the GPU's name.
    pub why: Option<String>,
}

/// Finds GPUs of the catalog that a profile may have been recorded on, if it names none of them. The result is empty if
/// the GPU is known, nothing was measured, or there is no evidence.
///
/// Evidence is the model in the GPU's name, the figures of an unnamed GPU, or the generation in the names of its
/// kernels.
pub fn candidates(profile: &Profile, catalog: &Catalog) -> Candidates {
    let Some(origin) = profile.origin.as_ref().filter(|origin| catalog.recorded_on(origin).is_none()) else {
        return Candidates::default();
    };
    let slugs = |gpus: Vec<&GpuSpec>| gpus.into_iter().take(NAMED).map(|gpu| gpu.slug.clone()).collect::<Vec<_>>();
    let name = origin.gpu_name.as_deref().unwrap_or_default();
    if let Some(figures) = name.strip_prefix(DeviceInfo::UNNAMED) {
        // If no GPU of the catalog has these figures, it is none of them.
        let gpus = figures_of(figures).map_or_else(Vec::new, |(capability, count)| {
            let alike = |gpu: &&GpuSpec| gpu.reported_capability() == Some(capability) && gpu.sm_count == count;
            catalog.iter().filter(alike).collect()
        });
        return Candidates { gpus: slugs(gpus), why: None };
    }
    if !name.is_empty() {
        let identity = DeviceIdentity { name: name.to_owned(), ..DeviceIdentity::default() };
        return Candidates { gpus: slugs(catalog.alike(&identity)), why: None };
    }
    let kernels = profile.operations.iter().flat_map(|operation| &operation.kernels);
    let Some(least) = kernels.filter_map(|kernel| needs(&kernel.name)).max() else { return Candidates::default() };
    let runs = |gpu: &&GpuSpec| gpu.vendor == Vendor::Nvidia && gpu.compute_capability.is_some_and(|own| own >= least);
    let mut gpus: Vec<&GpuSpec> = catalog.iter().filter(runs).collect();
    // Libraries prefer kernels of the GPU's own generation.
    gpus.sort_by_key(|gpu| gpu.compute_capability);
    let why = format!("some of its kernels need compute capability {}.{} or newer", least.0, least.1);
    Candidates { gpus: slugs(gpus), why: Some(why) }
}

/// Parses `compute capability 9.0, 132 multiprocessors`, which describes an unnamed GPU.
fn figures_of(text: &str) -> Option<((u8, u8), u32)> {
    let facts = || text.split(", ");
    let capability = facts().find_map(|fact| fact.strip_prefix("compute capability "))?;
    let count = facts().find_map(|fact| fact.strip_suffix(" multiprocessors"))?;
    let (major, minor) = capability.split_once('.')?;
    Some(((major.parse().ok()?, minor.parse().ok()?), count.parse().ok()?))
}

/// Prefixes that NVIDIA's libraries give to kernels of a generation, seen in traces of these generations and newer
/// ones.
const GENERATIONS: [(&str, (u8, u8)); 5] =
    [("volta_", (7, 0)), ("turing_", (7, 5)), ("ampere_", (8, 0)), ("nvjet_", (9, 0)), ("hopper_", (9, 0))];

/// Minimum compute capability of a kernel from its name: `sm90_xmma_gemm_…`, `cutlass::arch::Sm80`, `volta_sgemm_…`.
fn needs(kernel: &str) -> Option<(u8, u8)> {
    let name = kernel.to_ascii_lowercase();
    let begins = |at: usize| !name[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
    let marks = name.match_indices("sm").filter(|(at, _)| begins(*at)).filter_map(|(at, mark)| {
        let rest = &name[at + mark.len()..];
        let rest = rest.strip_prefix('_').unwrap_or(rest);
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number: u8 = rest[..end].parse().ok()?;
        (30..=129).contains(&number).then_some((number / 10, number % 10))
    });
    let generations = GENERATIONS.iter().filter(|(mark, _)| name.starts_with(mark)).map(|(_, capability)| *capability);
    marks.chain(generations).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_kernels_tell_what_they_need() {
        assert_eq!(needs("sm90_xmma_gemm_bf16bf16_bf16f32"), Some((9, 0)));
        assert_eq!(needs("void cutlass::Kernel<cutlass::arch::Sm80, a_sm_75>"), Some((8, 0)));
        assert_eq!(needs("mxfp8_quantize_sm100"), Some((10, 0)));
        assert_eq!(needs("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN"), Some((9, 0)));
        assert_eq!(needs("volta_sgemm_128x64_tn"), Some((7, 0)));
        for other in ["softmax_warp_forward", "smem_16", "gsm90", "sm_", "sm9999", ""] {
            assert_eq!(needs(other), None, "{other}");
        }
    }

    #[test]
    fn figures_of_a_board_without_a_name() {
        let figures = "NVIDIA GPU, compute capability 9.0, 132 multiprocessors, 85 GB";
        assert_eq!(figures_of(figures), Some(((9, 0), 132)));
        assert_eq!(figures_of("AMD GPU, 304 multiprocessors"), None);
    }
}
