//! Step times of networks at several batch sizes, in the form of PROFET's data: `latencies.csv`
//! (one row a repetition: `model`, `dataset`, `instance_name`, `batchsize`, `batch_latency` in
//! seconds) and, where they are there, the profiles `anchor_*.csv` of the same workloads
//! (`Device_*`: microseconds by operator kind over two steps, `Device_IDLE` the rest).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::files::{StoreError, open};
use super::operator_tables::find;
use crate::regress::quantile::median;
use crate::units::Micros;

/// One network at one image size on one machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The network.
    pub network: String,
    /// What it was trained on.
    pub dataset: String,
    /// The machine.
    pub machine: String,
    /// By batch size, ascending.
    pub steps: Vec<SeriesStep>,
}

/// The step of a series at one batch size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeriesStep {
    /// Samples in a step.
    pub batch: u64,
    /// The step, median over the repetitions.
    pub time: Micros,
    /// The device's busy time in it, where there is a profile; median over the repetitions.
    pub busy: Option<Micros>,
}

/// Network, dataset, machine.
type Key = (String, String, String);
/// Values by key, then by batch size.
type Values = BTreeMap<Key, BTreeMap<u64, Vec<f64>>>;

/// Steps that a profile of PROFET's sums over.
const PROFILED_STEPS: f64 = 2.0;

/// Every series of a folder.
///
/// # Errors
/// [`StoreError`] with the file, the line and what is wrong with it.
pub fn read(dir: &Path) -> Result<Vec<Series>, StoreError> {
    let path = find(dir, "latencies").ok_or_else(|| {
        StoreError::content(
            &dir.join("latencies.csv"),
            "not there (nor .gz, .zst): a folder of PROFET's form has step times in it",
        )
    })?;
    let mut times = Values::new();
    rows(&path, &mut times, |row| Ok(row.number("batch_latency")? * 1e6))?;
    let mut busy = Values::new();
    for name in anchors(dir)? {
        rows(&name, &mut busy, |row| Ok(row.sum("Device_", "Device_IDLE")? / PROFILED_STEPS))?;
    }
    let middle = |values: &mut Vec<f64>| median(values).map(Micros::known);
    Ok(times
        .into_iter()
        .map(|(key, by_batch)| {
            let mut profiled = busy.remove(&key).unwrap_or_default();
            let steps = by_batch.into_iter().filter_map(|(batch, mut values)| {
                let busy = profiled.get_mut(&batch).and_then(middle);
                Some(SeriesStep { batch, time: middle(&mut values)?, busy })
            });
            let steps = steps.collect();
            let (network, dataset, machine) = key;
            Series { network, dataset, machine, steps }
        })
        .collect())
}

/// Files of profiles, by name.
fn anchors(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let problem = |error| StoreError::read(dir, error);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(problem)? {
        let path = entry.map_err(problem)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("anchor_") && name.contains(".csv") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// A line of a table.
struct Row<'a> {
    headings: &'a csv::StringRecord,
    record: &'a csv::StringRecord,
}

impl Row<'_> {
    fn text(&self, name: &str) -> Result<&str, String> {
        let index = self.headings.iter().position(|heading| heading == name);
        index.and_then(|index| self.record.get(index)).ok_or_else(|| format!("no column {name:?}"))
    }

    fn number(&self, name: &str) -> Result<f64, String> {
        positive(name, self.text(name)?)
    }

    /// The sum of all columns whose names begin so, one left out; empty cells are 0.
    fn sum(&self, prefix: &str, but: &str) -> Result<f64, String> {
        let mut sum = 0.0;
        for (heading, text) in self.headings.iter().zip(self.record) {
            if heading.starts_with(prefix) && heading != but && !text.is_empty() {
                sum += positive(heading, text)?;
            }
        }
        Ok(sum)
    }
}

fn positive(name: &str, text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| format!("{name}: {text:?} is not a number"))?;
    if value.is_finite() && value >= 0.0 { Ok(value) } else { Err(format!("{name}: {text} is not a time")) }
}

/// Adds `value` of every line of a table to `values`.
fn rows(path: &Path, values: &mut Values, value: impl Fn(&Row<'_>) -> Result<f64, String>) -> Result<(), StoreError> {
    let problem = |what: String| StoreError::content(path, what);
    let mut reader = csv::Reader::from_reader(open(path).map_err(|error| StoreError::read(path, error))?);
    let headings = reader.headers().map_err(|error| problem(error.to_string()))?.clone();
    let mut record = csv::StringRecord::new();
    let mut line = 1;
    while reader.read_record(&mut record).map_err(|error| problem(error.to_string()))? {
        line += 1;
        let row = Row { headings: &headings, record: &record };
        let read = || -> Result<(Key, u64, f64), String> {
            let batch = row.text("batchsize")?;
            let batch: u64 = batch.parse().map_err(|_| format!("batchsize: {batch:?} is not a whole number"))?;
            let text = |name: &str| row.text(name).map(str::to_owned);
            Ok(((text("model")?, text("dataset")?, text("instance_name")?), batch, value(&row)?))
        };
        let (key, batch, value) = read().map_err(|what| problem(format!("line {line}: {what}")))?;
        values.entry(key).or_default().entry(batch).or_default().push(value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCIES: &str = "exp_name,instance_name,model,dataset,batchsize,batch_latency
exp01,m1,A,32dataset,16,0.010
exp02,m1,A,32dataset,16,0.012
exp03,m1,A,32dataset,16,0.011
exp01,m1,A,32dataset,32,0.020
exp01,m2,A,32dataset,16,0.5
";
    const ANCHOR: &str =
        "instance_name,model,dataset,batchsize,batch_latency,Device_Conv2D,Device_Mul,Device_IDLE,Host_x
m1,A,32dataset,16,0.01,12000,4000,9000,1
";

    #[test]
    fn medians_by_batch_with_the_busy_time_of_one_step() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("latencies.csv"), LATENCIES).unwrap();
        std::fs::write(folder.path().join("anchor_m.csv"), ANCHOR).unwrap();
        let series = read(folder.path()).unwrap();
        assert_eq!(series.len(), 2);
        let [first, second] = series[0].steps[..] else { panic!("{series:?}") };
        assert_eq!((first.batch, first.time.get().round()), (16, 11_000.0));
        assert_eq!(first.busy.map(Micros::get), Some(8000.0));
        assert_eq!((second.batch, second.busy), (32, None));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(folder.path()).unwrap_err().to_string().contains("latencies.csv"));
        std::fs::write(folder.path().join("latencies.csv"), LATENCIES.replace("0.020", "fast")).unwrap();
        let error = read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("line 5") && error.contains("\"fast\""), "{error}");
    }
}
