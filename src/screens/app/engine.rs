//! Services that the front end needs from the rest of the program, as functions. `app` itself reads no files and solves
//! nothing, and tests can pass fixed answers.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::app::msg::{Effect, Msg};
use habitat_base::units::GpuSlug;
use habitat_planning::plan::jobs::JobsPlan;
use habitat_planning::plan::{FrontierPoint, Goal, Plan};
use habitat_prediction::batches::Sweep;
use habitat_prediction::compare::Comparison;
use habitat_prediction::hypothetical::WhatIf;
use habitat_prediction::{Host, MethodChoice, Options, Precision, Predictions};
use habitat_reports::plan_form::{PlanForm, paths};
use habitat_step::catalog::hypothetical::{Changes, Figure};
use habitat_step::profile::Profile;

/// Choices on screen that override those at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chosen {
    /// The method.
    pub method: Option<MethodChoice>,
    /// The host.
    pub host: Option<Host>,
    /// The precision; inside, `None` = as recorded.
    pub precision: Option<Option<Precision>>,
    /// Batch per GPU that plans may use in addition to the recorded one; inside, `None` = the recorded one only.
    pub batch: Option<Option<u64>>,
}

impl Chosen {
    /// The options from the start with the choices on screen applied.
    #[must_use]
    pub fn applied(self, asked: &Options) -> Options {
        let (method, host) = (self.method.unwrap_or(asked.method), self.host.unwrap_or(asked.host));
        Options { method, host, precision: self.precision.unwrap_or(asked.precision), ..asked.clone() }
    }
}

/// Predicts the step on every GPU of the catalog.
pub type PredictFn = dyn Fn(&Profile, Chosen) -> Result<Predictions, String> + Send + Sync;
/// Predicts some GPUs by operation.
pub type DetailFn = dyn Fn(&Profile, &[GpuSlug], Chosen) -> Result<Predictions, String> + Send + Sync;
/// Compares all methods on one GPU.
pub type CompareFn = dyn Fn(&Profile, &GpuSlug, Chosen) -> Result<Comparison, String> + Send + Sync;
/// Predicts the step at other batch sizes on one GPU.
pub type BatchesFn = dyn Fn(&Profile, &GpuSlug, Chosen) -> Result<Sweep, String> + Send + Sync;
/// A GPU with changed specifications, and the one that the curve varies.
#[derive(Debug, Clone, PartialEq)]
pub struct Version {
    /// The real GPU.
    pub gpu: GpuSlug,
    /// Its changed specifications, as multiples of the real ones.
    pub changes: Changes,
    /// The specification that the curve varies.
    pub along: Figure,
}

/// Predicts the step on a GPU with changed specifications.
pub type ChangeFn = dyn Fn(&Profile, &Version, Chosen) -> Result<WhatIf, String> + Send + Sync;
/// Plans for a goal.
pub type PlanFn = dyn Fn(&Arc<Predictions>, &Goal) -> Result<Solved, String> + Send + Sync;
/// Reads the file of jobs and plans them together.
pub type JobsFn = dyn Fn() -> Result<JobsPlan, String> + Send + Sync;
/// Renders a plan as texts, one per file.
pub type ExportFn = dyn Fn(&Export) -> Result<Vec<String>, String> + Send + Sync;
/// Saves a text to a file. Arguments: path, text, and whether to overwrite an existing file.
pub type SaveFn = dyn Fn(&str, &str, bool) -> SaveOutcome + Send + Sync;

/// A plan to export.
#[derive(Debug, Clone)]
pub struct Export {
    /// The plan.
    pub plan: Arc<Plan>,
    /// The predictions behind it.
    pub predictions: Arc<Predictions>,
    /// The recorded step.
    pub profile: Arc<Profile>,
    /// Choices on screen that affect the predictions.
    pub chosen: Chosen,
    /// The form.
    pub form: PlanForm,
}

/// A plan, and the best trade-offs without deadline and budget.
#[derive(Debug, Clone)]
pub struct Solved {
    /// The plan.
    pub plan: Arc<Plan>,
    /// From the fastest to the cheapest.
    pub frontier: Arc<Vec<FrontierPoint>>,
}

/// Result of saving a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SaveOutcome {
    /// Saved; the full path.
    Saved(String),
    /// The file exists and overwriting was not allowed.
    Exists,
    /// Not saved; the reason.
    Failed(String),
}

/// The services.
#[derive(Clone)]
pub struct Engine {
    /// Predicts.
    pub predict: Arc<PredictFn>,
    /// Predicts by operation.
    pub detail: Arc<DetailFn>,
    /// Compares methods.
    pub compare: Arc<CompareFn>,
    /// Predicts other batch sizes.
    pub batches: Arc<BatchesFn>,
    /// Predicts a GPU with changed specifications.
    pub change: Arc<ChangeFn>,
    /// Plans.
    pub plan: Arc<PlanFn>,
    /// Plans several jobs.
    pub jobs: Arc<JobsFn>,
    /// Writes a plan as text.
    pub export: Arc<ExportFn>,
    /// Writes a file.
    pub save: Arc<SaveFn>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Engine")
    }
}

impl Engine {
    /// Runs an effect that computes or saves and returns the answering message; `None` for effects of the terminal. A
    /// panic counts as a failed computation.
    pub fn answer(&self, effect: &Effect) -> Option<Msg> {
        Some(match effect {
            Effect::Predict { generation, profile, chosen } => {
                let result = guarded(|| (self.predict)(profile, *chosen)).map(Arc::new);
                Msg::Predicted { generation: *generation, result }
            }
            Effect::Detail { generation, profile, gpus, chosen } => {
                let result = guarded(|| (self.detail)(profile, gpus, *chosen)).map(Arc::new);
                Msg::Detailed { generation: *generation, result }
            }
            Effect::Compare { generation, profile, gpu, chosen } => {
                let result = guarded(|| (self.compare)(profile, gpu, *chosen)).map(Arc::new);
                Msg::Compared { generation: *generation, result }
            }
            Effect::Batches { generation, profile, gpu, chosen } => {
                let result = guarded(|| (self.batches)(profile, gpu, *chosen)).map(Arc::new);
                Msg::Swept { generation: *generation, result }
            }
            Effect::Change { generation, profile, version, chosen } => {
                let result = guarded(|| (self.change)(profile, version, *chosen)).map(Arc::new);
                Msg::Changed { generation: *generation, result }
            }
            Effect::Solve { generation, predictions, goal } => {
                let result = guarded(|| (self.plan)(predictions, goal));
                Msg::Planned { generation: *generation, result }
            }
            Effect::PlanJobs { generation } => {
                let result = guarded(|| (self.jobs)()).map(Arc::new);
                Msg::JobsPlanned { generation: *generation, result }
            }
            Effect::SaveJobs { plan, form, path, overwrite } => {
                let text = guarded(|| form.text(plan).map_err(|error| error.to_string()));
                let saved = text.and_then(|text| guarded(|| Ok((self.save)(path, &text, *overwrite))));
                Msg::Saved(saved.unwrap_or_else(SaveOutcome::Failed))
            }
            Effect::Save { export, path, overwrite } => {
                let texts = guarded(|| (self.export)(export));
                let saved = texts.and_then(|texts| guarded(|| Ok(self.save_all(path, &texts, *overwrite))));
                Msg::Saved(saved.unwrap_or_else(SaveOutcome::Failed))
            }
            _ => return None,
        })
    }
}

impl Engine {
    /// Writes each text to its own file and stops at the first failure.
    fn save_all(&self, path: &str, texts: &[String], overwrite: bool) -> SaveOutcome {
        let mut written = Vec::new();
        for (path, text) in paths(path, texts.len()).iter().zip(texts) {
            match (self.save)(path, text, overwrite) {
                SaveOutcome::Saved(path) => written.push(path),
                other => return other,
            }
        }
        SaveOutcome::Saved(written.join(", "))
    }
}

fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(format!("internal error ({text}), please report it; your data is not affected"))
    })
}

#[cfg(test)]
mod tests {
    use super::guarded;

    #[test]
    fn a_panic_is_a_failed_computation() {
        assert_eq!(guarded(|| Ok(1)), Ok(1));
        let failed = guarded(|| -> Result<(), String> { panic!("no {}", "way") });
        assert!(failed.unwrap_err().contains("internal error (no way)"));
    }
}
