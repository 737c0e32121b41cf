//! Loading the recorded step: a profile, a trace, an op list, or the embedded sample.

use std::path::Path;

use super::CliError;
use super::import::resolve;
use super::recording;
use crate::catalog::Catalog;
use crate::profile::DeviceInfo;
use crate::profile::import::ImportOptions;
use crate::profile::op_list::from_op_list;
use crate::profile::{Profile, Warning};
use crate::settings::args::InputArgs;
use crate::store::{self, Kind, Limit, StoreError, bundled, kind};
use crate::terminal;
use crate::trace::Format;

/// A recorded step and where it is from.
#[derive(Debug)]
pub struct Loaded {
    /// The step.
    pub profile: Profile,
    /// Where it is from, in the words the screens show.
    pub label: String,
    /// Whether it is the embedded sample, not the user's own.
    pub embedded: bool,
    /// What was unusual about the file.
    pub warnings: Vec<Warning>,
}

impl Loaded {
    /// Tells the warnings on standard error.
    pub(super) fn warn(&self) {
        for warning in &self.warnings {
            terminal::say(format_args!("warning: {}: {warning}", self.label));
        }
    }
}

/// Loads what `input` names; facts given as flags complete those of the file.
///
/// # Errors
/// [`CliError`] naming the file, the place and the remedy.
pub fn load(input: &InputArgs, catalog: &Catalog) -> Result<Loaded, CliError> {
    let mut loaded = match &input.file {
        None => Loaded {
            profile: bundled::sample(),
            label: bundled::SAMPLE_LABEL.to_owned(),
            embedded: true,
            warnings: Vec::new(),
        },
        Some(path) => load_file(path, catalog)?,
    };
    if input.batch_size == Some(0) {
        return Err(CliError("--batch-size: 0; a step processes at least one sample".to_owned()));
    }
    let profile = &mut loaded.profile;
    let workload = &mut profile.workload;
    // What was recorded belongs to the recorded numbers: another value would make the
    // throughput of a measured step up.
    complete("--batch-size", &mut workload.batch_size, input.batch_size, &loaded.label)?;
    complete("--sequence-length", &mut workload.sequence_length, input.sequence_length, &loaded.label)?;
    complete("--parameters", &mut workload.parameter_count, input.parameters, &loaded.label)?;
    if let Some(peak) = input.peak_memory {
        let step = profile.step.get_or_insert_default();
        if let Some(recorded) = step.peak_memory_bytes {
            return Err(CliError(format!(
                "--peak-memory: {} says {} already",
                loaded.label,
                crate::report::format::memory(recorded)
            )));
        }
        step.peak_memory_bytes = Some(peak);
    }
    Ok(loaded)
}

/// Puts a fact in where the file has none.
fn complete(flag: &str, place: &mut Option<u64>, given: Option<u64>, label: &str) -> Result<(), CliError> {
    match (*place, given) {
        (Some(recorded), Some(given)) if recorded != given => Err(CliError(format!(
            "{flag}: {given}, but {label} says {recorded}; leave the flag out, or correct the file (`habitat-tui import` takes the flag too)"
        ))),
        (_, Some(given)) => {
            *place = Some(given);
            Ok(())
        }
        (_, None) => Ok(()),
    }
}

pub(super) fn load_file(path: &Path, catalog: &Catalog) -> Result<Loaded, CliError> {
    let label = path.display().to_string();
    let find = |device: &DeviceInfo| resolve(device, catalog);
    let options = ImportOptions {
        workload: super::import::workload_name(path),
        resolve_gpu: Some(&find),
        ..ImportOptions::default()
    };
    let recorded = |format| Ok::<_, CliError>((recording::import(path, format, &options)?.profile, Vec::new()));
    let (profile, warnings) = match store::kind(path)? {
        Kind::Profile => store::read_profile(path)?,
        Kind::OpList => (op_list(path)?, Vec::new()),
        Kind::Nsight => recorded(Format::Nsight)?,
        Kind::Xplane => recorded(Format::Xplane)?,
        Kind::Trace => recorded(Format::Kineto)?,
        other @ (Kind::BlackBox | Kind::Other(_)) => return Err(other.refused(path, kind::STEPS).into()),
    };
    Ok(Loaded { profile, label, embedded: false, warnings })
}

/// The profile of an op list.
pub(super) fn op_list(path: &Path) -> Result<Profile, CliError> {
    let json = store::read(path, Limit::OP_LIST)?;
    let profile = from_op_list(&json, &super::import::workload_name(path))
        .map_err(|source| StoreError::Profile { path: path.to_owned(), source })?;
    Ok(profile)
}
