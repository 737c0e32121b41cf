//! `habitat-tui run`: a training job, recorded while it runs.
//!
//! On a terminal with the screens on it (`live`), else in the job's own terminal, with a
//! report at the end. Standard output belongs to the job then, so what is said here goes to
//! standard error.

#[cfg(unix)]
mod batches;
#[cfg(unix)]
mod live;
#[cfg(unix)]
mod outcome;
#[cfg(unix)]
mod report;
#[cfg(unix)]
mod snapshot;

use super::{CliError, Outcome};
use crate::settings::args::{RunArgs, ScreensArgs};

/// Where there are no Unix sockets and process groups.
#[cfg(not(unix))]
pub(super) fn run(_args: RunArgs, _screens: ScreensArgs) -> Result<Outcome, CliError> {
    Err(CliError(
        "run: recording a job needs Linux or macOS; save a trace with torch.profiler and use `habitat-tui import`"
            .to_owned(),
    ))
}

/// Writes a job's log, started by [`run`].
#[cfg(not(unix))]
pub(super) fn write_log() -> Result<u8, CliError> {
    Ok(2)
}

/// Writes a job's log, started by [`run`].
#[cfg(unix)]
pub(super) fn write_log() -> Result<u8, CliError> {
    crate::capture::log::write()?;
    Ok(0)
}

#[cfg(unix)]
pub(super) use unix::run;

// `attach` writes its profile in the same way.
#[cfg(target_os = "linux")]
pub(super) use unix::{may_write, script, unused};

#[cfg(unix)]
mod unix {
    use std::ffi::OsString;
    use std::io::{IsTerminal, Write};
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use super::batches::Part;
    use super::{CliError, Outcome, RunArgs, ScreensArgs, batches, live, outcome, report};
    use crate::capture::assemble::{self, Assembled};
    use crate::capture::{
        self, Asked, CaptureError, Finished, JobOptions, Private, Recording, RecordingStatus, Settings,
    };
    use crate::catalog::Catalog;
    use crate::cli::gpu;
    use crate::cli::import::resolve;
    use crate::profile::DeviceInfo;
    use crate::profile::import::ImportOptions;
    use crate::store::{self, Paths, StoreError};
    use crate::terminal;

    /// How the names of profiles end that are chosen here.
    const PROFILE: &str = "habitat.json.zst";

    pub(in crate::cli) fn run(args: RunArgs, screens: ScreensArgs) -> Result<Outcome, CliError> {
        let catalog = Arc::new(store::catalog(&Paths::find())?);
        if !args.batches.is_empty() {
            let output = args.output.clone().unwrap_or_else(|| unused(&script(&args.command)));
            let mut one = |args: &RunArgs, part: Part| {
                let session = Session::new(Arc::new(args.clone()), catalog.clone())?;
                plainly(&Session { part: Some(part), ..session })
            };
            return batches::run(&args, &output, &mut one).map(Outcome::Exit);
        }
        let with_screens = !args.no_tui
            && !args.quiet
            && args.json.is_none()
            && std::io::stdin().is_terminal()
            && std::io::stdout().is_terminal();
        let session = Session::new(Arc::new(args), catalog)?;
        if with_screens { live::run(session, screens) } else { plainly(&session).map(Outcome::Exit) }
    }

    /// Without screens: the job has the terminal.
    fn plainly(session: &Session) -> Result<u8, CliError> {
        let args = &*session.args;
        let options = job_options(args)?;
        let running = match capture::start(&options, &session.private) {
            Ok(running) => running,
            Err(error) => return not_started(error),
        };
        let pid = running.pid();
        let mut written = None;
        let mut finished = running.follow(&mut |recording: &Recording, folder: &Path| {
            let done = session.write(recording, folder, args.force);
            if let (Ok(_), false, false) = (&done, args.quiet, args.stop_after_recording) {
                terminal::say(format_args!(
                    "habitat-tui: recorded; profile written to {}; the job goes on",
                    session.output.display()
                ));
            }
            written = Some(done);
        });
        let written = match written {
            None if finished.recording.seen() == RecordingStatus::Recorded => {
                Some(session.write(&finished.recording, finished.folder.path(), args.force))
            }
            written => written,
        };
        let Conclusion { text, code, .. } = conclude(session, &options, pid, &mut finished, written);
        // Nobody may be there to read it any more.
        let _ = terminal::stderr().write_all(&text);
        if finished.interrupted {
            drop(finished.folder);
            capture::interrupt_ourselves();
        }
        Ok(code)
    }

    /// The exit code of a job that could not be started.
    pub(super) fn not_started(error: CaptureError) -> Result<u8, CliError> {
        if error.exit_code() == 2 {
            return Err(CliError::of(error));
        }
        terminal::error(&error);
        Ok(error.exit_code())
    }

    /// What is left to say and to end with.
    pub(super) struct Conclusion {
        /// For standard error.
        pub(super) text: Vec<u8>,
        /// The exit code.
        pub(super) code: u8,
        /// Why nothing was recorded, and what to do where there is something to do.
        pub(super) remedy: Option<String>,
    }

    /// Writes what was seen as JSON where asked to, and keeps the traces where they made no
    /// profile.
    pub(super) fn conclude(
        session: &Session,
        options: &JobOptions,
        pid: u32,
        finished: &mut Finished,
        written: Option<Result<Assembled, String>>,
    ) -> Conclusion {
        let args = &*session.args;
        let seen = finished.recording.seen();
        let (assembled, problem, remedy) = match written {
            Some(Ok(assembled)) => (Some(assembled), None, None),
            Some(Err(problem)) => (None, Some(problem), None),
            None => {
                let (recorder, end) = (report::Recorder::new(options), outcome::End::new(finished));
                let folder = finished.folder.path();
                let remedy = if folder.is_dir() {
                    report::remedy(&seen, &options.settings, recorder, end)
                } else {
                    report::gone(folder)
                };
                (None, Some(format!("{}{remedy}", outcome::cause(finished, options))), Some(remedy))
            }
        };
        let mut text = Vec::new();
        let mut code = match &assembled {
            // Ended by us, as ordered: that is success.
            Some(_) if finished.asked == Some(Asked::Recorded) => 0,
            _ => finished.ended.exit_code(),
        };
        // Writing to a Vec cannot fail.
        if let Some(path) = &args.json {
            let output = &session.output;
            let json = report::json(options, pid, finished, &seen, assembled.as_ref(), problem.as_deref(), output);
            if let Err(error) = store::save_atomically(path, json.to_string().as_bytes(), args.force) {
                let _ = writeln!(text, "error: {error}");
                code = 2;
            }
        }
        if let Some(note) = report::cut(finished.cut.as_ref()) {
            let _ = writeln!(text, "habitat-tui: {note}");
        }
        if let Some(problem) = &problem {
            let _ = writeln!(text, "habitat-tui: {problem}");
            if seen == RecordingStatus::Recorded {
                finished.folder.keep();
                let folder = finished.folder.path().display();
                let _ = writeln!(text, "habitat-tui: the recorded traces are kept in {folder}");
            }
        }
        if let Some(assembled) = &assembled
            && !args.quiet
        {
            let output = &session.output;
            let _ = match &session.part {
                Some(part) => report::part(part, assembled, finished, output, &mut text),
                None => report::report(assembled, finished, options, output, &mut text),
            };
        }
        Conclusion { text, code, remedy }
    }

    pub(super) fn job_options(args: &RunArgs) -> Result<JobOptions, CliError> {
        let cupti = args.cupti.then(|| cupti(args)).transpose()?;
        let (after, window) = args.steps.unwrap_or((args.after, args.window));
        let mut settings = Settings::new(after, window);
        settings.windows = args.windows;
        settings.memory = args.memory;
        settings.stacks = args.stacks;
        settings.all_ranks = args.all_ranks;
        Ok(JobOptions {
            command: args.command.clone(),
            settings,
            cupti,
            log: args.log.clone(),
            apart: false,
            stop_after: args.stop_after_recording,
            timeout: args.timeout,
        })
    }

    /// The recorder for CUDA programs and its window.
    fn cupti(args: &RunArgs) -> Result<capture::cupti::Settings, CliError> {
        let program = std::env::current_exe().unwrap_or_default();
        let library = capture::cupti::find(&program, |name| std::env::var_os(name)).map_err(CliError::of)?;
        let first = args.command.first().map(|word| Path::new(word).file_name().unwrap_or_default().to_string_lossy());
        if !args.quiet && first.is_some_and(|name| name.starts_with("python") || name == "torchrun") {
            terminal::say(
                "habitat-tui: --cupti records kernels without operators and shapes; for PyTorch leave it out",
            );
        }
        Ok(capture::cupti::Settings { library, after_seconds: args.after_seconds, for_seconds: args.for_seconds })
    }

    /// What is written, and of what.
    #[derive(Clone)]
    pub(super) struct Session {
        pub(super) args: Arc<RunArgs>,
        pub(super) catalog: Arc<Catalog>,
        pub(super) name: String,
        pub(super) output: PathBuf,
        /// Which one it is of several (`--batches`).
        part: Option<Part>,
        origin: Option<crate::units::GpuSlug>,
        /// Where what the job gets from us is.
        pub(super) private: Private,
    }

    impl Session {
        /// Everything that can be refused before the job starts, is.
        fn new(args: Arc<RunArgs>, catalog: Arc<Catalog>) -> Result<Self, CliError> {
            let origin = gpu::maybe(&catalog, "--origin", args.workload.origin.as_ref())?;
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
            let private = Private::find(Paths::cache()).map_err(CliError::of)?;
            Ok(Self { args, catalog, name, output, part: None, origin, private })
        }

        /// Makes a profile and writes it; `replace` says whether over a file that is there.
        pub(super) fn write(&self, recording: &Recording, folder: &Path, replace: bool) -> Result<Assembled, String> {
            let find = |device: &DeviceInfo| resolve(device, &self.catalog);
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
            store::save_atomically(&self.output, &json, replace).map_err(|error| error.to_string())?;
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

    /// A file in this folder that is not there yet, nor the log that belongs to it.
    pub(in crate::cli) fn unused(script: &str) -> PathBuf {
        let clean: String =
            script.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect();
        let stem = format!("{}-{}", clean.trim_start_matches('.'), jiff::Zoned::now().date());
        let is_free = |name: &String| [PROFILE, "log"].iter().all(|end| !Path::new(&format!("{name}.{end}")).exists());
        let name =
            (1..10_000).map(|number| if number == 1 { stem.clone() } else { format!("{stem}-{number}") }).find(is_free);
        PathBuf::from(format!("{}.{PROFILE}", name.unwrap_or(stem)))
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
