//! Services that the front end needs from the rest of the program, as functions. `app` itself reads no files and solves
//! nothing, and tests can pass fixed answers.

use std::fmt;
use std::sync::Arc;

use habitat_base::units::GpuSlug;
use habitat_planning::plan::jobs::JobsPlan;
use habitat_planning::plan::{FrontierPoint, Goal, Plan};
use habitat_planning::pricing::PriceBook;
use habitat_prediction::batches::Sweep;
use habitat_prediction::compare::Comparison;
use habitat_prediction::hypothetical::WhatIf;
use habitat_prediction::{Host, MethodChoice, Options, Precision, Predictions};
use habitat_reports::launch::Launch;
use habitat_reports::plan_form::PlanForm;
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
/// Plans for a goal at these prices.
pub type PlanFn = dyn Fn(&Arc<Predictions>, &Arc<PriceBook>, &Goal) -> Result<Solved, String> + Send + Sync;
/// Reads the file of jobs and plans them together.
pub type JobsFn = dyn Fn() -> Result<JobsPlan, String> + Send + Sync;
/// Renders a plan as texts, one per file.
pub type ExportFn = dyn Fn(&Export) -> Result<Vec<String>, String> + Send + Sync;
/// Saves a text to a file. Arguments: path, text, and whether to overwrite an existing file.
pub type SaveFn = dyn Fn(&str, &str, bool) -> SaveOutcome + Send + Sync;

/// Adds own machines, typed as for `--own`, to the offers.
pub type OwnFn = dyn Fn(&str) -> Result<Added, String> + Send + Sync;

/// Own machines beside the offers.
#[derive(Debug, Clone)]
pub struct Added {
    /// The machines, as `--own` takes them.
    pub names: Vec<String>,
    /// The offers with them.
    pub prices: Arc<PriceBook>,
    /// Their prices with the assumptions, a sentence each.
    pub lines: Vec<String>,
}

/// The user's own machines.
#[derive(Clone)]
pub struct Own {
    /// The machines, as `--own` takes them.
    pub names: Vec<String>,
    /// Whether they were entered on the screens.
    pub is_changed: bool,
    /// Replaces them.
    pub add: Arc<OwnFn>,
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Own").field("names", &self.names).finish_non_exhaustive()
    }
}

/// A plan to export.
#[derive(Debug, Clone)]
pub struct Export {
    /// The plan.
    pub plan: Arc<Plan>,
    /// The predictions behind it.
    pub predictions: Arc<Predictions>,
    /// The recorded step.
    pub profile: Arc<Profile>,
    /// The best trade-offs of time and cost.
    pub frontier: Arc<Vec<FrontierPoint>>,
    /// The offers.
    pub prices: Arc<PriceBook>,
    /// Own machines, as `--own` takes them.
    pub own: Vec<String>,
    /// Choices on screen that affect the predictions.
    pub chosen: Chosen,
    /// The form.
    pub form: PlanForm,
    /// How its parts start.
    pub launch: Launch,
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
