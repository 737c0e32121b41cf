//! A few operators measured on a board correct the models for it.
//!
//! The residual ln(measured / predicted) of a model on a board is taken for a Gaussian
//! process: an offset of the board, a smooth part over the sizes of the operator, and noise
//! ([`super::gaussian`]). The prior comes from what the models get wrong on boards that were
//! left out of training; the posterior mean corrects a time, its variance narrows the range.

use std::collections::BTreeMap;

use crate::catalog::GpuSpec;
use crate::profile::{Operation, Precision};
use crate::units::{GpuSlug, Micros};

use super::features::{Load, OperatorModel};
use super::gaussian::{Prior, Process};
use super::learned::{ModelFacts, Models, Query, Spread, WIDE};
use super::mlp::ModelError;
use super::primitive::{Part, Primitive, parts};
use super::rate::product_rate;
use super::work::element_type;

/// An operator, measured by itself with events.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measurement<'a> {
    /// What was run.
    pub operation: &'a Operation,
    /// The precision, where the element type does not tell (TF32).
    pub precision: Option<Precision>,
    /// On which board.
    pub gpu: &'a GpuSpec,
    /// How long it took.
    pub time: Micros,
}

/// What measurements on one board say of one model in one kind of arithmetic.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Correction {
    model: OperatorModel,
    gpu: GpuSlug,
    arithmetic: Arithmetic,
    process: Process,
}

/// Corrections, and how many operators took part.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Corrections {
    all: Vec<Correction>,
    counts: BTreeMap<GpuSlug, Counts>,
}

/// Operators measured on a board.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// That correct the models.
    pub used: usize,
    /// That tell nothing: bound by the host, out of line with the others, not known to the
    /// models, or beyond the most that are taken.
    pub passed_over: usize,
}

/// A correction at one operator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Corrected {
    /// Log of measured over predicted time.
    pub(super) mean: f64,
    /// Standard deviation of what is left, noise included.
    pub(super) deviation: f64,
    /// Variance left of that before anything was measured, 0 to 1.
    pub(super) left: f64,
}

/// Kind of arithmetic that a rate holds for: bits of element size and burst rate.
type Arithmetic = [u64; 2];

/// Standard deviations from the middle to either end of an 80 % range.
pub(super) const DEVIATIONS: f64 = 1.2816;
/// Shares of the prior variance. Of the residuals of `NeuSight`'s tables on boards left out.
const BOARD_SHARE: f64 = 0.5;
/// The smooth part.
const LOCAL_SHARE: f64 = 0.3;
/// Factor of sizes over which the smooth part changes, as a power of 2.
const LENGTH: f64 = 2.0;
/// Below this multiple of the host's launch an operator tells nothing of the device.
const HOST_BOUND: f64 = 1.3;
/// How far a launch differs from board to board and host to host, in microseconds.
const LAUNCH_DEVIATION_US: f64 = 30.0;
/// The longest time that is taken for a bare launch from the host, in microseconds.
const LONGEST_LAUNCH_US: f64 = 60.0;
/// So many operators are needed to tell that one is out of line.
const FEWEST_FOR_OUTLIERS: usize = 8;
/// Out of line: so many times the median deviation from the median, in units of a standard
/// deviation (1.4826 of the former).
const OUTLIER: f64 = 3.0;
/// Operators that one correction is made from.
const MOST: usize = 200;

/// Before anything was measured on a board, by what the models get wrong on such boards.
pub(super) fn prior(facts: &ModelFacts, gpu: &GpuSpec) -> Prior {
    let seen = facts.boards.contains_key(gpu.slug.as_str());
    let Spread { low, high, .. } = if seen { facts.seen } else { facts.unseen }.unwrap_or(WIDE);
    let deviation = (high / low).ln().max(0.02) / (2.0 * DEVIATIONS);
    let total = deviation * deviation;
    let knob = |name: &str, default: f64| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
    let (board, local) = (knob("FEW_BOARD", BOARD_SHARE), knob("FEW_LOCAL", LOCAL_SHARE));
    Prior { board: total * board, local: total * local, noise: total * (1.0 - board - local) }
}

/// Whether a time by itself is mostly the host's launch.
pub(super) fn is_host_bound(time: Micros, facts: &ModelFacts) -> bool {
    time.get() < HOST_BOUND * facts.host_us.min(LONGEST_LAUNCH_US)
}

/// Where an operator lies among the others: the logs of its sizes.
pub(super) fn coordinates(part: &Part) -> Vec<f64> {
    let length = std::env::var("FEW_LENGTH").ok().and_then(|v| v.parse().ok()).unwrap_or(LENGTH);
    part.primitive.sizes().iter().map(|size| size.max(1.0).log2() / length).collect()
}

/// Products and convolutions err by their rate, which is another in another precision; the
/// rest by the memory, which is the same.
pub(super) fn arithmetic(query: &Query<'_>) -> Arithmetic {
    match query.part.primitive {
        Primitive::Product { .. } | Primitive::Convolution { .. } => {
            [query.part.element_bytes.to_bits(), query.rate.burst.get().to_bits()]
        }
        _ => [0; 2],
    }
}

impl Corrections {
    /// The process of a query's model on its board; `None` where nothing was measured.
    pub(super) fn process(&self, model: OperatorModel, query: &Query<'_>) -> Option<&Process> {
        if self.all.is_empty() {
            return None;
        }
        let arithmetic = arithmetic(query);
        self.all
            .iter()
            .find(|one| one.model == model && one.arithmetic == arithmetic && one.gpu == query.gpu.slug)
            .map(|one| &one.process)
    }

    pub(super) fn of(&self, model: OperatorModel, query: &Query<'_>) -> Option<Corrected> {
        let process = self.process(model, query)?;
        let (mean, variance) = process.at(&coordinates(&query.part));
        let variance = variance + process.prior().noise;
        Some(Corrected { mean, deviation: variance.sqrt(), left: (variance / process.prior().total()).min(1.0) })
    }

    pub(super) fn counts(&self, gpu: &GpuSlug) -> Option<Counts> {
        self.counts.get(gpu).copied()
    }
}

/// Residuals of one model on one board.
#[derive(Default)]
struct Residuals {
    points: Vec<Vec<f64>>,
    logs: Vec<f64>,
    /// What a launch that is longer by a standard deviation adds to the log.
    launches: Vec<f64>,
    prior: Option<Prior>,
}

impl Models {
    /// The same models, corrected by what was measured; corrections they had before do not
    /// count. Corrections are not saved with the weights.
    ///
    /// # Errors
    /// [`ModelError`] where a network cannot be computed.
    pub fn with_measured(&self, measured: &[Measurement<'_>]) -> Result<Self, ModelError> {
        let plain = Self::new(self.ensembles().clone(), self.steps().clone());
        let mut corrections = Corrections::default();
        let (mut queries, mut times) = (Vec::new(), Vec::new());
        for one in measured {
            corrections.counts.entry(one.gpu.slug.clone()).or_default().passed_over += 1;
            let dtype = element_type(one.operation, one.precision);
            let rate = product_rate(one.gpu, dtype.as_ref(), one.precision).0;
            // Of several parts only the sum is known.
            if let [part] = parts(one.operation, one.precision)[..] {
                queries.push(Query { part, gpu: one.gpu, rate, load: Load::Alone });
                times.push(one.time);
            }
        }
        let mut by_model: BTreeMap<(OperatorModel, &GpuSlug, Arithmetic), Residuals> = BTreeMap::new();
        for ((query, time), predicted) in queries.iter().zip(&times).zip(plain.times(&queries)?) {
            let Some(model) = OperatorModel::of(&query.part.primitive) else { continue };
            let (Some(predicted), Some(ensemble)) = (predicted, plain.ensembles().get(&model)) else { continue };
            if is_host_bound(*time, &ensemble.facts) || time.get() <= 0.0 {
                continue;
            }
            // Of the device's part, which is what is corrected.
            let launch = query.launch_us();
            let device = (time.get() - launch).max(0.3 * time.get());
            let log = (device / (predicted.time.get() - launch).max(1e-3)).ln();
            if std::env::var("FEW_DUMP").is_ok() { eprintln!("{} {} {:.1} {:.1} {:.3} {:.1}", model.name(), query.gpu.slug, time.get(), predicted.time.get(), log, ensemble.facts.host_us); }
            let own = by_model.entry((model, &query.gpu.slug, arithmetic(query))).or_default();
            own.points.push(coordinates(&query.part));
            own.logs.push(log);
            let knob: f64 = std::env::var("FEW_LAUNCH").ok().and_then(|v| v.parse().ok()).unwrap_or(LAUNCH_DEVIATION_US);
            own.launches.push(knob / device);
            own.prior = Some(prior(&ensemble.facts, query.gpu));
        }
        for ((model, gpu, arithmetic), residuals) in by_model {
            let Some(prior) = residuals.prior else { continue };
            let kept = in_line(&residuals.logs);
            let points = kept.iter().map(|&index| residuals.points[index].clone()).collect();
            let values: Vec<(f64, f64)> =
                kept.iter().map(|&index| (residuals.logs[index], residuals.launches[index])).collect();
            let counts = corrections.counts.entry(gpu.clone()).or_default();
            counts.used += kept.len();
            counts.passed_over = counts.passed_over.saturating_sub(kept.len());
            let process = Process::new(prior, points, &values);
            corrections.all.push(Correction { model, gpu: gpu.clone(), arithmetic, process });
        }
        Ok(plain.corrected_by(corrections))
    }
}

/// Indices of the residuals that count: not far out of line with the others, and of many
/// those spread evenly over them.
fn in_line(logs: &[f64]) -> Vec<usize> {
    let middle = |mut values: Vec<f64>| -> f64 {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    };
    let median = middle(logs.to_vec());
    let limit = OUTLIER * 1.4826 * middle(logs.iter().map(|log| (log - median).abs()).collect());
    let few = logs.len() < FEWEST_FOR_OUTLIERS || std::env::var("FEW_KEEP").is_ok();
    let kept: Vec<usize> = (0..logs.len()).filter(|&index| few || (logs[index] - median).abs() <= limit).collect();
    let step = kept.len().div_ceil(MOST).max(1);
    kept.into_iter().step_by(step).collect()
}
