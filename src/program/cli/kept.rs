//! `jobs`, `join` and `history`: jobs that `run` started, running and finished.

use std::io::{IsTerminal, Write};

use super::error::CliError;
use super::output::{print_json, print_table};
use super::run::{follow, join, live};
use super::screens::Outcome;
use crate::settings::args::{HistoryArgs, JobsArgs, JoinArgs, ScreensArgs};
use crate::store::history::read_history;
use crate::store::jobs::{JobFolder, KeptJob};
use crate::store::{self, Paths};
use habitat_recorder::live::Standing;
use habitat_reports::history as report;
use habitat_reports::kept::{self, JobRow};
use habitat_reports::lines::JobLine;
use habitat_reports::run::memory as report_memory;
use habitat_reports::verdict::verdict;

/// Lists all jobs, or removes some.
pub(super) fn jobs(args: &JobsArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    if !args.remove.is_empty() {
        let found = args.remove.iter().map(|name| find(Some(name))).collect::<Result<Vec<_>, _>>()?;
        for (folder, job) in &found {
            let why = match folder.look(job) {
                Ok((Standing::Runs | Standing::Unwatched, _)) => "still running; stop it first".to_owned(),
                Ok((Standing::Elsewhere(host), _)) if !args.table.file_args.force => {
                    let host = if host.is_empty() { "another machine" } else { &host };
                    format!("it started on {host} and may still run there; --force removes it all the same")
                }
                _ => continue,
            };
            return Err(CliError::Refused(format!("{}: {why}", folder.name)));
        }
        for (folder, _) in found {
            folder.remove()?;
        }
        return Ok(0);
    }
    let rows: Vec<JobRow> =
        JobFolder::all(&Paths::find())?.iter().filter_map(|(folder, job)| follow::row(folder, job).ok()).collect();
    if args.table.form.json {
        return print_json(&serde_json::json!({"format": "habitat-jobs", "version": 1, "jobs": rows}), out);
    }
    if args.json_lines {
        rows.into_iter().try_for_each(|row| follow::line(&JobLine::job(row), out))?;
        return Ok(0);
    }
    if rows.is_empty() && args.table.form.is_text() {
        writeln!(out, "No jobs yet. `habitat-tui run -- python train.py` starts one.")?;
        return Ok(0);
    }
    print_table(&kept::table(&rows, &jiff::tz::TimeZone::system()), args.table.form, out)?;
    Ok(0)
}

/// The job of a name; without one the latest that runs, else the latest.
pub(super) fn find(name: Option<&str>) -> Result<(JobFolder, KeptJob), CliError> {
    let mut all = JobFolder::all(&Paths::find())?;
    let found = match name {
        Some(name) => all.iter().position(|(folder, _)| folder.name == name),
        None => all
            .iter()
            .position(|(folder, job)| matches!(folder.look(job), Ok((Standing::Runs | Standing::Unwatched, _))))
            .or((!all.is_empty()).then_some(0)),
    };
    match found {
        Some(at) => Ok(all.swap_remove(at)),
        None if all.is_empty() => {
            Err(CliError::Refused("no jobs yet; `habitat-tui run -- python train.py` starts one".to_owned()))
        }
        None => {
            let known: Vec<&str> = all.iter().take(10).map(|(folder, _)| &*folder.name).collect();
            let name = name.unwrap_or_default();
            Err(CliError::Refused(format!(
                "{name:?}: no such job (`run --no-tui` keeps none, `run --detach` does); `habitat-tui jobs` lists all: {}",
                known.join(", ")
            )))
        }
    }
}

/// Opens the screens on a job.
pub(super) fn join(args: &JoinArgs, screens: ScreensArgs) -> Result<Outcome, CliError> {
    let (folder, job) = find(args.name.as_deref())?;
    if args.json_lines {
        return follow::job(&folder, false).map(Outcome::Exit);
    }
    if !(std::io::stdin().is_terminal() && std::io::stdout().is_terminal()) {
        let problem = format!(
            "join needs a terminal, or --json-lines; `habitat-tui history {}` prints the job's times",
            folder.name
        );
        return Err(CliError::Refused(problem));
    }
    let catalog = store::catalog(&Paths::find())?;
    let mut screens = live::on_job(screens, catalog, &job.job.name, job.job.output, (job.job.aim, job.goal))?;
    screens.live = Some(join::follow(folder, false)?);
    Ok(Outcome::Screens(Box::new(screens)))
}

/// Slices of the line over time, so that it fits 80 columns with its legend.
const SLICES: usize = 32;

/// Prints the history of a job.
pub(super) fn history(args: &HistoryArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let (folder, job) = find(args.name.as_deref())?;
    if args.json_lines {
        return follow::history(&folder, &job, args.steps, out);
    }
    let (standing, state) = folder.look(&job)?;
    let found = read_history(&folder)?;
    // Until it is recorded, a file of that name is another job's.
    let profile = (state.profiles > 0).then(|| store::read_profile(&job.profile).ok()).flatten();
    let profile = profile.map(|(profile, _)| profile);
    let memory = report_memory(&state.seen, profile.as_ref(), &store::catalog(&Paths::find())?);
    let digest = found.digest(SLICES);
    let verdict = verdict(&state.seen, profile.as_ref(), memory, &digest);
    if args.table.form.json {
        let mut all = serde_json::json!({
            "format": "habitat-history", "version": 1, "name": folder.name, "standing": kept::code(&standing),
            "started": job.started,
        });
        if let (Some(all), Some(rest)) =
            (all.as_object_mut(), report::json(&digest, &found, verdict.as_ref().ok()).as_object())
        {
            all.extend(rest.clone());
        }
        return print_json(&all, out);
    }
    if args.steps || !args.table.form.is_text() {
        let table = if args.steps { report::steps_table(&found) } else { report::table(&found) };
        print_table(&table, args.table.form, out)?;
        return Ok(0);
    }
    let since = job.started.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M").to_string();
    let words = kept::words(&standing, &state.seen);
    let title = format!("{}: {} · since {since} · {words}", folder.name, job.job.command);
    report::write_text(&digest, &verdict, (&title, state.seen.steps_at_least), out)?;
    Ok(0)
}
