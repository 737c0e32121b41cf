//! `habitat-lab evaluate`: predictions against measurements.
//!
//! `ops`: operator tables. `steps`: whole recorded steps. `traces`: profiler traces of one workload on two GPUs.
//! `methods`: every method on the same steps. `kernelwise`: linear models of kernels. `cases`: the orderings of
//! Habitat's case studies. `bandwidth`: the curve of Li et al. Each prints tables as text or as JSON
//! (`habitat-evaluation`, version 1).

mod accuracy;
mod bandwidth;
mod batches;
mod black_box;
pub(crate) mod card;
mod cases;
mod few;
mod fp8;
mod hosts;
mod jobs;
pub(crate) mod judge;
mod kernelwise;
mod llm;
mod logs;
mod machines;
mod methods;
mod ops;
pub(crate) mod published;
mod scaled;
mod scaling;
mod spot;
mod steps;
mod tally;
mod together;
mod traces;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use habitat_tui::catalog::Catalog;
use habitat_tui::cli::{self, CliError};
use habitat_tui::store::{self, Paths};

use crate::args::{EvaluateArgs, EvaluateOn};
use crate::models::ModelsByGpu;
use crate::operators;
use few::FEW;
use steps::BOTH;
pub(crate) use tally::Evaluation;

pub(crate) fn run(args: &EvaluateArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let paths = Paths::find();
    let catalog = store::catalog(&paths)?;
    let models = || -> Result<ModelsByGpu, CliError> {
        let mut models = match (&args.models, &args.data) {
            (Some(folder), _) => ModelsByGpu::open(folder)?,
            (None, Some(data)) if !args.seen && args.on.is_none() => operators::trained(data, &catalog)?,
            _ => {
                let folder = cli::weights_folder(None, &cli::settings(&paths)?, &paths);
                ModelsByGpu { shipped: Some(Arc::new(store::models(&folder)?)), ..ModelsByGpu::default() }
            }
        };
        if args.seen {
            models.without.clear();
        }
        Ok(models)
    };
    let Some(on) = &args.on else {
        let data = args.data.as_deref().ok_or_else(|| {
            CliError::Refused(
                "nothing to evaluate: give one of ops, steps, traces, methods, kernelwise or cases; or --data DIR for all of them".to_owned(),
            )
        })?;
        return tally::print(&all(data, &catalog, &models()?)?, args.json, out);
    };
    let evaluations = match on {
        EvaluateOn::Accuracy { data, samples } => {
            return accuracy::write((data, samples), &catalog, &models()?, out);
        }
        EvaluateOn::Ops { dir, few } => vec![ops::evaluate(dir, few, &catalog, &models()?)?],
        EvaluateOn::Steps { dir, origin: None } => vec![steps::evaluate(dir, &BOTH, &catalog, &models()?)?],
        EvaluateOn::Steps { dir, origin: Some(origins) } => {
            vec![steps::from_origins(dir, origins, &catalog, &models()?)?]
        }
        EvaluateOn::Traces { dir } => traces::evaluate(dir, &catalog, &models()?)?,
        EvaluateOn::BlackBox(black_box) => black_box::evaluate(black_box, &catalog)?,
        EvaluateOn::Published { file, .. } if args.seen => vec![published::as_shipped(file, &catalog)?],
        EvaluateOn::Published { file, recorded } => {
            let models = args.models.as_deref().map_or_else(|| Ok(ModelsByGpu::default()), ModelsByGpu::open)?;
            published::evaluate(file, recorded.as_deref(), &catalog, &models)?
        }
        EvaluateOn::Jobs { files } => vec![jobs::evaluate(*files as usize, &catalog)?],
        EvaluateOn::Spot { file } => spot::evaluate(file, &catalog)?,
        EvaluateOn::Bandwidth { files, gpu } => bandwidth::evaluate(files, gpu, &catalog)?,
        EvaluateOn::Fp8 { file } => vec![fp8::evaluate(file, &catalog, &models()?)?],
        EvaluateOn::Scaling { file } => vec![scaling::evaluate(file, &catalog)?],
        EvaluateOn::Llm { dir } => vec![llm::evaluate(dir, &catalog, &models()?)?],
        EvaluateOn::Hosts { file } => vec![hosts::evaluate(file, &catalog, &models()?)?],
        EvaluateOn::KernelWise { dir } => kernelwise::evaluate(dir, &catalog, &models()?)?,
        EvaluateOn::Batches { dir, steps } => {
            let (mut found, models) = (batches::evaluate(dir)?, models()?);
            if let Some(steps) = steps {
                found.push(scaled::evaluate(steps, &catalog, &models)?);
            }
            found.push(scaled::samples(&catalog, &models)?);
            found
        }
        EvaluateOn::Methods { dir, published, recorded } => {
            vec![methods::evaluate((dir, published.as_deref(), recorded.as_deref()), &catalog, &models()?)?]
        }
        EvaluateOn::Logs { logs } => vec![logs::evaluate(logs)?],
        EvaluateOn::Cases => cases::evaluate(&catalog, &models()?)?,
    };
    tally::print(&evaluations, args.json, out)
}

/// Every table, of a folder with `neusight/ops`, `neusight/steps` and `traces/gpu`.
fn all(data: &Path, catalog: &Catalog, models: &ModelsByGpu) -> Result<Vec<Evaluation>, CliError> {
    let (tables, profiles, recordings) =
        (data.join("neusight/ops"), data.join("neusight/steps"), data.join("traces/gpu"));
    let mut evaluations = vec![
        ops::evaluate(&tables, &FEW, catalog, models)?,
        steps::evaluate(&profiles, &BOTH, catalog, models)?,
        steps::from_origins(&profiles, &profiles, catalog, models)?,
    ];
    evaluations.extend(traces::evaluate(&recordings, catalog, models)?);
    evaluations.extend(cases::evaluate(catalog, models)?);
    Ok(evaluations)
}
