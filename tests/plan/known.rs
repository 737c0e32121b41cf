//! Problems whose answers are known: section C of the planner note.

use habitat_tui::plan::check::{check, check_sources};
use habitat_tui::plan::problem::{Choice, Limit, Problem};
use habitat_tui::plan::search::{Solution, best, solve_in_sequence};
use habitat_tui::plan::{Data, Goal, Objective, Plan, PlanStatus, Prepared, Work, plan};
use habitat_tui::pricing::{Billing, Offer, PriceBook, Snapshot, Terms, Tier};
use habitat_tui::profile::Mode;

use crate::build::{assert_cents, configurations, goal, hours, measured, offer, predictions, told, usd};

const THREE: [(f64, f64); 3] = [(1.0, 1.0), (2.0, 3.0), (4.0, 8.0)];
const DEADLINES: [f64; 5] = [12.0, 9.0, 6.0, 4.5, 3.0];

fn by(goal: &Goal, deadline: f64) -> Plan {
    let (predictions, prices) = configurations(&THREE);
    plan(&predictions, &prices, &Goal { deadline: Some(hours(deadline)), ..goal.clone() }).unwrap()
}

/// C.1, parts mixed.
#[test]
fn two_parts_meet_each_deadline_at_the_known_cost() {
    for (deadline, cost) in DEADLINES.into_iter().zip([12.0, 15.0, 18.0, 21.0, 24.0]) {
        let plan = by(&goal(12.0, 2), deadline);
        assert_eq!(plan.status, PlanStatus::Optimal, "{deadline} h");
        assert_cents(plan.total.unwrap().cost.mid, cost);
        assert!(plan.total.unwrap().hours.high.get() <= deadline + 1e-6);
    }
}

/// C.1, one part only; the solver and the sort agree.
#[test]
fn one_part_meets_each_deadline_at_the_known_cost() {
    let (predictions, prices) = configurations(&THREE);
    for (deadline, cost) in DEADLINES.into_iter().zip([12.0, 18.0, 18.0, 24.0, 24.0]) {
        let plan = by(&goal(12.0, 1), deadline);
        assert_cents(plan.total.unwrap().cost.mid, cost);
        assert_eq!(plan.solver.name, "filter and sort");

        let prepared = Prepared::new(&predictions, &prices, &goal(12.0, 1)).unwrap();
        let problem = Problem { work: 12.0, choices: prepared.choices().to_vec(), max_parts: 1, most_kg: None };
        let limit = Limit { deadline: Some(deadline), ..Limit::default() };
        let sorted = best(&problem, Objective::Cost, &limit).unwrap();
        let solved = solve_in_sequence(&problem, Objective::Cost, &limit).unwrap();
        assert_eq!(solved.hours.len(), 1);
        assert_eq!((sorted.hours[0].0, solved.solver), (solved.hours[0].0, "microlp"), "{deadline} h");
    }
}

/// C.1, a quarter of an hour of set-up a part.
#[test]
fn set_up_is_billed_for_each_part() {
    let mut with_setup = goal(12.0, 2);
    with_setup.assumptions.setup = hours(0.25);
    for (deadline, cost) in DEADLINES.into_iter().zip([13.50, 16.50, 21.75, 24.75]) {
        assert_cents(by(&with_setup, deadline).total.unwrap().cost.mid, cost);
    }
    let none = by(&with_setup, 3.0);
    assert_eq!((none.status, none.total), (PlanStatus::Infeasible, None));
}

/// C.1: an hour is worth $2 below 6 h, $1 up to 12 h and nothing above.
#[test]
fn an_hour_of_deadline_has_the_known_worth() {
    let (predictions, prices) = configurations(&THREE);
    let prepared = Prepared::new(&predictions, &prices, &goal(12.0, 2)).unwrap();
    for (deadline, saved) in [(3.5, 2.0), (5.0, 2.0), (6.5, 1.0), (10.0, 1.0), (12.0, 0.0), (20.0, 0.0)] {
        let plan = prepared.solve(Some(hours(deadline)), None).unwrap();
        assert_cents(prepared.marginal_hour(&plan).unwrap(), saved);
        assert_eq!(
            told(&plan.notes).iter().any(|note| note.contains("one more hour saves")),
            saved > 0.0,
            "{deadline}"
        );
    }
}

fn limited(max_parts: u32, deadline: f64, budget: f64) -> Plan {
    let (predictions, prices) = configurations(&THREE);
    let goal = Goal { deadline: Some(hours(deadline)), budget: Some(usd(budget)), ..goal(12.0, max_parts) };
    plan(&predictions, &prices, &goal).unwrap()
}

#[track_caller]
fn assert_says(plan: &Plan, texts: &[&str]) {
    assert_eq!(plan.status, PlanStatus::Infeasible);
    for text in texts {
        assert!(told(&plan.reasons).iter().any(|reason| reason.contains(text)), "{text:?} in {:#?}", plan.reasons);
    }
}

/// C.2: too short a deadline.
#[test]
fn a_deadline_that_no_money_meets_is_explained() {
    for max_parts in [1, 2] {
        let plan = limited(max_parts, 2.0, 100.0);
        let texts = [
            "allow 1 h more (1 × gpu-2 at cloud us-1, on-demand, $24.00)",
            "more money alone does not help: the fastest plan needs up to 3 h",
            "train on 4 fewer samples (33.3 % less)",
        ];
        assert_says(&plan, &texts);
    }
}

/// C.2: too small a budget.
#[test]
fn a_budget_that_no_time_meets_is_explained() {
    let plan = limited(2, 6.0, 10.0);
    assert_says(&plan, &["spend $8.00 more", "more time alone does not help: the cheapest plan costs $12.00"]);
    assert_says(&plan, &["train on 4 fewer samples (33.3 % less)"]);
    assert_says(&limited(1, 6.0, 10.0), &["spend $8.00 more (1 × gpu-1 at cloud us-1, on-demand, 6 h)"]);
}

#[test]
fn a_deadline_and_a_budget_that_only_help_together_are_both_named() {
    for max_parts in [1, 2] {
        let plan = limited(max_parts, 2.0, 10.0);
        assert_says(&plan, &["more time alone does not help", "more money alone does not help", " more and spend "]);
    }
    // With one part: 2 h + 10 units of a tenth and $10 + 8 at rate 2 (6 h, $18), 20 + 8 tenths;
    // rate 4 (3 h, $24): 5 + 14 tenths is the least.
    assert_says(&limited(1, 2.0, 10.0), &["allow 1 h more and spend $14.00 more (1 × gpu-2"]);
}

#[test]
fn nothing_at_all_is_explained_too() {
    for max_parts in [1, 2] {
        assert_says(&limited(max_parts, 0.0, 100.0), &["allow 3 h more", "more money alone does not help"]);
        assert_says(&limited(max_parts, 100.0, 0.0), &["spend $12.00 more", "more time alone does not help"]);
        assert_says(&limited(max_parts, 0.0, 0.0), &[" more and spend ", "set-up alone exceeds the limits"]);
    }
}

#[test]
fn training_on_almost_none_of_the_work_is_not_proposed() {
    let says_less = |deadline| told(&limited(1, deadline, 100.0).reasons).iter().any(|reason| reason.contains("fewer"));
    assert!(says_less(1.0) && !says_less(0.1));
}

/// What a text proposes does suffice: the very deadline and budget named give a plan.
#[test]
fn what_is_proposed_suffices() {
    for max_parts in [1, 2] {
        assert_eq!(limited(max_parts, 3.0, 100.0).status, PlanStatus::Optimal);
        assert_eq!(limited(max_parts, 6.0, 18.0).status, PlanStatus::Optimal);
        assert_eq!(limited(1, 3.0, 24.0).status, PlanStatus::Optimal);
    }
}

/// C.3: SkyPilot's ResNet-50 estimator (`examples/time_estimators.py`), with egress and its
/// time for the TPU. Hours of the whole work are given, so one unit of work an item.
#[test]
fn resnet50_at_skypilots_times_and_prices() {
    let table = [
        ("T4×1", 33.70, 0.526),
        ("T4×4", 13.12, 3.912),
        ("T4×8", 8.90, 7.824),
        ("V100×1", 18.25, 3.06),
        ("V100×4", 9.25, 12.24),
        ("V100×8", 6.97, 24.48),
        ("TPU v3-8", 5.216, 8.00),
    ];
    let problem = |egress: bool| {
        let choices = table.iter().map(|(name, hours, price)| {
            let tpu = egress && *name == "TPU v3-8";
            Choice {
                rate: 1.0 / hours,
                hours: 1.0,
                hours_once: if tpu { 480.0 / 3600.0 } else { 0.0 },
                hours_shared: 0.0,
                usd: *price,
                usd_once: if tpu { 600.0 * 0.09 } else { 0.0 },
                kg: 0.0,
                kg_once: 0.0,
                most_hours: f64::INFINITY,
                blocks: None,
            }
        });
        Problem { work: 1.0, choices: choices.collect(), max_parts: 1, most_kg: None }
    };
    let answer = |egress: bool, deadline: Option<f64>| {
        let problem = problem(egress);
        let found = best(&problem, Objective::Cost, &Limit { deadline, ..Limit::default() }).unwrap();
        let (finish, cost) = problem.choices[found.hours[0].0].whole(1.0).unwrap();
        (table[found.hours[0].0].0, cost, (finish * 100.0).round() / 100.0)
    };
    // The hours above are rounded to 0.01 h (0.001 h for the TPU), the costs of the note
    // come from unrounded ones.
    let is = |deadline, expected: (&str, f64), price: f64| {
        let (name, cost, _) = answer(true, deadline);
        assert!(name == expected.0 && (cost - expected.1).abs() <= price * 0.005 + 0.005, "{name} {cost}");
    };
    is(None, ("T4×1", 17.73), 0.526);
    is(Some(20.0), ("T4×4", 51.31), 3.912);
    is(Some(9.0), ("T4×8", 69.66), 7.824);
    is(Some(8.0), ("TPU v3-8", 95.72), 0.8);
    assert_eq!(answer(true, Some(8.0)).2, 5.35);
    for deadline in [5.22, 8.0, 20.0, 33.69] {
        let (name, cost, _) = answer(false, Some(deadline));
        assert!(name == "TPU v3-8" && (cost - 41.72).abs() < 0.015, "{name} {cost}");
    }
    assert_eq!(answer(false, Some(33.70)).0, "T4×1");
    assert!(best(&problem(false), Objective::Cost, &Limit { deadline: Some(5.2), ..Limit::default() }).is_none());
}

/// C.5: 720 h reserved at 1.5 $/h, paid whether used or not, against 4 $/h: worth it from
/// 270 h on. The contract is a choice with a cost once and a cap on its hours.
#[test]
fn a_contract_breaks_even_where_it_should() {
    let cloud = Choice {
        rate: 1.0,
        hours: 1.0,
        hours_once: 0.0,
        hours_shared: 0.0,
        usd: 4.0,
        usd_once: 0.0,
        kg: 0.0,
        kg_once: 0.0,
        most_hours: f64::INFINITY,
        blocks: None,
    };
    let contract = Choice { usd: 0.0, usd_once: 720.0 * 1.5, most_hours: 720.0, ..cloud };
    let cheapest = |work: f64, max_parts: u32| -> Solution {
        let problem = Problem { work, choices: vec![cloud, contract], max_parts, most_kg: None };
        best(&problem, Objective::Cost, &Limit::default()).unwrap()
    };
    for max_parts in [1, 2] {
        assert_eq!(cheapest(269.0, max_parts).hours, [(0, 269.0)]);
        assert_eq!(cheapest(271.0, max_parts).hours, [(1, 271.0)]);
        assert_eq!(cheapest(720.0, max_parts).hours, [(1, 720.0)]);
    }
    // Above the contract's hours the rest is bought: 720 h + 80 h × $4.
    let mixed = cheapest(800.0, 2);
    assert!((mixed.hours[0].1 - 80.0).abs() < 1e-6 && (mixed.hours[1].1 - 720.0).abs() < 1e-6, "{mixed:?}");
}

/// The same through a price file: whole terms are paid, one after another, beside what is rented.
#[test]
fn a_contract_of_a_price_file_breaks_even_where_it_should() {
    let file = r#"
schema = 1
provider = "cloud"
[[offer]]
region = "us-1"
instance_type = "contract"
gpu = "a"
gpu_count = 1
tier = "reserved"
usd_per_hour = 1.5
term_hours = 720
scope = "instance_total"
source = "list"
"#;
    let bought: Vec<Offer> = Snapshot::parse(file).unwrap().offers().collect();
    let predictions = predictions([measured("a", 1.0)]);
    let rented = Offer { instance_type: "rented".into(), ..offer("a", 4.0, Tier::OnDemand) };
    let prices = PriceBook::new(bought.into_iter().chain([rented]));
    let by = |work, max_parts| plan(&predictions, &prices, &goal(work, max_parts)).unwrap();
    let offers = |plan: &Plan| -> Vec<Tier> { plan.parts.iter().map(|part| part.offer.tier).collect() };
    for max_parts in [1, 2] {
        let (short, long) = (by(269.0, max_parts), by(271.0, max_parts));
        assert_eq!((offers(&short), offers(&long)), (vec![Tier::OnDemand], vec![Tier::Reserved]));
        assert_cents(short.total.unwrap().cost.mid, 1076.0);
        assert_cents(long.total.unwrap().cost.mid, 1080.0);
        let even = "a term of cloud/us-1/contract/reserved-720h pays off above 270 h of use, compared with 1 × a at cloud us-1, on-demand";
        for plan in [&short, &long] {
            assert!(told(&plan.notes).iter().any(|note| note == even), "{:?}", plan.notes);
        }
        assert_cents(by(720.0, max_parts).total.unwrap().cost.mid, 1080.0);
        // Two terms, one after the other.
        assert_cents(by(1400.0, max_parts).total.unwrap().cost.mid, 2160.0);
    }
    // Storage is paid for the hours of both, and of a long use the terms are many.
    let stored = prices.clone().with_terms("cloud", Terms { storage_usd_per_gb_month: Some(0.1), ..Terms::default() });
    let data = Some(Data { gb: 7300.0, provider: None, region: None });
    let mut asked = Goal { data, ..goal(1400.0, 1) };
    asked.assumptions.data_gbit_per_second = Some(1e6);
    let kept = plan(&predictions, &stored, &asked).unwrap();
    assert_cents(kept.total.unwrap().cost.mid, 2160.0 + 1400.0);
    assert!(told(&kept.notes).iter().any(|note| note.contains("pays off above 270 h of use")), "{:?}", kept.notes);
    let many = "1,440 h paid (2 terms of 720 h), 1400.0 h used, 3 % idle";
    assert!(told(&kept.parts[0].notes).iter().any(|note| note == many), "{:?}", kept.parts[0].notes);
    // Beyond the term the rest is rented: 720 h and 80 h × $4, in place of a second term.
    let mixed = by(800.0, 2);
    assert_cents(mixed.total.unwrap().cost.mid, 1400.0);
    assert_eq!(offers(&mixed), [Tier::Reserved, Tier::OnDemand]);
    assert_cents(by(800.0, 1).total.unwrap().cost.mid, 2160.0);

    let part = &by(271.0, 1).parts[0];
    let idle = "720 h paid (1 term of 720 h), 271.0 h used, 62 % idle";
    assert!(told(&part.notes).iter().any(|note| note == idle), "{:?}", part.notes);
    assert_eq!(part.contract().map(|of| (of.term_hours, of.terms, of.idle_hours.round())), Some((720, 1.0, 449.0)));

    // The check counts the terms itself, and knows whose they are.
    let mut wrong = by(271.0, 1);
    wrong.parts[0].billing = Billing::Exact;
    assert!(check(&wrong).is_err());
    let mut other = by(720.0, 1);
    other.parts[0].billing = Billing::Term(360);
    assert_eq!(check(&other), Ok(()), "two terms of 360 h cost as much");
    assert!(check_sources(&other, &predictions, &prices).is_err());
}

/// The other two objectives on C.1's offers.
#[test]
fn the_fastest_plan_and_the_worth_of_an_hour() {
    for max_parts in [1, 2] {
        let plan = |objective, budget| {
            let (predictions, prices) = configurations(&THREE);
            let goal = Goal { objective, budget: Some(usd(budget)), ..goal(12.0, max_parts) };
            habitat_tui::plan::plan(&predictions, &prices, &goal).unwrap()
        };
        let worth = |value| Objective::CostPlusTime(habitat_tui::units::UsdPerHour::new(value).unwrap());
        assert_eq!(plan(Objective::Time, 24.0).total.unwrap().hours.mid, hours(3.0));
        // $21 buys half of the work at each of the two faster rates, in 4.5 h, or 6 h in one part.
        let finish = plan(Objective::Time, 21.0).total.unwrap().hours.mid.get();
        assert!((finish - if max_parts == 1 { 6.0 } else { 4.5 }).abs() < 1e-6, "{finish}");
        // An hour is worth $1.50: between what the two steps of the frontier cost.
        assert_cents(plan(worth(1.5), 100.0).total.unwrap().cost.mid, 18.0);
        assert_cents(plan(worth(0.5), 100.0).total.unwrap().cost.mid, 12.0);
        assert_cents(plan(worth(2.5), 100.0).total.unwrap().cost.mid, 24.0);
    }
}

/// The frontier of C.1 is the line through its three offers.
#[test]
fn the_frontier_is_known() {
    let (predictions, prices) = configurations(&THREE);
    let frontier = |max_parts| Prepared::new(&predictions, &prices, &goal(12.0, max_parts)).unwrap().frontier();
    let ends: Vec<_> = frontier(1).iter().map(|p| (p.hours.mid.get(), p.cost.mid.get())).collect();
    assert_eq!(ends, [(3.0, 24.0), (6.0, 18.0), (12.0, 12.0)]);

    // A point that is hardly later and cheaper takes the place of the dearer one.
    let near = configurations(&[(1.0, 1.0), (3.99, 5.0), (4.0, 8.0)]);
    let near: Vec<_> = Prepared::new(&near.0, &near.1, &goal(12.0, 1)).unwrap().frontier();
    assert_eq!(near.iter().map(|p| p.hours.mid.get().round()).collect::<Vec<_>>(), [3.0, 12.0]);
    assert!(near[0].cost.mid.get() < 16.0, "{near:?}");

    let mixed = frontier(2);
    assert!((10..=20).contains(&mixed.len()), "{}", mixed.len());
    for point in &mixed {
        let h = point.hours.mid.get();
        let expected = if h <= 6.0 { 24.0 - 2.0 * (h - 3.0) } else { 18.0 - (h - 6.0) };
        assert_cents(point.cost.mid, expected);
    }
    assert!(mixed.windows(2).all(|pair| pair[0].hours.high.get() < pair[1].hours.high.get()));
    assert!(mixed.windows(2).all(|pair| pair[0].cost.mid.get() > pair[1].cost.mid.get()));
}

/// C.5: an own machine of 0.35 kW at $0.20 a kWh, five times slower than what costs $1 an hour
/// and needs 100 h. It has no set-up.
#[test]
fn an_own_machine_does_what_the_deadline_leaves_to_it() {
    let file = r#"
schema = 1
provider = "lab"
[[offer]]
region = "office"
instance_type = "workstation"
gpu = "own"
gpu_count = 1
tier = "owned"
kw = 0.35
usd_per_kwh = 0.20
scope = "instance_total"
source = "meter"
"#;
    let own: Vec<Offer> = Snapshot::parse(file).unwrap().offers().collect();
    let predictions = predictions([measured("own", 2.0), measured("rented", 10.0)]);
    let prices = PriceBook::new(own.into_iter().chain([offer("rented", 1.0, Tier::OnDemand)]));
    let by = |deadline| {
        let goal = Goal { deadline: Some(hours(deadline)), ..goal(1000.0, 2) };
        plan(&predictions, &prices, &goal).unwrap()
    };
    let parts = |plan: &Plan| -> Vec<(Tier, f64)> {
        plan.parts.iter().map(|part| (part.offer.tier, (part.hours.mid.get() * 1e3).round() / 1e3)).collect()
    };
    let (late, middle, soon) = (by(500.0), by(300.0), by(100.0));
    assert_cents(late.total.unwrap().cost.mid, 35.0);
    assert_cents(middle.total.unwrap().cost.mid, 67.5);
    assert_cents(soon.total.unwrap().cost.mid, 100.0);
    assert_eq!(parts(&late), [(Tier::Owned, 500.0)]);
    assert_eq!(parts(&middle), [(Tier::Owned, 250.0), (Tier::OnDemand, 50.0)]);
    assert_eq!(parts(&soon), [(Tier::OnDemand, 100.0)]);
    assert!(
        told(&late.parts[0].notes).iter().any(|note| note == "0.35 kW × PUE 1 × $0.2/kWh"),
        "{:?}",
        late.parts[0].notes
    );

    // Set-up is billed of what is rented only.
    let mut with_setup = Goal { deadline: Some(hours(500.0)), ..goal(1000.0, 1) };
    with_setup.assumptions.setup = hours(1.0);
    let plan = plan(&predictions, &prices, &with_setup).unwrap();
    assert_cents(plan.total.unwrap().cost.mid, 35.0);
}

/// C.9: MPT 1B on 8 H100 at 363,645 tokens a second (mosaicml/llm-foundry, training benchmarks),
/// $2 a GPU and hour, for 10⁹ tokens.
#[test]
fn tokens_at_a_known_rate_cost_what_they_should() {
    let sequences_per_hour = 363_645.0 / 2048.0 * 3600.0;
    let mut predictions = predictions([measured("h100", sequences_per_hour / 8.0)]);
    predictions.workload.sequence_length = Some(2048);
    // The rate is that of all GPUs, their exchange included.
    predictions.workload.mode = Mode::Inference;
    let prices = PriceBook::new([Offer { gpu_count: 8, ..offer("h100", 16.0, Tier::OnDemand) }]);
    let plan = plan(&predictions, &prices, &Goal { work: Work::Tokens(1e9), ..goal(1.0, 1) }).unwrap();
    let total = plan.total.unwrap();
    assert!((total.hours.mid.get() - 0.764).abs() < 0.0005, "{total:?}");
    assert_cents(total.cost.mid, 12.22);
}
