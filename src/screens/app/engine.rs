//! What the front end asks of the rest of the program, as functions: `app` itself reads no
//! file and solves nothing, and tests pass fixed answers.

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

/// What was chosen on screen in place of what was asked for at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chosen {
    /// The method.
    pub method: Option<MethodChoice>,
    /// The host.
    pub host: Option<Host>,
    /// The precision; inside, `None` = as recorded.
    pub precision: Option<Option<Precision>>,
    /// The batch on each GPU that plans may use beside the recorded one; inside, `None` = the recorded one alone.
    pub batch: Option<Option<u64>>,
}

impl Chosen {
    /// What was asked for at the start, changed as chosen since.
    #[must_use]
    pub fn applied(self, asked: &Options) -> Options {
        let (method, host) = (self.method.unwrap_or(asked.method), self.host.unwrap_or(asked.host));
        Options { method, host, precision: self.precision.unwrap_or(asked.precision), ..asked.clone() }
    }
}

/// Predicts the step on every GPU of the catalog.
pub type PredictFn = dyn Fn(&Profile, Chosen) -> Result<Predictions, String> + Send + Sync;
/// Predicts some GPUs operation by operation.
pub type DetailFn = dyn Fn(&Profile, &[GpuSlug], Chosen) -> Result<Predictions, String> + Send + Sync;
/// What every method says of one GPU.
pub type CompareFn = dyn Fn(&Profile, &GpuSlug, Chosen) -> Result<Comparison, String> + Send + Sync;
/// The step at other batch sizes on one GPU.
pub type BatchesFn = dyn Fn(&Profile, &GpuSlug, Chosen) -> Result<Sweep, String> + Send + Sync;
/// A GPU with other figures, and one of them that a curve goes along.
#[derive(Debug, Clone, PartialEq)]
pub struct Version {
    /// The real GPU.
    pub gpu: GpuSlug,
    /// Its figures, in times of the real ones.
    pub changes: Changes,
    /// The figure of the curve.
    pub along: Figure,
}

/// The step on a GPU with other figures.
pub type ChangeFn = dyn Fn(&Profile, &Version, Chosen) -> Result<WhatIf, String> + Send + Sync;
/// Answers a goal.
pub type PlanFn = dyn Fn(&Arc<Predictions>, &Goal) -> Result<Solved, String> + Send + Sync;
/// Reads the file of jobs and plans them together.
pub type JobsFn = dyn Fn() -> Result<JobsPlan, String> + Send + Sync;
/// Writes a plan as texts, one a file.
pub type ExportFn = dyn Fn(&Export) -> Result<Vec<String>, String> + Send + Sync;
/// Writes a text to a file: path, text, whether an existing file may be replaced.
pub type SaveFn = dyn Fn(&str, &str, bool) -> SaveOutcome + Send + Sync;

/// A plan to be written.
#[derive(Debug, Clone)]
pub struct Export {
    /// The plan.
    pub plan: Arc<Plan>,
    /// The predictions it rests on.
    pub predictions: Arc<Predictions>,
    /// The recorded step.
    pub profile: Arc<Profile>,
    /// How the step was predicted, as far as it was chosen on screen.
    pub chosen: Chosen,
    /// The form.
    pub form: PlanForm,
}

/// The answer to a goal, with the plans to choose from were there no deadline and budget.
#[derive(Debug, Clone)]
pub struct Solved {
    /// The plan.
    pub plan: Arc<Plan>,
    /// From the fastest to the cheapest.
    pub frontier: Arc<Vec<FrontierPoint>>,
}

/// What came of writing a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SaveOutcome {
    /// Written; the full path.
    Saved(String),
    /// There is one already and it was not to be replaced.
    Exists,
    /// Not written, and why.
    Failed(String),
}

/// The functions.
#[derive(Clone)]
pub struct Engine {
    /// Predicts.
    pub predict: Arc<PredictFn>,
    /// Predicts operation by operation.
    pub detail: Arc<DetailFn>,
    /// Compares methods.
    pub compare: Arc<CompareFn>,
    /// Predicts other batch sizes.
    pub batches: Arc<BatchesFn>,
    /// Predicts a GPU with other figures.
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
    /// Carries out an effect that computes or writes a file: the message that answers it. `None`
    /// for the others, which are the terminal's. A panic is a failed computation.
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
    /// Writes each text to a file of its own; the first that cannot be written ends it.
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
        Err(format!("the program has a fault ({text}); please report it, your data is untouched"))
    })
}

#[cfg(test)]
mod tests {
    use super::guarded;

    #[test]
    fn a_panic_is_a_failed_computation() {
        assert_eq!(guarded(|| Ok(1)), Ok(1));
        let failed = guarded(|| -> Result<(), String> { panic!("no {}", "way") });
        assert!(failed.unwrap_err().contains("the program has a fault (no way)"));
    }
}
