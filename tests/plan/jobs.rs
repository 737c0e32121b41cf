//! Several jobs: known answers, brute force over every choice and every order, and the plan's own claims.

use std::sync::Arc;

use habitat_tui::plan::assignment::{Assignment, Bound, Mode};
use habitat_tui::plan::check::CheckError;
use habitat_tui::plan::jobs::{Aim, Job, JobsPlan, Machine, PlannedJob, Shared, Supply, check, offers, plan_jobs};
use habitat_tui::plan::solve::{Proof, Settings, SolveError};
use habitat_tui::plan::{Confidence, Goal, PlanStatus, Quota, Total, plan};
use habitat_tui::predict::{AtBatch, Estimate, Method};
use habitat_tui::pricing::{Market, Offer, OfferId, PriceBook, Tier, Trust};
use habitat_tui::report::jobs::{JobsForm, groups, status_words};
use habitat_tui::report::words::Words;
use habitat_tui::units::{GpuSlug, Hours, Range, UsdPerHour};
use proptest::prelude::*;

use crate::build::{goal, hours, measured, offer, predicted, predictions, told, usd};
use crate::properties::config;

pub(crate) const NOTHING: Shared = Shared {
    deadline: None,
    budget: None,
    max_price: None,
    quotas: Vec::new(),
    wait: false,
    confidence: Confidence::High,
    late_price: None,
    hour_value: None,
};

/// A job with these hours on the GPUs `gpu-0`, `gpu-1`, …; infinite = cannot run.
pub(crate) fn job(name: usize, hours_on: &[f64], deadline: Option<f64>) -> Job {
    let can = hours_on.iter().enumerate().filter(|(_, hours)| hours.is_finite());
    let all = can.map(|(gpu, hours)| measured(&format!("gpu-{gpu}"), 100.0 / hours));
    let goal = Goal { deadline: deadline.map(hours), ..goal(100.0, 1) };
    Job {
        name: format!("job {name}"),
        predictions: predictions(all).into(),
        goal,
        earliest: Hours::ZERO,
        after: Vec::new(),
        priority: 1.0,
        late_price: None,
        hour_value: None,
    }
}

/// Machines of the GPUs `gpu-0`, `gpu-1`, …, with their counts.
pub(crate) fn machines(counts: &[u32]) -> Vec<Machine> {
    let of_gpu = |(gpu, count): (usize, &u32)| Machine {
        is_shared: false,
        name: format!("box-{gpu}"),
        gpu: GpuSlug::new(format!("gpu-{gpu}")).unwrap(),
        gpu_count: 1,
        count: *count,
        price: UsdPerHour::new(1.0).unwrap(),
    };
    counts.iter().enumerate().map(of_gpu).collect()
}

fn on_machines(jobs: &[Job], counts: &[u32], shared: &Shared) -> JobsPlan {
    plan_jobs(jobs, Supply::Machines(&machines(counts)), shared, Settings::default()).unwrap()
}

fn rented(jobs: &[Job], prices: &PriceBook, shared: &Shared) -> JobsPlan {
    plan_jobs(jobs, Supply::Rent(prices), shared, Settings::default()).unwrap()
}

fn makespan(plan: &JobsPlan) -> f64 {
    plan.total.unwrap().hours.high.get()
}

/// Graham 1969: LPT needs 7 hours where 6 are enough.
#[test]
fn the_longest_first_is_not_the_best() {
    let jobs: Vec<Job> = [3.0, 3.0, 2.0, 2.0, 2.0].iter().enumerate().map(|(n, h)| job(n, &[*h], None)).collect();
    let plan = on_machines(&jobs, &[2], &NOTHING);
    assert_eq!((plan.status, plan.aim), (PlanStatus::Optimal, Aim::Makespan));
    assert!((makespan(&plan) - 6.0).abs() < 1e-6, "{plan:?}");
    assert!((plan.bound.unwrap() - 6.0).abs() < 1e-6);
    assert!((plan.total.unwrap().cost.mid.get() - 12.0).abs() < 1e-6);
}

/// A short job with a late deadline runs after a long one with an early deadline.
#[test]
fn jobs_on_a_machine_run_by_their_deadlines() {
    let jobs = [job(0, &[1.0], Some(9.0)), job(1, &[5.0], Some(5.5)), job(2, &[2.0], None)];
    let plan = on_machines(&jobs, &[1], &NOTHING);
    let starts: Vec<f64> = plan.jobs.iter().map(|job| job.start.mid.get()).collect();
    for (start, expected) in starts.iter().zip([5.0, 0.0, 6.0]) {
        assert!((start - expected).abs() < 1e-6, "{starts:?}");
    }
    assert_eq!(plan.jobs[0].machine.as_deref(), Some("box-0"));
}

#[test]
fn deadlines_that_cannot_all_be_met_say_by_how_much() {
    let jobs: Vec<Job> = (0..3).map(|n| job(n, &[3.0], Some(7.0))).collect();
    let plan = on_machines(&jobs, &[1], &NOTHING);
    assert_eq!((plan.status, plan.total), (PlanStatus::Infeasible, None));
    assert!(
        told(&plan.reasons)
            .iter()
            .any(|reason| reason == "the deadline after 7 h: allow 2 h more on the single machine"),
        "{:?}",
        plan.reasons
    );
    // A job that is too slow even alone is named.
    let plan = on_machines(&[job(0, &[3.0], None), job(1, &[9.0], Some(7.0))], &[1], &NOTHING);
    assert!(plan.reasons[0].words().starts_with("job \"job 1\" alone: allow 2 h more"), "{:?}", plan.reasons);
}

/// Two jobs, two clouds: $1 and $3 per hour, ten hours each.
fn two_clouds() -> (Vec<Job>, PriceBook) {
    let of = |provider: &str, price: f64| Offer {
        id: OfferId::new(provider, "us-1", "gpu-0", Tier::OnDemand),
        provider: provider.to_owned(),
        ..offer("gpu-0", price, Tier::OnDemand)
    };
    let jobs = vec![job(0, &[10.0], None), job(1, &[10.0], None)];
    (jobs, PriceBook::new([of("near", 1.0), of("far", 3.0)]))
}

/// Own machines of one kind beside an offer at $3 per hour.
fn overflow(machine: Machine) -> PriceBook {
    let far = Offer { provider: "far".to_owned(), ..offer("gpu-0", 3.0, Tier::OnDemand) };
    PriceBook::new(offers(&[machine])).with_offers([far])
}

#[test]
fn jobs_rent_what_own_machines_cannot_do_in_time() {
    let free = Machine { price: UsdPerHour::ZERO, ..machines(&[1]).remove(0) };
    let shared = Shared { wait: true, ..NOTHING };
    let cost = |count: u32, jobs: usize, deadline: f64| {
        let jobs: Vec<Job> = (0..jobs).map(|n| job(n, &[10.0], Some(deadline))).collect();
        let plan = rented(&jobs, &overflow(Machine { count, ..free.clone() }), &shared);
        assert_eq!(plan.status, PlanStatus::Optimal);
        plan.total.unwrap().cost.mid.get().round()
    };
    assert_eq!((cost(1, 2, 25.0), cost(1, 2, 15.0), cost(2, 2, 15.0), cost(2, 5, 25.0)), (0.0, 30.0, 0.0, 30.0));
}

#[test]
fn jobs_share_the_gpus_of_a_machine() {
    let box_of_two = Machine { price: UsdPerHour::ZERO, gpu_count: 2, is_shared: true, ..machines(&[1]).remove(0) };
    let jobs: Vec<Job> = (0..5).map(|n| job(n, &[10.0], Some(20.5))).collect();
    let shared = Shared { wait: true, ..NOTHING };
    let plan = rented(&jobs, &overflow(box_of_two.clone()), &shared);
    // Four of ten hours fit on two GPUs in twenty; the fifth rents.
    assert!((plan.total.unwrap().cost.mid.get() - 30.0).abs() < 1e-6, "{plan:?}");
    let own: Vec<&PlannedJob> = plan.jobs.iter().filter(|job| job.part.offer.share_of.is_some()).collect();
    assert_eq!(own.len(), 4);
    // All at once exceed its capacity.
    let last = own.iter().map(|job| job.start).max_by(|a, b| a.mid.total_cmp(&b.mid)).unwrap();
    let mut wrong = plan.clone();
    for job in wrong.jobs.iter_mut().filter(|job| job.part.offer.share_of.is_some()) {
        (job.start, job.end) = (last, last + job.part.hours);
    }
    assert!(matches!(check(&wrong), Err(CheckError::Shared { .. })), "{:?}", check(&wrong));
    // Machines have separate names, so that no job has GPUs of two.
    let names: Vec<String> = offers(&[Machine { count: 2, ..box_of_two }]).map(|offer| offer.instance_type).collect();
    assert_eq!(names, ["box-0 1", "box-0 1:1", "box-0 2", "box-0 2:1"]);
}

/// Three machines with one GPU and three with two, free of charge. Jobs that may share them, or rent in addition, end
/// no later than those that run in turn on whole machines; each uses one machine unless it may use more.
#[test]
fn jobs_on_free_machines_end_as_early_in_all_modes() {
    let own: Vec<Machine> = machines(&[3, 3])
        .into_iter()
        .zip([1, 2])
        .map(|(machine, gpu_count)| Machine { gpu_count, price: UsdPerHour::ZERO, ..machine })
        .collect();
    let of = |most: u32| -> Vec<Job> {
        let one = |n: usize| {
            let long = (n * 7 % 11 + 3) as f64;
            let mut job = job(n, &[long, long * 1.3], None);
            Arc::make_mut(&mut job.predictions).workload.parameter_count = Some(1_000_000);
            job.goal.limits.max_machines = most;
            job
        };
        (0..30).map(one).collect()
    };
    let beside = |own: Vec<Machine>, most| {
        let far = Offer { provider: "far".to_owned(), ..offer("gpu-0", 3.0, Tier::OnDemand) };
        rented(&of(most), &PriceBook::new(offers(&own)).with_offers([far]), &Shared { wait: true, ..NOTHING })
    };
    let alone = makespan(&plan_jobs(&of(1), Supply::Machines(&own), &NOTHING, Settings::default()).unwrap());
    let shared: Vec<Machine> = own.iter().cloned().map(|machine| Machine { is_shared: true, ..machine }).collect();
    for (plan, mode) in
        [(beside(own.clone(), 1), "rent"), (beside(shared, 1), "share"), (beside(own, 2), "two machines")]
    {
        assert!(plan.total.unwrap().cost.mid.get() < 1e-6, "{mode}");
        assert!(makespan(&plan) <= alone * 1.05, "{mode}: {} h, alone {alone} h", makespan(&plan));
        let most = plan.jobs.iter().map(|job| job.part.machines).max();
        assert!(most == Some(1) || mode == "two machines", "{mode}: {most:?} machines");
    }
}

/// Four copies, two at a time: one line for each two.
#[test]
fn copies_that_are_planned_alike_have_one_line() {
    let jobs: Vec<Job> = (1..=4)
        .map(|n| Job { name: format!("sweep {n}"), ..job(0, &[10.0], None) })
        .chain([job(5, &[10.0], None)])
        .collect();
    let shared = Shared { quotas: vec![quota("near", 2), quota("far", 0)], wait: true, ..NOTHING };
    let plan = rented(&jobs, &two_clouds().1, &shared);
    let sizes: Vec<usize> = groups(&plan).iter().map(Vec::len).collect();
    assert_eq!(sizes.iter().sum::<usize>(), 5);
    assert!(sizes.contains(&2), "{sizes:?}");
    let text = JobsForm::Text.text(&plan).unwrap();
    assert!(text.contains("2 × 1 × gpu-0") && text.contains("2 × $10") && text.contains("sweep 1–2"), "{text}");
    assert_eq!(JobsForm::Csv.text(&plan).unwrap().lines().count(), 6);
}

/// A machine with two GPUs runs the recorded global batch, half of it on each; if it does not divide, another one.
#[test]
fn own_machines_keep_the_recorded_batch() {
    let own = Machine { gpu_count: 2, ..machines(&[1]).remove(0) };
    let global = |batch: u64| {
        let mut job = job(0, &[4.0], None);
        let predictions = Arc::make_mut(&mut job.predictions);
        (predictions.workload.parameter_count, predictions.workload.batch_size) = (Some(1_000_000), Some(batch));
        let half = predictions.predictions[0].clone();
        predictions.predictions[0].at_batches = vec![AtBatch {
            batch_size: batch / 2,
            step: Estimate::with_band(half.planning_step().range.mid * 0.6, 0.1, Method::Roofline),
            memory: half.memory.clone(),
            data: None,
            why: String::new(),
        }];
        let plan = plan_jobs(&[job], Supply::Machines(std::slice::from_ref(&own)), &NOTHING, Settings::default());
        plan.unwrap().jobs[0].part.global_batch_size
    };
    assert_eq!((global(32), global(33)), (Some(32), Some(66)));
}

pub(crate) fn quota(provider: &str, gpus: u32) -> Quota {
    Quota { provider: provider.to_owned(), region: None, gpu: None, tier: None, gpus, from: None, until: None }
}

#[test]
fn a_quota_is_shared() {
    let (jobs, prices) = two_clouds();
    let free = rented(&jobs, &prices, &NOTHING);
    assert_eq!((free.solver.name.as_str(), free.status), ("filter and sort", PlanStatus::Optimal));
    assert!((free.total.unwrap().cost.mid.get() - 20.0).abs() < 1e-6);
    let shared = Shared { quotas: vec![quota("near", 1)], ..NOTHING };
    let plan = rented(&jobs, &prices, &shared);
    assert!((plan.total.unwrap().cost.mid.get() - 40.0).abs() < 1e-6);
    assert!((makespan(&plan) - 10.0).abs() < 1e-6, "at the same time");
    assert!(told(&plan.notes).iter().any(|note| note.starts_with("the shared limits cost $20")), "{:?}", plan.notes);
}

/// Two jobs of ten hours that may wait: the cheap cloud runs them in turn.
#[test]
fn jobs_wait_where_that_costs_less() {
    let (jobs, prices) = two_clouds();
    let shared = Shared { quotas: vec![quota("near", 1)], wait: true, ..NOTHING };
    let plan = rented(&jobs, &prices, &shared);
    assert_eq!(plan.status, PlanStatus::Optimal);
    assert!((plan.total.unwrap().cost.mid.get() - 20.0).abs() < 1e-6);
    assert!((makespan(&plan) - 20.0).abs() < 1e-6);
    assert_eq!(check(&plan), Ok(()));
    // Both at once exceed the quota, and so does one that begins before the end of the other.
    for start in [0.0, 9.9] {
        let mut early = plan.clone();
        let later = early.jobs.iter_mut().find(|job| job.start.mid.get() > 0.0).unwrap();
        later.start = Range { low: hours(start), mid: hours(start), high: hours(start) };
        later.end = later.start + later.part.hours;
        early.total.as_mut().unwrap().hours = later.end;
        assert!(matches!(check(&early), Err(CheckError::Shared { .. })), "{start}");
    }
    // If the deadline leaves too little time, the expensive cloud runs one.
    let due = Shared { deadline: Some(hours(19.0)), ..shared.clone() };
    assert!((rented(&jobs, &prices, &due).total.unwrap().cost.mid.get() - 40.0).abs() < 1e-6);
    // A job with an earliest start, and a quota that begins in between.
    let mut late = jobs.clone();
    late[0].earliest = hours(4.0);
    let closed = Quota { from: Some(hours(12.0)), until: Some(hours(15.0)), ..quota("near", 0) };
    let plan = rented(&late, &prices, &Shared { quotas: vec![quota("near", 1), closed], ..shared });
    let starts: Vec<f64> = plan.jobs.iter().map(|job| job.start.mid.get()).collect();
    assert_eq!((starts, plan.status), (vec![15.0, 0.0], PlanStatus::Optimal));
    let mut early = plan;
    early.jobs[0].earliest = hours(16.0);
    assert!(matches!(check(&early), Err(CheckError::Number { .. })));
}

/// Too many starts to try all: choosing the jobs that run in turn on the cheap cloud for 24 hours is a knapsack.
#[test]
fn many_jobs_that_wait_are_searched_for() {
    let (_, prices) = two_clouds();
    let length: Vec<f64> = (0..10).map(|n| 3.0 + 1.37 * f64::from(n) % 5.0).collect();
    let jobs: Vec<Job> = length.iter().enumerate().map(|(n, length)| job(n, &[*length], Some(24.0))).collect();
    let plan = rented(&jobs, &prices, &Shared { quotas: vec![quota("near", 1)], wait: true, ..NOTHING });
    assert_eq!((plan.solver.name.as_str(), check(&plan)), ("local search", Ok(())));
    let all: f64 = length.iter().sum();
    let on_near =
        |choice: &Vec<usize>| length.iter().zip(choice).map(|(length, near)| length * *near as f64).sum::<f64>();
    let most = every(vec![2; 10]).map(|choice| on_near(&choice)).filter(|hours| *hours <= 24.0).fold(0.0, f64::max);
    let (least, cost) = (3.0 * all - 2.0 * most, plan.total.unwrap().cost.mid.get());
    assert!(cost >= least * (1.0 - 1e-9) && cost <= least * 1.001, "{cost} instead of {least}");
    assert!(plan.bound.unwrap() <= least * (1.0 + 1e-9) && plan.solver.gap.is_none_or(|gap| gap < 0.01), "{plan:?}");
}

/// A quota that holds from some hour on: a job that has not ended by then cannot run, and the search respects that.
#[test]
fn no_job_is_put_where_a_quota_never_lets_it() {
    let (_, prices) = two_clouds();
    let closed = |provider: &str, from: f64| Quota { from: Some(hours(from)), ..quota(provider, 0) };
    let jobs: Vec<Job> = (0..10).map(|n| job(n, &[3.0 + 0.37 * n as f64], None)).collect();
    let shared = Shared { quotas: vec![quota("near", 1), closed("near", 20.0)], wait: true, ..NOTHING };
    let plan = rented(&jobs, &prices, &shared);
    assert_eq!((plan.solver.name.as_str(), check(&plan)), ("local search", Ok(())));
    assert!(
        plan.jobs.iter().any(|job| job.part.offer.provider == "near")
            && plan.jobs.iter().any(|job| job.part.offer.provider == "far")
    );
    // Nor anywhere else: then there is no plan, which is not an error.
    let quotas = vec![quota("near", 1), closed("near", 20.0), quota("far", 1), closed("far", 5.0)];
    let none = rented(&jobs, &prices, &Shared { quotas, ..shared });
    assert_eq!((none.total, none.status), (None, PlanStatus::Infeasible));
    let words = none.reasons[0].words();
    assert!(words.starts_with("no plan exists: 10 jobs need at least 1.87 times what "), "{words}");
}

#[test]
fn what_waiting_would_do_is_said() {
    let (jobs, prices) = two_clouds();
    let near = PriceBook::new([prices.offers().iter().find(|offer| offer.provider == "near").unwrap().clone()]);
    let shared = Shared { quotas: vec![quota("near", 1)], ..NOTHING };
    let reasons = told(&rented(&jobs, &near, &shared).reasons);
    let waiting = "not all jobs can run at the same time; if they may wait for one another (wait = true), they cost $20.00, and the last ends after 20 h";
    assert_eq!(reasons[0], waiting);
    let mut late = jobs;
    (late[0].earliest, late[0].goal.deadline) = (hours(4.0), Some(hours(12.0)));
    let reasons = told(&rented(&late, &near, &Shared { wait: true, ..NOTHING }).reasons);
    assert_eq!(reasons, ["job \"job 0\" alone: its earliest start, 4 h, is too late for its deadline"]);
}

/// Two jobs of an expected $10 and $12 at most each.
#[test]
fn a_budget_between_the_expected_cost_and_its_high_end_is_kept_with_a_note() {
    let one = |name| Job { predictions: predictions([predicted("gpu-0", 10.0, 0.2)]).into(), ..job(name, &[], None) };
    let (jobs, prices) = ([one(0), one(1)], PriceBook::new([offer("gpu-0", 1.0, Tier::OnDemand)]));
    let with = |budget| rented(&jobs, &prices, &Shared { budget: Some(usd(budget)), ..NOTHING });
    let cost = with(30.0).total.unwrap().cost;
    assert!((cost.mid.get() - 20.0).abs() < 1e-9 && (cost.high.get() - 24.0).abs() < 1e-9, "{cost:?}");
    let note = |plan: &JobsPlan| told(&plan.notes).into_iter().find(|note| note.contains("budget"));
    assert_eq!(note(&with(25.0)), None);
    let between = with(22.0);
    assert_eq!(status_words(&between), "lowest cost possible, proved · earliest end found, not proved");
    assert!(note(&between).is_some_and(|note| note.contains("$22") && note.contains("$24")), "{:?}", between.notes);
    assert_eq!(with(19.0).status, PlanStatus::Infeasible);
}

#[test]
fn limits_that_cannot_be_kept_say_what_would_do() {
    let (jobs, prices) = two_clouds();
    let shared = Shared { quotas: vec![quota("near", 1)], budget: Some(usd(30.0)), ..NOTHING };
    let plan = rented(&jobs, &prices, &shared);
    assert_eq!(plan.status, PlanStatus::Infeasible);
    let reasons = told(&plan.reasons).join("\n");
    assert!(reasons.contains("the budget of $30 for all jobs: spend $10.00 more"), "{reasons}");
    assert!(reasons.contains("the quota of 1 at near: 1 more GPUs (2)"), "{reasons}");
    // Two quotas of nothing: neither alone is the cause.
    let shared = Shared { quotas: vec![quota("near", 1), quota("far", 0)], budget: Some(usd(15.0)), ..NOTHING };
    let reasons = told(&rented(&jobs, &prices, &shared).reasons).join("\n");
    assert!(reasons.contains("no single change would allow one"), "{reasons}");
}

#[test]
fn what_is_there_once_is_used_once() {
    let (jobs, prices) = two_clouds();
    let own = Offer { id: OfferId::new("lab", "us-1", "gpu-0", Tier::Owned), ..offer("gpu-0", 0.5, Tier::Owned) };
    let mut goals = jobs.clone();
    for job in &mut goals {
        job.goal.limits.tiers = vec![Tier::OnDemand, Tier::Owned];
    }
    // A marketplace host is a single machine, like an own one.
    let host = Offer {
        id: OfferId::new("market", "us-1", "gpu-0", Tier::OnDemand),
        trust: Trust::new(Market::PeerToPeer),
        ..offer("gpu-0", 0.5, Tier::OnDemand)
    };
    for once in [own, host] {
        let prices = PriceBook::new(prices.offers().iter().cloned().chain([once.into()]));
        let plan = rented(&goals, &prices, &NOTHING);
        assert!((plan.total.unwrap().cost.mid.get() - 15.0).abs() < 1e-6, "{plan:?}");
        let mut twice = plan;
        let cheap = twice.jobs.iter().position(|job| job.part.price().get() < 1.0).unwrap();
        twice.jobs[1 - cheap] = PlannedJob { name: "again".into(), ..twice.jobs[cheap].clone() };
        twice.total = Some(Total {
            cost: twice.jobs.iter().map(|job| job.part.cost).sum(),
            cost_by: twice.jobs.iter().map(|job| job.part.cost_by).sum(),
            ..twice.total.unwrap()
        });
        assert!(matches!(check(&twice), Err(CheckError::Shared { .. })));
    }
}

#[test]
fn the_hours_that_count_are_those_of_the_confidence() {
    let slow = |confidence| {
        let predictions = predictions([predicted("gpu-0", 10.0, 0.5)]).into();
        let jobs = [Job {
            name: "a".into(),
            predictions,
            goal: goal(100.0, 1),
            earliest: Hours::ZERO,
            after: Vec::new(),
            priority: 1.0,
            late_price: None,
            hour_value: None,
        }];
        let shared = Shared { deadline: Some(hours(12.0)), confidence, ..NOTHING };
        on_machines(&jobs, &[1], &shared).status
    };
    assert_eq!(slow(Confidence::Expected), PlanStatus::Optimal);
    assert_eq!(slow(Confidence::High), PlanStatus::Infeasible);
}

#[test]
fn lack_of_time_is_told() {
    let jobs: Vec<Job> =
        [3.0, 3.0, 2.0, 2.0, 2.1].iter().enumerate().map(|(n, h)| job(n, &[*h, *h * 1.3], None)).collect();
    let settings = Settings { seconds: 0.0, ..Settings::default() };
    let plan = plan_jobs(&jobs, Supply::Machines(&machines(&[1, 1])), &NOTHING, settings).unwrap();
    assert_eq!((plan.status, plan.solver.name.as_str()), (PlanStatus::TimeLimit, "greedy"));
    assert!(plan.solver.gap.unwrap() > 0.0 && plan.bound.unwrap() <= makespan(&plan));
    assert!(plan.notes[0].words().starts_with("fell back to greedy"), "{:?}", plan.notes);
}

#[test]
fn a_job_that_lacks_something_is_named() {
    let mut wrong = job(3, &[1.0], None);
    Arc::make_mut(&mut wrong.predictions).workload.batch_size = None;
    let error = plan_jobs(&[wrong], Supply::Machines(&machines(&[1])), &NOTHING, Settings::default()).unwrap_err();
    assert!(error.to_string().starts_with("job \"job 3\": "), "{error}");
}

#[test]
fn the_check_refuses_what_does_not_add_up() {
    let jobs = [job(0, &[2.0], Some(9.0)), job(1, &[3.0], None)];
    let good = on_machines(&jobs, &[1], &NOTHING);
    assert_eq!(check(&good), Ok(()));
    let mut early = good.clone();
    early.jobs[1].start = early.jobs[0].start;
    assert!(matches!(check(&early), Err(CheckError::Number { .. })));
    let mut late = good.clone();
    late.jobs[0].deadline = Some(hours(1.0));
    assert!(matches!(check(&late), Err(CheckError::Deadline { .. })));
    let mut dear = good;
    dear.shared.budget = Some(usd(1.0));
    assert!(matches!(check(&dear), Err(CheckError::Budget { .. })));
    let (jobs, prices) = two_clouds();
    let mut many = rented(&jobs, &prices, &NOTHING);
    many.shared.quotas = vec![quota("NEAR", 1)];
    assert!(matches!(check(&many), Err(CheckError::Shared { .. })));
    let mut fast = rented(&jobs, &prices, &NOTHING);
    fast.shared.max_price = UsdPerHour::new(1.5).ok();
    assert!(matches!(check(&fast), Err(CheckError::Shared { .. })));
}

/// All combinations of a mode for each job.
pub(crate) fn every(modes: Vec<usize>) -> impl Iterator<Item = Vec<usize>> {
    let all: usize = modes.iter().product();

    (0..all).map(move |mut number| {
        let digit = |of: &usize| {
            let mode = number % of;
            number /= of;
            mode
        };
        modes.iter().map(digit).collect()
    })
}

/// Whether jobs of these hours and deadlines can run in turn in some order.
fn some_order(jobs: &[(f64, f64)], from: f64) -> bool {
    jobs.is_empty()
        || (0..jobs.len()).any(|next| {
            let (hours, deadline) = jobs[next];
            let mut rest = jobs.to_vec();
            rest.remove(next);
            from + hours <= deadline * (1.0 + 1e-9) && some_order(&rest, from + hours)
        })
}

fn mode() -> impl Strategy<Value = (f64, f64, [u32; 3])> {
    (0.5..20.0f64, 0.5..20.0f64, [0..5u32, 0..5u32, 0..5u32])
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_cheapest_ways_are_those_of_brute_force(
        jobs in prop::collection::vec(prop::collection::vec(mode(), 2..=5), 2..=4),
        most in [1..14u32, 1..14u32, 1..14u32],
    ) {
        let bounds = most.iter().enumerate().map(|(limit, most)| Bound { most: f64::from(*most), limit }).collect();
        let mode = |(cost, hours, uses): &(f64, f64, [u32; 3])| Mode {
            cost: *cost,
            hours: *hours,
            machine: None,
            uses: uses.iter().map(|amount| f64::from(*amount)).enumerate().collect(),
        };
        let modes = jobs.iter().map(|modes| modes.iter().map(mode).collect()).collect();
        let assignment = Assignment { jobs: modes, bounds, ..Assignment::default() };
        let counts: Vec<usize> = jobs.iter().map(Vec::len).collect();
        let used = |choice: &[usize], row: usize| -> u32 { jobs.iter().zip(choice).map(|(job, mode)| job[*mode].2[row]).sum() };
        let possible = every(counts).filter(|choice| (0..3).all(|row| used(choice, row) <= most[row]));
        let costs = possible.map(|choice| jobs.iter().zip(&choice).map(|(job, mode)| job[*mode].0).sum::<f64>());
        match (assignment.best(Settings::default()), costs.min_by(f64::total_cmp)) {
            (Ok(found), Some(least)) => {
                prop_assert_eq!(found.proof, Proof::Optimal);
                let cost = assignment.objective(&found.modes);
                prop_assert!((cost - least).abs() <= 1e-6 * least, "{cost} instead of {least}");
                prop_assert!(assignment.fits(&found.modes) && found.bound <= cost * (1.0 + 1e-9));
                // The answer without time is at most worse, and its bound holds.
                if let Ok(quick) = assignment.best(Settings { seconds: 0.0, ..Settings::default() }) {
                    prop_assert!(assignment.fits(&quick.modes) && assignment.objective(&quick.modes) >= least * (1.0 - 1e-9));
                    prop_assert!(quick.bound <= least * (1.0 + 1e-9));
                }
            }
            (Err(SolveError::Infeasible), None) => {
                // Together, the excesses are enough.
                let excess = assignment.excess(&[0, 1, 2], Settings::default()).unwrap();
                let mut larger = assignment.clone();
                for (bound, excess) in larger.bounds.iter_mut().zip(excess) {
                    bound.most += excess.round();
                }
                prop_assert!(larger.best(Settings::default()).is_ok());
            }
            (found, least) => prop_assert!(false, "{found:?} instead of {least:?}"),
        }
    }

    #[test]
    fn the_makespan_is_that_of_brute_force_over_machines_and_orders(
        jobs in prop::collection::vec((prop::collection::vec(0.5..10.0f64, 2), prop::option::weighted(0.5, 1.0..25.0f64)), 2..=6),
        counts in prop_oneof![Just([1, 1]), Just([2, 1]), Just([1, 2])],
    ) {
        let all: Vec<Job> = jobs.iter().enumerate().map(|(n, (hours, due))| job(n, hours, *due)).collect();
        let plan = on_machines(&all, &counts, &NOTHING);
        let kinds: Vec<usize> = (0..2).flat_map(|kind| vec![kind; counts[kind] as usize]).collect();
        let schedules = every(vec![kinds.len(); jobs.len()]).filter_map(|choice| {
            let mut latest = 0.0_f64;
            for (machine, kind) in kinds.iter().enumerate() {
                let here = jobs.iter().zip(&choice).filter(|(_, on)| **on == machine);
                let here: Vec<(f64, f64)> = here.map(|((hours, due), _)| (hours[*kind], due.unwrap_or(f64::INFINITY))).collect();
                if !some_order(&here, 0.0) {
                    return None;
                }
                latest = latest.max(here.iter().map(|(hours, _)| hours).sum());
            }
            Some(latest)
        });
        if let Some(least) = schedules.min_by(f64::total_cmp) {
                prop_assert_eq!(plan.status, PlanStatus::Optimal, "{:?}", plan.reasons);
                prop_assert!((makespan(&plan) - least).abs() <= 1e-6 * least, "{} instead of {least}", makespan(&plan));
                prop_assert_eq!(check(&plan), Ok(()));
        } else {
            prop_assert_eq!((plan.status, plan.reasons.is_empty()), (PlanStatus::Infeasible, false));
        }
    }

    #[test]
    fn what_is_rented_is_that_of_brute_force(
        rates in prop::collection::vec(prop::collection::vec(1.0..20.0f64, 4), 2..=3),
        prices in prop::collection::vec((0.2..8.0f64, 1..=4u32, any::<bool>()), 2..=4),
        gpus in 2..8u32,
        cap in prop::option::of(2.0..16.0f64),
        budget in prop::option::of(1.0..3.0f64),
        due in prop::option::of(5.0..60.0f64),
    ) {
        let offers = prices.iter().enumerate().map(|(n, (price, gpu_count, is_near))| {
            let provider = if *is_near { "near" } else { "far" };
            let gpu = format!("gpu-{n}");
            let id = OfferId::new(provider, "us-1", &gpu, Tier::OnDemand);
            Offer { id, provider: provider.to_owned(), gpu_count: *gpu_count, ..offer(&gpu, *price, Tier::OnDemand) }
        });
        let book = PriceBook::new(offers);
        let jobs: Vec<Job> = rates.iter().enumerate().map(|(n, rates)| {
            let mut job = job(n, &rates.iter().map(|rate| 100.0 / rate).collect::<Vec<_>>(), None);
            Arc::make_mut(&mut job.predictions).workload.parameter_count = Some(1_000_000);
            job
        }).collect();
        // Each job on each offer alone, by the single-job planner.
        let alone: Vec<Vec<Option<(f64, f64)>>> = jobs.iter().map(|job| {
            let on = |offer: &Arc<Offer>| {
                let mut goal = Goal { deadline: due.map(hours), ..job.goal.clone() };
                goal.limits.offers = vec![offer.id.to_string()];
                plan(&job.predictions, &book, &goal).unwrap().total.map(|total| (total.cost.mid.get(), total.hours.high.get()))
            };
            book.offers().iter().map(on).collect()
        }).collect();
        let cheapest = |modes: &Vec<Option<(f64, f64)>>| modes.iter().flatten().map(|mode| mode.0).fold(f64::INFINITY, f64::min);
        let budget = budget.map(|times| times * alone.iter().map(cheapest).filter(|cost| cost.is_finite()).sum::<f64>());
        let costs = every(vec![prices.len(); jobs.len()]).filter_map(|choice| {
            let cost: f64 = alone.iter().zip(&choice).map(|(job, mode)| job[*mode].map(|mode| mode.0)).sum::<Option<f64>>()?;
            let near: u32 = choice.iter().filter(|mode| prices[**mode].2).map(|mode| prices[*mode].1).sum();
            let an_hour: f64 = choice.iter().map(|mode| prices[*mode].0).sum();
            (near <= gpus && cap.is_none_or(|cap| an_hour <= cap) && budget.is_none_or(|budget| cost <= budget)).then_some(cost)
        });
        let shared = Shared {
            deadline: due.map(hours),
            budget: budget.filter(|budget| *budget > 0.0).map(usd),
            max_price: cap.and_then(|cap| UsdPerHour::new(cap).ok()),
            quotas: vec![quota("near", gpus)],
            wait: false,
            confidence: Confidence::High,
            late_price: None,
            hour_value: None,
        };
        let least = costs.min_by(f64::total_cmp);
        let found = rented(&jobs, &book, &shared);
        if let Some(least) = least {
                prop_assert_eq!(found.status, PlanStatus::Optimal, "{:?}", found.reasons);
                let cost = found.total.unwrap().cost.mid.get();
                prop_assert!((cost - least).abs() <= 1e-6 * least, "{cost} instead of {least}");
                // In another order, and with more of everything.
                let back: Vec<Job> = jobs.iter().rev().cloned().collect();
                let same = rented(&back, &book, &shared).total.unwrap().cost.mid.get();
                prop_assert!((same - cost).abs() <= 1e-6 * cost);
                let more = Shared { quotas: vec![quota("near", gpus + 2)], budget: None, ..shared };
                prop_assert!(rented(&jobs, &book, &more).total.unwrap().cost.mid.get() <= cost * (1.0 + 1e-9));
        } else {
            prop_assert_eq!((found.status, found.reasons.is_empty()), (PlanStatus::Infeasible, false));
        }
    }

    /// Whole hours, so that every schedule begins at whole hours.
    #[test]
    fn jobs_that_wait_are_those_of_brute_force_over_every_start(
        jobs in prop::collection::vec(([1..5u32, 1..5u32], 0..3u32, prop::option::weighted(0.6, 4..12u32)), 2..=3),
        prices in [1..6u32, 1..6u32],
        gpus in [1..3u32, 1..3u32],
        closed in (0..2u32, 1..6u32, 1..4u32),
        cap in prop::option::of(3..10u32),
    ) {
        const HOURS: u32 = 16;
        let clouds = ["near", "far"];
        let book = PriceBook::new((0..2).map(|n| Offer {
            id: OfferId::new(clouds[n], "us-1", &format!("gpu-{n}"), Tier::OnDemand),
            provider: clouds[n].to_owned(),
            ..offer(&format!("gpu-{n}"), f64::from(prices[n]), Tier::OnDemand)
        }));
        let all: Vec<Job> = jobs.iter().enumerate().map(|(n, (on, earliest, due))| Job {
            earliest: hours(f64::from(*earliest)),
            ..job(n, &on.map(f64::from), Some(due.map_or(f64::from(HOURS), f64::from)))
        }).collect();
        let (which, from, length) = closed;
        let shut = Quota {
            from: Some(hours(f64::from(from))),
            until: Some(hours(f64::from(from + length))),
            ..quota(clouds[which as usize], 0)
        };
        let shared = Shared {
            quotas: vec![quota("near", gpus[0]), quota("far", gpus[1]), shut],
            max_price: cap.and_then(|cap| UsdPerHour::new(f64::from(cap)).ok()),
            wait: true,
            ..NOTHING
        };
        // Every cloud and start of each job, hour by hour.
        let least = every(vec![2 * HOURS as usize; jobs.len()]).filter_map(|choice| {
            let runs: Vec<(usize, u32, u32)> = jobs.iter().zip(&choice).map(|((on, ..), choice)| {
                let (cloud, start) = (choice % 2, (choice / 2) as u32);
                (cloud, start, start + on[cloud])
            }).collect();
            let in_time = jobs.iter().zip(&runs).all(|((_, earliest, due), (_, start, end))| {
                start >= earliest && *end <= due.unwrap_or(HOURS)
            });
            let keeps = in_time && (0..HOURS).all(|hour| {
                let now = || runs.iter().filter(|(_, start, end)| *start <= hour && hour < *end);
                let dollars: u32 = now().map(|(cloud, ..)| prices[*cloud]).sum();
                cap.is_none_or(|cap| dollars <= cap)
                    && (0..2).all(|cloud| {
                        let used = now().filter(|(on, ..)| *on == cloud).count() as u32;
                        let is_shut = cloud == which as usize && (from..from + length).contains(&hour);
                        used <= if is_shut { 0 } else { gpus[cloud] }
                    })
            });
            keeps.then(|| runs.iter().map(|(cloud, start, end)| prices[*cloud] * (end - start)).sum::<u32>())
        }).min();
        let found = rented(&all, &book, &shared);
        if let Some(least) = least {
            prop_assert_eq!(found.status, PlanStatus::Optimal, "{:?}", found.reasons);
            let cost = found.total.unwrap().cost.mid.get();
            prop_assert!((cost - f64::from(least)).abs() <= 1e-6 * cost, "{cost} instead of {least}");
            prop_assert_eq!(check(&found), Ok(()));
        } else {
            prop_assert_eq!((found.total, found.reasons.is_empty()), (None, false));
        }
    }
}
