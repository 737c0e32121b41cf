//! Logs of runs: CSV with a time and a batch size, a number of iterations, or both per row.
//!
//! Columns are found by their usual names, ignoring case, or set by the caller.

use std::path::Path;

use super::decompress::Limit;
use super::files::{StoreError, open};
use habitat_base::units::{Micros, TimeUnit, most};
use habitat_prediction::runlog::Run;

/// Unit at the end of a heading, after `_`, a space or a bracket.
fn unit_of_heading(heading: &str) -> Option<TimeUnit> {
    let heading = heading.to_lowercase();
    let word = heading.trim_end_matches([')', ']']).rsplit(['_', ' ', '(', '[', '-', '/']).next()?;
    Some(match word {
        "us" | "µs" | "usec" | "micros" | "microseconds" => TimeUnit::Micros,
        "ms" | "msec" | "millis" | "milliseconds" => TimeUnit::Millis,
        "s" | "sec" | "secs" | "second" | "seconds" => TimeUnit::Seconds,
        "min" | "mins" | "minutes" => TimeUnit::Minutes,
        "h" | "hr" | "hrs" | "hours" => TimeUnit::Hours,
        _ => return None,
    })
}

/// Columns to read; those not set are detected.
#[derive(Debug, Clone, Default)]
pub struct LogColumns<'a> {
    /// Column of times.
    pub time: Option<&'a str>,
    /// Column of batch sizes.
    pub batch: Option<&'a str>,
    /// Column of iterations.
    pub iterations: Option<&'a str>,
    /// Column of GPUs or machines; each gets its own model.
    pub gpu: Option<&'a str>,
    /// Unit of the times, if the heading has none.
    pub unit: Option<TimeUnit>,
}

/// Content of a log.
#[derive(Debug, Clone, PartialEq)]
pub struct RunLog {
    /// Headings of the columns: time, batch, iterations, GPU.
    pub headings: [Option<String>; 4],
    /// Runs by GPU (empty text without such a column), in the order of the file.
    pub runs: Vec<(String, Vec<Run>)>,
    /// Assumptions.
    pub notes: Vec<String>,
}

const TIME: &[&str] = &[
    "time",
    "seconds",
    "duration",
    "elapsed",
    "runtime",
    "latency",
    "wall_time",
    "wall",
    "cpu_time",
    "step_time",
    "total",
];
const BATCH: &[&str] = &["batch", "batch_size", "batchsize", "bs"];
const ITERATIONS: &[&str] =
    &["iterations", "iteration", "iters", "iter", "steps", "step", "num_steps", "num_iterations", "epochs", "epoch"];
const GPU: &[&str] = &["gpu", "device", "gpu_name", "instance", "instance_name", "instance_type", "machine"];

/// Maximum number of GPUs in a log.
const MOST_GPUS: usize = 1000;

/// Reads a log.
///
/// # Errors
/// [`StoreError`] with the file, the line or the column, and the problem.
pub fn read(path: &Path, columns: &LogColumns<'_>) -> Result<RunLog, StoreError> {
    let problem = |what: String| StoreError::content(path, what);
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .from_reader(open(path, Limit::LOG).map_err(|error| StoreError::read(path, error))?);
    let headings = reader.headers().map_err(|error| problem(error.to_string()))?.clone();
    let found = ColumnIndices::of(&headings, columns).map_err(problem)?;
    let mut log = RunLog { headings: found.headings(&headings), runs: Vec::new(), notes: found.notes.clone() };
    for (index, record) in reader.records().enumerate() {
        let line = |what: String| problem(format!("line {}: {what}", index + 2));
        let record = record.map_err(|error| line(error.to_string()))?;
        let number = |column: usize| -> Result<f64, String> {
            let text = record.get(column).unwrap_or_default();
            let value: Option<f64> = text.parse().ok().filter(|value: &f64| *value > 0.0 && *value <= most::RUN);
            value.ok_or_else(|| format!("{}: {text:?} is not a number above zero and at most 1e15", &headings[column]))
        };
        let run = Run {
            time: number(found.time)
                .and_then(|value| Micros::new(value * found.unit.micros()).map_err(|error| error.to_string()))
                .map_err(line)?,
            batch: found.batch.map(number).transpose().map_err(line)?,
            iterations: found.iterations.map(number).transpose().map_err(line)?,
        };
        let gpu = found.gpu.and_then(|column| record.get(column)).unwrap_or_default();
        if let Some((_, runs)) = log.runs.iter_mut().find(|(name, _)| name == gpu) {
            runs.push(run);
        } else if log.runs.len() < MOST_GPUS {
            log.runs.push((gpu.to_owned(), vec![run]));
        } else {
            return Err(line(format!(
                "more than {MOST_GPUS} GPUs, each with its own model; set another column with --gpu"
            )));
        }
    }
    if log.runs.is_empty() {
        return Err(problem("no runs below the headings".to_owned()));
    }
    Ok(log)
}

/// Indices of the columns.
struct ColumnIndices {
    time: usize,
    batch: Option<usize>,
    iterations: Option<usize>,
    gpu: Option<usize>,
    unit: TimeUnit,
    notes: Vec<String>,
}

impl ColumnIndices {
    fn of(headings: &csv::StringRecord, columns: &LogColumns<'_>) -> Result<Self, String> {
        let time = column(headings, columns.time, TIME)?
            .ok_or_else(|| format!("no column of times among {}; set it with --time", listed(headings)))?;
        let batch = column(headings, columns.batch, BATCH)?;
        let iterations = column(headings, columns.iterations, ITERATIONS)?;
        let gpu = column(headings, columns.gpu, GPU)?;
        if batch.is_none() && iterations.is_none() {
            return Err(format!(
                "no column of batch sizes or iterations among {}; set one with --batch or --iterations",
                listed(headings)
            ));
        }
        let mut notes = Vec::new();
        let unit = match (columns.unit, unit_of_heading(&headings[time])) {
            (Some(unit), _) | (None, Some(unit)) => unit,
            (None, None) => {
                notes.push(format!(
                    "no unit in the heading {:?}: assuming seconds (set another with --unit ms)",
                    &headings[time]
                ));
                TimeUnit::Seconds
            }
        };
        Ok(Self { time, batch, iterations, gpu, unit, notes })
    }

    fn headings(&self, headings: &csv::StringRecord) -> [Option<String>; 4] {
        [Some(self.time), self.batch, self.iterations, self.gpu].map(|column| column.map(|at| headings[at].to_owned()))
    }
}

fn listed(headings: &csv::StringRecord) -> String {
    if headings.iter().any(|heading| heading.trim_start().starts_with('{')) {
        return "content that looks like JSON, not a table with a line of headings".to_owned();
    }
    let shown = headings.iter().take(12).map(|heading| format!("{:?}", habitat_base::text::clean(heading, 40)));
    let more = if headings.len() > 12 { " …" } else { "" };
    shown.collect::<Vec<_>>().join(", ") + more
}

/// The requested column, or otherwise the first of the usual names that exists.
fn column(headings: &csv::StringRecord, asked: Option<&str>, usual: &[&str]) -> Result<Option<usize>, String> {
    if let Some(asked) = asked {
        let found = headings.iter().position(|heading| heading.eq_ignore_ascii_case(asked));
        return found.map(Some).ok_or_else(|| format!("no column {asked:?}; the columns are {}", listed(headings)));
    }
    let plain = |heading: &str| -> String {
        let name = heading.to_lowercase().replace([' ', '-'], "_");
        let bare = match unit_of_heading(heading) {
            Some(_) => name
                .trim_end_matches([')', ']'])
                .rsplit_once(['_', '(', '[', '/'])
                .map(|(bare, _)| bare.trim_end_matches('_').to_owned()),
            None => None,
        };
        bare.filter(|bare| !bare.is_empty()).unwrap_or(name)
    };
    let names: Vec<String> = headings.iter().map(plain).collect();
    Ok(usual.iter().find_map(|usual| names.iter().position(|name| name == usual)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(text: &str, columns: &LogColumns<'_>) -> Result<RunLog, String> {
        let file = tempfile::NamedTempFile::with_suffix(".csv").unwrap();
        std::fs::write(file.path(), text).unwrap();
        read(file.path(), columns).map_err(|error| error.to_string())
    }

    #[test]
    fn columns_are_found_by_usual_names_and_units_by_their_ends() {
        for (heading, micros) in [
            ("time_s", 2e6),
            ("Time (ms)", 2e3),
            ("elapsed_us", 2.0),
            ("seconds", 2e6),
            ("Duration [min]", 1.2e8),
            ("latency_ms", 2e3),
            ("cpu_time_s", 2e6),
            ("runtime hours", 7.2e9),
        ] {
            let found = log(&format!("Batch Size,{heading},ITERS\n8,2,10\n"), &LogColumns::default()).unwrap();
            let (_, runs) = &found.runs[0];
            assert_eq!(
                (runs[0].time.get(), runs[0].batch, runs[0].iterations),
                (micros, Some(8.0), Some(10.0)),
                "{heading}"
            );
            assert!(found.notes.is_empty());
        }
        let plain = log("bs,time\n8,2\n", &LogColumns::default()).unwrap();
        assert_eq!(plain.runs[0].1[0].time.get(), 2e6);
        assert!(plain.notes[0].contains("assuming seconds"), "{:?}", plain.notes);
        let told = LogColumns { unit: Some(TimeUnit::Millis), ..LogColumns::default() };
        assert_eq!(log("bs,time\n8,2\n", &told).unwrap().runs[0].1[0].time.get(), 2e3);
    }

    #[test]
    fn columns_can_be_named_and_gpus_are_kept_apart() {
        let named = LogColumns { time: Some("took"), iterations: Some("n"), ..LogColumns::default() };
        let found = log("n,took,gpu\n1,5,T4\n2,6,V100\n3,7,T4\n", &named).unwrap();
        assert_eq!(
            found.runs.iter().map(|(gpu, runs)| (gpu.as_str(), runs.len())).collect::<Vec<_>>(),
            [("T4", 2), ("V100", 1)]
        );
        assert_eq!(found.headings[2].as_deref(), Some("n"));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_remedy() {
        let error = |text: &str, columns: &LogColumns<'_>| log(text, columns).unwrap_err();
        let plain = LogColumns::default();
        assert!(error("batch,foo\n1,2\n", &plain).contains("--time"));
        assert!(error("time_s,foo\n1,2\n", &plain).contains("--batch or --iterations"));
        assert!(error("time_s,batch\n1,8\nfast,8\n", &plain).contains("line 3: time_s: \"fast\""));
        assert!(error("time_s,batch\n0,8\n", &plain).contains("above zero"));
        assert!(error("time_s,batch\n", &plain).contains("no runs"));
        let named = LogColumns { batch: Some("size"), ..LogColumns::default() };
        assert!(error("time_s,batch\n1,8\n", &named).contains("no column \"size\""));
    }
}
