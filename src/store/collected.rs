//! Operators measured with `habitat-tui collect`: format `habitat-operator-measurements`,
//! version 1 (`profiler/collect/README.md`), one file a GPU.
//!
//! The tables that `record_gpu` writes (`ops.csv`, with `device.json` beside) have the same
//! kinds of columns and are read as well; they are told by their headings.
//!
//! Times are of the device alone where a row says that its calls were queued. Rows that were
//! not, that were skipped or failed, and what no operator of ours stands for are counted and
//! passed over.

use std::collections::BTreeMap;
use std::path::Path;

use csv::StringRecord;
use serde::Deserialize;

use super::files::{Limit, StoreError, beginning, read_text};
use super::operator_tables::{self, Row, Split};
use crate::catalog::{Catalog, DeviceIdentity};
use crate::op::Name;
use crate::profile::{Attribute, DType, Operation, Phase, Precision};
use crate::units::{GpuSlug, Micros};

/// The format's name.
const FORMAT: &str = "habitat-operator-measurements";
/// Its version.
const VERSION: u32 = 1;
/// Headings of `record_gpu`'s table that no other has.
const RECORD_GPU: [&str; 3] = ["first_call_like_us", "config", "queued"];

/// What a file holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Collected {
    /// The GPU of all rows.
    pub gpu: GpuSlug,
    /// Measured operators, with the table (`linear`, `conv2d` …) they belong to.
    pub rows: Vec<(&'static str, Row)>,
    /// Rows passed over, by the reason.
    pub passed_over: BTreeMap<String, usize>,
}

/// What the first line says of the device.
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

/// `device.json`, as far as it matters.
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

/// Whether a file is a collection, by its beginning.
///
/// # Errors
/// [`StoreError`] where it cannot be read.
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
/// [`StoreError`] with the file, the line, the value and the remedy: another version, rows of
/// a processor, a GPU that the catalog lacks, a number that is none.
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
    let shown = |text: &str| crate::text::clean(text, 40);
    if format != FORMAT {
        return Err(format!(
            "{:?} is not a collection of `habitat-tui collect` (# {FORMAT} {VERSION} …)",
            shown(format)
        ));
    }
    if version.parse() != Ok(VERSION) {
        return Err(format!("{FORMAT} {}: this program reads version {VERSION}", shown(version)));
    }
    serde_json::from_str(json).map_err(|error| format!("what it says of the device: {error}"))
}

fn of_head(head: Head, catalog: &Catalog) -> Result<GpuSlug, String> {
    if head.device != "cuda" {
        return Err(format!(
            "measured on {:?}: such rows check the program and teach nothing of GPUs; collect on a machine with one",
            crate::text::clean(&head.device, 20)
        ));
    }
    if head.tiny {
        return Err("made with --tiny: such rows check the program; collect again without".to_owned());
    }
    if let Some(name) = &head.gpu {
        return match catalog.named(name)[..] {
            [gpu] => Ok(gpu.slug.clone()),
            [] => catalog.find(name).map(|gpu| gpu.slug.clone()).map_err(|error| error.to_string()),
            ref several => {
                let slugs: Vec<&str> = several.iter().map(|gpu| gpu.slug.as_str()).collect();
                let name = crate::text::clean(name, 60);
                Err(format!("several GPUs are called {name:?}; write one of {}", slugs.join(", ")))
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
            "the catalog has no entry for {:?} ({} SMs); add one (`habitat-tui gpus --toml SLUG` prints one to start from), or write \"gpu\": \"SLUG\" into this line",
            crate::text::clean(&identity.name, 60),
            identity.sm_count.map_or_else(|| "?".to_owned(), |count| count.to_string())
        )
    })
}

fn rows(text: &str, first: usize, gpu: GpuSlug) -> Result<Collected, String> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let headings = reader.headers().map_err(|error| error.to_string())?.clone();
    let mut found = Collected { gpu, rows: Vec::new(), passed_over: BTreeMap::new() };
    for (index, record) in reader.records().enumerate() {
        let problem = |what: String| format!("line {}: {what}", index + first + 1);
        let record = record.map_err(|error| {
            problem(match error.kind() {
                csv::ErrorKind::UnequalLengths { len, expected_len, .. } => format!(
                    "{len} cells in place of {expected_len}: cut off? `habitat-tui collect` with the same arguments goes on from there; or delete the line"
                ),
                _ => error.to_string(),
            })
        })?;
        match (Line { headings: &headings, record: &record }).read(&found.gpu).map_err(problem)? {
            Ok(row) => {
                if let Some((field, what)) = row.1.operation.beyond() {
                    return Err(problem(format!("{field}: {what}")));
                }
                if found.rows.len() >= operator_tables::MOST_ROWS {
                    return Err(problem(format!("more than {} rows; divide the file", operator_tables::MOST_ROWS)));
                }
                found.rows.push(row);
            }
            Err(reason) => *found.passed_over.entry(reason).or_default() += 1,
        }
    }
    Ok(found)
}

struct Line<'a> {
    headings: &'a StringRecord,
    record: &'a StringRecord,
}

/// `key=value;key=value`.
struct Config<'a>(&'a str);

impl Config<'_> {
    fn text(&self, key: &str) -> Option<&str> {
        self.0.split(';').find_map(|pair| pair.split_once('=').filter(|(name, _)| *name == key).map(|(_, value)| value))
    }

    /// A size of 1 or more.
    fn size(&self, key: &str) -> Result<u64, String> {
        let value = self.text(key).ok_or_else(|| format!("config: {key} is missing in {:?}", self.0))?;
        let number = value.parse().ok().filter(|&number: &u64| number > 0 && number < 1 << 40);
        number.ok_or_else(|| format!("config: {key}={value}: a whole number above 0 is expected"))
    }

    /// A number that may be 0, and is where it is not said.
    fn count(&self, key: &str) -> Result<u64, String> {
        match self.text(key) {
            None | Some("0" | "None") => Ok(0),
            Some(_) => self.size(key),
        }
    }
}

impl Line<'_> {
    fn text(&self, key: &str) -> Result<&str, String> {
        let place = self.headings.iter().position(|heading| heading == key);
        place.and_then(|place| self.record.get(place)).ok_or_else(|| format!("column {key} is missing"))
    }

    /// A row, or why it is passed over.
    fn read(&self, gpu: &GpuSlug) -> Result<Result<(&'static str, Row), String>, String> {
        match self.text("status")? {
            "ok" => {}
            other => return Ok(Err(format!("not timed: {}", crate::text::clean(&other.replace('_', " "), 30)))),
        }
        if let Ok(device) = self.text("device")
            && device != "cuda"
        {
            return Err(format!(
                "device: {:?}; rows of a processor teach nothing of GPUs: delete them",
                crate::text::clean(device, 20)
            ));
        }
        let latency = self.text("latency_us")?;
        let time = latency
            .parse::<f64>()
            .ok()
            .filter(|time| time.is_finite() && *time > 0.0)
            .and_then(|time| Micros::new(time).ok())
            .ok_or_else(|| {
                format!("latency_us: {latency:?}; a time above 0 in microseconds is expected: delete the line")
            })?;
        let queued = match self.text("queued")? {
            "1" => true,
            "0" => false,
            other => return Err(format!("queued: {other:?}; 0 or 1 is expected")),
        };
        if !queued {
            return Ok(Err("bound by the host's launches".to_owned()));
        }
        let (dtype, precision) = match self.text("dtype")? {
            "fp32" => (DType::Float32, None),
            "tf32" => (DType::Float32, Some(Precision::Tf32)),
            "bf16" => (DType::Bfloat16, None),
            "fp16" => (DType::Float16, None),
            other => return Err(format!("dtype: {other:?} is none of fp32, tf32, bf16, fp16")),
        };
        let (op, pass) = (self.text("op")?, self.text("pass")?);
        let Some((table, mut operation)) = operation(op, pass, &Config(self.text("config")?))? else {
            return Ok(Err(format!("no model for {} {}", crate::text::clean(op, 30), crate::text::clean(pass, 10))));
        };
        operation.dtype = Some(dtype);
        let kernel = operator_tables::kernel("", time);
        let gpu = gpu.clone();
        Ok(Ok((table, Row { operation, precision, gpu, time, kernel, split: Split::Other, queued: true })))
    }
}

/// What was run; `None` where no model answers for it.
fn operation(op: &str, pass: &str, config: &Config<'_>) -> Result<Option<(&'static str, Operation)>, String> {
    let size = |key: &str| config.size(key);
    let forward = pass == "fwd";
    Ok(Some(match op {
        "linear" => {
            let (b, k, n) = (size("b")?, size("k")?, size("n")?);
            let operation = match pass {
                "fwd" => of("aten::linear", vec![vec![b, k], vec![n, k]], Vec::new()),
                "dgrad" => of("aten::mm", vec![vec![b, n], vec![n, k]], vec![vec![b, k]]),
                "wgrad" => of("aten::mm", vec![vec![n, b], vec![b, k]], vec![vec![n, k]]),
                _ => return Ok(None),
            };
            ("linear", operation)
        }
        "bmm" if forward => {
            let (b, m, k, n) = (size("b")?, size("m")?, size("k")?, size("n")?);
            ("bmm", of("aten::bmm", vec![vec![b, m, k], vec![b, k, n]], vec![vec![b, m, n]]))
        }
        "conv2d" | "conv2d_depthwise" => match convolution(pass, config)? {
            Some(operation) => ("conv2d", operation),
            None => return Ok(None),
        },
        "softmax" | "layer_norm" => {
            let shape = vec![size("rows")?, size("cols")?];
            let (table, name, backward) = if op == "softmax" {
                ("softmax", "aten::softmax", "aten::_softmax_backward_data")
            } else {
                ("layernorm", "aten::layer_norm", "aten::native_layer_norm_backward")
            };
            match pass {
                "fwd" => (table, of(name, vec![shape.clone()], vec![shape])),
                "bwd" => (table, of(backward, vec![shape.clone(), shape.clone()], vec![shape])),
                _ => return Ok(None),
            }
        }
        "batch_norm" | "group_norm" => {
            let height = size("h")?;
            let width = if config.text("w").is_some() { size("w")? } else { height };
            let shape = vec![size("n")?, size("c")?, height, width];
            let name = format!("aten::{op}{}", if forward { "" } else { "_backward" });
            let inputs = if forward { vec![shape.clone()] } else { vec![shape.clone(), shape.clone()] };
            ("elementwise", of(&name, inputs, vec![shape]))
        }
        "elementwise" => {
            let shape = vec![size("n")?];
            let function = config.text("fn").unwrap_or_default();
            if !["add", "mul", "relu", "gelu", "tanh", "silu"].contains(&function) {
                return Ok(None);
            }
            let two = matches!(function, "add" | "mul") || !forward;
            let inputs = if two { vec![shape.clone(), shape.clone()] } else { vec![shape.clone()] };
            let name = format!("aten::{function}{}", if forward { "" } else { "_backward" });
            ("elementwise", of(&name, inputs, vec![shape]))
        }
        // LSTM and fused attention are several kernels or answered by rules; the rest is of
        // other programs.
        _ => return Ok(None),
    }))
}

fn convolution(pass: &str, config: &Config<'_>) -> Result<Option<Operation>, String> {
    // Other layouts choose other kernels, and transposed ones are other work.
    if config.text("layout").is_some_and(|layout| layout != "nchw") || config.count("transposed")? != 0 {
        return Ok(None);
    }
    let size = |key: &str| config.size(key);
    let (batch, inside, outside) = (size("b")?, size("cin")?, size("cout")?);
    let (image, kernel, stride, padding) = (size("h")?, size("kernel")?, size("stride")?, config.count("pad")?);
    let groups = config.count("groups")?.max(1);
    if inside % groups != 0 || image + 2 * padding < kernel {
        return Err(format!("config: {}: such a convolution does not exist", crate::text::clean(config.0, 100)));
    }
    let places = (image + 2 * padding - kernel) / stride + 1;
    let (input, weight) = (vec![batch, inside, image, image], vec![outside, inside / groups, kernel, kernel]);
    let output = vec![batch, outside, places, places];
    let mut operation = match pass {
        "fwd" => of("aten::conv2d", vec![input, weight], vec![output]),
        "dgrad" => of("aten::convolution_backward", vec![output, input.clone(), weight], vec![input]),
        "wgrad" => of("aten::convolution_backward", vec![output, input, weight.clone()], vec![weight]),
        _ => return Ok(None),
    };
    for (key, value) in [("stride", stride), ("padding", padding)] {
        operation.attributes.insert(key.to_owned(), Attribute::List(vec![Attribute::Int(value as i64); 2]));
    }
    if pass != "fwd" {
        let mask = [pass == "dgrad", pass == "wgrad", false].map(Attribute::Bool).to_vec();
        operation.attributes.insert("output_mask".to_owned(), Attribute::List(mask));
    }
    Ok(Some(operation))
}

fn of(name: &str, inputs: Vec<Vec<u64>>, outputs: Vec<Vec<u64>>) -> Operation {
    let phase = if Name::of(name).pass.is_backward() { Phase::Backward } else { Phase::Forward };
    Operation { phase, outputs, ..operator_tables::forward(name, inputs, Vec::new()) }
}

#[cfg(test)]
mod tests;
