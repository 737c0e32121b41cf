//! Identifies the board in the GPU catalog from a provider's name for it.
//!
//! A name is often ambiguous: there are four V100 and four A100 boards. The memory, a word such as `SXM`, the
//! provider's machine series or the machine size may identify the board. Otherwise, it is left unknown.

use super::Listed;
use habitat_base::units::GpuSlug;

/// Board of an offer.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Board {
    /// The board is identified.
    Known {
        /// Slug in the catalog; `None` only for an invalid slug, which a test excludes.
        slug: Option<GpuSlug>,
        /// Nominal memory, in GiB.
        memory_gib: f64,
    },
    /// Several boards have the name, or none of them has the memory.
    Ambiguous {
        /// Memory of one GPU, in GiB.
        memory_gib: Option<f64>,
    },
    /// No board has the name.
    Unknown,
}

/// Form factor of a board.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Sxm,
    Pcie,
    Nvl,
}

use Form::{Nvl, Pcie, Sxm};

/// Name (without spaces, dashes and vendors), form factor if there are several, memory in GiB, slug.
const BOARDS: &[(&str, Option<Form>, f64, &str)] = &[
    ("A2", None, 16.0, "a2"),
    ("A10", None, 24.0, "a10"),
    ("A10G", None, 24.0, "a10g"),
    ("A16", None, 16.0, "a16"),
    ("A30", None, 24.0, "a30"),
    ("A40", None, 48.0, "a40"),
    ("A100", Some(Sxm), 40.0, "a100-sxm4-40gb"),
    ("A100", Some(Pcie), 40.0, "a100-pcie-40gb"),
    ("A100", Some(Sxm), 80.0, "a100-sxm4-80gb"),
    ("A100", Some(Pcie), 80.0, "a100-pcie-80gb"),
    ("B200", None, 180.0, "b200"),
    ("B300", None, 268.0, "b300"),
    ("GB200", None, 186.0, "gb200"),
    ("GB300", None, 278.0, "gb300"),
    ("GH200", None, 96.0, "gh200-96gb"),
    ("GTX1080TI", None, 11.0, "gtx-1080-ti"),
    ("H20", None, 96.0, "h20"),
    ("H100", Some(Sxm), 80.0, "h100-sxm5-80gb"),
    ("H100", Some(Pcie), 80.0, "h100-pcie-80gb"),
    ("H100", Some(Nvl), 94.0, "h100-nvl"),
    ("H200", Some(Sxm), 141.0, "h200-sxm-141gb"),
    ("H200", Some(Nvl), 141.0, "h200-nvl-141gb"),
    ("K80", None, 12.0, "k80"),
    ("L4", None, 24.0, "l4"),
    ("L20", None, 48.0, "l20"),
    ("L40", None, 48.0, "l40"),
    ("L40S", None, 48.0, "l40s"),
    ("M60", None, 8.0, "m60"),
    ("MI100", None, 32.0, "mi100"),
    ("MI210", None, 64.0, "mi210"),
    ("MI300A", None, 128.0, "mi300a"),
    ("MI300X", None, 192.0, "mi300x"),
    ("MI325X", None, 256.0, "mi325x"),
    ("MI355X", None, 288.0, "mi355x"),
    ("P4", None, 8.0, "p4"),
    ("P40", None, 24.0, "p40"),
    ("P100", Some(Pcie), 16.0, "p100-pcie-16gb"),
    ("P100", Some(Sxm), 16.0, "p100-sxm2-16gb"),
    ("P4000", None, 8.0, "quadro-p4000"),
    ("RTX4000", None, 8.0, "quadro-rtx-4000"),
    ("RTX5000", None, 16.0, "quadro-rtx-5000"),
    ("RTX6000", None, 24.0, "quadro-rtx-6000"),
    ("RTX8000", None, 48.0, "quadro-rtx-8000"),
    ("RTX2000ADA", None, 16.0, "rtx-2000-ada"),
    ("RTX4000ADA", None, 20.0, "rtx-4000-ada"),
    ("RTX4500ADA", None, 24.0, "rtx-4500-ada"),
    ("RTX5000ADA", None, 32.0, "rtx-5000-ada"),
    ("RTX5880ADA", None, 48.0, "rtx-5880-ada"),
    ("RTX6000ADA", None, 48.0, "rtx-6000-ada"),
    ("RTX2060", None, 6.0, "rtx-2060"),
    ("RTX2070", None, 8.0, "rtx-2070"),
    ("RTX2070SUPER", None, 8.0, "rtx-2070-super"),
    ("RTX2080", None, 8.0, "rtx-2080"),
    ("RTX2080SUPER", None, 8.0, "rtx-2080-super"),
    ("RTX2080TI", None, 11.0, "rtx-2080-ti"),
    ("RTX3060", None, 12.0, "rtx-3060"),
    ("RTX3060TI", None, 8.0, "rtx-3060-ti"),
    ("RTX3070", None, 8.0, "rtx-3070"),
    ("RTX3070TI", None, 8.0, "rtx-3070-ti"),
    ("RTX3080", None, 10.0, "rtx-3080"),
    ("RTX3080TI", None, 12.0, "rtx-3080-ti"),
    ("RTX3090", None, 24.0, "rtx-3090"),
    ("RTX3090TI", None, 24.0, "rtx-3090-ti"),
    ("RTX4060", None, 8.0, "rtx-4060"),
    ("RTX4060TI", None, 8.0, "rtx-4060-ti-8gb"),
    ("RTX4060TI", None, 16.0, "rtx-4060-ti-16gb"),
    ("RTX4070", None, 12.0, "rtx-4070"),
    ("RTX4070SUPER", None, 12.0, "rtx-4070-super"),
    ("RTX4070TI", None, 12.0, "rtx-4070-ti"),
    ("RTX4070TISUPER", None, 16.0, "rtx-4070-ti-super"),
    ("RTX4080", None, 16.0, "rtx-4080"),
    ("RTX4080SUPER", None, 16.0, "rtx-4080-super"),
    ("RTX4090", None, 24.0, "rtx-4090"),
    ("RTX5060TI", None, 8.0, "rtx-5060-ti-8gb"),
    ("RTX5060TI", None, 16.0, "rtx-5060-ti-16gb"),
    ("RTX5070", None, 12.0, "rtx-5070"),
    ("RTX5070TI", None, 16.0, "rtx-5070-ti"),
    ("RTX5080", None, 16.0, "rtx-5080"),
    ("RTX5090", None, 32.0, "rtx-5090"),
    ("RTXA4000", None, 16.0, "rtx-a4000"),
    ("RTXA4500", None, 20.0, "rtx-a4500"),
    ("RTXA5000", None, 24.0, "rtx-a5000"),
    ("RTXA5500", None, 24.0, "rtx-a5500"),
    ("RTXA6000", None, 48.0, "rtx-a6000"),
    ("RTXPRO4000", None, 24.0, "rtx-pro-4000-blackwell"),
    ("RTXPRO4500", None, 32.0, "rtx-pro-4500-blackwell"),
    ("RTXPRO5000", None, 48.0, "rtx-pro-5000-blackwell"),
    ("RTXPRO6000WORKSTATION", None, 96.0, "rtx-pro-6000-blackwell"),
    ("RTXPRO6000SERVER", None, 96.0, "rtx-pro-6000-blackwell-server"),
    ("RTXPRO6000MAXQ", None, 96.0, "rtx-pro-6000-blackwell-max-q"),
    ("T4", None, 16.0, "t4"),
    ("TITANRTX", None, 24.0, "titan-rtx"),
    ("TITANV", None, 12.0, "titan-v"),
    ("TITANXP", None, 12.0, "titan-xp"),
    ("V100", Some(Sxm), 16.0, "v100-sxm2-16gb"),
    ("V100", Some(Pcie), 16.0, "v100-pcie-16gb"),
    ("V100", Some(Sxm), 32.0, "v100-sxm2-32gb"),
    ("V100", Some(Pcie), 32.0, "v100-pcie-32gb"),
];

/// Alternative spellings of the names above.
const SPELLINGS: &[(&str, &str)] = &[
    ("A4000", "RTXA4000"),
    ("A4500", "RTXA4500"),
    ("A5000", "RTXA5000"),
    ("A5500", "RTXA5500"),
    ("A6000", "RTXA6000"),
    ("H100MEGA", "H100"),
    ("H100NVL", "H100"),
    ("H200NVL", "H200"),
    ("RTX2080S", "RTX2080SUPER"),
    ("RTX4070S", "RTX4070SUPER"),
    ("RTX4070STI", "RTX4070TISUPER"),
    ("RTX4080S", "RTX4080SUPER"),
    ("RTXPRO6000WS", "RTXPRO6000WORKSTATION"),
    ("RTXPRO6000WK", "RTXPRO6000WORKSTATION"),
    ("RTXPRO6000S", "RTXPRO6000SERVER"),
    ("RTXPRO6000SE", "RTXPRO6000SERVER"),
];

/// Parsed name of a GPU.
struct Name {
    model: String,
    form: Option<Form>,
    memory_gib: Option<f64>,
}

impl Name {
    fn of(text: &str) -> Self {
        let upper = text.to_uppercase();
        let mut name = Self { model: String::new(), form: None, memory_gib: memory_in(text) };
        for word in words(&upper) {
            match word {
                "NVIDIA" | "TESLA" | "GEFORCE" | "QUADRO" | "Q" | "AMD" | "INSTINCT" | "BLACKWELL" | "GENERATION"
                | "GPU" | "EDITION" | "OAM" | "NVLINK" => {}
                "HGX" | "HBM3" => name.form = Some(Sxm),
                word if word.starts_with("SXM") => name.form = Some(Sxm),
                "PCIE" | "PCI" => name.form = Some(Pcie),
                "NVL" => name.form = Some(Nvl),
                word if memory_word(word).is_some() => {}
                word => name.model.push_str(word),
            }
        }
        if name.model.ends_with("0NVL") {
            name.form = Some(Nvl);
        }
        if let Some((_, usual)) = SPELLINGS.iter().find(|(spelling, _)| *spelling == name.model) {
            name.model = (*usual).to_owned();
        }
        name
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty())
}

fn memory_word(word: &str) -> Option<f64> {
    let digits = ["GIB", "GB", "G"].iter().find_map(|unit| word.strip_suffix(unit))?;
    digits.parse().ok().filter(|gib: &f64| (4.0..=1024.0).contains(gib))
}

/// Memory in the name of a GPU, in GiB.
pub(super) fn memory_in(name: &str) -> Option<f64> {
    words(&name.to_uppercase()).find_map(memory_word)
}

/// Removes binary rounding errors from a sum of prices.
pub(super) fn rounded(price: f64) -> f64 {
    (price * 1e6).round() / 1e6
}

/// Identifies the board of a provider's offer.
pub(super) fn find(provider: &str, offer: &Listed) -> Board {
    let mut name = Name::of(&offer.gpu_name);
    if provider == "vast" {
        // Vast lists 4x-RTX_4070S_Ti-32-65536 as RTX4070.
        name = offer.instance_type.split('-').nth(1).map_or(name, Name::of);
    }
    if name.model == "RTXPRO6000" {
        name.model.push_str(match provider {
            "aws" | "gcp" => "SERVER",
            "jarvislabs" | "verda" => "WORKSTATION",
            _ => "",
        });
        if name.model == "RTXPRO6000" {
            return Board::Ambiguous { memory_gib: offer.memory_gib };
        }
    }
    let named: Vec<_> = BOARDS.iter().filter(|(model, ..)| *model == name.model).collect();
    if named.is_empty() {
        return Board::Unknown;
    }
    // Only the boards with more memory have it in their names.
    let plain = match name.model.as_str() {
        "A100" => Some(40.0),
        "V100" => Some(16.0),
        _ => None,
    };
    let memory_gib = name.memory_gib.or(offer.memory_gib).or(plain);
    // SkyPilot's common list has a wrong memory for H200 and B200.
    let memory_gib = memory_gib.filter(|gib| *gib != 80.0 || !matches!(name.model.as_str(), "H200" | "B200"));
    let form = name.form.or_else(|| said_elsewhere(offer)).or_else(|| usual_form(provider, offer, &name.model));
    let fitting: Vec<_> = named
        .into_iter()
        .filter(|(_, _, nominal, _)| memory_gib.is_none_or(|gib| (0.88..=1.12).contains(&(gib / nominal))))
        .filter(|(_, own, ..)| own.is_none() || form.is_none() || *own == form)
        .collect();
    match fitting.as_slice() {
        [(_, _, nominal, slug)] => Board::Known { slug: GpuSlug::new(*slug).ok(), memory_gib: *nominal },
        _ => Board::Ambiguous { memory_gib },
    }
}

/// Form factor in the description of the GPU or in the machine type.
fn said_elsewhere(offer: &Listed) -> Option<Form> {
    [&offer.described, &offer.instance_type].into_iter().find_map(|text| Name::of(text).form)
}

/// Usual form factor of a provider's GPU, as in the provider's descriptions of machines and in the shipped prices.
fn usual_form(provider: &str, offer: &Listed, model: &str) -> Option<Form> {
    let series = |name: &str| offer.instance_type.starts_with(name);
    match (provider, model) {
        ("azure", "A100" | "H100" | "V100") if series("Standard_ND") => Some(Sxm),
        ("azure", "H100") if series("Standard_NC") => Some(Nvl),
        ("lambda", "A100") => Some(if offer.gpu_count == 8 { Sxm } else { Pcie }),
        // The NVL variant of the H200 always has NVL in its name.
        (_, "H200")
        | ("aws" | "do" | "gcp" | "jarvislabs" | "nebius" | "verda", "A100" | "H100" | "V100")
        | ("lambda", "V100") => Some(Sxm),
        ("azure", "A100" | "V100") if series("Standard_NC") => Some(Pcie),
        // RunPod has SXM in the names of those boards.
        ("runpod", "A100" | "H100") | ("gcp", "P100") => Some(Pcie),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(provider: &str, gpu_name: &str, instance_type: &str, gpu_count: u32, memory_gib: Option<f64>) -> String {
        let offer = Listed {
            gpu_name: gpu_name.to_owned(),
            instance_type: instance_type.to_owned(),
            gpu_count,
            memory_gib,
            ..Listed::default()
        };
        match find(provider, &offer) {
            Board::Known { slug, .. } => slug.unwrap().to_string(),
            Board::Ambiguous { .. } => "ambiguous".to_owned(),
            Board::Unknown => "unknown".to_owned(),
        }
    }

    #[test]
    fn a_board_follows_from_name_memory_form_and_machine() {
        for (provider, name, machine, count, memory, expected) in [
            ("aws", "V100-32GB", "p3dn.24xlarge", 8, Some(32.0), "v100-sxm2-32gb"),
            ("azure", "A100-80GB", "Standard_NC24ads_A100_v4", 1, None, "a100-pcie-80gb"),
            ("azure", "A100", "Standard_ND96asr_v4", 8, Some(40.0), "a100-sxm4-40gb"),
            ("azure", "H100", "Standard_NC40ads_H100_v5", 1, None, "h100-nvl"),
            ("hyperstack", "A100-80G-PCIe-NVLink", "n3-A100x8-NVLink", 8, Some(80.0), "a100-pcie-80gb"),
            ("fluidstack", "H100", "H100_NVLINK_80GB::8", 8, Some(80.0), "ambiguous"),
            ("fluidstack", "H100", "H100_PCIE_80GB::1", 1, Some(80.0), "h100-pcie-80gb"),
            ("paperspace", "H100", "H100x8", 8, None, "ambiguous"),
            ("paperspace", "M4000", "GPU+", 1, None, "unknown"),
            ("vast", "RTX4070", "4x-RTX_4070S_Ti-32-65536", 4, Some(16.0), "rtx-4070-ti-super"),
            ("vast", "RTX3060", "1x-RTX_3060_Ti-32-65536", 1, Some(8.0), "rtx-3060-ti"),
            ("vast", "V100", "1x-Tesla_V100-32-65536", 1, Some(16.0), "ambiguous"),
            ("lambda", "A100", "gpu_8x_a100", 8, Some(40.0), "a100-sxm4-40gb"),
            ("lambda", "A100", "gpu_4x_a100", 4, Some(40.0), "a100-pcie-40gb"),
            ("lambda", "RTX6000", "gpu_1x_rtx6000", 1, Some(24.0), "quadro-rtx-6000"),
            ("cudo", "RTX6000", "x", 1, Some(48.0), "ambiguous"),
            ("cudo", "RTXPRO6000", "x", 1, Some(96.0), "ambiguous"),
            ("gcp", "H100-MEGA", "", 8, Some(80.0), "h100-sxm5-80gb"),
            ("lab", "H200", "x", 8, Some(80.0), "h200-sxm-141gb"),
            ("lab", "RTX3080", "x", 1, Some(20.0), "ambiguous"),
            ("lab", "H100NVL", "x", 1, None, "h100-nvl"),
            ("lab", "NVIDIA-H100-80GB-HBM3", "x", 1, None, "h100-sxm5-80gb"),
        ] {
            assert_eq!(found(provider, name, machine, count, memory), expected, "{provider} {name} {machine}");
        }
    }

    #[test]
    fn every_board_is_in_the_catalog_with_its_memory() {
        for (model, _, gib, slug) in BOARDS {
            let path = format!("{}/../../catalog/{slug}.toml", env!("CARGO_MANIFEST_DIR"));
            let file: toml::Table = std::fs::read_to_string(&path).expect(&path).parse().unwrap();
            let nominal = file["memory_gb"].as_float().or(file["memory_gb"].as_integer().map(|gb| gb as f64)).unwrap();
            assert!((gib / nominal - 1.0).abs() < 0.02, "{model}: {gib} GiB, {slug} has {nominal} GB");
        }
    }
}
