//! `run --batches`: records the same job once at every batch size.
//!
//! Each job is stopped as soon as it is recorded, so the set takes about as long as starting all the jobs. A size that
//! fails (out of memory, for example) is reported, and the others are still recorded. The batch size of a profile is
//! the one in its command; a note is added if the job appeared to use another one (with micro-batches, for example).

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use super::outcome::lasting;
use super::report::Part;
use crate::cli::error::CliError;
use crate::cli::hints;
use crate::cli::input::load;
use crate::cli::output::check_new;
use crate::settings::args::{InputArgs, RunArgs, WorkloadArgs};
use crate::store::{self, Paths};
use crate::terminal;
use habitat_base::text;
use habitat_base::units::Micros;
use habitat_prediction::memory::MemoryLine;
use habitat_reports::format;
use habitat_reports::table::{Cell, Column, Table};
use habitat_reports::words::Words;
use habitat_step::profile::Profile;

/// Placeholder for the batch size in the command.
const PLACE: &[u8] = b"{batch}";

/// Suggested GPUs if the job's GPU is not in the catalog: a fast one and a cheap one.
const EXAMPLES: &str = "h100-sxm5-80gb,l4";

/// Records the job at every batch size; `record` does one. Returns the exit code of the first job that was not
/// recorded, or 0.
pub(super) fn run(
    args: &RunArgs,
    output: &Path,
    record: &mut dyn FnMut(&RunArgs, Part) -> Result<u8, CliError>,
) -> Result<u8, CliError> {
    let batches = sizes(args)?;
    let catalog = store::catalog(&Paths::find())?;
    let orders: Vec<RunArgs> = batches.iter().map(|&batch| at(args, output, batch)).collect();
    for order in &orders {
        for path in [&order.output, &order.json, &order.log].into_iter().flatten() {
            check_new(path, args.force)?;
        }
    }
    let mut codes = Vec::new();
    let (mut recorded, mut profiles) = (Vec::new(), Vec::new());
    for ((number, order), batch) in (1..).zip(&orders).zip(&batches) {
        let Some(path) = &order.output else { continue };
        let place = format!("{number} of {}", orders.len());
        let part = Part { name: format!("batch size {batch} ({place})"), began: Instant::now() };
        if !args.quiet {
            terminal::say(format_args!("habitat-tui: {}: {}", part.name, shown(&order.command)));
        }
        let before = written(path);
        let began = part.began;
        let code = record(order, part)?;
        if written(path) == before {
            let took = lasting(began.elapsed());
            terminal::say(format_args!(
                "habitat-tui: batch size {batch} was not recorded ({place}, exit code {code}, {took})"
            ));
            codes.push(code.max(1));
        } else {
            let input = InputArgs { file: Some(path.clone()), ..InputArgs::default() };
            profiles.push((*batch, load(&input, &catalog)?.profile));
            recorded.push(path.clone());
        }
    }
    if !args.quiet {
        report(&recorded, &profiles)?;
    }
    Ok(codes.first().copied().unwrap_or(0))
}

/// The batch sizes without duplicates, in the order given.
fn sizes(args: &RunArgs) -> Result<Vec<u64>, CliError> {
    let mut sizes: Vec<u64> = Vec::new();
    for &batch in &args.batches {
        if !sizes.contains(&batch) {
            sizes.push(batch);
        }
    }
    if args.workload.batch_size.is_some() {
        return Err(CliError::Refused(
            "--batches and --batch-size exclude each other: with --batches, each job has the batch size of its command"
                .to_owned(),
        ));
    }
    if !args.command.iter().any(|word| place(word.as_bytes()).is_some()) {
        return Err(CliError::Refused(format!(
            "--batches: the command has no place for the batch size; write {{batch}} there, as in \
             `{} --batch-size {{batch}}`",
            shown(&args.command)
        )));
    }
    Ok(sizes)
}

fn place(word: &[u8]) -> Option<usize> {
    word.windows(PLACE.len()).position(|part| part == PLACE)
}

/// The word with the placeholder replaced by the batch size.
fn filled(word: &OsStr, batch: u64) -> OsString {
    let mut rest = word.as_bytes();
    let mut filled = Vec::new();
    while let Some(at) = place(rest) {
        filled.extend_from_slice(&rest[..at]);
        filled.extend_from_slice(batch.to_string().as_bytes());
        rest = &rest[at + PLACE.len()..];
    }
    filled.extend_from_slice(rest);
    OsString::from_vec(filled)
}

/// Arguments of the run for one batch size.
fn at(args: &RunArgs, output: &Path, batch: u64) -> RunArgs {
    RunArgs {
        command: args.command.iter().map(|word| filled(word, batch)).collect(),
        output: Some(named(output, batch)),
        json: args.json.as_deref().map(|path| named(path, batch)),
        log: args.log.as_deref().map(|path| named(path, batch)),
        workload: WorkloadArgs { batch_size: Some(batch), ..args.workload.clone() },
        batches: Vec::new(),
        stop_after_recording: true,
        ..args.clone()
    }
}

/// `x.habitat.json.zst` → `x-b32.habitat.json.zst`.
fn named(path: &Path, batch: u64) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let end = name.find(".habitat.").or_else(|| name.rfind('.').filter(|at| *at > 0)).unwrap_or(name.len());
    path.with_file_name(format!("{}-b{batch}{}", &name[..end], &name[end..]))
}

fn shown(command: &[OsString]) -> String {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    habitat_base::text::without_secrets(&words).join(" ")
}

/// Time of a file's last change.
fn written(path: &Path) -> Option<SystemTime> {
    path.metadata().ok()?.modified().ok()
}

/// Prints the set as a table, the fit of its memory, and the next command.
fn report(recorded: &[PathBuf], profiles: &[(u64, Profile)]) -> Result<(), CliError> {
    let mut text = Vec::new();
    if !profiles.is_empty() {
        table(profiles).write_text(&mut text)?;
    }
    let of_batches: Vec<_> = profiles.iter().map(|(batch, profile)| (*batch, profile)).collect();
    if let Some(line) = MemoryLine::of_profiles(&of_batches) {
        writeln!(text, "{}", line.note(false).words())?;
    }
    let files: Vec<String> = recorded.iter().map(|path| text::shell_word(&path.display().to_string())).collect();
    if let Some((_, first)) = profiles.first().filter(|_| !files.is_empty()) {
        let is_known = |profile: &Profile| profile.origin.as_ref().is_some_and(|origin| origin.gpu.is_some());
        // If the job's GPU is not in the catalog, the next command needs target GPUs.
        let target = if is_known(first) { String::new() } else { format!(" --to {EXAMPLES}") };
        let command = format!("habitat-tui batches {}{target}", files.join(" "));
        writeln!(text, "{}", hints::lines_for(&command, first))?;
    }
    // Ignore a closed standard error.
    let _ = write!(terminal::stderr(), "\n{}", String::from_utf8_lossy(&text));
    Ok(())
}

/// Reads one measured quantity from a profile.
type Figure = fn(&Profile) -> Option<Cell>;

/// One row per batch size. Quantities that no profile has are left out.
fn table(profiles: &[(u64, Profile)]) -> Table {
    fn time(time: Micros) -> Cell {
        Cell::new(format::time(time), time.get())
    }
    let measured: [(Column, Figure); 3] = [
        (Column::number("step", "step_us"), |profile| profile.step.as_ref()?.duration.map(time)),
        (Column::number("device busy", "device_busy_us"), |profile| profile.step.as_ref()?.device_busy.map(time)),
        (Column::number("peak memory", "peak_memory_bytes"), |profile| {
            let peak = profile.step.as_ref()?.peak_memory_bytes?;
            Some(Cell::new(format::memory(peak), peak.get()))
        }),
    ];
    let known = |(_, figure): &(Column, Figure)| profiles.iter().any(|(_, profile)| figure(profile).is_some());
    let (columns, figures): (Vec<Column>, Vec<Figure>) = measured.into_iter().filter(known).unzip();
    let first = Column::number("batch", "batch_size");
    let last = Column::number("operations", "operations");
    let columns: Vec<Column> = std::iter::once(first).chain(columns).chain([last]).collect();
    let mut table = Table::new(&columns);
    for (batch, profile) in profiles {
        let mut cells = vec![Cell::text(batch)];
        cells.extend(figures.iter().map(|figure| figure(profile).unwrap_or_else(Cell::unknown)));
        cells.push(Cell::text(profile.operations.len()));
        table.push(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_batch_size_goes_where_it_belongs() {
        let fill = |word: &str| filled(OsStr::new(word), 32).into_string().unwrap();
        assert_eq!(fill("--batch-size={batch}"), "--batch-size=32");
        assert_eq!(fill("{batch},{batch}"), "32,32");
        assert_eq!(fill("plain {bat}"), "plain {bat}");
    }

    #[test]
    fn files_are_named_by_their_batch_size() {
        let name = |path: &str| named(Path::new(path), 8).to_string_lossy().into_owned();
        assert_eq!(name("a/x.habitat.json.zst"), "a/x-b8.habitat.json.zst");
        assert_eq!(name("seen.json"), "seen-b8.json");
        assert_eq!(name("out"), "out-b8");
        assert_eq!(name(".log"), ".log-b8");
    }
}
