//! Model parallelism: replicas of several GPUs, given by the user.

use habitat_tui::plan::check::{CheckError, check, check_sources};
use habitat_tui::plan::{
    Confidence, Goal, LayoutChoice, LayoutVerdict, Limits, Objective, Part, Plan, PlanError, PlanStatus, RejectionKind,
    ShardingChoice, Work, plan,
};
use habitat_tui::predict::memory::Activations;
use habitat_tui::predict::scale::{ModelParallel, ScaleError};
use habitat_tui::predict::sharding::{ModelStates, Sharding};
use habitat_tui::predict::transformer::{ExpertShare, TransformerStep};
use habitat_tui::predict::{Finding, Fits, Predictions};
use habitat_tui::pricing::{Offer, PriceBook, Tier};
use habitat_tui::profile::Mode;
use habitat_tui::report::words::Words;
use habitat_tui::report::words::assumed::assumed;
use habitat_tui::units::{Bytes, GIB};

use crate::build::{goal, measured, offer, predictions, told};

fn gib(gib: f64) -> Bytes {
    Bytes::new(gib * GIB).unwrap()
}

/// One second for one sample on one GPU, four fifths of it in operators that tensor parallel GPUs divide, of a model of
/// 16 layers that needs 72 GiB and 1 GB: 64 for its state, 8 for activations. GPUs have 16.
fn model() -> Predictions {
    with_activations(8.0)
}

fn with_activations(activations: f64) -> Predictions {
    let mut all = predictions([measured("a", 3600.0)]);
    all.workload.parameter_count = Some(1_000_000_000);
    let model = &mut all.predictions[0];
    let memory = &mut model.memory;
    let needed = Bytes::new((64.0 + activations) * GIB + 1e9).unwrap();
    (memory.fits, memory.needed, memory.at_most) = (Fits::No, Some(needed), Some(needed));
    // With the allocator's reserve of a tenth.
    let tensors = |of: f64| gib(of / 1.1);
    let (parameters, gradients, optimizer) = (tensors(8.0), tensors(8.0), tensors(48.0));
    memory.states = Some(ModelStates { parameters, gradients, optimizer, is_assumed: false });
    memory.activations = Some(Activations { least: tensors(activations), most: tensors(activations) });
    model.transformer = Some(TransformerStep {
        layers: 16,
        heads: 32,
        batch_size: Some(1),
        activations: Bytes::new(20e6).unwrap(),
        recomputes: false,
        experts: None,
        divided: 0.8,
        update: 0.1,
        outside: 0.0,
        ends: [0.0; 2],
        inside: 0.0,
        forward: 0.25,
        inputs: Bytes::new(320e6).unwrap(),
        launches: 0.0,
        launches_again: 0.0,
    });
    all
}

fn machine(gpus: u32) -> PriceBook {
    PriceBook::new([Offer {
        gpu_count: gpus,
        network_gbit_per_second: Some(100.0),
        ..offer("a", f64::from(gpus), Tier::OnDemand)
    }])
}

fn divided(tensor: u32, pipeline: u32, machines: u32) -> Goal {
    Goal {
        work: Work::Steps(1000),
        global_batch: Some(32),
        objective: Objective::Time,
        model_parallel: ModelParallel { tensor, pipeline, ..ModelParallel::NONE },
        limits: Limits { max_machines: machines, ..Limits::default() },
        ..goal(1.0, 1)
    }
}

fn planned(model: &Predictions, prices: &PriceBook, goal: &Goal) -> Plan {
    let found = plan(model, prices, goal).unwrap();
    assert_eq!((check(&found), check_sources(&found, model, prices)), (Ok(()), Ok(())));
    found
}

/// 16 GPUs in two replicas of 4 × 2: each handles 16 of the 32 samples of an update in micro-batches of one, and no GPU
/// has its own batch.
#[test]
fn an_update_is_of_replicas_not_of_gpus() {
    let found = planned(&model(), &machine(8), &divided(4, 2, 2));
    let part = &found.parts[0];
    assert_eq!((part.all_gpus(), part.machines, part.replicas()), (16, 2, 2));
    assert_eq!((part.batch_size, part.accumulation, part.global_batch_size), (Some(1), 16, Some(32)));
    assert!((part.updates() - 1000.0).abs() < 1e-6 && (found.work.get() - 32_000.0).abs() < 1e-6);
    // 0.8 s and 0.1 s over 4 GPUs, and the slowest of 16 takes 0.6 % longer; 9 gathers of 20 MB at 22 GB/s in each of
    // 16 layers.
    let slowest = 1.006;
    let computed = slowest * (0.8 * 1.01 / 4.0 + 0.1 / 4.0);
    let gathers = 16.0 * 9.0 * (30e-6 + 0.75 * 0.02 / (22.0 * 0.87));
    // Half on each stage; 2 × 5 MB are passed on through an eighth of 6.25 GB/s.
    let slot = f64::midpoint(computed, gathers) + 0.01 / (6.25 / 8.0);
    // Half a GB of gradients, between 2 GPUs of a machine; the backward pass hides all but an eighth.
    let reduce = 40e-6 + 0.5 / (24.0 * 0.7);
    assert!(reduce < 0.85 * 2.0 / 3.0 * computed / 2.0);
    let step = (slot * 17.0 + reduce / 8.0 + 0.1 / 8.0) * 1e6;
    assert!((part.step_time_us.mid / step - 1.0).abs() < 1e-9, "{} µs, not {step}", part.step_time_us.mid);
    assert!((part.hours.mid.get() / (1000.0 * step / 3.6e9) - 1.0).abs() < 1e-9);
    assert!(part.step_time_us.low < part.step_time_us.mid && part.step_time_us.mid < part.step_time_us.high);
    let names = "2 replicas of 4-way tensor parallel × 2 pipeline stages, 16 micro-batches: 6 % bubble, ";
    assert!(part.notes[0].words().starts_with(names), "{:?}", part.notes);
    assert!(assumed(&found.goal).iter().any(|one| one.name == "model parallel"));
}

/// 8 GiB of state, 1 GB of the process and a quarter of the activations with the inputs gathered for a layer, or 16/34
/// without sequence parallelism; 14.7 are usable.
#[test]
fn what_a_gpu_of_a_replica_keeps_decides() {
    let reason = |activations: f64, goal: &Goal| {
        let found = planned(&with_activations(activations), &machine(8), goal);
        found.rejected.first().map(|rejection| (rejection.reason.kind(), rejection.reason.words()))
    };
    let goal = divided(4, 2, 1);
    assert_eq!(reason(8.0, &goal), None);
    let large = "needs 21.0 GB with 4-way tensor parallel × 2 pipeline stages; the GPU has 14.7 of 16 GB available";
    assert_eq!(reason(48.0, &goal), Some((RejectionKind::Memory, large.to_owned())));
    // The plan reports the memory without sequence parallelism.
    assert_eq!(reason(16.0, &goal), None);
    let part = planned(&with_activations(16.0), &machine(8), &goal).parts.remove(0);
    let needs = "needs 13.0 GB with 4-way tensor parallel × 2 pipeline stages on the first stage, 16.5 without sequence parallelism, 14.7 GB usable";
    let notes: Vec<String> = part.notes.iter().map(Words::words).collect();
    assert!(notes.iter().any(|note| note.contains(needs)), "{notes:?}");
}

#[test]
fn gpus_that_make_no_whole_replicas_are_left_out_with_the_reason() {
    let reason = |gpus: u32, goal: &Goal| {
        let found = planned(&model(), &machine(gpus), goal);
        assert_eq!(found.status, PlanStatus::Infeasible);
        (found.rejected[0].reason.kind(), found.rejected[0].reason.words())
    };
    assert_eq!(
        reason(6, &divided(4, 1, 2)),
        (
            RejectionKind::Layout,
            "4-way tensor parallel needs machines with a multiple of 4 GPUs; these have 6: use 3 or 6 (a replica takes 4 GPUs)"
                .to_owned()
        )
    );
    assert_eq!(
        reason(8, &divided(4, 3, 1)),
        (
            RejectionKind::Layout,
            "a replica takes 12 GPUs: whole ones need a multiple of 3 machines with 8 GPUs, not 1 (--max-machines)"
                .to_owned()
        )
    );
    // Replicas of 12 GPUs are whole on 3 machines of 8 or 6 of them, whatever other numbers are allowed.
    for (most, nodes) in [(3, 3), (4, 3), (8, 6)] {
        let found = planned(&model(), &machine(8), &Goal { global_batch: None, ..divided(4, 3, most) });
        assert_eq!((found.parts[0].machines, found.parts[0].replicas()), (nodes, nodes * 8 / 12), "{most}");
    }
    // Replicas share the global batch.
    let odd = Goal { global_batch: Some(33), ..divided(4, 2, 2) };
    let reasons = reason(16, &odd).1;
    assert!(reasons.contains("replicas with 1 sample each make"), "{reasons}");
}

#[test]
fn what_cannot_be_planned_says_why() {
    let refused = |model: &Predictions, goal: &Goal| plan(model, &machine(8), goal).unwrap_err();
    assert!(matches!(refused(&model(), &divided(0, 1, 1)), PlanError::ModelParallel(0, _)));
    assert!(matches!(refused(&model(), &divided(1, 5000, 1)), PlanError::ModelParallel(5000, _)));
    let mut inference = model();
    inference.workload.mode = Mode::Inference;
    let no_batch = Goal { global_batch: None, ..divided(2, 1, 1) };
    assert_eq!(refused(&inference, &no_batch), PlanError::ModelParallelOfInference);
    let mut unknown = model();
    unknown.predictions[0].transformer = None;
    assert_eq!(refused(&unknown, &divided(2, 1, 1)), PlanError::ModelParallelUnknown(ScaleError::NoLayers));
    assert!(PlanError::ModelParallelUnknown(ScaleError::NoLayers).to_string().contains("no attention layers found"));
    let mut share = model();
    share.predictions[0].warnings = vec![Finding::Sharded { evidence: Vec::new() }];
    assert_eq!(refused(&share, &divided(2, 1, 1)), PlanError::ModelParallelOfShare);
    let stages = ScaleError::Stages { stages: 32, layers: 16 };
    assert_eq!(refused(&model(), &divided(1, 32, 1)), PlanError::ModelParallelUnknown(stages));
    let mut long = model();
    long.workload.sequence_length = Some(8192);
    let three = Goal { model_parallel: ModelParallel { context: 3, ..ModelParallel::NONE }, ..divided(1, 1, 1) };
    let sequences = refused(&long, &three).to_string();
    assert!(sequences.ends_with("8192 tokens are not divisible by 3-way context parallel: use 2 or 4"), "{sequences}");
}

/// FSDP with pipeline stages: 2 replicas of 8 stages divide the state of a stage, and send it for each micro-batch; within a
/// machine each of 2 machines has a whole copy.
#[test]
fn replicas_of_stages_and_machines_divide_parameters() {
    let small = with_activations(2.0);
    let limits = Limits { max_machines: 2, min_gpus: 16, ..Limits::default() };
    let part = |sharding, goal: Goal| {
        planned(&small, &machine(8), &Goal { sharding, limits: limits.clone(), ..goal }).parts.remove(0)
    };
    let [once, each] = [ShardingChoice::Zero1, ShardingChoice::Zero3].map(|of| part(of, divided(1, 8, 2)));
    assert_eq!((each.sharding, each.replicas(), each.shards()), (Sharding::Zero3, 2, 2));
    assert!(each.step_time_us.mid > once.step_time_us.mid);
    let [all, hybrid] = [ShardingChoice::Zero3, ShardingChoice::Hsdp].map(|of| part(of, divided(1, 1, 2)));
    assert_eq!((all.shards(), hybrid.shards(), hybrid.replicas()), (16, 8, 16));
    // Gathers stay within a machine; sums of an eighth of the gradients cross the network of 100 Gbit/s.
    assert!(hybrid.step_time_us.mid < all.step_time_us.mid, "{:?} {:?}", hybrid.step_time_us, all.step_time_us);
    let is_told = |part: &Part, what: &str| told(&part.notes).iter().any(|note| note.contains(what));
    assert!(is_told(&hybrid, "hsdp on 8 GPUs") && is_told(&all, "zero3 on 16 GPUs"), "{:?}", told(&hybrid.notes));
}

/// The least sharding over replicas that fits.
#[test]
fn replicas_divide_state_too() {
    // 8 of state and 8 of activations are 16.9 with the process; zero1 turns 6 of the 8 GiB into 3.
    let goal = Goal { sharding: ShardingChoice::Auto, ..divided(1, 8, 2) };
    let part = planned(&model(), &machine(8), &goal).parts.remove(0);
    assert_eq!((part.replicas(), part.sharding), (2, Sharding::Zero1));
    assert!(
        told(&part.notes)
            .iter()
            .any(|note| note.starts_with("each GPU needs 13.9 GB with 8 pipeline stages on the first stage, zero1"))
    );
    let without = Goal { sharding: ShardingChoice::None, ..divided(1, 8, 1) };
    let reason = planned(&model(), &machine(8), &without).rejected[0].reason.words();
    assert!(reason.ends_with("; would fit with --sharding zero1 on 16 GPUs"), "{reason}");
}

#[test]
fn the_check_refuses_another_layout() {
    let prices = machine(8);
    let found = planned(&model(), &prices, &divided(4, 2, 2));
    let broken = |change: &dyn Fn(&mut Plan)| {
        let mut broken = found.clone();
        change(&mut broken);
        check(&broken).and_then(|()| check_sources(&broken, &model(), &prices)).unwrap_err()
    };
    let other =
        broken(&|plan| plan.goal.model_parallel = ModelParallel { tensor: 2, pipeline: 4, ..ModelParallel::NONE });
    assert!(matches!(other, CheckError::Offer { what: "its model parallelism differs from the goal", .. }), "{other}");
    let faster = broken(&|plan| plan.parts[0].step_time_us.mid *= 0.9);
    assert!(matches!(faster, CheckError::Number { .. }), "{faster}");
}

/// The layout that the search finds is not slower than the fastest explicit one, at the minimised end of the hours.
#[test]
fn the_search_finds_the_fastest_layout() {
    let experts =
        ExpertShare { count: 16, layers: 16, exchanged: Bytes::known(1e8), weights: 6e8, products: 0.4, together: 0.5 };
    let all = [
        (1, 8.0, None, None),
        (2, 8.0, None, Some(4096)),
        (2, 24.0, None, None),
        (3, 24.0, None, Some(16_384)),
        (4, 2.0, None, None),
        (1, 8.0, Some(experts), None),
        (2, 8.0, Some(experts), None),
    ];
    for (machines, activations, experts, length) in all {
        let mut model = with_activations(activations);
        model.workload.sequence_length = length;
        let contexts = [1, 2, 4, 8].into_iter().filter(|context| *context == 1 || length >= Some(context * 2048));
        model.predictions[0].transformer.as_mut().unwrap().experts = experts;
        let searched = Goal { layout: LayoutChoice::Auto, ..divided(1, 1, machines) };
        let found = planned(&model, &machine(8), &searched);
        let mut fastest: Option<(f64, ModelParallel)> = None;
        for tensor in [1, 2, 4, 8] {
            for pipeline in 1..=16 {
                let degrees = [1, 2, 4, 8].into_iter().flat_map(|chunks| [1, 2, 4, 8, 16].map(|one| (chunks, one)));
                let degrees = degrees.flat_map(|both| contexts.clone().map(move |context| (both, context as u32)));
                let degrees = degrees.flat_map(|all| [false, true].map(|again| (all, again)));
                for (((chunks, expert), context), recompute) in degrees {
                    if 16 % (pipeline * chunks) > 0 && chunks > 1 || experts.is_none() && expert > 1 {
                        continue;
                    }
                    let parallel = ModelParallel { tensor, pipeline, chunks, context, expert, recompute };
                    let goal = Goal {
                        layout: LayoutChoice::Given,
                        model_parallel: parallel,
                        sharding: ShardingChoice::Auto,
                        ..searched.clone()
                    };
                    let Ok(plan) = plan(&model, &machine(8), &goal) else { continue };
                    let Some(part) = plan.parts.first() else { continue };
                    let hours = searched.confidence.end(&part.hours).get();
                    if fastest.is_none_or(|(known, _)| hours < known) {
                        fastest = Some((hours, parallel));
                    }
                }
            }
        }
        let (hours, parallel) = fastest.unwrap();
        let part = &found.parts[0];
        let own = searched.confidence.end(&part.hours).get();
        assert!(own / hours < 1.0 + 1e-9, "{machines} {:?} {own} {parallel:?} {hours}", part.parallel);
    }
}

/// The plan's layout is among others of its machines, fastest first: each as fast as a plan that names it, or short of
/// memory, or wider than the links.
#[test]
fn the_layouts_beside_the_plans_say_why_they_lost() {
    let searched = Goal { layout: LayoutChoice::Auto, confidence: Confidence::Expected, ..divided(1, 1, 2) };
    let plan = planned(&with_activations(24.0), &machine(8), &searched);
    let (part, own) = (&plan.parts[0], plan.chosen_layout().unwrap());
    assert_eq!((plan.layouts[own].parallel, plan.layouts[own].sharding), (part.parallel, part.sharding));
    assert!((3..=6).contains(&plan.layouts.len()), "{:?}", plan.layouts);
    let (mut slower, mut short) = (0, 0);
    for (place, option) in plan.layouts.iter().enumerate() {
        let given = Goal {
            layout: LayoutChoice::Given,
            model_parallel: option.parallel,
            sharding: ShardingChoice::of(option.sharding),
            ..searched.clone()
        };
        let named = planned(&with_activations(24.0), &machine(8), &given);
        let step = named.parts.first().map(|part| part.step_time_us.mid);
        match option.verdict {
            LayoutVerdict::Chosen => assert_eq!(step, Some(part.step_time_us.mid)),
            LayoutVerdict::Time { share, .. } => {
                assert!((step.unwrap() / part.step_time_us.mid - 1.0 - share).abs() < 1e-9, "{option:?}");
                assert!(place > own && option.verdict.words().starts_with('+'), "{option:?}");
                slower += 1;
            }
            LayoutVerdict::Memory { short_bytes, .. } => {
                assert!(place < own && step.is_none() && short_bytes.get() > 0.0, "{option:?}");
                short += 1;
            }
            LayoutVerdict::LeavesLinks { joined } => assert_eq!((joined, step), (8, None)),
        }
    }
    assert!(slower >= 2 && short == 1, "{:?}", plan.layouts);
    // A layout that the user names stands among them too; a model that fits on one GPU has none.
    let named = planned(&with_activations(24.0), &machine(8), &divided(8, 1, 2));
    assert_eq!(named.chosen_layout().map(|own| named.layouts[own].parallel.tensor), Some(8));
    let mut small = model();
    small.predictions[0].memory.fits = Fits::Yes;
    assert_eq!(planned(&small, &machine(8), &searched).layouts, []);
}

/// Of all layouts that do not fit, reports the one that needs least.
#[test]
fn the_layout_that_misses_by_least_is_told() {
    let searched = Goal { layout: LayoutChoice::Auto, ..divided(1, 1, 1) };
    let plan = planned(&with_activations(60.0), &machine(2), &searched);
    let reason = plan.rejected[0].reason.words();
    assert!(reason.contains("with 2") && !reason.contains("needs 72"), "{reason}");
}

/// 50 of 400 GB of activations are too much for each of 8 GPUs; a sixteenth of all, and inputs of layers, fit.
#[test]
fn layers_run_again_if_nothing_else_fits() {
    let searched = Goal { layout: LayoutChoice::Auto, ..divided(1, 1, 1) };
    let part = planned(&with_activations(400.0), &machine(8), &searched).parts.remove(0);
    assert!(part.parallel.recompute && part.parallel.words().ends_with("recomputed layers"), "{:?}", part.parallel);
    let few = planned(&with_activations(8.0), &machine(8), &searched).parts.remove(0);
    assert!(!few.parallel.recompute, "{:?}", few.parallel);
}

/// The search changes nothing for a step that fits on one GPU, and does not run if a degree is given.
#[test]
fn a_model_that_fits_keeps_its_layout() {
    let goal = Goal { layout: LayoutChoice::Auto, ..divided(1, 1, 2) };
    let mut small = model();
    small.predictions[0].memory.fits = Fits::Yes;
    let named = Goal { layout: LayoutChoice::Given, ..goal.clone() };
    let [searched, named] = [&goal, &named].map(|goal| planned(&small, &machine(8), goal).parts);
    assert_eq!(searched, named);
    assert_eq!((searched[0].parallel, searched[0].sharding), (ModelParallel::NONE, Sharding::None));
    let given = Goal { layout: LayoutChoice::Auto, ..divided(4, 2, 2) };
    let part = planned(&model(), &machine(8), &given).parts.remove(0);
    assert_eq!((part.parallel.tensor, part.parallel.pipeline, part.parallel.chunks), (4, 2, 1));
}
