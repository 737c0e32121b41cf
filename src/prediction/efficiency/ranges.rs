//! Error ranges of whole steps by mode and precision.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::learned_time::Spread;
use habitat_step::catalog::{GpuSpec, Vendor};
use habitat_step::profile::{Mode, Precision, Workload};

/// 80 % ranges of measured over predicted steps of one mode and precision, from shapes alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRanges {
    /// Mode of the steps.
    pub mode: Mode,
    /// Precision of the steps.
    pub precision: Precision,
    /// Ranges by slug of GPUs with many measured steps, from left-out networks.
    pub boards: BTreeMap<String, Spread>,
    /// Range on every other GPU, from left-out networks and GPUs.
    pub unseen: Spread,
}

/// Whole FP32 training iterations, predicted by the operator models: step over the sum of its operators, and the
/// remaining error with network and GPU left out.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Iterations {
    /// Step over the sum of its operators.
    pub factor: f64,
    /// 80 % range of measured over predicted steps.
    pub unseen: Spread,
}

impl Iterations {
    /// Whether the figures are valid.
    pub(super) fn is_sound(&self) -> bool {
        self.factor.is_finite() && self.factor > 0.0 && self.unseen.is_sound()
    }
}

impl StepRanges {
    /// Whether all ranges are valid.
    pub(super) fn is_sound(&self) -> bool {
        self.boards.values().chain([&self.unseen]).all(|spread| spread.is_sound())
    }

    /// Range of a step on a GPU; `None` for another mode or precision, and for vendors without measured steps.
    pub(super) fn of(&self, gpu: &GpuSpec, workload: &Workload) -> Option<Spread> {
        let is_alike = workload.mode == self.mode && workload.precision == Some(self.precision);
        let own = || self.boards.get(gpu.slug.as_str()).copied().unwrap_or(self.unseen);
        (is_alike && gpu.vendor == Vendor::Nvidia).then(own)
    }
}
