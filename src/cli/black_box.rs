//! `predict --black-box` and `plan --black-box`.

use std::path::Path;

use super::{CliError, gpu};
use crate::catalog::Catalog;
use crate::predict::Predictions;
use crate::predict::blackbox::{Axis, OperatorTotals, between, predict};
use crate::report::format;
use crate::settings::args::{BlackBoxArgs, InputArgs};
use crate::store::{self, Kind};

/// Predictions from the black box of `args`, and a line on what it is.
pub(super) fn answers(
    args: &BlackBoxArgs,
    file: &Path,
    input: &InputArgs,
    models: &Path,
    to: &[String],
    catalog: &Catalog,
) -> Result<(Predictions, String), CliError> {
    let model = store::black_box(models)?;
    let targets = gpu::all(catalog, "--to", to)?;
    let one = |path: &Path| -> Result<(OperatorTotals, Predictions), CliError> {
        let totals = match store::kind(path)? {
            Kind::BlackBox => store::read_totals(path)?,
            other => return Err(other.refused(path, "a black box, as `habitat-tui export --black-box` writes").into()),
        };
        let named = |error| CliError(format!("{}: {error}", path.display()));
        let predictions = predict(&totals, &model, catalog, &targets, input.peak_memory).map_err(named)?;
        Ok((totals, predictions))
    };
    let (totals, mut predictions) = one(file)?;
    let mut line = format!(
        "{}: black box, {} kinds of operators on {}, {} a step, batch {}",
        file.display(),
        totals.kinds.len(),
        totals.gpu,
        format::time(totals.step),
        totals.batch_size
    );
    if let Some(path) = &args.up_to {
        let (largest, at_largest) = one(path)?;
        let (axis, sizes, size) = match (args.at_batch, args.at_pixels, &args.pixels[..]) {
            (Some(size), None, _) => (Axis::Batch, [totals.batch_size, largest.batch_size], size),
            (None, Some(size), &[small, large]) => (Axis::Pixels, [small, large], size),
            _ => {
                return Err(CliError(
                    "--up-to: which size between? give --at-batch N, or --at-pixels N with --pixels SMALL,LARGE"
                        .to_owned(),
                ));
            }
        };
        predictions = between(&model, axis, &predictions, &at_largest, sizes, size).map_err(CliError::of)?;
        let what = if axis == Axis::Batch { "batch" } else { "pictures of side" };
        line = format!("{line}; up to {}: {what} {size}", path.display());
    }
    Ok((predictions, line))
}
