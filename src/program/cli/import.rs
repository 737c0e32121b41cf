//! `habitat-tui import`: makes a profile from recordings or an op list.

use std::io::Write;
use std::path::PathBuf;

use serde::Serialize;

use super::error::CliError;
use super::input::{self, import_options, resolve, workload_name};
use super::output::{check_new, print_json, save_profile};
use super::{gpu, hints};
use crate::settings::args::ImportArgs;
use crate::store::{self, Kind, Paths};
use habitat_base::units::GpuSlug;
use habitat_reports::format;
use habitat_step::profile::{DeviceInfo, Profile};
use habitat_traces::Format;
use habitat_traces::import::{self, Import, ImportOptions};

#[derive(Serialize)]
struct ImportJson<'a> {
    format: &'static str,
    version: u32,
    traces: Vec<String>,
    profile: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu_name: Option<&'a str>,
    step_marks: String,
    steps_found: usize,
    steps_used: usize,
    operations: usize,
    kernels_per_step: f64,
    kernel_time_us: f64,
    joined_share: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    step_time_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_busy_us: Option<f64>,
    notes: &'a [String],
}

pub(super) fn run(args: &ImportArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let catalog = store::catalog(&Paths::find())?;
    check_new(&args.output, args.force)?;
    let is_output =
        |trace: &PathBuf| matches!((trace.canonicalize(), args.output.canonicalize()), (Ok(a), Ok(b)) if a == b);
    if args.traces.iter().any(is_output) {
        let output = args.output.display();
        return Err(CliError::Refused(format!("{output}: is also the recording; choose another name for the profile")));
    }
    let given = &args.workload;
    let origin = gpu::maybe(&catalog, "--origin", given.origin.as_ref())?;
    let kinds = args.traces.iter().map(|path| store::kind(path)).collect::<Result<Vec<_>, _>>()?;
    if kinds == [Kind::OpList] {
        let profile = input::op_list(&args.traces[0])?;
        return op_list(args, profile, origin.is_some(), out);
    }
    let formats = formats(&args.traces, &kinds)?;
    let find = |device: &DeviceInfo| resolve(device, &catalog);
    let options = ImportOptions {
        max_steps: args.max_steps,
        shapes_only: args.shapes_only,
        step_range: args.step_range.clone(),
        device: args.device,
        ..import_options(given, workload_name(&args.traces[0]), origin, &find)
    };
    let import = recordings(args, &formats, &options)?;
    store::save_atomically(&args.output, &import.profile.to_json()?, args.force)?;
    report(args, &import, out)
}

/// Makes a profile from an op list. Flags override facts in the list.
fn op_list(args: &ImportArgs, mut profile: Profile, measured: bool, out: &mut dyn Write) -> Result<u8, CliError> {
    let path = args.traces[0].display();
    if measured {
        return Err(CliError::Refused(format!("{path}: an op list is not recorded on a GPU; omit --origin")));
    }
    let given = &args.workload;
    let workload = &mut profile.workload;
    if let Some(name) = &given.name {
        workload.name.clone_from(name);
    }
    workload.mode = given.mode.unwrap_or(workload.mode);
    workload.batch_size = given.batch_size.or(workload.batch_size);
    workload.sequence_length = given.sequence_length.or(workload.sequence_length);
    workload.precision = given.precision.or(workload.precision);
    workload.parameter_count = given.parameters.or(workload.parameter_count);
    save_profile(&profile, &args.output, args.force)?;
    let operations = profile.operations.len();
    if args.json {
        let found = ImportJson {
            format: "habitat-import",
            version: 1,
            traces: vec![path.to_string()],
            profile: args.output.display().to_string(),
            gpu: None,
            gpu_name: None,
            step_marks: "op list".to_owned(),
            steps_found: 1,
            steps_used: 1,
            operations,
            kernels_per_step: 0.0,
            kernel_time_us: 0.0,
            joined_share: 0.0,
            step_time_us: None,
            device_busy_us: None,
            notes: profile.recording.as_ref().map_or(&[], |recording| &recording.notes),
        };
        return print_json(&found, out);
    }
    habitat_reports::summary::write_profile(&profile, &args.output.display().to_string(), out)?;
    writeln!(out, "  {operations} operations from an op list, no measurements")?;
    writeln!(out, "\nwritten to {}", args.output.display())?;
    writeln!(out, "{}", hints::lines(&args.output, &profile))?;
    Ok(0)
}

/// Kinds of files that can be imported, for errors.
const ACCEPTED: &str = "PyTorch traces (.json, .json.gz, .json.zst), exports of Nsight Systems (.sqlite) and recordings of XPlane (.xplane.pb), one file or one per rank; or one op list";

/// Formats of the files.
fn formats(paths: &[PathBuf], kinds: &[Kind]) -> Result<Vec<Format>, CliError> {
    let format = |(path, kind): (&PathBuf, &Kind)| match kind {
        Kind::Recording(format) => Ok(*format),
        Kind::OpList => {
            let problem = "an op list is a whole step; import it alone";
            Err(CliError::Refused(problem.to_owned()).at(path.display()))
        }
        Kind::Profile | Kind::BlackBox | Kind::Other(_) => Err(kind.refused(path, ACCEPTED).into()),
    };
    paths.iter().zip(kinds).map(format).collect()
}

/// Imports one recording, or one per rank.
fn recordings(args: &ImportArgs, formats: &[Format], options: &ImportOptions<'_>) -> Result<Import, CliError> {
    let refuse = |flag: &str, given: bool, taken: &[Format], kinds: &str| {
        let other = formats.iter().position(|format| !taken.contains(format)).filter(|_| given);
        other.map_or(Ok(()), |at| {
            let path = args.traces[at].display();
            Err(CliError::Refused(format!("{flag}: {path} is not a {kinds}; omit the flag")))
        })
    };
    let several_gpus = [Format::Nsight, Format::Xplane];
    let named_ranges = [Format::Kineto, Format::Nsight];
    refuse("--device", args.device.is_some(), &several_gpus, "recording of Nsight Systems or XPlane")?;
    refuse("--step-range", args.step_range.is_some(), &named_ranges, "trace or recording with named ranges")?;
    refuse("--shapes-only", args.shapes_only, &[Format::Kineto], "PyTorch trace")?;
    if let Some(other) = formats.iter().position(|format| *format != formats[0]) {
        return Err(CliError::Refused(format!(
            "{} and {} are recordings of different formats; record all ranks of a job in the same one",
            args.traces[0].display(),
            args.traces[other].display()
        )));
    }
    if formats.first() == Some(&Format::Kineto) {
        return input::traces(&args.traces, options);
    }
    let imports = args.traces.iter().zip(formats).map(|(path, format)| input::import(path, *format, options));
    let import = import::combine(imports.collect::<Result<_, _>>()?);
    import.ok_or_else(|| CliError::Refused("no recording given; pass at least one file".to_owned()))
}

fn report(args: &ImportArgs, import: &Import, out: &mut dyn Write) -> Result<u8, CliError> {
    let (profile, summary) = (&import.profile, &import.summary);
    let step = profile.step.as_ref();
    let origin = profile.origin.as_ref();
    let notes = profile.recording.as_ref().map_or(&[] as &[String], |recording| &recording.notes);
    if args.json {
        let found = ImportJson {
            format: "habitat-import",
            version: 1,
            traces: args.traces.iter().map(|trace| trace.display().to_string()).collect(),
            profile: args.output.display().to_string(),
            gpu: origin.and_then(|origin| origin.gpu.as_ref()).map(GpuSlug::as_str),
            gpu_name: origin.and_then(|origin| origin.gpu_name.as_deref()),
            step_marks: summary.marks.name().to_owned(),
            steps_found: summary.steps_found,
            steps_used: summary.steps_used,
            operations: profile.operations.len(),
            kernels_per_step: summary.kernels_per_step,
            kernel_time_us: summary.kernel_time.get(),
            joined_share: summary.joined_share,
            step_time_us: step.and_then(|step| step.duration).map(Into::into),
            device_busy_us: step.and_then(|step| step.device_busy).map(Into::into),
            notes,
        };
        return print_json(&found, out);
    }
    habitat_reports::summary::write_profile(profile, &args.output.display().to_string(), out)?;
    writeln!(out, "  steps by {}: {} found, {} used", summary.marks.name(), summary.steps_found, summary.steps_used)?;
    writeln!(
        out,
        "  {} operations, {} kernels per step, {} of kernel time joined to {}",
        profile.operations.len(),
        format::grouped(summary.kernels_per_step),
        format::percent(summary.joined_share),
        summary.joined_to
    )?;
    writeln!(out, "\nwritten to {}", args.output.display())?;
    writeln!(out, "{}", hints::lines(&args.output, profile))?;
    Ok(0)
}
