//! `habitat-tui models evaluate`: predictions against measurements.
//!
//! `ops`: operator tables. `steps`: whole recorded steps. `traces`: profiler traces of one
//! workload on two GPUs. `cases`: the orderings of Habitat's case studies. Each gives
//! tables that are printed for people or as JSON (`habitat-evaluation`, version 1).

mod cases;
mod ops;
mod steps;
mod tally;
mod traces;

use std::io::Write;
use std::path::Path;

use super::CliError;
use crate::catalog::Catalog;
use crate::settings::args::{EvaluateOn, ModelsCommand};
use crate::store::{self, Paths};
pub(super) use steps::profiles;
use tally::Evaluation;

pub(super) fn run(command: &ModelsCommand, out: &mut dyn Write) -> Result<u8, CliError> {
    let catalog = store::catalog(&Paths::find())?;
    let (on, data, json) = match command {
        ModelsCommand::Train { data, out: to, seed } => return super::operators::run(data, to, *seed, &catalog, out),
        ModelsCommand::Evaluate { on, data, json } => (on, data, json),
    };
    let (evaluations, json) = match (on, data) {
        (Some(EvaluateOn::Ops { dir, json }), _) => (vec![ops::evaluate(dir, &catalog, &judges)?], *json),
        (Some(EvaluateOn::Steps { dir, origin: None, json }), _) => (vec![steps::evaluate(dir, &catalog, &judges)?], *json),
        (Some(EvaluateOn::Steps { dir, origin: Some(origins), json }), _) => {
            (vec![steps::from_origins(dir, origins, &catalog, &judges)?], *json)
        }
        (Some(EvaluateOn::Traces { dir, json }), _) => (traces::evaluate(dir, &catalog, &judges)?, *json),
        (Some(EvaluateOn::Cases { json }), _) => (cases::evaluate(&catalog, &judges)?, *json),
        (None, Some(data)) => (all(data, &catalog, &judges)?, *json),
        (None, None) => {
            return Err(CliError("on what? ops, steps, traces or cases; or --data DIR for all of them".to_owned()));
        }
    };
    tally::print(&evaluations, json, out)
}

/// Every table, of a folder with `neusight/ops`, `neusight/steps` and `traces/gpu`.
fn all(data: &Path, catalog: &Catalog, judges: &Judges) -> Result<Vec<Evaluation>, CliError> {
    let (tables, profiles, recordings) =
        (data.join("neusight/ops"), data.join("neusight/steps"), data.join("traces/gpu"));
    let mut evaluations = vec![
        ops::evaluate(&tables, catalog, judges)?,
        steps::evaluate(&profiles, catalog, judges)?,
        steps::from_origins(&profiles, &profiles, catalog, judges)?,
    ];
    evaluations.extend(traces::evaluate(&recordings, catalog, judges)?);
    evaluations.extend(cases::evaluate(catalog, judges)?);
    Ok(evaluations)
}
