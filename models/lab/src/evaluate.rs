//! `habitat-lab evaluate`: predictions against measurements.
//!
//! `ops`: operator tables. `steps`: whole recorded steps. `traces`: profiler traces of one
//! workload on two GPUs. `methods`: every method on the same steps. `kernelwise`: fitted
//! lines of kernels. `cases`: the orderings of Habitat's case studies. Each gives
//! tables that are printed for people or as JSON (`habitat-evaluation`, version 1).

mod batches;
mod black_box;
mod cases;
mod few;
mod kernelwise;
mod logs;
mod methods;
mod ops;
mod scaled;
mod steps;
mod tally;
mod traces;

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use habitat_tui::catalog::Catalog;
use habitat_tui::cli::{self, CliError};
use habitat_tui::predict::blackbox::Recorded;
use habitat_tui::store::{self, Paths};

use crate::args::{BlackBoxArgs, EvaluateArgs, EvaluateOn};
use crate::train::operators::{self, Judges};
use tally::Evaluation;

/// Operators measured on the GPU, of every table.
const FEW: [u32; 2] = [5, 20];

pub(crate) fn run(args: &EvaluateArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let paths = Paths::find();
    let catalog = store::catalog(&paths)?;
    if let Some(EvaluateOn::BlackBox(black_box)) = &args.on {
        return tally::print(&black_box::evaluate(black_box, &catalog)?, args.json, out);
    }
    let mut judges = match (&args.models, &args.data) {
        (Some(folder), _) => operators::judges(folder)?,
        (None, Some(data)) if !args.seen && args.on.is_none() => operators::trained(data, &catalog)?,
        _ => {
            let folder = cli::weights_folder(None, &cli::settings(&paths)?, &paths);
            Judges { shipped: Some(Arc::new(store::models(&folder)?)), ..Judges::default() }
        }
    };
    if args.seen {
        judges.without.clear();
    }
    let evaluations = match (&args.on, &args.data) {
        (Some(EvaluateOn::Ops { dir, few }), _) => vec![ops::evaluate(dir, few, &catalog, &judges)?],
        (Some(EvaluateOn::Steps { dir, origin: None }), _) => vec![steps::evaluate(dir, &catalog, &judges)?],
        (Some(EvaluateOn::Steps { dir, origin: Some(origins) }), _) => {
            vec![steps::from_origins(dir, origins, &catalog, &judges)?]
        }
        (Some(EvaluateOn::Traces { dir }), _) => traces::evaluate(dir, &catalog, &judges)?,
        (Some(EvaluateOn::BlackBox(black_box)), _) => black_box::evaluate(black_box, &catalog)?,
        (Some(EvaluateOn::KernelWise { dir }), _) => kernelwise::evaluate(dir, &catalog, &judges)?,
        (Some(EvaluateOn::Batches { dir, steps }), _) => {
            let mut found = batches::evaluate(dir)?;
            if let Some(steps) = steps {
                found.push(scaled::evaluate(steps, &catalog, &judges)?);
            }
            found.push(scaled::samples(&catalog, &judges)?);
            found
        }
        (Some(EvaluateOn::Methods { dir }), _) => vec![methods::evaluate(dir, &catalog, &judges)?],
        (Some(EvaluateOn::Logs { logs }), _) => vec![logs::evaluate(logs)?],
        (Some(EvaluateOn::Cases), _) => cases::evaluate(&catalog, &judges)?,
        (None, Some(data)) => all(data, &catalog, &judges)?,
        (None, None) => {
            return Err(CliError::Refused(
                "missing: what to evaluate, one of ops, steps, traces, methods, kernelwise or cases; or --data DIR for all of them".to_owned(),
            ));
        }
    };
    tally::print(&evaluations, args.json, out)
}

/// The errors that a card of weights tells: operators and steps by models that did not see
/// the GPU, and steps by those that did.
pub(crate) fn write_card(data: &Path, catalog: &Catalog, judges: &Judges, out: &mut dyn Write) -> Result<(), CliError> {
    let learned = |method: &str| method.starts_with("learned");
    let (tables, profiles) = (data.join("neusight/ops"), data.join("neusight/steps"));
    writeln!(out, "### Operators\n")?;
    ops::evaluate(&tables, &FEW, catalog, judges)?.write_markdown(&learned, out)?;
    if profiles.is_dir() {
        writeln!(out, "\n### Steps\n")?;
        steps::evaluate(&profiles, catalog, judges)?.write_markdown(&|_| true, out)?;
        let seen = Judges { shipped: judges.shipped.clone(), ..Judges::default() };
        writeln!(out, "\n### Steps, GPU seen in training\n")?;
        steps::evaluate(&profiles, catalog, &seen)?.write_markdown(&|method| method == "shapes alone", out)?;
    }
    Ok(())
}

/// The errors that a card of the black-box model tells.
pub(crate) fn write_black_box_card(
    dir: &Path,
    rows: &[Recorded],
    args: &BlackBoxArgs,
    catalog: &Catalog,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    for (index, evaluation) in black_box::within(dir, rows, args, catalog)?.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        evaluation.write_markdown(&|_| true, out)?;
    }
    Ok(())
}

/// Every table, of a folder with `neusight/ops`, `neusight/steps` and `traces/gpu`.
fn all(data: &Path, catalog: &Catalog, judges: &Judges) -> Result<Vec<Evaluation>, CliError> {
    let (tables, profiles, recordings) =
        (data.join("neusight/ops"), data.join("neusight/steps"), data.join("traces/gpu"));
    let mut evaluations = vec![
        ops::evaluate(&tables, &FEW, catalog, judges)?,
        steps::evaluate(&profiles, catalog, judges)?,
        steps::from_origins(&profiles, &profiles, catalog, judges)?,
    ];
    evaluations.extend(traces::evaluate(&recordings, catalog, judges)?);
    evaluations.extend(cases::evaluate(catalog, judges)?);
    Ok(evaluations)
}
