//! Published training steps of language models on many GPUs (`steps.csv.gz`), each predicted from the dimensions of the
//! model alone.

use std::path::Path;
use std::sync::Arc;

use habitat_tui::catalog::{Catalog, GpuSpec};
use habitat_tui::cli::CliError;
use habitat_tui::decoder::{Decoder, Experts, Recompute, StepOf};
use habitat_tui::predict::learned::Models;
use habitat_tui::predict::scale::{Layout, MicroBatch, ModelParallel, Network, optimizer_step};
use habitat_tui::predict::{Options, Precision, Sharding, predict};
use habitat_tui::store::{Limit, bundled, read_text};
use habitat_tui::units::Range;
use serde::Deserialize;

use super::tally::{Evaluation, Groups, Predicted};
use crate::models::ModelsByGpu;

/// A measured step; the columns are those of the table.
#[derive(Debug, Deserialize)]
struct Row {
    id: String,
    source: String,
    model: String,
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
    sharding: String,
    recompute: String,
    precision: String,
    attention: String,
    software: String,
    task: String,
    step_s: Option<f64>,
}

/// Published programs whose element-wise operations are not fused.
const EAGER: [&str; 7] =
    ["llm-foundry", "fms-fsdp", "vtrain-single", "vtrain-multi", "narayanan2021", "korthikanti2022", "mt-nlg"];
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
            longest: None,
        })
    }

    fn step(&self) -> StepOf {
        StepOf {
            batch: self.mbs,
            length: self.seq,
            recompute: match self.recompute.as_str() {
                "full" => Recompute::Full,
                "selective" => Recompute::Selective,
                _ => Recompute::None,
            },
            is_fused: self.attention == "flash",
            is_compiled: !EAGER.contains(&self.source.as_str()),
        }
    }

    fn layout(&self, gpu: &GpuSpec) -> Layout {
        let gpus = self.gpus_per_node.min(self.gpus);
        let each = NETWORK[usize::from(gpu.compute_capability.is_none_or(|it| it >= (9, 0)))];
        Layout {
            machines: self.gpus.div_ceil(gpus),
            gpus,
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
    for row in &rows {
        let found = one(row, catalog, models.shipped.as_ref())?;
        let (Some(Range { low, mid, high }), Some(measured)) = (found, row.step_s) else {
            left_out += 1;
            continue;
        };
        let label = || {
            let Row { id, model, gpus, gpu, tp, pp, software, .. } = row;
            format!("{id}: {model} on {gpus} {gpu}, tensor {tp}, pipeline {pp}, {} ({software})", row.precision)
        };
        let predicted = Predicted { mid: mid / 1e6, range: Some([low / 1e6, high / 1e6]) };
        if row.source != "vtrain-single" {
            widths.push(high / low);
        }
        for group in row.groups() {
            groups.add(&group, "layout", predicted, measured, &label);
        }
    }
    widths.sort_by(f64::total_cmp);
    let median = widths.get(widths.len() / 2).copied().unwrap_or(0.0);
    let notes = vec![
        format!(
            "{left_out} rows left out: other kinds of models, fine-tuning of adapters, GPUs that are not in the catalog, or no time"
        ),
        format!("high end / low end, median: {median:.2}"),
    ];
    let protocol = "absolute relative errors of published optimizer steps of language models on several GPUs, from the dimensions of the model";
    Ok(groups.evaluation(protocol.to_owned(), notes))
}

/// Predicted step of a row in microseconds; `None` for rows that are left out.
fn one(row: &Row, catalog: &Catalog, models: Option<&Arc<Models>>) -> Result<Option<Range<f64>>, CliError> {
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
    let Some(prediction) = answer.predictions.first() else { return Ok(None) };
    let layout = row.layout(gpu);
    let step = prediction.planning_step();
    let micro = MicroBatch {
        step: &step,
        update: prediction.update(),
        batch: Some(row.mbs),
        model: prediction.transformer.as_ref(),
    };
    let batches = (row.gbs / (row.mbs * u64::from(layout.replicas().max(1)))).max(1);
    let Ok(scaled) = optimizer_step(&micro, &prediction.gpu, &layout, &answer.workload, None, batches) else {
        return Ok(None);
    };
    let Range { low, mid, high } = scaled.step.range;
    Ok(Some(Range { low: low.get(), mid: mid.get(), high: high.get() }))
}
