//! Published training and inference steps with the operators of each
//! (`models/lab/steps/trace.py` writes them).

use std::path::Path;

use habitat_tui::catalog::Catalog;
use habitat_tui::cli::CliError;
use habitat_tui::op::{Op, Sizes};
use habitat_tui::profile::tensors::{CHANNELS_LAST, MEMORY_FORMAT};
use habitat_tui::profile::{Attribute, Mode, Precision, Profile, op_list};
use habitat_tui::store::{self, Limit, StoreError};
use habitat_tui::units::{GpuSlug, Micros};
use serde::Deserialize;

/// What stands in place of a compiler for an operator that was measured alone.
const ONE_OPERATOR: &str = "one operator";
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
