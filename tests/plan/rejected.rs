//! Every offer is used or rejected with numbers in the reason; and missing information in the goal.

use std::sync::Arc;

use habitat_tui::plan::check::{CheckError, check, check_sources};
use habitat_tui::plan::{Amount, Goal, Plan, PlanError, PlanStatus, Prepared, Quota, RejectionKind, Work, plan};
use habitat_tui::predict::Fits;
use habitat_tui::predict::memory::MemoryBasis;
use habitat_tui::predict::scale::LayoutFactors;
use habitat_tui::pricing::{Market, Offer, OfferId, PriceBook, Tier, Trust, Unusable};
use habitat_tui::report::words::Words;
use habitat_tui::units::{Bytes, GIB, GpuSlug, Hours, Samples, Usd, UsdPerHour};

use crate::build::{configurations, goal, hours, measured, offer, offer_in, predictions, rejected, told, usd};

/// Without a plan, the least late offer comes first, with the deadline that it would meet.
#[test]
fn the_closest_offers_come_first() {
    let predictions = predictions([measured("slow", 1.0), measured("faster", 2.0), measured("fast", 3.0)]);
    let prices = PriceBook::new(["slow", "fast", "faster"].map(|name| offer(name, 1.0, Tier::OnDemand)));
    let goal = Goal { deadline: Some(hours(3.0)), ..goal(12.0, 1) };
    let plan = plan(&predictions, &prices, &goal).unwrap();
    let shown: Vec<String> = plan
        .closest_rejected()
        .iter()
        .map(|place| &plan.rejected[*place])
        .map(|one| format!("{} {}", one.offer.as_str().split('/').nth(2).unwrap_or_default(), one.reason.words()))
        .collect();
    let [fast, faster, slow] = &shown[..] else { panic!("{shown:?}") };
    assert!(fast.starts_with("fast takes") && fast.ends_with("(--deadline 4.0h)"), "{fast}");
    assert!(faster.starts_with("faster takes") && slow.starts_with("slow takes"), "{shown:?}");
}

/// One offer for each reason; the plan is `good`.
#[test]
fn each_offer_is_used_or_shown_or_has_a_reason() {
    let mut large = measured("large", 10.0);
    large.memory.fits = Fits::No;
    large.memory.needed = Bytes::new(18.2 * GIB).ok();
    let mut unsure = measured("unsure", 10.0);
    unsure.memory.fits = Fits::Unknown;
    unsure.memory.basis = MemoryBasis::Unknown;
    let predictions = predictions([
        measured("good", 4.0),
        measured("slow", 0.5),
        measured("dear", 4.0),
        measured("second", 4.0),
        large,
        unsure,
    ]);
    let offers: Vec<Offer> = vec![
        Offer { unusable: Some(Unusable::Suspect { why: "below list".into() }), ..offer("good", 0.1, Tier::Reserved) },
        Offer { gpu: None, gpu_name: "Mystery 9000".into(), ..offer("mystery", 1.0, Tier::OnDemand) },
        offer("unpredicted", 1.0, Tier::OnDemand),
        offer("large", 1.0, Tier::OnDemand),
        offer("unsure", 1.0, Tier::OnDemand),
        Offer { gpu_count: 2, ..offer_in("eu-1", "good", 2.0, Tier::OnDemand) },
        offer_in("mars-1", "good", 0.5, Tier::OnDemand),
        offer("slow", 0.01, Tier::OnDemand),
        offer("dear", 100.0, Tier::OnDemand),
        offer("second", 2.5, Tier::OnDemand),
        offer_in("us-2", "good", 3.0, Tier::OnDemand),
        offer("good", 2.0, Tier::OnDemand),
    ];
    let prices = PriceBook::new(offers);
    let mut goal = Goal { deadline: Some(hours(4.0)), budget: Some(usd(50.0)), ..goal(12.0, 1) };
    goal.limits.regions = vec!["us-".into(), "eu-".into()];
    let plan = plan(&predictions, &prices, &goal).unwrap();

    assert_eq!(plan.parts[0].offer.id.as_str(), "cloud/us-1/good/on-demand");
    let shown: Vec<&str> = plan.alternatives.iter().map(|part| part.offer.id.as_str()).collect();
    assert_eq!(shown, ["cloud/us-1/second/on-demand"]);
    let expected = [
        (RejectionKind::UnusablePrice, "suspect price: below list"),
        (RejectionKind::UnknownGpu, "GPU not in the catalog, or ambiguous: Mystery 9000"),
        (RejectionKind::NoPrediction, "no prediction for unpredicted"),
        (RejectionKind::Memory, "needs 18.2 GB; the GPU has 14.7 of 16 GB available"),
        (
            RejectionKind::MemoryUnknown,
            "unknown whether it fits: no recorded peak, and too few shapes or parameters to estimate one",
        ),
        (RejectionKind::NoPrediction, "2 GPUs: unknown parameter count and gradient size; pass --parameters"),
        (RejectionKind::Limits, "region mars-1 is not among the allowed ones"),
        (RejectionKind::Deadline, "takes up to 24 h, misses the deadline by 20 h (--deadline 24.0h)"),
        (RejectionKind::Budget, "costs $300.00, $250.00 more than the budget (--budget 300.00)"),
        (RejectionKind::Dominated, "costs $9.00 in 3 h, $3.00 more than the plan"),
    ];
    assert_eq!(rejected(&plan), expected.map(|(kind, said)| (kind, said.to_owned())));
    assert_eq!(plan.rejected.len() + plan.alternatives.len() + plan.parts.len(), prices.offers().len());
}

#[test]
fn every_limit_rejects_what_it_names() {
    let predictions = predictions([measured("good", 4.0)]);
    let prices = PriceBook::new([offer("good", 2.0, Tier::OnDemand)]);
    let rejected = |change: &dyn Fn(&mut Goal)| {
        let mut goal = goal(12.0, 1);
        change(&mut goal);
        let plan = plan(&predictions, &prices, &goal).unwrap();
        assert_eq!((plan.status, plan.rejected[0].reason.kind()), (PlanStatus::Infeasible, RejectionKind::Limits));
        // The nearest miss of the filter is among the reasons.
        assert!(
            told(&plan.reasons).iter().any(|reason| reason.contains(&plan.rejected[0].reason.words())),
            "{:?}",
            plan.reasons
        );
        plan.rejected[0].reason.words()
    };
    assert_eq!(rejected(&|g| g.limits.tiers = vec![Tier::Spot]), "on-demand offers are not allowed");
    assert!(rejected(&|g| g.limits.gpus = vec!["other".to_owned().try_into().unwrap()]).contains("good is not among"));
    assert!(rejected(&|g| g.limits.providers = vec!["aws".into()]).contains("cloud is not among"));
    assert_eq!(rejected(&|g| g.limits.exclude_providers = vec!["Cloud".into()]), "cloud is excluded");
    assert_eq!(rejected(&|g| g.limits.exclude_gpus = vec![GpuSlug::new("good").unwrap()]), "good is excluded");
    assert_eq!(rejected(&|g| g.limits.exclude_regions = vec!["us".into()]), "region us-1 is excluded (us)");
    assert_eq!(rejected(&|g| g.limits.offers = vec!["cloud/x".into()]), "not among the requested offers");
    assert_eq!(rejected(&|g| g.limits.min_vcpus = Some(8)), "unknown vCPUs (allow it with --allow-unknown-host)");
    let quota =
        |gpus| Quota { provider: "Cloud".into(), region: None, gpu: None, tier: None, gpus, from: None, until: None };
    assert_eq!(rejected(&|g| g.limits.quotas = vec![quota(0)]), "1 GPUs, more than the quota of 0 at Cloud");
    assert_eq!(rejected(&|g| g.limits.min_gpus = 2), "1 GPUs, fewer than the required 2");
    assert_eq!(rejected(&|g| g.limits.max_gpus = Some(0)), "1 GPUs, more than the allowed 0");
    assert_eq!(rejected(&|g| g.limits.max_price = UsdPerHour::new(1.5).ok()), "$2.00/h, more than the allowed $1.50/h");
}

/// Dates of test offers, except the first, which is from a marketplace and has none.
fn with_a_marketplace(cheap: &str, rest: &[(&str, f64)]) -> PriceBook {
    let mut market = offer(cheap, 1.0, Tier::OnDemand);
    market.trust = Trust::new(Market::PeerToPeer);
    let dated = |(gpu, price): &(&str, f64)| Offer {
        as_of: Some(jiff::civil::date(2026, 11, 1)),
        ..offer(gpu, *price, Tier::OnDemand)
    };
    PriceBook::new([Offer { as_of: None, ..market }].into_iter().chain(rest.iter().map(dated)))
}

#[test]
fn offers_of_marketplaces_can_be_left_out() {
    let predictions = predictions([measured("cheap", 4.0), measured("good", 4.0)]);
    let prices = with_a_marketplace("cheap", &[("good", 2.0)]);
    let mut goal = goal(12.0, 1);
    assert_eq!(plan(&predictions, &prices, &goal).unwrap().parts[0].gpu.as_str(), "cheap");
    goal.limits.no_marketplace = true;
    let plan = plan(&predictions, &prices, &goal).unwrap();
    assert_eq!(plan.parts[0].gpu.as_str(), "good");
    assert_eq!(plan.rejected[0].reason.words(), "hosts on peer-to-peer markets are excluded");
    assert!(!told(&plan.notes).iter().any(|note| note.contains("dated price")), "{:?}", plan.notes);
}

#[test]
fn what_may_not_fit_can_be_allowed() {
    let mut unsure = measured("unsure", 10.0);
    unsure.memory.fits = Fits::Unknown;
    let prices = PriceBook::new([offer("unsure", 1.0, Tier::OnDemand)]);
    let mut goal = goal(12.0, 1);
    goal.limits.allow_unknown_memory = true;
    let plan = plan(&predictions([unsure]), &prices, &goal).unwrap();
    assert_eq!(plan.status, PlanStatus::Optimal);
    assert!(
        told(&plan.parts[0].notes).iter().any(|note| note.contains("unknown whether")),
        "{:?}",
        plan.parts[0].notes
    );
}

/// Alternatives are the best of each GPU, provider and tier, at most eight, best first.
#[test]
fn alternatives_differ_from_each_other() {
    let names: Vec<String> = (0..12).map(|index| format!("gpu-{index:02}")).collect();
    let predictions = predictions(names.iter().map(|name| measured(name, 1.0)));
    let prices = PriceBook::new(names.iter().enumerate().flat_map(|(index, name)| {
        let price = 1.0 + index as f64;
        ["a", "b", "c"].map(|region| offer_in(region, name, price, Tier::OnDemand))
    }));
    let plan = plan(&predictions, &prices, &goal(1.0, 1)).unwrap();
    let shown: Vec<&str> = plan.alternatives.iter().map(|part| part.gpu.as_str()).collect();
    assert_eq!(shown, ["gpu-01", "gpu-02", "gpu-03", "gpu-04", "gpu-05", "gpu-06", "gpu-07", "gpu-08"]);
    assert_eq!(plan.rejected.len(), 36 - 1 - 8);
}

#[test]
fn work_is_samples_steps_epochs_or_tokens() {
    let (mut predictions, prices) = configurations(&[(100.0, 1.0)]);
    predictions.workload.batch_size = Some(8);
    predictions.workload.sequence_length = Some(128);
    let samples = |work| plan(&predictions, &prices, &Goal { work, ..goal(1.0, 1) }).unwrap().work.get();
    assert_eq!(samples(Work::Samples(Samples::new(12.0).unwrap())), 12.0);
    assert_eq!(samples(Work::Steps(100)), 800.0);
    assert_eq!(samples(Work::Epochs { epochs: 2.5, dataset: Samples::new(1000.0).unwrap() }), 2500.0);
    assert_eq!(samples(Work::Tokens(12_800.0)), 100.0);
}

#[test]
fn what_the_goal_lacks_is_an_error_that_names_the_remedy() {
    let (mut predictions, prices) = configurations(&[(1.0, 1.0)]);
    let error = |predictions: &_, goal: &Goal| plan(predictions, &prices, goal).unwrap_err();
    let tokens = Goal { work: Work::Tokens(1e6), ..goal(1.0, 1) };
    assert_eq!(error(&predictions, &tokens), PlanError::NoSequenceLength);
    assert!(error(&predictions, &tokens).to_string().contains("--sequence-length"));
    for work in [Work::Steps(0), Work::Tokens(f64::NAN), Work::Epochs { epochs: -1.0, dataset: Samples::ZERO }] {
        let mut with_length = predictions.clone();
        with_length.workload.sequence_length = Some(1);
        assert!(matches!(error(&with_length, &Goal { work, ..goal(1.0, 1) }), PlanError::Work(_)), "{work:?}");
    }
    assert_eq!(error(&predictions, &goal(1.0, 0)), PlanError::NoParts);
    for confidence in [0.0, 1.0, f64::NAN] {
        let mut wrong = goal(1.0, 1);
        wrong.assumptions.spot_confidence = confidence;
        assert!(matches!(error(&predictions, &wrong), PlanError::Assumption { name: "spot confidence", .. }));
    }
    let mut wrong = goal(1.0, 1);
    wrong.assumptions.layout_factors = Some(LayoutFactors { exchange: 12.0, ..LayoutFactors::NONE });
    assert!(error(&predictions, &wrong).to_string().contains("exchange factor: 12 is not 0.1 to 10"));
    let mut wrong = goal(1.0, 1);
    wrong.assumptions.checkpoint_interval = Hours::ZERO;
    assert!(error(&predictions, &wrong).to_string().contains("checkpoint interval: 0 is not more than 0 hours"));
    predictions.workload.batch_size = None;
    for work in [
        Work::Samples(Samples::new(1e4).unwrap()),
        Work::Tokens(1e4),
        Work::Epochs { epochs: 1.0, dataset: Samples::new(1e4).unwrap() },
    ] {
        let said = error(&predictions, &Goal { work, ..goal(1.0, 1) }).to_string();
        assert!(said.contains("--batch-size") && said.contains("--steps"), "{said}");
    }
    assert!(matches!(error(&predictions, &Goal { work: Work::Steps(0), ..goal(1.0, 1) }), PlanError::Work(_)));
}

/// A number of steps takes its time, whatever the step contains.
#[test]
fn steps_need_no_batch_size() {
    let (mut predictions, prices) = configurations(&[(1.0, 1.0), (2.0, 3.0)]);
    for (deadline, max_parts) in [(None, 1), (Some(hours(9.0)), 2)] {
        let goal = Goal { work: Work::Steps(12), deadline, ..goal(1.0, max_parts) };
        predictions.workload.batch_size = Some(1);
        let known = plan(&predictions, &prices, &goal).unwrap();
        predictions.workload.batch_size = None;
        let unknown = plan(&predictions, &prices, &goal).unwrap();
        assert_eq!((unknown.status, unknown.total), (known.status, known.total));
        assert_eq!((known.work, unknown.work), (Amount::Samples(Samples::new(12.0).unwrap()), Amount::Steps(12.0)));
        assert_eq!((check(&unknown), check_sources(&unknown, &predictions, &prices)), (Ok(()), Ok(())));
        assert!(unknown.parts.iter().all(|part| part.batch_size.is_none() && part.work.steps().is_some()));
        assert!(told(&unknown.notes).iter().any(|note| note.contains("counted in steps")), "{:?}", unknown.notes);
        // The check finds a part that claims samples.
        let mut wrong = unknown.clone();
        wrong.parts[0].work = Amount::Samples(Samples::new(wrong.parts[0].work.get()).unwrap());
        assert!(matches!(check(&wrong), Err(CheckError::Offer { .. })));
    }
}

#[test]
fn nothing_to_choose_from_is_no_plan_and_no_error() {
    for max_parts in [1, 2] {
        let (predictions, _) = configurations(&[(1.0, 1.0)]);
        let plan = plan(&predictions, &PriceBook::default(), &goal(1.0, max_parts)).unwrap();
        assert_eq!(plan.status, PlanStatus::Infeasible);
        assert_eq!(told(&plan.reasons), ["no offer can be used"]);
        let prepared = Prepared::new(&predictions, &PriceBook::default(), &goal(1.0, max_parts)).unwrap();
        assert!(prepared.frontier().is_empty());
    }
}

/// The checker finds each kind of wrong plan.
#[test]
fn a_wrong_plan_does_not_pass_the_check() {
    let (predictions, prices) = configurations(&[(1.0, 1.0), (2.0, 3.0)]);
    let goal = Goal { deadline: Some(hours(9.0)), budget: Some(usd(20.0)), ..goal(12.0, 2) };
    let good = plan(&predictions, &prices, &goal).unwrap();
    assert_eq!(good.parts.len(), 2);
    assert_eq!((check(&good), check_sources(&good, &predictions, &prices)), (Ok(()), Ok(())));
    let broken = |change: &dyn Fn(&mut habitat_tui::plan::Plan)| {
        let mut plan = good.clone();
        change(&mut plan);
        check(&plan).and_then(|()| check_sources(&plan, &predictions, &prices)).unwrap_err()
    };
    assert!(matches!(broken(&|p| p.goal.deadline = Some(hours(8.0))), CheckError::Deadline { .. }));
    assert!(matches!(broken(&|p| p.goal.budget = Some(usd(14.0))), CheckError::Budget { .. }));
    assert!(matches!(broken(&|p| p.goal.max_parts = 1), CheckError::Parts { found: 2, allowed: 1 }));
    assert!(matches!(broken(&|p| p.work = Amount::Samples(Samples::new(13.0).unwrap())), CheckError::Work { .. }));
    assert!(matches!(broken(&|p| p.parts[0].cost.mid = Usd::ZERO), CheckError::Number { .. }));
    assert!(matches!(broken(&|p| p.parts[0].hours.high = hours(100.0)), CheckError::Number { .. }));
    assert!(matches!(broken(&|p| p.total = None), CheckError::Parts { .. }));
    assert!(matches!(broken(&|p| p.goal.limits.max_gpus = Some(0)), CheckError::Offer { .. }));
    assert!(matches!(broken(&|p| p.goal.limits.tiers.clear()), CheckError::Offer { .. }));
    let other = OfferId::new("cloud", "us-1", "gpu-9", Tier::OnDemand);
    assert!(matches!(broken(&|p| Arc::make_mut(&mut p.parts[0].offer).id = other.clone()), CheckError::Offer { .. }));

    let (_, dearer) = configurations(&[(1.0, 1.5), (2.0, 3.5)]);
    assert!(matches!(check_sources(&good, &predictions, &dearer), Err(CheckError::Number { .. })));
    let (slower, _) = configurations(&[(0.9, 1.0), (1.9, 3.0)]);
    assert!(matches!(check_sources(&good, &slower, &prices), Err(CheckError::Number { .. })));
}

/// Requirements on a host, for the whole machine, with known and unknown values.
#[test]
fn small_hosts_are_left_out_and_unknown_ones_unless_allowed() {
    let predictions = predictions([measured("known", 1.0), measured("unknown", 1.0)]);
    let host = |vcpus: f64, gib: f64| Offer {
        vcpus: Some(vcpus),
        host_memory: Bytes::new(gib * GIB).ok(),
        ..offer("known", 1.0, Tier::OnDemand)
    };
    let unknown = offer("unknown", 0.5, Tier::OnDemand);
    let planned = |known: Offer, least: (u32, f64), allowed: bool| {
        let mut goal = goal(10.0, 1);
        goal.limits.min_vcpus = Some(least.0);
        goal.limits.min_host_memory = Bytes::new(least.1 * GIB).ok();
        goal.limits.allow_unknown_host = allowed;
        plan(&predictions, &PriceBook::new([known, unknown.clone()]), &goal).unwrap()
    };
    let of = |plan: &Plan| plan.parts.first().map(|part| part.gpu.to_string());
    assert_eq!(of(&planned(host(8.0, 64.0), (8, 64.0), false)).as_deref(), Some("known"));
    assert_eq!(of(&planned(host(8.0, 64.0), (8, 64.0), true)).as_deref(), Some("unknown"));
    let few = planned(host(6.0, 64.0), (8, 64.0), false);
    assert_eq!(of(&few), None);
    assert_eq!(few.rejected[0].reason.words(), "6 vCPUs, fewer than the required 8");
    let little = planned(host(8.0, 30.0), (8, 64.0), false);
    assert_eq!(little.rejected[0].reason.words(), "30 GB of host memory, fewer than the required 64");
    assert_eq!(little.rejected[0].reason.kind(), RejectionKind::Limits);

    // The checker does not rely on the filters.
    let mut smuggled = planned(host(8.0, 64.0), (8, 64.0), false);
    smuggled.goal.limits.min_vcpus = Some(9);
    let book = PriceBook::new([host(8.0, 64.0)]);
    assert!(matches!(check_sources(&smuggled, &predictions, &book), Err(CheckError::Offer { .. })));
}

/// A quota applies if all its fields match, and the reason names it.
#[test]
fn quotas_hold_by_provider_region_gpu_and_tier() {
    let predictions = predictions([measured("gpu-0", 1.0)]);
    let of = |region: &str, tier: Tier| offer_in(region, "gpu-0", 1.0, tier);
    let quota =
        Quota { provider: "cloud".into(), region: None, gpu: None, tier: None, gpus: 0, from: None, until: None };
    let kept = |quotas: &[&Quota]| -> Vec<String> {
        let book = PriceBook::new([of("us-1", Tier::OnDemand), of("us-1", Tier::Spot), of("eu-1", Tier::OnDemand)]);
        let mut goal = goal(10.0, 1);
        goal.limits.quotas = quotas.iter().copied().cloned().collect();
        let plan = plan(&predictions, &book, &goal).unwrap();
        let left_out = |offer: &Offer| {
            plan.rejected.iter().any(|one| one.offer == offer.id && one.reason.kind() == RejectionKind::Limits)
        };
        book.offers().iter().filter(|offer| !left_out(offer)).map(|offer| offer.id.to_string()).collect()
    };
    let [us, spot, eu] =
        ["cloud/us-1/gpu-0/on-demand", "cloud/us-1/gpu-0/spot", "cloud/eu-1/gpu-0/on-demand"].map(str::to_owned);
    assert_eq!(kept(&[&quota]), [""; 0]);
    assert_eq!(kept(&[&Quota { gpus: 1, ..quota.clone() }]), [us.clone(), spot.clone(), eu.clone()]);
    assert_eq!(kept(&[&Quota { region: Some("us".into()), ..quota.clone() }]), [eu.as_str()]);
    assert_eq!(kept(&[&Quota { tier: Some(Tier::Spot), ..quota.clone() }]), [us.clone(), eu.clone()]);
    let other = GpuSlug::new("gpu-1").unwrap();
    assert_eq!(kept(&[&Quota { gpu: Some(other), ..quota.clone() }]), [us, spot, eu]);

    // The checker does not rely on the filter.
    let book = PriceBook::new([of("us-1", Tier::OnDemand)]);
    let mut smuggled = plan(&predictions, &book, &goal(10.0, 1)).unwrap();
    smuggled.goal.limits.quotas = vec![quota];
    assert!(matches!(check(&smuggled), Err(CheckError::Offer { .. })));
}

/// $10 for 10 hours against $12 for 4, half an hour of set-up each: at $3 × 10.5 / 13.5 per hour, or with steps that
/// take 3 hours instead of 4, the second is as cheap.
#[test]
fn what_would_make_the_next_best_the_best() {
    let predictions = predictions([measured("slow", 1.0), measured("fast", 2.5)]);
    let prices = PriceBook::new([offer("slow", 1.0, Tier::OnDemand), offer("fast", 3.0, Tier::OnDemand)]);
    let mut wanted = goal(10.0, 1);
    wanted.assumptions.setup = hours(0.5);
    let notes = told(&plan(&predictions, &prices, &wanted).unwrap().notes);
    let note = notes.iter().find(|note| note.starts_with("the next best")).unwrap();
    assert_eq!(
        note,
        "the next best, cloud/us-1/fast/on-demand, would match at $2.333/h (now $3.000) or with a step 25 % shorter"
    );
    assert!(notes.iter().all(|note| !note.contains("rarely last")));
    let years = plan(&predictions, &prices, &goal(20_000.0, 1)).unwrap();
    assert!(told(&years.notes).iter().any(|note| note.contains("the plan takes") && note.contains("--min-gpus")));
}

/// An offer, the limit that excludes it, and the message.
type Limited = (Offer, fn(&mut Goal), &'static str);

/// If a single limit on offers is in the way, it is named, with a sufficient value.
#[test]
fn a_limit_that_stands_in_the_way_is_named() {
    let known = |price, tier| Offer {
        vcpus: Some(8.0),
        host_memory: Bytes::new(64.0 * GIB).ok(),
        ..offer("good", price, tier)
    };
    let host = Offer { trust: Trust::new(Market::PeerToPeer), ..known(3.0, Tier::OnDemand) };
    let cases: [Limited; 13] = [
        (
            known(3.0, Tier::Owned),
            |goal| goal.limits.tiers = vec![Tier::Spot],
            "allow other purchase options, without --tiers",
        ),
        (
            known(3.0, Tier::OnDemand),
            |goal| goal.limits.gpus = vec![GpuSlug::new("bad").unwrap()],
            "allow other GPUs, without --gpus",
        ),
        (
            known(3.0, Tier::OnDemand),
            |goal| goal.limits.exclude_gpus = vec![GpuSlug::new("good").unwrap()],
            "allow the excluded GPUs, without --exclude-gpus",
        ),
        (
            known(3.0, Tier::OnDemand),
            |goal| goal.limits.providers = vec!["x".into()],
            "allow other providers, without --providers",
        ),
        (
            known(3.0, Tier::OnDemand),
            |goal| goal.limits.exclude_providers = vec!["cloud".into()],
            "allow the excluded providers, without --exclude-providers",
        ),
        (
            known(3.0, Tier::OnDemand),
            |goal| goal.limits.regions = vec!["eu".into()],
            "allow other regions, without --regions",
        ),
        (
            known(3.0, Tier::OnDemand),
            |goal| goal.limits.exclude_regions = vec!["us".into()],
            "allow the excluded regions, without --exclude-regions",
        ),
        (
            known(3.0, Tier::OnDemand),
            |goal| goal.limits.offers = vec!["a/b".into()],
            "allow other offers, without --offer",
        ),
        (
            host,
            |goal| goal.limits.no_marketplace = true,
            "allow hosts on peer-to-peer markets, without --no-marketplace",
        ),
        (
            known(3.0, Tier::OnDemand),
            |goal| goal.limits.max_price = UsdPerHour::new(2.0).ok(),
            "allow $3.00/h (--max-price)",
        ),
        (known(3.0, Tier::OnDemand), |goal| goal.limits.min_vcpus = Some(16), "allow 8 vCPUs (--min-vcpus)"),
        (
            known(3.0, Tier::OnDemand),
            |goal| goal.limits.min_host_memory = Bytes::new(128.0 * GIB).ok(),
            "allow 64 GB of host memory (--min-host-memory)",
        ),
        (
            offer("good", 3.0, Tier::OnDemand),
            |goal| goal.limits.min_vcpus = Some(4),
            "allow machines with an unknown host (--allow-unknown-host)",
        ),
    ];
    let predictions = predictions([measured("good", 4.0)]);
    for (offer, limit, words) in cases {
        let label = format!("1 × good at cloud us-1, {}", offer.tier);
        let prices = PriceBook::new([offer]);
        let mut limited = Goal { deadline: Some(hours(4.0)), budget: Some(usd(50.0)), ..goal(12.0, 1) };
        limit(&mut limited);
        let none = plan(&predictions, &prices, &limited).unwrap();
        assert_eq!(
            told(&none.reasons)[..2],
            ["no offer can be used".to_owned(), format!("{words} ({label}, 3 h, $9.00)")]
        );
        // Lifting it does not help if the deadline is in the way as well.
        limited.deadline = Some(hours(2.0));
        let none = plan(&predictions, &prices, &limited).unwrap();
        assert!(!told(&none.reasons).iter().any(|reason| reason.starts_with("allow ")), "{:?}", none.reasons);
    }
}

/// For numeric limits, names the least change that suffices: with it there is a plan, with less there is none.
#[test]
fn the_least_change_of_a_number_is_named() {
    let mut predictions = predictions([measured("good", 4.0)]);
    predictions.workload.parameter_count = Some(1000);
    let several = |gpu_count: u32| Offer {
        id: OfferId::new("cloud", "us-1", &gpu_count.to_string(), Tier::OnDemand),
        gpu_count,
        ..offer("good", f64::from(gpu_count), Tier::OnDemand)
    };
    let prices = PriceBook::new([1, 2, 4, 8].map(several));
    // 3 h on one GPU.
    let by = |limits: &dyn Fn(&mut Goal)| {
        let mut goal = Goal { deadline: Some(hours(1.0)), ..goal(12.0, 1) };
        limits(&mut goal);
        plan(&predictions, &prices, &goal).unwrap()
    };
    let says = |plan: &Plan, words: &str| told(&plan.reasons).iter().any(|reason| reason.starts_with(words));
    let quota =
        |gpus| Quota { provider: "cloud".into(), region: None, gpu: None, tier: None, gpus, from: None, until: None };
    for few in [1, 2] {
        assert!(says(
            &by(&|goal| goal.limits.max_gpus = Some(few)),
            "allow up to 4 GPUs (--max-gpus) (4 × good at cloud us-1, on-demand, "
        ));
        let plan = by(&|goal| goal.limits.quotas = vec![quota(few)]);
        assert!(says(&plan, &format!("raise the quota of {few} at cloud to 4 (4 × good")), "{:?}", plan.reasons);
    }
    assert!(says(
        &by(&|goal| goal.limits.max_price = UsdPerHour::new(2.5).ok()),
        "allow $4.00/h (--max-price) (4 × good"
    ));
    assert_eq!(by(&|goal| goal.limits.max_gpus = Some(4)).status, PlanStatus::Optimal);
    let cheap = |goal: &mut Goal| {
        (goal.deadline, goal.budget) = (None, Some(usd(9.0)));
        goal.limits.min_gpus = 16;
    };
    assert!(says(&by(&cheap), "allow 8 or more GPUs (--min-gpus) (8 × good"), "{:?}", by(&cheap).reasons);
    // Two limits are in the way: relaxing one does not help.
    let both = by(&|goal| (goal.limits.max_gpus, goal.limits.max_price) = (Some(2), UsdPerHour::new(2.5).ok()));
    assert!(says(&both, "lifting a single limit on offers does not help"), "{:?}", both.reasons);
}
