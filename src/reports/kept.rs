//! Jobs that `run` started, running and finished: one row each.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::Serialize;

use super::format;
use super::table::{Cell, Column, Table};
use habitat_base::text::clean;
use habitat_base::units::Micros;
use habitat_recorder::live::{Snapshot, Standing, State};

/// A job that was started.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct JobRow {
    /// Name.
    pub name: String,
    /// `running`, `unwatched`, `ended`, `lost`, `restarted` or `elsewhere`.
    pub standing: &'static str,
    /// The same in words.
    pub state: String,
    /// Start.
    #[schemars(with = "String")]
    pub since: Timestamp,
    /// Steps made.
    pub steps: u64,
    /// Whether it may have made more: it was killed, or the process that counted them.
    pub steps_at_least: bool,
    /// Median time of the last steps, in microseconds.
    pub step_us: Option<f64>,
    /// Process id.
    pub pid: u32,
    /// Command.
    pub command: String,
    /// File with its output.
    pub log: String,
    /// Its profile.
    pub profile: String,
}

/// Code of a standing in JSON and CSV.
pub const fn code(standing: &Standing) -> &'static str {
    match standing {
        Standing::Runs => "running",
        Standing::Unwatched => "unwatched",
        Standing::Ended => "ended",
        Standing::Lost => "lost",
        Standing::Rebooted => "restarted",
        Standing::Elsewhere(_) => "elsewhere",
    }
}

/// State to show of a job whose end nobody wrote; `None` if its last state holds.
pub fn state(standing: &Standing) -> Option<State> {
    let words = match standing {
        Standing::Runs | Standing::Ended | Standing::Elsewhere(_) => return None,
        Standing::Unwatched => return Some(State::Left),
        Standing::Lost => "ended unseen; the process that recorded it was killed",
        Standing::Rebooted => "ended when the machine was restarted",
    };
    Some(State::Ended { words: words.to_owned(), well: false })
}

/// The state of a job in a few words.
pub fn words(standing: &Standing, seen: &Snapshot) -> String {
    match (standing, state(standing).as_ref().unwrap_or(&seen.state)) {
        (Standing::Unwatched, _) => "running, but the process that recorded it was killed".to_owned(),
        (Standing::Elsewhere(host), _) => format!("on {}", clean(host, 40)),
        (_, State::Ended { words, .. }) => words.clone(),
        (_, State::Stopped) => "stopped by a signal".to_owned(),
        (_, State::Stopping(_)) => "asked to end".to_owned(),
        (Standing::Ended, _) => "ended".to_owned(),
        _ => "running".to_owned(),
    }
}

/// A number of steps, which may be a lower bound.
pub fn at_least(steps: u64, is_bound: bool) -> String {
    format!("{}{}", if is_bound { "at least " } else { "" }, format::grouped(steps as f64))
}

/// A row for each job.
pub fn table(jobs: &[JobRow], zone: &TimeZone) -> Table {
    let mut table = Table::new(&[
        Column::text("name", "name"),
        Column::text("", "standing"),
        Column::text("state", "state").cut_to(12),
        Column::text("since", "since"),
        Column::number("steps", "steps"),
        Column::text("", "steps_at_least"),
        Column::number("step", "step_us"),
        Column::text("command", "command").or_below(),
        Column::text("", "log"),
        Column::text("", "profile"),
    ]);
    for job in jobs {
        let since = job.since.to_zoned(zone.clone());
        let step = job.step_us.and_then(|time| Micros::new(time).ok());
        table.push(vec![
            Cell::text(&job.name),
            Cell::text(job.standing),
            // The rest of it is in the report.
            Cell::new(job.state.split(" (").next().unwrap_or_default(), &job.state),
            Cell::new(since.strftime("%Y-%m-%d %H:%M"), job.since),
            Cell::new(at_least(job.steps, job.steps_at_least), job.steps),
            Cell::text(job.steps_at_least),
            Cell::maybe(step, |step| Cell::new(format::time(step), step.get())),
            Cell::text(&job.command),
            Cell::text(&job.log),
            Cell::text(&job.profile),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_job_is_told_from_what_is_known_of_its_end() {
        let ended = State::Ended { words: "ended with exit code 3".into(), well: false };
        let seen = |state| Snapshot { state, ..Snapshot::default() };
        for (standing, last, told) in [
            (Standing::Runs, State::Steps, "running"),
            (Standing::Runs, State::Stopped, "stopped by a signal"),
            (Standing::Ended, ended, "ended with exit code 3"),
            (Standing::Lost, State::Steps, "ended unseen; the process that recorded it was killed"),
            (Standing::Rebooted, State::Steps, "ended when the machine was restarted"),
            (Standing::Unwatched, State::Steps, "running, but the process that recorded it was killed"),
            (Standing::Elsewhere("node7".into()), State::Steps, "on node7"),
        ] {
            assert_eq!(words(&standing, &seen(last)), told);
        }
        assert_eq!(state(&Standing::Runs), None);
    }
}
