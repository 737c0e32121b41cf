//! Learned figures besides the networks, as stored in the weight file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::learned_time::Spread;
use crate::mlp::ModelError;

/// Learned figures besides the networks.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Facts {
    /// Version of this format.
    pub version: u32,
    /// Figures by model.
    pub models: BTreeMap<String, ModelFacts>,
    /// Figures of whole steps, predicted from shapes or from a measured origin.
    pub steps: StepFacts,
}

/// Figures of one model.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ModelFacts {
    /// Logarithm of measured GPU speed over the networks' prediction, by slug.
    pub boards: BTreeMap<String, f64>,
    /// The same by vendor, for unmeasured GPUs of vendors that differ from the others.
    pub makers: BTreeMap<String, f64>,
    /// Minimum time of a separately measured operator: the host's launch, in microseconds.
    pub host_us: f64,
    /// Range of nearly all training values, for each feature.
    pub ranges: Vec<[f64; 2]>,
    /// Measured over predicted time on GPUs of the training data.
    pub seen: Option<Spread>,
    /// Measured over predicted time on left-out GPUs.
    pub unseen: Option<Spread>,
    /// Share of an origin's deviation from its prediction that carries over, 0 to 1.
    pub shared_deviation: f64,
    /// Measured over predicted time with an origin's measurement, on left-out GPUs.
    pub with_origin: Option<Spread>,
}

/// Learned figures of whole steps; by default a step takes the sum of its operators.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepFacts {
    /// Step over the sum of predicted operators, if nothing more specific is known.
    pub typical: f64,
    /// That ratio for training steps over that for inference.
    pub training: f64,
    /// The ratio by slug, for GPUs with measured steps.
    pub boards: BTreeMap<String, f64>,
    /// The ratio by vendor, for other GPUs.
    pub makers: BTreeMap<String, f64>,
    /// Measured over predicted step on GPUs of the training data.
    pub seen: Option<Spread>,
    /// Measured over predicted step on left-out GPUs.
    pub unseen: Option<Spread>,
    /// Share of an origin's deviation that carries over to a step elsewhere, 0 to 1.
    pub shared_deviation: f64,
    /// Measured over predicted step from an origin's step, on left-out GPUs.
    pub with_origin: Option<Spread>,
}

impl Default for StepFacts {
    fn default() -> Self {
        Self {
            typical: 1.0,
            training: 1.0,
            boards: BTreeMap::new(),
            makers: BTreeMap::new(),
            seen: None,
            unseen: None,
            shared_deviation: 0.0,
            with_origin: None,
        }
    }
}

/// Largest valid absolute logarithm of a factor; beyond it the file is damaged and times would be infinite or zero.
const LARGEST_OFFSET: f64 = 20.0;

impl ModelFacts {
    /// Checks that times can be computed from these figures.
    pub(super) fn check(&self, model: &str) -> Result<(), ModelError> {
        let mut offsets = self.boards.values().chain(self.makers.values());
        let spreads = [self.seen, self.unseen, self.with_origin];
        let sound = offsets.all(|offset| offset.abs() <= LARGEST_OFFSET)
            && spreads.into_iter().flatten().all(Spread::is_sound)
            && [self.host_us, self.shared_deviation].iter().all(|value| value.is_finite() && *value >= 0.0);
        if sound { Ok(()) } else { Err(ModelError::Form(format!("facts: a figure of {model} is invalid"))) }
    }
}

impl StepFacts {
    /// Checks that steps can be computed from these figures.
    pub(crate) fn check(&self) -> Result<(), ModelError> {
        let mut factors = self.boards.values().chain(self.makers.values()).chain([&self.typical, &self.training]);
        let spreads = [self.seen, self.unseen, self.with_origin];
        let sound = factors.all(|factor| factor.is_finite() && *factor > 0.0)
            && spreads.into_iter().flatten().all(Spread::is_sound)
            && self.shared_deviation.is_finite();
        if sound { Ok(()) } else { Err(ModelError::Form("facts: a figure of steps is invalid".to_owned())) }
    }
}
