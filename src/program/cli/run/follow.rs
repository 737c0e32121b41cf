//! Follows jobs for scripts (`--json-lines`): a line of JSON as each thing happens, until the job has ended. Whoever
//! reads may stop at any time; the job does not notice.

use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::join;
use crate::cli::error::CliError;
use crate::store::history::HistoryReader;
use crate::store::jobs::{JobFolder, KeptJob};
use crate::store::{self, Paths};
use crate::terminal;
use habitat_base::text::json_escaped;
use habitat_recorder::live::history::{Digest, History, Stretch};
use habitat_recorder::live::{Standing, State, Update};
use habitat_reports::history as report;
use habitat_reports::kept::{self as rows, JobRow};
use habitat_reports::lines::JobLine;
use habitat_reports::run::memory;
use habitat_reports::verdict::verdict;

/// Time between two looks at a history.
const PACE: Duration = Duration::from_secs(1);

/// A job in one row.
pub(in crate::cli) fn row(folder: &JobFolder, job: &KeptJob) -> Result<JobRow, CliError> {
    let (standing, state) = folder.look(job)?;
    Ok(JobRow {
        name: folder.name.clone(),
        standing: rows::code(&standing),
        state: rows::words(&standing, &state.seen),
        since: job.started,
        steps: state.seen.steps,
        steps_at_least: state.seen.steps_at_least,
        step_us: state.seen.times.map(|times| times.median.get()),
        pid: job.job.pid,
        command: job.job.command.clone(),
        log: job.log.display().to_string(),
        profile: job.profile.display().to_string(),
    })
}

/// Prints a line, at once.
pub(in crate::cli) fn line(value: &impl Serialize, out: &mut dyn Write) -> Result<(), CliError> {
    writeln!(out, "{}", json_escaped(&serde_json::to_string(value)?))?;
    Ok(out.flush()?)
}

/// Exit code if the job's is wanted and unknown: the process that recorded the job was killed, and the job may still run.
const UNKNOWN: u8 = 1;

/// Follows a job until its end. Its exit code becomes ours if `passes_code`.
pub(in crate::cli) fn job(folder: &JobFolder, passes_code: bool) -> Result<u8, CliError> {
    let out = &mut terminal::stdout();
    let (kept, catalog) = (folder.job()?, store::catalog(&Paths::find())?);
    line(&JobLine::job(row(folder, &kept)?), out)?;
    let (mut profile, mut history, mut shown) = (None, Digest::default(), String::new());
    for update in join::follow(folder.clone(), passes_code)?.updates {
        match update {
            Update::Recorded(recorded) => {
                profile = Some(*recorded);
                line(&JobLine::Recorded { profile: kept.profile.display().to_string() }, out)?;
            }
            Update::NotWritten(text) => line(&JobLine::Problem { text }, out)?,
            Update::Snapshot(seen) => {
                let memory = memory(&seen, profile.as_ref(), &catalog);
                let verdict = verdict(&seen, profile.as_ref(), memory, &history).ok();
                let state = JobLine::state(&standing(&seen.state), &seen, verdict);
                // The line may lack the change.
                let text = serde_json::to_string(&state)?;
                if text != shown {
                    line(&state, out)?;
                    shown = text;
                }
                if seen.is_over() {
                    break;
                }
            }
            Update::History(found) => history = *found,
            Update::Output(_) => {}
        }
    }
    let (standing, state) = join::seen(folder, &kept)?;
    let words = rows::words(&standing, &state.seen);
    let code = state.end.as_ref().map(|end| end.code);
    let report = state.end.map(|end| end.report).unwrap_or_default();
    line(&JobLine::End { code, state: words, report }, out)?;
    Ok(if passes_code { code.unwrap_or(UNKNOWN) } else { 0 })
}

/// The standing that a state shown to viewers has.
const fn standing(state: &State) -> Standing {
    match state {
        State::Left => Standing::Unwatched,
        _ => Standing::Runs,
    }
}

/// Prints the history of a job, and goes on with it until the job has ended: minutes, or steps one by one.
pub(in crate::cli) fn history(
    folder: &JobFolder,
    kept: &KeptJob,
    steps: bool,
    out: &mut dyn Write,
) -> Result<u8, CliError> {
    line(&JobLine::job(row(folder, kept)?), out)?;
    let (mut shown, mut reader) = (Shown::default(), HistoryReader::new(folder));
    loop {
        let (standing, _) = folder.look(kept)?;
        let is_over = !matches!(standing, Standing::Runs);
        let found = reader.read()?;
        for value in if steps { shown.steps(found) } else { shown.stretches(found, is_over) } {
            line(&value, out)?;
        }
        if is_over {
            return Ok(0);
        }
        std::thread::sleep(PACE);
    }
}

/// Parts of a history that were printed.
#[derive(Default)]
struct Shown {
    /// End and number of the last step.
    step: (u32, u64),
    /// End of the last stretch of each rank.
    until: HashMap<Option<u16>, u32>,
}

impl Shown {
    /// The steps since the last call.
    fn steps(&mut self, found: &History) -> Vec<Value> {
        let new = found.steps.iter().filter(|step| (step.at, step.step) > self.step);
        let values = new.map(|step| tagged("step", report::step_json(step))).collect();
        self.step = found.steps.last().map_or(self.step, |step| self.step.max((step.at, step.step)));
        values
    }

    /// The stretches since the last call; the unfinished minute at the end only.
    fn stretches(&mut self, found: &History, is_over: bool) -> Vec<Value> {
        let ranks = found.ranks();
        let ranks = if ranks.is_empty() { vec![None] } else { ranks.into_iter().map(Some).collect() };
        let last = |rank| found.minutes.iter().filter(|minute| minute.rank == rank).map(|minute| minute.to).max();
        let mut values = Vec::new();
        for rank in ranks {
            let until = self.until.entry(rank).or_default();
            let whole = |stretch: &Stretch| is_over || last(rank).is_some_and(|last| stretch.to <= last);
            for stretch in found.of_rank(rank).iter().filter(|stretch| stretch.to > *until && whole(stretch)) {
                values.push(tagged("stretch", report::stretch_json(stretch)));
            }
            *until = if is_over { u32::MAX } else { last(rank).unwrap_or(*until).max(*until) };
        }
        values
    }
}

/// An object with its type in front.
fn tagged(kind: &str, fields: Value) -> Value {
    let mut all = json!({ "type": kind });
    if let (Value::Object(all), Value::Object(fields)) = (&mut all, fields) {
        all.extend(fields);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use habitat_recorder::live::history::{Kind, Parts, Step};

    #[test]
    fn every_step_and_minute_comes_once() {
        let step = |number: u64| {
            let at = number as u32;
            Step { step: number, at, kind: Kind::Training, total: 1e5, parts: Parts::default() }
        };
        let minute = |at: u32| Stretch { to: at + 10, steps: 10, ..Stretch::empty(at, None) };
        let mut found = History { steps: (1..=14).map(step).collect(), minutes: vec![minute(0)], hours: Vec::new() };
        let mut shown = Shown::default();
        assert_eq!(shown.steps(&found).len(), 14);
        assert_eq!(shown.stretches(&found, false).len(), 1, "the second minute has not ended");
        found.steps.extend((15..=25).map(step));
        found.minutes.push(minute(10));
        let values = shown.steps(&found);
        assert_eq!((values.len(), &values[0]["type"], &values[0]["step"]), (11, &json!("step"), &json!(15)));
        assert_eq!(shown.stretches(&found, false)[0]["from_s"], json!(1.0));
        assert!(shown.steps(&found).is_empty() && shown.stretches(&found, false).is_empty());
        assert_eq!(shown.stretches(&found, true).len(), 1, "the rest, at the end");
        assert!(shown.stretches(&found, true).is_empty());
    }
}
