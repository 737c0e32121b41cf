//! Matches a recording's GPU with the catalog by the driver's name and the specifications.

use std::collections::BTreeSet;

use super::{Catalog, GpuSpec, Vendor};
use habitat_base::text;
use habitat_base::units::{GIB, GpuSlug};

/// Facts about the GPU of a recording.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceIdentity {
    /// Name from the driver.
    pub name: String,
    /// CUDA compute capability.
    pub compute_capability: Option<(u8, u8)>,
    /// Number of multiprocessors.
    pub sm_count: Option<u32>,
    /// Device memory in bytes.
    pub memory_bytes: Option<u64>,
}

/// Reason why a recording's GPU does not match the catalog.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unrecognised {
    /// No GPU of the catalog has this name.
    #[error("no GPU in the catalog matches {name:?}")]
    Name {
        /// Name from the driver, or specifications of a GPU without a name.
        name: String,
    },
    /// A MIG slice.
    #[error(
        "{name:?} is a MIG slice of {whole} ({found}; the whole GPU has {expected}): predictions for the whole GPU do not apply to it"
    )]
    Slice {
        /// Name from the driver.
        name: String,
        /// The whole GPU.
        whole: GpuSlug,
        /// Specifications in the recording.
        found: String,
        /// Specifications of the whole GPU.
        expected: String,
    },
    /// A GPU of the catalog has the name but other specifications.
    #[error(
        "{name:?} is {known} in the catalog, with {expected}, but the recording has {found}: another variant, or part of a GPU"
    )]
    Figures {
        /// Name from the driver.
        name: String,
        /// The catalog's GPU with this name.
        known: GpuSlug,
        /// Specifications in the recording.
        found: String,
        /// Specifications in the catalog.
        expected: String,
    },
    /// Several GPUs of the catalog match.
    #[error("{name:?} may be {}", list(.fitting))]
    Several {
        /// Name from the driver, or specifications of a GPU without a name.
        name: String,
        /// The matching GPUs.
        fitting: Vec<GpuSlug>,
    },
}

fn list(slugs: &[GpuSlug]) -> String {
    slugs.iter().map(GpuSlug::as_str).collect::<Vec<_>>().join(" or ")
}

impl DeviceIdentity {
    /// Whether the name contains a model: drivers call unknown GPUs "Graphics Device".
    fn has_model(&self) -> bool {
        !words(&self.name).is_empty()
    }

    fn is_mig(&self) -> bool {
        words(&self.name).iter().any(|word| word == "mig")
    }

    /// Multiprocessors and memory, for display.
    fn figures(&self) -> String {
        let facts = [
            self.sm_count.map(|count| format!("{count} multiprocessors")),
            self.memory_bytes.map(|bytes| format!("{:.1} GiB", bytes as f64 / GIB)),
        ];
        let facts: Vec<String> = facts.into_iter().flatten().collect();
        if facts.is_empty() { "no specifications recorded".to_owned() } else { facts.join(", ") }
    }

    fn has_capability_of(&self, gpu: &GpuSpec) -> bool {
        let (recorded, own) = (self.compute_capability, gpu.reported_capability());
        recorded.is_none() || own.is_none() || recorded == own
    }

    fn has_figures_of(&self, gpu: &GpuSpec) -> bool {
        self.sm_count.is_none_or(|count| count == gpu.sm_count)
            && self.memory_bytes.is_none_or(|bytes| memory_agrees(bytes as f64, gpu.memory.get()))
    }
}

impl GpuSpec {
    /// Compute capability that drivers report. For AMD's GPUs it is the major and minor number of the instruction set,
    /// such as 9 and 4 of gfx942 (`hipDeviceProp_t`).
    pub fn reported_capability(&self) -> Option<(u8, u8)> {
        self.compute_capability.or(match (self.vendor, self.architecture.as_str()) {
            (Vendor::Amd, "CDNA 1" | "CDNA 2") => Some((9, 0)),
            (Vendor::Amd, "CDNA 3") => Some((9, 4)),
            (Vendor::Amd, "CDNA 4") => Some((9, 5)),
            _ => None,
        })
    }

    fn figures(&self) -> String {
        format!("{} multiprocessors, {:.0} GiB", self.sm_count, self.memory.get() / GIB)
    }
}

impl Catalog {
    /// The GPU of a recording, from its name and specifications. Without a name, the specifications must match exactly
    /// one GPU.
    ///
    /// # Errors
    /// [`Unrecognised`] with the reason.
    pub fn recognise(&self, identity: &DeviceIdentity) -> Result<&GpuSpec, Unrecognised> {
        let name = text::clean(identity.name.trim(), 120);
        let name = if name.is_empty() { identity.figures() } else { name };
        let slugs = |gpus: &[&GpuSpec]| gpus.iter().map(|gpu| gpu.slug.clone()).collect::<Vec<_>>();
        if !identity.has_model() {
            return match self.with_figures(identity)[..] {
                [only] => Ok(only),
                [] => Err(Unrecognised::Name { name }),
                ref several => Err(Unrecognised::Several { name, fitting: slugs(several) }),
            };
        }
        if let Some(found) = self.identify(identity) {
            return Ok(found);
        }
        let fitting = if identity.is_mig() { Vec::new() } else { self.alike(identity) };
        if !fitting.is_empty() {
            return Err(Unrecognised::Several { name, fitting: slugs(&fitting) });
        }
        let named = self.of_name(identity);
        let Some(known) = likeliest(&named, &identity.name) else { return Err(Unrecognised::Name { name }) };
        let (found, expected, slug) = (identity.figures(), known.figures(), known.slug.clone());
        let fewer = identity.sm_count.is_some_and(|count| count < known.sm_count);
        let less = identity.memory_bytes.is_some_and(|bytes| (bytes as f64) < 0.9 * known.memory.get());
        Err(if identity.is_mig() || fewer && less && known.vendor == Vendor::Nvidia {
            Unrecognised::Slice { name, whole: slug, found, expected }
        } else {
            Unrecognised::Figures { name, known: slug, found, expected }
        })
    }

    /// The GPU that a driver calls `identity.name`, distinguished from its siblings by compute capability,
    /// multiprocessors and memory; `None` unless exactly one has the best score.
    ///
    /// Boards that differ only in facts that drivers do not report (SXM or `PCIe` with equal memory and
    /// multiprocessors) are distinguished by the words of the name.
    pub fn identify(&self, identity: &DeviceIdentity) -> Option<&GpuSpec> {
        if identity.is_mig() {
            return None;
        }
        match self.scored(identity).as_slice() {
            [(_, only)] => Some(only),
            [(best, first), (second, _), ..] if best > second => Some(first),
            _ => None,
        }
    }

    /// GPUs of the model that a driver calls `identity.name` with matching specifications, the likeliest first.
    pub fn alike(&self, identity: &DeviceIdentity) -> Vec<&GpuSpec> {
        self.scored(identity).into_iter().map(|(_, gpu)| gpu).collect()
    }

    fn scored(&self, identity: &DeviceIdentity) -> Vec<(i32, &GpuSpec)> {
        self.of_name(identity).into_iter().filter(|(_, gpu)| identity.has_figures_of(gpu)).collect()
    }

    /// GPUs with the driver's name and compute capability, the likeliest first.
    fn of_name(&self, identity: &DeviceIdentity) -> Vec<(i32, &GpuSpec)> {
        // "MI250X / MI250" is one chip on two boards.
        let names: Vec<Vec<String>> = identity.name.split('/').map(words).filter(|name| !name.is_empty()).collect();
        let mut scored: Vec<(i32, &GpuSpec)> = self
            .gpus
            .values()
            .filter(|gpu| identity.has_capability_of(gpu))
            .filter_map(|gpu| Some((names.iter().filter_map(|name| name_score(name, gpu)).max()?, gpu)))
            .collect();
        scored.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        scored
    }

    /// GPUs with these multiprocessors and this memory, and this compute capability if recorded, for recordings without
    /// a GPU name. Empty if multiprocessors or memory are missing.
    pub(crate) fn with_figures(&self, identity: &DeviceIdentity) -> Vec<&GpuSpec> {
        if identity.sm_count.is_none() || identity.memory_bytes.is_none() {
            return Vec::new();
        }
        let fits = |gpu: &&GpuSpec| identity.has_capability_of(gpu) && identity.has_figures_of(gpu);
        self.gpus.values().filter(fits).collect()
    }
}

/// Among GPUs with the best score, the one with the memory size in the driver's name: `80gb` in A100-SXM4-80GB.
fn likeliest<'a>(named: &[(i32, &'a GpuSpec)], name: &str) -> Option<&'a GpuSpec> {
    let (best, first) = named.first()?;
    let name = name.to_lowercase();
    let size = name.split(|c: char| !c.is_ascii_alphanumeric()).find(|word| split_memory(word).is_none());
    let has_size = |gpu: &GpuSpec| size.is_some_and(|size| gpu.slug.as_str().split('-').any(|word| word == size));
    let alike = named.iter().filter(|(score, _)| score == best).map(|(_, gpu)| *gpu);
    alike.into_iter().find(|gpu| has_size(gpu)).or(Some(first))
}

/// Whether a reported memory size matches a nominal one. Drivers report 1 to 8 % less than the nominal size (ECC,
/// firmware), in powers of two.
fn memory_agrees(reported: f64, nominal: f64) -> bool {
    (0.90..=1.03).contains(&(reported / nominal))
}

/// Words of a name that identify a board: model numbers and form factors, not vendors.
fn words(name: &str) -> Vec<String> {
    const SILENT: [&str; 13] = [
        "nvidia",
        "amd",
        "tesla",
        "geforce",
        "quadro",
        "graphics",
        "generation",
        "gpu",
        "instinct",
        "radeon",
        "device",
        "corporation",
        "unnamed",
    ];
    name.to_lowercase()
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter_map(split_memory)
        .filter(|word| !word.is_empty() && !SILENT.contains(&word.as_str()))
        .collect()
}

/// Normalises a word. Drops memory sizes such as `32gb`, because the memory is compared separately. `sxm2`, `sxm4` and
/// `sxm5` become one word, but not `sxm3`: the V100 exists as SXM2 and as SXM3.
fn split_memory(word: &str) -> Option<String> {
    if word.strip_suffix("gb").is_some_and(|digits| digits.chars().all(|c| c.is_ascii_digit())) {
        return None;
    }
    Some(match word {
        "sxm2" | "sxm4" | "sxm5" | "dgxs" | "dgx" | "hbm3" => "sxm".to_owned(),
        "pcie" | "pci" => "pcie".to_owned(),
        _ => word.to_owned(),
    })
}

/// Words that mark a different board: an `RTX 2060 SUPER` is not an `RTX 2060`, and a `Laptop GPU` is not a desktop
/// board.
const VARIANTS: [&str; 9] = ["ti", "super", "laptop", "mobile", "max", "sff", "server", "workstation", "d"];

/// Score of a name: shared words add, words in only one of the two names subtract. `None` if a variant word is missing
/// from the GPU's name or the model does not match. The model is the first word with a digit; in names without digits,
/// such as TITAN V, it is all words of the slug.
fn name_score(wanted: &[String], gpu: &GpuSpec) -> Option<i32> {
    let slug = words(gpu.slug.as_str());
    let own: Vec<String> = words(&gpu.name).into_iter().chain(slug.iter().cloned()).collect();
    let has_model = match wanted.iter().find(|word| word.chars().any(|c| c.is_ascii_digit())) {
        Some(model) => own.contains(model),
        None => !slug.is_empty() && slug.iter().all(|word| wanted.contains(word)),
    };
    let is_another = wanted.iter().any(|word| VARIANTS.contains(&word.as_str()) && !own.contains(word));
    if is_another || !has_model {
        return None;
    }
    let shared = wanted.iter().filter(|word| own.contains(word)).count() as i32;
    let missing = wanted.len() as i32 - shared;
    let surplus = own.iter().filter(|word| !wanted.contains(word)).collect::<BTreeSet<_>>().len() as i32;
    Some(4 * shared - 2 * missing - surplus)
}
