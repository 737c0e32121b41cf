//! Errors in the cards of the models.

use std::io::Write;
use std::path::Path;

use habitat_tui::catalog::Catalog;
use habitat_tui::cli::CliError;
use habitat_tui::predict::blackbox::Recorded;

use super::few::FEW;
use super::tally::Evaluation;
use super::{black_box, ops, steps};
use crate::args::BlackBoxArgs;
use crate::models::ModelsByGpu;

/// Errors of the operator models: operators, and steps by models that did not see the GPU and by those that did.
pub(crate) struct OperatorErrors {
    operators: Evaluation,
    /// Steps on GPUs left out, then on GPUs that were trained on.
    steps: Option<[Evaluation; 2]>,
}

impl OperatorErrors {
    pub(crate) fn evaluate(data: &Path, catalog: &Catalog, models: &ModelsByGpu) -> Result<Self, CliError> {
        let (tables, profiles) = (data.join("neusight/ops"), data.join("neusight/steps"));
        let operators = ops::evaluate(&tables, &FEW, catalog, models)?;
        let seen = ModelsByGpu { shipped: models.shipped.clone(), ..ModelsByGpu::default() };
        let is_there = profiles.is_dir();
        let steps = is_there
            .then(|| {
                Ok::<_, CliError>([
                    steps::evaluate(&profiles, &steps::BOTH, catalog, models)?,
                    steps::evaluate(&profiles, &[steps::ALONE], catalog, &seen)?,
                ])
            })
            .transpose()?;
        Ok(Self { operators, steps })
    }

    /// Writes the short tables of the card.
    pub(crate) fn write_summary(&self, out: &mut dyn Write) -> Result<(), CliError> {
        let methods = [
            ("learned, shapes alone", "from shapes"),
            ("learned, with the origin", "measured on another GPU"),
            ("learned, 20 measured alike", "after 20 measured on the GPU"),
        ];
        self.operators.write_summary(&|group| !group.contains(" on "), &methods, out)?;
        let Some([left_out, seen]) = &self.steps else { return Ok(()) };
        writeln!(out, "\nWhole steps, GPU left out:\n")?;
        let methods = [("shapes alone", "from shapes"), ("from another GPU", "from the step on another GPU")];
        left_out.write_summary(&|_| true, &methods, out)?;
        writeln!(out, "\nWhole steps, GPU among the training data (not a forecast):\n")?;
        seen.write_summary(&|group| !group.contains('→'), &methods[..1], out)
    }

    /// Writes all rows, by GPU and method.
    pub(crate) fn write_all(&self, out: &mut dyn Write) -> Result<(), CliError> {
        writeln!(out, "### Operators\n")?;
        self.operators.write_markdown(&|method| method.starts_with("learned"), out)?;
        let Some([left_out, seen]) = &self.steps else { return Ok(()) };
        writeln!(out, "\n### Steps\n")?;
        left_out.write_markdown(&|_| true, out)?;
        writeln!(out, "\n### Steps, GPU seen in training\n")?;
        seen.write_markdown(&|method| method == "shapes alone", out)
    }
}

/// Errors of the black-box model: networks, families and kinds of operators left out, and sizes in between.
pub(crate) fn black_box(dir: &Path, rows: &[Recorded], catalog: &Catalog) -> Result<Vec<Evaluation>, CliError> {
    let args = BlackBoxArgs { families: true, kinds: true, ..BlackBoxArgs::default() };
    black_box::within(dir, rows, &args, catalog)
}

/// Writes the short table of the card of the black-box model.
pub(crate) fn write_black_box(evaluations: &[Evaluation], out: &mut dyn Write) -> Result<(), CliError> {
    // The total, and each network, family or kind; not each pair of GPUs.
    let keep = |group: &str| !group.contains('→') && !group.starts_with("from ");
    for (evaluation, heading) in
        evaluations.iter().zip(["network left out", "family left out", "kind of operator left out"])
    {
        writeln!(out)?;
        evaluation.write_summary(&keep, &[("black box", heading)], out)?;
    }
    Ok(())
}
