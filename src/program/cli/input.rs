//! Loads the recorded step: a profile, a recording in any format, an op list, or the embedded sample.

use std::path::{Path, PathBuf};

use super::error::{At, CliError};
use super::progress::Reading;
use crate::settings::args::{InputArgs, WorkloadArgs};
use crate::store::nsys::Export;
use crate::store::{self, Kind, Limit, StoreError, bundled, kind};
use crate::terminal;
use habitat_base::units::GpuSlug;
use habitat_reports::format;
use habitat_step::catalog::{Catalog, DeviceIdentity};
use habitat_step::op_list::from_op_list;
use habitat_step::profile::{DeviceInfo, Profile, Warning};
use habitat_traces::Format;
use habitat_traces::import::{self, Import, ImportOptions};

/// A recorded step and its source.
#[derive(Debug)]
pub struct Loaded {
    /// The step.
    pub profile: Profile,
    /// Its source, as the screens show it.
    pub label: String,
    /// Whether this is the embedded sample instead of the user's own step.
    pub embedded: bool,
    /// Warnings about the file.
    pub warnings: Vec<Warning>,
}

impl Loaded {
    /// Prints the warnings on standard error.
    pub(super) fn warn(&self) {
        for warning in &self.warnings {
            terminal::say(format_args!("warning: {}: {warning}", self.label));
        }
    }
}

/// Loads the step that `input` names. Flags complete the facts in the file.
///
/// # Errors
/// [`CliError`] with the file, the place and the remedy.
pub fn load(input: &InputArgs, catalog: &Catalog) -> Result<Loaded, CliError> {
    let mut loaded = match &input.file {
        None => Loaded {
            profile: bundled::sample(input.sample()),
            label: input.sample().label(),
            embedded: true,
            warnings: Vec::new(),
        },
        Some(path) => load_file(path, catalog)?,
    };
    let profile = &mut loaded.profile;
    let workload = &mut profile.workload;
    // Flags may not change recorded facts: with another batch size, for example, the throughput of a measured step
    // would be wrong.
    complete("--batch-size", &mut workload.batch_size, input.recorded.batch_size, &loaded.label)?;
    complete("--sequence-length", &mut workload.sequence_length, input.sequence_length, &loaded.label)?;
    complete("--parameters", &mut workload.parameter_count, input.recorded.parameters, &loaded.label)?;
    if let Some(peak) = input.recorded.peak_memory {
        let step = profile.step.get_or_insert_default();
        if let Some(recorded) = step.peak_memory_bytes {
            return Err(CliError::Refused(format!(
                "--peak-memory: {} already records {}",
                loaded.label,
                format::memory(recorded)
            )));
        }
        step.peak_memory_bytes = Some(peak);
    }
    Ok(loaded)
}

/// Fills in a fact that the file lacks.
fn complete(flag: &str, place: &mut Option<u64>, given: Option<u64>, label: &str) -> Result<(), CliError> {
    match (*place, given) {
        (Some(recorded), Some(given)) if recorded != given => Err(CliError::Refused(format!(
            "{flag}: {given}, but {label} records {recorded}; omit the flag, or correct the file by importing it again with the flag (`habitat-tui import`)"
        ))),
        (_, Some(given)) => {
            *place = Some(given);
            Ok(())
        }
        (_, None) => Ok(()),
    }
}

/// Loads the recorded step in a file.
pub(super) fn load_file(path: &Path, catalog: &Catalog) -> Result<Loaded, CliError> {
    let find = |device: &DeviceInfo| resolve(device, catalog);
    let options = ImportOptions { workload: workload_name(path), resolve_gpu: Some(&find), ..ImportOptions::default() };
    let (profile, warnings) = match store::kind(path)? {
        Kind::Profile => store::read_profile(path)?,
        Kind::OpList => (op_list(path)?, Vec::new()),
        Kind::Recording(format) => (import(path, format, &options)?.profile, Vec::new()),
        other @ (Kind::BlackBox | Kind::Other(_)) => return Err(other.refused(path, kind::STEPS).into()),
    };
    Ok(Loaded { profile, label: path.display().to_string(), embedded: false, warnings })
}

/// Reads an op list as a profile.
pub(super) fn op_list(path: &Path) -> Result<Profile, CliError> {
    let json = store::read(path, Limit::OP_LIST)?;
    let profile = from_op_list(&json, &workload_name(path))
        .map_err(|source| StoreError::Profile { path: path.to_owned(), source })?;
    Ok(profile)
}

/// Import options from flags about the workload; `name` is the workload's name if there is no flag for it.
pub(super) fn import_options<'a>(
    given: &WorkloadArgs,
    name: String,
    origin: Option<GpuSlug>,
    resolve_gpu: &'a (dyn Fn(&DeviceInfo) -> Result<GpuSlug, String> + Sync),
) -> ImportOptions<'a> {
    ImportOptions {
        workload: given.name.clone().unwrap_or(name),
        mode: given.mode,
        batch_size: given.batch_size,
        sequence_length: given.sequence_length,
        precision: given.precision,
        parameter_count: given.parameters,
        origin,
        resolve_gpu: Some(resolve_gpu),
        ..ImportOptions::default()
    }
}

/// Imports one recording in any format.
pub(super) fn import(path: &Path, format: Format, options: &ImportOptions<'_>) -> Result<Import, CliError> {
    match format {
        Format::Kineto => return traces(&[path.to_owned()], options),
        Format::Nsight => import::nsight(&mut Export::open(path)?, options),
        Format::Xplane => import::xplane(&store::read(path, Limit::XPLANE)?, options),
    }
    .at(path.display())
}

/// Imports the PyTorch traces of a job's ranks.
pub(super) fn traces(paths: &[PathBuf], options: &ImportOptions<'_>) -> Result<Import, CliError> {
    let mut reading = Reading::new(paths);
    let read = store::traces::import(paths, options, &mut |progress| reading.show(progress));
    reading.end();
    read.map_err(|error| {
        let trace = paths[error.rank.unwrap_or(0)].display();
        CliError::from(error).at(trace)
    })
}

/// The catalog's slug of a recording's GPU.
///
/// # Errors
/// The reason why the catalog has none, in words.
pub fn resolve(device: &DeviceInfo, catalog: &Catalog) -> Result<GpuSlug, String> {
    let narrow = |(major, minor): (u32, u32)| Some((u8::try_from(major).ok()?, u8::try_from(minor).ok()?));
    let identity = DeviceIdentity {
        // A name made up from the figures does not contain a model.
        name: if device.is_named() { device.name.clone() } else { String::new() },
        compute_capability: device.compute_capability.and_then(narrow),
        sm_count: device.multiprocessors,
        memory_bytes: device.memory_bytes,
    };
    catalog.recognise(&identity).map(|gpu| gpu.slug.clone()).map_err(|reason| reason.to_string())
}

/// A recording's file name without its extensions.
pub fn workload_name(path: &Path) -> String {
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let mut stem = name.as_str();
    for ending in [".gz", ".zst", ".json", ".trace", ".pt", ".sqlite", ".pb", ".xplane"] {
        stem = stem.strip_suffix(ending).unwrap_or(stem);
    }
    if stem.is_empty() { "imported".to_owned() } else { stem.to_owned() }
}
