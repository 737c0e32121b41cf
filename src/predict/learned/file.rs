//! The learned models as they stand in a safetensors file: networks by name, and what was
//! learned besides them as JSON among the file's metadata.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Ensemble, Models, Spread};
use crate::predict::bundle::Bundle;
use crate::predict::features::OperatorModel;
use crate::predict::mlp::{Mlp, ModelError};

/// Version of what is written beside the networks.
const VERSION: u32 = 1;

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
    /// Log of how much faster a measured board is than the networks say, by slug.
    pub boards: BTreeMap<String, f64>,
    /// The same for unmeasured boards of a maker whose boards differ from the others.
    pub makers: BTreeMap<String, f64>,
    /// What an operator takes at least where it is measured by itself: the host's launch.
    pub host_us: f64,
    /// Ends of what nearly all values of every feature lie between in training.
    pub ranges: Vec<[f64; 2]>,
    /// Measured over predicted on boards among the training data.
    pub seen: Option<Spread>,
    /// On boards that were left out of it.
    pub unseen: Option<Spread>,
    /// How much of an origin's deviation from its prediction a destination shares, 0 to 1.
    pub shared_deviation: f64,
    /// Measured over predicted with an origin's help, board left out.
    pub with_origin: Option<Spread>,
}

/// What was learned of whole steps.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StepFacts {
    /// Step over sum of predicted operators, where nothing else is known.
    pub typical: f64,
    /// The same of training steps over that of inference.
    pub training: f64,
    /// By slug, for boards with measured steps.
    pub boards: BTreeMap<String, f64>,
    /// By maker, for its other boards.
    pub makers: BTreeMap<String, f64>,
    /// Measured over predicted, boards among the training data.
    pub seen: Option<Spread>,
    /// Boards that were left out.
    pub unseen: Option<Spread>,
    /// How much of an origin's deviation a destination's step shares, 0 to 1.
    pub shared_deviation: f64,
    /// Measured over predicted from an origin's step, board left out.
    pub with_origin: Option<Spread>,
}

impl Models {
    /// From the bytes of a safetensors file.
    ///
    /// # Errors
    /// [`ModelError`] naming what is missing or of another form.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ModelError> {
        let bundle = Bundle::from_bytes(bytes)?;
        let facts = bundle.metadata.get("facts").ok_or_else(|| ModelError::Missing("facts".to_owned()))?;
        let facts: Facts = serde_json::from_str(facts).map_err(|error| ModelError::Form(format!("facts: {error}")))?;
        if facts.version != VERSION {
            return Err(ModelError::Form(format!("version {}, this program reads {VERSION}", facts.version)));
        }
        let mut ensembles = BTreeMap::new();
        for model in OperatorModel::ALL {
            let Some(facts) = facts.models.get(model.name()) else { continue };
            let prefix = format!("{}.", model.name());
            let networks: Vec<Mlp> = bundle
                .networks
                .iter()
                .filter(|(name, _)| name.starts_with(&prefix))
                .map(|(_, network)| network.clone())
                .collect();
            for network in &networks {
                let sizes = &network.architecture().sizes;
                if sizes.first() != Some(&model.width()) || sizes.last() != Some(&1) {
                    return Err(ModelError::Sizes(format!(
                        "networks of {} take {} features and give one number, not {sizes:?}",
                        model.name(),
                        model.width()
                    )));
                }
            }
            if networks.is_empty() {
                return Err(ModelError::Missing(prefix));
            }
            let ordered = |range: &[f64; 2]| range[0] <= range[1] && range.iter().all(|end| end.is_finite());
            if facts.ranges.len() != model.width() || !facts.ranges.iter().all(ordered) {
                return Err(ModelError::Form(format!("facts: the ranges of {} are not its features'", model.name())));
            }
            ensembles.insert(model, Ensemble { networks, facts: facts.clone() });
        }
        Ok(Self::new(ensembles, facts.steps))
    }

    /// Whether the bytes of a file carry those entries (see [`Models::to_bytes`]).
    pub fn is_of(bytes: &[u8], metadata: &BTreeMap<String, String>) -> bool {
        Bundle::from_bytes(bytes)
            .is_ok_and(|bundle| metadata.iter().all(|(key, value)| bundle.metadata.get(key) == Some(value)))
    }

    /// The bytes of a safetensors file; `metadata` is kept beside (command, data and hashes).
    ///
    /// # Errors
    /// [`ModelError`] where the facts cannot be written.
    pub fn to_bytes(&self, metadata: BTreeMap<String, String>) -> Result<Vec<u8>, ModelError> {
        let mut bundle = Bundle { metadata, ..Bundle::default() };
        let mut facts = Facts { version: VERSION, models: BTreeMap::new(), steps: self.steps.clone() };
        for (model, ensemble) in &self.ensembles {
            facts.models.insert(model.name().to_owned(), ensemble.facts.clone());
            for (index, network) in ensemble.networks.iter().enumerate() {
                bundle.networks.insert(format!("{}.{index}", model.name()), network.clone());
            }
        }
        let text = serde_json::to_string(&facts).map_err(|error| ModelError::Form(error.to_string()))?;
        bundle.metadata.insert("facts".to_owned(), text);
        bundle.to_bytes()
    }
}
