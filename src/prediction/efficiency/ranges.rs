//! How far whole steps of one mode and precision deviate.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::learned::Spread;
use habitat_step::catalog::{GpuSpec, Vendor};
use habitat_step::profile::{Mode, Precision, Workload};

/// The 80 % ranges of measured over predicted steps of one mode and precision, from shapes alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRanges {
    /// Of which mode.
    pub mode: Mode,
    /// Of which precision.
    pub precision: Precision,
    /// By slug, of GPUs on which many such steps were measured: their networks left out.
    pub boards: BTreeMap<String, Spread>,
    /// On every other GPU: network and GPU left out.
    pub unseen: Spread,
}

/// Whole training iterations in FP32, which the operator models answer for: the step over the sum
/// of its operators, and what is left of that, network and GPU left out.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Iterations {
    /// Step over sum of operators.
    pub factor: f64,
    /// The 80 % range of measured over predicted steps.
    pub unseen: Spread,
}

impl Iterations {
    /// Whether steps can be computed from it.
    pub(super) fn is_sound(&self) -> bool {
        self.factor.is_finite() && self.factor > 0.0 && self.unseen.is_sound()
    }
}

impl StepRanges {
    /// Whether these are ranges of factors.
    pub(super) fn is_sound(&self) -> bool {
        self.boards.values().chain([&self.unseen]).all(|spread| spread.is_sound())
    }

    /// The range of a step on a GPU; `None` of steps of another mode or precision, and of GPUs of
    /// makers that no step was measured on.
    pub(super) fn of(&self, gpu: &GpuSpec, workload: &Workload) -> Option<Spread> {
        let is_alike = workload.mode == self.mode && workload.precision == Some(self.precision);
        let own = || self.boards.get(gpu.slug.as_str()).copied().unwrap_or(self.unseen);
        (is_alike && gpu.vendor == Vendor::Nvidia).then(own)
    }
}
