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
//! A job may have copies (`count`), arrive later (`arrives`) and start after others (`after`).
//!
//! With `[[machine]]` (`gpu`, `gpus` per machine, `count`, `usd_per_hour`), jobs run on these machines and nothing is
//! rented.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::PathBuf;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::{Spanned, Table};

use super::wish::{Wish, read};
use habitat_base::text;
use habitat_base::units::{Bytes, Hours, UsdPerHour, most};
use habitat_planning::deadline::Deadline;
use habitat_planning::plan::{Confidence, Quota};

mod order;

/// Maximum number of machines.
const MOST_MACHINES: u32 = 200;
/// Maximum number of jobs in a file, with their copies.
const MOST_JOBS: usize = 1000;

/// Contents of a jobs file.
#[derive(Debug, Clone, PartialEq)]
pub struct JobsFile {
    /// Deadline, budget, price per hour and quotas that all jobs share.
    pub shared: Wish,
    /// End of the time range that must meet the deadlines; `None` = default.
    pub confidence: Option<Confidence>,
    /// Whether jobs on rented machines may wait for others.
    pub wait: bool,
    /// The jobs.
    pub jobs: Vec<JobTable>,
    /// Available machines; if empty, machines are rented.
    pub machines: Vec<MachineTable>,
}

/// One job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobTable {
    /// Its line in the file.
    pub line: usize,
    /// Its name.
    pub name: String,
    /// Its recorded step.
    pub step: StepTable,
    /// Earliest start and copies.
    pub time: TimeTable,
    /// Places of the jobs in the file that have to end before it starts.
    pub after: Vec<usize>,
    /// Its work and limits.
    pub wish: Wish,
}

/// Earliest start of a job, and its copies.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TimeTable {
    /// Hours from the start of the plan.
    pub not_before_hours: Hours,
    /// The same as a duration or a date.
    #[serde(deserialize_with = "read::deadline")]
    pub arrives: Option<Deadline>,
    /// Names of the jobs that have to end before it starts; all copies of each.
    pub after: Vec<String>,
    /// Weight of its end.
    pub priority: Option<f64>,
    /// Number of equal jobs.
    pub count: Option<u64>,
}

/// Keys of a [`TimeTable`].
const TIME_KEYS: [&str; 5] = ["not_before_hours", "arrives", "after", "priority", "count"];

/// The recorded step of a job.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepTable {
    /// The recording, relative to the folder of the jobs file.
    pub profile: PathBuf,
    /// The recording GPU, instead of the one in the file.
    #[serde(default)]
    pub origin: Option<String>,
    /// Whether to ignore measurements.
    #[serde(default)]
    pub ignore_origin: bool,
    /// Samples per step and GPU, if the file lacks it.
    #[serde(default)]
    pub batch_size: Option<u64>,
    /// Tokens per sample, if the file lacks it.
    #[serde(default)]
    pub sequence_length: Option<u64>,
    /// Parameters of the model, if the file lacks it.
    #[serde(default)]
    pub parameters: Option<u64>,
    /// Peak device memory of the step, if the file lacks it.
    #[serde(default)]
    pub peak_memory_bytes: Option<Bytes>,
}

/// Machines of one kind.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineTable {
    /// Their line in the file.
    #[serde(skip)]
    pub line: usize,
    /// Their name; by default that of the GPU.
    #[serde(default)]
    pub name: Option<String>,
    /// The GPU, as typed.
    pub gpu: String,
    /// GPUs per machine.
    #[serde(default = "one")]
    pub gpus: u32,
    /// Number of machines.
    #[serde(default = "one")]
    pub count: u32,
    /// Price of one machine per hour.
    #[serde(default)]
    pub usd_per_hour: UsdPerHour,
}

const fn one() -> u32 {
    1
}

/// Keys of a job that are not keys of a wish.
const STEP_KEYS: [&str; 7] =
    ["profile", "origin", "ignore_origin", "batch_size", "sequence_length", "parameters", "peak_memory_bytes"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    deadline: Option<toml::Value>,
    #[serde(default)]
    budget: Option<toml::Value>,
    #[serde(default)]
    max_usd_per_hour: Option<toml::Value>,
    #[serde(default)]
    confidence: Option<Confidence>,
    #[serde(default)]
    wait: bool,
    #[serde(default)]
    quota: Vec<Quota>,
    #[serde(default)]
    job: Vec<Spanned<Table>>,
    #[serde(default)]
    machine: Vec<Spanned<MachineTable>>,
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
        let form = |error: toml::de::Error| {
            let line = text[..error.span().map_or(0, |span| span.start)].matches('\n').count() + 1;
            JobsFileError { line, problem: error.message().to_owned() }
        };
        let file: File = toml::from_str(text).map_err(form)?;
        let at = |line, problem: String| Err(JobsFileError { line, problem });
        let mut shared = Table::new();
        for (key, value) in
            [("deadline", file.deadline), ("budget", file.budget), ("max_usd_per_hour", file.max_usd_per_hour)]
        {
            shared.extend(value.map(|value| (key.to_owned(), value)));
        }
        let mut shared: Wish = parsed(shared, text, &(0..text.len()), None)?;
        shared.quota = file.quota;
        if file.job.is_empty() {
            return at(1, "no [[job]]; add a table with name, profile and work for each job".to_owned());
        }
        if file.job.len() > MOST_JOBS {
            return at(line_of(text, &file.job[MOST_JOBS].span(), None), too_many("", file.job.len() as u64));
        }
        let jobs = all(file.job, text)?;
        let whole = 0..text.len();
        let ends = shared.quota.iter().filter(|quota| quota.until.is_some());
        let lines = (1..).zip(text.lines()).filter(|(_, line)| line.trim_start().starts_with("until_hours"));
        for (quota, (line, _)) in ends.zip(lines) {
            if let (Some(from), Some(until)) = (quota.from.map(Hours::get), quota.until.map(Hours::get))
                && until <= from
            {
                let problem = format!(
                    "until_hours: {until} is not after the quota's from_hours, {from}, so the quota never applies; \
                    set a later one, or omit the quota"
                );
                return at(line, problem);
            }
        }
        if !file.wait && file.machine.is_empty() {
            let needs = "only works if jobs may wait: add wait = true at the top of the file";
            let window = shared.quota.iter().find(|quota| !quota.is_lasting());
            if let Some(key) = window.map(|quota| if quota.from.is_some() { "from_hours" } else { "until_hours" }) {
                let line = text.lines().position(|line| line.trim_start().starts_with(key));
                return at(line.map_or(1, |line| line + 1), format!("{key}: {needs}"));
            }
            let key = |time: &TimeTable| {
                let [late, ordered] = [time.not_before_hours != Hours::ZERO, !time.after.is_empty()];
                let given = [late, time.arrives.is_some(), ordered, time.priority.is_some()];
                TIME_KEYS.into_iter().zip(given).find(|(_, given)| *given).map(|(key, _)| key)
            };
            if let Some((job, key)) = jobs.iter().find_map(|job| Some((job, key(&job.time)?))) {
                return at(job.line, format!("job {:?}: {key}: {needs}", job.name));
            }
        }
        let machines = machines(file.machine, text)?;
        if file.wait && !machines.is_empty() {
            let problem = "wait: has no effect with [[machine]], as jobs there always run one after another; omit it";
            return at(line_of(text, &whole, Some("wait")), problem.to_owned());
        }
        if !machines.is_empty() {
            if let Some(key) = shared.of_offers().next() {
                let problem =
                    format!("{key}: does not apply to [[machine]], as nothing is rented; omit one of the two");
                return at(line_of(text, &(0..text.len()), Some(key)), problem);
            }
            for job in &jobs {
                if let Some(key) = job.wish.of_offers().next() {
                    let problem = format!(
                        "job {:?}: {key}: does not apply to [[machine]], as nothing is rented; omit one of the two",
                        job.name
                    );
                    return at(job.line, problem);
                }
            }
        }
        Ok(Self { shared, confidence: file.confidence, wait: file.wait, jobs, machines })
    }
}

fn too_many(what: &str, total: u64) -> String {
    format!("{what}{total} jobs, but at most {MOST_JOBS} can be planned together: split the file and the shared limits")
}

/// All jobs with their copies and the jobs that come before them.
fn all(tables: Vec<Spanned<Table>>, text: &str) -> Result<Vec<JobTable>, JobsFileError> {
    let mut tables_of: Vec<(JobTable, Range<usize>)> = Vec::new();
    let mut jobs: Vec<JobTable> = Vec::new();
    let mut names = HashMap::new();
    for table in tables {
        let span = table.span();
        let job = job(table, text)?;
        let copies = job.time.count.unwrap_or(1);
        let total = copies.saturating_add(jobs.len() as u64);
        if total > MOST_JOBS as u64 {
            let what = job.time.count.map_or_else(String::new, |count| format!("count: {count} makes "));
            let problem = too_many(&what, total);
            return Err(JobsFileError { line: line_of(text, &span, Some("count")), problem });
        }
        for number in 1..=copies {
            let name = if job.time.count.is_some() { format!("{} {number}", job.name) } else { job.name.clone() };
            if let Some(other) = names.insert(name.clone(), job.line) {
                let problem = format!("job {name:?}: line {other} has a job with this name; names must be unique");
                return Err(JobsFileError { line: job.line, problem });
            }
            jobs.push(JobTable { name, ..job.clone() });
        }
        tables_of.push((job, span));
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
        Some(other) => {
            let problem = format!("name: {other} is not a string; expected, for example, name = \"night run\"");
            return Err(JobsFileError { line, problem });
        }
        None => {
            let problem = "the job has no name; add one, such as name = \"night run\"".to_owned();
            return Err(JobsFileError { line, problem });
        }
    };
    let refused = |line, problem: &str| Err(JobsFileError { line, problem: format!("job {name:?}: {problem}") });
    for (key, why) in [
        ("confidence", "belongs at the top of the file, for all jobs"),
        ("objective", "cannot be set for a job: plans minimise the total cost, or on [[machine]] the total time"),
        ("hour_value", "is not supported for several jobs"),
        ("max_parts", "is always 1 for several jobs: each runs on one offer or machine"),
    ] {
        if wish.contains_key(key) {
            return refused(line_of(text, &span, Some(key)), &format!("{key} {why}; omit it"));
        }
    }
    let mut step = Table::new();
    for key in STEP_KEYS {
        step.extend(wish.remove(key).map(|value| (key.to_owned(), value)));
    }
    if !step.contains_key("profile") {
        return refused(line, "no profile; add the file of its recorded step, such as profile = \"step.habitat.json\"");
    }
    let step: StepTable = parsed(step, text, &span, Some(&name))?;
    if step.batch_size == Some(0) {
        let line = line_of(text, &span, Some("batch_size"));
        return refused(line, "batch_size: 0; a step processes at least one sample");
    }
    let mut time = Table::new();
    for key in TIME_KEYS {
        time.extend(wish.remove(key).map(|value| (key.to_owned(), value)));
    }
    let time: TimeTable = parsed(time, text, &span, Some(&name))?;
    if time.count == Some(0) {
        return refused(line_of(text, &span, Some("count")), "count: 0; omit the job, or set the number of copies");
    }
    if let Some(priority) = time.priority.filter(|priority| !(1e-6..=1e6).contains(priority)) {
        let problem =
            format!("priority: {priority}; use a number above 0, such as 10: jobs of higher priority end earlier");
        return refused(line_of(text, &span, Some("priority")), &problem);
    }
    if time.arrives.is_some() && time.not_before_hours != Hours::ZERO {
        let line = line_of(text, &span, Some("arrives"));
        return refused(line, "arrives and not_before_hours mean the same; omit one of them");
    }
    let wish: Wish = parsed(wish, text, &span, Some(&name))?;
    if let Err((key, problem)) = wish.check() {
        return refused(line_of(text, &span, Some(key)), &format!("{key}: {problem}"));
    }
    if wish.work().is_none() {
        return refused(line, "no amount of work; add samples, steps, epochs with dataset, or tokens");
    }
    Ok(JobTable { line, name, step, time, after: Vec::new(), wish })
}

fn machines(tables: Vec<Spanned<MachineTable>>, text: &str) -> Result<Vec<MachineTable>, JobsFileError> {
    let mut names = HashSet::new();
    let mut all = 0_u32;
    let mut machines = Vec::with_capacity(tables.len());
    for table in tables {
        let span = table.span();
        let mut machine = table.into_inner();
        machine.line = line_of(text, &span, None);
        let shown = text::clean(machine.name.as_ref().unwrap_or(&machine.gpu), 60);
        all = all.saturating_add(machine.count);
        let problem = if !(1..=most::GPUS).contains(&machine.gpus) {
            format!("gpus: {}; a machine has 1 to {} GPUs", machine.gpus, most::GPUS)
        } else if machine.count == 0 {
            "count: 0; omit the machine, or set the number of machines".to_owned()
        } else if all > MOST_MACHINES {
            format!(
                "count: {} makes {all} machines in total, but at most {MOST_MACHINES} can be planned",
                machine.count
            )
        } else if !names.insert(shown.clone()) {
            "another machine has this name; set different names, or increase count".to_owned()
        } else {
            machine.name = Some(shown);
            machines.push(machine);
            continue;
        };
        return Err(JobsFileError { line: machine.line, problem: format!("machine {shown:?}: {problem}") });
    }
    Ok(machines)
}

/// Parses a table; an error has the key and its line.
fn parsed<T: DeserializeOwned>(
    table: Table,
    text: &str,
    span: &Range<usize>,
    job: Option<&str>,
) -> Result<T, JobsFileError> {
    serde_path_to_error::deserialize(table).map_err(|error| {
        let path = error.path().to_string();
        let key = path.split(['.', '[']).next().filter(|key| !key.is_empty());
        let line = line_of(text, span, key);
        let of_job = job.map(|name| format!("job {name:?}: ")).unwrap_or_default();
        let of_key = key.map(|key| format!("{key}: ")).unwrap_or_default();
        let problem = error.inner().to_string();
        let problem = problem.lines().next().unwrap_or_default();
        JobsFileError { line, problem: format!("{of_job}{of_key}{problem}") }
    })
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
