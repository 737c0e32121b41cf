//! The user's own measurements: operator tables that correct the models.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::CliError;
use crate::catalog::{Catalog, GpuSpec};
use crate::predict::learned::Models;
use crate::predict::measured::Measurement;
use crate::store::operator_tables::{self, Row, TABLES};
use crate::store::{self, Paths, StoreError};

/// The models of a folder of weights, corrected by the tables of `given`, else of the
/// user's `measured/`.
pub(super) fn models(
    weights: &Path,
    given: Option<&Path>,
    catalog: &Catalog,
    paths: &Paths,
) -> Result<Option<Arc<Models>>, CliError> {
    let measured = match given {
        Some(dir) => {
            let rows = read(dir, catalog)?;
            if rows.is_empty() {
                let names = TABLES.join(", ");
                return Err(CliError(format!("{}: no operator tables ({names}; .csv)", dir.display())));
            }
            rows
        }
        None if paths.measured().is_dir() => read(&paths.measured(), catalog)?,
        None => Vec::new(),
    };
    let models = store::models(weights)?;
    if measured.is_empty() {
        return Ok(Some(Arc::new(models)));
    }
    let measured: Vec<Measurement<'_>> = measured
        .iter()
        .map(|(row, gpu)| Measurement { operation: &row.operation, precision: row.precision, gpu, time: row.time })
        .collect();
    Ok(Some(Arc::new(models.with_measured(&measured).map_err(CliError::of)?)))
}

/// All rows of a folder's tables, with their GPUs.
fn read<'a>(dir: &Path, catalog: &'a Catalog) -> Result<Vec<(Row, &'a GpuSpec)>, CliError> {
    let mut found = Vec::new();
    for (path, name) in tables(dir)? {
        for (index, row) in operator_tables::read(&path, name)?.into_iter().enumerate() {
            let gpu = catalog
                .find(row.gpu.as_str())
                .map_err(|error| StoreError::content(&path, format!("line {}: {error}", index + 2)))?;
            found.push((row, gpu));
        }
    }
    Ok(found)
}

/// The tables of a folder; a file of CSV under another name is most likely misnamed.
fn tables(dir: &Path) -> Result<Vec<(PathBuf, &'static str)>, CliError> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(|error| StoreError::read(dir, error))? {
        let path = entry.map_err(|error| StoreError::read(dir, error))?.path();
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let Some(name) =
            [".csv", ".csv.gz", ".csv.zst"].iter().find_map(|ending| file.strip_suffix(ending)).map(str::to_owned)
        else {
            continue;
        };
        let Some(table) = TABLES.into_iter().find(|table| **table == name) else {
            let names = TABLES.join(", ");
            return Err(CliError(format!("{}: no table of operators is called so; they are {names}", path.display())));
        };
        found.push((path, table));
    }
    found.sort();
    Ok(found)
}
