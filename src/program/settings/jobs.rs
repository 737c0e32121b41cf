//! The jobs file of `plan-jobs`: several jobs with their limits, and shared limits.
//!
//! ```toml
//! deadline = "3d"            # of every job
//! budget = 900               # of all jobs together, like max_usd_per_hour and quotas
//! confidence = "high"
//! wait = true                # jobs may wait for others
//!
//! [[quota]]                  # GPUs at once; region, gpu and tier are optional
//! provider = "aws"
//! gpus = 16
//! until_hours = 12           # only if jobs may wait, like from_hours
//!
//! [[job]]
//! name = "translation"
//! profile = "gnmt.habitat.json"
//! epochs = 6
//! dataset = "4.5M"
//! deadline = "24h"
//!
//! [[job]]
//! name = "images"
//! profile = "resnet50.habitat.json"
//! samples = "100M"
//! gpus = ["a100", "h100"]
//! ```
//!
//! A job may have copies (`count`), arrive later (`arrives`) and start after others (`after`). With `survive` and
//! `check`, only some copies go on after a share of the work. `late_usd_per_hour` lets jobs miss a deadline at a price;
//! `hour_value` is the price of an hour of waiting.
//!
//! `[launch]` at the end of the file and `launch.command` of a job say how jobs start (`plan-jobs --export`).
//!
//! With `[[machine]]` (`gpu`, `gpus` per machine, `count`, `usd_per_hour`), jobs run on these machines and nothing is
//! rented, unless the file has `rent = true`. With `share = true`, jobs share a machine, each on GPUs of its own.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::{Spanned, Table};

use super::goal_args::{GoalArgs, Typed};
use habitat_base::text;
use habitat_base::units::{Bytes, Hours, UsdPerHour};
use habitat_planning::deadline::Deadline;
use habitat_reports::launch::Launch;

mod machines;
mod order;
mod plain;
mod rungs;
mod schema;

pub use machines::MachineTable;
pub use schema::TopTable;

/// Maximum number of jobs in a file, with their copies.
const MOST_JOBS: usize = 1000;

/// Contents of a jobs file.
#[derive(Debug, Clone, PartialEq)]
pub struct JobsFile {
    /// Keys at the top.
    pub top: TopTable,
    /// The jobs.
    pub jobs: Vec<JobTable>,
    /// Available machines; if empty, machines are rented.
    pub machines: Vec<MachineTable>,
}

/// One job.
#[derive(Debug, Clone, PartialEq, JsonSchema)]
#[schemars(deny_unknown_fields, transform = schema::complete)]
pub struct JobTable {
    /// Its line in the file.
    #[schemars(skip)]
    pub line: usize,
    /// Its name.
    pub name: String,
    /// Its recorded step.
    #[schemars(flatten)]
    pub step: StepTable,
    /// Start and copies.
    #[schemars(flatten)]
    pub time: TimeTable,
    /// Places of the jobs in the file that have to end before it starts.
    #[schemars(skip)]
    pub after: Vec<usize>,
    /// Its work and limits.
    #[schemars(flatten)]
    pub wish: GoalArgs,
    /// Name without the number of a copy, and that number.
    #[schemars(skip)]
    pub copy: (String, Option<u64>),
}

/// Start of a job, and its copies.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TimeTable {
    /// Hours from the start of the plan.
    pub not_before_hours: Hours,
    /// The same as a duration or a date.
    #[serde(with = "Typed")]
    pub arrives: Option<Deadline>,
    /// Names of the jobs that have to end before it starts; all copies of each.
    pub after: Vec<String>,
    /// Weight of its end.
    pub priority: Option<f64>,
    /// How it starts, instead of `[launch]`.
    pub launch: Launch,
    /// Number of equal jobs.
    pub count: Option<u64>,
    /// Share of the copies that goes on after each check (successive halving).
    pub survive: Option<f64>,
    /// Shares of the work after which the copies are compared.
    #[serde(deserialize_with = "rungs::Checks::deserialize")]
    #[schemars(with = "rungs::Checks")]
    pub check: Vec<f64>,
    /// Price of each hour after the deadline of the job, which it may then miss.
    #[serde(with = "Typed")]
    pub late_usd_per_hour: Option<UsdPerHour>,
    /// Price of each hour from its arrival until its end.
    #[serde(with = "Typed")]
    pub hour_value: Option<UsdPerHour>,
}

/// The recorded step of a job.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StepTable {
    /// The recording, relative to the folder of the jobs file.
    pub profile: PathBuf,
    /// The recording GPU, instead of the one in the file.
    pub origin: Option<String>,
    /// Whether to ignore measurements.
    pub ignore_origin: bool,
    /// Samples per step and GPU, if the file lacks it.
    pub batch_size: Option<u64>,
    /// Tokens per sample, if the file lacks it.
    pub sequence_length: Option<u64>,
    /// Parameters of the model, if the file lacks it.
    pub parameters: Option<u64>,
    /// Peak device memory of the step, if the file lacks it.
    pub peak_memory_bytes: Option<Bytes>,
}

/// Error in a jobs file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct JobsFileError {
    /// The line.
    pub line: usize,
    /// The problem and the remedy.
    pub problem: String,
}

impl JobsFile {
    /// Parses the file's text.
    ///
    /// # Errors
    /// [`JobsFileError`] with the line, the key and the problem.
    pub fn parse(text: &str) -> Result<Self, JobsFileError> {
        // Without the text of the line, which in other kinds of files may be the whole file.
        let form = |error: &toml::de::Error, key: Option<&str>| {
            let line = text[..error.span().map_or(0, |span| span.start)].matches('\n').count() + 1;
            let other = if text.contains("[[job]]") { "" } else { "; a jobs file is TOML with a [[job]] for each job" };
            JobsFileError { line, problem: format!("{}{other}", of_key(key, error.message())) }
        };
        let file = toml::Deserializer::parse(text).map_err(|error| form(&error, None))?;
        let mut top: TopTable = serde_path_to_error::deserialize(file)
            .map_err(|error| form(error.inner(), error.path().to_string().rsplit('.').next()))?;
        if top.job.is_empty() {
            return at_key(text, "[[job]]", "no [[job]]; add a table with name, profile and work for each job");
        }
        if top.job.len() > MOST_JOBS {
            let line = line_of(text, &top.job[MOST_JOBS].span(), None);
            return Err(JobsFileError { line, problem: too_many("", top.job.len() as u64) });
        }
        let jobs = all(std::mem::take(&mut top.job), text)?;
        let machines = machines::all(std::mem::take(&mut top.machine), text)?;
        let read = Self { top, jobs, machines };
        read.check_quotas(text)?;
        read.check_waiting(text)?;
        read.check_machines(text)?;
        if read.top.late_usd_per_hour.is_some() && read.top.deadline.is_none() {
            let problem = "late_usd_per_hour: needs deadline at the top, which jobs may then miss at this price; \
                           add it, or set both in a [[job]]";
            return at_key(text, "late_usd_per_hour", problem);
        }
        if let Err(why) = read.top.launch.check() {
            return at_key(text, "[launch]", format!("launch: {why}"));
        }
        Ok(read)
    }

    /// A quota that ends before it begins never applies.
    fn check_quotas(&self, text: &str) -> Result<(), JobsFileError> {
        let ends = self.top.quota.iter().filter_map(|quota| Some((quota.from.map(Hours::get), quota.until?.get())));
        let lines = (1..).zip(text.lines()).filter(|(_, line)| line.trim_start().starts_with("until_hours"));
        for ((from, until), (line, _)) in ends.zip(lines) {
            if let Some(from) = from.filter(|from| until <= *from) {
                let problem = format!(
                    "until_hours: {until} is not after the quota's from_hours, {from}, so the quota never applies; \
                    set a later one, or omit the quota"
                );
                return Err(JobsFileError { line, problem });
            }
        }
        Ok(())
    }

    /// Times and orders need jobs that may wait.
    fn check_waiting(&self, text: &str) -> Result<(), JobsFileError> {
        if self.top.wait && !self.machines.is_empty() {
            let problem = "wait: has no effect with [[machine]], as jobs there always run one after another; omit it";
            return at_key(text, "wait", problem);
        }
        if self.top.wait || !self.machines.is_empty() {
            return Ok(());
        }
        let needs = "only works if jobs may wait: add wait = true at the top of the file";
        let window = self.top.quota.iter().find(|quota| !quota.is_lasting());
        if let Some(key) = window.map(|quota| if quota.from.is_some() { "from_hours" } else { "until_hours" }) {
            return at_key(text, key, format!("{key}: {needs}"));
        }
        let key = |time: &TimeTable| {
            let given = [
                ("not_before_hours", time.not_before_hours != Hours::ZERO),
                ("arrives", time.arrives.is_some()),
                ("after", !time.after.is_empty()),
                ("priority", time.priority.is_some()),
                ("survive", time.survive.is_some()),
            ];
            given.into_iter().find(|(_, given)| *given).map(|(key, _)| key)
        };
        self.check_jobs(|job| key(&job.time), needs)
    }

    /// Limits of offers need jobs that rent.
    fn check_machines(&self, text: &str) -> Result<(), JobsFileError> {
        if self.top.rent && self.machines.is_empty() {
            return at_key(text, "rent", "rent: without [[machine]] all jobs rent; omit it");
        }
        if self.machines.is_empty() || self.top.rent {
            return Ok(());
        }
        let why = "does not apply to [[machine]], as nothing is rented; omit one of the two, or rent with rent = true \
                   at the top";
        let TopTable { budget, max_usd_per_hour: max_price, ref quota, .. } = self.top;
        if let Some(key) =
            (GoalArgs { budget, max_price, quota: quota.clone(), ..GoalArgs::default() }).of_offers().next()
        {
            return at_key(text, key, format!("{key}: {why}"));
        }
        self.check_jobs(|job| job.wish.of_offers().next(), why)
    }

    /// Refuses the first job with a key that does not apply.
    fn check_jobs(&self, key_of: impl Fn(&JobTable) -> Option<&str>, why: &str) -> Result<(), JobsFileError> {
        let found = self.jobs.iter().find_map(|job| Some((job, key_of(job)?)));
        found.map_or(Ok(()), |(job, key)| {
            Err(JobsFileError { line: job.line, problem: format!("job {:?}: {key}: {why}", job.copy.0) })
        })
    }
}

/// An error at the first line that begins with this key or header.
fn at_key<T>(text: &str, key: &str, problem: impl Into<String>) -> Result<T, JobsFileError> {
    let place = text.lines().position(|line| line.trim_start().starts_with(key));
    Err(JobsFileError { line: place.map_or(1, |place| place + 1), problem: problem.into() })
}

fn too_many(what: &str, total: u64) -> String {
    format!("{what}{total} jobs, but at most {MOST_JOBS} can be planned together: split the file and the shared limits")
}

/// All jobs with their copies and the jobs that come before them.
fn all(tables: Vec<Spanned<Table>>, text: &str) -> Result<Vec<JobTable>, JobsFileError> {
    let mut tables_of: Vec<order::Table> = Vec::new();
    let mut jobs: Vec<JobTable> = Vec::new();
    let mut names = HashMap::new();
    for table in tables {
        let span = table.span();
        let job = job(table, text)?;
        let rungs = rungs::of(&job).map_err(|(key, problem)| {
            let problem = format!("job {:?}: {key}: {problem}", job.name);
            JobsFileError { line: line_of(text, &span, Some(key)), problem }
        })?;
        let copies = rungs.iter().fold(0_u64, |sum, rung| sum.saturating_add(rung.copies));
        let total = copies.saturating_add(jobs.len() as u64);
        if total > MOST_JOBS as u64 {
            let what = job.time.count.map_or_else(String::new, |count| format!("count: {count} makes "));
            let problem = too_many(&what, total);
            return Err(JobsFileError { line: line_of(text, &span, Some("count")), problem });
        }
        for rung in &rungs {
            for number in 1..=rung.copies {
                let base = &rung.name;
                let name = if job.time.count.is_some() { format!("{base} {number}") } else { base.clone() };
                if let Some(other) = names.insert(name.clone(), job.line) {
                    let problem = format!("job {name:?}: line {other} has a job with this name; names must be unique");
                    return Err(JobsFileError { line: job.line, problem });
                }
                let copy = (base.clone(), job.time.count.map(|_| number));
                let time = TimeTable { launch: rung.launch.clone(), ..job.time.clone() };
                jobs.push(JobTable { name, wish: rung.wish.clone(), time, copy, ..job.clone() });
            }
        }
        tables_of.push(order::Table { copies: rungs.iter().map(|rung| rung.copies as usize).collect(), job, span });
    }
    order::set(&mut jobs, &tables_of, text)?;
    Ok(jobs)
}

fn job(table: Spanned<Table>, text: &str) -> Result<JobTable, JobsFileError> {
    let span = table.span();
    let line = line_of(text, &span, None);
    let mut wish = table.into_inner();
    let name = match wish.remove("name") {
        Some(toml::Value::String(name)) if !name.trim().is_empty() => text::clean(&name, 60),
        other => {
            let is = other.map_or("missing".to_owned(), |other| format!("{other}, not a string"));
            let problem = format!("name: {is}; set one, such as name = \"night run\"");
            return Err(JobsFileError { line, problem });
        }
    };
    let refused = |line, problem: &str| Err(JobsFileError { line, problem: format!("job {name:?}: {problem}") });
    for (key, why) in [
        ("confidence", "belongs at the top of the file, for all jobs"),
        ("objective", "cannot be set for a job: plans minimise the total cost, or on [[machine]] the total time"),
        ("max_parts", "is always 1 for several jobs: each runs on one offer or machine"),
    ] {
        if wish.contains_key(key) {
            return refused(line_of(text, &span, Some(key)), &format!("{key} {why}; omit it"));
        }
    }
    if !wish.contains_key("profile") {
        return refused(line, "no profile; add the file of its recorded step, such as profile = \"step.habitat.json\"");
    }
    let step: StepTable = parsed(own_keys::<StepTable>(&mut wish), text, &span, &name)?;
    if step.batch_size == Some(0) {
        let line = line_of(text, &span, Some("batch_size"));
        return refused(line, "batch_size: 0; a step processes at least one sample");
    }
    let time: TimeTable = parsed(own_keys::<TimeTable>(&mut wish), text, &span, &name)?;
    if let Err((key, problem)) = check_time(&time, wish.contains_key("deadline")) {
        return refused(line_of(text, &span, Some(key)), &format!("{key}{problem}"));
    }
    if let Err(why) = time.launch.check() {
        return refused(line_of(text, &span, Some("launch")), &format!("launch: {why}"));
    }
    let wish: GoalArgs = parsed(wish, text, &span, &name)?;
    if let Err((key, problem)) = wish.check() {
        return refused(line_of(text, &span, Some(key)), &format!("{key}: {problem}"));
    }
    if wish.work().is_none() {
        return refused(line, "no amount of work; add samples, steps, epochs with dataset, or tokens");
    }
    Ok(JobTable { line, copy: (name.clone(), None), name, step, time, after: Vec::new(), wish })
}

/// Refuses invalid times of a job, with the key and the rest of the sentence.
fn check_time(time: &TimeTable, has_deadline: bool) -> Result<(), (&'static str, String)> {
    if time.count == Some(0) {
        return Err(("count", ": 0; omit the job, or set the number of copies".to_owned()));
    }
    if let Some(priority) = time.priority.filter(|priority| !(1e-6..=1e6).contains(priority)) {
        // A number of hundreds of digits has an exponent.
        let priority = if priority.abs() < 1e9 { priority.to_string() } else { format!("{priority:e}") };
        let problem =
            format!(": {priority}; use a number from 1e-6 to 1e6, such as 10: jobs of higher priority end earlier");
        return Err(("priority", problem));
    }
    if time.late_usd_per_hour.is_some() && !has_deadline {
        let problem = ": needs deadline in this job, which it may then miss at this price; \
                       at the top of the file it is for the deadline there";
        return Err(("late_usd_per_hour", problem.to_owned()));
    }
    if time.arrives.is_some() && time.not_before_hours != Hours::ZERO {
        return Err(("arrives", " and not_before_hours mean the same; omit one of them".to_owned()));
    }
    Ok(())
}

/// Parses a table of a job; an error has the key and its line.
fn parsed<T: DeserializeOwned>(table: Table, text: &str, span: &Range<usize>, job: &str) -> Result<T, JobsFileError> {
    serde_path_to_error::deserialize(table).map_err(|error| {
        let path = error.path().to_string();
        let key = path.split(['.', '[']).next();
        let problem = of_key(key, &error.inner().to_string());
        JobsFileError { line: line_of(text, span, key), problem: format!("job {job:?}: {problem}") }
    })
}

/// Takes the keys of a type out of a table.
fn own_keys<T: JsonSchema>(table: &mut Table) -> Table {
    let schema = schemars::schema_for!(T);
    let keys = schema.get("properties").and_then(serde_json::Value::as_object);
    keys.into_iter().flat_map(|keys| keys.keys()).filter_map(|key| table.remove_entry(key)).collect()
}

/// A problem with the key that has it; serde writes `.` for none.
fn of_key(key: Option<&str>, problem: &str) -> String {
    let key = key.filter(|key| !key.is_empty()).map(|key| format!("{key}: ")).unwrap_or_default();
    format!("{key}{}", plain::words(problem.lines().next().unwrap_or_default()))
}

/// The line of a key in a table, or of the table's header.
fn line_of(text: &str, span: &Range<usize>, key: Option<&str>) -> usize {
    let first = text[..span.start].lines().count() + usize::from(text[..span.start].ends_with('\n') || span.start == 0);
    let begins = |line: &str, key: &str| {
        let rest = line.trim_start().strip_prefix(key);
        rest.is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    // The span of a table is its header; its keys follow until the next header.
    let is_header = |(number, line): &(usize, &str)| *number > 0 && line.trim_start().starts_with('[');
    let own = || text[span.start..].lines().enumerate().take_while(|line| !is_header(line));
    let place = key.and_then(|key| own().find(|(_, line)| begins(line, key)).map(|(number, _)| number));
    first.max(1) + place.unwrap_or(0)
}

#[cfg(test)]
mod tests;
