//! Corrections of the learned models by operators that were measured on a GPU: the residual
//! ln(measured / predicted) as a Gaussian process ([`crate::measured`] makes them).

use std::collections::BTreeMap;

use super::facts::ModelFacts;
use super::query::Query;
use super::time::{Spread, WIDE};
use crate::features::OperatorModel;
use crate::gaussian::{Prior, Process};
use crate::rate::LONGEST_LAUNCH_US;
use habitat_base::units::{GpuSlug, Micros};
use habitat_step::catalog::GpuSpec;
use habitat_step::op::{Part, Primitive};

/// What measurements on one GPU say of one model in one kind of arithmetic.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Correction {
    pub(crate) model: OperatorModel,
    pub(crate) gpu: GpuSlug,
    pub(crate) arithmetic: [u64; 2],
    pub(crate) process: Process,
}

/// Corrections, and how many operators took part.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Corrections {
    pub(crate) all: Vec<Correction>,
    pub(crate) counts: BTreeMap<GpuSlug, Counts>,
}

/// Operators measured on a GPU.
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
pub(crate) struct Corrected {
    /// Log of measured over predicted time.
    pub(crate) mean: f64,
    /// Standard deviation of what is left, noise included.
    pub(crate) deviation: f64,
    /// Variance left of that before anything was measured, 0 to 1.
    pub(crate) left: f64,
}

/// Kind of arithmetic that a rate holds for: bits of element size and burst rate.
type Arithmetic = [u64; 2];

/// Standard deviations from the middle to either end of an 80 % range.
pub(crate) const DEVIATIONS: f64 = 1.2816;
/// Share of the prior variance that is the GPU's, the same for all sizes. This and the
/// next two were tried on `NeuSight`'s tables (0.3 to 0.5, 0.01 to 0.5, 1 to 4), where they
/// made little difference.
const BOARD_SHARE: f64 = 0.5;
/// Share of the smooth part.
const LOCAL_SHARE: f64 = 0.3;
/// Logarithm (base 2) of the factor in size over which the smooth part changes.
const LENGTH: f64 = 2.0;
/// Below this multiple of the host's launch an operator tells nothing of the device.
const HOST_BOUND: f64 = 1.3;
/// Before anything was measured on a GPU, by what the models get wrong on such GPUs.
pub(crate) fn prior(facts: &ModelFacts, gpu: &GpuSpec) -> Prior {
    let seen = facts.boards.contains_key(gpu.slug.as_str());
    let Spread { low, high, .. } = if seen { facts.seen } else { facts.unseen }.unwrap_or(WIDE);
    let deviation = (high / low).ln().max(0.02) / (2.0 * DEVIATIONS);
    let total = deviation * deviation;
    Prior { board: total * BOARD_SHARE, local: total * LOCAL_SHARE, noise: total * (1.0 - BOARD_SHARE - LOCAL_SHARE) }
}

/// Whether a time by itself is mostly the host's launch.
pub(crate) fn is_host_bound(time: Micros, facts: &ModelFacts) -> bool {
    time.get() < HOST_BOUND * facts.host_us.min(LONGEST_LAUNCH_US)
}

/// Where an operator lies among the others: the logs of its sizes.
pub(crate) fn coordinates(part: &Part) -> Vec<f64> {
    part.primitive.sizes().iter().map(|size| size.max(1.0).log2() / LENGTH).collect()
}

/// Products and convolutions err by their rate, which is another in another precision; the
/// rest by the memory, which is the same.
pub(crate) fn arithmetic(query: &Query<'_>) -> Arithmetic {
    match query.part.primitive {
        Primitive::Product { .. } | Primitive::Convolution { .. } => {
            [query.part.element_bytes.to_bits(), query.rate.burst.get().to_bits()]
        }
        _ => [0; 2],
    }
}

impl Corrections {
    /// The process of a query's model on its GPU; `None` where nothing was measured.
    pub(crate) fn process(&self, model: OperatorModel, query: &Query<'_>) -> Option<&Process> {
        if self.all.is_empty() {
            return None;
        }
        let arithmetic = arithmetic(query);
        self.all
            .iter()
            .find(|one| one.model == model && one.arithmetic == arithmetic && one.gpu == *query.gpu.slug())
            .map(|one| &one.process)
    }

    pub(crate) fn of(&self, model: OperatorModel, query: &Query<'_>) -> Option<Corrected> {
        let process = self.process(model, query)?;
        let (mean, variance) = process.at(&coordinates(&query.part));
        let variance = variance + process.prior().noise;
        Some(Corrected { mean, deviation: variance.sqrt(), left: (variance / process.prior().total()).min(1.0) })
    }

    pub(crate) fn counts(&self, gpu: &GpuSlug) -> Option<Counts> {
        self.counts.get(gpu).copied()
    }
}
