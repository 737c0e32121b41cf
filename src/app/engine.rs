//! What the front end asks of the rest of the program, as functions: `app` itself reads no
//! file and solves nothing, and tests pass fixed answers.

use std::fmt;
use std::sync::Arc;

use crate::plan::{Goal, Plan};
use crate::predict::Predictions;
use crate::profile::Profile;

/// Predicts every GPU of the catalog.
pub type PredictFn = dyn Fn(&Profile) -> Result<Predictions, String> + Send + Sync;
/// Answers a goal.
pub type PlanFn = dyn Fn(&Predictions, &Goal) -> Result<Plan, String> + Send + Sync;
/// Writes a plan as TOML text.
pub type ExportFn = dyn Fn(&Plan) -> Result<String, String> + Send + Sync;
/// Writes a text to a file: path, text, whether an existing file may be replaced.
pub type SaveFn = dyn Fn(&str, &str, bool) -> SaveOutcome + Send + Sync;

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
