//! Operators measured with `habitat-tui collect`: format `habitat-operator-measurements`, version 1
//! (`profiler/collect/README.md`), one file per GPU.
//!
//! Also reads the tables of `record_gpu` (`ops.csv`, next to `device.json`), which have the same kinds of columns and
//! are recognised by their headings.
//!
//! Times are device times if a row's calls were queued. Skips and counts rows that were not queued, were skipped or
//! failed, or have an operator without a model.

mod operators;

use std::collections::BTreeMap;
use std::path::Path;

use csv::StringRecord;
use serde::Deserialize;

use self::operators::{Config, operation, other};
use super::decompress::Limit;
use super::files::{StoreError, beginning, read_text};
use super::operator_tables::{self, Row, Split};
use habitat_base::units::{GpuSlug, Micros};
use habitat_step::catalog::{Catalog, DeviceIdentity};
use habitat_step::profile::{DType, Phase, Precision};

/// Name of the format.
const FORMAT: &str = "habitat-operator-measurements";
/// Version of the format.
const VERSION: u32 = 1;
/// Headings that only the table of `record_gpu` has.
const RECORD_GPU: [&str; 3] = ["first_call_like_us", "config", "queued"];

/// Content of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Collected {
    /// GPU of all rows.
    pub gpu: GpuSlug,
    /// Measured operators with their tables (`linear`, `conv2d`, …).
    pub rows: Vec<(&'static str, Row)>,
    /// Measured operators without an operator model: convolutions in channels-last order, attention, recurrent layers,
    /// look-ups, optimizers.
    pub others: Vec<Row>,
    /// Number of skipped rows by reason, including `others`.
    pub passed_over: BTreeMap<String, usize>,
}

/// Description of the device in the first line.
#[derive(Debug, Deserialize)]
struct Head {
    device: String,
    name: String,
    gpu: Option<String>,
    compute_capability: Option<String>,
    sm_count: Option<u32>,
    memory_bytes: Option<u64>,
    #[serde(default)]
    tiny: bool,
}

/// Relevant part of `device.json`.
#[derive(Debug, Deserialize)]
struct DeviceJson {
    properties: Properties,
}

#[derive(Debug, Deserialize)]
struct Properties {
    name: String,
    major: u8,
    minor: u8,
    multi_processor_count: u32,
    total_memory: u64,
}

/// Whether the file starts like a collection.
///
/// # Errors
/// [`StoreError`] if it cannot be read.
pub fn is_one(path: &Path) -> Result<bool, StoreError> {
    let start = beginning(path, 2048)?;
    let start = String::from_utf8_lossy(&start);
    let first = start.lines().next().unwrap_or_default();
    Ok(first.starts_with(&format!("# {FORMAT}")) || is_record_gpu(first))
}

fn is_record_gpu(headings: &str) -> bool {
    RECORD_GPU.iter().all(|wanted| headings.split(',').any(|heading| heading.trim() == *wanted))
}

/// Reads a collection, compressed or not.
///
/// # Errors
/// [`StoreError`] with the file, the line, the value and a remedy: for another version, rows measured on a CPU, a GPU
/// that is not in the catalog, or an invalid number.
pub fn read(path: &Path, catalog: &Catalog) -> Result<Collected, StoreError> {
    let text = read_text(path, Limit::TABLE)?;
    let content = |problem: String| StoreError::content(path, problem);
    let first = text.lines().next().unwrap_or_default();
    if is_record_gpu(first) {
        let beside = path.with_file_name("device.json");
        let bytes = super::read(&beside, Limit::SETTINGS)?;
        let device: DeviceJson = serde_json::from_slice(&bytes).map_err(|error| StoreError::content(&beside, error))?;
        let properties = device.properties;
        let gpu = identify(
            &DeviceIdentity {
                name: properties.name,
                compute_capability: Some((properties.major, properties.minor)),
                sm_count: Some(properties.multi_processor_count),
                memory_bytes: Some(properties.total_memory),
            },
            catalog,
        );
        return rows(&text, 1, gpu.map_err(|problem| StoreError::content(&beside, problem))?).map_err(content);
    }
    let gpu =
        head(first).and_then(|head| of_head(head, catalog)).map_err(|problem| content(format!("line 1: {problem}")))?;
    let rest = text.split_once('\n').map_or("", |(_, rest)| rest);
    rows(rest, 2, gpu).map_err(content)
}

fn head(line: &str) -> Result<Head, String> {
    let (format, rest) = line.strip_prefix("# ").and_then(|rest| rest.split_once(' ')).unwrap_or((line, ""));
    let (version, json) = rest.split_once(' ').unwrap_or((rest, ""));
    let shown = |text: &str| habitat_base::text::clean(text, 40);
    if format != FORMAT {
        return Err(format!(
            "{:?} is not a collection of `habitat-tui collect` (# {FORMAT} {VERSION} …)",
            shown(format)
        ));
    }
    if version.parse() != Ok(VERSION) {
        return Err(format!("{FORMAT} {}: this program reads version {VERSION}", shown(version)));
    }
    serde_json::from_str(json).map_err(|error| format!("description of the device: {error}"))
}

fn of_head(head: Head, catalog: &Catalog) -> Result<GpuSlug, String> {
    if head.device != "cuda" {
        return Err(format!(
            "measured on {:?}: such rows only test the program; collect on a machine with a GPU",
            habitat_base::text::clean(&head.device, 20)
        ));
    }
    if head.tiny {
        return Err("made with --tiny: such rows only test the program; collect again without it".to_owned());
    }
    if let Some(name) = &head.gpu {
        return match catalog.named(name)[..] {
            [gpu] => Ok(gpu.slug.clone()),
            [] => catalog.find(name).map(|gpu| gpu.slug.clone()).map_err(|error| error.to_string()),
            ref several => {
                let slugs: Vec<&str> = several.iter().map(|gpu| gpu.slug.as_str()).collect();
                let name = habitat_base::text::clean(name, 60);
                Err(format!("several GPUs have the name {name:?}; use one of {}", slugs.join(", ")))
            }
        };
    }
    let capability = head.compute_capability.as_deref().and_then(|text| {
        let (major, minor) = text.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    let identity = DeviceIdentity {
        name: head.name,
        compute_capability: capability,
        sm_count: head.sm_count,
        memory_bytes: head.memory_bytes,
    };
    identify(&identity, catalog)
}

fn identify(identity: &DeviceIdentity, catalog: &Catalog) -> Result<GpuSlug, String> {
    catalog.identify(identity).map(|gpu| gpu.slug.clone()).ok_or_else(|| {
        format!(
            "the catalog has no entry for {:?} ({} SMs); add one (`habitat-tui gpus --toml SLUG` prints a template), or write \"gpu\": \"SLUG\" into this line",
            habitat_base::text::clean(&identity.name, 60),
            identity.sm_count.map_or_else(|| "?".to_owned(), |count| count.to_string())
        )
    })
}

fn rows(text: &str, first: usize, gpu: GpuSlug) -> Result<Collected, String> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let headings = reader.headers().map_err(|error| error.to_string())?.clone();
    let mut found = Collected { gpu, rows: Vec::new(), others: Vec::new(), passed_over: BTreeMap::new() };
    for (index, record) in reader.records().enumerate() {
        let problem = |what: String| format!("line {}: {what}", index + first + 1);
        let record = record.map_err(|error| {
            problem(match error.kind() {
                csv::ErrorKind::UnequalLengths { len, expected_len, .. } => format!(
                    "{len} cells instead of {expected_len}: truncated? `habitat-tui collect` with the same arguments continues from there; or delete the line"
                ),
                _ => error.to_string(),
            })
        })?;
        match (Line { headings: &headings, record: &record }).read(&found.gpu).map_err(problem)? {
            Reading::PassedOver(reason) => *found.passed_over.entry(reason).or_default() += 1,
            Reading::Row(row, place) => {
                if let Some((field, what)) = row.operation.beyond() {
                    return Err(problem(format!("{field}: {what}")));
                }
                if found.rows.len() + found.others.len() >= operator_tables::MOST_ROWS {
                    return Err(problem(format!("more than {} rows; split the file", operator_tables::MOST_ROWS)));
                }
                match place {
                    Ok(table) => found.rows.push((table, *row)),
                    Err(reason) => {
                        *found.passed_over.entry(reason).or_default() += 1;
                        found.others.push(*row);
                    }
                }
            }
        }
    }
    Ok(found)
}

/// Content of a line.
enum Reading {
    /// A measured operator with its table, or the reason why it has none.
    Row(Box<Row>, Result<&'static str, String>),
    /// A skipped line with the reason.
    PassedOver(String),
}

struct Line<'a> {
    headings: &'a StringRecord,
    record: &'a StringRecord,
}

impl Line<'_> {
    fn text(&self, key: &str) -> Result<&str, String> {
        let place = self.headings.iter().position(|heading| heading == key);
        place.and_then(|place| self.record.get(place)).ok_or_else(|| format!("column {key} is missing"))
    }

    fn read(&self, gpu: &GpuSlug) -> Result<Reading, String> {
        match self.text("status")? {
            "ok" => {}
            other => {
                let why = habitat_base::text::clean(&other.replace('_', " "), 30);
                return Ok(Reading::PassedOver(format!("not timed: {why}")));
            }
        }
        if let Ok(device) = self.text("device")
            && device != "cuda"
        {
            return Err(format!("device: {:?}; delete rows measured on a CPU", habitat_base::text::clean(device, 20)));
        }
        let latency = self.text("latency_us")?;
        let time = latency
            .parse::<f64>()
            .ok()
            .filter(|time| time.is_finite() && *time > 0.0)
            .and_then(|time| Micros::new(time).ok())
            .ok_or_else(|| {
                format!("latency_us: {latency:?}; expected a time above 0 in microseconds: delete the line")
            })?;
        let queued = match self.text("queued")? {
            "1" => true,
            "0" => false,
            other => return Err(format!("queued: {other:?}; expected 0 or 1")),
        };
        if !queued {
            return Ok(Reading::PassedOver("bound by kernel launches of the host".to_owned()));
        }
        let (dtype, precision) = match self.text("dtype")? {
            "fp32" => (DType::Float32, None),
            "tf32" => (DType::Float32, Some(Precision::Tf32)),
            "bf16" => (DType::Bfloat16, None),
            "fp16" => (DType::Float16, None),
            other => return Err(format!("dtype: {other:?} is not fp32, tf32, bf16 or fp16")),
        };
        let (op, pass, config) = (self.text("op")?, self.text("pass")?, Config(self.text("config")?));
        let no_model =
            || format!("no model for {} {}", habitat_base::text::clean(op, 30), habitat_base::text::clean(pass, 10));
        let (table, mut operation) = match operation(op, pass, &config)? {
            Some((table, operation)) => (Ok(table), operation),
            None => match other(op, pass, &config)? {
                Some(operation) => (Err(no_model()), operation),
                None => return Ok(Reading::PassedOver(no_model())),
            },
        };
        operation.dtype = Some(dtype);
        if pass != "fwd" {
            operation.phase = Phase::Backward;
        }
        let kernel = operator_tables::kernel("", time);
        let gpu = gpu.clone();
        let row = Row { operation, precision, gpu, time, kernel, split: Split::Other, queued: true };
        Ok(Reading::Row(Box::new(row), table))
    }
}

#[cfg(test)]
mod tests;
