//! The errors that the cards of the models list.

use std::io::Write;
use std::path::Path;

use habitat_tui::catalog::Catalog;
use habitat_tui::cli::CliError;
use habitat_tui::predict::blackbox::Recorded;

use super::few::FEW;
use super::{black_box, ops, steps};
use crate::args::BlackBoxArgs;
use crate::models::ModelsByGpu;

/// The errors that a card of weights tells: operators and steps by models that did not see
/// the GPU, and steps by those that did.
pub(crate) fn write(data: &Path, catalog: &Catalog, models: &ModelsByGpu, out: &mut dyn Write) -> Result<(), CliError> {
    let learned = |method: &str| method.starts_with("learned");
    let (tables, profiles) = (data.join("neusight/ops"), data.join("neusight/steps"));
    writeln!(out, "### Operators\n")?;
    ops::evaluate(&tables, &FEW, catalog, models)?.write_markdown(&learned, out)?;
    if profiles.is_dir() {
        writeln!(out, "\n### Steps\n")?;
        steps::evaluate(&profiles, catalog, models)?.write_markdown(&|_| true, out)?;
        let seen = ModelsByGpu { shipped: models.shipped.clone(), ..ModelsByGpu::default() };
        writeln!(out, "\n### Steps, GPU seen in training\n")?;
        steps::evaluate(&profiles, catalog, &seen)?.write_markdown(&|method| method == "shapes alone", out)?;
    }
    Ok(())
}

/// The errors that a card of the black-box model tells.
pub(crate) fn write_black_box(
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
