//! Firm offers first, then those that the user must accept, with the cost if they fail.

use habitat_tui::catalog::Vendor;
use habitat_tui::plan::check::{CheckError, check, check_sources};
use habitat_tui::plan::{
    Accept, Beside, Goal, Instead, Lift, NoPlan, Objective, Plan, Reason, RejectionKind, Risk, Setback, plan,
};
use habitat_tui::predict::Predictions;
use habitat_tui::pricing::{Market, Offer, OfferId, PriceBook, Tier, Trust};
use habitat_tui::profile::Mode;
use habitat_tui::report;
use habitat_tui::report::beside::{bargain as bargain_words, caveats, concessions, verdict};
use habitat_tui::report::words::Words;
use habitat_tui::units::GpuSlug;
use jiff::civil::date;

use crate::batch;
use crate::build::{assert_cents, goal, hours, measured, offer_in, predictions, usd};

/// Ten samples per hour on each of three GPUs: the recording GPU, one of another vendor, and one with an ARM host.
fn steps() -> Predictions {
    let mut all = predictions(["own", "amd", "gh-1"].map(|name| measured(name, 10.0)));
    all.predictions[1].gpu.vendor = Vendor::Amd;
    all.origin = Some(serde_json::from_str(r#"{"gpu": "own"}"#).unwrap());
    all
}

/// An offer with yesterday's price, from a provider named after its region.
fn dated(region: &str, gpu: &str, price: f64, tier: Tier) -> Offer {
    let offer = offer_in(region, gpu, price, tier);
    Offer { provider: region.into(), as_of: Some(date(2026, 11, 20)), ..offer }
}

fn host(region: &str, price: f64) -> Offer {
    Offer { trust: Trust::new(Market::PeerToPeer), ..dated(region, "own", price, Tier::OnDemand) }
}

fn offers() -> PriceBook {
    let book = PriceBook::new([
        dated("firm", "own", 10.0, Tier::OnDemand),
        dated("dear", "own", 12.0, Tier::OnDemand),
        dated("taken", "own", 5.0, Tier::Spot),
        host("flat", 2.5),
        // At less than a third of the others' median.
        host("far", 1.0),
        host("house", 4.0),
        Offer { as_of: None, ..dated("undated", "own", 3.0, Tier::OnDemand) },
        dated("rocm", "amd", 6.0, Tier::OnDemand),
        dated("grace", "gh-1", 7.0, Tier::OnDemand),
        Offer { as_of: None, trust: Trust::new(Market::PeerToPeer), ..dated("both", "amd", 0.5, Tier::Spot) },
    ]);
    book.on(date(2026, 11, 21))
}

/// A hundred samples, with these things accepted.
fn asked(accept: &[Accept]) -> Goal {
    let mut goal = goal(100.0, 1);
    goal.limits.accept = accept.to_vec();
    goal
}

fn planned(goal: &Goal) -> Plan {
    let (steps, offers) = (steps(), offers());
    let plan = plan(&steps, &offers, goal).unwrap();
    assert_eq!((check(&plan), check_sources(&plan, &steps, &offers)), (Ok(()), Ok(())));
    plan
}

fn beside(plan: &Plan, accept: Accept) -> (f64, Option<f64>, String) {
    let one = plan.beside.iter().find(|one| one.accept() == [accept]).unwrap();
    let then = one.then.as_ref().map(|then| then.cost.get());
    (
        one.part.cost.mid.get(),
        then,
        format!("{}; if {}", report::beside::what(one), report::beside::setback_words(one.setback())),
    )
}

#[test]
fn the_plan_is_firm_and_says_what_else_could_be_had() {
    let plan = planned(&asked(&[]));
    assert_eq!(plan.parts[0].offer.provider, "firm");
    assert_cents(plan.total.unwrap().cost.mid, 100.0);
    // Best first; the best of each kind. If it fails, the plan is abandoned: another host can go too.
    let order: Vec<Accept> = plan.beside.iter().flat_map(Beside::accept).collect();
    assert_eq!(order, [Accept::Marketplace, Accept::Doubted, Accept::Platform, Accept::Spot]);
    assert_eq!(
        beside(&plan, Accept::Marketplace),
        (25.0, Some(100.0), "a marketplace host; if that host is gone".into())
    );
    let doubted = "a price in doubt (no date); if that price is gone";
    assert_eq!(beside(&plan, Accept::Doubted), (30.0, Some(100.0), doubted.into()));
    let platform = "ROCm, an AMD GPU; if your program does not run there";
    assert_eq!(beside(&plan, Accept::Platform), (60.0, Some(100.0), platform.into()));
    let (cost, then, words) = beside(&plan, Accept::Spot);
    assert!(cost > 50.0 && cost < 95.0 && then == Some(100.0), "{cost}");
    assert_eq!(words, "a spot machine; if no spot machine is available");
    // An offer that needs several acceptances lists them in its reason.
    assert!(
        plan.rejected.iter().any(|one| {
            one.reason.kind() == RejectionKind::NotAccepted
                && one.reason.words().contains("--accept spot,marketplace,doubted,platform")
        }),
        "{:?}",
        plan.rejected
    );
}

#[test]
fn what_is_accepted_is_planned_with_at_the_cost_that_was_said() {
    let firm = planned(&asked(&[]));
    for one in &firm.beside {
        let plan = planned(&asked(&one.accept()));
        assert_eq!(plan.parts[0].offer, one.part.offer);
        assert_cents(plan.total.unwrap().cost.mid, one.part.cost.mid.get());
        assert!(plan.beside.iter().all(|other| other.accept() != one.accept()));
    }
    // A plan with an offer that was not accepted fails the check.
    for accept in [Accept::Spot, Accept::Marketplace, Accept::Doubted] {
        let mut wrong = planned(&asked(&[accept]));
        wrong.goal.limits.accept.clear();
        assert!(matches!(check(&wrong), Err(CheckError::Offer { .. })), "{accept:?}");
    }
    let all = planned(&asked(&Accept::ALL));
    assert!(all.beside.is_empty() && all.total.unwrap().cost.mid.get() < 20.0);
}

#[test]
fn an_accepted_offer_shows_what_the_work_costs_if_it_fails() {
    let then = |accept: &[Accept]| {
        let fallback = planned(&asked(accept)).fallback.unwrap();
        (fallback.then.unwrap().cost.get().round(), report::beside::setback_words(fallback.setback))
    };
    assert!(planned(&asked(&[])).fallback.is_none());
    assert_eq!(then(&[Accept::Marketplace]), (100.0, "that host is gone"));
    assert_eq!(then(&[Accept::Doubted]), (100.0, "that price is gone"));
    // Of two risks, losing the host comes first.
    assert_eq!(then(&[Accept::Marketplace, Accept::Doubted]), (100.0, "that host is gone"));
    assert_eq!(then(&[Accept::Spot]), (100.0, "no spot machine is available"));
    assert_eq!(then(&[Accept::Platform]), (100.0, "your program does not run there"));
}

/// The only offer in time and within the budget is a host that may go: the firm offer closest to the limits shows which
/// of them it would exceed.
#[test]
fn a_way_out_beyond_the_limits_says_so() {
    let steps = predictions([measured("own", 20.0), measured("slow", 10.0), measured("slowest", 5.0)]);
    let offers = PriceBook::new([
        host("flat", 2.5),
        dated("firm", "slow", 6.0, Tier::OnDemand),
        dated("later", "slowest", 1.0, Tier::OnDemand),
    ]);
    let fails = |deadline: f64, budget: f64| {
        let limits =
            Goal { deadline: Some(hours(deadline)), budget: Some(usd(budget)), ..asked(&[Accept::Marketplace]) };
        let accepted = plan(&steps, &offers.clone().on(date(2026, 11, 21)), &limits).unwrap();
        assert_eq!(accepted.parts[0].offer.provider, "flat");
        let then = accepted.fallback.clone().unwrap().then.unwrap();
        // The same if no firm plan is possible.
        let firm = Goal { limits: asked(&[]).limits, ..limits };
        let firm = plan(&steps, &offers.clone().on(date(2026, 11, 21)), &firm).unwrap();
        let beside = firm.beside[0].then.clone().unwrap();
        assert_eq!((beside.cost, beside.late, beside.over), (then.cost, then.late, then.over));
        (
            then.late.map(|late| late.get().round()),
            then.over.map(|over| over.get().round()),
            caveats(&accepted).into_iter().find(|line| line.starts_with("if that host")).unwrap(),
        )
    };
    let with = "with 1 × slow at firm firm, on-demand";
    let fails_at = |end: &str| format!("if that host is gone: $60.00 in 10 h {with}{end}");
    assert_eq!(fails(8.0, 100.0), (Some(2.0), None, fails_at(" – misses the deadline by 2 h")));
    assert_eq!(fails(12.0, 50.0), (None, Some(10.0), fails_at(" – exceeds the budget by $10.00")));
    let both = fails_at(" – misses the deadline by 2 h and exceeds the budget by $10.00");
    assert_eq!(fails(8.0, 50.0), (Some(2.0), Some(10.0), both));
    assert_eq!(fails(10.0, 60.0), (None, None, fails_at("")));
}

/// Users choose spot to pay less: the plan says if it costs more, and always shows the cost on demand.
#[test]
fn a_tier_that_costs_more_than_another_is_named() {
    let steps = steps();
    let spot = |firm: f64| {
        let book = [dated("firm", "own", firm, Tier::OnDemand), dated("taken", "own", 5.0, Tier::Spot)];
        let mut goal = asked(&[Accept::Spot]);
        goal.limits.tiers = vec![Tier::Spot];
        let plan = plan(&steps, &PriceBook::new(book).on(date(2026, 11, 21)), &goal).unwrap();
        assert_eq!(plan.parts[0].offer.tier, Tier::Spot);
        caveats(&plan)
    };
    let fails = "if no spot machine is available: $40.00 in 10 h with 1 × own at firm firm, on-demand";
    assert_eq!(
        spot(4.0),
        ["cheaper on-demand: $40.00 in 10 h, 1 × own at firm firm, on-demand (--tiers on-demand)", fails]
    );
    assert_eq!(spot(20.0), [fails.replace("$40.00", "$200")]);
}

#[test]
fn a_price_list_in_doubt_is_no_way_out_of_itself() {
    let steps = steps();
    let list = |kind: &str, price| Offer {
        as_of: None,
        id: OfferId::new("undated", "r", kind, Tier::OnDemand),
        ..dated("undated", "own", price, Tier::OnDemand)
    };
    let firm = dated("firm", "own", 10.0, Tier::OnDemand);
    let offers = PriceBook::new([firm, list("a", 4.0), list("b", 4.1)]).on(date(2026, 11, 21));
    let firm = plan(&steps, &offers, &asked(&[])).unwrap();
    let then = |then: &Option<Instead>| then.as_ref().unwrap().cost.get().round();
    assert_eq!(then(&firm.beside[0].then), 100.0);
    let accepted = plan(&steps, &offers, &asked(&[Accept::Doubted])).unwrap();
    assert_eq!(then(&accepted.fallback.unwrap().then), 100.0);
}

#[test]
fn the_platform_is_that_of_the_recording() {
    let cheapest = |recorded: &str| {
        let mut steps = steps();
        steps.origin = Some(serde_json::from_str(&format!(r#"{{"gpu": "{recorded}"}}"#)).unwrap());
        plan(&steps, &offers(), &asked(&[])).unwrap().parts[0].offer.provider.clone()
    };
    assert_eq!(["own", "amd", "gh-1", "unknown"].map(cheapest), ["firm", "rocm", "grace", "firm"]);
}

#[test]
fn what_is_named_is_accepted() {
    let named = |change: &dyn Fn(&mut Goal)| {
        let mut goal = asked(&[]);
        change(&mut goal);
        planned(&goal).parts.first().map(|part| part.offer.provider.clone())
    };
    let own = |name: &str| Some(name.to_owned());
    assert_eq!(named(&|goal| goal.limits.providers = vec!["House".into()]), own("house"));
    // Hosts only if the named providers have no firm offer.
    assert_eq!(named(&|goal| goal.limits.providers = ["house", "firm"].map(Into::into).to_vec()), own("firm"));
    assert_eq!(named(&|goal| goal.limits.providers = vec!["far".into()]), None);
    assert_eq!(named(&|goal| goal.limits.gpus = vec![GpuSlug::new("amd").unwrap()]), own("rocm"));
    // The program may not run there, which the plan says.
    let mut amd = asked(&[]);
    amd.limits.gpus = vec![GpuSlug::new("amd").unwrap()];
    assert_eq!(planned(&amd).fallback.map(|fallback| fallback.setback), Some(Setback::DoesNotRun));
    let undated = dated("undated", "own", 3.0, Tier::OnDemand).id;
    assert_eq!(named(&|goal| goal.limits.offers = vec![undated.to_string()]), own("undated"));
    assert_eq!(named(&|goal| goal.limits.providers = vec!["undated".into()]), None);
}

#[test]
fn without_a_firm_plan_the_offers_that_would_do_are_named() {
    let within = |budget: f64| Goal { budget: Some(usd(budget)), ..asked(&[]) };
    let plan = planned(&within(50.0));
    assert!(plan.parts.is_empty());
    let order: Vec<Accept> = plan.beside.iter().flat_map(Beside::accept).collect();
    assert_eq!(order, [Accept::Marketplace, Accept::Doubted]);
    assert_eq!(beside(&plan, Accept::Doubted).1, Some(100.0));
    // No single change makes a plan of ten dollars: several do.
    let plan = planned(&within(15.0));
    let several: Vec<_> = plan.beside.iter().map(Beside::accept).collect();
    assert_eq!(several, [vec![Accept::Spot, Accept::Marketplace, Accept::Doubted, Accept::Platform]]);
}

#[test]
fn a_little_more_buys_a_lot() {
    let steps = predictions([measured("slow", 10.0), measured("fast", 30.0)]);
    let offers =
        |fast: f64| PriceBook::new([dated("a", "slow", 1.0, Tier::OnDemand), dated("b", "fast", fast, Tier::OnDemand)]);
    let goal = asked(&Accept::ALL);
    let bargain = |price: f64, goal: &Goal| plan(&steps, &offers(price), goal).unwrap().bargain;
    // Ten dollars in ten hours; three and a third hours for a fifth more.
    let found = bargain(3.6, &goal).unwrap();
    assert_cents(found.cost.mid, 12.0);
    // The suggested flag gives that plan.
    let said = |goal: &Goal, price: f64| bargain_words(&plan(&steps, &offers(price), goal).unwrap()).unwrap();
    assert!(said(&goal, 3.6).ends_with("(--deadline 3.4h)"), "{}", said(&goal, 3.6));
    let sooner = Goal { deadline: Some(hours(3.4)), ..goal.clone() };
    assert_eq!(plan(&steps, &offers(3.6), &sooner).unwrap().parts[0].offer, found.offer);
    assert!(bargain(3.9, &goal).is_none() && bargain(2.9, &goal).is_none());
    assert!(bargain(3.6, &Goal { budget: Some(usd(11.0)), ..goal.clone() }).is_none());
    // The reverse, if time is the objective: a quarter later at half the cost.
    let steps = predictions([measured("slow", 10.0), measured("fast", 12.0)]);
    let goal = Goal { objective: Objective::Time, deadline: Some(hours(20.0)), ..goal };
    let fastest = plan(&steps, &offers(3.0), &goal).unwrap();
    assert_cents(fastest.bargain.as_ref().unwrap().cost.mid, 10.0);
    assert!(bargain_words(&fastest).unwrap().ends_with("(--budget 10.00)"));
    let cheaper = Goal { budget: Some(usd(10.0)), ..goal };
    assert_eq!(plan(&steps, &offers(3.0), &cheaper).unwrap().parts[0].offer, fastest.bargain.unwrap().offer);
}

#[test]
fn without_a_deadline_a_plan_of_years_gives_way_to_a_shorter_one() {
    let steps = predictions([measured("slow", 10.0), measured("fast", 30.0)]);
    let book =
        |fast: f64| PriceBook::new([dated("a", "slow", 1.0, Tier::OnDemand), dated("b", "fast", fast, Tier::OnDemand)]);
    let years = |goal: Goal, fast: f64| plan(&steps, &book(fast), &goal).unwrap();
    let goal = |hours: f64| {
        let mut goal = goal(10.0 * hours, 1);
        goal.limits.accept = Accept::ALL.to_vec();
        goal
    };
    // 10,000 h for $10,000, or a third of them for a fifth more.
    let short = years(goal(10_000.0), 3.6);
    assert_cents(short.total.unwrap().cost.mid, 12_000.0);
    let longer = short.longer.as_ref().unwrap();
    assert_cents(longer.cost, 10_000.0);
    assert!((longer.hours.mid.get() - 10_000.0).abs() < 1e-6, "{longer:?}");
    let slow = short
        .rejected
        .iter()
        .find(|one| one.offer.as_str().contains("/a/"))
        .unwrap_or_else(|| panic!("{:?}", short.rejected));
    assert!(matches!(slow.reason, Reason::TooLong { .. }), "{:?}", slow.reason);
    // The suggested flag gives the cheapest plan again.
    let flag = concessions(&short)[0].rsplit_once("--deadline ").unwrap().1.trim_end_matches("d)").to_owned();
    let flag = 24.0 * flag.parse::<f64>().unwrap();
    let patient = years(Goal { deadline: Some(hours(flag)), ..goal(10_000.0) }, 3.6);
    assert_cents(patient.total.unwrap().cost.mid, 10_000.0);
    // Not below 60 days, not for more than a quarter, not above the budget, and not if time is the objective.
    assert!(years(goal(1_440.0), 3.6).longer.is_none());
    assert!(years(goal(10_000.0), 3.9).longer.is_none());
    assert!(years(Goal { budget: Some(usd(11_000.0)), ..goal(10_000.0) }, 3.6).longer.is_none());
    assert!(years(Goal { objective: Objective::Time, ..goal(10_000.0) }, 3.6).longer.is_none());
}

#[test]
fn the_recorded_batch_is_kept_and_another_is_a_choice() {
    // 32 samples in 0.36 s, 4 in 0.09 s: eight GPUs keep the batch, at four samples each.
    let steps = batch::at(&[(4, 0.09)]);
    let offers = PriceBook::new([1, 8].map(|count| Offer {
        gpu_count: count,
        ..dated(&format!("of-{count}"), "good", f64::from(count) * if count == 8 { 0.3 } else { 1.0 }, Tier::OnDemand)
    }));
    let offers = offers.on(date(2026, 11, 21));
    let goal = Goal { assumptions: goal(1.0, 1).assumptions, ..asked(&[]) };
    let goal = Goal { work: habitat_tui::plan::Work::Steps(10_000), objective: Objective::Time, ..goal };
    let plan = |goal: &Goal| {
        let plan = plan(&steps, &offers, goal).unwrap();
        assert_eq!((check(&plan), check_sources(&plan, &steps, &offers)), (Ok(()), Ok(())));
        plan
    };
    let kept = plan(&goal);
    let part = &kept.parts[0];
    assert_eq!((part.all_gpus(), part.batch_size, part.global_batch_size), (8, Some(4), Some(32)));
    assert!((part.updates() - 10_000.0).abs() < 1e-6);
    // With a batch of 32 on each GPU there is an eighth of the updates; the same number takes eight times as long.
    let other = &kept.beside[0];
    assert_eq!((other.accept().as_slice(), other.part.global_batch_size), ([Accept::Batch].as_slice(), Some(256)));
    assert_eq!(other.risks, [Risk::Batch(Some(256))]);
    assert!((other.part.updates() - 1250.0).abs() < 1e-6);
    let then = other.then.as_ref().unwrap().hours.mid;
    assert!((then.get() / other.part.hours.mid.get() - 8.0).abs() < 1e-9);
    let mut free = goal.clone();
    free.limits.accept = vec![Accept::Batch];
    let accepted = plan(&free);
    assert_eq!(accepted.parts[0].global_batch_size, Some(256));
    // Once accepted, it still shows the time for the same number of updates.
    let fallback = accepted.fallback.as_ref().unwrap();
    assert_eq!(
        (fallback.setback, fallback.then.as_ref().map(|then| then.hours.mid)),
        (Setback::SameUpdates, Some(then))
    );
    assert!(verdict(&accepted).unwrap().contains(", a global batch of 256: "), "{:?}", verdict(&accepted));
    // Inference has no updates, and a step recorded on several GPUs does not show its global batch.
    let [mut inference, mut communicates] = [&steps, &steps].map(Clone::clone);
    (inference.workload.mode, communicates.communicates) = (Mode::Inference, true);
    for steps in [inference, communicates] {
        let plan = habitat_tui::plan::plan(&steps, &offers, &free).unwrap();
        assert!(plan.parts[0].all_gpus() == 8 && plan.fallback.is_none(), "{:?}", plan.fallback);
    }
    // Neither the recorded batch nor one machine is fast enough: both limits must change.
    let soon = plan(&Goal { deadline: Some(hours(0.5 * other.part.hours.mid.get())), ..goal.clone() });
    let change = soon.reasons.iter().find_map(|reason| match reason {
        NoPlan::OtherLimit { change: change @ Lift::BatchOnMachines(_), hours, .. } => Some((change.words(), *hours)),
        _ => None,
    });
    let (words, found) = change.unwrap_or_else(|| panic!("{:?}", soon.reasons));
    assert!(words.starts_with("allow a larger global batch on ") && words.contains("--accept batch --max-machines "));
    assert!(found.get() <= 0.5 * other.part.hours.mid.get(), "{words} {found:?}");
    assert!(
        plan(&Goal { deadline: Some(hours(1e-6)), ..free.clone() })
            .reasons
            .iter()
            .all(|reason| !matches!(reason, NoPlan::OtherLimit { change: Lift::BatchOnMachines(_), .. }))
    );
    // A step that communicates with other GPUs has a share of an unknown batch.
    let shared = Predictions { communicates: true, ..steps.clone() };
    let plan = habitat_tui::plan::plan(&shared, &offers, &goal).unwrap();
    assert_eq!(plan.parts[0].global_batch_size, Some(256));
}
