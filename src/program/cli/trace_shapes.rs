//! `habitat-tui trace-shapes`: traces a step's shapes, before there is a GPU to run it on.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::error::CliError;
use super::hints::command_of;
use super::named::file_stem;
use super::output::{check_new, print_json, save_profile};
use crate::settings::args::TraceShapesArgs;
use crate::store::{Limit, Paths, bundled, read_text};
use habitat_recorder::capture::Private;
use habitat_recorder::capture::shapes::{self, ShapesOrder, Target};
use habitat_reports::shapes::{self as report, Traced};
use habitat_step::decoder::{Decoder, Launch, Recompute, StepOf};
use habitat_step::profile::Profile;

/// Extensions of profiles.
const ENDINGS: [&str; 3] = [".habitat.json.zst", ".habitat.json.gz", ".habitat.json"];

/// Longest sequence of a model from its dimensions, unless another is given.
const LENGTH: u64 = 4096;

pub(super) fn run(args: &TraceShapesArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let mut batch_sizes = args.batch_sizes.clone();
    batch_sizes.sort_unstable();
    batch_sizes.dedup();
    let (files, mut profiles, layout) = match &args.config {
        Some(config) => from_dimensions(args, config, &batch_sizes)?,
        None => traced(args, &batch_sizes).map(|(files, profiles)| (files, profiles, Vec::new()))?,
    };
    let own = profiles.first().and_then(|profile| profile.workload.precision);
    if let (Some(asked), Some(own)) = (args.precision, own)
        && !asked.has_types_of(own)
    {
        return Err(CliError::Refused(format!(
            "--precision {asked} only labels a step, but this one was traced in {own}: omit it, and \
             convert the step with `habitat-tui predict --precision {asked}`"
        )));
    }
    for (profile, path) in profiles.iter_mut().zip(&files) {
        let workload = &mut profile.workload;
        workload.sequence_length = args.sequence_length.or(workload.sequence_length);
        workload.precision = args.precision.or(workload.precision);
        save_profile(profile, path, args.force)?;
    }
    let traced: Vec<Traced<'_>> =
        profiles.iter().zip(&files).map(|(profile, path)| Traced::of(profile, path.display().to_string())).collect();
    if args.json {
        let target = args.target.as_ref().or(args.config.as_ref());
        return print_json(&report::json(target.map_or("", String::as_str), &traced, &layout), out);
    }
    report::write_text(&traced, out)?;
    if let Some(file) = files.first().filter(|_| !layout.is_empty()) {
        let file = file.display().to_string();
        let flags = layout.iter().flat_map(|(flag, value)| [*flag, value.as_str()]);
        let words: Vec<&str> = ["plan", &file].into_iter().chain(flags).collect();
        let has_work = ["--steps", "--samples", "--epochs", "--tokens"].iter().any(|flag| words.contains(flag));
        let work = if has_work { "" } else { " --tokens N" };
        writeln!(out, "with the layout of its command: {}{work}", command_of(&words))?;
    }
    Ok(0)
}

/// Steps of a function, one per batch size, and the files for them.
fn traced(args: &TraceShapesArgs, batch_sizes: &[u64]) -> Result<(Vec<PathBuf>, Vec<Profile>), CliError> {
    if args.recompute.is_some_and(|recompute| recompute != Recompute::None) {
        let told = "--recompute needs --config: a traced function computes again what its own code says";
        return Err(CliError::Refused(told.to_owned()));
    }
    let target = target(args.target.as_deref().unwrap_or_default())?;
    let name = args.name.clone().unwrap_or_else(|| name(&target));
    let files = new_files(args, &name, batch_sizes)?;
    let order = ShapesOrder {
        name,
        batch_sizes: batch_sizes.to_vec(),
        arguments: args.arguments.iter().cloned().collect(),
        python: args.python.as_ref().map_or_else(python, |python| python.clone().into_os_string()),
        timeout: args.timeout,
        compile: args.compile,
        verbose: args.verbose,
        target,
    };
    let private = Private::find(Paths::cache())?;
    Ok((files, shapes::trace(&order, &private)?))
}

/// Flags of a plan, with their values.
type Flags = Vec<(&'static str, String)>;

/// Steps of a language model from its dimensions, one per batch size, the files for them, and the layout of the command
/// that trains it.
fn from_dimensions(
    args: &TraceShapesArgs,
    config: &str,
    batch_sizes: &[u64],
) -> Result<(Vec<PathBuf>, Vec<Profile>, Flags), CliError> {
    let path = Path::new(config);
    let short = file_stem(config);
    let short =
        [".sh", ".toml"].iter().find_map(|ending| short.strip_suffix(ending)).map_or(short.clone(), str::to_owned);
    let name = args.name.clone().unwrap_or(short);
    let of_file = |error: String| CliError::Refused(format!("{}: {error}", path.display()));
    let is_json = path.extension().is_some_and(|it| it.eq_ignore_ascii_case("json"));
    let (decoder, launch) = if is_json {
        let json = read_text(path, Limit::SETTINGS)?;
        (Decoder::from_config(&name, json.as_bytes()).map_err(|error| of_file(error.to_string()))?, None)
    } else if path.is_file() {
        let text = read_text(path, Limit::SETTINGS)?;
        let launch = Launch::read(&name, &text, bundled::decoders()).map_err(|error| of_file(error.to_string()))?;
        (launch.decoder.clone(), Some(launch))
    } else {
        let found =
            bundled::decoders().find(config).map_err(|error| CliError::Refused(format!("--config: {error}")))?;
        (Decoder { name: name.clone(), ..found }, None)
    };
    let files = new_files(args, &name, batch_sizes)?;
    let usual = launch.as_ref().map_or(LENGTH, |launch| launch.length);
    let most = decoder.longest.filter(|_| launch.is_none()).unwrap_or(usual);
    let length = args.sequence_length.unwrap_or(most.min(usual));
    let recompute = args.recompute.or(launch.as_ref().map(|launch| launch.recompute)).unwrap_or_default();
    let one = [launch.as_ref().map_or(1, |launch| launch.micro_batch)];
    let sizes = if batch_sizes.is_empty() { &one } else { batch_sizes };
    let loss = args.loss.or(launch.as_ref().map(|launch| launch.loss)).unwrap_or_default();
    let has_narrow_gradients = args.narrow_gradients || launch.as_ref().is_some_and(|it| it.has_narrow_gradients);
    let made = sizes.iter().map(|&batch| {
        let step = StepOf { batch, length, recompute, is_fused: true, is_compiled: true, loss, has_narrow_gradients };
        decoder.profile(step).map_err(|error| CliError::Refused(format!("{config}: {error}")))
    });
    let given = launch.map(|launch| [("--layout", "given".to_owned())].into_iter().chain(launch.plan).collect());
    Ok((files, made.collect::<Result<_, _>>()?, given.unwrap_or_default()))
}

/// Paths of the profiles; none exists, unless they may be overwritten.
fn new_files(args: &TraceShapesArgs, name: &str, batch_sizes: &[u64]) -> Result<Vec<PathBuf>, CliError> {
    let files = files(args, name, batch_sizes);
    for path in &files {
        check_new(path, args.force)?;
    }
    Ok(files)
}

/// `train.py:build` or `package.module:build`.
fn target(text: &str) -> Result<Target, CliError> {
    let example = "pass a file or module and a function in it, such as train.py:build";
    let (place, function) = text
        .rsplit_once(':')
        .filter(|(place, function)| !place.is_empty() && !function.is_empty())
        .ok_or_else(|| CliError::Refused(format!("{text:?} lacks a function; {example}")))?;
    let path = Path::new(place);
    let is_file = path.extension().is_some_and(|extension| extension == "py")
        || place.contains(std::path::MAIN_SEPARATOR)
        || path.is_file();
    if is_file && !path.is_file() {
        let problem = if path.is_dir() { "is a folder" } else { "no such file" };
        return Err(CliError::Refused(format!("{place}: {problem}; {example}")));
    }
    Ok(Target { place: place.to_owned(), function: function.to_owned(), is_file })
}

/// Name of the workload: the file, or the last part of the module, and the function.
fn name(target: &Target) -> String {
    let place = if target.is_file {
        Path::new(&target.place).file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned())
    } else {
        target.place.rsplit('.').next().unwrap_or_default().to_owned()
    };
    format!("{place}-{}", target.function)
}

/// The Python of the active environment, else the first one on PATH.
fn python() -> OsString {
    let of = |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let active = ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(|variable| of(variable));
    let mut candidates = active.map(|folder| folder.join("bin/python"));
    if let Some(found) = candidates.find(|path| path.is_file()) {
        return found.into_os_string();
    }
    let on_path = |program: &str| {
        of("PATH").is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()))
    };
    if !on_path("python3") && on_path("python") { "python".into() } else { "python3".into() }
}

/// Paths of the profiles, one per batch size.
fn files(args: &TraceShapesArgs, name: &str, batch_sizes: &[u64]) -> Vec<PathBuf> {
    let output = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{}.habitat.json.zst", file_stem(name))));
    if batch_sizes.is_empty() || (batch_sizes.len() == 1 && args.output.is_some()) {
        return vec![output];
    }
    let whole = output.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let ending = ENDINGS.into_iter().find(|ending| whole.ends_with(ending)).unwrap_or_else(|| {
        let at = whole.find('.').unwrap_or(whole.len());
        &whole[at..]
    });
    let stem = whole.strip_suffix(ending).unwrap_or(&whole);
    batch_sizes.iter().map(|batch| output.with_file_name(format!("{stem}-b{batch}{ending}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::args::{Cli, Command};
    use clap::Parser;

    fn args(line: &str) -> TraceShapesArgs {
        match Cli::try_parse_from(line.split(' ')).unwrap().command {
            Some(Command::TraceShapes(args)) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_target_is_a_place_and_a_function() {
        let module = target("pkg.models:build.small").unwrap();
        assert_eq!(
            (module.place.as_str(), module.function.as_str(), module.is_file),
            ("pkg.models", "build.small", false)
        );
        assert_eq!(name(&module), "models-build.small");
        for (text, problem) in [
            ("train.py", "lacks a function"),
            ("train.py:", "lacks a function"),
            (":f", "lacks a function"),
            ("nowhere/train.py:f", "nowhere/train.py: no such file"),
            ("src/:f", "is a folder"),
        ] {
            let told = target(text).expect_err(text).to_string();
            assert!(told.contains(problem) && told.contains("train.py:build"), "{told}");
        }
    }

    #[test]
    fn every_batch_size_has_its_file() {
        let files = |line: &str, batches: &[u64]| {
            let found = files(&args(&format!("habitat-tui trace-shapes {line}")), "train-build", batches);
            found.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(files("t.py:f", &[]), ["train-build.habitat.json.zst"]);
        assert_eq!(files("t.py:f", &[16]), ["train-build-b16.habitat.json.zst"]);
        assert_eq!(files("t.py:f -o a/x.habitat.json", &[16]), ["a/x.habitat.json"]);
        assert_eq!(files("t.py:f -o a/x.habitat.json", &[1, 2]), ["a/x-b1.habitat.json", "a/x-b2.habitat.json"]);
        assert_eq!(files("t.py:f -o y", &[1, 2]), ["y-b1", "y-b2"]);
    }
}
