//! Learned models in a safetensors file: networks by name, and other learned figures as JSON in the metadata.

use std::collections::BTreeMap;

use super::ensemble::Ensemble;
use super::models::Models;
use crate::bundle::Bundle;
use crate::facts::Facts;
use crate::features::OperatorModel;
use crate::mlp::{Mlp, ModelError};

/// Version of the figures beside the networks.
const VERSION: u32 = 1;

impl Models {
    /// Parses a safetensors file.
    ///
    /// # Errors
    /// [`ModelError`] naming the part that is missing or invalid.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ModelError> {
        let bundle = Bundle::from_bytes(bytes)?;
        let facts = bundle.metadata.get("facts").ok_or_else(|| ModelError::Missing("facts".to_owned()))?;
        let facts: Facts = serde_json::from_str(facts).map_err(|error| ModelError::Form(format!("facts: {error}")))?;
        if facts.version != VERSION {
            return Err(ModelError::Form(format!("version {}, this program reads {VERSION}", facts.version)));
        }
        facts.steps.check()?;
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
                        "networks of {} need {} inputs and one output, not {sizes:?}",
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
                return Err(ModelError::Form(format!(
                    "facts: the ranges of {} do not match its features",
                    model.name()
                )));
            }
            facts.check(model.name())?;
            ensembles.insert(model, Ensemble { networks, facts: facts.clone() });
        }
        Ok(Self::new(ensembles, facts.steps))
    }

    /// Whether a file has these metadata entries (see [`Models::to_bytes`]).
    pub fn is_of(bytes: &[u8], metadata: &BTreeMap<String, String>) -> bool {
        Bundle::from_bytes(bytes)
            .is_ok_and(|bundle| metadata.iter().all(|(key, value)| bundle.metadata.get(key) == Some(value)))
    }

    /// Serializes to a safetensors file; `metadata` is stored in it (command, data and hashes).
    ///
    /// # Errors
    /// [`ModelError`] if the facts cannot be serialized.
    pub fn to_bytes(&self, metadata: BTreeMap<String, String>) -> Result<Vec<u8>, ModelError> {
        let mut bundle = Bundle { metadata, ..Bundle::default() };
        let mut facts = Facts { version: VERSION, models: BTreeMap::new(), steps: self.steps().clone() };
        for (model, ensemble) in self.ensembles() {
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
