//! What was learned besides the networks, as it stands in the file of weights.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::time::Spread;
use crate::mlp::ModelError;

/// What was learned besides the networks, as it stands in the file.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Facts {
    /// Version of this form.
    pub version: u32,
    /// By model.
    pub models: BTreeMap<String, ModelFacts>,
    /// Steps predicted from shapes, and from a measured origin.
    pub steps: StepFacts,
}

/// One model's.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ModelFacts {
    /// Log of how much faster a measured GPU is than the networks say, by slug.
    pub boards: BTreeMap<String, f64>,
    /// The same for unmeasured GPUs of a maker whose GPUs differ from the others.
    pub makers: BTreeMap<String, f64>,
    /// What an operator takes at least where it is measured by itself: the host's launch.
    pub host_us: f64,
    /// Ends of what nearly all values of every feature lie between in training.
    pub ranges: Vec<[f64; 2]>,
    /// Measured over predicted on GPUs among the training data.
    pub seen: Option<Spread>,
    /// On GPUs that were left out of it.
    pub unseen: Option<Spread>,
    /// How much of an origin's deviation from its prediction a destination shares, 0 to 1.
    pub shared_deviation: f64,
    /// Measured over predicted with an origin's help, GPU left out.
    pub with_origin: Option<Spread>,
}

/// What was learned of whole steps.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StepFacts {
    /// Step over sum of predicted operators, where nothing else is known.
    pub typical: f64,
    /// The same of training steps over that of inference.
    pub training: f64,
    /// By slug, for GPUs with measured steps.
    pub boards: BTreeMap<String, f64>,
    /// By maker, for its other GPUs.
    pub makers: BTreeMap<String, f64>,
    /// Measured over predicted, GPUs among the training data.
    pub seen: Option<Spread>,
    /// GPUs that were left out.
    pub unseen: Option<Spread>,
    /// How much of an origin's deviation a destination's step shares, 0 to 1.
    pub shared_deviation: f64,
    /// Measured over predicted from an origin's step, GPU left out.
    pub with_origin: Option<Spread>,
}

/// Logs of factors beyond this are damage, and would make times infinite or nothing.
const LARGEST_OFFSET: f64 = 20.0;

impl ModelFacts {
    /// Whether times can be computed from it.
    pub(super) fn check(&self, model: &str) -> Result<(), ModelError> {
        let mut offsets = self.boards.values().chain(self.makers.values());
        let spreads = [self.seen, self.unseen, self.with_origin];
        let sound = offsets.all(|offset| offset.abs() <= LARGEST_OFFSET)
            && spreads.into_iter().flatten().all(Spread::is_sound)
            && [self.host_us, self.shared_deviation].iter().all(|value| value.is_finite() && *value >= 0.0);
        if sound { Ok(()) } else { Err(ModelError::Form(format!("facts: a figure of {model} cannot be"))) }
    }
}

impl StepFacts {
    /// Whether steps can be computed from it.
    pub(crate) fn check(&self) -> Result<(), ModelError> {
        let mut factors = self.boards.values().chain(self.makers.values()).chain([&self.typical, &self.training]);
        let spreads = [self.seen, self.unseen, self.with_origin];
        let sound = factors.all(|factor| factor.is_finite() && *factor > 0.0)
            && spreads.into_iter().flatten().all(Spread::is_sound)
            && self.shared_deviation.is_finite();
        if sound { Ok(()) } else { Err(ModelError::Form("facts: a figure of steps cannot be".to_owned())) }
    }
}
