//! What the hours and the cost of a plan are made of: known answers, and that they add up.

use habitat_tui::plan::check::{CheckError, check, check_sources};
use habitat_tui::plan::{Assumptions, Data, Goal, Plan, PlanNote, PlanStatus, Total, Use, plan};
use habitat_tui::pricing::{Billing, Offer, Ownership, PriceBook, Terms, Tier};
use habitat_tui::report::{plans, summary};
use habitat_tui::units::{Range, Usd, UsdPerHour};

use crate::build::{goal, hours, offer, offer_in, predicted, predictions, told};

/// λ 0.1/h, κ 1 h, ω 0.1 h, ρ 0.2 h, δ 0.5 h and a quarter of an hour to start.
fn lossy(samples: f64, max_parts: u32) -> Goal {
    let assumptions = Assumptions {
        setup: hours(0.25),
        spot_losses_per_hour: Some(0.1),
        checkpoint_interval: hours(1.0),
        checkpoint_write: hours(0.1),
        restart: hours(0.2),
        wait: Some(hours(0.5)),
        ..Assumptions::default()
    };
    Goal { assumptions, ..goal(samples, max_parts) }
}

/// Low, middle and high end of a part's hours and dollars for a use.
fn taken(plan: &Plan, part: usize, what: Use) -> ([f64; 3], [f64; 3]) {
    let part = &plan.parts[part];
    let (hours, cost) = (part.hours_by.of(what), part.cost_by.of(what));
    ([hours.low.get(), hours.mid.get(), hours.high.get()], [cost.low.get(), cost.mid.get(), cost.high.get()])
}

#[track_caller]
fn assert_taken(plan: &Plan, what: Use, hours: [f64; 3], cost: [f64; 3]) {
    let found = taken(plan, 0, what);
    let near = |a: [f64; 3], b: [f64; 3]| a.into_iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9);
    assert!(near(found.0, hours) && near(found.1, cost), "{what:?}: {found:?}, not {hours:?} {cost:?}");
}

/// Each end of every part and of the total is the sum of what it is made of.
#[track_caller]
fn assert_adds_up(plan: &Plan) {
    let same = |a: f64, b: f64| assert!((a - b).abs() <= 1e-9 * b.max(1.0), "{a} is not {b}");
    for part in &plan.parts {
        let (hours, cost) = (part.hours_by.sum(), part.cost_by.sum());
        same(hours.low.get(), part.hours.low.get());
        same(hours.mid.get(), part.hours.mid.get());
        same(hours.high.get(), part.hours.high.get());
        same(cost.low.get(), part.cost.low.get());
        same(cost.mid.get(), part.cost.mid.get());
        same(cost.high.get(), part.cost.high.get());
    }
    let total = plan.total.unwrap();
    let cost = total.cost_by.sum();
    same(cost.low.get(), total.cost.low.get());
    same(cost.mid.get(), total.cost.mid.get());
    same(cost.high.get(), total.cost.high.get());
}

/// 20 hours at $3, by a calculator; at the high end 0.1 × 1.5 × 1.1 × 24 + 2 = 5.96 losses.
#[test]
fn spot_trains_writes_repeats_and_waits() {
    let book = PriceBook::new([offer("a", 3.0, Tier::Spot)]);
    let found = plan(&predictions([predicted("a", 1.0, 0.2)]), &book, &lossy(20.0, 1)).unwrap();
    assert_taken(&found, Use::Setup, [0.25; 3], [0.75; 3]);
    assert_taken(&found, Use::Training, [16.0, 20.0, 24.0], [48.0, 60.0, 72.0]);
    assert_taken(&found, Use::Checkpoints, [1.6, 2.0, 2.4], [4.8, 6.0, 7.2]);
    assert_taken(&found, Use::Repeated, [0.0, 1.54, 5.96 * 1.2], [0.0, 4.62, 5.96 * 3.6]);
    // Five mean waits a loss at the high end; a machine that is waited for costs nothing.
    assert_taken(&found, Use::Waiting, [0.0, 1.0, 5.96 * 2.5], [0.0; 3]);
    assert_eq!(found.parts[0].cost_by.iter().count(), 4);
    assert_adds_up(&found);
}

#[test]
fn hours_begun_and_terms_are_paid_and_not_used() {
    let book = PriceBook::new([offer("a", 2.0, Tier::OnDemand)])
        .with_terms("cloud", Terms { billing: Billing::Hour, ..Terms::default() });
    let found = plan(&predictions([predicted("a", 1.0, 0.2)]), &book, &goal(2.5, 1)).unwrap();
    // 2, 2.5 and 3 h of which 2, 3 and 3 are billed.
    assert_taken(&found, Use::Training, [2.0, 2.5, 3.0], [4.0, 5.0, 6.0]);
    assert_taken(&found, Use::Unused, [0.0; 3], [0.0, 1.0, 0.0]);
    assert_adds_up(&found);

    let contract = Offer { term_hours: Some(100), ..offer("a", 2.0, Tier::Reserved) };
    let asked = Goal { limits: all_tiers(), ..goal(90.0, 1) };
    let found = plan(&predictions([predicted("a", 1.0, 0.0)]), &PriceBook::new([contract]), &asked).unwrap();
    assert_taken(&found, Use::Unused, [0.0; 3], [20.0; 3]);
    assert_adds_up(&found);
}

fn all_tiers() -> habitat_tui::plan::Limits {
    habitat_tui::plan::Limits { tiers: Tier::ALL.to_vec(), ..Default::default() }
}

#[test]
fn data_are_brought_once_and_kept_all_the_time() {
    let terms = |egress, storage| Terms {
        egress_usd_per_gb: Some(egress),
        storage_usd_per_gb_month: Some(storage),
        ..Terms::default()
    };
    let book = PriceBook::new([offer("a", 3.0, Tier::Spot)])
        .with_terms("home", terms(0.02, 0.0))
        .with_terms("cloud", terms(0.0, 0.1));
    let data = Some(Data { gb: 730.0, provider: Some("home".into()), region: None });
    let found = plan(&predictions([predicted("a", 1.0, 0.2)]), &book, &Goal { data, ..lossy(20.0, 1) }).unwrap();
    // 730 GB at 1 Gbit/s, the machine paid at $3/h meanwhile.
    let copying = 730.0 * 8.0 / 3600.0;
    assert_taken(&found, Use::Data, [copying; 3], [14.6 + 3.0 * copying; 3]);
    let elapsed = found.parts[0].hours;
    let kept = [elapsed.low, elapsed.mid, elapsed.high].map(|hours| hours.get() * 0.1);
    assert_taken(&found, Use::Storage, [0.0; 3], kept);
    assert_adds_up(&found);
}

/// 450 GB at 1 Gbit/s take an hour.
fn data_of(provider: Option<&str>) -> Data {
    Data { gb: 450.0, provider: provider.map(Into::into), region: None }
}

#[test]
fn copying_takes_hours_and_dollars_whatever_the_tier() {
    let held = Ownership::Contract { paid: UsdPerHour::new(9.0).unwrap() };
    let contract = Offer { term_hours: Some(100), ..offer("a", 2.0, Tier::Reserved) };
    let paid = Offer { held: Some(held), ..offer("a", 0.0, Tier::Reserved) };
    for (of, price) in [
        (offer("a", 2.0, Tier::OnDemand), 2.0),
        (offer("a", 2.0, Tier::Spot), 2.0),
        (offer("a", 2.0, Tier::Owned), 2.0),
        (contract, 2.0),
        (paid, 0.0),
    ] {
        let book =
            PriceBook::new([of.clone()]).with_terms("home", Terms { egress_usd_per_gb: Some(0.1), ..Terms::default() });
        let asked = Goal { limits: all_tiers(), ..lossy(20.0, 1) };
        let predictions = predictions([predicted("a", 1.0, 0.2)]);
        let here = plan(&predictions, &book, &Goal { data: Some(data_of(Some("cloud"))), ..asked.clone() }).unwrap();
        assert_taken(&here, Use::Data, [0.0; 3], [0.0; 3]);
        let away = Goal { data: Some(data_of(Some("home"))), ..asked.clone() };
        let found = plan(&predictions, &book, &away).unwrap();
        assert_taken(&found, Use::Data, [1.0; 3], [45.0 + price; 3]);
        let later = found.parts[0].hours.high.get() - here.parts[0].hours.high.get();
        assert!((later - 1.0).abs() < 1e-9, "{:?}: {later}", of.tier);
        assert!(
            told(&found.parts[0].notes)
                .iter()
                .any(|note| note == "data: copying 450 GB takes 1 h before the first step")
        );
        assert_adds_up(&found);
        check(&found).unwrap();
        check_sources(&found, &predictions, &book).unwrap();

        // At 2 Gbit/s half of that, unless the network of the machine is slower.
        let assumptions = Assumptions { data_gbit_per_second: Some(2.0), ..asked.assumptions };
        let faster = Goal { assumptions, ..away.clone() };
        assert_taken(&plan(&predictions, &book, &faster).unwrap(), Use::Data, [0.5; 3], [45.0 + price * 0.5; 3]);
        let slow = Offer { network_gbit_per_second: Some(0.5), ..of.clone() };
        let slow_book =
            PriceBook::new([slow]).with_terms("home", Terms { egress_usd_per_gb: Some(0.1), ..Terms::default() });
        let found = plan(&predictions, &slow_book, &faster).unwrap();
        assert_taken(&found, Use::Data, [2.0; 3], [45.0 + price * 2.0; 3]);
        check(&found).unwrap();
        check_sources(&found, &predictions, &slow_book).unwrap();

        // Data of no stated place are copied too, but to a machine of the user's own.
        let found = plan(&predictions, &book, &Goal { data: Some(data_of(None)), ..asked }).unwrap();
        let hours = if of.tier == Tier::Owned { 0.0 } else { 1.0 };
        assert_taken(&found, Use::Data, [hours; 3], [price * hours; 3]);
    }
}

#[test]
fn copying_counts_against_the_deadline_and_the_budget() {
    let book = PriceBook::new([offer("a", 2.0, Tier::OnDemand)])
        .with_terms("home", Terms { egress_usd_per_gb: Some(0.1), ..Terms::default() });
    let predictions = predictions([predicted("a", 1.0, 0.0)]);
    let asked = Goal { data: Some(data_of(Some("home"))), ..goal(20.0, 1) };
    let status = |asked: Goal| plan(&predictions, &book, &asked).unwrap().status;
    // 20 h of training, one of copying; $40, $45 and $2.
    for (hours_left, dollars, expected) in [
        (21.01, 87.01, PlanStatus::Optimal),
        (20.99, 87.01, PlanStatus::Infeasible),
        (21.01, 86.99, PlanStatus::Infeasible),
    ] {
        let asked =
            Goal { deadline: Some(hours(hours_left)), budget: Some(Usd::new(dollars).unwrap()), ..asked.clone() };
        assert_eq!(status(asked), expected, "{hours_left} h, ${dollars}");
    }
}

#[test]
fn each_part_elsewhere_copies_the_data_for_itself() {
    let book = PriceBook::new([offer_in("us-1", "a", 1.0, Tier::Spot), offer_in("us-1", "a", 4.0, Tier::OnDemand)])
        .with_terms("home", Terms { egress_usd_per_gb: Some(0.001), ..Terms::default() });
    let asked = Goal { deadline: Some(hours(42.0)), data: Some(data_of(Some("home"))), ..lossy(20.0, 2) };
    let predictions = predictions([predicted("a", 1.0, 0.1)]);
    let found = plan(&predictions, &book, &asked).unwrap();
    assert_eq!(found.parts.len(), 2);
    for (part, price) in [(0, 1.0), (1, 4.0)] {
        let (copied, paid) = taken(&found, part, Use::Data);
        assert!((copied[1] - 1.0).abs() < 1e-9 && (paid[1] - price - 0.45).abs() < 1e-9, "{copied:?} {paid:?}");
    }
    assert!(found.notes.contains(&PlanNote::DataCopiedTwice));
    assert_adds_up(&found);
    check(&found).unwrap();
    check_sources(&found, &predictions, &book).unwrap();
}

#[test]
fn a_plan_that_changes_machines_adds_up_too() {
    let book = PriceBook::new([offer("a", 1.0, Tier::Spot), offer("a", 4.0, Tier::OnDemand)]);
    let asked = Goal { deadline: Some(hours(40.0)), ..lossy(20.0, 2) };
    let found = plan(&predictions([predicted("a", 1.0, 0.1)]), &book, &asked).unwrap();
    assert!(found.switch.as_ref().unwrap().is_expected && found.parts.len() == 2);
    assert_adds_up(&found);
    // At best spot does everything; at worst the machine that takes over does, and nothing is repeated in its time.
    let total = found.total.unwrap();
    assert_eq!(total.cost_by.of(Use::Repeated).low.get(), 0.0);
    assert_eq!(total.cost_by.of(Use::Repeated).mid, total.cost_by.of(Use::Repeated).high);
}

#[test]
fn a_wrong_use_is_refused() {
    let book = PriceBook::new([offer("a", 3.0, Tier::Spot)]);
    let found = plan(&predictions([predicted("a", 1.0, 0.2)]), &book, &lossy(20.0, 1)).unwrap();
    let wrong = |plan: &Plan| match check(plan) {
        Err(CheckError::Number { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    let mut moved = found.clone();
    let by = moved.parts[0].hours_by;
    // The same sum, with training called repeated work.
    let swapped = |what| match what {
        Use::Training => Use::Repeated,
        Use::Repeated => Use::Training,
        other => other,
    };
    moved.parts[0].hours_by = habitat_tui::plan::ByUse::new(|what| by.of(swapped(what)));
    assert!(wrong(&moved).contains("training"), "{}", wrong(&moved));
    let mut missing = found.clone();
    let total = found.total.unwrap();
    let cost_by = habitat_tui::plan::ByUse::new(|what| match what {
        Use::Setup => Range::default(),
        other => total.cost_by.of(other),
    });
    missing.total = Some(Total { cost_by, ..total });
    assert!(wrong(&missing).starts_with("total cost"), "{}", wrong(&missing));
}

/// The same numbers in JSON and in text; what takes nothing is left out.
#[test]
fn reports_say_what_the_cost_is_made_of() {
    let book = PriceBook::new([offer("a", 3.0, Tier::Spot)]);
    let asked = Goal { deadline: Some(hours(60.0)), ..lossy(20.0, 1) };
    let steps = predictions([predicted("a", 1.0, 0.2)]);
    let found = plan(&steps, &book, &asked).unwrap();
    let json = serde_json::to_value(plans::json(&found, "test")).unwrap();
    for (whole, by) in [
        (&json["total"]["cost_usd"], &json["total"]["cost_by_usd"]),
        (&json["parts"][0]["cost_usd"], &json["parts"][0]["cost_by_usd"]),
        (&json["parts"][0]["hours"], &json["parts"][0]["hours_by"]),
    ] {
        for end in ["low", "mid", "high"] {
            let sum: f64 = by.as_object().unwrap().values().map(|of| of[end].as_f64().unwrap()).sum();
            assert!((sum - whole[end].as_f64().unwrap()).abs() < 1e-9, "{end}: {by} {whole}");
        }
    }
    let by = json["parts"][0]["cost_by_usd"].as_object().unwrap();
    assert_eq!(by.keys().collect::<Vec<_>>(), ["setup", "training", "checkpoints", "repeated"]);

    let mut text = Vec::new();
    summary::write_plan(&found, (&steps, &book), false, None, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let line = |of: &str| text.lines().find(|line| line.contains(of)).unwrap_or_else(|| panic!("{of}\n{text}"));
    assert!(line("repeated after losses").contains("1.5 h") && line("repeated after losses").contains("$4.62"));
    assert!(line("waiting for a machine").contains("$0.00") && line("waiting for a machine").contains('░'));
    // The bar of the part has all of it, the deadline too.
    let bar = line("1 × a cloud spot");
    assert!("█▓░─┤┊".chars().all(|sign| bar.contains(sign)), "{bar}");
    assert!(text.contains("┊ deadline"));
}
