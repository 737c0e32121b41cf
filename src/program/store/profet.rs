//! Tables in the format of PROFET's data: `anchor_*.csv` and `latencies.csv`, plain or compressed.
//!
//! An anchor table has a row for each repetition of a workload: the step on the anchor in seconds, on the other
//! instances in microseconds, and the device time by `TensorFlow` operator type in microseconds, summed over two
//! profiled steps. Columns are found by name. A missing column of an operator type means that it took no time; new
//! types are allowed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use csv::StringRecord;

use super::decompress::Limit;
use super::files::{StoreError, open};
use habitat_base::units::{GpuSlug, Micros};
use habitat_prediction::blackbox::{OperatorKind, OperatorTotals, Recorded, StepRecord};
use habitat_step::op::tensorflow;

/// Cloud instances of the data with their GPU (one die).
const INSTANCES: [(&str, &str); 4] =
    [("g3s.xlarge", "m60"), ("g4dn.xlarge", "t4"), ("p2.xlarge", "k80"), ("p3.2xlarge", "v100-sxm2-16gb")];
/// Number of steps in the operator times of a row.
const PROFILED_STEPS: f64 = 2.0;

/// Reads all rows of the `anchor_*` tables in a folder.
///
/// # Errors
/// [`StoreError`] with the file, the line, the column and the problem, or if no table exists.
pub fn read(dir: &Path) -> Result<Vec<Recorded>, StoreError> {
    let tables = tables(dir)?;
    if tables.is_empty() {
        return Err(StoreError::content(dir, "no tables named anchor_*.csv (or .csv.gz, .csv.zst)"));
    }
    let mut rows = Vec::new();
    for path in tables {
        let reader = open(&path, Limit::TABLE).map_err(|error| StoreError::read(&path, error))?;
        anchor_rows(reader, &mut rows).map_err(|problem| StoreError::content(&path, problem))?;
    }
    Ok(rows)
}

/// Reads all rows of `latencies.csv` in a folder.
///
/// # Errors
/// Errors of [`read`].
pub fn read_latencies(dir: &Path) -> Result<Vec<StepRecord>, StoreError> {
    let path = super::operator_tables::find(dir, "latencies")
        .ok_or_else(|| StoreError::content(dir, "no table latencies.csv (or .csv.gz, .csv.zst)"))?;
    let reader = open(&path, Limit::TABLE).map_err(|error| StoreError::read(&path, error))?;
    let mut reader = csv::Reader::from_reader(reader);
    let mut rows = Vec::new();
    let mut read = || -> Result<(), String> {
        let headings = reader.headers().map_err(|error| error.to_string())?.clone();
        for (index, record) in reader.records().enumerate() {
            let place = |problem: String| format!("line {}: {problem}", index + 2);
            let record = record.map_err(|error| place(error.to_string()))?;
            let row = Row { headings: &headings, record: &record };
            rows.push(row.step().map_err(place)?);
        }
        Ok(())
    };
    read().map_err(|problem| StoreError::content(&path, problem))?;
    Ok(rows)
}

/// Files that are read from a folder, sorted by name.
///
/// # Errors
/// [`StoreError`] if the folder cannot be read.
pub fn files(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let mut found = tables(dir)?;
    found.extend(super::operator_tables::find(dir, "latencies"));
    Ok(found)
}

/// Anchor tables, sorted by name.
///
/// # Errors
/// [`StoreError`] if the folder cannot be read.
pub fn tables(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(|error| StoreError::read(dir, error))? {
        let path = entry.map_err(|error| StoreError::read(dir, error))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let stem = [".csv", ".csv.gz", ".csv.zst"].iter().find_map(|ending| name.strip_suffix(ending));
        if stem.is_some_and(|stem| stem.starts_with("anchor_")) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Meaning of a heading.
enum Heading {
    Operator(Arc<str>, OperatorKind),
    Idle,
    Elsewhere(GpuSlug),
    Rest,
}

impl Heading {
    fn of(name: &str) -> Self {
        if name == "Device_IDLE" {
            return Self::Idle;
        }
        if let Some(op) = name.strip_prefix("Device_") {
            return Self::Operator(op.into(), tensorflow::kind(op));
        }
        if name.contains('.')
            && let Ok(gpu) = gpu(name)
        {
            return Self::Elsewhere(gpu);
        }
        Self::Rest
    }
}

fn anchor_rows(reader: impl std::io::Read, rows: &mut Vec<Recorded>) -> Result<(), String> {
    let mut reader = csv::Reader::from_reader(reader);
    let headings = reader.headers().map_err(|error| error.to_string())?.clone();
    let columns: Vec<Heading> = headings.iter().map(Heading::of).collect();
    if !columns.iter().any(|column| matches!(column, Heading::Operator(..))) {
        return Err("no column Device_*: not an anchor table of PROFET".to_owned());
    }
    // The same few names occur on every line.
    let mut names: BTreeMap<String, Arc<str>> = BTreeMap::new();
    let mut shared = |name: &str| Arc::clone(names.entry(name.to_owned()).or_insert_with(|| name.into()));
    for (index, record) in reader.records().enumerate() {
        let place = |problem: String| format!("line {}: {problem}", index + 2);
        let record = record.map_err(|error| place(error.to_string()))?;
        let row = Row { headings: &headings, record: &record };
        let recorded = row.recorded(&columns, &mut shared).map_err(place)?;
        rows.push(recorded);
    }
    Ok(())
}

/// A line with its headings.
struct Row<'a> {
    headings: &'a StringRecord,
    record: &'a StringRecord,
}

impl Row<'_> {
    fn text(&self, column: &str) -> Result<&str, String> {
        let index = self
            .headings
            .iter()
            .position(|heading| heading == column)
            .ok_or_else(|| format!("no column {column:?}; columns are found by name"))?;
        Ok(self.record.get(index).unwrap_or_default())
    }

    fn micros(&self, column: &str, unit: f64) -> Result<Micros, String> {
        micros(column, self.text(column)?, unit)
    }

    fn pixels(&self) -> Result<u32, String> {
        let text = self.text("dataset")?;
        let digits = text.strip_suffix("dataset").unwrap_or(text);
        whole("dataset", digits).map_err(|_| format!("dataset: {text:?} is not of the form 128dataset"))
    }

    fn step(&self) -> Result<StepRecord, String> {
        Ok(StepRecord {
            network: self.text("model")?.into(),
            pixels: self.pixels()?,
            batch_size: whole("batchsize", self.text("batchsize")?)?,
            gpu: gpu(self.text("instance_name")?)?,
            step: self.micros("batch_latency", 1e6).and_then(|step| above_zero("batch_latency", step))?,
        })
    }

    fn recorded(&self, columns: &[Heading], shared: &mut dyn FnMut(&str) -> Arc<str>) -> Result<Recorded, String> {
        let step = self.step()?;
        let (mut kinds, mut by_type, mut elsewhere, mut idle) = (BTreeMap::new(), Vec::new(), BTreeMap::new(), None);
        for ((heading, column), text) in self.headings.iter().zip(columns).zip(self.record) {
            match column {
                Heading::Rest => {}
                Heading::Idle => idle = Some(micros(heading, text, 1.0 / PROFILED_STEPS)?),
                Heading::Elsewhere(gpu) => {
                    let step = micros(heading, text, 1.0).and_then(|step| above_zero(heading, step))?;
                    elsewhere.insert(gpu.clone(), step);
                }
                Heading::Operator(op, kind) => {
                    let time = micros(heading, text, 1.0 / PROFILED_STEPS)?;
                    if time.get() > 0.0 {
                        *kinds.entry(*kind).or_insert(Micros::ZERO) += time;
                        by_type.push((Arc::clone(op), time));
                    }
                }
            }
        }
        let totals = OperatorTotals::new(step.gpu, step.step, step.batch_size, idle, kinds)
            .map_err(|error| error.to_string())?;
        Ok(Recorded {
            network: shared(&step.network),
            pixels: step.pixels,
            repetition: shared(self.text("exp_name")?),
            totals,
            by_type,
            elsewhere,
        })
    }
}

/// GPU of an instance of the data, or of a slug.
fn gpu(instance: &str) -> Result<GpuSlug, String> {
    let slug = INSTANCES.iter().find(|(name, _)| *name == instance).map_or(instance, |(_, slug)| slug);
    GpuSlug::new(slug).map_err(|_| {
        let known = INSTANCES.map(|(name, gpu)| format!("{name} ({gpu})")).join(", ");
        format!("unknown instance {instance:?}; use one of {known} or a GPU slug")
    })
}

fn whole<T: std::str::FromStr>(column: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{column}: {text:?} is not a whole number"))
}

/// A time given in units of `unit` microseconds; zero for an empty text.
fn micros(column: &str, text: &str, unit: f64) -> Result<Micros, String> {
    if text.is_empty() {
        return Ok(Micros::ZERO);
    }
    let value: f64 = text.parse().map_err(|_| format!("{column}: {text:?} is not a number"))?;
    Micros::new(value * unit).map_err(|error| format!("{column}: {error}"))
}

fn above_zero(column: &str, time: Micros) -> Result<Micros, String> {
    if time.get() > 0.0 { Ok(time) } else { Err(format!("{column}: has to be above 0")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "exp_name,instance_name,model,dataset,batchsize,batch_latency,p3.2xlarge,Device_IDLE,Device_Conv2D,Device__FusedConv2D,Host_IDLE";

    fn rows(lines: &str) -> Result<Vec<Recorded>, String> {
        let mut rows = Vec::new();
        anchor_rows(lines.as_bytes(), &mut rows).map(|()| rows)
    }

    #[test]
    fn a_row_by_hand() {
        let rows =
            rows(&format!("{HEAD}\nexp01,g3s.xlarge,VGG16,64dataset,32,0.005,2500.5,300,4000,1000,7\n")).unwrap();
        let [row] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!(row.label(), "VGG16 64 px, batch 32");
        let totals = &row.totals;
        assert_eq!((totals.gpu.as_str(), totals.step.get()), ("m60", 5000.0));
        assert_eq!(totals.idle.unwrap().get(), 150.0);
        assert_eq!(totals.kinds[&OperatorKind::Convolution].get(), 2500.0);
        assert_eq!(row.by_type.len(), 2);
        assert_eq!(row.elsewhere[&GpuSlug::new("v100-sxm2-16gb").unwrap()].get(), 2500.5);
    }

    #[test]
    fn bad_lines_are_named() {
        let error =
            |line: &str| rows(&format!("{HEAD}\nexp01,g3s.xlarge,V,64dataset,32,1,1,1,1,1,1\n{line}\n")).unwrap_err();
        assert!(error("exp01,m5.large,V,64dataset,32,1,1,1,1,1,1").contains("line 3: unknown instance \"m5.large\""));
        assert!(error("exp01,t4,V,64x64,32,1,1,1,1,1,1").contains("64x64"));
        assert!(error("exp01,t4,V,64dataset,many,1,1,1,1,1,1").contains("batchsize"));
        assert!(error("exp01,t4,V,64dataset,32,0,1,1,1,1,1").contains("batch_latency"));
        assert!(error("exp01,t4,V,64dataset,32,1,1,1,-1,1,1").contains("Device_Conv2D"));
        assert!(error("exp01,t4,V,64dataset,32,1,1,1,x,1,1").contains("not a number"));
        assert!(error("exp01,t4,V,64dataset,32,1,1,1,0,0,1").contains("no operator"));
        assert!(rows("a,b\n1,2\n").unwrap_err().contains("Device_"));
        let headless = HEAD.replace("model,", "");
        assert!(rows(&format!("{headless}\nexp01,t4,64dataset,32,1,1,1,1,1,1\n")).unwrap_err().contains("\"model\""));
    }
}
