//! Informal names of GPUs: `4090`, `a100-80`, `rtx4090`, `A100 80GB`, `h100`.

use std::collections::BTreeSet;

use super::GpuSpec;
use habitat_base::text;
use habitat_base::units::GIB;

/// Words that do not distinguish boards.
const SILENT: [&str; 21] = [
    "nvidia",
    "amd",
    "tesla",
    "geforce",
    "quadro",
    "radeon",
    "instinct",
    "gpu",
    "graphics",
    "generation",
    "edition",
    "with",
    "design",
    "memory",
    "hbm2",
    "hbm2e",
    "hbm3",
    "hbm3e",
    "gddr6",
    "gddr6x",
    "ampere",
];
/// Upper bound for the length of a board's name.
const LONGEST: usize = 60;

/// GPUs that match a name, in their order: every word of it consists of words of the slug or of the board's name, in
/// any order, with or without separators. If one GPU has all unmatched words of another and more, the one with fewer
/// wins: `2080` does not match `2080 Ti`.
pub(super) fn fitting<'a>(name: &str, gpus: &(impl Iterator<Item = &'a GpuSpec> + Clone)) -> Vec<&'a GpuSpec> {
    let name = name.to_lowercase();
    if name.len() > LONGEST {
        return Vec::new();
    }
    let typed: Vec<&str> = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let telling: Vec<&str> = typed.iter().copied().filter(|word| !SILENT.contains(word)).collect();
    [typed, telling]
        .into_iter()
        .map(|words| {
            let fits: Vec<(BTreeSet<String>, &GpuSpec)> =
                gpus.clone().filter_map(|gpu| Some((unsaid(&words, gpu)?, gpu))).collect();
            let says_more =
                |own: &BTreeSet<String>| fits.iter().any(|(other, _)| other.len() < own.len() && other.is_subset(own));
            fits.iter().filter(|(own, _)| !says_more(own)).map(|(_, gpu)| *gpu).collect::<Vec<_>>()
        })
        .find(|found| !found.is_empty())
        .unwrap_or_default()
}

/// Number of suggestions in an error.
const NEAR: usize = 5;
/// Similarity below which a name is not suggested; equal names have 3.
const LIKE: f64 = 1.3;

/// Slugs nearest to a name without a match, best first. Numbers count most: for `4090ti`, which does not exist, the RTX
/// 4090 is nearest, followed by others of its series.
pub(super) fn near<'a>(name: &str, gpus: impl Iterator<Item = &'a GpuSpec>) -> Vec<String> {
    let slugs: Vec<&str> = gpus.map(|gpu| gpu.slug.as_str()).collect();
    let by_spelling = || text::nearest(name, slugs.iter().copied(), NEAR).into_iter().map(str::to_owned).collect();
    if name.len() > LONGEST {
        return by_spelling();
    }
    let (typed, squeezed) = (numbers(name), squeezed(name));
    let likeness = |slug: &str| {
        let own = numbers(slug);
        let of_number = |number: &&str| own.iter().map(|other| alike(number, other)).fold(0.0, f64::max);
        let of_numbers = typed.iter().map(of_number).sum::<f64>() / typed.len().max(1) as f64;
        let slug = self::squeezed(slug);
        let spelling = strsim::jaro_winkler(&squeezed, &slug).max(strsim::normalized_levenshtein(&squeezed, &slug));
        if typed.is_empty() { 3.0 * spelling.max(0.0) } else { 2.0 * of_numbers + spelling }
    };
    let mut found: Vec<(f64, &str)> = slugs.iter().map(|slug| (likeness(slug), *slug)).collect();
    found.retain(|(likeness, _)| *likeness >= LIKE);
    if found.is_empty() {
        return by_spelling();
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    found.into_iter().take(NEAR).map(|(_, slug)| slug.to_owned()).collect()
}

/// Numbers in a name, except memory sizes.
fn numbers(name: &str) -> Vec<&str> {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !is_memory(word));
    words.flat_map(|word| word.split(|c: char| !c.is_ascii_digit())).filter(|number| number.len() > 1).collect()
}

/// A name without separators and without words that all boards share.
fn squeezed(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter(|word| !SILENT.contains(word) && *word != "rtx" && *word != "gtx").collect()
}

/// Similarity of two numbers, 1 if equal: common leading digits first, then the difference.
fn alike(a: &str, b: &str) -> f64 {
    let common = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let value = |number: &str| number.parse::<f64>().unwrap_or(f64::INFINITY);
    let apart = (value(a) - value(b)).abs() / value(a).max(value(b));
    if common == 0 {
        // The first digit may be mistyped.
        0.5 * strsim::normalized_levenshtein(a, b)
    } else {
        0.7 * common as f64 / a.len().max(b.len()) as f64 + 0.3 * (1.0 - 100.0 * apart).max(0.0)
    }
}

/// Words that identify a GPU: those of its slug, then those only in its name (`workstation`, `sxm`), without remarks in
/// brackets.
fn own_words(gpu: &GpuSpec) -> Vec<String> {
    let mut own: Vec<String> = gpu.slug.as_str().split('-').map(str::to_owned).collect();
    let name = gpu.name.split('(').next().unwrap_or_default().to_lowercase();
    for word in name.split(|c: char| !c.is_ascii_alphanumeric()) {
        let tells = word.len() > 1 && !is_memory(word) && !SILENT.contains(&word);
        if tells && !own.iter().any(|known| known == word) {
            own.push(word.to_owned());
        }
    }
    own
}

/// Words of the GPU that do not occur among the typed words; `None` if the name does not match.
fn unsaid(words: &[&str], gpu: &GpuSpec) -> Option<BTreeSet<String>> {
    let own = own_words(gpu);
    let size = format!("{:.0}", gpu.memory.get() / GIB);
    // Every way to type each word of the slug; the memory size counts even if the slug lacks it.
    let mut forms: Vec<(String, usize)> = Vec::new();
    for (place, word) in own.iter().enumerate() {
        forms.push((word.clone(), place));
        if word.starts_with("sxm") {
            forms.push(("sxm".to_owned(), place));
        }
    }
    let memory = own.iter().position(|word| is_memory(word)).unwrap_or(own.len());
    let sizes = own.get(memory).and_then(|word| word.strip_suffix("gb")).unwrap_or(&size);
    forms.extend(["", "g", "gb", "gib"].map(|unit| (format!("{sizes}{unit}"), memory)));
    let mut said = BTreeSet::new();
    for word in words {
        said = consumed(word, &forms, &said)?;
    }
    // A memory size or a form factor alone does not identify a board.
    let names = |place: &usize| own.get(*place).is_some_and(|word| !is_memory(word) && !is_form(word));
    said.iter().any(names).then(|| {
        own.iter().enumerate().filter(|(place, _)| !said.contains(place)).map(|(_, word)| word.clone()).collect()
    })
}

fn is_memory(word: &str) -> bool {
    word.strip_suffix("gb").is_some_and(|digits| digits.chars().all(|c| c.is_ascii_digit()))
}

fn is_form(word: &str) -> bool {
    word == "pcie" || word.starts_with("sxm")
}

/// Word positions matched after consuming `word` as a sequence of forms; each position matches at most once.
fn consumed(word: &str, forms: &[(String, usize)], said: &BTreeSet<usize>) -> Option<BTreeSet<usize>> {
    if word.is_empty() {
        return Some(said.clone());
    }
    forms.iter().filter(|(_, place)| !said.contains(place)).find_map(|(form, place)| {
        let rest = word.strip_prefix(form.as_str())?;
        let mut said = said.clone();
        said.insert(*place);
        consumed(rest, forms, &said)
    })
}

#[cfg(test)]
mod tests {
    use crate::shipped;

    fn named(name: &str) -> Vec<String> {
        shipped::catalog().named(name).into_iter().map(|gpu| gpu.slug.to_string()).collect()
    }

    #[test]
    fn names_as_people_type_them() {
        for (name, slug) in [
            ("4090", "rtx-4090"),
            ("rtx4090", "rtx-4090"),
            ("RTX 3090", "rtx-3090"),
            ("NVIDIA GeForce RTX 3090", "rtx-3090"),
            ("3090 24GB", "rtx-3090"),
            ("2080", "rtx-2080"),
            ("2080ti", "rtx-2080-ti"),
            ("1080 Ti", "gtx-1080-ti"),
            ("a6000", "rtx-a6000"),
            ("rtx 6000 ada", "rtx-6000-ada"),
            ("Quadro RTX 6000", "quadro-rtx-6000"),
            ("Tesla T4", "t4"),
            ("titanxp", "titan-xp"),
            ("h100 nvl", "h100-nvl"),
            ("h100sxm", "h100-sxm5-80gb"),
            ("H100-SXM5", "h100-sxm5-80gb"),
            ("a100-pcie-80", "a100-pcie-80gb"),
            ("A100-SXM4-40GB", "a100-sxm4-40gb"),
            ("v100 sxm2 32", "v100-sxm2-32gb"),
            ("H200 SXM", "h200-sxm-141gb"),
            ("h200 nvl", "h200-nvl-141gb"),
            ("h100 sxm", "h100-sxm5-80gb"),
            ("B200 SXM", "b200"),
            ("b300", "b300"),
            ("GB200", "gb200"),
            ("v100 sxm3", "v100-sxm3-32gb"),
            ("pro 6000 server", "rtx-pro-6000-blackwell-server"),
            ("rtx pro 6000 workstation", "rtx-pro-6000-blackwell"),
            ("rtx pro 6000 max-q", "rtx-pro-6000-blackwell-max-q"),
            ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "rtx-pro-6000-blackwell-max-q"),
            ("pro 5000", "rtx-pro-5000-blackwell"),
            ("4060", "rtx-4060"),
            ("4060 ti 16gb", "rtx-4060-ti-16gb"),
            ("4070ti super", "rtx-4070-ti-super"),
            ("4070 super", "rtx-4070-super"),
            ("2080 max-q", "rtx-2080-max-q"),
            ("2080 super maxq", "rtx-2080-super-max-q"),
            ("3080 laptop", "rtx-3080-laptop"),
            ("RTX 3080 Laptop GPU", "rtx-3080-laptop"),
            ("Quadro RTX 5000", "quadro-rtx-5000"),
            ("5000 ada", "rtx-5000-ada"),
            ("gh200", "gh200-96gb"),
            ("l40", "l40"),
            ("a10", "a10"),
            ("mi250", "mi250-gcd"),
            ("MI300X", "mi300x"),
        ] {
            assert_eq!(named(name), [slug], "{name}");
        }
    }

    #[test]
    fn a_name_of_several_boards_is_all_of_them() {
        assert_eq!(named("h100"), ["h100-96gb-hbm2e-500w", "h100-nvl", "h100-pcie-80gb", "h100-sxm5-80gb"]);
        assert_eq!(named("H200"), ["h200-nvl-141gb", "h200-sxm-141gb"]);
        assert_eq!(named("pro 6000"), ["rtx-pro-6000-blackwell", "rtx-pro-6000-blackwell-server"]);
        assert_eq!(named("4060 ti"), ["rtx-4060-ti-16gb", "rtx-4060-ti-8gb"]);
        assert_eq!(named("v100").len(), 5);
        for name in ["a100-80", "A100 80GB", "a10080gb", "NVIDIA A100 80G"] {
            assert_eq!(named(name), ["a100-pcie-80gb", "a100-sxm4-80gb"], "{name}");
        }
        assert_eq!(named("a100").len(), 4);
        assert_eq!(named("titan"), ["titan-rtx", "titan-v", "titan-xp"]);
    }

    /// Every name that the program prints is accepted as input.
    #[test]
    fn every_slug_and_every_full_name_is_its_own() {
        let catalog = shipped::catalog();
        for gpu in catalog.iter() {
            let (slug, name) = (gpu.slug.as_str(), gpu.name.as_str());
            for typed in [slug, &slug.to_uppercase(), name, &name.to_lowercase()] {
                let found: Vec<&str> = catalog.named(typed).into_iter().map(|gpu| gpu.slug.as_str()).collect();
                assert_eq!(found, [slug], "{typed}");
            }
            // Split into words, it may also match the beginning of another GPU's name.
            assert!(catalog.named(&slug.replace('-', " ")).contains(&gpu), "{slug}");
        }
    }

    #[test]
    fn a_name_that_fits_none_has_near_ones() {
        let catalog = shipped::catalog();
        for (name, near) in [
            ("h1000", "h100-nvl"),
            ("rtx 4091", "rtx-4090"),
            ("rtx4095", "rtx-4090"),
            ("a100-81", "a100-pcie-80gb"),
            ("4080 sper", "rtx-4080-super"),
            ("mi300", "mi300x"),
            ("rtx-9090", "rtx-4090"),
        ] {
            let found = catalog.find(name).unwrap_err().near;
            assert!(found.iter().any(|slug| slug == near), "{name}: {found:?}");
        }
    }

    #[test]
    fn the_nearest_name_has_the_same_number() {
        let catalog = shipped::catalog();
        for (name, near) in [
            ("4090ti", "rtx-4090"),
            ("rtx 4090 ti", "rtx-4090"),
            ("RTX4090-Ti", "rtx-4090"),
            ("4090ti 24gb", "rtx-4090"),
            ("rtx5090ti", "rtx-5090"),
            ("3090x", "rtx-3090"),
            ("h100x", "h100-nvl"),
            ("h1oo", "h100-nvl"),
            ("l4s", "l4"),
            ("titan x", "titan-xp"),
            ("v1000", "v100-dgxs-32gb"),
            ("a6001", "rtx-a6000"),
        ] {
            let found = catalog.find(name).unwrap_err().near;
            let series: String = near.chars().take_while(|c| *c != '-' || near.starts_with("rtx")).collect();
            assert!(found.first().is_some_and(|slug| slug.starts_with(&series)), "{name}: {found:?}");
        }
        let near = catalog.find("4090ti").unwrap_err().near;
        assert!(near[1..].iter().all(|slug| slug.starts_with("rtx-40")), "{near:?}");
        assert_eq!(catalog.find("qqqq").unwrap_err().near, Vec::<String>::new());
    }

    #[test]
    fn what_names_no_board_fits_none() {
        for name in ["", " - ", "80gb", "sxm", "nvidia", "h1000", "a100-81", "4090-4090", &"a".repeat(10_000)] {
            assert_eq!(named(name), Vec::<String>::new(), "{name}");
        }
    }
}
