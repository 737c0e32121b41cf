//! The user's own measurements: operator tables that correct the models.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::CliError;
use crate::catalog::{Catalog, GpuSpec};
use crate::predict::learned::Models;
use crate::predict::measured::Measurement;
use crate::store::collected;
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
                return Err(CliError(format!(
                    "{}: no operators to learn from: no tables ({names}; .csv), no rows of `habitat-tui collect` that tell anything",
                    dir.display()
                )));
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
        .map(|(row, gpu)| Measurement {
            operation: &row.operation,
            precision: row.precision,
            gpu,
            time: row.time,
            queued: row.queued,
        })
        .collect();
    Ok(Some(Arc::new(models.with_measured(&measured).map_err(CliError::of)?)))
}

/// All rows of a folder's tables and collections, or of one collection, with their GPUs.
fn read<'a>(dir: &Path, catalog: &'a Catalog) -> Result<Vec<(Row, &'a GpuSpec)>, CliError> {
    let mut found = Vec::new();
    let (tables, collections) = if dir.is_file() { (Vec::new(), vec![dir.to_owned()]) } else { tables(dir)? };
    for path in collections {
        let collection = collected::read(&path, catalog)?;
        let gpu = catalog.find(collection.gpu.as_str()).map_err(|error| StoreError::content(&path, error))?;
        found.extend(collection.rows.into_iter().map(|(_, row)| (row, gpu)));
    }
    for (path, name) in tables {
        for (index, row) in operator_tables::read(&path, name)?.into_iter().enumerate() {
            let gpu = catalog
                .find(row.gpu.as_str())
                .map_err(|error| StoreError::content(&path, format!("line {}: {error}", index + 2)))?;
            found.push((row, gpu));
        }
    }
    Ok(found)
}

/// Tables by name, and collections.
type Tables = (Vec<(PathBuf, &'static str)>, Vec<PathBuf>);

/// The tables of a folder, and what `collect` wrote, which its first line tells; a file of
/// CSV under another name is most likely misnamed.
fn tables(dir: &Path) -> Result<Tables, CliError> {
    let (mut found, mut collections) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(dir).map_err(|error| StoreError::read(dir, error))? {
        let path = entry.map_err(|error| StoreError::read(dir, error))?.path();
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let Some(name) =
            [".csv", ".csv.gz", ".csv.zst"].iter().find_map(|ending| file.strip_suffix(ending)).map(str::to_owned)
        else {
            continue;
        };
        if collected::is_one(&path)? {
            collections.push(path);
            continue;
        }
        let Some(table) = TABLES.into_iter().find(|table| **table == name) else {
            let names = TABLES.join(", ");
            return Err(CliError(format!(
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
