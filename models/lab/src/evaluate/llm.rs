//! Published training steps of language models on many GPUs (`steps.csv.gz`), each predicted from the dimensions of the
//! model alone.

mod measured;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use habitat_tui::catalog::{Catalog, GpuSpec};
use habitat_tui::cli::CliError;
use habitat_tui::decoder::{Decoder, Experts, Loss, Recompute, StepOf};
use habitat_tui::predict::learned::Models;
use habitat_tui::predict::memory::Share;
use habitat_tui::predict::scale::{
    Factors, Layout, LayoutFactors, ModelParallel, Network, ScaleError, ScaledStep, optimizer_step,
};
use habitat_tui::predict::{Fits, Options, Precision, Prediction, Sharding, Workload, predict};
use habitat_tui::regress::quantile::median;
use habitat_tui::store::{Limit, bundled, read_text};
use habitat_tui::units::{Bytes, GIB, Micros, Range};
use serde::Deserialize;

use super::tally::{Evaluation, Groups, Predicted};
use crate::models::ModelsByGpu;

/// A measured step; the columns are those of the table.
#[derive(Debug, Deserialize)]
struct Row {
    id: String,
    source: String,
    model: String,
    params: Option<f64>,
    active_params: Option<f64>,
    layers: Option<u32>,
    hidden: Option<u64>,
    heads: Option<u64>,
    kv_heads: Option<u64>,
    head_dim: Option<u64>,
    ffn: Option<u64>,
    vocab: Option<u64>,
    family: String,
    act: String,
    experts: Option<u64>,
    topk: Option<u64>,
    seq: u64,
    gbs: u64,
    mbs: u64,
    gpus: u32,
    gpus_per_node: u32,
    network_gbit_node: Option<f64>,
    gpu: String,
    tp: u32,
    pp: u32,
    vpp: Option<u32>,
    cp: Option<u32>,
    ep: Option<u32>,
    sharding: String,
    recompute: String,
    precision: String,
    attention: String,
    software: String,
    task: String,
    step_s: Option<f64>,
    mem_gib: Option<f64>,
    notes: String,
}

/// Published programs whose element-wise operations are not fused.
const EAGER: [&str; 7] =
    ["llm-foundry", "fms-fsdp", "vtrain-single", "vtrain-multi", "narayanan2021", "korthikanti2022", "mt-nlg"];
/// Sources of NVIDIA's recipes for speed, whose gradients add up in 16 bits (`grad_reduce_in_fp32 = False` in `NeMo` 2.3,
/// `nemo/collections/llm/recipes/llama3_8b.py`).
const NARROW: [&str; 3] = ["nemo", "dgxc-benchmarking", "megatron-bridge"];
/// Sources of `PyTorch`'s own loss; the rest has Megatron-LM's, but for `llm-foundry`, whose default is a fused one
/// (`fused_crossentropy` in `llmfoundry/models/mpt/modeling_mpt.py`).
const PLAIN: [&str; 2] = ["torchtitan", "fms-fsdp"];
/// Network of the machines with a GPU, if the source does not name it, in Gbit/s per GPU: 200 to Ampere, 400 after.
const NETWORK: [f64; 2] = [200.0, 400.0];

impl Row {
    fn decoder(&self) -> Option<Decoder> {
        // Latent attention and shared experts are not in the table.
        if self.experts.is_some_and(|count| count > 1)
            && let Ok(known) = bundled::decoders().find(&self.model)
        {
            return Some(Decoder { layers: self.layers?, ..known });
        }
        let (heads, width) = (self.heads?, self.hidden?);
        let head_size = self.head_dim.unwrap_or(width / heads);
        let experts = self.experts.filter(|count| *count > 1).and_then(|count| {
            Some(Experts { count, chosen: self.topk?, inner: self.ffn?, shared: 0, dense_layers: 0 })
        });
        Some(Decoder {
            name: self.model.clone(),
            layers: self.layers?,
            width,
            heads,
            kv_heads: self.kv_heads.unwrap_or(heads),
            head_size,
            value_size: head_size,
            latent: None,
            inner: self.ffn?,
            is_gated: matches!(self.act.as_str(), "swiglu" | "geglu"),
            vocabulary: self.vocab?,
            is_tied: self.act == "gelu",
            experts,
            window: None,
            longest: None,
            has_other_parts: false,
        })
    }

    fn step(&self) -> StepOf {
        StepOf {
            batch: self.mbs,
            length: self.seq,
            recompute: match self.recompute.as_str() {
                "full" => Recompute::Full,
                "selective" if self.source == "torchtitan" => Recompute::Operators,
                "selective" => Recompute::Selective,
                _ => Recompute::None,
            },
            is_fused: self.attention == "flash",
            is_compiled: !EAGER.contains(&self.source.as_str()),
            loss: match self.source.as_str() {
                "llm-foundry" => Loss::Fused,
                source if PLAIN.contains(&source) || self.is_jax() => Loss::Plain,
                _ => Loss::InPlace,
            },
            has_narrow_gradients: NARROW.contains(&self.source.as_str()) && !self.is_jax(),
        }
    }

    fn is_jax(&self) -> bool {
        ["MaxText", "PaxML"].iter().any(|program| self.software.contains(program))
    }

    /// Whether the source says which activations are kept. `fms-fsdp` repeats a share of the layers, which it does not name.
    fn names_activations(&self) -> bool {
        let is_share = self.source == "fms-fsdp" && self.recompute == "selective";
        !is_share && !self.notes.contains("recomputation not stated")
    }

    /// Model and sequences whose layouts ran on the same machines, with the same program.
    fn of_machine(&self) -> String {
        let Self { source, gpu, software, model, precision, layers, seq, .. } = self;
        format!("{source}, {gpu}, {software}, {model}, {precision}, {layers:?} layers, {seq} tokens")
    }

    fn layout(&self, gpu: &GpuSpec) -> Layout {
        let gpus = self.gpus_per_node.min(self.gpus);
        let each = NETWORK[usize::from(gpu.compute_capability.is_none_or(|it| it >= (9, 0)))];
        Layout {
            machines: self.gpus.div_ceil(gpus),
            gpus,
            cpus: None,
            network: Network::Rate(self.network_gbit_node.unwrap_or(each * f64::from(gpus))),
            sharding: match self.sharding.as_str() {
                "zero1" => Sharding::Zero1,
                "zero2" => Sharding::Zero2,
                "zero3" => Sharding::Zero3,
                _ => Sharding::None,
            },
            parallel: ModelParallel {
                tensor: self.tp,
                pipeline: self.pp,
                context: self.cp.unwrap_or(1),
                chunks: self.vpp.unwrap_or(1).max(1),
                expert: self.ep.unwrap_or(1).max(1),
                recompute: false,
            },
        }
    }

    /// Precision to convert BF16 to.
    fn precision(&self) -> Option<Precision> {
        match self.precision.as_str() {
            "fp8" | "mxfp8" | "nvfp4" => Some(Precision::Fp8),
            "fp16" => Some(Precision::Fp16),
            _ => None,
        }
    }

    /// Seconds of the step's FLOPs at the GPU's peak: six for each active parameter and token (Kaplan et al. 2020,
    /// arXiv:2001.08361, section 2.1).
    fn work(&self, catalog: &Catalog) -> Option<f64> {
        let gpu = catalog.find(&self.gpu).ok()?;
        let peak = gpu.peak.bf16_tensor.or(gpu.peak.fp16_tensor)?;
        let flops = 6.0 * self.active_params.or(self.params)? * (self.gbs * self.seq) as f64;
        Some(flops / (peak.get() * f64::from(self.gpus)))
    }

    /// Groups that the row is counted in.
    fn groups(&self) -> Vec<String> {
        let names = [(self.tp > 1, "tensor"), (self.pp > 1, "pipeline"), (self.cp.unwrap_or(1) > 1, "context")];
        let used: Vec<&str> = names.into_iter().filter(|(is_used, _)| *is_used).map(|(_, name)| name).collect();
        let layout = if used.is_empty() { format!("data parallel, {}", self.sharding) } else { used.join(" × ") };
        let kind = if self.experts.is_some_and(|count| count > 1) { "experts" } else { "dense" };
        let all = if self.source == "vtrain-single" { "single machine, waits for the host" } else { kind };
        if self.source == "vtrain-single" {
            return vec![all.to_owned(), format!("{all}: {layout}")];
        }
        let mut groups = vec![
            all.to_owned(),
            format!("{kind}: {layout}"),
            format!("{kind} in {}", self.precision),
            format!("{kind} on {}", self.gpu),
            format!("{kind}, {}", self.source),
        ];
        if self.gpus > 512 {
            groups.push(format!("{kind} on more than 512 GPUs"));
        }
        groups
    }
}

/// Step times by layout, precision, GPU and source, beside 6·N·D with one fitted share of the peak.
pub(super) fn evaluate(dir: &Path, catalog: &Catalog, models: &ModelsByGpu) -> Result<Evaluation, CliError> {
    let text = read_text(&dir.join("steps.csv.gz"), Limit::TABLE)?;
    let mut rows = Vec::new();
    for row in csv::Reader::from_reader(text.as_bytes()).deserialize::<Row>() {
        rows.push(row.map_err(CliError::other)?);
    }
    let (mut groups, mut left_out, mut widths) = (Groups::default(), 0, Vec::new());
    let (mut refusals, mut runs) = (Refusals::default(), measured::Runs::default());
    let (mut jobs, mut by_work) = (Jobs::default(), Vec::new());
    for row in &rows {
        let found = one(row, catalog, models.shipped.as_ref())?;
        let (Some(found), Some(measured)) = (found, row.step_s) else {
            left_out += 1;
            continue;
        };
        let Range { low, mid, high } = found.step.step.range.map(Micros::get);
        refusals.add(row, found.fits);
        let label = || {
            let Row { id, model, gpus, gpu, tp, pp, software, .. } = row;
            format!("{id}: {model} on {gpus} {gpu}, tensor {tp}, pipeline {pp}, {} ({software})", row.precision)
        };
        let predicted = Predicted { mid: mid / 1e6, range: Some([low / 1e6, high / 1e6]) };
        jobs.add(row, predicted.mid, measured);
        by_work.extend(row.work(catalog).map(|seconds| (row, seconds, measured)));
        if let Some((memory, measured)) = found.memory.zip(row.mem_gib) {
            let [least, most] = memory.map(|bytes| bytes.get() / GIB);
            let predicted = Predicted { mid: f64::midpoint(least, most), range: Some([least, most]) };
            let group = format!("memory of a GPU, {}, {} recomputation", row.source, row.recompute);
            groups.add(&group, "layout", predicted, measured, &label);
        }
        if row.source != "vtrain-single" {
            widths.push(high / low);
        }
        for group in row.groups() {
            groups.add(&group, "layout", predicted, measured, &label);
        }
        runs.add(row, found, measured)?;
    }
    runs.evaluate(&mut groups)?;
    // One share of the peak for each precision and program.
    let mut shares: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    for (row, seconds, measured) in &by_work {
        shares.entry((&row.precision, &row.source)).or_default().push(seconds / measured);
    }
    let shares: BTreeMap<_, _> =
        shares.into_iter().map(|(of, mut shares)| (of, median(&mut shares).unwrap_or_default())).collect();
    for (row, seconds, measured) in by_work {
        let share = shares[&(row.precision.as_str(), row.source.as_str())];
        let predicted = Predicted { mid: seconds / share, range: None };
        for group in row.groups() {
            groups.add(&group, "6·N·D", predicted, measured, &|| row.id.clone());
        }
    }
    let median = median(&mut widths).unwrap_or_default();
    let mut notes = jobs.notes();
    notes.extend(refusals.notes());
    notes.extend([
        format!(
            "{left_out} rows left out: other kinds of models, fine-tuning of adapters, GPUs that are not in the catalog, or no time"
        ),
        format!("high end / low end, median: {median:.2}"),
        "6·N·D: FLOPs of the active parameters and the tokens, with the median share of the peak of each precision and source"
            .to_owned(),
    ]);
    let protocol = "absolute relative errors of published optimizer steps of language models on several GPUs, from the dimensions of the model";
    Ok(groups.evaluation(protocol.to_owned(), notes))
}

/// Predicted and measured seconds of a job's layouts; a layout measured more than once counts once, with the mean.
#[derive(Default)]
struct Jobs(BTreeMap<(String, String, u64), Layouts>);

/// Times by layout.
type Layouts = BTreeMap<String, Vec<[f64; 2]>>;

/// Layouts of a job from which their order says something.
const LAYOUTS: usize = 4;

impl Jobs {
    fn add(&mut self, row: &Row, predicted: f64, measured: f64) {
        if !row.source.starts_with("vtrain") {
            return;
        }
        let Row { source, model, gpus, gbs, tp, pp, mbs, .. } = row;
        let job = (source.clone(), format!("{model} on {gpus}"), *gbs);
        self.0.entry(job).or_default().entry(format!("{tp} {pp} {mbs}")).or_default().push([predicted, measured]);
    }

    /// Rank correlation of the layouts of each job, and what the layout that is predicted to be the fastest takes more
    /// than the fastest: means over the jobs of each source.
    fn notes(&self) -> Vec<String> {
        let mut by_source: BTreeMap<&str, Vec<[f64; 2]>> = BTreeMap::new();
        for ((source, ..), layouts) in &self.0 {
            let mean = |all: &Vec<[f64; 2]>| {
                [0, 1].map(|end| all.iter().map(|both| both[end]).sum::<f64>() / all.len() as f64)
            };
            let all: Vec<[f64; 2]> = layouts.values().map(mean).collect();
            if all.len() < LAYOUTS {
                continue;
            }
            let fastest = all.iter().map(|both| both[1]).fold(f64::INFINITY, f64::min);
            let picked = all.iter().min_by(|a, b| a[0].total_cmp(&b[0])).map_or(fastest, |both| both[1]);
            by_source.entry(source).or_default().push([rank_correlation(&all), picked / fastest - 1.0]);
        }
        let line = |(source, jobs): (&str, Vec<[f64; 2]>)| {
            let [rank, more] = [0, 1].map(|place| jobs.iter().map(|job| job[place]).sum::<f64>() / jobs.len() as f64);
            format!(
                "choice of a layout, {source}: Spearman {rank:.2}, the picked layout takes {:.1} % more than the fastest (means of {} jobs)",
                more * 100.0,
                jobs.len()
            )
        };
        by_source.into_iter().map(line).collect()
    }
}

/// Spearman's rank correlation of two columns.
fn rank_correlation(rows: &[[f64; 2]]) -> f64 {
    let ranks = [0, 1].map(|column| {
        let value = |row: &[f64; 2]| row[column];
        let rank = |row| {
            let below = rows.iter().filter(|other| value(other) < value(row)).count();
            let same = rows.iter().filter(|other| value(other) == value(row)).count();
            below as f64 + (same as f64 - 1.0) / 2.0
        };
        rows.iter().map(rank).collect::<Vec<f64>>()
    });
    let middle = (rows.len() as f64 - 1.0) / 2.0;
    let product =
        |a: usize, b: usize| ranks[a].iter().zip(&ranks[b]).map(|(x, y)| (x - middle) * (y - middle)).sum::<f64>();
    product(0, 1) / (product(0, 0) * product(1, 1)).sqrt().max(f64::MIN_POSITIVE)
}

/// Verdicts on the memory of jobs that ran: all, refused, and unsure, by source, sharding, recomputation and precision.
#[derive(Default)]
struct Refusals {
    by_kind: BTreeMap<String, [usize; 3]>,
    refused: Vec<String>,
}

impl Refusals {
    fn add(&mut self, row: &Row, fits: Fits) {
        if !row.names_activations() {
            return;
        }
        let Row { source, sharding, recompute, precision, .. } = row;
        let kind = format!("{source}, {sharding}, {recompute} recomputation, {precision}");
        let counts = self.by_kind.entry(kind).or_default();
        counts[0] += 1;
        counts[1] += usize::from(fits == Fits::No);
        counts[2] += usize::from(fits == Fits::Unknown);
        self.refused.extend((fits == Fits::No).then(|| row.id.clone()));
    }

    fn notes(&self) -> Vec<String> {
        let sum = |place: usize| self.by_kind.values().map(|counts| counts[place]).sum::<usize>();
        let (all, refused, unsure) = (sum(0), sum(1), sum(2));
        let mut notes = vec![format!(
            "{refused} of {all} jobs that ran ({:.1} %) are predicted not to fit, {unsure} may fit: {}",
            refused as f64 / all.max(1) as f64 * 100.0,
            self.refused.join(", ")
        )];
        let line = |(kind, [all, refused, unsure]): (&String, &[usize; 3])| {
            format!("memory of {all} jobs, {kind}: {refused} refused, {unsure} may fit")
        };
        notes.extend(self.by_kind.iter().filter(|(_, counts)| counts[1] + counts[2] > 0).map(line));
        notes
    }
}

/// Predicted step of a row, and memory of a GPU: least and most.
struct PredictedRow {
    step: ScaledStep,
    memory: Option<[Bytes; 2]>,
    fits: Fits,
    /// The job that the step is predicted from.
    of: Job,
}

/// A micro-batch on one GPU, and how it is divided.
struct Job {
    prediction: Prediction,
    workload: Workload,
    layout: Layout,
    batch: u64,
    batches: u64,
}

impl Job {
    fn step(&self, layouts: Option<LayoutFactors>) -> Result<ScaledStep, ScaleError> {
        let step = self.prediction.planning_step();
        let micro = self.prediction.micro_batch(&step, Some(self.batch), None);
        let factors = Factors { scaling: None, layouts };
        optimizer_step(&micro, &self.prediction.gpu, &self.layout, &self.workload, factors, self.batches)
    }
}

/// Predicted step of a row; `None` for rows that are left out.
fn one(row: &Row, catalog: &Catalog, models: Option<&Arc<Models>>) -> Result<Option<PredictedRow>, CliError> {
    let known = row.decoder().zip(catalog.find(&row.gpu).ok());
    let Some((decoder, gpu)) = known.filter(|_| row.task != "lora" && row.family != "hybrid") else { return Ok(None) };
    let profile = decoder.profile(row.step()).map_err(CliError::other)?;
    let options = Options {
        targets: vec![gpu.slug.clone()],
        precision: row.precision(),
        models: models.cloned(),
        steps_only: true,
        ..Options::default()
    };
    let answer = predict(&profile, catalog, &options).map_err(CliError::other)?;
    let Some(prediction) = answer.predictions.into_iter().next() else { return Ok(None) };
    let layout = row.layout(gpu);
    let batches = (row.gbs / (row.mbs * u64::from(layout.replicas().max(1)))).max(1);
    let of = Job { prediction, workload: answer.workload, layout, batch: row.mbs, batches };
    let Ok(step) = of.step(None) else { return Ok(None) };
    let model = of.prediction.transformer.as_ref();
    let share = Share::new(&layout, [row.mbs, batches], model, of.workload.parameter_count);
    let memory = of.prediction.memory.on_replica(layout.sharding, &share);
    // Published are peaks of the allocator, without the process.
    let of_allocator = |bytes: Bytes| bytes.checked_sub(memory.process).unwrap_or_default();
    let ends = memory.needed.zip(memory.at_most).map(|(least, most)| [least, most].map(of_allocator));
    Ok(Some(PredictedRow { step, memory: ends, fits: memory.fits, of }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks 0, 1, 2, 3 against 1, 0, 2, 3: 1 − 6·2 / (4·15).
    #[test]
    fn rank_correlation_by_hand() {
        let found = rank_correlation(&[[1.0, 20.0], [2.0, 10.0], [3.0, 30.0], [4.0, 40.0]]);
        assert!((found - 0.8).abs() < 1e-12, "{found}");
        assert_eq!(rank_correlation(&[[1.0, 2.0], [2.0, 1.0]]), -1.0);
    }
}
