//! `habitat-tui attach`: the step of a job that runs already.
//!
//! What happens on the way goes to standard error, the report to standard output.

#[cfg(target_os = "linux")]
mod output;

#[cfg(not(target_os = "linux"))]
use std::io::Write;

use super::CliError;
use crate::settings::args::AttachArgs;

/// Where there is no such protocol.
#[cfg(not(target_os = "linux"))]
pub(super) fn run(_args: &AttachArgs, _out: &mut dyn Write) -> Result<u8, CliError> {
    Err(CliError("attach: this needs Linux; `habitat-tui run -- python train.py` works on macOS too".to_owned()))
}

#[cfg(target_os = "linux")]
pub(super) use linux::run;

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::OsString;
    use std::io::Write;
    use std::path::{Path, PathBuf};
    use std::time::{Duration, Instant};

    use super::{AttachArgs, CliError, output};
    use crate::capture::assemble;
    use crate::capture::on_demand::roles::Wanted;
    use crate::capture::on_demand::{self, AttachError, AttachEvent, AttachOptions, Attached, FOLDER_VARIABLE};
    use crate::catalog::Catalog;
    use crate::cli::env::folder;
    use crate::cli::gpu;
    use crate::cli::import::resolve;
    use crate::cli::run::{may_write, script, unused};
    use crate::profile::DeviceInfo;
    use crate::profile::import::ImportOptions;
    use crate::store::{self, Limit, Paths, StoreError};
    use crate::terminal;
    use crate::units::GpuSlug;

    /// A process asks every 5 s, unless told otherwise.
    const WAIT: Duration = Duration::from_secs(12);
    const TIMEOUT: Duration = Duration::from_secs(300);

    pub(in crate::cli) fn run(args: &AttachArgs, out: &mut dyn Write) -> Result<u8, CliError> {
        let given = args.socket_dir.is_some() || std::env::var_os(FOLDER_VARIABLE).is_some_and(|it| !it.is_empty());
        let least = Duration::from_millis(100);
        let options = AttachOptions {
            folder: folder(args.socket_dir.as_deref()).map_err(CliError::of)?,
            at_abstract_name: !given,
            wanted: Wanted { pid: args.pid, all: args.all },
            iterations: args.window + 1,
            shapes: !args.no_shapes,
            stacks: args.stacks,
            wait: args.wait.unwrap_or(WAIT).max(least),
            timeout: args.timeout.unwrap_or(TIMEOUT).max(least),
        };
        let mut report = |what: AttachEvent| {
            if !args.quiet {
                output::progress(&what, &options);
            }
        };
        if args.list {
            return list(&options, args.json, &mut report, out);
        }
        let catalog = store::catalog(&Paths::find())?;
        let origin = check(args, &catalog)?;
        let attached = match on_demand::attach(&options, &mut report) {
            Ok(attached) => attached,
            Err(AttachError::Interrupted { signal, waiting }) => {
                terminal::say(format_args!("habitat-tui: {}", AttachError::Interrupted { signal, waiting }));
                return Ok(u8::try_from(128 + signal).unwrap_or(130));
            }
            Err(error) => {
                output::choices(&error, &mut terminal::stderr());
                return Err(CliError::of(error));
            }
        };
        made(args, &attached, &catalog, origin, out)
    }

    fn list(
        options: &AttachOptions,
        json: bool,
        report: &mut dyn FnMut(AttachEvent),
        out: &mut dyn Write,
    ) -> Result<u8, CliError> {
        match on_demand::list(options, report) {
            Ok(all) if json => super::super::print_json(&output::list_json(&all), out),
            Ok(all) => {
                output::table(&all, out)?;
                Ok(0)
            }
            Err(AttachError::Nobody { .. }) if json => {
                super::super::print_json(&output::list_json(&[]), out)?;
                Ok(1)
            }
            Err(error @ AttachError::Nobody { .. }) => {
                terminal::say(format_args!("habitat-tui: {error}"));
                Ok(1)
            }
            Err(AttachError::Interrupted { signal, .. }) => Ok(u8::try_from(128 + signal).unwrap_or(130)),
            Err(error) => Err(CliError::of(error)),
        }
    }

    /// Everything that can be refused before the job is asked, is.
    fn check(args: &AttachArgs, catalog: &Catalog) -> Result<Option<GpuSlug>, CliError> {
        let origin = gpu::maybe(catalog, "--origin", args.workload.origin.as_ref())?;
        if args.workload.batch_size == Some(0) {
            return Err(CliError("--batch-size: 0; a step processes at least one sample".to_owned()));
        }
        if let Some(path) = &args.output {
            if path.exists() && !args.force && path.is_file() {
                return Err(StoreError::Exists { path: path.clone() }.into());
            }
            may_write(path)?;
        } else {
            may_write(Path::new("attached.habitat.json.zst"))?;
        }
        if let Some(folder) = &args.keep_traces
            && !folder.is_dir()
        {
            return Err(CliError(format!("{}: no such folder; make it for --keep-traces", folder.display())));
        }
        Ok(origin)
    }

    /// The profile of what was recorded, and the report.
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
        let script = script(&command);
        let output = args.output.clone().unwrap_or_else(|| unused(&script));
        let find = |device: &DeviceInfo| resolve(device, catalog);
        let workload = &args.workload;
        let options = ImportOptions {
            workload: workload.name.clone().unwrap_or(script),
            mode: workload.mode,
            batch_size: workload.batch_size,
            sequence_length: workload.sequence_length,
            precision: workload.precision,
            parameter_count: workload.parameters,
            origin,
            resolve_gpu: Some(&find),
            ..ImportOptions::default()
        };
        let recording = attached.recording();
        let mut assembled = assemble::profile(&recording, Path::new("/"), &options).map_err(|error| {
            CliError(format!("{error}{}", if kept.is_none() { "; --keep-traces DIR keeps the trace" } else { "" }))
        })?;
        if let Some(recording) = &mut assembled.profile.recording {
            recording.notes.extend(output::notes(attached));
        }
        let json = assembled.profile.to_json().map_err(CliError::of)?;
        store::save_atomically(&output, &json, args.force)?;
        let import = began.elapsed().as_secs_f64();
        if args.json {
            return super::super::print_json(&output::json(attached, &assembled, &output, import), out);
        }
        output::report(attached, &assembled, &output, import, out)?;
        Ok(0)
    }

    /// Copies the traces out of the folder that goes away.
    fn keep(attached: &Attached, folder: &Path, force: bool) -> Result<Vec<PathBuf>, CliError> {
        let mut kept = Vec::new();
        for trace in &attached.traces {
            let name = trace.rank.map_or_else(
                || format!("trace-{}.json", trace.pid),
                |rank| format!("trace-rank{rank}-{}.json", trace.pid),
            );
            let path = folder.join(name);
            let bytes = store::read_as_it_is(&trace.path, Limit::TRACE)?;
            store::save_atomically(&path, &bytes, force)?;
            kept.push(path);
        }
        Ok(kept)
    }
}
