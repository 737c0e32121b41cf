//! Each reason and note has a sentence: a new variant fails here until it has one.

use super::*;
use habitat_base::units::{Bytes, GpuSlug, Hours, KilogramsCo2e, Micros, Usd, UsdPerHour, Watts};
use habitat_planning::Coded;
use habitat_planning::plan::{
    Accept, Amount, Confidence, Draw, Lift, Machines, NoPlan, Objective, PlanNote, Quota, Reason, RejectionKind,
    Remedies, Risk, SharedLimit,
};
use habitat_planning::pricing::spot::SpotSource;
use habitat_planning::pricing::{Doubt, Held, OfferId, Tier, Unusable};
use habitat_prediction::{Finding, Sharding};
use std::collections::BTreeSet;

fn hours() -> Hours {
    Hours::known(2.0)
}

fn usd() -> Usd {
    Usd::known(30.0)
}

fn price() -> UsdPerHour {
    UsdPerHour::known(1.5)
}

fn kg() -> KilogramsCo2e {
    KilogramsCo2e::known(4.0)
}

fn gpu() -> GpuSlug {
    GpuSlug::new("t4").unwrap()
}

fn offer() -> OfferId {
    OfferId::new("aws", "us-east-1", "g4dn.xlarge", Tier::OnDemand)
}

fn text() -> String {
    "own words".to_owned()
}

fn quota() -> Quota {
    Quota { provider: "aws".to_owned(), region: None, gpu: None, tier: None, gpus: 8, from: None, until: None }
}

fn machines() -> Machines {
    let (provider, region) = ("aws".to_owned(), "us-east-1".to_owned());
    Machines { offer: offer(), provider, region, tier: Tier::OnDemand, gpu: gpu(), all_gpus: 1, machines: 1 }
}

fn reasons() -> Vec<Reason> {
    use Reason as R;
    let (hours, cost_usd, confidence, bytes) = (hours(), usd(), Confidence::Expected, Bytes::known(1e9));
    let provider = || "aws".to_owned();
    vec![
        R::UnusablePrice { why: Unusable::GpusOnly },
        R::InvalidPrice { usd_per_hour: price() },
        R::NoGpu,
        R::UnknownGpu { name: text() },
        R::OfferNotNamed,
        R::TierNotAllowed { tier: Tier::Spot },
        R::GpuNotNamed { gpu: gpu() },
        R::GpuExcluded { gpu: gpu() },
        R::ProviderNotNamed { provider: provider() },
        R::ProviderExcluded { provider: provider() },
        R::MarketplaceExcluded,
        R::RegionNotNamed { region: text() },
        R::RegionExcluded { region: text(), filter: text() },
        R::TooFewGpus { gpus: 1, least: 2 },
        R::TooManyGpus { gpus: 4, most: 2 },
        R::TooDearPerHour { usd_per_hour: price(), most: price() },
        R::TooFewVcpus { vcpus: 4.0, least: 8 },
        R::TooLittleHostMemory { bytes, least: bytes },
        R::VcpusUnknown,
        R::HostMemoryUnknown,
        R::OverQuota { gpus: 16, quota: Box::new(quota()) },
        R::NoPrediction { gpu: gpu() },
        R::NoDuration { gpu: gpu() },
        R::NotScalable { gpus: 2, why: text() },
        R::PowerUnknown { gpu: gpu() },
        R::CarbonUnknown,
        R::Layout { why: text() },
        R::BatchesDoNotDivide {
            count: 8,
            are_replicas: true,
            batch_size: 32,
            global_batch_size: 1000,
            smaller_batch_size: None,
            accumulation: None,
            multiples: vec![768],
        },
        R::UpdateTooLong { batches: 9 },
        R::LostTooOften { per_hour: 9.0, machines: 2 },
        R::OutOfMemory {
            needed_bytes: bytes,
            usable_bytes: bytes,
            gpu_bytes: bytes,
            sharding: Sharding::None,
            replicas: 1,
            model_parallel: Box::default(),
            remedies: Remedies::default(),
        },
        R::DoesNotFit { why: text() },
        R::MemoryUnknown { why: text(), remedies: Remedies::default() },
        R::TooSlow { hours, confidence, late_hours: hours },
        R::TooLong { hours, confidence, cost_usd: usd() },
        R::TooDear { cost_usd, over_usd: cost_usd },
        R::TooMuchCo2 { co2_kg: kg(), over_kg: kg() },
        R::Possible { cost_usd, hours },
        R::CostsMore { cost_usd, hours, more_usd: cost_usd },
        R::TakesLonger { hours, confidence, cost_usd, more_hours: hours, plan_hours: hours },
        R::CostsMoreWithTime { cost_usd, hours, confidence, more_usd: cost_usd },
        R::EmitsMore { co2_kg: kg(), more_kg: kg(), cost_usd, hours },
        R::NotAccepted {
            risks: vec![Risk::Spot],
            accept: vec![Accept::Spot],
            cost_usd,
            hours,
            late_hours: None,
            over_usd: None,
        },
    ]
}

fn no_plans() -> Vec<NoPlan> {
    use NoPlan as N;
    let (hours, cost_usd, with) = (hours(), usd(), || vec![machines()]);
    vec![
        N::NoOffer,
        N::NoFirmOffer,
        N::MoreTime { hours, with: with(), cost_usd },
        N::TimeDoesNotHelp { cost_usd: None, with: with() },
        N::MoreMoney { usd: cost_usd, with: with(), hours },
        N::MoneyDoesNotHelp { hours: None, confidence: Confidence::High, with: with() },
        N::MoreTimeAndMoney { hours, usd: cost_usd, with: with() },
        N::SetupTooLong { has_deadline: true, has_budget: false },
        N::LessWork { fewer: Amount::Steps(9.0), share: 0.1 },
        N::AtExpectedTime { with: with(), hours, cost_usd },
        N::HostWaits { idle_us: Micros::known(74_500.0), step_us: Micros::known(175_200.0) },
        N::OtherLimit { change: Lift::Gpus, with: with(), hours, cost_usd },
        N::LimitsDoNotHelp,
        N::Rejected {
            kind: RejectionKind::Budget,
            offers: 2,
            such_as: offer(),
            reason: Box::new(Reason::NoGpu),
            miss: None,
        },
        N::JobAlone { job: text(), reason: Box::new(N::NoOffer) },
        N::JobTooLate { job: text(), earliest_hours: Some(hours) },
        N::JobLater { job: text(), more_hours: hours },
        N::Overload { jobs: 2, until_hours: Some(hours), limits: vec![SharedLimit::DeadlineHours(hours)], times: 2.0 },
        N::JobsMayWait { cost_usd, hours },
        N::AnyChange,
        N::NoSingleChange,
        N::AllChanges,
        N::SharedLimit { limit: SharedLimit::BudgetUsd(cost_usd), more: 3.0, machines: 0 },
        N::SharedLimitUnknown { limit: SharedLimit::DeadlineHours(hours), why: text() },
        N::NotFound { why: text() },
    ]
}

fn notes() -> Vec<PlanNote> {
    use PlanNote as P;
    let (gb, hours, cost_usd, is_recalled, sharding) = (10.0, hours(), usd(), true, Sharding::Zero1);
    vec![
        P::Scaling { why: text() },
        P::ReplicaMemory { why: text() },
        P::ShardingOfOneGpu { sharding },
        P::Sharding { sharding, gpus: 8, why: text() },
        P::OtherBatch { why: text() },
        P::Precision { finding: Finding::AsTf32 },
        P::OwnMachine { held: Held::Contract { paid: price() } },
        P::PriceList { remark: text() },
        P::BilledByHour,
        P::Terms { term_hours: 720, paid_hours: 720.0, used_hours: hours },
        P::SpotLosses {
            per_hour: 0.1,
            wait_hours: hours,
            source: SpotSource::default(),
            elapsed: 1.1,
            billed: 1.1,
            allowed: 2.0,
        },
        P::Failures { gpus: 64, hours_between: hours, checkpoint_hours: hours, elapsed: 1.01 },
        P::Setup { hours },
        P::DataCopied { gb, hours },
        P::DataMoved { gb, cost_usd, is_recalled },
        P::DataCostUnknown { gb },
        P::DataStored { gb, hours, cost_usd, is_recalled },
        P::StorageUnknown { gb },
        P::DataCopiedTwice,
        P::StorageNotIncluded { gb },
        P::Power { draw: Draw { machines: Watts::known(400.0), pue: 1.2, intensity: None } },
        P::PowerUnknown { gpu: gpu() },
        P::MemoryUnknown,
        P::NoRoom { needed_bytes: Bytes::known(178e9), usable_bytes: Bytes::known(179e9) },
        P::CountedInSteps,
        P::BatchOfOne,
        P::OtherUpdates { updates: 5.0, steps: 10.0 },
        P::OtherGlobalBatch { global_batch_sizes: vec![64], recorded: 32, updates: 5.0, recorded_updates: 10.0 },
        P::PriceInDoubt { offer: offer(), doubts: vec![Doubt::NoDate] },
        P::Switch { to: offer(), latest_hours: hours },
        P::SpotAssumed,
        P::TwoParts { spot: machines(), to: machines(), latest_hours: hours, cost_usd },
        P::MorePartsNotTried,
        P::TightDeadline { saved_usd: cost_usd },
        P::BudgetAtHighEnd { budget_usd: cost_usd, high_usd: cost_usd },
        P::NextBest { offer: offer(), usd_per_hour: price(), now_usd_per_hour: price(), shorter: None },
        P::TermPaysOff { offer: offer(), hours, against: machines() },
        P::TermNeverPaysOff { offer: offer(), against: machines() },
        P::OtherTier { with: machines(), cost_usd, hours, objective: Objective::Cost },
        P::LongPlan { hours },
        P::WorseParts { solver: "HiGHS" },
        P::SolverMissedOffer,
        P::PartsNotSearched { why: text() },
        P::PartsFailedCheck { why: text() },
        P::NothingBetter { solver: "HiGHS" },
        P::SolverMissedGreedy,
        P::Greedy { why: text() },
        P::SharedLimitsCost { more_usd: cost_usd },
    ]
}

/// All codes in the order of the variants, each with words other than its code.
fn every_one_has_a_sentence<T: Words + Coded + Serialize + std::fmt::Debug>(all: &[T])
where
    for<'a> &'a T: Into<&'static str>,
{
    let codes: Vec<&str> = all.iter().map(Coded::code).collect();
    assert_eq!(codes, T::CODES);
    for one in all {
        let words = one.words();
        assert!(words.split(' ').count() > 1 && !words.ends_with(one.code()), "{one:?}: {words}");
        assert_eq!(serde_json::to_value(one).unwrap()["code"], one.code());
    }
}

#[test]
fn one_of_each() {
    every_one_has_a_sentence(&reasons());
    every_one_has_a_sentence(&no_plans());
    every_one_has_a_sentence(&notes());
}

/// `Reason::kind` ends with all others: each of them is a limit.
#[test]
fn reasons_have_their_kind() {
    let all = reasons();
    let kinds: BTreeSet<&str> = all.iter().map(|reason| plan::kind(reason.kind())).collect();
    assert_eq!(kinds.len(), 14);
    let limits = all.iter().filter(|reason| reason.kind() == RejectionKind::Limits);
    let first = all.iter().position(|reason| *reason == Reason::OfferNotNamed).unwrap();
    let last = all.iter().position(|reason| matches!(reason, Reason::OverQuota { .. })).unwrap();
    assert!(limits.eq(&all[first..=last]));
}
