//! `habitat-tui fit black-box`: fits the black-box model to the user's own tables.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

use crate::cli::error::{At, CliError};
use crate::cli::options::{settings, weights_folder};
use crate::cli::output::{check_new, make_folder};
use crate::settings::args::FitBlackBoxArgs;
use crate::store::{self, Paths, profet};
use habitat_prediction::blackbox::{BlackBoxModel, Recorded};
use habitat_prediction::learn::blackbox::{fit, sizes};
use habitat_step::catalog::Catalog;

pub(super) fn run(args: &FitBlackBoxArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let paths = Paths::find();
    let catalog = store::catalog(&paths)?;
    let dir = weights_folder(args.out.as_deref(), &settings(&paths)?, &paths);
    write(&args.tables, &dir, args.force, &catalog, out)?;
    Ok(0)
}

/// Fits the tables of `data` and writes the model to `dir`. Returns the model and its rows.
///
/// # Errors
/// [`CliError`] with the file that already exists, the table and its line, or the reason why the fit fails.
pub fn write(
    data: &Path,
    dir: &Path,
    force: bool,
    catalog: &Catalog,
    out: &mut dyn Write,
) -> Result<(BlackBoxModel, Vec<Recorded>), CliError> {
    let path = dir.join(store::BLACK_BOX);
    check_new(&path, force)?;
    let rows = profet::read(data)?;
    let sizes = sizes::fit(&profet::read_latencies(data)?);
    let all: Vec<&Recorded> = rows.iter().collect();
    let model = fit(&all, catalog, &trained_on(&rows), sizes).at(data.display())?;
    let json = model.to_json()?;
    make_folder(dir)?;
    store::save_atomically(&path, &json, true)?;
    writeln!(out, "{}: {}, {} kB", path.display(), model.trained_on(), json.len() / 1000)?;
    Ok((model, rows))
}

fn trained_on(rows: &[Recorded]) -> String {
    let workloads: BTreeSet<_> = rows.iter().map(|row| (&row.network, row.pixels, row.totals.batch_size)).collect();
    let networks: BTreeSet<_> = rows.iter().map(|row| &row.network).collect();
    let gpus: BTreeSet<_> = rows.iter().map(|row| row.totals.gpu.as_str()).collect();
    format!(
        "{} workloads of {} convolutional networks trained in TensorFlow on {}",
        workloads.len(),
        networks.len(),
        gpus.into_iter().collect::<Vec<_>>().join(", ")
    )
}
