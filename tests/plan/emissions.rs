//! Energy and emissions: known answers, the limit against brute force, and unknowns.

use habitat_tui::plan::problem::{Aim, Limit, Problem};
use habitat_tui::plan::search::best;
use habitat_tui::plan::{Goal, Objective, Plan, PlanStatus, RejectionKind, check, plan};
use habitat_tui::predict::{GpuFacts, Prediction, Predictions};
use habitat_tui::pricing::{Offer, PriceBook, Snapshot, Terms, Tier};
use habitat_tui::units::{KilogramsCo2e, Range, Watts};
use proptest::prelude::*;

use super::build::{assert_cents, goal, hours, measured, offer, predictions, rejected, told};
use super::properties::{brute_force, config, cost, limit, limits, problem};

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

fn kg(value: f64) -> KilogramsCo2e {
    KilogramsCo2e::new(value).unwrap()
}

/// A GPU with this power in watts.
fn drawing(name: &str, samples_per_hour: f64, watts: f64) -> Prediction {
    let prediction = measured(name, samples_per_hour);
    let gpu = GpuFacts { power: Some(Watts::new(watts).unwrap()), ..prediction.gpu.clone() };
    Prediction { gpu, ..prediction }
}

/// An offer of its own provider, with these emissions per kWh.
fn emitting(provider: &str, gpu: &str, price: f64, kg_co2_per_kwh: Option<f64>) -> (Offer, Terms) {
    let one = Offer { provider: provider.into(), region: "mars".into(), ..offer(gpu, price, Tier::OnDemand) };
    let id = habitat_tui::pricing::OfferId::new(provider, "mars", gpu, one.tier);
    (Offer { id, ..one }, Terms { pue: Some(1.0), kg_co2_per_kwh, ..Terms::default() })
}

fn book(offers: &[(Offer, Terms)]) -> PriceBook {
    let book = PriceBook::new(offers.iter().map(|(offer, _)| offer.clone()));
    offers.iter().fold(book, |book, (offer, terms)| book.with_terms(&offer.provider, *terms))
}

fn mid(plan: &Plan) -> (f64, f64) {
    let footprint = plan.total.unwrap().footprint;
    (footprint.energy.unwrap().mid.get(), footprint.emissions.unwrap().mid.get())
}

/// 0.35 kW × PUE 1.2 × 10 h × 0.4 kg/kWh = 1.68 kg, on an own machine.
#[test]
fn an_own_machine_emits_what_its_power_does() {
    let file = r#"
schema = 1
provider = "lab"
kg_co2_per_kwh = 0.4
[[offer]]
region = "office"
instance_type = "box"
gpu = "a"
gpu_count = 1
tier = "owned"
kw = 0.35
pue = 1.2
usd_per_kwh = 0.2
scope = "instance_total"
source = "meter"
"#;
    let file = Snapshot::parse(file).unwrap();
    let prices = PriceBook::new(file.offers()).with_terms(&file.provider, file.terms());
    let found = plan(&predictions([measured("a", 10.0)]), &prices, &goal(100.0, 1)).unwrap();
    let (kwh, emitted) = mid(&found);
    assert!(close(kwh, 4.2) && close(emitted, 1.68), "{kwh} {emitted}");
    assert_cents(found.total.unwrap().cost.mid, 0.84);
    let words = "draws 0.35 kW × PUE 1.2; 0.4 kg CO2e/kWh (price file)";
    assert!(told(&found.parts[0].notes).iter().any(|note| note == words), "{:?}", found.parts[0].notes);
    // A plan with a smaller figure is refused.
    let mut wrong = found.clone();
    wrong.parts[0].footprint.emissions = None;
    assert!(check::check(&wrong).unwrap_err().to_string().contains("kg of CO2e of lab/office/box/owned"));
    let mut wrong = found.clone();
    wrong.total.as_mut().unwrap().footprint.energy = Some(Range::default());
    assert!(check::check(&wrong).unwrap_err().to_string().contains("kWh of total"));
    let mut wrong = found;
    wrong.goal.limits.max_co2 = Some(kg(1.6));
    assert!(check::check(&wrong).unwrap_err().to_string().ends_with("kg CO2e, the limit is 1.6 kg"));
}

/// 2 machines of 4 GPUs of 300 W each, half as much again for the rest, at PUE 1.56: 5.616 kW.
#[test]
fn a_rented_machine_draws_more_than_its_gpus() {
    let (machine, terms) = emitting("far", "a", 8.0, Some(0.25));
    let machine = Offer { gpu_count: 4, ..machine };
    let mut all = predictions([drawing("a", 3600.0, 300.0)]);
    all.workload.parameter_count = Some(100_000_000);
    let mut two = goal(1e6, 1);
    (two.limits.max_machines, two.limits.min_gpus) = (2, 8);
    let found = plan(&all, &book(&[(machine, Terms { pue: None, ..terms })]), &two).unwrap();
    let hours = found.total.unwrap().hours;
    let footprint = found.total.unwrap().footprint;
    for (hours, energy) in [
        (hours.low, footprint.energy.unwrap().low),
        (hours.mid, footprint.energy.unwrap().mid),
        (hours.high, footprint.energy.unwrap().high),
    ] {
        assert!(close(energy.get(), 5.616 * hours.get()), "{energy:?} in {hours:?}");
    }
    assert!(close(mid(&found).1, mid(&found).0 * 0.25));
}

/// Ten years with the least emissions give way to three with a little more.
#[test]
fn without_a_deadline_little_carbon_does_not_take_years() {
    let all = predictions([drawing("slow", 10.0, 100.0), drawing("fast", 30.0, 330.0)]);
    let short = |objective: Objective, dirty: f64| {
        let offers = [emitting("far", "slow", 1.0, Some(0.4)), emitting("near", "fast", 9.0, Some(dirty))];
        let mut wanted = Goal { objective, ..goal(1e6, 1) };
        wanted.limits.accept = habitat_tui::plan::Accept::ALL.to_vec();
        plan(&all, &book(&offers), &wanted).unwrap()
    };
    let found = short(Objective::Emissions, 0.4);
    assert_eq!(found.parts[0].gpu.as_str(), "fast");
    let longer = found.longer.as_ref().unwrap();
    assert!(longer.hours.mid.get() > 99_999.0 && longer.cost.get() < found.total.unwrap().cost.mid.get());
    let words = &habitat_tui::report::beside::concessions(&found)[0];
    assert!(words.starts_with("Less CO2e if it may take longer: "), "{words}");
    // Twice the emissions are more than a little.
    let patient = short(Objective::Emissions, 0.8);
    assert!(patient.parts[0].gpu.as_str() == "slow" && patient.longer.is_none());
    // A plan that still takes years says so beside its first sentence.
    let caveats = habitat_tui::report::beside::caveats(&patient);
    assert!(caveats.iter().any(|line| line.contains("prices and offers rarely last that long")), "{caveats:?}");
}

/// Per useful hour of spot at the defaults: 1.24 h of running, and 0.5 h of waiting without power.
#[test]
fn waiting_for_spot_draws_nothing_and_lost_work_does() {
    let (spot, terms) = emitting("far", "a", 1.0, Some(0.4));
    let spot = Offer { tier: Tier::Spot, ..spot };
    let mut wanted = goal(20.0, 1);
    wanted.assumptions.spot_losses_per_hour = Some(0.5);
    let found = plan(&predictions([drawing("a", 1.0, 1000.0)]), &book(&[(spot, terms)]), &wanted).unwrap();
    let assumed = &found.goal.assumptions;
    let (interval, restart) = (assumed.checkpoint_interval.get(), assumed.restart.get());
    let billed = (1.0 + found.parts[0].checkpoint_write.get() / interval) * (1.0 + 0.5 * (interval / 2.0 + restart));
    let (kwh, kg) = mid(&found);
    assert!(close(kwh, 1.5 * 20.0 * billed) && close(kg, 0.4 * kwh), "{kwh} {kg}");
    assert!(found.total.unwrap().hours.mid.get() > 20.0 * billed + 9.9);
}

/// A switch from spot to on demand: the check adds up both independently.
#[test]
fn a_change_from_spot_is_counted_and_limited() {
    let (firm, terms) = emitting("far", "a", 1.0, Some(0.4));
    let id = habitat_tui::pricing::OfferId::new("far", "mars", "a", Tier::Spot);
    let spot = Offer { id, tier: Tier::Spot, price: habitat_tui::units::UsdPerHour::new(0.3).unwrap(), ..firm.clone() };
    let (all, prices) = (predictions([drawing("a", 1.0, 1000.0)]), book(&[(spot, terms), (firm, terms)]));
    let mut wanted = Goal { deadline: Some(hours(48.0)), ..goal(30.0, 2) };
    let found = plan(&all, &prices, &wanted).unwrap();
    assert!(found.switch.as_ref().is_some_and(|switch| switch.is_expected), "{found:?}");
    let emissions = found.total.unwrap().footprint.emissions.unwrap();
    assert!(emissions.low.get() < emissions.mid.get() && emissions.mid.get() < emissions.high.get());
    // Lost work emits too: a lower limit excludes spot.
    wanted.limits.max_co2 = Some(kg(emissions.mid.get() * 0.99));
    let capped = plan(&all, &prices, &wanted).unwrap();
    assert!(mid(&capped).1 <= emissions.mid.get() * 0.99 * (1.0 + 1e-9));
    assert!(capped.total.unwrap().cost.mid.get() > found.total.unwrap().cost.mid.get());
    let mut wrong = found;
    wrong.total.as_mut().unwrap().footprint.emissions = Some(Range { low: emissions.mid, ..emissions });
    assert!(check::check(&wrong).unwrap_err().to_string().contains("kg of CO2e of total"));
}

#[test]
fn what_is_not_known_is_not_nothing() {
    let cheap = emitting("dark", "a", 1.0, None);
    let dear = emitting("far", "a", 2.0, Some(0.4));
    let other = emitting("odd", "b", 0.5, Some(0.4));
    let all = predictions([drawing("a", 1.0, 1000.0), measured("b", 1.0)]);
    let prices = book(&[cheap, dear, other]);
    let by = |goal: &Goal| plan(&all, &prices, goal).unwrap();
    // The cheapest has no known power, the next no known intensity.
    let free = by(&goal(10.0, 1));
    assert_eq!((free.parts[0].offer.provider.as_str(), free.parts[0].draw), ("odd", None));
    assert_eq!(free.total.unwrap().footprint, habitat_tui::plan::Footprint::default());
    let mut limited = goal(10.0, 1);
    limited.limits.max_co2 = Some(kg(100.0));
    let mut least = goal(10.0, 1);
    least.objective = Objective::Emissions;
    for goal in [limited, least] {
        let found = by(&goal);
        assert_eq!(found.parts[0].offer.provider, "far");
        let reasons = rejected(&found);
        let unknown = RejectionKind::EmissionsUnknown;
        let place = "unknown emissions: carbon intensity missing (set kg_co2_per_kwh in a price file)";
        assert_eq!(reasons[0], (unknown, place.to_owned()));
        assert_eq!(reasons[1], (unknown, "unknown emissions: the power of b is not in the catalog".to_owned()));
    }
}

/// 15 h of 1.5 kW at 0.4 kg/kWh for $15, or at 0.1 kg/kWh for $45.
fn two() -> (Predictions, PriceBook) {
    let offers = [emitting("cheap", "a", 1.0, Some(0.4)), emitting("clean", "a", 3.0, Some(0.1))];
    (predictions([drawing("a", 1.0, 1000.0)]), book(&offers))
}

#[test]
fn a_limit_on_emissions_costs_what_it_costs() {
    let (predictions, prices) = two();
    let by = |parts: u32, most: f64, change: &dyn Fn(&mut Goal)| {
        let mut goal = goal(15.0, parts);
        goal.limits.max_co2 = Some(kg(most));
        change(&mut goal);
        plan(&predictions, &prices, &goal).unwrap()
    };
    let cost = |plan: &Plan| plan.total.unwrap().cost.mid;
    for parts in [1, 2] {
        assert_cents(cost(&by(parts, 9.0, &|_| ())), 15.0);
        assert_cents(cost(&by(parts, 2.25, &|_| ())), 45.0);
    }
    let capped = by(1, 5.0, &|_| ());
    assert_cents(cost(&capped), 45.0);
    assert_eq!(
        rejected(&capped)[0],
        (RejectionKind::Emissions, "emits 9.00 kg CO2e, 4.00 kg more than allowed".to_owned())
    );
    // Mixed: 5.625 kg are half-way from 2.25 to 9.
    let mixed = by(2, 5.625, &|_| ());
    assert_cents(cost(&mixed), 30.0);
    assert!((mid(&mixed).1 - 5.625).abs() < 1e-6);

    let none = by(1, 2.0, &|_| ());
    assert_eq!(none.status, PlanStatus::Infeasible);
    let says = |plan: &Plan, what: &str| {
        assert!(told(&plan.reasons).iter().any(|reason| reason.contains(what)), "{what}: {:?}", plan.reasons);
    };
    says(&none, "allow 2.25 kg CO2e (--max-co2-kg) (1 × a at clean mars, on-demand, 15 h, $45.00)");
    says(&none, "train on 1.7 fewer samples (11.1 % less)");
    // Within a budget only the other one is left.
    says(
        &by(1, 5.0, &|goal| goal.budget = Some(super::build::usd(20.0))),
        "allow 9.00 kg CO2e (--max-co2-kg) (1 × a at cheap",
    );
    says(&by(1, 5.0, &|goal| goal.budget = Some(super::build::usd(20.0))), "spend $25.00 more (1 × a at clean");
    // Deadlines and frontiers keep the limit.
    let in_time = by(2, 5.625, &|goal| goal.deadline = Some(hours(15.0)));
    assert_cents(cost(&in_time), 30.0);
}

#[test]
fn least_emissions_then_cost() {
    let (predictions, prices) = two();
    let same = emitting("same", "a", 4.0, Some(0.1));
    let prices = PriceBook::new(prices.offers().iter().cloned().chain([same.0.into()]))
        .with_terms("cheap", prices.terms_of("cheap"))
        .with_terms("clean", prices.terms_of("clean"))
        .with_terms("same", same.1);
    for parts in [1, 2] {
        let goal = Goal { objective: Objective::Emissions, ..goal(15.0, parts) };
        let found = plan(&predictions, &prices, &goal).unwrap();
        assert_eq!((found.parts.len(), found.parts[0].offer.provider.as_str()), (1, "clean"));
        assert!(close(mid(&found).1, 2.25));
        assert_eq!(
            found.alternatives.iter().map(|part| part.offer.provider.as_str()).collect::<Vec<_>>(),
            ["same", "cheap"]
        );
    }
    // Within a budget as far as it goes: both for 7.5 h.
    let budget = Goal { objective: Objective::Emissions, budget: Some(super::build::usd(30.0)), ..goal(15.0, 2) };
    let found = plan(&predictions, &prices, &budget).unwrap();
    assert!((mid(&found).1 - 5.625).abs() < 1e-6, "{:?}", mid(&found));
}

/// Least and most emissions of single choices with all the work.
fn emissions(problem: &Problem) -> (f64, f64) {
    let all = problem.choices.iter().map(|choice| choice.emits(problem.work / choice.rate));
    all.fold((f64::INFINITY, 0.0), |(least, most), kg| (least.min(kg), f64::max(most, kg)))
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_limit_leaves_the_cheapest_that_keeps_it(problem in problem(), factors in limits(), share in -0.2..1.2f64) {
        let limit = limit(&problem, factors);
        let (least, most) = emissions(&problem);
        let cap = (least + share * (most - least)).max(0.0);
        let capped = Problem { most_kg: Some(cap), ..problem.clone() };
        let found = cost(&capped, &limit);
        let (deadline, budget) = (limit.deadline.unwrap(), limit.budget.unwrap());
        match (found, brute_force(&capped, deadline, budget)) {
            (Some(found), Some(brute)) => prop_assert!((found - brute).abs() <= 1e-6 * brute, "{found}, not {brute}"),
            (None, None) => {}
            (found, _) => {
                let room = if found.is_some() { 1.0 + 1e-6 } else { 1.0 - 1e-6 };
                let roomy = Problem { most_kg: Some(cap * room), ..problem.clone() };
                prop_assert_eq!(found.is_some(), brute_force(&roomy, deadline * room, budget * room).is_some());
            }
        }
        // A limit never makes it cheaper, and the result keeps it.
        let free = cost(&problem, &limit);
        prop_assert!(found.is_none_or(|found| free.is_some_and(|free| free <= found * (1.0 + 1e-6))));
        if let Some(found) = best(&capped, Objective::Cost, &limit) {
            prop_assert!(capped.value(Aim::Emissions, &found.hours) <= cap * (1.0 + 1e-6));
        }
    }

    /// The least emissions are those below which no plan exists.
    #[test]
    fn no_plan_emits_less_than_the_least(problem in problem()) {
        let Some(found) = best(&problem, Objective::Emissions, &Limit::default()) else {
            // All choices together may not suffice for the work.
            prop_assert_eq!(brute_force(&problem, f64::INFINITY, f64::INFINITY), None);
            return Ok(());
        };
        let least = problem.value(Aim::Emissions, &found.hours);
        let within = |cap: f64| cost(&Problem { most_kg: Some(cap), ..problem.clone() }, &Limit::default());
        prop_assert!(within(least * (1.0 + 1e-6) + 1e-9).is_some());
        prop_assert!(least < 1e-6 || within(least * (1.0 - 1e-5)).is_none());
    }
}
