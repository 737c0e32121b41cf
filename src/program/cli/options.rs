//! Options of the prediction: settings file, folder of weights, and the user's own measurements.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{At, CliError};
use super::gpu;
use crate::settings::args::{InputArgs, ModelArgs};
use crate::settings::file::SettingsFile;
use crate::store::operator_tables::{self, Row, TABLES};
use crate::store::{self, Limit, Paths, StoreError, collected};
use habitat_prediction::bundle::Bundle;
use habitat_prediction::habitat::{HabitatMlp, Kind, Trained};
use habitat_prediction::kernelwise::KernelWise;
use habitat_prediction::learned::Models;
use habitat_prediction::measured::Measurement;
use habitat_prediction::{MethodChoice, Options};
use habitat_step::catalog::{Catalog, GpuSpec};

/// Reads the settings file if it exists.
///
/// # Errors
/// [`CliError`] with the file and the key.
pub fn settings(paths: &Paths) -> Result<SettingsFile, CliError> {
    let path = paths.settings();
    let Some(text) = store::there(store::read_text(&path, Limit::SETTINGS))? else {
        return Ok(SettingsFile::default());
    };
    SettingsFile::parse(&text).at(path.display())
}

/// Folder of trained weights: from the flag, else the settings, else the user's default.
pub fn weights_folder(given: Option<&Path>, settings: &SettingsFile, paths: &Paths) -> PathBuf {
    given.map(Path::to_owned).or_else(|| settings.models.clone()).unwrap_or_else(|| paths.models())
}

/// Prediction options for whole steps; per-operation results are not kept.
pub(super) fn options(input: &InputArgs, to: &[String], catalog: &Catalog, paths: &Paths) -> Result<Options, CliError> {
    let weights = weights_folder(input.prediction.models.models.as_deref(), &settings(paths)?, paths);
    let habitat = (input.prediction.method == MethodChoice::HabitatMlp).then(|| habitat(&weights)).transpose()?;
    Ok(Options {
        habitat: habitat.map(Arc::new),
        kernel_wise: Some(kernel_wise(input.kernel_wise.as_deref(), &weights)?),
        black_box: Some(Arc::new(store::black_box(&weights)?)),
        targets: gpu::all(catalog, "--to", to)?,
        ignore_origin: input.recorded.ignore_origin,
        origin: gpu::maybe(catalog, "--origin", input.recorded.origin.as_ref())?,
        method: input.prediction.method,
        host: input.prediction.host,
        wave_form: input.waves,
        models: Some(Arc::new(models(&input.prediction.models, catalog, paths)?)),
        precision: input.prediction.precision,
        steps_only: true,
    })
}

/// Loads Habitat's networks from a folder.
fn habitat(dir: &Path) -> Result<HabitatMlp, CliError> {
    let mut networks = Vec::new();
    for kind in Kind::ALL {
        let path = dir.join(kind.file());
        if !path.exists() {
            continue;
        }
        let bytes = store::read(&path, Limit::WEIGHTS)?;
        let trained = Bundle::from_bytes(&bytes)
            .and_then(|bundle| Trained::of(&bundle, kind))
            .map_err(|error| StoreError::content(&path, error))?;
        networks.push((kind, trained));
    }
    if networks.is_empty() {
        let files = Kind::ALL.map(Kind::file).join(", ");
        return Err(CliError::Refused(format!(
            "{}: no weights for Habitat's networks ({files}). They are not shipped: train them with `habitat-lab train --habitat --data DIR` (models/lab in the sources), or pass their folder with --models DIR",
            dir.display()
        )));
    }
    Ok(HabitatMlp::new(networks))
}

/// Loads the linear models: from the given file, else from the folder of weights, else the shipped ones.
pub(super) fn kernel_wise(given: Option<&Path>, weights: &Path) -> Result<Arc<KernelWise>, CliError> {
    let path = given.map_or_else(|| weights.join(store::KERNEL_WISE), Path::to_owned);
    let shipped = given.is_none() && !path.exists();
    Ok(Arc::new(if shipped { store::bundled::kernel_wise() } else { store::kernel_wise(&path)? }))
}

/// Loads the models from the folder of weights, corrected with operators that the user measured.
pub(super) fn models(args: &ModelArgs, catalog: &Catalog, paths: &Paths) -> Result<Models, CliError> {
    let weights = weights_folder(args.models.as_deref(), &settings(paths)?, paths);
    let measured = match &args.measured {
        Some(dir) => {
            let rows = measured(dir, catalog)?;
            if rows.is_empty() {
                let names = TABLES.join(", ");
                return Err(CliError::Refused(format!(
                    "{}: no measured operators: neither tables ({names}; .csv) nor usable rows from `habitat-tui collect`",
                    dir.display()
                )));
            }
            rows
        }
        None if paths.measured().is_dir() => measured(&paths.measured(), catalog)?,
        None => Vec::new(),
    };
    let models = store::models(&weights)?;
    if measured.is_empty() {
        return Ok(models);
    }
    let measured: Vec<Measurement<'_>> = measured
        .iter()
        .map(|(row, gpu)| Measurement {
            operation: &row.operation,
            precision: row.precision,
            gpu,
            time: row.time,
            queued: row.queued,
        })
        .collect();
    Ok(models.with_measured(&measured)?)
}

/// All rows of a folder's tables and collections, or of one collection, with their GPUs.
fn measured<'a>(dir: &Path, catalog: &'a Catalog) -> Result<Vec<(Row, &'a GpuSpec)>, CliError> {
    let mut found = Vec::new();
    let (tables, collections) = if dir.is_file() { (Vec::new(), vec![dir.to_owned()]) } else { tables(dir)? };
    for path in collections {
        let collection = collected::read(&path, catalog)?;
        let gpu = catalog.find(collection.gpu.as_str()).at(path.display())?;
        found.extend(collection.rows.into_iter().map(|(_, row)| (row, gpu)));
    }
    for (path, name) in tables {
        for (index, row) in operator_tables::read(&path, name)?.into_iter().enumerate() {
            let place = format_args!("line {}", index + 2);
            let gpu = catalog.find(row.gpu.as_str()).at(place).at(path.display())?;
            found.push((row, gpu));
        }
    }
    Ok(found)
}

/// Operator tables with their names, and collections.
type Tables = (Vec<(PathBuf, &'static str)>, Vec<PathBuf>);

/// Finds the operator tables of a folder, and files from `collect`, which it recognises by their first line. Refuses
/// other CSV files: they are most likely misnamed.
fn tables(dir: &Path) -> Result<Tables, CliError> {
    let (mut found, mut collections) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(dir).map_err(|error| StoreError::read(dir, error))? {
        let path = entry.map_err(|error| StoreError::read(dir, error))?.path();
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let Some(name) = [".csv", ".csv.gz", ".csv.zst"].iter().find_map(|ending| file.strip_suffix(ending)) else {
            continue;
        };
        if collected::is_one(&path)? {
            collections.push(path);
            continue;
        }
        let Some(table) = TABLES.into_iter().find(|table| *table == name) else {
            let names = TABLES.join(", ");
            return Err(CliError::Refused(format!(
                "{}: neither written by `habitat-tui collect` nor named like an operator table ({names})",
                path.display()
            )));
        };
        found.push((path, table));
    }
    found.sort();
    collections.sort();
    Ok((found, collections))
}
