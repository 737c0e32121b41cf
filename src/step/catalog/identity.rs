//! Which GPU of the catalog a recording was made on: by the name that the driver gives it, and by its figures.

use std::collections::BTreeSet;

use super::{Catalog, GpuSpec, Vendor};
use habitat_base::text;
use habitat_base::units::{GIB, GpuSlug};

/// A recording's facts about its GPU.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceIdentity {
    /// Name the driver gives.
    pub name: String,
    /// CUDA compute capability.
    pub compute_capability: Option<(u8, u8)>,
    /// Multiprocessors.
    pub sm_count: Option<u32>,
    /// Device memory in bytes.
    pub memory_bytes: Option<u64>,
}

/// Why a recording's GPU is none of the catalog's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unrecognised {
    /// No GPU of the catalog has the name.
    #[error("the catalog has no GPU that is {name:?}")]
    Name {
        /// The driver's name, or figures of a GPU without one.
        name: String,
    },
    /// A part of a GPU, as MIG divides them.
    #[error(
        "{name:?} is a MIG slice of {whole} ({found}; the whole GPU has {expected}): predictions from the catalog's figures of the whole GPU do not hold for it"
    )]
    Slice {
        /// The driver's name.
        name: String,
        /// The whole GPU.
        whole: GpuSlug,
        /// What was recorded.
        found: String,
        /// Figures of the whole GPU.
        expected: String,
    },
    /// The name is that of a GPU of the catalog, and its figures are not.
    #[error(
        "the catalog has {name:?} as {known} with {expected}, the recording has {found}: another edition of it, or a part of one"
    )]
    Figures {
        /// The driver's name.
        name: String,
        /// The catalog's GPU of that name.
        known: GpuSlug,
        /// What was recorded.
        found: String,
        /// Figures of the catalog.
        expected: String,
    },
    /// Several GPUs of the catalog fit.
    #[error("{name:?} may be {}", list(.fitting))]
    Several {
        /// The driver's name, or figures of a GPU without one.
        name: String,
        /// These.
        fitting: Vec<GpuSlug>,
    },
}

fn list(slugs: &[GpuSlug]) -> String {
    slugs.iter().map(GpuSlug::as_str).collect::<Vec<_>>().join(" or ")
}

impl DeviceIdentity {
    /// Whether the name has a model in it: drivers call GPUs that they do not know "Graphics Device".
    fn has_model(&self) -> bool {
        !words(&self.name).is_empty()
    }

    fn is_mig(&self) -> bool {
        words(&self.name).iter().any(|word| word == "mig")
    }

    /// Multiprocessors and memory, in words.
    fn figures(&self) -> String {
        let facts = [
            self.sm_count.map(|count| format!("{count} multiprocessors")),
            self.memory_bytes.map(|bytes| format!("{:.1} GiB", bytes as f64 / GIB)),
        ];
        let facts: Vec<String> = facts.into_iter().flatten().collect();
        if facts.is_empty() { "no figures recorded".to_owned() } else { facts.join(", ") }
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
    /// The compute capability that drivers report: of AMD's GPUs the major and minor number of their instruction set,
    /// as 9 and 4 of gfx942 (`hipDeviceProp_t`).
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
    /// The GPU that a recording was made on: by its name and figures, or, if it has no name, by its figures if only one
    /// GPU has them.
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

    /// The GPU a driver calls `identity.name`, distinguished from its siblings by compute
    /// capability, multiprocessors and memory; `None` unless exactly one remains best.
    ///
    /// Boards that differ only in facts that drivers do not report (SXM or `PCIe` with equal
    /// memory and multiprocessors) are distinguished by the words of the name.
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

    /// The GPUs of the model that a driver calls `identity.name`, so far as its figures
    /// agree, the likeliest first.
    pub fn alike(&self, identity: &DeviceIdentity) -> Vec<&GpuSpec> {
        self.scored(identity).into_iter().map(|(_, gpu)| gpu).collect()
    }

    fn scored(&self, identity: &DeviceIdentity) -> Vec<(i32, &GpuSpec)> {
        self.of_name(identity).into_iter().filter(|(_, gpu)| identity.has_figures_of(gpu)).collect()
    }

    /// The GPUs of a driver's name and compute capability, the likeliest first.
    fn of_name(&self, identity: &DeviceIdentity) -> Vec<(i32, &GpuSpec)> {
        // "MI250X / MI250" names two boards of one chip.
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

    /// The GPUs with these multiprocessors and this memory, and this compute capability if it was recorded, for
    /// recordings that do not name theirs; none if one of the former is missing.
    pub fn with_figures(&self, identity: &DeviceIdentity) -> Vec<&GpuSpec> {
        if identity.sm_count.is_none() || identity.memory_bytes.is_none() {
            return Vec::new();
        }
        let fits = |gpu: &&GpuSpec| identity.has_capability_of(gpu) && identity.has_figures_of(gpu);
        self.gpus.values().filter(fits).collect()
    }
}

/// Of GPUs with one name the one with the memory in that name: `80gb` of an A100-SXM4-80GB.
fn likeliest<'a>(named: &[(i32, &'a GpuSpec)], name: &str) -> Option<&'a GpuSpec> {
    let (best, first) = named.first()?;
    let name = name.to_lowercase();
    let size = name.split(|c: char| !c.is_ascii_alphanumeric()).find(|word| split_memory(word).is_none());
    let has_size = |gpu: &GpuSpec| size.is_some_and(|size| gpu.slug.as_str().split('-').any(|word| word == size));
    let alike = named.iter().filter(|(score, _)| score == best).map(|(_, gpu)| *gpu);
    alike.into_iter().find(|gpu| has_size(gpu)).or(Some(first))
}

/// Drivers report 1 to 8 % less than the nominal size (ECC, firmware), in powers of two.
fn memory_agrees(reported: f64, nominal: f64) -> bool {
    (0.90..=1.03).contains(&(reported / nominal))
}

/// The words of a name that identify a board: model numbers and form factors, not makers.
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

/// `32gb` says nothing that the memory size does not; `sxm2`, `sxm4` and `sxm5` are one word, but
/// `sxm3` is another: the V100 exists as SXM2 and as SXM3.
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

/// Words that make a board another one than that without them: an `RTX 2060 SUPER` is no `RTX
/// 2060`, and no desktop board is a `Laptop GPU`.
const VARIANTS: [&str; 9] = ["ti", "super", "laptop", "mobile", "max", "sff", "server", "workstation", "d"];

/// Shared words count for, words of either name alone against; `None` when the model
/// (the first word with a digit; of names without digits, as TITAN V, every word of the slug) is not
/// among the words of both, or the name has a word of another variant.
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
