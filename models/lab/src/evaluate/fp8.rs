//! Linear layers in FP8 against BF16 by width (fp8.csv.gz, the columns of [`Row`]), from their sizes by the shipped
//! models.

use std::path::Path;

use habitat_tui::catalog::{Catalog, GpuSpec};
use habitat_tui::cli::CliError;
use habitat_tui::predict::{Host, MethodChoice, Options, predict};
use habitat_tui::profile::{Precision, Profile};
use habitat_tui::store::{self, Limit, StoreError};
use serde::Deserialize;
use serde_json::json;

use super::tally::{Evaluation, Groups, Predicted};
use crate::models::ModelsByGpu;

/// Linear layers of a GPT's layer, as multiples of its width: in and out.
const LAYER: [[f64; 2]; 4] = [[1.0, 3.0], [1.0, 1.0], [1.0, 4.0], [4.0, 1.0]];
/// Units of a time, in milliseconds.
const UNITS: [(&str, f64); 3] = [("s", 1e3), ("ms", 1.0), ("us", 1e-3)];

/// A measured product or layer; the columns are those of the table, in which sizes may be words.
#[derive(Debug, Deserialize)]
struct Row {
    gpu: String,
    kind: String,
    what: String,
    #[serde(deserialize_with = "csv::invalid_option")]
    m: Option<f64>,
    #[serde(deserialize_with = "csv::invalid_option")]
    k: Option<f64>,
    #[serde(deserialize_with = "csv::invalid_option")]
    n: Option<f64>,
    #[serde(deserialize_with = "csv::invalid_option")]
    hidden: Option<f64>,
    recipe: String,
    compiled: String,
    #[serde(deserialize_with = "csv::invalid_option")]
    bf16_value: Option<f64>,
    #[serde(deserialize_with = "csv::invalid_option")]
    fp8_value: Option<f64>,
    unit: String,
    includes_casting: String,
    quality: String,
}

impl Row {
    /// Whether it is in FP8, its time includes the casts, and its quality suffices.
    fn is_usable(&self) -> bool {
        self.includes_casting == "yes" && self.quality != "C" && !self.recipe.contains("NVFP4")
    }

    /// Sizes m, k, n of the products.
    fn layers(&self) -> Option<Vec<[f64; 3]>> {
        match (self.m, self.k, self.n, self.hidden) {
            (Some(m), Some(k), Some(n), _) => Some(vec![[m, k, n]]),
            (Some(m), None, None, Some(width)) => Some(LAYER.map(|[a, b]| [m, a * width, b * width]).to_vec()),
            _ => None,
        }
    }

    /// Times in BF16 and FP8 in milliseconds.
    fn measured(&self) -> Option<[f64; 2]> {
        let (_, unit) = UNITS.iter().find(|(name, _)| *name == self.unit)?;
        Some([self.bf16_value? * unit, self.fp8_value? * unit])
    }

    /// Whether one kernel casts, as in compiled code and Transformer Engine. PyTorch's operators cast one by one.
    fn fuses_casts(&self) -> bool {
        let by_engine = self.recipe.contains("FP8 ") || self.recipe == "MXFP8" || self.recipe.starts_with("TE");
        self.compiled == "yes" || by_engine
    }
}

/// Products that a row times.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Pass {
    Forward,
    Data,
    Weight,
    All,
}

impl Pass {
    fn of(kind: &str) -> Option<Self> {
        Some(match kind {
            "gemm forward" | "layer gemms forward" => Self::Forward,
            "layer gemms dgrad" => Self::Data,
            "layer gemms wgrad" => Self::Weight,
            "linear fwd+bwd" | "layer gemms total" => Self::All,
            _ => return None,
        })
    }
}

pub(super) fn evaluate(file: &Path, catalog: &Catalog, models: &ModelsByGpu) -> Result<Evaluation, CliError> {
    let text = store::read_text(file, Limit::WEIGHTS)?;
    let mut groups = Groups::default();
    for row in csv::Reader::from_reader(text.as_bytes()).deserialize::<Row>() {
        let row = row.map_err(|error| StoreError::content(file, error))?;
        let of = Pass::of(&row.kind).zip(catalog.find(&row.gpu).ok()).filter(|_| row.is_usable());
        let (Some((pass, gpu)), Some(layers)) = (of, row.layers()) else { continue };
        let Some([bf16, fp8]) = row.measured() else { continue };
        let in_bf16 = time(&layers, (pass, None), gpu, catalog, models)?;
        let in_fp8 = time(&layers, (pass, Some(Precision::Fp8)), gpu, catalog, models)?;
        let how = if row.fuses_casts() { "fused casts" } else { "eager casts" };
        let Row { what, m, recipe, .. } = &row;
        let label = || {
            let rows = m.unwrap_or_default();
            format!("{what} {rows:.0} on {}, {recipe}: {:.3} of {fp8:.3} ms", gpu.slug, in_fp8.mid)
        };
        let speedup = Predicted { mid: in_bf16.mid / in_fp8.mid, range: None };
        for group in [how.to_owned(), format!("{how} → {}", gpu.slug), format!("{how}, {recipe}")] {
            groups.add(&group, "BF16", in_bf16, bf16, &label);
            groups.add(&group, "FP8", in_fp8, fp8, &label);
            groups.add(&group, "FP8 against BF16", speedup, bf16 / fp8, &label);
        }
    }
    let protocol = "absolute relative errors of linear layers in BF16, in FP8 with their casts, and of how much faster FP8 is, from their sizes by the shipped models; eager casts are PyTorch's operators one by one";
    Ok(groups.evaluation(protocol.to_owned(), vec![models.protocol()]))
}

/// Time of layers in BF16, or predicted in FP8 from BF16; milliseconds.
fn time(
    layers: &[[f64; 3]],
    (pass, to): (Pass, Option<Precision>),
    gpu: &GpuSpec,
    catalog: &Catalog,
    models: &ModelsByGpu,
) -> Result<Predicted, CliError> {
    let product = |phase: &str, [rows, sum, columns]: [f64; 3]| {
        json!({"name": "mm", "phase": phase, "inputs": [[rows as u64, sum as u64], [sum as u64, columns as u64]],
            "outputs": [[rows as u64, columns as u64]], "dtype": "bfloat16"})
    };
    let of = |&[m, k, n]: &[f64; 3]| {
        let all = [
            (Pass::Forward, product("forward", [m, k, n])),
            (Pass::Data, product("backward", [m, n, k])),
            (Pass::Weight, product("backward", [n, m, k])),
        ];
        all.into_iter().filter(move |(own, _)| pass == Pass::All || pass == *own).map(|(_, made)| made)
    };
    let operations: Vec<_> = layers.iter().flat_map(of).collect();
    let profile = json!({"format": "habitat-profile", "version": 1, "operations": operations,
        "workload": {"name": "linear layers", "mode": "training", "precision": "bf16"}});
    let (profile, _) = Profile::from_json(profile.to_string().as_bytes()).map_err(CliError::other)?;
    let options = Options {
        targets: vec![gpu.slug.clone()],
        method: MethodChoice::Learned,
        precision: to,
        host: Host::KeepsUp,
        models: models.shipped.clone(),
        ..Options::default()
    };
    let answer = predict(&profile, catalog, &options).map_err(CliError::other)?;
    let range = answer.predictions.first().map(|prediction| prediction.step.as_estimate().range);
    let range = range.ok_or_else(|| CliError::Refused(format!("{}: not predicted", gpu.slug)))?;
    Ok(Predicted { mid: range.mid.as_millis(), range: Some([range.low.as_millis(), range.high.as_millis()]) })
}
