//! Corrections of the learned models by operators measured on a GPU: the residual ln(measured / predicted) as a
//! Gaussian process. [`crate::measured`] fits them.

use std::collections::BTreeMap;

use super::query::Query;
use crate::facts::ModelFacts;
use crate::features::OperatorModel;
use crate::learned_time::{Spread, WIDE};
use crate::rate::LONGEST_LAUNCH_US;
use habitat_base::regress::gaussian::{Prior, Process};
use habitat_base::units::{GpuSlug, Micros};
use habitat_step::catalog::GpuSpec;
use habitat_step::op::{Part, Primitive};

/// Correction of one model on one GPU in one kind of arithmetic.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Correction {
    pub(crate) model: OperatorModel,
    pub(crate) gpu: GpuSlug,
    pub(crate) arithmetic: [u64; 2],
    pub(crate) process: Process,
}

/// Corrections, with the number of measured operators.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Corrections {
    pub(crate) all: Vec<Correction>,
    pub(crate) counts: BTreeMap<GpuSlug, Counts>,
}

/// Numbers of operators measured on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Operators that correct the models.
    pub used: usize,
    /// Unused operators: dominated by the launch, outliers, unknown to the models, or beyond the maximum number.
    pub passed_over: usize,
}

/// Correction for one operator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Corrected {
    /// Logarithm of measured over predicted time.
    pub(crate) mean: f64,
    /// Remaining standard deviation, including noise.
    pub(crate) deviation: f64,
    /// Remaining variance over the prior variance, 0 to 1.
    pub(crate) left: f64,
}

/// Kind of arithmetic with its own rate: bits of element size and burst rate.
type Arithmetic = [u64; 2];

/// Standard deviations from the middle to each end of an 80 % range.
pub(crate) const DEVIATIONS: f64 = 1.2816;
/// Share of the prior variance that is common to all sizes on a GPU. This and the next two were varied on `NeuSight`'s
/// tables (0.3 to 0.5, 0.01 to 0.5, 1 to 4) with little effect.
const BOARD_SHARE: f64 = 0.5;
/// Share of the prior variance that varies smoothly with size.
const LOCAL_SHARE: f64 = 0.3;
/// Binary logarithm of the factor in size over which the smooth part changes.
const LENGTH: f64 = 2.0;
/// Multiple of the host's launch time below which a measurement contains no information about the device.
const HOST_BOUND: f64 = 1.3;
/// Prior on a GPU, from the models' errors on seen or unseen GPUs.
pub(crate) fn prior(facts: &ModelFacts, gpu: &GpuSpec) -> Prior {
    let seen = facts.boards.contains_key(gpu.slug.as_str());
    let Spread { low, high, .. } = if seen { facts.seen } else { facts.unseen }.unwrap_or(WIDE);
    let deviation = (high / low).ln().max(0.02) / (2.0 * DEVIATIONS);
    let total = deviation * deviation;
    Prior { board: total * BOARD_SHARE, local: total * LOCAL_SHARE, noise: total * (1.0 - BOARD_SHARE - LOCAL_SHARE) }
}

/// Whether a separately measured time is mostly the host's launch.
pub(crate) fn is_host_bound(time: Micros, facts: &ModelFacts) -> bool {
    time.get() < HOST_BOUND * facts.host_us.min(LONGEST_LAUNCH_US)
}

/// Coordinates of an operator: logarithms of its sizes.
pub(crate) fn coordinates(part: &Part) -> Vec<f64> {
    part.primitive.sizes().iter().map(|size| size.max(1.0).log2() / LENGTH).collect()
}

/// Products and convolutions have errors of the rate, which depends on the precision; others have errors of the memory
/// bandwidth, which does not.
pub(crate) fn arithmetic(query: &Query<'_>) -> Arithmetic {
    match query.part.primitive {
        Primitive::Product { .. } | Primitive::Convolution { .. } => {
            [query.part.element_bytes.to_bits(), query.rate.burst.get().to_bits()]
        }
        _ => [0; 2],
    }
}

impl Corrections {
    /// Process of a query's model on its GPU; `None` if nothing was measured.
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
