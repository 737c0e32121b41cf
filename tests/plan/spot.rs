//! Spot offers: planner note B1 and C.4.

use habitat_tui::plan::{Assumptions, Confidence, Goal, Part, Plan, PlanStatus, plan};
use habitat_tui::pricing::{Offer, PriceBook, Tier};

use crate::build::{assert_cents, goal, hours, measured, offer, offer_in, predicted, predictions, told, usd};

/// λ 0.1/h, κ 1 h, ρ 0.2 h, ω = δ = 0, 20 useful hours; the deadline at high confidence.
fn twenty_hours(max_parts: u32) -> Goal {
    let assumptions = Assumptions {
        spot_losses_per_hour: Some(0.1),
        checkpoint_interval: hours(1.0),
        checkpoint_write: Some(hours(0.0)),
        restart: hours(0.2),
        wait: Some(hours(0.0)),
        spot_confidence: 0.95,
        ..goal(1.0, 1).assumptions
    };
    Goal { assumptions, ..goal(20.0, max_parts) }
}

#[test]
fn expected_and_upper_end_are_those_of_the_note() {
    let plan = plan(
        &predictions([measured("v100", 1.0)]),
        &PriceBook::new([offer("v100", 1.2, Tier::Spot)]),
        &twenty_hours(1),
    )
    .unwrap();
    let total = plan.total.unwrap();
    assert!((total.hours.low.get() - 20.0).abs() < 1e-9);
    assert!((total.hours.mid.get() - 21.4).abs() < 1e-9);
    assert!((total.hours.high.get() - 26.0).abs() < 1e-9);
    assert_cents(total.cost.mid, 25.68);
    assert_cents(total.cost.high, 31.20);
    assert!(told(&plan.notes).iter().any(|note| note.contains("spot losses are assumptions")), "{:?}", plan.notes);
}

/// Small expected losses also count: two of 0.05 cost as much as one of 0.1.
#[test]
fn parts_of_few_losses_are_charged_for_them() {
    let (predictions, prices) =
        (predictions([measured("v100", 1.0)]), PriceBook::new([offer("v100", 1.2, Tier::Spot)]));
    let expected = |useful: f64| {
        let goal = Goal { assumptions: twenty_hours(1).assumptions, ..goal(useful, 1) };
        let total = plan(&predictions, &prices, &goal).unwrap().total.unwrap();
        (total.hours.mid.get(), total.cost.mid.get())
    };
    // 0.1 losses per hour, each 0.7 hours.
    let (half, whole) = (expected(0.5), expected(1.0));
    assert!((half.0 - 0.535).abs() < 1e-9 && (half.1 - 0.535 * 1.2).abs() < 1e-9, "{half:?}");
    assert!((whole.0 - 2.0 * half.0).abs() < 1e-9 && (whole.1 - 2.0 * half.1).abs() < 1e-9, "{half:?} {whole:?}");
}

/// 24 h is feasible at the expected hours and not at full intervals for five losses; with two parts on-demand hours
/// close the gap.
#[test]
fn confidence_decides_whether_spot_alone_meets_the_deadline() {
    let predictions = predictions([measured("v100", 1.0)]);
    let prices = PriceBook::new([offer("v100", 1.2, Tier::Spot), offer("v100", 4.0, Tier::OnDemand)]);
    let tiers = |deadline: f64, confidence, max_parts| {
        let goal = Goal { deadline: Some(hours(deadline)), confidence, ..twenty_hours(max_parts) };
        let plan = plan(&predictions, &prices, &goal).unwrap();
        assert_eq!(plan.status, PlanStatus::Optimal);
        (plan.parts.iter().map(|part| part.offer.tier).collect::<Vec<_>>(), plan.total.unwrap())
    };
    assert_eq!(tiers(24.0, Confidence::Expected, 1).0, [Tier::Spot]);
    assert_eq!(tiers(24.0, Confidence::High, 1).0, [Tier::OnDemand]);
    assert_eq!(tiers(26.0, Confidence::High, 1).0, [Tier::Spot]);
    for deadline in [22.0, 24.0] {
        let (used, total) = tiers(deadline, Confidence::High, 2);
        assert_eq!(used, [Tier::Spot, Tier::OnDemand], "{deadline} h");
        assert!(total.cost.mid.get() < 80.0 && total.cost.mid.get() > 25.68, "{total:?}");
        assert!(total.hours.high.get() <= deadline + 1e-6, "{total:?}");
    }
}

/// Each part has its own allowance for losses: the checker recomputes the upper end from the part's own hours, so a
/// mixed plan passes.
#[test]
fn mixed_plans_keep_every_deadline_between_their_ends() {
    let predictions = predictions([predicted("v100", 1.0, 0.1), predicted("a100", 3.0, 0.2)]);
    let prices = PriceBook::new([
        offer("v100", 0.9, Tier::Spot),
        offer("v100", 3.0, Tier::OnDemand),
        offer("a100", 12.0, Tier::OnDemand),
    ]);
    let mut before = f64::INFINITY;
    for tenths in 85..400 {
        let deadline = hours(f64::from(tenths) / 10.0);
        let goal = Goal { deadline: Some(deadline), ..twenty_hours(2) };
        let plan = plan(&predictions, &prices, &goal).unwrap();
        let total = plan.total.unwrap();
        assert!(total.hours.high.get() <= deadline.get() * (1.0 + 1e-6), "{tenths}");
        assert!(total.cost.mid.get() <= before * (1.0 + 1e-6), "{tenths}: {} after {before}", total.cost.mid.get());
        assert!(told(&plan.notes).iter().all(|note| !note.contains("fell back")), "{:?}", plan.notes);
        before = total.cost.mid.get();
    }
}

/// A machine with eight GPUs is lost 2.7 times as often as one with one, or as often as the user says.
#[test]
fn larger_machines_are_lost_more_often() {
    let mut predictions = predictions([measured("v100", 1.0)]);
    predictions.workload.parameter_count = Some(1);
    let says = |gpu_count: u32, losses: Option<f64>| {
        let offer = Offer { gpu_count, ..offer("v100", 1.2, Tier::Spot) };
        let mut goal = goal(20.0, 1);
        goal.assumptions.spot_losses_per_hour = losses;
        let plan = plan(&predictions, &PriceBook::new([offer]), &goal).unwrap();
        told(&plan.parts[0].notes).iter().find(|note| note.starts_with("spot: ")).unwrap().clone()
    };
    assert!(says(1, None).starts_with("spot: 0.50 losses per hour"), "{}", says(1, None));
    assert!(says(8, None).starts_with("spot: 1.36 losses per hour"), "{}", says(8, None));
    assert!(says(16, None).starts_with("spot: 1.36 losses per hour"), "{}", says(16, None));
    assert!(says(8, Some(0.5)).starts_with("spot: 0.50 losses per hour"), "{}", says(8, Some(0.5)));
}

/// Waiting for capacity costs time and no money; without losses spot is a plain offer.
#[test]
fn waiting_is_not_billed() {
    let spot = |wait: f64, losses: f64| {
        let mut goal = twenty_hours(1);
        goal.assumptions.wait = Some(hours(wait));
        goal.assumptions.spot_losses_per_hour = Some(losses);
        let prices = PriceBook::new([offer("v100", 1.2, Tier::Spot)]);
        plan(&predictions([measured("v100", 1.0)]), &prices, &goal).unwrap().total.unwrap()
    };
    let (without, with) = (spot(0.0, 0.1), spot(2.0, 0.1));
    assert_eq!(without.cost, with.cost);
    assert!((with.hours.mid.get() - without.hours.mid.get() - 20.0 * 0.1 * 2.0).abs() < 1e-9);
    // Five losses, each with five times the mean wait.
    assert!((with.hours.high.get() - without.hours.high.get() - 5.0 * 5.0 * 2.0).abs() < 1e-9);
    assert_eq!(spot(2.0, 0.0).hours.high, hours(20.0));
}

/// A spot machine at 0.3 of the on-demand price without a range of the step time: with D = 1.5 times the work, the
/// on-demand machine has to take over after half of it minus an interval, and is expected to do about half of the work.
#[test]
fn a_machine_on_demand_takes_over_in_time() {
    let predictions = predictions([measured("v100", 1.0)]);
    let prices = PriceBook::new([offer("v100", 0.3, Tier::Spot), offer("v100", 1.0, Tier::OnDemand)]);
    let at = |deadline: f64, max_parts: u32| {
        let goal = Goal { deadline: Some(hours(deadline)), ..goal(24.0, max_parts) };
        plan(&predictions, &prices, &goal).unwrap()
    };
    let plan = at(36.0, 2);
    let (total, switch) = (plan.total.unwrap(), plan.switch.clone().unwrap());
    assert_eq!(plan.parts.iter().map(|part| part.offer.tier).collect::<Vec<_>>(), [Tier::Spot, Tier::OnDemand]);
    assert!(switch.is_expected && switch.to == plan.parts[1].offer.id);
    assert!((switch.latest.get() - 11.75).abs() < 1e-9, "{switch:?}");
    let share = plan.parts[0].work.get() / 24.0;
    assert!((0.45..0.6).contains(&share), "{share}");
    assert_eq!(total.hours.high, hours(36.0));
    // With its work done, spot ends in time for the rest; its losses alone could take longer.
    let [first, last] = [0, 1].map(|part: usize| plan.parts[part].hours);
    assert!(
        (first.high.get() - (36.0 - 0.25 - last.high.get())).abs() < 1e-9 && first.high.get() > first.mid.get(),
        "{first:?}"
    );
    assert!(plan.parts[0].cost.high.get() <= first.high.get() * 0.3 + 1e-9, "{:?}", plan.parts[0].cost);
    // At worst all of it on demand, with the expected spot cost wasted.
    assert!(total.cost.mid.get() < 20.0 && (24.0..30.0).contains(&total.cost.high.get()), "{total:?}");

    // A budget of the plan's cost suffices, despite rounding.
    let budget = Some(usd(total.cost.mid.get() * (1.0 - 1e-12)));
    let exact = Goal { budget, deadline: Some(hours(36.0)), ..goal(24.0, 2) };
    assert_eq!(habitat_tui::plan::plan(&predictions, &prices, &exact).unwrap().switch, plan.switch);

    // More parts with a switch are not tried, and the plan says so.
    let says_so = |plan: &Plan| told(&plan.notes).iter().any(|note| note.contains("more parts were not tried"));
    assert!(says_so(&at(36.0, 3)) && !says_so(&plan));

    // One part is on demand, and the plan shows what two would save.
    let one = at(36.0, 1);
    assert_eq!((one.parts[0].offer.tier, one.switch), (Tier::OnDemand, None));
    assert!(told(&one.notes).iter().any(|note| note.contains("--max-parts 2")), "{:?}", one.notes);

    // With enough time spot alone is expected to suffice; the other machine is a fallback.
    let net = at(400.0, 1);
    assert_eq!(net.parts[0].offer.tier, Tier::Spot);
    let switch = net.switch.unwrap();
    assert!(!switch.is_expected && (switch.latest.get() - (400.0 - 24.0 - 0.25)).abs() < 1e-9, "{switch:?}");

    // No other machine could do it: no fallback, and no note about one.
    let alone = PriceBook::new([offer("v100", 0.3, Tier::Spot)]);
    let goal = Goal { deadline: Some(hours(400.0)), ..goal(24.0, 2) };
    let plan = habitat_tui::plan::plan(&predictions, &alone, &goal).unwrap();
    assert!(plan.switch.is_none() && told(&plan.notes).iter().all(|note| !note.contains("switch to")));
}

/// Two spot machines of half the work each have the same allowance for losses as one with all of it.
#[test]
fn losses_are_allowed_for_once_a_plan() {
    let predictions = predictions([measured("cheap", 1.0), measured("fast", 2.0)]);
    let spot = |name: &str, price: f64| offer(name, price, Tier::Spot);
    let prices = PriceBook::new([spot("cheap", 1.0), spot("fast", 3.0)]);
    let at = |deadline: f64, max_parts: u32| {
        let goal = Goal { deadline: Some(hours(deadline)), ..twenty_hours(max_parts) };
        plan(&predictions, &prices, &goal).unwrap()
    };
    // Fast alone: 10 h, 3.5 losses; cheap alone: 20 h, 5.
    let (fast, cheap) = (at(14.3, 1).total.unwrap(), at(26.1, 1).total.unwrap());
    assert!((fast.hours.high.get() - (10.0 + 3.5 * 1.2)).abs() < 1e-6, "{fast:?}");
    assert!((cheap.hours.high.get() - (20.0 + 5.0 * 1.2)).abs() < 1e-6, "{cheap:?}");
    let mixed = at(20.0, 2);
    assert_eq!((mixed.parts.len(), mixed.status), (2, PlanStatus::Optimal));
    let running: f64 = mixed.parts.iter().map(|part| part.hours.low.get()).sum();
    let total = mixed.total.unwrap();
    assert!((total.hours.high.get() - (running + (2.0 + 1.5 * 0.1 * running) * 1.2)).abs() < 1e-6, "{total:?}");
    assert!((total.hours.high.get() - 20.0).abs() < 1e-6);
}

/// Two regions with different losses and waits: the single allowance of a plan has the longer waits, whichever part
/// goes first; the plan meets the deadline to the minute and passes the check.
#[test]
fn parts_in_several_regions_allow_for_the_losses_of_each() {
    let predictions = predictions([measured("cheap", 1.0), measured("fast", 8.0)]);
    let aws = |region: &str, name: &str, price: f64| Offer {
        provider: "aws".into(),
        ..offer_in(region, name, price, Tier::Spot)
    };
    // Mean hours per loss, and mean wait in hours, computed from the rows of both.
    let east = (1275.0 / 1986.1, (4722.4 - 1986.1) / 1275.0);
    let west = (319.0 / 1574.0, 609.8 / 319.0);
    for (cheap_in, fast_in, [cheap_lost, fast_lost]) in
        [("us-east-1", "us-east-2", [east, west]), ("us-east-2", "us-east-1", [west, east])]
    {
        let prices = PriceBook::new([aws(cheap_in, "cheap", 1.0), aws(fast_in, "fast", 16.0)]);
        let goal = |deadline: f64| Goal { deadline: Some(hours(deadline)), ..goal(200.0, 2) };
        let each = |(_, wait): (f64, f64)| 0.25 + 0.2 + 5.0 * wait;
        let hourly = |lost: (f64, f64)| (1.0 + 1.0 / 15.0) * (1.0 + 1.5 * lost.0 * each(lost));
        let alone = |rate: f64, lost| 200.0 / rate * hourly(lost) + 2.0 * each(lost);
        let deadline = f64::midpoint(alone(1.0, cheap_lost), alone(8.0, fast_lost));
        let mixed = plan(&predictions, &prices, &goal(deadline)).unwrap();
        assert_eq!((mixed.parts.len(), mixed.status), (2, PlanStatus::Optimal), "{:?}", mixed.reasons);
        let longest = f64::max(each(east), each(west));
        let of = |part: &Part| {
            let (rate, lost) = if part.gpu.as_str() == "cheap" { (1.0, cheap_lost) } else { (8.0, fast_lost) };
            part.work.get() / rate * hourly(lost)
        };
        let total = mixed.total.unwrap().hours.high.get();
        let setup = 2.0 * mixed.goal.assumptions.setup.get();
        assert!((mixed.parts.iter().map(of).sum::<f64>() + 2.0 * longest + setup - total).abs() < 1e-6, "{mixed:?}");
        assert!((total - deadline).abs() < 1e-6 * deadline, "{total} {deadline}");
    }
}
