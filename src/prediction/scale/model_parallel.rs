//! Model divided over GPUs: tensor parallel within its layers, pipeline parallel between them.
//!
//! T GPUs divide each layer, P stages the layers; T·P GPUs are one replica of the model, and replicas are data
//! parallel. The layout is given, not optimised. Replicas are assumed to use neighbouring GPUs. Sources: Shoeybi et al.
//! 2019, "Megatron-LM", arXiv:1909.08053, section 3 (tensor parallel); Huang et al. 2019, "`GPipe`", arXiv:1811.06965,
//! section 2 (stages and bubble); Narayanan et al. 2021, arXiv:2104.04473, sections 2.2 and 3 (1F1B, interleaved
//! stages, traffic); Korthikanti et al. 2022, arXiv:2205.05198, section 4 (sequence parallelism, activations).
//!
//! With t the step of one micro-batch on one GPU without the update u, a micro-batches take
//! `(a + P − 1) · (t_T / P + 2·A / B_P) + u/(T·P)`, where
//! - `t_T = t·(d/T + r) + R·2(T − 1)/T / B`: the share d of products, attention, embedding and loss is divided, every
//!   GPU does the rest r; R are the reduced activations (2 all-reduces of an attention layer forward and 2 backward,
//!   not hidden), B is the link's bandwidth;
//! - A are the activations passed between stages, and back as gradients, over the link, or over the network if a
//!   replica spans machines.
//!
//! The bubble is (P − 1)/a of the ideal time. Ends of the range:
//! - low: r is divided too (sequence parallelism, with equal traffic), and stages are interleaved if that pays, with up
//!   to 4 chunks v of layers per GPU, which divide the bubble by v and pass A on v times;
//! - high: narrower products are less efficient ([`NARROWER`]), and the slowest stage has the most layers and
//!   everything outside them.
//!
//! The gradients are then exchanged among the replicas, a T·P-th per GPU. Nothing here is fitted or compared with
//! measurements.

use super::{Exchange, Layout, Link, MicroBatch, ModelParallel, Network, ScaleError, ScaledStep, scaled_step};
use crate::estimate::Estimate;
use crate::gpu::GpuFacts;
use crate::transformer::TransformerStep;
use habitat_base::text::grouped;
use habitat_base::units::{BytesPerSecond, Micros, Range};
use habitat_step::profile::Workload;

/// Relative slowdown of divided products at the high end per halving of their width: a guess, not measured.
const NARROWER: f64 = 0.1;
/// Maximum chunks of layers per GPU with interleaved stages, at the low end.
const CHUNKS: u32 = 4;
/// Bubble, in percent of a step, above which the explanation suggests a remedy.
const LARGE_BUBBLE: f64 = 20.0;

impl Link {
    /// Bandwidth of a single all-reduce or copy of tens of megabytes that all wait for: worst, expected, best.
    ///
    /// Expected and best are bus bandwidths from NCCL's tests: ring and in-switch reduction of 8 H100 (`nccl-tests`
    /// issues 272 and 290), of 8 A100 (149; best is the rule of 80 % of the line), of A100 on PCI Express 4 and RTX
    /// 5090 on 5 (178, `nccl` 1639), of boards through host memory (DeepView's constant; 4090 with copies from board to
    /// board). The worst is half of the expected, on PCI Express about the bandwidth in data parallel programs
    /// ([`Link::fitted`]). Modules reach much less in those programs, but in buckets beside computation, which is not
    /// comparable. V100 are expected within the range of modules.
    fn collective(self) -> Range<BytesPerSecond> {
        let [mid, high] = match self {
            Self::HostMemory => [6e9, 12.7e9],
            Self::PciExpress => [20e9, 35e9],
            Self::Modules => [200e9, 240e9],
            Self::Switched => [370e9, 480e9],
        };
        let [low, mid, high] = [mid / 2.0, mid, high].map(BytesPerSecond::known);
        Range { low, mid, high }
    }
}

/// Predicts an optimizer step of several micro-batches on each replica of a layout. If each GPU is a replica, it is
/// [`scaled_step`] with [`ScaledStep::accumulated`].
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
    factor: Option<f64>,
    batches: u64,
) -> Result<ScaledStep, ScaleError> {
    let parallel = layout.parallel;
    if parallel.is_none() {
        return Ok(scaled_step(one.step, gpu, layout, workload, factor)?.accumulated(one, layout.sharding, batches));
    }
    parallel.check(layout)?;
    let MicroBatch { step: single, batch, model, .. } = *one;
    let model = model.ok_or(ScaleError::NoLayers)?;
    parallel.check_model(model)?;
    let replica = Replica::new(*model, batch, gpu.link, layout, batches);
    let low = replica.least(single.range.low);
    let mid = replica.time(single.range.mid, &replica.expected());
    let high = replica.time(single.range.high, &replica.worst());
    let exchange = Exchange::new(gpu.link, layout, super::gradients(workload)?);
    let stage = replica.slot(single.range.mid, &replica.expected());
    let added = exchange.added(stage, layout.network, factor);
    let times = if layout.sharding.exchanges_each_batch() { batches as f64 } else { 1.0 };
    let added = added.map(|once| once * times);
    let (tensor, pipeline) = (parallel.tensor, parallel.pipeline);
    let mut parts = Vec::new();
    if pipeline > 1 {
        let bubble = f64::from(pipeline - 1) / batches as f64 * 100.0;
        // A larger global batch gives more micro-batches per update.
        let remedy = if bubble > LARGE_BUBBLE { " (a larger --global-batch shrinks it)" } else { "" };
        parts.push(format!("{bubble:.0} % bubble{remedy}"));
    }
    if tensor > 1 {
        let reduced = replica.reduced(replica.expected().link) * (batches as f64 / f64::from(pipeline));
        parts.push(format!("{} ms of all-reduce", grouped(reduced.as_millis())));
    }
    if pipeline > 1 {
        let handed = replica.handed(&replica.expected()) * batches as f64;
        parts.push(format!("{} ms from stage to stage", grouped(handed.as_millis())));
    }
    let replicas = layout.replicas();
    let of = if replicas == 1 { "1 replica".to_owned() } else { format!("{replicas} replicas") };
    let micro = if batches == 1 { "1 micro-batch".to_owned() } else { format!("{batches} micro-batches") };
    let between = if replicas > 1 {
        format!(
            "; {:.1} ms more for {} of {} of gradients per GPU among replicas",
            added.mid.as_millis(),
            if layout.sharding.traffic() > 1.0 { "gathers and scatters" } else { "all-reduce" },
            exchange.gradients * layout.sharding.traffic()
        )
    } else {
        String::new()
    };
    let over = if replica.spans() { format!(", stages over {}", layout.network.words()) } else { String::new() };
    let why = format!(
        "{of} of {}, {micro}: {}{between}; over {}{over}; low end: sequence parallelism and interleaved stages; high end: less efficient products and unequal stages; by formulas, not validated",
        parallel.words(),
        parts.join(", "),
        gpu.link.words(),
    );
    let range = Range { low: low + added.low, mid: mid + added.mid, high: high + added.high };
    Ok(ScaledStep { step: Estimate { range, method: single.method }, extra: added.mid, why })
}

/// Assumptions for one end of the range, or its middle.
#[derive(Clone, Copy)]
struct End {
    /// Bandwidth among the T GPUs.
    link: BytesPerSecond,
    /// Bandwidth between stages.
    stages: BytesPerSecond,
    /// Slowdown factor of divided products.
    narrower: f64,
    /// Divisor of the undivided rest.
    rest: f64,
    /// Share of a micro-batch on the slowest stage.
    slowest: f64,
    /// Chunks of layers per GPU.
    chunks: f64,
}

/// One replica of the model.
struct Replica {
    model: TransformerStep,
    /// Samples relative to the model's recorded step.
    scale: f64,
    tensor: f64,
    pipeline: f64,
    batches: f64,
    link: Range<BytesPerSecond>,
    /// Network of a machine, if stages span several.
    network: Option<Network>,
}

impl Replica {
    fn new(model: TransformerStep, batch: Option<u64>, link: Link, layout: &Layout, batches: u64) -> Self {
        let ModelParallel { tensor, pipeline } = layout.parallel;
        Self {
            model,
            scale: batch.zip(model.batch_size).map_or(1.0, |(batch, own)| batch as f64 / own.max(1) as f64),
            tensor: f64::from(tensor),
            pipeline: f64::from(pipeline),
            batches: batches as f64,
            link: link.collective(),
            network: (!layout.gpus.is_multiple_of(layout.parallel.gpus())).then_some(layout.network),
        }
    }

    /// Whether it spans several machines.
    const fn spans(&self) -> bool {
        self.network.is_some()
    }

    fn expected(&self) -> End {
        let stages = self.network.map_or(self.link.mid, |network| network.reached().mid);
        End { link: self.link.mid, stages, narrower: 1.0, rest: 1.0, slowest: 1.0 / self.pipeline, chunks: 1.0 }
    }

    fn best(&self) -> End {
        let chunks = (f64::from(self.model.layers) / self.pipeline).floor().clamp(1.0, f64::from(CHUNKS));
        let stages = self.network.map_or(self.link.high, |network| network.reached().high);
        End { link: self.link.high, stages, rest: self.tensor, chunks, ..self.expected() }
    }

    fn worst(&self) -> End {
        let layers = f64::from(self.model.layers);
        let most = (layers / self.pipeline).ceil() / layers;
        let outside = (self.model.outside / (1.0 - self.model.update)).clamp(0.0, 1.0);
        let slowest = if self.pipeline > 1.0 { most * (1.0 - outside) + outside } else { 1.0 };
        let stages = self.network.map_or(self.link.low, |network| network.reached().low);
        let narrower = 1.0 + NARROWER * self.tensor.log2();
        End { link: self.link.low, stages, narrower, slowest, ..self.expected() }
    }

    /// All-reduces of a micro-batch through all layers.
    fn reduced(&self, link: BytesPerSecond) -> Micros {
        self.model.reduced * (self.scale * 2.0 * (self.tensor - 1.0) / self.tensor) / link
    }

    /// Activations and gradients that a stage passes on for a micro-batch.
    fn handed(&self, end: &End) -> Micros {
        let boundaries = if self.pipeline > 1.0 { end.chunks } else { 0.0 };
        self.model.activations * (2.0 * self.scale * boundaries) / end.stages
    }

    /// Time of a micro-batch on one stage, if its step on one GPU with the whole model is `single`. The host launches
    /// all operations of a stage, however narrow.
    fn slot(&self, single: Micros, end: &End) -> Micros {
        let rest = 1.0 - self.model.divided - self.model.update;
        let computed = single * (self.model.divided * end.narrower / self.tensor + rest.max(0.0) / end.rest);
        let batch = computed.max(self.model.host.min(single)) + self.reduced(end.link);
        batch * end.slowest + self.handed(end)
    }

    /// Least time over the numbers of chunks: more shorten the bubble, but pass activations on more often.
    fn least(&self, single: Micros) -> Micros {
        let best = self.best();
        let time = |chunks: u32| self.time(single, &End { chunks: chunks.into(), ..best });
        (1..=best.chunks as u32).map(time).fold(time(1), Micros::min)
    }

    /// Time of all micro-batches and the update.
    fn time(&self, single: Micros, end: &End) -> Micros {
        let slots = self.batches + (self.pipeline - 1.0) / end.chunks;
        let update = single * (self.model.update / (self.tensor * self.pipeline));
        self.slot(single, end) * slots + update
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::Method;
    use crate::sharding::Sharding;
    use habitat_base::units::{Bytes, GpuSlug};
    use habitat_step::catalog::Vendor;
    use habitat_step::profile::Mode;
    use proptest::prelude::*;

    fn gpu() -> GpuFacts {
        GpuFacts {
            slug: GpuSlug::new("h100-sxm5-80gb").unwrap(),
            name: "H100".into(),
            vendor: Vendor::Nvidia,
            architecture: "Hopper".into(),
            memory: Bytes::known(80e9),
            link: Link::Switched,
            power: None,
            doubtful: false,
        }
    }

    fn workload() -> Workload {
        Workload {
            name: "w".into(),
            mode: Mode::Training,
            batch_size: Some(1),
            micro_batches: None,
            sequence_length: None,
            precision: None,
            parameter_count: Some(100_000_000),
        }
    }

    /// 8 layers; 0.8 of the step is divided, 0.1 runs on every GPU, and 0.1 is the update.
    fn model() -> TransformerStep {
        TransformerStep {
            layers: 8,
            heads: 16,
            batch_size: Some(1),
            activations: Bytes::known(1e6),
            reduced: Bytes::known(37e6),
            recomputes: false,
            divided: 0.8,
            update: 0.1,
            outside: 0.09,
            host: Micros::ZERO,
        }
    }

    fn step() -> Estimate {
        Estimate::with_band(Micros::known(1e6), 0.0, Method::Roofline)
    }

    fn layout(tensor: u32, pipeline: u32, machines: u32) -> Layout {
        let network = Network::Rate(400.0);
        Layout { machines, gpus: 8, network, sharding: Sharding::None, parallel: ModelParallel { tensor, pipeline } }
    }

    fn replica(tensor: u32, pipeline: u32, batches: u64) -> Replica {
        Replica::new(model(), Some(1), Link::Switched, &layout(tensor, pipeline, 1), batches)
    }

    fn is(found: Micros, expected: f64) {
        assert!((found.get() / expected - 1.0).abs() < 1e-9, "{} µs, not {expected}", found.get());
    }

    /// 8 micro-batches on 4 stages take (8 + 3)/(8·4) of eight steps of 0.9 s without the update, each with 2 MB passed
    /// on at 370 GB/s, and a quarter of the update.
    #[test]
    fn the_bubble_of_stages_by_hand() {
        let of = replica(1, 4, 8);
        is(
            of.time(step().range.mid, &of.expected()),
            8.0 * 0.9e6 * (11.0 / 32.0) + 11.0 * 2e6 / 370e9 * 1e6 + 0.1e6 / 4.0,
        );
        // Two chunks of the 8 layers per GPU, each passed on: (8 + 3/2)/(8·4).
        let best = of.best();
        assert_eq!(best.chunks, 2.0);
        is(of.time(step().range.mid, &best), 9.5 * (0.9e6 / 4.0 + 4e6 / 480e9 * 1e6) + 0.1e6 / 4.0);
        // The last of 3 stages has 3 of 8 layers, and the whole tenth outside them.
        let of = replica(1, 3, 1);
        assert!((of.worst().slowest - (0.375 * 0.9 + 0.1)).abs() < 1e-12);
    }

    /// 37 MB reduced by 4 GPUs are 1.5 times 37 MB at 370 GB/s: 150 µs.
    #[test]
    fn the_all_reduces_of_layers_by_hand() {
        let of = replica(4, 1, 1);
        is(of.reduced(of.expected().link), 150.0);
        is(of.time(step().range.mid, &of.expected()), 0.8e6 / 4.0 + 0.1e6 + 150.0 + 0.1e6 / 4.0);
        // Sequence parallelism also divides the rest.
        is(of.time(step().range.mid, &of.best()), 0.8e6 / 4.0 + 0.1e6 / 4.0 + 150.0 * 370.0 / 480.0 + 0.1e6 / 4.0);
        is(of.time(step().range.mid, &of.worst()), 0.8e6 * 1.2 / 4.0 + 0.1e6 + 300.0 + 0.1e6 / 4.0);
        // Twice the samples, twice the traffic; host launches do not shrink.
        let twice = Replica::new(model(), Some(2), Link::Switched, &layout(4, 1, 1), 1);
        is(twice.reduced(twice.expected().link), 300.0);
        let host = Replica { model: TransformerStep { host: Micros::known(0.5e6), ..model() }, ..of };
        is(host.time(step().range.mid, &host.expected()), 0.5e6 + 150.0 + 0.1e6 / 4.0);
    }

    /// Each GPU has a sixteenth of the gradients and one counterpart in the other replica on its machine; half of them
    /// go through the network of each of two machines of a replica.
    #[test]
    fn gradients_meet_among_replicas() {
        let gradients = Bytes::known(16e9);
        let of = |tensor, pipeline, machines| {
            let exchange = Exchange::new(Link::Switched, &layout(tensor, pipeline, machines), gradients);
            (exchange.gpus, exchange.machines, exchange.gradients.get() / 1e9, exchange.between.get() / 1e9)
        };
        assert_eq!(of(8, 2, 4), (1, 2, 1.0, 8.0));
        assert_eq!(of(8, 1, 4), (1, 4, 2.0, 16.0));
        assert_eq!(of(2, 2, 2), (2, 2, 4.0, 16.0));
        assert_eq!(of(1, 1, 2), (8, 2, 16.0, 16.0));
    }

    fn one<'a>(step: &'a Estimate, model: Option<&'a TransformerStep>) -> MicroBatch<'a> {
        MicroBatch { step, update: Micros::ZERO, batch: Some(1), model }
    }

    #[test]
    fn the_layout_is_named() {
        let of = |layout: &Layout, batches| {
            optimizer_step(&one(&step(), Some(&model())), &gpu(), layout, &workload(), None, batches)
        };
        let why = of(&layout(8, 2, 4), 16).unwrap().why;
        assert!(why.starts_with("2 replicas of 8-way tensor parallel × 2 pipeline stages, 16 micro-batches: 6 % bubble, 1 ms of all-reduce, 1 ms from stage to stage; "), "{why}");
        assert!(why.contains("stages over") && why.contains("23.8 MB of gradients per GPU"), "{why}");
        let why = of(&layout(8, 1, 1), 1).unwrap().why;
        assert!(
            why.starts_with("1 replica of 8-way tensor parallel, 1 micro-batch: 0 ms of all-reduce; over NVLink"),
            "{why}"
        );
    }

    #[test]
    fn what_cannot_be_divided_so_is_refused() {
        let of = |layout: Layout, model| optimizer_step(&one(&step(), model), &gpu(), &layout, &workload(), None, 1);
        let (known, error) = (Some(&model()), |found: Result<ScaledStep, ScaleError>| found.unwrap_err());
        assert_eq!(error(of(layout(2, 1, 1), None)), ScaleError::NoLayers);
        assert_eq!(error(of(layout(16, 1, 2), known)), ScaleError::TensorOfMachine { tensor: 16, gpus: 8 });
        assert_eq!(error(of(layout(4, 3, 2), known)), ScaleError::Replicas { gpus: 16, replica: 12, times: 3 });
        assert_eq!(error(of(layout(1, 16, 2), known)), ScaleError::Stages { stages: 16, layers: 8 });
        let heads = TransformerStep { heads: 12, ..model() };
        assert_eq!(error(of(layout(8, 1, 1), Some(&heads))), ScaleError::Heads { tensor: 8, heads: 12 });
    }

    proptest! {
        /// A whole model on each GPU is unaffected by its layers.
        #[test]
        fn a_whole_model_on_each_gpu_is_as_before(
            machines in 1..5u32, batches in 1..9u64, millis in 1.0..1e5f64, is_known: bool,
        ) {
            let step = Estimate::with_band(Micros::known(millis * 1e3), 0.2, Method::Roofline);
            let (model, layout) = (model(), layout(1, 1, machines));
            let one = one(&step, is_known.then_some(&model));
            let now = optimizer_step(&one, &gpu(), &layout, &workload(), None, batches);
            let scaled = scaled_step(&step, &gpu(), &layout, &workload(), None).unwrap();
            let before = scaled.accumulated(&one, Sharding::None, batches);
            prop_assert_eq!(now.unwrap(), before);
        }

        /// The ends enclose the middle for any layout, also if stages pass much over a slow link.
        #[test]
        fn ends_lie_around_the_middle(
            tensor in 0..4u32, pipeline in 1..9u32, batches in 1..33u64, millis in 1.0..1e5f64, bytes in 1e6..1e10f64,
        ) {
            let model = TransformerStep { activations: Bytes::known(bytes), ..model() };
            let of = Replica::new(model, Some(1), Link::HostMemory, &layout(1 << tensor, pipeline, 1), batches);
            let single = Micros::known(millis * 1e3);
            let [mid, high] = [of.expected(), of.worst()].map(|end| of.time(single, &end).get());
            let low = of.least(single).get();
            prop_assert!(low <= mid * (1.0 + 1e-9) && mid <= high * (1.0 + 1e-9), "{low} {mid} {high}");
        }
    }
}
