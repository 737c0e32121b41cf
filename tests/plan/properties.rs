//! C.7: properties of every problem, on random small ones, against brute force.

use habitat_tui::plan::problem::{Aim, Choice, Limit, Problem};
use habitat_tui::plan::search::{best, solve_one};
use habitat_tui::plan::solve::{Settings, solve};
use habitat_tui::plan::{Confidence, Goal, Objective, Plan, Prepared, plan};
use habitat_tui::predict::Predictions;
use habitat_tui::pricing::{Offer, PriceBook, Tier};
use habitat_tui::units::UsdPerHour;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

use crate::build::{goal, hours, offer, predicted, predictions, told, usd};

const CASES: u32 = 256;
const WORK: f64 = 100.0;

/// The same cases in every run, so that differences come from changes of the code; `PROPTEST_RNG_SEED` and
/// `PROPTEST_CASES` explore further.
pub(crate) fn config() -> Config {
    let mut config = Config { failure_persistence: None, ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = CASES;
    }
    if std::env::var_os("PROPTEST_RNG_SEED").is_none() {
        config.rng_seed = RngSeed::Fixed(7);
    }
    config
}

fn choice() -> impl Strategy<Value = Choice> {
    (
        0.5..20.0f64,
        1.0..1.6f64,
        0.0..2.0f64,
        0.1..30.0f64,
        0.0..5.0f64,
        prop_oneof![3 => Just(f64::INFINITY), 1 => 1.0..50.0f64],
        prop_oneof![2 => Just(0.0), 1 => 0.0..3.0f64],
        0.0..10.0f64,
        0.0..2.0f64,
    )
        .prop_map(|(rate, hours, hours_once, usd, usd_once, most_hours, hours_shared, kg, kg_once)| Choice {
            rate,
            hours,
            hours_once,
            hours_shared,
            usd,
            usd_once,
            kg,
            kg_once,
            most_hours,
            blocks: None,
        })
}

pub(crate) fn problem() -> impl Strategy<Value = Problem> {
    (prop::collection::vec(choice(), 2..=6), 1..=2u32).prop_map(|(choices, max_parts)| Problem {
        work: WORK,
        choices,
        max_parts,
        most_kg: None,
    })
}

/// A limit as a multiple of the fastest single choice's hours or the cheapest's dollars.
pub(crate) fn limits() -> impl Strategy<Value = (f64, f64)> {
    (0.5..4.0f64, 0.5..4.0f64)
}

/// The least cost over all subsets of one or two choices, in closed form: with both used, cost and finish are linear in
/// the share of the first, so the optimum is at an end of the interval of shares within the limits.
pub(crate) fn brute_force(problem: &Problem, deadline: f64, budget: f64) -> Option<f64> {
    let mut lowest: Option<f64> = None;
    let mut offer = |cost: f64| lowest = Some(lowest.map_or(cost, |lowest: f64| lowest.min(cost)));
    for choice in &problem.choices {
        if let Some((finish, cost)) = choice.whole(problem.work)
            && finish <= deadline
            && cost <= budget
            && choice.emits(problem.work / choice.rate) <= problem.most_kg.unwrap_or(f64::INFINITY)
        {
            offer(cost);
        }
    }
    if problem.max_parts < 2 {
        return lowest;
    }
    for (i, a) in problem.choices.iter().enumerate() {
        for b in problem.choices.iter().skip(i + 1) {
            // At share 0 and 1 of a; both machines are set up.
            let line = |of: fn(&Choice) -> (f64, f64)| {
                let ((a_hourly, a_once), (b_hourly, b_once)) = (of(a), of(b));
                let once = a_once + b_once;
                (b_hourly * problem.work / b.rate + once, a_hourly * problem.work / a.rate + once)
            };
            let (mut finish, cost) = (line(|c| (c.hours, c.hours_once)), line(|c| (c.usd, c.usd_once)));
            let shared = a.hours_shared.max(b.hours_shared);
            finish = (finish.0 + shared, finish.1 + shared);
            let (mut from, mut to) = (0.0f64, 1.0f64);
            to = to.min(a.most_hours * a.rate / problem.work);
            from = from.max(1.0 - b.most_hours * b.rate / problem.work);
            let emitted = line(|c| (c.kg, c.kg_once));
            let most_kg = problem.most_kg.unwrap_or(f64::INFINITY);
            for ((at0, at1), bound) in [(finish, deadline), (cost, budget), (emitted, most_kg)] {
                let slope = at1 - at0;
                if slope > 0.0 {
                    to = to.min((bound - at0) / slope);
                } else if slope < 0.0 {
                    from = from.max((bound - at0) / slope);
                } else if at0 > bound {
                    to = -1.0;
                }
            }
            if from <= to {
                for share in [from, to] {
                    offer(cost.0 + (cost.1 - cost.0) * share);
                }
            }
        }
    }
    lowest
}

pub(crate) fn cost(problem: &Problem, limit: &Limit) -> Option<f64> {
    best(problem, Objective::Cost, limit).map(|found| problem.value(Aim::Cost, &found.hours))
}

fn scale(problem: &Problem) -> (f64, f64) {
    problem
        .choices
        .iter()
        .map(|c| (c.hours * WORK / c.rate + c.hours_once + c.hours_shared, c.usd * WORK / c.rate + c.usd_once))
        .fold((f64::INFINITY, f64::INFINITY), |least, whole| (least.0.min(whole.0), least.1.min(whole.1)))
}

pub(crate) fn limit(problem: &Problem, factors: (f64, f64)) -> Limit {
    let (finish, cost) = scale(problem);
    Limit { deadline: Some(finish * factors.0), budget: Some(cost * factors.1), ceilings: Vec::new() }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * a.abs().max(b.abs())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn brute_force_finds_nothing_better_and_nothing_else(problem in problem(), factors in limits()) {
        let limit = limit(&problem, factors);
        let found = cost(&problem, &limit);
        let brute = brute_force(&problem, limit.deadline.unwrap(), limit.budget.unwrap());
        match (found, brute) {
            (Some(found), Some(brute)) => prop_assert!(close(found, brute), "{found} instead of {brute}"),
            (None, None) => {}
            // At the edge of feasibility rounding decides; a little room settles it.
            (found, _) => {
                let room = if found.is_some() { 1.0 + 1e-6 } else { 1.0 - 1e-6 };
                let brute = brute_force(&problem, limit.deadline.unwrap() * room, limit.budget.unwrap() * room);
                prop_assert_eq!(found.is_some(), brute.is_some());
            }
        }
    }

    #[test]
    fn more_of_anything_never_costs_more(problem in problem(), factors in limits(), extra in choice(), more in 1.0..3.0f64, which in 0..6usize) {
        let limit = limit(&problem, factors);
        let Some(before) = cost(&problem, &limit) else { return Ok(()) };
        let deadline = limit.deadline.map(|d| d * more);
        let later = cost(&problem, &Limit { deadline, ..limit.clone() });
        let richer = cost(&problem, &Limit { budget: limit.budget.map(|b| b * more), ..limit.clone() });
        let choices = problem.choices.iter().copied().chain([extra]).collect();
        let offered = cost(&Problem { choices, ..problem.clone() }, &limit);
        let mut cheaper = problem.clone();
        let index = which % cheaper.choices.len();
        cheaper.choices[index].usd /= more;
        let cheaper = cost(&cheaper, &limit);
        for after in [later, richer, offered, cheaper] {
            prop_assert!(after.is_some_and(|after| after <= before * (1.0 + 1e-6)), "{after:?} after {before}");
        }
    }

    #[test]
    fn no_single_choice_is_better_and_the_relaxation_bounds(problem in problem(), factors in limits()) {
        let limit = limit(&problem, factors);
        let Some(found) = cost(&problem, &limit) else { return Ok(()) };
        for choice in &problem.choices {
            if let Some((finish, whole)) = choice.whole(problem.work)
                && finish <= limit.deadline.unwrap() && whole <= limit.budget.unwrap()
            {
                prop_assert!(found <= whole * (1.0 + 1e-6));
            }
        }
        let relaxed = solve(&problem.program(Aim::Cost, &limit).relaxed(), Settings::default()).unwrap();
        prop_assert!(relaxed.objective <= found * (1.0 + 1e-6), "{} above {found}", relaxed.objective);
    }

    /// Cost under a deadline and time under a budget are the two sides of one frontier.
    #[test]
    fn the_fastest_within_the_cheapest_costs_meets_its_deadline(problem in problem(), factors in limits()) {
        let limit = Limit { budget: None, ..limit(&problem, factors) };
        let Some(cheapest) = cost(&problem, &limit) else { return Ok(()) };
        let budget = Limit { budget: Some(cheapest * (1.0 + 1e-7)), ..Limit::default() };
        let fastest = best(&problem, Objective::Time, &budget).expect("the cheapest plan is within its own cost");
        let finish = problem.value(Aim::Finish, &fastest.hours);
        prop_assert!(finish <= limit.deadline.unwrap() * (1.0 + 1e-5), "{finish} {:?}", limit.deadline);
    }

    #[test]
    fn units_do_not_matter(problem in problem(), factors in limits()) {
        let limit = limit(&problem, factors);
        let found = cost(&problem, &limit);
        // Hours to seconds, dollars to cents, samples to tokens.
        let mut other = problem.clone();
        other.work *= 512.0;
        for choice in &mut other.choices {
            choice.rate *= 512.0 / 3600.0;
            choice.hours_once *= 3600.0;
            choice.hours_shared *= 3600.0;
            choice.usd *= 100.0 / 3600.0;
            choice.usd_once *= 100.0;
            choice.most_hours *= 3600.0;
        }
        let limit = Limit { deadline: limit.deadline.map(|d| d * 3600.0), budget: limit.budget.map(|b| b * 100.0), ..limit };
        match (found, cost(&other, &limit)) {
            (Some(found), Some(cents)) => prop_assert!(close(found * 100.0, cents), "{found} {cents}"),
            (found, cents) => prop_assert_eq!(found.is_some(), cents.is_some()),
        }
    }

    #[test]
    fn the_order_of_choices_does_not_matter(problem in problem(), factors in limits()) {
        let limit = limit(&problem, factors);
        let mut turned = problem.clone();
        turned.choices.reverse();
        match (cost(&problem, &limit), cost(&turned, &limit)) {
            (Some(a), Some(b)) => prop_assert!(close(a, b), "{a} {b}"),
            (a, b) => prop_assert_eq!(a.is_some(), b.is_some()),
        }
    }

    #[test]
    fn leaving_out_dominated_choices_changes_no_optimum(problem in problem(), factors in limits()) {
        let limit = limit(&problem, factors);
        let pruned = problem.only(&problem.undominated());
        for objective in [Objective::Cost, Objective::Time] {
            let aim = if objective == Objective::Cost { Aim::Cost } else { Aim::Finish };
            let value = |problem: &Problem| best(problem, objective, &limit).map(|f| problem.value(aim, &f.hours));
            match (value(&problem), value(&pruned)) {
                (Some(a), Some(b)) => prop_assert!(close(a, b), "{a} {b}"),
                (a, b) => prop_assert_eq!(a.is_some(), b.is_some()),
            }
        }
    }
}

/// Whole offers with ranges, some of them spot, through the public API.
fn offers() -> impl Strategy<Value = Vec<(f64, f64, f64, bool)>> {
    prop::collection::vec((0.5..20.0f64, 0.0..0.5f64, 0.1..30.0f64, any::<bool>()), 2..=6)
}

fn market(rows: &[(f64, f64, f64, bool)]) -> (Predictions, Vec<Offer>) {
    let name = |index: usize| format!("gpu-{index}");
    let all = rows.iter().enumerate().map(|(index, (rate, band, ..))| predicted(&name(index), *rate, *band));
    let offers = rows.iter().enumerate().map(|(index, (_, _, price, spot))| {
        offer(&name(index), *price, if *spot { Tier::Spot } else { Tier::OnDemand })
    });
    (predictions(all), offers.collect())
}

fn job(max_parts: u32, deadline: f64) -> Goal {
    Goal { deadline: Some(hours(deadline)), ..goal(WORK, max_parts) }
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.parts.iter().map(|part| part.offer.id.as_str()).collect()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn repricing_the_plan_gives_its_total_to_the_cent(rows in offers(), parts in 1..=2u32, deadline in 5.0..200.0f64) {
        let (predictions, offers) = market(&rows);
        let plan = plan(&predictions, &PriceBook::new(offers.clone()), &job(parts, deadline)).unwrap();
        let Some(total) = plan.total else { return Ok(()) };
        prop_assert!(told(&plan.notes).iter().all(|note| !note.contains("fell back")), "{:?}", plan.notes);
        let assumed = plan.goal.assumptions;
        let repriced: f64 = plan.parts.iter().map(|part| {
            let index: usize = part.gpu.as_str()[4..].parse().unwrap();
            let (rate, _, price, spot) = rows[index];
            let useful = part.work.get() / rate;
            let losses = if spot { assumed.spot_losses_per_hour.unwrap_or(0.5) } else { 0.0 };
            let writing = if spot { part.checkpoint_write / assumed.checkpoint_interval } else { 0.0 };
            let lost = losses * (assumed.checkpoint_interval.get() / 2.0 + assumed.restart.get());
            price * useful * (1.0 + writing) * (1.0 + lost)
        }).sum();
        prop_assert!((repriced - total.cost.mid.get()).abs() < 0.005, "{repriced} {total:?}");
    }

    #[test]
    fn k_times_the_price_is_k_times_the_cost_of_the_same_plan(rows in offers(), deadline in 5.0..200.0f64, k in 0.1..10.0f64) {
        let (predictions, offers) = market(&rows);
        let scaled = offers.iter().cloned().map(|o| Offer { price: UsdPerHour::new(o.price.get() * k).unwrap(), ..o });
        let before = plan(&predictions, &PriceBook::new(offers.clone()), &job(1, deadline)).unwrap();
        let after = plan(&predictions, &PriceBook::new(scaled), &job(1, deadline)).unwrap();
        prop_assert_eq!(names(&before), names(&after));
        if let (Some(before), Some(after)) = (before.total, after.total) {
            prop_assert!(close(before.cost.mid.get() * k, after.cost.mid.get()));
        }
    }

    #[test]
    fn a_useless_offer_and_another_order_keep_the_plan(rows in offers(), parts in 1..=2u32, deadline in 5.0..200.0f64) {
        let (predictions, offers) = market(&rows);
        let before = plan(&predictions, &PriceBook::new(offers.clone()), &job(parts, deadline)).unwrap();
        // The first GPU again, elsewhere, more expensive: not slower and not cheaper.
        let mut useless = crate::build::offer_in("zz", "gpu-0", offers[0].price.get() * 1.5, offers[0].tier);
        useless.provider = "other".into();
        let more = offers.iter().rev().cloned().chain([useless]);
        let after = plan(&predictions, &PriceBook::new(more), &job(parts, deadline)).unwrap();
        prop_assert_eq!(names(&before), names(&after));
        prop_assert_eq!(before.status, after.status);
    }

    #[test]
    fn more_confidence_never_cheapens(rows in offers(), parts in 1..=2u32, deadline in 5.0..200.0f64) {
        let (predictions, offers) = market(&rows);
        let prices = PriceBook::new(offers);
        let at = |confidence: f64| {
            let mut goal = job(parts, deadline);
            goal.assumptions.spot_confidence = confidence;
            plan(&predictions, &prices, &goal).unwrap().total.map(|total| total.cost.mid.get())
        };
        let costs = [0.5, 0.9, 0.99, 0.9999].map(at);
        for pair in costs.windows(2) {
            match (pair[0], pair[1]) {
                (Some(before), Some(after)) => prop_assert!(after >= before * (1.0 - 1e-6), "{costs:?}"),
                (None, Some(_)) => prop_assert!(false, "{costs:?}"),
                _ => {}
            }
        }
    }

    #[test]
    fn ranges_are_in_order_and_the_mid_is_within_the_expected_deadline(rows in offers(), parts in 1..=2u32, deadline in 5.0..200.0f64) {
        let (predictions, offers) = market(&rows);
        let goal = Goal { confidence: Confidence::Expected, ..job(parts, deadline) };
        let plan = plan(&predictions, &PriceBook::new(offers), &goal).unwrap();
        let Some(total) = plan.total else { return Ok(()) };
        prop_assert!(total.hours.mid.get() <= deadline * (1.0 + 1e-6));
        for part in &plan.parts {
            in_order(part);
        }
        // The alternatives too, however little work there is.
        for part in &plan.alternatives {
            in_order(part);
        }
    }

    #[test]
    fn frontier_points_are_plans_of_their_own_deadline(rows in offers(), parts in 1..=2u32) {
        let (predictions, offers) = market(&rows);
        let goal = Goal { confidence: Confidence::Expected, deadline: None, ..job(parts, 1.0) };
        let prepared = Prepared::new(&predictions, &PriceBook::new(offers), &goal).unwrap();
        let points = prepared.frontier();
        prop_assert!(!points.is_empty());
        // Slightly later costs no more, slightly earlier no less (a frontier can be steep).
        let hair = hours(1e-9);
        for point in &points {
            let at = |deadline| prepared.solve(Some(deadline), None).unwrap().total.map(|total| total.cost.mid.get());
            let cost = point.cost.mid.get();
            let later = at(point.hours.mid + hair).expect("the point itself is a plan");
            prop_assert!(later <= cost * (1.0 + 1e-6), "{later} {point:?}");
            if let Some(earlier) = at(point.hours.mid.checked_sub(hair).unwrap_or_default()) {
                prop_assert!(earlier >= cost * (1.0 - 1e-6), "{earlier} {point:?}");
            }
        }
        let cheapest = prepared.solve(None, Some(usd(1e9))).unwrap().total.unwrap();
        prop_assert!(close(cheapest.cost.mid.get(), points.last().unwrap().cost.mid.get()));
    }
}

/// Spot with a switch to on demand, billed exactly or by the hour: no pair of offers has a better plan than all of them
/// together.
mod pairs {
    use habitat_tui::plan::PlanStatus;
    use habitat_tui::pricing::{Billing, Terms};

    use super::*;

    fn book(offers: impl IntoIterator<Item = Offer>) -> PriceBook {
        PriceBook::new(offers).with_terms("hourly", Terms { billing: Billing::Hour, ..Terms::default() })
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn two_parts_are_the_best_pair_of_offers(
            rows in offers(),
            hourly in prop::collection::vec(any::<bool>(), 6),
            deadline in 5.0..200.0f64,
        ) {
            let (predictions, mut offers) = market(&rows);
            for (offer, _) in offers.iter_mut().zip(hourly).filter(|(_, hourly)| *hourly) {
                offer.provider = "hourly".into();
            }
            let by = |offers: Vec<Offer>| plan(&predictions, &book(offers), &job(2, deadline)).unwrap();
            let all = by(offers.clone());
            let pairs = (0..offers.len()).flat_map(|a| (a + 1..offers.len()).map(move |b| [a, b]));
            let costs = pairs.filter_map(|pair| by(pair.map(|i| offers[i].clone()).to_vec()).total);
            let least = costs.map(|total| total.cost.mid.get()).min_by(f64::total_cmp);
            prop_assert_eq!(all.total.is_some(), least.is_some());
            if let (Some(total), Some(least)) = (all.total, least) {
                prop_assert_eq!(all.status, PlanStatus::Optimal);
                prop_assert!(close(total.cost.mid.get(), least), "{least} {all:?}");
            }
        }
    }
}

/// Both solvers give the same optimum.
#[cfg(feature = "highs")]
mod highs {
    use habitat_tui::plan::solve::{solve_with_highs, solve_with_microlp};

    use super::*;

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn both_solvers_agree(problem in problem(), factors in limits()) {
            let program = problem.program(Aim::Cost, &limit(&problem, factors));
            match (solve_with_microlp(&program, Settings::default()), solve_with_highs(&program, Settings::default())) {
                (Ok(a), Ok(b)) => prop_assert!(close(a.objective, b.objective), "{a:?} {b:?}"),
                (a, b) => prop_assert_eq!(a.is_ok(), b.is_ok()),
            }
        }
    }
}

/// The solver's plan for one part equals the sort's, on random problems.
mod one_part {
    use super::*;

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn the_solver_gives_what_filter_and_sort_gives(problem in problem(), factors in limits()) {
            let problem = Problem { max_parts: 1, ..problem };
            let limit = limit(&problem, factors);
            for (objective, aim) in [(Objective::Cost, Aim::Cost), (Objective::Time, Aim::Finish)] {
                let sorted = best(&problem, objective, &limit).map(|found| found.hours);
                let solved = solve_one(&problem, aim, &limit).map(|found| found.hours);
                match (sorted, solved) {
                    (Some(a), Ok(b)) => prop_assert!(close(problem.value(aim, &a), problem.value(aim, &b)), "{a:?} {b:?}"),
                    (a, b) => prop_assert_eq!(a.is_some(), b.is_ok()),
                }
            }
        }
    }
}

/// Low, mid and high of a part, in that order.
fn in_order(part: &habitat_tui::plan::Part) {
    let (hours, cost) = (&part.hours, &part.cost);
    assert!(hours.low.get() <= hours.mid.get() && hours.mid.get() <= hours.high.get(), "{part:?}");
    assert!(cost.low.get() <= cost.mid.get() && cost.mid.get() <= cost.high.get(), "{part:?}");
}
