//! `habitat-tui attach`: records a step of a job that is already running.
//!
//! Progress goes to standard error, the report to standard output.

mod report;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::env::folder;
use super::error::CliError;
use super::gpu;
use super::input::{import_options, resolve};
use super::named::{job_name, unused_profile};
use super::output::{check_writable, print_json};
use crate::settings::args::AttachArgs;
use crate::store::{self, Limit, Paths};
use crate::terminal;
use habitat_base::units::GpuSlug;
use habitat_recorder::capture::assemble;
use habitat_recorder::capture::on_demand::roles::Selection;
use habitat_recorder::capture::on_demand::{self, AttachError, AttachEvent, AttachOptions, Attached, FOLDER_VARIABLE};
use habitat_step::catalog::Catalog;
use habitat_step::profile::DeviceInfo;

/// Processes poll every 5 s by default.
const WAIT: Duration = Duration::from_secs(12);
const TIMEOUT: Duration = Duration::from_secs(300);

pub(super) fn run(args: &AttachArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let given = args.socket_dir.is_some() || std::env::var_os(FOLDER_VARIABLE).is_some_and(|it| !it.is_empty());
    let least = Duration::from_millis(100);
    let options = AttachOptions {
        folder: folder(args.socket_dir.as_deref())?,
        at_abstract_name: !given,
        wanted: Selection { pid: args.pid, all: args.all },
        iterations: args.window + 1,
        shapes: !args.no_shapes,
        stacks: args.stacks,
        wait: args.wait.unwrap_or(WAIT).max(least),
        timeout: args.timeout.unwrap_or(TIMEOUT).max(least),
    };
    let mut progress = |what: AttachEvent| {
        if !args.quiet {
            report::progress(&what, &options);
        }
    };
    if args.list {
        return list(&options, args.json, &mut progress, out);
    }
    let catalog = store::catalog(&Paths::find())?;
    let origin = check(args, &catalog)?;
    let attached = on_demand::attach(&options, &mut progress)
        .inspect_err(|error| report::choices(error, &mut terminal::stderr()))?;
    made(args, &attached, &catalog, origin, out)
}

fn list(
    options: &AttachOptions,
    json: bool,
    progress: &mut dyn FnMut(AttachEvent),
    out: &mut dyn Write,
) -> Result<u8, CliError> {
    match on_demand::list(options, progress) {
        Ok(all) if json => print_json(&report::list_json(&all), out),
        Ok(all) => {
            report::table(&all, out)?;
            Ok(0)
        }
        Err(AttachError::Nobody { .. }) if json => {
            print_json(&report::list_json(&[]), out)?;
            Ok(1)
        }
        Err(error @ AttachError::Nobody { .. }) => {
            terminal::say(format_args!("habitat-tui: {error}"));
            Ok(1)
        }
        Err(error) => Err(error.into()),
    }
}

/// Checks everything that can be refused before the job is contacted.
fn check(args: &AttachArgs, catalog: &Catalog) -> Result<Option<GpuSlug>, CliError> {
    let origin = gpu::maybe(catalog, "--origin", args.workload.origin.as_ref())?;
    check_writable(args.output.as_deref().unwrap_or(Path::new("attached.habitat.json.zst")), args.force)?;
    if let Some(folder) = &args.keep_traces
        && !folder.is_dir()
    {
        return Err(
            CliError::Refused("no such folder; create it first (--keep-traces)".to_owned()).at(folder.display())
        );
    }
    Ok(origin)
}

/// Writes the profile of the recorded steps and the report.
fn made(
    args: &AttachArgs,
    attached: &Attached,
    catalog: &Catalog,
    origin: Option<GpuSlug>,
    out: &mut dyn Write,
) -> Result<u8, CliError> {
    let began = Instant::now();
    let kept = args.keep_traces.as_deref().map(|folder| keep(attached, folder, args.force)).transpose()?;
    let command: Vec<OsString> =
        attached.traces.first().map_or_else(Vec::new, |trace| trace.command.iter().map(OsString::from).collect());
    let name = job_name(&command);
    let output = args.output.clone().unwrap_or_else(|| unused_profile(&name));
    let find = |device: &DeviceInfo| resolve(device, catalog);
    let options = import_options(&args.workload, name, origin, &find);
    let recording = attached.recording();
    let mut assembled = assemble::profile(&recording, Path::new("/"), &options).inspect_err(|_| {
        if kept.is_none() && !args.quiet {
            terminal::say("habitat-tui: pass --keep-traces DIR to keep the trace");
        }
    })?;
    if let Some(recording) = &mut assembled.profile.recording {
        recording.notes.extend(report::notes(attached));
    }
    let json = assembled.profile.to_json()?;
    store::save_atomically(&output, &json, args.force)?;
    let import = began.elapsed().as_secs_f64();
    if args.json {
        return print_json(&report::json(attached, &assembled, &output, import), out);
    }
    report::report(attached, &assembled, &output, import, out)?;
    Ok(0)
}

/// Copies the traces out of the temporary folder.
fn keep(attached: &Attached, folder: &Path, force: bool) -> Result<Vec<PathBuf>, CliError> {
    let mut kept = Vec::new();
    for trace in &attached.traces {
        let name = trace
            .rank
            .map_or_else(|| format!("trace-{}.json", trace.pid), |rank| format!("trace-rank{rank}-{}.json", trace.pid));
        let path = folder.join(name);
        let bytes = store::read_as_it_is(&trace.path, Limit::TRACE)?;
        store::save_atomically(&path, &bytes, force)?;
        kept.push(path);
    }
    Ok(kept)
}
