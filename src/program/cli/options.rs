//! How to predict: the settings file, the folder of weights with what of it is not shipped, and
//! the user's own measurements.

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

/// The settings file, where there is one.
///
/// # Errors
/// [`CliError`] naming the file and the key.
pub fn settings(paths: &Paths) -> Result<SettingsFile, CliError> {
    let path = paths.settings();
    let Some(text) = store::there(store::read_text(&path, Limit::SETTINGS))? else {
        return Ok(SettingsFile::default());
    };
    SettingsFile::parse(&text).at(path.display())
}

/// The folder of trained networks: as given, else as the settings say, else the user's.
pub fn weights_folder(given: Option<&Path>, settings: &SettingsFile, paths: &Paths) -> PathBuf {
    given.map(Path::to_owned).or_else(|| settings.models.clone()).unwrap_or_else(|| paths.models())
}

/// What steps are predicted with; of single operations nothing is kept.
pub(super) fn options(input: &InputArgs, to: &[String], catalog: &Catalog, paths: &Paths) -> Result<Options, CliError> {
    let weights = weights_folder(input.models.models.as_deref(), &settings(paths)?, paths);
    let habitat = (input.method == MethodChoice::HabitatMlp).then(|| habitat(&weights)).transpose()?;
    Ok(Options {
        habitat: habitat.map(Arc::new),
        kernel_wise: Some(kernel_wise(input.kernel_wise.as_deref(), &weights)?),
        black_box: Some(Arc::new(store::black_box(&weights)?)),
        targets: gpu::all(catalog, "--to", to)?,
        ignore_origin: input.recorded.ignore_origin,
        origin: gpu::maybe(catalog, "--origin", input.recorded.origin.as_ref())?,
        method: input.method,
        host: input.host,
        wave_form: input.waves,
        models: Some(Arc::new(models(&input.models, catalog, paths)?)),
        precision: input.precision,
        steps_only: true,
    })
}

/// Habitat's networks in a folder.
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
            "{}: no weights of Habitat's networks ({files}); they are not shipped: train them with `habitat-lab train --habitat --data DIR` (models/lab in the sources), or name their folder with --models DIR",
            dir.display()
        )));
    }
    Ok(HabitatMlp::new(networks))
}

/// The linear models of a file; without one those in the folder of weights, else the shipped ones.
pub(super) fn kernel_wise(given: Option<&Path>, weights: &Path) -> Result<Arc<KernelWise>, CliError> {
    let path = given.map_or_else(|| weights.join(store::KERNEL_WISE), Path::to_owned);
    let shipped = given.is_none() && !path.exists();
    Ok(Arc::new(if shipped { store::bundled::kernel_wise() } else { store::kernel_wise(&path)? }))
}

/// The models of the folder of weights, corrected by the operators that the user measured.
pub(super) fn models(args: &ModelArgs, catalog: &Catalog, paths: &Paths) -> Result<Models, CliError> {
    let weights = weights_folder(args.models.as_deref(), &settings(paths)?, paths);
    let measured = match &args.measured {
        Some(dir) => {
            let rows = measured(dir, catalog)?;
            if rows.is_empty() {
                let names = TABLES.join(", ");
                return Err(CliError::Refused(format!(
                    "{}: no operators to learn from: no tables ({names}; .csv), and no usable rows of `habitat-tui collect`",
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

/// Tables by name, and collections.
type Tables = (Vec<(PathBuf, &'static str)>, Vec<PathBuf>);

/// The tables of a folder, and what `collect` wrote, which its first line shows; a file of CSV
/// under another name is most likely misnamed.
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
                "{}: neither written by `habitat-tui collect` nor a table of operators, which are called {names}",
                path.display()
            )));
        };
        found.push((path, table));
    }
    found.sort();
    collections.sort();
    Ok((found, collections))
}
