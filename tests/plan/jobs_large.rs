//! Several jobs that wait for one another: brute force over every order and way on small random files, list schedules
//! as a bound on larger ones, and proofs that no plan exists.

use habitat_tui::plan::jobs::{Job, JobsPlan, Machine, Shared, Supply, check, plan_jobs};
use habitat_tui::plan::solve::Settings;
use habitat_tui::plan::{NoPlan, PlanStatus, SharedLimit};
use habitat_tui::pricing::{Offer, OfferId, PriceBook, Tier};
use habitat_tui::units::{Hours, UsdPerHour};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::build::{hours, offer, told, usd};
use crate::jobs::{NOTHING, every, job, machines, quota};
use crate::properties::config;

/// Hours on each of two clouds, earliest start, deadline, all in whole hours, and the job before it.
type Small = ([u32; 2], u32, u32, Option<usize>);

const CLOUDS: [&str; 2] = ["near", "far"];
/// Longest schedule of the small files.
const LONGEST: usize = 64;

fn book(prices: &[f64]) -> PriceBook {
    PriceBook::new(prices.iter().enumerate().map(|(n, price)| Offer {
        id: OfferId::new(CLOUDS[n], "us-1", &format!("gpu-{n}"), Tier::OnDemand),
        provider: CLOUDS[n].to_owned(),
        ..offer(&format!("gpu-{n}"), *price, Tier::OnDemand)
    }))
}

fn rented(jobs: &[Job], prices: &PriceBook, shared: &Shared) -> JobsPlan {
    let settings = Settings { seconds: 0.1, ..Settings::default() };
    plan_jobs(jobs, Supply::Rent(prices), shared, settings).unwrap()
}

fn of_small(jobs: &[Small]) -> Vec<Job> {
    let of_job = |(number, (on, earliest, due, after)): (usize, &Small)| Job {
        earliest: hours(f64::from(*earliest)),
        after: after.iter().copied().collect(),
        ..job(number, &on.map(f64::from), Some(f64::from(*due)))
    };
    jobs.iter().enumerate().map(of_job).collect()
}

/// All orders of `0..count`.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let insert = |order: Vec<usize>| {
        (0..count).map(move |place| {
            let mut order = order.clone();
            order.insert(place, count - 1);
            order
        })
    };
    orders(count - 1).into_iter().flat_map(insert).collect()
}

/// Cost of placing jobs in an order on the clouds, each as early as GPUs and dollars per hour allow; `None` if one is
/// late.
fn placed(jobs: &[Small], order: &[usize], on: &[usize], prices: [u32; 2], gpus: [u32; 2], cap: u32) -> Option<u32> {
    let mut used = vec![[0u32; 2]; LONGEST];
    let mut ends = vec![None; jobs.len()];
    let mut cost = 0;
    for &job in order {
        let (length, mut earliest, due, after) = jobs[job];
        if let Some(after) = after {
            earliest = earliest.max(ends[after]?);
        }
        let cloud = on[job];
        let length = length[cloud] as usize;
        let has_room = |hour: usize| {
            let now = used[hour];
            now[cloud] < gpus[cloud] && now[0] * prices[0] + now[1] * prices[1] + prices[cloud] <= cap
        };
        let start = (earliest as usize..LONGEST - length).find(|start| (*start..start + length).all(has_room))?;
        if start + length > due as usize {
            return None;
        }
        used[start..start + length].iter_mut().for_each(|hour| hour[cloud] += 1);
        ends[job] = Some((start + length) as u32);
        cost += prices[cloud] * length as u32;
    }
    Some(cost)
}

fn small() -> impl Strategy<Value = (Vec<Small>, [u32; 2], [u32; 2], u32)> {
    let job = ([1..5u32, 1..5u32], 0..3u32, 5..14u32, prop::option::weighted(0.3, 0..4usize));
    let jobs = prop::collection::vec(job, 4..=5).prop_map(|mut jobs| {
        for (number, job) in jobs.iter_mut().enumerate() {
            job.3 = job.3.filter(|after| *after < number);
        }
        jobs
    });
    (jobs, [1..6u32, 1..6u32], [1..3u32, 1..3u32], 4..12u32)
}

/// Compares plans with brute force in this many cases.
fn is_that_of_brute_force(cases: u32) {
    let mut runner = TestRunner::new(Config { cases, ..config() });
    let result = runner.run(&small(), |(jobs, prices, gpus, cap)| {
        let ways: Vec<Vec<usize>> = every(vec![2; jobs.len()]).collect();
        let schedules = orders(jobs.len()).into_iter().flat_map(|order| {
            let jobs = &jobs;
            ways.iter().filter_map(move |on| placed(jobs, &order, on, prices, gpus, cap)).collect::<Vec<_>>()
        });
        let shared = Shared {
            quotas: vec![quota("near", gpus[0]), quota("far", gpus[1])],
            max_price: UsdPerHour::new(f64::from(cap)).ok(),
            wait: true,
            ..NOTHING
        };
        let found = rented(&of_small(&jobs), &book(&prices.map(f64::from)), &shared);
        if let Some(least) = schedules.min() {
            prop_assert_eq!(found.status, PlanStatus::Optimal, "{:?}", found.reasons);
            let cost = found.total.unwrap().cost.mid.get();
            prop_assert!((cost - f64::from(least)).abs() <= 1e-6 * cost, "{cost} instead of {least}");
            prop_assert_eq!(check(&found), Ok(()));
        } else {
            prop_assert_eq!((found.total, found.status), (None, PlanStatus::Infeasible));
        }
        Ok(())
    });
    assert_eq!(result, Ok(()));
}

#[test]
fn plans_of_a_few_jobs_are_those_of_brute_force() {
    is_that_of_brute_force(300);
}

#[test]
#[ignore = "takes minutes"]
fn plans_of_a_few_jobs_are_those_of_brute_force_in_2000_cases() {
    is_that_of_brute_force(2000);
}

/// Cost of the list schedule in an order, with the cheapest cloud that still meets the deadline.
fn listed(jobs: &[Small], order: &[usize], prices: [u32; 2], gpus: [u32; 2]) -> Option<u32> {
    let mut used = vec![[0u32; 2]; 1000];
    let mut cost = 0;
    for &job in order {
        let (lengths, earliest, due, _) = jobs[job];
        let start = |cloud: usize| {
            let length = lengths[cloud] as usize;
            let mut starts = earliest as usize..(due as usize + 1).saturating_sub(length);
            starts.find(|start| used[*start..start + length].iter().all(|hour| hour[cloud] < gpus[cloud]))
        };
        let mut ways: Vec<(u32, usize)> = (0..2).map(|cloud| (prices[cloud] * lengths[cloud], cloud)).collect();
        ways.sort_unstable();
        let (own, cloud, start) = ways.into_iter().find_map(|(cost, cloud)| Some((cost, cloud, start(cloud)?)))?;
        used[start..start + lengths[cloud] as usize].iter_mut().for_each(|hour| hour[cloud] += 1);
        cost += own;
    }
    Some(cost)
}

proptest! {
    #![proptest_config(Config { cases: 12, ..config() })]

    #[test]
    fn plans_of_many_jobs_are_never_worse_than_list_schedules(
        jobs in prop::collection::vec(([1..9u32, 1..9u32], 0..20u32, 10..60u32), 30..80),
        prices in [1..6u32, 1..6u32],
        gpus in [2..8u32, 2..8u32],
    ) {
        let jobs: Vec<Small> = jobs.into_iter().map(|(on, earliest, more)| (on, earliest, earliest + more, None)).collect();
        let mut by_deadline: Vec<usize> = (0..jobs.len()).collect();
        by_deadline.sort_by_key(|job| jobs[*job].2);
        let mut longest = by_deadline.clone();
        longest.sort_by_key(|job| std::cmp::Reverse(jobs[*job].0[0].min(jobs[*job].0[1])));
        let floor = [by_deadline, longest].iter().filter_map(|order| listed(&jobs, order, prices, gpus)).min();
        let shared = Shared { quotas: vec![quota("near", gpus[0]), quota("far", gpus[1])], wait: true, ..NOTHING };
        let plan = rented(&of_small(&jobs), &book(&prices.map(f64::from)), &shared);
        prop_assert_eq!(check(&plan), Ok(()));
        if let Some(floor) = floor {
            let cost = plan.total.unwrap().cost.mid.get();
            prop_assert!(cost <= f64::from(floor) * (1.0 + 1e-9), "{cost}, a list schedule costs {floor}");
            // The gap is the relative excess of the cost over the bound.
            let bound = plan.bound.unwrap();
            prop_assert!(bound <= cost * (1.0 + 1e-9));
            if let Some(gap) = plan.solver.gap {
                prop_assert!((gap - (cost / bound - 1.0)).abs() < 1e-9);
            }
        }
    }

    /// No assignment ends before the bound, and no list schedule ends before the plan.
    #[test]
    fn jobs_on_many_machines_end_between_the_bound_and_the_longest_first(
        lengths in prop::collection::vec(prop::collection::vec(1.0..30.0f64, 3), 60..120),
        counts in [5..20u32, 5..20u32, 50..60u32],
    ) {
        let jobs: Vec<Job> = lengths.iter().enumerate().map(|(n, hours)| job(n, hours, None)).collect();
        let kinds: Vec<usize> = (0..3).flat_map(|kind| vec![kind; counts[kind] as usize]).collect();
        let least = |job: &usize| lengths[*job].iter().copied().fold(f64::INFINITY, f64::min);
        let mut order: Vec<usize> = (0..jobs.len()).collect();
        order.sort_by(|a, b| least(b).total_cmp(&least(a)));
        let mut loads = vec![0.0; kinds.len()];
        for job in order {
            let end = |machine: &usize| loads[*machine] + lengths[job][kinds[*machine]];
            let first = (0..kinds.len()).min_by(|a, b| end(a).total_cmp(&end(b))).unwrap();
            loads[first] = end(&first);
        }
        let listed = loads.into_iter().fold(0.0, f64::max);
        let plan = plan_jobs(&jobs, Supply::Machines(&machines(&counts)), &NOTHING, Settings { seconds: 0.1, ..Settings::default() }).unwrap();
        let makespan = plan.total.unwrap().hours.high.get();
        prop_assert!(makespan <= listed * (1.0 + 1e-9) && plan.bound.unwrap() <= makespan * (1.0 + 1e-9));
        prop_assert!(plan.solver.gap.is_none_or(|gap| gap < 0.25), "{:?}", plan.solver);
        prop_assert_eq!(check(&plan), Ok(()));
    }
}

#[test]
fn the_same_file_has_the_same_plan() {
    let jobs: Vec<Small> = (0..40).map(|n| ([1 + n % 5, 1 + n % 7], n % 3, 20 + n % 11, None)).collect();
    let shared =
        Shared { quotas: vec![quota("near", 3)], wait: true, max_price: UsdPerHour::new(12.0).ok(), ..NOTHING };
    let plans = [0, 1].map(|_| rented(&of_small(&jobs), &book(&[1.0, 3.0]), &shared));
    assert_eq!(plans[0], plans[1]);
    assert!(plans[0].total.is_some());
}

/// Jobs without a deadline, each before one with a deadline: the cheapest machine takes 100 hours, a faster one 10.
#[test]
fn jobs_leave_time_for_those_that_wait_for_them() {
    let pair = |n: usize| {
        let after = Job { after: vec![2 * n], ..job(2 * n + 1, &[5.0, 5.0], Some(20.0)) };
        [job(2 * n, &[100.0, 10.0], None), after]
    };
    let jobs: Vec<Job> = (0..10).flat_map(pair).collect();
    let shared = Shared { quotas: vec![quota("near", 10), quota("far", 10)], wait: true, ..NOTHING };
    // Only list schedules.
    let settings = Settings { seconds: 0.0, ..Settings::default() };
    let plan = plan_jobs(&jobs, Supply::Rent(&book(&[0.5, 6.0])), &shared, settings).unwrap();
    assert_eq!(check(&plan), Ok(()));
    assert!((plan.total.unwrap().cost.mid.get() - 10.0 * 62.5).abs() < 1e-6, "{:?}", plan.total);
}

/// Equal machines of four clouds: among equal costs, the plan that ends first.
#[test]
fn of_equal_cost_the_earliest_end_is_chosen() {
    let jobs: Vec<Job> = (0..6).map(|n| job(n, &[[8.0, 5.0, 4.0, 3.0, 2.0, 2.0][n]; 2], None)).collect();
    let shared = Shared { quotas: vec![quota("near", 1), quota("far", 1)], wait: true, ..NOTHING };
    let plan = rented(&jobs, &book(&[1.0, 1.0]), &shared);
    assert_eq!(plan.status, PlanStatus::Optimal);
    assert!((plan.total.unwrap().hours.high.get() - 12.0).abs() < 1e-6, "{:?}", plan.total);
}

#[test]
fn what_cannot_be_done_names_the_limit_and_the_amount() {
    // Twenty jobs of two hours on one GPU, due after 30 hours.
    let jobs: Vec<Job> = (0..20).map(|n| job(n, &[2.0, f64::INFINITY], Some(30.0))).collect();
    let shared = Shared { quotas: vec![quota("near", 1)], wait: true, ..NOTHING };
    let plan = rented(&jobs, &book(&[1.0, 1.0]), &shared);
    assert_eq!((plan.status, plan.total), (PlanStatus::Infeasible, None));
    let reasons = told(&plan.reasons);
    assert_eq!(
        reasons[0],
        "no plan exists: 20 jobs due by 30 h need at least 1.33 times what the quota of 1 at near provides until then"
    );
    assert!(reasons.iter().any(|reason| reason == "the quota of 1 at near: 1 more GPUs (2)"), "{reasons:?}");
    // One job too many: relaxing only the deadline would suffice.
    let jobs: Vec<Job> = (0..8).map(|n| job(n, &[4.0, f64::INFINITY], Some(30.0))).collect();
    let reasons = told(&rented(&jobs, &book(&[1.0, 1.0]), &shared).reasons);
    assert!(reasons.iter().any(|reason| reason.ends_with("allow 2 h more")), "{reasons:?}");
    // Money.
    let shared = Shared { budget: Some(usd(31.0)), ..shared };
    let jobs: Vec<Job> = (0..8).map(|n| job(n, &[4.0, f64::INFINITY], Some(40.0))).collect();
    let plan = rented(&jobs, &book(&[1.0, 1.0]), &shared);
    assert!(
        matches!(&plan.reasons[0], NoPlan::Overload { limits, .. } if matches!(limits[..], [SharedLimit::BudgetUsd(_)]))
    );
    assert!(told(&plan.reasons).iter().any(|reason| reason.ends_with("spend $1.00 more")), "{:?}", plan.reasons);
}

#[test]
fn deadlines_that_many_machines_cannot_meet_are_proven() {
    let jobs: Vec<Job> = (0..90).map(|n| job(n, &[3.0], Some(7.0))).collect();
    let on: Vec<Machine> = machines(&[35]);
    let plan = plan_jobs(&jobs, Supply::Machines(&on), &NOTHING, Settings::default()).unwrap();
    assert_eq!((plan.status, plan.total), (PlanStatus::Infeasible, None));
    assert_eq!(
        told(&plan.reasons)[0],
        "no plan exists: 90 jobs due by 7 h need at least 1.10 times what all machines provide until then"
    );
}

/// An offer that several jobs can use counts once.
#[test]
fn each_offer_counts_once() {
    let jobs: Vec<Job> = (0..3).map(|n| job(n, &[2.0, 3.0], None)).collect();
    let plan = rented(&jobs, &book(&[1.0, 1.0]), &NOTHING);
    assert_eq!(plan.solver.offers, 2);
    assert_eq!(plan.jobs[0].earliest, Hours::ZERO);
}

/// Training, then two evaluations; a job that arrives later uses the free machine.
#[test]
fn jobs_on_machines_start_after_others_and_not_before_they_arrive() {
    let mut jobs: Vec<Job> = [5.0, 2.0, 2.0, 3.0].iter().enumerate().map(|(n, h)| job(n, &[*h], None)).collect();
    jobs[1].after = vec![0];
    jobs[2].after = vec![0, 1];
    jobs[3].earliest = hours(1.0);
    let plan = plan_jobs(&jobs, Supply::Machines(&machines(&[2])), &NOTHING, Settings::default()).unwrap();
    let starts: Vec<f64> = plan.jobs.iter().map(|job| job.start.mid.get()).collect();
    assert_eq!((starts, plan.status), (vec![0.0, 5.0, 7.0, 1.0], PlanStatus::Optimal));
    assert_eq!(check(&plan), Ok(()));
    let mut early = plan;
    // Job 3 ends after 4 hours, job 0 starts at once.
    early.jobs[0].after.push(3);
    let error = check(&early).unwrap_err().to_string();
    assert!(error.contains("start of job 0"), "{error}");
    // A job that cannot end in time after those that it waits for.
    jobs[2].goal.deadline = Some(hours(8.0));
    let plan = plan_jobs(&jobs, Supply::Machines(&machines(&[2])), &NOTHING, Settings::default()).unwrap();
    assert_eq!(told(&plan.reasons), ["job \"job 2\" alone: its earliest start, 7 h, is too late for its deadline"]);
}

/// At equal cost and end, jobs of high priority end first, however long they are.
#[test]
fn jobs_of_higher_priority_end_earlier() {
    let mut jobs: Vec<Job> = [4.0, 3.0, 2.0, 1.0].iter().enumerate().map(|(n, h)| job(n, &[*h; 2], None)).collect();
    (jobs[0].priority, jobs[1].priority) = (100.0, 10.0);
    let shared = Shared { quotas: vec![quota("near", 1), quota("far", 0)], wait: true, ..NOTHING };
    let on_one = plan_jobs(&jobs, Supply::Machines(&machines(&[1])), &NOTHING, Settings::default()).unwrap();
    for plan in [rented(&jobs, &book(&[1.0, 1.0]), &shared), on_one] {
        let starts: Vec<f64> = plan.jobs.iter().map(|job| job.start.mid.get()).collect();
        assert_eq!((starts, plan.status), (vec![0.0, 4.0, 8.0, 7.0], PlanStatus::Optimal));
    }
}

/// Two jobs of ten hours on one cheap GPU, the second one late; another cloud costs $20 more.
#[test]
fn a_deadline_is_missed_if_that_costs_less() {
    let soft = |usd: f64| {
        let jobs: Vec<Job> = (0..2).map(|n| job(n, &[10.0; 2], None)).collect();
        let shared = Shared {
            deadline: Some(hours(12.0)),
            late_price: UsdPerHour::new(usd).ok(),
            quotas: vec![quota("near", 1)],
            wait: true,
            ..NOTHING
        };
        let plan = rented(&jobs, &book(&[1.0, 3.0]), &shared);
        assert_eq!((plan.status, check(&plan)), (PlanStatus::Optimal, Ok(())));
        (plan.total.unwrap().cost.mid.get().round(), plan.time_cost.unwrap().late.get().round())
    };
    // Eight hours late.
    assert_eq!((soft(2.0), soft(3.0)), ((20.0, 16.0), (40.0, 0.0)));
}

/// The faster cloud costs $10 more and saves five hours.
#[test]
fn the_value_of_an_hour_buys_time() {
    let plan = |own: f64, all: f64, wait: bool| {
        let price = |usd: f64| UsdPerHour::new(usd).ok().filter(|price| price.get() > 0.0);
        let jobs = [Job { hour_value: price(own), ..job(0, &[10.0, 5.0], None) }];
        let plan = rented(&jobs, &book(&[1.0, 4.0]), &Shared { wait, hour_value: price(all), ..NOTHING });
        assert_eq!((plan.status, check(&plan)), (PlanStatus::Optimal, Ok(())));
        let waiting = plan.time_cost.map_or(0.0, |time| time.waiting.get());
        (plan.jobs[0].end.high.get().round(), waiting.round())
    };
    for wait in [false, true] {
        assert_eq!((plan(1.9, 0.0, wait), plan(2.1, 0.0, wait)), ((10.0, 19.0), (5.0, 11.0)));
        assert_eq!(
            (plan(0.0, 1.9, wait), plan(0.0, 2.1, wait), plan(1.0, 1.1, wait)),
            ((10.0, 19.0), (5.0, 11.0), (5.0, 11.0))
        );
    }
    let mut wrong =
        rented(&[Job { hour_value: UsdPerHour::new(1.0).ok(), ..job(0, &[10.0], None) }], &book(&[1.0]), &NOTHING);
    wrong.time_cost.as_mut().unwrap().waiting = usd(3.0);
    assert!(check(&wrong).is_err());
}

proptest! {
    #![proptest_config(Config { cases: 8, ..config() })]

    /// Jobs in turn on one GPU, by length over price (Smith 1956), are the best order; the bound is below it.
    #[test]
    fn the_bound_on_waiting_is_below_the_best_order(
        jobs in prop::collection::vec((1..9u32, 1..9u32), 12..40),
    ) {
        let all: Vec<Job> = jobs.iter().enumerate().map(|(n, (length, price))| Job {
            hour_value: UsdPerHour::new(f64::from(*price)).ok(),
            ..job(n, &[f64::from(*length), f64::INFINITY], None)
        }).collect();
        let shared = Shared { quotas: vec![quota("near", 1)], wait: true, ..NOTHING };
        let plan = rented(&all, &book(&[1.0, 1.0]), &shared);
        let mut order = jobs;
        order.sort_by(|a, b| (a.0 * b.1).cmp(&(b.0 * a.1)));
        let (mut end, mut least) = (0, 0);
        for (length, price) in order {
            end += length;
            least += length + price * end;
        }
        let (least, bound) = (f64::from(least), plan.bound.unwrap());
        let value = plan.total.unwrap().cost.mid.get() + plan.time_cost.unwrap().total().get();
        prop_assert!(bound <= least * (1.0 + 1e-9) && bound > 0.8 * least, "{bound}, best order {least}");
        prop_assert!(value >= least * (1.0 - 1e-6) && value <= 1.02 * least, "{value}, best order {least}");
    }
}
