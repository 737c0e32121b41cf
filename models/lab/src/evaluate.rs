//! `habitat-lab evaluate`: predictions against measurements.
//!
//! `ops`: operator tables. `steps`: whole recorded steps. `traces`: profiler traces of one
//! workload on two GPUs. `methods`: every method on the same steps. `kernelwise`: linear
//! models of kernels. `cases`: the orderings of Habitat's case studies. `bandwidth`: the curve of Li et al. Each gives
//! tables that are printed for people or as JSON (`habitat-evaluation`, version 1).

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
pub(crate) use tally::Evaluation;

pub(crate) fn run(args: &EvaluateArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let paths = Paths::find();
    let catalog = store::catalog(&paths)?;
    if let Some(EvaluateOn::BlackBox(black_box)) = &args.on {
        return tally::print(&black_box::evaluate(black_box, &catalog)?, args.json, out);
    }
    if let Some(EvaluateOn::Published { file, .. }) = args.on.as_ref().filter(|_| args.seen) {
        return tally::print(&[published::as_shipped(file, &catalog)?], args.json, out);
    }
    if let Some(EvaluateOn::Published { file, recorded }) = &args.on {
        let models = args.models.as_deref().map_or_else(|| Ok(ModelsByGpu::default()), ModelsByGpu::open)?;
        return tally::print(&published::evaluate(file, recorded.as_deref(), &catalog, &models)?, args.json, out);
    }
    if let Some(EvaluateOn::Scaling { file }) = &args.on {
        return tally::print(&[scaling::evaluate(file, &catalog)?], args.json, out);
    }
    if let Some(EvaluateOn::Bandwidth { files, gpu }) = &args.on {
        return tally::print(&bandwidth::evaluate(files, gpu, &catalog)?, args.json, out);
    }
    if let Some(EvaluateOn::Jobs { files }) = &args.on {
        return tally::print(&[jobs::evaluate(*files as usize, &catalog)?], args.json, out);
    }
    if let Some(EvaluateOn::Spot { file }) = &args.on {
        return tally::print(&spot::evaluate(file, &catalog)?, args.json, out);
    }
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
    let evaluations = match (&args.on, &args.data) {
        (Some(EvaluateOn::Ops { dir, few }), _) => vec![ops::evaluate(dir, few, &catalog, &models)?],
        (Some(EvaluateOn::Steps { dir, origin: None }), _) => vec![steps::evaluate(dir, &catalog, &models)?],
        (Some(EvaluateOn::Steps { dir, origin: Some(origins) }), _) => {
            vec![steps::from_origins(dir, origins, &catalog, &models)?]
        }
        (Some(EvaluateOn::Traces { dir }), _) => traces::evaluate(dir, &catalog, &models)?,
        (Some(EvaluateOn::BlackBox(black_box)), _) => black_box::evaluate(black_box, &catalog)?,
        (Some(EvaluateOn::Published { file, recorded }), _) => {
            published::evaluate(file, recorded.as_deref(), &catalog, &models)?
        }
        (Some(EvaluateOn::Jobs { files }), _) => vec![jobs::evaluate(*files as usize, &catalog)?],
        (Some(EvaluateOn::Spot { file }), _) => spot::evaluate(file, &catalog)?,
        (Some(EvaluateOn::Bandwidth { files, gpu }), _) => bandwidth::evaluate(files, gpu, &catalog)?,
        (Some(EvaluateOn::Fp8 { file }), _) => vec![fp8::evaluate(file, &catalog, &models)?],
        (Some(EvaluateOn::Scaling { file }), _) => vec![scaling::evaluate(file, &catalog)?],
        (Some(EvaluateOn::Llm { dir }), _) => vec![llm::evaluate(dir, &catalog, &models)?],
        (Some(EvaluateOn::Hosts { file }), _) => vec![hosts::evaluate(file, &catalog, &models)?],
        (Some(EvaluateOn::KernelWise { dir }), _) => kernelwise::evaluate(dir, &catalog, &models)?,
        (Some(EvaluateOn::Batches { dir, steps }), _) => {
            let mut found = batches::evaluate(dir)?;
            if let Some(steps) = steps {
                found.push(scaled::evaluate(steps, &catalog, &models)?);
            }
            found.push(scaled::samples(&catalog, &models)?);
            found
        }
        (Some(EvaluateOn::Methods { dir, published, recorded }), _) => {
            vec![methods::evaluate((dir, published.as_deref(), recorded.as_deref()), &catalog, &models)?]
        }
        (Some(EvaluateOn::Logs { logs }), _) => vec![logs::evaluate(logs)?],
        (Some(EvaluateOn::Cases), _) => cases::evaluate(&catalog, &models)?,
        (None, Some(data)) => all(data, &catalog, &models)?,
        (None, None) => {
            return Err(CliError::Refused(
                "missing: what to evaluate, one of ops, steps, traces, methods, kernelwise or cases; or --data DIR for all of them".to_owned(),
            ));
        }
    };
    tally::print(&evaluations, args.json, out)
}

/// Every table, of a folder with `neusight/ops`, `neusight/steps` and `traces/gpu`.
fn all(data: &Path, catalog: &Catalog, models: &ModelsByGpu) -> Result<Vec<Evaluation>, CliError> {
    let (tables, profiles, recordings) =
        (data.join("neusight/ops"), data.join("neusight/steps"), data.join("traces/gpu"));
    let mut evaluations = vec![
        ops::evaluate(&tables, &FEW, catalog, models)?,
        steps::evaluate(&profiles, catalog, models)?,
        steps::from_origins(&profiles, &profiles, catalog, models)?,
    ];
    evaluations.extend(traces::evaluate(&recordings, catalog, models)?);
    evaluations.extend(cases::evaluate(catalog, models)?);
    Ok(evaluations)
}
