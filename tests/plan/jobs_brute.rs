//! Several jobs with every field of a jobs file at random, against brute force over all orders and ways: rented, on own
//! machines, on both, with and without waiting, shares of machines, prices of time.

use std::sync::Arc;

use habitat_tui::plan::jobs::{Aim, Job, JobsPlan, Machine, Shared, Supply, book, check, offers, plan_jobs};
use habitat_tui::plan::solve::Settings;
use habitat_tui::plan::{Confidence, Goal, PlanStatus, Quota, plan};
use habitat_tui::pricing::{Offer, OfferId, PriceBook, Tier};
use habitat_tui::units::{Hours, UsdPerHour};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};

use crate::build::{goal, hours, predicted, predictions, usd};
use crate::jobs::{machines, quota};
use crate::properties::config;

/// Relative difference below which two numbers are equal.
const TOLERANCE: f64 = 1e-6;

/// A job of the file.
#[derive(Debug, Clone)]
struct One {
    /// Hours on one GPU of each kind: near, far, own.
    hours: [u32; 3],
    earliest: u32,
    due: Option<u32>,
    late: Option<u32>,
    hour_value: Option<u32>,
    budget: Option<u32>,
    priority: f64,
    after: [Option<usize>; 2],
}

/// Machines that run the jobs.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Where {
    Rented { wait: bool },
    Own,
    Both,
}

#[derive(Debug, Clone)]
struct File {
    jobs: Vec<One>,
    place: Where,
    confidence: Confidence,
    /// Dollars an hour: near, far, own.
    prices: [u32; 3],
    /// GPUs of one own machine, their number, and whether jobs share it.
    own: (u32, u32, bool),
    gpus: [u32; 2],
    shut: Option<(usize, u32, u32)>,
    due: Option<u32>,
    late: Option<u32>,
    hour_value: Option<u32>,
    budget: Option<u32>,
    cap: Option<u32>,
}

fn one() -> impl Strategy<Value = One> {
    let option = |share: f64, range: std::ops::Range<u32>| prop::option::weighted(share, range);
    let after = prop::option::weighted(0.2, 0..6usize);
    let times = ([1..5u32, 1..5u32, 1..6u32], prop_oneof![3 => Just(0), 1 => 1..4u32], option(0.4, 4..16));
    let prices = (option(0.3, 1..8), option(0.2, 1..4), option(0.15, 2..12), prop_oneof![Just(1.0), 0.5..20.0f64]);
    (times, prices, [after.clone(), after]).prop_map(
        |((hours, earliest, due), (late, hour_value, budget, priority), after)| One {
            hours,
            earliest,
            due,
            late,
            hour_value,
            budget,
            priority,
            after,
        },
    )
}

fn file(most: usize) -> impl Strategy<Value = File> {
    let place = prop_oneof![
        Just(Where::Rented { wait: true }),
        Just(Where::Rented { wait: false }),
        Just(Where::Own),
        Just(Where::Both)
    ];
    let confidence = prop_oneof![Just(Confidence::High), Just(Confidence::Expected)];
    let option = |share: f64, range: std::ops::Range<u32>| prop::option::weighted(share, range);
    let shut = prop::option::weighted(0.3, (0..2usize, 0..5u32, 1..4u32));
    let machines = ([1..6u32, 1..6u32, 0..3u32], (prop_oneof![Just(1u32), Just(2), Just(4)], 1..3u32, any::<bool>()));
    let limits = ([1..4u32, 0..3u32], shut, option(0.3, 6..24), option(0.3, 8..40), option(0.3, 3..12));
    let time = (option(0.3, 1..8), option(0.3, 1..10));
    (prop::collection::vec(one(), 2..=most), place, confidence, machines, limits, time).prop_map(
        |(mut jobs, place, confidence, (prices, own), (gpus, shut, due, budget, cap), (late, hour_value))| {
            for (number, job) in jobs.iter_mut().enumerate() {
                for after in &mut job.after {
                    *after = after.filter(|other| *other < number);
                }
                if place == (Where::Rented { wait: false }) {
                    (job.earliest, job.after) = (0, [None; 2]);
                }
            }
            File { jobs, place, confidence, prices, own, gpus, shut, due, late, hour_value, budget, cap }
        },
    )
}

impl File {
    fn waits(&self) -> bool {
        self.place != Where::Rented { wait: false }
    }

    fn machines(&self) -> Vec<Machine> {
        let (gpu_count, count, is_shared) = self.own;
        let mut own = machines(&[1, 1, count]).remove(2);
        own.price = UsdPerHour::new(f64::from(self.prices[2])).unwrap();
        (own.gpu_count, own.is_shared) = (gpu_count, is_shared && self.place == Where::Both);
        vec![own]
    }

    fn book(&self) -> PriceBook {
        let rented = ["near", "far"].iter().enumerate().map(|(n, cloud)| Offer {
            id: OfferId::new(cloud, "us-1", &format!("gpu-{n}"), Tier::OnDemand),
            provider: (*cloud).to_owned(),
            ..crate::build::offer(&format!("gpu-{n}"), f64::from(self.prices[n]), Tier::OnDemand)
        });
        match self.place {
            Where::Rented { .. } => PriceBook::new(rented),
            Where::Own => book(&self.machines()),
            Where::Both => PriceBook::new(offers(&self.machines())).with_offers(rented),
        }
    }

    fn shared(&self) -> Shared {
        let price = |of: Option<u32>| of.and_then(|of| UsdPerHour::new(f64::from(of)).ok());
        let rents = self.place != Where::Own;
        let shut = self.shut.filter(|_| self.waits()).map(|(cloud, from, length)| Quota {
            from: Some(hours(f64::from(from))),
            until: Some(hours(f64::from(from + length))),
            ..quota(["near", "far"][cloud], 0)
        });
        Shared {
            deadline: self.due.map(|due| hours(f64::from(due))),
            budget: self.budget.filter(|_| rents).map(|budget| usd(f64::from(budget))),
            max_price: price(self.cap.filter(|_| rents)),
            quotas: [quota("near", self.gpus[0]), quota("far", self.gpus[1])]
                .into_iter()
                .chain(shut)
                .filter(|_| rents)
                .collect(),
            wait: self.waits(),
            confidence: self.confidence,
            late_price: price(self.late.filter(|_| rents)),
            hour_value: price(self.hour_value.filter(|_| rents)),
        }
    }

    fn jobs(&self) -> Vec<Job> {
        let price = |of: Option<u32>| of.and_then(|of| UsdPerHour::new(f64::from(of)).ok());
        let rents = self.place != Where::Own;
        let of_one = |(number, one): (usize, &One)| {
            let all = one.hours.iter().enumerate();
            let all = all.map(|(gpu, hours)| predicted(&format!("gpu-{gpu}"), 100.0 / f64::from(*hours), 0.1));
            let mut predictions = predictions(all);
            predictions.workload.parameter_count = Some(1_000_000);
            let mut goal = Goal {
                deadline: one.due.map(|due| hours(f64::from(due))),
                budget: one.budget.filter(|_| rents).map(|budget| usd(f64::from(budget))),
                ..goal(100.0, 1)
            };
            if self.place == Where::Both {
                goal.limits.max_machines = 1 + number as u32 % 2;
            }
            Job {
                name: format!("job {number}"),
                predictions: predictions.into(),
                goal,
                earliest: hours(f64::from(one.earliest)),
                after: one.after.into_iter().flatten().collect(),
                priority: if self.waits() { one.priority } else { 1.0 },
                late_price: price(one.late.filter(|_| rents)),
                hour_value: price(one.hour_value.filter(|_| rents)),
            }
        };
        self.jobs.iter().enumerate().map(of_one).collect()
    }
}

/// A way to run a job alone, by the planner of one job.
#[derive(Debug, Clone)]
struct Alone {
    offer: Arc<Offer>,
    machines: u32,
    cost: f64,
    hours: f64,
}

/// Everything brute force needs.
struct Brute<'a> {
    file: &'a File,
    jobs: &'a [Job],
    shared: &'a Shared,
    ways: Vec<Vec<Alone>>,
    /// Schedules are only of interest below it; updated.
    best: f64,
    runs: Vec<Option<(usize, f64)>>,
}

impl<'a> Brute<'a> {
    fn new(file: &'a File, jobs: &'a [Job], shared: &'a Shared, prices: &PriceBook) -> Self {
        let alone = |job: &Job| {
            let most = |offer: &Arc<Offer>| {
                let there = if offer.tier == Tier::Owned { offer.machines.unwrap_or(1) } else { u32::MAX };
                there.min(job.goal.limits.max_machines)
            };
            let on = |(offer, machines): (&Arc<Offer>, u32)| {
                let mut goal = Goal { deadline: None, confidence: file.confidence, ..job.goal.clone() };
                goal.limits.offers = vec![offer.id.to_string()];
                goal.limits.min_gpus = machines * offer.gpu_count;
                goal.limits.max_gpus = Some(machines * offer.gpu_count);
                let total = plan(&job.predictions, prices, &goal).unwrap().total?;
                let way = (total.cost.mid.get(), file.confidence.end(&total.hours).get());
                Some(Alone { offer: Arc::clone(offer), machines, cost: way.0, hours: way.1 })
            };
            let offers =
                prices.offers().iter().flat_map(|offer| (1..=most(offer)).map(move |machines| (offer, machines)));
            let mut ways: Vec<Alone> = offers.filter_map(on).collect();
            ways.sort_by(|a, b| a.cost.total_cmp(&b.cost));
            ways
        };
        let ways = jobs.iter().map(alone).collect();
        Self { file, jobs, shared, ways, best: f64::INFINITY, runs: vec![None; jobs.len()] }
    }

    fn end(&self, job: usize) -> Option<f64> {
        self.runs[job].map(|(way, start)| start + self.ways[job][way].hours)
    }

    /// Jobs that run at a time, with their ways.
    fn running(&self, time: f64) -> impl Iterator<Item = &Alone> {
        let runs =
            self.runs.iter().enumerate().filter_map(|(job, run)| run.map(|(way, start)| (&self.ways[job][way], start)));
        runs.filter(move |(way, start)| *start <= time + 1e-9 && time + 1e-9 < start + way.hours).map(|(way, _)| way)
    }

    /// Whether one more job may run at a time.
    fn has_room(&self, way: &Alone, time: f64) -> bool {
        let all = || self.running(time).chain(std::iter::once(way));
        let gpus = |cloud: &str| -> u32 {
            all()
                .filter(|other| other.offer.provider == cloud)
                .map(|other| other.offer.gpu_count * other.machines)
                .sum()
        };
        let keeps = |quota: &Quota| {
            let holds = quota.from.is_none_or(|from| from.get() <= time + 1e-9)
                && quota.until.is_none_or(|until| time + 1e-9 < until.get());
            !holds || way.offer.provider != quota.provider || gpus(&quota.provider) <= quota.gpus
        };
        let dollars: f64 = all().map(|other| other.offer.price.get() * f64::from(other.machines)).sum();
        let (gpu_count, count, is_shared) = self.file.own;
        let is_own = way.offer.tier == Tier::Owned;
        let fits = if is_own && is_shared && self.file.place == Where::Both {
            let machine = |offer: &Offer| offer.share_of.as_ref().map(|share| share.machine.clone());
            let here =
                all().filter(|other| machine(&other.offer) == machine(&way.offer) && other.offer.tier == Tier::Owned);
            here.map(|other| other.offer.gpu_count).sum::<u32>() <= gpu_count
        } else {
            !is_own
                || all().filter(|other| other.offer.tier == Tier::Owned).map(|other| other.machines).sum::<u32>()
                    <= count
        };
        fits && self.shared.quotas.iter().all(keeps)
            && self.shared.max_price.is_none_or(|most| dollars <= most.get() * (1.0 + TOLERANCE))
    }

    /// First start of a job: when it may, or at the end of another or of a quota.
    fn start(&self, job: usize, way: usize) -> Option<f64> {
        let own = &self.ways[job][way];
        let earliest = self.jobs[job]
            .after
            .iter()
            .map(|other| self.end(*other))
            .try_fold(self.jobs[job].earliest.get(), |a, end| Some(a.max(end?)))?;
        if !self.shared.wait {
            return self.has_room(own, 0.0).then_some(0.0);
        }
        let ends = (0..self.jobs.len()).filter_map(|job| self.end(job));
        let windows = self.shared.quotas.iter().flat_map(|quota| [quota.from, quota.until]).flatten().map(Hours::get);
        let starts = self.runs.iter().flatten().map(|(_, start)| *start);
        let mut times: Vec<f64> =
            ends.chain(windows).chain(starts).filter(|time| *time > earliest).chain([earliest]).collect();
        times.sort_by(f64::total_cmp);
        let is_possible = |start: &f64| {
            let during = times.iter().filter(|time| **time >= *start && **time < start + own.hours - 1e-9);
            during.copied().all(|time| self.has_room(own, time))
        };
        times.iter().copied().find(is_possible)
    }

    /// Dollars, or the makespan on own machines; `None` beyond a limit.
    fn value(&self) -> Option<f64> {
        let (mut paid, mut time, mut last) = (0.0, 0.0, 0.0);
        for (job, run) in self.runs.iter().enumerate() {
            let own = &self.jobs[job];
            let cheapest = self.ways[job].first()?.cost;
            let Some((way, _)) = run else {
                paid += cheapest;
                continue;
            };
            let (way, end) = (&self.ways[job][*way], self.end(job)?);
            paid += way.cost;
            last = f64::max(last, end);
            time += own.hour_value.map_or(0.0, |price| price.get() * (end - own.earliest.get()));
            let deadlines = [(own.goal.deadline, own.late_price), (self.shared.deadline, self.shared.late_price)];
            for (deadline, price) in
                deadlines.into_iter().filter_map(|(deadline, price)| Some((deadline?.get(), price)))
            {
                match price {
                    Some(price) => time += price.get() * f64::max(0.0, end - deadline),
                    None if end > deadline * (1.0 + 1e-9) => return None,
                    None => {}
                }
            }
            if own.goal.budget.is_some_and(|budget| way.cost > budget.get() * (1.0 + 1e-9)) {
                return None;
            }
        }
        if self.shared.budget.is_some_and(|budget| paid > budget.get() * (1.0 + 1e-9)) {
            return None;
        }
        let waiting = self.shared.hour_value.map_or(0.0, |price| price.get() * last);
        Some(if self.file.place == Where::Own { last } else { paid + time + waiting })
    }

    /// Tries all orders and ways.
    fn search(&mut self) {
        let Some(value) = self.value().filter(|value| *value < self.best) else { return };
        let mut is_whole = true;
        for job in (0..self.jobs.len()).filter(|job| self.runs[*job].is_none()).collect::<Vec<_>>() {
            is_whole = false;
            for way in 0..self.ways[job].len() {
                if let Some(start) = self.start(job, way) {
                    self.runs[job] = Some((way, start));
                    self.search();
                    self.runs[job] = None;
                }
            }
            if !self.shared.wait {
                break;
            }
        }
        if is_whole {
            self.best = value;
        }
    }
}

/// Dollars of a plan with those of time, or its makespan.
fn objective(file: &File, found: &JobsPlan) -> f64 {
    let total = found.total.unwrap();
    match file.place {
        Where::Own => file.confidence.end(&total.hours).get(),
        _ => total.cost.mid.get() + found.time_cost.map_or(0.0, |time| time.total().get()),
    }
}

/// Runs jobs in their turns for other hours than planned, some of which fail: no limit is exceeded.
fn turns_keep_limits(plan: &JobsPlan) -> Result<(), TestCaseError> {
    let mut order: Vec<usize> = (0..plan.jobs.len()).collect();
    order.sort_by(|a, b| plan.jobs[*a].start.mid.total_cmp(&plan.jobs[*b].start.mid));
    for trial in 0..8 {
        let mut runs = vec![(0.0, 0.0, true); plan.jobs.len()];
        for &job in &order {
            let own = &plan.jobs[job];
            let failed = own.after.iter().filter(|other| !runs[**other].2).map(|other| runs[*other].1);
            if let Some(cancelled) = failed.min_by(f64::total_cmp) {
                runs[job] = (cancelled, cancelled, false);
                continue;
            }
            let ends = own.after.iter().chain(&own.turn.ends).map(|other| runs[*other].1);
            let start = ends.fold(own.earliest.max(own.turn.not_before).get(), f64::max);
            let factor = [0.3, 1.0, 2.7, 0.9][(job * 5 + trial * 3 + job / 2) % 4];
            runs[job] = (start, start + own.part.hours.high.get() * factor, (job + trial) % 3 > 0);
        }
        for (time, ..) in &runs {
            let running = || {
                let is_on = |job: &usize| runs[*job].0 <= *time && runs[*job].1 > *time + 1e-9;
                (0..plan.jobs.len()).filter(is_on).map(|job| &plan.jobs[job])
            };
            let used: f64 = running().map(|job| job.part.price().get()).sum();
            let most = plan.shared.max_price.filter(|_| plan.aim == Aim::Cost).map_or(f64::INFINITY, UsdPerHour::get);
            prop_assert!(used <= most * (1.0 + TOLERANCE), "${used} an hour instead of {most}: {runs:?}");
            for quota in plan.shared.quotas.iter().filter(|quota| quota.is_lasting()) {
                let here = running().filter(|job| job.part.offer.provider == quota.provider);
                let used: u32 = here.map(|job| job.part.all_gpus()).sum();
                prop_assert!(used <= quota.gpus, "{used} GPUs instead of {quota}: {runs:?}");
            }
            for job in running() {
                let offer = &job.part.offer;
                let [on_machine, of_offer, of_share] = [
                    running().filter(|other| job.machine.is_some() && other.machine == job.machine).count() as u32,
                    running().filter(|other| other.part.offer.id == offer.id).map(|other| other.part.machines).sum(),
                    running()
                        .filter(|other| other.part.offer.share_of == offer.share_of)
                        .map(|other| other.part.all_gpus())
                        .sum(),
                ];
                prop_assert!(on_machine <= 1, "{on_machine} jobs on a machine: {runs:?}");
                let most = offer.most_machines().filter(|_| offer.share_of.is_none() && job.machine.is_none());
                prop_assert!(
                    most.is_none_or(|most| of_offer <= most),
                    "{of_offer} machines instead of {most:?}: {runs:?}"
                );
                let most = offer.share_of.as_ref().map(|share| share.gpus);
                prop_assert!(most.is_none_or(|most| of_share <= most), "{of_share} GPUs instead of {most:?}: {runs:?}");
            }
        }
    }
    Ok(())
}

/// Compares a plan with brute force.
fn compare(file: &File) -> Result<(), TestCaseError> {
    let (jobs, shared, prices) = (file.jobs(), file.shared(), file.book());
    let machines = file.machines();
    let supply = if file.place == Where::Own { Supply::Machines(&machines) } else { Supply::Rent(&prices) };
    let settings = Settings { seconds: 0.1, ..Settings::default() };
    let found = plan_jobs(&jobs, supply, &shared, settings).unwrap();
    prop_assert_eq!(check(&found), Ok(()));
    turns_keep_limits(&found)?;
    let mut brute = Brute::new(file, &jobs, &shared, &prices);
    if found.total.is_none() {
        prop_assert_eq!((found.status, found.reasons.is_empty()), (PlanStatus::Infeasible, false));
        brute.search();
        prop_assert!(brute.best.is_infinite(), "no plan, although one of {} exists", brute.best);
        return Ok(());
    }
    let (value, bound) = (objective(file, &found), found.bound.unwrap());
    prop_assert!(bound <= value * (1.0 + TOLERANCE) + TOLERANCE, "{bound} is above {value}");
    prop_assert_eq!(found.status, PlanStatus::Optimal, "{} instead of at least {}", value, bound);
    brute.best = value * (1.0 - TOLERANCE) - TOLERANCE;
    let before = brute.best;
    brute.search();
    prop_assert!(brute.best >= before, "{value} instead of {}", brute.best);
    Ok(())
}

/// Compares plans of `cases` files, and lists all that differ.
fn is_that_of_brute_force(cases: u32, most: usize) {
    let mut runner = TestRunner::new(Config { cases, ..config() });
    let files = file(most);
    let mut wrong = Vec::new();
    for number in 0..cases {
        let case = files.new_tree(&mut runner).unwrap().current();
        if let Err(why) = compare(&case) {
            wrong.push(format!("{number}: {why}: {case:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {cases} files:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn files_with_every_field_have_the_plans_of_brute_force() {
    is_that_of_brute_force(150, 4);
}

#[test]
#[ignore = "takes minutes"]
fn files_with_every_field_have_the_plans_of_brute_force_in_2000_cases() {
    is_that_of_brute_force(2000, 6);
}
