//! Operator models from a folder of measured operators and steps.
//!
//! They are trained once without each GPU of the data: all errors and ranges come from these. An interrupted training
//! resumes; finished parts are kept beside the weights until all are done.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use habitat_tui::catalog::Catalog;
use habitat_tui::cli::{CliError, Progress};
use habitat_tui::predict::learned::{Models, StepFacts};
use habitat_tui::profile::Profile;
use habitat_tui::store::collected;
use habitat_tui::store::operator_tables::{self, Split, TABLES};
use habitat_tui::store::{self, Limit, StoreError, WEIGHTS};
use habitat_tui::terminal;

use crate::hash::sha256;
use crate::learn::data::{Dataset, Sample, Session};
use crate::learn::train::{Ensembles, Trained, calibrate, ensembles, fold_name};
use crate::models::ModelsByGpu;

/// Rows of other frameworks shorter than this are mostly overhead; microseconds.
const SHORTEST_FOREIGN_US: f64 = 2000.0;
/// Training data, under the data folder.
pub(crate) const FOLDERS: [&str; 3] = ["neusight/ops", "mlpredict", "neusight/steps"];

/// The training data and its hashes.
pub(crate) struct Data {
    pub(crate) set: Dataset,
    /// Files with the hashes of their contents.
    pub(crate) files: Vec<(String, String)>,
    /// Hash of all files.
    pub(crate) hash: String,
}

/// Reads a folder with `neusight/ops`, `neusight/steps` and `mlpredict`, and output of `habitat-tui collect`.
pub(crate) fn read(dir: &Path, collected: &[PathBuf], catalog: &Catalog) -> Result<Data, CliError> {
    let (mut samples, mut files) = (Vec::new(), Vec::new());
    let mut note = |path: &Path| -> Result<(), CliError> {
        let bytes = store::read_as_it_is(path, Limit::TABLE)?;
        let name = path.strip_prefix(dir).unwrap_or(path).display().to_string();
        files.push((name, sha256(&bytes)));
        Ok(())
    };
    for path in collected {
        note(path)?;
        let collection = collected::read(path, catalog)?;
        let passed_over: Vec<String> =
            collection.passed_over.iter().map(|(why, count)| format!("{count} {why}")).collect();
        terminal::say(format_args!(
            "habitat-tui: {}: {} operators on {}{}",
            path.display(),
            collection.rows.len(),
            collection.gpu,
            if passed_over.is_empty() { String::new() } else { format!("; passed over: {}", passed_over.join(", ")) }
        ));
        samples.extend(collection.rows.into_iter().map(|(_, row)| Sample {
            operation: row.operation,
            precision: row.precision,
            gpu: row.gpu,
            time: row.time,
            session: Session::Queued,
        }));
    }
    for name in TABLES {
        let Some(path) = operator_tables::find(&dir.join(FOLDERS[0]), name) else { continue };
        note(&path)?;
        samples.extend(operator_tables::read(&path, name)?.into_iter().map(|row| Sample {
            operation: row.operation,
            precision: row.precision,
            gpu: row.gpu,
            time: row.time,
            session: match row.split {
                Split::Train => Session::Train,
                Split::Test => Session::Test,
                Split::Other => Session::Other,
            },
        }));
    }
    if let Some(path) = operator_tables::find(&dir.join(FOLDERS[1]), "conv") {
        note(&path)?;
        let rows = operator_tables::read(&path, "conv")?.into_iter();
        samples.extend(
            rows.filter(|row| row.time.get() >= SHORTEST_FOREIGN_US && catalog.find(row.gpu.as_str()).is_ok()).map(
                |row| Sample {
                    operation: row.operation,
                    precision: None,
                    gpu: row.gpu,
                    time: row.time,
                    session: Session::Other,
                },
            ),
        );
    }
    let mut steps: Vec<(String, Profile)> = Vec::new();
    let folder = dir.join(FOLDERS[2]);
    for path in if folder.is_dir() { store::profiles(&folder)? } else { Vec::new() } {
        note(&path)?;
        let (profile, _) = store::read_profile(&path)?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        steps.push((name, profile));
    }
    if samples.is_empty() {
        return Err(CliError::Refused(format!(
            "{}: no operator tables; they are looked for in {} ({}, .csv or .csv.gz)",
            dir.display(),
            FOLDERS[0],
            TABLES.join(", ")
        )));
    }
    let set = Dataset::new(&samples, steps, catalog).map_err(CliError::other)?;
    let all: Vec<String> = files.iter().map(|(name, hash)| format!("{name} {hash}\n")).collect();
    Ok(Data { set, files, hash: sha256(all.concat().as_bytes()) })
}

/// Trains everything. Finished parts are kept in `out/unfinished` until [`finish`].
pub(crate) fn train(data: &Data, out: &Path, seed: u64, catalog: &Catalog) -> Result<Trained, CliError> {
    let evaluated = (0..data.set.gpus.len()).filter(|&gpu| data.set.is_evaluated(gpu));
    let folds: Vec<Option<usize>> = evaluated.map(Some).chain([None]).collect();
    let parts = unfinished(out);
    std::fs::create_dir_all(&parts).map_err(|source| StoreError::Write { path: parts.clone(), source })?;
    let mut progress = Progress::new("training");
    let mut without: Vec<Option<Ensembles>> = vec![None; data.set.gpus.len()];
    let mut everything = Ensembles::new();
    let mut keep = |left_out: Option<usize>, ensembles: Ensembles| match left_out {
        Some(gpu) => without[gpu] = Some(ensembles),
        None => everything = ensembles,
    };
    let (mut fresh, all) = (0, folds.len() as u32);
    for (index, &left_out) in folds.iter().enumerate() {
        let name = fold_name(&data.set.gpus, left_out);
        let path = parts.join(format!("{name}.safetensors"));
        if let Some(known) = part(&path, &data.hash, seed)? {
            keep(left_out, known);
            progress.resume(index as u32 + 1);
            continue;
        }
        let ensembles =
            ensembles(&data.set, left_out, seed, &mut |_| ControlFlow::Continue(())).map_err(CliError::other)?;
        let models = Models::new(ensembles, StepFacts::default());
        let bytes = models.to_bytes(metadata(&data.hash, seed)).map_err(CliError::other)?;
        store::save_atomically(&path, &bytes, true)?;
        keep(left_out, models.ensembles().clone());
        fresh += 1;
        let what = left_out.map_or_else(|| "on everything".to_owned(), |_| format!("without {name}"));
        progress.show(index as u32 + 1, all, &what);
    }
    if fresh > 0 {
        progress.end();
    }
    calibrate(&data.set, catalog, everything, without).map_err(CliError::other)
}

fn unfinished(out: &Path) -> PathBuf {
    out.join("unfinished")
}

fn metadata(hash: &str, seed: u64) -> BTreeMap<String, String> {
    BTreeMap::from([("data_sha256".to_owned(), hash.to_owned()), ("seed".to_owned(), seed.to_string())])
}

/// Ensembles that an earlier run trained on the same data with the same seed.
fn part(path: &Path, hash: &str, seed: u64) -> Result<Option<Ensembles>, CliError> {
    let Some(bytes) = store::there(store::read(path, Limit::WEIGHTS))? else { return Ok(None) };
    if !Models::is_of(&bytes, &metadata(hash, seed)) {
        return Ok(None);
    }
    let models = Models::from_bytes(&bytes).map_err(|error| StoreError::content(path, error))?;
    Ok(Some(models.ensembles().clone()))
}

/// Writes the weights, those without each GPU in `without/`, and deletes the finished parts.
pub(crate) fn finish(data: &Data, trained: &Trained, out: &Path, seed: u64) -> Result<u64, CliError> {
    let without = out.join("without");
    std::fs::create_dir_all(&without).map_err(|source| StoreError::Write { path: without.clone(), source })?;
    let mut size = 0;
    let mut save = |path: &Path, models: &Models| -> Result<(), CliError> {
        let bytes = models.to_bytes(metadata(&data.hash, seed)).map_err(CliError::other)?;
        size += bytes.len() as u64;
        Ok(store::save_atomically(path, &bytes, true)?)
    };
    save(&out.join(WEIGHTS), &trained.all)?;
    for (gpu, models) in data.set.gpus.iter().zip(&trained.without) {
        let Some(models) = models else { continue };
        save(&without.join(format!("{}.safetensors", gpu.slug)), models)?;
    }
    let parts = unfinished(out);
    std::fs::remove_dir_all(&parts).map_err(|source| StoreError::Write { path: parts, source })?;
    Ok(size)
}

/// Models trained on a folder of data, for this evaluation.
pub(crate) fn trained(dir: &Path, catalog: &Catalog) -> Result<ModelsByGpu, CliError> {
    let data = read(dir, &[], catalog)?;
    let place = tempfile::tempdir()?;
    let trained = train(&data, place.path(), 1, catalog)?;
    let slugs = data.set.gpus.iter().map(|gpu| gpu.slug.clone());
    let without = slugs.zip(trained.without).filter_map(|(slug, models)| Some((slug, Arc::new(models?)))).collect();
    Ok(ModelsByGpu { shipped: Some(Arc::new(trained.all)), without })
}
