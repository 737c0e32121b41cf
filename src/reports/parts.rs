//! Parts of a plan as a table, in words and as JSON.

use std::ops::Add;

use schemars::JsonSchema;
use serde::Serialize;

use super::format;
use super::offers::{TRUST, TrustJson, trust_cells};
use super::table::{Cell, Column, Table};
use super::words::Note;
use habitat_base::units::{GpuSlug, Hours, KilogramsCo2e, KilowattHours, Range, Usd};
use habitat_planning::plan::{ByUse, Contract, Footprint, Part, Use};
use habitat_planning::pricing::Billing;

/// One part of a plan.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PartJson<'a> {
    /// Name of the offer.
    pub offer: &'a str,
    /// Provider.
    pub provider: &'a str,
    /// Region.
    pub region: &'a str,
    /// Instance type.
    pub instance_type: &'a str,
    /// Slug of the GPU.
    pub gpu: &'a str,
    /// Total number of GPUs.
    pub gpu_count: u32,
    /// Machines.
    pub nodes: u32,
    /// Training state divided among the GPUs: `none`, `zero1` (optimizer state), `zero2` (also gradients) or `zero3`
    /// (also parameters).
    pub sharding: &'static str,
    /// GPUs that divide each layer; absent if layers are not divided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensor_parallel: Option<u32>,
    /// Pipeline stages; absent if there is only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pipeline_parallel: Option<u32>,
    /// Chunks of layers on each stage; absent if there is only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_stages: Option<u32>,
    /// GPUs that share each sequence; absent if sequences are whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_parallel: Option<u32>,
    /// GPUs that divide the experts of each layer; absent if each GPU has all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expert_parallel: Option<u32>,
    /// `full` if the backward pass computes whole layers again, which the recorded step does not; else absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recompute: Option<&'static str>,
    /// `on-demand`, `spot`, `reserved` or `owned`.
    pub tier: String,
    /// Samples per step on one GPU, or per micro-batch of one replica; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<u64>,
    /// Batches that each GPU or replica runs per optimizer step.
    pub accumulation: u64,
    /// Samples per optimizer step on all GPUs; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global_batch_size: Option<u64>,
    /// Samples to process; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<f64>,
    /// Steps of one GPU, if the number of samples is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<f64>,
    /// Steps of all GPUs together; in training each updates the weights.
    pub updates: f64,
    /// Time of one optimizer step on all GPUs.
    pub step_time_us: Range<f64>,
    /// Elapsed hours.
    pub hours: Range<f64>,
    /// Cost.
    pub cost_usd: Range<f64>,
    /// Breakdown of the hours; the entries add up to them.
    pub hours_by: UsesJson,
    /// Breakdown of the cost; the entries add up to it.
    pub cost_by_usd: UsesJson,
    /// Price of all machines per hour.
    pub price_usd_per_hour: f64,
    /// Date of the price; absent if the source has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price_as_of: Option<String>,
    /// `hour` if each started hour is billed, `term` if whole terms of a contract are paid; absent if only the time
    /// used is billed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub billing: Option<&'static str>,
    /// Terms of a contract to buy; absent without a contract.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contract: Option<Contract>,
    /// One-time cost of transferring the data, part of the cost; absent if free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_cost_usd: Option<f64>,
    /// Storage price of the data per elapsed hour, part of the cost; absent if free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_usd_per_hour: Option<f64>,
    /// Energy, in kWh; absent if the power is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy_kwh: Option<Range<f64>>,
    /// Emissions, in kg of CO2 equivalent; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub co2_kg: Option<Range<f64>>,
    /// Trustworthiness of the price.
    #[serde(flatten)]
    pub trust: TrustJson,
    /// Notes on the figures.
    pub notes: Vec<Note>,
}

/// Hours or dollars by use; uses without any are absent.
#[derive(Debug, Serialize, JsonSchema)]
pub struct UsesJson {
    /// Start-up before the first step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup: Option<Range<f64>>,
    /// Training steps, each counted once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub training: Option<Range<f64>>,
    /// Writing checkpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<Range<f64>>,
    /// Steps repeated after losses of spot machines, and restarts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeated: Option<Range<f64>>,
    /// Waiting for another spot machine after a loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Range<f64>>,
    /// Paid but unused time of started hours or of a contract's term.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unused: Option<Range<f64>>,
    /// Storing the data at the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<Range<f64>>,
    /// Copying the data once, before the first step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Range<f64>>,
}

impl UsesJson {
    pub(super) fn new<T: Copy + Default + PartialEq + Add<Output = T> + Into<f64>>(by: &ByUse<T>) -> Self {
        let of = |what| Some(by.of(what)).filter(|taken| *taken != Range::default()).map(|taken| taken.map(Into::into));
        Self {
            setup: of(Use::Setup),
            training: of(Use::Training),
            checkpoints: of(Use::Checkpoints),
            repeated: of(Use::Repeated),
            waiting: of(Use::Waiting),
            unused: of(Use::Unused),
            storage: of(Use::Storage),
            data: of(Use::Data),
        }
    }
}

pub(super) fn part(part: &Part) -> PartJson<'_> {
    PartJson {
        offer: part.offer.id.as_str(),
        provider: &part.offer.provider,
        region: &part.offer.region,
        instance_type: &part.offer.instance_type,
        gpu: part.gpu.as_str(),
        gpu_count: part.all_gpus(),
        nodes: part.machines,
        sharding: part.sharding.name(),
        tensor_parallel: Some(part.parallel.tensor).filter(|gpus| *gpus > 1),
        pipeline_parallel: Some(part.parallel.pipeline).filter(|stages| *stages > 1),
        virtual_stages: Some(part.parallel.chunks).filter(|chunks| *chunks > 1),
        context_parallel: Some(part.parallel.context).filter(|gpus| *gpus > 1),
        expert_parallel: Some(part.parallel.expert).filter(|gpus| *gpus > 1),
        recompute: part.parallel.recompute.then_some("full"),
        tier: part.offer.tier.to_string(),
        batch_size: part.batch_size,
        accumulation: part.accumulation,
        global_batch_size: part.global_batch_size,
        samples: part.work.samples(),
        steps: part.work.steps(),
        updates: part.updates(),
        step_time_us: part.step_time_us,
        hours: part.hours.map(Hours::get),
        cost_usd: part.cost.map(Usd::get),
        hours_by: UsesJson::new(&part.hours_by),
        cost_by_usd: UsesJson::new(&part.cost_by),
        price_usd_per_hour: part.price().get(),
        price_as_of: part.offer.as_of.map(|date| date.to_string()),
        billing: match part.billing {
            Billing::Exact => None,
            Billing::Hour => Some("hour"),
            Billing::Term(_) => Some("term"),
        },
        contract: part.contract(),
        data_cost_usd: Some(part.data_cost.get()).filter(|cost| *cost > 0.0),
        storage_usd_per_hour: Some(part.storage.get()).filter(|price| *price > 0.0),
        energy_kwh: part.footprint.energy.map(|energy| energy.map(KilowattHours::get)),
        co2_kg: part.footprint.emissions.map(|emitted| emitted.map(KilogramsCo2e::get)),
        trust: TrustJson::new(&part.offer.trust),
        notes: Note::all(&part.notes),
    }
}

/// The GPUs of a part: `8 × t4`, or `2 × 8 × t4` on two machines.
pub fn gpu_words(part: &Part) -> String {
    machine_words(part.machines, part.all_gpus(), &part.gpu)
}

/// Words for GPUs of all machines.
pub fn machine_words(machines: u32, all_gpus: u32, gpu: &GpuSlug) -> String {
    if machines > 1 {
        format!("{machines} × {} × {gpu}", all_gpus / machines)
    } else {
        format!("{all_gpus} × {gpu}")
    }
}

/// A row for each part or alternative.
pub(crate) fn table(parts: &[Part]) -> Table {
    let columns = [
        Column::text("offer", "offer").or_below(),
        Column::text("GPUs", "gpus"),
        Column::number("step", "step_time_us").dropped(8),
        Column::number("hours", "hours"),
        Column::number("cost", "cost_usd"),
        Column::number("price", "price_usd_per_hour").dropped(2),
        Column::text("as of", "price_as_of").dropped(9),
    ];
    // For programs; people read the batches below the table ([`batch_words`]).
    let batch = [
        Column::number("", "batch_size"),
        Column::number("", "accumulation"),
        Column::number("", "global_batch_size"),
        Column::number("", "updates"),
        Column::number("", "nodes"),
        Column::text("", "sharding"),
        Column::number("", "tensor_parallel"),
        Column::number("", "pipeline_parallel"),
        Column::number("", "virtual_stages"),
        Column::number("", "context_parallel"),
        Column::number("", "expert_parallel"),
        Column::text("", "recompute"),
    ];
    let contract = [Column::number("", "term_hours"), Column::number("", "terms"), Column::number("", "idle_hours")];
    let taken = [Column::number("", "energy_kwh"), Column::number("", "co2_kg")];
    let mut table = Table::new(&[&columns[..], &TRUST, &batch, &contract, &taken].concat());
    for part in parts {
        let mut row = vec![
            Cell::text(&part.offer.id),
            Cell::text(gpu_words(part)),
            Cell::new(format::time(habitat_base::units::Micros::known(part.step_time_us.mid)), part.step_time_us.mid),
            Cell::new(format::hours_with_range(&part.hours), part.hours.mid.get()),
            Cell::new(format::usd_with_range(&part.cost), part.cost.mid.get()),
            Cell::new(format::price(part.price()), part.price().get()),
            Cell::maybe(part.offer.as_of, Cell::text),
        ];
        row.extend(trust_cells(&part.offer.trust));
        row.extend([
            Cell::maybe(part.batch_size, Cell::text),
            Cell::text(part.accumulation),
            Cell::maybe(part.global_batch_size, Cell::text),
            Cell::text(part.updates()),
            Cell::text(part.machines),
            Cell::text(part.sharding.name()),
            Cell::text(part.parallel.tensor),
            Cell::text(part.parallel.pipeline),
            Cell::text(part.parallel.chunks),
            Cell::text(part.parallel.context),
            Cell::text(part.parallel.expert),
            Cell::text(if part.parallel.recompute { "full" } else { "" }),
        ]);
        let contract = part.contract();
        row.extend([
            Cell::maybe(contract.map(|of| of.term_hours), Cell::text),
            Cell::maybe(contract.map(|of| of.terms), Cell::text),
            Cell::maybe(contract.map(|of| of.idle_hours), Cell::text),
            Cell::maybe(part.footprint.energy.map(|energy| energy.mid.get()), Cell::text),
            Cell::maybe(part.footprint.emissions.map(|emitted| emitted.mid.get()), Cell::text),
        ]);
        table.push(row);
    }
    table
}

/// Energy and emissions: `12.3 kWh (10.1–20), 4.9 kg CO2e (4–8)`.
pub fn footprint_words(footprint: &Footprint) -> String {
    let words = |range: Option<Range<f64>>, unit: &str, what: &str| {
        range.map_or_else(
            || format!("{what} unknown"),
            |Range { low, mid, high }| {
                let [low, mid, high] = [low, mid, high].map(format::number);
                if low == high { format!("{mid} {unit}") } else { format!("{mid} {unit} ({low}–{high})") }
            },
        )
    };
    let energy = footprint.energy.map(|energy| energy.map(KilowattHours::get));
    let emitted = footprint.emissions.map(|emitted| emitted.map(KilogramsCo2e::get));
    format!("{}, {}", words(energy, "kWh", "energy"), words(emitted, "kg CO2e", "emissions"))
}

/// Batch sizes of a part: `32 samples per GPU × 8 GPUs × 4 accumulated = 1,024; 100,000 steps`.
pub fn batch_words(part: &Part) -> Option<String> {
    let (own, all) = (part.batch_size?, part.global_batch_size?);
    let [own, all, batches] = [own, all, part.accumulation].map(|batch| format::grouped(batch as f64));
    let word = if part.parallel.is_none() { "GPU" } else { "replica" };
    let samples = if part.batch_size == Some(1) { "sample" } else { "samples" };
    let mut words = format!("{own} {samples} per {word}");
    if part.replicas() > 1 {
        words = format!("{words} × {} {word}s", part.replicas());
    }
    if part.accumulation > 1 {
        words = format!("{words} × {batches} accumulated");
    }
    if part.replicas() > 1 || part.accumulation > 1 {
        words = format!("{words} = {all}");
    }
    Some(format!("{words}; {} steps", format::grouped(part.updates())))
}
