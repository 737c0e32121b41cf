//! Time to a plan, on synthetic offers from a fixed seed: `cargo bench --bench solve`.

#[path = "../plan/build.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "shared with the tests, which use more of it")]
mod build;

use build::{goal, hours, predicted, predictions};
use divan::{Bencher, black_box};
use habitat_tui::plan::jobs::{Job, JobsPlan, Machine, Shared, Supply, plan_jobs};
use habitat_tui::plan::solve::Settings;
use habitat_tui::plan::{Confidence, Goal, Limits, Prepared, Quota, plan};
use habitat_tui::predict::{AtBatch, Estimate, Predictions};
use habitat_tui::pricing::{Offer, OfferId, PriceBook, Tier};
use habitat_tui::units::{GpuSlug, UsdPerHour};

/// Counts allocations and the peak.
#[global_allocator]
static ALLOCATED: divan::AllocProfiler = divan::AllocProfiler::system();

fn main() {
    divan::main();
}

/// Numbers of a linear congruential generator (Knuth's MMIX constants), 0 to 1.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// 40 GPUs, each rented by 10 providers on demand and on spot, with 1 to 8 GPUs: prices follow the speed with a spread
/// of ±50 %.
fn synthetic_market() -> (Predictions, PriceBook) {
    let mut numbers = Numbers(7);
    let rates: Vec<f64> = (0..40).map(|_| 100.0 * 50f64.powf(numbers.next())).collect();
    let mut all =
        predictions(rates.iter().enumerate().map(|(gpu, rate)| predicted(&format!("gpu-{gpu:02}"), *rate, 0.2)));
    all.workload.parameter_count = Some(110_000_000);
    let mut offers = Vec::new();
    for (gpu, rate) in rates.iter().enumerate() {
        for provider in 0..10 {
            let gpu_count = 1 << (numbers.next() * 4.0) as u32;
            let price = rate / 400.0 * f64::from(gpu_count) * (0.5 + numbers.next());
            for (tier, factor) in [(Tier::OnDemand, 1.0), (Tier::Spot, 0.3 + 0.3 * numbers.next())] {
                let name = format!("provider-{provider}");
                let base = build::offer(&format!("gpu-{gpu:02}"), price * factor, tier);
                let id = OfferId::new(&name, &base.region, &base.instance_type, tier);
                offers.push(Offer { id, provider: name, gpu_count, ..base });
            }
        }
    }
    (all, PriceBook::new(offers))
}

fn job(max_parts: u32) -> Goal {
    Goal { deadline: Some(hours(30.0)), ..goal(100_000.0, max_parts) }
}

/// The same with six batches per GPU, each somewhat faster per sample than the one before.
#[divan::bench(args = [1, 2])]
fn plan_800_synthetic_offers_of_6_batches(bencher: Bencher, parts: u32) {
    let ((mut predictions, prices), goal) = (synthetic_market(), job(parts));
    for prediction in &mut predictions.predictions {
        let single = prediction.planning_step();
        prediction.at_batches = (1..6)
            .map(|doublings| AtBatch {
                batch_size: 1 << doublings,
                step: Estimate {
                    range: single.range.map(|time| time * 1.9_f64.powi(doublings)),
                    method: single.method,
                },
                data: None,
                memory: prediction.memory.clone(),
                why: "shapes scaled".to_owned(),
            })
            .collect();
    }
    bencher.bench(|| plan(black_box(&predictions), black_box(&prices), black_box(&goal)));
}

/// The whole call, as on a command line.
#[divan::bench(args = [1, 2])]
fn plan_800_synthetic_offers(bencher: Bencher, parts: u32) {
    let ((predictions, prices), goal) = (synthetic_market(), job(parts));
    assert!(prices.offers().len() == 800);
    bencher.bench(|| plan(black_box(&predictions), black_box(&prices), black_box(&goal)));
}

/// A new deadline on prepared configurations, as for a key press on a slider.
#[divan::bench(args = [1, 2])]
fn solve_again_800_synthetic_offers(bencher: Bencher, parts: u32) {
    let (predictions, prices) = synthetic_market();
    let prepared = Prepared::new(&predictions, &prices, &job(parts)).expect("the goal is complete");
    let mut deadline = 10.0;
    bencher.bench_local(|| {
        deadline = if deadline > 100.0 { 10.0 } else { deadline * 1.07 };
        prepared.explained(&predictions, &prices, Some(hours(black_box(deadline))), None)
    });
}

/// No plan: the reasons need several solves.
#[divan::bench(args = [1, 2])]
fn explain_800_synthetic_offers(bencher: Bencher, parts: u32) {
    let (predictions, prices) = synthetic_market();
    let prepared = Prepared::new(&predictions, &prices, &job(parts)).expect("the goal is complete");
    let plan = || prepared.explained(&predictions, &prices, Some(hours(0.01)), Some(build::usd(1.0)));
    assert!(plan().is_ok_and(|plan| plan.total.is_none()));
    bencher.bench(plan);
}

/// The same with six limits on offers: lifts each in turn, with a new plan for each.
#[divan::bench(args = [1, 2])]
fn explain_6_limits_on_800_synthetic_offers(bencher: Bencher, parts: u32) {
    let (predictions, prices) = synthetic_market();
    let mut goal = job(parts);
    goal.limits = Limits {
        exclude_providers: vec![prices.offers()[0].provider.clone()],
        exclude_gpus: vec![predictions.predictions[0].gpu.slug.clone()],
        exclude_regions: vec![prices.offers()[1].region.clone()],
        min_gpus: 2,
        max_gpus: Some(4),
        max_price: UsdPerHour::new(40.0).ok(),
        ..goal.limits
    };
    let prepared = Prepared::new(&predictions, &prices, &goal).expect("the goal is complete");
    let plan = || prepared.explained(&predictions, &prices, Some(hours(0.01)), Some(build::usd(1.0)));
    assert!(plan().is_ok_and(|plan| plan.total.is_none()));
    bencher.bench(plan);
}

#[divan::bench(args = [1, 2])]
fn frontier_800_synthetic_offers(bencher: Bencher, parts: u32) {
    let (predictions, prices) = synthetic_market();
    let prepared = Prepared::new(&predictions, &prices, &job(parts)).expect("the goal is complete");
    bencher.bench(|| prepared.frontier());
}

/// Jobs of 5 to 20 hours on the median GPU of 40; each GPU is faster or slower for each job by up to a third.
fn synthetic_jobs(count: usize) -> (Vec<Job>, PriceBook) {
    let (market, prices) = synthetic_market();
    let mut numbers = Numbers(11);
    let jobs = (0..count).map(|job| {
        let mut own = market.clone();
        own.predictions.iter_mut().for_each(|prediction| {
            let time = prediction.planning_step().range.mid.get() * (0.67 + 0.67 * numbers.next());
            *prediction = predicted(prediction.gpu.slug.as_str(), 3.6e9 / time, 0.2);
        });
        let samples = 700.0 * (5.0 + 15.0 * numbers.next());
        Job {
            name: format!("job {job}"),
            predictions: own.into(),
            goal: goal(samples, 1),
            earliest: hours(0.0),
            after: Vec::new(),
            priority: 1.0,
            late_price: None,
            hour_value: None,
        }
    });
    (jobs.collect(), prices)
}

fn assert_within(most: f64, found: &JobsPlan) {
    let gap = found.solver.gap.unwrap_or(0.0);
    assert!(found.total.is_some() && gap <= most, "{:?}, gap {gap}: {:?}", found.status, found.reasons);
}

/// 60 offers with a quota per provider and a binding price per hour.
fn sixty_offers(prices: &PriceBook, gpus: u32, max_price: f64, wait: bool) -> (PriceBook, Shared) {
    let prices = PriceBook::new(prices.offers().iter().step_by(13).take(60).cloned());
    let providers = (0..10).map(|number| format!("provider-{number}"));
    let quotas = providers
        .map(|provider| Quota { provider, region: None, gpu: None, tier: None, gpus, from: None, until: None })
        .collect();
    let (deadline, max_price) = (Some(hours(40.0)), UsdPerHour::new(max_price).ok());
    let confidence = Confidence::High;
    let shared =
        Shared { deadline, budget: None, max_price, quotas, wait, confidence, late_price: None, hour_value: None };
    (prices, shared)
}

#[divan::bench(args = [20, 100])]
fn rent_for_jobs_on_60_offers(bencher: Bencher, count: usize) {
    let (jobs, prices) = synthetic_jobs(count);
    let (prices, shared) = sixty_offers(&prices, count as u32 / 2, 2.0 * count as f64, false);
    let solve =
        || plan_jobs(&jobs, Supply::Rent(&prices), &shared, Settings::default()).expect("the goals are complete");
    assert_within(0.01, &solve());
    bencher.bench(solve);
}

/// A third of the GPUs and dollars per hour, if jobs may wait for one another.
#[divan::bench(args = [5, 20, 1000], sample_count = 10)]
fn rent_for_jobs_that_wait_on_60_offers(bencher: Bencher, count: usize) {
    let (jobs, prices) = synthetic_jobs(count);
    let (prices, shared) = sixty_offers(&prices, 4, 0.7 * count as f64, true);
    let solve =
        || plan_jobs(&jobs, Supply::Rent(&prices), &shared, Settings::default()).expect("the goals are complete");
    assert_within(0.1, &solve());
    bencher.bench(solve);
}

/// Jobs on machines of 2 kinds; half of the jobs have deadlines.
#[divan::bench(args = [(10, 4), (20, 4), (60, 4), (1000, 200)], sample_count = 10)]
fn jobs_on_machines(bencher: Bencher, (count, machines): (usize, u32)) {
    let (mut jobs, _) = synthetic_jobs(count);
    for job in jobs.iter_mut().step_by(2) {
        job.goal.deadline = Some(hours(count as f64 * 24.0 / f64::from(machines)));
    }
    let machine = |kind: usize| Machine {
        is_shared: false,
        name: format!("kind {kind}"),
        gpu: GpuSlug::new(format!("gpu-{:02}", 7 * kind)).expect("a slug"),
        gpu_count: 1,
        count: machines / 2,
        price: UsdPerHour::ZERO,
    };
    let machines: Vec<Machine> = (0..2).map(machine).collect();
    let shared = Shared {
        deadline: None,
        budget: None,
        max_price: None,
        quotas: Vec::new(),
        wait: false,
        confidence: Confidence::High,
        late_price: None,
        hour_value: None,
    };
    let solve =
        || plan_jobs(&jobs, Supply::Machines(&machines), &shared, Settings::default()).expect("the goals are complete");
    assert_within(0.03, &solve());
    bencher.bench(solve);
}
