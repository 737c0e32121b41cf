//! Predictions of published steps by models that did not see them.

use std::sync::Arc;

use habitat_tui::catalog::Catalog;
use habitat_tui::cli::CliError;
use habitat_tui::predict::efficiency::Efficiency;
use habitat_tui::predict::learned::Models;
use habitat_tui::predict::{Host, MethodChoice, Options, Prediction, predict};
use habitat_tui::profile::{Origin, Precision, Profile, Step};
use habitat_tui::store::bundled;
use habitat_tui::units::GpuSlug;

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
        Folds::new(steps, self.catalog, &|step| self.operators(&step.gpu)).map_err(CliError::other)
    }

    /// Note on the operator models.
    pub(super) fn protocol(&self) -> &'static str {
        if self.models.without.is_empty() {
            "operator models that saw all their training data"
        } else {
            "operator models that saw no GPU of the same chip"
        }
    }

    /// The operator models for a GPU, alone.
    pub(super) fn operators(&self, gpu: &GpuSlug) -> Models {
        let gpu = self.catalog.get(gpu);
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
        let models = Arc::new(self.operators(&step.gpu).with_efficiency(efficiency.clone()));
        let options = Options { method, precision, models: Some(models), ..options_on(step, &step.gpu) };
        self.one(step, &step.profile, &options).map(|prediction| range_of(&prediction))
    }

    /// The step in another precision on another GPU, from what it took on its own.
    pub(super) fn predict_from(
        &self,
        step: &PublishedStep,
        (gpu, to): (&GpuSlug, Precision),
        efficiency: &Efficiency,
    ) -> Result<Predicted, CliError> {
        let models = Arc::new(self.operators(gpu).with_efficiency(efficiency.clone()));
        let here = Options { models: Some(models), ..options_on(step, &step.gpu) };
        let alone = self.one(step, &step.profile, &here)?;
        let mut profile = step.profile.clone();
        let gpu_here = Some(step.gpu.clone());
        profile.origin = Some(Origin { gpu: gpu_here, gpu_name: None, framework: None, cuda: None, driver: None });
        profile.step = Some(Step { duration: Some(step.time), device_busy: Some(step.time), ..Step::default() });
        let share = step.time / alone.step.mid();
        for (operation, predicted) in profile.operations.iter_mut().zip(&alone.operations) {
            operation.device_time = predicted.time.map(|time| time.range.mid * share);
        }
        let there = Options { targets: vec![gpu.clone()], precision: Some(to), ..here };
        self.one(step, &profile, &there).map(|prediction| range_of(&prediction))
    }

    fn one(&self, step: &PublishedStep, profile: &Profile, options: &Options) -> Result<Prediction, CliError> {
        let answer = predict(profile, &step.catalog(self.catalog), options).map_err(CliError::other)?;
        let found = answer.predictions.into_iter().next();
        found.ok_or_else(|| CliError::Refused(format!("{}: not predicted", step.gpu)))
    }
}

fn options_on(step: &PublishedStep, gpu: &GpuSlug) -> Options {
    // What was compiled, and operators alone, were timed without their launches.
    let host = if step.is_compiled { Host::KeepsUp } else { Host::default() };
    Options { targets: vec![gpu.clone()], host, ..Options::default() }
}

fn range_of(prediction: &Prediction) -> Predicted {
    let range = prediction.step.as_estimate().range;
    Predicted { mid: range.mid.as_millis(), range: Some([range.low.as_millis(), range.high.as_millis()]) }
}
