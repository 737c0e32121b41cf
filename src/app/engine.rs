//! What the front end asks of the rest of the program, as functions: `app` itself reads no
//! file and solves nothing, and tests pass fixed answers.

use std::fmt;
use std::sync::Arc;

use crate::plan::{FrontierPoint, Goal, Plan};
use crate::predict::batches::Sweep;
use crate::predict::compare::Comparison;
use crate::predict::{MethodChoice, Predictions};
use crate::profile::Profile;
use crate::units::GpuSlug;

/// Predicts every GPU of the catalog, by the method given in place of the one asked for at
/// the start.
pub type PredictFn = dyn Fn(&Profile, Option<MethodChoice>) -> Result<Predictions, String> + Send + Sync;
/// What every method says of one GPU.
pub type CompareFn = dyn Fn(&Profile, &GpuSlug, Option<MethodChoice>) -> Result<Comparison, String> + Send + Sync;
/// The step at other batch sizes on one GPU.
pub type BatchesFn = dyn Fn(&Profile, &GpuSlug, Option<MethodChoice>) -> Result<Sweep, String> + Send + Sync;
/// Answers a goal.
pub type PlanFn = dyn Fn(&Arc<Predictions>, &Goal) -> Result<Solved, String> + Send + Sync;
/// Writes a plan as TOML text.
pub type ExportFn = dyn Fn(&Plan, &Predictions) -> Result<String, String> + Send + Sync;
/// Writes a text to a file: path, text, whether an existing file may be replaced.
pub type SaveFn = dyn Fn(&str, &str, bool) -> SaveOutcome + Send + Sync;

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
    /// Compares methods.
    pub compare: Arc<CompareFn>,
    /// Predicts other batch sizes.
    pub batches: Arc<BatchesFn>,
    /// Plans.
    pub plan: Arc<PlanFn>,
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
