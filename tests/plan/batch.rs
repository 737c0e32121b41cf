//! The global batch: micro-batches per update, and the effect of leaving it open.

use habitat_tui::plan::check::{CheckError, check, check_sources};
use habitat_tui::plan::{Goal, Objective, Plan, PlanError, PlanNote, PlanStatus, RejectionKind, Work, plan};
use habitat_tui::predict::memory::MemoryBasis;
use habitat_tui::predict::scale::extra_time;
use habitat_tui::predict::{AtBatch, Estimate, Fits, Method, Predictions};
use habitat_tui::pricing::{OWN_PLACE, Offer, PriceBook, Tier};
use habitat_tui::profile::Mode;
use habitat_tui::report::words::Words;
use habitat_tui::units::{Bytes, GIB, Micros};

use crate::build::{goal, measured, offer, offer_in, predictions, rejected, told};

/// A step of 32 samples in 0.36 s on one GPU, of a model of 100 million parameters.
fn step() -> Predictions {
    let mut step = predictions([measured("good", 10_000.0)]);
    step.workload.batch_size = Some(32);
    step.workload.parameter_count = Some(100_000_000);
    step
}

/// Machines with these numbers of GPUs.
fn machines(counts: &[u32]) -> PriceBook {
    PriceBook::new(counts.iter().map(|count| Offer {
        gpu_count: *count,
        ..offer_in(&format!("us-{count}"), "good", f64::from(*count), Tier::OnDemand)
    }))
}

fn steps(steps: u64, global_batch: Option<u64>) -> Goal {
    Goal { work: Work::Steps(steps), global_batch, ..goal(1.0, 1) }
}

fn planned(step: &Predictions, machines: &PriceBook, goal: &Goal) -> Plan {
    let plan = plan(step, machines, goal).unwrap();
    assert_eq!((check(&plan), check_sources(&plan, step, machines)), (Ok(()), Ok(())));
    plan
}

#[test]
fn an_update_is_so_many_batches_and_one_exchange() {
    let step = step();
    for (gpus, batches) in [(1, 32), (2, 16), (8, 4), (32, 1)] {
        let plan = planned(&step, &machines(&[gpus]), &steps(1000, Some(1024)));
        let part = &plan.parts[0];
        assert_eq!((part.batch_size, part.accumulation, part.global_batch_size), (Some(32), batches, Some(1024)));
        assert!((part.updates() - 1000.0).abs() < 1e-6 && (plan.work.get() - 1_024_000.0).abs() < 1e-6);
        let alone = step.predictions[0].planning_step().range.mid;
        let extra = if gpus == 1 {
            0.0
        } else {
            extra_time(alone, &step.predictions[0].gpu, gpus, &step.workload).unwrap().get()
        };
        let update = batches as f64 * alone.get() + extra;
        assert!((part.step_time_us.mid / update - 1.0).abs() < 1e-9, "{gpus} GPUs: {part:?}");
        let hours = 1000.0 * update / 3.6e9;
        assert!((part.hours.mid.get() / hours - 1.0).abs() < 1e-9, "{gpus} GPUs: {part:?}");
        assert!(!told(&plan.notes).iter().any(|note| note.contains("updates")), "{:?}", plan.notes);
    }
}

#[test]
fn machines_whose_batches_do_not_make_it_are_rejected_with_what_would_do() {
    let plan = planned(&step(), &machines(&[1, 3, 8, 16]), &steps(1000, Some(256)));
    let rejected = rejected(&plan);
    assert_eq!(rejected[0].0, RejectionKind::GlobalBatch);
    assert!(
        rejected[0].1.contains("not a multiple of that: no batch of up to 32 samples per GPU works"),
        "{rejected:?}"
    );
    assert!(rejected.iter().any(|(_, reason)| {
        reason.starts_with("16 GPUs with 32 samples each make 512 per step; the global batch of 256 is less than that: 16 samples per GPU works")
    }));
    let none = planned(&step(), &machines(&[16]), &steps(1000, Some(256)));
    assert_eq!(none.status, PlanStatus::Infeasible);
    assert!(
        none.reasons[1].words().starts_with("1 offer whose batches do not divide the global batch, nearest"),
        "{none:?}"
    );
}

#[test]
fn what_is_no_global_batch_is_an_error() {
    let mut step = step();
    let prices = PriceBook::new([offer("good", 1.0, Tier::OnDemand)]);
    let error = |step: &Predictions, batch| plan(step, &prices, &steps(10, Some(batch))).unwrap_err();
    assert_eq!(error(&step, 0), PlanError::GlobalBatch(0));
    assert_eq!(error(&step, u64::MAX), PlanError::GlobalBatch(u64::MAX));
    step.workload.mode = Mode::Inference;
    assert_eq!(error(&step, 32), PlanError::GlobalBatchOfInference);
    step.workload.mode = Mode::Training;
    step.workload.batch_size = None;
    assert_eq!(error(&step, 32), PlanError::GlobalBatchWithoutBatchSize);
    assert!(error(&step, 32).to_string().contains("--batch-size"));
}

#[test]
fn an_update_of_more_than_a_year_is_no_configuration() {
    let plan = plan(&step(), &machines(&[1]), &steps(1, Some(32_000_000_000))).unwrap();
    assert!(plan.rejected[0].reason.words().ends_with("takes longer than a year"), "{:?}", plan.rejected);
}

#[test]
fn without_one_the_plan_says_what_becomes_of_the_updates() {
    let mut step = step();
    let said = |step: &Predictions, gpus| {
        let mut notes = told(&planned(step, &machines(&[gpus]), &steps(100_000, None)).notes);
        notes.retain(|note| note.contains("updates"));
        notes
    };
    assert_eq!(
        said(&step, 16),
        ["global batch 512 instead of 32: 6,250 updates instead of 100,000. --global-batch 32 keeps yours"]
    );
    assert_eq!(said(&step, 1), [""; 0]);
    step.workload.batch_size = None;
    assert_eq!(
        said(&step, 16),
        [
            "each update uses the batches of all GPUs: 6,250 updates instead of 100,000; --batch-size with --global-batch keeps their number"
        ]
    );
    step.workload.mode = Mode::Inference;
    assert_eq!(said(&step, 16), [""; 0]);
}

#[test]
fn a_step_too_large_says_with_which_batch_it_would_fit() {
    let mut step = step();
    let memory = &mut step.predictions[0].memory;
    (memory.fits, memory.needed, memory.largest_batch) = (Fits::No, Bytes::new(18.2 * GIB).ok(), Some(20));
    let said = |step: &Predictions, goal: &Goal| planned(step, &machines(&[8]), goal).rejected[0].reason.words();
    let needs = "needs 18.2 GB; the GPU has 14.7 of 16 GB available; ";
    assert_eq!(
        said(&step, &steps(10, None)),
        format!("{needs}16 samples per GPU would fit: accumulation ×2 keeps the global batch of 256")
    );
    assert_eq!(
        said(&step, &steps(10, Some(960))),
        format!("{needs}20 samples per GPU would fit: accumulation ×6 keeps the global batch of 960")
    );
    assert_eq!(said(&step, &steps(10, Some(100))), format!("{needs}20 samples per GPU would fit"));
    // The same if it may fit.
    let memory = &mut step.predictions[0].memory;
    memory.fits = Fits::Unknown;
    memory.basis = MemoryBasis::Between { least: Bytes::known(15.0 * GIB), widest: Box::new(MemoryBasis::Unknown) };
    assert_eq!(
        said(&step, &steps(10, None)),
        format!(
            "{}; 16 samples per GPU would fit: accumulation ×2 keeps the global batch of 256",
            step.predictions[0].memory.basis.words()
        )
    );
    step.predictions[0].memory.fits = Fits::No;
    step.workload.mode = Mode::Inference;
    assert_eq!(said(&step, &steps(10, None)), format!("{needs}20 samples per GPU would fit"));
    step.predictions[0].memory.largest_batch = None;
    assert_eq!(format!("{}; ", said(&step, &steps(10, None))), needs);
}

/// 13.9 of 14.72 usable GiB leave room for an error of 5.6 %, 14 do not.
#[test]
fn a_step_that_just_fits_has_a_note() {
    let mut step = step();
    let mut said = |gib: f64| {
        step.predictions[0].memory.needed = Bytes::new(gib * GIB).ok();
        let notes = &planned(&step, &machines(&[1]), &steps(10, None)).parts[0].notes;
        notes.iter().any(|note| matches!(note, PlanNote::NoRoom { .. }))
    };
    assert_eq!([13.9, 14.0].map(&mut said), [false, true]);
}

/// Own machines with two GPUs each: the second takes 3 % less time at twice the batch, and both hardly less at four
/// times.
#[test]
fn a_larger_batch_is_that_of_the_fastest_own_machine() {
    let mut step = predictions([measured("slower", 10_000.0), measured("faster", 10_300.0)]);
    (step.workload.batch_size, step.workload.parameter_count) = (Some(32), Some(1_000_000));
    let own = |gpu: &str| {
        let [provider, region] = OWN_PLACE.map(str::to_owned);
        Offer { gpu_count: 2, provider, region, ..offer_in("here", gpu, 0.0, Tier::Owned) }
    };
    let prices = PriceBook::new(["slower", "faster"].map(own));
    let goal = Goal { limits: Goal::firm(Work::Steps(1)).limits, ..steps(1000, None) };
    let larger = plan(&step, &prices, &goal).unwrap().larger_batch.unwrap();
    assert_eq!((larger.gpu.as_str(), larger.global_batch_size), ("faster", Some(64)));
    let chosen = plan(&step, &prices, &Goal { global_batch: Some(32), ..goal }).unwrap();
    assert_eq!(chosen.larger_batch, None);
}

#[test]
fn a_wrong_batch_does_not_pass_the_check() {
    let (step, machines) = (step(), machines(&[8]));
    let good = planned(&step, &machines, &steps(1000, Some(1024)));
    let broken = |change: &dyn Fn(&mut Plan)| {
        let mut plan = good.clone();
        change(&mut plan);
        check(&plan).and_then(|()| check_sources(&plan, &step, &machines)).unwrap_err()
    };
    for accumulation in [0, 3] {
        assert!(matches!(broken(&|plan| plan.parts[0].accumulation = accumulation), CheckError::Offer { .. }));
    }
    assert!(matches!(broken(&|plan| plan.goal.global_batch = Some(2048)), CheckError::Offer { .. }));
    assert!(matches!(broken(&|plan| plan.goal.global_batch = None), CheckError::Offer { .. }));
    // A number of batches that is consistent, but does not match the hours.
    assert!(matches!(
        broken(&|plan| {
            plan.parts[0].accumulation = 8;
            plan.parts[0].global_batch_size = Some(2048);
            plan.goal.global_batch = Some(2048);
        }),
        CheckError::Number { .. }
    ));
}

/// The step of [`step`] at these batches too, with their seconds.
pub(crate) fn at(batches: &[(u64, f64)]) -> Predictions {
    let mut step = step();
    let prediction = &mut step.predictions[0];
    prediction.at_batches = batches
        .iter()
        .map(|(batch, seconds)| AtBatch {
            batch_size: *batch,
            step: Estimate::with_band(Micros::new(seconds * 1e6).unwrap(), 0.1, Method::Roofline),
            data: None,
            memory: prediction.memory.clone(),
            why: format!("batch of {batch}: reported"),
        })
        .collect();
    step
}

#[test]
fn each_machine_runs_the_batch_that_does_most() {
    // 32 samples in 0.36 s; 64 are faster per sample, 16 slower.
    let step = at(&[(16, 0.2), (64, 0.5)]);
    let plan = planned(&step, &machines(&[8]), &steps(1000, Some(1024)));
    let part = &plan.parts[0];
    assert_eq!((part.batch_size, part.accumulation, part.global_batch_size), (Some(64), 2, Some(1024)));
    assert!(told(&part.notes).iter().any(|note| note == "batch of 64: reported"), "{part:?}");
    assert_eq!((plan.solver.configurations, plan.rejected.len()), (1, 0));
    // Only the smaller one gives a global batch of 128 on 8 GPUs.
    let plan = planned(&step, &machines(&[8]), &steps(1000, Some(128)));
    assert_eq!((plan.parts[0].batch_size, plan.parts[0].accumulation), (Some(16), 1));
    // Work in steps means steps of the recorded batch, and the plan notes the change.
    let plan = planned(&step, &machines(&[1]), &steps(1000, None));
    assert!((plan.work.get() - 32_000.0).abs() < 1e-9 && plan.parts[0].batch_size == Some(64));
    assert!(told(&plan.notes).iter().any(|note| note.contains("global batch 64 instead of 32: 500 updates")));
    // The check finds a batch without a prediction.
    let mut wrong = plan;
    (wrong.parts[0].batch_size, wrong.parts[0].global_batch_size) = (Some(128), Some(128));
    assert!(matches!(check_sources(&wrong, &step, &machines(&[1])), Err(CheckError::Offer { .. })));
}

#[test]
fn a_batch_fits_where_another_does_not() {
    let mut step = at(&[(8, 0.12), (64, 0.5)]);
    let prediction = &mut step.predictions[0];
    prediction.memory.fits = Fits::No;
    prediction.at_batches[1].memory.fits = Fits::No;
    let plan = planned(&step, &machines(&[8]), &steps(1000, Some(1024)));
    assert_eq!((plan.parts[0].batch_size, plan.parts[0].accumulation), (Some(8), 16));
    step.predictions[0].at_batches[0].memory.fits = Fits::No;
    let none = planned(&step, &machines(&[8]), &steps(1000, Some(1024)));
    assert_eq!((none.rejected.len(), none.rejected[0].reason.kind()), (1, RejectionKind::Memory));
}

#[test]
fn of_batches_that_are_better_at_one_end_each_both_stay() {
    // The recorded step has no range: better at its upper end, not at the middle.
    let step = at(&[(64, 0.69)]);
    let cheapest = Goal { deadline: None, ..steps(1000, None) };
    assert_eq!(planned(&step, &machines(&[1]), &cheapest).parts[0].batch_size, Some(64));
    let fastest = Goal { objective: Objective::Time, ..steps(1000, None) };
    let plan = planned(&step, &machines(&[1]), &fastest);
    assert_eq!((plan.parts[0].batch_size, plan.solver.configurations), (Some(32), 2));
    // The offer appears once: in the plan.
    assert_eq!(plan.rejected.len() + plan.alternatives.len(), 0);
}
