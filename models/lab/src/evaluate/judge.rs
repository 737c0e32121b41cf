//! Predictions of published steps by models that did not see them.

use std::sync::Arc;

use habitat_tui::catalog::Catalog;
use habitat_tui::cli::CliError;
use habitat_tui::predict::efficiency::Efficiency;
use habitat_tui::predict::learned::Models;
use habitat_tui::predict::{Host, MethodChoice, Options, predict};
use habitat_tui::profile::Precision;
use habitat_tui::store::bundled;

use super::tally::Predicted;
use crate::learn::efficiency::folds::Folds;
use crate::models::{ModelsByGpu, without_chip};
use crate::published::PublishedStep;

/// Models that predict published steps.
pub(crate) struct Judge<'a> {
    pub(super) shipped: Models,
    /// Operator models by the GPUs that they did not see, if there are any.
    models: &'a ModelsByGpu,
    pub(super) catalog: &'a Catalog,
}

impl<'a> Judge<'a> {
    /// Takes operator models by GPU; uses the shipped ones for other GPUs.
    pub(crate) fn new(models: &'a ModelsByGpu, catalog: &'a Catalog) -> Self {
        Self { shipped: bundled::models(), models, catalog }
    }

    /// Efficiency models that did not see some of the steps.
    pub(crate) fn folds(&self, steps: &[PublishedStep]) -> Result<Folds, CliError> {
        Folds::new(steps, self.catalog, &|step| self.operators(step)).map_err(CliError::other)
    }

    /// Note on the operator models.
    pub(super) fn protocol(&self) -> &'static str {
        if self.models.without.is_empty() {
            "operator models that saw all their training data"
        } else {
            "operator models that saw no GPU of the same chip"
        }
    }

    /// The operator models for a step.
    pub(super) fn operators(&self, step: &PublishedStep) -> Models {
        let gpu = self.catalog.get(&step.gpu);
        let models = gpu.and_then(|gpu| without_chip(self.models, gpu, self.catalog)).unwrap_or(&self.shipped);
        Models::new(models.ensembles().clone(), models.steps().clone())
    }

    pub(super) fn predict(
        &self,
        step: &PublishedStep,
        efficiency: &Efficiency,
        method: MethodChoice,
    ) -> Result<Predicted, CliError> {
        self.predict_in(step, None, efficiency, method)
    }

    /// Predicts the step in another precision than it ran in.
    pub(super) fn predict_in(
        &self,
        step: &PublishedStep,
        precision: Option<Precision>,
        efficiency: &Efficiency,
        method: MethodChoice,
    ) -> Result<Predicted, CliError> {
        let models = self.operators(step);
        let options = Options {
            targets: vec![step.gpu.clone()],
            method,
            precision,
            // Compiled steps, and single operators, were timed without their launches.
            host: if step.is_compiled { Host::KeepsUp } else { Host::default() },
            models: Some(Arc::new(models.with_efficiency(efficiency.clone()))),
            ..Options::default()
        };
        let answer = predict(&step.profile, &step.catalog(self.catalog), &options).map_err(CliError::other)?;
        let range = answer.predictions.first().map(|prediction| prediction.step.as_estimate().range);
        let range = range.ok_or_else(|| CliError::Refused(format!("{}: not predicted", step.gpu)))?;
        Ok(Predicted { mid: range.mid.as_millis(), range: Some([range.low.as_millis(), range.high.as_millis()]) })
    }
}
