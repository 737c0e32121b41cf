//! Which GPUs of the catalog a recording may have been made on, where it does not name one.

use habitat_base::units::GpuSlug;
use habitat_step::catalog::{Catalog, DeviceIdentity, GpuSpec, Vendor};
use habitat_step::profile::DeviceInfo;
use habitat_step::profile::{Origin, Profile};

/// GPUs named at most.
const NAMED: usize = 6;

pub(super) fn known<'a>(origin: &Origin, catalog: &'a Catalog) -> Option<&'a GpuSpec> {
    origin.gpu.as_ref().and_then(|slug| catalog.get(slug))
}

/// GPUs of the catalog that a profile may have been recorded on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Candidates {
    /// Their slugs, the likeliest first where one is likelier.
    pub gpus: Vec<GpuSlug>,
    /// What tells, in words, where it is not the name.
    pub why: Option<String>,
}

/// Which GPUs of the catalog a profile may have been recorded on, where it does not name one
/// of them; none where it does, where nothing was measured, and where nothing tells.
///
/// By the GPU's model in its name; by the figures of a GPU without a name; by the
/// generation that the names of the kernels tell.
pub fn candidates(profile: &Profile, catalog: &Catalog) -> Candidates {
    let Some(origin) = profile.origin.as_ref().filter(|origin| known(origin, catalog).is_none()) else {
        return Candidates::default();
    };
    let slugs = |gpus: Vec<&GpuSpec>| gpus.into_iter().take(NAMED).map(|gpu| gpu.slug.clone()).collect::<Vec<_>>();
    let name = origin.gpu_name.as_deref().unwrap_or_default();
    if let Some(figures) = name.strip_prefix(DeviceInfo::UNNAMED) {
        // Figures that no GPU of the catalog has say that it is none of them.
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
    // Libraries choose the kernels of the GPU's own generation where they have any.
    gpus.sort_by_key(|gpu| gpu.compute_capability);
    let why = format!("some of its kernels need compute capability {}.{} or newer", least.0, least.1);
    Candidates { gpus: slugs(gpus), why: Some(why) }
}

/// `compute capability 9.0, 132 multiprocessors` of a GPU without a name.
fn figures_of(text: &str) -> Option<((u8, u8), u32)> {
    let facts = || text.split(", ");
    let capability = facts().find_map(|fact| fact.strip_prefix("compute capability "))?;
    let count = facts().find_map(|fact| fact.strip_suffix(" multiprocessors"))?;
    let (major, minor) = capability.split_once('.')?;
    Some(((major.parse().ok()?, minor.parse().ok()?), count.parse().ok()?))
}

/// Names that NVIDIA's libraries give to kernels of a generation; seen in traces of these
/// generations and of newer ones.
const GENERATIONS: [(&str, (u8, u8)); 5] =
    [("volta_", (7, 0)), ("turing_", (7, 5)), ("ampere_", (8, 0)), ("nvjet_", (9, 0)), ("hopper_", (9, 0))];

/// The compute capability that a kernel needs at least, as its name tells:
/// `sm90_xmma_gemm_…`, `cutlass::arch::Sm80`, `volta_sgemm_…`.
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

/// Which GPU it is to be said to be, for a message.
pub(super) fn choice(candidates: &Candidates, near: &[String]) -> String {
    let gpus: Vec<&str> = candidates.gpus.iter().map(GpuSlug::as_str).collect();
    match (gpus.as_slice(), near) {
        ([], []) => String::new(),
        ([], near) => format!(" (near: {})", near.join(", ")),
        ([one], _) => format!(" {one}"),
        (several, _) => format!(" (it may be {})", several.join(", ")),
    }
}

/// What is known of the GPU, for a message.
pub(super) fn named(name: Option<&str>, candidates: &Candidates) -> String {
    let why = candidates.why.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
    name.map_or_else(
        || format!("the profile does not say which GPU it was recorded on{why}"),
        |name| format!("the profile was recorded on {name:?}, which the catalog does not have"),
    )
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
