use super::*;
use crate::fabric::{Collective, Fabric, Group};
use crate::method::Method;
use crate::scale::{Link, ModelParallel, Network};
use habitat_base::units::{Bytes, BytesPerSecond, GpuSlug};
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
        fabric: Fabric::typical(Link::Switched),
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
        recomputes: false,
        experts: None,
        divided: 0.8,
        update: 0.1,
        outside: 0.09,
        ends: [0.0; 2],
        inside: 0.0,
        forward: 0.25,
        inputs: Bytes::known(8e6),
        launches: 0.0,
        launches_again: 0.0,
    }
}

fn step() -> Estimate {
    Estimate::with_band(Micros::known(1e6), 0.0, Method::Roofline)
}

fn layout(tensor: u32, pipeline: u32, machines: u32) -> Layout {
    let parallel = ModelParallel { tensor, pipeline, ..ModelParallel::NONE };
    Layout { machines, gpus: 8, cpus: None, network: Network::Rate(3200.0), sharding: Sharding::None, parallel }
}

fn one<'a>(step: &'a Estimate, model: Option<&'a TransformerStep>) -> MicroBatch<'a> {
    MicroBatch { step, update: Micros::ZERO, batch: Some(1), model, data: None }
}

/// Expected end of a layout's range, with programs that add nothing to their operators.
fn with(layout: &Layout, batches: u64, check: impl Fn(&Replica<'_>, &End)) {
    let (step, model, gpu) = (step(), model(), gpu());
    let of = Replica::new(&one(&step, Some(&model)), &gpu, layout, &workload(), batches).unwrap();
    let end = End { program: 1.0, ..of.expected() };
    check(&of, &end);
}

fn is(found: Micros, expected: f64) {
    assert!((found.get() / expected - 1.0).abs() < 1e-9, "{} µs, not {expected}", found.get());
}

/// 8 micro-batches on 4 stages take (8 + 3)/4 steps of 0.9 s without the update, each with 2 MB passed on at 330 GB/s,
/// and a quarter of the update. Two chunks of layers halve the bubble and pass on twice as much.
#[test]
fn the_bubble_of_stages_by_hand() {
    let mut four = layout(1, 4, 1);
    four.gpus = 4;
    with(&four, 8, |of, end| is(of.time(end), 11.0 * (0.9e6 / 4.0 + 2e6 / 330e9 * 1e6) + 0.1e6 / 4.0));
    four.parallel.chunks = 2;
    with(&four, 8, |of, end| is(of.time(end), 9.5 * (0.9e6 / 4.0 + 4e6 / 330e9 * 1e6) + 0.1e6 / 4.0));
    // A single micro-batch gains nothing from chunks.
    with(&four, 1, |of, end| is(of.time(end), 4.0 * (0.9e6 / 4.0 + 4e6 / 330e9 * 1e6) + 0.1e6 / 4.0));
    // The last of 3 stages has 3 of 8 layers, and the whole tenth outside them.
    with(&Layout { gpus: 3, ..layout(1, 3, 1) }, 1, |of, _| {
        assert!((of.uneven() - (0.375 * 0.9 + 0.1) * 3.0).abs() < 1e-12);
    });
}

/// 8 layers on 3 stages: 10 times the step waits for a stage with 3 of them, 9 tenths of whose time are layers.
#[test]
fn unequal_stages_wait_for_the_largest() {
    let three = Layout { gpus: 3, ..layout(1, 3, 1) };
    assert_eq!(three.parallel.chunk_layers(8), [3, 3, 2]);
    assert_eq!(
        ModelParallel { pipeline: 4, chunks: 2, ..ModelParallel::NONE }.chunk_layers(61),
        [7, 8, 8, 8, 8, 8, 7, 7]
    );
    with(&three, 8, |of, end| {
        let slot = 0.9e6 * 0.375 * 0.9 + 2e6 / 330e9 * 1e6;
        is(of.time(end), 10.0 * slot + 0.1e6 / 3.0);
    });
    // The loss takes as long as a layer: stages with one layer less at the ends lose nothing.
    assert_eq!(ModelParallel { pipeline: 8, chunks: 8, ..ModelParallel::NONE }.most_layers(126), 16);
}

/// Parts of a step on replicas.
fn replicas(scaled: &ScaledStep) -> OnReplicas {
    let ScalingBasis::Replicas(on) = &scaled.scaling.basis else { panic!("{scaled:?}") };
    (**on).clone()
}

/// In a rack of 72 GPUs, machines of 4 exchange over its links.
#[test]
fn the_rack_is_named() {
    let rack = GpuFacts { fabric: Fabric::new(crate::shipped::catalog().find("gb200").unwrap()), ..gpu() };
    let of = |machines| {
        let layout = Layout { machines, gpus: 4, ..layout(8, 1, 1) };
        let scaled = optimizer_step(&one(&step(), Some(&model())), &rack, &layout, &workload(), Factors::default(), 1);
        let on = replicas(&scaled.unwrap());
        (on.rack, on.uses_network)
    };
    assert_eq!([of(16), of(36)], [(Some(72), false), (Some(72), true)]);
}

/// 4 GPUs divide products and the rest; 17 times in each of 8 layers a quarter of 1 MB goes to three others.
#[test]
fn the_collectives_of_layers_by_hand() {
    let four = Layout { gpus: 4, ..layout(4, 1, 1) };
    let once = 35.0 + 0.75 * 1e6 / (355e9 * 0.87) * 1e6;
    with(&four, 1, |of, end| {
        is(of.reduced(end), 8.0 * 9.0 * once);
        is(of.computed(end), 0.8e6 * (1.0 + 2.0 * NARROWER) / 4.0 + 0.1e6 / 4.0);
        is(of.time(end), of.computed(end).get() + of.reduced(end).get() + 0.1e6 / 4.0);
        let whole = End { is_sequence_parallel: false, ..*end };
        is(of.computed(&whole), 0.8e6 * (1.0 + 2.0 * NARROWER) / 4.0 + 0.1e6);
        is(of.reduced(&whole), 8.0 * 4.0 * (65.0 + 1.5 * 1e6 / (470e9 * 0.87) * 1e6));
    });
}

/// GPUs with the same layers: with 8-way tensor parallel one in each machine, without it all of a machine.
#[test]
fn gradients_meet_among_replicas() {
    let of = |tensor, pipeline, machines| {
        let layout = layout(tensor, pipeline, machines);
        let (step, model, gpu) = (step(), model(), gpu());
        let of = Replica::new(&one(&step, Some(&model)), &gpu, &layout, &workload(), 1).unwrap();
        (of.of_peers().inside, of.of_peers().machines)
    };
    assert_eq!(of(8, 2, 4), (1, 2));
    assert_eq!(of(8, 1, 4), (1, 4));
    assert_eq!(of(2, 2, 2), (4, 1));
    assert_eq!(of(1, 1, 2), (8, 2));
}

/// Four GPUs that share a sequence are in one machine, however many machines there are; a rack of 72 is one, too.
#[test]
fn what_links_join_does_not_use_the_network() {
    let mut four = layout(1, 1, 2);
    four.parallel.context = 4;
    with(&four, 1, |of, end| {
        assert_eq!(of.between(end, 4), of.gpu.fabric.send());
        assert_eq!(of.between(end, 16), of.network(end, 1));
        assert_eq!((of.of_peers().inside, of.of_peers().machines), (8, 2));
    });
    let rack = GpuFacts { fabric: Fabric::new(crate::shipped::catalog().find("gb200").unwrap()), ..gpu() };
    let (step, model) = (step(), model());
    for (machines, peers) in [(18, (72, 1)), (36, (72, 2))] {
        let layout = Layout { machines, gpus: 4, ..layout(1, 1, 1) };
        let of = Replica::new(&one(&step, Some(&model)), &rack, &layout, &workload(), 1).unwrap();
        assert_eq!((of.of_peers().inside, of.of_peers().machines), peers);
    }
}

/// A factor of 0, from a machine on which several GPUs were not slower, leaves the operators and the update.
#[test]
fn a_measured_factor_keeps_the_update() {
    let (step, model) = (step(), model());
    let layout = Layout { sharding: Sharding::Zero1, ..layout(1, 1, 1) };
    let found = optimizer_step(
        &one(&step, Some(&model)),
        &gpu(),
        &layout,
        &workload(),
        Factors { scaling: Some(0.0), layouts: None },
        1,
    )
    .unwrap();
    is(found.step.range.mid, 0.9e6 * 1.000 + 0.1e6 / 8.0);
}

/// 20 GB of weights gathered twice and scattered once by 8 GPUs at 355 GB/s, in 8 parts: behind a forward pass of
/// 0.3 s and a backward pass of 0.6 s only the first and the last part remain. Gradients in 32 bits are twice that.
#[test]
fn traffic_of_divided_state_by_hand() {
    let work = Workload { parameter_count: Some(10_000_000_000), precision: Some(Precision::Bf16), ..workload() };
    let (step, model, gpu) = (step(), model(), gpu());
    let exposed = |sharding| {
        let layout = Layout { sharding, ..layout(1, 1, 1) };
        let of = Replica::new(&one(&step, Some(&model)), &gpu, &layout, &work, 1).unwrap();
        let end = End { program: 1.0, ..of.expected() };
        of.exposed(&end)
    };
    let pass = |gigabytes: f64, parts: f64| gigabytes * 1e9 * 0.875 / 355e9 * 1e6 + 35.0 * parts;
    let full = exposed(Sharding::Zero3);
    is(full.each, 2.0 * pass(20.0, 8.0) / 8.0);
    assert_eq!(full.once, Micros::ZERO);
    is(exposed(Sharding::Zero1).once, (pass(20.0, 1.0) + pass(40.0, 1.0)) / 8.0);
}

#[test]
fn the_layout_is_named() {
    let of = |layout: &Layout, batches| {
        optimizer_step(&one(&step(), Some(&model())), &gpu(), layout, &workload(), Factors::default(), batches)
    };
    let on = replicas(&of(&layout(8, 2, 4), 16).unwrap());
    assert_eq!((on.layout.replicas(), on.micro_batches, on.bubble), (2, 16.0, Some(1.0 / 16.0)));
    assert!(on.exposed.is_some() && on.handed.is_some() && on.ring.is_none(), "{on:?}");
    let mut divided = layout(2, 1, 1);
    divided.parallel.context = 4;
    let on = replicas(&of(&divided, 1).unwrap());
    assert_eq!((on.layout.replicas(), on.micro_batches, on.bubble), (1, 1.0, None));
    assert!(on.ring.is_some() && on.handed.is_none(), "{on:?}");
}

/// A model whose experts take half of the divided time, and a fifth of that with all tokens at one of them.
fn sparse() -> TransformerStep {
    let experts =
        ExpertShare { count: 64, layers: 8, exchanged: Bytes::known(8e8), weights: 60e6, products: 0.4, together: 0.2 };
    TransformerStep { experts: Some(experts), ..model() }
}

/// 8 GPUs with 8 experts each. The products of the experts take 0.4 · (0.2 + 0.8 / 8) of the step, not 0.4. Each
/// of 8 layers exchanges tokens to and fro in both passes, 800 MB each time: 7/8 of it leaves the GPU.
#[test]
fn gpus_that_divide_experts_by_hand() {
    let of = |expert, model: &TransformerStep| {
        let mut layout = layout(1, 1, 1);
        (layout.parallel.expert, layout.sharding) = (expert, Sharding::Zero1);
        optimizer_step(&one(&step(), Some(model)), &gpu(), &layout, &workload(), Factors::default(), 1).unwrap()
    };
    let parts = of(8, &sparse());
    let fabric = Fabric::typical(gpu().link);
    let group = Group { inside: 8, machines: 1 };
    let once = fabric.time(Collective::Exchange, Bytes::known(8e8), group, BytesPerSecond::known(1.0));
    let [computed, exchanged] = [1e6 * (0.9 - 0.4 * 0.8 * 7.0 / 8.0) * PROGRAM[1], once.get() * 32.0];
    let expected = computed + exchanged + 1e6 * 0.1 / 8.0;
    let gathered = parts.step.range.mid.get() - expected;
    // The rest is the exposed gather and scatter of 100 million parameters.
    assert!((0.0..1e3).contains(&gathered), "{gathered} {expected}");
    assert!(replicas(&parts).tokens.is_some(), "{parts:?}");
    // On 4 machines those with the same experts are on different ones: the network of each machine carries as much.
    let across = |expert| {
        let mut layout = layout(1, 1, 4);
        (layout.parallel.expert, layout.sharding) = (expert, Sharding::Zero1);
        let (of, model) = (step(), sparse());
        Replica::new(&one(&of, Some(&model)), &gpu(), &layout, &workload(), 1).unwrap().of_same_experts()
    };
    assert_eq!(
        [across(8), across(4), across(16)].map(|group| (group.inside, group.machines)),
        [(1, 4), (2, 4), (1, 2)]
    );
    // Each GPU with all experts exchanges nothing.
    let whole = of(1, &sparse());
    assert_eq!(whole.step.range.mid, of(1, &model()).step.range.mid);
    assert!(whole.step.range.high.get() > 1.4 * whole.step.range.mid.get());
}

/// 20,000 launches take 38 µs each: 760 ms, more than the 100 ms of each of 8 GPUs' own work.
#[test]
fn the_host_bounds_divided_steps() {
    let of = |launches: f64| {
        let model = TransformerStep { launches, ..model() };
        optimizer_step(&one(&step(), Some(&model)), &gpu(), &layout(8, 1, 1), &workload(), Factors::default(), 1)
            .unwrap()
            .step
            .range
    };
    let (free, bound) = (of(0.0), of(20_000.0));
    assert!(free.mid.get() < 2.5e5, "{free:?}");
    let waited = bound.mid.get() - free.mid.get();
    let own = 1e6 * (0.8 * (1.0 + 3.0 * NARROWER) / 8.0 + 0.1 / 8.0);
    assert!((waited - (7.6e5 - own) * PROGRAM[1]).abs() < 1.0, "{waited}");
    assert!(bound.high.get() > 9e5 && bound.low.get() < 6e5, "{bound:?}");
    // The step on one GPU has waited for its host.
    assert!(of(1e9).mid.get() < 1.1e6 * PROGRAM[1]);
}

/// A quarter of the step is the forward pass of layers: of the 0.9 s without the update, 0.25 s run again.
#[test]
fn recomputed_layers_run_again() {
    let mut again = layout(1, 1, 1);
    again.parallel.recompute = true;
    with(&again, 1, |of, end| is(of.computed(end), 0.9e6 + 0.25e6));
}

/// A forward pass run again exchanges and reduces a third more.
#[test]
fn recomputed_layers_send_again() {
    let of = |recomputes: bool| {
        let (step, model) = (step(), sparse());
        let mut divided = layout(2, 1, 1);
        (divided.parallel.expert, divided.parallel.recompute) = (4, recomputes);
        let one = one(&step, Some(&model));
        let replica = Replica::new(&one, &gpu(), &divided, &workload(), 1)
            .map(|it| [it.tokens(&it.expected()), it.reduced(&it.expected())]);
        replica.unwrap().map(Micros::get)
    };
    let ([once, reduced], [again, more]) = (of(false), of(true));
    assert!((again / once - 1.5).abs() < 1e-9 && (more / reduced - 13.0 / 9.0).abs() < 1e-9, "{again} {more}");
}

#[test]
fn what_cannot_be_divided_so_is_refused() {
    let of = |layout: Layout, model| {
        optimizer_step(&one(&step(), model), &gpu(), &layout, &workload(), Factors::default(), 1)
    };
    let (known, error) = (Some(&model()), |found: Result<ScaledStep, ScaleError>| found.unwrap_err());
    assert_eq!(error(of(layout(2, 1, 1), None)), ScaleError::NoLayers);
    assert_eq!(error(of(layout(16, 1, 2), known)), ScaleError::TensorOfMachine { tensor: 16, gpus: 8, replica: 16 });
    // A rack joins machines of 4.
    let mut rack = gpu();
    rack.fabric.domain = 72;
    let across = Layout { gpus: 4, ..layout(8, 1, 4) };
    let step_of =
        |gpu: &GpuFacts| optimizer_step(&one(&step(), known), gpu, &across, &workload(), Factors::default(), 1);
    assert!(step_of(&rack).is_ok());
    assert_eq!(error(step_of(&gpu())), ScaleError::TensorOfMachine { tensor: 8, gpus: 4, replica: 8 });
    assert_eq!(
        error(of(layout(4, 3, 2), known)),
        ScaleError::Replicas { machines: 2, gpus: 8, replica: 12, needed: 3 }
    );
    assert_eq!(error(of(layout(1, 16, 2), known)), ScaleError::Stages { stages: 16, layers: 8 });
    let heads = TransformerStep { heads: 12, ..model() };
    let indivisible = error(of(layout(8, 1, 1), Some(&heads)));
    assert_eq!(indivisible, ScaleError::Heads { tensor: 8, heads: 12 });
    assert!(indivisible.to_string().ends_with("use 6 or 12"), "{indivisible}");
    let sparse = sparse();
    let with_experts = |expert, machines| {
        let mut layout = layout(1, 1, machines);
        layout.parallel.expert = expert;
        layout
    };
    assert_eq!(error(of(with_experts(8, 1), known)), ScaleError::NoExperts);
    assert_eq!(error(of(with_experts(24, 3), Some(&sparse))), ScaleError::Experts { gpus: 24, experts: 64 });
    assert_eq!(
        error(of(with_experts(16, 1), Some(&sparse))),
        ScaleError::Replicas { machines: 1, gpus: 8, replica: 16, needed: 2 }
    );
}

/// Between networks whose gradients DDP sends and models with the traffic of collectives lies no jump.
#[test]
fn steps_grow_evenly_with_the_parameters() {
    let of = |count: f64| {
        let work = Workload { parameter_count: Some(count as u64), ..workload() };
        optimizer_step(&one(&step(), Some(&model())), &gpu(), &layout(1, 1, 1), &work, Factors::default(), 1).unwrap()
    };
    for count in FITTED_PARAMETERS {
        let [below, above] = [0.999, 1.001].map(|factor| of(count * factor).step.range.mid.get());
        assert!((above / below - 1.0).abs() < 0.01, "{count:e}: {below} {above}");
    }
}

proptest! {
    /// A small network on each GPU is unaffected by its layers.
    #[test]
    fn a_whole_model_on_each_gpu_is_as_before(
        machines in 1..5u32, batches in 1..9u64, millis in 1.0..1e5f64, is_known: bool,
    ) {
        let step = Estimate::with_band(Micros::known(millis * 1e3), 0.2, Method::Roofline);
        let (model, layout) = (model(), layout(1, 1, machines));
        let one = one(&step, is_known.then_some(&model));
        let now = optimizer_step(&one, &gpu(), &layout, &workload(), Factors::default(), batches);
        let scaled = scaled_step(&step, &gpu(), &layout, &workload(), None).unwrap();
        let before = scaled.accumulated(&one, batches);
        prop_assert_eq!(now.unwrap(), before);
    }

    /// The ends enclose the middle for any layout, also if stages pass much over a slow link.
    #[test]
    fn ends_lie_around_the_middle(
        tensor in 0..4u32, pipeline in 1..9u32, batches in 1..33u64, millis in 1.0..1e5f64, bytes in 1e6..1e10f64,
        sharding in 0..4usize,
    ) {
        let model = TransformerStep { activations: Bytes::known(bytes), ..model() };
        let step = Estimate::with_band(Micros::known(millis * 1e3), 0.2, Method::Roofline);
        let layout = Layout { sharding: Sharding::ALL[sharding], ..layout(1 << tensor, pipeline, pipeline) };
        let of = optimizer_step(&one(&step, Some(&model)), &gpu(), &layout, &workload(), Factors::default(), batches);
        let Range { low, mid, high } = of.unwrap().step.range.map(Micros::get);
        prop_assert!(low > 0.0 && low <= mid && mid <= high, "{low} {mid} {high}");
    }
}

/// A run that takes 1.2 times as long as predicted makes its own step exact, and another layout's 1.2 times as long too.
#[test]
fn a_measured_run_corrects_other_layouts() {
    let (step, model) = (step(), model());
    let of = |layout: &Layout, layouts| {
        let factors = Factors { scaling: None, layouts };
        optimizer_step(&one(&step, Some(&model)), &gpu(), layout, &workload(), factors, 4).unwrap().step.range
    };
    let [known, other] = [layout(4, 1, 1), layout(2, 2, 1)];
    let measured = of(&known, None).mid * 1.2;
    let factors = crate::scale::fit_layouts(&[measured], |_, factors| Ok(of(&known, Some(factors)).mid)).unwrap();
    assert!((of(&known, Some(factors)).mid / measured - 1.0).abs() < 1e-6);
    let [before, after] = [None, Some(factors)].map(|factors| of(&other, factors));
    assert!((after.mid / before.mid - 1.2).abs() < 0.01, "{before:?} {after:?}");
    assert!(after.high / after.low < before.high / before.low, "{before:?} {after:?}");
}

/// A small network on each GPU takes what was fitted to pairs. Layout factors correct the formulas of layouts: a run is
/// then as measured, and the scaling factor of other networks does not apply.
#[test]
fn layout_factors_correct_small_models_on_each_gpu() {
    let (step, model) = (step(), model());
    let of = |known, scaling, layouts| {
        let (layout, factors) = (layout(1, 1, 1), Factors { scaling, layouts });
        optimizer_step(&one(&step, known), &gpu(), &layout, &workload(), factors, 4).unwrap().step.range.mid
    };
    let measured = of(Some(&model), None, None) * 1.3;
    let fit = |_, factors| Ok(of(Some(&model), None, Some(factors)));
    let factors = crate::scale::fit_layouts(&[measured], fit).unwrap();
    assert!((1.0..1.5).contains(&factors.compute), "{factors:?}");
    for scaling in [None, Some(5.0)] {
        is(of(Some(&model), scaling, Some(factors)), measured.get());
    }
    // Networks without layers have no layouts.
    assert_eq!(of(None, Some(5.0), Some(factors)), of(None, Some(5.0), None));
}
