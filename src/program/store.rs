//! Files: those embedded in the program, those of the user, and safe writing.

pub mod bundled;
pub mod collected;
mod decompress;
pub mod download;
pub mod files;
#[cfg(unix)]
pub mod history;
#[cfg(unix)]
pub mod jobs;
pub mod kind;
pub mod nsys;
pub mod operator_tables;
pub mod paths;
pub mod prices;
pub mod profet;
pub mod run_logs;
mod save;
pub mod traces;

pub use decompress::Compression;
pub use decompress::Limit;
pub use download::{Download, DownloadError, Downloaded};
pub use files::{StoreError, open, read, read_as_it_is, read_profile, read_text, there};
pub use kind::{Kind, kind};
pub use paths::Paths;
pub use prices::prices;
pub use save::{save_atomically, save_private};

use std::path::{Path, PathBuf};

use habitat_prediction::blackbox::{BlackBoxModel, OperatorTotals};
use habitat_prediction::efficiency::Efficiency;
use habitat_prediction::kernelwise::KernelWise;
use habitat_prediction::learned::Models;
use habitat_step::catalog::{Calibration, Catalog, GpuSpec, Layer};

/// Shipped catalog, overridden by the user's `catalog/*.toml`, which includes calibrations.
///
/// # Errors
/// [`StoreError`] with the user's file and key.
pub fn catalog(paths: &Paths) -> Result<Catalog, StoreError> {
    let mut gpus = bundled::gpus();
    let mut calibrations = Vec::new();
    for (path, text) in files::read_folder(&paths.catalog(), "toml")? {
        if text.parse::<toml::Table>().is_ok_and(|table| Calibration::is_one(&table)) {
            let one = Calibration::parse(&text).map_err(|error| StoreError::content(&path, error))?;
            calibrations.push((path, one));
            continue;
        }
        let layer = Layer::User(path.display().to_string());
        gpus.push(GpuSpec::parse(&text, layer).map_err(|error| StoreError::content(&path, error))?);
    }
    let mut catalog = Catalog::new(gpus);
    for (path, one) in calibrations {
        catalog.calibrate(one).map_err(|error| StoreError::content(&path, error))?;
    }
    Ok(catalog)
}

/// Path and text of a theme file.
type ThemeFile = (String, String);

/// Paths and texts of the user's `themes/*.toml`, or the errors of reading them.
///
/// # Errors
/// [`StoreError`] with the folder that cannot be read.
pub fn themes(paths: &Paths) -> Result<Vec<Result<ThemeFile, StoreError>>, StoreError> {
    let read = |path: &PathBuf| Ok((path.display().to_string(), read_text(path, Limit::SETTINGS)?));
    Ok(files::names_in(&paths.themes(), "toml")?.iter().map(read).collect())
}

/// A theme in a given file.
///
/// # Errors
/// [`StoreError`] with the file.
pub fn theme(path: &Path) -> Result<ThemeFile, StoreError> {
    Ok((path.display().to_string(), read_text(path, Limit::SETTINGS)?))
}

/// Name of the weights file in `models/`.
pub const WEIGHTS: &str = "operators.safetensors";

/// Learned models: `operators.safetensors` in `folder`, or otherwise the shipped ones.
///
/// # Errors
/// [`StoreError`] with the file if it does not contain weights.
pub fn models(folder: &Path) -> Result<Models, StoreError> {
    let path = folder.join(WEIGHTS);
    let models = there(read(&path, Limit::WEIGHTS))?.map_or_else(
        || Ok(bundled::models()),
        |bytes| Models::from_bytes(&bytes).map_err(|error| StoreError::content(&path, error)),
    )?;
    let path = folder.join(EFFICIENCY);
    let efficiency = there(read(&path, Limit::MODEL))?.map_or_else(
        || Ok(bundled::efficiency()),
        |json| Efficiency::from_json(&json).map_err(|error| StoreError::content(&path, error)),
    )?;
    Ok(models.with_efficiency(efficiency))
}

/// Name of the efficiency model's file in `models/`.
pub const EFFICIENCY: &str = "efficiency.json";

/// Name of the black-box model's file in `models/`.
pub const BLACK_BOX: &str = "blackbox.json";

/// Black-box model: `blackbox.json` in `folder`, or otherwise the shipped one.
///
/// # Errors
/// [`StoreError`] with the file if it is not a black-box model.
pub fn black_box(folder: &Path) -> Result<BlackBoxModel, StoreError> {
    let path = folder.join(BLACK_BOX);
    there(read(&path, Limit::MODEL))?.map_or_else(
        || Ok(bundled::black_box()),
        |bytes| BlackBoxModel::from_json(&bytes).map_err(|error| StoreError::content(&path, error)),
    )
}

/// Reads a black box, compressed or not.
///
/// # Errors
/// [`StoreError`] with the file and the problem.
pub(crate) fn read_totals(path: &Path) -> Result<OperatorTotals, StoreError> {
    OperatorTotals::from_json(&read(path, Limit::BLACK_BOX)?).map_err(|error| StoreError::content(path, error))
}

/// Profiles (`*.habitat.json…`) in a folder and its subfolders, sorted by name.
///
/// # Errors
/// [`StoreError`] with a folder that cannot be read.
pub fn profiles(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(dir).map_err(|error| StoreError::read(dir, error))?;
    for entry in entries {
        let path = entry.map_err(|error| StoreError::read(dir, error))?.path();
        if path.is_dir() {
            found.extend(profiles(&path)?);
        } else if path.file_name().is_some_and(|name| name.to_string_lossy().contains(".habitat.json")) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Name of the file of fitted linear models in the folder of weights.
pub const KERNEL_WISE: &str = "kernelwise.json";

/// Reads fitted linear models, compressed or not.
///
/// # Errors
/// [`StoreError`] with the file and the place.
pub fn kernel_wise(path: &Path) -> Result<KernelWise, StoreError> {
    KernelWise::from_json(&read(path, Limit::MODEL)?).map_err(|error| StoreError::content(path, error))
}

/// Time used for dates in the output: now, or `SOURCE_DATE_EPOCH` (seconds since 1970) for reproducible output.
pub fn now() -> jiff::Timestamp {
    let asked = std::env::var("SOURCE_DATE_EPOCH").ok();
    let asked = asked.and_then(|seconds| jiff::Timestamp::from_second(seconds.trim().parse().ok()?).ok());
    asked.unwrap_or_else(jiff::Timestamp::now)
}

/// Day of [`now`], in UTC.
pub fn today() -> jiff::civil::Date {
    now().to_zoned(jiff::tz::TimeZone::UTC).date()
}
