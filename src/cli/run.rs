//! `habitat-tui run`: a training job, recorded while it runs.
//!
//! Standard output belongs to the job, so what is said here goes to standard error.

#[cfg(unix)]
mod batches;
#[cfg(unix)]
mod said;

use super::CliError;
use crate::settings::args::RunArgs;

/// Where there are no Unix sockets and process groups.
#[cfg(not(unix))]
pub(super) fn run(_args: &RunArgs) -> Result<u8, CliError> {
    Err(CliError(
        "run: recording a job needs Linux or macOS; save a trace with torch.profiler and use `habitat-tui import`"
            .to_owned(),
    ))
}

#[cfg(unix)]
pub(super) use unix::run;

// `attach` writes its profile in the same way.
#[cfg(target_os = "linux")]
pub(super) use unix::{may_write, script, unused};

#[cfg(unix)]
mod unix {
    use std::ffi::OsString;
    use std::io::Write;
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use super::{CliError, RunArgs, batches, said};
    use crate::capture::assemble::{self, Assembled};
    use crate::capture::{self, Order, Recording, Seen, Settings};
    use crate::catalog::Catalog;
    use crate::cli::import::resolve;
    use crate::profile::kineto::{DeviceInfo, ImportOptions};
    use crate::store::{self, Paths, StoreError};

    pub(in crate::cli) fn run(args: &RunArgs) -> Result<u8, CliError> {
        if args.batches.is_empty() {
            return one(args);
        }
        let output = args.output.clone().unwrap_or_else(|| unused(&script(&args.command)));
        batches::run(args, &output, &mut one)
    }

    /// Records one job.
    fn one(args: &RunArgs) -> Result<u8, CliError> {
        let catalog = store::catalog(&Paths::find())?;
        let session = Session::new(args, &catalog)?;
        let order = order(args)?;
        let mut written = None;
        let finished = capture::run(&order, &mut |recording, folder| {
            let done = session.write(recording, folder);
            if let (Ok(_), false, false) = (&done, args.quiet, args.stop_after_recording) {
                eprintln!("habitat-tui: recorded; profile written to {}; the job goes on", session.output.display());
            }
            written = Some(done);
        });
        let mut finished = match finished {
            Ok(finished) => finished,
            Err(error) if error.exit_code() == 2 => return Err(CliError::of(error)),
            Err(error) => {
                eprintln!("error: {error}");
                return Ok(error.exit_code());
            }
        };
        let seen = finished.recording.seen();
        let written = match (written, &seen) {
            (Some(written), _) => Some(written),
            (None, Seen::Recorded) => Some(session.write(&finished.recording, finished.folder.path())),
            (None, _) => None,
        };
        let (assembled, problem) = match written {
            Some(Ok(assembled)) => (Some(assembled), None),
            Some(Err(problem)) => (None, Some(problem)),
            None => (None, Some(said::remedy(&seen, &order))),
        };
        if let Some(path) = &args.json {
            let json = said::json(&order, &finished, &seen, assembled.as_ref(), problem.as_deref(), &session.output);
            store::save_atomically(path, json.to_string().as_bytes(), args.force)?;
        }
        let code = match &assembled {
            // Ended by us, as ordered: that is success.
            Some(_) if finished.by_us && args.stop_after_recording => 0,
            _ => finished.ended.exit_code(),
        };
        if let Some(problem) = &problem {
            eprintln!("habitat-tui: {problem}");
            if seen == Seen::Recorded {
                finished.folder.disable_cleanup(true);
                eprintln!("habitat-tui: the recorded traces are kept in {}", finished.folder.path().display());
            }
        }
        if let Some(assembled) = &assembled
            && !args.quiet
        {
            let mut text = Vec::new();
            said::report(assembled, &finished.recording, finished.ended, &session.output, &mut text)?;
            // Nobody may be there to read it any more.
            let _ = std::io::stderr().write_all(&text);
        }
        if finished.interrupted {
            drop(finished.folder);
            capture::end_interrupted();
        }
        Ok(code)
    }

    fn order(args: &RunArgs) -> Result<Order, CliError> {
        let cupti = args.cupti.then(|| cupti(args)).transpose()?;
        let (after, window) = args.steps.unwrap_or((args.after, args.window));
        let mut settings = Settings::new(after, window);
        settings.windows = args.windows;
        settings.memory = args.memory;
        settings.all_ranks = args.all_ranks;
        Ok(Order {
            command: args.command.clone(),
            settings,
            cupti,
            log: args.log.clone(),
            stop_after: args.stop_after_recording,
            timeout: args.timeout.map(|hours| Duration::from_secs_f64((hours.get() * 3600.0).min(1e9))),
        })
    }

    /// The recorder for CUDA programs and its window.
    fn cupti(args: &RunArgs) -> Result<capture::cupti::Settings, CliError> {
        let program = std::env::current_exe().unwrap_or_default();
        let library = capture::cupti::find(&program, |name| std::env::var_os(name)).map_err(CliError::of)?;
        let first = args.command.first().map(|word| Path::new(word).file_name().unwrap_or_default().to_string_lossy());
        if !args.quiet && first.is_some_and(|name| name.starts_with("python") || name == "torchrun") {
            eprintln!("habitat-tui: --cupti records kernels without operators and shapes; for PyTorch leave it out");
        }
        Ok(capture::cupti::Settings { library, after_seconds: args.after_seconds, for_seconds: args.for_seconds })
    }

    /// What is written, and of what.
    struct Session<'a> {
        args: &'a RunArgs,
        catalog: &'a Catalog,
        name: String,
        output: PathBuf,
        origin: Option<crate::units::GpuSlug>,
    }

    impl<'a> Session<'a> {
        /// Everything that can be refused before the job starts, is.
        fn new(args: &'a RunArgs, catalog: &'a Catalog) -> Result<Self, CliError> {
            let origin =
                args.workload.origin.as_ref().map(|name| catalog.find(name).map(|gpu| gpu.slug.clone())).transpose();
            let script = script(&args.command);
            let output = args.output.clone().unwrap_or_else(|| unused(&script));
            for path in [Some(&output), args.json.as_ref(), args.log.as_ref()].into_iter().flatten() {
                if path.exists() && !args.force && path.is_file() {
                    return Err(StoreError::Exists { path: path.clone() }.into());
                }
                may_write(path)?;
            }
            if args.workload.batch_size == Some(0) {
                return Err(CliError("--batch-size: 0; a step processes at least one sample".to_owned()));
            }
            let name = args.workload.name.clone().unwrap_or(script);
            Ok(Self { args, catalog, name, output, origin: origin.map_err(CliError::of)? })
        }

        fn write(&self, recording: &Recording, folder: &Path) -> Result<Assembled, String> {
            let find = |device: &DeviceInfo| resolve(device, self.catalog);
            let options = ImportOptions {
                workload: self.name.clone(),
                mode: self.args.workload.mode,
                batch_size: self.args.workload.batch_size,
                sequence_length: self.args.workload.sequence_length,
                precision: self.args.workload.precision,
                parameter_count: self.args.workload.parameters,
                origin: self.origin.clone(),
                resolve_gpu: Some(&find),
                step_range: self.args.step_range.clone(),
                ..ImportOptions::default()
            };
            let assembled = assemble::profile(recording, folder, &options).map_err(|error| error.to_string())?;
            let json = assembled.profile.to_json().map_err(|error| error.to_string())?;
            store::save_atomically(&self.output, &json, self.args.force).map_err(|error| error.to_string())?;
            Ok(assembled)
        }
    }

    /// Whether a file can be made in the path's folder.
    pub(in crate::cli) fn may_write(path: &Path) -> Result<(), CliError> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if path.exists() && !path.is_file() && !path.is_dir() {
            return Ok(());
        }
        let problem = if path.is_dir() {
            "is a folder, not a file".to_owned()
        } else {
            match tempfile::tempfile_in(folder) {
                Ok(_) => return Ok(()),
                Err(error) => format!("cannot be written: {error}; nothing was started (-o gives another place)"),
            }
        };
        Err(CliError(format!("{}: {problem}", path.display())))
    }

    /// What the job is called: the script, the module, or the program.
    pub(in crate::cli) fn script(command: &[OsString]) -> String {
        let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
        let stem = |word: &str| {
            Path::new(word).file_stem().map_or_else(|| "job".to_owned(), |stem| stem.to_string_lossy().into_owned())
        };
        let file = words.iter().skip(1).find(|word| Path::new(&***word).extension().is_some_and(|e| e == "py"));
        let module = || words.iter().position(|word| word == "-m").and_then(|at| words.get(at + 1));
        match (file, words.first()) {
            (Some(file), _) => stem(file),
            (None, first) => module()
                .map(ToString::to_string)
                .or_else(|| first.map(|program| stem(program)))
                .unwrap_or_else(|| "job".to_owned()),
        }
    }

    /// A file in this folder that is not there yet.
    pub(in crate::cli) fn unused(script: &str) -> PathBuf {
        let clean: String =
            script.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect();
        let stem = format!("{}-{}", clean.trim_start_matches('.'), jiff::Zoned::now().date());
        (1..10_000)
            .map(|number| if number == 1 { String::new() } else { format!("-{number}") })
            .map(|number| PathBuf::from(format!("{stem}{number}.habitat.json.zst")))
            .find(|path| !path.exists())
            .unwrap_or_else(|| PathBuf::from(format!("{stem}.habitat.json.zst")))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_job_is_called_by_its_script() {
            let named = |line: &str| script(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
            assert_eq!(named("python -u runs/train.py --lr 1"), "train");
            assert_eq!(named("python -m my.train"), "my.train");
            assert_eq!(named("python -m torch.distributed.run --nproc 2 pre.py"), "pre");
            assert_eq!(named("/bin/sh run.sh"), "sh");
            assert!(unused("../x").to_string_lossy().starts_with("-x-20"), "{:?}", unused("../x"));
        }
    }
}
