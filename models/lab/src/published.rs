//! Published training and inference steps with the operators of each
//! (`models/lab/steps/trace.py` writes them).

use std::borrow::Cow;
use std::path::Path;

use habitat_tui::catalog::Catalog;
use habitat_tui::catalog::hypothetical::{Changes, Figure};
use habitat_tui::cli::CliError;
use habitat_tui::op::{Op, Sizes};
use habitat_tui::predict::rate::{CUT_MATRIX_SHARE, TYPICAL_MATRIX_SHARE};
use habitat_tui::profile::tensors::{CHANNELS_LAST, MEMORY_FORMAT};
use habitat_tui::profile::{Attribute, Mode, Precision, Profile, op_list};
use habitat_tui::store::{self, Limit, StoreError};
use habitat_tui::units::{GpuSlug, Micros};
use serde::Deserialize;

/// What stands in place of a compiler for an operator that was measured alone.
const ONE_OPERATOR: &str = "one operator";
/// By what the rates at a locked clock are above those of the rules: a data-centre GPU at its boost is taken to sustain
/// less of its peak in products, as its power limit lowers the clock, than one that keeps its clock. Which share such a
/// one keeps was not measured: that of boards whose products are cut to half stands in, for all arithmetic.
const UNLOCKED: f64 = CUT_MATRIX_SHARE / TYPICAL_MATRIX_SHARE;
/// The name of the file in a folder of data.
pub const FILE: &str = "steps.jsonl.zst";

/// A step that somebody measured and published.
#[derive(Debug, Clone)]
pub struct PublishedStep {
    /// The network.
    pub network: String,
    /// Networks of one design.
    pub family: String,
    /// Where it was published.
    pub source: String,
    /// What it ran on.
    pub gpu: GpuSlug,
    /// The clock that the GPU was locked to, in times of its boost.
    pub locked: Option<f64>,
    /// Whether operators were compiled or fused beyond PyTorch's own.
    pub is_compiled: bool,
    /// Whether it is one operator, measured alone.
    pub is_operator: bool,
    /// Whether figures are exact (A), or something beside the GPU's work may count (B).
    pub is_exact: bool,
    /// How long it took.
    pub time: Micros,
    /// What it ran; no times.
    pub profile: Profile,
}

impl PublishedStep {
    /// The catalog with the GPU as the step ran on it.
    pub fn catalog<'a>(&self, catalog: &'a Catalog) -> Cow<'a, Catalog> {
        let Some((gpu, times)) = catalog.get(&self.gpu).zip(self.locked) else { return Cow::Borrowed(catalog) };
        let locked = gpu.hypothetical(gpu.slug.clone(), &Changes::of(Figure::Clock, (times * UNLOCKED).min(1.0)));
        Cow::Owned(Catalog::new(catalog.iter().cloned().chain([locked])))
    }
}

#[derive(Deserialize)]
struct Line {
    case: String,
    network: String,
    family: String,
    mode: Mode,
    measured: Vec<Measured>,
    operators: serde_json::Value,
}

#[derive(Deserialize)]
struct Measured {
    gpu: String,
    clock_mhz: Option<String>,
    precision: String,
    layout: String,
    step_ms: String,
    source: String,
    compiled: String,
    quality: String,
}

/// The steps of a file on GPUs of the catalog.
///
/// # Errors
/// Where the file cannot be read, naming the case.
pub fn read(path: &Path, catalog: &Catalog) -> Result<Vec<PublishedStep>, CliError> {
    let text = store::read_text(path, Limit::WEIGHTS)?;
    let mut steps = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let wrong = |problem: &dyn std::fmt::Display| {
            CliError::from(StoreError::content(path, format!("line {}: {problem}", number + 1)))
        };
        let line: Line = serde_json::from_str(line).map_err(|error| wrong(&error))?;
        let operators = line.operators.to_string();
        let mut profile = op_list::from_op_list(operators.as_bytes(), &line.case).map_err(|error| wrong(&error))?;
        profile.workload.mode = line.mode;
        for measured in &line.measured {
            let Ok(gpu) = catalog.find(&measured.gpu) else { continue };
            let Some(precision) = precision(&measured.precision) else { continue };
            let milliseconds: f64 = measured.step_ms.parse().map_err(|error| wrong(&error))?;
            let clock: Option<f64> =
                measured.clock_mhz.as_ref().map(|clock| clock.parse()).transpose().map_err(|error| wrong(&error))?;
            let mut profile = profile.clone();
            profile.workload.precision = Some(precision);
            if measured.layout == "nhwc" {
                channels_last(&mut profile);
            }
            steps.push(PublishedStep {
                network: line.network.clone(),
                family: line.family.clone(),
                source: measured.source.clone(),
                gpu: gpu.slug.clone(),
                locked: clock.map(|mhz| mhz / gpu.boost_clock.get()),
                is_compiled: !measured.compiled.is_empty(),
                is_operator: measured.compiled == ONE_OPERATOR,
                is_exact: measured.quality == "A",
                time: Micros::new(milliseconds * 1e3).map_err(|error| wrong(&error))?,
                profile,
            });
        }
    }
    Ok(steps)
}

/// A precision as the tables name it.
fn precision(name: &str) -> Option<Precision> {
    Some(match name {
        "fp32" => Precision::Fp32,
        "tf32" => Precision::Tf32,
        "amp-fp16" => Precision::AmpFp16,
        "fp16-pure" => Precision::Fp16,
        "bf16" => Precision::AmpBf16,
        "bf16-pure" => Precision::Bf16,
        "fp8" => Precision::Fp8,
        _ => return None,
    })
}

/// The same step with its images in channels-last order, which changes no shape.
fn channels_last(profile: &mut Profile) {
    for operation in &mut profile.operations {
        if matches!(Op::of(operation).sizes, Some(Sizes::Convolution(_))) {
            operation.attributes.insert(MEMORY_FORMAT.to_owned(), Attribute::Text(CHANNELS_LAST.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use habitat_tui::store::bundled;

    /// A clock that was locked counts, with the arithmetic, and is kept; bandwidth and other steps do not change.
    #[test]
    fn a_locked_clock_is_that_of_the_step() {
        let line = r#"{"case": "w", "network": "w", "family": "w", "mode": "training", "measured": [
            {"gpu": "h200-sxm-141gb", "clock_mhz": "990", "precision": "bf16-pure", "layout": "nchw", "step_ms": "2", "source": "s", "compiled": "", "quality": "A"},
            {"gpu": "h200-sxm-141gb", "precision": "bf16-pure", "layout": "nchw", "step_ms": "1", "source": "s", "compiled": "", "quality": "A"}],
            "operators": {"format": "habitat-op-list", "version": 1, "info": {"batch": 1}, "ops": [
                {"op": "aten.relu.default", "phase": "forward", "inputs": [{"shape": [64, 64], "dtype": "bfloat16"}], "outputs": [{"shape": [64, 64], "dtype": "bfloat16"}], "count": 1}]}}"#;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        std::fs::write(&path, line.replace('\n', " ")).unwrap();
        let catalog = Catalog::new(bundled::gpus());
        let [locked, free] = &read(&path, &catalog).unwrap()[..] else { panic!("two steps") };
        let real = catalog.get(&locked.gpu).unwrap();
        let ran_on = locked.catalog(&catalog);
        let ran_on = ran_on.get(&locked.gpu).unwrap();
        // 92 % of the peak is kept at a locked clock, where 80 % is taken to be sustained without.
        let times = real.boost_clock.get() / 990.0 / 1.15;
        let rate = |gpu: &habitat_tui::catalog::GpuSpec| gpu.fastest_published("bf16").unwrap();
        assert!((rate(real) / rate(ran_on) - times).abs() < 1e-9, "{}", rate(real) / rate(ran_on));
        assert_eq!(ran_on.memory_bandwidth, real.memory_bandwidth);
        // Never more than at the boost.
        let near = PublishedStep { locked: Some(0.95), ..locked.clone() };
        assert_eq!(rate(near.catalog(&catalog).get(&near.gpu).unwrap()), rate(real));
        assert_eq!(free.catalog(&catalog).get(&free.gpu), Some(real));
    }
}
