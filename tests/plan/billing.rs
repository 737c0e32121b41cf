//! Providers that bill started hours, and outgoing data: known answers, and random problems against brute force.

use habitat_tui::plan::check::{CheckError, check, check_sources};
use habitat_tui::plan::problem::{Aim, Blocks, Choice, Limit, Problem};
use habitat_tui::plan::search::{best, most_work};
use habitat_tui::plan::{Data, Goal, Objective, Plan, PlanStatus, plan};
use habitat_tui::predict::Predictions;
use habitat_tui::pricing::{Billing, Offer, PriceBook, Terms, Tier};
use proptest::prelude::*;

use crate::build::{assert_cents, goal, hours, measured, offer, predictions, told, usd};

/// An hour of `blocks` costs $1, billed by started hours; one of `exact` costs $1.10. One sample per hour on both.
fn offers() -> (Predictions, PriceBook) {
    let blocks = Offer { provider: "hourly".into(), ..offer("blocks", 1.0, Tier::OnDemand) };
    let book = PriceBook::new([blocks, offer("exact", 1.1, Tier::OnDemand)])
        .with_terms("hourly", Terms { billing: Billing::Hour, ..Terms::default() });
    (predictions([measured("blocks", 1.0), measured("exact", 1.0)]), book)
}

#[test]
fn an_hour_begun_is_paid_and_the_rest_goes_elsewhere() {
    let (predictions, prices) = offers();
    let by = |max_parts, samples| plan(&predictions, &prices, &goal(samples, max_parts)).unwrap();
    // 3 started hours against 2.5 h at $1.10.
    let one = by(1, 2.5);
    assert_cents(one.total.unwrap().cost.mid, 2.75);
    assert_cents(one.alternatives[0].cost.mid, 3.0);
    assert!(told(&one.alternatives[0].notes).iter().any(|note| note == "each started hour is billed in full"));
    // 2 whole hours, then half of one.
    let two = by(2, 2.5);
    assert_eq!(two.status, PlanStatus::Optimal);
    assert_cents(two.total.unwrap().cost.mid, 2.55);
    let mut halves: Vec<f64> = two.parts.iter().map(|part| part.hours.mid.get()).collect();
    halves.sort_by(f64::total_cmp);
    assert!((halves[0] - 0.5).abs() < 1e-6 && (halves[1] - 2.0).abs() < 1e-6, "{halves:?}");
    // Whole hours cost the same either way.
    assert_cents(by(1, 3.0).total.unwrap().cost.mid, 3.0);

    // Set-up is part of the started hours.
    let mut with_setup = goal(2.95, 1);
    with_setup.assumptions.setup = hours(0.1);
    let plan = plan(&predictions, &prices, &with_setup).unwrap();
    assert_cents(plan.total.unwrap().cost.mid, 3.05 * 1.1);
    assert_cents(plan.alternatives[0].cost.mid, 4.0);
}

#[test]
fn a_budget_is_one_of_hours_begun() {
    let (predictions, prices) = offers();
    let by = |max_parts, budget| {
        let goal = Goal { budget: Some(usd(budget)), ..goal(2.5, max_parts) };
        plan(&predictions, &prices, &goal).unwrap()
    };
    assert_cents(by(2, 2.6).total.unwrap().cost.mid, 2.55);
    let none = by(2, 2.5);
    assert_eq!(none.status, PlanStatus::Infeasible);
    assert!(told(&none.reasons).iter().any(|reason| reason.contains("spend $0.05 more")), "{:?}", none.reasons);
    // $2.50 buy two whole hours of the one, or 2.27 of the other.
    let blocks = Choice { blocks: Some(Blocks { usd: 1.0, apart: 0.0, apart_once: 0.0 }), ..exact(1.0, 1.0) };
    let limit = Limit { budget: Some(2.5), ..Limit::default() };
    let most =
        |choice| most_work(&Problem { work: 9.0, choices: vec![choice], max_parts: 1, most_kg: None }, &limit).unwrap();
    assert!((most(blocks) - 2.0).abs() < 1e-9);
    assert!((most(exact(1.0, 1.1)) - 2.5 / 1.1).abs() < 1e-9);
}

#[test]
fn the_checker_counts_the_hours_begun_itself() {
    let (predictions, prices) = offers();
    let plan = plan(&predictions, &prices, &goal(2.5, 2)).unwrap();
    assert_eq!((check(&plan), check_sources(&plan, &predictions, &prices)), (Ok(()), Ok(())));
    let mut wrong = plan.clone();
    for part in &mut wrong.parts {
        part.billing = Billing::Hour;
    }
    assert!(matches!(check(&wrong), Err(CheckError::Number { .. })));
    let exact = PriceBook::new(prices.offers().to_vec());
    assert!(matches!(check_sources(&plan, &predictions, &exact), Err(CheckError::Offer { .. })));
}

/// Spot machines lose billed hours, too; the plan passes the check.
#[test]
fn spot_hours_are_billed_whole() {
    let spot = |gpu: &str, price| Offer { provider: "hourly".into(), ..offer(gpu, price, Tier::Spot) };
    let (predictions, book) = (predictions([measured("a", 1.0), measured("b", 3.0)]), [spot("a", 0.3), spot("b", 1.0)]);
    let hourly =
        PriceBook::new(book.clone()).with_terms("hourly", Terms { billing: Billing::Hour, ..Terms::default() });
    for samples in [1.0, 7.3, 40.0] {
        let goal = Goal { deadline: Some(hours(samples * 4.0 + 60.0)), ..goal(samples, 2) };
        let exact = plan(&predictions, &PriceBook::new(book.clone()), &goal).unwrap().total.unwrap().cost;
        let whole = plan(&predictions, &hourly, &goal).unwrap().total.unwrap().cost;
        assert!(whole.mid.get() >= exact.mid.get() && whole.mid.get() <= exact.mid.get() + 2.0, "{whole:?} {exact:?}");
        assert!(whole.low.get() <= whole.mid.get() && whole.mid.get() <= whole.high.get());
    }
}

/// A switch from spot to another machine by the deadline: the plan, the model and the check agree on the cost of both.
#[test]
fn a_change_by_the_deadline_is_billed_by_hours_and_data_too() {
    let spot = Offer { provider: "hourly".into(), ..offer("a", 0.3, Tier::Spot) };
    let firm = Offer { provider: "hourly".into(), ..offer("b", 2.0, Tier::OnDemand) };
    let terms = |billing| Terms { billing, egress_usd_per_gb: Some(0.01), ..Terms::default() };
    let book = |billing| {
        PriceBook::new([spot.clone(), firm.clone()])
            .with_terms("hourly", terms(billing))
            .with_terms("far", terms(billing))
    };
    let predictions = predictions([measured("a", 1.0), measured("b", 1.0)]);
    let data = Some(Data { gb: 50.0, provider: Some("far".into()), region: None });
    let by = |billing, data: Option<Data>| {
        let goal = Goal { deadline: Some(hours(60.0)), data, ..goal(40.5, 2) };
        let plan = plan(&predictions, &book(billing), &goal).unwrap();
        assert!(plan.switch.is_some(), "{plan:?}");
        plan.total.unwrap().cost.mid.get()
    };
    let (exact, whole) = (by(Billing::Exact, None), by(Billing::Hour, None));
    assert!(whole > exact && whole <= exact + 2.3 + 1e-9, "{exact} {whole}");
    assert!((by(Billing::Hour, data) - whole - 1.0).abs() < 1e-6);
}

/// 100 GB at $0.09 each leave `cloud`, whose hours cost $1; elsewhere they cost $0.50.
#[test]
fn data_elsewhere_cost_what_leaving_their_provider_does() {
    let predictions = predictions([measured("here", 1.0), measured("there", 1.0)]);
    let there = Offer { provider: "other".into(), ..offer("there", 0.5, Tier::OnDemand) };
    let book = PriceBook::new([offer("here", 1.0, Tier::OnDemand), there]);
    let priced = book.clone().with_terms("cloud", Terms { egress_usd_per_gb: Some(0.09), ..Terms::default() });
    let data =
        |region: Option<&str>| Data { gb: 100.0, provider: Some("Cloud".into()), region: region.map(str::to_owned) };
    let by = |prices: &PriceBook, samples, data| {
        let mut goal = Goal { data: Some(data), ..goal(samples, 1) };
        // Copied in no time.
        goal.assumptions.data_gbit_per_second = Some(1e6);
        plan(&predictions, prices, &goal).unwrap()
    };
    let few = by(&priced, 10.0, data(None));
    assert_eq!(few.parts[0].offer.provider, "cloud");
    assert_cents(few.total.unwrap().cost.mid, 10.0);
    assert_cents(few.alternatives[0].cost.mid, 14.0);
    assert!(told(&few.alternatives[0].notes).iter().any(|note| note == "data: transfer of 100 GB, $9.00 once"));
    // A price without a verified source is marked, and a file of the user's replaces it.
    let recalled = Terms { egress_usd_per_gb: Some(0.09), egress_is_recalled: true, ..Terms::default() };
    let recalled = book.clone().with_terms("cloud", recalled);
    let noted = "data: transfer of 100 GB, $9.00 once (unverified price, without a source)";
    assert!(told(&by(&recalled, 10.0, data(None)).alternatives[0].notes).iter().any(|note| note == noted));
    let own = recalled.with_terms("cloud", Terms { egress_usd_per_gb: Some(0.09), ..Terms::default() });
    assert!(!told(&by(&own, 10.0, data(None)).alternatives[0].notes).iter().any(|note| note.contains("recalled")));
    let many = by(&priced, 30.0, data(None));
    assert_eq!(many.parts[0].offer.provider, "other");
    assert_cents(many.total.unwrap().cost.mid, 24.0);
    assert_cents(many.parts[0].data_cost, 9.0);
    // Another region of the same provider counts as elsewhere, too.
    assert_cents(by(&priced, 10.0, data(Some("us"))).total.unwrap().cost.mid, 10.0);
    assert_cents(by(&priced, 10.0, data(Some("eu"))).total.unwrap().cost.mid, 14.0);
    // A file may set a lower price for traffic to another region of the provider.
    let inside = Terms { egress_other_region_usd_per_gb: Some(0.02), ..Terms::default() };
    let cheap = priced.clone().with_terms("cloud", inside);
    assert_cents(by(&cheap, 10.0, data(Some("eu"))).total.unwrap().cost.mid, 12.0);
    assert_cents(by(&cheap, 10.0, data(Some("eu"))).alternatives[0].cost.mid, 14.0);
    // Two parts are not cheaper: the other place needs all the data, even for little work.
    let mut goal = Goal { data: Some(data(None)), deadline: Some(hours(30.001)), ..goal(30.0, 2) };
    goal.assumptions.data_gbit_per_second = Some(1e6);
    assert_cents(plan(&predictions, &priced, &goal).unwrap().total.unwrap().cost.mid, 24.0);
    // An unknown price is not counted, and reported.
    let unknown = by(&book, 10.0, data(None));
    assert_cents(unknown.total.unwrap().cost.mid, 5.0);
    assert!(told(&unknown.parts[0].notes).iter().any(|note| note.contains("unknown, not included")));

    let mut wrong = many.clone();
    wrong.parts[0].data_cost = usd(1.0);
    assert!(matches!(check(&wrong), Err(CheckError::Number { .. })));
    assert!(matches!(check_sources(&many, &predictions, &book), Err(CheckError::Number { .. })));
}

/// Data are not billed by started hours.
#[test]
fn data_are_no_hours() {
    let predictions = predictions([measured("blocks", 1.0)]);
    let terms = Terms { egress_usd_per_gb: Some(0.013), ..Terms::default() };
    let offer = Offer { provider: "hourly".into(), ..offer("blocks", 1.0, Tier::OnDemand) };
    let book = PriceBook::new([offer])
        .with_terms("hourly", Terms { billing: Billing::Hour, ..Terms::default() })
        .with_terms("far", terms);
    for max_parts in [1, 2] {
        let data = Data { gb: 100.0, provider: Some("far".into()), region: None };
        let plan = plan(&predictions, &book, &Goal { data: Some(data), ..goal(2.5, max_parts) }).unwrap();
        assert_cents(plan.total.unwrap().cost.mid, 4.3);
    }
}

fn exact(rate: f64, usd: f64) -> Choice {
    Choice {
        rate,
        hours: 1.0,
        hours_once: 0.0,
        hours_shared: 0.0,
        usd,
        usd_once: 0.0,
        kg: 0.0,
        kg_once: 0.0,
        most_hours: f64::INFINITY,
        blocks: None,
    }
}

fn choice() -> impl Strategy<Value = Choice> {
    // By the second, by the hour, or in terms of a contract.
    let block = prop_oneof![
        Just(None),
        Just(Some(1.0)),
        prop::sample::select(vec![3.0, 24.0, 720.0, 8760.0, 87_600.0]).prop_map(Some)
    ];
    // Storage costs something for each hour on the clock, or nothing.
    let kept = prop_oneof![Just(0.0), 0.0..5.0f64];
    (0.5..20.0f64, 0.1..30.0f64, 0.0..1.0f64, 0.0..5.0f64, block, kept).prop_map(
        |(rate, usd, hours_once, once, block, kept): (f64, f64, f64, f64, Option<f64>, f64)| {
            // A term pays off for some amounts of work and not for others.
            let usd = block.map_or(usd, |hours| usd / hours.sqrt());
            let apart_once = once + kept * hours_once;
            Choice {
                hours_once,
                usd_once: usd * hours_once + apart_once,
                kg: 0.0,
                kg_once: 0.0,
                blocks: block.map(|hours| Blocks { usd: usd * hours, apart: kept, apart_once }),
                ..exact(rate, usd + kept)
            }
        },
    )
}

const WORK: f64 = 100.0;

/// Cost of this many hours, computed independently.
fn bill(choice: &Choice, useful: f64) -> f64 {
    let exact = choice.usd * useful + choice.usd_once;
    choice.blocks.map_or(exact, |blocks| {
        let apart = blocks.apart * useful + blocks.apart_once;
        let used = (exact - apart) / blocks.usd;
        let first = if used > 1e-12 { 1.0 } else { 0.0 };
        (used - 2e-6).ceil().max(first) * blocks.usd + apart
    })
}

/// The least cost of one or two choices: between the shares at which an hour or a term begins, the cost is linear in
/// the share of the first.
fn brute_force(choices: &[Choice], deadline: f64) -> f64 {
    let mut lowest = f64::INFINITY;
    for (i, a) in choices.iter().enumerate() {
        for (_, b) in choices.iter().enumerate().filter(|(j, _)| *j != i) {
            let begins = |choice: &Choice| -> Vec<f64> {
                let hours = WORK / choice.rate;
                let block = choice.blocks.map_or(1.0, |blocks| blocks.usd / (choice.usd - blocks.apart));
                let first = (choice.hours_once / block).ceil() as u32;
                (first..=((hours + choice.hours_once) / block + 1e-9) as u32)
                    .map(|count| (f64::from(count) * block - choice.hours_once) / hours)
                    .collect()
            };
            let finish = |share: f64| {
                let part = |c: &Choice, share: f64| {
                    if share > 0.0 { share * WORK / c.rate + c.hours_once } else { 0.0 }
                };
                part(a, share) + part(b, 1.0 - share)
            };
            // Finish is linear between the ends, where both are used.
            let (at0, at1) = (WORK / b.rate + a.hours_once + b.hours_once, WORK / a.rate + a.hours_once + b.hours_once);
            let edge = (deadline - at0) / (at1 - at0);
            let shares =
                begins(a).into_iter().chain(begins(b).into_iter().map(|share| 1.0 - share)).chain([0.0, 1.0, edge]);
            for share in shares.filter(|share| (0.0..=1.0).contains(share) && finish(*share) <= deadline * (1.0 + 1e-9))
            {
                let part = |c: &Choice, share: f64| if share > 0.0 { bill(c, share * WORK / c.rate) } else { 0.0 };
                lowest = lowest.min(part(a, share) + part(b, 1.0 - share));
            }
        }
    }
    lowest
}

/// 730 GB stored for a month of 730 h at $0.10 per GB cost $0.10 per hour on the clock, including set-up, wherever the
/// work runs; data that are already there stay stored whatever the plan is.
#[test]
fn keeping_data_costs_hours_on_the_clock() {
    let predictions = predictions([measured("here", 1.0), measured("there", 1.0)]);
    let there = Offer { provider: "other".into(), ..offer("there", 0.95, Tier::OnDemand) };
    let book = PriceBook::new([offer("here", 1.0, Tier::OnDemand), there]);
    let storage = |price| Terms { storage_usd_per_gb_month: Some(price), ..Terms::default() };
    let priced = book.clone().with_terms("other", storage(0.1));
    let data = |provider: Option<&str>| Data { gb: 730.0, provider: provider.map(str::to_owned), region: None };
    let by = |prices: &PriceBook, data| {
        let mut goal = Goal { data: Some(data), ..goal(10.0, 1) };
        goal.assumptions.setup = hours(0.5);
        // Copied in no time.
        goal.assumptions.data_gbit_per_second = Some(1e6);
        plan(&predictions, prices, &goal).unwrap()
    };
    // $0.95 and $0.10 per hour against $1.
    let anywhere = by(&priced, data(None));
    assert_eq!(anywhere.parts[0].offer.provider, "cloud");
    assert_cents(anywhere.total.unwrap().cost.mid, 10.5);
    let unknown = "storage: cost of 730 GB unknown, not included (set storage_usd_per_gb_month)";
    assert!(told(&anywhere.parts[0].notes).iter().any(|note| note == unknown), "{:?}", anywhere.parts[0].notes);
    let other = &anywhere.alternatives[0];
    assert_cents(other.cost.mid, 10.5 * 1.05);
    assert!((other.storage.get() - 0.1).abs() < 1e-12);
    assert!(told(&other.notes).iter().any(|note| note == "storage: 730 GB for 10.5 h, $1.05"), "{:?}", other.notes);
    // Data that are already there add nothing.
    let at_home = by(&priced, data(Some("other")));
    assert_eq!((at_home.parts[0].offer.provider.as_str(), at_home.parts[0].storage.get()), ("other", 0.0));
    assert_cents(at_home.total.unwrap().cost.mid, 10.5 * 0.95);
    // No provider states a price: one note of the plan, none of its parts.
    let nobody = by(&book, data(None));
    assert!(
        told(&nobody.notes).iter().any(|note| note.contains("no provider has a storage price")),
        "{:?}",
        nobody.notes
    );
    assert!(!told(&nobody.parts[0].notes).iter().any(|note| note.contains("storage")));
    assert!(!told(&by(&book, data(Some("cloud"))).notes).iter().any(|note| note.contains("storing")));

    let mut wrong = by(&priced.clone().with_terms("cloud", storage(0.01)), data(None));
    assert_eq!((check(&wrong), check_sources(&wrong, &predictions, &priced).is_err()), (Ok(()), true));
    wrong.parts[0].storage = wrong.parts[0].storage * 2.0;
    assert!(matches!(check(&wrong), Err(CheckError::Number { .. })));
    for gb in [-1.0, f64::NAN, f64::INFINITY] {
        let goal = Goal { data: Some(Data { gb, provider: None, region: None }), ..goal(10.0, 1) };
        assert_eq!(
            plan(&predictions, &priced, &goal).unwrap_err().to_string().split(':').next(),
            Some(&*format!("data of {gb} GB"))
        );
    }
}

/// Waits for spot machines are free, but storage goes on; started hours and terms are paid in addition.
#[test]
fn data_are_kept_while_spot_is_waited_for_and_beside_whole_hours() {
    let predictions = predictions([measured("a", 1.0), measured("b", 1.5)]);
    let spot = Offer { provider: "hourly".into(), ..offer("a", 0.3, Tier::Spot) };
    let firm = Offer { provider: "hourly".into(), ..offer("b", 2.0, Tier::OnDemand) };
    for billing in [Billing::Exact, Billing::Hour] {
        let terms = |storage| Terms { billing, storage_usd_per_gb_month: storage, ..Terms::default() };
        let book = |storage| PriceBook::new([spot.clone(), firm.clone()]).with_terms("hourly", terms(storage));
        let data = Some(Data { gb: 73.0, provider: None, region: None });
        for max_parts in [1, 2] {
            for deadline in [None, Some(hours(60.0))] {
                let goal = Goal { data: data.clone(), deadline, ..goal(40.5, max_parts) };
                let by = |storage| plan(&predictions, &book(storage), &goal).unwrap();
                let (free, paid) = (by(None), by(Some(0.1)));
                let more = paid.total.unwrap().cost.mid.get() - free.total.unwrap().cost.mid.get();
                // At least the cost of its own hours, at most that of the other's.
                let kept = |plan: &Plan| plan.parts.iter().map(|part| part.hours.mid.get()).sum::<f64>() * 0.01;
                assert!(more >= kept(&paid) - 1e-6 && more <= kept(&free) + 1e-6, "{more}: {paid:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(crate::properties::config())]

    /// An amount of money buys at most that much, and a little more time is enough.
    #[test]
    fn a_budget_buys_as_many_hours_as_it_can(choice in choice(), dollars in 0.0..2000.0f64) {
        let limit = Limit { budget: Some(dollars), ..Limit::default() };
        let problem = Problem { work: 1e9, choices: vec![choice], max_parts: 1, most_kg: None };
        let useful = most_work(&problem, &limit).unwrap() / choice.rate;
        if useful > 0.0 {
            prop_assert!(bill(&choice, useful) <= dollars * (1.0 + 1e-6) + 1e-6, "{} h cost {}", useful, bill(&choice, useful));
        }
        let more = useful + 1e-3 * (1.0 + useful);
        prop_assert!(bill(&choice, more) > dollars, "{} h cost {}", more, bill(&choice, more));
    }

    #[test]
    fn brute_force_finds_nothing_better(choices in prop::collection::vec(choice(), 2..=4), factor in 1.0..3.0f64) {
        let fastest = choices.iter().map(|c| c.whole(WORK).unwrap().0).fold(f64::INFINITY, f64::min);
        let limit = Limit { deadline: Some(fastest * factor), ..Limit::default() };
        let problem = Problem { work: WORK, choices, max_parts: 2, most_kg: None };
        let brute = brute_force(&problem.choices, fastest * factor);
        let cost = |problem: &Problem| {
            best(problem, Objective::Cost, &limit).map(|found| problem.value(Aim::Cost, &found.hours))
        };
        let found = cost(&problem).unwrap();
        prop_assert!((found - brute).abs() <= 1e-5 * brute, "{} instead of {}", found, brute);
        let pruned = cost(&problem.only(&problem.undominated())).unwrap();
        prop_assert!((pruned - brute).abs() <= 1e-5 * brute, "{} of the undominated instead of {}", pruned, brute);
    }
}
