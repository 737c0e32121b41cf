//! Files embedded in the program: GPUs, prices, models and recorded steps.

use include_dir::{Dir, include_dir};

use habitat_base::units::GpuSlug;
use habitat_planning::pricing::{Intensities, Offer, Snapshot};
use habitat_prediction::blackbox::BlackBoxModel;
use habitat_prediction::efficiency::Efficiency;
use habitat_prediction::kernelwise::KernelWise;
use habitat_prediction::learned::Models;
use habitat_step::catalog::{GpuSpec, Layer};
use habitat_step::decoder::Known;
use habitat_step::profile::{Profile, Sample};

static CATALOG: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/catalog");
static PRICING: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/pricing");
static INTENSITY: &str = include_str!("../../../pricing/grid/intensity.toml");

fn texts(folder: &'static Dir<'static>) -> impl Iterator<Item = &'static str> {
    let mut files: Vec<_> =
        folder.files().filter(|file| file.path().extension().is_some_and(|extension| extension == "toml")).collect();
    files.sort_by_key(|file| file.path());
    files.into_iter().filter_map(include_dir::File::contents_utf8)
}

/// Shipped GPUs.
///
/// # Panics
/// If a shipped file is invalid, which a test excludes.
pub fn gpus() -> Vec<GpuSpec> {
    texts(&CATALOG)
        .map(|text| GpuSpec::parse(text, Layer::Shipped).expect("shipped catalog files are checked by a test"))
        .collect()
}

/// Text of a shipped GPU's file.
pub(crate) fn gpu_text(slug: &GpuSlug) -> Option<&'static str> {
    CATALOG.get_file(format!("{slug}.toml"))?.contents_utf8()
}

/// Shipped price files.
///
/// # Panics
/// If a shipped file is invalid, which a test excludes.
pub fn prices() -> Vec<Snapshot> {
    texts(&PRICING).map(|text| Snapshot::parse(text).expect("shipped price files are checked by a test")).collect()
}

/// Shipped table of carbon intensities.
///
/// # Panics
/// If the shipped file is invalid, which a test excludes.
pub fn intensities() -> Intensities {
    Intensities::parse(INTENSITY).expect("the shipped table is checked by a test")
}

/// Shipped offers.
///
/// # Panics
/// If a shipped file is invalid, which a test excludes.
pub fn offers() -> Vec<Offer> {
    prices().iter().flat_map(|file| file.offers().collect::<Vec<_>>()).collect()
}

/// Shipped learned models.
///
/// # Panics
/// If the shipped file is invalid, which a test excludes.
pub fn models() -> Models {
    Models::from_bytes(habitat_models::WEIGHTS)
        .expect("the shipped weights are checked by a test")
        .with_efficiency(efficiency())
}

/// Shipped efficiency model.
///
/// # Panics
/// If the shipped file is invalid, which a test excludes.
pub fn efficiency() -> Efficiency {
    Efficiency::from_json(habitat_models::EFFICIENCY).expect("the shipped efficiency model is checked by a test")
}

/// Shipped black-box model.
///
/// # Panics
/// If the shipped file is invalid, which a test excludes.
pub fn black_box() -> BlackBoxModel {
    BlackBoxModel::from_json(habitat_models::BLACK_BOX).expect("the shipped black-box model is checked by a test")
}

/// Shipped linear models of kernels, layers and steps.
///
/// # Panics
/// If the shipped file is invalid, which a test excludes.
pub fn kernel_wise() -> KernelWise {
    let json = super::files::decompress(habitat_models::KERNEL_WISE).expect("the shipped lines are checked by a test");
    KernelWise::from_json(&json).expect("the shipped lines are checked by a test")
}

/// An embedded profile of a real training step.
///
/// # Panics
/// If the shipped file is invalid, which a test excludes.
pub fn sample(sample: Sample) -> Profile {
    let bytes = match sample {
        Sample::BertLargeH100 => habitat_profiler::BERT_LARGE_H100,
        Sample::ResNet50H200 => habitat_profiler::RESNET50_H200,
        Sample::ResNet50V100 => habitat_profiler::RESNET50_V100,
    };
    let json = super::files::decompress(bytes).expect("the shipped profile is checked by a test");
    Profile::from_json(&json).expect("the shipped profile is checked by a test").0
}

/// Rows of the published speeds of training language models.
///
/// # Panics
/// If `Row` is not a row of `models/speeds.csv`.
pub fn speeds<Row: serde::de::DeserializeOwned>() -> Vec<Row> {
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(habitat_models::SPEEDS.as_bytes());
    reader.deserialize().map(|row| row.expect("the shipped speeds are read by a test")).collect()
}

/// Dimensions of public language models.
pub const fn decoders() -> Known {
    Known::new(habitat_models::DECODERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_shipped_is_valid() {
        let count = format!("on {} GPUs", gpus().len());
        for page in [include_str!("../../../README.md"), include_str!("../../../CHANGELOG.md")] {
            assert!(page.contains(&count), "{count}");
        }
        assert!(offers().len() > 500);
        for name in Sample::ALL {
            let profile = sample(name);
            assert!(profile.operations.len() > 10 && profile.measured_step().is_some(), "{}", name.name());
            let has_kernels = profile.operations.iter().filter(|operation| !operation.kernels.is_empty()).count();
            assert!(has_kernels * 10 > profile.operations.len() * 9, "{}", name.name());
        }
        assert!(sample(Sample::default()).operations.iter().any(|operation| operation.module.is_some()));
        assert_eq!(models().ensembles().len(), 6);
        assert_eq!(black_box().anchors().len(), 4);
        assert_eq!(kernel_wise().gpus.len(), 8);
    }

    #[test]
    fn every_catalog_file_is_named_by_its_slug() {
        for file in CATALOG.files().filter(|file| file.path().extension().is_some_and(|extension| extension == "toml"))
        {
            let spec = GpuSpec::parse(file.contents_utf8().unwrap(), Layer::Shipped).unwrap();
            assert_eq!(file.path().file_stem().unwrap().to_str(), Some(spec.slug.as_str()));
        }
    }

    #[test]
    fn every_gpu_that_is_offered_is_in_the_catalog() {
        let known: std::collections::BTreeSet<_> = gpus().into_iter().map(|gpu| gpu.slug).collect();
        for offer in offers() {
            assert!(offer.gpu.as_ref().is_none_or(|slug| known.contains(slug)), "{}", offer.id);
        }
    }
}
