//! Predictions as a table and as JSON (`habitat-predictions`, version 2).

use std::io::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;

use super::offers::{TRUST, TrustJson, trust_cells};
use super::table::{Cell, Column, Table};
use super::words::{self, Note, Words, joined};
use super::{format, memory};
use habitat_base::text;
use habitat_base::units::{Bytes, Micros, OpenRange, Range, SamplesPerSecond};
use habitat_planning::plan::value::{Value, firm_or_best};
use habitat_planning::pricing::PriceBook;
use habitat_prediction::{Fits, Prediction, Predictions};
use habitat_step::profile::{Origin, Workload};

/// Output of `predict --json`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "habitat-tui predictions")]
pub struct PredictionsJson<'a> {
    /// Always `habitat-predictions`.
    pub format: &'static str,
    /// Version of the format, 2.
    pub version: u32,
    /// The workload.
    pub workload: &'a Workload,
    /// Origin of the measurement; absent if the step was not measured or the measurement is ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<&'a Origin>,
    /// Whether the steps include waiting for the host: `as-recorded` or `keeps-up`.
    pub host: &'static str,
    /// Warnings that concern any of the times; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Note>,
    /// Notes on all predictions.
    pub notes: Vec<Note>,
    /// One entry per GPU.
    pub predictions: Vec<PredictionJson<'a>>,
}

/// The step on one GPU.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PredictionJson<'a> {
    /// Slug of the GPU.
    pub gpu: &'a str,
    /// Name of the board.
    pub gpu_name: &'a str,
    /// Time of one step on one GPU.
    pub step_time_us: Range<f64>,
    /// Method: `measured` if recorded on this GPU; `derived` if recorded on it, minus the communication with other
    /// ranks or the waiting for the host; otherwise predicted.
    pub method: &'static str,
    /// Time per step in which the device waits for the host, its data included; 0 if the host keeps up.
    pub host_idle_us: f64,
    /// Part of it in which it waits for its data.
    pub data_wait_us: f64,
    /// Work of the device in the step, without any wait.
    pub device_us: f64,
    /// Throughput; absent if the batch size is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throughput_samples_per_s: Option<OpenRange<f64>>,
    /// Samples per dollar at that offer, on one GPU; absent without a known offer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples_per_usd: Option<OpenRange<f64>>,
    /// Cheapest on-demand offer by price per GPU: of those at a firm price, otherwise of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cheapest_offer: Option<CheapestJson<'a>>,
    /// `yes`, `no` or `unknown`.
    #[schemars(with = "String")]
    pub fits_in_memory: Fits,
    /// Memory that the driver shows: tensors, the allocator's reserve, the process; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<f64>,
    /// Peak of the tensors alone; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated_bytes: Option<f64>,
    /// Reason.
    pub memory_reason: String,
    /// Share of the device time for each method.
    pub methods: Vec<MethodJson>,
    /// Warnings on the time on this GPU; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Note>,
    /// Doubts and fallbacks.
    pub notes: Vec<Note>,
    /// Each operation, with `--operations`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<Vec<OperationJson<'a>>>,
}

/// Cheapest offer of a GPU.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CheapestJson<'a> {
    /// Name of the offer.
    pub offer: &'a str,
    /// Price of the offer divided by its number of GPUs.
    pub usd_per_gpu_hour: f64,
    /// Date of the price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_of: Option<String>,
    /// Trustworthiness of the price.
    #[serde(flatten)]
    pub trust: TrustJson,
}

/// Device time predicted by one method.
#[derive(Debug, Serialize, JsonSchema)]
pub struct MethodJson {
    /// The method.
    pub method: &'static str,
    /// Device time per step from this method.
    pub device_time_us: f64,
    /// Share of the device time, 0 to 1.
    pub share: f64,
}

/// One operation.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OperationJson<'a> {
    /// Index in the profile.
    pub index: usize,
    /// Operator.
    pub name: &'a str,
    /// Phase of the step.
    pub phase: &'static str,
    /// Occurrences.
    pub count: u32,
    /// Device time of one occurrence; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_time_us: Option<Range<f64>>,
    /// Method of the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<&'static str>,
    /// Measured time of one occurrence on the origin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin_device_time_us: Option<f64>,
    /// Reason for this method.
    pub why: &'a str,
}

/// Builds the JSON form; `operations` adds the operations of every GPU.
pub fn json<'a>(predictions: &'a Predictions, prices: &'a PriceBook, operations: bool) -> PredictionsJson<'a> {
    PredictionsJson {
        format: "habitat-predictions",
        version: 2,
        workload: &predictions.workload,
        origin: predictions.origin.as_ref(),
        host: predictions.host.name(),
        warnings: Note::all(&predictions.warnings()),
        notes: Note::all(&predictions.notes),
        predictions: predictions.predictions.iter().map(|prediction| one(prediction, prices, operations)).collect(),
    }
}

fn one<'a>(prediction: &'a Prediction, prices: &'a PriceBook, operations: bool) -> PredictionJson<'a> {
    let step = prediction.step.as_estimate();
    let value = firm_or_best(prediction, prices);
    PredictionJson {
        gpu: prediction.gpu.slug.as_str(),
        gpu_name: &prediction.gpu.name,
        step_time_us: step.range.map(Micros::get),
        method: step.method.name(),
        host_idle_us: prediction.host_idle.get(),
        data_wait_us: prediction.data_wait().get(),
        device_us: prediction.device.get(),
        throughput_samples_per_s: prediction.throughput.map(|rate| rate.map_open(SamplesPerSecond::get)),
        samples_per_usd: value.as_ref().and_then(|value| value.samples_per_usd),
        cheapest_offer: value.as_ref().map(|value| CheapestJson {
            offer: value.offer.id.as_str(),
            usd_per_gpu_hour: value.price_per_gpu.get(),
            as_of: value.offer.as_of.map(|date| date.to_string()),
            trust: TrustJson::new(&value.offer.trust),
        }),
        fits_in_memory: prediction.memory.fits,
        memory_bytes: prediction.memory.needed.map(Bytes::get),
        allocated_bytes: prediction.memory.allocated.map(Bytes::get),
        memory_reason: prediction.memory.basis.words(),
        methods: prediction
            .shares
            .iter()
            .map(|share| MethodJson {
                method: share.method.name(),
                device_time_us: share.device_time.get(),
                share: share.share,
            })
            .collect(),
        warnings: Note::all(&prediction.warnings),
        notes: Note::all(&prediction.notes),
        operations: operations.then(|| {
            prediction
                .operations
                .iter()
                .map(|operation| OperationJson {
                    index: operation.index,
                    name: &operation.name,
                    phase: operation.phase.name(),
                    count: operation.count,
                    device_time_us: operation.time.map(|time| time.range.map(Micros::get)),
                    method: operation.time.as_ref().map(|time| time.method.name()),
                    origin_device_time_us: operation.origin_time.map(habitat_base::units::Micros::get),
                    why: &operation.why,
                })
                .collect()
        }),
    }
}

/// Writes each warning on its own line, above the figures it concerns.
///
/// # Errors
/// Write errors of `out`.
pub fn write_warnings(warnings: &[impl Words], out: &mut dyn Write) -> io::Result<()> {
    for warning in words::all(warnings) {
        writeln!(out, "warning: {warning}\n")?;
    }
    Ok(())
}

/// A row for each GPU.
pub fn table(predictions: &Predictions, prices: &PriceBook) -> Table {
    let columns = [
        Column::text("GPU", "gpu").cut_to(26),
        Column::number("step", "step_time_us_mid"),
        Column::number("low–high", "").dropped(1),
        Column::number("", "step_time_us_low"),
        Column::number("", "step_time_us_high"),
        Column::text("method", "method").dropped(5).cut_to(8),
        Column::number("samples/s", "throughput_samples_per_s_mid").dropped(4),
        Column::number("$/GPU-h", "usd_per_gpu_hour").dropped(2),
        Column::number("samples/$", "samples_per_usd_mid").dropped(2),
        Column::text("fits", "fits_in_memory").dropped(1),
        Column::text("", "memory_reason"),
        Column::text("on-demand offer", "cheapest_offer").dropped(6).cut_to(24),
    ];
    let last = [Column::text("", "warnings"), Column::text("", "notes")];
    let mut table = Table::new(&[&columns[..], &TRUST, &last].concat());
    let values: Vec<_> = predictions.predictions.iter().map(|prediction| firm_or_best(prediction, prices)).collect();
    let is_doubted = |value: &Value<'_>| !value.offer.trust.is_firm();
    let is_any_doubted = values.iter().flatten().any(is_doubted);
    for (prediction, value) in predictions.predictions.iter().zip(&values) {
        let step = prediction.step.as_estimate();
        let known = Some(step.range).filter(|range| range.mid.get() > 0.0);
        let range = if prediction.step.is_measured() && step.range.low == step.range.high {
            "measured".to_owned()
        } else {
            format::time_range(step.range.low, step.range.high)
        };
        let mut row = vec![
            Cell::text(&prediction.gpu.slug),
            Cell::maybe(known, |known| Cell::new(format::time(known.mid), known.mid.get())),
            Cell::maybe(known, |_| Cell::text(range)),
            Cell::maybe(known, |known| Cell::text(known.low.get())),
            Cell::maybe(known, |known| Cell::text(known.high.get())),
            Cell::text(step.method),
            Cell::maybe(prediction.throughput.as_ref(), |rate| {
                Cell::new(format::number(rate.mid.get()), rate.mid.get())
            }),
            Cell::maybe(value.as_ref(), |value| {
                let mark = match (is_doubted(value), is_any_doubted) {
                    (true, _) => "?",
                    (false, true) => " ",
                    (false, false) => "",
                };
                Cell::new(format!("{:.2}{mark}", value.price_per_gpu.get()), value.price_per_gpu.get())
            }),
            Cell::maybe(value.as_ref().and_then(|value| value.samples_per_usd), |per_usd| {
                Cell::new(format::grouped(per_usd.mid), per_usd.mid)
            }),
            memory::micro_batch(&prediction.memory, &predictions.workload).map_or_else(
                || Cell::text(prediction.memory.fits),
                |most| Cell::new(format!("≤ {most}"), prediction.memory.fits),
            ),
            Cell::text(prediction.memory.basis.words()),
            Cell::maybe(value.as_ref(), |value| Cell::text(&value.offer.id)),
        ];
        let trust = value.as_ref().map(|value| trust_cells(&value.offer.trust));
        row.extend(trust.unwrap_or_else(|| std::array::from_fn(|_| Cell::unknown())));
        row.push(Cell::text(joined(&prediction.warnings, "; ")));
        row.push(Cell::text(joined(&prediction.notes, "; ")));
        table.push(row);
    }
    table
}

/// A row for each operation on one GPU.
pub fn operations_table(prediction: &Prediction) -> Table {
    let mut table = Table::new(&[
        Column::text("", "gpu"),
        Column::text("operation", "operation").cut_to(20),
        Column::text("phase", "phase").dropped(2),
        Column::number("count", "count").dropped(1),
        Column::number("time", "device_time_us_mid"),
        Column::number("", "device_time_us_low"),
        Column::number("", "device_time_us_high"),
        Column::number("on origin", "origin_device_time_us"),
        Column::text("method", "method"),
        Column::text("why", "why").cut_to(12),
    ]);
    for operation in &prediction.operations {
        let time = operation.time.as_ref();
        table.push(vec![
            Cell::text(&prediction.gpu.slug),
            Cell::new(text::clean(&operation.name, 44), text::clean(&operation.name, 512)),
            Cell::text(operation.phase),
            Cell::text(operation.count),
            Cell::maybe(time, |time| Cell::new(format::time(time.range.mid), time.range.mid.get())),
            Cell::maybe(time, |time| Cell::text(time.range.low.get())),
            Cell::maybe(time, |time| Cell::text(time.range.high.get())),
            Cell::maybe(operation.origin_time, |time| Cell::new(format::time(time), time.get())),
            Cell::maybe(time, |time| Cell::text(time.method)),
            Cell::text(&operation.why),
        ]);
    }
    table
}
