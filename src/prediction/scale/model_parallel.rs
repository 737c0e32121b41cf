//! Language models and large states on many GPUs: tensor, pipeline, context and data parallel, with divided state.
//!
//! T GPUs divide each layer, P stages the layers, C GPUs the tokens of a sequence; T·P·C GPUs are one replica of the
//! model, and D replicas are data parallel. Ranks are placed as in Megatron-LM: tensor innermost, then context, data and
//! pipeline. Sources: Shoeybi et al. 2019, "Megatron-LM", arXiv:1909.08053, section 3 (tensor parallel); Narayanan et
//! al. 2021, arXiv:2104.04473, sections 2.2 and 3 (1F1B, interleaved stages, traffic); Korthikanti et al. 2022,
//! arXiv:2205.05198, section 4 (sequence parallelism); Liu et al. 2023, arXiv:2310.01889 (ring attention); Rajbhandari
//! et al. 2020, arXiv:1910.02054, section 7 (traffic of divided state).
//!
//! With t the step of one micro-batch on one GPU without the update u, a micro-batches take
//! `max(a + (P − 1)/V, P) · ((k·t_T + R + K) / P + 2·V·A / B) + u/(T·P·S) + E`, where
//! - `t_T = t·(d/T + r/T)/C`: every GPU of a layer does its part of the products, attention, embedding and loss (share
//!   d), and with sequence parallelism also of the rest r; at the high end it does all of r;
//! - k is what programs take beyond their operators ([`PROGRAM`], [`FULLY_SHARDED`]), and what waiting for the slowest
//!   GPU adds ([`SLOWEST`]);
//! - R are the collectives of the T GPUs: forward two all-gathers and two reduce-scatters of the activations in each
//!   layer, backward the same, and one all-gather more; nothing hides them;
//! - X GPUs divide the experts of a layer and exchange tokens, to the experts and back in each pass (all-to-all: Lepikhin
//!   et al. 2020, arXiv:2006.16668, section 3.2); they are among those with the same layers. Part of R; nothing hides it;
//! - K is what ring attention does not hide of sending keys and values on;
//! - A are the activations passed between stages, V the chunks of layers of each GPU;
//! - S are the GPUs that divide the optimizer state;
//! - E is the part of the exchange among replicas that the passes do not hide ([`Exposed`]).
//!
//! Low and high end vary the step on one GPU, the bandwidths and k; their distances from the middle are independent and
//! add up by their squares. `habitat-lab evaluate llm` compares the steps with published ones.

mod traffic;

use super::{
    Factors, Layout, LayoutFactors, MicroBatch, OnReplicas, ScaleError, ScaledStep, ScalingBasis, gradients,
    scaled_step,
};
use crate::estimate::Estimate;
use crate::gpu::GpuFacts;
use crate::launches::EAGER_LAUNCH_US;
use crate::method::Method;
use crate::sharding::Sharding;
use crate::transformer::{ExpertShare, TransformerStep};
use habitat_base::units::{Bytes, Micros, Range};
use habitat_step::profile::{Precision, Workload};
use traffic::Exposed;

/// Time of a program relative to its operators on one GPU: low, expected, high. Clocks fall under sustained load,
/// communication takes multiprocessors and memory bandwidth, and the host prepares the next step (published steps of
/// Megatron-LM and `NeMo`, 2021 to 2026).
const PROGRAM: [f64; 3] = [1.0, 1.06, 1.2];
/// The same with sharded gradients or parameters, which are also copied between their buffers (published steps of
/// `llm-foundry`, torchtitan, `MaxText` and Megatron-FSDP).
const FULLY_SHARDED: [f64; 3] = [1.06, 1.2, 1.4];
/// Ends of the same for models with experts, relative to the expected: tokens are not evenly spread, and releases of the
/// same program differ by up to 80 % (published steps of Megatron-Bridge).
const EXPERTS: [f64; 2] = [0.75, 1.5];
/// Relative slowdown of divided products per halving of their width (learned models, widths of 4,096 to 20,480).
const NARROWER: f64 = 0.005;
/// Share that each doubling of the GPUs beyond one machine adds to their operators: all wait for the slowest (published steps
/// of the same job on 8 to 2,048 GPUs grow by 0 to 10 %).
const SLOWEST: f64 = 0.006;
/// GPUs of one machine (a choice).
const MACHINE: f64 = 8.0;
/// Layers of a model that has none with attention; its state is then exchanged in as many parts (a choice).
const UNKNOWN_LAYERS: u32 = 32;
/// Bandwidths at the ends of the range, relative to the expected (a choice).
const BANDWIDTHS: [f64; 2] = [0.6, 1.15];
/// Ends of the range once a run on the same machine corrects the step, relative to the middle: 85 % of other layouts
/// (`habitat-lab evaluate llm`, on which they were chosen).
const CALIBRATED: [f64; 2] = [0.9, 1.1];
/// Parameters up to which replicas exchange their gradients as fitted for networks on one machine, and from which they
/// reach the bandwidth of collectives. The fitted networks have up to 0.34 billion.
const FITTED_PARAMETERS: [f64; 2] = [0.4e9, 1.5e9];

/// Predicts an optimizer step of several micro-batches on each replica of a layout; small networks with all of their
/// state on each GPU as fitted to published pairs.
///
/// `one` is a micro-batch on one GPU with the whole model, and the parts of the model that can be divided.
///
/// # Errors
/// [`ScaleError`]: no parameter count, no layers, or a layout that does not fit them.
pub fn optimizer_step(
    one: &MicroBatch<'_>,
    gpu: &GpuFacts,
    layout: &Layout,
    workload: &Workload,
    factors: Factors,
    batches: u64,
) -> Result<ScaledStep, ScaleError> {
    let step = one.data.map_or(one.step, |data| &data.alone);
    let scaled = without_data(&MicroBatch { step, ..*one }, gpu, layout, workload, factors, batches)?;
    Ok(match one.data {
        Some(data) => scaled.with_data(data, layout, batches),
        None => scaled,
    })
}

/// The optimizer step without waiting for data. Layout factors correct this module's model, so it then predicts plain
/// layouts of small language models too; their scaling factor does not apply.
fn without_data(
    one: &MicroBatch<'_>,
    gpu: &GpuFacts,
    layout: &Layout,
    workload: &Workload,
    factors: Factors,
    batches: u64,
) -> Result<ScaledStep, ScaleError> {
    let parallel = layout.parallel;
    let layouts = factors.layouts.filter(|_| one.model.is_some());
    let factor = factors.scaling.filter(|_| layouts.is_none());
    if !parallel.is_none() {
        parallel.check(layout, &gpu.fabric)?;
    }
    let fitted = || Ok(scaled_step(one.step, gpu, layout, workload, factor)?.accumulated(one, batches));
    let is_plain = parallel.is_none() && layout.sharding == Sharding::None;
    let weight = match workload.parameter_count {
        Some(count) if is_plain && layouts.is_none() => {
            let [few, many] = FITTED_PARAMETERS;
            ((count as f64 / few).ln() / (many / few).ln()).clamp(0.0, 1.0)
        }
        _ => 1.0,
    };
    if layout.all() <= 1 || workload.mode == habitat_step::profile::Mode::Inference || weight == 0.0 {
        return fitted();
    }
    let new = Replica { factors: layouts, ..Replica::new(one, gpu, layout, workload, batches)? }.step(factor);
    if weight == 1.0 {
        return Ok(new);
    }
    let old: ScaledStep = fitted()?;
    let mix = |old: Micros, new: Micros| old * (1.0 - weight) + new * weight;
    let [from, to] = [old.step.range, new.step.range];
    let range = Range { low: mix(from.low, to.low), mid: mix(from.mid, to.mid), high: mix(from.high, to.high) };
    Ok(ScaledStep { step: Estimate { range, ..new.step }, extra: mix(old.extra, new.extra), scaling: new.scaling })
}

/// Values that differ between the ends of the range.
#[derive(Clone, Copy)]
struct End {
    /// Step of a micro-batch on one GPU.
    single: Micros,
    /// Bandwidth of the links, relative to the expected.
    links: f64,
    /// Index of the bandwidth of the network: worst, expected, best.
    network: usize,
    /// Time of the program relative to its operators.
    program: f64,
    /// Time that the host takes to launch an operation.
    launch_us: f64,
    /// Whether tensor parallel GPUs divide the activations between products.
    is_sequence_parallel: bool,
    /// Share of a micro-batch on the slowest stage, relative to the mean.
    slowest: f64,
}

/// One replica of the model and its exchange with the others.
struct Replica<'a> {
    single: Estimate,
    model: Option<&'a TransformerStep>,
    layout: &'a Layout,
    gpu: &'a GpuFacts,
    /// Activations between two layers of a micro-batch, on the GPUs of one layer.
    activations: Bytes,
    /// Samples of a micro-batch relative to those that the model was recorded with.
    scale: f64,
    parameters: f64,
    /// Weights and gradients of the whole model, as they are exchanged.
    weights: Bytes,
    gradients: Bytes,
    update: f64,
    batches: f64,
    /// GPUs that links join, and how many of these groups there are.
    domain: u32,
    /// Measured corrections.
    factors: Option<LayoutFactors>,
}

impl<'a> Replica<'a> {
    fn new(
        one: &MicroBatch<'a>,
        gpu: &'a GpuFacts,
        layout: &'a Layout,
        workload: &Workload,
        batches: u64,
    ) -> Result<Self, ScaleError> {
        let parallel = layout.parallel;
        if !parallel.is_none() {
            parallel.check_model(one.model.ok_or(ScaleError::NoLayers)?, workload.sequence_length)?;
        }
        let own = gradients(workload)?;
        let is_narrow = matches!(
            workload.precision,
            Some(Precision::Fp16 | Precision::Bf16 | Precision::AmpFp16 | Precision::AmpBf16 | Precision::Fp8)
        );
        let parameters = workload.parameter_count.ok_or(ScaleError::NoParameters)? as f64;
        let weights = Bytes::known(parameters * if is_narrow { 2.0 } else { 4.0 });
        // Divided gradients add up in 32 bits; fully sharded programs send them as the weights are.
        let sent = match layout.sharding {
            Sharding::None => own,
            Sharding::Zero1 | Sharding::Zero2 => Bytes::known(4.0 * parameters),
            Sharding::Zero3 | Sharding::Hsdp => weights,
        };
        let samples = one.model.and_then(|model| Some((one.batch?, model.batch_size?)));
        let scale = samples.map_or(1.0, |(batch, own)| batch as f64 / own.max(1) as f64);
        let activations =
            one.model.map_or(Bytes::ZERO, |model| model.activations * (scale / f64::from(parallel.context)));
        let mid = one.step.range.mid;
        let share = if mid.get() > 0.0 { (one.update / mid).min(1.0) } else { 0.0 };
        Ok(Self {
            single: *one.step,
            model: one.model,
            layout,
            gpu,
            activations,
            scale,
            parameters,
            weights,
            gradients: sent,
            update: one.model.map_or(share, |model| model.update),
            batches: batches as f64,
            domain: gpu.fabric.joined(layout.gpus).min(layout.all()).max(1),
            factors: None,
        })
    }

    fn factors(&self) -> LayoutFactors {
        self.factors.unwrap_or(LayoutFactors::NONE)
    }

    fn tensor(&self) -> f64 {
        f64::from(self.layout.parallel.tensor)
    }

    fn stages(&self) -> f64 {
        f64::from(self.layout.parallel.pipeline)
    }

    fn chunks(&self) -> f64 {
        let layers = self.layers() / self.stages();
        f64::from(self.layout.parallel.chunks).clamp(1.0, layers.max(1.0))
    }

    fn layers(&self) -> f64 {
        f64::from(self.model.map_or(UNKNOWN_LAYERS, |model| model.layers))
    }

    /// GPUs that hold the same layers: replicas, and those that divide a sequence.
    fn peers(&self) -> u32 {
        self.layout.replicas() * self.layout.parallel.context
    }

    /// Those of them that divide the state.
    fn dividing(&self) -> u32 {
        self.layout.shards() * self.layout.parallel.context
    }

    /// Experts of the model, if GPUs divide them.
    fn experts(&self) -> Option<ExpertShare> {
        self.model.and_then(|model| model.experts).filter(|_| self.layout.parallel.expert > 1)
    }

    /// Passes through the layers that exchange data: a forward pass run again does too.
    fn passes(&self) -> f64 {
        let is_recorded = self.model.is_some_and(|model| model.recomputes);
        if is_recorded || self.layout.parallel.recompute { 3.0 } else { 2.0 }
    }

    /// GPUs that divide the experts.
    fn expert(&self) -> f64 {
        f64::from(self.layout.parallel.expert)
    }

    /// Time of a micro-batch's operations through all stages.
    fn computed(&self, end: &End) -> Micros {
        let (mut divided, mut launches) = self.model.map_or((0.0, 0.0), |model| (model.divided, model.launches));
        let mut rest = (1.0 - divided - self.update).max(0.0);
        if let Some(model) = self.model.filter(|_| self.layout.parallel.recompute) {
            let again = 1.0 + model.forward / (1.0 - self.update).max(f64::EPSILON);
            (divided, rest) = (divided * again, rest * again);
            launches += model.launches_again;
        }
        // With more tokens at each of fewer experts, their weights are read less often.
        if let Some(experts) = self.experts() {
            divided -= experts.products * (1.0 - experts.together) * (1.0 - 1.0 / self.expert());
        }
        let tensor = self.tensor();
        let narrower = 1.0 + NARROWER * tensor.log2();
        let of_rest = if end.is_sequence_parallel { tensor } else { 1.0 };
        let computed =
            end.single * ((divided * narrower / tensor + rest / of_rest) / f64::from(self.layout.parallel.context));
        let slowest = 1.0 + SLOWEST * (f64::from(self.layout.all()) / MACHINE).log2().max(0.0);
        // Each GPU of a layer runs all of its operations. The step on one GPU has waited for its host.
        let host = Micros::known(launches * end.launch_us).min(end.single);
        computed.max(host) * (end.program * slowest * self.factors().compute)
    }

    /// Time of all micro-batches and the update.
    fn time(&self, end: &End) -> Micros {
        let (stages, Exposed { each, once }) = (self.stages(), self.exposed(end));
        let slot = (self.computed(end) + self.reduced(end) + self.tokens(end) + self.ring(end))
            * (end.slowest / stages)
            + self.handed(end);
        // No micro-batch passes all stages sooner than one after another.
        let slots = (self.batches + (stages - 1.0) / self.chunks()).max(stages);
        slot * slots + each * self.batches + once + self.updated(end)
    }

    /// Share of a stage's state on each GPU that divides its experts.
    fn share_of_state(&self) -> f64 {
        let of_experts = self.experts().map_or(0.0, |experts| (experts.weights / self.parameters).min(1.0));
        1.0 - of_experts * (1.0 - 1.0 / self.expert())
    }

    /// Time of the update.
    fn updated(&self, end: &End) -> Micros {
        let share = match self.layout.sharding {
            Sharding::None => self.share_of_state(),
            _ => 1.0 / f64::from(self.dividing().max(1)),
        };
        end.single * (self.update * share * self.factors().compute / (self.tensor() * self.stages()))
    }

    fn program(&self) -> [f64; 3] {
        // A step that was measured has what a program adds on one GPU.
        let [least, expected, most] = match (self.layout.sharding >= Sharding::Zero2, self.single.method) {
            (true, Method::Measured) => [1.0, FULLY_SHARDED[1] / PROGRAM[1], FULLY_SHARDED[2] / PROGRAM[1]],
            (true, _) => FULLY_SHARDED,
            (false, Method::Measured) => [1.0, 1.0, PROGRAM[2] / PROGRAM[1]],
            (false, _) => PROGRAM,
        };
        let [low, high] = if self.model.is_some_and(|model| model.experts.is_some()) { EXPERTS } else { [1.0; 2] };
        [least.min(expected * low), expected, most.max(expected * high)]
    }

    fn expected(&self) -> End {
        End {
            single: self.single.range.mid,
            links: 1.0,
            network: 1,
            program: self.program()[1],
            launch_us: EAGER_LAUNCH_US[1],
            is_sequence_parallel: true,
            slowest: self.unequal(),
        }
    }

    /// Share of a micro-batch on a stage with more layers than others, relative to the mean; 1 if all have as many. Layers
    /// with experts differ in time, and published layouts even that out (steps of `DeepSeek` V3 on 4 to 16 stages).
    fn unequal(&self) -> f64 {
        let stages = self.layout.parallel.pipeline.max(1);
        let is_unequal = |model: &&TransformerStep| model.experts.is_none() && !model.layers.is_multiple_of(stages);
        let Some(model) = self.model.filter(is_unequal) else { return 1.0 };
        let most = f64::from(self.layout.parallel.most_layers(model.layers)) / self.layers();
        (most * (1.0 - Self::outside(model)) * self.stages()).max(1.0)
    }

    /// Share of a micro-batch outside the layers.
    fn outside(model: &TransformerStep) -> f64 {
        (model.outside / (1.0 - model.update).max(f64::EPSILON)).clamp(0.0, 1.0)
    }

    /// Share of a micro-batch on the slowest stage relative to the mean: it has the most layers and everything outside
    /// them.
    fn uneven(&self) -> f64 {
        let Some(model) = self.model.filter(|_| self.stages() > 1.0) else { return 1.0 };
        let most = f64::from(self.layout.parallel.most_layers(model.layers)) / self.layers();
        let outside = Self::outside(model);
        (most * (1.0 - outside) + outside) * self.stages()
    }

    /// Low end, middle and high end.
    fn range(&self) -> Range<Micros> {
        let end = self.expected();
        let mid = self.time(&end);
        let [least, _, most] = self.program();
        let [slow, fast] = BANDWIDTHS;
        // An end that lies on the other side of the middle adds nothing.
        let distance = |sign: f64, ends: &[End]| {
            let square = |end: &End| (sign * (self.time(end).get() - mid.get())).max(0.0).powi(2);
            ends.iter().map(square).sum::<f64>().sqrt()
        };
        let Range { low, high, .. } = self.single.range;
        let below = distance(
            -1.0,
            &[
                End { single: low, ..end },
                End { links: fast, network: 2, ..end },
                End { program: least, ..end },
                End { launch_us: EAGER_LAUNCH_US[0], ..end },
            ],
        );
        let above = distance(
            1.0,
            &[
                End { single: high, ..end },
                End { links: slow, network: 0, ..end },
                End { program: most, ..end },
                End { launch_us: EAGER_LAUNCH_US[2], ..end },
                End { is_sequence_parallel: false, ..end },
                End { slowest: self.uneven(), ..end },
            ],
        );
        let least = Micros::known(
            (mid.get() - below).max(
                self.time(&End {
                    single: low,
                    links: fast,
                    network: 2,
                    program: least,
                    launch_us: EAGER_LAUNCH_US[0],
                    ..end
                })
                .get(),
            ),
        );
        let range = Range { low: least.min(mid), mid, high: Micros::known(mid.get() + above) };
        if self.factors.is_none() {
            return range;
        }
        let [least, most] = CALIBRATED.map(|end| mid * end);
        Range { low: range.low.max(least), mid, high: range.high.min(most) }
    }

    fn step(&self, factor: Option<f64>) -> ScaledStep {
        let end = self.expected();
        let mut range = self.range();
        let alone = self.computed(&End { program: 1.0, ..end }) * (self.batches / self.stages()) + self.updated(&end);
        // One machine's measured factor corrects what its replicas add.
        if let Some(factor) = factor.filter(|_| self.layout.gpus > 1) {
            let added = range.mid.checked_sub(alone).unwrap_or_default();
            let shift = |time: Micros| (time + added * factor).checked_sub(added).unwrap_or(time).max(alone);
            range = Range { low: shift(range.low), mid: shift(range.mid), high: shift(range.high) };
        }
        let extra = range.mid.checked_sub(alone).unwrap_or_default();
        ScaledStep { step: Estimate { range, method: self.single.method }, extra, scaling: self.basis(&end).into() }
    }

    fn basis(&self, end: &End) -> ScalingBasis {
        let (parallel, layout, stages) = (self.layout.parallel, *self.layout, self.stages());
        let each = self.batches / stages;
        let if_above_one = |gpus: u32, time: &dyn Fn() -> Micros| (gpus > 1).then(time);
        ScalingBasis::Replicas(Box::new(OnReplicas {
            layout,
            micro_batches: self.batches,
            bubble: (parallel.pipeline > 1)
                .then(|| ((stages - 1.0) / self.chunks()).max(stages - self.batches) / self.batches),
            collectives: if_above_one(parallel.tensor, &|| self.reduced(end) * each),
            tokens: if_above_one(parallel.expert, &|| self.tokens(end) * each),
            ring: if_above_one(parallel.context, &|| self.ring(end) * each),
            handed: if_above_one(parallel.pipeline, &|| self.handed(end) * self.batches),
            exposed: (self.peers() > 1).then(|| {
                let Exposed { each, once } = self.exposed(end);
                each * self.batches + once
            }),
            link: self.gpu.into(),
            rack: (self.domain > layout.gpus).then_some(self.gpu.fabric.domain),
            uses_network: layout.all() > self.domain,
            measured: self.factors,
        }))
    }
}

#[cfg(test)]
mod tests;
